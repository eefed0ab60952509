//! Messages arrive in order and exactly once, in every shape of graph and with every placement.

use limen_tests::run;

/// Runs a graph and compares metrics.
fn check(name: &str, graph: &str, expected: &[(&str, f64)]) {
    for cores in ["", "core: 0"] {
        let graph = graph.replace("CORE", cores);
        let report = run(&graph);
        assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
        assert_eq!(report.exit_code(), 0, "{name}: {:?}", report.failures);
        for (metric, value) in expected {
            assert_eq!(report.metric(metric), Some(*value), "{name}: {metric}\n{report:#?}");
        }
    }
}

/// Promise (edges): A chain of nodes delivers every message.
#[test]
fn a_chain_delivers_every_message() {
    for (heavy, n) in [("false", 100_000u64), ("true", 100_000)] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: {n} }} }}\n  \
             b: {{ kind: step, from: a }}\n  c: {{ kind: step, config: {{ heavy: {heavy} }}, from: b }}\n  \
             d: {{ kind: step, config: {{ forward: true }}, from: c }}\n  e: {{ kind: collect, config: {{ heavy: {heavy} }}, from: d }}\n"
        );
        let sum = (n * (n - 1) / 2) as f64;
        check("chain", &graph, &[("count", n as f64), ("sum_in", sum), ("disorder", 0.0)]);
    }
}

/// Promise (joins): A join by sequence combines messages with the same sequence number.
#[test]
fn a_join_after_fan_out_pairs_messages_of_one_sequence() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 20000 } }\n  \
                 b: { kind: step, config: { heavy: true }, from: a }\n  c: { kind: step, from: a }\n  \
                 d: { kind: pair, inputs: { a: b, b: c } }\n  e: { kind: collect, inputs: { left: d, right: a } }\n";
    let sum = (20_000u64 * 19_999) as f64;
    check(
        "diamond",
        graph,
        &[("e.count", 20_000.0), ("e.sum_left", sum), ("e.sum_right", sum / 2.0), ("sets", 20_000.0)],
    );
}

/// Promise (messages): Consumers of one message share its buffer, and no consumer sees the writes
/// of another.
#[test]
fn writing_in_place_is_invisible_to_other_consumers() {
    // With one consumer the message is moved, with several copied.
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 5000 } }\n  \
                 b: { kind: add, config: { n: 1 }, from: a }\n  c: { kind: add, config: { n: 10 }, from: b }\n  \
                 d: { kind: collect, inputs: { added: c, plain: a } }\n";
    let sum = (5000u64 * 4999 / 2) as f64;
    check("in place", graph, &[("sum_added", sum + 11.0 * 5000.0), ("sum_plain", sum)]);
}

/// Promise (calls): A call sends at most as many messages as its node declared.
#[test]
fn one_to_many_output_is_bounded_and_complete() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3000 } }\n  \
                 b: { kind: split, config: { times: 7 }, from: a }\n  c: { kind: step, config: { heavy: true }, from: b }\n  \
                 d: { kind: collect, from: c }\n";
    check("split", graph, &[("count", 21_000.0), ("disorder", 0.0)]);
}
