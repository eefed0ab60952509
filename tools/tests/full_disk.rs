//! A disk that fills up while a graph runs, and has room again: a file system of its own, in a
//! namespace.

use crate::program::{Folder, Ran};
use crate::sensors::{masked, quoted};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// What is mounted is small; `filler` takes most of it.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=8m none out || exit 77
head -c 8200000 /dev/zero > out/filler
"$1" graph.yaml --json > run.json 2> err.txt &
run=$!
goes_on() { kill -0 $run 2> /dev/null; }
size() { stat -c %s out/table.csv; }
while goes_on && ! grep -q 'table.*No space left on device' err.txt; do sleep 0.02; done
while goes_on && ! grep -q 'rec.*No space left on device' err.txt; do sleep 0.02; done
rm out/filler
before=$(size)
while $2 && goes_on && [ "$(size)" = "$before" ]; do sleep 0.02; done
while $2 && goes_on && [ ! -e out/r-0002.mcap ]; do sleep 0.02; done
while $2 && goes_on && ! grep -q 'table.*has recovered' err.txt; do sleep 0.02; done
kill -TERM $run
wait $run
code=$?
cp out/* kept
exit $code
"#;

fn graph(table: &str) -> String {
    format!(
        "version: 1\nnodes:\n  numbers: {{ kind: synthetic, config: {{ pattern: counter, shape: [64], rate: 400Hz }} }}\n  \
         table: {{ kind: csv, config: {{ path: out/table.csv, exists: append{table} }}, from: numbers }}\n  \
         lines: {{ kind: jsonl, config: {{ path: out/lines.jsonl, exists: append }}, from: numbers }}\n  \
         array: {{ kind: npy, config: {{ path: out/array.npy, exists: fail }}, from: numbers }}\n  \
         rec: {{ kind: record, config: {{ path: out/r.mcap }}, from: numbers }}\n"
    )
}

/// Runs a graph on a disk that fills up, until its files grow again if that is to be; `None` if
/// this user may mount none.
fn run(folder: &Folder, resumes: bool) -> Option<Ran> {
    fs::create_dir_all(folder.0.join("out")).unwrap();
    fs::create_dir_all(folder.0.join("kept")).unwrap();
    let program = folder.command("").get_program().to_owned();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", SCRIPT, "sh"]).arg(program).arg(resumes.to_string()).current_dir(&folder.0);
    let ran = Ran::from(command.output().ok()?);
    // unshare fails with 1, and so may a run.
    if ran.code == Some(77) || ran.err.starts_with("unshare: ") {
        println!("skipped: this user may mount no file system: {}", ran.err);
        return None;
    }
    Some(ran)
}

/// Promise (files): A full disk does not stop a run: lost messages are counted, no message is torn,
/// and files continue when there is room.
#[test]
fn a_full_disk_stops_no_robot_and_the_files_go_on_when_there_is_room() {
    let folder = Folder::with("disk-full", &graph(""));
    let Some(ran) = run(&folder, true) else { return };
    let read = |name: &str| fs::read(folder.0.join(name)).unwrap();
    let events = String::from_utf8(read("err.txt")).unwrap();
    assert_eq!(ran.code, Some(0), "{}{events}", ran.err);
    let told: Vec<String> = events.lines().map(masked).collect();
    assert!(quoted("Full disk").iter().all(|line| told.contains(line)), "{events}");
    let json: Value = serde_json::from_slice(&read("run.json")).unwrap();
    assert_eq!(json["degraded"], true);
    let node = |name: &str| json["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0) as u64;
    let metric = |name: &str, key: &str| number(&node(name)["metrics"][key]);
    let sent = number(&node("numbers")["done"]).max(number(&node("table")["taken"]));
    let table = String::from_utf8(read("kept/table.csv")).unwrap();
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(table.ends_with('\n') && rows.iter().all(|row| row.split(',').count() == 65), "a row is torn");
    let lines = String::from_utf8(read("kept/lines.jsonl")).unwrap();
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "a line is torn");
    let array = read("kept/array.npy");
    let items = metric("array", "items");
    assert_eq!(array.len() as u64 % (64 * 8), array.len() as u64 - items * 64 * 8);
    let in_file = [("table", rows.len() as u64), ("lines", lines.lines().count() as u64), ("array", items)];
    for (name, in_file) in in_file.into_iter().chain([("rec", metric("rec", "recorded"))]) {
        let (full, failed) = (metric(name, "disk_full"), number(&node(name)["failed"]));
        assert!(in_file > 0 && in_file + full + failed >= sent, "{name}: {in_file}, {full}, {failed} of {sent}");
        assert_eq!(in_file + full + failed, number(&node(name)["done"]) + failed, "{name}");
    }
    // About one event a second for each node.
    for name in ["table", "lines", "array", "rec"] {
        assert!(events.lines().any(|line| line.contains(name) && line.contains("No space left on device")), "{events}");
    }
    let of_table = events.lines().filter(|line| line.contains("`table`")).count() as f64;
    assert!(of_table <= number(&json["wall_s"]) as f64 + 2.0, "{events}");
}

/// Promise (files): With `on_full: stop` or `detach`, a full disk ends the run or detaches the
/// sink.
#[test]
fn a_full_disk_stops_a_run_or_detaches_a_node_as_configured() {
    for (policy, code) in [("stop", 1), ("detach", 0)] {
        let folder = Folder::with(&format!("disk-{policy}"), &graph(&format!(", on_full: {policy}")));
        let Some(ran) = run(&folder, false) else { return };
        let events = fs::read_to_string(folder.0.join("err.txt")).unwrap();
        assert_eq!(ran.code, Some(code), "{policy}: {}{events}", ran.err);
        let table = fs::read_to_string(folder.0.join("kept/table.csv")).unwrap();
        assert!(table.lines().skip(1).all(|row| row.split(',').count() == 65) && table.ends_with('\n'), "{policy}");
    }
}
