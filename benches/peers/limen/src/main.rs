//! `limen-run` with the kinds of the chain: what a program with kinds of its own looks like.

fn main() -> std::process::ExitCode {
    limen_run::main(limen_run::registry().with(limen_benches::register))
}
