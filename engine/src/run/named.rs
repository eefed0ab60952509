//! Events with the names of nodes, edges and paths, from the small values that workers and the watchdog note.

use crate::exec::notice::Noticed;
use crate::run::event::EventKind;
use crate::run::events::Watcher;
use std::time::Duration;

impl Watcher {
    /// Adds the names.
    pub(super) fn with_names(&self, noticed: Noticed) -> EventKind {
        let node = |node: usize| self.shared.name(node).to_string();
        let edge = |edge: usize| format!("{} -> {}", self.watched.edges[edge].from, self.watched.edges[edge].to);
        match noticed {
            Noticed::Failed { node: at, call, number, text, panicked, then } => {
                EventKind::Failed { node: node(at), call, number, text: text.into(), panicked, then }
            }
            Noticed::Restarting { node: at, after } => {
                EventKind::Restarting { node: node(at), after: Duration::from_nanos(after) }
            }
            Noticed::Restarted { node: at } => EventKind::Restarted { node: node(at) },
            Noticed::Detached { node: at } => EventKind::Detached { node: node(at) },
            Noticed::Gap { node: at, edge: by, every } => {
                EventKind::Gap { node: node(at), edge: edge(by), every: Duration::from_nanos(every) }
            }
            Noticed::GapEnded { node: at, edge: by, after } => {
                EventKind::GapEnded { node: node(at), edge: edge(by), after: Duration::from_nanos(after) }
            }
            Noticed::Hangs { node: at } => EventKind::Hangs { node: node(at), limit: self.watchdog },
            Noticed::Overdue { node: at } => EventKind::Overdue { node: node(at), limit: self.watchdog },
            Noticed::Returned { node: at, took } => {
                EventKind::Returned { node: node(at), took: Duration::from_nanos(took) }
            }
            Noticed::Lost { edge: by, reason, count, of, within, slowest } => {
                let (within, slowest) = (Duration::from_nanos(within), slowest.into());
                EventKind::Lost { edge: edge(by), reason, count, of, within, slowest }
            }
            Noticed::LostInside { node: at, reason, count, of, within, first } => {
                let (within, first) = (Duration::from_nanos(within), first.into());
                EventKind::LostInside { node: node(at), reason: reason.into(), count, of, within, first }
            }
            Noticed::Incidents { node: at, what, count, of, within, first } => {
                let (within, first) = (Duration::from_nanos(within), first.into());
                EventKind::Incidents { node: node(at), what: what.into(), count, of, within, first }
            }
            Noticed::Recovered { node: at, reason, lost } => {
                EventKind::Recovered { node: node(at), reason: reason.into(), lost }
            }
            Noticed::NotConnected { node: at, why } => EventKind::NotConnected { node: node(at), why: why.into() },
            Noticed::Disconnected { node: at, count, why } => {
                EventKind::Disconnected { node: node(at), count, why: why.into() }
            }
            Noticed::Reconnected { node: at } => EventKind::Reconnected { node: node(at) },
            Noticed::SteppedBack { node: at, count, by } => {
                EventKind::SteppedBack { node: node(at), count, by: Duration::from_nanos(by) }
            }
            Noticed::Silent { path, time } => {
                let path = self.watched.paths.get(path);
                EventKind::Silent { path: format!("{} -> {}", path.from, path.to), time: Duration::from_nanos(time) }
            }
            Noticed::SilenceEnded { path, after } => {
                let (path, after) = (self.watched.paths.get(path), Duration::from_nanos(after));
                EventKind::SilenceEnded { path: format!("{} -> {}", path.from, path.to), after }
            }
            Noticed::StarvingEnded { node: at, after } => {
                EventKind::StarvingEnded { node: node(at), after: Duration::from_nanos(after) }
            }
            Noticed::Starves { node: at, edge: by, time } => {
                EventKind::Starves { node: node(at), edge: edge(by), time: Duration::from_nanos(time) }
            }
            Noticed::Missed { path, count, of, within, slowest } => {
                let path = self.watched.paths.get(path);
                EventKind::Missed {
                    path: format!("{} -> {}", path.from, path.to),
                    count,
                    of,
                    deadline: Duration::from_nanos(path.deadline),
                    within: Duration::from_nanos(within),
                    slowest: slowest.into(),
                }
            }
            Noticed::ClockSet { by } => EventKind::ClockSet { by },
            Noticed::CpuThrottled { by } => EventKind::CpuThrottled { by },
            Noticed::Refused { text } => EventKind::Refused { text: text.into() },
        }
    }
}
