//! What a report says of each node and each path, found by name.
//!
//! A search through the report for each node would grow with the square of the graph.

use limen::Report;
use limen::report::{DeadlineReport, EdgeReport, Recorded, Term};
use std::collections::{HashMap, HashSet};

/// What a report says of each node and each path.
pub(crate) struct ReportIndex<'a> {
    terms: HashMap<(&'a str, Term), &'a Recorded>,
    paths: HashSet<(&'a str, &'a str)>,
    deadlines: HashMap<(&'a str, &'a str), &'a DeadlineReport>,
    incoming: HashMap<&'a str, Vec<&'a EdgeReport>>,
    outgoing: HashMap<&'a str, Vec<&'a EdgeReport>>,
}

impl<'a> ReportIndex<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        let of_nodes = report.histograms.iter().filter(|one| one.to.is_none());
        let mut index = ReportIndex {
            // In the reverse order, so that the first of a name counts, as it does in
            // `Report::histogram`.
            terms: of_nodes.rev().map(|one| ((&*one.node, one.term), &one.recorded)).collect(),
            paths: report.paths().map(|(from, to, _)| (from, to)).collect(),
            deadlines: report.deadlines.iter().rev().map(|path| ((&*path.from, &*path.to), path)).collect(),
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
        };
        for edge in &report.edges {
            index.incoming.entry(node_of(&edge.to)).or_default().push(edge);
            index.outgoing.entry(node_of(&edge.from)).or_default().push(edge);
        }
        index
    }

    /// Returns what was recorded for a term of a node.
    pub(crate) fn term(&self, node: &str, term: Term) -> Option<&'a Recorded> {
        self.terms.get(&(node, term)).copied()
    }

    /// Whether a latency was recorded from a source to a sink.
    pub(crate) fn has_path(&self, from: &str, to: &str) -> bool {
        self.paths.contains(&(from, to))
    }

    /// Returns the deadline of a path.
    pub(crate) fn deadline(&self, from: &str, to: &str) -> Option<&'a DeadlineReport> {
        self.deadlines.get(&(from, to)).copied()
    }

    /// Returns the edges into a node.
    pub(crate) fn incoming(&self, node: &str) -> &[&'a EdgeReport] {
        self.incoming.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the edges out of a node.
    pub(crate) fn outgoing(&self, node: &str) -> &[&'a EdgeReport] {
        self.outgoing.get(node).map_or(&[], Vec::as_slice)
    }
}

/// The node in `node/port`.
fn node_of(end: &str) -> &str {
    end.split_once('/').map_or(end, |(node, _)| node)
}
