//! Requests to stop that arrive several times within microseconds, at a random moment: the run
//! drains once, its file is complete, and it reports.

use super::program;
use limen_tests::fuzz::{attack_in_children, pick};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

const GRAPH: &str = "version: 1\nnodes:\n  s: { kind: timer, config: { rate: 1kHz } }\n  \
                     c: { kind: csv, config: { path: out/c.csv }, from: s }\n  seen: { kind: console, from: s }\n";

/// Promise (stops): Signals within microseconds count as one request.
///
/// Attack (signals): stop requests within microseconds, at a random moment; expected: the run
/// drains once, completes its files and reports
#[test]
fn signals_within_microseconds_are_one_request() {
    attack_in_children("signals", 10, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let folder = folder.path();
        fs::write(folder.join("graph.yaml"), GRAPH).map_err(|error| error.to_string())?;
        let mut child = program(folder, "graph.yaml")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut out = BufReader::new(child.stdout.take().ok_or("stdout")?);
        for _ in 0..random.u32(1..20) {
            out.read_line(&mut String::new()).map_err(|error| error.to_string())?;
        }
        let process = Pid::from_raw(i32::try_from(child.id()).map_err(|error| error.to_string())?);
        let mut one = || *pick(&mut random, &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        let sent = [one(), one(), one(), one()];
        // A stopped process gets all of them at once when it goes on.
        for signal in [Signal::SIGSTOP].iter().chain(&sent).chain(&[Signal::SIGCONT]) {
            // It may have ended by the first.
            let _ = kill(process, *signal);
        }
        let (mut report, mut said) = (String::new(), String::new());
        out.read_to_string(&mut report).map_err(|error| error.to_string())?;
        child.stderr.take().ok_or("stderr")?.read_to_string(&mut said).map_err(|error| error.to_string())?;
        let code = child.wait().map_err(|error| error.to_string())?.code();
        let names = fs::read_dir(folder.join("out")).map_err(|error| error.to_string())?;
        let names: Vec<_> = names.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        if code != Some(0) || !report.contains("stopped after") || names != ["c.csv"] {
            return Err(format!("{sent:?}: code {code:?}, {names:?}\n{report}\n{said}"));
        }
        Ok(true)
    });
}
