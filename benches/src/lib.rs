//! The chain that every engine in the comparison runs: a source, K pass-through nodes, a sink.
//!
//! The source stamps and numbers each message, the nodes pass it on untouched, the sink reads the
//! stamp. Graphs are written as YAML and planned, wired and started like a user's. A scheduler call
//! that the system refuses ends the benchmark (`strict`).

#![forbid(unsafe_code)]

use hdrhistogram::Histogram;
use limen::message::{DType, Plain, PortSpec, TensorMut};
use limen::node::{
    Building, Burst, Connected, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Room, Sink, Source,
    Transform,
};
use limen::policy::Telemetry;
use limen::{Drain, Message, Options, Plan, Registry, Report, Spec, Tensor, Time};
use nix::sys::resource::{UsageWho, getrusage};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub mod baseline;
mod by_hand;

pub use by_hand::ByHand;

/// A payload of 64 bytes that is passed by value.
#[derive(Clone, Copy, Debug)]
pub struct Block([u64; 8]);
impl Plain for Block {}

/// The config of all benchmark nodes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct BenchConfig {
    /// Messages per second; as fast as possible if absent.
    pub rate: Option<f64>,
    /// Bytes of a message that is passed by handle.
    #[serde(default)]
    pub bytes: usize,
}

impl BenchConfig {
    fn spec(&self) -> PortSpec {
        PortSpec::fixed(DType::U8, [self.bytes.max(16)])
    }
}

/// When the next message of a paced source is due.
#[derive(Debug)]
struct Pace {
    /// Whole nanoseconds from one message to the next, as the other engines' sources count; 0 for
    /// as fast as possible.
    period: u64,
    begin: Time,
}

impl Pace {
    fn new(config: &BenchConfig, cx: &Building<'_>) -> Self {
        Pace { period: config.rate.map_or(0, |rate| ((1e9 / rate) as u64).max(1)), begin: cx.now() }
    }

    fn due(&self, seq: u64) -> Time {
        self.begin + seq * self.period
    }
}

macro_rules! source {
    ($name:ident, $payload:ty, $ports:expr, |$out:ident, $header:ident| $send:block $(, $burst:item)?) => {
        /// Sends messages as fast as possible, or at a fixed rate.
        #[derive(Debug)]
        pub struct $name {
            pace: Pace,
            next: u64,
        }
        impl Node for $name {
            type Config = BenchConfig;
            fn ports(config: &BenchConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
                let ports: fn(&BenchConfig) -> Ports = $ports;
                Ok(ports(config))
            }
            fn build(config: BenchConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
                Ok($name { pace: Pace::new(&config, cx), next: 0 })
            }
        }
        impl Source for $name {
            type Out = $payload;
            #[inline(always)]
            fn next(&mut self, out: &mut Emit<$payload>) -> Result<Next, NodeError> {
                if self.pace.period > 0 {
                    return self.next_in_time(out);
                }
                $name::send(out, out.now())?;
                Ok(Next::More)
            }
            $(#[inline] $burst)?
        }
        impl $name {
            #[inline(always)]
            fn send($out: &mut Emit<$payload>, origin: Time) -> Result<(), NodeError> {
                let $header = $out.header(origin);
                $send
            }

            /// At a fixed rate.
            #[inline(never)]
            fn next_in_time(&mut self, out: &mut Emit<$payload>) -> Result<Next, NodeError> {
                let due = self.pace.due(self.next);
                if due > out.now() {
                    return Ok(Next::At(due));
                }
                self.next += 1;
                // Stamped just before sending, as in the other engines.
                $name::send(out, out.clock())?;
                Ok(Next::At(self.pace.due(self.next)))
            }
        }
    };
}

source!(ValueSource, Block, |_| Ports::new().output_plain("out"), |out, header| {
    out.send(Message::new(header, Block([header.origin.0, header.seq, 0, 0, 0, 0, 0, 0])));
    Ok(())
});

/// Writes the stamp and the number of a message.
#[inline(always)]
fn write(tensor: &mut TensorMut, origin: Time, seq: u64) -> Result<(), NodeError> {
    let Some(words) = tensor.bytes_mut().first_chunk_mut::<16>() else {
        return Err(NodeError::other("16 bytes at least"));
    };
    words[..8].copy_from_slice(&origin.0.to_le_bytes());
    words[8..].copy_from_slice(&seq.to_le_bytes());
    Ok(())
}

source!(
    HandleSource,
    Tensor,
    |config| Ports::new().output("out", config.spec()),
    |out, header| {
        let mut tensor = out.loan(&header)?;
        write(&mut tensor, header.origin, header.seq)?;
        out.send(tensor);
        Ok(())
    },
    fn next_burst(&mut self, room: &mut Room<'_, Tensor>) -> Result<Next, NodeError> {
        let write = |tensor: &mut TensorMut, seq| write(tensor, tensor.header().origin, seq);
        if self.pace.period == 0 && room.fill(u64::MAX, room.now(), write)? > 0 {
            return Ok(Next::More);
        }
        room.each(|out| self.next(out))
    }
);

macro_rules! pass {
    ($name:ident, $payload:ty, $ports:expr) => {
        /// Passes messages on.
        #[derive(Debug)]
        pub struct $name;
        impl Node for $name {
            type Config = BenchConfig;
            fn ports(config: &BenchConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
                let ports: fn(&BenchConfig) -> Ports = $ports;
                Ok(ports(config))
            }
            fn build(_: BenchConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
                Ok($name)
            }
        }
        impl Transform for $name {
            type In = $payload;
            type Out = $payload;
            #[inline]
            fn apply(&mut self, input: Message<$payload>, out: &mut Emit<$payload>) -> Result<(), NodeError> {
                out.send(input);
                Ok(())
            }
            #[inline]
            fn apply_burst(
                &mut self,
                burst: &mut Burst<'_, Message<$payload>>,
                out: &mut Emit<$payload>,
            ) -> Result<(), NodeError> {
                burst.forward(out)
            }
        }
    };
}

pass!(ValuePass, Block, |_| Ports::new().input_any("in").output_plain("out"));
pass!(HandlePass, Tensor, |c| Ports::new().input("in", c.spec()).output_forwarding("out", Some(c.spec()), "in"));

/// Reads the number of every message, and in paced runs its stamp.
#[derive(Debug)]
pub struct Arrivals {
    count: u64,
    sum: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Latencies in order of arrival, so that the first tenth can be left out.
    latencies: Vec<u32>,
    paced: bool,
}

impl Arrivals {
    fn new(config: &BenchConfig) -> Self {
        // Room for the longest row of the benchmark; further messages are counted, but not timed.
        let capacity = if config.rate.is_some() { 4 << 20 } else { 0 };
        let latencies = Vec::with_capacity(capacity);
        Arrivals { count: 0, sum: 0, first: None, last: None, latencies, paced: config.rate.is_some() }
    }

    #[inline]
    fn note(&mut self, origin: u64, seq: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(seq);
        // Reading the clock for one message in 65,536 is enough at millions a second.
        if self.paced || self.count & 0xffff == 1 {
            self.time(origin);
        }
    }

    #[inline(never)]
    fn time(&mut self, origin: u64) {
        if self.paced && self.latencies.len() < self.latencies.capacity() {
            let now = limen::Clock::Monotonic.now().0;
            self.latencies.push(now.saturating_sub(origin).min(u64::from(u32::MAX)) as u32);
        }
        self.first.get_or_insert_with(Instant::now);
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("count", self.count as f64);
        let expected = (self.count as u128 * (self.count as u128).saturating_sub(1) / 2) as u64;
        to.set("intact", f64::from(u8::from(expected == self.sum)));
        to.set("cpu_seconds", cpu_seconds());
        to.set("peak_kib", peak_kib());
        if let (Some(first), Some(last)) = (self.first, self.last) {
            to.set("seconds", (last - first).as_secs_f64());
        }
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds");
        for ns in &self.latencies[self.latencies.len() / 10..] {
            histogram.saturating_record(u64::from(*ns));
        }
        if !histogram.is_empty() {
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
                to.set(name, histogram.value_at_quantile(q) as f64);
            }
            to.set("samples", histogram.len() as f64);
        }
    }
}

macro_rules! sink {
    ($name:ident, $payload:ty, $read:expr) => {
        /// Counts what arrives.
        #[derive(Debug)]
        pub struct $name(Arrivals);
        impl Node for $name {
            type Config = BenchConfig;
            fn ports(_: &BenchConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
                Ok(Ports::new().input_any("in"))
            }
            fn build(config: BenchConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
                Ok($name(Arrivals::new(&config)))
            }
            fn metrics(&self, to: &mut Metrics) {
                self.0.metrics(to);
            }
        }
        impl Sink for $name {
            type In = $payload;
            #[inline(always)]
            fn take(&mut self, input: Message<$payload>) -> Result<(), NodeError> {
                let read: fn(&$payload) -> (u64, u64) = $read;
                let (origin, seq) = read(&input.body);
                self.0.note(origin, seq);
                Ok(())
            }
            fn finish(&mut self) -> Result<(), NodeError> {
                self.0.last = Some(Instant::now());
                Ok(())
            }
        }
    };
}

sink!(ValueSink, Block, |block| (block.0[0], block.0[1]));
sink!(HandleSink, Tensor, |tensor| {
    let words = tensor.bytes().first_chunk::<16>().copied().unwrap_or_default();
    let [origin, seq]: [[u8; 8]; 2] = bytemuck::cast(words);
    (u64::from_le_bytes(origin), u64::from_le_bytes(seq))
});

/// Returns a registry with the kinds of the chain.
pub fn registry() -> Registry {
    Registry::new().with(register)
}

/// Adds the kinds of the chain.
pub fn register(registry: Registry) -> Registry {
    registry
        .source::<ValueSource>("value_source")
        .source::<HandleSource>("handle_source")
        .transform::<ValuePass>("value_pass")
        .transform::<HandlePass>("handle_pass")
        .sink::<ValueSink>("value_sink")
        .sink::<HandleSink>("handle_sink")
}

/// One configuration of the chain.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Pass-through nodes.
    pub k: usize,
    /// Bytes of a message that is passed by handle; `None` for 64 B by value.
    pub bytes: Option<usize>,
    /// Messages per second; 0 for as fast as possible.
    pub rate: f64,
    /// The number of cores, and of workers; nodes are divided among them in the order of the chain.
    pub cores: usize,
    /// How idle workers wait.
    pub wait: &'static str,
    /// Which messages are recorded.
    pub telemetry: Telemetry,
    /// The capacity of each edge; the engine's default if `None`.
    pub capacity: Option<usize>,
    /// The duration of the run.
    pub seconds: f64,
}

impl Default for Chain {
    fn default() -> Self {
        Chain::DEFAULT
    }
}

/// The figures of one run of a chain.
#[derive(Debug)]
pub struct Figures {
    /// Messages at the sink.
    pub n: u64,
    /// Messages per second.
    pub rate: f64,
    /// User and system time per wall time.
    pub cpu: f64,
    /// User and system time per message, ns.
    pub cpu_ns: f64,
    /// p50, p99, p99.9 and max of the latency in ns; only for paced runs.
    pub latency: Option<[f64; 4]>,
    /// The run's report.
    pub report: Report,
}

impl Chain {
    /// One node by value on one core, saturated, with the engine's defaults.
    pub const DEFAULT: Chain = Chain {
        k: 1,
        bytes: None,
        rate: 0.0,
        cores: 1,
        wait: "adaptive",
        telemetry: Telemetry::Auto,
        capacity: None,
        seconds: 0.3,
    };

    /// Returns the graph as YAML.
    pub fn yaml(&self) -> String {
        let form = if self.bytes.is_some() { "handle" } else { "value" };
        let bytes = self.bytes.unwrap_or(0);
        let rate = if self.rate > 0.0 { format!(", rate: {:.1}", self.rate) } else { String::new() };
        let nodes = self.k + 2;
        let core = |i: usize| i * self.cores / nodes;
        let mut text = String::from("version: 1\ngraph: chain\nnodes:\n");
        let mut from = String::new();
        for i in 0..nodes {
            let kind = if i == 0 {
                "source"
            } else if i == nodes - 1 {
                "sink"
            } else {
                "pass"
            };
            let config = format!("{{ bytes: {bytes}{rate} }}");
            let capacity = self.capacity.map_or(String::new(), |c| format!(", capacity: {c}"));
            let input = if from.is_empty() { String::new() } else { format!(", from: {{ from: {from}{capacity} }}") };
            let _ = writeln!(text, "  n{i}: {{ kind: {form}_{kind}, config: {config}, core: {}{input} }}", core(i));
            from = format!("n{i}");
        }
        let _ = writeln!(text, "cores:");
        for core in 0..self.cores {
            let _ = writeln!(text, "  {core}: {{ wait: {} }}", self.wait);
        }
        text.push_str("run: { stop: 10s, strict: true }\n");
        text
    }

    /// Plans, runs and measures the chain.
    ///
    /// # Panics
    /// When the graph or a scheduler call is refused, or a message is lost: such figures would mean
    /// nothing.
    pub fn run(&self) -> Figures {
        let spec = Spec::from_text(&self.yaml(), "chain.yaml").unwrap_or_else(|e| panic!("{e}"));
        let options = Options { telemetry: Some(self.telemetry), ..Options::default() };
        let plan = Plan::with_options(spec, &registry(), &options).unwrap_or_else(|e| panic!("{e}"));
        let mut running = plan.wire().expect("wires").start().expect("starts");
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        assert!(!running.wait_for(Duration::from_secs_f64(self.seconds)), "ended by itself");
        let report = running.stop(Drain::within(Duration::from_secs(10)));
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
        assert_eq!(report.metric("intact"), Some(1.0), "messages are missing or out of order");
        let n = report.metric("count").unwrap_or(0.0);
        let seconds = report.metric("seconds").unwrap_or(wall);
        let q = |name: &str| report.metric(name);
        let latency = (|| Some([q("p50")?, q("p99")?, q("p999")?, q("max")?]))();
        Figures { n: n as u64, rate: n / seconds, cpu: cpu / wall, cpu_ns: cpu * 1e9 / n.max(1.0), latency, report }
    }
}

/// Returns the user and system time of the process so far.
pub fn cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// Returns the peak resident memory of the process, in KiB.
pub fn peak_kib() -> f64 {
    let status = limen::files::system_text("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:").map(str::trim));
    line.and_then(|l| l.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0.0)
}

/// Describes the machine, for the head of a table.
pub fn host() -> String {
    let read = |path: &str| limen::files::system_text(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|l| l.strip_prefix("model name")).map_or("?", |l| l.trim_start_matches([' ', '\t', ':']));
    let kernel = read("/proc/version");
    let kernel = kernel.split_whitespace().nth(2).unwrap_or("?");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = if governor.trim().is_empty() { "not visible" } else { governor.trim() };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{cores} cores, {model}, Linux {kernel}, SCHED_OTHER, governor {governor}")
}

/// Returns the median of some figures, and their spread as max/min.
pub fn median(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (figures.first(), figures.last()) else { return (0.0, 1.0) };
    (figures[figures.len() / 2], max / min.max(1e-12))
}
