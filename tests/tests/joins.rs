//! Joins, merges and filters. Simulated, so that time is exact.

use limen::report::{Reason, TailCause, Term};
use limen::{Clock, Report, SimulatedClock, Tensor, Time};
use limen_tests::{figure, lost, plan, turn};
use std::time::Duration;

/// Two sources into one node with inputs `x` and `y`.
fn two(a: &str, b: &str, node: &str) -> Report {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {a} }} }}\n  b: {{ kind: numbers, config: {{ {b} }} }}\n{node}"
    );
    let report = turn(&graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!(report.exit_code(), 0);
    report
}

fn joined(a: &str, b: &str, join: &str) -> Report {
    two(a, b, &format!("  c: {{ kind: collect, inputs: {{ x: a, y: b }}, join: {{ {join} }} }}\n"))
}

/// Promise (joins): A join by time combines messages that began within the window.
#[test]
fn by_time_pairs_messages_that_began_within_the_window() {
    let every = |ms: u64, n: u64| format!("count: {n}, period_ns: {}", ms * 1_000_000);
    let shifted = |ms: i64| {
        let origins: Vec<String> = (0..20).map(|n| ((n * 10 + ms) * 1_000_000).to_string()).collect();
        format!("count: 20, period_ns: 10000000, origins: [{}]", origins.join(", "))
    };
    for (shift, within, pairs) in [(0, "1ms", 20.0), (2, "3ms", 20.0), (-2, "3ms", 20.0), (4, "3ms", 0.0)] {
        let report = joined(&every(10, 20), &shifted(shift), &format!("policy: by_time, within: {within}"));
        assert_eq!(figure(&report, "count"), pairs, "{shift}");
        assert_eq!(lost(&report, Reason::Unmatched) as f64, 40.0 - 2.0 * pairs, "{shift}");
    }
    // Of the faster stream only messages near enough to one of the slower stream are taken.
    let report = joined(&every(10, 100), &every(30, 33), "policy: by_time, within: 2ms");
    assert_eq!((figure(&report, "count"), lost(&report, Reason::Unmatched)), (33.0, 67));
    assert_eq!(figure(&report, "sum_x"), (0..33).map(|n| f64::from(3 * n)).sum::<f64>());
}

/// A join without a single set says how far the nearest partner was.
#[test]
fn a_join_without_sets_tells_the_distance_of_the_nearest_partner() {
    for (later, join, expected) in [
        (3_200, "within: 10ms", None),
        (0, "within: 1ms", None),
        (3_200, "within: 1ms", Some(3.2)),
        (3_200, "within: 1ms, anchor: x", Some(3.2)),
        (3_200, "within: 1ms, anchor: y", Some(3.2)),
        (-3_200, "within: 1ms, anchor: x", Some(3.2)),
        (-3_200, "within: 1ms, pick: newest", Some(3.2)),
    ] {
        let report = joined(&stream(20, 100_000, 0), &stream(20, 100_000, later), &format!("policy: by_time, {join}"));
        assert_eq!(report.metric("c.nearest_partner_ms"), expected, "{later} {join}");
        let told = "no messages matched: the nearest partner was 3.20 ms away (`within` is 1.00 ms)";
        assert_eq!(report.notes.iter().any(|note| note.contains(told)), expected.is_some(), "{:?}", report.notes);
    }
}

/// Interpolation needs a message on each side: the farther one is told, and the nearest where there
/// is none on the other side.
#[test]
fn an_interpolating_join_without_sets_tells_the_distance_of_the_farther_neighbour() {
    let stream = |from: u64, count: u64, period: u64| {
        let origins: Vec<String> = (0..count).map(|n| ((from + n * period) * 1_000_000).to_string()).collect();
        format!("count: {count}, period_ns: {}, origins: [{}]", period * 1_000_000, origins.join(", "))
    };
    for (values, moments, within, expected) in [
        (stream(1, 10, 100), stream(21, 10, 100), "10ms", Some(80.0)),
        (stream(1, 10, 100), stream(21, 10, 100), "30ms", Some(80.0)),
        (stream(1, 10, 100), stream(81, 10, 100), "30ms", Some(80.0)),
        (stream(1, 10, 100), stream(21, 10, 100), "80ms", None),
        (stream(1, 5, 10), stream(501, 5, 10), "10ms", Some(460.0)),
        (stream(501, 5, 10), stream(1, 5, 10), "10ms", Some(460.0)),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {values} }} }}\n  \
             f: {{ kind: cast, config: {{ dtype: f64 }}, from: a }}\n  b: {{ kind: numbers, config: {{ {moments} }} }}\n  \
             s: {{ kind: synchronize, inputs: {{ x: f, y: b }}, \
             join: {{ policy: by_time, within: {within}, anchor: y, pick: interpolate }} }}\n  \
             z: {{ kind: \"null\", from: s/x }}\n  e: {{ kind: \"null\", from: s/y }}\n"
        );
        let report = turn(&graph, 1);
        assert_eq!(report.bugs, Vec::<String>::new());
        assert_eq!(report.metric("s.nearest_partner_ms"), expected, "{values} {moments} {within}");
        let told = "interpolation requires a partner on each side, and the farther of the two nearest partners was";
        assert_eq!(report.notes.iter().any(|note| note.contains(told)), expected.is_some(), "{:?}", report.notes);
    }
}

/// `count` numbers, one every `period`, with origins shifted by `later`, all in us.
fn stream(count: u64, period: u64, later: i64) -> String {
    let origins: Vec<String> = (0..count).map(|n| (((n * period) as i64 + later) * 1_000).to_string()).collect();
    format!("count: {count}, period_ns: {}, origins: [{}]", period * 1_000, origins.join(", "))
}

/// The maximum skew in the report, in us.
fn skew(report: &Report) -> u64 {
    report.histogram("c", Term::Skew).map_or(0, |recorded| recorded.histogram.max() / 1_000)
}

/// Promise (joins): A join by time selects the nearest, oldest or newest partner, as `pick` says.
#[test]
fn by_time_pairs_the_nearest_oldest_or_newest_partner() {
    // A fast sensor and a slow one: the shift of the fast one in us; pairs, maximum skew, and sum
    // of the fast one's numbers.
    let slow = stream(40, 50_000, 0);
    let ends = |first: u64| (0..40).map(|n| (first + 50 * n) as f64).sum::<f64>();
    for (join, later, pairs, most, numbers) in [
        ("within: 5ms", 0, 40.0, 0..=0, ends(0)),
        ("within: 5ms", 300, 40.0, 300..=303, ends(0)),
        ("within: 5ms", 700, 40.0, 300..=703, ends(0) - 39.0),
        ("within: 5ms, anchor: y", 0, 40.0, 0..=0, ends(0)),
        ("within: 5ms, pick: nearest, anchor: y", 300, 40.0, 300..=303, ends(0)),
        // The oldest or newest partner within 5 ms.
        ("within: 5ms, pick: oldest, anchor: y", 0, 40.0, 4990..=5050, ends(0) - 39.0 * 5.0),
        ("within: 5ms, pick: newest, anchor: y", 0, 40.0, 4990..=5050, ends(5)),
        ("within: 5ms, wait: 10ms", 0, 40.0, 0..=0, ends(0)),
        ("within: 200us, anchor: y", 300, 0.0, 0..=0, 0.0),
    ] {
        let report = joined(&stream(2_000, 1_000, later), &slow, &format!("policy: by_time, {join}"));
        let found = (figure(&report, "count"), figure(&report, "sum_x"));
        assert_eq!(found, (pairs, numbers), "{join}, {later} us later");
        assert!(most.contains(&skew(&report)), "{join}, {later} us later: {} us", skew(&report));
        let unmatched = |to: &str| {
            report.edges.iter().find(|edge| edge.to == to).map_or(0, |edge| edge.lost_total() + edge.discarded_total())
        };
        assert_eq!((unmatched("c/x"), unmatched("c/y")), (2_000 - pairs as u64, 40 - pairs as u64), "{join}");
    }
}

/// Promise (joins): A join by time waits for a nearer partner only while one can still arrive.
#[test]
fn by_time_waits_for_a_nearer_partner_only_while_one_can_come() {
    // Two sensors of one rate, 4 ms apart: the join does not wait for a message that the period of
    // its stream rules out.
    let report = joined(&stream(30, 33_000, 0), &stream(30, 33_000, 4_000), "policy: by_time, within: 10ms");
    let held = &report.histogram("c", Term::Wait).expect("recorded").histogram;
    // Until the period is known, the next message decides, 33 ms later.
    let long: u64 = held.iter().filter(|(value, _)| *value > 5_000_000).map(|(_, count)| count).sum();
    assert_eq!((long, held.max() / 10_000_000), (8, 3), "held longer than 5 ms, and the longest in 10 ms");
    assert_eq!((figure(&report, "count"), skew(&report) / 100), (30.0, 40));
}

/// Promise (joins): The anchor sets the reference time for all inputs.
#[test]
fn the_anchor_sets_the_reference_time_for_three_inputs() {
    let sources = |anchor: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {} }} }}\n  b: {{ kind: numbers, config: {{ {} }} }}\n  \
             d: {{ kind: numbers, config: {{ {} }} }}\n  c: {{ kind: collect, inputs: {{ x: a, y: b, z: d }}, \
             join: {{ policy: by_time, within: 6ms{anchor} }} }}\n",
            stream(1_000, 1_000, 0),
            stream(20, 50_000, 0),
            stream(10, 100_000, 2_400),
        )
    };
    for (anchor, numbers) in [("", 20..=20), (", anchor: y", 0..=0), (", anchor: z", 20..=20)] {
        let report = turn(&sources(anchor), 3);
        assert_eq!((report.bugs.len(), figure(&report, "count")), (0, 10.0), "{anchor}");
        assert_eq!(figure(&report, "sum_y"), (0..10).map(|n| f64::from(2 * n)).sum::<f64>(), "{anchor}");
        // The fast input is paired with the anchor: 0, 100, .. or 2, 102, ..
        let ahead = figure(&report, "sum_x") as i64 - (0..10).map(|n| 100 * n).sum::<i64>();
        assert!(numbers.contains(&ahead), "{anchor}: {ahead}");
    }
}

/// Promise (joins): A join by time with `wait` sorts messages that arrive out of order; later ones
/// are lost.
#[test]
fn wait_sorts_messages_that_arrive_out_of_order() {
    // Every message began 10 ms before it was sent; of `b` the second and third, and the sixth and
    // seventh, are swapped.
    let begun = |ms: [i64; 8]| {
        format!("count: 8, period_ns: 10000000, origins: [{}]", ms.map(|ms| (ms * 1_000_000).to_string()).join(", "))
    };
    let (in_order, swapped) = (begun([-10, 0, 10, 20, 30, 40, 50, 60]), begun([-10, 10, 0, 20, 30, 50, 40, 60]));
    let (in_order, swapped) = (in_order.as_str(), swapped.as_str());
    let held = joined(in_order, swapped, "policy: by_time, within: 1ms, wait: 25ms");
    assert_eq!((figure(&held, "count"), lost(&held, Reason::Unmatched)), (8.0, 0));
    // Number 2 of `b` began with number 1 of `a`.
    assert_eq!(figure(&held, "sum_x"), figure(&held, "sum_y"));
    // Without `wait` the overtaken messages are too late.
    let hasty = joined(in_order, swapped, "policy: by_time, within: 1ms");
    assert!(lost(&hasty, Reason::Unmatched) >= 4 && figure(&hasty, "count") >= 4.0, "{:?}", hasty.edges);
}

/// Promise (joins): A join by time accepts messages from the future if their source declares that
/// it runs ahead of the clock.
///
/// As a recording of an hour that is sent at once.
#[test]
fn messages_of_a_source_that_is_ahead_are_joined_however_late_they_begin() {
    let stream = |later: u64, rest: &str| {
        let origins: Vec<String> = (0..60).map(|n| ((n * 60_000 + later) * 1_000_000).to_string()).collect();
        format!("count: 60, origins: [{}]{rest}", origins.join(", "))
    };
    let join = "policy: by_time, within: 5ms";
    let report = joined(&stream(0, ", ahead: true"), &stream(3, ", ahead: true"), join);
    assert_eq!((figure(&report, "count"), lost(&report, Reason::InvalidTime)), (60.0, 0));
    // Nothing waits for the hour to pass.
    assert!(report.wall < Duration::from_secs(59 * 60), "{:?}", report.wall);
    assert_eq!(figure(&report, "sum_x"), figure(&report, "sum_y"));
    // Only the first of each is not in the future.
    let report = joined(&stream(0, ""), &stream(3, ""), join);
    assert_eq!((figure(&report, "count"), lost(&report, Reason::InvalidTime)), (1.0, 118));
    // `Time::NEVER`.
    let wild = format!("count: 2, origins: [0, {}], ahead: true", i64::MAX);
    let report = joined(&stream(0, ", ahead: true"), &wild, join);
    assert_eq!((figure(&report, "count"), lost(&report, Reason::InvalidTime)), (1.0, 1));
}

/// Promise (joins): Invalid times are counted and do not stop the run.
#[test]
fn impossible_times_are_counted_and_stop_nothing() {
    let wild = format!(
        "count: 10, period_ns: 10000000, origins: [{}, 10000000, {}, 30000000, 30000000, 20000000]",
        i64::MIN,
        i64::MAX
    );
    let report = joined("count: 10, period_ns: 10000000", &wild, "policy: by_time, within: 1ms");
    // `Time::ZERO` and `Time::NEVER`.
    assert_eq!(lost(&report, Reason::InvalidTime), 2);
    // 1, 3 and 6 to 9 have partners; the second 30 ms and the step back to 20 ms have none.
    assert_eq!(figure(&report, "count"), 6.0);
    assert_eq!(report.metric("left"), Some(0.0));
    // A join by sequence ignores times, and no latency is negative.
    let report = joined("count: 10", &wild, "policy: zip");
    assert_eq!(figure(&report, "count"), 10.0);
}

/// Promise (joins): A sampling join uses the newest message of each input.
#[test]
fn sample_takes_the_newest_of_each() {
    let (camera, imu, map) =
        ("count: 20, period_ns: 10000000", "count: 200, period_ns: 1000000", "count: 2, period_ns: 100000000");
    let report = two(
        camera,
        imu,
        &format!(
            "  m: {{ kind: numbers, config: {{ {map} }} }}\n  \
             c: {{ kind: collect, inputs: {{ x: a, y: b, z: m }}, join: {{ policy: sample, trigger: x }} }}\n"
        ),
    );
    let sets = figure(&report, "count");
    // The first frames may arrive before the first message of another input.
    let frames = report.edges.iter().find(|edge| edge.to == "c/x").unwrap();
    assert!((18.0..=20.0).contains(&sets) && frames.lost_total() as f64 == 20.0 - sets, "{sets}");
    // Each frame took the newest sample, ten samples after the last one; the rest were superseded.
    let newest = figure(&report, "sum_y") - 10.0 * figure(&report, "sum_x");
    assert!((-20.0..=20.0).contains(&newest), "{newest}");
    assert!((165..=190).contains(&lost(&report, Reason::Superseded)), "{}", lost(&report, Reason::Superseded));
    // Each map was used ten times: first 0, then 1.
    assert!((9.0..=11.0).contains(&figure(&report, "sum_z")), "{}", figure(&report, "sum_z"));
    // Without a trigger every new message triggers a call.
    let report = joined("count: 5, period_ns: 10000000", "count: 50, period_ns: 1000000", "policy: sample");
    assert!((50.0..=55.0).contains(&figure(&report, "count")), "{}", figure(&report, "count"));
}

/// Promise (joins): `pick: interpolate` computes values for the time of the anchor.
#[test]
fn values_are_interpolated_at_the_time_of_the_anchor() {
    // Reference times are at one and three quarters of every third interval of the fast input; a
    // value is its own time in us.
    let fast: Vec<u64> = (0..200).map(|n| n * 1_000).collect();
    let moments: Vec<u64> = (0..60).flat_map(|n| [n * 3_000 + 250, n * 3_000 + 750, n * 3_000 + 1_000]).collect();
    let begun = |us: &[u64]| us.iter().map(|us| (us * 1_000).to_string()).collect::<Vec<_>>().join(", ");
    for (within, are_made) in [("2ms", true), ("500us", false)] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 200, period_ns: 1000000, origins: [{}] }} }}\n  \
             f: {{ kind: cast, config: {{ dtype: f64, scale: 1000 }}, from: a }}\n  \
             b: {{ kind: numbers, config: {{ count: 180, period_ns: 1000000, origins: [{}] }} }}\n  \
             s: {{ kind: synchronize, inputs: {{ x: f, y: b }}, \
             join: {{ policy: by_time, within: {within}, anchor: y, pick: interpolate }} }}\n  \
             u: {{ kind: cast, config: {{ dtype: u64, offset: 0.5 }}, from: s/x }}\n  \
             z: {{ kind: trail, from: u }}\n  e: {{ kind: \"null\", from: s/y }}\n",
            begun(&fast),
            begun(&moments)
        );
        let report = turn(&graph, 1);
        assert_eq!(report.bugs, Vec::<String>::new());
        let found = of_trail(&report, "z");
        // No result further than `within` from either neighbour; a value exactly at the reference
        // time is taken unchanged.
        let expected: Vec<u64> = moments.iter().copied().filter(|us| are_made || us % 1_000 == 0).collect();
        assert_eq!(found, expected[..found.len().min(expected.len())], "{within}");
        assert!(found.len() + 3 >= expected.len(), "{within}: {} of {}", found.len(), expected.len());
    }
}

/// A message from which a result was made has a partner, whether the node takes it or it was only
/// the later one of the two.
#[test]
fn a_message_used_by_an_interpolation_is_not_unmatched() {
    let stream = |us: &[u64]| {
        let origins: Vec<String> = us.iter().map(|us| (us * 1_000).to_string()).collect();
        format!("count: {}, period_ns: 1000000, origins: [{}]", us.len(), origins.join(", "))
    };
    // Times of values and of anchors; values that were used, and those that were not.
    let cases: [(&[u64], &[u64], u64, u64); 7] = [
        (&[1_000, 2_000], &[1_500], 2, 0),
        (&[1_000, 2_000, 3_000], &[1_500], 2, 1),
        (&[1_000, 2_000, 3_000], &[1_500, 2_500], 3, 0),
        (&[1_000, 2_000, 3_000], &[1_250, 1_500, 1_750], 2, 1),
        (&[1_000, 2_000, 3_000, 4_000, 5_000, 6_000], &[1_500, 4_500], 4, 2),
        (&[1_000, 2_000, 3_000], &[2_000], 1, 2),
        (&[1_000, 9_000], &[5_000], 0, 2),
    ];
    for (values, moments, used, unmatched) in cases {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {} }} }}\n  \
             f: {{ kind: cast, config: {{ dtype: f64 }}, from: a }}\n  b: {{ kind: numbers, config: {{ {} }} }}\n  \
             s: {{ kind: synchronize, inputs: {{ x: f, y: b }}, \
             join: {{ policy: by_time, within: 1ms, anchor: y, pick: interpolate }} }}\n  \
             z: {{ kind: \"null\", from: s/x }}\n  e: {{ kind: \"null\", from: s/y }}\n",
            stream(values),
            stream(moments)
        );
        let report = turn(&graph, 1);
        assert_eq!(report.bugs, Vec::<String>::new());
        let edge = report.edges.iter().find(|edge| edge.to == "s/x").unwrap();
        assert_eq!(
            (edge.received, edge.discarded_total(), edge.lost_total()),
            (used, unmatched, 0),
            "{values:?} {moments:?}"
        );
    }
}

/// Runs two sources through a merge into a sink that records the order.
fn merged(join: &str, a: &str, b: &str) -> Report {
    let join = if join.is_empty() { String::new() } else { format!(", join: {{ policy: {join} }}") };
    two(a, b, &format!("  m: {{ kind: merge, inputs: {{ x: a, y: b }}{join} }}\n  c: {{ kind: trail, from: m }}\n"))
}

/// Promise (filters and groups): `merge` reads messages in the order of its policy.
#[test]
fn a_merge_takes_messages_in_the_order_of_its_policy() {
    let trail = |report: &Report| -> String {
        let mut trail: Vec<(u64, f64)> = Vec::new();
        for (name, value) in report.node("c").unwrap().metrics.iter() {
            if let Some(at) = name.strip_prefix("source_") {
                trail.push((at.parse().unwrap(), value));
            }
        }
        trail.sort_by_key(|(at, _)| *at);
        let names: Vec<&str> =
            report.nodes.iter().map(|n| n.name.as_str()).filter(|n| ["a", "b"].contains(n)).collect();
        trail.iter().map(|(_, source)| names[*source as usize]).collect()
    };
    let (a, b) = ("count: 6, period_ns: 1000000", "count: 3, period_ns: 2000000, origins: [500000, 2500000, 4500000]");
    // In turn, until one input ends.
    assert_eq!(trail(&merged("in_turn", a, b)), "abababaaa");
    // By origin: a at 0, 1, 2, .., b at 0.5, 2.5, 4.5.
    assert_eq!(trail(&merged("oldest_first", a, b)), "abaabaaba");
    for join in ["", "priority"] {
        let report = merged(join, a, b);
        assert_eq!((trail(&report).matches('a').count(), trail(&report).matches('b').count()), (6, 3), "{join}");
    }
    // Behind a slow consumer both inputs queue up, and the first one has priority.
    let slow = two(
        "count: 8",
        "count: 8",
        "  m: { kind: merge, inputs: { x: { from: a, capacity: 8 }, y: { from: b, capacity: 8 } }, \
         join: { policy: priority }, fault: { delay: 1ms } }\n  c: { kind: trail, from: m }\n",
    );
    assert!(trail(&slow).trim_start_matches('b').starts_with("aaaaaa"), "{}", trail(&slow));
}

/// One source through one node into a sink.
fn through(numbers: &str, node: &str) -> Report {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {numbers} }} }}\n  n: {{ {node}, from: a }}\n  \
         c: {{ kind: trail, from: n }}\n"
    );
    let report = turn(&graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    report
}

fn numbers(report: &Report) -> Vec<u64> {
    of_trail(report, "c")
}

/// The numbers that a `trail` has seen.
fn of_trail(report: &Report, name: &str) -> Vec<u64> {
    let node = report.node(name).unwrap();
    (0..)
        .map_while(|at| node.metrics.iter().find(|(name, _)| *name == format!("number_{at}")))
        .map(|(_, n)| n as u64)
        .collect()
}

/// Promise (filters and groups): `gate`, `throttle`, `decimate` and `debounce` count the messages
/// that they discard.
#[test]
fn filters_count_the_messages_they_discard() {
    let every_ms = "count: 12, period_ns: 1000000";
    for (node, expected) in [
        ("kind: gate", (0..12).collect::<Vec<u64>>()),
        ("kind: gate, config: { open: false }", vec![]),
        ("kind: decimate, config: { keep_every: 5 }", vec![0, 5, 10]),
        ("kind: throttle, config: { rate: 250Hz }", vec![0, 4, 8]),
        ("kind: debounce, config: { quiet: 5ms }", vec![11]),
        ("kind: debounce, config: { quiet: 100us }", (0..12).collect()),
        ("kind: delay, config: { by: 3ms }", (0..12).collect()),
        ("kind: delay, config: { by: 3s, holds: 4 }", (0..12).collect()),
    ] {
        let report = through(every_ms, node);
        assert_eq!(numbers(&report), expected, "{node}");
        let stopped =
            report.node("n").unwrap().metrics.iter().find(|(name, _)| *name == "stopped").map_or(0.0, |(_, n)| n);
        assert_eq!(stopped as usize, 12 - expected.len(), "{node}");
    }
    let late = |node: &str| figure(&through(every_ms, node), "latest_us");
    assert!(
        (3000.0..3100.0).contains(&late("kind: delay, config: { by: 3ms }")),
        "{}",
        late("kind: delay, config: { by: 3ms }")
    );
    assert_eq!(figure(&through(every_ms, "kind: delay, config: { by: 3s, holds: 4 }"), "early"), 8.0);
}

/// Promise (filters and groups): `router` sends each message to one output.
#[test]
fn a_router_sends_each_message_one_way() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 20 } }\n  \
                 r: { kind: router, from: a, config: { routes: [{ to: few, when: \"< 5\" }, { to: seven, when: \"== 7\" }, \
                 { to: many, when: \">= 10\" }] } }\n  x: { kind: trail, from: r/few }\n  y: { kind: trail, from: r/seven }\n  \
                 z: { kind: trail, from: r/many }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    let done = ["x", "y", "z"].map(|name| report.node(name).unwrap().done);
    assert_eq!((done, figure(&report, "stopped")), ([5, 1, 10], 4.0));
    // A join behind it would wait for messages of another route.
    let joined =
        format!("{graph}  j: {{ kind: pair, inputs: {{ a: a, b: r/few }} }}\n  w: {{ kind: collect, from: j }}\n");
    let problems = limen_tests::plan(&joined).expect_err("refused").to_string();
    assert!(problems.contains("`r` may drop messages"), "{problems}");
}

/// Promise (filters and groups): `window` sends its last, incomplete window.
#[test]
fn windows_overlap_as_configured_and_the_last_is_sent() {
    // Sizes and first numbers of the windows.
    for (config, expected) in [
        ("length: 4", vec![(4, 0), (4, 4), (2, 8)]),
        ("length: 4, tail: drop", vec![(4, 0), (4, 4)]),
        ("length: 4, hop: 2", vec![(4, 0), (4, 2), (4, 4), (4, 6)]),
        ("length: 4, hop: 3", vec![(4, 0), (4, 3), (4, 6)]),
        ("length: 2, hop: 4", vec![(2, 0), (2, 4), (2, 8)]),
        ("length: 16", vec![(10, 0)]),
    ] {
        let report = through("count: 10", &format!("kind: window, config: {{ {config} }}"));
        let node = report.node("c").unwrap();
        let of = |name: &str, at: usize| {
            node.metrics.iter().find(|(n, _)| *n == format!("{name}_{at}")).map(|(_, v)| v as u64)
        };
        let found: Vec<(u64, u64)> = (0..).map_while(|at| Some((of("length", at)?, of("number", at)?))).collect();
        assert_eq!(found, expected, "{config}");
    }
}

/// Promise (joins): A source can have a clock offset.
#[test]
fn a_source_can_have_its_own_clock_offset() {
    // The clock of `b` is a quarter of a second behind, and its messages have a latency of a
    // millisecond.
    let origins: Vec<String> = (0..20).map(|n| (n * 10_000_000 - 250_000_000i64).to_string()).collect();
    let sources = |clock: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 20, period_ns: 10000000 }} }}\n  \
             b: {{ kind: numbers, config: {{ count: 20, period_ns: 10000000, origins: [{}] }}{clock} }}\n  \
             c: {{ kind: collect, inputs: {{ x: a, y: b }}, join: {{ policy: by_time, within: 2ms }} }}\n",
            origins.join(", ")
        )
    };
    for (clock, pairs) in [("", 0.0), (", clock: { offset: 250ms }", 20.0), (", clock: { offset: auto }", 20.0)] {
        let report = turn(&sources(clock), 1);
        assert_eq!(report.bugs, Vec::<String>::new());
        assert_eq!(figure(&report, "count"), pairs, "{clock}");
    }
}

/// Windows of four, split by `scatter` and reassembled by `gather`, with other nodes in between.
fn scattered(between: &str, gather: &str) -> Report {
    let report = turn(
        &format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 42, period_ns: 1000000 }} }}\n  \
             w: {{ kind: window, config: {{ length: 4 }}, from: a }}\n  s: {{ kind: scatter, from: w }}\n{between}  \
             g: {{ kind: gather, config: {{ max: 4{gather} }}, from: p }}\n  t: {{ kind: trail, from: g }}\n"
        ),
        1,
    );
    assert_eq!((report.bugs.len(), report.exit_code(), report.metric("left")), (0, 0, Some(0.0)));
    report
}

/// Promise (filters and groups): `gather` reassembles the messages that `scatter` split.
#[test]
fn gather_reassembles_what_scatter_split() {
    let report = scattered("  p: { kind: add, config: { n: 100 }, from: s }\n", "");
    for n in 0..11 {
        let at = |what: &str| figure(&report, &format!("{what}_{n}"));
        // The last window has two.
        assert_eq!((at("number"), at("length")), (f64::from(100 + 4 * n), if n == 10 { 2.0 } else { 4.0 }));
    }
    assert_eq!((report.node("t").unwrap().done, figure(&report, "incomplete")), (11, 0.0));
}

/// Promise (filters and groups): `gather` reassembles parts that took different routes.
#[test]
fn gather_reassembles_parts_from_different_routes() {
    let ways = "  r: { kind: router, config: { routes: [{ to: low, when: \"< 20\" }, { to: high, when: else }] }, from: s }\n  \
                l: { kind: add, config: { n: 0 }, from: r/low }\n  h: { kind: delay, config: { by: 3ms }, from: r/high }\n  \
                p: { kind: merge, inputs: { l: l, h: h } }\n";
    let report = scattered(ways, "");
    let lengths: f64 = (0..11).map(|n| figure(&report, &format!("length_{n}"))).sum();
    assert_eq!((report.node("t").unwrap().done, lengths, figure(&report, "incomplete")), (11, 42.0, 0.0));
}

/// Promise (filters and groups): `gather` sends or drops an incomplete group, and counts it.
#[test]
fn incomplete_groups_are_sent_or_discarded_and_counted() {
    let lossy = "  p: { kind: add, config: { n: 0 }, from: s, fault: { drop: 0.2, seed: 3 } }\n";
    for (gather, are_sent) in [("", true), (", missing: drop", false), (", within: 2ms", true), (", open: 1", true)] {
        let report = scattered(lossy, gather);
        let (sent, incomplete) = (report.node("t").unwrap().done, figure(&report, "incomplete"));
        assert!(incomplete > 2.0, "{gather}: {incomplete}");
        let lengths: Vec<f64> = (0..sent).map(|n| figure(&report, &format!("length_{n}"))).collect();
        if are_sent {
            assert_eq!(lengths.iter().sum::<f64>(), 42.0 - lost(&report, Reason::Gate) as f64, "{gather}");
        } else {
            // The last window has only two messages.
            let (last, others) = lengths.split_last().unwrap();
            assert!(others.iter().all(|length| *length == 4.0) && [2.0, 4.0].contains(last), "{gather}: {lengths:?}");
        }
    }
}

/// Promise (filters and groups): `gather` does not mistake messages that a node releases together
/// for parts of one message.
#[test]
fn messages_released_together_are_not_mistaken_for_parts() {
    // Three messages at a time leave the delay together, and still find their partners.
    let report = turn(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 60, period_ns: 100 } }\n  \
         d: { kind: delay, config: { by: 50us }, from: a }\n  c: { kind: collect, inputs: { x: a, y: d } }\n",
        1,
    );
    assert_eq!((report.bugs.len(), figure(&report, "count"), report.metric("lost")), (0, 60.0, Some(0.0)));
}

/// Promise (joins): `synchronize` forwards each message unchanged, with its header, through the
/// output named like its input.
#[test]
fn synchronize_sends_each_input_through_its_own_output() {
    // Two streams a millisecond apart, one of them ten times as fast.
    let graph = |rest: &str| {
        let origins: Vec<String> = (0..10).map(|n| ((n * 10 + 1) * 1_000_000).to_string()).collect();
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 10, period_ns: 10000000, origins: [{}] }} }}\n  \
             b: {{ kind: numbers, config: {{ count: 100, period_ns: 1000000 }} }}\n  \
             s: {{ kind: synchronize, inputs: {{ x: a, y: b }}, join: {{ policy: by_time, within: 2500us }} }}\n{rest}",
            origins.join(", ")
        )
    };
    let report = turn(&graph("  p: { kind: trail, from: s/x }\n  q: { kind: trail, from: s/y }\n"), 1);
    assert_eq!((report.bugs.len(), report.exit_code()), (0, 0), "{:?}", report.failures);
    let of = |node: &str, what: &str, at: usize| -> u64 {
        let name = format!("{what}_{at}");
        let node = report.node(node).unwrap();
        node.metrics.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no {name}")).1 as u64
    };
    assert_eq!((report.node("p").unwrap().done, report.node("q").unwrap().done), (10, 10));
    for n in 0..10 {
        // Each has its own number and source; paired messages began together.
        assert_eq!((of("p", "number", n), of("p", "source", n) + of("q", "source", n)), (n as u64, 1));
        assert!(of("q", "number", n).abs_diff(10 * n as u64 + 1) <= 2, "{n}: {}", of("q", "number", n));
    }
    assert_eq!(lost(&report, Reason::Unmatched), 90);
}

/// Promise (joins): A node that writes in place downstream of `synchronize` changes no other
/// branch.
#[test]
fn writing_downstream_of_synchronize_is_invisible_elsewhere() {
    let sum = |from: u64| (from * 50 + 50 * 49 / 2) as f64;
    // An unshared buffer is moved. It is copied if others hold it, upstream or downstream, or may
    // get it again.
    for (inputs, rest, copies, plain) in [
        ("x: a, y: b", "", false, &[][..]),
        ("x: a, y: b", "  d: { kind: collect, from: a }\n", true, &["d"]),
        ("x: a, y: b", "  d: { kind: collect, from: s/x }\n", true, &["d"]),
        ("x: a, y: a", "  d: { kind: collect, from: s/y }\n", true, &["d"]),
        ("x: a, y: b", "  d: { kind: collect, from: s/y }\n", false, &["d"]),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 50, period_ns: 1000 }} }}\n  \
             b: {{ kind: numbers, config: {{ count: 50, period_ns: 1000 }} }}\n  \
             s: {{ kind: synchronize, inputs: {{ {inputs} }} }}\n  w: {{ kind: add, config: {{ n: 7 }}, from: s/x }}\n  \
             c: {{ kind: collect, from: w }}\n{rest}"
        );
        let plan = limen_tests::plan(&graph).unwrap_or_else(|problems| panic!("{problems}"));
        let notes = plan.nodes().iter().flat_map(|node| &node.notes).filter(|note| note.contains("copies its input"));
        assert_eq!(notes.count() == 1, copies, "{inputs}\n{rest}");
        for seed in 0..20 {
            let report = turn(&graph, seed);
            assert_eq!(report.bugs, Vec::<String>::new());
            let sum_of = |node: &str| {
                let metrics = &report.node(node).unwrap().metrics;
                metrics.iter().find(|(name, _)| *name == "sum_in").map(|(_, value)| value)
            };
            assert_eq!(sum_of("c"), Some(sum(7)), "{inputs}\n{rest}");
            plain.iter().for_each(|node| assert_eq!(sum_of(node), Some(sum(0)), "{inputs}\n{rest}"));
        }
    }
    // With `sample` the newest message is taken several times.
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 50, period_ns: 1000 } }\n  \
                 b: { kind: numbers, config: { count: 5, period_ns: 10000 } }\n  \
                 s: { kind: synchronize, inputs: { x: a, y: b }, join: { policy: sample, trigger: x } }\n  \
                 w: { kind: add, config: { n: 100 }, from: s/y }\n  c: { kind: trail, from: w }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    assert!(report.node("c").unwrap().done > 40 && numbers(&report).iter().all(|n| (100..105).contains(n)));
}

/// Promise (joins): A node that writes in place downstream of an interpolating join does not change
/// later results.
///
/// The join keeps the messages it interpolates between, so a node that writes downstream gets a
/// copy.
#[test]
fn writing_downstream_of_interpolation_does_not_change_later_results() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 50, period_ns: 1000 } }\n  \
                 f: { kind: cast, config: { dtype: f32 }, from: a }\n  w: { kind: window, config: { length: 1, tail: drop }, from: f }\n  \
                 b: { kind: numbers, config: { count: 100, period_ns: 500 } }\n  \
                 s: { kind: synchronize, inputs: { x: w, y: b }, \
                 join: { policy: by_time, within: 1us, anchor: y, pick: interpolate } }\n  \
                 m: { kind: softmax, from: s/x }\n  u: { kind: cast, config: { dtype: u64, offset: 0.5 }, from: m }\n  \
                 c: { kind: trail, from: u }\n  d: { kind: add, config: { n: 1 }, from: s/y }\n  z: { kind: \"null\", from: d }\n";
    let plan = limen_tests::plan(graph).unwrap_or_else(|problems| panic!("{problems}"));
    let copies = |name: &str| {
        let node = plan.nodes().iter().find(|node| node.name == name).unwrap();
        node.notes.iter().any(|note| note.contains("copies its input"))
    };
    // Messages of the anchor are passed on unchanged, and once.
    assert_eq!((copies("m"), copies("d")), (true, false));
    for seed in 0..20 {
        let report = turn(graph, seed);
        assert_eq!((report.bugs.len(), report.failed_calls), (0, 0), "{:?}", report.failures);
        let chances = numbers(&report);
        assert!(chances.len() > 80 && chances.iter().all(|chance| *chance == 1), "{chances:?}");
    }
}

#[test]
fn wrong_inputs_of_synchronize_are_refused() {
    let graph = |inputs: &str, join: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 10 }} }}\n  b: {{ kind: gate, from: a }}\n  \
             s: {{ kind: synchronize, {inputs}{join} }}\n  z: {{ kind: \"null\", from: s/x }}\n"
        )
    };
    for (inputs, join, expected) in [
        ("inputs: { x: a }", "", "at least 2 inputs"),
        ("inputs: { x: a, y: b }", "", "`b` may drop messages"),
        (
            "inputs: { x: a, y: a }",
            ", join: { policy: in_turn }",
            "must be `zip`, `by_time` or `sample`, got `in_turn`",
        ),
        ("inputs: { y: a, v: a }", "", "has no output `x`"),
    ] {
        let problems = limen_tests::plan(&graph(inputs, join)).expect_err("refused").to_string();
        assert!(problems.contains(expected), "{problems}");
    }
}

#[test]
fn a_join_before_a_model_is_reported_as_a_join() {
    // Each partner is sent 100 ms after the message that it belongs to.
    let (first, second) = (stream(30, 100_000, 0), stream(31, 100_000, -100_000));
    let run = |node: &str| {
        let join = "join: { policy: by_time, within: 10ms, anchor: a }";
        two(
            &first,
            &second,
            &format!("  c: {{ {node}, inputs: {{ a: a, b: b }}, {join} }}\n  d: {{ kind: collect, from: c }}\n"),
        )
    };
    let model = |batch: &str| {
        let mock = "mock: { inputs: { a: u64, b: u64 }, outputs: { out: u64 } }";
        format!("kind: infer, config: {{ backend: mock, {batch}{mock} }}")
    };
    for (node, has_batches) in [
        ("kind: pair, config: { any: true }".to_string(), false),
        (model(""), false),
        (model("batch: { max: 4, within: 250ms }, "), true),
    ] {
        let report = run(&node);
        let held = report.histogram("c", Term::Wait).expect("recorded");
        assert_eq!(held.samples, 30, "{node}");
        let range = held.histogram.min() / 1_000_000..=held.histogram.max() / 1_000_000;
        assert!(*range.start() >= 98 && *range.end() <= 102, "{node}: {range:?} ms");
        let waited = report.histogram("c", Term::BatchWait).map(|recorded| recorded.histogram.max() / 100_000_000);
        assert_eq!(waited, has_batches.then_some(2), "{node}");
        let causes = || report.tails.iter().flat_map(|tail| &tail.causes).map(|cause| cause.cause);
        // The wait for the partner is traced back to the source that sent it late; that for a batch
        // is longer.
        let is_expected = |cause| {
            if has_batches {
                cause == TailCause::Batch
            } else {
                matches!(cause, TailCause::Partner | TailCause::Source)
            }
        };
        assert!(causes().next().is_some() && causes().all(is_expected), "{node}: {:?}", report.tails);
        let residual = report.histogram("d", Term::Residual).expect("recorded").histogram.max();
        assert!(residual < 1_000, "{node}: {residual} ns are in no term");
    }
}

#[test]
fn a_result_has_the_header_of_the_trigger_or_anchor_whichever_kind_made_it() {
    let mock = "mock: { inputs: { slow: \"f32[2,6]\", fast: \"f32[2,6]\" }, outputs: { out: \"f32[1]\" } }";
    let rows = "pattern: noise, shape: [2, 6], dtype: f32";
    let image = "pattern: ramp, width: 8, height: 8";
    for (kind, slow, port, output) in [
        ("kind: concat", rows, "slow", "out"),
        ("kind: stack", rows, "slow", "out"),
        ("kind: map, config: { outputs: { sum: 'slow + fast' } }", rows, "slow", "sum"),
        (&*format!("kind: infer, config: {{ backend: mock, {mock} }}"), rows, "slow", "out"),
        ("kind: draw", image, "image", "out"),
        ("kind: crop_boxes, config: { max: 1, height: 4, width: 4 }", image, "image", "out"),
    ] {
        let fast = if port == "image" { "boxes" } else { "fast" };
        let from = if port == "image" { "a/image" } else { "a" };
        for join in ["policy: sample, trigger: ", "policy: by_time, within: 1s, patience: 64, anchor: "] {
            let graph = format!(
                "version: 1\nnodes:\n  a: {{ kind: synthetic, config: {{ {slow}, rate: 500Hz, count: 10 }} }}\n  \
                 b: {{ kind: synthetic, qos: urgent, config: {{ {rows}, rate: 2kHz, count: 60 }} }}\n  \
                 c: {{ {kind}, inputs: {{ {port}: {from}, {fast}: b }}, join: {{ {join}{fast} }} }}\n  \
                 z: {{ kind: outlet, config: {{ hold: 64 }}, from: c/{output} }}\n"
            );
            let mut wired = plan(&graph).unwrap_or_else(|problems| panic!("{problems}\n{graph}")).wire().unwrap();
            let mut outlet = wired.outlet::<Tensor>("z").unwrap();
            let driven = wired.drive(Clock::Simulated(SimulatedClock::new(Time(1)))).unwrap();
            let mut seqs = Vec::new();
            let report = driven.run_until(Time::NEVER, || {
                while let Ok(message) = outlet.try_recv() {
                    assert_eq!(format!("{:?}", message.header().qos), "Urgent", "{kind}, {join}");
                    seqs.push(message.header().seq);
                }
            });
            assert!(!seqs.is_empty() && seqs.is_sorted_by(|a, b| a < b), "{kind}, {join}: {seqs:?}");
            assert_eq!(report.bugs, Vec::<String>::new());
        }
    }
}
