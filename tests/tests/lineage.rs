//! Origins of messages: every path through a join has its own samples, latencies and misses.

use limen::Report;
use limen::report::{DeadlineReport, Recorded};
use limen_tests::{plan, turn};

/// `a` and `b` send a number every millisecond; those of `b` begin 500 us before they are sent.
const SOURCES: &str = "version: 1\nrun: { telemetry: full }\nnodes:\n  \
    a: { kind: numbers, config: { count: 64, period_ns: 1000000 } }\n  \
    b: { kind: numbers, config: { count: 64, period_ns: 1000000 }, clock: { offset: -500us } }\n";
const PATHS: &str = "paths: [{ from: a, to: z, deadline: 1s }, { from: b, to: z, deadline: 1s }]\n";

fn path<'a>(report: &'a Report, from: &str) -> &'a Recorded {
    report
        .paths()
        .find(|(source, ..)| *source == from)
        .unwrap_or_else(|| panic!("no samples of {from}: {:?}", report.nodes))
        .2
}

fn deadline<'a>(report: &'a Report, from: &str) -> &'a DeadlineReport {
    report.deadlines.iter().find(|path| path.from == from).expect("a declared path")
}

fn ran(graph: &str) -> Report {
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new(), "{graph}");
    report
}

/// Promise (time): Each source of a message has its own latency, deadline and misses, downstream of
/// joins, windows, models and copies.
#[test]
fn every_source_behind_a_join_has_its_path() {
    let pair = "  j: { kind: pair, inputs: { a: a, b: b } }\n";
    let then = |nodes: &str| format!("{pair}{nodes}");
    // The nodes between the join and the sink, and the number of messages that arrive.
    for (nodes, come) in [
        // The sink joins.
        ("  z: { kind: collect, inputs: { x: a, y: b } }\n".to_string(), 64),
        (then("  z: { kind: collect, from: j }\n"), 64),
        // New messages, in place, copied, forwarded, held.
        (then("  s: { kind: step, from: j }\n  z: { kind: collect, from: s }\n"), 64),
        (then("  s: { kind: add, config: { n: 1 }, from: j }\n  z: { kind: collect, from: s }\n"), 64),
        (
            then(
                "  s: { kind: add, config: { n: 1 }, from: j }\n  e: { kind: \"null\", from: j }\n  \
                 z: { kind: collect, from: s }\n",
            ),
            64,
        ),
        (then("  s: { kind: pass, from: j }\n  z: { kind: collect, from: s }\n"), 64),
        (then("  s: { kind: delay, config: { by: 1ms }, from: j }\n  z: { kind: collect, from: s }\n"), 64),
        (then("  s: { kind: decimate, config: { keep_every: 4 }, from: j }\n  z: { kind: collect, from: s }\n"), 16),
        // Scattered, gathered, and through a model.
        (then("  s: { kind: split, config: { times: 3 }, from: j }\n  z: { kind: collect, from: s }\n"), 192),
        (
            then(
                "  w: { kind: window, config: { length: 4 }, from: j }\n  s: { kind: scatter, from: w }\n  \
                 g: { kind: gather, config: { max: 4 }, from: s }\n  z: { kind: trail, from: g }\n",
            ),
            16,
        ),
        (then("  m: { kind: tally, config: { batch: { max: 4 } }, from: j }\n  z: { kind: collect, from: m }\n"), 64),
        (
            then(
                "  k: { kind: step, from: a }\n  h: { kind: pair, config: { any: true }, inputs: { a: k, b: j }, \
                 join: { patience: 16 } }\n  z: { kind: collect, from: h }\n",
            ),
            64,
        ),
    ] {
        let graph = format!("{SOURCES}{nodes}{PATHS}");
        let report = ran(&graph);
        for from in ["a", "b"] {
            assert_eq!(path(&report, from).samples, come, "{from}: {graph}");
            let deadline = deadline(&report, from);
            assert_eq!((deadline.judged, deadline.missed), (come, 0), "{from}: {graph}");
        }
        // Every message of `b` began half a millisecond earlier.
        let (a, b) = (path(&report, "a").histogram.min(), path(&report, "b").histogram.min());
        let earlier = (b - a) / 1000;
        assert!((480..=520).contains(&earlier), "{earlier} us: {graph}");
    }
}

/// Promise (time): The age of a window is the age of its first message.
#[test]
fn the_age_of_a_window_is_that_of_its_first_message() {
    let graph = format!(
        "{SOURCES}  j: {{ kind: pair, inputs: {{ a: a, b: b }} }}\n  \
         w: {{ kind: window, config: {{ length: 4, hop: 2, tail: drop }}, from: j }}\n  z: {{ kind: trail, from: w }}\n{PATHS}"
    );
    let report = ran(&graph);
    // Three more came after it.
    for (from, least) in [("a", 3_000), ("b", 3_500)] {
        let us = path(&report, from).histogram.min() / 1000;
        assert!((least - 10..least + 100).contains(&us), "{from}: {us} us");
    }
}

/// Promise (time): If a message has several origins from one source, the oldest counts.
#[test]
fn the_oldest_of_several_messages_of_one_source_counts() {
    // Every tenth number is joined with the first one of the 5 ms before it; the result has the
    // header of the tenth.
    let report = ran(
        "version: 1\nrun: { telemetry: full }\nnodes:\n  a: { kind: numbers, config: { count: 200, period_ns: 1000000 } }\n  \
         d: { kind: decimate, config: { keep_every: 10 }, from: a }\n  \
         j: { kind: pair, config: { any: true }, inputs: { a: d, b: a }, \
         join: { policy: by_time, within: 5ms, pick: oldest, anchor: a, patience: 64 } }\n  z: { kind: collect, from: j }\n",
    );
    let path = path(&report, "a");
    let us = path.histogram.quantile(0.5).unwrap() / 1000;
    assert!(path.samples > 15 && (5_000..5_200).contains(&us), "{us} us of {}", path.samples);
}

/// Promise (time): `on_miss` acts when any declared path of a message misses its deadline.
#[test]
fn a_deadline_of_each_source_is_judged_and_enforced() {
    let through = |deadline_b: &str, on_miss: &str| {
        ran(&format!(
            "{SOURCES}  j: {{ kind: pair, inputs: {{ a: a, b: b }} }}\n  s: {{ kind: step, from: j }}\n  \
             z: {{ kind: collect, from: s }}\npaths: [{{ from: a, to: z, deadline: 1s, on_miss: {on_miss} }}, \
             {{ from: b, to: z, deadline: {deadline_b}, on_miss: {on_miss} }}]\n"
        ))
    };
    let late = through("400us", "count");
    assert_eq!((deadline(&late, "a").missed, deadline(&late, "b").missed), (0, 64));
    assert_eq!((deadline(&late, "a").judged, deadline(&late, "b").judged), (64, 64));
    // A message that is late for one of its sources is dropped.
    let dropped = through("400us", "drop");
    assert_eq!((dropped.node("z").map(|z| z.done), dropped.metric("missed")), (Some(0), Some(0.0)));
    let kept = through("10ms", "drop");
    assert_eq!((kept.node("z").map(|z| z.done), deadline(&kept, "b").missed), (Some(64), 0));
    let stopped = through("400us", "stop");
    assert_eq!(stopped.exit_code(), 1);
}

/// Promise (time): `merge` attributes each message to its own source.
#[test]
fn a_merge_attributes_each_message_to_its_source() {
    let report =
        ran("version: 1\nrun: { telemetry: full }\nnodes:\n  a: { kind: numbers, config: { count: 20000 } }\n  \
         b: { kind: numbers, config: { count: 15000 } }\n  m: { kind: merge, inputs: { x: a, y: b } }\n  \
         z: { kind: collect, from: m }\n");
    assert_eq!((path(&report, "a").samples, path(&report, "b").samples), (20_000, 15_000));
}

/// Promise (time): A message that a sampling join reuses is judged once, at its first use; later
/// uses have an age.
#[test]
fn a_reused_message_is_judged_once_and_then_has_an_age() {
    let graph = |sink: &str| {
        format!(
            "version: 1\nrun: {{ telemetry: full }}\nnodes:\n  \
             camera: {{ kind: numbers, config: {{ count: 100, period_ns: 10000000 }} }}\n  \
             map: {{ kind: numbers, config: {{ count: 2, period_ns: 500000000 }} }}\n{sink}\
             paths: [{{ from: camera, to: z, deadline: 5ms }}, {{ from: map, to: z, deadline: 20ms }}]\n"
        )
    };
    let join = "join: { policy: sample, trigger: a }";
    for sink in [
        format!("  z: {{ kind: collect, inputs: {{ a: camera, b: map }}, {join} }}\n"),
        format!(
            "  j: {{ kind: pair, config: {{ any: true }}, inputs: {{ a: camera, b: map }}, {join} }}\n  \
             s: {{ kind: step, from: j }}\n  z: {{ kind: collect, from: s }}\n"
        ),
    ] {
        let report = ran(&graph(&sink));
        let sets = report.node("z").map_or(0, |z| z.done);
        let age = report.ages().find(|(from, ..)| *from == "map").map(|(.., age)| age.clone()).expect("ages");
        assert_eq!((path(&report, "map").samples, age.samples), (2, sets - 2), "{sink}");
        assert_eq!((deadline(&report, "map").judged, deadline(&report, "map").missed), (2, 0), "{sink}");
        assert_eq!((deadline(&report, "camera").judged, deadline(&report, "camera").missed), (sets, 0), "{sink}");
        // The first map serves for half a second.
        assert!((470..=500).contains(&(age.histogram.max() / 1_000_000)), "{sink}");
        assert!(report.ages().all(|(from, ..)| from == "map"), "{sink}");
    }
}

/// Promise (time): The plan and the report name a path that cannot be judged.
#[test]
fn a_path_without_origins_is_reported_as_not_judged() {
    let graph = format!(
        "{SOURCES}  r: {{ kind: router, inputs: {{ in: a, by: b }}, config: {{ routes: [{{ to: all, when: else }}] }} }}\n  \
         z: {{ kind: collect, from: r/all }}\n{PATHS}"
    );
    let notes = plan(&graph).expect("plans").notes().join("\n");
    assert!(notes.contains("`b` to `z` is not judged: messages from `r` do not carry the origin of `b`"), "{notes}");
    let report = ran(&graph);
    assert_eq!((deadline(&report, "a").judged, deadline(&report, "a").untracked_behind.as_deref()), (64, None));
    assert_eq!((deadline(&report, "b").judged, deadline(&report, "b").untracked_behind.as_deref()), (0, Some("r")));
}

/// Promise (time): A failed call is recorded on no path.
#[test]
fn a_failed_call_is_not_recorded_on_any_path() {
    let report = ran(&format!(
        "{SOURCES}  j: {{ kind: pair, inputs: {{ a: a, b: b }} }}\n  \
         z: {{ kind: fault_sink, config: {{ every: 8 }}, on_error: skip, from: j }}\n{PATHS}"
    ));
    let done = report.node("z").map_or(0, |z| z.done);
    assert!(done < 64, "{done}");
    assert_eq!((path(&report, "a").samples, path(&report, "b").samples), (done, done));
}
