//! Metrics that a node reports when it has ended.

use crate::node::live::LiveCounters;
use std::collections::BTreeMap;

/// Metrics that a node reports when it has ended.
///
/// Messages that the node lost or discarded are metrics too. The report adds them to its totals.
///
/// ```
/// use limen::node::Metrics;
/// let mut metrics = Metrics::default(); // the engine passes it to `Node::metrics`
/// metrics.set("rows", 12.0);
/// metrics.lost("unwritten", 3);
/// metrics.discarded("stopped", 0);
/// assert_eq!(metrics.losses().collect::<Vec<_>>(), [("unwritten", 3)]);
/// assert_eq!(metrics.notable().count(), 2, "nothing was discarded");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    figures: BTreeMap<String, (f64, MetricKind)>,
    pub(crate) notes: Vec<String>,
}

/// What a metric counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MetricKind {
    #[default]
    Figure,
    Lost,
    Discarded,
    Incidents,
}

impl Metrics {
    /// Sets a figure, such as `rows`. A later call with the same name replaces it.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), (value, MetricKind::Figure));
    }

    /// Adds a sentence to the report's notes, under the node's name, for what a number alone does
    /// not tell.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets how many messages the node lost that are known only when it ends, such as those in its
    /// buffers, by reason. What it loses while it runs is counted with
    /// [`Building::lost`](crate::node::Building::lost).
    pub fn lost(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, MetricKind::Lost));
    }

    /// Sets how many messages the node discarded on purpose that are known only when it ends, by
    /// reason. What it discards while it runs is counted with
    /// [`Building::discarded`](crate::node::Building::discarded).
    pub fn discarded(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, MetricKind::Discarded));
    }

    /// Sets how often something was wrong that costs no message, such as a missing value.
    pub fn incidents(&mut self, name: impl Into<String>, times: u64) {
        self.figures.insert(name.into(), (times as f64, MetricKind::Incidents));
    }

    /// Returns the metrics by name, losses and intentional discards included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.figures.iter().map(|(k, (value, _))| (k.as_str(), *value))
    }

    /// Returns the metrics that a person wants to read: without losses, discards and incidents that
    /// did not happen.
    pub fn notable(&self) -> impl Iterator<Item = (&str, f64)> {
        let notable = self.figures.iter().filter(|(_, (value, kind))| *value != 0.0 || *kind == MetricKind::Figure);
        notable.map(|(name, (value, _))| (name.as_str(), *value))
    }

    /// Returns the losses by reason, without zeros.
    pub fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        self.of_kind(MetricKind::Lost)
    }

    /// All loss counters by reason, zeros included.
    pub(crate) fn may_lose(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(|(_, (_, kind))| *kind == MetricKind::Lost);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// Returns the intentional discards by reason, without zeros.
    pub fn discards(&self) -> impl Iterator<Item = (&str, u64)> {
        self.of_kind(MetricKind::Discarded)
    }

    fn of_kind(&self, what: MetricKind) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(move |(_, (value, kind))| *kind == what && *value > 0.0);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// Adds what the node counted while it ran.
    pub(crate) fn add_live(&mut self, live: &LiveCounters) {
        for (reason, messages) in live.losses() {
            self.figures.entry(reason.into()).or_insert((0.0, MetricKind::Lost)).0 += messages as f64;
        }
        for (reason, messages) in live.discards() {
            self.figures.entry(reason.into()).or_insert((0.0, MetricKind::Discarded)).0 += messages as f64;
        }
        let disconnects = live.connection_counts().map(|connection| ("disconnects", connection.ended));
        let steps = live.steps().map(|(steps, _)| ("clock_steps", steps));
        let stale = live.stale_periods().map(|(periods, _)| ("stale_periods", periods));
        for (name, times) in disconnects.into_iter().chain(steps).chain(stale).chain(live.incidents()) {
            self.incidents(name, times);
        }
    }

    /// Adds the losses and discards from before the node was rebuilt; other metrics start over.
    pub(crate) fn carry_over(&mut self, before: Metrics) {
        self.notes.splice(..0, before.notes);
        for (name, (value, kind)) in before.figures {
            if matches!(kind, MetricKind::Lost | MetricKind::Discarded) {
                self.figures.entry(name).or_insert((0.0, kind)).0 += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (losses): A node keeps its loss counts when it is restarted.
    #[test]
    fn losses_before_a_rebuild_are_kept() {
        let (mut before, mut after) = (Metrics::default(), Metrics::default());
        before.set("received", 9.0);
        before.lost("overrun", 3);
        before.lost("partial", 0);
        before.discarded("stopped", 2);
        after.set("received", 4.0);
        after.lost("overrun", 1);
        after.carry_over(before);
        let figures = [("overrun", 4.0), ("partial", 0.0), ("received", 4.0), ("stopped", 2.0)];
        assert_eq!(after.iter().collect::<Vec<_>>(), figures);
        assert_eq!(
            (after.losses().collect(), after.discards().collect()),
            (vec![("overrun", 4)], vec![("stopped", 2)])
        );
        assert_eq!(after.notable().map(|(name, _)| name).collect::<Vec<_>>(), ["overrun", "received", "stopped"]);
    }
}
