//! Paths and joins through which nothing comes, seen from outside.

use crate::plan::Plan;
use crate::run::events::WatchedEdge;

/// A join waits unusually long when it has had no set for so long, ns.
const WAIT: u64 = 1_000_000_000;

/// How often something has happened, and when last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    count: u64,
    /// When the first check was, and when the last at which the count had grown; ns, 0 before.
    first: u64,
    last: u64,
}

impl Pace {
    /// Adds a check. Returns whether the count has grown since the last check.
    pub(crate) fn look(&mut self, now: u64, count: u64) -> bool {
        let has_grown = self.first == 0 || count > self.count;
        if self.first == 0 {
            self.first = now;
        }
        if has_grown {
            (self.count, self.last) = (count, now);
        }
        has_grown
    }

    /// How long ago it happened last, or was first looked for.
    pub(crate) fn since(&self, now: u64) -> u64 {
        now - self.last
    }

    /// Starts a pause anew: nothing is expected.
    pub(crate) fn excuse(&mut self, now: u64) {
        self.last = now;
    }

    /// Returns how long nothing has happened, if that is at least `most` and three times the usual
    /// interval.
    pub(crate) fn pause(&self, now: u64, most: u64) -> Option<u64> {
        let usual = (self.last - self.first).checked_div(self.count).unwrap_or(0);
        Some(self.since(now)).filter(|pause| *pause >= most.max(3 * usual))
    }
}

/// An unusual silence that has begun, or has ended, after so many ns.
pub(crate) enum Silence {
    Begun(u64),
    Ended(u64),
}

/// A node with several inputs that takes sets of messages.
pub(crate) struct WatchedJoin {
    pub(crate) node: usize,
    /// The edges of its inputs.
    pub(crate) edges: Vec<usize>,
    /// How far the times of the messages of a set may be apart, ns.
    pub(crate) within: u64,
}

/// Returns the joins of a graph.
pub(crate) fn joins(plan: &Plan) -> Vec<WatchedJoin> {
    let nodes = plan.nodes().iter().enumerate().filter(|(_, node)| node.in_edges.len() > 1);
    let joins = nodes.filter(|(_, node)| !node.merges() || node.stage.rule.waits(true));
    joins
        .map(|(at, node)| WatchedJoin { node: at, edges: node.in_edges.clone(), within: node.stage.rule.within })
        .collect()
}

/// What a join had taken when it was last checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenJoin {
    taken: Pace,
    /// The messages sent to each input when the last set was taken.
    sent: Vec<u64>,
    /// The edge of an input that gets no messages while others do, and for how long the join has
    /// had no set, if that is unusual; ns.
    pub(crate) starves: Option<(usize, u64)>,
    /// The edge that was told of since the last set.
    told: Option<usize>,
}

impl SeenJoin {
    pub(crate) fn new(join: &WatchedJoin) -> Self {
        SeenJoin { sent: vec![0; join.edges.len()], ..SeenJoin::default() }
    }

    /// Adds a check. Returns what it starves for when it has begun to, and when it has ended.
    pub(crate) fn look(
        &mut self,
        now: u64,
        taken: u64,
        join: &WatchedJoin,
        edges: &[WatchedEdge],
    ) -> Option<(usize, Silence)> {
        let sent = |at: &usize| edges[*at].counters.producer.moved.get();
        let before = self.starves.take();
        let since = self.taken.since(now);
        if self.taken.look(now, taken) {
            self.sent.iter_mut().zip(&join.edges).for_each(|(seen, at)| *seen = sent(at));
            return self.told.take().map(|edge| (edge, Silence::Ended(since)));
        }
        let waited = self.taken.pause(now, WAIT)?;
        let inputs = || join.edges.iter().zip(&self.sent);
        let (silent, _) = inputs().find(|(at, before)| sent(at) == **before && !edges[**at].counters.is_closed())?;
        self.starves = inputs().any(|(at, before)| sent(at) > *before).then_some((*silent, waited));
        let begun = self.starves.filter(|_| before.is_none());
        self.told = begun.map_or(self.told, |(edge, _)| Some(edge));
        begun.map(|(edge, time)| (edge, Silence::Begun(time)))
    }
}
