//! The pass over a spec that makes a plan, or every problem.

use super::connection::largest;
use super::effort::Effort;
use super::lineage::follow;
use super::path::rules;
use super::{EdgePlan, NodePlan, Options, OutputPlan, Plan};
use crate::base::error::{At, Place, PlanErrors, Problem, Problems, suggest};
use crate::base::policy::{ClockOffset, JoinPolicy, JoinSpec, OnError, Pick, Schedule, WhenFull};
use crate::base::unit::Span;
use crate::exec::planned::{PlannedNode, StagePlan};
use crate::exec::stage::BySource;
use crate::file::spec::{NodeSpec, Spec};
use crate::message::MAX_PORTS;
use crate::message::tensor::{DType, PortSpec};
use crate::node::intake::JoinRule;
use crate::node::planning::{Connected, Planning};
use crate::node::ports::{Claim, Cost};
use crate::plan::place::{self, Placement, WorkerPlan};
use crate::plan::registry::{Registry, Role};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Planner<'a> {
    pub(super) spec: &'a Spec,
    pub(super) registry: &'a Registry,
    pub(super) options: &'a Options,
    pub(super) problems: Problems,
    /// What may still be followed from node to node.
    pub(super) effort: Effort,
}

/// Where an input comes from: the producer's position in the order, if it exists, and its port, if that is known yet.
pub(super) type Producer = (Option<usize>, Option<(usize, usize)>);

/// A message's header has two bytes for the number of its source.
const MAX_SOURCES: usize = 1 << 16;

/// A connection between resolved nodes.
struct Link {
    from: usize,
    to: usize,
    input: usize,
}

/// What stages are told of what is around them, once all of that is known.
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
    pub(super) fn wrong(
        &mut self,
        code: &'static str,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.push(Problem::new(code, place.clone(), message).help(help));
    }

    pub(super) fn plan(mut self) -> Result<Plan, Problems> {
        let links = self.links();
        let order = self.order(&links);
        let (mut nodes, mut edges) = self.nodes(&order, &links);
        let sources = nodes.iter().filter(|node| node.role == Role::Source).count();
        if sources > MAX_SOURCES {
            let message = format!("the graph has {sources} sources, and may have {MAX_SOURCES}");
            let place = Place { line: 0, ..self.spec.place.clone() };
            self.wrong("E0158", &place, message, "let one source send what several do, or run several graphs");
            return Err(self.problems);
        }
        self.check_claims(&nodes);
        self.check_expectations(&nodes);
        // Where a node or a connection is missing, nothing can be said of what the graph comes to as a whole.
        let connections: usize = self.spec.nodes.iter().map(|node| node.inputs.len()).sum();
        let is_whole = edges.len() == connections && nodes.iter().all(|node| node.planned.is_some());
        let run = &self.spec.run;
        let cpus = self.cpus();
        let strict = self.options.strict.unwrap_or(run.strict);
        let mut notes = Vec::new();
        let specs: Vec<&NodeSpec> = order.iter().map(|i| &self.spec.nodes[*i]).collect();
        let mut workers =
            place::place(&mut nodes, &edges, &specs, &self.spec.cores, &cpus, strict, &mut self.problems, &mut notes);
        self.check_real_time(&nodes, &mut workers, &cpus, strict, &mut notes);
        self.size_edges(&mut nodes, &mut edges, &specs);
        self.share_or_copy(&mut nodes, &edges);
        let sources = self.number_sources(&mut nodes, &edges);
        let wanted = nodes.iter().filter(|node| node.role == Role::Source);
        let asked: BTreeSet<&str> = self.spec.paths.iter().map(|path| path.from.as_str()).collect();
        let wanted = wanted.filter(|node| asked.contains(node.name.as_str()));
        let wanted = wanted.map(|node| node.stage.source).collect();
        follow(&mut nodes, &edges, &wanted, &self.effort);
        self.size_pools(&mut nodes, &edges, &specs);
        self.size_blends(&mut nodes, &edges, &specs);
        let memory = self.memory(&nodes, &edges);
        self.warn(&nodes, &edges, &mut notes);
        self.note_latest(&mut nodes, &edges);
        self.check_public(&nodes, &specs);
        for node in &nodes {
            notes.extend(node.notices.iter().map(|notice| format!("`{}` {notice}", node.name)));
        }
        let paths = self.paths(&nodes, is_whole);
        for path in &paths {
            if let Some(node) = &path.untold_behind {
                notes.push(format!(
                    "the path `{}` to `{}` is not judged: what `{node}` sends does not tell when `{}` began it",
                    path.from, path.to, path.from
                ));
            }
        }
        // What a deadline makes nodes give up is one of the losses that a join is held against.
        rules(&mut nodes, &edges, &paths, &self.effort);
        self.note_budgets(&nodes, &workers, &mut notes);
        if is_whole {
            self.check_waits(&nodes, &edges, &mut notes);
            self.check_rates(&nodes, &edges, &specs, &mut notes);
            self.check_gathers(&nodes, &edges, &specs);
        }
        let is_too_wide = self.effort.is_spent();
        if is_whole {
            self.check_joins(&nodes, &edges, &specs);
        }
        if self.effort.is_spent() {
            let message = "its nodes depend on each other in more ways than can be followed";
            let place = Place { line: 0, ..self.spec.place.clone() };
            let help = if is_too_wide {
                "let fewer of its nodes take from many sources, directly or through others, or split it into graphs that send to each \
                 other by `udp` or `tcp`"
            } else {
                "write `join: { patience: 16 }` at its nodes with several inputs: such a node gives up a partner that was lost, so \
                 where messages may be lost on the way to it is not followed"
            };
            self.wrong("E0169", &place, message, help);
        }
        settle_stages(&mut nodes, &edges, &workers);
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
            mlock: run.mlock,
            stop: run.stop.0,
            start: run.start.0,
            watchdog: run.watchdog.0,
            drops_above: run.drops_above.0,
            warmup,
            telemetry: self.options.telemetry.unwrap_or(run.telemetry),
            frames: self.options.frames,
            memory,
        };
        self.problems.into_result(plan)
    }

    fn cpus(&mut self) -> Vec<usize> {
        let allowed = crate::host::cpu::allowed_cpus();
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
                        let parted = connection.node.rsplit_once('.').filter(|(node, _)| index.contains_key(node));
                        let help = match parted {
                            Some((node, port)) if connection.output.is_none() => format!("write `{node}/{port}`"),
                            _ => suggest(&connection.node, index.keys().copied()),
                        };
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
        let blocking = graph(&|link| !lossy(link));
        if let Some(order) = sorted(&blocking) {
            return order;
        }
        for cycle in petgraph::algo::kosaraju_scc(&blocking).into_iter().filter(|c| c.len() > 1) {
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
        let (mut into, mut out_of) = (vec![Vec::new(); spec.nodes.len()], vec![Vec::new(); spec.nodes.len()]);
        for link in links {
            into[link.to].push(link);
            out_of[link.from].push(link);
        }
        let mut nodes: Vec<NodePlan> = Vec::new();
        let mut edges: Vec<EdgePlan> = Vec::new();
        for (at, node) in order.iter().map(|i| &spec.nodes[*i]).enumerate() {
            let mut given = Connected::default();
            // Producer's port of each input, as far as it is known: later producers close a cycle.
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
                given.inputs.push((connection.port.clone().unwrap_or_else(|| "in".into()), spec));
                outputs.push((link.map(|l| position[l.from]), output));
            }
            for link in &out_of[order[at]] {
                let connection = &spec.nodes[link.to].inputs[link.input];
                given.outputs.extend(connection.output.clone());
            }
            let mut plan = NodePlan {
                name: node.name.clone(),
                kind: node.kind.value.clone(),
                role: Role::Sink,
                cost: Cost::Light,
                worker: 0,
                why: Placement::First,
                outputs: Vec::new(),
                notes: Vec::new(),
                notices: Vec::new(),
                endless: false,
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
                stage: StagePlan {
                    policy: node.policy.clone(),
                    config: (node.policy.on_error == OnError::Restart).then(|| node.config.clone()),
                    ..StagePlan::default()
                },
                untold: BTreeMap::new(),
            };
            if let Some(planned) = self.node(node, &given) {
                self.describe(&mut plan, &*planned);
                self.plant(node, &mut plan);
                self.check_restart(node, &*planned);
                self.check_begin(node, &plan);
                self.join(node, &mut plan, planned.merges());
                self.connect(node, at, &mut plan, &*planned, &outputs, &nodes, &mut edges);
                plan.planned = Some(planned);
            }
            nodes.push(plan);
        }
        self.close_cycles(&position, links, &mut nodes, &mut edges);
        (nodes, edges)
    }

    /// Edges from a later node to an earlier one, whose producers were not known when the consumer was planned. One that leads
    /// nowhere, or does not fit, is taken out: nothing may be asked of a port that is not there.
    fn close_cycles(&mut self, position: &[usize], links: &[Link], nodes: &mut [NodePlan], edges: &mut Vec<EdgePlan>) {
        let spec = self.spec;
        if edges.iter().all(|edge| edge.from < edge.to) {
            return;
        }
        let input = |link: &Link| &spec.nodes[link.to].inputs[link.input];
        let port = |link: &Link| input(link).port.as_deref().unwrap_or("in");
        let by_ports: BTreeMap<(usize, usize, &str), &Link> =
            links.iter().map(|link| ((position[link.from], position[link.to], port(link)), link)).collect();
        let only: BTreeMap<(usize, usize), &Link> =
            links.iter().map(|link| ((position[link.from], position[link.to]), link)).collect();
        let mut keeps = vec![true; edges.len()];
        for (at, edge) in edges.iter_mut().enumerate().filter(|(_, edge)| edge.from >= edge.to) {
            let consumer = &nodes[edge.to];
            let name = edge.to_name.rsplit('/').next().unwrap_or_default();
            // `from:` means the only input, whatever that is called.
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
                    let all = names
                        .take(MAX_PORTS)
                        .map(|n| format!("`{}/{n}`", producer.name))
                        .collect::<Vec<_>>()
                        .join(", ");
                    (format!("node `{}` has several outputs", producer.name), format!("write one of {all}"))
                };
                self.wrong("E0123", place, message, help);
                None
            }
        }
    }

    /// Reads a node's config and asks its kind for ports.
    fn node(&mut self, node: &NodeSpec, given: &Connected) -> Option<Box<dyn PlannedNode>> {
        let Some(kind) = self.registry.find(&node.kind.value, !node.inputs.is_empty()) else {
            self.problems.push(self.registry.unknown(&node.kind.value, &node.kind.place));
            return None;
        };
        let mut cx = Planning { node: &node.name, folders: &self.spec.folders, trials: &self.options.trials };
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
            // A kind that knows no better way out at least says where to turn.
            problem.help = error.help.or_else(|| match &error.at {
                At::Field(path) => Some(format!("change `{path}` in the config of `{}`", node.name)),
                At::Input(port) => Some(format!("connect something else to `{}/{port}`", node.name)),
                At::Node => Some(format!("change `{}`; `limen-run kinds` says what its kind does", node.name)),
            });
            self.problems.push(problem);
        }
    }

    fn describe(&mut self, plan: &mut NodePlan, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        plan.cost = ports.cost;
        plan.blocking = ports.blocking;
        plan.helpers = ports.helpers;
        plan.notes = ports.notes.clone();
        plan.notices = ports.notices.clone();
        plan.endless = ports.endless;
        plan.total = ports.total;
        plan.settings = ports.settings.clone();
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
                stays: true,
                edges: Vec::new(),
                origins: Vec::new(),
            })
            .collect();
        plan.role = match (ports.inputs.is_empty(), ports.outputs.is_empty()) {
            (true, _) => Role::Source,
            (false, true) => Role::Sink,
            _ if ports.cost == Cost::Infer => Role::Infer,
            _ => Role::Transform,
        };
    }

    /// What of several inputs is taken together.
    fn join(&mut self, node: &NodeSpec, plan: &mut NodePlan, merges: bool) {
        let Some(join) = &node.policy.join else { return };
        let JoinSpec { policy, patience, within, hold, trigger, pick, anchor } = join;
        let place = node.places.get("join").unwrap_or(&node.place);
        let mut wrong = |message: &str, help: &str| {
            self.wrong("E0139", place, format!("`{}`: {message}", node.name), help);
        };
        let by_time = *policy == JoinPolicy::ByTime;
        if plan.inputs.len() < 2 {
            wrong("`join` with one input", "remove `join`, or name several `inputs`");
        } else if *policy != JoinPolicy::Zip && policy.merges() != merges {
            let (message, help) = if merges {
                ("takes one message at a time", "its policies are `in_turn`, `oldest_first` and `priority`")
            } else {
                ("takes messages of all its inputs together", "its policies are `zip`, `by_time` and `sample`")
            };
            wrong(&format!("{message}, not `{}`", policy.name()), help);
        }
        if by_time != within.is_some() || (hold.is_some() && !by_time) {
            let message = "`policy: by_time` needs `within`, which with `hold` belongs to it alone";
            wrong(message, "write `join: { policy: by_time, within: 5ms }`");
        }
        let at = trigger.as_ref().and_then(|port| plan.inputs.iter().position(|(name, _)| name == port));
        if let Some(port) = trigger
            && (at.is_none() || *policy != JoinPolicy::Sample)
        {
            let message = format!("`trigger: {port}` is not an input that `policy: sample` could wait for");
            wrong(&message, "name an input, with `policy: sample`");
        }
        let input = |name: &Option<String>| plan.inputs.iter().position(|(port, _)| Some(port) == name.as_ref());
        if (pick.is_some() || anchor.is_some()) && !by_time {
            wrong(
                "`pick` and `anchor` belong to `policy: by_time`",
                "write `join: { policy: by_time, within: 5ms, .. }`",
            );
        } else if let (Some(name), None) = (anchor, input(anchor)) {
            let names: Vec<String> = plan.inputs.iter().map(|(port, _)| format!("`{port}`")).collect();
            wrong(&format!("`anchor: {name}` is none of its inputs"), &format!("name one of {}", names.join(", ")));
        }
        let at_anchor = input(anchor);
        if *pick == Some(Pick::Interpolate) {
            let is_number = |spec: &Option<PortSpec>| {
                spec.as_ref()
                    .is_some_and(|spec| matches!(spec.dtype, DType::F32 | DType::F64) && spec.fixed_shape().is_some())
            };
            let others = plan.inputs.iter().enumerate().filter(|(at, _)| Some(*at) != at_anchor);
            if anchor.is_none() {
                wrong(
                    "`pick: interpolate` without the moments to do it for",
                    "write `anchor:` with the input that sets them",
                );
            } else if let Some((_, (name, spec))) = others.clone().find(|(_, (_, spec))| !is_number(spec)) {
                let what = spec.as_ref().map_or_else(|| "what it gives".into(), ToString::to_string);
                wrong(
                    &format!("`{name}` cannot be interpolated: {what} is no `f32` or `f64` of a fixed shape"),
                    "put a `cast` before it, or write `pick: nearest`",
                );
            }
        }
        let anchor = at_anchor;
        plan.stage.rule = JoinRule {
            policy: *policy,
            patience: *patience,
            within: within.map_or(0, Span::as_nanos),
            hold: hold.map_or(0, Span::as_nanos),
            trigger: at,
            pick: pick.unwrap_or_default(),
            anchor,
            ..JoinRule::default()
        };
    }

    /// Faults planted in a node.
    fn plant(&mut self, node: &NodeSpec, plan: &mut NodePlan) {
        let Some(fault) = &node.policy.fault else { return };
        let wrong = match plan.role {
            Role::Source if fault.drop > 0.0 => Some((
                "a source's messages cannot be lost before there are any",
                "drop them at the node that takes them",
            )),
            Role::Sink | Role::Infer if fault.duplicate > 0.0 => {
                Some(("only what a source or a transform sends can be duplicated", "duplicate at the node before"))
            }
            _ => None,
        };
        if let Some((message, help)) = wrong {
            let place = node.places.get("fault").unwrap_or(&node.place);
            self.wrong("E0138", place, format!("`{}`: {message}", node.name), help);
        }
        if fault.duplicate > 0.0 {
            plan.outputs.iter_mut().for_each(|output| output.emits *= 2);
        }
        plan.notes.push("has faults planted".into());
    }

    /// A node that is built again begins its file anew.
    fn check_restart(&mut self, node: &NodeSpec, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        if node.policy.on_error == OnError::Restart && planned.outside() > 0 {
            let message = format!("`{}` is the program's end of the graph, which cannot be built again", node.name);
            self.wrong("E0160", &node.place, message, "write `on_error: skip`, `detach` or `stop`");
        }
        if node.policy.on_error == OnError::Restart && ports.claims.iter().any(|claim| matches!(claim, Claim::File(_)))
        {
            let message =
                format!("`{}` writes a file, which it would begin anew each time it is built again", node.name);
            self.wrong("E0147", &node.place, message, "write `on_error: skip` or `detach`");
        }
    }

    /// What messages begin with is for sources to say.
    fn check_begin(&mut self, node: &NodeSpec, plan: &NodePlan) {
        if plan.role == Role::Source {
            return;
        }
        let keys = [("qos", node.policy.qos.is_some()), ("clock", node.policy.clock != ClockOffset::None)];
        for (key, _) in keys.into_iter().filter(|(_, is_written)| *is_written) {
            let place = node.places.get(key).unwrap_or(&node.place);
            let message =
                format!("`{}` is no source: its messages have the `{key}` of what they are made from", node.name);
            self.wrong("E0144", place, message, format!("write `{key}` at the source"));
        }
    }
}
