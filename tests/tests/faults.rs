//! A node may fail in any way: the report names it, no other node hangs, and every lost message is
//! counted.

use limen::node::{Building, Connected, Emit, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::report::{Outcome, Reason};
use limen::{Clock, Drain, Message, Plan, RunError, SimulatedClock, Spec, Tensor, Time};
use limen_tests::{plan, run, turn};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// `numbers -> step -> fault -> step -> collect`, with the given config and keys of the fault node.
fn chain(fault: &str, keys: &str, count: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {count} }} }}\n  b: {{ kind: step, from: a }}\n  \
         f: {{ kind: fault, config: {{ {fault} }}, from: b{keys} }}\n  d: {{ kind: step, from: f }}\n  \
         e: {{ kind: collect, from: d }}\n"
    )
}

/// How messages reach the node: in bursts, or one at a time, which takes another code path in a
/// worker.
const EDGES: [&str; 2] = ["", "defaults: { input: { capacity: 1 } }\n"];

/// Promise (failures): With `on_error: stop`, a failed call publishes nothing, the run drains, and
/// the exit code is 1.
#[test]
fn stop_ends_the_run_and_reports_the_node() {
    for (heavy, edges) in ["", ", heavy: true"].into_iter().flat_map(|heavy| EDGES.map(|edges| (heavy, edges))) {
        for how in ["error", "panic", "too_many"] {
            for at in [0, 1, 777, 4999] {
                let graph = chain(&format!("at: {at}, how: {how}{heavy}"), "", "count: 5000");
                let report = run(&format!("{graph}{edges}"));
                let name = format!("{how} at {at}{heavy} {edges}");
                assert_eq!(report.outcome, Outcome::Failed, "{name}");
                assert_eq!(report.exit_code(), 1, "{name}");
                assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
                let failure = &report.failures[0];
                assert_eq!((failure.node.as_str(), failure.panicked), ("f", how == "panic"), "{name}");
                // Transactional: earlier messages are there, none of the failed call.
                assert_eq!(report.metric("count"), Some(f64::from(at)), "{name}");
                let fault = report.nodes.iter().find(|n| n.name == "f").unwrap();
                assert_eq!((fault.done, fault.failed), (at as u64, 1), "{name}");
                let edge = report.edges.iter().find(|e| e.to == "f/in").unwrap();
                let gone: u64 = edge.lost.iter().filter(|(r, _)| *r == Reason::ConsumerGone).map(|(_, n)| n).sum();
                assert_eq!(edge.lost_total(), gone, "{name}");
            }
        }
    }
}

/// Promise (failures): With `on_error: skip`, failed calls are counted and the node continues.
#[test]
fn skip_counts_failed_calls_and_continues() {
    for (heavy, edges) in ["", ", heavy: true"].into_iter().flat_map(|heavy| EDGES.map(|edges| (heavy, edges))) {
        for how in ["error", "panic"] {
            let graph = chain(&format!("every: 7, how: {how}{heavy}"), ", on_error: skip", "count: 7000");
            let report = run(&format!("{graph}{edges}"));
            assert_eq!(report.exit_code(), 0);
            assert!(report.is_degraded());
            assert_eq!(report.failed_calls, 1000, "{how}{heavy}");
            assert_eq!(report.metric("count"), Some(6000.0), "{how}{heavy}");
            assert_eq!(report.metric("disorder"), Some(0.0), "{how}{heavy}");
            assert_eq!(report.bugs, Vec::<String>::new(), "{how}{heavy}");
        }
    }
}

/// Promise (failures): With `on_error: detach`, the node is removed and the rest of the graph runs
/// on.
#[test]
fn detach_removes_one_branch_only() {
    for heavy in ["", "heavy: true, "] {
        let report = run(&format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 5000 }} }}\n  \
             f: {{ kind: fault, config: {{ {heavy}at: 1000 }}, from: a, on_error: detach }}\n  \
             side: {{ kind: collect, from: f }}\n  main: {{ kind: collect, from: a }}\n"
        ));
        assert_eq!(report.exit_code(), 0, "{heavy}");
        assert_eq!(report.bugs, Vec::<String>::new(), "{heavy}");
        assert_eq!(report.metric("main.count"), Some(5000.0), "{heavy}");
        assert_eq!(report.metric("side.count"), Some(1000.0), "{heavy}");
        let edge = report.edges.iter().find(|e| e.to == "f/in").unwrap();
        assert_eq!(edge.lost, [(Reason::Detached, 5000 - 1001)], "{heavy}");
    }
}

/// Promise (failures): A source that fails ends its stream.
#[test]
fn a_source_that_fails_ends_its_stream() {
    let report = run(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 100, fail_at: 40 } }\n  b: { kind: collect, from: a }\n",
    );
    assert_eq!(report.exit_code(), 1);
    assert_eq!(report.metric("count"), Some(40.0));
    assert_eq!(report.bugs, Vec::<String>::new());
    let report = run(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 100, fail_at: 40 }, on_error: skip }\n  b: { kind: collect, from: a }\n",
    );
    assert_eq!((report.exit_code(), report.metric("count")), (0, Some(99.0)));
}

/// Promise (failures): If a node cannot be built, the start fails with the name of the node.
#[test]
fn a_node_that_cannot_be_built_stops_the_start() {
    for how in ["error", "panic"] {
        let graph = chain(&format!("place: build, how: {how}"), "", "count: 10");
        match plan(&graph).unwrap().wire().unwrap().start() {
            Err(RunError::Build { node, error }) => {
                assert_eq!(node, "f");
                assert!(error.contains("asked for"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn finish_and_drop_may_fail_too() {
    for (fault, call) in [("place: finish", "finish"), ("place: finish, how: panic", "finish"), ("place: drop", "drop")]
    {
        let report = run(&chain(fault, "", "count: 500"));
        assert_eq!(report.failures[0].call, call, "{fault}");
        assert_eq!(report.exit_code(), 1, "{fault}");
        assert_eq!(report.metric("count"), Some(500.0), "{fault}");
        assert_eq!(report.bugs, Vec::<String>::new(), "{fault}");
    }
}

/// Promise (calls): The report names a call that never returns; the run abandons it after
/// `run.stop`.
#[test]
fn a_node_that_never_returns_is_reported_and_abandoned() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  \
                 f: { kind: fault, config: { at: 100, how: hang }, core: 1, from: a }\n  e: { kind: collect, from: f }\n";
    let running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    let begin = Instant::now();
    // The run cannot end by itself before all messages of the source have passed the node.
    while running.stats()[0].done < 200 {
        std::thread::yield_now();
        assert!(begin.elapsed() < limen_tests::PATIENCE);
    }
    let report = running.stop(Drain::within(Duration::from_millis(100)));
    assert_eq!((report.outcome, report.exit_code()), (Outcome::DeadlinePassed, 70));
    let abandoned: Vec<&str> = report.nodes.iter().filter(|n| n.abandoned).map(|n| n.name.as_str()).collect();
    assert!(abandoned.contains(&"f"), "{abandoned:?}");
    // The counts of the other nodes still add up.
    assert_eq!(report.bugs, Vec::<String>::new());
}

/// Promise (stops): A stop processes the messages in flight.
#[test]
fn a_stop_drains_messages_in_flight() {
    for heavy in ["false", "true"] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{}} }}\n  \
             b: {{ kind: step, config: {{ heavy: {heavy} }}, from: a }}\n  c: {{ kind: collect, from: b }}\n"
        );
        let running = plan(&graph).unwrap().wire().unwrap().start().unwrap();
        let begin = Instant::now();
        while running.stats()[0].done < 10_000 {
            std::thread::yield_now();
            assert!(begin.elapsed() < limen_tests::PATIENCE);
        }
        let report = running.stop(Drain::within(limen_tests::PATIENCE));
        assert_eq!((report.outcome, report.exit_code()), (Outcome::Stopped, 0));
        assert_eq!(report.bugs, Vec::<String>::new());
        let sent = report.nodes.iter().find(|n| n.name == "a").unwrap().done;
        assert_eq!(report.metric("count"), Some(sent as f64));
    }
}

/// Promise (edges): A producer that waits for room continues when its consumer fails.
#[test]
fn a_failure_releases_a_blocked_producer() {
    // The node fails while its ring of 4 is full and the source waits.
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 100000 } }\n  \
                 f: { kind: fault, config: { at: 10, how: panic, heavy: true }, from: { from: a, capacity: 4 } }\n  \
                 e: { kind: collect, from: f }\n  other: { kind: collect, from: a }\n";
    let report = run(graph);
    assert_eq!(report.exit_code(), 1);
    assert_eq!(report.bugs, Vec::<String>::new());
}

/// `numbers -> step -> collect`, with faults injected into one of them.
fn injected(node: &str, fault: &str, keys: &str) -> limen::Report {
    let mut graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 1000 }A }\n  \
                     b: { kind: step, from: aB }\n  c: { kind: collect, from: bC }\n"
        .to_string();
    for (letter, name) in [("A", "a"), ("B", "b"), ("C", "c")] {
        let keys = if name == node { format!(", fault: {{ {fault} }}{keys}") } else { String::new() };
        graph = graph.replace(letter, &keys);
    }
    let report = turn(&graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new(), "{node}: {fault}");
    report
}

/// Promise (failures): `fault:` works in any node, and the same seed injects the same faults.
#[test]
fn faults_can_be_injected_into_any_node() {
    let count = |report: &limen::Report| report.metric("count").unwrap();
    for node in ["a", "b", "c"] {
        // A source sends the number of a failed call again.
        let failed = if node == "a" { 166 } else { 1000 / 7 };
        let report = injected(node, "error_every: 7", ", on_error: skip");
        assert_eq!((report.failed_calls, report.exit_code()), (failed, 0), "{node}");
        let report = injected(node, "panic_at: 500", "");
        assert_eq!((report.exit_code(), report.failures[0].panicked), (1, true), "{node}");
        assert_eq!((report.failures[0].node.as_str(), report.node(node).unwrap().done), (node, 499));
        let report = injected(node, "error_at: 500", ", on_error: detach");
        assert_eq!((report.exit_code(), report.failed_calls), (0, 1), "{node}");
        let delayed = injected(node, "delay: 1ms, delay_to: 3ms", "");
        let wall = delayed.wall.as_millis();
        assert!((1900..2100).contains(&wall) && count(&delayed) == 1000.0, "{node}: {wall} ms");
    }
    for node in ["b", "c"] {
        let report = injected(node, "drop: 0.1", "");
        let dropped: u64 = report.edges.iter().map(|edge| edge.lost_total()).sum();
        assert!((70..130).contains(&dropped), "{node}: {dropped}");
        assert!(report.edges.iter().flat_map(|edge| &edge.lost).all(|(reason, _)| *reason == Reason::Gate));
        assert_eq!(count(&report), 1000.0 - dropped as f64, "{node}");
        assert!(injected(node, "drop: 1", "").metric("count") == Some(0.0));
    }
    for node in ["a", "b"] {
        let report = injected(node, "duplicate: 0.1", "");
        assert!((1070.0..1130.0).contains(&count(&report)), "{node}: {}", count(&report));
        assert_eq!(count(&injected(node, "duplicate: 1", "")), 2000.0, "{node}");
    }
    // The seed decides the random numbers.
    let dropped = |seed: u64| count(&injected("b", &format!("drop: 0.5, seed: {seed}"), ""));
    assert_eq!(dropped(1), dropped(1));
    assert!((2..9).any(|seed| dropped(seed) != dropped(1)));
}

/// Promise (failures): `fault: { hang_at: N }` makes the N-th call hang.
#[test]
fn a_call_can_be_made_to_hang() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  \
                 b: { kind: step, core: 1, from: a, fault: { hang_at: 100 } }\n  c: { kind: collect, from: b }\n";
    let running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    while running.stats()[0].done < 200 {
        std::thread::yield_now();
    }
    let report = running.stop(Drain::within(Duration::from_millis(50)));
    assert_eq!((report.exit_code(), report.node("b").unwrap().abandoned), (70, true));
    assert_eq!(report.bugs, Vec::<String>::new());
}

/// Promise (calls): The watchdog reports a turn that exceeds `watchdog` while the turn lasts.
///
/// On a busy machine, the watchdog may miss some of the slow turns.
#[test]
fn a_slow_turn_is_reported_while_it_runs() {
    let graph = |watchdog: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 10 }} }}\n  \
             b: {{ kind: step, from: a, fault: {{ delay: 100ms }} }}\n  c: {{ kind: collect, from: b }}\n\
             run: {{ watchdog: {watchdog} }}\n"
        )
    };
    let report = run(&graph("20ms"));
    assert!(report.notes.iter().any(|note| note.contains("`b` has not returned")), "{:?}", report.notes);
    assert!(report.notes.len() <= 10 && report.exit_code() == 0, "{:?}", report.notes);
    // A machine that is hot, or has a CPU quota, says so.
    let notes = run(&graph("10s")).notes;
    assert!(notes.iter().all(|note| note.contains("CPU")), "{notes:?}");
}

/// Promise (failures): With `on_error: restart`, the node is rebuilt and continues with the next
/// message.
#[test]
fn a_restarted_node_continues_with_the_next_message() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 500, period_ns: 1000000 } }\n  \
                 b: { kind: step, from: { from: a, capacity: 200 }, on_error: { restart: { max: 3, backoff: 10ms } }, \
                 fault: { error_every: 200 } }\n  c: { kind: collect, from: b }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!((report.exit_code(), report.is_degraded()), (0, true));
    // Only the inputs of the two failed calls are missing.
    assert_eq!((report.metric("count"), report.failed_calls, report.metric("restarts")), (Some(498.0), 2, Some(2.0)));
    assert_eq!((report.metric("lost"), report.metric("disorder")), (Some(0.0), Some(0.0)));
}

/// Promise (failures): After the last permitted restart, the next failure acts as `stop`.
#[test]
fn restarts_back_off_and_are_limited() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 500, period_ns: 1000000 } }\n  \
                 b: { kind: fault, config: { every: 1 }, from: a, on_error: { restart: { max: 3, backoff: 100ms } } }\n  \
                 c: { kind: collect, from: b }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!((report.outcome, report.exit_code()), (Outcome::Failed, 1));
    let node = report.node("b").unwrap();
    // One failure, and one after each restart: 100, 200 and 400 ms later.
    assert_eq!((node.failed, node.restarts), (4, 3));
    assert!((700..720).contains(&report.wall.as_millis()), "{:?}", report.wall);
    let last = report.failures.last().unwrap();
    assert_eq!((last.node.as_str(), last.call), ("b", "restart"));
    assert!(last.text.contains("after 3 restarts"), "{last}");
}

/// Promise (failures): A stop does not wait for the backoff of a restart.
#[test]
fn a_stop_does_not_wait_for_the_backoff() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { period_ns: 1000000 } }\n  \
                 b: { kind: step, from: { from: a, when_full: drop_newest }, on_error: { restart: { backoff: 1h } }, fault: { error_at: 5 } }\n  \
                 c: { kind: collect, from: b }\n";
    let mut running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    while running.stats().iter().all(|node| node.failed == 0) {
        assert!(!running.wait_for(Duration::from_millis(1)));
    }
    let report = running.stop(Drain::within(limen_tests::PATIENCE));
    assert_eq!((report.outcome, report.exit_code(), report.bugs.len()), (Outcome::Stopped, 0, 0));
    assert_eq!((report.metric("left"), report.metric("restarts")), (Some(0.0), Some(1.0)));
}

/// Promise (failures): A restarted source begins again.
#[test]
fn a_restarted_source_starts_from_the_beginning() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 10, fail_at: 4 }, on_error: { restart: { max: 2, backoff: 1ms } } }\n  \
                 c: { kind: collect, from: a }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    // Numbers 0 to 3, three times; sequence numbers continue.
    assert_eq!(
        (report.metric("count"), report.metric("sum_in"), report.metric("disorder")),
        (Some(12.0), Some(18.0), Some(0.0))
    );
    assert_eq!((report.outcome, report.metric("restarts")), (Outcome::Failed, Some(2.0)));
}

/// Promise (failures): Whichever call fails, the report names it and counts every loss.
#[test]
fn any_failed_call_is_reported_and_every_loss_counted() {
    for policy in ["stop", "skip", "detach", "{ restart: { max: 1, backoff: 1us } }"] {
        for node in ["a", "b", "c", "m", "d"] {
            let mut n = 0;
            loop {
                n += 1;
                let keys = |name: &str| {
                    if name == node {
                        format!(", on_error: {policy}, fault: {{ error_at: {n} }}")
                    } else {
                        String::new()
                    }
                };
                let graph = format!(
                    "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 40 }}{} }}\n  \
                     b: {{ kind: step, from: a{} }}\n  c: {{ kind: add, config: {{ n: 1 }}, from: b{} }}\n  \
                     m: {{ kind: infer, config: {{ backend: mock, mock: {{ inputs: {{ x: u64 }}, outputs: {{ y: u64 }} }} }}, from: c{} }}\n  \
                     d: {{ kind: collect, from: m{} }}\n",
                    keys("a"),
                    keys("b"),
                    keys("c"),
                    keys("m"),
                    keys("d")
                );
                let report = turn(&graph, n);
                let what = format!("{node} {policy} at {n}");
                assert_eq!(report.bugs, Vec::<String>::new(), "{what}");
                assert_eq!(report.metric("left"), Some(0.0), "{what}");
                if report.failed_calls == 0 {
                    break;
                }
                assert_eq!((report.failures[0].node.as_str(), report.failed_calls), (node, 1), "{what}");
                assert_eq!(report.exit_code(), u8::from(policy == "stop"), "{what}");
            }
            // No failure, because the node has fewer calls.
            assert!(n > 40, "{node} {policy}: no failure at {n}");
        }
    }
}

/// Promise (scheduling): The report says whether the system granted real time.
#[test]
fn real_time_is_granted_or_refused_and_reported() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { count: 10 } }\n  b: { kind: collect, core: 0, from: a }\n\
                 cores: { 0: { rt: { policy: rr, priority: 3 } } }\n";
    let plan = |allow_rt, strict| {
        let options = limen::Options { allow_rt, strict, ..limen::Options::default() };
        limen::Plan::with_options(
            limen::Spec::from_text(graph, "test.yaml").unwrap(),
            &limen_tests::registry(),
            &options,
        )
    };
    // It needs permission.
    let report = plan(false, None).unwrap().wire().unwrap().start().unwrap().wait();
    assert_eq!(report.workers[0].pinned.real_time, None);
    assert_eq!(report.notes.iter().filter(|note| note.contains("--allow-rt")).count(), 1, "{:?}", report.notes);
    let refused = plan(false, Some(true)).unwrap_err().to_string();
    assert!(refused.contains("5:13: error[E0143]"), "{refused}");
    let Ok(allowed) = plan(true, None) else {
        // On the only CPU it would leave nothing for the rest of the system.
        assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
        return;
    };
    let report = allowed.wire().unwrap().start().unwrap().wait();
    assert_eq!((report.exit_code(), report.metric("count")), (0, Some(10.0)));
    let said = report.notes.iter().filter(|note| note.contains("real time (rr 3)")).count();
    match report.workers[0].pinned.real_time {
        Some(got) => assert_eq!((got.to_string().as_str(), said), ("rr 3", 0)),
        None => assert_eq!(said, 1, "{:?}", report.notes),
    }
}

/// Allocates more memory than the process may have after a number of messages.
struct Greedy(u64);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct GreedyConfig {}

impl Node for Greedy {
    type Config = GreedyConfig;
    fn ports(_: &GreedyConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned();
        Ok(Ports::new().input_any("in").output_forwarding("out", spec, "in"))
    }
    fn build(_: GreedyConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Greedy(500))
    }
}

impl Transform for Greedy {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0 == 0 {
            std::hint::black_box(Vec::<u8>::with_capacity(1 << 40));
        }
        self.0 -= 1;
        out.send(input);
        Ok(())
    }
}

/// Promise (files): A process that runs out of memory damages no file of an earlier run.
///
/// The process may abort, but files of an earlier run stay whole. The test runs itself with a
/// limited address space.
#[test]
fn running_out_of_memory_damages_no_file() {
    const FOLDER: &str = "LIMEN_TEST_FOLDER_WITHOUT_MEMORY";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let text = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 1000 } }\n  g: { kind: greedy, from: a }\n  \
                    z: { kind: csv, config: { path: table.csv }, from: g }\n";
        let mut spec = Spec::from_text(text, "greedy.yaml").unwrap();
        spec.folders.graph = folder.into();
        let registry = limen_tests::registry().transform::<Greedy>("greedy");
        Plan::new(spec, &registry).unwrap().wire().unwrap().start().unwrap().wait();
        panic!("the allocation succeeded");
    }
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.csv");
    fs::write(&table, "seq,in\n0,7\n").unwrap();
    let name = "faults::running_out_of_memory_damages_no_file";
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 8000000; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(FOLDER, Path::new(folder.path()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.signal() == Some(6) && said.contains("memory allocation of 1099511627776 bytes failed"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&table).unwrap(), "seq,in\n0,7\n");
}

/// Panics in one method of author code, other than the call for a message.
struct Touchy(TouchyConfig);

#[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
struct TouchyConfig {
    panic_in: String,
}

impl TouchyConfig {
    fn panic_if_in(&self, place: &str) {
        assert!(self.panic_in != place, "it panics in {place}");
    }
}

impl Node for Touchy {
    type Config = TouchyConfig;
    fn ports(config: &TouchyConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        config.panic_if_in("ports");
        let spec = given.single().cloned();
        Ok(Ports::new().setting("level", 0.0..=9.0).input_any("in").output_forwarding("out", spec, "in"))
    }
    fn build(config: TouchyConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Touchy(config))
    }
    fn set(&mut self, _: &str, value: f64) -> Result<(), NodeError> {
        self.0.panic_if_in("set");
        if value > 8.0 { Err(NodeError::other("too loud")) } else { Ok(()) }
    }
    fn reset(&mut self, _: Reset) {
        self.0.panic_if_in("reset");
    }
    fn metrics(&self, _: &mut Metrics) {
        self.0.panic_if_in("metrics");
    }
}

impl Transform for Touchy {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input);
        Ok(())
    }
}

/// A node refuses a setting after `set` has returned: an event and a note name the node.
#[test]
fn a_setting_that_a_node_refuses_is_an_event() {
    let registry = limen_tests::registry().transform::<Touchy>("touchy");
    let text = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 8, period_ns: 40000000 } }\n  \
                b: { kind: touchy, config: { panic_in: nothing }, from: a }\n  c: { kind: collect, from: b }\n";
    for (value, expected) in [(3.0, None), (9.0, Some("`b` refused `level` = 9: too loud"))] {
        let plan = Plan::new(Spec::from_text(text, "test.yaml").unwrap(), &registry).unwrap();
        let graph = plan.wire().unwrap().drive(Clock::Simulated(SimulatedClock::new(Time(1)))).unwrap();
        let events = graph.events();
        graph.set("b", "level", value).unwrap();
        let report = graph.run();
        let told: Vec<String> = events.map(|event| event.to_string()).collect();
        assert_eq!(told, Vec::from_iter(expected.map(String::from)));
        let is_noted = report.notes.iter().any(|note| Some(note.as_str()) == expected);
        assert_eq!(is_noted, expected.is_some(), "{:?}", report.notes);
    }
}

/// Promise (calls): A panic in a node's code is a call failure of that node.
#[test]
fn a_panic_anywhere_in_author_code_is_a_failure_of_its_node() {
    let registry = limen_tests::registry().transform::<Touchy>("touchy");
    let plan = |text: &str| Plan::new(Spec::from_text(text, "test.yaml").unwrap(), &registry);
    let fails = "fail_at: 2, ";
    for (place, node) in [
        ("set", "kind: touchy, config: { panic_in: set }"),
        ("reset", "kind: touchy, config: { panic_in: reset }"),
        ("metrics", "kind: touchy, config: { panic_in: metrics }"),
        ("reset", "kind: tally, config: { panic_in: [reset] }"),
        ("build", &format!("kind: tally, config: {{ {fails}panic_in: [resume] }}")),
        ("figures", &format!("kind: tally, config: {{ {fails}panic_in: [figures] }}")),
        ("figures", "kind: tally, config: { panic_in: [figures] }"),
        ("drop", "kind: tally, config: { panic_in: [drop] }"),
    ] {
        for on_error in ["stop", "skip", "detach", "{ restart: { max: 2, backoff: 1ms } }"] {
            let what = format!("{place} of {node}, on_error: {on_error}");
            // Only a restarted session is resumed.
            if place == "build" && !on_error.contains("restart") {
                continue;
            }
            let text = format!(
                "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 8, period_ns: 40000000 }} }}\n  \
                 b: {{ {node}, from: {{ from: a, expect_every: 10ms, on_gap: reset }}, on_error: {on_error} }}\n  \
                 c: {{ kind: collect, from: b }}\n  d: {{ kind: collect, from: a }}\n"
            );
            let clock = SimulatedClock::new(Time(1));
            let graph = plan(&text).unwrap().wire().unwrap().drive(Clock::Simulated(clock)).unwrap();
            if place == "set" {
                graph.set("b", "level", 3.0).unwrap();
            }
            let report = graph.run();
            assert_eq!(report.bugs, Vec::<String>::new(), "{what}");
            let failure = report.failures.iter().find(|failure| failure.call == place);
            let failure = failure.unwrap_or_else(|| panic!("{what}: {:?}", report.failures));
            assert!(
                failure.node == "b" && failure.panicked && failure.text.contains("it panics in"),
                "{what}: {failure}"
            );
            assert_eq!(report.exit_code(), u8::from(on_error == "stop" || report.outcome == Outcome::Failed), "{what}");
            assert_eq!(report.metric("left"), Some(0.0), "{what}");
            if !matches!(report.outcome, Outcome::Failed) {
                assert_eq!(report.metric("d.count"), Some(8.0), "{what}");
            }
            // A detached node takes no more messages.
            if on_error == "detach" && matches!(place, "set" | "reset") {
                assert!(report.metric("c.count") < Some(8.0), "{what}");
            }
        }
    }
    for node in ["kind: touchy, config: { panic_in: ports }", "kind: tally, config: { panic_in: [plan] }"] {
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ {node}, from: a }}\n  c: {{ kind: collect, from: b }}\n"
        );
        let said = plan(&text).unwrap_err().to_string();
        assert!(said.contains("`b`: kind `") && said.contains("it panic"), "{said}");
    }
}

/// The number of live instances.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Passes messages on; its drop takes a while.
struct Lasting;

impl Drop for Lasting {
    fn drop(&mut self) {
        (0..1000).for_each(|_| std::thread::yield_now());
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Node for Lasting {
    type Config = GreedyConfig;
    fn ports(_: &GreedyConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned();
        Ok(Ports::new().input_any("in").output_forwarding("out", spec, "in"))
    }
    fn build(_: GreedyConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Ok(Lasting)
    }
}

impl Transform for Lasting {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input);
        Ok(())
    }
}

/// Promise (stops): Dropping a run ends the run and drops its nodes.
///
/// Resources of a dropped run are released, so that another run can use them.
#[test]
fn a_dropped_run_ends_and_drops_its_nodes() {
    let registry = limen_tests::registry().transform::<Lasting>("lasting");
    // A dropped run waits as long as a stop may take.
    let text = "version: 1\nrun: { stop: 60s }\nnodes:\n  a: { kind: numbers }\n  b: { kind: lasting, from: a }\n  \
                c: { kind: collect, from: b }\n";
    for _ in 0..5 {
        let plan = Plan::new(Spec::from_text(text, "test.yaml").unwrap(), &registry).unwrap();
        let running = plan.wire().unwrap().start().unwrap();
        assert_eq!(ALIVE.load(Ordering::SeqCst), 1);
        drop(running);
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
    }
    // The same for a run that did not start because another node could not be built.
    let text = format!(
        "{text}  f: {{ kind: fault, config: {{ place: build }}, core: 1, from: a }}\n  z: {{ kind: collect, from: f }}\n"
    );
    let plan = Plan::new(Spec::from_text(&text, "test.yaml").unwrap(), &registry).unwrap();
    assert!(plan.wire().unwrap().start().is_err());
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
}

/// Promise (failures): If a node is not built within `run.start`, the start fails with the name of
/// the node.
#[test]
fn a_build_timeout_is_reported_and_nothing_runs() {
    let graph = format!("{}run: {{ start: 100ms }}\n", chain("place: build, how: hang", ", core: 1", "count: 10"));
    match plan(&graph).unwrap().wire().unwrap().start() {
        Err(RunError::Build { node, error }) => {
            assert_eq!(node, "f");
            assert!(error.contains("building took longer than 100 ms (`run.start`)"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Promise (calls): The watchdog runs even if the embedding program makes no calls.
#[test]
fn a_slow_turn_is_reported_without_calls_of_the_program() {
    let text = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 20 } }\n  \
                b: { kind: step, from: a, fault: { delay: 100ms } }\n  c: { kind: outlet, config: { hold: 1 }, from: b }\n\
                run: { watchdog: 20ms }\n";
    let mut wired = plan(text).unwrap().wire().unwrap();
    let mut outlet = wired.outlet::<Tensor>("c").unwrap();
    let running = wired.start().unwrap();
    while outlet.recv().is_ok() {}
    let report = running.wait();
    assert!(report.notes.iter().any(|note| note == "`b` has not returned for more than 20.0 ms"), "{:?}", report.notes);
}

#[test]
fn wait_for_accepts_any_duration() {
    for time in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_secs(60)] {
        let mut running = plan(&chain("place: call", "", "count: 10").replace("place: call", "at: 99"))
            .unwrap()
            .wire()
            .unwrap()
            .start()
            .unwrap();
        assert!(running.wait_for(time));
        assert_eq!(running.wait().exit_code(), 0);
    }
}
