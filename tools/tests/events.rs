//! Events are printed on stderr during the run.

use crate::program::Folder;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Eighty calls that fail within a second, and a node that hangs from its third message on.
const FAILING: &str = "
version: 1
graph: failing
nodes:
  ticks: { kind: synthetic, core: 0, config: { pattern: counter, count: 80, rate: 100Hz } }
  fails: { kind: pass, core: 0, from: ticks, on_error: skip, fault: { error_every: 1 } }
  none: { kind: 'null', core: 0, from: fails }
  hangs: { kind: pass, core: 1, from: { from: ticks, when_full: latest }, fault: { hang_at: 3 } }
  rest: { kind: 'null', core: 0, from: hangs }
run: { watchdog: 100ms, stop: 100ms }
";

/// Promise (events): `limen-run` prints failures and hangs during the run, at most one line a
/// second for each kind and place.
#[test]
fn failures_and_hangs_are_printed_during_the_run() {
    for format in ["text", "json"] {
        let folder = Folder::with(&format!("events-{format}"), FAILING);
        let mut command = folder.command(&format!("graph.yaml --log-format {format}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut lines = Vec::new();
        let is_said = |lines: &[String], what: &str| lines.iter().any(|line| line.contains(what));
        let wanted = ["`fails` failed in `call` after 0 calls", "`hangs` has not returned for more than 100 ms"];
        while !(wanted.iter().all(|what| is_said(&lines, what)) && lines.iter().any(|line| stands_for(line) > 1)) {
            let mut line = String::new();
            assert!(err.read_line(&mut line).unwrap() > 0, "it ended after {lines:#?}");
            lines.push(line);
        }
        // Not printed after the fact: the node hangs, and the run continues until it is stopped.
        assert!(child.try_wait().unwrap().is_none(), "{lines:#?}");
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut rest = String::new();
        err.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(70), "{lines:#?} {rest}");
        lines.extend(rest.lines().map(String::from));
        // Eighty failures take few lines, and each is counted.
        let failures: Vec<&String> = lines.iter().filter(|line| line.contains("`fails` failed")).collect();
        assert_eq!(failures.iter().map(|line| stands_for(line)).sum::<u64>(), 80, "{lines:#?}");
        assert!(failures.len() <= 4, "{lines:#?}");
        for line in failures {
            match format {
                "text" => assert!(line.as_bytes()[4] == b'-' && line.contains("Z "), "{line}"),
                _ => {
                    let object: Value = serde_json::from_str(line).unwrap();
                    assert_eq!((&object["event"], &object["node"]), (&"failed".into(), &"fails".into()), "{line}");
                    assert!(object["time"].as_f64() > Some(1e9) && object["at"].as_u64() > Some(0), "{line}");
                }
            }
        }
    }
}

/// The number of events that a line stands for.
fn stands_for(line: &str) -> u64 {
    if let Ok(object) = serde_json::from_str::<Value>(line) {
        return object["count"].as_u64().unwrap_or(0);
    }
    let times = line.split_once("… ×").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    times.unwrap_or(1)
}

/// All packets of a sensor have a wrong key, and all messages of another miss their deadline: both
/// are said while the run goes on.
#[test]
fn losses_inside_nodes_and_missed_deadlines_are_printed_during_the_run() {
    let graph = "
version: 1
nodes:
  lines: { kind: file, config: { path: lines.txt, framing: lines, rate: 100Hz, repeat: 1000 } }
  imu: { kind: decode, config: { format: json, fields: [{ name: gyr, type: f32 }] }, from: lines }
  out: { kind: 'null', from: imu }
  cam: { kind: synthetic, config: { pattern: counter, rate: 50Hz } }
  slow: { kind: pass, from: cam, fault: { delay: 10ms } }
  act: { kind: 'null', from: slow }
paths: [{ from: cam, to: act, deadline: 5ms }, { from: lines, to: out, deadline: 5ms }]
";
    let folder = Folder::with("events-inside", graph);
    std::fs::write(folder.0.join("lines.txt"), "{\"gyro\":1}\n".repeat(100)).unwrap();
    let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut wanted = vec![
        " messages (malformed) in ",
        "Z cam -> act missed its deadline of 5.00 ms: ",
        "Z lines -> out: nothing arrived for ",
    ];
    while !wanted.is_empty() {
        let line = lines.next().unwrap_or_else(|| panic!("it ended before {wanted:?}"));
        wanted.retain(|what| !line.contains(what));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    lines.for_each(drop);
    assert!(child.wait_with_output().unwrap().status.success());
}
