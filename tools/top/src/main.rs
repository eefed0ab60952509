//! `limen-top` watches a running graph: the calls of its nodes and their times, the queue depth of
//! its edges, lost messages, and the CPU time of its threads. It asks the monitor of the run
//! (`limen-run --monitor`) once a second.

#![forbid(unsafe_code)]

mod screen;
mod stats;
mod table;
mod text;
mod threads;

use clap::Parser;
use limen::unit::Span;
use limen_run::MonitorClient;
use stats::{Shown, Stats};
use std::io::{self, IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use table::View;

const STATS: &str = r#"{"ask":"stats"}"#;
/// Windows of a run last a second, and a little longer where a worker was in a call.
const ONCE: Duration = Duration::from_millis(1050);

/// Watches a running limen graph (limen-run --monitor, or `run: { monitor: true }` in the graph)
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Keys: tab next view, g graph, s sort, r reverse, ? help, q quit\n\n\
Exit status: 0; 1 if nothing runs or the run has ended; 2 for bad arguments"
)]
struct Arguments {
    /// The graph's name, the number of its process, or the path of its socket; may be left out if
    /// one graph runs
    #[arg(value_name = "GRAPH")]
    graph: Option<String>,

    /// Print everything once, and exit: what happened within the next second
    #[arg(long)]
    once: bool,

    /// Print one JSON object, with the keys of the monitor's answer and `rate` and `cpu`
    #[arg(long, requires = "once")]
    json: bool,

    /// Time between two looks, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Span,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match go(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // A closed stderr is ignored.
            let _ = writeln!(io::stderr(), "limen-top: {}", text::lines(&why));
            ExitCode::from(1)
        }
    }
}

fn go(arguments: &Arguments) -> Result<(), String> {
    let socket = find(arguments.graph.as_deref())?;
    let mut client = connect(&socket)?;
    if arguments.once {
        let first = ask(&mut client)?;
        std::thread::sleep(ONCE);
        let second = ask(&mut client)?;
        let text = if arguments.json {
            text::plain_json(&format!("{:#}\n", second.with_rates(&first)))
        } else {
            let shown = Shown::new(second, Some(&first));
            View::ALL.map(|view| table::text(&shown, view)).join("\n")
        };
        // A stdout that was closed early is no error.
        let _ = stdout().write_all(text.as_bytes());
        return Ok(());
    }
    if !stdout().is_terminal() {
        return Err("stdout is not a terminal: add `--once` for one table, or `--once --json`".into());
    }
    screen::watch(client, socket, arguments.every.0.max(Duration::from_millis(100)))
}

/// Asks for the statistics.
fn ask(client: &mut MonitorClient) -> Result<Stats, String> {
    let answer = client.ask(STATS).map_err(|error| error.to_string())?;
    Stats::read(answer)
}

fn connect(socket: &Path) -> Result<MonitorClient, String> {
    MonitorClient::connect(socket).map_err(|error| format!("`{}`: {error}", socket.display()))
}

/// Finds the socket that an argument names.
fn find(graph: Option<&str>) -> Result<PathBuf, String> {
    if let Some(path) = graph.filter(|graph| graph.contains('/')) {
        return Ok(path.into());
    }
    let running = MonitorClient::running().map_err(|error| error.to_string())?;
    let named: Vec<&PathBuf> = running.iter().filter(|path| graph.is_none_or(|graph| is_named(path, graph))).collect();
    match named[..] {
        [path] => Ok(path.clone()),
        [] => Err(match (graph, running.len()) {
            (Some(graph), 1..) => {
                format!("no graph `{graph}` runs with a monitor: name one of:\n{}", list(running.iter()))
            }
            _ => "no graph runs with a monitor: start one with `limen-run GRAPH --monitor`".into(),
        }),
        _ => Err(format!("several graphs run: name a graph or a process:\n{}", list(named.into_iter()))),
    }
}

/// Whether a socket is that of a graph or of a process.
fn is_named(socket: &Path, graph: &str) -> bool {
    let name = socket.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // `NAME-PID`, or `NAME-PID-NTH`; a name may have dashes too.
    let rest = name.strip_prefix(graph).and_then(|rest| rest.strip_prefix('-'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_some_and(|rest| rest.split('-').all(is_number))
        || is_number(graph) && name.rsplit('-').take(2).any(|part| part == graph)
}

/// The graphs behind sockets, a line each.
fn list<'a>(sockets: impl Iterator<Item = &'a PathBuf>) -> String {
    let lines = sockets.map(|path| {
        let asked = connect(path).and_then(|mut client| ask(&mut client));
        let about = asked.map_or_else(
            |why| format!("({why})"),
            |stats| format!("{}, process {}, for {}", stats.graph, stats.pid, text::time(stats.elapsed_s)),
        );
        format!("  {}  {about}", path.display())
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_valid_and_its_help_fits_80_columns() {
        Arguments::command().debug_assert();
        let help = Arguments::command().term_width(80).render_long_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn a_socket_is_found_by_graph_or_process() {
        for (socket, graph, expected) in [
            ("/run/a-12.sock", "a", true),
            ("/run/a-12.sock", "12", true),
            ("/run/a-12-2.sock", "a", true),
            ("/run/a-12-2.sock", "12", true),
            ("/run/a-b-12.sock", "a", false),
            ("/run/a-b-12.sock", "a-b", true),
            ("/run/a-12.sock", "", false),
            ("/run/a-12.sock", "1", false),
            ("/run/a-12.sock", "b", false),
        ] {
            assert_eq!(is_named(Path::new(socket), graph), expected, "{socket} {graph}");
        }
    }
}
