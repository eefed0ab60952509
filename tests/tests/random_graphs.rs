//! Simulations of random graphs with random policies, orders and faults.

use limen_tests::plan;
use limen_tests::random::{check, simulate};

/// Promise (edges): Every message on every edge is accounted for, and a run that ends by itself
/// leaves no message in an edge.
///
/// Attack (schedules): 2,000 random graphs in simulation, in an order drawn from a seed; expected:
/// the invariants hold in every order
///
/// For every seed: the message accounting balances, every edge keeps its order, failures stay in
/// their node, and the run ends. More seeds: `cargo run --release -p limen-tests --bin
/// limen-seeds -- 0 1000000`.
#[test]
fn two_thousand_random_graphs_have_no_violation() {
    let wrong: Vec<String> = (0..2_000).filter_map(|seed| check(seed).err()).collect();
    assert!(wrong.is_empty(), "{} of 2000 seeds; the first:\n{}", wrong.len(), wrong[0]);
}

/// Promise (simulation): The same seed produces the same graph, the same order of turns and the
/// same faults.
#[test]
fn a_seed_replays_the_same_run() {
    let counters = |seed| {
        let (drawn, report) = simulate(seed).unwrap_or_else(|(_, stuck)| panic!("seed {seed}: {stuck}"));
        let nodes: Vec<_> = report.nodes.iter().map(|n| (n.name.clone(), n.taken, n.done, n.failed, n.turns)).collect();
        let edges: Vec<_> = report.edges.iter().map(|e| (e.sent, e.received, e.lost.clone())).collect();
        (drawn.yaml, nodes, edges, report.wall, report.failed_calls)
    };
    for seed in (0..2_000).step_by(40) {
        assert_eq!(counters(seed), counters(seed), "seed {seed}");
    }
}

/// Promise (simulation): The simulation finds an injected fault and replays it.
///
/// A bug that shows only when two messages arrive close together is found within a few hundred
/// orders, and replayed.
#[test]
fn an_injected_fault_is_found_and_replayed() {
    let disorder = |seed| {
        let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3, period_ns: 2000 } }\n  \
                     b: { kind: hasty, from: a }\n  c: { kind: collect, from: b }\n";
        let plan = plan(graph).unwrap_or_else(|problems| panic!("{problems}"));
        let report = plan.wire().unwrap().simulate(seed).unwrap().run(10_000).unwrap();
        assert_eq!(report.bugs, Vec::<String>::new());
        report.metric("disorder").unwrap_or(0.0)
    };
    let found: Vec<u64> = (0..500).filter(|seed| disorder(*seed) > 0.0).collect();
    assert!(!found.is_empty() && found.len() < 500, "found by {} seeds of 500", found.len());
    assert!(found.iter().all(|seed| disorder(*seed) > 0.0), "a seed did not replay itself");
}

/// Promise (joins): A join by sequence or by time ends with its first input that ends; later
/// messages of the others are `unmatched`.
///
/// Regression test from a seed: after one input had ended, a join waited for the end of the other,
/// whose source was blocked by a full edge that the next join did not empty.
#[test]
fn a_join_ends_with_the_first_of_its_inputs() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 40 } }\n  \
                 b: { kind: fault, config: { at: 2, how: error }, from: a, on_error: detach }\n  \
                 c: { kind: pair, config: {}, inputs: { a: { from: b, capacity: 2 }, b: { from: a, capacity: 2 } } }\n  \
                 d: { kind: pair, config: {}, inputs: { a: { from: a, capacity: 2 }, b: { from: c, capacity: 2 } } }\n  \
                 e: { kind: collect, from: d }\n";
    for seed in 0..20 {
        let report = plan(graph).unwrap().wire().unwrap().simulate(seed).unwrap().run(100_000);
        let report = report.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert_eq!(report.bugs, Vec::<String>::new());
        assert_eq!((report.node("a").unwrap().done, report.node("e").unwrap().done), (40, 2), "seed {seed}");
    }
}

/// Promise (joins): A waiting join does not keep its worker busy.
///
/// Regression test from a seed: a join that waited for a partner reported work, and its worker
/// turned it for ever.
#[test]
fn a_waiting_join_is_idle() {
    for edge in ["a", "{ from: a, max_bytes: 1KiB }", "{ from: a, urgent_capacity: 4 }"] {
        let patience = if edge.contains("urgent") { ", join: { patience: 40 }" } else { "" };
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 20, period_ns: 1000000 }} }}\n  \
             b: {{ kind: numbers, config: {{ count: 20, period_ns: 2000000 }} }}\n  \
             c: {{ kind: pair, config: {{}}, inputs: {{ a: {edge}, b: b }}{patience} }}\n  d: {{ kind: collect, from: c }}\n"
        );
        let report = plan(&graph).unwrap().wire().unwrap().simulate(1).unwrap().run(100_000).unwrap();
        let join = report.node("c").unwrap();
        assert!(join.done == 20 && join.turns < 400, "{edge}: {} turns for {} messages", join.turns, join.done);
    }
}

/// Promise (stops): A stop that a node requests reaches every node at once, including sleeping
/// ones.
///
/// Regression test from a seed: a stop requested by a node in its turn reached only the stages
/// turned after it; the others slept on.
#[test]
fn a_stop_by_a_node_wakes_every_stage() {
    for seed in [16_118, 17_236, 19_150, 24_104, 26_938, 41_321, 119_532, 141_934, 142_748] {
        assert_eq!(check(seed), Ok(()), "seed {seed}");
    }
}

/// Promise (scheduling): A scheduler that inspects the queues blocks no producer.
///
/// Regression test from a seed: a scheduler that peeked at a join made it drop unmatched messages,
/// and consumed the wake-up that there was room again, so the producer kept waiting.
#[test]
fn peeking_by_the_scheduler_blocks_no_producer() {
    assert_eq!(check(2_355_190), Ok(()));
    for schedule in ["deadline", "throughput"] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ count: 200 }} }}\n  \
             b: {{ kind: numbers, core: 0, config: {{ count: 200, period_ns: 1000 }} }}\n  \
             c: {{ kind: pair, core: 0, inputs: {{ a: {{ from: a, capacity: 2 }}, b: {{ from: b, when_full: drop_newest, capacity: 1 }} }}, \
             join: {{ patience: 2 }} }}\n  d: {{ kind: collect, core: 0, from: c }}\ncores: {{ 0: {{ schedule: {schedule} }} }}\n"
        );
        let report = plan(&graph).unwrap().wire().unwrap().simulate(1).unwrap().run_as_scheduled(100_000);
        let report = report.unwrap_or_else(|stuck| panic!("{schedule}: {stuck}"));
        assert_eq!((report.bugs.len(), report.node("a").unwrap().done), (0, 200), "{schedule}");
    }
}
