//! What a graph means: kinds resolved, ports typed, shapes inferred, cores given, pools sized, memory bounded.
//!
//! Planning opens no device and starts no thread. It goes on after a problem as far as it can, and answers with every
//! problem it found. Where a node goes is [`crate::place`]'s business.

use crate::edge::WhenFull;
use crate::error::{At, Place, PlanErrors, Problem, Problems, suggest};
use crate::meter::{Telemetry, histogram_bytes};
use crate::node::{Claim, Cost, Folders, Given, MAX_PORTS, PlannedPorts, Planning, PortType};
use crate::place::{self, WorkerPlan};
use crate::pool::pool_bytes;
use crate::registry::{PlannedNode, Registry, Role};
use crate::spec::{NodeSpec, Spec};
use crate::stage::{BURST, OnError};
use crate::tensor::{Dim, PortSpec};
use crate::unit::show_bytes;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};
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
    pub(crate) stop: Duration,
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
    /// What happens when a call fails.
    pub on_error: OnError,
    /// Output ports: name, spec, slots of the pool (0 where the port has none), bytes of the pool.
    pub outputs: Vec<OutputPlan>,
    /// What the node itself says in plans.
    pub notes: Vec<String>,
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) planned: Option<Box<dyn PlannedNode>>,
    pub(crate) in_edges: Vec<usize>,
    pub(crate) copies: Option<usize>,
    pub(crate) patience: Option<usize>,
    pub(crate) reached_by: Vec<usize>,
    pub(crate) source: u16,
    pub(crate) blocking: bool,
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
    pub(crate) edges: Vec<usize>,
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
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Whether it goes from one thread to another.
    pub crossing: bool,
    /// What travels.
    pub spec: Option<PortSpec>,
    pub(crate) from: usize,
    pub(crate) from_port: usize,
    pub(crate) to: usize,
    pub(crate) ty: PortType,
    pub(crate) buffer: usize,
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
}

/// Bytes the engine will take, known before anything starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Tensor pools.
    pub pools: usize,
    /// Rings and buffers of edges.
    pub edges: usize,
    /// Histograms.
    pub histograms: usize,
    /// The most that was allowed.
    pub limit: usize,
}

impl Memory {
    /// Everything.
    pub fn total(&self) -> usize {
        self.pools.saturating_add(self.edges).saturating_add(self.histograms)
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("graph", &self.graph).field("nodes", &self.nodes.len()).finish_non_exhaustive()
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

    /// Plans a graph with what the command line asks for.
    ///
    /// # Errors
    /// Every problem of the graph.
    pub fn with_options(spec: Spec, registry: &Registry, options: &Options) -> Result<Plan, Problems> {
        Planner { spec: &spec, registry, options, problems: Problems::default() }.plan()
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

    pub(crate) fn take_planned(&mut self, node: usize) -> Option<Box<dyn PlannedNode>> {
        self.nodes[node].planned.take()
    }

    pub(crate) fn planned_ports(&self, node: usize) -> PlannedPorts {
        let node = &self.nodes[node];
        let outputs = node.outputs.iter().map(|o| (o.name.clone(), o.spec.clone())).collect();
        PlannedPorts { inputs: node.inputs.clone(), outputs }
    }
}

struct Planner<'a> {
    spec: &'a Spec,
    registry: &'a Registry,
    options: &'a Options,
    problems: Problems,
}

/// Where an input comes from: the producer's position in the order, if it exists, and its port, if that is known yet.
type Producer = (Option<usize>, Option<(usize, usize)>);

/// A connection between resolved nodes.
struct Link {
    from: usize,
    to: usize,
    input: usize,
}

impl Planner<'_> {
    fn wrong(&mut self, code: &'static str, place: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::new(code, place.clone(), message).help(help));
    }

    fn plan(mut self) -> Result<Plan, Problems> {
        let links = self.links();
        let order = self.order(&links);
        let (mut nodes, mut edges) = self.nodes(&order, &links);
        self.check_claims(&nodes);
        let run = &self.spec.run;
        let cpus = self.cpus();
        let strict = self.options.strict.unwrap_or(run.strict);
        let mut notes = Vec::new();
        let specs: Vec<&NodeSpec> = order.iter().map(|i| &self.spec.nodes[*i]).collect();
        let workers =
            place::place(&mut nodes, &edges, &specs, &self.spec.cores, &cpus, strict, &mut self.problems, &mut notes);
        self.size_edges(&mut nodes, &mut edges, &specs);
        self.share_or_copy(&mut nodes, &edges);
        self.size_pools(&mut nodes, &edges, &specs);
        let sources = self.number_sources(&mut nodes, &edges);
        let memory = self.memory(&nodes, &edges, &sources);
        self.warn(&nodes, &edges, &mut notes);
        let paths = self.paths(&nodes);
        let warmup = self.options.warmup.or(run.warmup.map(|w| w.0)).unwrap_or_default();
        let plan = Plan {
            graph: self.spec.name.clone(),
            folders: self.spec.folders.clone(),
            nodes,
            edges,
            workers,
            paths,
            notes,
            sources,
            strict,
            stop: run.stop.0,
            warmup,
            telemetry: self.options.telemetry.unwrap_or(run.telemetry),
            frames: self.options.frames,
            memory,
        };
        self.problems.into_result(plan)
    }

    fn cpus(&mut self) -> Vec<usize> {
        let allowed = crate::worker::allowed_cpus();
        let Some(asked) = &self.options.cpus else { return allowed };
        let missing: Vec<usize> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
        if asked.is_empty() || !missing.is_empty() {
            let message = format!("CPUs {missing:?} of `--cores` are not among those this process may use");
            let place = Place { line: 0, ..self.spec.place.clone() };
            self.wrong("E0140", &place, message, format!("choose from {allowed:?}"));
            return allowed;
        }
        asked.clone()
    }

    /// Every connection whose producer exists.
    fn links(&mut self) -> Vec<Link> {
        let spec = self.spec;
        let index: BTreeMap<&str, usize> = spec.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
        let mut links = Vec::new();
        for (to, node) in spec.nodes.iter().enumerate() {
            for (input, connection) in node.inputs.iter().enumerate() {
                match index.get(connection.node.as_str()) {
                    Some(from) if *from == to => {
                        let message = format!("node `{}` takes from itself", node.name);
                        self.wrong("E0121", &connection.place, message, "take from another node");
                    }
                    Some(from) => links.push(Link { from: *from, to, input }),
                    None => {
                        let help = suggest(&connection.node, index.keys().copied());
                        let message = format!("there is no node `{}`", connection.node);
                        self.wrong("E0120", &connection.place, message, help);
                    }
                }
            }
        }
        links
    }

    /// Topological order; edges that may lose messages may close a cycle. With a cycle of edges that all block, which is
    /// a problem, the order of the file, so that the nodes' own problems are found too.
    fn order(&mut self, links: &[Link]) -> Vec<usize> {
        let spec = self.spec;
        let lossy = |link: &Link| spec.nodes[link.to].inputs[link.input].when_full.value.is_lossy();
        let graph = |keep: &dyn Fn(&Link) -> bool| {
            let mut graph = DiGraph::<(), ()>::new();
            let at: Vec<NodeIndex> = spec.nodes.iter().map(|_| graph.add_node(())).collect();
            for link in links.iter().filter(|l| keep(l)) {
                graph.add_edge(at[link.from], at[link.to], ());
            }
            graph
        };
        let sorted = |graph: &DiGraph<(), ()>| {
            petgraph::algo::toposort(graph, None).ok().map(|order| order.into_iter().map(NodeIndex::index).collect())
        };
        if let Some(order) = sorted(&graph(&|_| true)) {
            return order;
        }
        let blocking = graph(&|link| !lossy(link));
        if let Some(order) = sorted(&blocking) {
            return order;
        }
        for cycle in petgraph::algo::tarjan_scc(&blocking).into_iter().filter(|c| c.len() > 1) {
            let mut members: Vec<usize> = cycle.into_iter().map(NodeIndex::index).collect();
            members.sort_unstable();
            let names: Vec<String> = members.iter().map(|i| format!("`{}`", spec.nodes[*i].name)).collect();
            let message =
                format!("{} form a cycle in which every edge blocks: it would wait for itself", names.join(", "));
            let help = "give one of its edges `when_full: latest` or `drop_oldest`";
            self.wrong("E0122", &spec.nodes[members[0]].place, message, help);
        }
        (0..spec.nodes.len()).collect()
    }

    /// Plans every node after those it takes from.
    fn nodes(&mut self, order: &[usize], links: &[Link]) -> (Vec<NodePlan>, Vec<EdgePlan>) {
        let spec = self.spec;
        let mut position = vec![0; spec.nodes.len()];
        order.iter().enumerate().for_each(|(at, node)| position[*node] = at);
        let mut nodes: Vec<NodePlan> = Vec::new();
        let mut edges: Vec<EdgePlan> = Vec::new();
        for (at, node) in order.iter().map(|i| &spec.nodes[*i]).enumerate() {
            let mut given = Given::default();
            // Producer's port of each input, as far as it is known: later producers close a cycle.
            let mut outputs = Vec::new();
            for (input, connection) in node.inputs.iter().enumerate() {
                let link = links.iter().find(|l| l.to == order[at] && l.input == input);
                let output = link.and_then(|l| nodes.get(position[l.from]).map(|n| (position[l.from], n)));
                let output = output.and_then(|(from, producer)| {
                    let port = self.output_port(producer, &connection.output, &connection.place)?;
                    Some((from, port))
                });
                let spec = output.and_then(|(from, port)| nodes[from].outputs[port].spec.clone());
                given.inputs.push((connection.port.clone().unwrap_or_else(|| "in".into()), spec));
                outputs.push((link.map(|l| position[l.from]), output));
            }
            for link in links.iter().filter(|l| l.from == order[at]) {
                let connection = &spec.nodes[link.to].inputs[link.input];
                given.outputs.extend(connection.output.clone());
            }
            let mut plan = NodePlan {
                name: node.name.clone(),
                kind: node.kind.value.clone(),
                role: Role::Sink,
                cost: Cost::Light,
                worker: 0,
                on_error: node.on_error,
                outputs: Vec::new(),
                notes: Vec::new(),
                inputs: Vec::new(),
                planned: None,
                in_edges: Vec::new(),
                copies: None,
                patience: node.join.as_ref().and_then(|j| j.value.patience),
                reached_by: Vec::new(),
                source: 0,
                blocking: false,
            };
            if let Some(planned) = self.node(node, &given) {
                self.describe(&mut plan, &*planned);
                self.connect(node, at, &mut plan, &*planned, &outputs, &nodes, &mut edges);
                plan.planned = Some(planned);
            }
            nodes.push(plan);
        }
        self.close_cycles(order, &position, links, &nodes, &mut edges);
        (nodes, edges)
    }

    /// Edges from a later node to an earlier one, whose specs were not known when the consumer was planned.
    fn close_cycles(
        &mut self,
        order: &[usize],
        position: &[usize],
        links: &[Link],
        nodes: &[NodePlan],
        edges: &mut [EdgePlan],
    ) {
        let spec = self.spec;
        for edge in edges.iter_mut().filter(|e| e.from >= e.to) {
            let consumer = &spec.nodes[order[edge.to]];
            let link = links.iter().find(|l| {
                position[l.from] == edge.from
                    && position[l.to] == edge.to
                    && edge.to_name.ends_with(&format!("/{}", consumer.inputs[l.input].port.as_deref().unwrap_or("in")))
            });
            let Some(link) = link else { continue };
            let connection = &consumer.inputs[link.input];
            let producer = &nodes[edge.from];
            if let Some(port) = self.output_port(producer, &connection.output, &connection.place) {
                edge.from_port = port;
                edge.from_name = format!("{}/{}", producer.name, producer.outputs[port].name);
                edge.spec = producer.outputs[port].spec.clone();
            }
        }
    }

    /// The port a connection names, or the only one.
    fn output_port(&mut self, producer: &NodePlan, name: &Option<String>, place: &Place) -> Option<usize> {
        // Nothing is known of a node whose own planning failed; it has its own problems.
        producer.planned.as_ref()?;
        let names = producer.outputs.iter().map(|o| o.name.as_str());
        match name {
            Some(name) => {
                let found = producer.outputs.iter().position(|o| o.name == *name);
                if found.is_none() {
                    let message = format!("node `{}` has no output `{name}`", producer.name);
                    self.wrong("E0123", place, message, suggest(name, names));
                }
                found
            }
            None if producer.outputs.len() == 1 => Some(0),
            None => {
                let (message, help) = if producer.outputs.is_empty() {
                    (
                        format!("node `{}` is a {} and has no outputs", producer.name, producer.role.name()),
                        "take from a source or a transform".to_string(),
                    )
                } else {
                    let all = names.map(|n| format!("`{}/{n}`", producer.name)).collect::<Vec<_>>().join(", ");
                    (format!("node `{}` has several outputs", producer.name), format!("write one of {all}"))
                };
                self.wrong("E0123", place, message, help);
                None
            }
        }
    }

    /// Reads a node's config and asks its kind for ports.
    fn node(&mut self, node: &NodeSpec, given: &Given) -> Option<Box<dyn PlannedNode>> {
        let Some(kind) = self.registry.find(&node.kind.value, !node.inputs.is_empty()) else {
            let help = suggest(&node.kind.value, self.registry.names());
            self.wrong("E0124", &node.kind.place, format!("there is no kind `{}`", node.kind.value), help);
            return None;
        };
        let mut cx = Planning { node: &node.name, folders: &self.spec.folders };
        match kind.plan(&node.config, given, &mut cx, &mut self.problems)? {
            Ok(planned) => Some(planned),
            Err(errors) => {
                self.field_errors(node, errors);
                None
            }
        }
    }

    fn field_errors(&mut self, node: &NodeSpec, errors: PlanErrors) {
        for error in errors.0 {
            let place = match &error.at {
                At::Node => node.place.clone(),
                At::Field(path) => node.config.locate(path),
                At::Input(port) => {
                    let input = node.inputs.iter().find(|i| i.port.as_deref().unwrap_or("in") == port);
                    input.or(node.inputs.first()).map_or(&node.place, |i| &i.place).clone()
                }
            };
            let mut problem = Problem::new("E0130", place, format!("`{}`: {}", node.name, error.message));
            problem.help = error.help;
            self.problems.push(problem);
        }
    }

    fn describe(&mut self, plan: &mut NodePlan, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        plan.cost = ports.cost;
        plan.blocking = ports.blocking;
        plan.notes = ports.notes.clone();
        plan.inputs = ports.inputs.iter().map(|i| (i.name.clone(), i.spec.clone())).collect();
        plan.outputs = ports
            .outputs
            .iter()
            .map(|o| OutputPlan {
                name: o.name.clone(),
                spec: o.spec.clone(),
                slots: 0,
                bytes: 0,
                emits: o.emits.max(1),
                rows: o.rows.max(1),
                edges: Vec::new(),
            })
            .collect();
        plan.role = match (ports.inputs.is_empty(), ports.outputs.is_empty()) {
            (true, _) => Role::Source,
            (false, true) => Role::Sink,
            _ if ports.cost == Cost::Infer => Role::Infer,
            _ => Role::Transform,
        };
    }

    /// Matches a node's connections to its ports.
    #[allow(clippy::too_many_arguments, reason = "one step of a table-driven pass over the graph")]
    fn connect(
        &mut self,
        node: &NodeSpec,
        at: usize,
        plan: &mut NodePlan,
        planned: &dyn PlannedNode,
        outputs: &[Producer],
        nodes: &[NodePlan],
        edges: &mut Vec<EdgePlan>,
    ) {
        let ports = planned.ports();
        let (input_types, output_types) = (planned.input_types(), planned.output_types());
        for (what, n, fixed) in
            [("inputs", ports.inputs.len(), planned.counts().0), ("outputs", ports.outputs.len(), planned.counts().1)]
        {
            if fixed.is_some_and(|f| f != n) || n > MAX_PORTS {
                let message = format!("kind `{}` declares {n} {what}, which its type does not have", node.kind.value);
                self.wrong(
                    "E0131",
                    &node.kind.place,
                    message,
                    format!("a node has at most {MAX_PORTS}; this is a fault of the kind"),
                );
                return;
            }
        }
        if node.inputs.is_empty() && !ports.inputs.is_empty() {
            let names = ports.inputs.iter().map(|i| format!("`{}`", i.name)).collect::<Vec<_>>().join(", ");
            let message = format!("node `{}` takes {names} and nothing is connected", node.name);
            self.wrong("E0125", &node.place, message, "write `from: node` or `inputs: { .. }`");
            return;
        }
        if ports.inputs.is_empty()
            && let Some(first) = node.inputs.first()
        {
            let message = format!("kind `{}` is a source and takes no inputs", node.kind.value);
            self.wrong("E0125", &first.place, message, "remove `from`, or choose another kind");
            return;
        }
        // Inputs in the order of the ports, because that is the order in which the node is given them.
        let mut connected: Vec<Option<usize>> = vec![None; ports.inputs.len()];
        for (i, connection) in node.inputs.iter().enumerate() {
            let name = connection.port.as_deref();
            let port = match name {
                None if ports.inputs.len() == 1 => Some(0),
                _ => ports.inputs.iter().position(|p| p.name == name.unwrap_or("in")),
            };
            let names = ports.inputs.iter().map(|p| p.name.as_str());
            match (port, name) {
                (Some(port), _) if connected[port].is_some() => {
                    let message = format!("input `{}` of `{}` is connected twice", ports.inputs[port].name, node.name);
                    self.wrong("E0126", &connection.place, message, "a port takes from one place; use a join for more");
                }
                (Some(port), _) => connected[port] = Some(i),
                (None, Some(name)) => {
                    let message = format!("node `{}` has no input `{name}`", node.name);
                    self.wrong("E0123", &connection.place, message, suggest(name, names));
                }
                (None, None) => {
                    let all = names.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
                    let message = format!("node `{}` has several inputs", node.name);
                    self.wrong("E0123", &connection.place, message, format!("name them under `inputs:`: {all}"));
                }
            }
        }
        for (port, connection) in connected.iter().enumerate() {
            let declared = &ports.inputs[port];
            let Some(i) = connection else {
                let message = format!("input `{}` of `{}` is not connected", declared.name, node.name);
                self.wrong(
                    "E0125",
                    &node.place,
                    message,
                    format!("write `inputs: {{ {}: node/port }}`", declared.name),
                );
                continue;
            };
            let connection = &node.inputs[*i];
            let (producer, output) = outputs[*i];
            let Some(producer_at) = producer else { continue };
            let later = producer_at >= at;
            let (from_port, spec, from_name) = match output {
                Some((from, from_port)) => {
                    let out = &nodes[from].outputs[from_port];
                    (from_port, out.spec.clone(), format!("{}/{}", nodes[from].name, out.name))
                }
                None if later => (0, declared.spec.clone(), connection.node.clone()),
                None => continue,
            };
            let ty = input_types[port];
            if !later {
                let given_ty = nodes[producer_at].planned.as_ref().map(|p| p.output_types()[from_port]);
                if given_ty != Some(ty) {
                    let have = given_ty.map_or("nothing", |t| t.name);
                    let message =
                        format!("`{from_name}` gives {have}, `{}/{}` takes {}", node.name, declared.name, ty.name);
                    self.wrong(
                        "E0127",
                        &connection.place,
                        message,
                        "put a node between them that turns one into the other",
                    );
                    continue;
                }
            }
            if let (Some(want), Some(have)) = (&declared.spec, &spec)
                && let Err(why) = want.accepts(have)
            {
                let message =
                    format!("`{from_name}` gives {have}, `{}/{}` takes {want}: {why}", node.name, declared.name);
                self.wrong("E0128", &connection.place, message, remedy(have, want));
                continue;
            }
            let edge = edges.len();
            plan.in_edges.push(edge);
            edges.push(EdgePlan {
                from_name,
                to_name: format!("{}/{}", node.name, declared.name),
                capacity: 0,
                when_full: connection.when_full.value,
                crossing: false,
                spec,
                from: producer_at,
                from_port,
                to: at,
                ty,
                buffer: 0,
            });
        }
        for (out, ty) in plan.outputs.iter().zip(&output_types) {
            for dim in out.spec.iter().flat_map(|s| &s.shape) {
                if let Dim::Unbounded(key) = dim {
                    let message = format!("the size of `{}/{}` has no bound", node.name, out.name);
                    self.wrong("E0129", &node.config.place, message, format!("write `{key}` in its config"));
                }
            }
            let _ = ty;
        }
    }

    fn check_claims(&mut self, nodes: &[NodePlan]) {
        let mut claimed: BTreeMap<Claim, String> = BTreeMap::new();
        for node in nodes {
            let Some(planned) = &node.planned else { continue };
            for claim in &planned.ports().claims {
                if let Some(other) = claimed.insert(claim.clone(), node.name.clone()) {
                    let what = match claim {
                        Claim::File(path) => format!("the file {}", path.display()),
                        Claim::Device(name) => format!("the device {name}"),
                    };
                    let message = format!("`{}` and `{other}` both claim {what}", node.name);
                    let place = self.spec.nodes.iter().find(|n| n.name == node.name).map(|n| n.config.place.clone());
                    let place = place.unwrap_or_else(|| self.spec.place.clone());
                    self.wrong("E0132", &place, message, "give one of them another");
                }
            }
        }
    }

    /// Capacities, and which edges cross threads.
    fn size_edges(&mut self, nodes: &mut [NodePlan], edges: &mut [EdgePlan], specs: &[&NodeSpec]) {
        for (i, edge) in edges.iter_mut().enumerate() {
            edge.crossing = nodes[edge.from].worker != nodes[edge.to].worker;
            nodes[edge.from].outputs[edge.from_port].edges.push(i);
            let emits = nodes[edge.from].outputs[edge.from_port].emits;
            let batch = nodes[edge.to].planned.as_ref().map_or(1, |p| p.batch());
            let port = edge.to_name.rsplit('/').next().unwrap_or_default();
            let inputs = &specs[edge.to].inputs;
            let written = inputs.iter().find(|c| c.port.as_deref().unwrap_or(port) == port);
            let bytes = edge.spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(64).max(1);
            // Several bursts of room where threads meet, and never more than a few MiB of default buffering.
            let (most, budget) = if edge.crossing { (4 * BURST, 16 << 20) } else { (BURST, 4 << 20) };
            let default = (budget / bytes).clamp(4, most).max(emits).max(batch);
            edge.capacity = match (edge.when_full, written.and_then(|w| w.capacity.as_ref())) {
                (WhenFull::Latest, Some(capacity)) if capacity.value != 1 => {
                    self.problems.push(
                        Problem::new(
                            "E0133",
                            capacity.place.clone(),
                            "an edge with `when_full: latest` holds one message",
                        )
                        .help("remove `capacity`, or choose `drop_oldest`"),
                    );
                    1
                }
                (WhenFull::Latest, _) => 1,
                (_, Some(capacity)) => {
                    let need = emits.max(batch);
                    if capacity.value < need {
                        let message =
                            format!("capacity {} is below the {need} messages that move at once", capacity.value);
                        self.problems.push(
                            Problem::new("E0133", capacity.place.clone(), message)
                                .help(format!("write at least {need}")),
                        );
                    }
                    capacity.value
                }
                (_, None) => default,
            };
            edge.buffer = edge.capacity + BURST * emits;
        }
        self.check_joins(nodes, edges, specs);
    }

    /// A join whose partner may be lost has to say how long it waits.
    fn check_joins(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for (at, node) in nodes.iter().enumerate() {
            if node.in_edges.len() < 2 || node.patience.is_some() {
                continue;
            }
            if let Some(edge) = node.in_edges.iter().map(|e| &edges[*e]).find(|e| e.when_full.is_lossy()) {
                let message = format!(
                    "`{}` joins its inputs, and `{}` may lose messages ({}): a partner could be waited for for ever",
                    node.name,
                    edge.from_name,
                    edge.when_full.name()
                );
                let place = &specs[at].place;
                self.wrong(
                    "E0134",
                    place,
                    message,
                    "write `join: { patience: 16 }`: after so many messages a partner counts as lost",
                );
            }
        }
    }

    /// A node that writes in place is moved its buffer where it is the only one to get it, otherwise it copies.
    fn share_or_copy(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan]) {
        for at in 0..nodes.len() {
            if !nodes[at].planned.as_ref().is_some_and(|p| p.writes()) {
                continue;
            }
            let Some(edge) = nodes[at].in_edges.first().map(|e| &edges[*e]) else { continue };
            let (mut node, mut port) = (edge.from, edge.from_port);
            let exclusive = loop {
                let out = &nodes[node].outputs[port];
                if out.edges.len() > 1 || out.rows > 1 {
                    break false;
                }
                // Follow the buffer back to the node that filled it.
                let Some(planned) = &nodes[node].planned else { break true };
                let Some(input) = &planned.ports().outputs[port].forwards else { break true };
                if planned.writes() {
                    // That node has an exclusive buffer or a copy of its own.
                    break true;
                }
                let input = planned.ports().inputs.iter().position(|i| i.name == *input);
                let Some(up) = input.and_then(|i| nodes[node].in_edges.get(i)).map(|e| &edges[*e]) else { break true };
                (node, port) = (up.from, up.from_port);
            };
            if !exclusive {
                nodes[at].copies = Some(0);
                nodes[at].notes.push("copies its input, because others hold the buffer too".into());
            }
        }
    }

    /// Slots are what every place that can hold a buffer holds at most, until a node fills a new one.
    fn size_pools(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for at in 0..nodes.len() {
            for port in 0..nodes[at].outputs.len() {
                let forwards = nodes[at].planned.as_ref().is_some_and(|p| p.ports().outputs[port].forwards.is_some());
                let copies = nodes[at].copies.is_some();
                let out = &nodes[at].outputs[port];
                let Some(spec) = out.spec.clone().filter(|_| !forwards || copies) else { continue };
                if out.edges.is_empty() && !forwards {
                    // Nothing takes from it; a node may still fill one message and send it nowhere.
                    self.set_pool(nodes, at, port, out.emits.div_ceil(out.rows) + 1, &spec, specs);
                    continue;
                }
                let messages = reach(nodes, edges, at, port) + out.emits;
                let slots = if out.rows > 1 { messages.div_ceil(out.rows) + 2 } else { messages + 1 };
                if forwards {
                    nodes[at].copies = Some(slots);
                }
                self.set_pool(nodes, at, port, slots, &spec, specs);
            }
        }
    }

    fn set_pool(
        &mut self,
        nodes: &mut [NodePlan],
        at: usize,
        port: usize,
        slots: usize,
        spec: &PortSpec,
        specs: &[&NodeSpec],
    ) {
        let out = &mut nodes[at].outputs[port];
        let dynamic = spec.shape.iter().filter(|d| matches!(d, Dim::AtMost(_))).count();
        match pool_bytes(spec, slots, out.rows) {
            Some(bytes) if dynamic <= crate::pool::MAX_DYNAMIC && spec.shape.len() <= crate::tensor::MAX_RANK => {
                (out.slots, out.bytes) = (slots, bytes);
            }
            _ => {
                let place = specs[at].config.place.clone();
                let message =
                    format!("{slots} slots of {spec} for `{}/{}` cannot be allocated", specs[at].name, out.name);
                self.wrong("E0135", &place, message, "bind every dim, use at most 6 dims and smaller ones");
            }
        }
    }

    /// Numbers the sources and finds which of them reach which node.
    fn number_sources(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan]) -> Vec<usize> {
        let sources: Vec<usize> = (0..nodes.len())
            .filter(|i| nodes[*i].planned.as_ref().is_some_and(|p| p.ports().inputs.is_empty()))
            .collect();
        for (number, source) in sources.iter().enumerate() {
            nodes[*source].source = number as u16;
            let mut seen = BTreeSet::from([*source]);
            let mut todo = vec![*source];
            while let Some(at) = todo.pop() {
                for edge in edges.iter().filter(|e| e.from == at) {
                    if seen.insert(edge.to) {
                        todo.push(edge.to);
                    }
                }
            }
            seen.into_iter().for_each(|at| nodes[at].reached_by.push(number));
        }
        sources
    }

    fn memory(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], sources: &[usize]) -> Memory {
        let pools = nodes.iter().flat_map(|n| &n.outputs).fold(0usize, |sum, o| sum.saturating_add(o.bytes));
        let message = |e: &EdgePlan| if e.spec.is_some() { 16usize } else { 112 };
        let edge_bytes = edges.iter().fold(0usize, |sum, e| {
            // A ring, or two swapped buffers and the stages' own; stamps beside them.
            let each = if e.crossing { e.capacity } else { 2 * e.buffer } + e.buffer;
            sum.saturating_add(each.saturating_mul(message(e) + 24))
        });
        let hop = histogram_bytes(2);
        let path = histogram_bytes(3);
        let mut histograms = 0usize;
        for node in nodes {
            histograms = histograms.saturating_add(4 * hop);
            if node.outputs.is_empty() {
                histograms = histograms.saturating_add(node.reached_by.len() * path);
            }
        }
        let _ = sources;
        let limit = self.spec.run.max_memory.map_or_else(default_memory, |b| b.0 as usize);
        let memory = Memory { pools, edges: edge_bytes, histograms, limit };
        if memory.total() > limit {
            let mut largest: Vec<(usize, String)> = nodes
                .iter()
                .flat_map(|n| n.outputs.iter().map(|o| (o.bytes, format!("{}/{}", n.name, o.name))))
                .collect();
            largest.sort();
            let largest =
                largest.pop().map(|(b, n)| format!("; the largest pool is `{n}` with {}", show_bytes(b as u64)));
            let message = format!(
                "the plan takes {} and may take {}{}",
                show_bytes(memory.total() as u64),
                show_bytes(limit as u64),
                largest.unwrap_or_default()
            );
            let place = Place { line: 0, ..self.spec.place.clone() };
            self.wrong("E0136", &place, message, "lower capacities and sizes, or raise `run.max_memory`");
        }
        memory
    }

    /// A live source that a slow node can hold up.
    fn warn(&self, nodes: &[NodePlan], edges: &[EdgePlan], notes: &mut Vec<String>) {
        for (at, node) in nodes.iter().enumerate() {
            if !node.planned.as_ref().is_some_and(|p| p.ports().live) {
                continue;
            }
            let mut seen = BTreeSet::from([at]);
            let mut todo = vec![at];
            while let Some(from) = todo.pop() {
                for edge in edges.iter().filter(|e| e.from == from && e.when_full == WhenFull::Block) {
                    if seen.insert(edge.to) {
                        todo.push(edge.to);
                    }
                }
            }
            if let Some(slow) = seen.iter().map(|i| &nodes[*i]).find(|n| n.cost == Cost::Infer) {
                notes.push(format!(
                    "`{}` is live, and every edge from it to `{}` blocks: when `{1}` is slow, `{0}` waits; \
                     `when_full: latest` on one of them keeps it fresh",
                    node.name, slow.name
                ));
            }
        }
    }

    fn paths(&mut self, nodes: &[NodePlan]) -> Vec<PathPlan> {
        let spec = self.spec;
        let mut paths = Vec::new();
        for path in &spec.paths {
            let mut ok = true;
            for name in [&path.from, &path.to] {
                if !spec.nodes.iter().any(|n| n.name == *name) {
                    let help = suggest(name, spec.nodes.iter().map(|n| n.name.as_str()));
                    self.wrong("E0120", &path.place, format!("there is no node `{name}`"), help);
                    ok = false;
                }
            }
            let find = |name: &str| nodes.iter().find(|n| n.name == name);
            if let (true, Some(from), Some(to)) = (ok, find(&path.from), find(&path.to))
                && from.planned.is_some()
                && to.planned.is_some()
                && (from.role != Role::Source
                    || to.role != Role::Sink
                    || !to.reached_by.contains(&usize::from(from.source)))
            {
                let message = format!("`{}` to `{}` is not a path from a source to a sink", path.from, path.to);
                self.wrong("E0137", &path.place, message, "name a source and a sink that its messages reach");
            }
            paths.push(PathPlan {
                from: path.from.clone(),
                to: path.to.clone(),
                deadline: path.deadline.map(crate::unit::Span::as_nanos),
            });
        }
        paths
    }
}

/// The most messages of one output that can be alive at once, following the buffer through nodes that forward it.
fn reach(nodes: &[NodePlan], edges: &[EdgePlan], node: usize, port: usize) -> usize {
    let mut total = 0usize;
    let mut seen = BTreeSet::new();
    let mut todo = vec![(node, port)];
    while let Some((node, port)) = todo.pop() {
        if !seen.insert((node, port)) {
            continue;
        }
        for edge in nodes[node].outputs[port].edges.iter().map(|e| &edges[*e]) {
            let Some(planned) = &nodes[edge.to].planned else { continue };
            let ports = planned.ports();
            let at = nodes[edge.to].in_edges.iter().position(|e| std::ptr::eq(&edges[*e], edge)).unwrap_or(0);
            let input = &ports.inputs[at.min(ports.inputs.len() - 1)];
            // In the edge, in the consumer's hands for a turn, and whatever the consumer keeps.
            total = total.saturating_add(edge.capacity + BURST.min(edge.capacity) + input.holds + 1);
            if nodes[edge.to].copies.is_some() {
                continue;
            }
            for (out, declared) in ports.outputs.iter().enumerate() {
                if declared.forwards.as_deref() == Some(&input.name) {
                    todo.push((edge.to, out));
                }
            }
        }
    }
    total
}

/// What to put between two ports that do not fit.
fn remedy(have: &PortSpec, want: &PortSpec) -> String {
    use crate::tensor::DType;
    if have.dtype == DType::U8 && have.shape.len() == 3 && want.dtype != DType::U8 {
        "put a `to_tensor` node between them (and `resize` before it where the sizes differ)".into()
    } else if have.dtype != want.dtype {
        format!("put a `cast` node with `dtype: {}` between them", want.dtype)
    } else if have.shape.len() == want.shape.len() {
        "change the size where it is made, or put a `resize` node between them".into()
    } else {
        "put a node between them that changes the shape".into()
    }
}

/// 80 % of what the control group or the machine has.
fn default_memory() -> usize {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse::<usize>().ok());
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()?.checked_mul(1024)
    });
    match (group, machine) {
        (Some(a), Some(b)) => a.min(b) / 10 * 8,
        (Some(a), None) | (None, Some(a)) => a / 10 * 8,
        (None, None) => usize::MAX,
    }
}
