//! Edges with admission control: watermarks, byte limits, classes, lanes. Simulated, within a core
//! and across cores.

use limen::Report;
use limen::report::Reason;
use limen_tests::{lost, plan, turn};

/// A number every microsecond into a node that takes 3 µs for each, within a core and across two.
fn overloaded(source: &str, edge: &str, check: impl Fn(&Report, &str)) {
    for (form, core) in [("within", 0), ("across", 1)] {
        let report = turn(
            &format!(
                "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ count: 500, period_ns: 1000 }}{source} }}\n  \
                 b: {{ kind: collect, core: {core}, fault: {{ delay: 3us }}, from: {{ from: a, {edge} }} }}\n"
            ),
            7,
        );
        let what = format!("{form}: {edge} {source}");
        assert_eq!(report.bugs, Vec::<String>::new(), "{what}");
        assert_eq!((report.exit_code(), report.metric("left"), report.metric("disorder")), (0, Some(0.0), Some(0.0)));
        check(&report, &what);
    }
}

/// Promise (edges): A soft watermark rejects messages that the hard one would accept, except urgent
/// messages.
#[test]
fn a_soft_watermark_rejects_messages_that_a_hard_one_would_accept() {
    for (class, may_be_lost) in [("normal", true), ("urgent", false), ("background", true)] {
        // The soft watermark is at two messages; the rest of the edge holds all messages of an
        // urgent source.
        overloaded(
            &format!(", qos: {class}"),
            "capacity: 1000, soft_capacity: 2, when_full: drop_newest",
            |report, what| {
                let gone = lost(report, Reason::FullNewest);
                assert_eq!(gone > 200, may_be_lost, "{what}: {gone} lost");
                assert_eq!(gone, report.metric("lost").unwrap() as u64, "{what}");
            },
        );
    }
}

/// Promise (edges): With `soft_evict`, an edge evicts its oldest messages from the soft watermark
/// on.
#[test]
fn evicting_from_the_soft_watermark_keeps_queued_messages_fresh() {
    let oldest = |report: &Report| {
        let (_, _, latency) = report.paths().next().unwrap();
        latency.histogram.max()
    };
    let edge = "capacity: 200, soft_capacity: 4, when_full: drop_oldest";
    overloaded("", &format!("{edge}, soft_evict: true"), |report, what| {
        // Four messages wait, each for three microseconds and the turns in between.
        assert!(lost(report, Reason::FullOldest) > 200 && oldest(report) < 100_000, "{what}: {}", oldest(report));
    });
    overloaded("", edge, |report, what| assert!(oldest(report) > 200_000, "{what}: {}", oldest(report)));
}

/// Promise (edges): An edge at its byte limit follows its policy.
#[test]
fn a_byte_limit_blocks_the_producer_or_drops_messages() {
    // Numbers have eight bytes: the edge holds five, one more than fits below the limit.
    overloaded("", "capacity: 64, max_bytes: 33B", |report, what| {
        assert_eq!(report.metric("count"), Some(500.0), "{what}");
    });
    overloaded("", "capacity: 64, max_bytes: 33B, when_full: drop_oldest", |report, what| {
        // Within a core the consumer has a turn before the producer evicts many messages.
        let gone = lost(report, Reason::FullOldest);
        assert!(gone > if what.starts_with("within") { 0 } else { 200 }, "{what}: {gone}");
    });
    overloaded("", "capacity: 64, max_bytes: 64B, soft_bytes: 16B, when_full: drop_newest", |report, what| {
        assert!(lost(report, Reason::FullNewest) > 200, "{what}");
    });
}

/// Promise (edges): Urgent messages have room in their lane while the other lane is full.
#[test]
fn urgent_messages_have_a_lane_of_their_own() {
    let graph = |lane: &str| {
        format!(
            "version: 1\nnodes:\n  slow: {{ kind: numbers, config: {{ count: 300, period_ns: 2000 }} }}\n  \
             alarm: {{ kind: numbers, config: {{ count: 20, period_ns: 30000 }}, qos: urgent }}\n  \
             both: {{ kind: merge, inputs: {{ a: slow, b: alarm }} }}\n  \
             end: {{ kind: collect, fault: {{ delay: 4us }}, from: {{ from: both, capacity: 400{lane} }} }}\n"
        )
    };
    let worst = |report: &Report, source: &str| {
        let (.., latency) = report.paths().find(|(from, ..)| *from == source).unwrap();
        latency.histogram.max()
    };
    // In the order of a worker's passes, so that an alarm waits for the queue, not for its turn.
    let scheduled =
        |text: &str| plan(text).unwrap().wire().unwrap().simulate(3).unwrap().run_as_scheduled(100_000).unwrap();
    let (with, without) = (scheduled(&graph(", urgent_capacity: 8")), scheduled(&graph("")));
    for report in [&with, &without] {
        assert_eq!((report.bugs.len(), report.metric("count"), report.metric("lost")), (0, Some(320.0), Some(0.0)));
    }
    // Other messages fall behind by milliseconds; an urgent one waits for the running call and the
    // turns in between.
    assert!(worst(&with, "alarm") < 60_000, "{} ns", worst(&with, "alarm"));
    assert!(worst(&without, "alarm") > 200_000, "{} ns", worst(&without, "alarm"));
}

/// Promise (edges): One slow consumer of sixteen costs the other fifteen no messages.
#[test]
fn a_slow_consumer_of_sixteen_costs_the_others_no_messages() {
    for policy in ["block", "drop_newest", "drop_oldest", "latest"] {
        let mut graph =
            String::from("version: 1\nnodes:\n  a: { kind: numbers, config: { count: 400, period_ns: 5000 } }\n");
        for n in 0..16 {
            let (delay, when_full) = if n == 0 { ("50us", policy) } else { ("100ns", "block") };
            let capacity = if when_full == "latest" { "" } else { ", capacity: 8" };
            graph += &format!(
                "  z{n}: {{ kind: collect, core: {}, fault: {{ delay: {delay} }}, from: {{ from: a, when_full: {when_full}{capacity} }} }}\n",
                usize::from(n == 0)
            );
        }
        let report = turn(&graph, 5);
        assert_eq!(report.bugs, Vec::<String>::new(), "{policy}");
        let taken = |name: &str| report.node(name).unwrap().taken;
        assert!((1..16).all(|n| taken(&format!("z{n}")) == 400), "{policy}");
        assert_eq!(taken("z0") + report.lost_total() + report.discarded_total(), 400, "{policy}");
        assert_eq!(taken("z0") == 400, policy == "block", "{policy}");
    }
}
