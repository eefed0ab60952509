//! Deadlines, maximum ages, budgets and gaps. Simulated, so that time is exact.

use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::report::{Outcome, Reason, Term};
use limen::{Clock, Message, Plan, Report, Spec, Tensor};
use limen_tests::{plan, registry, run, turn};
use schemars::JsonSchema;
use serde::Deserialize;

/// `a` sends a number every 10 µs, `b` takes 25 µs for each, so each arrives 15 µs later than the
/// one before.
fn falling_behind(edge: &str, keys: &str, rest: &str) -> Report {
    let report = turn(
        &format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 100, period_ns: 10000{keys} }} }}\n  \
             b: {{ kind: step, fault: {{ delay: 25us }}, from: {{ from: a, capacity: 200{edge} }} }}\n  \
             c: {{ kind: collect, from: b }}\n{rest}"
        ),
        1,
    );
    assert_eq!(report.bugs, Vec::<String>::new());
    report
}

fn lost(report: &Report, to: &str, reason: Reason) -> u64 {
    let edges = report.edges.iter().filter(|edge| edge.to == to).flat_map(|edge| &edge.lost);
    edges.filter(|(found, _)| *found == reason).map(|(_, n)| n).sum()
}

fn count(report: &Report) -> u64 {
    report.metric("count").unwrap_or(0.0) as u64
}

/// Promise (time): A message that reaches its sink after the deadline of its path is counted.
#[test]
fn a_missed_deadline_is_counted() {
    let report = falling_behind("", "", "paths: [{ from: a, to: c, deadline: 200us }]\n");
    assert_eq!((count(&report), report.metric("lost")), (100, Some(0.0)));
    // The n-th number arrives 15 n µs late, or little more.
    let missed = report.deadlines[0].missed;
    assert!((80..=98).contains(&missed), "{missed} of 100 missed");
    let kept = falling_behind("", "", "paths: [{ from: a, to: c, deadline: 10ms }]\n");
    assert_eq!(kept.deadlines[0].missed, 0);
}

/// Promise (time): With `on_miss: drop`, a message that cannot be on time is lost before its next
/// call.
#[test]
fn messages_that_cannot_be_in_time_are_dropped_before_processing() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3000, period_ns: 10000 } }\n  \
                 b: { kind: step, fault: { delay: 25us }, from: { from: a, capacity: 200 } }\n  \
                 c: { kind: collect, from: b }\npaths: [{ from: a, to: c, deadline: 200us, on_miss: drop }]\n";
    let report = turn(graph, 1);
    let (arrived, early) = (count(&report), lost(&report, "b/in", Reason::Expired));
    let late = lost(&report, "c/in", Reason::Expired);
    assert_eq!(arrived + early + late, 3000);
    // There is time for two messages of five. Once the remaining processing time is known, those
    // are processed and the others are dropped.
    assert!(arrived > 700 && late < 200, "{arrived} arrived, {early} dropped early, {late} late");
    assert!(report.deadlines[0].missed < 200, "{} missed", report.deadlines[0].missed);
    assert!(report.exit_code() == 0 && !report.is_degraded());
}

/// A node whose first calls take much longer than the others.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct WarmingConfig {
    calls: u64,
    ns: u64,
}

struct Warming {
    config: WarmingConfig,
    calls: u64,
    clock: Clock,
}

impl Node for Warming {
    type Config = WarmingConfig;
    fn ports(_: &WarmingConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let number = PortSpec::fixed(DType::U64, []);
        Ok(Ports::new().input("in", number.clone()).output_forwarding("out", Some(number), "in"))
    }
    fn build(config: WarmingConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Warming { config, calls: 0, clock: cx.clock() })
    }
}

impl Transform for Warming {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.calls += 1;
        if let (true, Clock::Simulated(clock)) = (self.calls <= self.config.calls, &self.clock) {
            clock.advance(self.config.ns);
        }
        out.send(input);
        Ok(())
    }
}

/// Promise (time): One slow call does not make a node drop messages forever.
#[test]
fn one_slow_call_does_not_drop_messages_for_ever() {
    let registry = registry().transform::<Warming>("warming");
    for (before, from) in [("", "a"), ("  s: { kind: step, from: a }\n", "s")] {
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 2000, period_ns: 10000000 }} }}\n{before}  \
             w: {{ kind: warming, config: {{ calls: 40, ns: 20000000 }}, from: {from} }}\n  c: {{ kind: collect, from: w }}\n\
             paths: [{{ from: a, to: c, deadline: 8ms, on_miss: drop }}]\n"
        );
        let plan = Plan::new(Spec::from_text(&text, "test.yaml").unwrap(), &registry).unwrap();
        let report = plan.wire().unwrap().simulate(1).unwrap().run(1_000_000).unwrap();
        assert_eq!(report.bugs, Vec::<String>::new());
        // Half a minute, of which the first second is slow.
        assert!(count(&report) > 1000, "{from}: {} arrived", count(&report));
    }
}

/// Promise (time): With `on_miss: skip_to_latest`, the node continues with the newest message.
#[test]
fn skip_to_latest_continues_with_the_newest() {
    let report = falling_behind("", "", "paths: [{ from: a, to: c, deadline: 200us, on_miss: skip_to_latest }]\n");
    let skipped = lost(&report, "b/in", Reason::Superseded) + lost(&report, "c/in", Reason::Superseded);
    let expired = lost(&report, "b/in", Reason::Expired) + lost(&report, "c/in", Reason::Expired);
    assert_eq!(count(&report) + skipped + expired, 100);
    // A late message skips those behind it, except for the newest.
    assert!(skipped > 2 * expired && expired > 0, "{skipped} skipped, {expired} expired");
}

/// Promise (time): With `on_miss: stop`, the first miss ends the run.
#[test]
fn a_missed_deadline_can_stop_the_run() {
    let report = falling_behind("", "", "paths: [{ from: a, to: c, deadline: 200us, on_miss: stop }]\n");
    assert_eq!((report.outcome, report.exit_code()), (Outcome::Failed, 1));
    assert_eq!((report.failures[0].node.as_str(), report.failures[0].call), ("c", "deadline"));
    let late = report.failures[0].text.strip_prefix("a message arrived ").unwrap();
    assert!(late.contains(" µs after its deadline") || late.contains(" ms after its deadline"), "{late}");
    assert!(count(&report) < 100 && report.metric("left") == Some(0.0));
}

/// Promise (time): A node drops only messages that are too late for every downstream sink.
#[test]
fn a_node_drops_only_messages_that_are_late_for_every_sink() {
    let sink = "  d: { kind: collect, from: b }\n";
    let paths = |d: &str| {
        format!("{sink}paths: [{{ from: a, to: c, deadline: 200us, on_miss: drop }}, {{ from: a, to: d{d} }}]\n")
    };
    // `d` takes every message, so every message is processed, and only `c` drops some.
    for patient in ["", ", deadline: 200us", ", deadline: 1h, on_miss: drop"] {
        let report = falling_behind("", "", &paths(patient));
        assert_eq!(lost(&report, "b/in", Reason::Expired), 0, "{patient}");
        assert!(lost(&report, "c/in", Reason::Expired) > 80, "{patient}");
        assert_eq!(report.node("d").unwrap().done, 100, "{patient}");
    }
    let report = falling_behind("", "", &paths(", deadline: 100us, on_miss: drop"));
    assert!(lost(&report, "b/in", Reason::Expired) > 30);
}

/// Promise (time): A message can carry its own deadline.
#[test]
fn a_message_may_have_a_deadline_of_its_own() {
    let paths = "paths: [{ from: a, to: c, deadline: 1h, on_miss: drop }]\n";
    let report = falling_behind("", ", deadline_ns: 200000", paths);
    assert!(lost(&report, "b/in", Reason::Expired) > 30);
    assert_eq!(lost(&falling_behind("", "", paths), "b/in", Reason::Expired), 0);
}

/// Promise (time): An input with `max_age` drops messages that are too old.
#[test]
fn an_input_with_max_age_drops_old_messages() {
    let report = falling_behind(", max_age: 200us", "", "");
    let expired = lost(&report, "b/in", Reason::Expired);
    assert!(expired > 30, "{expired}");
    assert_eq!(count(&report) + expired, 100);
    assert_eq!(lost(&falling_behind(", max_age: 10ms", "", ""), "b/in", Reason::Expired), 0);
}

/// Promise (time): Calls that exceed `budget` are counted.
#[test]
fn calls_over_budget_are_counted() {
    for (budget, over) in [("20us", 100), ("1ms", 0)] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 100 }} }}\n  \
             b: {{ kind: step, fault: {{ delay: 25us }}, from: a, budget: {budget} }}\n  c: {{ kind: collect, from: b }}\n"
        );
        let report = turn(&graph, 1);
        assert_eq!((report.node("b").unwrap().over_budget, report.metric("over_budget")), (over, Some(over as f64)));
    }
}

/// Promise (time): A silence longer than `expect_every` is reported once.
#[test]
fn a_silent_input_is_noticed() {
    let every = |ms: u64, edge: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 5, period_ns: {ms}000000 }} }}\n  \
             c: {{ kind: collect, from: {{ from: a, {edge} }} }}\n"
        )
    };
    let graph = |edge: &str| every(10, edge);
    // Four gaps of 10 ms, each counted once.
    for (edge, gaps) in [("expect_every: 4ms", 4), ("expect_every: 9ms", 4), ("expect_every: 15ms", 0)] {
        let report = turn(&graph(edge), 1);
        assert_eq!((report.node("c").unwrap().gaps, report.exit_code()), (gaps, 0), "{edge}");
        assert_eq!(report.notes.len() as u64, gaps, "{:?}", report.notes);
        let every = format!("for more than {}.00 ms", edge.trim_end_matches("ms").trim_start_matches("expect_every: "));
        assert!(report.notes.iter().all(|note| note.ends_with(&every)), "{:?}", report.notes);
    }
    // The same on threads, with gaps so long that scheduling cannot hide them.
    assert_eq!(run(&every(80, "expect_every: 4ms")).node("c").unwrap().gaps, 4);
    let report = turn(&graph("expect_every: 4ms, on_gap: reset"), 1);
    assert_eq!(report.metric("resets"), Some(4.0));
    let report = turn(&graph("expect_every: 4ms, on_gap: stop"), 1);
    assert_eq!((report.exit_code(), report.failures[0].call), (1, "expect_every"));
    assert!(report.failures[0].text.contains("a/out -> c/in"), "{}", report.failures[0].text);
}

/// Promise (calls): The report attributes the latency of a slow node to that node.
#[test]
fn latency_of_a_slow_node_is_attributed_to_that_node() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 200, period_ns: 20000000 } }\n  b: { kind: step, from: a }\n  \
                 c: { kind: step, from: b, fault: { delay: 1ms, delay_to: 100ms, seed: 5 } }\n  d: { kind: collect, from: c }\n";
    // In the order of a worker's passes: in a random order a turn can be delayed for long.
    let report = plan(graph).unwrap().wire().unwrap().simulate(1).unwrap().run_as_scheduled(100_000).unwrap();
    assert_eq!((report.bugs.len(), count(&report)), (0, 200));
    let most = |node: &str, term| report.histogram(node, term).map_or(0, |recorded| recorded.histogram.max());
    assert!(most("c", Term::Compute) > 50_000_000 && most("c", Term::Queue) > 50_000_000);
    for (node, term) in [("b", Term::Compute), ("d", Term::Compute), ("d", Term::Queue)] {
        assert!(most(node, term) < 1_000_000, "{node} {term:?}: {}", most(node, term));
    }
}
