//! Messages that miss their deadline behind a model that batches by deadline, in real time: `cargo
//! bench -p limen-benches --bench deadline [-- long]`. A call takes a quarter of the deadline.

use limen::policy::OnMiss;
use limen::{Drain, Options, Plan, Registry, Report, Spec};
use limen_benches::host;
use std::time::{Duration, Instant};

const DEADLINE_MS: u64 = 8;
const CALL_MS: u64 = 2;

fn run(rate: u64, core: usize, on_miss: OnMiss, seconds: f64) -> Report {
    let registry = Registry::new().with(limen_nodes_core::register).with(limen_infer::register);
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: synthetic, core: 0, config: {{ pattern: counter, rate: {rate}Hz }} }}\n  \
         m: {{ kind: infer, core: {core}, config: {{ backend: mock, batch: {{ max: 64, within: 1s }}, \
         mock: {{ inputs: {{ x: u64 }}, outputs: {{ y: u64 }}, latency: {CALL_MS}ms }} }}, from: a }}\n  \
         z: {{ kind: \"null\", core: 0, from: m }}\n\
         paths: [{{ from: a, to: z, deadline: {DEADLINE_MS}ms, on_miss: {} }}]\n",
        on_miss.name()
    );
    let spec = Spec::from_text(&text, "deadline.yaml").unwrap_or_else(|e| panic!("{e}"));
    let plan = Plan::with_options(spec, &registry, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut running = plan.wire().expect("wires").start().expect("starts");
    running.wait_for(Duration::from_secs_f64(seconds));
    let report = running.stop(Drain::within(Duration::from_secs(10)));
    assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
    report
}

/// How late the host wakes a thread that sleeps for the length of a call: median, 99th and 99.9th
/// percentile and maximum of 2,000 samples, in milliseconds. Misses beyond this are due to the
/// engine.
fn lateness() -> [f64; 4] {
    let asked = Duration::from_millis(CALL_MS);
    let mut late: Vec<Duration> = (0..2000)
        .map(|_| {
            let began = Instant::now();
            std::thread::sleep(asked);
            began.elapsed() - asked
        })
        .collect();
    late.sort();
    [1000, 1980, 1998, 1999].map(|at| late[at].as_secs_f64() * 1e3)
}

fn main() {
    let seconds = if std::env::args().any(|word| word == "long") { 60.0 } else { 10.0 };
    println!(
        "{}; {seconds} s a row, a call of {CALL_MS} ms, a deadline of {DEADLINE_MS} ms\n\
         the host wakes a sleep of {CALL_MS} ms late by {:.2?} ms (p50, p99, p99.9, max)\n\n\
         {:>8} {:>6} {:>6} {:>9} {:>7} {:>7} {:>8} {:>6} {:>8} {:>8}",
        host(),
        lateness(),
        "rate",
        "cores",
        "miss",
        "messages",
        "missed",
        "lost",
        "%",
        "batch",
        "p50 ms",
        "p99 ms"
    );
    for rate in [100, 200, 1000] {
        for core in [0, 1] {
            for on_miss in [OnMiss::Count, OnMiss::Drop] {
                let report = run(rate, core, on_miss, seconds);
                let (missed, lost) = (report.deadlines[0].missed, report.lost_total());
                let messages = report.node("a").map_or(0, |node| node.done);
                let path = report.paths().next().map(|(.., recorded)| recorded);
                let at = |q: f64| path.map_or(f64::NAN, |path| path.histogram.quantile(q).unwrap_or(0) as f64 / 1e6);
                println!(
                    "{rate:>5} Hz {:>6} {:>6} {messages:>9} {missed:>7} {lost:>7} {:>8.2} {:>6.1} {:>8.2} {:>8.2}",
                    core + 1,
                    on_miss.name(),
                    100.0 * (missed + lost) as f64 / messages as f64,
                    report.metric("mean_batch").unwrap_or(f64::NAN),
                    at(0.5),
                    at(0.99)
                );
            }
        }
    }
}
