//! What goes wrong inside a node is told while the graph runs: messages that it loses, values that
//! are missing, its device or peer.

use crate::exec::shared::RunShared;
use crate::exec::stage::StageCounts;
use crate::exec::worker_event::{WorkerEvent, shortened};
use crate::node::live::ConnectionCounts;

/// What a node had counted when it was last seen, and its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenNode {
    taken: u64,
    lost: Vec<SeenLosses>,
    incidents: Vec<SeenIncidents>,
    connection: ConnectionCounts,
    /// Whether it has lost its device or peer, or could not have it.
    is_disconnected: bool,
    /// Why it could not connect when that was last told.
    failure: Option<String>,
}

/// How many messages were lost for a reason, and how often that was over.
#[derive(Clone, Copy, Debug, Default)]
struct SeenLosses {
    messages: u64,
    recoveries: u64,
}

/// How often something was wrong that costs no message, and whether that goes on.
#[derive(Clone, Copy, Debug, Default)]
struct SeenIncidents {
    count: u64,
    is_told: bool,
}

/// What a node itself has lost, by reason.
pub(crate) fn losses(counts: &StageCounts) -> Vec<(&'static str, u64)> {
    let mut lost = counts.live.losses();
    // Counted by the engine: calls whose input a device did not write.
    lost.extend(Some(("device_lost", counts.lost.get())).filter(|(_, lost)| *lost > 0));
    lost
}

/// How often something was wrong that costs no message.
pub(crate) fn incidents(counts: &StageCounts) -> Vec<(&'static str, u64)> {
    let mut incidents = counts.live.incidents();
    incidents.extend(counts.live.steps().map(|(count, _)| ("clock_steps", count)));
    incidents.extend(counts.live.stale_periods().map(|(count, _)| ("stale_periods", count)));
    incidents
}

impl SeenNode {
    /// Creates the state of a node that was not seen yet, with room for what it counts: a check
    /// allocates nothing.
    pub(crate) fn new(counts: &StageCounts) -> Self {
        let (lost, incidents) = (1 + counts.live.losses().len(), counts.live.incidents().len());
        SeenNode {
            lost: vec![SeenLosses::default(); lost],
            incidents: vec![SeenIncidents::default(); incidents],
            ..SeenNode::default()
        }
    }

    /// Tells what has gone wrong inside a node since this was asked before.
    pub(crate) fn look(
        &mut self,
        node: usize,
        counts: &StageCounts,
        shared: &RunShared,
        drops_above: f64,
        within: u64,
    ) {
        let live = &counts.live;
        let taken = counts.taken.get();
        let of = taken - self.taken;
        let is_many = |count: u64| count > 0 && count as f64 > drops_above * of as f64;
        let by_engine = std::iter::once(("device_lost", counts.lost.get(), 0));
        for (i, (reason, messages, recoveries)) in by_engine.chain((0..).map_while(|i| live.loss(i))).enumerate() {
            let before = seen_at(&mut self.lost, i, SeenLosses { messages, recoveries });
            let count = messages - before.messages;
            // Taken at every check, so that an event never has the text of an earlier loss.
            let why = live.take_why(reason);
            if is_many(count) {
                let first = shortened(&why.unwrap_or_default());
                shared.record_event(|| WorkerEvent::LostInside { node, reason, count, of, within, first });
            }
            if recoveries > before.recoveries {
                shared.record_event(|| WorkerEvent::Recovered { node, reason, lost: messages });
            }
        }
        for (i, (what, now)) in (0..).map_while(|i| live.incident(i)).enumerate() {
            let count = now - self.incidents.get(i).map_or(0, |before| before.count);
            let before = seen_at(&mut self.incidents, i, SeenIncidents { count: now, is_told: is_many(count) });
            let first = live.take_incident(what);
            if is_many(count) && !before.is_told {
                let first = shortened(&first.unwrap_or_default());
                shared.record_event(|| WorkerEvent::Incidents { node, what, count, of, within, first });
            }
        }
        self.taken = taken;
        self.look_at_connection(node, counts, shared);
    }

    /// Tells whether a node lost its device or peer, and why it does not have it.
    fn look_at_connection(&mut self, node: usize, counts: &StageCounts, shared: &RunShared) {
        let now = counts.live.connection_counts().unwrap_or_default();
        let ended = now.ended - self.connection.ended;
        if ended > 0 {
            let why = shortened(&counts.live.take_ending().unwrap_or_default());
            shared.record_event(|| WorkerEvent::Disconnected { node, count: ended, why });
        }
        let failure = counts.live.connection_failure();
        if let Some(why) = failure.as_ref().filter(|why| self.failure.as_ref() != Some(why)) {
            shared.record_event(|| WorkerEvent::NotConnected { node, why: shortened(why) });
        }
        let was_disconnected = self.is_disconnected || ended > 0 || failure.is_some();
        let is_back = now.begun > self.connection.begun && now.open > 0;
        if was_disconnected && is_back {
            shared.record_event(|| WorkerEvent::Reconnected { node });
        }
        (self.connection, self.is_disconnected, self.failure) = (now, was_disconnected && !is_back, failure);
    }
}

/// Replaces what was seen at a position, which a node that was rebuilt may have added.
fn seen_at<T: Default>(seen: &mut Vec<T>, at: usize, now: T) -> T {
    if at == seen.len() {
        seen.push(T::default());
    }
    std::mem::replace(&mut seen[at], now)
}
