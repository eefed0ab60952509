//! Messages that are lost, and messages that are discarded because the graph asks for it.
//! Simulated, so that time is exact.

use limen::{Plan, Report, Spec};
use limen_tests::{registry, turn};

fn totals(report: &Report) -> (u64, u64) {
    let figure = |name: &str| report.metric(name).unwrap_or(f64::NAN) as u64;
    (figure("lost"), figure("discarded"))
}

/// Totals for a source through a node, or two sources through a join, into a sink.
fn totals_of(rest: &str) -> (u64, u64) {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 12, period_ns: 1000000 }} }}\n  \
         b: {{ kind: numbers, config: {{ count: 4, period_ns: 3000000 }} }}\n  y: {{ kind: collect, from: b }}\n{rest}"
    );
    let report = turn(&graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new(), "{rest}");
    totals(&report)
}

/// Promise (losses): A message that a policy of the graph discards on purpose counts as discarded;
/// any other missing message counts as lost.
#[test]
fn messages_discarded_on_purpose_are_not_lost() {
    for (rest, expected) in [
        ("  z: { kind: collect, from: a }\n", (0, 0)),
        ("  n: { kind: decimate, config: { keep_every: 4 }, from: a }\n  z: { kind: collect, from: n }\n", (0, 9)),
        ("  n: { kind: throttle, config: { rate: 250Hz }, from: a }\n  z: { kind: collect, from: n }\n", (0, 9)),
        ("  n: { kind: debounce, config: { quiet: 1s }, from: a }\n  z: { kind: collect, from: n }\n", (0, 11)),
        ("  n: { kind: gate, config: { open: false }, from: a }\n  z: { kind: collect, from: n }\n", (0, 12)),
        (
            "  n: { kind: router, config: { routes: [{ to: low, when: \"< 5\" }] }, from: a }\n  z: { kind: collect, from: n/low }\n",
            (0, 7),
        ),
        ("  n: { kind: window, config: { length: 2, hop: 3 }, from: a }\n  z: { kind: trail, from: n }\n", (0, 4)),
        ("  n: { kind: window, config: { length: 5, tail: drop }, from: a }\n  z: { kind: trail, from: n }\n", (0, 2)),
        // An injected loss is a loss.
        ("  z: { kind: collect, from: a, fault: { drop: 1 } }\n", (12, 0)),
        ("  z: { kind: collect, from: { from: a, max_age: 0ns } }\n", (12, 0)),
        // By number, unmatched messages of either stream are lost.
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { patience: 2 } }\n", (12, 0)),
        // By time, unmatched messages of other inputs than the anchor are discarded.
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms, anchor: y } }\n", (0, 8)),
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms, anchor: x } }\n", (8, 0)),
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms } }\n", (8, 0)),
    ] {
        assert_eq!(totals_of(rest), expected, "{rest}");
    }
}

/// Promise (losses): Messages that a sampling join does not use count as discarded.
#[test]
fn messages_that_sampling_does_not_use_are_discarded() {
    // Each of four messages of the trigger takes the newest of twelve. A trigger without a partner
    // is lost.
    let (lost, discarded) =
        totals_of("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: sample, trigger: y } }\n");
    assert!(lost <= 1 && (7..=9).contains(&discarded), "{lost} lost, {discarded} discarded");
    // Messages superseded on an edge are discarded too.
    let slow = "  z: { kind: collect, from: { from: a, when_full: latest }, fault: { delay: 3500us } }\n";
    let (lost, discarded) = totals_of(slow);
    assert!(lost == 0 && discarded > 6, "{lost} lost, {discarded} discarded");
    // Messages dropped by a full edge are lost.
    let full =
        "  z: { kind: collect, from: { from: a, when_full: drop_oldest, capacity: 1 }, fault: { delay: 3500us } }\n";
    let (lost, discarded) = totals_of(full);
    assert!(lost > 6 && discarded == 0, "{lost} lost, {discarded} discarded");
}

/// Promise (losses): Losses inside a node are counted by reason, and the run is degraded.
#[test]
fn losses_of_a_node_are_counted_by_reason() {
    let graph = |missing: &str| {
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 40, period_ns: 1000000 }} }}\n  \
             w: {{ kind: window, config: {{ length: 4 }}, from: a }}\n  s: {{ kind: scatter, from: w }}\n  \
             p: {{ kind: add, config: {{ n: 0 }}, from: s, fault: {{ drop: 0.2, seed: 3 }} }}\n  \
             g: {{ kind: gather, config: {{ max: 4, missing: {missing} }}, from: p }}\n  t: {{ kind: trail, from: g }}\n"
        );
        let spec = Spec::from_text(&text, "test.yaml").unwrap();
        Plan::new(spec, &registry()).unwrap().wire().unwrap().simulate(1).unwrap().run(100_000).unwrap()
    };
    for (missing, is_degraded) in [("send", false), ("drop", true)] {
        let report = graph(missing);
        let parts = report.edges.iter().find(|edge| edge.to == "p/in").unwrap().lost_total();
        let gone = report.node("g").unwrap().lost_total();
        assert_eq!(gone > 2, is_degraded, "{missing}: {gone}");
        assert_eq!((totals(&report), report.is_degraded()), ((parts + gone, 0), is_degraded), "{missing}");
        assert_eq!(report.metric("g.dropped"), Some(gone as f64));
        assert_eq!(report.metric("lost.dropped"), report.metric("g.dropped"));
    }
}
