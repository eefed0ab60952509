//! Loops of a graph: when the run ends them.
//!
//! The nodes of a loop wait for each other's end, so none ends by itself. The run ends a loop once
//! every edge into it is closed and no message is left in it, or, after a stop, once its messages
//! have gone round often enough: the first node of the loop takes no more messages, and its outputs
//! are closed. Then the other nodes end one after the other, and so do the nodes downstream. What
//! still comes back is counted as left.
//!
//! Without its first node, a loop may contain others. After a stop, the first nodes of all of them
//! end together. Otherwise each inner loop ends once it is empty, which may be before the loop
//! around it ends.

use crate::edge::EdgeShared;
use crate::exec::shared::{Change, RunShared};
use crate::exec::stage::StageCounts;
use crate::host::sync::{Arc, Ordering, fence};
use crate::plan::Plan;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// After a stop, each message of a loop may go round so often before a check ends the loop.
const ROUNDS: u64 = 16;
/// How long nothing may have been taken before a loop without messages is ended.
const SETTLED: Duration = Duration::from_millis(10);

/// The loops of a graph. A node and an edge are there once, however many loops contain them.
pub(crate) struct Loops {
    nesting: Nesting,
    /// The nodes in loops, by the innermost.
    nodes: Vec<LoopMember>,
    /// The edges that lead into loops, and those within.
    edges: Vec<LoopEdge>,
    /// By loop: the worker of its first node.
    worker_of_first: Vec<usize>,
}

/// A node in a loop.
struct LoopMember {
    innermost: usize,
    worker: usize,
    counts: Arc<StageCounts>,
}

/// An edge to a node in a loop.
struct LoopEdge {
    /// The innermost loop of its consumer.
    innermost: usize,
    /// The depth of the innermost loop that contains both ends; 0 for none.
    depth: u32,
    counters: Arc<EdgeShared>,
}

/// The loops as a tree: each is followed by the loops that are left of it without its first node.
#[derive(Debug, Default)]
struct Nesting {
    loops: Vec<Loop>,
    /// The innermost loop of each node in one.
    innermost: BTreeMap<usize, usize>,
}

/// Nodes whose messages may come back to them.
#[derive(Debug)]
struct Loop {
    parent: Option<usize>,
    /// 1 for a loop that is in no other.
    depth: u32,
    /// The node that ends first.
    first: usize,
    /// The number of its nodes.
    size: u64,
    /// Whether an edge leads into it.
    has_entry: bool,
}

impl Nesting {
    /// Finds the loops among edges, given as their two ends. The time is that of a search of a
    /// loop's edges for each level of loops.
    fn new(ends: &[(usize, usize)]) -> Self {
        let mut into: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, (_, to)) in ends.iter().enumerate() {
            into.entry(*to).or_default().push(at);
        }
        let mut nesting = Nesting::default();
        let mut parts = vec![(None, ends.to_vec())];
        while let Some((parent, part)) = parts.pop() {
            let begin = nesting.loops.len();
            nesting.split(parent, &part, ends, &into);
            let mut inner: Vec<Vec<(usize, usize)>> = vec![Vec::new(); nesting.loops.len() - begin];
            for (from, to) in part {
                let at = |node| nesting.innermost.get(&node).copied().filter(|at| *at >= begin);
                if let (Some(at), true) = (at(from), at(from) == at(to))
                    && ![from, to].contains(&nesting.loops[at].first)
                {
                    inner[at - begin].push((from, to));
                }
            }
            parts.extend(inner.into_iter().enumerate().map(|(at, part)| (Some(begin + at), part)));
        }
        nesting
    }

    /// Adds the loops of a part of the graph that are in no other loop of that part.
    fn split(
        &mut self,
        parent: Option<usize>,
        part: &[(usize, usize)],
        ends: &[(usize, usize)],
        into: &HashMap<usize, Vec<usize>>,
    ) {
        let mut numbers = HashMap::new();
        let mut graph = DiGraph::<usize, ()>::new();
        for (from, to) in part {
            let [from, to] = [*from, *to].map(|node| *numbers.entry(node).or_insert_with(|| graph.add_node(node)));
            graph.add_edge(from, to, ());
        }
        for members in petgraph::algo::kosaraju_scc(&graph).into_iter().filter(|members| members.len() > 1) {
            let members: Vec<usize> = members.into_iter().map(|node: NodeIndex| graph[node]).collect();
            let at = self.loops.len();
            self.innermost.extend(members.iter().map(|node| (*node, at)));
            let is_outside = |edge: &&usize| self.innermost.get(&ends[**edge].0) != Some(&at);
            let entries = members.iter().flat_map(|node| &into[node]).filter(is_outside);
            // Where messages come in; a loop without such a node has no messages but those that its
            // nodes make.
            let first = entries.map(|edge| ends[*edge].1).min();
            self.loops.push(Loop {
                parent,
                depth: parent.map_or(1, |parent| self.loops[parent].depth + 1),
                first: first.or_else(|| members.iter().copied().min()).unwrap_or_default(),
                size: members.len() as u64,
                has_entry: first.is_some(),
            });
        }
    }

    /// The depth of the innermost loop that contains both nodes; 0 if there is none.
    fn common_depth(&self, nodes: (usize, usize)) -> u32 {
        let innermost = |node| self.innermost.get(&node).copied();
        let (mut one, mut other) = (innermost(nodes.0), innermost(nodes.1));
        while one != other {
            // A loop comes after its parent.
            let deeper = if one > other { &mut one } else { &mut other };
            *deeper = deeper.and_then(|at| self.loops[at].parent);
        }
        one.map_or(0, |at| self.loops[at].depth)
    }
}

/// What was last seen of a loop into which no more messages come.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenLoop {
    /// The calls of all its nodes, and since when their number is the same.
    calls: u64,
    since: Option<Instant>,
    /// Its first node is to end.
    ends: bool,
    /// Its first node was told to end.
    is_told: bool,
    /// After a stop: the number of calls at which its messages have gone round often enough.
    enough: Option<u64>,
    state: LoopState,
}

/// The state of a loop and those within it.
#[derive(Clone, Copy, Debug)]
struct LoopState {
    /// Over the edges that are open: the least depth of a loop that contains both ends.
    fed_from: u32,
    waiting: u64,
    calls: u64,
    is_calling: bool,
    has_wakes: bool,
    is_idle: bool,
}

impl Default for LoopState {
    fn default() -> Self {
        LoopState { fed_from: u32::MAX, waiting: 0, calls: 0, is_calling: false, has_wakes: false, is_idle: true }
    }
}

impl Loops {
    /// Finds the loops of a graph.
    pub(crate) fn new(plan: &Plan, counts: &[Arc<StageCounts>], edges: &[Arc<EdgeShared>]) -> Self {
        let ends: Vec<(usize, usize)> = plan.edges().iter().map(|edge| (edge.from, edge.to)).collect();
        let nesting = Nesting::new(&ends);
        let member = |(node, innermost): (&usize, &usize)| LoopMember {
            innermost: *innermost,
            worker: plan.nodes()[*node].worker,
            counts: counts[*node].clone(),
        };
        let nodes = nesting.innermost.iter().map(member).collect();
        let into = ends.iter().zip(edges).filter_map(|(ends, counters)| {
            let innermost = *nesting.innermost.get(&ends.1)?;
            Some(LoopEdge { innermost, depth: nesting.common_depth(*ends), counters: counters.clone() })
        });
        Loops {
            edges: into.collect(),
            worker_of_first: nesting.loops.iter().map(|one| plan.nodes()[one.first].worker).collect(),
            nodes,
            nesting,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nesting.loops.len()
    }

    /// Reads which edges into each loop are open. Returns whether messages may come into every
    /// loop.
    fn look_at_edges(&self, seen: &mut [SeenLoop]) -> bool {
        for LoopEdge { innermost, depth, counters } in &self.edges {
            let state = &mut seen[*innermost].state;
            if !counters.is_closed() {
                state.fed_from = state.fed_from.min(*depth);
            }
        }
        self.nesting.loops.iter().zip(seen).all(|(one, seen)| seen.state.fed_from < one.depth)
    }

    /// Reads the state of each loop. Returns false while messages may come into every one.
    fn look(&self, seen: &mut [SeenLoop], shared: &RunShared) -> bool {
        seen.iter_mut().for_each(|one| one.state = LoopState::default());
        if self.look_at_edges(seen) {
            return false;
        }
        seen.iter_mut().for_each(|one| one.state = LoopState::default());
        // Read before the edges and the calls: a worker that waits has nothing on its way from a
        // call to an edge.
        for LoopMember { innermost, worker, .. } in &self.nodes {
            seen[*innermost].state.is_idle &= shared.at[*worker].node().is_none();
        }
        fence(Ordering::Acquire);
        self.look_at_edges(seen);
        for LoopEdge { innermost, counters, .. } in &self.edges {
            seen[*innermost].state.waiting += counters.depth();
        }
        for LoopMember { innermost, counts, .. } in &self.nodes {
            let StageCounts { taken, done, failed, lost, wakes, .. } = &**counts;
            let state = &mut seen[*innermost].state;
            state.calls += taken.get();
            state.is_calling |= taken.get() != done.get() + failed.get() + lost.get();
            state.has_wakes |= wakes.get() > 0;
        }
        for (at, one) in self.nesting.loops.iter().enumerate().rev() {
            let Some(parent) = one.parent else { continue };
            let inner = seen[at].state;
            let state = &mut seen[parent].state;
            state.fed_from = state.fed_from.min(inner.fed_from);
            state.waiting += inner.waiting;
            state.calls += inner.calls;
            state.is_calling |= inner.is_calling;
            state.has_wakes |= inner.has_wakes;
            state.is_idle &= inner.is_idle;
        }
        true
    }

    /// Ends the loops that are to end, with those within. Returns whether there was one.
    /// `has_workers`: nodes may move messages meanwhile. `at_once`: no node has work, or none is
    /// waited for.
    pub(crate) fn end(&self, seen: &mut [SeenLoop], shared: &RunShared, has_workers: bool, at_once: bool) -> bool {
        if !self.look(seen, shared) {
            return false;
        }
        let is_stopping = shared.is_stopping();
        let now = Instant::now();
        let mut changes: BTreeMap<usize, Vec<(usize, Change)>> = BTreeMap::new();
        for (at, one) in self.nesting.loops.iter().enumerate() {
            seen[at].ends = false;
            if seen[at].is_told {
                continue;
            }
            let ends_around = one.parent.is_some_and(|parent| seen[parent].ends || seen[parent].is_told);
            let is_idle = seen[at].state.is_idle;
            let is_settled = |since: Instant| at_once || has_workers && is_idle && now - since >= SETTLED;
            seen[at].ends =
                is_stopping && ends_around || one.is_to_end(&mut seen[at], is_stopping, at_once, is_settled);
            if seen[at].ends {
                changes.entry(self.worker_of_first[at]).or_default().push((one.first, Change::EndLoop));
            }
        }
        let has_ended = !changes.is_empty();
        for (worker, changes) in changes {
            // If too much is queued for a worker, the next look tells it.
            let is_told = shared.command(worker, changes);
            for (one, _) in seen.iter_mut().zip(&self.worker_of_first).filter(|(_, of)| **of == worker) {
                one.is_told |= is_told && one.ends;
            }
        }
        has_ended
    }
}

impl Loop {
    fn is_to_end(
        &self,
        seen: &mut SeenLoop,
        is_stopping: bool,
        at_once: bool,
        is_settled: impl FnOnce(Instant) -> bool,
    ) -> bool {
        let state = seen.state;
        // Without an edge into it, only a stop ends what its nodes do by themselves.
        if state.fed_from < self.depth || (!self.has_entry && !is_stopping) {
            return false;
        }
        if seen.calls != state.calls || seen.since.is_none() {
            (seen.calls, seen.since) = (state.calls, Some(Instant::now()));
        }
        let is_empty = state.waiting == 0 && !state.is_calling && seen.since.is_some_and(is_settled);
        if is_empty && (is_stopping || !state.has_wakes) {
            return true;
        }
        if !is_stopping {
            return false;
        }
        let round = (state.waiting + 1) * self.size;
        let enough = *seen.enough.get_or_insert(state.calls + ROUNDS * round);
        state.calls >= enough || at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loops within each other: nodes `0..levels`, each of which the last node leads back to.
    fn nested(levels: usize) -> Vec<(usize, usize)> {
        (0..levels).flat_map(|node| [(node, node + 1), (levels, node)]).chain([(levels + 1, 0)]).collect()
    }

    #[test]
    fn each_loop_has_the_nodes_that_no_inner_loop_has() {
        // Two loops within one, another downstream of it, and a node in none.
        let ends = [(9, 0), (0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (4, 3), (4, 0), (4, 5), (5, 6), (6, 5), (6, 7)];
        let nesting = Nesting::new(&ends);
        let mut found: Vec<_> =
            nesting.loops.iter().map(|one| (one.first, one.depth, one.size, one.has_entry)).collect();
        found.sort_unstable();
        assert_eq!(found, [(0, 1, 5, true), (1, 2, 2, true), (3, 2, 2, true), (5, 1, 2, true)]);
        let first_of = |node| nesting.innermost.get(&node).map(|at| nesting.loops[*at].first);
        let firsts = [0, 1, 2, 3, 4, 5, 6, 7, 9].map(first_of);
        assert_eq!(firsts, [Some(0), Some(1), Some(1), Some(3), Some(3), Some(5), Some(5), None, None]);
        let depths = [(9, 0), (4, 0), (2, 3), (1, 2), (4, 5), (6, 7)].map(|ends| nesting.common_depth(ends));
        assert_eq!(depths, [0, 1, 1, 2, 0, 0]);
        let inner = nesting.loops.iter().find(|one| one.first == 3).unwrap();
        assert_eq!(inner.parent.map(|at| nesting.loops[at].first), Some(0));
    }

    /// A loop without an edge into it has a first node, too.
    #[test]
    fn a_loop_without_an_entry_ends_at_its_first_node() {
        let nesting = Nesting::new(&[(3, 4), (4, 3), (4, 5)]);
        let found: Vec<_> = nesting.loops.iter().map(|one| (one.first, one.has_entry)).collect();
        assert_eq!(found, [(3, false)]);
    }

    #[test]
    fn the_loops_of_a_graph_take_memory_in_proportion_to_its_edges() {
        for levels in [10, 100, 400] {
            let ends = nested(levels);
            let nesting = Nesting::new(&ends);
            assert_eq!((nesting.loops.len(), nesting.innermost.len()), (levels, levels + 1));
            assert_eq!(nesting.loops.iter().map(|one| u64::from(one.depth)).max(), Some(levels as u64));
        }
    }
}
