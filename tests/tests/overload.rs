//! Every overflow policy with a node that is too slow, within a core and across cores.

use limen::plan::Placement;
use limen::report::{Outcome, Reason};
use limen_tests::{plan, run, turn};

/// A fast source into a slow node over one edge with a policy. `cross` puts them on two cores.
fn overload(edge: &str, cross: bool, keys: &str) -> limen::Report {
    run(&format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 3000, period_ns: 1000 }}{keys} }}\n  \
         b: {{ kind: collect, config: {{ work_ns: 5000, heavy: true }}, {}from: {{ from: a, {edge} }} }}\n",
        if cross { "" } else { "core: 0, " }
    )
    .replace("period_ns: 1000 }", if cross { "period_ns: 1000 }, core: 1" } else { "period_ns: 1000 }, core: 0" }))
}

/// Promise (edges): The report counts what each `when_full` policy lost.
#[test]
fn every_overflow_policy_does_what_its_name_says() {
    for cross in [false, true] {
        for (edge, reason) in [
            ("capacity: 8", None),
            ("capacity: 8, when_full: drop_newest", Some(Reason::FullNewest)),
            ("capacity: 8, when_full: drop_oldest", Some(Reason::FullOldest)),
            ("when_full: latest", Some(Reason::Superseded)),
        ] {
            let report = overload(edge, cross, "");
            let name = format!("{edge}, crossing: {cross}");
            assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
            assert_eq!(report.exit_code(), 0, "{name}");
            assert_eq!(report.edges[0].crossing, cross, "{name}");
            assert_eq!(report.metric("disorder"), Some(0.0), "{name}");
            let (lost, discarded) = (report.edges[0].lost_total(), report.edges[0].discarded_total());
            // The graph asks to keep only the newest; every other drop is a loss.
            assert_eq!(if reason == Some(Reason::Superseded) { lost } else { discarded }, 0, "{name}");
            let lost = lost + discarded;
            assert_eq!(report.metric("count"), Some(3000.0 - lost as f64), "{name}");
            match reason {
                None => assert_eq!(lost, 0, "{name}"),
                Some(reason) => {
                    assert!(
                        report.edges[0].lost.iter().all(|(r, _)| *r == reason),
                        "{name}: {:?}",
                        report.edges[0].lost
                    );
                    // A source on another core runs ahead of a consumer that is five times slower.
                    assert!(!cross || lost > 1000, "{name}: {lost}");
                }
            }
            if matches!(reason, Some(Reason::FullOldest | Reason::Superseded)) {
                assert_eq!(report.metric("last"), Some(2999.0), "{name}: the freshest arrives");
            }
        }
    }
}

/// Promise (edges): A call that finds a `fail` edge full counts as a failed call.
#[test]
fn fail_fails_the_producer() {
    let report = overload("capacity: 8, when_full: fail", true, "");
    assert_eq!((report.outcome, report.exit_code()), (Outcome::Failed, 1));
    assert_eq!(report.failures[0].node, "a");
    assert!(report.failures[0].text.contains("is full"), "{}", report.failures[0].text);
    assert_eq!(report.bugs, Vec::<String>::new());
}

/// Promise (edges): A model is not called if a full `fail` edge would refuse its rows, so its state
/// covers exactly the messages that are done.
#[test]
fn a_model_is_not_called_if_a_full_edge_would_refuse_its_rows() {
    let slow = "kind: collect, fault: { delay: 40us }";
    for (edge, place) in [("capacity: 8", ""), ("capacity: 8", ", core: 1"), ("capacity: 64, max_bytes: 64B", "")] {
        for batch in [1, 3] {
            let what = format!("{edge}{place}, batch of {batch}");
            let graph = format!(
                "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 400, period_ns: 10000 }} }}\n  \
                 t: {{ kind: tally, config: {{ batch: {{ max: {batch} }} }}, from: a, on_error: skip }}\n  \
                 slow: {{ {slow}, from: {{ from: t, {edge}, when_full: fail }}{place} }}\n  other: {{ kind: collect, from: t }}\n"
            );
            let report = turn(&graph, 1);
            assert_eq!((report.bugs.len(), report.exit_code()), (0, 0), "{what}");
            let t = report.node("t").unwrap();
            assert!(t.failed > 0 && t.done + t.failed == 400, "{what}: {} failed, {} done", t.failed, t.done);
            let backend = t.backend.as_ref().unwrap();
            assert_eq!((backend.failed, backend.last_error.as_deref()), (0, None), "{what}");
            if batch == 1 {
                assert_eq!(report.metric("tallied"), Some(t.done as f64), "{what}");
            }
        }
    }
}

/// Promise (edges): A call that finds one `fail` edge full sends nothing on any edge.
#[test]
fn a_call_that_finds_one_edge_full_sends_to_none() {
    let slow = "kind: collect, fault: { delay: 40us }";
    let source = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 400, period_ns: 10000 }";
    let full = |node: &str| format!("{{ from: {node}, capacity: 8, when_full: fail }}");
    for crossing in [false, true] {
        let place = if crossing { ", core: 1" } else { "" };
        for (what, graph) in [
            (
                "a source",
                format!(
                    "{source}, on_error: skip }}\n  slow: {{ {slow}, from: {}{place} }}\n  b: {{ kind: step, from: a }}\n  \
                     other: {{ kind: collect, from: b }}\n",
                    full("a")
                ),
            ),
            (
                "the last edge of a transform",
                format!(
                    "{source} }}\n  b: {{ kind: step, from: a, on_error: skip }}\n  other: {{ kind: collect, from: b }}\n  \
                     slow: {{ {slow}, from: {}{place} }}\n",
                    full("b")
                ),
            ),
            (
                "several messages of a call",
                format!(
                    "{source} }}\n  b: {{ kind: split, config: {{ times: 3 }}, from: a, on_error: skip }}\n  \
                     slow: {{ {slow}, from: {}{place} }}\n  other: {{ kind: collect, from: b }}\n",
                    full("b")
                ),
            ),
            (
                "an edge that looks",
                format!(
                    "{source} }}\n  b: {{ kind: split, config: {{ times: 3 }}, from: a, on_error: skip }}\n  \
                     slow: {{ {slow}, from: {{ from: b, capacity: 64, max_bytes: 40B, when_full: fail }}{place} }}\n  \
                     other: {{ kind: collect, from: b }}\n"
                ),
            ),
            (
                "an output beside another",
                format!(
                    "{source} }}\n  c: {{ kind: step, from: a }}\n  b: {{ kind: synchronize, inputs: {{ x: a, y: c }}, on_error: skip }}\n  \
                     slow: {{ {slow}, from: {}{place} }}\n  other: {{ kind: collect, from: b/x }}\n",
                    full("b/y")
                ),
            ),
            (
                "a batch",
                format!(
                    "{source} }}\n  b:\n    kind: infer\n    config: {{ backend: mock, batch: {{ max: 4 }}, mock: {{ inputs: {{ x: u64 }}, \
                     outputs: {{ y: u64 }} }} }}\n    from: a\n    on_error: skip\n  slow: {{ {slow}, from: {}{place} }}\n  \
                     other: {{ kind: collect, from: b }}\n",
                    full("b")
                ),
            ),
        ] {
            let what = format!("{what}, crossing: {crossing}");
            let report = turn(&graph, 1);
            assert_eq!(report.bugs, Vec::<String>::new(), "{what}");
            assert_eq!(report.exit_code(), 0, "{what}");
            let failed = report.nodes.iter().map(|node| node.failed).sum::<u64>();
            let b = report.node(if what.starts_with("a source") { "a" } else { "b" }).unwrap();
            assert_eq!(b.failed, failed, "{what}");
            // Of a batch several messages fail in one call.
            assert!(report.failed_calls <= failed && (failed == 0) == (report.failed_calls == 0), "{what}");
            assert!(failed > 0, "{what}");
            let times = if what.starts_with("several") || what.starts_with("an edge") { 3 } else { 1 };
            for edge in report.edges.iter().filter(|edge| edge.from.starts_with(&format!("{}/", b.name))) {
                assert_eq!((edge.sent, edge.lost_total()), (times * b.done, 0), "{what}: {}", edge.to);
            }
            assert_eq!(report.is_degraded(), failed > 0, "{what}");
        }
    }
}

/// Promise (edges): A slow consumer on a lossy edge does not slow the other consumers.
#[test]
fn a_slow_lossy_branch_does_not_slow_the_others() {
    let report = run("version: 1\nnodes:\n  a: { kind: numbers, config: { count: 2000 } }\n  \
         slow: { kind: collect, config: { work_ns: 20000, heavy: true }, from: { from: a, when_full: latest } }\n  \
         fast: { kind: collect, from: a }\n");
    assert_eq!(report.metric("fast.count"), Some(2000.0));
    assert_eq!(report.bugs, Vec::<String>::new());
    let edge = report.edges.iter().find(|e| e.to.starts_with("slow/")).unwrap();
    assert_eq!((edge.received + edge.discarded_total(), edge.lost_total()), (2000, 0));
}

/// Promise (joins): A join stops waiting for a lost partner after `patience` messages.
#[test]
fn a_join_gives_up_lost_partners() {
    // One input loses most of its messages: unmatched ones are counted, and the join never waits
    // for ever.
    let report = run("version: 1\nnodes:\n  a: { kind: numbers, config: { count: 2000 } }\n  \
         b: { kind: step, config: { work_ns: 3000, heavy: true }, from: { from: a, when_full: latest } }\n  \
         c: { kind: pair, join: { patience: 32 }, inputs: { a: b, b: { from: a, capacity: 64 } } }\n  \
         d: { kind: collect, from: c }\n");
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!(report.exit_code(), 0, "{:?}", report.failures);
    let sets = report.metric("sets").unwrap();
    assert!(sets > 0.0);
    assert_eq!(report.metric("d.count"), Some(sets));
    let unmatched: u64 = report.edges.iter().filter(|e| e.to == "c/b").map(|e| e.lost_total()).sum();
    assert_eq!(unmatched as f64 + sets, 2000.0);
    assert_eq!(report.is_degraded(), unmatched > 0);
}

/// Promise (joins): A join of branches that lose nothing waits for late messages, whatever its
/// `patience`.
#[test]
fn a_join_of_lossless_branches_loses_nothing() {
    let graph = |edge: &str, policy: &str, last: &str, capacity: u32| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 2000 }} }}\n  b: {{ kind: pass, core: 1, from: a }}\n  \
             c: {{ kind: step, from: {{ from: a{edge} }} }}\n  \
             d: {{ kind: pair, core: 1, join: {{ {policy}patience: 8 }}, inputs: {{ a: {{ from: b, capacity: {capacity} }}, b: {{ from: c, capacity: 300 }} }} }}\n  \
             {last}"
        )
    };
    let by_number = "e: { kind: pair, join: { patience: 1 }, inputs: { a: { from: d, capacity: 1 }, b: { from: a, capacity: 300 } } }\n  \
                     z: { kind: collect, from: e }\n";
    let ignored = |edge: &str, policy: &str, last: &str| {
        let plan = plan(&graph(edge, policy, last, 8)).unwrap_or_else(|problems| panic!("{problems}"));
        plan.nodes().iter().filter(|node| node.notes.iter().any(|note| note.contains("ignores `patience`"))).count()
    };
    // A join by time may lose messages, so a downstream join keeps its patience.
    let by_time = "z: { kind: collect, from: d }\n";
    for (policy, last, joins) in [("", by_number, 2), ("policy: by_time, within: 1us, ", by_time, 1)] {
        let report = run(&graph("", policy, last, 1));
        let found = (report.lost_total(), report.metric("z.count"), report.is_degraded());
        assert_eq!(found, (0, Some(2000.0), false), "{policy}");
        let found = (ignored("", policy, last), ignored(", when_full: latest", policy, last));
        assert_eq!(found, (joins, 0), "{policy}");
        // Where a partner may be lost, the edge holds as many messages as the join waits for.
        let Err(problems) = plan(&graph(", when_full: latest", policy, last, 1)) else { panic!("not refused") };
        let problems = problems.to_string();
        assert!(problems.contains("E0133") && problems.contains("write `capacity: 8`"), "{problems}");
        // More than any edge may hold.
        let patient = graph(", when_full: latest", policy, last, 1).replace("patience: 8", "patience: 20000000");
        let Err(problems) = plan(&patient) else { panic!("not refused") };
        let problems = problems.to_string();
        assert!(problems.contains("write `patience: 1`") && !problems.contains("capacity: "), "{problems}");
    }
}

/// Promise (joins): By default, an edge into a join has room for the `patience` of the join.
#[test]
fn default_capacities_cover_the_patience_of_a_join() {
    let capacity = |patience: u64| {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 20 }} }}\n  b: {{ kind: step, from: {{ from: a, when_full: latest }} }}\n  \
             c: {{ kind: pair, join: {{ patience: {patience} }}, inputs: {{ a: b, b: a }} }}\n"
        );
        let plan = plan(&graph).unwrap_or_else(|problems| panic!("{problems}"));
        let short =
            plan.nodes().iter().any(|node| node.notes.iter().any(|note| note.contains("not for its `patience`")));
        (plan.edges().iter().find(|edge| edge.to_name == "c/b").unwrap().capacity as u64, short)
    };
    assert_eq!((capacity(1_000), capacity(5_000)), ((1_000, false), (5_000, false)));
    // No number in a graph reserves any amount of memory.
    let (most, is_short) = capacity(1_000_000_000_000);
    assert!(most <= 1 << 16 && is_short, "{most}");
}

/// A lossy edge into a slow model supersedes messages only between threads, so the planner
/// separates the two.
#[test]
fn a_camera_keeps_its_pace_beside_a_slow_model() {
    let graph = |edge: &str| {
        format!(
            "version: 1\nnodes:\n  camera: {{ kind: numbers, config: {{ count: 60, period_ns: 1000000 }} }}\n  \
             size: {{ kind: step, from: camera }}\n  \
             model:\n    kind: infer\n    config: {{ backend: mock, mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }}, latency: 10ms }} }}\n    \
             from: {{ from: size{edge} }}\n  seen: {{ kind: collect, from: model }}\n"
        )
    };
    let why = |edge: &str| {
        let plan = plan(&graph(edge)).unwrap_or_else(|problems| panic!("{problems}"));
        let apart = plan.nodes()[1].worker != plan.nodes()[2].worker;
        assert_eq!(plan.nodes()[0].worker, plan.nodes()[1].worker, "the camera stays with what it feeds");
        (plan.nodes()[1].why, apart)
    };
    assert_eq!(why(""), (Placement::Feeds(2), false));
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert_eq!(why(", when_full: latest"), (Placement::Apart(2), true));
        let report = run(&graph(", when_full: latest"));
        let lost = report.edges[1].discarded_total();
        assert!(lost > 20, "{lost} of 60 were superseded, though the model takes ten periods a call");
        assert_eq!(report.metric("count"), Some(60.0 - lost as f64));
    }
}
