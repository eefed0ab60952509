//! Fixed workloads for counting instructions: `limen-work NAME MESSAGES`; `limen-work list` prints
//! the names.
//!
//! Each graph is simulated on one thread, with a clock that advances only when all nodes are idle,
//! so the same program executes the same instructions every time. `.ci/lanes/machine/instructions`
//! counts and compares them.
//!
//! `limen-work cold K` sends single messages through a chain of K nodes, one a turn with everything
//! recorded, and prints the address of a function that it calls before each:
//! `.ci/lanes/machine/cold` counts the cache lines from one call to the next.
//! `limen-work cold stock` does so with stock kinds, whose inputs and outputs have names of their
//! own.

use limen::policy::Telemetry;
use limen::{Clock, Drain, Options, Plan, Registry, Spec};
use limen_benches::Chain;
use std::hint::black_box;
use std::time::Duration;

fn chain(k: usize, bytes: Option<usize>, capacity: Option<usize>) -> String {
    Chain { k, bytes, capacity, ..Chain::DEFAULT }.yaml()
}

/// Name and graph of each workload.
fn works() -> Vec<(&'static str, String)> {
    let counter = "kind: synthetic, config: { pattern: counter }";
    let branches = format!(
        "version: 1\nnodes:\n  a: {{ {counter} }}\n  p: {{ kind: pass, from: a }}\n  q: {{ kind: pass, from: a }}\n  \
         r: {{ kind: pass, from: a }}\n  z: {{ kind: \"null\", inputs: {{ p: p, q: q, r: r }} }}\n"
    );
    let batches = format!(
        "version: 1\nnodes:\n  a: {{ {counter} }}\n  \
         m: {{ kind: infer, config: {{ backend: mock, batch: {{ max: 8, within: 1ms }}, mock: {{ inputs: {{ in: u64 }}, \
         outputs: {{ out: u64 }} }} }}, from: a, core: 0 }}\n  z: {{ kind: \"null\", from: m, core: 0 }}\n"
    );
    vec![
        ("bursts", chain(8, Some(64), None)),
        ("values", chain(8, None, None)),
        ("singles", chain(8, Some(64), Some(1))),
        ("branches", branches),
        ("batches", batches),
    ]
}

fn registry() -> Registry {
    Registry::new().with(limen_nodes_core::register).with(limen_infer::register).with(limen_benches::register)
}

/// Messages before those that are counted, and those.
const WARM: usize = 200;
const COLD: usize = 21;

/// Stands between two messages in a trace of the program.
#[inline(never)]
fn between(message: usize) {
    black_box(message);
}

/// A chain of `k` nodes, or of stock kinds if `k` is `stock`.
fn cold(k: &str) {
    let text = match k {
        "stock" => "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  \
            p: { kind: pass, from: { from: a, capacity: 1 } }\n  \
            z: { kind: \"null\", from: { from: p, capacity: 1 } }\n"
            .into(),
        _ => chain(k.parse().expect("a number of nodes, or `stock`"), Some(64), Some(1)),
    };
    let spec = Spec::from_text(&text, "work.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options { telemetry: Some(Telemetry::Full), ..Options::default() };
    let plan = Plan::with_options(spec, &registry(), &options).unwrap_or_else(|problems| panic!("{problems}"));
    let mut graph = plan.wire().expect("wires").drive(Clock::Monotonic).expect("builds");
    println!("{:p}", between as fn(usize));
    for message in 0..WARM + COLD {
        if message >= WARM {
            between(message);
        }
        graph.turn();
    }
    between(0);
    let report = graph.stop(Drain::within(Duration::from_secs(60)));
    let received = report.edges.last().map_or(0, |edge| edge.received);
    assert!(report.bugs.is_empty() && received == (WARM + COLD) as u64, "{received} messages in {} turns", WARM + COLD);
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "list" {
        works().iter().for_each(|(name, _)| println!("{name}"));
        return;
    }
    if name == "cold" {
        return cold(&std::env::args().nth(2).unwrap_or_default());
    }
    let Some((_, text)) = works().into_iter().find(|(work, _)| *work == name) else {
        eprintln!("there is no workload `{name}`; `limen-work list` prints the names");
        std::process::exit(2);
    };
    let spec = Spec::from_text(&text, "work.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let messages = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let options = Options { frames: Some(messages), ..Options::default() };
    let plan = Plan::with_options(spec, &registry(), &options).unwrap_or_else(|problems| panic!("{problems}"));
    let simulation = plan.wire().expect("wires").simulate(1).expect("builds");
    let report = simulation.run_as_scheduled(u64::MAX / 2).unwrap_or_else(|stuck| panic!("{stuck}"));
    assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
    println!("{name}: {} messages", report.edges.last().map_or(0, |edge| edge.received));
}
