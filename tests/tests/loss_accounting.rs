//! What counts as lost, and what was thinned out because the graph says so. Turned by hand, so that time is exact.

use limen::{Plan, Report, Spec};
use limen_tests::{registry, turn};

fn totals(report: &Report) -> (u64, u64) {
    let figure = |name: &str| report.metric(name).unwrap_or(f64::NAN) as u64;
    (figure("lost"), figure("thinned"))
}

/// A source through a node, or into one with another source, into a sink.
fn totals_of(rest: &str) -> (u64, u64) {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 12, period_ns: 1000000 }} }}\n  \
         b: {{ kind: numbers, config: {{ count: 4, period_ns: 3000000 }} }}\n  y: {{ kind: collect, from: b }}\n{rest}"
    );
    let report = turn(&graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new(), "{rest}");
    totals(&report)
}

#[test]
fn what_is_meant_to_go_is_thinned_and_everything_else_is_lost() {
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
        // A planted loss is one.
        ("  z: { kind: collect, from: a, fault: { drop: 1 } }\n", (12, 0)),
        ("  z: { kind: collect, from: { from: a, max_age: 0ns } }\n", (12, 0)),
        // Of two streams by number, what has no partner is lost, whichever is faster.
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { patience: 2 } }\n", (12, 0)),
        // By time, of what is not the anchor's it is thinned.
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms, anchor: y } }\n", (0, 8)),
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms, anchor: x } }\n", (8, 0)),
        ("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms } }\n", (8, 0)),
    ] {
        assert_eq!(totals_of(rest), expected, "{rest}");
    }
}

#[test]
fn what_a_sampling_node_has_no_use_for_is_thinned() {
    // Of twelve, each of the trigger's four takes the newest. The trigger's own are lost where there is nothing to take.
    let (lost, thinned) =
        totals_of("  z: { kind: collect, inputs: { x: a, y: b }, join: { policy: sample, trigger: y } }\n");
    assert!(lost <= 1 && (7..=9).contains(&thinned), "{lost} lost, {thinned} thinned");
    // What is superseded on an edge is thinned too.
    let slow = "  z: { kind: collect, from: { from: a, when_full: latest }, fault: { delay: 3500us } }\n";
    let (lost, thinned) = totals_of(slow);
    assert!(lost == 0 && thinned > 6, "{lost} lost, {thinned} thinned");
    // And what finds an edge full is lost.
    let full =
        "  z: { kind: collect, from: { from: a, when_full: drop_oldest, capacity: 1 }, fault: { delay: 3500us } }\n";
    let (lost, thinned) = totals_of(full);
    assert!(lost > 6 && thinned == 0, "{lost} lost, {thinned} thinned");
}

/// What a node loses after it took it is lost as well, and shows in the state of the run.
#[test]
fn what_a_node_loses_is_lost_by_its_reason() {
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
        assert_eq!(report.metric("g.dropped"), (gone > 0).then_some(gone as f64));
        assert_eq!(report.metric("lost.dropped"), report.metric("g.dropped"));
    }
}
