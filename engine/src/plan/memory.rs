//! The bytes that a graph takes, before anything is allocated, and their limit.

use super::planner::Planner;
use super::{EdgePlan, NodePlan, OutputPlan, PlannedMemory};
use crate::base::error::Place;
use crate::base::unit::show_bytes;
use crate::edge::BURST;
use crate::ledger::{Run, copy_bytes, histogram_bytes};

impl Planner<'_> {
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
            events: crate::exec::worker_event::queue_bytes() + crate::exec::outlier::bytes() + spans,
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
                .chain(nodes.iter().map(|n| (own(n), format!("the largest part is the node `{}`", n.name))))
                .chain([(memory.files, "the largest part is the program's files in memory".to_string())])
                .collect();
            largest.sort();
            let largest = largest.pop().map(|(b, what)| format!(" ({what} with {})", show_bytes(b as u64)));
            let message = format!(
                "the memory of the graph must be at most {}, got {}{}",
                show_bytes(limit as u64),
                show_bytes(memory.total() as u64),
                largest.unwrap_or_default()
            );
            let place = match &self.spec.run.max_memory {
                Some(_) => self.spec.run.max_memory_place.clone(),
                None => Place { line: 0, ..self.spec.place.clone() },
            };
            let help = if limit == addresses {
                "lower capacities and message sizes, or raise the limit of the address space with `ulimit -v`"
            } else {
                "lower capacities and message sizes, or raise `run.max_memory`"
            };
            self.problem("E0136", &place, message, help);
        }
        memory
    }

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
            "the pools on devices must be at most {} (`run.max_memory`), got {} (the largest pool is `{largest}` with {})",
            show_bytes(limit as u64),
            show_bytes(memory.devices as u64),
            show_bytes(bytes as u64)
        );
        let place = self.spec.run.max_memory_place.clone();
        self.problem("E0136", &place, message, "lower the `capacity` of edges on the device, or the batch size");
    }
}

/// Returns the bytes of an edge: its queue, and the buffers of its endpoints. Each message may have
/// a run of its own.
fn edge_bytes(edge: &EdgePlan, consumer: &NodePlan) -> usize {
    let (message, run) = (edge.ty.message, size_of::<Run>());
    let EdgePlan { capacity, policy, buffer, .. } = edge;
    let (places, each, buffers) = if edge.crossing || policy.checks_each_message() {
        // A ring of messages and one of runs, or a queue of both with a number in each place; the
        // buffers that the producer fills and the consumer empties come on top.
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

/// Returns whether messages are taken off their edges before the node gets them: for nodes that may
/// have several inputs, even with one.
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

/// Returns the address space left to this process under its limit (`ulimit -v`), less a fifth for
/// threads and libraries.
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
