//! Turns a spec into a plan, or into every problem found.

use super::connection::largest;
use super::effort::Effort;
use super::lineage::follow;
use super::path::rules;
use super::transfer::Transfers;
use super::unpaced::note_times;
use super::{EdgePlan, NodePlan, Options, Plan};
use crate::base::deprecation::Deprecation;
use crate::base::error::{Escaped, Place, Problem, Problems, suggest};
use crate::base::policy::{OnError, OnMiss, Schedule, WhenFull};
use crate::exec::planned::StagePlan;
use crate::exec::stage::BySource;
use crate::file::spec::{Doubt, NodeSpec, Spec};
use crate::host::files::MemoryFiles;
use crate::host::folders::Folders;
use crate::message::MAX_PORTS;
use crate::message::port_spec::Dim;
use crate::node::planning::Connected;
use crate::node::ports::Cost;
use crate::plan::kind::Role;
use crate::plan::place::{self, Placement, WorkerPlan};
use crate::plan::registry::Registry;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{HashMap, HashSet};

pub(super) struct Planner<'a> {
    pub(super) spec: &'a Spec,
    pub(super) registry: &'a Registry,
    pub(super) options: &'a Options,
    pub(super) problems: Problems,
    /// The steps left for traversals.
    pub(super) effort: Effort,
    /// The files in memory that nodes opened, and whether only models did.
    pub(super) opened: HashMap<String, bool>,
    /// The nodes whose messages are on a device, and the copies that were inserted for them.
    pub(super) transfers: Transfers,
}

/// The producer of an input: its position in the order, if it exists, and its node and port, if
/// already known.
pub(super) type Producer = (Option<usize>, Option<(usize, usize)>);

/// A message's header stores the number of its source in two bytes; the last number is
/// [`Header::NO_SOURCE`](crate::message::Header::NO_SOURCE).
const MAX_SOURCES: usize = (1 << 16) - 1;

/// A connection between resolved nodes.
struct Link {
    from: usize,
    to: usize,
    input: usize,
}

/// Sets the parameters of stages that depend on the finished plan.
fn settle_stages(nodes: &mut [NodePlan], edges: &[EdgePlan], workers: &[WorkerPlan]) {
    for node in nodes {
        node.stage.joins = node.has_skew();
        node.stage.buffer = node.in_edges.iter().map(|edge| edges[*edge].buffer).max().unwrap_or(0);
        let mut out = node.outputs.iter().flat_map(|out| &out.edges);
        node.stage.refuses = out.any(|edge| edges[*edge].policy.when_full == WhenFull::Fail);
        if workers[node.worker].schedule != Schedule::Deadline {
            node.stage.urgency = BySource::default();
        }
    }
}

impl Planner<'_> {
    pub(super) fn problem(
        &mut self,
        code: &'static str,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.push(Problem::new(code, place.clone(), message).help(help));
    }

    /// Describes a deprecated key, and how to rename it if it is in a file.
    fn notice(&self, found: &Deprecation) -> String {
        let migrate = format!(" or run `limen-run migrate {}`", Escaped(&self.spec.file));
        format!("uses {found}{}", if found.place.line > 0 { &migrate } else { "" })
    }

    /// Returns the files in memory that a run may need. A planned model holds everything that it
    /// read; other nodes read again when they are built or restarted.
    pub(super) fn kept_files(&self) -> MemoryFiles {
        self.spec.folders.memory.only(|name| self.opened.get(name) != Some(&true))
    }

    pub(super) fn plan(mut self) -> Result<Plan, Problems> {
        let links = self.links();
        let order = self.order(&links);
        let (mut nodes, mut edges) = self.nodes(&order, &links);
        let sources = nodes.iter().filter(|node| node.role == Role::Source).count();
        if sources > MAX_SOURCES {
            let message = format!("the graph must have at most {MAX_SOURCES} sources, got {sources}");
            let place = Place { line: 0, ..self.spec.place.clone() };
            self.problem("E0158", &place, message, "merge sources, or split the graph");
            return Err(self.problems);
        }
        self.check_claims(&nodes);
        self.check_expectations(&nodes);
        let specs: Vec<&NodeSpec> = order.iter().map(|i| &self.spec.nodes[*i]).collect();
        let run = &self.spec.run;
        let cpus = self.cpus();
        let strict = self.options.strict.unwrap_or(run.strict);
        let mut notes = Vec::new();
        let mut workers =
            place::place(&mut nodes, &edges, &specs, &self.spec.cores, &cpus, strict, &mut self.problems, &mut notes);
        self.check_real_time(&nodes, &mut workers, &cpus, strict, &mut notes);
        self.size_edges(&mut nodes, &mut edges, &specs);
        let whole = self.whole(&nodes, &edges, &specs);
        self.share_or_copy(&mut nodes, &edges);
        let sources = self.number_sources(&mut nodes, &edges);
        self.check_source_keys(&nodes, &specs);
        // Where a path drops late messages is known only when the edges are sized.
        let drops_late = self.spec.paths.iter().any(|path| path.on_miss != OnMiss::Count);
        if !drops_late {
            Self::clear_patience(&mut nodes, &edges);
        }
        Self::cover_patience(&nodes, &mut edges);
        self.choose_streams(&mut nodes, &edges, &specs, &whole);
        let all_sources = nodes.iter().filter(|node| node.role == Role::Source);
        let measured: HashSet<&str> = self.spec.paths.iter().map(|path| path.from.as_str()).collect();
        let wanted = all_sources.filter(|node| measured.contains(node.name.as_str()));
        let wanted = wanted.map(|node| node.stage.source).collect();
        follow(&mut nodes, &edges, &wanted, &self.effort);
        self.size_pools(&mut nodes, &edges, &specs);
        self.size_blends(&mut nodes, &edges, &specs);
        let memory = self.memory(&nodes, &edges);
        Self::note_untaken(&nodes, &mut notes);
        self.warn(&nodes, &edges, &mut notes);
        self.note_shared_threads(&nodes, &edges, &mut notes);
        self.note_latest(&mut nodes, &edges);
        self.check_public(&nodes, &specs);
        for node in &nodes {
            notes.extend(node.notices.iter().map(|notice| format!("`{}` {notice}", node.name)));
        }
        let paths = self.paths(&nodes, &edges, &whole);
        self.check_criticality(&paths, &nodes, &edges, &mut notes);
        for path in &paths {
            if let Some(node) = &path.untracked_behind {
                notes.push(format!(
                    "the path from `{}` to `{}` is not judged: messages from `{node}` do not carry the origin of `{}`",
                    path.from, path.to, path.from
                ));
            }
        }
        // Must precede `check_joins`: dropping late messages is one of the losses that a join has
        // to survive.
        rules(&mut nodes, &edges, &paths, &self.effort);
        self.note_budgets(&nodes, &workers, &mut notes);
        self.check_waits(&nodes, &edges, &whole, &mut notes);
        self.check_rates(&nodes, &edges, &specs, &whole, &mut notes);
        self.check_arrivals(&nodes, &edges, &specs, &whole);
        note_times(&nodes, &edges, &paths, &mut notes);
        Self::note_copies(&nodes, &specs, &mut notes);
        self.check_gathers(&nodes, &edges, &specs, &whole);
        let is_too_wide = self.effort.is_spent();
        if drops_late {
            Self::clear_patience(&mut nodes, &edges);
        }
        self.check_patience(&mut nodes, &edges, &specs);
        self.check_joins(&nodes, &edges, &specs, &whole);
        self.check_effort(is_too_wide);
        settle_stages(&mut nodes, &edges, &workers);
        let warmup = self.options.warmup.or(run.warmup.map(|w| w.0)).unwrap_or_default();
        let plan = Plan {
            graph: self.spec.name.clone(),
            folders: Folders { memory: self.kept_files(), ..self.spec.folders.clone() },
            nodes,
            edges,
            workers,
            paths,
            notes,
            sources,
            strict,
            mlock: run.mlock,
            monitor: run.monitor,
            stop: run.stop.0,
            start: run.start.0,
            watchdog: run.watchdog.0,
            drops_above: run.drops_above.0,
            warmup,
            telemetry: self.options.telemetry.unwrap_or(run.telemetry),
            spans: self.options.spans,
            frames: self.options.frames,
            memory,
        };
        self.problems.into_result(plan)
    }

    /// Returns of each node whether it and everything upstream is known: with a node or a
    /// connection missing, checks of more than one node would mislead.
    fn whole(&self, nodes: &[NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) -> Vec<bool> {
        let is_read = self.spec.doubt == Doubt::None;
        let is_known = |(node, spec): (&NodePlan, &&NodeSpec)| {
            is_read && !spec.in_doubt && node.planned.is_some() && node.in_edges.len() == spec.inputs.len()
        };
        let mut whole: Vec<bool> = std::iter::zip(nodes, specs).map(is_known).collect();
        let mut broken: Vec<usize> = (0..nodes.len()).filter(|at| !whole[*at]).collect();
        while let Some(at) = broken.pop() {
            for edge in nodes[at].outputs.iter().flat_map(|out| &out.edges) {
                if std::mem::replace(&mut whole[edges[*edge].to], false) {
                    broken.push(edges[*edge].to);
                }
            }
        }
        whole
    }

    /// Refuses a graph that could not be checked to the end. `is_too_wide`: the limit was reached
    /// before the joins were checked.
    fn check_effort(&mut self, is_too_wide: bool) {
        if !self.effort.is_spent() {
            return;
        }
        let message = "the graph has more dependencies between nodes than limen can check";
        let place = Place { line: 0, ..self.spec.place.clone() };
        let help = if is_too_wide {
            "connect fewer nodes to many sources, or split the graph and connect the parts by `udp` or `tcp`"
        } else {
            "write `join: { patience: 16 }` at nodes with several inputs"
        };
        self.problem("E0169", &place, message, help);
    }

    fn cpus(&mut self) -> Vec<usize> {
        let allowed = crate::host::cpu::allowed_cpus();
        let Some(asked) = &self.options.cpus else { return allowed };
        let missing: Vec<usize> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
        if asked.is_empty() || !missing.is_empty() {
            let message = format!("`--cores` must name CPUs of {allowed:?}, got {missing:?}");
            let place = Place { line: 0, ..self.spec.place.clone() };
            let first = allowed.first().copied().unwrap_or_default();
            self.problem("E0140", &place, message, format!("write `--cores {first}`"));
            return allowed;
        }
        asked.clone()
    }

    /// Returns every connection whose producer exists.
    fn links(&mut self) -> Vec<Link> {
        let spec = self.spec;
        let index: HashMap<&str, usize> = spec.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
        let mut links = Vec::new();
        for (to, node) in spec.nodes.iter().enumerate() {
            for (input, connection) in node.inputs.iter().enumerate() {
                match index.get(connection.node.as_str()) {
                    Some(from) if *from == to => {
                        let message = format!("node `{}` lists itself as an input", node.name);
                        self.problem("E0121", &connection.place, message, "connect another node");
                    }
                    Some(from) => links.push(Link { from: *from, to, input }),
                    None if spec.doubt == Doubt::Nodes => {}
                    None => {
                        let parted = connection.node.rsplit_once('.').filter(|(node, _)| index.contains_key(node));
                        let help = match parted {
                            Some((node, port)) if connection.output.is_none() => format!("write `{node}/{port}`"),
                            _ => suggest(&connection.node, spec.nodes.iter().map(|node| node.name.as_str())),
                        };
                        let message = format!("unknown node `{}`", connection.node);
                        self.problem("E0120", &connection.place, message, help);
                    }
                }
            }
        }
        links
    }

    /// Returns a topological order; lossy edges may close cycles. A cycle of blocking edges is a
    /// problem; the order is then that of the file, so that the nodes' own problems are found too.
    fn order(&mut self, links: &[Link]) -> Vec<usize> {
        let spec = self.spec;
        let lossy = |link: &Link| spec.nodes[link.to].inputs[link.input].policy.when_full.is_lossy();
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
        // Only lossy edges that close a cycle may lead back: the type of other messages is known
        // when their consumer is planned.
        let mut cycle_of = vec![0; spec.nodes.len()];
        let cycles = petgraph::algo::kosaraju_scc(&graph(&|_| true));
        cycles
            .iter()
            .enumerate()
            .for_each(|(cycle, nodes)| nodes.iter().for_each(|node| cycle_of[node.index()] = cycle));
        let blocking = graph(&|link| !lossy(link) || cycle_of[link.from] != cycle_of[link.to]);
        if let Some(order) = sorted(&blocking) {
            return order;
        }
        for cycle in petgraph::algo::kosaraju_scc(&blocking).into_iter().filter(|c| c.len() > 1) {
            let mut members: Vec<usize> = cycle.into_iter().map(NodeIndex::index).collect();
            members.sort_unstable();
            let names: Vec<String> = members.iter().map(|i| format!("`{}`", spec.nodes[*i].name)).collect();
            let message = format!("{} form a cycle of blocking edges, which would deadlock", names.join(", "));
            let help = "write `when_full: latest` at one edge of the cycle";
            self.problem("E0122", &spec.nodes[members[0]].place, message, help);
        }
        (0..spec.nodes.len()).collect()
    }

    /// Plans every node after those it takes from.
    fn nodes(&mut self, order: &[usize], links: &[Link]) -> (Vec<NodePlan>, Vec<EdgePlan>) {
        let spec = self.spec;
        let mut position = vec![0; spec.nodes.len()];
        order.iter().enumerate().for_each(|(at, node)| position[*node] = at);
        let (mut into, mut out_of) = (vec![Vec::new(); spec.nodes.len()], vec![Vec::new(); spec.nodes.len()]);
        for link in links {
            into[link.to].push(link);
            out_of[link.from].push(link);
        }
        let mut nodes: Vec<NodePlan> = Vec::new();
        let mut edges: Vec<EdgePlan> = Vec::new();
        // The nodes of whose outputs nothing may be known because of a problem that is reported.
        let mut in_doubt: Vec<bool> = Vec::new();
        for (at, node) in order.iter().map(|i| &spec.nodes[*i]).enumerate() {
            let on_device = self.transfers.is_resident(&node.name);
            let mut given = Connected { on_device, ..Connected::default() };
            // The inputs of which nothing is known because of a problem that is reported.
            let mut unknown = Vec::new();
            // The producer's port of each input, as far as known: a producer that comes later
            // closes a cycle.
            let mut outputs = Vec::new();
            // Both are in the order of the file.
            let mut links = into[order[at]].iter().peekable();
            for (input, connection) in node.inputs.iter().enumerate() {
                let link = links.next_if(|link| link.input == input);
                let output = link.and_then(|l| nodes.get(position[l.from]).map(|n| (position[l.from], n)));
                let output = output.and_then(|(from, producer)| {
                    let port = self.output_port(producer, &connection.output, &connection.place)?;
                    Some((from, port))
                });
                let spec = output.and_then(|(from, port)| nodes[from].outputs[port].spec.clone());
                let is_later = link.is_some_and(|l| position[l.from] >= at);
                unknown.push(match (&output, &spec) {
                    (None, _) => !is_later,
                    (Some((from, _)), None) => in_doubt[*from],
                    (_, Some(spec)) => spec.shape.iter().any(|dim| matches!(dim, Dim::Unbounded(_))),
                });
                given.inputs.push((connection.port.clone().unwrap_or_else(|| "in".into()), spec));
                outputs.push((link.map(|l| position[l.from]), output));
            }
            for link in &out_of[order[at]] {
                let connection = &spec.nodes[link.to].inputs[link.input];
                // An output that several connections share is there once.
                given.outputs.extend(connection.output.clone().filter(|port| !given.outputs.contains(port)));
            }
            let mut plan = NodePlan {
                name: node.name.clone(),
                kind: node.kind.value.clone(),
                role: Role::Sink,
                cost: Cost::Light,
                worker: 0,
                why: Placement::First,
                outputs: Vec::new(),
                inserted: self.transfers.inserted.get(&node.name).cloned(),
                notes: Vec::new(),
                notices: node.deprecations.iter().map(|found| self.notice(found)).collect(),
                endless: false,
                paced: false,
                total: None,
                settings: Vec::new(),
                inputs: Vec::new(),
                planned: None,
                in_edges: Vec::new(),
                copies: None,
                blends: Vec::new(),
                reached_by: Vec::new(),
                blocking: false,
                helpers: 0,
                worker_host: None,
                stage: StagePlan {
                    policy: node.policy.clone(),
                    config: (node.policy.on_error == OnError::Restart).then(|| node.config.clone()),
                    ..StagePlan::default()
                },
                untracked: HashMap::new(),
            };
            if let Some(planned) = self.node(node, &given, &unknown) {
                self.describe(&mut plan, &*planned);
                self.inject_faults(node, &mut plan);
                self.check_restart(node, &*planned);
                self.join(node, &mut plan, planned.merges(), &unknown);
                self.connect(node, at, &mut plan, &*planned, &outputs, &nodes, &mut edges);
                self.note_interpolated(node, &mut plan, &edges);
                plan.planned = Some(planned);
            }
            in_doubt.push(plan.planned.is_none() || unknown.contains(&true));
            nodes.push(plan);
        }
        self.close_cycles(&position, links, &mut nodes, &mut edges);
        (nodes, edges)
    }

    /// Completes edges from a later node to an earlier one, whose producers were not known when the
    /// consumer was planned. Removes those without an output port or with a type that does not fit.
    fn close_cycles(&mut self, position: &[usize], links: &[Link], nodes: &mut [NodePlan], edges: &mut Vec<EdgePlan>) {
        let spec = self.spec;
        if edges.iter().all(|edge| edge.from < edge.to) {
            return;
        }
        let input = |link: &Link| &spec.nodes[link.to].inputs[link.input];
        let port = |link: &Link| input(link).port.as_deref().unwrap_or("in");
        let by_ports: HashMap<(usize, usize, &str), &Link> =
            links.iter().map(|link| ((position[link.from], position[link.to], port(link)), link)).collect();
        let only: HashMap<(usize, usize), &Link> =
            links.iter().map(|link| ((position[link.from], position[link.to]), link)).collect();
        let mut keeps = vec![true; edges.len()];
        for (at, edge) in edges.iter_mut().enumerate().filter(|(_, edge)| edge.from >= edge.to) {
            let consumer = &nodes[edge.to];
            let name = edge.to_name.rsplit('/').next().unwrap_or_default();
            // `from:` means the only input, whatever its name.
            let link = by_ports.get(&(edge.from, edge.to, name)).or_else(|| only.get(&(edge.from, edge.to)));
            let Some(connection) = link.map(|link| input(link)) else { continue };
            let producer = &nodes[edge.from];
            keeps[at] = false;
            let Some(port) = self.output_port(producer, &connection.output, &connection.place) else { continue };
            let given = producer.planned.as_ref().and_then(|planned| planned.output_types().get(port).copied());
            edge.from_port = port;
            edge.from_name = format!("{}/{}", producer.name, producer.outputs[port].name);
            edge.spec = producer.outputs[port].spec.clone();
            edge.largest = largest(edge.spec.as_ref());
            let want = consumer.inputs.iter().find(|(input, _)| input == name).and_then(|(_, want)| want.as_ref());
            keeps[at] = self.fits(edge, given, want, &connection.place);
        }
        let mut moved = Vec::with_capacity(keeps.len());
        let mut left = 0;
        for keep in &keeps {
            moved.push(left);
            left += usize::from(*keep);
        }
        for node in nodes.iter_mut() {
            node.in_edges = node.in_edges.iter().filter(|edge| keeps[**edge]).map(|edge| moved[*edge]).collect();
        }
        let mut keeps = keeps.into_iter();
        edges.retain(|_| keeps.next().unwrap_or(true));
    }

    /// Returns the port that a connection names, or the only one.
    fn output_port(&mut self, producer: &NodePlan, name: &Option<String>, place: &Place) -> Option<usize> {
        // A node whose own planning failed has its own problems.
        let planned = producer.planned.as_ref()?;
        let names = producer.outputs.iter().map(|o| o.name.as_str());
        match name {
            Some(name) => {
                let found = producer.outputs.iter().position(|o| o.name == *name);
                if found.is_none() {
                    let mut left_out = planned.ports().left_out.iter();
                    let why =
                        left_out.find(|(other, _)| other == name).map_or(String::new(), |(_, why)| format!(": {why}"));
                    let message = format!("node `{}` has no output `{name}`{why}", producer.name);
                    self.problem("E0123", place, message, suggest(name, names));
                }
                found
            }
            None if producer.outputs.len() == 1 => Some(0),
            None => {
                let (message, help) = if producer.outputs.is_empty() {
                    (
                        format!("node `{}` is a {} and has no outputs", producer.name, producer.role.name()),
                        "connect a source or a transform".to_string(),
                    )
                } else {
                    let all = names
                        .take(MAX_PORTS)
                        .map(|n| format!("`{}/{n}`", producer.name))
                        .collect::<Vec<_>>()
                        .join(", ");
                    let n = producer.outputs.len();
                    let message = format!("expected one output of `{}`, found {n}", producer.name);
                    (message, format!("write one of {all}"))
                };
                self.problem("E0123", place, message, help);
                None
            }
        }
    }
}
