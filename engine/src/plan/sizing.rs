//! Sizes: capacities of edges, slots of pools, and bytes of everything, before anything is allocated.

use super::effort::Effort;
use super::planner::Planner;
use super::{EdgePlan, NodePlan, OutputPlan, PlannedMemory};
use crate::base::error::Place;
use crate::base::policy::{EdgePolicy, JoinPolicy, Pick, WhenFull};
use crate::base::unit::show_bytes;
use crate::edge::BURST;
use crate::file::spec::NodeSpec;
use crate::ledger::{Run, copy_bytes, histogram_bytes};
use crate::message::device::DevicePool;
use crate::message::pool::pool_bytes;
use crate::message::tensor::{Dim, Memory, PortSpec};
use crate::plan::registry::Role;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The most messages that an input holds by default for a node that declares its own buffers.
const DEEP: usize = 4096;

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
            // Room for several bursts between threads, and never more than a few MiB of default buffering.
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
                (WhenFull::Latest, Some(2..)) => {
                    let message = "an edge with `when_full: latest` holds one message";
                    self.problem("E0133", place("capacity"), message, "remove `capacity`, or choose `drop_oldest`");
                    1
                }
                (WhenFull::Latest, _) => 1,
                (_, Some(capacity)) => {
                    if capacity < need {
                        let message = format!("capacity {capacity} is below the {need} messages that move at once");
                        self.problem("E0133", place("capacity"), message, format!("write at least {need}"));
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
                        (
                            format!("`{key}` is below the {least} messages that move at once"),
                            format!("write at least {least}"),
                        )
                    } else {
                        (
                            format!("`{key}` is above the edge's capacity of {most}"),
                            "write less, or a larger `capacity`".into(),
                        )
                    };
                    self.problem("E0133", place(key), message, help);
                }
            }
            edge.buffer = edge.capacity + edge.policy.lane_capacity() + BURST * emits;
        }
    }

    /// Refuses joins that could wait forever for a lost partner. A message lost before the paths to the inputs part is missing
    /// at all inputs, and no input waits for it.
    pub(super) fn check_joins(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec], whole: &[bool]) {
        let all_known = !whole.contains(&false);
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| whole[*at]) {
            let rule = &node.stage.rule;
            if node.in_edges.len() < 2 || rule.patience.is_some() || !rule.waits(node.merges()) {
                continue;
            }
            if specs[at].has_unreadable_join() {
                continue;
            }
            if node.merges() {
                // Backpressure from one input may stop the source that the other input waits for.
                let from = |e: &usize| &nodes[edges[*e].from];
                let shared = node.in_edges.iter().enumerate().find_map(|(i, e)| {
                    let others = &node.in_edges[i + 1..];
                    let has = |other: &usize, source: &usize| from(other).reached_by.binary_search(source).is_ok();
                    let reached = |source: &&usize| others.iter().any(|other| has(other, source));
                    from(e).reached_by.iter().take_while(|_| self.effort.allows(others.len())).find(reached)
                });
                if let Some(source) = shared
                    .and_then(|n| nodes.iter().find(|s| usize::from(s.stage.source) == *n && s.role == Role::Source))
                {
                    let message = format!(
                        "`{}` takes its inputs {}, and several come from `{}`: backpressure from one could stop the one that \
                         is waited for",
                        node.name,
                        node.stage.rule.policy.name(),
                        source.name
                    );
                    let help = "write `patience: 16` in its `join`: after that many messages an input is skipped";
                    self.problem("E0134", &specs[at].place, message, help);
                    continue;
                }
            }
            if can_be_held(node)
                && all_known
                && let Some(other) = held_by_another(at, nodes, edges, &self.effort)
            {
                let message = format!(
                    "`{}` takes its inputs {}, and `{}` waits for the same sources: its backpressure could stop the one that \
                     is waited for",
                    node.name,
                    node.stage.rule.policy.name(),
                    nodes[other].name
                );
                let help = "write `patience: 16` in its `join`: after that many messages an input is skipped";
                self.problem("E0134", &specs[at].place, message, help);
                continue;
            }
            if node.stage.rule.policy == JoinPolicy::ByTime && stands_alone(at, nodes, edges, &self.effort) {
                continue;
            }
            let ways: Vec<BTreeSet<Loss>> =
                node.in_edges.iter().map(|e| losses(*e, nodes, edges, &self.effort)).collect();
            let parted = ways.iter().flatten().find(|loss| !ways.iter().all(|way| way.contains(loss)));
            let Some(loss) = parted else { continue };
            let why = match *loss {
                Loss::Edge(e) if edges[e].policy.max_age.is_some() => {
                    format!("`{}` drops messages older than its `max_age`", edges[e].to_name)
                }
                Loss::Edge(e) if edges[e].policy.lane_capacity() > 0 => {
                    format!("urgent messages overtake others on the edge from `{}`", edges[e].from_name)
                }
                Loss::Edge(e) => {
                    format!(
                        "the edge from `{}` may lose messages ({})",
                        edges[e].from_name,
                        edges[e].policy.when_full.name()
                    )
                }
                Loss::Node(n) if nodes[n].stage.rule.policy == JoinPolicy::Sample => {
                    format!(
                        "`{}` samples, and drops messages that arrive before the first of its other inputs",
                        nodes[n].name
                    )
                }
                Loss::Node(n) if merges_streams(&nodes[n]) => {
                    format!("`{}` merges several streams", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].outputs.iter().any(|out| makes_many(&nodes[n], out)) => {
                    format!("`{}` makes several messages from one", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].stage.rule.patience.is_some() => {
                    format!("`{}` stops waiting for partners after its `patience`", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].policy().on_error.continues() => {
                    format!("`{}` skips messages it fails on", nodes[n].name)
                }
                Loss::Port(n, _) if !nodes[n].planned.as_ref().is_some_and(|planned| planned.ports().routes) => {
                    format!("`{}` forwards each input by its own output, not in step", nodes[n].name)
                }
                Loss::Node(n) | Loss::Port(n, _) => format!("`{}` may drop messages", nodes[n].name),
            };
            let message = format!("`{}` joins its inputs, and {why}: it could wait forever for a partner", node.name);
            let has_source = |e: &usize, source: &usize| nodes[edges[*e].from].reached_by.binary_search(source).is_ok();
            let first = node.in_edges.first().map_or(&[][..], |e| &nodes[edges[*e].from].reached_by);
            let is_apart = |e: &usize| !first.iter().any(|source| has_source(e, source));
            let help = if rule.policy == JoinPolicy::Zip && node.in_edges.iter().skip(1).any(is_apart) {
                "join sources of their own by time, `join: { policy: by_time, within: 10ms }`, or with `policy: sample`; \
                 where message 1 belongs to message 1, write `join: { patience: 16 }`"
            } else {
                "write `join: { patience: 16 }`: after that many messages a partner counts as lost"
            };
            self.problem("E0134", &specs[at].place, message, help);
        }
    }

    /// A node that writes in place takes over the buffer if nothing else can hold it; otherwise it copies.
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

    /// The slots of a pool are the sum of what every place on the way of a buffer can hold, up to the next node that fills a new one.
    pub(super) fn size_pools(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for at in 0..nodes.len() {
            for port in 0..nodes[at].outputs.len() {
                let forwards = nodes[at].planned.as_ref().is_some_and(|p| !p.ports().outputs[port].forwards.is_empty());
                let copies = nodes[at].copies.is_some();
                let out = &nodes[at].outputs[port];
                let Some(spec) = out.spec.clone().filter(|_| !forwards || copies) else { continue };
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
                if forwards {
                    nodes[at].copies = Some(slots);
                }
                nodes[at].outputs[port].stays = !crosses && outside == 0;
                self.set_pool(nodes, at, port, slots, &spec, specs);
            }
        }
    }

    /// Sizes the pools of interpolated messages: what joins and the consumers behind their nodes can hold.
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
                        let message = format!(
                            "{slots} slots of {spec} for `{}/{}` cannot be allocated",
                            specs[at].name, input.name
                        );
                        self.problem("E0135", &specs[at].place, message, "make them smaller, or write `pick: nearest`");
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
                    && spec.shape.len() <= crate::message::tensor::MAX_RANK =>
            {
                (out.slots, out.bytes) = (slots, bytes);
            }
            // An unbounded size was refused where it was declared.
            _ if spec.shape.iter().any(|d| matches!(d, Dim::Unbounded(_))) => {}
            _ => {
                let place = specs[at].config.place.clone();
                let message =
                    format!("{slots} slots of {spec} for `{}/{}` cannot be allocated", specs[at].name, out.name);
                self.problem("E0135", &place, message, "bound every dimension, use at most 6, and make them smaller");
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
                let message = format!("{slots} slots of {spec} for `{name}` cannot be allocated: {why}");
                let help = "let smaller or other messages be on the device, or lower the capacities of edges behind it";
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

    pub(super) fn memory(&mut self, nodes: &[NodePlan], edges: &[EdgePlan]) -> PlannedMemory {
        let pools = nodes.iter().flat_map(|n| &n.outputs).fold(0usize, |sum, o| sum.saturating_add(o.bytes));
        // The origins of earlier calls, kept by nodes whose messages combine several calls.
        let kept = |n: &NodePlan| if n.stage.traced { n.planned.as_ref().map_or(0, |p| p.ports().spans) } else { 0 };
        let kept = nodes.iter().fold(0usize, |sum, n| sum.saturating_add(kept(n) * 8 * (n.stage.sources.len() + 2)));
        let blends = nodes.iter().flat_map(|n| &n.blends).fold(0usize, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let pools = pools.saturating_add(kept).saturating_add(blends);
        let edge_bytes = edges.iter().fold(0usize, |sum, e| sum.saturating_add(edge_bytes(e, &nodes[e.to])));
        // The stamps of what a turn has sent by each output.
        let stamps = |out: &OutputPlan| (BURST.max(out.emits) + 1).saturating_mul(size_of::<Run>());
        let edge_bytes = nodes.iter().flat_map(|n| &n.outputs).fold(edge_bytes, |sum, o| sum.saturating_add(stamps(o)));
        let edge_bytes = nodes.iter().fold(edge_bytes, |sum, n| sum.saturating_add(stage_bytes(n, edges)));
        let own = |n: &NodePlan| n.planned.as_ref().map_or(0, |p| p.ports().memory);
        let node_bytes = nodes.iter().fold(0usize, |sum, n| sum.saturating_add(own(n)));
        let (mut hops, mut paths) = (0usize, 0usize);
        for node in nodes {
            let is_on_device = node.planned.as_ref().is_some_and(|planned| planned.ports().device.is_some());
            // A join has its skew and, at a model, the wait of its batches.
            let own = 4 + 2 * usize::from(node.has_skew()) + usize::from(is_on_device);
            hops = hops.saturating_add(own);
            if node.outputs.is_empty() {
                let ages = node.stage.sources.iter().filter(|(_, is_reused)| *is_reused).count();
                (hops, paths) = (hops.saturating_add(ages), paths.saturating_add(node.stage.sources.len()));
            }
        }
        let of_all =
            |bytes: fn(u8) -> usize| hops.saturating_mul(bytes(2)).saturating_add(paths.saturating_mul(bytes(3)));
        let workers = nodes.iter().map(|node| node.worker + 1).max().unwrap_or(0);
        let spans = if self.options.spans { workers * crate::ledger::span::pages_bytes() } else { 0 };
        let addresses = addresses_left();
        let limit = self.spec.run.max_memory.map_or_else(default_memory, |b| b.0 as usize).min(addresses);
        let memory = PlannedMemory {
            pools,
            edges: edge_bytes,
            nodes: node_bytes,
            histograms: of_all(histogram_bytes),
            windows: of_all(copy_bytes).saturating_mul(2),
            events: crate::exec::notice::queue_bytes() + crate::exec::outlier::bytes() + spans,
            devices: nodes.iter().flat_map(|n| &n.outputs).fold(0usize, |sum, o| sum.saturating_add(o.device_bytes)),
            files: self.kept_files().owned(),
            limit,
        };
        self.check_device_memory(nodes, &memory);
        if memory.total() > limit {
            let mut largest: Vec<(usize, String)> = nodes
                .iter()
                .flat_map(|n| {
                    n.outputs.iter().map(|o| (o.bytes, format!("the largest pool is `{}/{}`", n.name, o.name)))
                })
                .chain(nodes.iter().map(|n| (own(n), format!("`{}` takes the most for itself,", n.name))))
                .chain([(memory.files, "the program's files in memory take the most,".to_string())])
                .collect();
            largest.sort();
            let largest = largest.pop().map(|(b, what)| format!("; {what} with {}", show_bytes(b as u64)));
            let message = format!(
                "the plan takes {}, and the limit is {}{}",
                show_bytes(memory.total() as u64),
                show_bytes(limit as u64),
                largest.unwrap_or_default()
            );
            let place = match &self.spec.run.max_memory {
                Some(_) => self.spec.run.max_memory_place.clone(),
                None => Place { line: 0, ..self.spec.place.clone() },
            };
            let help = if limit == addresses {
                "lower capacities and sizes, or raise the limit of address space: `ulimit -v`"
            } else {
                "lower capacities and sizes, or raise `run.max_memory`"
            };
            self.problem("E0136", &place, message, help);
        }
        memory
    }
}

impl Planner<'_> {
    /// Reports pools that take more of a device's memory than the graph may take.
    fn check_device_memory(&mut self, nodes: &[NodePlan], memory: &PlannedMemory) {
        // The default limit is a part of the host's memory.
        let Some(limit) = self.spec.run.max_memory.map(|bytes| bytes.0 as usize) else { return };
        if memory.devices <= limit {
            return;
        }
        let largest =
            nodes.iter().flat_map(|n| n.outputs.iter().map(|o| (o.device_bytes, format!("{}/{}", n.name, o.name))));
        let (bytes, largest) = largest.max().unwrap_or_default();
        let message = format!(
            "the pools on devices take {}, and the limit is {} (`run.max_memory`); the largest, of `{largest}`, takes {}",
            show_bytes(memory.devices as u64),
            show_bytes(limit as u64),
            show_bytes(bytes as u64)
        );
        let place = self.spec.run.max_memory_place.clone();
        self.problem("E0136", &place, message, "lower the capacities of edges on the device, or the batches");
    }
}

/// A place where messages may be lost, duplicated or put out of step on the way to a join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Edge(usize),
    Node(usize),
    /// An output that gets only part of the messages of a node that routes, or gets them out of step.
    Port(usize, usize),
}

/// Returns whether an edge delivers as many messages as its source begins.
pub(super) fn loses_nothing(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    losses(edge, nodes, edges, effort).is_empty()
}

/// Returns every place on the paths to an edge's end where messages may be lost or multiplied: either way the inputs of a join no
/// longer match.
pub(super) fn losses(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> BTreeSet<Loss> {
    let (mut found, mut seen, mut todo) = (BTreeSet::new(), HashSet::from([edge]), vec![edge]);
    while let Some(at) = todo.pop() {
        if !effort.allows(4) {
            break;
        }
        let EdgePolicy { when_full, max_age, .. } = edges[at].policy;
        if when_full != WhenFull::Block || max_age.is_some() || edges[at].policy.lane_capacity() > 0 {
            found.insert(Loss::Edge(at));
        }
        let from = edges[at].from;
        let drops = nodes[from].policy().has_fault(|fault| fault.drop > 0.0);
        let gives_up = !nodes[from].stage.rules.deadlines.is_empty();
        let selects = nodes[from].planned.as_ref().is_some_and(|planned| planned.ports().selective);
        let routes = nodes[from].planned.as_ref().is_some_and(|planned| planned.ports().routes);
        // A sampling node drops messages that arrive before the first of its other inputs.
        let parts = matches!(nodes[from].stage.rule.policy, JoinPolicy::ByTime | JoinPolicy::Sample);
        let waits = nodes[from].stage.rule.patience.is_some() || parts;
        let out = &nodes[from].outputs[edges[at].from_port];
        let duplicates = nodes[from].policy().has_fault(|fault| fault.duplicate > 0.0);
        let many = merges_streams(&nodes[from]) || makes_many(&nodes[from], out) || duplicates;
        if many || nodes[from].policy().on_error.continues() || waits || drops || gives_up || (selects && !routes) {
            found.insert(Loss::Node(from));
        }
        // Messages not matched by sequence number and forwarded unchanged have different numbers at each output.
        let is_out_of_step = parts && nodes[from].in_edges.len() > 1 && forwards(&nodes[from], out);
        if routes || is_out_of_step {
            found.insert(Loss::Port(from, edges[at].from_port));
        }
        todo.extend(nodes[from].in_edges.iter().filter(|e| seen.insert(**e)));
    }
    found
}

/// Returns whether every node before an edge sends one message for each that it takes.
pub(super) fn keeps_rate(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let (mut seen, mut todo) = (HashSet::from([edge]), vec![edge]);
    while let Some(at) = todo.pop() {
        let from = &nodes[edges[at].from];
        let selects = from.planned.as_ref().is_some_and(|planned| planned.ports().selective);
        if !effort.allows(1) || selects || makes_many(from, &from.outputs[edges[at].from_port]) {
            return false;
        }
        todo.extend(from.in_edges.iter().filter(|edge| seen.insert(**edge)));
    }
    true
}

/// Returns whether another join could hold up a node. Nodes that match by sequence number, as `zip` and `in_turn` do, stay in step with
/// each other.
pub(super) fn can_be_held(node: &NodePlan) -> bool {
    matches!(node.stage.rule.policy, JoinPolicy::OldestFirst | JoinPolicy::ByTime)
}

/// Returns whether a node forwards messages of several inputs.
fn merges_streams(node: &NodePlan) -> bool {
    node.merges() && node.in_edges.len() > 1
}

/// Returns whether an output forwards messages of an input.
fn forwards(node: &NodePlan, out: &OutputPlan) -> bool {
    let outputs = node.planned.iter().flat_map(|planned| &planned.ports().outputs);
    outputs.into_iter().any(|port| port.name == out.name && !port.forwards.is_empty())
}

/// Returns whether a call may make several messages from one.
fn makes_many(node: &NodePlan, out: &OutputPlan) -> bool {
    out.emits > out.rows && node.planned.is_some() && !forwards(node, out)
}

/// Returns the most messages of one output that can be alive at once, following the buffer through nodes that forward it, and
/// whether any of them can be on another thread.
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
                // Messages are taken off the edge early to be sorted by time; interpolation also keeps the last one taken.
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

/// Returns the bytes of an edge: its queue, and the buffers of its endpoints. Each message may have a run of its own.
fn edge_bytes(edge: &EdgePlan, consumer: &NodePlan) -> usize {
    let (message, run) = (edge.ty.message, size_of::<Run>());
    let EdgePlan { capacity, policy, buffer, .. } = edge;
    let (places, each, buffers) = if edge.crossing || policy.checks_each_message() {
        // A ring of messages and one of runs, or a queue of both with a number in each place; the buffers that the producer fills
        // and the consumer empties come on top.
        (capacity + policy.lane_capacity(), message + run + size_of::<usize>(), 2)
    } else {
        // The buffers in circulation, and the edge's runs.
        (buffer + 1, run, 3)
    };
    let joins = has_queues(consumer);
    let queue = places.saturating_mul(each);
    let ends = buffer.saturating_mul(message).saturating_mul(buffers).saturating_add((buffer + 1).saturating_mul(run));
    // Messages taken off the edge before their partners arrive.
    let held = if joins { (buffer + BURST).saturating_mul(message + run) } else { 0 };
    let in_place = consumer.planned.as_ref().is_some_and(|planned| planned.writes());
    let written = if in_place { buffer.saturating_mul(message) } else { 0 };
    [queue, ends, held, written].into_iter().fold(0, usize::saturating_add)
}

/// Returns whether messages are taken off their edges before the node gets them: for nodes that may have several inputs, even with one.
fn has_queues(node: &NodePlan) -> bool {
    node.planned.as_ref().is_some_and(|planned| planned.counts().0.is_none_or(|inputs| inputs > 1))
}

/// Returns the bytes a stage keeps for the messages of its largest turn.
fn stage_bytes(node: &NodePlan, edges: &[EdgePlan]) -> usize {
    let most = node.in_edges.iter().map(|edge| edges[*edge].buffer).max().map_or(0, |buffer| buffer.max(BURST) + 1);
    let joined = if has_queues(node) { size_of::<Run>() } else { 0 };
    // Ledgers and origins of a sink; if origins are tracked, one for each source.
    let ledgers = if node.outputs.is_empty() { 24 } else { 0 };
    let traced = if node.stage.traced { 4 + 24 * node.stage.sources.len().max(1) } else { 0 };
    let filtered = if node.stage.rules.is_empty() { 0 } else { 9 + 8 * node.stage.sources.len().max(1) };
    most.saturating_mul(joined + ledgers + traced + filtered)
}

/// Returns the address space left to this process under its limit (`ulimit -v`), less a fifth for threads and libraries.
fn addresses_left() -> usize {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    let limit = getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(soft, _)| soft);
    if limit == RLIM_INFINITY {
        return usize::MAX;
    }
    let status = crate::host::files::system_text("/proc/self/status").unwrap_or_default();
    let taken =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let left = limit.saturating_sub(taken.unwrap_or(0u64).saturating_mul(1024));
    usize::try_from(left / 5 * 4).unwrap_or(usize::MAX)
}

/// 80 % of the memory of the control group or the machine.
fn default_memory() -> usize {
    let group =
        crate::host::files::system_text("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse::<usize>().ok());
    let machine = crate::host::files::system_text("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()?.checked_mul(1024)
    });
    match (group, machine) {
        (Some(a), Some(b)) => a.min(b) / 10 * 8,
        (Some(a), None) | (None, Some(a)) => a / 10 * 8,
        (None, None) => usize::MAX,
    }
}

/// Returns whether a join by time has streams of its own: no two inputs share a source, and no other node waits for any of them except
/// behind this node. A loss on one input then shows by the next message on it, which nothing holds back.
fn stands_alone(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let mut sources = HashSet::new();
    let own = nodes[at].in_edges.iter().flat_map(|e| &nodes[edges[*e].from].reached_by).all(|n| sources.insert(*n));
    own && nodes.iter().enumerate().all(|(other, node)| {
        let waits =
            node.in_edges.len() > 1 && node.stage.rule.patience.is_none() && node.stage.rule.waits(node.merges());
        let shares = || effort.allows(node.reached_by.len()) && node.reached_by.iter().any(|n| sources.contains(n));
        other == at || !waits || !shares() || comes_through(at, other, nodes, edges, effort)
    })
}

/// Returns whether every message that reaches `node` has passed through `gate`.
pub(super) fn comes_through(gate: usize, node: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let (mut seen, mut todo) = (HashSet::from([node]), vec![node]);
    while let Some(at) = todo.pop() {
        if nodes[at].in_edges.is_empty() || !effort.allows(2) {
            return false;
        }
        let before = nodes[at].in_edges.iter().map(|edge| edges[*edge].from).filter(|from| *from != gate);
        todo.extend(before.filter(|from| seen.insert(*from)));
    }
    true
}

/// Maps each source behind a node to its inputs, one bit for each.
fn ways_in(
    node: &NodePlan,
    nodes: &[NodePlan],
    edges: &[EdgePlan],
    among: impl Fn(usize) -> bool,
) -> HashMap<usize, u32> {
    let mut ways = HashMap::new();
    for (input, edge) in node.in_edges.iter().enumerate() {
        for source in nodes[edges[*edge].from].reached_by.iter().filter(|source| among(**source)) {
            *ways.entry(*source).or_insert(0) |= 1 << (input % 32);
        }
    }
    ways
}

/// Returns another node without patience that waits for two sources which this one takes by different inputs, not in step.
pub(super) fn held_by_another(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> Option<usize> {
    if !effort.allows(4 * nodes[at].reached_by.len()) {
        return None;
    }
    let here = ways_in(&nodes[at], nodes, edges, |_| true);
    // Whether two sources do not come by the same single input.
    let are_apart = |one: u32, other: u32| one != other || one.count_ones() > 1;
    (0..nodes.len()).find(|other| {
        let node = &nodes[*other];
        if *other == at
            || node.in_edges.len() < 2
            || node.stage.rule.patience.is_some()
            || !node.stage.rule.waits(node.merges())
        {
            return false;
        }
        // With fewer than two shared sources it cannot block one against another.
        let shared = node.reached_by.iter().filter(|source| here.contains_key(source)).take(2).count();
        if !effort.allows(2 * node.reached_by.len()) || shared < 2 {
            return false;
        }
        // A node that zips messages sent by this very node stays in step with it.
        if node.stage.rule.policy == JoinPolicy::Zip && comes_through(at, *other, nodes, edges, effort) {
            return false;
        }
        let there = ways_in(node, nodes, edges, |source| here.contains_key(&source));
        // Sources that come by the same inputs at both nodes are equivalent.
        let mut alike: HashMap<(u32, u32), bool> = HashMap::new();
        #[expect(clippy::iter_over_hash_type, reason = "how often each pair occurs does not depend on the order")]
        for (source, way) in &there {
            alike.entry((here[source], *way)).and_modify(|is_several| *is_several = true).or_insert(false);
        }
        if !effort.allows(8 * there.len() + alike.len() * alike.len()) {
            return false;
        }
        let kinds: Vec<(&(u32, u32), &bool)> = alike.iter().collect();
        kinds.iter().enumerate().any(|(i, (one, is_several))| {
            let others = kinds[i + 1..].iter().map(|(other, _)| *other).chain(is_several.then_some(*one));
            others.into_iter().any(|other| are_apart(one.0, other.0) && are_apart(one.1, other.1))
        })
    })
}
