//! Figures that a node gives when it has ended.

use std::collections::BTreeMap;

/// Figures a node gives when it has ended.
///
/// What a node lost, before it was a message or after it was taken, and what it let go on purpose are figures too, which the
/// report adds to its totals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    figures: BTreeMap<String, (f64, Tells)>,
    pub(crate) notes: Vec<String>,
}

/// What a figure tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tells {
    #[default]
    Figure,
    Lost,
    Thinned,
}

impl Metrics {
    /// Sets a figure.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), (value, Tells::Figure));
    }

    /// Adds a sentence to the report's notes, below the node's name: what a figure alone does not say.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets a figure: so many messages that the node lost, and why.
    pub fn lost(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, Tells::Lost));
    }

    /// Sets a figure: so many messages that the node let go because that is what it is for.
    pub fn thinned(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, Tells::Thinned));
    }

    /// The figures by name, losses and what was thinned among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.figures.iter().map(|(k, (value, _))| (k.as_str(), *value))
    }

    /// What was lost, by reason; nothing that is 0.
    pub fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        self.told(Tells::Lost)
    }

    /// What may be lost, by reason, with how much was.
    pub(crate) fn may_lose(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(|(_, (_, tells))| *tells == Tells::Lost);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// What was let go on purpose, by reason; nothing that is 0.
    pub fn thinning(&self) -> impl Iterator<Item = (&str, u64)> {
        self.told(Tells::Thinned)
    }

    fn told(&self, what: Tells) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(move |(_, (value, tells))| *tells == what && *value > 0.0);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// Adds what the node had lost and let go before it was built again; other figures began anew.
    pub(crate) fn go_on_from(&mut self, before: Metrics) {
        self.notes.splice(..0, before.notes);
        for (name, (value, tells)) in before.figures {
            if tells != Tells::Figure {
                self.figures.entry(name).or_insert((0.0, tells)).0 += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_before_a_node_was_built_again_is_counted_on() {
        let (mut before, mut after) = (Metrics::default(), Metrics::default());
        before.set("received", 9.0);
        before.lost("overrun", 3);
        before.lost("partial", 0);
        before.thinned("stopped", 2);
        after.set("received", 4.0);
        after.lost("overrun", 1);
        after.go_on_from(before);
        let figures = [("overrun", 4.0), ("partial", 0.0), ("received", 4.0), ("stopped", 2.0)];
        assert_eq!(after.iter().collect::<Vec<_>>(), figures);
        assert_eq!(
            (after.losses().collect(), after.thinning().collect()),
            (vec![("overrun", 4)], vec![("stopped", 2)])
        );
    }
}
