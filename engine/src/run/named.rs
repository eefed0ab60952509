//! Events with the names of nodes, edges and paths, from the small values that workers and the
//! watchdog note.

use crate::exec::worker_event::WorkerEvent;
use crate::run::event::EventKind;
use crate::run::events::Watcher;
use std::time::Duration;

impl Watcher {
    /// Adds the names.
    pub(super) fn with_names(&self, event: WorkerEvent) -> EventKind {
        let node = |node: usize| self.shared.name(node).to_string();
        let edge = |edge: usize| format!("{} -> {}", self.watched.edges[edge].from, self.watched.edges[edge].to);
        match event {
            WorkerEvent::Failed { node: at, call, number, text, panicked, then } => {
                EventKind::Failed { node: node(at), call, number, text: text.into(), panicked, then }
            }
            WorkerEvent::Restarting { node: at, after } => {
                EventKind::Restarting { node: node(at), after: Duration::from_nanos(after) }
            }
            WorkerEvent::Restarted { node: at } => EventKind::Restarted { node: node(at) },
            WorkerEvent::Detached { node: at } => EventKind::Detached { node: node(at) },
            WorkerEvent::Gap { node: at, edge: by, every } => {
                EventKind::Gap { node: node(at), edge: edge(by), every: Duration::from_nanos(every) }
            }
            WorkerEvent::GapEnded { node: at, edge: by, after } => {
                EventKind::GapEnded { node: node(at), edge: edge(by), after: Duration::from_nanos(after) }
            }
            WorkerEvent::Stale { node: at, limit } => {
                EventKind::Stale { node: node(at), limit: Duration::from_nanos(limit) }
            }
            WorkerEvent::StaleEnded { node: at, after } => {
                EventKind::StaleEnded { node: node(at), after: Duration::from_nanos(after) }
            }
            WorkerEvent::Hangs { node: at } => EventKind::Hangs { node: node(at), limit: self.watchdog },
            WorkerEvent::Overdue { node: at } => EventKind::Overdue { node: node(at), limit: self.watchdog },
            WorkerEvent::Returned { node: at, took } => {
                EventKind::Returned { node: node(at), took: Duration::from_nanos(took) }
            }
            WorkerEvent::Lost { edge: by, reason, count, of, within, slowest } => {
                let (within, slowest) = (Duration::from_nanos(within), slowest.into());
                EventKind::Lost { edge: edge(by), reason, count, of, within, slowest }
            }
            WorkerEvent::LostInside { node: at, reason, count, of, within, first } => {
                let (within, first) = (Duration::from_nanos(within), first.into());
                EventKind::LostInside { node: node(at), reason: reason.into(), count, of, within, first }
            }
            WorkerEvent::Incidents { node: at, what, count, of, within, first } => {
                let (within, first) = (Duration::from_nanos(within), first.into());
                EventKind::Incidents { node: node(at), what: what.into(), count, of, within, first }
            }
            WorkerEvent::Recovered { node: at, reason, lost } => {
                EventKind::Recovered { node: node(at), reason: reason.into(), lost }
            }
            WorkerEvent::NotConnected { node: at, why } => EventKind::NotConnected { node: node(at), why: why.into() },
            WorkerEvent::Disconnected { node: at, count, why } => {
                EventKind::Disconnected { node: node(at), count, why: why.into() }
            }
            WorkerEvent::Reconnected { node: at } => EventKind::Reconnected { node: node(at) },
            WorkerEvent::SteppedBack { node: at, count, by } => {
                EventKind::SteppedBack { node: node(at), count, by: Duration::from_nanos(by) }
            }
            WorkerEvent::Silent { path, time } => {
                let path = self.watched.paths.get(path);
                EventKind::Silent { path: format!("{} -> {}", path.from, path.to), time: Duration::from_nanos(time) }
            }
            WorkerEvent::SilenceEnded { path, after } => {
                let (path, after) = (self.watched.paths.get(path), Duration::from_nanos(after));
                EventKind::SilenceEnded { path: format!("{} -> {}", path.from, path.to), after }
            }
            WorkerEvent::StarvingEnded { node: at, after } => {
                EventKind::StarvingEnded { node: node(at), after: Duration::from_nanos(after) }
            }
            WorkerEvent::Starves { node: at, edge: by, time } => {
                EventKind::Starves { node: node(at), edge: edge(by), time: Duration::from_nanos(time) }
            }
            WorkerEvent::Missed { path, count, of, within, slowest } => {
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
            WorkerEvent::ClockSet { by } => EventKind::ClockSet { by },
            WorkerEvent::CpuThrottled { by } => EventKind::CpuThrottled { by },
            WorkerEvent::Refused { text } => EventKind::Refused { text: text.into() },
        }
    }
}
