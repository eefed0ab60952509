//! What planning asks of one node: its kind and config, its ports, its join, and the keys that it
//! cannot have.

use super::planner::Planner;
use super::{EdgePlan, NodePlan, OutputPlan};
use crate::base::error::{NodePart, PlanErrors, Problem};
use crate::base::policy::{JoinPolicy, JoinSpec, OnError, Pick};
use crate::base::unit::Span;
use crate::exec::planned::PlannedNode;
use crate::file::spec::NodeSpec;
use crate::message::port_spec::{DType, Dim, Memory, PortSpec};
use crate::node::planning::{Connected, Planning};
use crate::node::ports::{Claim, Cost};
use crate::plan::kind::Role;
use crate::port::intake::JoinRule;

/// The index of the input of this name.
fn input_of(plan: &NodePlan, name: &Option<String>) -> Option<usize> {
    plan.inputs.iter().position(|(port, _)| Some(port) == name.as_ref())
}

/// Whether a message has an orientation in an unknown layout, or an angle.
fn is_turned(spec: &PortSpec) -> bool {
    spec.has_unknown_orientation() || spec.has_named_angle()
}

/// Whether `pick: interpolate` makes values of messages of a port.
pub(super) fn can_be_interpolated(spec: &PortSpec) -> bool {
    let is_float = matches!(spec.dtype, DType::F32 | DType::F64);
    is_float && spec.fixed_shape().is_some() && spec.memory == Memory::Host && !is_turned(spec)
}

impl Planner<'_> {
    /// Reads a node's config and asks its kind for the ports. `unknown` says of which inputs
    /// nothing is known because of a problem that is reported.
    pub(super) fn node(
        &mut self,
        node: &NodeSpec,
        given: &Connected,
        unknown: &[bool],
    ) -> Option<Box<dyn PlannedNode>> {
        let Some(kind) = self.registry.find(node) else {
            if node.kind.value.is_empty() {
                return None;
            }
            self.problems.push(self.registry.unknown(&node.kind.value, &node.kind.place));
            return None;
        };
        if let Some((place, message, help)) = self.registry.other_device(node) {
            self.problem("E0130", &place, message, help);
            return None;
        }
        let with_constants;
        let node = match &node.constants[..] {
            [] => node,
            _ if kind.takes_constants() => {
                if let Some(there) = node.mistaken_constants() {
                    let what = there.value.describe();
                    let message = format!("`constants` must be a map of values by input, got {what}");
                    self.problem(
                        "E0163",
                        &there.place,
                        message,
                        "remove `constants`, and write `inputs: { NAME: { value: .. } }`",
                    );
                    return None;
                }
                let mut repeated = false;
                for port in node.repeated_constants() {
                    repeated = true;
                    let message = format!(
                        "duplicate value of `{}/{}`, also set in `config: {{ constants: .. }}`",
                        node.name, port.name
                    );
                    let help = format!("remove `{}` from `config: {{ constants: .. }}`", port.name);
                    self.problem("E0163", &port.place, message, help);
                }
                if repeated {
                    return None;
                }
                with_constants = node.with_constants();
                &with_constants
            }
            constants => {
                for (port, value) in constants {
                    let kind = &node.kind.value;
                    let message =
                        format!("kind `{kind}` does not support a constant value at `{}/{}`", node.name, port.name);
                    let help = format!("connect a node, or set the value in `config` (see `limen-run explain {kind}`)");
                    self.problem("E0163", &value.place, message, help);
                }
                return None;
            }
        };
        let mut cx = Planning {
            node: &node.name,
            folders: &self.spec.folders,
            trials: &self.options.trials,
            extensions: self.registry.extensions(),
            isolation: self.spec.run.isolation,
        };
        let planned = kind.plan(&node.config, given, &mut cx, &mut self.problems);
        for name in self.spec.folders.memory.take_opened() {
            let is_model = kind.role == Role::Infer;
            self.opened.entry(name).and_modify(|only| *only &= is_model).or_insert(is_model);
        }
        match planned? {
            Ok(planned) => Some(planned),
            Err(errors) => {
                self.field_errors(node, errors, unknown);
                None
            }
        }
    }

    fn field_errors(&mut self, node: &NodeSpec, errors: PlanErrors, unknown: &[bool]) {
        for error in errors.0 {
            let place = match &error.at {
                // It may only follow from what could not be read.
                NodePart::Node if node.in_doubt => continue,
                NodePart::Node => node.place.clone(),
                NodePart::Field(path) | NodePart::Value(path) => node.config.locate(path),
                NodePart::Input(port) | NodePart::Misfit(port, _) => {
                    let named = node.inputs.iter().position(|i| i.port.as_deref().unwrap_or("in") == port);
                    let at = named.unwrap_or(0);
                    // It only follows from what is not known.
                    if unknown.get(at) == Some(&true) {
                        continue;
                    }
                    let input = node.inputs.get(at);
                    let place = input.map_or(&node.place, |i| &i.place).clone();
                    if let (NodePart::Misfit(_, [have, want]), Some(input)) = (&error.at, input) {
                        let output = input.output.as_ref().map(|output| format!("/{output}")).unwrap_or_default();
                        let message = format!(
                            "type mismatch: `{}{output}` produces {have}, `{}/{port}` expects {want}: {}",
                            input.node, node.name, error.message
                        );
                        self.problem("E0128", &place, message, error.help.unwrap_or_default());
                        continue;
                    }
                    place
                }
                NodePart::Connections(inputs) => {
                    self.check_connections(node, inputs);
                    continue;
                }
            };
            let (code, message) = match &error.at {
                NodePart::Value(_) => ("E0104", error.message),
                _ => ("E0130", format!("`{}`: {}", node.name, error.message)),
            };
            let mut problem = Problem::new(code, place, message);
            // Fallback for kinds that give no help.
            problem.help = error.help.or_else(|| match &error.at {
                NodePart::Field(path) | NodePart::Value(path) => {
                    Some(format!("change `{path}` in the config of `{}`", node.name))
                }
                NodePart::Input(port) | NodePart::Misfit(port, _) => {
                    Some(format!("connect another output to `{}/{port}`", node.name))
                }
                NodePart::Node | NodePart::Connections(_) => {
                    Some(format!("change the config of `{}` (see `limen-run explain {}`)", node.name, node.kind.value))
                }
            });
            self.problems.push(problem);
        }
    }

    pub(super) fn describe(&mut self, plan: &mut NodePlan, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        plan.cost = ports.cost;
        plan.blocking = ports.blocking;
        plan.helpers = ports.helpers;
        plan.worker_host = ports.worker_host;
        plan.notes = ports.notes.clone();
        plan.notices.extend_from_slice(&ports.notices);
        plan.endless = ports.endless;
        plan.stage.wakes = ports.wakes;
        plan.paced = ports.period.is_some();
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
                device_bytes: 0,
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

    /// Sets the join rule of a node with several inputs.
    pub(super) fn join(&mut self, node: &NodeSpec, plan: &mut NodePlan, merges: bool, unknown: &[bool]) {
        let Some(join) = &node.policy.join else { return };
        if node.in_doubt {
            return;
        }
        self.check_join(node, join, plan, merges, unknown);
        plan.stage.rule = JoinRule {
            policy: join.policy,
            patience: join.patience,
            within: join.within.map_or(0, Span::as_nanos),
            wait: join.wait.map_or(0, Span::as_nanos),
            trigger: input_of(plan, &join.trigger),
            pick: join.pick.unwrap_or_default(),
            anchor: input_of(plan, &join.anchor),
            ..JoinRule::default()
        };
    }

    /// Notes inputs that are interpolated as plain numbers and may be something else.
    pub(super) fn note_interpolated(&mut self, node: &NodeSpec, plan: &mut NodePlan, edges: &[EdgePlan]) {
        let Some(JoinSpec { pick: Some(Pick::Interpolate), anchor, .. }) = &node.policy.join else { return };
        let is_four = |spec: &PortSpec| spec.shape[..] == [Dim::Fixed(4)] && spec.quaternion().is_none();
        for edge in plan.in_edges.iter().map(|at| &edges[*at]) {
            let [from, port] = [&edge.from_name, &edge.to_name].map(|name| name.rsplit('/').next().unwrap_or(name));
            let Some(spec) = edge.spec.as_ref().filter(|_| anchor.as_deref() != Some(port)) else { continue };
            let (how, what) = if is_four(spec) {
                (format!("the four numbers of `{port}` one by one"), "the numbers are a quaternion".to_string())
            } else if spec.may_have_angle([from, port]) {
                let how = format!("`{port}` as plain numbers, such as 180 between 359 and 1 degrees");
                (how, format!("`{port}` is an angle"))
            } else {
                continue;
            };
            plan.notes.push(format!("interpolates {how}: write `pick: nearest` if {what}"));
        }
    }

    fn check_join(&mut self, node: &NodeSpec, join: &JoinSpec, plan: &NodePlan, merges: bool, unknown: &[bool]) {
        let JoinSpec { policy, patience: _, within, wait, trigger, pick, anchor } = join;
        let place = node.places.get("join").unwrap_or(&node.place);
        let mut wrong = |message: &str, help: &str| {
            self.problem("E0139", place, format!("`{}`: {message}", node.name), help);
        };
        let by_time = *policy == JoinPolicy::ByTime;
        if plan.inputs.len() < 2 {
            wrong("`join` requires several inputs", "remove `join`, or write several `inputs`");
        } else if *policy != JoinPolicy::Zip && policy.merges() != merges {
            let (policies, help) = if merges {
                ("`in_turn`, `oldest_first` or `priority`", "write `policy: in_turn`")
            } else {
                ("`zip`, `by_time` or `sample`", "write `policy: zip`")
            };
            wrong(&format!("`policy` must be {policies}, got `{}`", policy.name()), help);
        }
        if by_time != within.is_some() || (wait.is_some() && !by_time) {
            let message = match by_time {
                true => "`policy: by_time` requires `within`",
                false => "`within` and `wait` require `policy: by_time`",
            };
            wrong(message, "write `join: { policy: by_time, within: 5ms }`");
        }
        if let Some(port) = trigger
            && (input_of(plan, trigger).is_none() || *policy != JoinPolicy::Sample)
        {
            let input = plan.inputs.first().map_or("..", |(port, _)| &**port);
            let message = match input_of(plan, trigger) {
                None => format!("`trigger` must be the name of an input, got `{port}`"),
                Some(_) => format!("`trigger: {port}` requires `policy: sample`"),
            };
            wrong(&message, &format!("write `join: {{ policy: sample, trigger: {input} }}`"));
        }
        if (pick.is_some() || anchor.is_some()) && !by_time {
            let help = match (policy, anchor) {
                (JoinPolicy::Sample, Some(name)) => format!("write `trigger: {name}`"),
                _ => "write `join: { policy: by_time, within: 5ms, .. }`".into(),
            };
            wrong("`pick` and `anchor` require `policy: by_time`", &help);
        } else if let (Some(name), None) = (anchor, input_of(plan, anchor)) {
            let names: Vec<String> = plan.inputs.iter().map(|(port, _)| format!("`{port}`")).collect();
            let names = names.join(", ");
            wrong(&format!("`anchor` must be one of {names}, got `{name}`"), &format!("write one of {names}"));
        }
        if *pick != Some(Pick::Interpolate) {
            return;
        }
        if anchor.is_none() {
            let input = plan.inputs.first().map_or("..", |(port, _)| &**port);
            wrong("`pick: interpolate` requires an `anchor`", &format!("write an input such as `anchor: {input}`"));
            return;
        }
        let is_known = |port: &String| {
            let mut inputs = std::iter::zip(&node.inputs, unknown);
            !inputs.any(|(input, unknown)| *unknown && input.port.as_ref() == Some(port))
        };
        let others = plan.inputs.iter().filter(|(port, _)| Some(port) != anchor.as_ref());
        let mut others = others.filter(|(port, _)| is_known(port));
        if let Some((name, spec)) = others.find(|(_, spec)| !spec.as_ref().is_some_and(can_be_interpolated)) {
            let what = spec.as_ref().map_or_else(|| "its type".into(), ToString::to_string);
            let (why, help) = match spec {
                Some(spec) if spec.memory != Memory::Host => ("is on a device", "write `pick: nearest`".to_string()),
                Some(spec) if is_turned(spec) => {
                    ("has an angle, or an orientation at an unknown position", "write `pick: nearest`".to_string())
                }
                _ => (
                    "is not `f32` or `f64` with a fixed shape",
                    format!("put a `cast` node upstream of `{name}`, or write `pick: nearest`"),
                ),
            };
            wrong(&format!("`{name}` cannot be interpolated: {what} {why}"), &help);
        }
    }

    /// Injects the faults of the graph file.
    pub(super) fn inject_faults(&mut self, node: &NodeSpec, plan: &mut NodePlan) {
        let Some(fault) = &node.policy.fault else { return };
        let wrong = match plan.role {
            Role::Source if fault.drop > 0.0 => {
                Some(("`drop` requires a node with inputs, found a source", "write `drop` at a downstream node"))
            }
            Role::Sink | Role::Infer if fault.duplicate > 0.0 => {
                Some(("`duplicate` requires a source or a transform", "write `duplicate` at the upstream node"))
            }
            _ => None,
        };
        if let Some((message, help)) = wrong {
            let place = node.places.get("fault").unwrap_or(&node.place);
            self.problem("E0138", place, format!("`{}`: {message}", node.name), help);
        }
        if fault.duplicate > 0.0 {
            plan.outputs.iter_mut().for_each(|output| output.emits *= 2);
        }
        plan.notes.push("runs with injected faults".into());
    }

    /// Refuses restarts of nodes that would lose data by them.
    pub(super) fn check_restart(&mut self, node: &NodeSpec, planned: &dyn PlannedNode) {
        let ports = planned.ports();
        if node.policy.on_error == OnError::Restart && planned.outside() > 0 {
            let message = format!("`{}` connects the graph with the program and cannot restart", node.name);
            self.problem("E0160", &node.place, message, "write `on_error: skip`, `detach` or `stop`");
        }
        if node.policy.on_error == OnError::Restart && ports.claims.iter().any(|claim| matches!(claim, Claim::File(_)))
        {
            let message = format!("`{}` writes a file, which each restart would overwrite", node.name);
            self.problem("E0147", &node.place, message, "write `on_error: skip` or `detach`");
        }
    }
}
