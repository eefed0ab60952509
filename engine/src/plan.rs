//! What a graph means: kinds resolved, ports typed, shapes inferred, cores given, pools sized, memory bounded.
//!
//! Planning opens no device and starts no thread. It goes on after a problem as far as it can, and answers with every
//! problem it found. Where a node goes is `place`'s business.

mod check;
mod connection;
mod effort;
mod lineage;
mod path;
pub(crate) mod place;
mod planner;
pub(crate) mod registry;
mod sizing;

pub use place::{Placement, WorkerPlan};
pub use registry::{Kind, Role};

use crate::node::PortType;
use crate::node::planning::PlannedPorts;
use crate::node::ports::{Claim, Cost, Setting};
use planner::Planner;

use crate::base::error::Problems;
use crate::base::policy::Trials;
use crate::base::policy::{EdgePolicy, JoinPolicy, NodePolicy, OnError, OnMiss, Telemetry, WhenFull};
use crate::exec::planned::{PlannedNode, StagePlan};
use crate::file::layers::Layers;
use crate::file::spec::Spec;
use crate::host::folders::Folders;
use crate::message::tensor::PortSpec;
use crate::plan::registry::Registry;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a program may ask for beyond the graph file. The defaults are the graph file's own.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// CPUs of the run, by the kernel's numbers; all that the process may use by default.
    pub cpus: Option<Vec<usize>>,
    /// Most calls of each source.
    pub frames: Option<u64>,
    /// How long histograms are not kept.
    pub warmup: Option<Duration>,
    /// What is recorded.
    pub telemetry: Option<Telemetry>,
    /// Whether a refusal by the system ends the run.
    pub strict: Option<bool>,
    /// Whether the graph may ask for real-time threads.
    pub allow_rt: bool,
    /// Whether the graph may listen where other machines reach it.
    pub allow_public: bool,
    /// Where the graph's output files go instead of into its own folder.
    pub out: Option<PathBuf>,
    /// How models are tried before the graph starts.
    pub trials: Trials,
}

/// A planned graph.
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
    pub(crate) stop: Duration,
    pub(crate) start: Duration,
    pub(crate) watchdog: Duration,
    /// The part of an edge's messages that may be lost in a second without a word.
    pub(crate) drops_above: f64,
    pub(crate) warmup: Duration,
    pub(crate) telemetry: Telemetry,
    pub(crate) frames: Option<u64>,
    memory: Memory,
}

/// A node of a plan.
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// What it does in the graph.
    pub role: Role,
    /// How long a call takes, roughly.
    pub cost: Cost,
    /// Index of its worker.
    pub worker: usize,
    /// Why it runs there.
    pub why: Placement,
    /// Output ports: name, spec, slots of the pool (0 where the port has none), bytes of the pool.
    pub outputs: Vec<OutputPlan>,
    /// What the node itself says in plans.
    pub notes: Vec<String>,
    /// What nobody who runs the graph may miss.
    pub notices: Vec<String>,
    /// Whether it is a source that never ends by itself.
    pub endless: bool,
    /// How many messages it begins before it ends, where that is known.
    pub total: Option<u64>,
    /// What may be changed while it runs.
    pub settings: Vec<Setting>,
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) planned: Option<Box<dyn PlannedNode>>,
    pub(crate) in_edges: Vec<usize>,
    pub(crate) copies: Option<usize>,
    /// By input: slots and bytes of the pool of its interpolated messages; empty where none are.
    pub(crate) blends: Vec<(usize, usize)>,
    pub(crate) reached_by: Vec<usize>,
    pub(crate) blocking: bool,
    /// Threads that it starts for its calls.
    pub(crate) helpers: usize,
    /// What its stage is told.
    pub(crate) stage: StagePlan,
    /// The sources behind what it takes whose origins are not told, and the node from which on nothing tells them.
    pub(crate) untold: BTreeMap<u16, usize>,
}

/// An output port of a plan.
#[derive(Clone, Debug)]
pub struct OutputPlan {
    /// Its name.
    pub name: String,
    /// What it gives.
    pub spec: Option<PortSpec>,
    /// Slots of its pool; 0 where it has none.
    pub slots: usize,
    /// Bytes of its pool.
    pub bytes: usize,
    pub(crate) emits: usize,
    pub(crate) rows: usize,
    /// Its buffers never leave the node's thread.
    pub(crate) stays: bool,
    pub(crate) edges: Vec<usize>,
    /// The sources whose origins are kept beside each message; none where its header says it all.
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
    /// Whether it goes from one thread to another.
    pub crossing: bool,
    /// What travels.
    pub spec: Option<PortSpec>,
    pub(crate) from: usize,
    pub(crate) from_port: usize,
    pub(crate) to: usize,
    pub(crate) ty: PortType,
    pub(crate) buffer: usize,
    /// What the graph file asks of it.
    pub(crate) policy: EdgePolicy,
    /// Bytes of its largest message.
    pub(crate) largest: u64,
    /// Another input of its consumer sets the moment: what comes here and finds no partner is thinned, not lost.
    pub(crate) thins: bool,
}

impl EdgePlan {
    /// What happens when it is full.
    pub fn when_full(&self) -> WhenFull {
        self.policy.when_full
    }

    /// Whether the graph says how many messages it holds, or that is what the bytes of a message and the threads on both sides
    /// suggest.
    pub fn is_capacity_written(&self) -> bool {
        self.policy.capacity.is_some()
    }
}

/// A path whose latency has a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// The source.
    pub from: String,
    /// The sink.
    pub to: String,
    /// End-to-end latency that is still good, ns.
    pub deadline: Option<u64>,
    /// What becomes of a message that misses it.
    pub on_miss: OnMiss,
    /// The node behind which nothing tells any more when the source began a message: the path is not measured, and its
    /// deadline not judged.
    pub untold_behind: Option<String>,
}

/// Bytes the engine will take, known before anything starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Tensor pools.
    pub pools: usize,
    /// Rings and buffers of edges, and what stages keep messages in on their way from one to the next.
    pub edges: usize,
    /// What nodes take for themselves, as far as they say ([`Ports::memory`](crate::node::Ports::memory)).
    pub nodes: usize,
    /// Histograms.
    pub histograms: usize,
    /// Copies of histograms for who asks while the graph runs: one of every worker's, and what it was compared with.
    pub windows: usize,
    /// Events that wait to be read.
    pub events: usize,
    /// The most that was allowed.
    pub limit: usize,
}

impl Memory {
    /// Everything.
    pub fn total(&self) -> usize {
        let Memory { pools, edges, nodes, histograms, windows, events, limit: _ } = *self;
        [pools, edges, nodes, histograms, windows, events].into_iter().fold(0, usize::saturating_add)
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("graph", &self.graph).field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl NodePlan {
    /// What happens when a call fails.
    pub fn on_error(&self) -> OnError {
        self.stage.policy.on_error
    }

    /// What the graph file asks of it.
    pub(crate) fn policy(&self) -> &NodePolicy {
        &self.stage.policy
    }

    /// Whether messages that a call takes together may have begun at different times: those of one number of one source have not.
    pub(crate) fn has_skew(&self) -> bool {
        let takes_together = self.in_edges.len() > 1 && !self.merges();
        takes_together && (self.stage.rule.policy != JoinPolicy::Zip || self.stage.sources.len() > 1)
    }

    /// Whether a call gets a message of one input instead of one of each.
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

    /// Reads a graph file, lays over it what is to be laid over it, and plans it.
    ///
    /// # Errors
    /// Every problem. Where only values are wrong, the graph is planned with their defaults to find what else is; where nodes or
    /// connections cannot be told, what is wrong with the configs of those that can is among them all the same.
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
        if problems.0.iter().all(|problem| matches!(problem.code, "E0104" | "E0106")) {
            let others = Plan::with_options(spec, registry, options).err();
            problems.0.extend(others.into_iter().flat_map(|others| others.0));
            return Err(Spec::settle(problems));
        }
        for node in &spec.nodes {
            match registry.find(&node.kind.value, !node.inputs.is_empty()) {
                Some(kind) => kind.check(&node.config, &mut problems),
                None => problems.push(registry.unknown(&node.kind.value, &node.kind.place)),
            }
        }
        Err(Spec::settle(problems))
    }

    /// Plans a graph with what the command line asks for.
    ///
    /// # Errors
    /// Every problem of the graph.
    pub fn with_options(spec: Spec, registry: &Registry, options: &Options) -> Result<Plan, Problems> {
        let mut spec = spec;
        // Ten thousand nodes as a tree are some megabytes, and planning needs some of its own.
        spec.forget_tree();
        // Another plan of the same graph may read other files.
        spec.folders.read = spec.folders.read.detached();
        if options.out.is_some() {
            spec.folders.out.clone_from(&options.out);
        }
        Planner { spec: &spec, registry, options, problems: Problems::default(), effort: effort::Effort::new() }.plan()
    }

    /// The graph's name.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// Nodes in topological order.
    pub fn nodes(&self) -> &[NodePlan] {
        &self.nodes
    }

    /// Edges in the order of their consumers.
    pub fn edges(&self) -> &[EdgePlan] {
        &self.edges
    }

    /// Threads: one for each core that is used, then helpers.
    pub fn workers(&self) -> &[WorkerPlan] {
        &self.workers
    }

    /// Paths with a deadline.
    pub fn paths(&self) -> &[PathPlan] {
        &self.paths
    }

    /// What is worth knowing before the run.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the engine will allocate.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// The path under which the graph reads a file, by whatever name it is asked for: one of its own files, an input or a model. What a
    /// program writes beside the graph's own outputs should be none of these.
    pub fn reads(&self, path: &Path) -> Option<PathBuf> {
        self.folders.read.find(path)
    }

    /// The same of a file that is open.
    pub fn reads_open(&self, file: &impl AsFd) -> Option<PathBuf> {
        self.folders.read.find_open(file)
    }

    /// The files that the graph's nodes write, as paths without links, each with the name of its node.
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
        PlannedPorts { inputs: node.inputs.clone(), outputs }
    }
}
