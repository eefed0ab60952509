//! Calls of a model in flight: results keep their order, a failed call fails alone, and the state
//! of each stream is separate and survives a failed call.

use limen::Report;
use limen::report::Outcome;
use limen_tests::{figure, run, turn};

/// Numbers through a model, with a number of calls in flight.
fn graph(count: u64, in_flight: usize, batch: &str, mock: &str, keys: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: {count} }} }}\n  \
         m:\n    kind: infer\n    config: {{ backend: mock, in_flight: {in_flight}, batch: {{ {batch} }}, \
         mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }}, {mock} }} }}\n    \
         from: {{ from: a, capacity: 64 }}{keys}\n  \
         c: {{ kind: collect, from: {{ from: m, capacity: 16 }} }}\n"
    )
}

/// Promise (batches): With `in_flight`, results keep the order of their inputs.
#[test]
fn results_keep_the_order_of_their_inputs() {
    for in_flight in [1, 2, 5] {
        // The last call of a burst is the shortest, and ends before earlier ones.
        for batch in ["max: 1", "max: 4", "max: 16, stride: 5"] {
            let text = graph(203, in_flight, batch, "per_item: 20us", "");
            for report in [run(&text), turn(&text, 1)] {
                let seen = (figure(&report, "count"), figure(&report, "last"), figure(&report, "sum_in"));
                assert_eq!(seen, (203.0, 202.0, f64::from(202 * 203 / 2)), "{in_flight} at once, {batch}");
                assert_eq!(figure(&report, "disorder"), 0.0, "{in_flight} at once, {batch}");
                assert_eq!((report.outcome, &report.bugs[..]), (Outcome::Finished, &[][..]));
            }
        }
    }
}

/// Promise (batches): As many calls are in flight as `in_flight` allows, and no more.
#[test]
fn as_many_calls_are_in_flight_as_allowed() {
    for in_flight in [2, 3] {
        let report = run(&graph(100, in_flight, "max: 2", "latency: 1ms", ""));
        assert_eq!(figure(&report, "most_in_flight"), in_flight as f64);
        assert_eq!(figure(&report, "count"), 100.0);
    }
}

/// Promise (batches): With `on_error: skip`, a failed call fails only its own messages.
#[test]
fn a_failed_call_fails_only_its_own_messages() {
    // Each of the two sessions fails in its second call: messages 2 and 3.
    for (mock, panicked) in [("fail_at: 2", "as configured"), ("panic_at: 2", "call 2 panics")] {
        let report = run(&graph(50, 2, "max: 1", mock, "\n    on_error: skip"));
        assert_eq!((figure(&report, "count"), figure(&report, "last")), (48.0, 49.0), "{mock}");
        assert_eq!(figure(&report, "sum_in"), f64::from(49 * 50 / 2 - 2 - 3), "{mock}");
        assert_eq!(report.bugs, Vec::<String>::new());
        let said = report.failures.iter().any(|failure| failure.text.contains(panicked));
        assert!(said, "{mock}: {:?}", report.failures);
    }
}

/// Promise (batches): Unless `on_error` is `skip`, later calls in flight fail with a failed call
/// and are counted.
#[test]
fn calls_in_flight_fail_with_their_session() {
    for on_error in ["stop", "detach", "{ restart: { max: 3, backoff: 1ms } }"] {
        let report =
            run(&graph(400, 4, "max: 2", "fail_at: 30, per_item: 50us", &format!("\n    on_error: {on_error}")));
        // The report checks the message accounting: every message is done, failed, lost or left.
        assert_eq!(report.bugs, Vec::<String>::new(), "{on_error}");
        assert!(!report.failures.is_empty(), "{on_error}");
        assert_eq!(report.exit_code(), u8::from(on_error == "stop"), "{on_error}");
    }
}

/// Promise (batches): A failed call leaves the state unchanged; with `on_skip: reset` its message
/// counts as missing.
#[test]
fn a_failed_call_leaves_the_state_unchanged() {
    // Sums of 0, 1, 2, then the fourth call fails; the state continues from 3, or is reset.
    for (on_skip, total) in [("keep", 141.0), ("reset", 123.0)] {
        for fails in ["panic_at", "fail_at"] {
            let report = turn(
                &format!(
                    "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 10 }} }}\n  \
                     t: {{ kind: tally, config: {{ {fails}: 4, on_skip: {on_skip} }}, from: a, on_error: skip }}\n  \
                     c: {{ kind: collect, from: t }}\n"
                ),
                1,
            );
            assert_eq!(figure(&report, "count"), 9.0, "{on_skip}, {fails}: {:?}", report.failures);
            assert_eq!(figure(&report, "sum_in"), total, "{on_skip}, {fails}");
        }
    }
}

/// Promise (batches): The metrics of a session survive a restart of its node.
///
/// Each session fails in its fourth call.
#[test]
fn metrics_of_a_session_survive_its_restart() {
    for (on_error, calls) in [("{ restart: { max: 2, backoff: 1ms } }", 9.0), ("detach", 3.0), ("stop", 3.0)] {
        for fails in ["panic_at", "fail_at"] {
            let report = turn(
                &format!(
                    "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 40 }} }}\n  \
                     t: {{ kind: tally, config: {{ {fails}: 4 }}, from: a, on_error: {on_error} }}\n  \
                     c: {{ kind: collect, from: t }}\n"
                ),
                1,
            );
            assert_eq!(figure(&report, "tallied"), calls, "{on_error}, {fails}: {:?}", report.failures);
        }
    }
}

/// A call on any other thread panics as well.
#[test]
fn a_worker_runs_on_the_thread_that_a_model_asks_for() {
    for (call, failures) in [("", 0), ("panic_at: 4, ", 10)] {
        let report = run(&format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 40 }} }}\n  \
             t: {{ kind: tally, config: {{ {call}is_hosted: true }}, from: a, on_error: {{ restart: {{ max: 50, backoff: 1us }} }} }}\n  \
             c: {{ kind: collect, from: t }}\n"
        ));
        let text = format!("{:?}", report.failures);
        assert_eq!((report.exit_code(), report.failed_calls, report.bugs.len()), (0, failures, 0), "{text}");
        assert!(!text.contains("IS_HOST"), "{text}");
    }
}

/// Promise (batches): When a source restarts, the states of its streams restart.
#[test]
fn a_restarted_source_begins_a_new_stream() {
    // It sends 0 to 3 and fails, three times. The outputs add up to 10 each time, and to 102 in all
    // if the state is kept.
    for (on_end, total) in [("", 30.0), (", on_end: keep", 102.0)] {
        let report = turn(
            &format!(
                "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ fail_at: 4 }}, on_error: {{ restart: {{ max: 2, backoff: 1ms }} }} }}\n  \
                 t: {{ kind: tally, config: {{ batch: {{ max: 1 }}{on_end} }}, from: a }}\n  c: {{ kind: collect, from: t }}\n"
            ),
            1,
        );
        assert_eq!((figure(&report, "count"), figure(&report, "sum_in")), (12.0, total), "{on_end}");
    }
}

/// Promise (batches): Each stream has its own state, also in a batch with other streams.
#[test]
fn streams_in_one_batch_keep_their_states_apart() {
    let report = turn(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 10 } }\n  b: { kind: numbers, config: { count: 10 } }\n  \
         m: { kind: merge, inputs: { a: a, b: b }, join: { policy: in_turn } }\n  \
         t: { kind: tally, config: { batch: { max: 8 } }, from: m }\n  c: { kind: collect, from: t }\n",
        1,
    );
    assert_eq!((figure(&report, "count"), figure(&report, "sum_in")), (20.0, 330.0));
    assert!(figure(&report, "mean_batch") > 1.0, "{}", figure(&report, "mean_batch"));
}

/// A state belongs to the sources of one input, even if the messages of another began earlier.
#[test]
fn a_model_with_two_inputs_keeps_the_state_of_its_stream() {
    let graph = |stream: &str, b: &str, join: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 1000 }} }}\n  b: {{ kind: numbers, config: {{ count: 1000 }} }}\n  \
             t: {{ kind: tally, config: {{ inputs: 2, batch: {{ max: 4 }} }}, inputs: {{ in: {stream}, with: {b} }}{join} }}\n  \
             c: {{ kind: collect, from: t }}\n"
        )
    };
    // The sum of the sums after each of the messages 0 to 999.
    let sums = 999.0 * 1000.0 * 1001.0 / 6.0;
    for (stream, with, join) in
        [("{ from: a, stream: true }", "b", ""), ("a", "{ from: b, stream: true }", ""), ("a", "a", "")]
    {
        let report = run(&graph(stream, with, join));
        assert_eq!(
            (figure(&report, "count"), figure(&report, "sum_in")),
            (1000.0, sums),
            "{stream} {with}{join}: {:?}",
            report.failures
        );
    }
    for (stream, join, expected) in [
        ("{ from: a, stream: true }", "", "keeps a state for each source of `in`"),
        ("a", ", join: { policy: by_time, within: 10s, anchor: in }", "keeps a state for each source of `in`"),
        ("a", ", join: { policy: sample, trigger: with }", "keeps a state for each source of `with`"),
    ] {
        let plan = limen_tests::plan(&graph(stream, "b", join)).unwrap();
        let notes = plan.nodes().iter().flat_map(|node| node.notes.clone()).collect::<Vec<_>>();
        assert!(notes.iter().any(|note| note == expected), "{expected}: {notes:?}");
    }
    for (stream, with, join, expected) in [
        ("a", "b", "", "must have one input with `stream: true`"),
        ("{ from: a, stream: true }", "{ from: b, stream: true }", "", "must have one stream input, got several"),
        (
            "{ from: a, stream: true }",
            "b",
            ", join: { policy: sample, trigger: with }",
            "must have one stream input, got several",
        ),
    ] {
        let problems = limen_tests::plan(&graph(stream, with, join)).unwrap_err().to_string();
        assert!(problems.contains("E0162") && problems.contains(expected), "{expected}: {problems}");
    }
}

/// Promise (batches): The watchdog reports a call in flight that exceeds `watchdog` while the call
/// lasts.
///
/// On a busy machine, the watchdog may miss some of the slow calls.
#[test]
fn a_slow_call_is_reported_while_it_runs() {
    let text = |watchdog: &str| {
        let graph = graph(20, 2, "max: 1", "latency: 100ms", "");
        format!("{graph}run: {{ watchdog: {watchdog} }}\n")
    };
    let is_named = |report: &Report| report.notes.iter().any(|note| note.contains("a call of `m` has been in flight"));
    let report = run(&text("20ms"));
    assert!(is_named(&report), "{:?}", report.notes);
    assert!(
        report.notes.iter().any(|note| note.contains("runs its calls on unpinned threads (2)")),
        "{:?}",
        report.notes
    );
    let calm = run(&text("10s"));
    assert_eq!((report.exit_code(), calm.exit_code(), is_named(&calm)), (0, 0, false));
}

/// Promise (batches): Calls that began before a failed call complete first.
///
/// The failure of a call that cannot begin comes after the results of earlier calls.
#[test]
fn calls_before_a_failed_one_complete() {
    let keys = "\n    fault: { error_at: 10 }\n    on_error: detach";
    let report = run(&graph(100, 4, "max: 1", "latency: 2ms", keys));
    assert_eq!((figure(&report, "count"), figure(&report, "last")), (9.0, 8.0), "{:?}", report.failures);
    assert_eq!((report.exit_code(), &report.bugs[..]), (0, &[][..]));
}

/// Between messages that are 10 ms apart, a model that is kept warm every 3 ms makes three calls of
/// its own, which are no messages.
#[test]
fn a_model_is_kept_warm_between_messages() {
    let text = |keep_warm: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 20, period_ns: 10000000 }} }}\n  \
             m: {{ kind: infer, config: {{ backend: mock, {keep_warm} mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }} }} }}, from: a }}\n  \
             c: {{ kind: collect, from: m }}\n"
        )
    };
    let report = turn(&text("keep_warm: 3ms,"), 1);
    let calls = figure(&report, "m.warm_calls");
    assert!((19.0 * 3.0..=20.0 * 3.0).contains(&calls), "{calls}");
    assert_eq!((figure(&report, "c.count"), figure(&report, "batches")), (20.0, 20.0));
    // On threads, a busy machine leaves less time between messages.
    let report = run(&text("keep_warm: 3ms,").replace("count: 20,", "count: 100,"));
    assert!(figure(&report, "m.warm_calls") > 0.0 && report.bugs.is_empty(), "{report:?}");
    assert!(figure(&turn(&text(""), 1), "m.warm_calls").is_nan());
    for (key, why) in [
        ("keep_warm: 0ms,", "`keep_warm` must be more than 0 s, got 0 s"),
        ("keep_warm: 3ms, in_flight: 2,", "one call at a time"),
    ] {
        let problems = limen_tests::plan(&text(key)).unwrap_err().to_string();
        assert!(problems.contains(why), "{problems}");
    }
}
