//! The pass over a spec that makes a plan, or every problem.

use super::{EdgePlan, NodePlan, Options, OutputPlan, PathPlan, Plan};
use crate::edge::{Admission, WhenFull};
use crate::error::{At, Place, PlanErrors, Problem, Problems, suggest};
use crate::intake::{JoinPolicy, JoinRule};
use crate::node::{Claim, Cost, Given, MAX_PORTS, Planning, Ports};
use crate::payload::Qos;
use crate::place::{self, Why, WorkerPlan};
use crate::port::{Begin, Skew};
use crate::registry::{PlannedNode, Registry, Role};
use crate::spec::{InputSpec, JoinSpec, NodeSpec, Spec};
use crate::stage::{OnError, OnMiss, Rules};
use crate::tensor::{Dim, PortSpec};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Planner<'a> {
    pub(super) spec: &'a Spec,
    pub(super) registry: &'a Registry,
    pub(super) options: &'a Options,
    pub(super) problems: Problems,
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
        self.check_claims(&nodes);
        self.check_expectations(&nodes);
        let run = &self.spec.run;
        let cpus = self.cpus();
        let strict = self.options.strict.unwrap_or(run.strict);
        let mut notes = Vec::new();
        let specs: Vec<&NodeSpec> = order.iter().map(|i| &self.spec.nodes[*i]).collect();
        let mut workers =
            place::place(&mut nodes, &edges, &specs, &self.spec.cores, &cpus, strict, &mut self.problems, &mut notes);
        self.check_real_time(&mut workers, &cpus, strict, &mut notes);
        self.size_edges(&mut nodes, &mut edges, &specs);
        self.share_or_copy(&mut nodes, &edges);
        self.size_pools(&mut nodes, &edges, &specs);
        let sources = self.number_sources(&mut nodes, &edges);
        let memory = self.memory(&nodes, &edges, &sources);
        self.warn(&nodes, &edges, &mut notes);
        for node in &nodes {
            notes.extend(node.notices.iter().map(|notice| format!("`{}` {notice}", node.name)));
        }
        let paths = self.paths(&nodes);
        self.check_waits(&nodes, &edges);
        self.check_gathers(&nodes, &edges, &specs);
        rules(&mut nodes, &edges, &paths);
        self.check_joins(&nodes, &edges, &specs);
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
            watchdog: run.watchdog.0,
            warmup,
            telemetry: self.options.telemetry.unwrap_or(run.telemetry),
            frames: self.options.frames,
            memory,
        };
        self.problems.into_result(plan)
    }

    fn cpus(&mut self) -> Vec<usize> {
        let allowed = crate::cpu::allowed_cpus();
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
        let (mut into, mut out_of) = (vec![Vec::new(); spec.nodes.len()], vec![Vec::new(); spec.nodes.len()]);
        for link in links {
            into[link.to].push(link);
            out_of[link.from].push(link);
        }
        let mut nodes: Vec<NodePlan> = Vec::new();
        let mut edges: Vec<EdgePlan> = Vec::new();
        for (at, node) in order.iter().map(|i| &spec.nodes[*i]).enumerate() {
            let mut given = Given::default();
            // Producer's port of each input, as far as it is known: later producers close a cycle.
            let mut outputs = Vec::new();
            for (input, connection) in node.inputs.iter().enumerate() {
                let link = into[order[at]].iter().find(|l| l.input == input);
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
                why: Why::First,
                on_error: node.on_error,
                outputs: Vec::new(),
                notes: Vec::new(),
                notices: Vec::new(),
                settings: Vec::new(),
                inputs: Vec::new(),
                planned: None,
                in_edges: Vec::new(),
                copies: None,
                rule: JoinRule::default(),
                reached_by: Vec::new(),
                begin: Begin::default(),
                restart: (node.on_error == OnError::Restart).then(|| (node.restart, node.config.clone())),
                urgency: Vec::new(),
                blocking: false,
                fault: None,
                budget: node.budget.map(crate::unit::Span::as_nanos),
                rules: Rules::default(),
            };
            if let Some(planned) = self.node(node, &given) {
                self.describe(&mut plan, &*planned);
                self.plant(node, &mut plan);
                self.check_restart(node, &*planned);
                self.begin(node, &mut plan);
                self.join(node, &mut plan, planned.merges());
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
                edge.admission.largest = largest(edge.spec.as_ref());
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

    /// Whether what comes over the ports of subgraphs is what those promised.
    fn check_expectations(&mut self, nodes: &[NodePlan]) {
        let spec = self.spec;
        if spec.expectations.is_empty() {
            return;
        }
        let named: BTreeMap<&str, &NodePlan> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        for expectation in &spec.expectations {
            let Some(node) = named.get(expectation.node.as_str()) else { continue };
            let output = match &expectation.output {
                Some(name) => node.outputs.iter().find(|output| output.name == *name),
                None => node.outputs.first().filter(|_| node.outputs.len() == 1),
            };
            let Some(have) = output.and_then(|output| output.spec.as_ref()) else { continue };
            if let Err(why) = expectation.spec.accepts(have) {
                let message = format!("{} carries {}, and gets {have}: {why}", expectation.port, expectation.spec);
                self.wrong("E0156", &expectation.place, message, remedy(have, &expectation.spec));
            }
        }
    }

    /// Reads a node's config and asks its kind for ports.
    fn node(&mut self, node: &NodeSpec, given: &Given) -> Option<Box<dyn PlannedNode>> {
        let Some(kind) = self.registry.find(&node.kind.value, !node.inputs.is_empty()) else {
            self.problems.push(self.registry.unknown(&node.kind.value, &node.kind.place));
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
        plan.notes = ports.notes.clone();
        plan.notices = ports.notices.clone();
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
        let Some(join) = &node.join else { return };
        let JoinSpec { policy, patience, within, hold, trigger } = &join.value;
        let mut wrong = |message: &str, help: &str| {
            self.wrong("E0139", &join.place, format!("`{}`: {message}", node.name), help);
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
        plan.rule = JoinRule {
            policy: *policy,
            patience: *patience,
            within: within.map_or(0, crate::unit::Span::as_nanos),
            hold: hold.map_or(0, crate::unit::Span::as_nanos),
            trigger: at,
            ..JoinRule::default()
        };
    }

    /// Faults planted in a node.
    fn plant(&mut self, node: &NodeSpec, plan: &mut NodePlan) {
        let Some(fault) = &node.fault else { return };
        let wrong = match plan.role {
            Role::Source if fault.value.drop > 0.0 => Some((
                "a source's messages cannot be lost before there are any",
                "drop them at the node that takes them",
            )),
            Role::Sink | Role::Infer if fault.value.duplicate > 0.0 => {
                Some(("only what a source or a transform sends can be duplicated", "duplicate at the node before"))
            }
            _ => None,
        };
        if let Some((message, help)) = wrong {
            self.wrong("E0138", &fault.place, format!("`{}`: {message}", node.name), help);
        }
        if fault.value.duplicate > 0.0 {
            plan.outputs.iter_mut().for_each(|output| output.emits *= 2);
        }
        plan.notes.push("has faults planted".into());
        plan.fault = Some(fault.value.clone());
    }

    /// A node that is built again begins its file anew.
    fn check_restart(&mut self, node: &NodeSpec, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        if node.on_error == OnError::Restart && planned.outside() > 0 {
            let message = format!("`{}` is the program's end of the graph, which cannot be built again", node.name);
            self.wrong("E0160", &node.place, message, "write `on_error: skip`, `detach` or `stop`");
        }
        if node.on_error == OnError::Restart && ports.claims.iter().any(|claim| matches!(claim, Claim::File(_))) {
            let message =
                format!("`{}` writes a file, which it would begin anew each time it is built again", node.name);
            self.wrong("E0147", &node.place, message, "write `on_error: skip` or `detach`");
        }
    }

    /// What a source's messages begin with.
    fn begin(&mut self, node: &NodeSpec, plan: &mut NodePlan) {
        plan.begin.qos = node.qos.as_ref().map_or(Qos::default(), |qos| qos.value);
        plan.begin.skew = node.clock.as_ref().map_or(Skew::default(), |clock| clock.value);
        if plan.role == Role::Source {
            return;
        }
        let places = [("qos", node.qos.as_ref().map(|p| &p.place)), ("clock", node.clock.as_ref().map(|p| &p.place))];
        for (key, place) in places {
            let Some(place) = place else { continue };
            let message =
                format!("`{}` is no source: its messages have the `{key}` of what they are made from", node.name);
            self.wrong("E0144", place, message, format!("write `{key}` at the source"));
        }
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
            let admission = self.admission(connection, spec.as_ref());
            edges.push(EdgePlan {
                from_name,
                to_name: format!("{}/{}", node.name, declared.name),
                capacity: 0,
                capacity_written: false,
                when_full: connection.when_full.value,
                crossing: false,
                spec,
                from: producer_at,
                from_port,
                to: at,
                ty,
                buffer: 0,
                admission,
                max_age: connection.max_age.map(crate::unit::Span::as_nanos),
                expect_every: connection.expect_every.map(|e| (e.as_nanos(), connection.on_gap)),
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

    /// What a connection asks of messages, and what of that cannot be meant.
    fn admission(&mut self, connection: &InputSpec, spec: Option<&PortSpec>) -> Admission {
        let InputSpec { soft_capacity, max_bytes, soft_bytes, soft_evict, urgent_capacity, .. } = connection;
        let when_full = connection.when_full.value;
        let place = |placed: Option<&Place>| placed.unwrap_or(&connection.place).clone();
        let marks = [
            ("soft_capacity", soft_capacity.as_ref().map(|p| &p.place)),
            ("max_bytes", max_bytes.as_ref().map(|p| &p.place)),
            ("soft_bytes", soft_bytes.as_ref().map(|p| &p.place)),
            ("soft_evict", soft_evict.as_ref().map(|p| &p.place)),
            ("urgent_capacity", urgent_capacity.as_ref().map(|p| &p.place)),
        ];
        for (key, at) in marks.into_iter().filter(|(_, at)| at.is_some()) {
            let wrong = match key {
                _ if when_full == WhenFull::Latest => Some((
                    "an edge with `when_full: latest` holds one message and has no marks",
                    "remove it, or choose `drop_oldest`",
                )),
                "soft_bytes" if max_bytes.is_none() => {
                    Some(("a soft mark in bytes counts only below a hard one", "write `max_bytes` too"))
                }
                "soft_evict"
                    if when_full != WhenFull::DropOldest || (soft_capacity.is_none() && soft_bytes.is_none()) =>
                {
                    Some((
                        "only `drop_oldest` evicts, and only from a soft mark on",
                        "write `when_full: drop_oldest` and `soft_capacity`",
                    ))
                }
                _ => None,
            };
            if let Some((message, help)) = wrong {
                self.wrong("E0133", &place(at), format!("`{key}`: {message}"), help);
            }
        }
        for (key, bytes) in [("max_bytes", max_bytes), ("soft_bytes", soft_bytes)] {
            if let Some(bytes) = bytes.as_ref().filter(|bytes| bytes.value.0 == 0) {
                let message = format!("`{key}: 0B`: nothing could ever pass");
                self.wrong("E0133", &bytes.place, message, "write how many bytes the edge may hold");
            }
        }
        if let (Some(soft), Some(hard)) = (soft_bytes, max_bytes)
            && soft.value > hard.value
        {
            self.wrong("E0133", &soft.place, "the soft mark is above the hard one", "write less than `max_bytes`");
        }
        Admission {
            soft: soft_capacity.as_ref().map(|p| p.value),
            max_bytes: max_bytes.as_ref().map(|p| p.value.0),
            soft_bytes: soft_bytes.as_ref().map(|p| p.value.0),
            soft_evict: soft_evict.as_ref().is_some_and(|p| p.value),
            lane: urgent_capacity.as_ref().map_or(0, |p| p.value),
            largest: largest(spec),
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

    /// A live source that a slow node can hold up.
    fn warn(&self, nodes: &[NodePlan], edges: &[EdgePlan], notes: &mut Vec<String>) {
        for (at, node) in nodes.iter().enumerate() {
            if !node.planned.as_ref().is_some_and(|p| p.ports().live) {
                continue;
            }
            let mut seen = BTreeSet::from([at]);
            let mut todo = vec![at];
            while let Some(from) = todo.pop() {
                for edge in nodes[from].outputs.iter().flat_map(|out| &out.edges).map(|edge| &edges[*edge]) {
                    if edge.when_full == WhenFull::Block && seen.insert(edge.to) {
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

    /// Real time needs the user's leave, and leaves one CPU to everything else.
    fn check_real_time(&mut self, workers: &mut [WorkerPlan], cpus: &[usize], strict: bool, notes: &mut Vec<String>) {
        let real_time = |workers: &[WorkerPlan]| workers.iter().filter(|w| w.place.real_time.is_some()).count();
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(cpus.len());
        for (number, core) in self.spec.cores.iter().filter(|(_, core)| core.rt.is_some()) {
            let cpu = cpus.get(*number);
            if !workers.iter().any(|worker| worker.place.cpu.is_some() && worker.place.cpu == cpu.copied()) {
                let message = format!("core {number} asks for real time, and no node runs on it");
                if strict {
                    self.wrong("E0143", &core.place.clone(), message, "give a node this core, or remove `rt`");
                } else {
                    notes.push(message);
                }
            }
        }
        let asked = self.spec.cores.iter().find(|(_, core)| core.rt.is_some());
        let (Some((number, core)), true) = (asked, real_time(workers) > 0) else { return };
        let has_helpers = workers.iter().any(|worker| worker.place.cpu.is_none());
        let place = core.place.clone();
        if !self.options.allow_rt {
            let message = format!("core {number} asks for real time, which was not allowed");
            if strict {
                self.wrong("E0143", &place, message, "allow it with `--allow-rt`, or remove `rt`");
            } else {
                notes.push(format!("{message}: its threads run as others do; allow it with `--allow-rt`"));
            }
            workers.iter_mut().for_each(|worker| worker.place.real_time = None);
        } else if real_time(workers) >= all {
            let message = format!("real-time threads would have all {all} CPUs");
            self.wrong("E0143", &place, message, "leave one core without `rt`: the rest of the system needs it");
        } else if has_helpers && real_time(workers) >= cpus.len() {
            let message = "real-time threads would have all CPUs of the run, and nodes that wait for a disk need one";
            self.wrong("E0143", &place, message, "leave one core without `rt`, or give the run another CPU");
        }
    }

    /// A deadline that the plan's own waits exceed is missed by every message. Planted delays are there to be rehearsed.
    fn check_waits(&mut self, nodes: &[NodePlan], edges: &[EdgePlan]) {
        let spec = self.spec;
        for path in spec.paths.iter().filter(|path| path.deadline.is_some()) {
            let deadline = path.deadline.map_or(0, crate::unit::Span::as_nanos);
            let Some(from) = nodes.iter().position(|n| n.name == path.from) else { continue };
            // By node: when a message of the source leaves it at the soonest, and which node kept it longest.
            let mut soonest: Vec<Option<(u64, usize)>> = vec![None; nodes.len()];
            for (at, node) in nodes.iter().enumerate() {
                // What closes a cycle comes round later than what enters it.
                let ways =
                    node.in_edges.iter().filter(|e| edges[**e].from < at).filter_map(|e| soonest[edges[*e].from]);
                let one_will_do = node.merges() || node.rule.policy == JoinPolicy::Sample;
                let arrives = match at {
                    _ if at == from => Some((0, at)),
                    _ if one_will_do => ways.min(),
                    _ => ways.max(),
                };
                soonest[at] = arrives.map(|(arrives, slowest)| {
                    let waits = node.planned.as_ref().map_or(0, |p| p.ports().waits).max(node.rule.hold);
                    let leaves = arrives.max(waits);
                    (leaves, if leaves > arrives { at } else { slowest })
                });
            }
            let to = nodes.iter().position(|n| n.name == path.to);
            if let Some((least, slowest)) = to.and_then(|to| soonest[to])
                && least > deadline
            {
                let show = crate::unit::show_ns;
                let message = format!(
                    "`{}` to `{}` takes {} at least, because `{}` waits, and the deadline is {}",
                    path.from,
                    path.to,
                    show(least),
                    nodes[slowest].name,
                    show(deadline)
                );
                self.wrong("E0145", &path.deadline_place, message, "wait for less, or write a later deadline");
            }
        }
    }

    /// Parts are put together only where something took them apart, and are not taken apart once more.
    fn check_gathers(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        let is = |at: usize, what: fn(&Ports) -> bool| nodes[at].planned.as_ref().is_some_and(|p| what(p.ports()));
        for at in (0..nodes.len()).filter(|at| is(*at, |ports| ports.gathers || ports.scatters)) {
            let gathers = is(at, |ports| ports.gathers);
            let (mut seen, mut todo) = (BTreeSet::from([at]), nodes[at].in_edges.clone());
            while let Some(edge) = todo.pop() {
                let from = edges[edge].from;
                if nodes[from].planned.is_none() {
                    continue;
                }
                if !gathers {
                    if is(from, |ports| ports.scatters) {
                        let message =
                            format!("`{}` takes parts apart that `{}` has made", nodes[at].name, nodes[from].name);
                        let help = "put a `gather` between them: parts of parts cannot be told apart";
                        self.wrong("E0146", &specs[at].place, message, help);
                        break;
                    }
                    if !is(from, |ports| ports.gathers) && seen.insert(from) {
                        todo.extend(&nodes[from].in_edges);
                    }
                    continue;
                }
                if is(from, |ports| ports.scatters) {
                    let parts = nodes[from].outputs.iter().map(|out| out.emits).max().unwrap_or(0);
                    let first = nodes[at].outputs.first().and_then(|out| out.spec.as_ref()?.shape.first().cloned());
                    if let Some(Dim::AtMost(most)) = first.filter(|dim| matches!(dim, Dim::AtMost(n) if *n < parts)) {
                        let message = format!(
                            "`{}` takes {most} parts, and `{}` makes up to {parts}",
                            nodes[at].name, nodes[from].name
                        );
                        self.wrong("E0146", &specs[at].config.place, message, format!("write `max: {parts}`"));
                    }
                    continue;
                }
                if nodes[from].in_edges.is_empty() || is(from, |ports| ports.gathers) {
                    let message = format!(
                        "`{}` puts parts together, and what comes from `{}` was not taken apart",
                        nodes[at].name, nodes[from].name
                    );
                    self.wrong(
                        "E0146",
                        &specs[at].place,
                        message,
                        "put a `scatter` before it, or use `window` for several messages as one",
                    );
                    break;
                }
                if seen.insert(from) {
                    todo.extend(&nodes[from].in_edges);
                }
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
                    || !to.reached_by.contains(&usize::from(from.begin.source)))
            {
                let message = format!("`{}` to `{}` is not a path from a source to a sink", path.from, path.to);
                self.wrong("E0137", &path.place, message, "name a source and a sink that its messages reach");
            }
            paths.push(PathPlan {
                from: path.from.clone(),
                to: path.to.clone(),
                deadline: path.deadline.map(crate::unit::Span::as_nanos),
                on_miss: path.on_miss,
            });
        }
        paths
    }
}

/// Bytes of the largest message of a connection.
fn largest(spec: Option<&PortSpec>) -> u64 {
    spec.and_then(PortSpec::max_bytes).unwrap_or(64) as u64
}

/// What messages must keep at each node, so that none is worked on that every sink it can reach would get too late.
fn rules(nodes: &mut [NodePlan], edges: &[EdgePlan], paths: &[PathPlan]) {
    let mut sources: Vec<(u16, String)> = Vec::new();
    for node in nodes.iter().filter(|n| n.role == Role::Source) {
        sources.push((node.begin.source, node.name.clone()));
    }
    let ends = if paths.iter().any(|path| path.deadline.is_some()) { sinks(nodes, edges) } else { Vec::new() };
    for at in 0..nodes.len() {
        let sinks: Vec<String> = ends.get(at).into_iter().flatten().map(|sink| nodes[*sink].name.clone()).collect();
        let reached = if ends.is_empty() { Vec::new() } else { nodes[at].reached_by.clone() };
        let sources = sources.iter().filter(|(n, _)| reached.contains(&usize::from(*n)));
        let mut found = Rules::default();
        for (number, source) in sources {
            let path =
                |to: &String| paths.iter().position(|p| p.from == *source && p.to == *to && p.deadline.is_some());
            let number = usize::from(*number);
            let dropping = |to: &String| {
                let path = &paths[path(to)?];
                let drops = matches!(path.on_miss, OnMiss::Drop | OnMiss::SkipToLatest);
                path.deadline.filter(|_| drops).map(|deadline| (deadline, path.on_miss))
            };
            let all: Option<Vec<(u64, OnMiss)>> = sinks.iter().map(dropping).collect();
            found.deadlines.resize(number + 1, None);
            found.deadlines[number] = all.and_then(|all| {
                // Hopeless only where the most patient sink is too; skipping must suit all of them.
                let deadline = all.iter().map(|(deadline, _)| *deadline).max()?;
                let skip = all.iter().all(|(_, on_miss)| *on_miss == OnMiss::SkipToLatest);
                Some((deadline, if skip { OnMiss::SkipToLatest } else { OnMiss::Drop }))
            });
            let soonest = sinks.iter().filter_map(|to| paths[path(to)?].deadline).min();
            nodes[at].urgency.resize(number + 1, None);
            nodes[at].urgency[number] = soonest;
            // Only where messages wait for others does anybody ask for the soonest.
            if nodes[at].role == Role::Infer
                || nodes[at].in_edges.iter().any(|edge| !nodes[edges[*edge].from].rules.soonest.is_empty())
            {
                found.soonest.resize(number + 1, None);
                found.soonest[number] = soonest;
            }
            if nodes[at].outputs.is_empty() {
                found.paths.resize(number + 1, None);
                found.paths[number] =
                    path(&nodes[at].name).and_then(|index| Some((paths[index].deadline?, paths[index].on_miss, index)));
            }
        }
        found.max_age = nodes[at].in_edges.iter().map(|e| edges[*e].max_age).collect();
        if !nodes[at].in_edges.is_empty() && !found.is_empty() {
            nodes[at].rules = found;
        }
    }
}

/// The sinks behind each node.
fn sinks(nodes: &[NodePlan], edges: &[EdgePlan]) -> Vec<BTreeSet<usize>> {
    let mut behind: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes.len()];
    let mut changed = true;
    // Once through from the end finds all, except where edges close a cycle.
    while std::mem::take(&mut changed) {
        for at in (0..nodes.len()).rev() {
            let mut found = if nodes[at].outputs.is_empty() { BTreeSet::from([at]) } else { BTreeSet::new() };
            for edge in nodes[at].outputs.iter().flat_map(|out| &out.edges) {
                found.extend(&behind[edges[*edge].to]);
            }
            changed |= found.len() != behind[at].len();
            behind[at] = found;
        }
    }
    behind
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
