//! `limen-run`: the stock nodes and backends behind the command line of [`limen_run::main`].

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    limen_run::main(limen_run::registry())
}
