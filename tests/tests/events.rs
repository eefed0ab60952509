//! Events of a running graph.

use limen::policy::OnError;
use limen::report::Reason;
use limen::{Clock, Drain, Driven, Event, EventKind, SimulatedClock, Time, Turned};
use limen_tests::plan;
use std::time::{Duration, Instant};

/// Drives a graph with a simulated clock until a time or its end. Returns its events and the graph.
fn drive(graph: &str, until: Duration) -> (Vec<Event>, Driven) {
    let plan = plan(graph).unwrap_or_else(|problems| panic!("{problems}\n{graph}"));
    limen_tests::drive(plan, until)
}

const MS: Duration = Duration::from_millis(1);

/// Promise (events): Each problem is one event during the run, in order, with its node and time.
#[test]
fn every_problem_is_one_event_in_order() {
    let node = |name: &str| name.to_string();
    let failed = |call, number, text: &str, panicked, then| EventKind::Failed {
        node: node("f"),
        call,
        number,
        text: text.into(),
        panicked,
        then,
    };
    let injected = |number, then| failed("call", number, "fault: injected", false, then);
    let gap = || EventKind::Gap { node: node("f"), edge: "a/out -> f/in".into(), every: 30 * MS };
    let again = || EventKind::GapEnded { node: node("f"), edge: "a/out -> f/in".into(), after: 50 * MS };
    // Five numbers through a node with a fault.
    for (keys, expected) in [
        ("on_error: skip, fault: { error_every: 2 }", vec![injected(1, OnError::Skip), injected(3, OnError::Skip)]),
        (
            "on_error: skip, fault: { panic_at: 3 }",
            vec![failed("call", 2, "panicked: injected by `fault`", true, OnError::Skip)],
        ),
        ("fault: { error_at: 2 }", vec![injected(1, OnError::Stop)]),
        (
            "on_error: detach, fault: { error_at: 2 }",
            vec![injected(1, OnError::Detach), EventKind::Detached { node: node("f") }],
        ),
        (
            "on_error: { restart: { max: 1, backoff: 12ms } }, fault: { error_every: 2 }",
            vec![
                injected(1, OnError::Restart),
                EventKind::Restarting { node: node("f"), after: 12 * MS },
                EventKind::Restarted { node: node("f") },
                injected(3, OnError::Restart),
                failed("restart", 4, "failed again after 1 restart", false, OnError::Stop),
            ],
        ),
        ("fault: { delay: 120ms }", vec![EventKind::Returned { node: node("f"), took: 120 * MS }; 5]),
        ("fault: { delay: 90ms }", vec![]),
        // The last number is the end of its input.
        ("from: { from: a, expect_every: 30ms }", std::iter::repeat_n([gap(), again()], 4).flatten().take(7).collect()),
    ] {
        let period = if keys.contains("expect_every") { 50_000_000 } else { 10_000_000 };
        let from = if keys.contains("from:") { "" } else { ", from: a" };
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ period_ns: {period}, count: 5 }} }}\n  \
             f: {{ kind: step, {keys}{from} }}\n  z: {{ kind: collect, from: f }}\nrun: {{ watchdog: 100ms }}\n"
        );
        let (events, _) = drive(&graph, 2000 * MS);
        let kinds: Vec<EventKind> = events.iter().map(|event| event.kind.clone()).collect();
        assert_eq!(kinds, expected, "{keys}");
        assert!(events.is_sorted_by_key(|event| event.time), "{keys}: {events:?}");
        assert!(events.iter().all(|event| event.time > Time(1_000_000_000)), "{keys}: {events:?}");
    }
}

/// Promise (events): Events wait in a queue of fixed size; if it overflows, the first events are
/// kept and the others are counted.
#[test]
fn unread_events_are_counted() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 5000 } }\n  \
                 f: { kind: fault, config: { every: 1 }, on_error: skip, from: a }\n  z: { kind: collect, from: f }\n";
    let mut driven = plan(graph).unwrap().wire().unwrap().drive(Clock::Simulated(SimulatedClock::default())).unwrap();
    let events = driven.events();
    while driven.turn() != Turned::Ended {}
    let report = driven.finish();
    assert_eq!((report.failed_calls, report.bugs.len()), (5000, 0));
    // The handle outlives the run.
    assert!(events.is_over());
    let told: Vec<Event> = events.collect();
    assert_eq!(told.len(), 1024 + 1);
    let first = |event: &Event| matches!(event.kind, EventKind::Failed { number, .. } if number < 1024);
    assert!(told[..1024].iter().all(first), "{:?}", told[1023]);
    assert_eq!(told[1024].kind, EventKind::EventsLost { count: 5000 - 1024 });
}

/// Promise (events): An edge that loses more than `drops_above` is an event once a second;
/// discarded messages do not count.
#[test]
fn losses_above_the_threshold_are_events() {
    for (policy, above, expected) in [
        ("capacity: 4, when_full: drop_newest", 0.01, Some(Reason::FullNewest)),
        ("capacity: 4, when_full: drop_oldest", 0.01, Some(Reason::FullOldest)),
        ("when_full: latest", 0.01, None),
        ("capacity: 4, when_full: drop_newest", 0.9, None),
        ("capacity: 4", 0.01, None),
    ] {
        // A hundred numbers a second into a node that takes twenty.
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ period_ns: 10000000 }} }}\n  \
             b: {{ kind: step, core: 1, from: {{ from: a, {policy} }}, fault: {{ delay: 50ms }} }}\n  z: {{ kind: collect, from: b }}\n\
             run: {{ drops_above: {above} }}\n"
        );
        let (events, driven) = drive(&graph, Duration::from_secs(10));
        let is_lost = |event: &&Event| matches!(event.kind, EventKind::Lost { .. });
        let told: Vec<&Event> = events.iter().filter(is_lost).collect();
        assert_eq!(told.len(), if expected.is_some() { 9 } else { 0 }, "{policy} {above}: {events:?}");
        for event in told {
            let EventKind::Lost { edge, reason, count, of, within, .. } = &event.kind else { continue };
            assert_eq!((edge.as_str(), Some(*reason)), ("a/out -> b/in", expected));
            assert!((70..=90).contains(count) && (95..=106).contains(of), "{event}");
            assert!((1000 * MS..1100 * MS).contains(within), "{event}");
        }
        // `block` lost nothing and slowed the source.
        let report = driven.finish();
        let gone = report.edges[0].lost_total() + report.edges[0].discarded_total();
        assert_eq!(gone > 0, !policy.ends_with("4"), "{policy}");
    }
}

/// A path that misses its deadline is reported once a second. `path_stats` has the same counts as
/// the report.
#[test]
fn missed_deadlines_are_events() {
    for (deadline, misses) in [("2ms", true), ("1s", false)] {
        // A hundred numbers a second, each of which takes 5 ms.
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ period_ns: 10000000 }} }}\n  \
             b: {{ kind: step, from: a, fault: {{ delay: 5ms }} }}\n  z: {{ kind: collect, from: b }}\n\
             paths: [{{ from: a, to: z, deadline: {deadline} }}]\n"
        );
        let (events, driven) = drive(&graph, Duration::from_secs(10));
        let told: Vec<&Event> = events.iter().filter(|event| event.kind.name() == "missed").collect();
        assert_eq!(told.len(), if misses { 9 } else { 0 }, "{deadline}: {events:?}");
        let mut named = 0;
        for event in told {
            let EventKind::Missed { path, count, of, deadline, within, slowest } = &event.kind else { continue };
            named += usize::from(slowest.starts_with("a long call of b (5."));
            assert_eq!((path.as_str(), *deadline, event.kind.path()), ("a -> z", 2 * MS, Some("a -> z")));
            assert!(count == of && (95..=106).contains(of), "{event}");
            assert!((1000 * MS..1100 * MS).contains(within), "{event}");
        }
        // The first ones ask for it.
        assert!(named >= if misses { 7 } else { 0 }, "{events:?}");
        let path = driven.path_stats().remove(0);
        let report = driven.finish();
        let judged = &report.deadlines[0];
        assert!(judged.judged >= path.judged && path.judged > 900, "{path:?} {judged:?}");
        assert_eq!((path.deadline, path.missed > 900), (Some(judged.deadline), misses), "{path:?}");
    }
}

/// Promise (events): Unmatched messages of a join's anchor are losses; surplus messages of a faster
/// input are not.
#[test]
fn losses_of_a_join_are_events() {
    for (join, told) in [
        ("by_time, within: 1ms, anchor: fast", &["a/out -> c/fast"][..]),
        ("by_time, within: 1ms, anchor: slow", &[]),
        ("by_time, within: 1ms", &["a/out -> c/fast"]),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ period_ns: 10000000 }} }}\n  \
             b: {{ kind: numbers, config: {{ period_ns: 50000000 }} }}\n  \
             c: {{ kind: collect, inputs: {{ fast: a, slow: b }}, join: {{ policy: {join} }} }}\n"
        );
        let (events, driven) = drive(&graph, Duration::from_secs(3));
        let lost = events.iter().filter_map(|event| match &event.kind {
            EventKind::Lost { edge, reason, .. } => Some((edge.as_str(), *reason)),
            _ => None,
        });
        let expected: Vec<_> = told.iter().flat_map(|edge| [(*edge, Reason::Unmatched); 2]).collect();
        assert_eq!(lost.collect::<Vec<_>>(), expected, "{join}: {events:?}");
        driven.finish();
    }
}

/// Promise (events): A thread that waits for events is woken by a hang, while it lasts.
#[test]
fn a_thread_waiting_for_events_is_woken_by_a_hang() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  \
                 f: { kind: fault, config: { at: 100, how: hang }, core: 1, from: a }\n  e: { kind: collect, from: f }\n\
                 run: { watchdog: 20ms }\n";
    let running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    let events = running.events();
    let reader = std::thread::spawn(move || {
        let begin = Instant::now();
        while begin.elapsed() < limen_tests::PATIENCE {
            let Some(event) = events.next_within(Duration::from_secs(1)) else { continue };
            if matches!(&event.kind, EventKind::Hangs { node, .. } if node == "f") {
                return (Some(event), events);
            }
        }
        (None, events)
    });
    let (event, events) = reader.join().unwrap();
    let event = event.expect("an event");
    assert_eq!(event.to_string(), "`f` has not returned for more than 20.0 ms");
    assert!(!events.is_over());
    let report = running.stop(Drain::within(Duration::from_millis(50)));
    assert_eq!(report.exit_code(), 70);
    assert!(report.notes.iter().any(|note| note.contains("`f` has not returned")), "{:?}", report.notes);
    // Waiting for events of a finished run returns at once.
    assert!(events.is_over());
    let begin = Instant::now();
    while events.next_within(Duration::from_secs(3600)).is_some() {}
    assert!(begin.elapsed() < limen_tests::PATIENCE);
}

/// Promise (events): A call of `stats` also detects a hang.
#[test]
fn polling_stats_also_detects_a_hang() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  \
                 f: { kind: fault, config: { at: 100, how: hang }, core: 1, from: a }\n  e: { kind: collect, from: f }\n\
                 run: { watchdog: 20ms }\n";
    let running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    let begin = Instant::now();
    let mut events = running.events();
    while !events.by_ref().any(|event| matches!(event.kind, EventKind::Hangs { .. })) {
        assert!(begin.elapsed() < limen_tests::PATIENCE && !running.stats().is_empty());
        std::thread::yield_now();
    }
    drop(running);
    assert!(events.is_over());
}
