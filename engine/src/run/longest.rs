//! The parts of latencies that take longest: usually, for the report, and in the last second, for
//! events.

use crate::base::unit::show_ns;
use crate::exec::mailbox::Subject;
use crate::exec::outlier::TailCause;
use crate::exec::shared::lock;
use crate::ledger::Term;
use crate::report::TailCauseReport;
use crate::run::events::Watcher;
use crate::run::neighbours::Neighbours;
use crate::run::starving::WatchedJoin;
use std::time::Duration;

/// A part of a latency at a node, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongPart {
    pub(super) cause: TailCause,
    pub(super) node: usize,
    pub(super) ns: u64,
}

/// Of each node, the part of latencies that takes longest there.
pub(super) struct LongestParts(Vec<Option<LongPart>>);

impl LongestParts {
    /// `parts` are terms of nodes in ns; `has_batches` says whether a node's calls take several
    /// messages.
    pub(super) fn new(
        graph: &Neighbours,
        parts: impl Iterator<Item = (usize, Term, u64)>,
        has_batches: impl Fn(usize) -> bool,
    ) -> Self {
        let mut longest: Vec<Option<LongPart>> = vec![None; graph.len()];
        for (node, term, ns) in parts {
            let cause = match term {
                Term::Source => TailCause::Source,
                Term::Queue => TailCause::Queued,
                Term::Wait if graph.is_join(node) => TailCause::Partner,
                Term::Wait | Term::BatchWait if has_batches(node) => TailCause::Batch,
                Term::Wait | Term::BatchWait => TailCause::DeviceBusy,
                Term::Blocked => TailCause::NoRoom,
                Term::Compute => TailCause::Compute,
                _ => continue,
            };
            if longest[node].is_none_or(|known| known.ns <= ns) {
                longest[node] = Some(LongPart { cause, node, ns });
            }
        }
        LongestParts(longest)
    }

    fn of(&self, nodes: &[usize]) -> Option<LongPart> {
        nodes.iter().filter_map(|node| self.0[*node]).max_by_key(|part| (part.ns, part.node))
    }

    /// The longest part on the ways from one node to another. For a wait for a partner, it is what
    /// kept the partner, if that takes a quarter of the time.
    pub(super) fn on_path(&self, graph: &mut Neighbours, (from, to): (usize, usize)) -> Option<LongPart> {
        graph.find_between(from, to);
        let longest = self.of(graph.between())?;
        if longest.cause != TailCause::Partner {
            return Some(longest);
        }
        let root = self.before(graph, longest.node).filter(|root| root.ns >= longest.ns / 4);
        Some(root.unwrap_or(longest))
    }

    /// The longest part on the ways to a join, but for waits at it and at other joins, and for how
    /// old messages were when they were sent.
    pub(super) fn before(&self, graph: &mut Neighbours, join: usize) -> Option<LongPart> {
        graph.find_before(join);
        let parts = graph.found().iter().filter(|node| **node != join).filter_map(|node| self.0[*node]);
        let parts = parts.filter(|part| !matches!(part.cause, TailCause::Partner | TailCause::Source));
        parts.max_by_key(|part| (part.ns, part.node))
    }
}

impl Watcher {
    /// The parts that took longest in the last second or two.
    pub(super) fn longest_now(&self) -> LongestParts {
        let windows = self.renew_windows();
        let of_batches = |node| windows.latest.get(&(Subject::Node(node), Term::Batch));
        let parts = windows.latest.iter().filter_map(|((subject, term), window)| match subject {
            Subject::Node(node) => Some((*node, *term, window.max?)),
            Subject::Path(..) => None,
        });
        let has_batches = |node| of_batches(node).is_some_and(|sizes| sizes.max > Some(1));
        LongestParts::new(&lock(&self.tails).graph, parts, has_batches)
    }

    /// Says what took longest on a path, if that is half of its deadline: what a busy thread has
    /// not told yet is not blamed on others.
    pub(super) fn slowest_of_path(&self, longest: &LongestParts, path: usize) -> Box<str> {
        let path = self.watched.paths.get(path);
        let part = longest.on_path(&mut lock(&self.tails).graph, path.ends);
        self.show(part.filter(|part| part.ns >= path.deadline / 2))
    }

    /// Says what took longest upstream of the join by time to which an edge leads, if that is
    /// longer than the messages of a set may differ.
    pub(super) fn slowest_before(&self, longest: &LongestParts, edge: usize) -> Box<str> {
        let is_it = |join: &&WatchedJoin| join.within > 0 && join.edges.contains(&edge);
        let Some(join) = self.watched.joins.iter().find(is_it) else { return "".into() };
        let part = longest.before(&mut lock(&self.tails).graph, join.node);
        self.show(part.filter(|part| part.ns > join.within))
    }

    fn show(&self, part: Option<LongPart>) -> Box<str> {
        let Some(LongPart { cause, node, ns }) = part else { return "".into() };
        let (node, time) = (Some(self.shared.name(node).to_string()), Duration::from_nanos(ns));
        let report = TailCauseReport { cause, node, behind: None, messages: 1, excess: time, longest: time };
        format!("{report} ({})", show_ns(ns)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Node 3 joins the messages of 1, which come from 0, and those of 2.
    #[test]
    fn what_took_longest_on_a_path_is_what_kept_the_partner() {
        use TailCause::{Compute, Partner, Queued, Source};
        for (parts, on_path, before) in [
            (&[(1, Term::Compute, 25), (3, Term::Compute, 5)][..], Some((Compute, 1)), Some((Compute, 1))),
            (&[(1, Term::Compute, 5), (2, Term::Queue, 30), (3, Term::Wait, 90)], Some((Queued, 2)), Some((Queued, 2))),
            // What is too short explains no wait.
            (
                &[(1, Term::Compute, 5), (2, Term::Queue, 10), (3, Term::Wait, 90)],
                Some((Partner, 3)),
                Some((Queued, 2)),
            ),
            (&[(0, Term::Source, 40)], Some((Source, 0)), None),
            (&[(2, Term::Compute, 40)], None, Some((Compute, 2))),
            (&[], None, None),
        ] {
            let mut graph = Neighbours::new(4, &[(0, 1), (1, 3), (2, 3)]);
            let all = parts.iter().map(|(node, term, ms)| (*node, *term, ms * MS));
            let longest = LongestParts::new(&graph, all, |_| false);
            let shown = |part: Option<LongPart>| part.map(|part| (part.cause, part.node));
            assert_eq!(shown(longest.on_path(&mut graph, (0, 3))), on_path, "{parts:?}");
            assert_eq!(shown(longest.before(&mut graph, 3)), before, "{parts:?}");
        }
    }
}
