//! `limen-top --once` on a graph that runs in this process, and on sockets that only look like a
//! run's.

#![allow(missing_docs, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use limen::{Plan, Spec};
use limen_run::Monitor;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const GRAPH: &str = "
version: 1
graph: shown
nodes:
  ticks: { kind: synthetic, config: { pattern: counter, rate: 500Hz } }
  pass: { kind: throttle, config: { rate: 100Hz }, from: ticks }
  end: { kind: 'null', from: { from: pass, capacity: 9 } }
";

/// Runs `limen-top` with a folder of its own for sockets.
fn top(runtime: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limen-top"));
    command.args(words).env("XDG_RUNTIME_DIR", runtime).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A folder for sockets.
fn sockets() -> (tempfile::TempDir, PathBuf) {
    let runtime = tempfile::tempdir().unwrap();
    let folder = runtime.path().join("limen");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    (runtime, folder)
}

/// Answers every line on a socket with the same one.
fn answers(path: &Path, answer: &Value) {
    let (listener, answer) = (UnixListener::bind(path).unwrap(), format!("{answer}\n"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            for _ in BufReader::new(&stream).lines().map_while(Result::ok) {
                if (&stream).write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
}

#[test]
fn a_running_graph_is_printed_once() {
    let plan = Plan::new(Spec::from_text(GRAPH, "graph.yaml").unwrap(), &limen_run::registry()).unwrap();
    let mut monitor = Monitor::new(&plan).unwrap();
    let socket = monitor.path().to_str().unwrap().to_string();
    let mut running = plan.wire().unwrap().start().unwrap();
    let (done, is_done) = channel();
    let path = socket.clone();
    let asking = std::thread::spawn(move || {
        let empty = tempfile::tempdir().unwrap();
        let table = top(empty.path(), &[&path, "--once"]);
        let json = top(empty.path(), &[&path, "--once", "--json"]);
        done.send(()).unwrap();
        (table, json)
    });
    while is_done.try_recv().is_err() {
        assert!(!running.wait_for(Duration::from_millis(20)));
        monitor.poll(&running);
    }
    let (table, json) = asking.join().unwrap();
    assert!(table.status.success() && json.status.success(), "{}", text(&json.stderr));
    let table = text(&table.stdout);
    for expected in ["node ", "\nticks ", "edge ", "\npass/out -> end/in ", "path ", "\nticks -> end ", "worker "] {
        assert!(table.contains(expected) || table.starts_with(expected), "no {expected:?} in\n{table}");
    }
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["graph"], &json["state"]), (&json!("shown"), &json!("running")));
    // Of the second between the two questions, however late a loaded machine asks: five in six are
    // stopped.
    let rate = |list: &str, at: usize| json[list][at]["rate"].as_f64().unwrap();
    assert!(rate("nodes", 0) > 0.0 && rate("nodes", 2) > 0.0 && rate("nodes", 2) < rate("nodes", 0), "{json:#}");
    assert!(rate("edges", 0) > rate("edges", 1), "{json:#}");
    assert!(json["workers"][0]["cpu"].as_f64().is_some(), "{json:#}");
    running.stopper().stop();
    assert!(running.wait().bugs.is_empty());
    drop(monitor);
    assert!(!Path::new(&socket).exists());
}

#[test]
fn the_only_running_graph_needs_no_name() {
    let (runtime, folder) = sockets();
    let pid = std::process::id();
    let refused = |words: &[&str], expected: &str| {
        let output = top(runtime.path(), words);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.starts_with("limen-top: ") && err.contains(expected), "{err}");
        assert!(!err.contains('\x1b'), "{err}");
    };
    refused(&["--once"], "no graph runs with a monitor: start one with `limen-run GRAPH --monitor`");
    refused(&["nothing", "--once"], "no graph runs with a monitor");
    let stats =
        |graph: &str| json!({ "version": 1, "ok": true, "stats": { "graph": graph, "pid": pid, "elapsed_s": 7.0 } });
    answers(&folder.join(format!("one-{pid}.sock")), &stats("one\x1b[2J"));
    // One that nobody serves any more does not count.
    drop(UnixListener::bind(folder.join(format!("gone-{pid}.sock"))).unwrap());
    let output = top(runtime.path(), &["--once", "--json"]);
    assert!(output.status.success() && !output.stdout.contains(&0x1b), "{}", text(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["graph"], "one\x1b[2J");
    answers(&folder.join(format!("two-{pid}.sock")), &stats("two"));
    refused(&["--once"], "several graphs run: name a graph or a process:\n  ");
    refused(&["--once"], ", process ");
    refused(&["three", "--once"], "no graph `three` runs with a monitor: name one of:\n");
    let output = top(runtime.path(), &["two", "--once", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["graph"], "two");
    // stdout is a pipe here.
    refused(&["two"], "stdout is not a terminal: add `--once`");
    answers(&folder.join(format!("other-{pid}.sock")), &json!({ "hello": 1 }));
    refused(&["other", "--once"], "this is not the socket of a monitor");
    refused(&["/nowhere/a.sock", "--once"], "`/nowhere/a.sock`: ");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    refused(&["--once"], "is open to other users (mode 755)");
}
