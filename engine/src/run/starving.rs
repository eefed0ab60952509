//! Joins that have no set because one input gets no messages, seen from outside.

use crate::edge::Shared;
use crate::host::sync::Arc;
use crate::plan::Plan;

/// A join waits unusually long when it has had no set for so long, ns.
const WAIT: u64 = 1_000_000_000;

/// A node with several inputs that takes sets of messages.
pub(crate) struct WatchedJoin {
    pub(crate) node: usize,
    /// The edges of its inputs.
    pub(crate) edges: Vec<usize>,
}

/// Returns the joins of a graph.
pub(crate) fn joins(plan: &Plan) -> Vec<WatchedJoin> {
    let nodes = plan.nodes().iter().enumerate().filter(|(_, node)| node.in_edges.len() > 1);
    let joins = nodes.filter(|(_, node)| !node.merges() || node.stage.rule.waits(true));
    joins.map(|(at, node)| WatchedJoin { node: at, edges: node.in_edges.clone() }).collect()
}

/// What a join had taken when it was last checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenJoin {
    taken: u64,
    /// When the first check was, and when the last at which more had been taken; ns, 0 before.
    first: u64,
    last: u64,
    /// The messages sent to each input by then.
    sent: Vec<u64>,
    is_told: bool,
}

impl SeenJoin {
    /// Adds a check. Returns the edge of an input that gets no messages while others do, and for how long the join has had no set, when
    /// that has become unusual.
    pub(crate) fn look(
        &mut self,
        now: u64,
        taken: u64,
        join: &WatchedJoin,
        edge: impl Fn(usize) -> Arc<Shared>,
    ) -> Option<(usize, u64)> {
        let sent = |at: &usize| edge(*at).producer.moved.get();
        if self.first == 0 {
            self.first = now;
        }
        if self.last == 0 || taken > self.taken {
            (self.taken, self.last, self.is_told) = (taken, now, false);
            self.sent = join.edges.iter().map(sent).collect();
            return None;
        }
        let usual = (self.last - self.first).checked_div(taken).unwrap_or(0);
        let waited = now - self.last;
        if self.is_told || waited < WAIT.max(3 * usual) {
            return None;
        }
        let mut inputs = join.edges.iter().zip(&self.sent);
        let came = inputs.clone().any(|(at, before)| sent(at) > *before);
        let (silent, _) = inputs.find(|(at, before)| sent(at) == **before && !edge(**at).is_closed())?;
        self.is_told = came;
        came.then_some((*silent, waited))
    }
}
