//! Deadlines of a running graph: what the sinks counted, read from outside.

use crate::exec::stage::Judged;
use crate::host::sync::{Arc, DynArc};
use crate::plan::Plan;
use std::collections::HashMap;

/// The paths with a deadline, and the counters at their sinks.
pub(crate) struct WatchedPaths {
    paths: Vec<WatchedPath>,
    judged: Arc<Vec<Judged>>,
}

/// A path with a deadline that can be judged.
pub(crate) struct WatchedPath {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The indices of source and sink.
    pub(super) ends: (usize, usize),
    /// Nanoseconds.
    pub(crate) deadline: u64,
    /// The edges of its source; all are closed when the source has ended.
    pub(crate) source_edges: DynArc<[usize]>,
    /// Its index in the plan.
    pub(crate) at: usize,
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
        let mut of_sources: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, edge) in plan.edges().iter().enumerate() {
            of_sources.entry(&plan.nodes()[edge.from].name).or_default().push(index);
        }
        // Shared: a source may begin thousands of paths by thousands of edges.
        let of_sources: HashMap<&str, DynArc<[usize]>> =
            of_sources.into_iter().map(|(source, edges)| (source, edges.into())).collect();
        let by_name: HashMap<&str, usize> =
            plan.nodes().iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
        let paths = tracked.filter_map(|(at, path)| {
            let deadline = path.deadline?;
            let source_edges = of_sources.get(&*path.from).cloned().unwrap_or_default();
            let (from, to) = (path.from.clone(), path.to.clone());
            let ends = (*by_name.get(&*path.from)?, *by_name.get(&*path.to)?);
            Some(WatchedPath { from, to, ends, deadline, source_edges, at })
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
            // A sink counts a message before its miss, so the other order could read a miss without
            // its message.
            let missed = counters.missed.get();
            (path, Misses { judged: counters.all.get().max(missed), missed })
        })
    }
}
