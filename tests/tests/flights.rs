//! Calls of a model that are on their way at once: order is kept, nothing is lost, and what fails fails alone.

use limen::{Outcome, Report};
use limen_tests::{run, turn};

/// Numbers through a model, with so many calls at once.
fn graph(count: u64, in_flight: usize, batch: &str, mock: &str, keys: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: {count} }} }}\n  \
         m:\n    kind: infer\n    config: {{ backend: mock, in_flight: {in_flight}, batch: {{ {batch} }}, \
         mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }}, {mock} }} }}\n    \
         from: {{ from: a, capacity: 64 }}{keys}\n  \
         c: {{ kind: collect, from: {{ from: m, capacity: 16 }} }}\n"
    )
}

fn figure(report: &Report, name: &str) -> f64 {
    report.metric(name).unwrap_or(f64::NAN)
}

#[test]
fn what_comes_out_keeps_the_order_of_what_went_in() {
    for in_flight in [1, 2, 5] {
        // The last call of a burst is the shortest, and done before those that began earlier.
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

#[test]
fn as_many_are_on_their_way_as_may_be() {
    for in_flight in [2, 3] {
        let report = run(&graph(100, in_flight, "max: 2", "latency: 1ms", ""));
        assert_eq!(figure(&report, "in_flight"), in_flight as f64);
        assert_eq!(figure(&report, "count"), 100.0);
    }
}

#[test]
fn a_call_that_fails_fails_its_own_messages() {
    // Each of the two sessions fails in its second call: those of the messages 2 and 3.
    for (mock, panicked) in [("fail_at: 2", "as it was told"), ("panic_at: 2", "call 2 panics")] {
        let report = run(&graph(50, 2, "max: 1", mock, "\n    on_error: skip"));
        assert_eq!((figure(&report, "count"), figure(&report, "last")), (48.0, 49.0), "{mock}");
        assert_eq!(figure(&report, "sum_in"), f64::from(49 * 50 / 2 - 2 - 3), "{mock}");
        assert_eq!(report.bugs, Vec::<String>::new());
        let said = report.failures.iter().any(|failure| failure.text.contains(panicked));
        assert!(said, "{mock}: {:?}", report.failures);
    }
}

#[test]
fn what_was_on_its_way_fails_with_its_session() {
    for on_error in ["stop", "detach", "{ restart: { max: 3, backoff: 1ms } }"] {
        let report =
            run(&graph(400, 4, "max: 2", "fail_at: 30, per_item: 50us", &format!("\n    on_error: {on_error}")));
        // The laws are checked by the report itself: every message is done, failed, lost or left.
        assert_eq!(report.bugs, Vec::<String>::new(), "{on_error}");
        assert!(!report.failures.is_empty(), "{on_error}");
        assert_eq!(report.exit_code(), u8::from(on_error == "stop"), "{on_error}");
    }
}
