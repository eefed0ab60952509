//! What a run costs after planning grows with the size of the graph, whatever output was asked for.

use crate::program::Folder;
use limen_tests::cost::{self, Cost};
use std::fmt::Write;

/// Nodes of the small graph; the large one has four times as many.
const NODES: usize = 200;

/// A source with many sinks, each after a node and with a deadline, and pairs of a source and a
/// sink.
fn graph(nodes: usize) -> String {
    let source = "{ kind: synthetic, config: { pattern: counter, count: 30 } }";
    let mut text = format!("version: 1\nnodes:\n  s: {source}\n");
    for n in 0..nodes / 4 {
        let _ = writeln!(text, "  p{n}: {{ kind: pass, from: s }}\n  z{n}: {{ kind: 'null', from: p{n} }}");
        let _ = writeln!(text, "  s{n}: {source}\n  y{n}: {{ kind: 'null', from: s{n} }}");
    }
    let paths = (0..nodes / 4).map(|n| format!("{{ from: s, to: z{n}, deadline: 1h, on_miss: count }}"));
    text + &format!("paths: [{}]\n", paths.collect::<Vec<_>>().join(", "))
}

/// Every output, on either clock.
const OUTPUTS: [&str; 2] = [
    "--simulated -v --report r.html --histograms h --svg r.svg --dot r.dot --mermaid r.mmd",
    "-q --json --report r.html --histograms h --trace r.pftrace",
];

#[test]
#[ignore = "one run in a separate process, started by the test below"]
fn one() {
    let case = cost::case();
    let (nodes, words) = case.split_once('|').unwrap();
    let ran = Folder::with("growth", &graph(nodes.parse().unwrap())).run(&format!("run graph.yaml {words}"));
    ran.expect(0, "", "");
    // Of the only process that this one has started.
    Cost::of_children().print();
}

/// Four times the nodes cost four times as much, and not sixteen times. The limit lies between the
/// two.
#[test]
fn the_cost_of_a_run_grows_with_the_graph() {
    for words in OUTPUTS {
        let [few, many] = [NODES, 4 * NODES].map(|nodes| format!("{nodes}|{words}"));
        let limit = |few: Cost| Cost { time: few.time * 8 + 200, memory: few.memory * 5 };
        let grown = cost::check_growth("growth::one", [&few, &many], limit);
        assert_eq!(grown, Ok(()), "{words}");
    }
}
