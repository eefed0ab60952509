//! Deadlines of a running graph: what the sinks counted, read from outside.

use crate::exec::stage::Judged;
use crate::host::sync::Arc;
use crate::plan::Plan;

/// The paths with a deadline, and the counters at their sinks.
pub(crate) struct WatchedPaths {
    paths: Vec<WatchedPath>,
    judged: Arc<Vec<Judged>>,
}

/// A path with a deadline that can be judged.
pub(crate) struct WatchedPath {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Nanoseconds.
    pub(crate) deadline: u64,
    /// The edges of its source; all are closed when the source has ended.
    pub(crate) source_edges: Vec<usize>,
    /// Its index in the plan.
    at: usize,
}

/// Messages of a path whose deadline was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    pub(crate) judged: u64,
    pub(crate) missed: u64,
}

impl WatchedPaths {
    pub(crate) fn new(plan: &Plan, judged: Arc<Vec<Judged>>) -> Self {
        let tracked = plan.paths().iter().enumerate().filter(|(_, path)| path.untracked_behind.is_none());
        let paths = tracked.filter_map(|(at, path)| {
            let deadline = path.deadline?;
            let edges = plan.edges().iter().enumerate();
            let of_source = edges.filter(|(_, edge)| plan.nodes()[edge.from].name == path.from).map(|(edge, _)| edge);
            let (from, to) = (path.from.clone(), path.to.clone());
            Some(WatchedPath { from, to, deadline, source_edges: of_source.collect(), at })
        });
        WatchedPaths { paths: paths.collect(), judged }
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn get(&self, path: usize) -> &WatchedPath {
        &self.paths[path]
    }

    /// Returns every path with its counts so far.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WatchedPath, Misses)> {
        self.paths.iter().map(|path| {
            let counters = &self.judged[path.at];
            // A sink counts a message before its miss, so the other order could read a miss without its message.
            let missed = counters.missed.get();
            (path, Misses { judged: counters.all.get().max(missed), missed })
        })
    }
}
