//! Batches close when they are full, when their oldest message must go, and when the stream ends;
//! no message is left out.

use limen::Report;
use limen::report::Outcome;
use limen::sim::Step;
use limen_tests::{figure, plan, turn};

/// Numbers through a model that takes 50 µs a call for any batch size.
fn batched(numbers: &str, batch: &str, keys: &str, rest: &str) -> Report {
    let report = turn(
        &format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {numbers} }} }}\n  \
             m:\n    kind: infer\n    config: {{ backend: mock, batch: {{ {batch} }}, \
             mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }} }} }}\n    \
             fault: {{ delay: 50us }}\n    from: {{ from: a, capacity: 256 }}{keys}\n  \
             c: {{ kind: collect, from: m }}\n{rest}"
        ),
        1,
    );
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!(report.metric("disorder"), Some(0.0));
    report
}

/// Promise (batches): A batch closes when it is full, and every message is in a batch.
#[test]
fn every_message_is_in_a_batch() {
    for numbers in ["count: 203", "count: 203, period_ns: 10000", "count: 203, period_ns: 1000000"] {
        for batch in
            ["max: 1", "max: 8", "max: 64", "max: 256", "max: 8, within: 1ms", "max: 8, within: 1ms, stride: 3"]
        {
            let report = batched(numbers, batch, "", "");
            assert_eq!((figure(&report, "count"), figure(&report, "last")), (203.0, 202.0), "{numbers}, {batch}");
            assert_eq!(figure(&report, "sum_in"), f64::from(202 * 203 / 2), "{numbers}, {batch}");
            assert_eq!(report.outcome, Outcome::Finished);
        }
    }
}

/// Promise (batches): A batch waits for at most `within`.
#[test]
fn a_batch_waits_no_longer_than_within() {
    // One message every 10 µs: 20 arrive within 200 µs.
    let report = batched("count: 2000, period_ns: 10000", "max: 64, within: 200us", "", "");
    let mean = figure(&report, "mean_batch");
    assert!((19.0..=30.0).contains(&mean), "{mean}");
    // A full batch does not wait; at one message a millisecond each batch has one.
    let full = batched("count: 2000, period_ns: 10000", "max: 8, within: 1s", "", "");
    assert_eq!(figure(&full, "mean_batch"), 8.0);
    let slow = batched("count: 50, period_ns: 1000000", "max: 8, within: 200us", "", "");
    assert_eq!(figure(&slow, "mean_batch"), 1.0);
    // With a stride, messages stay as context for the next call.
    let sliding = batched("count: 200, period_ns: 1000", "max: 8, within: 1s, stride: 1", "", "");
    assert_eq!((figure(&sliding, "batches"), figure(&sliding, "mean_batch")), (193.0, 8.0));
}

/// Promise (batches): A batch closes in time for the deadline of its oldest message, and at once if
/// the cost of its call is unknown.
#[test]
fn a_batch_closes_when_its_oldest_message_must_go() {
    let run = |keys: &str, rest: &str| batched("count: 3000, period_ns: 10000", "max: 256, within: 10ms", keys, rest);
    let path = |deadline: &str| format!("paths: [{{ from: a, to: c, deadline: {deadline} }}]\n");
    // Without a deadline it would wait for 256 messages, 2.5 ms.
    assert!(figure(&run("", ""), "mean_batch") > 200.0);
    let report = run("\n    budget: 100us", &path("500us"));
    let (mean, missed) = (figure(&report, "mean_batch"), report.deadlines[0].missed);
    assert!((20.0..=60.0).contains(&mean) && missed < 60, "batches of {mean}, {missed} missed");
    // Without a budget a batch of a new size goes at once: its duration is learned from the call.
    let unknown = run("", &path("500us"));
    let (mean, missed) = (figure(&unknown, "mean_batch"), unknown.deadlines[0].missed);
    assert!((15.0..=60.0).contains(&mean) && missed < 60, "batches of {mean}, {missed} missed");
    assert_eq!((figure(&report, "count"), figure(&unknown, "count")), (3000.0, 3000.0));
}

/// Numbers through a model, with a simulated clock that advances between turns as on a real
/// machine: a sleeping worker wakes up late, after turns of others.
fn with_late_wakeups(period_us: u64, delay: &str, path: &str, seed: u64) -> Report {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 2000, period_ns: {} }} }}\n  \
         m: {{ kind: infer, config: {{ backend: mock, batch: {{ max: 64, within: 1s }}, mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }} }} }}, \
         fault: {{ {delay} }}, from: {{ from: a, capacity: 64 }} }}\n  c: {{ kind: collect, from: m }}\n\
         paths: [{{ from: a, to: c, {path} }}]\n",
        period_us * 1000
    );
    let mut simulation = plan(&graph).unwrap().wire().unwrap().simulate(seed).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..1_000_000 {
        let late = match simulation.step() {
            Step::Turned => rng.u64(..5_000),
            Step::Waited => 50_000 + rng.u64(..100_000),
            Step::Ended => break,
            Step::Stuck => panic!("stuck: {graph}"),
        };
        simulation.clock().advance(late);
    }
    let report = simulation.finish();
    assert_eq!((report.bugs.len(), report.metric("left")), (0, Some(0.0)), "{:?}", report.bugs);
    report
}

/// Promise (batches): A batch that closes for a deadline allows for a late wake-up.
#[test]
fn a_batch_allows_for_late_wakeups() {
    for (period_us, delay, deadline) in [
        (10_000, "delay: 1100us, delay_to: 1200us", "8ms"),
        (5_000, "delay: 1900us, delay_to: 2100us", "8ms"),
        (2_000, "delay: 1500us, delay_to: 2ms", "8ms"),
        (20_000, "delay: 10ms, delay_to: 11ms", "40ms"),
    ] {
        for seed in 1..4 {
            let report = with_late_wakeups(period_us, delay, &format!("deadline: {deadline}"), seed);
            let missed = report.deadlines[0].missed;
            assert!(missed <= 20, "{period_us} us, {delay}: {missed} of 2000 missed");
            // It still uses the available time.
            let waited = report.histogram("m", limen::report::Term::Wait).unwrap().histogram.quantile(0.5).unwrap();
            assert!(waited > period_us * 100, "{period_us} us, {delay}: held for {waited} ns");
            let dropping = with_late_wakeups(period_us, delay, &format!("deadline: {deadline}, on_miss: drop"), seed);
            let lost = figure(&dropping, "lost");
            assert!(lost <= 20.0, "{period_us} us, {delay}: {lost} of 2000 lost");
        }
    }
}

#[test]
fn a_message_too_late_for_its_batch_is_lost() {
    let rest = "paths: [{ from: a, to: c, deadline: 100us, on_miss: drop }]\n";
    let report = batched("count: 2000, period_ns: 10000", "max: 2", "", rest);
    let lost = figure(&report, "lost");
    assert!(lost > 500.0 && figure(&report, "count") + lost == 2000.0, "{lost} lost");
}
