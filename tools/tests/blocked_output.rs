//! A reader of stdout or stderr that stops reading: `limen-run .. | less`, a terminal after Ctrl-S,
//! a logger that hangs.

use crate::program::{Folder, signal_until_it_ends};
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::process::Stdio;

const CONSOLE: &str = "version: 1\nrun: { stop: 200ms }\nnodes:\n  s: { kind: timer, config: { rate: 1kHz } }\n  \
                       c: { kind: console, from: s }\n";
const STDOUT: &str = "version: 1\nrun: { stop: 200ms }\nnodes:\n  \
                      s: { kind: synthetic, config: { pattern: counter, shape: [64], dtype: u8, rate: 1kHz } }\n  \
                      c: { kind: stdout, config: { framing: length }, from: s }\n";

/// A pipe of one page.
fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    fcntl(writer.as_fd(), FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    (reader, writer)
}

/// Waits until the only page of a pipe is in use.
fn fill(writer: &PipeWriter) {
    let is_full = || poll(&mut [PollFd::new(writer.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO).unwrap() == 0;
    while !is_full() {
        std::thread::yield_now();
    }
}

/// Promise (stops): A run ends within `run.stop` even if nothing reads its output; the report
/// counts what was not printed.
#[test]
fn a_run_ends_although_nobody_reads() {
    for (name, graph) in [("console", CONSOLE), ("stdout", STDOUT)] {
        let folder = Folder::with(&format!("blocked-{name}"), graph);
        // With `--json`, nodes print on stderr.
        let (_reader, mut full) = small_pipe();
        full.write_all(&[b' '; 4096]).unwrap();
        let mut command = folder.command("graph.yaml");
        command.args(["--json", "--duration", "100ms"]).stdout(Stdio::piped()).stderr(full);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut report = String::new();
        child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(70), "{name}: {report}");
        let report: Value = serde_json::from_str(&report).unwrap();
        let node = report["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "c").unwrap();
        assert!(!node["abandoned"].as_bool().unwrap_or(false), "{node:#}");
        assert!(node["metrics"]["unwritten"].as_f64().is_some_and(|unwritten| unwritten > 0.0), "{node:#}");
        let edge = &report["edges"][0];
        let [sent, received, left] = ["sent", "received", "left"].map(|key| edge[key].as_u64().unwrap());
        assert_eq!(sent, received + left, "{edge:#}");
    }
}

/// Promise (stops): The second signal ends the process even if its output is blocked.
#[test]
fn a_second_signal_ends_a_process_that_nobody_reads() {
    // The report has more than a page.
    let many: String = (0..80).map(|at| format!("  n{at}: {{ kind: 'null', from: s }}\n")).collect();
    for (has_err, name, code) in [(false, "TERM", 143), (true, "INT", 130)] {
        let folder = Folder::with(&format!("blocked-twice-{has_err}"), &format!("{CONSOLE}{many}"));
        let (_reader, full) = small_pipe();
        let mut command = folder.command("graph.yaml");
        command.stdout(full.try_clone().unwrap()).stderr(Stdio::null());
        if has_err {
            command.stderr(full.try_clone().unwrap());
        }
        let mut child = command.spawn().unwrap();
        fill(&full);
        signal_until_it_ends(&mut child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
    }
}
