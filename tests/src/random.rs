//! Random graphs, with nodes, edges, policies and faults drawn from one seed, and the properties
//! that every run must have.

use crate::registry;
use limen::policy::WhenFull;
use limen::report::Outcome;
use limen::sim::Stuck;
use limen::{Plan, Report, Spec};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A random graph.
#[derive(Debug)]
pub struct Drawn {
    /// The graph file.
    pub yaml: String,
    /// The number of messages of each source, by its node's name; without sources that fail.
    pub counts: Vec<(String, u64)>,
    /// Sinks downstream of a merge, whose messages may arrive in any order.
    pub unordered: Vec<String>,
}

struct Output {
    name: String,
    /// Messages per call.
    emits: usize,
    /// Indices of the sources upstream of this output.
    sources: BTreeSet<usize>,
    /// Whether messages are in the order of their source: behind a merge they need not be.
    in_order: bool,
}

/// The upstream of an input.
#[derive(Default)]
struct Upstream {
    sources: BTreeSet<usize>,
    out_of_order: bool,
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn on_error(rng: &mut fastrand::Rng) -> &'static str {
    let restart = "{ restart: { max: 2, backoff: 5us } }";
    pick(rng, &["stop", "skip", "skip", "detach", "detach", restart])
}

/// Watermarks, caps and lanes of an edge.
fn marks(rng: &mut fastrand::Rng, when_full: &str, capacity: usize, emits: usize) -> String {
    if when_full == "latest" || rng.u8(..4) > 0 {
        return String::new();
    }
    let mut marks = String::new();
    if rng.bool() {
        let _ = write!(marks, ", soft_capacity: {}", 1 + rng.usize(..capacity));
        if when_full == "drop_oldest" && rng.bool() {
            marks += ", soft_evict: true";
        }
    }
    if rng.bool() {
        let most = 1 + rng.u64(..200);
        let _ = write!(marks, ", max_bytes: {most}B");
        if rng.bool() {
            let _ = write!(marks, ", soft_bytes: {}B", rng.u64(1..=most));
        }
    }
    if rng.bool() {
        let _ = write!(marks, ", urgent_capacity: {}", emits + rng.usize(..8));
    }
    marks
}

/// Injected faults, in some nodes.
fn fault(rng: &mut fastrand::Rng, takes: bool, emits: Option<&mut usize>) -> String {
    if rng.u8(..5) > 0 {
        return String::new();
    }
    let n = rng.u64(1..40);
    let text = match (rng.u8(..6), emits) {
        (0, _) => format!("panic_at: {n}"),
        (1, _) => format!("error_every: {n}"),
        (2, _) => format!("delay: {n}us, delay_to: {}us", n + 20),
        (3, Some(emits)) => {
            *emits *= 2;
            "duplicate: 0.2".to_string()
        }
        (_, _) if takes => "drop: 0.2".to_string(),
        _ => format!("error_at: {n}"),
    };
    format!(", fault: {{ {text}, seed: {n} }}")
}

/// A `patience` for which the inputs have room.
fn patience(drawn: u8, inputs: &[&str]) -> u8 {
    let rooms = inputs.iter().filter_map(|input| input.split_once("block, capacity: "));
    let room = rooms.filter_map(|(_, after)| after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    room.min().map_or(drawn, |room: u8| room.min(drawn))
}

/// The `join:` of a node.
fn join(rng: &mut fastrand::Rng, policy: &str, has_patience: bool, inputs: &[&str]) -> String {
    let mut join = format!("policy: {policy}");
    if has_patience || rng.bool() {
        let _ = write!(join, ", patience: {}", patience(rng.u8(1..9), inputs));
    }
    match policy {
        "by_time" => {
            let _ = write!(join, ", within: {}us", rng.u8(1..30));
            if rng.bool() {
                let _ = write!(join, ", wait: {}us", rng.u8(1..30));
            }
            join += pick(rng, &["", "", ", pick: oldest", ", pick: newest", ", anchor: a", ", anchor: b"]);
        }
        "sample" if rng.bool() => join += ", trigger: a",
        _ => {}
    }
    format!(", join: {{ {join} }}")
}

/// A connection to one of the outputs drawn so far.
fn connection(rng: &mut fastrand::Rng, outputs: &[Output], upstream: &mut Upstream) -> String {
    let output = &outputs[rng.usize(..outputs.len())];
    // The first, `block`, three times as often as another.
    let when_full = WhenFull::ALL[rng.usize(..WhenFull::ALL.len() + 2).saturating_sub(2)].name();
    let spare = if rng.bool() { 4 } else { 70 };
    let room = output.emits + rng.usize(..spare);
    let capacity = if when_full == "latest" { String::new() } else { format!(", capacity: {room}") };
    let marks = marks(rng, when_full, room, output.emits);
    upstream.sources.extend(&output.sources);
    upstream.out_of_order |= !output.in_order;
    let age = if rng.u8(..12) == 0 { format!(", max_age: {}us", rng.u64(1..200)) } else { String::new() };
    let signs = match rng.u8(..12) {
        0 => {
            format!(", expect_every: {}us, on_gap: {}", rng.u64(1..50), pick(rng, &["count", "reset", "reset", "stop"]))
        }
        _ => String::new(),
    };
    format!("{{ from: {}, when_full: {when_full}{capacity}{marks}{age}{signs} }}", output.name)
}

/// Draws a graph. The same seed draws the same graph. With `has_patience` every join has a
/// `patience`.
pub fn draw(seed: u64, has_patience: bool) -> Drawn {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    // A second generator, so that the seeds of earlier failures still draw the same graphs.
    let mut apart = fastrand::Rng::with_seed(!seed);
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
        let waits = if apart.u8(..4) == 0 { ", descriptor: true" } else { "" };
        let mut emits = 1;
        let injected = fault(rng, false, Some(&mut emits));
        let qos = pick(rng, &["", "", ", qos: urgent", ", qos: background", ", clock: { offset: -1us }"]);
        let _ = writeln!(
            yaml,
            "  {name}: {{ kind: numbers, config: {{ count: {count}{period}{fail}{waits} }}, on_error: {}{}{injected}{qos} }}",
            on_error(rng),
            place(rng)
        );
        if !fails && injected.is_empty() {
            counts.push((name.clone(), count));
        }
        outputs.push(Output { name, emits, sources: BTreeSet::from([i]), in_order: true });
    }
    let middle = rng.usize(..9);
    for i in 0..middle {
        let name = format!("m{i}");
        let mut upstream = Upstream::default();
        let input = connection(rng, &outputs, &mut upstream);
        let (mut emits, mut tail) = (1, format!("from: {input}"));
        let mut ports = [""].as_slice();
        let (kind, config) = match rng.u8(..10) {
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
            7 => {
                let other = connection(rng, &outputs, &mut upstream);
                let policy = pick(rng, &["in_turn", "oldest_first", "priority"]);
                tail = format!(
                    "inputs: {{ a: {input}, b: {other} }}{}",
                    join(rng, policy, has_patience, &[&input, &other])
                );
                ("merge", "{}".to_string())
            }
            n => {
                let other = connection(rng, &outputs, &mut upstream);
                let policy = pick(rng, &["zip", "zip", "by_time", "sample"]);
                tail = format!(
                    "inputs: {{ a: {input}, b: {other} }}{}",
                    join(rng, policy, has_patience, &[&input, &other])
                );
                // `synchronize` has an output for each input.
                ports = if n == 8 { ports } else { &["/a", "/b"] };
                (if n == 8 { "pair" } else { "synchronize" }, "{}".to_string())
            }
        };
        let injected = fault(rng, true, Some(&mut emits));
        let _ = writeln!(
            yaml,
            "  {name}: {{ kind: {kind}, config: {config}, {tail}, on_error: {}{}{injected} }}",
            on_error(rng),
            place(rng)
        );
        let in_order = kind != "merge" && !upstream.out_of_order;
        for port in ports {
            outputs.push(Output { name: format!("{name}{port}"), emits, sources: upstream.sources.clone(), in_order });
        }
    }
    let (mut paths, mut unordered) = (Vec::new(), Vec::new());
    for i in 0..1 + rng.usize(..3) {
        let mut upstream = Upstream::default();
        let input = connection(rng, &outputs, &mut upstream);
        let kind = match rng.u8(..6) {
            0 => {
                let other = connection(rng, &outputs, &mut upstream);
                let patience = patience(4, &[&input, &other]);
                let patience = if has_patience { format!(", join: {{ patience: {patience} }}") } else { String::new() };
                format!("kind: collect, inputs: {{ x: {input}, y: {other} }}{patience}")
            }
            _ => format!("kind: collect, from: {input}"),
        };
        let injected = fault(rng, true, None);
        let _ = writeln!(yaml, "  z{i}: {{ {kind}, on_error: {}{}{injected} }}", on_error(rng), place(rng));
        if upstream.out_of_order {
            unordered.push(format!("z{i}"));
        }
        for source in upstream.sources {
            if rng.u8(..4) > 0 {
                continue;
            }
            let on_miss = pick(rng, &["count", "drop", "drop", "skip_to_latest", "stop"]);
            // Longer than any join holds a message: a shorter deadline is refused.
            let deadline = rng.u64(30..300);
            paths.push(format!("{{ from: s{source}, to: z{i}, deadline: {deadline}us, on_miss: {on_miss} }}"));
        }
    }
    if !paths.is_empty() {
        let _ = writeln!(yaml, "paths: [{}]", paths.join(", "));
    }
    if rng.bool() {
        let mut schedule = || pick(rng, &["round_robin", "deadline", "throughput"]);
        let _ = writeln!(yaml, "cores: {{ 0: {{ schedule: {} }}, 1: {{ schedule: {} }} }}", schedule(), schedule());
    }
    // A source that fails because an edge is full sends fewer messages.
    counts.retain(|(name, _)| !yaml.contains(&format!("from: {name}, when_full: fail")));
    Drawn { yaml, counts, unordered }
}

/// Draws a graph that can be planned. If it is refused because a join could wait for ever, draws it
/// again with patience.
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

/// Draws a graph and simulates it, with an order of turns drawn from the same seed.
///
/// # Errors
/// When the run did not end.
///
/// # Panics
/// When the graph is refused: drawn graphs are valid.
pub fn simulate(seed: u64) -> Result<(Drawn, Report), (Drawn, Box<Stuck>)> {
    let (drawn, plan) = planned(seed);
    let simulation = plan.wire().and_then(|wired| wired.simulate(seed)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    // In a random order, or in the order of the workers' schedule.
    let is_scheduled = drawn.yaml.contains("schedule") && seed.is_multiple_of(2);
    let run = if is_scheduled { limen::sim::Simulation::run_as_scheduled } else { limen::sim::Simulation::run };
    match run(simulation, 1_000_000) {
        Ok(report) => Ok((drawn, report)),
        Err(stuck) => Err((drawn, stuck)),
    }
}

/// Returns the violations in the report of a drawn graph; empty for a correct run.
pub fn wrong(drawn: &Drawn, report: &Report) -> Vec<String> {
    let mut wrong: Vec<String> = report.bugs.clone();
    for edge in report.edges.iter().filter(|edge| edge.left > 0) {
        wrong.push(format!("{} messages left between {} and {}", edge.left, edge.from, edge.to));
    }
    for node in &report.nodes {
        if node.held > 0 {
            wrong.push(format!("{} holds {}", node.name, node.held));
        }
        let disorder = node.metrics.iter().any(|(name, value)| name == "disorder" && value > 0.0);
        if disorder && !drawn.unordered.contains(&node.name) {
            wrong.push(format!("{} saw messages out of order", node.name));
        }
    }
    for path in &report.deadlines {
        let taken = report.node(&path.to).map_or(0, |sink| sink.taken);
        // A message is judged once for each source behind it, and only if it reached the sink.
        if path.missed > path.judged || path.judged > taken {
            wrong.push(format!("{} -> {}: {} missed of {} judged", path.from, path.to, path.missed, path.judged));
        }
        let samples = report.paths().find(|(from, to, _)| (*from, *to) == (&path.from, &path.to));
        if path.untracked_behind.is_some() && (path.judged > 0 || samples.is_some()) {
            wrong.push(format!("{} -> {} is judged without origins of its source", path.from, path.to));
        }
    }
    // A failure that does not stop the run stops no other node: every source reaches its end.
    if report.outcome == Outcome::Finished {
        for (name, count) in &drawn.counts {
            let taken = report.node(name).map_or(0, |node| node.taken);
            if taken != *count {
                wrong.push(format!("{name} sent {taken} of {count} messages"));
            }
        }
    }
    wrong
}

/// Runs a seed; the error describes the violations and contains the graph.
pub fn check(seed: u64) -> Result<(), String> {
    match simulate(seed) {
        Ok((drawn, report)) => match wrong(&drawn, &report) {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(format!("seed {seed}: {}\n{}", wrong.join("; "), drawn.yaml)),
        },
        Err((drawn, stuck)) => Err(format!("seed {seed}: {stuck}\n{}{:#?}", drawn.yaml, stuck.report.edges)),
    }
}
