//! Measures how costs grow with nodes, fan-out, payload and rate, and the cost of planning and
//! starting. Prints one JSON object per line; `benches/growth.py` draws them.
//! `limen-growth [SECONDS]`, one second per point by default.

use limen::{Drain, Options, Plan, Registry, Spec};
use limen_benches::{Chain, host, median, peak_kib};
use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// Repetitions of each point; the median and the spread are printed.
const REPETITIONS: usize = 5;

fn registry() -> Registry {
    Registry::new().with(limen_nodes_core::register).with(limen_benches::register)
}

fn point(curve: &str, x: f64, ns: Vec<f64>) {
    let (median, spread) = median(ns);
    println!("{{\"curve\":\"{curve}\",\"x\":{x},\"ns\":{median:.2},\"spread\":{spread:.3}}}");
}

/// Nanoseconds per message of a saturated chain.
fn chain(curve: &str, x: f64, chain: &Chain) {
    point(curve, x, (0..REPETITIONS).map(|_| 1e9 / chain.run().rate).collect());
}

/// Nanoseconds per message that a source sends to a number of sinks.
fn fan_out(sinks: usize, cores: usize, seconds: f64) {
    let mut text = String::from("version: 1\nnodes:\n  a: { kind: handle_source, config: { bytes: 64 }, core: 0 }\n");
    for n in 0..sinks {
        let _ =
            writeln!(text, "  z{n}: {{ kind: handle_sink, config: {{ bytes: 64 }}, from: a, core: {} }}", cores - 1);
    }
    text += "run: { strict: true }\n";
    let once = || {
        let spec = Spec::from_text(&text, "fan-out.yaml").unwrap_or_else(|e| panic!("{e}"));
        let plan = Plan::new(spec, &registry()).unwrap_or_else(|e| panic!("{e}"));
        let mut running = plan.wire().expect("wires").start().expect("starts");
        let begin = Instant::now();
        running.wait_for(Duration::from_secs_f64(seconds));
        let sent = running.stats()[0].done;
        let ns = begin.elapsed().as_nanos() as f64 / sent as f64;
        let report = running.stop(Drain::within(Duration::from_secs(10)));
        assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
        ns
    };
    let curve = if cores == 1 { "fan-out, one core" } else { "fan-out, across cores" };
    point(curve, sinks as f64, (0..REPETITIONS).map(|_| once()).collect());
}

/// Time and memory of planning a chain, and the time from reading its text to the first message at
/// its sink.
fn planning(nodes: usize) {
    let mut text = String::from("version: 1\nnodes:\n  n0: { kind: handle_source, config: { bytes: 64 }, core: 0 }\n");
    for n in 1..nodes - 1 {
        let _ = writeln!(text, "  n{n}: {{ kind: handle_pass, config: {{ bytes: 64 }}, from: n{}, core: 0 }}", n - 1);
    }
    let _ = writeln!(text, "  end: {{ kind: handle_sink, config: {{ bytes: 64 }}, from: n{}, core: 0 }}", nodes - 2);
    // Runs in a separate process, because its peak memory would hide smaller ones after it.
    let before = peak_kib();
    let begin = Instant::now();
    let spec = Spec::from_text(&text, "long.yaml").unwrap_or_else(|e| panic!("{e}"));
    let plan = Plan::with_options(spec, &registry(), &Options { frames: Some(1), ..Options::default() });
    let plan = plan.unwrap_or_else(|e| panic!("{e}"));
    let planned = begin.elapsed();
    let kib = peak_kib() - before;
    let report = plan.wire().expect("wires").start().expect("starts").wait();
    let first = begin.elapsed();
    assert!(report.metric("count") == Some(1.0), "{report:#?}");
    println!(
        "{{\"curve\":\"planning\",\"x\":{nodes},\"planned_ms\":{:.3},\"first_message_ms\":{:.3},\"kib\":{kib}}}",
        planned.as_secs_f64() * 1e3,
        first.as_secs_f64() * 1e3
    );
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [program, verb, nodes] = &words[..]
        && verb == "planning"
    {
        return planning(nodes.parse().unwrap_or_else(|_| panic!("{program} planning NODES")));
    }
    let seconds = words.get(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    println!("{{\"host\":\"{}\",\"seconds\":{seconds},\"repetitions\":{REPETITIONS}}}", host());
    for nodes in ["10", "100", "1000", "10000"] {
        let status = Command::new(&words[0]).args(["planning", nodes]).status().expect("this program starts");
        assert!(status.success(), "planning {nodes} nodes failed");
    }
    let base = Chain { seconds, bytes: Some(64), ..Chain::DEFAULT };
    for k in [1, 2, 5, 10, 20, 50, 100, 200] {
        chain("nodes, by handle", k as f64, &Chain { k, ..base.clone() });
        chain("nodes, by value", k as f64, &Chain { k, bytes: None, ..base.clone() });
        chain("nodes, two cores", k as f64, &Chain { k, cores: 2, ..base.clone() });
    }
    for sinks in [1, 2, 4, 8, 16, 32, 64] {
        fan_out(sinks, 1, seconds);
        fan_out(sinks, 2, seconds);
    }
    for bytes in [64, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20] {
        chain("payload, by handle", bytes as f64, &Chain { k: 4, bytes: Some(bytes), ..base.clone() });
        chain("payload, two cores", bytes as f64, &Chain { k: 4, bytes: Some(bytes), cores: 2, ..base.clone() });
    }
    for rate in [100.0, 1e3, 1e4, 1e5, 1e6] {
        let paced = Chain { k: 4, rate, seconds: seconds.max(2_000.0 / rate), ..base.clone() };
        let runs: Vec<[f64; 4]> = (0..REPETITIONS).filter_map(|_| paced.run().latency).collect();
        for (at, name) in ["p50", "p99"].iter().enumerate() {
            point(&format!("rate, {name}"), rate, runs.iter().map(|run| run[at]).collect());
        }
    }
}
