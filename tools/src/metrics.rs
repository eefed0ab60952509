//! `--metrics ADDRESS`: the metrics of a running graph, in the text format of Prometheus.

mod exposition;
pub(crate) mod server;

use exposition::Exposition;
use limen::Plan;
use limen::plan::{NodePlan, WorkerPlan};
use limen::report::Term;
use limen::run::{EdgeStats, IntervalReport, NodeStats};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The quantiles of a summary.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// Quantiles without a newer interval are shown for this long, or for three of their intervals.
const KEPT: Duration = Duration::from_secs(10);

/// The metrics of a running graph, which [`MetricsServer`](crate::MetricsServer) serves to Prometheus.
///
/// Counters are those since the run began. The quantiles of times are those of the last interval, about a second.
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
    kinds: BTreeMap<String, String>,
    /// Names of threads, and their CPU.
    workers: Vec<(String, Option<usize>)>,
    edges: Vec<EdgeStats>,
    /// The most messages that an edge held in the last interval, and since then.
    highest: Vec<(u64, u64)>,
    summaries: BTreeMap<(Times, String, String), Summary>,
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
            highest: vec![(0, 0); plan.edges().len()],
            summaries: BTreeMap::new(),
        }
    }

    /// Sets the id of the run ([`Running::run_id`](limen::Running::run_id)), which `limen_run_info` has.
    pub fn set_run_id(&mut self, run_id: &str) {
        self.run_id = run_id.to_string();
    }

    /// Takes the state of the edges ([`Running::edge_stats`](limen::Running::edge_stats)); to be called about ten times a second.
    pub fn look(&mut self, edges: &[EdgeStats]) {
        for ((_, highest), edge) in self.highest.iter_mut().zip(edges) {
            *highest = edge.highest.max(*highest);
        }
        edges.clone_into(&mut self.edges);
    }

    /// Adds intervals that have ended ([`Running::intervals`](limen::Running::intervals)), about one a second.
    pub fn add_intervals(&mut self, intervals: &[IntervalReport]) {
        if intervals.is_empty() {
            return;
        }
        self.highest.iter_mut().for_each(|highest| *highest = (highest.1, 0));
        for one in intervals {
            let times = match one.histogram.term {
                Term::Queue => Times::Queue,
                Term::Compute => Times::Compute,
                Term::EndToEnd => Times::Path,
                _ => continue,
            };
            let recorded = &one.histogram.recorded;
            let count = recorded.histogram.len();
            let key = (times, one.histogram.node.clone(), one.histogram.to.clone().unwrap_or_default());
            let before = self.summaries.get(&key).map_or((0, 0.0), |summary| (summary.count, summary.sum));
            let summary = Summary {
                count: before.0 + count,
                sum: before.1 + recorded.histogram.mean() * count as f64,
                quantiles: QUANTILES.map(|quantile| recorded.quantile(quantile)),
                until: Instant::now() + KEPT.max(one.length.saturating_mul(3)),
            };
            self.summaries.insert(key, summary);
        }
    }

    /// Returns all metrics as text, with the counters of nodes ([`Running::stats`](limen::Running::stats)).
    pub fn text(&self, nodes: &[NodeStats]) -> String {
        let mut text = Exposition::default();
        text.gauge("limen_run_info", "The graph that runs, the id of the run, and limen's version.");
        let labels = [("graph", &*self.graph), ("run_id", &*self.run_id), ("version", env!("CARGO_PKG_VERSION"))];
        text.sample("", &labels, 1.0);
        text.gauge("limen_worker_info", "Threads of the graph, and the CPU that each is pinned to.");
        for (name, cpu) in &self.workers {
            let cpu = cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string());
            text.sample("", &[("worker", name), ("cpu", &cpu)], 1.0);
        }
        self.of_nodes(nodes, &mut text);
        of_models(nodes, &mut text);
        self.of_edges(&mut text);
        for (times, name, help) in [
            (Times::Queue, "limen_node_queue_seconds", "How long messages waited for a node."),
            (Times::Compute, "limen_node_compute_seconds", "How long the calls of a node took."),
            (Times::Path, "limen_path_latency_seconds", "Age of a source's messages at the end of a sink's call."),
        ] {
            self.of_times(times, name, help, &mut text);
        }
        text.finish()
    }

    fn of_nodes(&self, nodes: &[NodeStats], text: &mut Exposition) {
        let mut counter = |name, help, value: fn(&NodeStats) -> u64| {
            text.counter(name, help);
            for node in nodes {
                let kind = self.kinds.get(&node.node).map_or("", String::as_str);
                text.sample("", &[("node", &node.node), ("kind", kind)], value(node) as f64);
            }
        };
        counter("limen_node_calls_total", "Calls of a node that succeeded or failed.", |node| node.done + node.failed);
        counter("limen_node_failed_total", "Calls of a node that failed.", |node| node.failed);
    }

    fn of_edges(&self, text: &mut Exposition) {
        let edges = || self.edges.iter().zip(&self.highest);
        let mut family = |is_counter, name, help, value: fn(&EdgeStats, &(u64, u64)) -> Option<u64>| {
            if is_counter {
                text.counter(name, help)
            } else {
                text.gauge(name, help)
            }
            for (edge, highest) in edges() {
                if let Some(value) = value(edge, highest) {
                    text.sample("", &[("from", &edge.from), ("to", &edge.to)], value as f64);
                }
            }
        };
        family(true, "limen_edge_messages_total", "Messages given to an edge.", |edge, _| Some(edge.sent));
        family(
            true,
            "limen_edge_lost_total",
            "Messages that an edge lost, but for those that the graph thins on purpose.",
            |edge, _| Some(edge.lost),
        );
        family(false, "limen_edge_fill", "Messages in an edge.", |edge, _| Some(edge.messages));
        family(
            false,
            "limen_edge_highest_fill",
            "The most messages seen in an edge in the last interval and since.",
            |edge, highest| Some(highest.0.max(highest.1).max(edge.messages)),
        );
        family(false, "limen_edge_capacity", "Messages that an edge holds.", |edge, _| Some(edge.capacity as u64));
        family(false, "limen_edge_bytes", "An upper bound of the bytes in an edge.", |edge, _| edge.bytes);
    }

    fn of_times(&self, times: Times, name: &'static str, help: &str, text: &mut Exposition) {
        text.summary(name, help);
        let now = Instant::now();
        for ((_, from, to), summary) in self.summaries.iter().filter(|((of, ..), _)| *of == times) {
            let labels: &[(&str, &str)] =
                if times == Times::Path { &[("from", from), ("to", to)] } else { &[("node", from)] };
            let quantiles = QUANTILES.iter().zip(&summary.quantiles).filter(|_| now < summary.until);
            for (quantile, value) in quantiles.filter_map(|(quantile, value)| Some((quantile, (*value)?))) {
                let quantile = quantile.to_string();
                let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("quantile", &*quantile)]).collect();
                text.sample("", &labels, value as f64 / 1e9);
            }
            text.sample("_sum", labels, summary.sum / 1e9);
            text.sample("_count", labels, summary.count as f64);
        }
    }
}

fn of_models(nodes: &[NodeStats], text: &mut Exposition) {
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
            text.sample("", &labels, value as f64);
        }
    }
}
