//! Many nodes, many starts: nothing is lost, nothing is starved, nothing stays behind.

use limen_tests::{plan, run};
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn two_hundred_nodes_on_two_cores_all_get_their_turns() {
    let mut graph = String::from("version: 1\nnodes:\n  n0: { kind: numbers, config: { count: 2000 } }\n");
    for n in 1..199 {
        let _ = writeln!(graph, "  n{n}: {{ kind: step, core: {}, from: n{} }}", n % 2, n - 1);
    }
    graph += "  end: { kind: collect, from: n198 }\nrun: { watchdog: 50ms }\n";
    let report = run(&graph);
    assert_eq!((report.bugs.len(), report.metric("count"), report.metric("disorder")), (0, Some(2000.0), Some(0.0)));
    assert!(report.nodes.iter().all(|node| node.done == 2000 && node.turns > 0));
}

/// Threads and open files of this process.
fn held() -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(Path::new("/proc/self").join(what)).unwrap().count();
    (count("task"), count("fd"))
}

#[test]
fn a_graph_started_again_and_again_leaves_nothing_behind() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { count: 50 } }\n  \
                 b: { kind: step, core: 1, from: a }\n  c: { kind: collect, core: 0, from: b }\n";
    let cycle = || {
        let report = plan(graph).unwrap().wire().unwrap().start().unwrap().wait();
        assert_eq!(report.bugs, Vec::<String>::new());
        report.edges.iter().map(|edge| (edge.sent, edge.received, edge.left)).collect::<Vec<_>>()
    };
    let first = cycle();
    // Other tests of this process have threads of their own, so what is compared is what 500 cycles could leave behind.
    let before = held();
    for n in 0..500 {
        assert_eq!(cycle(), first, "cycle {n}");
    }
    let after = held();
    assert!(after.0 < before.0 + 100 && after.1 < before.1 + 100, "{before:?} threads and files became {after:?}");
}
