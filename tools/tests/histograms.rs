//! `limen-run hist` on the files of real runs.

use crate::program::Folder;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const GRAPH: &str = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, count: 3000 } }\n  \
                     b: { kind: pass, from: a }\n  c: { kind: 'null', from: b }\n";

/// A folder with the dumps of three runs.
fn dumps(test: &str, option: &str) -> Folder {
    let folder = Folder::with(test, GRAPH);
    for n in 0..3 {
        folder.run(&format!("graph.yaml -q --telemetry full {option} --histograms runs/{n}")).expect(0, "", "");
    }
    folder
}

#[test]
fn every_format_says_the_same() {
    let folder = dumps("hist-formats", "");
    let dump = folder.run("hist print runs/0");
    dump.expect(0, "a->c", "").expect(0, "b.compute", "");
    assert!(dump.out.lines().all(|line| line.chars().count() <= 80), "{}", dump.out);
    for (from, to) in [("runs/0", "x.csv"), ("x.csv", "x.json"), ("x.json", "x.hlog"), ("x.hlog", "y.csv")] {
        folder.run(&format!("hist convert {from} {to}")).expect(0, "", "");
        assert_eq!(folder.run(&format!("hist print {to}")).out, dump.out, "{to}");
    }
    assert_eq!(fs::read(folder.0.join("x.csv")).unwrap(), fs::read(folder.0.join("y.csv")).unwrap());
    // The percentile files of the run itself, written by other code.
    folder.run("hist convert runs/0 percentiles --to hgrm").expect(0, "", "");
    for entry in fs::read_dir(folder.0.join("percentiles")).unwrap() {
        let path = entry.unwrap().path();
        let its = fs::read_to_string(folder.0.join("runs/0").join(path.file_name().unwrap())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), its, "{path:?}");
    }
    folder.run("hist convert runs/0 - --to json --tag b.compute").expect(0, "\"tag\":\"b.compute\"", "");
    folder.run("hist plot runs/0 --tag b").expect(0, "b.compute: 3000 values", "");
    folder.run("hist plot runs --svg plot.svg").expect(0, "", "");
    assert!(fs::read_to_string(folder.0.join("plot.svg")).unwrap().contains("2 a-&gt;c: 3000 values"));
}

#[test]
fn runs_are_added() {
    let folder = dumps("hist-merge", "");
    folder.run("hist merge runs --out all.hlog").expect(0, "", "histograms of 3 runs");
    folder.run("hist print all.hlog --tag b.compute").expect(0, "b.compute  9000", "");
}

#[test]
fn a_killed_run_leaves_histograms_that_are_read() {
    let graph = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, rate: 50Hz } }\n  \
                 b: { kind: console, from: a }\n";
    let folder = Folder::with("hist-killed", graph);
    let mut child = folder.command("graph.yaml -q --histograms h").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Lines come at the graph's rate; an interval is written after a second or two.
    let has_both = |printed: &str| printed.contains("a->b") && printed.contains("a.compute");
    let written = lines.by_ref().take(50 * 60).any(|_| has_both(&folder.run("hist print h").out));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(written);
    let names: Vec<_> = fs::read_dir(folder.0.join("h")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [part] = &names[..] else { panic!("{names:?}") };
    let printed = folder.run("hist print h");
    printed.expect(0, "a.compute", "").expect(0, "a->b", "");
    // The same from the folder above it, and with a torn last line.
    let text = fs::read_to_string(part).unwrap();
    fs::write(part, format!("{text}Tag=a.compute,1.0,1.0,0.1,HISTFA")).unwrap();
    assert_eq!(folder.run("hist print .").out, printed.out);
    // A run that ends is a run of its own.
    folder.run("graph.yaml -q --frames 1 --histograms i/new").expect(0, "", "");
    fs::rename(part, folder.0.join("i/new").join(part.file_name().unwrap())).unwrap();
    folder.run("hist print i").expect(0, "new/graph.hlog:", "").expect(0, ".part:", "");
}

#[test]
fn counts_that_are_estimates_are_said_to_be() {
    let folder = Folder::with("hist-sampled", GRAPH);
    for (telemetry, note) in [("full", ""), ("sampled", "counts are estimates")] {
        let ran = folder.run(&format!("graph.yaml -q --json --telemetry {telemetry} --histograms {telemetry}"));
        let json = ran.json();
        for one in json["histograms"].as_array().unwrap() {
            let (count, samples) = (one["count"].as_u64().unwrap(), one["samples"].as_u64().unwrap());
            // Slow calls of bursts that are not recorded are recorded too.
            let most = if telemetry == "sampled" && one["term"] == "compute" { 6000 } else { 3000 };
            assert!(samples <= count && count <= most, "{one}");
            assert!(telemetry != "full" || samples == 3000, "{one}");
        }
        let printed = folder.run(&format!("hist print {telemetry}"));
        printed.expect(0, "a->c", note);
        assert_eq!(printed.err.is_empty(), note.is_empty(), "{}", printed.err);
    }
}

#[test]
fn comparisons_have_exit_codes() {
    // Whatever else the machine does, these runs are alike.
    let folder = dumps("hist-compare", "--simulated");
    for (words, code, out, err) in [
        (
            "--base runs/0 runs/1 --new runs/1 runs/0 --fail 'p50(b.compute)=+900%'",
            0,
            "base: 2 runs: runs/0, runs/1",
            "is kept",
        ),
        ("runs runs --fail p50(b.compute)=+0%", 0, "", ""),
        (
            "runs runs --fail p50(x.compute)=+5%",
            3,
            "",
            "limit tripped: p50(x.compute)=+5% cannot be judged: the runs have no such",
        ),
        ("runs/0 runs/1 --fail p50(e2e)=+5%", 3, "a single run does not show", "cannot be judged"),
        ("runs runs --json", 0, "\"confidence\": 0.99", ""),
        ("runs nowhere", 2, "", "limen-run: nowhere: "),
        ("runs", 2, "", "required"),
        ("runs runs --fail p50(e2e)>5%", 2, "", "expected `=`"),
        ("runs runs --figures max", 2, "", "expected `mean` or a percentile such as p99.9, found `max`"),
    ] {
        folder.run(&format!("hist compare {}", words.replace('\'', ""))).expect(code, out, err);
    }
    let path = folder.0.join("runs/2/run.json");
    let run = fs::read_to_string(&path).unwrap();
    let mut host: serde_json::Value = serde_json::from_str(&run).unwrap();
    host["cpu"] = "Z80".into();
    fs::write(&path, host.to_string()).unwrap();
    let words = "hist compare --base runs/0 runs/1 --new runs/1 runs/2 --fail p50(b.compute)=+900%";
    folder.run(words).expect(3, "hosts differ: CPU", "the hosts differ in CPU: add --any-host");
    // Not with what stands before it: a long name of the CPU at hand breaks the line there.
    folder.run(&format!("{words} --any-host")).expect(0, "Z80", "is kept");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = dumps("hist-errors", "");
    fs::write(folder.0.join("bad.hlog"), "#[Histogram log format version 1.3]\n0.1,1,2,HISTFAAA\n").unwrap();
    fs::create_dir(folder.0.join("empty")).unwrap();
    for (words, code, expected) in [
        ("print bad.hlog", 2, "bad.hlog:2: the histogram"),
        ("print graph.yaml", 2, "graph.yaml: expected an HdrHistogram interval log"),
        ("print empty", 2, "empty: expected an .hlog in the folder or its subfolders"),
        ("print runs/0/summary.json", 2, "a summary has no counts: read the .hlog in the same folder"),
        ("print runs --tag x", 2, "found `x`"),
        ("print runs --unit 0s", 2, "`--unit` must be above 0s"),
        ("merge runs --out x.hgrm", 2, "ends in .hlog, .csv or .json"),
        ("merge runs --out nowhere/x.csv", 1, "nowhere/x.csv: "),
        ("convert runs/0 x.hgrm", 2, "choose one histogram with --tag, or write to a folder"),
        ("convert runs/0 x", 2, "found `x`: add `--to hlog`"),
        ("convert runs x.csv", 2, "expected one run, found 3"),
        ("compare", 2, "required"),
        ("", 2, "Usage: limen-run hist"),
    ] {
        folder.run(&format!("hist {words}")).expect(code, "", expected);
    }
}

/// Names of histograms come from anywhere.
#[test]
fn names_do_not_control_the_terminal() {
    let folder = Folder::with("hist-names", GRAPH);
    fs::write(folder.0.join("x.csv"), "tag,value_ns,count\n\u{1b}[2Ja\u{202e}\u{7f}.e2e,5,100\n").unwrap();
    for words in
        ["print x.csv", "plot x.csv", "print x.csv --tag y", "convert x.csv - --to json", "compare x.csv x.csv"]
    {
        let ran = folder.run(&format!("hist {words}"));
        let all = ran.out.clone() + &ran.err;
        let controls: String = all.chars().filter(|c| *c != '\n' && limen::text::is_terminal_control(*c)).collect();
        assert!(controls.is_empty(), "{words}: {controls:?}");
    }
}

#[test]
fn one_command_takes_runs_of_both_sides_in_turns_and_compares_them() {
    let folder = Folder::with("hist-turns", GRAPH);
    let program = folder.command("").get_program().to_str().unwrap().to_string();
    let compare = |base: &str, new: &str, words: &str| {
        let mut command = folder.command("hist compare base new --runs 3");
        command.args(["--run-base", base, "--run-new", new]).args(words.split_whitespace());
        crate::program::Ran::from(command.output().unwrap())
    };
    let run = |rest: &str| format!("{program} graph.yaml -q --telemetry full{rest} && echo $LIMEN_HISTOGRAMS >> order");
    let ran = compare(&run(""), &run(" --set nodes.b.fault.delay=100us"), "--json --fail p50(b.compute)=+50%");
    ran.expect(3, "\"changes\"", "limit tripped: ");
    let order = fs::read_to_string(folder.0.join("order")).unwrap();
    let expected = ["base/000", "new/000", "new/001", "base/001", "base/002", "new/002"];
    assert_eq!(order.lines().collect::<Vec<_>>(), expected);
    compare(&run(""), &run(""), "").expect(2, "", "base: already exists");
    fs::remove_dir_all(folder.0.join("base")).unwrap();
    fs::remove_dir_all(folder.0.join("new")).unwrap();
    compare("exit 3", &run(""), "").expect(1, "", "`exit 3` failed in run 1 of 3: exit status: 3");
}
