//! Random graphs: random nodes, edges, policies and faults, all drawn from one seed, and what must hold of every one.

use crate::registry;
use limen::sim::Stuck;
use limen::{Outcome, Plan, Report, Spec};
use std::fmt::Write as _;

/// A drawn graph.
#[derive(Debug)]
pub struct Drawn {
    /// As a user would write it.
    pub yaml: String,
    /// Messages that each source begins, by its node's name; none where it fails on the way.
    pub counts: Vec<(String, u64)>,
}

struct Output {
    name: String,
    /// Messages per call.
    emits: usize,
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn on_error(rng: &mut fastrand::Rng) -> &'static str {
    pick(rng, &["stop", "skip", "skip", "detach", "detach"])
}

/// A connection to an output drawn so far.
fn connection(rng: &mut fastrand::Rng, outputs: &[Output]) -> String {
    let output = &outputs[rng.usize(..outputs.len())];
    let when_full = pick(rng, &["block", "block", "block", "drop_newest", "drop_oldest", "latest", "fail"]);
    let spare = if rng.bool() { 4 } else { 70 };
    let capacity = output.emits + rng.usize(..spare);
    let capacity = if when_full == "latest" { String::new() } else { format!(", capacity: {capacity}") };
    format!("{{ from: {}, when_full: {when_full}{capacity} }}", output.name)
}

/// Draws a graph. The same seed draws the same graph. With `patience` every join says how long it waits.
fn draw(seed: u64, patience: bool) -> Drawn {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    let mut yaml = String::from("version: 1\nnodes:\n");
    let (mut outputs, mut counts): (Vec<Output>, Vec<(String, u64)>) = Default::default();
    let place = |rng: &mut fastrand::Rng| match rng.u8(..4) {
        0 => ", core: 0",
        1 => ", core: 1",
        _ => "",
    };
    for i in 0..1 + rng.usize(..2) {
        let (name, count) = (format!("s{i}"), rng.u64(1..150));
        let period = if rng.bool() { format!(", period_ns: {}", rng.u64(1..20_000)) } else { String::new() };
        let fails = rng.u8(..8) == 0;
        let fail = if fails { format!(", fail_at: {}", rng.u64(..count)) } else { String::new() };
        let _ = writeln!(
            yaml,
            "  {name}: {{ kind: numbers, config: {{ count: {count}{period}{fail} }}, on_error: {}{} }}",
            on_error(rng),
            place(rng)
        );
        if !fails {
            counts.push((name.clone(), count));
        }
        outputs.push(Output { name, emits: 1 });
    }
    let middle = rng.usize(..9);
    for i in 0..middle {
        let name = format!("m{i}");
        let input = connection(rng, &outputs);
        let (mut emits, mut tail) = (1, format!("from: {input}"));
        let (kind, config) = match rng.u8(..9) {
            0..=2 => ("step", format!("{{ forward: {}, blocking: {} }}", rng.bool(), rng.u8(..8) == 0)),
            3 => ("add", "{ n: 1 }".to_string()),
            4 => {
                emits = 1 + rng.usize(..4);
                ("split", format!("{{ times: {emits} }}"))
            }
            5 | 6 => {
                let how = pick(rng, &["error", "panic", "too_many"]);
                let when = if rng.bool() { "at" } else { "every" };
                ("fault", format!("{{ {when}: {}, how: {how} }}", rng.u64(1..60)))
            }
            _ => {
                let other = connection(rng, &outputs);
                let n = rng.usize(1..9);
                let patience =
                    if rng.bool() || patience { format!(", join: {{ patience: {n} }}") } else { String::new() };
                tail = format!("inputs: {{ a: {input}, b: {other} }}{patience}");
                ("pair", "{}".to_string())
            }
        };
        let _ = writeln!(
            yaml,
            "  {name}: {{ kind: {kind}, config: {config}, {tail}, on_error: {}{} }}",
            on_error(rng),
            place(rng)
        );
        outputs.push(Output { name, emits });
    }
    for i in 0..1 + rng.usize(..3) {
        let input = connection(rng, &outputs);
        let kind = match rng.u8(..6) {
            0 => {
                let other = connection(rng, &outputs);
                let patience = if patience { ", join: { patience: 4 }" } else { "" };
                format!("kind: collect, inputs: {{ x: {input}, y: {other} }}{patience}")
            }
            _ => format!("kind: collect, from: {input}"),
        };
        let _ = writeln!(yaml, "  z{i}: {{ {kind}, on_error: {}{} }}", on_error(rng), place(rng));
    }
    // A source that fails because an edge is full begins fewer.
    counts.retain(|(name, _)| !yaml.contains(&format!("from: {name}, when_full: fail")));
    Drawn { yaml, counts }
}

/// Draws a graph that can be planned: one whose joins may wait for ever is refused, and is given patience.
fn planned(seed: u64) -> (Drawn, Plan) {
    let plan = |drawn: &Drawn| Spec::from_text(&drawn.yaml, "drawn.yaml").and_then(|spec| Plan::new(spec, &registry()));
    let mut drawn = draw(seed, false);
    let mut found = plan(&drawn);
    if found.as_ref().is_err_and(|problems| problems.0.iter().all(|problem| problem.code == "E0134")) {
        drawn = draw(seed, true);
        found = plan(&drawn);
    }
    let found = found.unwrap_or_else(|problems| panic!("seed {seed}: {problems}\n{}", drawn.yaml));
    (drawn, found)
}

/// Draws a graph and turns it by hand, in an order drawn from the same seed.
///
/// # Errors
/// Where it did not end.
///
/// # Panics
/// When the graph is refused: what is drawn is meant to be right.
pub fn simulate(seed: u64) -> Result<(Drawn, Report), (Drawn, Box<Stuck>)> {
    let (drawn, plan) = planned(seed);
    let simulation = plan.wire().and_then(|wired| wired.simulate(seed)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    match simulation.run(1_000_000) {
        Ok(report) => Ok((drawn, report)),
        Err(stuck) => Err((drawn, stuck)),
    }
}

/// What is wrong with a run of a drawn graph; empty if nothing is.
pub fn wrong(drawn: &Drawn, report: &Report) -> Vec<String> {
    let mut wrong: Vec<String> = report.bugs.clone();
    for edge in report.edges.iter().filter(|edge| edge.left > 0) {
        wrong.push(format!("{} messages left between {} and {}", edge.left, edge.from, edge.to));
    }
    for node in &report.nodes {
        if node.held > 0 {
            wrong.push(format!("{} holds {}", node.name, node.held));
        }
        if node.metrics.iter().any(|(name, value)| name == "disorder" && value > 0.0) {
            wrong.push(format!("{} saw messages out of order", node.name));
        }
    }
    // A failure that does not stop the run stops nobody else: every source gets to its end.
    if report.outcome == Outcome::Finished {
        for (name, count) in &drawn.counts {
            let taken = report.node(name).map_or(0, |node| node.taken);
            if taken != *count {
                wrong.push(format!("{name} began {taken} messages of {count}"));
            }
        }
    }
    wrong
}

/// Runs a seed and says what is wrong with it, with all that is needed to look into it.
pub fn check(seed: u64) -> Result<(), String> {
    match simulate(seed) {
        Ok((drawn, report)) => match wrong(&drawn, &report) {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(format!("seed {seed}: {}\n{}", wrong.join("; "), drawn.yaml)),
        },
        Err((drawn, stuck)) => Err(format!("seed {seed}: {stuck}\n{}{:#?}", drawn.yaml, stuck.report.edges)),
    }
}
