//! The statistics of a run as a JSON object. `docs/monitor.md` says what each key holds.

use crate::text::number::seconds;
use limen::node::Setting;
use limen::run::{EdgeStats, Window};
use limen::{Plan, Running};
use serde::{Serialize, Serializer};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The highest fill of an edge is that of this time, or of up to twice this time.
const EVERY: Duration = Duration::from_secs(1);

/// What does not change during a run.
#[derive(Debug)]
pub(super) struct Described {
    graph: String,
    nodes: Vec<DescribedNode>,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct DescribedNode {
    kind: String,
    role: &'static str,
    worker: usize,
    settings: Vec<SettingRange>,
}

#[derive(Debug, Serialize)]
struct SettingRange {
    name: String,
    least: f64,
    most: f64,
}

impl From<&Setting> for SettingRange {
    fn from(setting: &Setting) -> Self {
        SettingRange { name: setting.name.clone(), least: *setting.range.start(), most: *setting.range.end() }
    }
}

#[derive(Debug, Serialize)]
struct Worker {
    name: String,
    cpu: Option<usize>,
    wait: &'static str,
    nodes: Vec<String>,
}

/// The highest fills of the edges in the last second or two, whoever asks.
#[derive(Debug, Default)]
pub(super) struct Fills {
    since: Option<Instant>,
    before: Vec<u64>,
    now: Vec<u64>,
}

impl Fills {
    /// Takes what the run told, once.
    pub(super) fn look(&mut self, edges: &[EdgeStats]) {
        if self.since.is_none_or(|since| since.elapsed() >= EVERY) {
            self.since = Some(Instant::now());
            self.before = std::mem::take(&mut self.now);
        }
        self.now.resize(edges.len(), 0);
        for (now, edge) in self.now.iter_mut().zip(edges) {
            *now = edge.highest.max(*now);
        }
    }

    fn highest(&self, edge: usize) -> u64 {
        let of = |fills: &[u64]| fills.get(edge).copied().unwrap_or(0);
        of(&self.before).max(of(&self.now))
    }
}

/// The object `stats`.
#[derive(Debug, Serialize)]
pub(super) struct Stats<'a> {
    graph: &'a str,
    run: &'a str,
    pid: u32,
    started: f64,
    elapsed_s: f64,
    state: &'static str,
    nodes: Vec<Node<'a>>,
    edges: Vec<Edge<'a>>,
    paths: Vec<Path>,
    workers: &'a [Worker],
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    name: String,
    kind: &'a str,
    role: &'static str,
    worker: usize,
    taken: u64,
    done: u64,
    failed: u64,
    backend: Option<Backend>,
    #[serde(serialize_with = "window")]
    queue: Option<Window>,
    #[serde(serialize_with = "window")]
    compute: Option<Window>,
    settings: &'a [SettingRange],
}

#[derive(Debug, Serialize)]
struct Backend {
    name: &'static str,
    device: String,
    ready: bool,
    calls: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    messages: u64,
    bytes: Option<u64>,
    highest: u64,
    capacity: usize,
    sent: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct Path {
    from: String,
    to: String,
    #[serde(serialize_with = "window")]
    latency: Option<Window>,
    deadline: Option<u64>,
    judged: u64,
    missed: u64,
}

#[allow(clippy::ref_option, reason = "the form that serde asks for")]
fn window<S: Serializer>(window: &Option<Window>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown {
        within_s: f64,
        count: u64,
        p50: Option<u64>,
        p99: Option<u64>,
        max: Option<u64>,
    }
    let shown = window.map(|window| Shown {
        within_s: seconds(window.within),
        count: window.count,
        p50: window.p50,
        p99: window.p99,
        max: (window.count > 0).then_some(window.max),
    });
    shown.serialize(to)
}

impl Described {
    pub(super) fn new(plan: &Plan) -> Self {
        let nodes = plan.nodes().iter().map(|node| DescribedNode {
            kind: node.kind.clone(),
            role: node.role.name(),
            worker: node.worker,
            settings: node.settings.iter().map(SettingRange::from).collect(),
        });
        let name = |at: &usize| plan.nodes()[*at].name.clone();
        let workers = plan.workers().iter().map(|worker| Worker {
            name: worker.name.clone(),
            cpu: worker.cpu(),
            wait: worker.wait().name(),
            nodes: worker.nodes.iter().map(name).collect(),
        });
        Described { graph: plan.graph().into(), nodes: nodes.collect(), workers: workers.collect() }
    }

    /// The statistics of now; `edges` is what the run told just now.
    pub(super) fn stats<'a>(&'a self, running: &'a Running, edges: &'a [EdgeStats], fills: &Fills) -> Stats<'a> {
        let nodes = self.nodes.iter().zip(running.stats()).map(|(described, stats)| Node {
            name: stats.node,
            kind: &described.kind,
            role: described.role,
            worker: described.worker,
            taken: stats.taken,
            done: stats.done,
            failed: stats.failed,
            backend: stats.backend.map(|backend| Backend {
                name: backend.backend,
                device: backend.device,
                ready: backend.ready,
                calls: backend.calls,
                failed: backend.failed,
            }),
            queue: stats.queue,
            compute: stats.compute,
            settings: &described.settings,
        });
        let edges = edges.iter().enumerate().map(|(at, edge)| Edge {
            from: &edge.from,
            to: &edge.to,
            messages: edge.messages,
            bytes: edge.bytes,
            highest: fills.highest(at),
            capacity: edge.capacity,
            sent: edge.sent,
            lost: edge.lost,
        });
        let paths = running.path_stats().into_iter().map(|path| Path {
            from: path.from,
            to: path.to,
            latency: Some(path.latency),
            deadline: path.deadline,
            judged: path.judged,
            missed: path.missed,
        });
        Stats {
            graph: &self.graph,
            run: running.run_id(),
            pid: std::process::id(),
            started: running.started().duration_since(UNIX_EPOCH).map_or(0.0, seconds),
            elapsed_s: seconds(running.elapsed()),
            state: if running.is_stopping() { "stopping" } else { "running" },
            nodes: nodes.collect(),
            edges: edges.collect(),
            paths: paths.collect(),
            workers: &self.workers,
        }
    }
}
