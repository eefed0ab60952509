//! Sizes: capacities of edges and slots of pools, before anything is allocated.

use super::effort::Effort;
use super::planner::Planner;
use super::{EdgePlan, NodePlan};
use crate::base::policy::{JoinPolicy, Pick, WhenFull};
use crate::edge::BURST;
use crate::file::spec::{MAX_CAPACITY, NodeSpec};
use crate::message::device::DevicePool;
use crate::message::pool::pool_bytes;
use crate::message::port_spec::{Dim, Memory, PortSpec};
use std::collections::HashSet;

/// The most messages that an input holds by default for a node that declares its own buffers.
const DEEP: usize = 4096;

/// Help for a capacity that is below the messages that move at once.
fn at_least(key: &str, need: usize) -> String {
    if need <= MAX_CAPACITY { format!("write `{key}: {need}`") } else { format!("remove `{key}`") }
}

impl Planner<'_> {
    /// Sets capacities, and which edges cross threads.
    pub(super) fn size_edges(&mut self, nodes: &mut [NodePlan], edges: &mut [EdgePlan], specs: &[&NodeSpec]) {
        for (i, edge) in edges.iter_mut().enumerate() {
            edge.crossing = nodes[edge.from].worker != nodes[edge.to].worker;
            nodes[edge.from].outputs[edge.from_port].edges.push(i);
            let emits = nodes[edge.from].outputs[edge.from_port].emits;
            let batch = nodes[edge.to].planned.as_ref().map_or(1, |p| p.batch());
            let port = edge.to_name.rsplit('/').next().unwrap_or_default();
            let inputs = &specs[edge.to].inputs;
            let written = inputs.iter().find(|c| c.port.as_deref().unwrap_or(port) == port);
            let bytes = edge.spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(64).max(1);
            // Room for several bursts between threads, and never more than a few MiB of default
            // buffering.
            let deep = nodes[edge.to].planned.as_ref().map_or(0, |p| p.ports().buffers);
            let (most, budget) = match edge.crossing {
                _ if deep > 0 => (DEEP, deep),
                true => (4 * BURST, 16 << 20),
                false => (BURST, 4 << 20),
            };
            let default = (budget / bytes).clamp(4, most).max(emits).max(batch);
            let place = |key: &str| written.map_or(&specs[edge.to].place, |written| written.place_of(key));
            let need = emits.max(batch);
            edge.capacity = match (edge.policy.when_full, edge.policy.capacity) {
                (WhenFull::Latest, Some(capacity @ 2..)) => {
                    let message = format!("`capacity` must be 1 with `when_full: latest`, got {capacity}");
                    let help = "remove `capacity`, or write `when_full: drop_oldest`";
                    self.problem("E0133", place("capacity"), message, help);
                    1
                }
                (WhenFull::Latest, _) => 1,
                (_, Some(capacity)) => {
                    if capacity < need {
                        let message =
                            format!("`capacity` must be at least the {need} messages of one call, got {capacity}");
                        self.problem("E0133", place("capacity"), message, at_least("capacity", need));
                    }
                    capacity
                }
                (_, None) => default,
            };
            let marks = [
                ("soft_capacity", edge.policy.soft_capacity, 1, edge.capacity),
                ("urgent_capacity", edge.policy.urgent_capacity, emits, usize::MAX),
            ];
            for (key, mark, least, most) in marks {
                if let Some(mark) = mark.filter(|mark| *mark < least || *mark > most) {
                    let (message, help) = if mark < least {
                        let message = format!("`{key}` must be at least the {least} messages of one call, got {mark}");
                        (message, at_least(key, least))
                    } else {
                        (
                            format!("`{key}` must be at most the `capacity` of {most}, got {mark}"),
                            format!("write `{key}: {most}`, or a larger `capacity`"),
                        )
                    };
                    self.problem("E0133", place(key), message, help);
                }
            }
            edge.buffer = edge.capacity + edge.policy.lane_capacity() + BURST * emits;
        }
    }

    /// A node that writes in place takes over the buffer if nothing else can hold it; otherwise it
    /// copies.
    pub(super) fn share_or_copy(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan]) {
        for at in 0..nodes.len() {
            if !nodes[at].planned.as_ref().is_some_and(|p| p.writes()) {
                continue;
            }
            let Some(edge) = nodes[at].in_edges.first().map(|e| &edges[*e]) else { continue };
            let (mut node, mut port) = (edge.from, edge.from_port);
            let exclusive = loop {
                let out = &nodes[node].outputs[port];
                let duplicates = nodes[node].policy().has_fault(|fault| fault.duplicate > 0.0);
                if out.edges.len() > 1 || out.rows > 1 || duplicates {
                    break false;
                }
                // Follow the buffer back to the node that filled it.
                let Some(planned) = &nodes[node].planned else { break true };
                let forwards = &planned.ports().outputs[port].forwards;
                let [input] = &forwards[..] else { break forwards.is_empty() };
                let shares = planned.ports().outputs.iter().filter(|out| out.forwards.contains(input)).count() > 1;
                let input = planned.ports().inputs.iter().position(|i| i.name == *input);
                // A join keeps messages that it may reuse or interpolate from.
                let rule = &nodes[node].stage.rule;
                let keeps = rule.policy == JoinPolicy::Sample || rule.pick == Pick::Interpolate && rule.anchor != input;
                if shares || keeps {
                    break false;
                }
                if planned.writes() {
                    // That node has an exclusive buffer or its own copy.
                    break true;
                }
                let Some(up) = input.and_then(|i| nodes[node].in_edges.get(i)).map(|e| &edges[*e]) else { break true };
                (node, port) = (up.from, up.from_port);
            };
            if !exclusive {
                nodes[at].copies = Some(0);
                nodes[at].notes.push("copies its input, because the buffer may be shared".into());
            }
        }
    }

    /// The slots of a pool are the sum of what every place on the way of a buffer can hold, up to
    /// the next node that fills a new one.
    pub(super) fn size_pools(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for at in 0..nodes.len() {
            for port in 0..nodes[at].outputs.len() {
                let forwards = nodes[at].planned.as_ref().is_some_and(|p| !p.ports().outputs[port].forwards.is_empty());
                let copies = nodes[at].copies.is_some();
                let creates = nodes[at].planned.as_ref().is_some_and(|p| p.ports().creates);
                let out = &nodes[at].outputs[port];
                let Some(spec) = out.spec.clone().filter(|_| !forwards || copies || creates) else { continue };
                // Messages on their way from the program, or on loan to it.
                let outside = nodes[at].planned.as_ref().map_or(0, |p| p.outside());
                if out.edges.is_empty() && !forwards {
                    // Nothing takes from this output; a node may still fill one message.
                    self.set_pool(nodes, at, port, out.emits.div_ceil(out.rows) + 1 + outside, &spec, specs);
                    continue;
                }
                let (held, crosses) = reach(nodes, edges, at, port, &self.effort);
                let messages = held + out.emits + outside;
                let slots = if out.rows > 1 { messages.div_ceil(out.rows) + 2 } else { messages + 1 };
                if copies {
                    nodes[at].copies = Some(slots);
                }
                nodes[at].outputs[port].stays = !crosses && outside == 0;
                self.set_pool(nodes, at, port, slots, &spec, specs);
            }
        }
    }

    /// Sizes the pools of interpolated messages: what joins and the consumers behind their nodes
    /// can hold.
    pub(super) fn size_blends(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for at in 0..nodes.len() {
            let (Some(planned), Pick::Interpolate) = (&nodes[at].planned, nodes[at].stage.rule.pick) else { continue };
            let ports = planned.ports();
            let mut blends = Vec::new();
            for (input, edge) in ports.inputs.iter().zip(&nodes[at].in_edges) {
                let Some(spec) = edges[*edge].spec.clone() else {
                    // `blends` has an entry for every input.
                    blends.push((0, 0));
                    continue;
                };
                let onward = ports.outputs.iter().enumerate().filter(|(_, out)| out.forwards.contains(&input.name));
                let held: usize = onward
                    .map(|(out, declared)| reach(nodes, edges, at, out, &self.effort).0.saturating_add(declared.emits))
                    .sum();
                // Sets that wait, and those of the burst in progress.
                let slots = held.saturating_add(2 * BURST + input.holds + 1);
                let origins = nodes[edges[*edge].from].outputs[edges[*edge].from_port].origins.len();
                match pool_bytes(&spec, slots, 1, origins) {
                    Some(bytes) => blends.push((slots, bytes)),
                    None => {
                        let message =
                            format!("cannot allocate {slots} slots of {spec} for `{}/{}`", specs[at].name, input.name);
                        let help = "produce smaller messages, or write `pick: nearest`";
                        self.problem("E0135", &specs[at].place, message, help);
                    }
                }
            }
            nodes[at].blends = blends;
        }
    }

    pub(super) fn set_pool(
        &mut self,
        nodes: &mut [NodePlan],
        at: usize,
        port: usize,
        slots: usize,
        spec: &PortSpec,
        specs: &[&NodeSpec],
    ) {
        self.set_device_pool(nodes, at, port, slots, spec, specs);
        let out = &mut nodes[at].outputs[port];
        let dynamic = spec.shape.iter().filter(|d| matches!(d, Dim::AtMost(_))).count();
        match pool_bytes(spec, slots, out.rows, out.origins.len()) {
            Some(bytes)
                if dynamic <= crate::message::pool::MAX_DYNAMIC
                    && spec.shape.len() <= crate::message::port_spec::MAX_RANK =>
            {
                (out.slots, out.bytes) = (slots, bytes);
            }
            // An unbounded size was refused where it was declared.
            _ if spec.shape.iter().any(|d| matches!(d, Dim::Unbounded(_))) => {}
            _ => {
                let place = specs[at].config.place.clone();
                let message = format!("cannot allocate {slots} slots of {spec} for `{}/{}`", specs[at].name, out.name);
                self.problem(
                    "E0135",
                    &place,
                    message,
                    "use at most 6 dimensions, bound every dimension, or produce smaller messages",
                );
            }
        }
    }

    /// Sets the bytes that a pool takes on a device, if its messages lie there.
    fn set_device_pool(
        &mut self,
        nodes: &mut [NodePlan],
        at: usize,
        port: usize,
        slots: usize,
        spec: &PortSpec,
        specs: &[&NodeSpec],
    ) {
        let node = &nodes[at];
        let device = node.planned.as_ref().and_then(|planned| planned.ports().device.clone());
        let Some(device) = device.filter(|_| matches!(spec.memory, Memory::Device(_))) else { return };
        let name = format!("{}/{}", node.name, node.outputs[port].name);
        match device.pool_bytes(&DevicePool { name: &name, spec, slots, rows: node.outputs[port].rows }) {
            Ok(bytes) => nodes[at].outputs[port].device_bytes = bytes,
            Err(why) => {
                let message = format!("cannot allocate {slots} slots of {spec} for `{name}`: {why}");
                let help = "keep smaller messages on the device, or lower the `capacity` of downstream edges";
                self.problem("E0135", &specs[at].config.place.clone(), message, help);
            }
        }
    }

    /// Numbers the sources and finds the nodes that each of them reaches.
    pub(super) fn number_sources(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan]) -> Vec<usize> {
        let sources: Vec<usize> = (0..nodes.len())
            .filter(|i| nodes[*i].planned.as_ref().is_some_and(|p| p.ports().inputs.is_empty()))
            .collect();
        // By node: the last source found to reach it.
        let mut seen = vec![usize::MAX; nodes.len()];
        for (number, source) in sources.iter().enumerate() {
            // `Planner::plan` refuses more sources.
            nodes[*source].stage.source = u16::try_from(number).unwrap_or(u16::MAX);
            let ahead = nodes[*source].planned.as_ref().is_some_and(|p| p.ports().ahead);
            let mut todo = vec![*source];
            seen[*source] = number;
            while let Some(at) = todo.pop() {
                nodes[at].reached_by.push(number);
                nodes[at].stage.rule.ahead |= ahead;
                if !self.effort.allows(1) {
                    return sources;
                }
                for edge in nodes[at].outputs.iter().flat_map(|out| &out.edges) {
                    let to = edges[*edge].to;
                    if std::mem::replace(&mut seen[to], number) != number {
                        todo.push(to);
                    }
                }
            }
        }
        sources
    }
}

/// Returns the most messages of one output that can be alive at once, following the buffer through
/// nodes that forward it, and whether any of them can be on another thread.
fn reach(nodes: &[NodePlan], edges: &[EdgePlan], node: usize, port: usize, effort: &Effort) -> (usize, bool) {
    let (mut total, mut crosses) = (0usize, false);
    let mut seen = HashSet::new();
    let mut todo = vec![(node, port)];
    while let Some((node, port)) = todo.pop() {
        if !seen.insert((node, port)) {
            continue;
        }
        if !effort.allows(2 + nodes[node].outputs[port].edges.len()) {
            break;
        }
        for edge in nodes[node].outputs[port].edges.iter().map(|e| &edges[*e]) {
            let Some(planned) = &nodes[edge.to].planned else { continue };
            let ports = planned.ports();
            let at = nodes[edge.to].in_edges.iter().position(|e| std::ptr::eq(&edges[*e], edge)).unwrap_or(0);
            let input = &ports.inputs[at.min(ports.inputs.len() - 1)];
            crosses |= edge.crossing || planned.outside() > 0;
            // In the edge, with the consumer for a turn, and kept by the consumer.
            let kept = match nodes[edge.to].stage.rule.policy {
                JoinPolicy::Sample => 1,
                // Messages are taken off the edge early to be sorted by time; interpolation also
                // keeps the last one taken.
                JoinPolicy::ByTime => BURST + 1,
                _ => 0,
            };
            let places = edge.capacity + edge.policy.lane_capacity();
            total = total.saturating_add(places + BURST.min(places) + input.holds + kept + 1);
            if nodes[edge.to].copies.is_some() {
                continue;
            }
            for (out, declared) in ports.outputs.iter().enumerate() {
                if declared.forwards.contains(&input.name) {
                    todo.push((edge.to, out));
                }
            }
        }
    }
    (total, crosses)
}
