//! The statistics of a running graph, as programs and nodes read them.

use crate::base::json::{optional_seconds, seconds};
use crate::host::sync::DynArc;
use crate::node::backend::BackendStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What was recorded in a window of time. Times are nanoseconds, to two digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StatisticsWindow {
    /// The length of the window; in JSON `within_s`, in seconds.
    #[serde(rename = "within_s", with = "seconds")]
    pub within: Duration,
    /// Messages; a sampled message counts for all it stands for.
    pub count: u64,
    /// The median, if at least ten samples lie above it.
    pub p50: Option<u64>,
    /// The 99th percentile, if at least ten samples lie above it.
    pub p99: Option<u64>,
    /// The maximum, if anything was recorded.
    pub max: Option<u64>,
}

/// Counters of a node so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeStats {
    /// The node's name; in JSON `name`.
    #[serde(rename = "name")]
    pub node: String,
    /// Calls started with messages.
    pub taken: u64,
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Messages that the node itself lost so far, by reason: every reason that its kind counts
    /// while it runs.
    pub lost: BTreeMap<String, u64>,
    /// Messages that the node discarded on purpose so far, by reason.
    pub discarded: BTreeMap<String, u64>,
    /// Messages with something wrong that the node did not lose so far, such as `missing` values,
    /// and `clock_steps`.
    pub incidents: BTreeMap<String, u64>,
    /// Whether it has its device or a peer; `None` if it needs none.
    pub connected: Option<bool>,
    /// How often it lost its device or a peer.
    pub disconnects: u64,
    /// Whether its messages are too old to act on; `None` if it does not check their age.
    pub stale: Option<bool>,
    /// The state of its backend, if it runs a model. It is not read back from JSON.
    #[serde(skip_deserializing)]
    pub backend: Option<BackendStatus>,
    /// How long messages waited in the last window; `None` before the first, and for a source.
    pub queue: Option<StatisticsWindow>,
    /// How long calls took in the last window; `None` before the first.
    pub compute: Option<StatisticsWindow>,
}

/// The age of one source's messages at the end of a sink's call, and how many came after the
/// deadline of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PathStats {
    /// Name of the source, where the path begins.
    pub from: String,
    /// Name of the sink, where the path ends.
    pub to: String,
    /// The ages in the last window. Empty if a path with a deadline has not had one yet.
    pub latency: StatisticsWindow,
    /// The deadline of the path in nanoseconds, if it has one that can be judged.
    pub deadline: Option<u64>,
    /// Messages judged by the deadline so far.
    pub judged: u64,
    /// Those that came after it.
    pub missed: u64,
    /// For how long nothing has arrived, if that is 3 s or more, and three times as long as usual;
    /// `None` without a deadline, and after the end of the source. In JSON `silent_s`, in seconds.
    #[serde(rename = "silent_s", with = "optional_seconds")]
    pub silent: Option<Duration>,
}

impl PathStats {
    /// A path without a deadline.
    pub(crate) fn new(from: String, to: String, latency: Option<StatisticsWindow>) -> Self {
        PathStats { from, to, latency: latency.unwrap_or_default(), ..PathStats::default() }
    }
}

/// The queue depth of an edge, and what passed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EdgeStats {
    /// Producer, `node/port`.
    pub from: String,
    /// Consumer, `node/port`.
    pub to: String,
    /// Messages in it now.
    pub depth: u64,
    /// An upper bound of their bytes, if their size is known.
    pub bytes: Option<u64>,
    /// Peak depth: the most messages seen in it since the program's last query. It is sampled at
    /// least once a second, and by every call that waits or queries; peaks between two samples are
    /// missed.
    pub peak_depth: u64,
    /// Messages it holds.
    pub capacity: usize,
    /// Messages sent to it so far.
    pub sent: u64,
    /// Messages that it lost so far. Messages that the graph discards on purpose do not count.
    pub lost: u64,
    /// For how long the join that it leads to has had no set because nothing comes through this
    /// edge, if that is 1 s or more, and three times as long as usual. In JSON `starves_s`, in
    /// seconds.
    #[serde(rename = "starves_s", with = "optional_seconds")]
    pub starves: Option<Duration>,
}

/// The statistics of a run at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunStats {
    /// Every node, in the order of the graph.
    pub nodes: Vec<NodeStats>,
    /// Every path from a source to a sink; before the first window only those with a deadline.
    pub paths: Vec<PathStats>,
    /// Every edge, in the order of the graph.
    pub edges: Vec<EdgeStats>,
}

/// What a node can observe without waiting, and what it reports itself.
pub(crate) trait Observe: Send + Sync {
    fn observe(&self) -> Option<RunStats>;
    fn is_aborted(&self) -> bool;
    /// Records the event that a node's messages are older than `time`, or that one is not after
    /// this time.
    fn report_staleness(&self, node: &str, is_stale: bool, time: Duration) {
        let _ = (node, is_stale, time);
    }
}

/// Reads the statistics of the run that a node belongs to; see
/// [`Building::statistics`](crate::node::Building::statistics).
///
/// ```
/// use limen::node::Statistics;
/// fn show(statistics: &Statistics) {
///     let Some(run) = statistics.read() else { return };
///     for edge in run.edges {
///         println!("{} -> {}: {} of {}", edge.from, edge.to, edge.depth, edge.capacity);
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Statistics(pub(crate) DynArc<dyn Observe>);

impl Statistics {
    /// Returns the statistics, with windows of a second or of the time between two calls if that is
    /// longer. A call asks for the next windows, and the workers reply later, so what it returns is
    /// as old as the call before. It allocates, and waits for no worker.
    ///
    /// Returns `None` before the run has begun, after its end, and while another thread reads.
    pub fn read(&self) -> Option<RunStats> {
        self.0.observe()
    }

    /// Returns whether the run waits for its nodes no longer: `run.stop` has passed, or the program
    /// has aborted it. A node that waits for something in a call asks about every 50 ms. If it
    /// returns within 200 ms, its messages are counted; otherwise it is abandoned.
    pub fn is_aborted(&self) -> bool {
        self.0.is_aborted()
    }
}

impl fmt::Debug for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Statistics")
    }
}
