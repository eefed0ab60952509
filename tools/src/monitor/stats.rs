//! The statistics of a run as a JSON object. `docs/monitor.md` says what each key holds.

use crate::old_names;
use crate::text::number::seconds;
use limen::node::Setting;
use limen::run::{EdgeStats, NodeStats, PathStats};
use limen::{Plan, Running};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The peak depth of an edge is of this time, or of up to twice this time.
const EVERY: Duration = Duration::from_secs(1);

/// The peak depths of the edges in the last second or two, whoever asks.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    since: Option<Instant>,
    before: Vec<u64>,
    now: Vec<u64>,
}

impl Peaks {
    /// Takes what the run told, once.
    pub(super) fn look(&mut self, edges: &[EdgeStats]) {
        if self.since.is_none_or(|since| since.elapsed() >= EVERY) {
            self.since = Some(Instant::now());
            self.before = std::mem::take(&mut self.now);
        }
        self.now.resize(edges.len(), 0);
        for (now, edge) in self.now.iter_mut().zip(edges) {
            *now = edge.peak_depth.max(*now);
        }
    }

    fn peak(&self, edge: usize) -> u64 {
        let of = |peaks: &[u64]| peaks.get(edge).copied().unwrap_or(0);
        of(&self.before).max(of(&self.now))
    }
}

/// The object `stats` that a [`Monitor`](super::Monitor) answers. Keys that an answer lacks have
/// their defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MonitorStats {
    /// The graph's name.
    pub graph: String,
    /// The id of the run.
    pub run: String,
    /// The number of its process.
    pub pid: u32,
    /// When the run began, in seconds since 1970.
    pub started: f64,
    /// Seconds since then.
    pub elapsed_s: f64,
    /// `running`, or `stopping` while messages in flight are drained.
    pub state: String,
    /// The nodes, in the order of the graph.
    #[serde(with = "old_names")]
    pub nodes: Vec<MonitorNode>,
    /// The edges, in the order of the graph.
    #[serde(with = "old_names")]
    pub edges: Vec<EdgeStats>,
    /// The paths from sources to sinks.
    pub paths: Vec<PathStats>,
    /// The threads.
    pub workers: Vec<MonitorWorker>,
}

/// A node of [`MonitorStats`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MonitorNode {
    /// Its name and counters.
    #[serde(flatten)]
    pub stats: NodeStats,
    /// The value of `kind:` in the graph file.
    pub kind: String,
    /// `source`, `transform`, `infer` or `sink`.
    pub role: String,
    /// Its thread, as an index of [`MonitorStats::workers`].
    pub worker: usize,
    /// The numbers that can be changed. They are not read back from JSON.
    #[serde(skip_deserializing)]
    pub settings: Vec<Setting>,
}

/// A thread of [`MonitorStats`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MonitorWorker {
    /// The name under which reports show the thread.
    pub name: String,
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// How it waits.
    pub wait: String,
    /// The names of its nodes.
    pub nodes: Vec<String>,
}

impl MonitorStats {
    /// What does not change during a run.
    pub(super) fn new(plan: &Plan) -> Self {
        let nodes = plan.nodes().iter().map(|node| MonitorNode {
            stats: NodeStats::default(),
            kind: node.kind.clone(),
            role: node.role.name().into(),
            worker: node.worker,
            settings: node.settings.clone(),
        });
        let name = |at: &usize| plan.nodes()[*at].name.clone();
        let workers = plan.workers().iter().map(|worker| MonitorWorker {
            name: worker.name.clone(),
            cpu: worker.cpu(),
            wait: worker.wait().name().into(),
            nodes: worker.nodes.iter().map(name).collect(),
        });
        let (graph, pid) = (plan.graph().into(), std::process::id());
        let (nodes, workers) = (nodes.collect(), workers.collect());
        MonitorStats { graph, pid, nodes, workers, ..MonitorStats::default() }
    }

    /// Takes the statistics of now; `edges` is what the run told just now.
    pub(super) fn look(&mut self, running: &Running, edges: &[EdgeStats], peaks: &Peaks) {
        self.run = running.run_id().into();
        self.started = running.started().duration_since(UNIX_EPOCH).map_or(0.0, seconds);
        self.elapsed_s = seconds(running.elapsed());
        self.state = if running.is_stopping() { "stopping" } else { "running" }.into();
        self.nodes.iter_mut().zip(running.stats()).for_each(|(node, stats)| node.stats = stats);
        edges.clone_into(&mut self.edges);
        self.edges.iter_mut().enumerate().for_each(|(at, edge)| edge.peak_depth = peaks.peak(at));
        self.paths = running.path_stats();
    }
}
