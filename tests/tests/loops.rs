//! Graphs with feedback loops end: by themselves when the loop is empty, at the first request when
//! messages go round it.

use limen::node::{Building, Connected, Emit, Node, NodeError, OneOf, Picked, PlanErrors, Planning, Ports, Transform};
use limen::sim::Step;
use limen::{Clock, Drain, Plan, Report, SimulatedClock, Spec, Tensor, Time, Wired};
use limen_tests::{finished, registry};
use std::time::Duration;

/// Much longer than a run takes: none that waits for it passes.
const LONG: Duration = limen_tests::PATIENCE;

/// Merges numbers, and fails when it ends.
struct Failing;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {}

impl Node for Failing {
    type Config = Config;

    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.inputs().find_map(|(_, spec)| spec).expect("one is known");
        let ports = given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input(name, spec.clone()));
        Ok(ports.output("out", spec.clone()))
    }

    fn build(_: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Failing)
    }
}

impl Transform for Failing {
    type In = OneOf<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: Picked<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input.message);
        Ok(())
    }

    fn finish(&mut self, _: &mut Emit<Tensor>) -> Result<(), NodeError> {
        Err(NodeError::other("it fails at its end"))
    }
}

fn wired(graph: &str) -> Wired {
    let graph = format!("version: 1\nnodes:\n{graph}");
    let plan = |spec| Plan::new(spec, &registry().transform::<Failing>("failing"));
    Spec::from_text(&graph, "test.yaml")
        .and_then(plan)
        .unwrap_or_else(|problems| panic!("{problems}\n{graph}"))
        .wire()
        .unwrap()
}

fn simulated(graph: &str) -> limen::Driven {
    wired(graph).drive(Clock::Simulated(SimulatedClock::new(Time(1)))).unwrap()
}

fn left(report: &Report) -> u64 {
    report.edges.iter().map(|edge| edge.left).sum()
}

/// Eight messages; half of those that come to `d` go round again, so `p` gets 16.
fn decaying(more: &str, last: &str) -> String {
    format!(
        "  s: {{ kind: numbers, config: {{ count: 8, period_ns: 1000 }} }}\n  \
         m: {{ kind: merge, inputs: {{ a: s, b: {{ from: {last}, when_full: drop_newest, capacity: 64 }} }} }}\n  \
         p: {{ kind: pass, from: m }}\n  d: {{ kind: decimate, config: {{ keep_every: 2 }}, from: p }}\n  \
         k: {{ kind: collect, from: p }}\n{more}"
    )
}

/// Promise (loops): A graph with a loop ends when its sources have ended and the loop is empty.
///
/// Nothing is lost: nodes that hold messages back (`delay`) are waited for.
#[test]
fn a_run_ends_when_its_loops_are_empty() {
    let other_core = "  e: { kind: pass, core: 1, from: d }\n";
    let held = "  e: { kind: delay, config: { by: 30ms }, from: d }\n";
    let two = "  f: { kind: merge, inputs: { a: d, b: { from: g, when_full: latest } } }\n  \
               g: { kind: pass, from: f }\n  h: { kind: decimate, config: { keep_every: 1000 }, from: g }\n";
    // `e` wants to be woken until the last part of a message is there.
    let gathered =
        "  c: { kind: scatter, from: d }\n  e: { kind: gather, config: { max: 4, within: 50ms }, from: c }\n";
    let whole = "  y: { kind: synthetic, config: { pattern: noise, shape: [4, 2], dtype: f32, count: 8 } }\n  \
                 x: { kind: scatter, from: y }\n  s: { kind: gather, config: { max: 4 }, from: x }\n";
    let numbers = "  s: { kind: numbers, config: { count: 8, period_ns: 1000 } }\n";
    let parts = decaying(gathered, "e").replace(numbers, whole).replace("kind: collect", "kind: \"null\"");
    for graph in [decaying("", "d"), decaying(other_core, "e"), decaying(held, "e"), parts] {
        let reports = [
            wired(&graph).start().unwrap().wait(),
            wired(&graph).drive(Clock::Monotonic).unwrap().run(),
            simulated(&graph).run(),
            simulated(&graph).run_until(Time(10_000_000_000), || {}),
            wired(&graph).simulate(7).unwrap().run(100_000).unwrap(),
            wired(&graph).simulate(7).unwrap().run_as_scheduled(100_000).unwrap(),
        ];
        for report in reports {
            assert_eq!(report.bugs, Vec::<String>::new());
            let found = (report.outcome.name(), report.node("k").unwrap().done, left(&report), report.lost_total());
            assert_eq!(found, ("finished", 16, 0, 0), "{graph}");
        }
    }
    // A loop within a loop goes round for ever: the run does not end by itself, and at a stop
    // nothing is lost but what goes round.
    let report = simulated(&decaying(two, "h")).run_until(Time(50_000_000), || {});
    assert_eq!((report.bugs.len(), report.outcome.name(), report.exit_code()), (0, "stopped", 0));
    assert!(left(&report) > 0);
}

/// The first node of the loop is not rebuilt when it fails at its end: its loop would stay.
#[test]
fn a_node_that_fails_as_its_loop_ends_is_not_restarted() {
    let graph = decaying("", "d").replace("kind: merge", "kind: failing, on_error: restart");
    let report = finished(wired(&graph).start().unwrap());
    for report in [report, simulated(&graph).run(), wired(&graph).simulate(7).unwrap().run(100_000).unwrap()] {
        assert_eq!(report.bugs, Vec::<String>::new());
        let restarts = report.node("m").unwrap().restarts;
        let found = (report.failures.len(), restarts, report.node("k").unwrap().done, left(&report));
        assert_eq!(found, (1, 0, 16, 0), "{:?}", report.failures);
    }
}

/// Promise (loops): The first stop request ends a loop; only messages still in the loop count as
/// `left`.
///
/// `merge` and a sampling join whose trigger comes from the loop would go on for ever.
#[test]
fn the_first_request_ends_what_goes_round_a_loop() {
    let merge = |policy: &str, back: &str| {
        format!(
            "  s: {{ kind: numbers }}\n  \
             m: {{ kind: merge, inputs: {{ a: s, b: {{ from: q, when_full: {back} }} }}, join: {{ policy: {policy} }} }}\n  \
             p: {{ kind: pass, from: m }}\n  q: {{ kind: pass, core: 1, from: p }}\n  k: {{ kind: collect, from: p }}\n  \
             z: {{ kind: collect, core: 1, from: q }}\n"
        )
    };
    let sample = "  s: { kind: numbers }\n  n: { kind: merge, inputs: { a: s, b: { from: m, when_full: latest } } }\n  \
                  m: { kind: pair, config: { any: true }, inputs: { a: n, b: { from: s, when_full: latest } }, join: { policy: sample, trigger: a } }\n  \
                  k: { kind: collect, from: m }\n";
    let inner = "  s: { kind: numbers }\n  m: { kind: merge, inputs: { a: s, b: { from: q, when_full: latest } } }\n  \
                 p: { kind: merge, inputs: { a: m, b: { from: q, when_full: latest } } }\n  q: { kind: pass, from: p }\n  \
                 k: { kind: collect, from: q }\n";
    let graphs = [
        merge("zip", "latest"),
        merge("zip", "drop_newest, capacity: 3"),
        merge("priority", "drop_oldest, capacity: 70"),
        sample.to_string(),
        inner.to_string(),
    ];
    for graph in graphs {
        let mut running = wired(&graph).start().unwrap();
        while running.stats().iter().find(|node| node.node == "k").unwrap().done < 100 {
            running.wait_for(Duration::from_millis(1));
        }
        let report = running.stop(Drain::within(LONG));
        assert_eq!(report.bugs, Vec::<String>::new(), "{graph}");
        assert_eq!((report.outcome.name(), report.exit_code()), ("stopped", 0), "{graph}");
        assert!(report.wall < LONG / 2, "{:?} for\n{graph}", report.wall);
        // Only in the loop itself.
        let elsewhere = report.edges.iter().filter(|edge| edge.left > 0 && edge.to.starts_with(['k', 'z'])).count();
        assert_eq!(elsewhere, 0, "{graph}");
        let report = wired(&graph).simulate(3).unwrap().run(60_000).unwrap();
        assert_eq!((report.bugs.len(), report.outcome.name()), (0, "stopped"), "{graph}");
    }
}

/// Loops within each other: `m0` to `m{levels - 1}`, each of which takes what the last of them
/// sends.
fn nested(levels: usize) -> String {
    let merge = |at: usize| {
        let from = if at == 0 { "s".into() } else { format!("m{}", at - 1) };
        let back = "{ from: q, when_full: latest }";
        format!(
            "  m{at}: {{ kind: merge, inputs: {{ a: {{ from: {from}, capacity: 1 }}, b: {back} }}, join: {{ policy: priority }} }}\n"
        )
    };
    let merges: String = (0..levels).map(merge).collect();
    format!(
        "  s: {{ kind: numbers }}\n{merges}  q: {{ kind: pass, from: {{ from: m{}, capacity: 1 }} }}\n  \
         k: {{ kind: collect, from: {{ from: q, capacity: 1 }} }}\n",
        levels - 1
    )
}

/// After a stop, the loops within a loop end with it, not one after the other.
#[test]
fn loops_within_loops_end_together() {
    for levels in [2, 8, 16] {
        let mut simulation = wired(&nested(levels)).simulate(5).unwrap();
        (0..20 * levels).for_each(|_| _ = simulation.pass());
        simulation.stop();
        // How many passes the outermost loop stands, and how many all.
        let (mut outermost, mut all, mut outermost_turns) = (0, 0, None);
        while simulation.pass() != Step::Ended {
            let turns = simulation.turns("m0");
            all += 1;
            if turns != std::mem::replace(&mut outermost_turns, turns) {
                outermost = all;
            }
            assert!(all < 100_000, "{levels} levels do not end");
        }
        assert!(all - outermost < 16, "{levels} levels need {} passes more", all - outermost);
        let report = simulation.finish();
        assert_eq!(report.bugs, Vec::<String>::new(), "{levels} levels");
        assert_eq!((report.outcome.name(), report.exit_code()), ("stopped", 0));
    }
}

/// A loop into which nothing more comes ends, although the loop around it goes on.
#[test]
fn an_inner_loop_ends_before_the_outer_one() {
    let graph = "  s: { kind: numbers, config: { period_ns: 1000000 } }\n  \
                 m: { kind: merge, inputs: { a: s, b: { from: p, when_full: latest } } }\n  \
                 f: { kind: fault, config: { at: 5 }, on_error: detach, from: m }\n  \
                 n: { kind: merge, inputs: { a: f, b: { from: d, when_full: latest } } }\n  \
                 p: { kind: decimate, config: { keep_every: 4 }, from: n }\n  d: { kind: pass, from: p }\n  \
                 k: { kind: collect, from: d }\n";
    let mut simulation = wired(graph).simulate(3).unwrap();
    let mut turns = |passes: usize| {
        (0..passes).for_each(|_| _ = simulation.pass());
        ["s", "k"].map(|node| simulation.turns(node).unwrap())
    };
    let (before, after) = (turns(2_000), turns(2_000));
    simulation.stop();
    while simulation.pass() != Step::Ended {}
    let report = simulation.finish();
    let is_over = after[0] > before[0] && after[1] == before[1];
    assert!(is_over, "{before:?} {after:?} {:?} {:?} {:?}", report.failures, report.nodes, report.edges);
    assert_eq!((report.bugs.len(), report.outcome.name(), left(&report)), (0, "stopped", 0));
}
