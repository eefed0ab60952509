//! Runs a load for a long time and checks for losses, memory growth and latency growth:
//! `limen-soak [MINUTES]`, an hour by default.
//!
//! 10,000 messages a second of 64 bytes through two nodes, and 30 frames a second of 1920×1080
//! through a resize and a mock model. Nothing may be lost; resident memory may not grow by more
//! than 1 MiB an hour, fitted by least squares after the first twelfth of the time; the p99 of the
//! last sixth may not exceed 1.25 times that of the second and third twelfth. For each twelfth it
//! prints the CPU time of other processes and of the host, which may explain a growth.

use hdrhistogram::Histogram;
use limen::node::{Building, Connected, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Clock, Message, Plan, Registry, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Takes any tensor, and records its latency for each twelfth of the run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct TwelfthsConfig {
    /// The length of the run, in seconds.
    seconds: u64,
}

#[derive(Debug)]
struct Twelfths {
    clock: Clock,
    begin: u64,
    twelfth: u64,
    latencies: Vec<Histogram<u64>>,
}

impl Node for Twelfths {
    type Config = TwelfthsConfig;
    fn ports(_: &TwelfthsConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(config: TwelfthsConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let histogram = || {
            let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("constant bounds");
            // Touches its pages now, so that they do not count as growth.
            histogram.saturating_record_n(1, 1);
            histogram.reset();
            histogram
        };
        Ok(Twelfths {
            clock: cx.clock(),
            begin: cx.now().0,
            twelfth: config.seconds * 1_000_000_000 / 12,
            latencies: (0..12).map(|_| histogram()).collect(),
        })
    }
    fn metrics(&self, to: &mut Metrics) {
        let p99 = |twelfths: &[Histogram<u64>]| {
            let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 2).expect("constant bounds");
            twelfths.iter().for_each(|part| all.add(part).expect("the same bounds"));
            all.value_at_quantile(0.99) as f64
        };
        for (n, part) in self.latencies.iter().enumerate() {
            to.set(format!("p99_{n:02}"), part.value_at_quantile(0.99) as f64);
        }
        to.set("early_p99", p99(&self.latencies[1..3]));
        to.set("late_p99", p99(&self.latencies[10..]));
    }
}

impl Sink for Twelfths {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let now = self.clock.now();
        let at = (now.0 - self.begin) / self.twelfth.max(1);
        self.latencies[at.min(11) as usize].saturating_record(now.since(input.header().origin));
        Ok(())
    }
}

/// Resident memory of this process, KiB.
fn resident_kib() -> f64 {
    let statm = limen::files::system_text("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4.0
}

/// CPU seconds of other processes, and seconds stolen by the host, since boot.
fn taken() -> [f64; 2] {
    let stat = limen::files::system_text("/proc/stat").unwrap_or_default();
    let stolen = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(8)?.parse::<f64>().ok());
    // Summed over processes and the children they have waited for: the machine's total misses times
    // shorter than a tick.
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = processes.filter(|entry| *entry.file_name() != *own).filter_map(|entry| {
        let stat = limen::files::system_text(entry.path().join("stat")).ok()?;
        let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        Some(fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>())
    });
    [others.sum::<f64>() / 100.0, stolen.unwrap_or(0.0) / 100.0]
}

/// The slope per hour, by least squares, of samples a second apart.
fn slope_per_hour(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, samples.iter().sum::<f64>() / n);
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in samples.iter().enumerate() {
        let x = x as f64 - mean_x;
        above += x * (y - mean_y);
        below += x * x;
    }
    above / below * 3600.0
}

fn main() {
    let minutes: u64 = std::env::args().nth(1).map_or(60, |text| text.parse().expect("a number of minutes"));
    let seconds = minutes * 60;
    let graph = format!(
        "version: 1\ngraph: soak\nnodes:\n  samples: {{ kind: synthetic, config: {{ pattern: counter, shape: [8], rate: 10kHz }} }}\n  \
         first: {{ kind: pass, from: samples }}\n  second: {{ kind: pass, from: first }}\n  \
         end: {{ kind: twelfths, config: {{ seconds: {seconds} }}, from: second }}\n  \
         camera: {{ kind: synthetic, config: {{ pattern: ramp, width: 1920, height: 1080, rate: 30Hz }} }}\n  \
         small: {{ kind: resize, config: {{ width: 320, height: 180 }}, from: {{ from: camera/image, capacity: 4 }} }}\n  \
         model:\n    kind: infer\n    config:\n      backend: mock\n      \
         mock: {{ latency: 2ms, inputs: {{ image: \"u8[180,320,3]\" }}, outputs: {{ score: \"f32[10]\" }} }}\n    \
         from: {{ from: small, capacity: 4 }}\n  \
         seen: {{ kind: twelfths, config: {{ seconds: {seconds} }}, from: model }}\n"
    );
    let registry = Registry::new()
        .with(limen_nodes_core::register)
        .with(limen_vision::register)
        .with(limen_infer::register)
        .sink::<Twelfths>("twelfths");
    let plan = Spec::from_text(&graph, "soak.yaml").and_then(|spec| Plan::new(spec, &registry));
    let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
    let mut running = plan.wire().and_then(limen::Wired::start).unwrap_or_else(|error| panic!("{error}"));
    let begin = Instant::now();
    let mut resident = Vec::with_capacity(seconds as usize + 60);
    let mut others = vec![taken()];
    while begin.elapsed() < Duration::from_secs(seconds) {
        assert!(!running.wait_for(Duration::from_secs(1)), "the graph ended by itself");
        resident.push(resident_kib());
        if begin.elapsed().as_secs() >= others.len() as u64 * seconds / 12 {
            others.push(taken());
        }
    }
    let report = running.stop(limen::Drain::within(Duration::from_secs(5)));
    let settled = &resident[resident.len() / 12..];
    let (slope, lost) = (slope_per_hour(settled), report.metric("lost").unwrap_or(f64::NAN));
    let mut good = report.exit_code() == 0 && lost == 0.0 && slope <= 1024.0;
    println!("{}, {} minutes, {}", limen_benches::host(), minutes, report.outcome.name());
    let done = |node: &str| report.node(node).map_or(0, |node| node.done);
    println!("messages {}, frames {}, lost {lost}", done("end"), done("seen"));
    println!("resident {:.1} MiB, growing by {:.3} MiB an hour", settled[0] / 1024.0, slope / 1024.0);
    for sink in ["end", "seen"] {
        let of = |name: &str| report.metric(&format!("{sink}.{name}")).unwrap_or(f64::NAN);
        let (early, late) = (of("early_p99"), of("late_p99"));
        good &= late <= 1.25 * early;
        println!("{sink}: p99 {:.1} µs early, {:.1} µs late, {:.2} times", early / 1e3, late / 1e3, late / early);
    }
    println!("twelfth  end p99, µs  seen p99, µs  others, % of a core  host, % of a core");
    for (n, pair) in others.windows(2).take(12).enumerate() {
        let p99 = |sink: &str| report.metric(&format!("{sink}.p99_{n:02}")).unwrap_or(f64::NAN) / 1e3;
        let [theirs, hosts] = [0, 1].map(|i| (pair[1][i] - pair[0][i]) * 1200.0 / seconds as f64);
        println!("{:>7}  {:>11.1}  {:>12.1}  {theirs:>19.2}  {hosts:>17.2}", n + 1, p99("end"), p99("seen"));
    }
    report.bugs.iter().for_each(|bug| println!("{bug}"));
    println!("{}", if good { "nothing crept" } else { "something crept" });
    std::process::exit(i32::from(!good));
}
