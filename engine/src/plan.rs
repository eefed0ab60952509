//! What a graph means: kinds resolved, ports typed, shapes inferred, nodes placed on cores, pools
//! sized, memory bounded.
//!
//! Planning opens no device and starts no thread. It continues after a problem as far as possible
//! and reports every problem it found. `place` assigns nodes to cores.

mod check;
mod connection;
mod deprecated_keys;
mod effort;
mod joins;
mod kind;
mod kind_words;
mod lineage;
mod losses;
mod memory;
mod node;
mod on_device;
mod path;
mod patience;
pub(crate) mod place;
mod planned_node;
mod planner;
pub(crate) mod registry;
mod sizing;
mod transfer;
mod unpaced;

pub use kind::{Kind, Role};
pub use on_device::{DevicePorts, OnDevice};
pub use place::{Placement, WorkerPlan};

use crate::node::PortType;
use crate::node::backend::WorkerHost;
use crate::node::planning::PlannedPorts;
use crate::node::ports::{Claim, Cost, Setting};
use planner::Planner;

use crate::base::error::Problems;
use crate::base::policy::Trials;
use crate::base::policy::{Criticality, EdgePolicy, JoinPolicy, NodePolicy, OnError, OnMiss, Telemetry, WhenFull};
use crate::exec::planned::{PlannedNode, StagePlan};
use crate::file::layers::Layers;
use crate::file::spec::Spec;
use crate::host::files::{PartialFiles, RemoteFiles};
use crate::host::folders::Folders;
use crate::message::port_spec::PortSpec;
use crate::plan::registry::Registry;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of a program beyond the graph file. The defaults are the graph file's own.
///
/// ```
/// # use limen::message::Plain;
/// # use limen::{Plan, Registry, Spec};
/// # #[derive(Clone, Debug)]
/// # struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let spec = Spec::from_text(text, "g.yaml").unwrap();
/// use limen::Options;
/// let options = Options { frames: Some(100), ..Options::default() };
/// let plan = Plan::with_options(spec, &registry, &options).unwrap();
/// # let _ = plan;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// CPUs of the run, by the kernel's numbers; by default all that the process may use.
    pub cpus: Option<Vec<usize>>,
    /// The maximum number of calls of each source.
    pub frames: Option<u64>,
    /// How long no histograms are recorded after the start.
    pub warmup: Option<Duration>,
    /// What the ledger records.
    pub telemetry: Option<Telemetry>,
    /// Whether the run writes what its workers do when, to be read by
    /// [`Running::spans`](crate::Running::spans).
    pub spans: bool,
    /// Whether a request that the system refuses (pinning, real time, locked memory) ends the run.
    pub strict: Option<bool>,
    /// Whether the graph may use real-time threads.
    pub allow_rt: bool,
    /// Whether the graph may listen on addresses that other machines can reach.
    pub allow_public: bool,
    /// The folder for the graph's output files, instead of the graph's own.
    pub out: Option<PathBuf>,
    /// How models are tried before the graph starts.
    pub trials: Trials,
    /// Files of other machines that were fetched before, which the graph names by URL.
    pub remote: Option<RemoteFiles>,
}

/// A graph that was checked, sized and placed on threads. Nothing is allocated or started before
/// [`Plan::wire`].
///
/// ```
/// # use limen::message::Plain;
/// # use limen::{Plan, Registry, Spec};
/// # #[derive(Clone, Debug)]
/// # struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let spec = Spec::from_text(text, "g.yaml").unwrap();
/// let plan = Plan::new(spec, &registry).unwrap();
/// assert_eq!(plan.nodes().len(), 2);
/// assert_eq!(plan.edges()[0].from_name, "a/out");
/// println!("{} bytes, {} threads", plan.memory().total(), plan.workers().len());
/// ```
pub struct Plan {
    graph: String,
    pub(crate) folders: Folders,
    nodes: Vec<NodePlan>,
    edges: Vec<EdgePlan>,
    workers: Vec<WorkerPlan>,
    paths: Vec<PathPlan>,
    notes: Vec<String>,
    pub(crate) sources: Vec<usize>,
    pub(crate) strict: bool,
    pub(crate) mlock: bool,
    pub(crate) monitor: bool,
    pub(crate) stop: Duration,
    pub(crate) start: Duration,
    pub(crate) watchdog: Duration,
    /// The fraction of an edge's messages that may be lost in a second without an event.
    pub(crate) drops_above: f64,
    pub(crate) warmup: Duration,
    pub(crate) telemetry: Telemetry,
    pub(crate) spans: bool,
    pub(crate) frames: Option<u64>,
    memory: PlannedMemory,
}

/// A node of a plan.
pub struct NodePlan {
    /// The node's name in the graph file; `sub.node` for a node of a subgraph.
    pub name: String,
    /// The kind of the node (`kind:` in the graph file).
    pub kind: String,
    /// Its role in the graph.
    pub role: Role,
    /// A rough estimate of how long a call takes.
    pub cost: Cost,
    /// Index of its worker.
    pub worker: usize,
    /// Why it runs there.
    pub why: Placement,
    /// Output ports.
    pub outputs: Vec<OutputPlan>,
    /// Why planning inserted it, if the graph does not name it: a copy between host memory and a
    /// device.
    pub inserted: Option<String>,
    /// Remarks of the node, shown in plans.
    pub notes: Vec<String>,
    /// Remarks of the node that every user of the graph has to see.
    pub notices: Vec<String>,
    /// Whether it is a source without an end of its own.
    pub endless: bool,
    /// Whether it says how often it sends.
    pub paced: bool,
    /// How many messages a source begins before it ends, if known.
    pub total: Option<u64>,
    /// The settings that can be changed while it runs.
    pub settings: Vec<Setting>,
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) planned: Option<Box<dyn PlannedNode>>,
    pub(crate) in_edges: Vec<usize>,
    pub(crate) copies: Option<usize>,
    /// By input: slots and bytes of the pool of its interpolated messages; empty if there are none.
    pub(crate) blends: Vec<(usize, usize)>,
    pub(crate) reached_by: Vec<usize>,
    pub(crate) blocking: bool,
    /// Threads it starts for its calls.
    pub(crate) helpers: usize,
    /// How to start its worker, if its model's runtime says so.
    pub(crate) worker_host: Option<WorkerHost>,
    /// The parameters of its stage.
    pub(crate) stage: StagePlan,
    /// Sources that reach it but whose origins are no longer tracked, each with the node where
    /// tracking ends.
    pub(crate) untracked: HashMap<u16, usize>,
}

/// An output port of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutputPlan {
    /// The port's name; `node/port` names it in the graph file.
    pub name: String,
    /// The type of its messages.
    pub spec: Option<PortSpec>,
    /// Slots of its pool; 0 if it has none.
    pub slots: usize,
    /// Bytes of its pool in host memory.
    pub bytes: usize,
    /// Bytes of its pool on a device.
    pub device_bytes: usize,
    pub(crate) emits: usize,
    pub(crate) rows: usize,
    /// Whether its buffers never leave the node's thread.
    pub(crate) stays: bool,
    pub(crate) edges: Vec<usize>,
    /// The sources whose origins are stored beside each message; empty if the header suffices.
    pub(crate) origins: Vec<u16>,
}

/// An edge of a plan.
#[derive(Clone, Debug)]
pub struct EdgePlan {
    /// Producer, `node/port`.
    pub from_name: String,
    /// Consumer, `node/port`.
    pub to_name: String,
    /// Messages it holds.
    pub capacity: usize,
    /// Whether producer and consumer run on different threads.
    pub crossing: bool,
    /// The type of its messages.
    pub spec: Option<PortSpec>,
    pub(crate) from: usize,
    pub(crate) from_port: usize,
    pub(crate) to: usize,
    pub(crate) ty: PortType,
    pub(crate) buffer: usize,
    /// The edge's policy in the graph file.
    pub(crate) policy: EdgePolicy,
    /// Bytes of its largest message.
    pub(crate) largest: u64,
    /// Another input of its consumer sets the moment: messages here without a partner are
    /// discarded, not lost.
    pub(crate) discards_unmatched: bool,
}

impl EdgePlan {
    /// What happens when it is full.
    pub fn when_full(&self) -> WhenFull {
        self.policy.when_full
    }

    /// Returns whether the graph file sets the capacity; otherwise it follows from the size of a
    /// message and the threads of both nodes.
    pub fn is_capacity_written(&self) -> bool {
        self.policy.capacity.is_some()
    }
}

/// A path whose latency has a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathPlan {
    /// Name of the source, where the path begins.
    pub from: String,
    /// Name of the sink, where the path ends.
    pub to: String,
    /// The longest end-to-end latency that meets the deadline, ns.
    pub deadline: Option<u64>,
    /// What happens to a message that misses it.
    pub on_miss: OnMiss,
    /// The node behind which the origin of the source's messages is no longer tracked: the path is
    /// not measured, and its deadline not judged.
    pub untracked_behind: Option<String>,
    /// How much the run depends on it.
    pub criticality: Criticality,
    /// If it is critical: the nodes through which its messages may pass, in the order of the plan.
    pub(crate) route: Vec<usize>,
}

/// Bytes the engine will allocate, known before anything starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedMemory {
    /// Tensor pools.
    pub pools: usize,
    /// Rings and buffers of edges, and the buffers of stages.
    pub edges: usize,
    /// Memory of nodes, as far as they declare it ([`Ports::memory`](crate::node::Ports::memory)).
    pub nodes: usize,
    /// Latency histograms of nodes, edges and paths.
    pub histograms: usize,
    /// Copies of histograms for queries while the graph runs: for each worker the latest and the
    /// one before.
    pub windows: usize,
    /// The queue of events, what is remembered of slow messages, and the pages of spans.
    pub events: usize,
    /// Tensor pools on devices; not part of the total, which is of host memory. The limit holds for
    /// each of the two.
    pub devices: usize,
    /// The program's [files in memory](crate::Spec::with_file) that the run may read, without those
    /// that are part of the program.
    pub files: usize,
    /// The limit, `run.max_memory`.
    pub limit: usize,
}

impl PlannedMemory {
    /// Returns the sum of all parts in host memory, without the limit.
    pub fn total(&self) -> usize {
        let PlannedMemory { pools, edges, nodes, histograms, windows, events, files, devices: _, limit: _ } = *self;
        [pools, edges, nodes, histograms, windows, events, files].into_iter().fold(0, usize::saturating_add)
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("graph", &self.graph).field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl NodePlan {
    /// Returns what happens when a call fails.
    pub fn on_error(&self) -> OnError {
        self.stage.policy.on_error
    }

    /// Returns how much the run depends on the node.
    pub fn criticality(&self) -> Criticality {
        self.stage.policy.criticality
    }

    /// Returns the least time that a message waits in the node by its own declaration, as in
    /// `delay`.
    pub fn waits(&self) -> Duration {
        Duration::from_nanos(self.planned.as_ref().map_or(0, |planned| planned.ports().waits))
    }

    /// Returns the node's policy in the graph file.
    pub(crate) fn policy(&self) -> &NodePolicy {
        &self.stage.policy
    }

    /// Returns whether messages taken together in a call can have different origin times. Those of
    /// one sequence of one source cannot.
    pub(crate) fn has_skew(&self) -> bool {
        let takes_together = self.in_edges.len() > 1 && !self.merges();
        takes_together && (self.stage.rule.policy != JoinPolicy::Zip || self.stage.sources.len() > 1)
    }

    /// Returns whether a call takes a message of one input instead of one of each.
    pub(crate) fn merges(&self) -> bool {
        self.planned.as_ref().is_some_and(|planned| planned.merges())
    }
}

impl std::fmt::Debug for NodePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodePlan").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Plan {
    /// Plans a graph.
    ///
    /// # Errors
    /// Every problem of the graph.
    pub fn new(spec: Spec, registry: &Registry) -> Result<Plan, Problems> {
        Plan::with_options(spec, registry, &Options::default())
    }

    /// Reads a graph file, applies its layers, and plans it.
    ///
    /// # Errors
    /// Every problem: what could be read of the file is planned to find further ones, unless they
    /// only follow from what could not be.
    pub fn from_file(
        path: impl AsRef<Path>,
        layers: &Layers,
        registry: &Registry,
        options: &Options,
    ) -> Result<Plan, Problems> {
        let (spec, mut problems) = Spec::read_file(path.as_ref(), layers)?;
        if problems.is_empty() {
            return Plan::with_options(spec, registry, options);
        }
        let others = if spec.nodes.is_empty() { None } else { Plan::with_options(spec, registry, options).err() };
        problems.0.extend(others.into_iter().flat_map(|others| others.0));
        Err(Spec::settle(problems))
    }

    /// Plans a graph with the program's settings.
    ///
    /// # Errors
    /// Every problem of the graph.
    pub fn with_options(spec: Spec, registry: &Registry, options: &Options) -> Result<Plan, Problems> {
        let mut spec = spec;
        // The tree of ten thousand nodes takes some megabytes, and planning needs memory of its
        // own.
        spec.forget_tree();
        // Another plan of the same graph may read other files, and find other leftovers.
        spec.folders.read = spec.folders.read.detached();
        spec.folders.partial = PartialFiles::default();
        spec.folders.memory = spec.folders.memory.detached();
        if options.out.is_some() {
            spec.folders.out.clone_from(&options.out);
        }
        if let Some(remote) = &options.remote {
            spec.folders.remote = remote.clone();
        }
        spec.nodes.iter_mut().for_each(|node| registry.rename_keys(node));
        let transfers = transfer::Transfers::insert(&mut spec, registry);
        let (problems, effort) = (Problems::default(), effort::Effort::new());
        Planner { spec: &spec, registry, options, problems, effort, opened: HashMap::new(), transfers }.plan()
    }

    /// Returns the graph's name.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// Returns the nodes in topological order.
    pub fn nodes(&self) -> &[NodePlan] {
        &self.nodes
    }

    /// Returns the edges in the order of their consumers.
    pub fn edges(&self) -> &[EdgePlan] {
        &self.edges
    }

    /// Returns the threads: one for each core in use, then helpers.
    pub fn workers(&self) -> &[WorkerPlan] {
        &self.workers
    }

    /// Returns the paths with a deadline.
    pub fn paths(&self) -> &[PathPlan] {
        &self.paths
    }

    /// Returns remarks for the user before the run.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns whether the graph file asks its program to serve the run to monitors
    /// (`run: { monitor: true }`). The engine itself serves nothing.
    pub fn monitor(&self) -> bool {
        self.monitor
    }

    /// Returns the memory the engine will allocate.
    pub fn memory(&self) -> PlannedMemory {
        self.memory
    }

    /// Returns the path under which the graph reads a file (one of its own files, an input or a
    /// model), whatever name `path` uses for it. A program should not overwrite such a file.
    pub fn reads(&self, path: &Path) -> Option<PathBuf> {
        self.folders.read.find(path)
    }

    /// Does the same for an open file.
    pub fn reads_open(&self, file: &impl AsFd) -> Option<PathBuf> {
        self.folders.read.find_open(file)
    }

    /// Returns the files the graph's nodes write, as paths without links, each with the name of its
    /// node.
    pub fn writes(&self) -> impl Iterator<Item = (&str, &Path)> {
        let claims = self.nodes.iter().filter_map(|node| Some((node, &node.planned.as_ref()?.ports().claims)));
        claims.flat_map(|(node, claims)| {
            claims.iter().filter_map(|claim| match claim {
                Claim::File(path) => Some((node.name.as_str(), path.as_path())),
                Claim::Device(_) => None,
            })
        })
    }

    pub(crate) fn take_planned(&mut self, node: usize) -> Option<Box<dyn PlannedNode>> {
        self.nodes[node].planned.take()
    }

    pub(crate) fn planned_ports(&self, node: usize) -> PlannedPorts {
        let node = &self.nodes[node];
        let outputs = node.outputs.iter().map(|o| (o.name.clone(), o.spec.clone())).collect();
        PlannedPorts { inputs: node.inputs.clone(), outputs, lead: node.stage.rule.lead() }
    }
}
