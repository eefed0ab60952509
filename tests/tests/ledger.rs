//! Counts, sums and residual of the ledger.

use limen::policy::Telemetry;
use limen::report::Term;
use limen::{Options, Plan, Report, Spec};
use limen_tests::{finished, registry};

fn run(graph: &str, telemetry: Telemetry) -> Report {
    let options = Options { telemetry: Some(telemetry), ..Options::default() };
    let plan = Plan::with_options(Spec::from_text(graph, "test.yaml").unwrap(), &registry(), &options).unwrap();
    finished(plan.wire().unwrap().start().unwrap())
}

/// A cheap source into a slow node on another core, so that most bursts of the source are not
/// recorded.
const SLOW: &str = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 4000 } }\n  \
                    b: { kind: step, config: { work_ns: 3000, heavy: true }, from: a }\n  c: { kind: collect, from: b }\n";

/// Promise (measurements): Each slow call is recorded once, from the second burst on.
#[test]
fn every_slow_call_is_recorded_once() {
    for telemetry in [Telemetry::Auto, Telemetry::Full, Telemetry::Sampled] {
        let report = run(SLOW, telemetry);
        let calls = report.histogram("b", Term::Compute).map_or(0, |recorded| recorded.samples);
        // The first burst was sampled: the node was not known to be slow.
        assert!((4000 - 64..=4000).contains(&calls), "{telemetry:?}: {calls}");
    }
}

/// Promise (measurements): With `telemetry: off`, counters stay exact and nothing else is recorded.
#[test]
fn nothing_is_recorded_with_telemetry_off() {
    let report = run(SLOW, Telemetry::Off);
    assert!(report.histograms.is_empty(), "{:?}", report.histograms.iter().map(|h| h.tag()).collect::<Vec<_>>());
    assert_eq!(report.metric("count"), Some(4000.0));
}

/// Promise (measurements): The terms of each recorded message add up to its latency.
#[test]
fn the_terms_of_a_path_add_up_to_its_latency() {
    // A waiting join, a full ring, a slow node, two cores: no term is zero.
    let report = run(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3000, period_ns: 20000 } }\n  \
         b: { kind: step, config: { work_ns: 5000, heavy: true }, from: { from: a, capacity: 16 } }\n  \
         c: { kind: pair, inputs: { a: b, b: a } }\n  d: { kind: collect, from: c }\n",
        Telemetry::Full,
    );
    let (_, _, path) = report.paths().next().unwrap();
    assert_eq!(path.samples, 3000);
    let residual = report.histogram("d", Term::Residual).unwrap();
    assert_eq!(residual.samples, 3000);
    let [p99, of_path] = [residual, path].map(|recorded| recorded.histogram.quantile(0.99).unwrap());
    assert!(p99 <= 200.max(of_path / 100), "residual p99 is {p99} ns");
    // The means of the disjoint terms along the only path sum to the mean latency.
    let mean = |node: &str, term| {
        report.histogram(node, term).map_or(0.0, |r| r.histogram.mean() * r.histogram.len() as f64 / 3000.0)
    };
    assert!(mean("b", Term::Compute) >= 5000.0);
    assert!(mean("d", Term::Queue) < path.histogram.mean());
}

/// The latency to a sink that skips messages is recorded once for each message that it has taken,
/// and for no other.
#[test]
fn a_path_counts_the_messages_its_sink_has_taken() {
    for (how, rest) in [("error", ""), ("panic", ""), ("error", ", heavy: true"), ("panic", ", heavy: true")] {
        for edges in ["", "defaults: { input: { capacity: 1 } }\n"] {
            let graph = format!(
                "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 7000 }} }}\n  \
                 z: {{ kind: fault_sink, config: {{ every: 7, how: {how}{rest} }}, from: a, on_error: skip }}\n{edges}"
            );
            let report = run(&graph, Telemetry::Full);
            let counts: Vec<u64> = report.paths().map(|(.., path)| path.histogram.len()).collect();
            assert_eq!((report.failed_calls, counts), (1000, vec![6000]), "{how}{rest} {edges}");
        }
    }
}
