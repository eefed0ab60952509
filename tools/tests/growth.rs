//! What a run costs after planning grows with the size of the graph, whatever output was asked for.

use crate::program::Folder;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fmt::Write;
use std::process::Command;

/// Nodes of the small graph; the large one has four times as many.
const NODES: usize = 150;

/// A source with many sinks, each behind a node, and each with a deadline.
fn wide(nodes: usize) -> String {
    let mut text =
        "version: 1\nnodes:\n  s: { kind: synthetic, config: { pattern: counter, count: 30 } }\n".to_string();
    for n in 0..nodes / 2 {
        let _ = writeln!(text, "  p{n}: {{ kind: pass, from: s }}\n  z{n}: {{ kind: 'null', from: p{n} }}");
    }
    let paths = (0..nodes / 2).map(|n| format!("{{ from: s, to: z{n}, deadline: 1h, on_miss: count }}"));
    text + &format!("paths: [{}]\n", paths.collect::<Vec<_>>().join(", "))
}

/// Pairs of a source and a sink.
fn pairs(nodes: usize) -> String {
    let mut text = "version: 1\nnodes:\n".to_string();
    for n in 0..nodes / 2 {
        let _ = writeln!(text, "  s{n}: {{ kind: synthetic, config: {{ pattern: counter, count: 30 }} }}");
        let _ = writeln!(text, "  z{n}: {{ kind: 'null', from: s{n} }}");
    }
    text
}

/// What a run cost: CPU time in ms, and the peak of memory in KiB.
struct Cost {
    time: i64,
    memory: i64,
}

/// Every output at once, and what a terminal gets with and without a clock.
const OUTPUTS: [&str; 3] = [
    "--simulated -v",
    "--simulated --json --report r.html --histograms h --svg r.svg --dot r.dot --mermaid r.mmd",
    "-q --report r.html --histograms h --trace r.pftrace",
];

#[test]
#[ignore = "one run in a separate process, started by the test below"]
fn one() {
    let case = std::env::var("LIMEN_GROWTH_CASE").unwrap();
    let [graph, nodes, words] = case.split('|').collect::<Vec<_>>()[..] else { panic!("{case}") };
    let make = if graph == "wide" { wide } else { pairs };
    let ran = Folder::with("growth", &make(nodes.parse().unwrap())).run(&format!("run graph.yaml {words}"));
    ran.expect(0, "", "");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    println!("\ncost {} {}", (usage.user_time() + usage.system_time()).num_milliseconds(), usage.max_rss());
}

/// Runs a graph in a process of its own, whose only child it is.
fn cost(graph: &str, nodes: usize, words: &str) -> Cost {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "growth::one", "--nocapture", "--include-ignored"])
        .env("LIMEN_GROWTH_CASE", format!("{graph}|{nodes}|{words}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let found = said.lines().find_map(|line| line.strip_prefix("cost ")?.split_once(' '));
    let (time, memory) = found.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&child.stderr)));
    Cost { time: time.parse().unwrap(), memory: memory.parse().unwrap() }
}

/// Four times the nodes cost four times as much, and not sixteen times. The limit lies between the two, as other load disturbs caches.
#[test]
fn the_cost_of_a_run_grows_with_the_graph() {
    for (graph, words) in ["wide", "pairs"].into_iter().flat_map(|graph| OUTPUTS.map(|words| (graph, words))) {
        let is_linear = || {
            let (few, many) = (cost(graph, NODES, words), cost(graph, 4 * NODES, words));
            let is_linear = many.time <= few.time * 8 + 200 && many.memory <= few.memory * 5;
            let costs = [few, many].map(|cost| format!("{} ms and {} KiB", cost.time, cost.memory)).join(", then ");
            if is_linear { Ok(()) } else { Err(costs) }
        };
        if let Err(costs) = is_linear().or_else(|_| is_linear()).or_else(|_| is_linear()) {
            panic!("{graph} {words}: {costs}");
        }
    }
}
