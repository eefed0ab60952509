//! Loops of a graph: when the run ends them.
//!
//! The nodes of a loop wait for each other's end, so none ends by itself. The run ends a loop once every edge into it is closed and no message
//! is left in it, or, after a stop, once its messages have gone round often enough: the first node of the loop takes no more messages, and its
//! outputs are closed. Then the other nodes end one after the other, and so do the nodes downstream. What still comes back is counted as left.

use crate::edge::Shared;
use crate::exec::shared::{Change, Command, RunShared};
use crate::exec::stage::Counts;
use crate::host::sync::{Arc, Ordering, fence};
use crate::plan::Plan;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// After a stop, each message of a loop may go round so often before a check ends the loop.
const ROUNDS: u64 = 16;
/// How long nothing may have been taken before a loop without messages is ended.
const SETTLED: Duration = Duration::from_millis(10);

/// Nodes whose messages may come back to them.
pub(crate) struct Loop {
    /// The node that ends first, and its worker.
    node: usize,
    worker: usize,
    members: Vec<Arc<Counts>>,
    /// The workers of all its nodes.
    workers: HashSet<usize>,
    /// The edges that lead into the loop, and those within it.
    outside: Vec<Arc<Shared>>,
    inside: Vec<Arc<Shared>>,
}

/// What was last seen of a loop into which no more messages come.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenLoop {
    /// The calls of all its nodes, and since when their number is the same.
    calls: u64,
    since: Option<Instant>,
    /// Its first node was told to end.
    is_told: bool,
    /// After a stop: the number of calls at which its messages have gone round often enough.
    enough: Option<u64>,
}

/// Returns the loops of a graph; what is left of a loop without its first node may be another.
pub(crate) fn loops(plan: &Plan, counts: &[Arc<Counts>], edges: &[Arc<Shared>]) -> Vec<Loop> {
    let mut found = Vec::new();
    let mut parts: Vec<HashSet<usize>> = vec![(0..plan.nodes().len()).collect()];
    while let Some(part) = parts.pop() {
        let within = plan.edges().iter().filter(|edge| part.contains(&edge.from) && part.contains(&edge.to));
        let graph = DiGraph::<(), ()>::from_edges(within.map(|edge| (edge.from as u32, edge.to as u32)));
        for members in petgraph::algo::kosaraju_scc(&graph).into_iter().filter(|members| members.len() > 1) {
            let mut members: HashSet<usize> = members.into_iter().map(NodeIndex::index).collect();
            let into = || plan.edges().iter().enumerate().filter(|(_, edge)| members.contains(&edge.to));
            let (inside, outside): (Vec<_>, Vec<_>) = into().partition(|(_, edge)| members.contains(&edge.from));
            // Where messages come in; a loop without such a node has no messages but those that its nodes make.
            let first = outside.iter().map(|(_, edge)| edge.to).min().or_else(|| members.iter().copied().min());
            let Some(node) = first else { continue };
            let shared = |part: Vec<(usize, _)>| part.into_iter().map(|(at, _)| edges[at].clone()).collect();
            found.push(Loop {
                node,
                worker: plan.nodes()[node].worker,
                members: members.iter().map(|member| counts[*member].clone()).collect(),
                workers: members.iter().map(|member| plan.nodes()[*member].worker).collect(),
                outside: shared(outside),
                inside: shared(inside),
            });
            members.remove(&node);
            parts.push(members);
        }
    }
    found
}

impl Loop {
    /// Whether the loop is to end. `has_workers`: its nodes may move messages meanwhile. `at_once`: no node has work, or none is waited for.
    fn is_to_end(&self, seen: &mut SeenLoop, shared: &RunShared, has_workers: bool, at_once: bool) -> bool {
        let is_stopping = shared.is_stopping();
        // Read before the edges and the calls: a worker that waits has nothing on its way from a call to an edge.
        let are_idle = self.workers.iter().all(|worker| shared.at[*worker].node().is_none());
        fence(Ordering::Acquire);
        let is_fed = self.outside.iter().any(|edge| !edge.is_closed());
        // Without an edge into it, only a stop ends what its nodes do by themselves.
        if seen.is_told || is_fed || (self.outside.is_empty() && !is_stopping) {
            return false;
        }
        let waiting: u64 = self.outside.iter().chain(&self.inside).map(|edge| edge.fill()).sum();
        let (mut calls, mut is_calling, mut has_wakes) = (0, false, false);
        for Counts { taken, done, failed, lost, wakes, .. } in self.members.iter().map(|counts| &**counts) {
            calls += taken.get();
            is_calling |= taken.get() != done.get() + failed.get() + lost.get();
            has_wakes |= wakes.get() > 0;
        }
        let now = Instant::now();
        if seen.calls != calls || seen.since.is_none() {
            (seen.calls, seen.since) = (calls, Some(now));
        }
        let is_settled = at_once || has_workers && are_idle && seen.since.is_some_and(|since| now - since >= SETTLED);
        if waiting == 0 && !is_calling && is_settled && (is_stopping || !has_wakes) {
            return true;
        }
        if !is_stopping {
            return false;
        }
        let round = (waiting + 1) * self.members.len() as u64;
        let enough = *seen.enough.get_or_insert(calls + ROUNDS * round);
        calls >= enough || at_once
    }

    /// Tells its first node to end. If too much is queued for its worker, the next look tells it.
    fn end(&self, seen: &mut SeenLoop, shared: &RunShared) {
        let command = Command { node: self.node, change: Change::EndLoop };
        seen.is_told = shared.commands[self.worker].push(command).is_ok();
        shared.bell(self.worker).ring();
    }
}

/// Ends the loops that are to end. Returns whether there was one.
pub(crate) fn end(loops: &[Loop], seen: &mut [SeenLoop], shared: &RunShared, has_workers: bool, at_once: bool) -> bool {
    let mut has_ended = false;
    for (one, seen) in loops.iter().zip(seen) {
        if one.is_to_end(seen, shared, has_workers, at_once) {
            one.end(seen, shared);
            has_ended = true;
        }
    }
    has_ended
}
