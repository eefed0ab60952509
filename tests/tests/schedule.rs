//! Schedules of nodes that share a core. Simulated in the order of a worker.

use limen::Report;
use limen::sim::Step;
use limen_tests::plan;
use std::fmt::Write as _;

fn scheduled(text: &str) -> Report {
    let plan = plan(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let report = plan.wire().unwrap().simulate(1).unwrap().run_as_scheduled(1_000_000);
    let report = report.unwrap_or_else(|stuck| panic!("{stuck}\n{text}"));
    assert_eq!(report.bugs, Vec::<String>::new());
    report
}

/// One stream with a deadline of a millisecond, and eight without, whose turns take 1.6 ms in one
/// pass.
fn one_in_a_hurry(schedule: &str) -> u64 {
    let mut text = String::from(
        "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { count: 50, period_ns: 2000000 } }\n  \
         z: { kind: collect, core: 0, fault: { delay: 50us }, from: a }\n",
    );
    for n in 0..8 {
        let _ = writeln!(
            text,
            "  b{n}: {{ kind: numbers, core: 0, config: {{ count: 100 }} }}\n  \
             y{n}: {{ kind: collect, core: 0, fault: {{ delay: 200us }}, from: b{n} }}"
        );
    }
    let _ = write!(text, "paths: [{{ from: a, to: z, deadline: 1ms }}]\ncores: {{ 0: {{ schedule: {schedule} }} }}\n");
    let report = scheduled(&text);
    assert!((0..8).all(|n| report.node(&format!("y{n}")).unwrap().done == 100), "{schedule}");
    assert_eq!(report.node("z").unwrap().done, 50, "{schedule}");
    report.deadlines[0].missed
}

/// Promise (scheduling): With `schedule: deadline`, the message with the earliest deadline runs
/// first.
#[test]
fn deadline_scheduling_runs_the_earliest_deadline_first() {
    let (in_turn, by_deadline) = (one_in_a_hurry("round_robin"), one_in_a_hurry("deadline"));
    assert!(in_turn > 15, "{in_turn} of 50 missed in turn");
    assert_eq!(by_deadline, 0);
}

/// Promise (scheduling): With `schedule: deadline`, messages that the scheduler cannot inspect
/// become urgent with time.
///
/// Messages on an edge that cannot be peeked at get older too: the newest frame of a camera,
/// against a stream of the same deadline that always has work.
#[test]
fn deadline_scheduling_ages_inputs_that_cannot_be_peeked() {
    let report = scheduled(
        "version: 1\nnodes:\n  camera: { kind: numbers, core: 0, config: { count: 60, period_ns: 5000000 } }\n  \
         seen: { kind: collect, core: 1, fault: { delay: 100us }, from: { from: camera, when_full: latest } }\n  \
         other: { kind: numbers, core: 1, config: { count: 3000 } }\n  \
         busy: { kind: collect, core: 1, fault: { delay: 100us }, from: other }\n\
         paths: [{ from: camera, to: seen, deadline: 10ms }, { from: other, to: busy, deadline: 10ms }]\n\
         cores: { 0: { schedule: deadline }, 1: { schedule: deadline } }\n",
    );
    // Frames may be superseded, but none waits until the other stream has no work.
    let (done, missed) = (report.node("seen").unwrap().done, report.deadlines[0].missed);
    assert!(done > 40 && missed < 15, "{done} of 60 seen, {missed} late");
}

/// Promise (scheduling): With `schedule: deadline`, a detached node does not slow down the rest of
/// the graph.
///
/// A detached node is scheduled as if its input were urgent, because its producer has other
/// consumers.
#[test]
fn deadline_scheduling_drains_a_detached_node() {
    let report = scheduled(
        "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { count: 2000 } }\n  \
         bad: { kind: collect, core: 0, fault: { error_at: 1 }, on_error: detach, from: { from: a, capacity: 4 } }\n  \
         good: { kind: collect, core: 0, from: { from: a, capacity: 4 } }\n  \
         other: { kind: numbers, core: 0, config: { count: 2000 } }\n  \
         busy: { kind: collect, core: 0, fault: { delay: 100us }, from: other }\n\
         paths: [{ from: other, to: busy, deadline: 1s }]\ncores: { 0: { schedule: deadline } }\n",
    );
    assert_eq!(report.node("good").unwrap().done, 2000);
    // 2,000 messages, four every 20 ms, would take ten seconds.
    assert!(report.wall.as_secs_f64() < 2.0, "{:?}", report.wall);
}

/// Promise (scheduling): With `schedule: throughput`, a node continues while it has messages and
/// room.
#[test]
fn throughput_scheduling_keeps_a_stage_running_while_it_can() {
    let text = |schedule: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ count: 4000 }} }}\n  \
             b: {{ kind: step, core: 0, fault: {{ delay: 2us }}, from: {{ from: a, capacity: 64 }} }}\n  \
             c: {{ kind: step, core: 0, fault: {{ delay: 2us }}, from: {{ from: b, capacity: 64, soft_capacity: 32 }} }}\n  \
             d: {{ kind: collect, core: 0, from: {{ from: c, capacity: 64 }} }}\n\
             cores: {{ 0: {{ schedule: {schedule} }} }}\n"
        )
    };
    let passes = |schedule: &str| {
        let mut simulation = plan(&text(schedule)).unwrap().wire().unwrap().simulate(1).unwrap();
        let mut passes = 0u64;
        while simulation.pass() != Step::Ended {
            passes += 1;
        }
        let report = simulation.finish();
        assert_eq!((report.bugs.len(), report.metric("count")), (0, Some(4000.0)), "{schedule}");
        passes
    };
    let (in_turn, for_throughput) = (passes("round_robin"), passes("throughput"));
    assert!(2 * for_throughput < in_turn, "{for_throughput} passes for throughput, {in_turn} in turn");
}

/// Promise (scheduling): Each of a hundred nodes on a core runs within 50 ms under every schedule,
/// if calls take less than 100 µs.
///
/// The share of one core when two hundred nodes run on two.
#[test]
fn every_one_of_a_hundred_nodes_on_a_core_has_a_turn_within_50_ms() {
    for schedule in ["round_robin", "deadline", "throughput"] {
        let mut text = String::from("version: 1\nnodes:\n");
        for n in 0..50 {
            let _ = writeln!(
                text,
                "  a{n}: {{ kind: numbers, core: 0, config: {{ count: 60 }} }}\n  \
                 z{n}: {{ kind: collect, core: 0, fault: {{ delay: 95us }}, from: a{n} }}"
            );
        }
        let paths: Vec<String> =
            (0..10).map(|n| format!("{{ from: a{n}, to: z{n}, deadline: {}ms }}", 1 + n)).collect();
        let _ = write!(text, "paths: [{}]\ncores: {{ 0: {{ schedule: {schedule} }} }}\n", paths.join(", "));
        let mut simulation = plan(&text).unwrap().wire().unwrap().simulate(1).unwrap();
        let names: Vec<String> = (0..50).flat_map(|n| [format!("a{n}"), format!("z{n}")]).collect();
        let mut seen = vec![(0, simulation.clock().now()); names.len()];
        let mut longest = 0;
        while simulation.pass() != Step::Ended {
            let now = simulation.clock().now();
            for (name, (turns, at)) in names.iter().zip(&mut seen) {
                let had = simulation.turns(name).unwrap();
                if had != *turns {
                    longest = longest.max(now.since(*at));
                    (*turns, *at) = (had, now);
                }
            }
        }
        let report = simulation.finish();
        assert_eq!(report.bugs, Vec::<String>::new());
        assert!((0..50).all(|n| report.node(&format!("z{n}")).unwrap().done == 60), "{schedule}");
        assert!(longest <= 50_000_000, "{schedule}: no turn for {longest} ns");
    }
}

#[test]
fn a_call_that_takes_most_of_a_deadline_is_noted_in_the_plan() {
    let notes = |budget: &str, deadline: &str| {
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0 }}\n  b: {{ kind: collect, core: 0, from: a }}\n  \
             slow: {{ kind: step, core: 0, budget: {budget}, from: a }}\n  c: {{ kind: collect, core: 0, from: slow }}\n\
             paths: [{{ from: a, to: b, deadline: {deadline} }}]\n"
        );
        plan(&text).unwrap_or_else(|problems| panic!("{problems}")).notes().join("\n")
    };
    let said = notes("3ms", "5ms");
    assert!(
        said.contains(
            "`slow` may take 3.00 ms per call, more than half of the deadline (5.00 ms) of a path through `a`"
        ),
        "{said}"
    );
    assert_eq!(notes("2ms", "5ms"), "");
}
