//! Checks that a slow consumer does not slow its neighbours: `limen-neighbours [SECONDS]`, 10
//! seconds per run by default.
//!
//! A source of 1 kHz feeds sixteen consumers that take 20 µs a message. Fifteen share its core; the
//! sixteenth has its own core and a `latest` edge. In every second run the sixteenth takes a
//! hundred times as long. The p99 of the fifteen may differ by at most a tenth between the two
//! cases, over all runs of each. The runs are interleaved, so that other load on the machine
//! affects both.

use limen::node::{Building, Connected, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::report::{Counts, Term};
use limen::{Clock, Drain, Message, Plan, Registry, Report, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write as _;
use std::time::Duration;

/// Runs of each kind.
const RUNS: usize = 7;

/// Keeps its core busy for a while with every message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct BusyConfig {
    /// Busy time per message, in µs.
    micros: u64,
}

#[derive(Debug)]
struct Busy {
    clock: Clock,
    ns: u64,
}

impl Node for Busy {
    type Config = BusyConfig;
    fn ports(_: &BusyConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(config: BusyConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Busy { clock: cx.clock(), ns: config.micros * 1_000 })
    }
}

impl Sink for Busy {
    type In = Tensor;
    fn take(&mut self, _: Message<Tensor>) -> Result<(), NodeError> {
        let begin = self.clock.now();
        while self.clock.now().since(begin) < self.ns {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// One run in which the sixteenth consumer takes `micros` per message.
fn run(micros: u64, seconds: u64) -> Report {
    let mut text = String::from(
        "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, shape: [8], rate: 1kHz }, core: 0 }\n",
    );
    for n in 0..15 {
        let _ = writeln!(text, "  n{n}: {{ kind: busy, config: {{ micros: 20 }}, core: 0, from: a }}");
    }
    let _ = writeln!(
        text,
        "  last: {{ kind: busy, config: {{ micros: {micros} }}, core: 1, from: {{ from: a, when_full: latest }} }}\n\
         run: {{ strict: true }}"
    );
    let registry = Registry::new().with(limen_nodes_core::register).sink::<Busy>("busy");
    let plan = Spec::from_text(&text, "neighbours.yaml").and_then(|spec| Plan::new(spec, &registry));
    let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
    let mut running = plan.wire().and_then(limen::Wired::start).unwrap_or_else(|error| panic!("{error}"));
    assert!(!running.wait_for(Duration::from_secs(seconds)), "the graph ended by itself");
    let report = running.stop(Drain::within(Duration::from_secs(5)));
    assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
    report
}

/// Adds the latencies of the fifteen, from the origin of a message to the end of the call.
fn add(report: &Report, to: &mut Counts) {
    let paths = report.histograms.iter().filter(|h| h.term == Term::EndToEnd);
    for path in paths.filter(|path| path.to.as_deref().is_some_and(|to| to.starts_with('n'))) {
        to.add(&path.recorded.histogram);
    }
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(10, |text| text.parse().expect("a number of seconds"));
    println!("{}, {RUNS} runs of {seconds} s of each kind, interleaved", limen_benches::host());
    let mut all = [Counts::new(3), Counts::new(3)];
    let mut received = [[0, 0]; 2];
    for _ in 0..RUNS {
        for (kind, micros) in [20, 2_000].into_iter().enumerate() {
            let report = run(micros, seconds);
            add(&report, &mut all[kind]);
            let edge = report.edges.iter().find(|edge| edge.to == "last/in").expect("it is there");
            received[kind][0] += edge.sent;
            received[kind][1] += edge.received;
        }
    }
    for (kind, name) in ["the sixteenth as fast", "a hundred times slower"].iter().enumerate() {
        let q = |q: f64| all[kind].quantile(q).unwrap_or(0) as f64 / 1e3;
        println!(
            "{name}: it took {} of {}; the others' {} samples p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs, max {:.1} µs",
            received[kind][1],
            received[kind][0],
            all[kind].len(),
            q(0.5),
            q(0.99),
            q(0.999),
            q(1.0)
        );
    }
    let [usual, slow] = all.map(|counts| counts.quantile(0.99).unwrap_or(0) as f64);
    let ratio = slow / usual;
    println!("p99 {ratio:.3} times");
    std::process::exit(i32::from(!(0.9..=1.1).contains(&ratio)));
}
