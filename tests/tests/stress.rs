//! Many nodes and many starts: nothing is lost, no node starves, nothing leaks.

use limen_tests::{plan, run, turn};
use std::fmt::Write as _;
use std::path::Path;

/// Promise (scheduling): No node of two hundred on two cores starves.
#[test]
fn no_node_of_two_hundred_on_two_cores_starves() {
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

/// Promise (memory): Repeated starts of a graph leak no threads and no open files.
#[test]
fn repeated_starts_leak_no_threads_or_files() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { count: 50 } }\n  \
                 b: { kind: step, core: 1, from: a }\n  c: { kind: collect, core: 0, from: b }\n";
    let cycle = || {
        let report = plan(graph).unwrap().wire().unwrap().start().unwrap().wait();
        assert_eq!(report.bugs, Vec::<String>::new());
        report.edges.iter().map(|edge| (edge.sent, edge.received, edge.left)).collect::<Vec<_>>()
    };
    let first = cycle();
    // Other tests of this process have threads too, so the limit is far below a leak per cycle.
    let before = held();
    for n in 0..1_000 {
        assert_eq!(cycle(), first, "cycle {n}");
    }
    let after = held();
    assert!(after.0 < before.0 + 100 && after.1 < before.1 + 100, "{before:?} threads and files became {after:?}");
}

/// Promise (scheduling): Beyond saturation, throughput holds and the capacity of the edges bounds
/// latency.
///
/// A source that is up to eight times faster than its consumer. Simulated, so that the rates are
/// exact: this tests the cost of a full edge, not the speed of a core.
#[test]
fn throughput_holds_and_latency_is_bounded_beyond_saturation() {
    for policy in ["block", "drop_newest", "drop_oldest", "latest"] {
        let capacity = if policy == "latest" { "" } else { ", capacity: 16" };
        let at = |period_us: u64| {
            // 20 µs a message, and the simulated time of the turns.
            let report = turn(
                &format!(
                    "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ count: 2000, period_ns: {} }} }}\n  \
                     z: {{ kind: collect, core: 1, fault: {{ delay: 20us }}, from: {{ from: a, when_full: {policy}{capacity} }} }}\n",
                    period_us * 1000
                ),
                1,
            );
            assert_eq!(report.bugs, Vec::<String>::new(), "{policy}");
            let (sent, taken) = (report.edges[0].sent, report.node("z").unwrap().done);
            let gone = report.edges[0].lost_total() + report.edges[0].discarded_total();
            assert_eq!((sent, gone), (2000, 2000 - taken), "{policy}");
            let waited = report.histogram("z", limen::report::Term::Queue).unwrap().histogram.max();
            (taken as f64 / report.wall.as_secs_f64(), waited, taken)
        };
        let all: Vec<(f64, u64, u64)> = [80, 40, 25, 12, 6, 3].map(at).to_vec();
        let peak = all.iter().map(|(rate, ..)| *rate).fold(0.0, f64::max);
        let (beyond, waited, taken) = all[all.len() - 1];
        assert!(beyond >= 0.9 * peak, "{policy}: {beyond} of {peak} a second");
        assert_eq!(taken == 2000, policy == "block", "{policy}");
        assert_eq!(all[0].2, 2000, "{policy} loses at a quarter of what is possible");
        // The 16 messages of the edge and a burst already taken, at 20 µs each, and the turns in
        // between.
        assert!(waited < 16 * 60_000, "{policy}: waited {waited} ns");
    }
}
