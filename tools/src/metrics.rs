//! The metrics of a running graph: `--metrics ADDRESS` serves them in the text format of
//! Prometheus, `--otlp URL` sends them by the protocol of OpenTelemetry.

#[cfg(feature = "otlp")]
pub(crate) mod exporter;
mod exposition;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod server;

use crate::old_names;
use exposition::Exposition;
use limen::Plan;
use limen::plan::{NodePlan, WorkerPlan};
use limen::report::{Counts, HistogramReport, Report, Term};
use limen::run::{EdgeStats, IntervalReport, NodeStats, PathStats};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The quantiles of a summary.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// Quantiles without a newer interval are shown for this long, or for three of their intervals.
const KEPT: Duration = Duration::from_secs(10);

/// The metrics of a running graph, which [`MetricsServer`](crate::MetricsServer) serves to
/// Prometheus, and, with the cargo feature `otlp`, `OtlpExporter` sends to a collector.
///
/// Counters are those since the run began. The quantiles of times are those of the last interval,
/// about a second.
///
/// ```no_run
/// use limen_run::{MetricsServer, RunMetrics};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = limen::Plan::from_file("graph.yaml", &Default::default(), &limen_run::registry(), &Default::default())?;
/// let mut metrics = RunMetrics::new(&plan);
/// let mut server = MetricsServer::bind(([127, 0, 0, 1], 9464).into())?;
/// let mut running = plan.wire()?.start()?;
/// while !running.wait_for(Duration::from_millis(100)) {
///     metrics.look(&running.edge_stats());
///     metrics.look_at_paths(&running.path_stats());
///     metrics.add_intervals(&running.intervals());
///     server.poll(|| metrics.text(&running.stats()));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunMetrics {
    graph: String,
    run_id: String,
    kinds: HashMap<String, String>,
    /// Names of threads, and their CPU.
    workers: Vec<(String, Option<usize>)>,
    edges: Vec<EdgeStats>,
    deadlines: Vec<Deadline>,
    /// The most messages that an edge held in the last interval, and since then.
    peaks: Vec<(u64, u64)>,
    summaries: BTreeMap<(Times, String, String), Summary>,
}

/// A path with a deadline.
#[derive(Clone, Debug)]
struct Deadline {
    from: String,
    to: String,
    judged: u64,
    missed: u64,
    silent: Option<Duration>,
}

/// What times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Times {
    Queue,
    Compute,
    Path,
}

/// Times of the run so far, and quantiles of their last interval.
#[derive(Clone, Debug)]
struct Summary {
    count: u64,
    /// Nanoseconds.
    sum: f64,
    quantiles: [Option<u64>; 3],
    until: Instant,
    buckets: Buckets,
}

/// Counts of times in seconds whose limits are powers of 2^(1/8), as in OpenTelemetry's exponential
/// histograms of scale 3.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// The bucket `i` from `first` has the values above 2^(i/8), up to 2^((i+1)/8).
    first: i32,
    counts: VecDeque<u64>,
    zeros: u64,
}

impl Buckets {
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "part of the definition"))]
    const SCALE: i32 = 3;

    /// Adds nanoseconds.
    fn add(&mut self, times: &Counts) {
        for (ns, count) in times.iter() {
            if ns == 0 {
                self.zeros += count;
                continue;
            }
            // The histogram ends at a minute: some 300 buckets at most.
            let at = ((ns as f64 / 1e9).log2() * 8.0).ceil() as i32 - 1;
            if self.counts.is_empty() {
                self.first = at;
            }
            while at < self.first {
                self.counts.push_front(0);
                self.first -= 1;
            }
            let index = (at - self.first) as usize;
            if self.counts.len() <= index {
                self.counts.resize(index + 1, 0);
            }
            self.counts[index] += count;
        }
    }
}

/// What metrics are written to. The name of a family is that of Prometheus.
trait Families {
    fn counter(&mut self, name: &'static str, help: &'static str);
    fn gauge(&mut self, name: &'static str, help: &'static str);
    /// Times in seconds.
    fn times(&mut self, name: &'static str, help: &'static str);
    /// Adds a sample of the current family of counters or gauges.
    fn sample(&mut self, labels: &[(&str, &str)], value: f64);
    /// Adds a sample of the current family of times.
    fn summary(&mut self, labels: &[(&str, &str)], summary: &Summary);
}

impl RunMetrics {
    /// The metrics of a plan that is about to run.
    pub fn new(plan: &Plan) -> Self {
        let kind = |node: &NodePlan| (node.name.clone(), node.kind.clone());
        let worker = |worker: &WorkerPlan| (worker.name.clone(), worker.cpu());
        RunMetrics {
            graph: plan.graph().to_string(),
            run_id: String::new(),
            kinds: plan.nodes().iter().map(kind).collect(),
            workers: plan.workers().iter().map(worker).collect(),
            edges: Vec::new(),
            deadlines: Vec::new(),
            peaks: vec![(0, 0); plan.edges().len()],
            summaries: BTreeMap::new(),
        }
    }

    /// Sets the id of the run ([`Running::run_id`](limen::Running::run_id)), which `limen_run_info`
    /// has.
    pub fn set_run_id(&mut self, run_id: &str) {
        self.run_id = run_id.to_string();
    }

    /// Takes the state of the edges ([`Running::edge_stats`](limen::Running::edge_stats)); to be
    /// called about ten times a second.
    pub fn look(&mut self, edges: &[EdgeStats]) {
        for ((_, peak), edge) in self.peaks.iter_mut().zip(edges) {
            *peak = edge.peak_depth.max(*peak);
        }
        edges.clone_into(&mut self.edges);
    }

    /// Takes the deadlines of the paths ([`Running::path_stats`](limen::Running::path_stats)); to
    /// be called about once a second.
    pub fn look_at_paths(&mut self, paths: &[PathStats]) {
        let paths = paths.iter().filter(|path| path.deadline.is_some());
        self.set_deadlines(paths.map(|path| (&*path.from, &*path.to, path.judged, path.missed, path.silent)));
    }

    fn set_deadlines<'a>(&mut self, paths: impl Iterator<Item = (&'a str, &'a str, u64, u64, Option<Duration>)>) {
        let deadline = |(from, to, judged, missed, silent): (&str, &str, _, _, _)| Deadline {
            from: from.into(),
            to: to.into(),
            judged,
            missed,
            silent,
        };
        self.deadlines = paths.map(deadline).collect();
    }

    /// Adds intervals that have ended ([`Running::intervals`](limen::Running::intervals)), about
    /// one a second.
    pub fn add_intervals(&mut self, intervals: &[IntervalReport]) {
        if intervals.is_empty() {
            return;
        }
        self.peaks.iter_mut().for_each(|peak| *peak = (peak.1, 0));
        intervals.iter().for_each(|interval| self.add(&interval.histogram, interval.length));
    }

    /// Takes the times and missed deadlines of a whole run from its report, in place of those of
    /// its intervals, which lack what came after the last one.
    pub fn conclude(&mut self, report: &Report) {
        let judged = report.deadlines.iter().filter(|path| path.untracked_behind.is_none());
        self.set_deadlines(judged.map(|path| (&*path.from, &*path.to, path.judged, path.missed, None)));
        self.summaries.clear();
        report.histograms.iter().for_each(|histogram| self.add(histogram, report.wall));
    }

    fn add(&mut self, histogram: &HistogramReport, length: Duration) {
        let times = match histogram.term {
            Term::Queue => Times::Queue,
            Term::Compute => Times::Compute,
            Term::EndToEnd => Times::Path,
            _ => return,
        };
        let recorded = &histogram.recorded;
        let count = recorded.histogram.len();
        let key = (times, histogram.node.clone(), histogram.to.clone().unwrap_or_default());
        let summary = self.summaries.entry(key).or_insert_with(|| Summary {
            count: 0,
            sum: 0.0,
            quantiles: [None; 3],
            until: Instant::now(),
            buckets: Buckets::default(),
        });
        summary.count += count;
        summary.sum += recorded.histogram.mean() * count as f64;
        summary.quantiles = QUANTILES.map(|quantile| recorded.quantile(quantile));
        summary.until = Instant::now() + KEPT.max(length.saturating_mul(3));
        summary.buckets.add(&recorded.histogram);
    }

    /// Returns all metrics as text, with the counters of nodes
    /// ([`Running::stats`](limen::Running::stats)).
    pub fn text(&self, nodes: &[NodeStats]) -> String {
        let mut text = Exposition::default();
        self.write(nodes, &mut text);
        text.finish()
    }

    fn write(&self, nodes: &[NodeStats], text: &mut impl Families) {
        text.gauge("limen_run_info", "The graph that runs, the id of the run, and limen's version.");
        let labels = [("graph", &*self.graph), ("run_id", &*self.run_id), ("version", env!("CARGO_PKG_VERSION"))];
        text.sample(&labels, 1.0);
        text.gauge("limen_worker_info", "Threads of the graph, and the CPU that each is pinned to.");
        for (name, cpu) in &self.workers {
            let cpu = cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string());
            text.sample(&[("worker", name), ("cpu", &cpu)], 1.0);
        }
        self.of_nodes(nodes, text);
        of_models(nodes, text);
        self.of_edges(text);
        self.of_deadlines(text);
        for (times, name, help) in [
            (Times::Queue, "limen_node_queue_seconds", "How long messages waited for a node."),
            (Times::Compute, "limen_node_compute_seconds", "How long the calls of a node took."),
            (Times::Path, "limen_path_latency_seconds", "Age of a source's messages at the end of a sink's call."),
        ] {
            self.of_times(times, name, help, text);
        }
    }

    fn of_nodes(&self, nodes: &[NodeStats], text: &mut impl Families) {
        let mut counter = |name, help, value: fn(&NodeStats) -> u64| {
            text.counter(name, help);
            for node in nodes {
                let kind = self.kinds.get(&node.node).map_or("", String::as_str);
                text.sample(&[("node", &node.node), ("kind", kind)], value(node) as f64);
            }
        };
        counter("limen_node_calls_total", "Calls of a node that succeeded or failed.", |node| node.done + node.failed);
        counter("limen_node_failed_total", "Calls of a node that failed.", |node| node.failed);
        text.counter("limen_node_lost_total", "Messages that a node itself lost, by reason.");
        for node in nodes {
            for (reason, lost) in &node.lost {
                text.sample(&[("node", &node.node), ("reason", reason)], *lost as f64);
            }
        }
        let help = "Messages that a node discarded on purpose, by reason.";
        for (name, help) in old_names::families("limen_node_discarded_total", help) {
            text.counter(name, help);
            for node in nodes {
                for (reason, discarded) in &node.discarded {
                    text.sample(&[("node", &node.node), ("reason", reason)], *discarded as f64);
                }
            }
        }
        text.counter("limen_node_incidents_total", "Faulty messages that were not lost, and steps of a clock.");
        for node in nodes {
            for (what, count) in &node.incidents {
                text.sample(&[("node", &node.node), ("what", what)], *count as f64);
            }
        }
        let connected = || nodes.iter().filter_map(|node| Some((node, node.connected?)));
        text.counter("limen_node_disconnects_total", "Times that a node lost its device or a peer.");
        connected().for_each(|(node, _)| text.sample(&[("node", &node.node)], node.disconnects as f64));
        text.gauge("limen_node_connected", "Whether a node is connected to its device or a peer.");
        connected().for_each(|(node, is)| text.sample(&[("node", &node.node)], f64::from(u8::from(is))));
        text.gauge("limen_node_stale", "Whether the messages of a node are too old to act on.");
        for (node, is_stale) in nodes.iter().filter_map(|node| Some((node, node.stale?))) {
            text.sample(&[("node", &node.node)], f64::from(u8::from(is_stale)));
        }
    }

    fn of_edges(&self, text: &mut impl Families) {
        let edges = || self.edges.iter().zip(&self.peaks);
        let mut family = |is_counter, name, help, value: fn(&EdgeStats, &(u64, u64)) -> Option<u64>| {
            for (name, help) in old_names::families(name, help) {
                if is_counter {
                    text.counter(name, help)
                } else {
                    text.gauge(name, help)
                }
                for (edge, peak) in edges() {
                    if let Some(value) = value(edge, peak) {
                        text.sample(&[("from", &edge.from), ("to", &edge.to)], value as f64);
                    }
                }
            }
        };
        family(true, "limen_edge_messages_total", "Messages sent to an edge.", |edge, _| Some(edge.sent));
        family(
            true,
            "limen_edge_lost_total",
            "Messages that an edge lost. Messages discarded on purpose do not count.",
            |edge, _| Some(edge.lost),
        );
        family(false, "limen_edge_depth", "Queue depth of an edge: messages in it now.", |edge, _| Some(edge.depth));
        family(
            false,
            "limen_edge_peak_depth",
            "Peak queue depth of an edge in the last interval and since.",
            |edge, peak| Some(peak.0.max(peak.1).max(edge.depth)),
        );
        family(false, "limen_edge_capacity", "Messages that an edge holds.", |edge, _| Some(edge.capacity as u64));
        family(false, "limen_edge_bytes", "An upper bound of the bytes in an edge.", |edge, _| edge.bytes);
        text.gauge(
            "limen_edge_starves_seconds",
            "How long this edge has left a join without a set, if unusually long, or 0.",
        );
        for edge in &self.edges {
            let starves = edge.starves.unwrap_or_default().as_secs_f64();
            text.sample(&[("from", &edge.from), ("to", &edge.to)], starves);
        }
    }

    fn of_deadlines(&self, text: &mut impl Families) {
        for (name, help, value) in [
            (
                "limen_path_judged_total",
                "Messages of a path judged by its deadline.",
                (|path| path.judged) as fn(&Deadline) -> u64,
            ),
            ("limen_path_missed_total", "Messages that came after the deadline of their path.", |path| path.missed),
        ] {
            text.counter(name, help);
            for path in &self.deadlines {
                text.sample(&[("from", &path.from), ("to", &path.to)], value(path) as f64);
            }
        }
        text.gauge("limen_path_silent_seconds", "How long a path has delivered nothing, if unusually long, or 0.");
        for path in &self.deadlines {
            let silent = path.silent.unwrap_or_default().as_secs_f64();
            text.sample(&[("from", &path.from), ("to", &path.to)], silent);
        }
    }

    fn of_times(&self, times: Times, name: &'static str, help: &'static str, text: &mut impl Families) {
        text.times(name, help);
        for ((_, from, to), summary) in self.summaries.iter().filter(|((of, ..), _)| *of == times) {
            let labels: &[(&str, &str)] =
                if times == Times::Path { &[("from", from), ("to", to)] } else { &[("node", from)] };
            text.summary(labels, summary);
        }
    }
}

fn of_models(nodes: &[NodeStats], text: &mut impl Families) {
    let models = || nodes.iter().filter_map(|node| Some((&node.node, node.backend.as_ref()?)));
    for (is_counter, name, help) in [
        (true, "limen_model_calls_total", "Calls of a model."),
        (true, "limen_model_failed_total", "Calls of a model that failed."),
        (false, "limen_model_ready", "Whether a model is loaded and can be called."),
        (false, "limen_model_memory_bytes", "Bytes of a model's weights and buffers, as far as its backend knows."),
    ] {
        if is_counter {
            text.counter(name, help)
        } else {
            text.gauge(name, help)
        }
        for (node, model) in models() {
            let value = match name {
                "limen_model_calls_total" => model.calls,
                "limen_model_failed_total" => model.failed,
                "limen_model_ready" => model.ready.into(),
                _ => model.memory,
            };
            let labels = [("node", node.as_str()), ("backend", model.backend), ("device", &model.device)];
            text.sample(&labels, value as f64);
        }
    }
}
