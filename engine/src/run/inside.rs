//! What goes wrong inside a node is told while the graph runs: messages that it loses, values that are missing, its device or peer.

use crate::exec::notice::{Noticed, shortened};
use crate::exec::shared::RunShared;
use crate::exec::stage::Counts;
use crate::node::live::ConnectionCounts;

/// What a node had counted when it was last seen, and its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenNode {
    taken: u64,
    lost: Vec<(&'static str, u64)>,
    incidents: Vec<SeenIncidents>,
    recoveries: Vec<(&'static str, u64)>,
    connection: ConnectionCounts,
    /// Whether it has lost its device or peer, or could not have it.
    is_disconnected: bool,
    /// Why it could not connect when that was last told.
    failure: Option<String>,
}

/// How often something was wrong that costs no message, and whether that goes on.
#[derive(Clone, Copy, Debug, Default)]
struct SeenIncidents {
    count: u64,
    is_told: bool,
}

/// What a node itself has lost, by reason.
pub(crate) fn losses(counts: &Counts) -> Vec<(&'static str, u64)> {
    let mut lost = counts.live.losses();
    // Counted by the engine: calls whose input a device did not write.
    lost.extend(Some(("device_lost", counts.lost.get())).filter(|(_, lost)| *lost > 0));
    lost
}

/// How often something was wrong that costs no message.
pub(crate) fn incidents(counts: &Counts) -> Vec<(&'static str, u64)> {
    let mut incidents = counts.live.incidents();
    incidents.extend(counts.live.steps().map(|(count, _)| ("clock_steps", count)));
    incidents
}

impl SeenNode {
    /// Tells what has gone wrong inside a node since this was asked before.
    pub(crate) fn look(&mut self, node: usize, counts: &Counts, shared: &RunShared, drops_above: f64, within: u64) {
        let live = &counts.live;
        let (taken, lost) = (counts.taken.get(), losses(counts));
        let of = taken - self.taken;
        let is_many = |count: u64| count > 0 && count as f64 > drops_above * of as f64;
        for (i, (reason, now)) in lost.iter().enumerate() {
            let count = now - self.lost.get(i).map_or(0, |(_, before)| *before);
            // Taken at every check, so that an event never has the text of an earlier loss.
            let why = live.take_why(reason);
            if is_many(count) {
                let first = shortened(&why.unwrap_or_default());
                shared.notice(|| Noticed::LostInside { node, reason, count, of, within, first });
            }
        }
        for (i, (what, now)) in live.incidents().into_iter().enumerate() {
            self.incidents.resize(self.incidents.len().max(i + 1), SeenIncidents::default());
            let before = self.incidents[i];
            let count = now - before.count;
            let first = live.take_incident(what);
            self.incidents[i] = SeenIncidents { count: now, is_told: is_many(count) };
            if is_many(count) && !before.is_told {
                let first = shortened(&first.unwrap_or_default());
                shared.notice(|| Noticed::Incidents { node, what, count, of, within, first });
            }
        }
        let recoveries = live.recoveries();
        for (i, (reason, times)) in recoveries.iter().enumerate() {
            if *times > self.recoveries.get(i).map_or(0, |(_, before)| *before) {
                let lost = lost[i].1;
                shared.notice(|| Noticed::Recovered { node, reason, lost });
            }
        }
        (self.taken, self.lost, self.recoveries) = (taken, lost, recoveries);
        self.look_at_connection(node, counts, shared);
    }

    /// Tells whether a node lost its device or peer, and why it does not have it.
    fn look_at_connection(&mut self, node: usize, counts: &Counts, shared: &RunShared) {
        let now = counts.live.connection_counts().unwrap_or_default();
        let ended = now.ended - self.connection.ended;
        if ended > 0 {
            let why = shortened(&counts.live.take_ending().unwrap_or_default());
            shared.notice(|| Noticed::Disconnected { node, count: ended, why });
        }
        let failure = counts.live.connection_failure();
        if let Some(why) = failure.as_ref().filter(|why| self.failure.as_ref() != Some(why)) {
            shared.notice(|| Noticed::NotConnected { node, why: shortened(why) });
        }
        let was_disconnected = self.is_disconnected || ended > 0 || failure.is_some();
        let is_back = now.begun > self.connection.begun && now.open > 0;
        if was_disconnected && is_back {
            shared.notice(|| Noticed::Reconnected { node });
        }
        (self.connection, self.is_disconnected, self.failure) = (now, was_disconnected && !is_back, failure);
    }
}
