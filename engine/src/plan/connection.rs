//! Connections: a node's inputs matched to outputs, and the checks of each edge.

use super::planner::{Planner, Producer};
use super::{EdgePlan, NodePlan};
use crate::base::error::{Place, suggest};
use crate::base::policy::{EdgePolicy, WhenFull};
use crate::base::unit::{Bytes, show_bytes};
use crate::exec::planned::PlannedNode;
use crate::file::spec::{InputSpec, NodeSpec};
use crate::message::MAX_PORTS;
use crate::message::port_spec::{Dim, PortSpec};
use crate::node::PortType;
use crate::node::ports::Ports;
use crate::node::remedy::remedy;

impl Planner<'_> {
    /// Matches a node's connections to its ports.
    #[allow(clippy::too_many_arguments, reason = "one step of a table-driven pass over the graph")]
    pub(super) fn connect(
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
        if !self.check_port_counts(node, planned) || !self.check_is_connected(node, ports) {
            return;
        }
        let names: Vec<&str> = ports.inputs.iter().map(|input| input.name.as_str()).collect();
        let (connected, input_types) = (self.match_inputs(node, &names), planned.input_types());
        for (port, connection) in connected.iter().enumerate() {
            let declared = &ports.inputs[port];
            let Some(i) = connection else {
                self.unconnected(node, &declared.name, None);
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
            self.check_watermarks(connection);
            let edge = EdgePlan {
                from_name,
                to_name: format!("{}/{}", node.name, declared.name),
                capacity: 0,
                crossing: false,
                policy: connection.policy,
                largest: largest(spec.as_ref()),
                spec,
                from: producer_at,
                from_port,
                to: at,
                ty,
                buffer: 0,
                discards_unmatched: plan.stage.rule.discards_unmatched(port),
            };
            let given = nodes.get(producer_at).and_then(|n| n.planned.as_ref()).map(|p| p.output_types()[from_port]);
            // Messages from a later node are checked once that node is planned.
            if later || self.fits(&edge, given, declared.spec.as_ref(), &connection.place) {
                plan.in_edges.push(edges.len());
                edges.push(edge);
            }
        }
        self.check_bounds(node, plan);
    }

    /// Reports a problem and returns false if a kind declares more or fewer ports than its type
    /// has.
    fn check_port_counts(&mut self, node: &NodeSpec, planned: &dyn PlannedNode) -> bool {
        let ports = planned.ports();
        for (what, n, fixed) in
            [("inputs", ports.inputs.len(), planned.counts().0), ("outputs", ports.outputs.len(), planned.counts().1)]
        {
            if let Some(fixed) = fixed.filter(|fixed| *fixed != n) {
                let kind = &node.kind.value;
                let message = format!("kind `{kind}` must declare the {fixed} {what} of its type, got {n}");
                self.problem(
                    "E0131",
                    &node.kind.place,
                    message,
                    format!("report this error to the author of `{kind}`"),
                );
                return false;
            }
            if n > MAX_PORTS {
                let message = format!("a node must have at most {MAX_PORTS} {what}, got {n} at `{}`", node.name);
                self.problem("E0130", &node.place, message, "split the node into several nodes");
                return false;
            }
        }
        true
    }

    /// Reports a problem and returns false if no input is connected, or a source has one.
    fn check_is_connected(&mut self, node: &NodeSpec, ports: &Ports) -> bool {
        if node.inputs.is_empty() && !ports.inputs.is_empty() {
            if node.in_doubt {
                return false;
            }
            let names = ports.inputs.iter().map(|i| format!("`{}`", i.name)).collect::<Vec<_>>().join(", ");
            let message = format!("node `{}` expects {names}, but nothing is connected", node.name);
            let help = match &ports.inputs[..] {
                [_] => "write `from: node/port`".to_string(),
                inputs => {
                    let all: Vec<String> = inputs.iter().map(|i| format!("{}: node/port", i.name)).collect();
                    format!("write `inputs: {{ {} }}`", all.join(", "))
                }
            };
            self.problem("E0125", &node.place, message, help);
            return false;
        }
        if ports.inputs.is_empty()
            && let Some(first) = node.inputs.first()
        {
            let message = format!("kind `{}` is a source and reads no inputs", node.kind.value);
            let key = if first.port.is_some() { "inputs" } else { "from" };
            let help = format!("remove `{key}`, or write another `kind`");
            self.problem("E0125", &first.place, message, help);
            return false;
        }
        true
    }

    /// Reports the connections of a node that do not match its inputs, each of which may have a way
    /// out.
    pub(super) fn check_connections(&mut self, node: &NodeSpec, inputs: &[(String, Option<String>)]) {
        let names: Vec<&str> = inputs.iter().map(|(name, _)| name.as_str()).collect();
        let connected = self.match_inputs(node, &names);
        for ((name, help), _) in std::iter::zip(inputs, connected).filter(|(_, connection)| connection.is_none()) {
            self.unconnected(node, name, help.clone());
        }
    }

    fn unconnected(&mut self, node: &NodeSpec, port: &str, help: Option<String>) {
        if node.in_doubt {
            return;
        }
        let message = format!("input `{port}` of `{}` is not connected", node.name);
        let help = help.unwrap_or_else(|| format!("write `inputs: {{ {port}: node/port }}`"));
        self.problem("E0125", &node.place, message, help);
    }

    /// Returns the connection of each port, in the order of the ports, because that is the order in
    /// which the node gets its inputs.
    fn match_inputs(&mut self, node: &NodeSpec, ports: &[&str]) -> Vec<Option<usize>> {
        let mut connected: Vec<Option<usize>> = vec![None; ports.len()];
        for (i, connection) in node.inputs.iter().enumerate() {
            let name = connection.port.as_deref();
            let port = match name {
                None if ports.len() == 1 => Some(0),
                _ => ports.iter().position(|port| *port == name.unwrap_or("in")),
            };
            let names = ports.iter().copied();
            match (port, name) {
                (Some(port), _) if connected[port].is_some() => {
                    let message = format!("input `{}` of `{}` is connected twice", ports[port], node.name);
                    let help = format!("remove this connection of `{}`", ports[port]);
                    self.problem("E0126", &connection.place, message, help);
                }
                (Some(port), _) => connected[port] = Some(i),
                (None, Some(name)) => {
                    let message = format!("node `{}` has no input `{name}`", node.name);
                    self.problem("E0123", &connection.place, message, suggest(name, names));
                }
                (None, None) => {
                    let all = names.map(|n| format!("{n}: ..")).collect::<Vec<_>>().join(", ");
                    let message = format!("`from` requires a single input, got several inputs of node `{}`", node.name);
                    self.problem("E0123", &connection.place, message, format!("write `inputs: {{ {all} }}`"));
                }
            }
        }
        connected
    }

    /// Reports a problem for each dimension of an output without a bound.
    fn check_bounds(&mut self, node: &NodeSpec, plan: &NodePlan) {
        for out in &plan.outputs {
            for dim in out.spec.iter().flat_map(|s| &s.shape) {
                if let Dim::Unbounded(key) = dim {
                    let message = format!("the size of `{}/{}` has no bound", node.name, out.name);
                    self.problem("E0129", &node.config.place, message, format!("write `config: {{ {key}: .. }}`"));
                }
            }
        }
    }

    /// Reports a problem and returns false if the messages of an edge do not fit the port it leads
    /// to.
    pub(super) fn fits(
        &mut self,
        edge: &EdgePlan,
        given: Option<PortType>,
        want: Option<&PortSpec>,
        place: &Place,
    ) -> bool {
        let EdgePlan { from_name, to_name, ty, .. } = edge;
        if given != Some(*ty) {
            let have = given.map_or("nothing", |given| given.name);
            let message = format!("type mismatch: `{from_name}` produces {have}, `{to_name}` expects {}", ty.name);
            let help = format!("put a node that converts the type between `{from_name}` and `{to_name}`");
            self.problem("E0127", place, message, help);
            return false;
        }
        if let (Some(want), Some(have)) = (want, &edge.spec)
            && let Err(why) = want.accepts(&bounded(have, want))
        {
            let message = format!("type mismatch: `{from_name}` produces {have}, `{to_name}` expects {want}: {why}");
            self.problem("E0128", place, message, remedy(have, want));
            return false;
        }
        true
    }

    /// Reports watermarks of a connection that contradict each other, or its `when_full`.
    fn check_watermarks(&mut self, connection: &InputSpec) {
        let EdgePolicy { when_full, soft_capacity, max_bytes, soft_bytes, soft_evict, .. } = connection.policy;
        let marks = [
            ("soft_capacity", soft_capacity.is_some()),
            ("max_bytes", max_bytes.is_some()),
            ("soft_bytes", soft_bytes.is_some()),
            ("soft_evict", soft_evict.is_some()),
            ("urgent_capacity", connection.policy.urgent_capacity.is_some()),
        ];
        for (key, _) in marks.into_iter().filter(|(_, is_written)| *is_written) {
            let wrong = match key {
                _ if when_full == WhenFull::Latest => Some((
                    "requires a `when_full` other than `latest`",
                    format!("remove `{key}`, or write `when_full: drop_oldest`"),
                )),
                "soft_bytes" if max_bytes.is_none() => Some(("requires `max_bytes`", "add `max_bytes: 4MiB`".into())),
                "soft_evict"
                    if when_full != WhenFull::DropOldest || (soft_capacity.is_none() && soft_bytes.is_none()) =>
                {
                    Some((
                        "requires `when_full: drop_oldest` and a soft watermark",
                        "write `when_full: drop_oldest` and `soft_capacity: 8`".into(),
                    ))
                }
                _ => None,
            };
            if let Some((message, help)) = wrong {
                self.problem("E0133", connection.place_of(key), format!("`{key}` {message}"), help);
            }
        }
        for (key, bytes) in [("max_bytes", max_bytes), ("soft_bytes", soft_bytes)] {
            if bytes == Some(Bytes(0)) {
                let message = format!("`{key}` must be at least 1B, got 0B");
                self.problem("E0133", connection.place_of(key), message, format!("write `{key}: 4MiB`"));
            }
        }
        if let (Some(soft), Some(hard)) = (soft_bytes, max_bytes)
            && soft > hard
        {
            let place = connection.place_of("soft_bytes");
            let [soft, hard] = [soft, hard].map(|bytes| show_bytes(bytes.0));
            let message = format!("`soft_bytes` must be at most `max_bytes` ({hard}), got {soft}");
            self.problem("E0133", place, message, "write a smaller `soft_bytes`, or a larger `max_bytes`");
        }
    }
}

/// Returns the bytes of the largest message of a connection.
pub(super) fn largest(spec: Option<&PortSpec>) -> u64 {
    spec.and_then(PortSpec::max_bytes).unwrap_or(64) as u64
}

/// Returns a spec with the wanted dims in place of those without a bound, which are a problem of
/// their own.
fn bounded(have: &PortSpec, want: &PortSpec) -> PortSpec {
    let mut have = have.clone();
    for (dim, wanted) in std::iter::zip(&mut have.shape, &want.shape) {
        if matches!(dim, Dim::Unbounded(_)) {
            *dim = wanted.clone();
        }
    }
    have
}
