//! The time that the engine adds to a call of a backend, and a whole vision graph compared with the
//! same work written by hand with the same libraries: `cargo bench -p limen-benches --bench infer
//! [-- long]`, from the root of the workspace.

use hdrhistogram::Histogram;
use limen::backend::{Backend, BackendError, BatchMut, BatchRef, Capabilities, Prepared, Session, Signature};
use limen::infer::{Batch, Infer, InferPlan};
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source,
};
use limen::report::Counts;
use limen::{Clock, Folders, Message, Options, Plan, Registry, Report, Spec, Tensor, Time};
use limen_benches::{ByHand, host};
use limen_infer::onnx::OnnxLane;
use limen_infer::{OnnxModel, Rten};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The duration of the backend's last call on this thread, in ns.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

/// rten, with each call timed.
struct Timed;

struct TimedPrepared(<Rten as Backend>::Prepared);

struct TimedSession(<<Rten as Backend>::Prepared as Prepared>::Session);

impl Backend for Timed {
    const NAME: &'static str = "rten, timed";
    type Model = OnnxModel;
    type Prepared = TimedPrepared;
    fn probe() -> Result<Capabilities, BackendError> {
        Rten::probe()
    }
    fn prepare(model: OnnxModel) -> Result<TimedPrepared, BackendError> {
        Rten::prepare(model).map(TimedPrepared)
    }
}

impl Prepared for TimedPrepared {
    type Session = TimedSession;
    fn signature(&self) -> &Signature {
        self.0.signature()
    }
    fn session(&self, max_batch: usize) -> Result<TimedSession, BackendError> {
        self.0.session(max_batch).map(TimedSession)
    }
}

impl Session for TimedSession {
    type Lane = OnnxLane;
    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let begin = Clock::Monotonic.now();
        let result = self.0.infer_batch(batch, inputs, outputs, lanes);
        CALL.set(Clock::Monotonic.now().since(begin));
        result
    }
}

/// A model with one message per call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct TimedConfig {
    model: String,
}

struct TimedKind;

impl Infer for TimedKind {
    type Config = TimedConfig;
    fn plan(config: TimedConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let path = cx.folders.graph.join(config.model);
        let prepared = Timed::prepare(OnnxModel { path, ..OnnxModel::default() }).unwrap_or_else(|e| panic!("{e}"));
        Ok(InferPlan::new::<Timed>(Arc::new(prepared), Batch::default()))
    }
}

/// A tensor of ones at a fixed rate, stamped when it is sent, so that late wakeups of the machine
/// do not count.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct OnesConfig {
    shape: Vec<usize>,
    period_ns: u64,
}

struct Ones {
    period: u64,
    due: Time,
}

impl Node for Ones {
    type Config = OnesConfig;
    fn ports(config: &OnesConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::F32, config.shape.iter().copied())))
    }
    fn build(config: OnesConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Ones { period: config.period_ns, due: cx.now() })
    }
}

impl Source for Ones {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.due > out.now() {
            return Ok(Next::At(self.due));
        }
        self.due = self.due + self.period;
        let header = out.header(out.clock());
        let mut tensor = out.loan(&header)?;
        tensor.as_mut_slice::<f32>()?.fill(1.0);
        let stamped = out.clock();
        tensor.header_mut().origin = stamped;
        out.send(tensor);
        Ok(Next::At(self.due))
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct AddedConfig {}

/// Records the time of each message in the graph, minus the backend's call.
struct Added {
    clock: Clock,
    added: Histogram<u64>,
    calls: Histogram<u64>,
}

impl Node for Added {
    type Config = AddedConfig;
    fn ports(_: &AddedConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(_: AddedConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Added { clock: cx.clock(), added: histogram(), calls: histogram() })
    }
    fn metrics(&self, to: &mut Metrics) {
        for (name, histogram) in [("added", &self.added), ("call", &self.calls)] {
            for (point, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
                to.set(format!("{name}_{point}"), histogram.value_at_quantile(q) as f64);
            }
        }
        to.set("samples", self.added.len() as f64);
    }
}

impl Sink for Added {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let whole = self.clock.now().since(input.header().origin);
        let call = CALL.get();
        self.added.saturating_record(whole.saturating_sub(call).max(1));
        self.calls.saturating_record(call.max(1));
        Ok(())
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds")
}

fn registry() -> Registry {
    let registry =
        Registry::new().with(limen_nodes_core::register).with(limen_vision::register).with(limen_infer::register);
    registry.source::<Ones>("ones").infer::<TimedKind>("timed").sink::<Added>("added")
}

fn run(text: &str, folder: &str, out: &Path, seconds: f64) -> Report {
    let mut spec = Spec::from_text(text, "bench.yaml").unwrap_or_else(|e| panic!("{e}"));
    spec.folders = Folders { graph: folder.into(), out: Some(out.into()), ..Folders::default() };
    let plan = Plan::with_options(spec, &registry(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut running = plan.wire().expect("wires").start().expect("starts");
    running.wait_for(Duration::from_secs_f64(seconds));
    let report = running.stop(limen::Drain::within(Duration::from_secs(10)));
    assert!(report.bugs.is_empty() && report.exit_code() == 0, "{report:#?}");
    report
}

fn print(name: &str, values: [f64; 4], unit: f64) {
    let cells: Vec<String> = values.iter().map(|ns| format!("{:>10.2}", ns / unit)).collect();
    println!("{name:44}{}", cells.join(""));
}

/// One message at a time through one core: source, model, sink.
fn added(out: &Path, seconds: f64) {
    println!(
        "\nBatch 1, one core, 1,000 messages a second of digits and 50 of classify, µs\n\n{:44}{:>10}{:>10}{:>10}{:>10}",
        "", "p50", "p99", "p99.9", "max"
    );
    for (model, shape) in [("digits/digits.onnx", "[1, 8, 8]"), ("classify/classifier.onnx", "[3, 224, 224]")] {
        let period = if model.starts_with("digits") { 1_000_000 } else { 20_000_000 };
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: ones, core: 0, config: {{ shape: {shape}, period_ns: {period} }} }}\n  \
             m: {{ kind: timed, core: 0, config: {{ model: {model} }}, from: a }}\n  z: {{ kind: added, core: 0, from: m }}\nrun: {{ strict: true }}\n"
        );
        let report = run(&text, "graphs", out, seconds);
        let figure = |name: &str| report.metric(name).unwrap_or(f64::NAN);
        let four = |name: &str| ["p50", "p99", "p999", "max"].map(|point| figure(&format!("{name}_{point}")));
        print(&format!("{model}: the backend's call"), four("call"), 1e3);
        print(&format!("{model}: from source to sink, beyond it"), four("added"), 1e3);
        println!("{:44}{:>10} samples", "", figure("samples"));
    }
}

/// `graphs/classify` at full speed, and by hand.
fn classify(out: &Path, seconds: f64) {
    let graph = limen::files::system_text("graphs/classify/graph.yaml").expect("run from the workspace's root");
    let free = graph.replace(", rate: 30Hz, count: 90", "");
    assert_ne!(graph, free, "the camera of the graph has changed");
    let one_core = {
        // Every node on the first core, and no file at the end.
        let nodes = free.lines().map(|line| match line.strip_prefix("    kind: ") {
            Some(kind) => format!("    kind: {kind}\n    core: 0"),
            None => line.to_string(),
        });
        nodes
            .collect::<Vec<_>>()
            .join("\n")
            .replace("kind: csv", "kind: \"null\"")
            .replace("    config: { path: out/top.csv }", "")
    };
    let mut rows: Vec<(&str, f64, Option<[f64; 2]>)> = Vec::new();
    let mut hand = ByHand::new();
    let mut latencies = Counts::new(3);
    let (begin, mut n) = (Instant::now(), 0);
    while begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        std::hint::black_box(hand.frame(n));
        latencies.record(start.elapsed().as_nanos() as u64, 1);
        n += 1;
    }
    let quantiles = |counts: &Counts| [0.5, 0.99].map(|q| counts.quantile(q).unwrap_or(0) as f64);
    rows.push(("by hand, one loop", n as f64 / begin.elapsed().as_secs_f64(), Some(quantiles(&latencies))));
    for (name, text) in [("limen, one core", &one_core), ("limen, as the graph is", &free)] {
        let report = run(text, "graphs/classify", out, seconds);
        let frames = report.node("top").map_or(0, |node| node.done) as f64;
        // With an unpaced camera the latency is mostly queueing, so it is not shown.
        rows.push((name, frames / report.wall.as_secs_f64(), None));
    }
    let paced = graph.replace(", count: 90", "");
    let report = run(&paced, "graphs/classify", out, seconds.max(4.0));
    let paced = report.paths().next().map(|(.., path)| quantiles(&path.histogram));
    rows.push(("limen, 30 frames a second", 30.0, paced));
    println!(
        "\nclassify: 640×480 to five classes of a MobileNetV2-shaped model\n\n{:44}{:>10}{:>10}{:>10}",
        "", "frames/s", "p50 ms", "p99 ms"
    );
    for (name, rate, quantiles) in rows {
        let cells = quantiles.map_or(String::new(), |[p50, p99]| format!("{:>10.2}{:>10.2}", p50 / 1e6, p99 / 1e6));
        println!("{name:44}{rate:>10.1}{cells}");
    }
}

fn main() {
    let seconds = if std::env::args().any(|word| word == "long") { 30.0 } else { 2.0 };
    // Cargo runs benchmarks in the package's folder.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::set_current_dir(&root).expect("the workspace's root");
    let out = std::env::temp_dir().join(format!("limen-infer-{}", std::process::id()));
    println!("{}; {seconds} s a row", host());
    // The graph writes into a subfolder `out`.
    std::fs::create_dir_all(out.join("out")).expect("an output folder");
    added(&out, seconds);
    classify(&out, seconds);
    let _ = std::fs::remove_dir_all(&out);
}
