//! The views as tables: what is in them, in which order, and as plain text.

use crate::stats::{Shown, node_of};
use crate::text::{amount, ns};
use limen::run::{EdgeStats, PathStats, StatisticsWindow};
use limen_run::{MonitorNode, MonitorWorker};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// The deepest indentation of the graph; deeper nodes have the same.
const DEEPEST: usize = 12;
/// Characters of a bar.
const BAR: u64 = 8;

/// A table of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum View {
    #[default]
    Nodes,
    Edges,
    Paths,
    Workers,
    Graph,
}

impl View {
    pub(crate) const ALL: [View; 5] = [View::Nodes, View::Edges, View::Paths, View::Workers, View::Graph];

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    pub(crate) fn next(self) -> View {
        let at = View::ALL.iter().position(|view| *view == self).unwrap_or(0);
        View::ALL[(at + 1) % View::ALL.len()]
    }

    /// The columns with their widths; one that takes the rest has none.
    pub(crate) fn columns(self) -> &'static [(&'static str, Option<usize>)] {
        match self {
            View::Nodes => &[
                ("node", None),
                ("calls/s", Some(7)),
                ("p50", Some(8)),
                ("p99", Some(8)),
                ("max", Some(8)),
                ("wait p99", Some(8)),
                ("failed", Some(6)),
                ("lost", Some(6)),
            ],
            View::Edges => &[
                ("edge", None),
                ("depth", Some(8)),
                ("now", Some(5)),
                ("peak", Some(5)),
                ("holds", Some(6)),
                ("sent/s", Some(7)),
                ("sent", Some(6)),
                ("lost", Some(6)),
            ],
            View::Paths => &[
                ("path", None),
                ("count/s", Some(7)),
                ("p50", Some(8)),
                ("p99", Some(8)),
                ("max", Some(8)),
                ("deadline", Some(8)),
                ("missed", Some(6)),
            ],
            View::Workers => {
                &[("worker", Some(15)), ("pinned", Some(6)), ("used", Some(6)), ("waits", Some(6)), ("nodes", None)]
            }
            View::Graph => &[
                ("graph", None),
                ("kind", Some(12)),
                ("depth", Some(8)),
                ("calls/s", Some(7)),
                ("p50", Some(8)),
                ("p99", Some(8)),
                ("lost", Some(6)),
            ],
        }
    }

    /// Whether a column is aligned to the left.
    pub(crate) fn is_text(self, column: usize) -> bool {
        matches!(self.columns().get(column), Some((_, None)) | Some(("depth" | "worker" | "kind" | "waits", _)))
    }

    /// Whether its rows have an order that is not to be changed.
    pub(crate) fn is_fixed(self) -> bool {
        self == View::Graph
    }
}

/// What a cell is sorted by.
#[derive(Clone, Debug, PartialEq)]
enum By {
    Text(String),
    Number(f64),
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    by: Vec<By>,
    /// Whether something failed or was lost, or an edge was full.
    pub(crate) warns: bool,
}

#[derive(Default)]
struct RowBuilder {
    cells: Vec<String>,
    by: Vec<By>,
}

impl RowBuilder {
    fn text(mut self, text: &str) -> Self {
        self.cells.push(text.into());
        self.by.push(By::Text(text.into()));
        self
    }

    fn shown(mut self, text: String, by: f64) -> Self {
        self.cells.push(text);
        self.by.push(By::Number(by));
        self
    }

    fn amount(self, value: f64) -> Self {
        self.shown(amount(value), value)
    }

    /// Empty for none.
    fn losses(self, count: u64) -> Self {
        let text = if count == 0 { String::new() } else { amount(count as f64) };
        self.shown(text, count as f64)
    }

    /// Empty for none.
    fn missed(self, path: &PathStats) -> Self {
        if path.silent.is_some() { self.shown("silent".into(), f64::MAX) } else { self.losses(path.missed) }
    }

    /// Empty for none.
    fn deadline(self, deadline: Option<u64>) -> Self {
        self.shown(
            deadline.map_or_else(String::new, |_| ns(deadline)),
            deadline.map_or(-1.0, |deadline| deadline as f64),
        )
    }

    fn time(self, window: Option<&StatisticsWindow>, of: impl Fn(&StatisticsWindow) -> Option<u64>) -> Self {
        let Some(window) = window.filter(|window| window.count > 0) else { return self.shown(String::new(), -2.0) };
        let time = of(window);
        // Too few samples for a quantile sort below all that have one.
        self.shown(ns(time), time.map_or(-1.0, |time| time as f64))
    }

    fn row(self, warns: bool) -> Row {
        Row { cells: self.cells, by: self.by, warns }
    }
}

/// The rows of a view, in the order of the graph.
pub(crate) fn rows(shown: &Shown, view: View) -> Vec<Row> {
    let stats = &shown.stats;
    match view {
        View::Nodes => {
            let (lost, starving) = (losses(shown), starving(shown));
            let nodes = stats.nodes.iter().zip(&shown.node_rates);
            let row = |(MonitorNode { stats: node, .. }, rate): (&MonitorNode, &f64)| {
                let inside: u64 = node.lost.values().sum();
                let lost = lost.get(node.node.as_str()).copied().unwrap_or(0).saturating_add(inside);
                let is_gone = node.connected == Some(false);
                let starves = starving.contains(node.node.as_str());
                let has_incidents = node.incidents.values().any(|count| *count > 0);
                let is_stale = node.stale == Some(true);
                let marks =
                    [(is_gone, "gone"), (starves, "starves"), (is_stale, "stale"), (has_incidents, "incidents")];
                let call = node.compute.as_ref();
                RowBuilder::default()
                    .text(&with_state(node.node.clone(), &marks))
                    .amount(*rate)
                    .time(call, |window| window.p50)
                    .time(call, |window| window.p99)
                    .time(call, |window| window.max)
                    .time(node.queue.as_ref(), |window| window.p99)
                    .losses(node.failed)
                    .losses(lost)
                    .row(node.failed > 0 || lost > 0 || marks.iter().any(|(is_set, _)| *is_set))
            };
            nodes.map(row).collect()
        }
        View::Edges => {
            let edges = stats.edges.iter().zip(&shown.edge_rates);
            let row = |(edge, rate): (&EdgeStats, &f64)| {
                RowBuilder::default()
                    .text(&with_state(format!("{} -> {}", edge.from, edge.to), &[(edge.starves.is_some(), "starves")]))
                    .shown(
                        bar(edge.depth, edge.peak_depth, edge.capacity as u64),
                        fraction(edge.peak_depth, edge.capacity as u64),
                    )
                    .amount(edge.depth as f64)
                    .amount(edge.peak_depth as f64)
                    .amount(edge.capacity as f64)
                    .amount(*rate)
                    .amount(edge.sent as f64)
                    .losses(edge.lost)
                    .row(edge.lost > 0 || edge.starves.is_some() || edge.peak_depth >= edge.capacity.max(1) as u64)
            };
            edges.map(row).collect()
        }
        View::Paths => {
            let row = |path: &PathStats| {
                let latency = Some(&path.latency);
                let (within, count) = (path.latency.within.as_secs_f64(), path.latency.count as f64);
                RowBuilder::default()
                    .text(&format!("{} -> {}", path.from, path.to))
                    .amount(if within > 0.0 { count / within } else { 0.0 })
                    .time(latency, |window| window.p50)
                    .time(latency, |window| window.p99)
                    .time(latency, |window| window.max)
                    .deadline(path.deadline)
                    .missed(path)
                    .row(path.missed > 0 || path.silent.is_some())
            };
            stats.paths.iter().map(row).collect()
        }
        View::Workers => {
            let row = |(worker, used): (&MonitorWorker, &Option<f64>)| {
                let cpu = worker.cpu.map_or(("–".to_string(), -1.0), |cpu| (cpu.to_string(), cpu as f64));
                let used = used.map_or(("–".to_string(), -1.0), |used| (format!("{:.0} %", used * 100.0), used));
                RowBuilder::default()
                    .text(&worker.name)
                    .shown(cpu.0, cpu.1)
                    .shown(used.0, used.1)
                    .text(&worker.wait)
                    .text(&worker.nodes.join(", "))
                    .row(false)
            };
            stats.workers.iter().zip(&shown.cpus).map(row).collect()
        }
        View::Graph => tree(shown),
    }
}

/// The messages lost on the inputs of each node.
fn losses(shown: &Shown) -> HashMap<&str, u64> {
    let mut lost: HashMap<&str, u64> = HashMap::new();
    for edge in &shown.stats.edges {
        let of = lost.entry(node_of(&edge.to)).or_default();
        *of = of.saturating_add(edge.lost);
    }
    lost
}

/// The joins that starve.
fn starving(shown: &Shown) -> HashSet<&str> {
    shown.stats.edges.iter().filter(|edge| edge.starves.is_some()).map(|edge| node_of(&edge.to)).collect()
}

/// A name with what is wrong with it: `gps (gone)`.
fn with_state(name: String, states: &[(bool, &str)]) -> String {
    states.iter().filter(|(is, _)| *is).fold(name, |name, (_, state)| name + " (" + state + ")")
}

/// From every source to the sinks: each node once with what follows it, where another edge leads to
/// it again only its name.
fn tree(shown: &Shown) -> Vec<Row> {
    let stats = &shown.stats;
    let index: HashMap<&str, usize> =
        stats.nodes.iter().enumerate().map(|(at, node)| (node.stats.node.as_str(), at)).collect();
    let mut next: Vec<Vec<(usize, usize)>> = vec![Vec::new(); stats.nodes.len()];
    let mut is_fed = vec![false; stats.nodes.len()];
    for (at, edge) in stats.edges.iter().enumerate() {
        if let (Some(from), Some(to)) = (index.get(node_of(&edge.from)), index.get(node_of(&edge.to))) {
            next[*from].push((*to, at));
            is_fed[*to] = true;
        }
    }
    let mut rows = Vec::new();
    let mut is_shown = vec![false; stats.nodes.len()];
    // Nodes that nothing feeds come first; others that were not reached would be part of a cycle,
    // which no graph has.
    let roots = (0..stats.nodes.len()).filter(|at| !is_fed[*at]).chain(0..stats.nodes.len());
    for root in roots {
        if is_shown[root] {
            continue;
        }
        let mut stack = vec![(root, None, 0usize)];
        while let Some((at, edge, depth)) = stack.pop() {
            let MonitorNode { stats: node, kind, .. } = &stats.nodes[at];
            let again = std::mem::replace(&mut is_shown[at], true);
            let edge: Option<&EdgeStats> = edge.map(|edge: usize| &stats.edges[edge]);
            let indent = "  ".repeat(depth.saturating_sub(1).min(DEEPEST));
            let name =
                format!("{indent}{}{}{}", if depth > 0 { "└ " } else { "" }, node.node, if again { " ↑" } else { "" });
            let lost = edge.map_or(0, |edge| edge.lost);
            let starves = edge.is_some_and(|edge| edge.starves.is_some());
            let name = with_state(name, &[(starves, "starves")]);
            let bar = edge.map_or(String::new(), |edge| bar(edge.depth, edge.peak_depth, edge.capacity as u64));
            let row = RowBuilder::default().text(&name).text(if again { "" } else { kind }).text(&bar);
            let call = node.compute.as_ref().filter(|_| !again);
            let rate = if again { row.text("") } else { row.amount(shown.node_rates[at]) };
            let times = rate.time(call, |window| window.p50).time(call, |window| window.p99);
            rows.push(times.losses(lost).row(lost > 0 || starves || (node.failed > 0 && !again)));
            if !again {
                stack.extend(next[at].iter().rev().map(|(to, edge)| (*to, Some(*edge), depth + 1)));
            }
        }
    }
    rows
}

fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The depth of an edge: messages now, and up to the peak of the last seconds.
fn bar(now: u64, peak: u64, capacity: u64) -> String {
    // Rounded up: one message is seen, and only a full edge fills the bar.
    let of = |depth: u64| {
        let cells = (fraction(depth, capacity) * BAR as f64).ceil() as u64;
        if depth < capacity { cells.min(BAR - 1) } else { BAR }
    };
    let now = of(now).min(if capacity == 0 { 0 } else { BAR });
    let peak = of(peak.min(capacity)).max(now).min(if capacity == 0 { 0 } else { BAR });
    let cell = |at| match at {
        _ if at < now => '█',
        _ if at < peak => '▒',
        _ => '·',
    };
    (0..BAR).map(cell).collect()
}

/// Sorts rows by a column: names from `a`, numbers from the largest.
pub(crate) fn sort(rows: &mut [Row], column: usize, is_reversed: bool) {
    let order = |one: &Row, other: &Row| match (one.by.get(column), other.by.get(column)) {
        (Some(By::Text(one)), Some(By::Text(other))) => one.cmp(other),
        (Some(By::Number(one)), Some(By::Number(other))) => other.total_cmp(one),
        _ => Ordering::Equal,
    };
    // Stable, so that equal rows stay in the order of the graph.
    rows.sort_by(|one, other| if is_reversed { order(other, one) } else { order(one, other) });
}

/// Shortens text in its middle, because names differ at their ends.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.into();
    }
    let Some(kept) = width.checked_sub(1) else { return String::new() };
    let tail = kept / 2;
    let (head, end) = (text.chars().take(kept - tail), text.chars().skip(length - tail));
    head.chain(std::iter::once('…')).chain(end).collect()
}

/// A view as text; a blank line follows nowhere.
pub(crate) fn text(shown: &Shown, view: View) -> String {
    let columns = view.columns();
    let rows = rows(shown, view);
    let mut lines = vec![columns.iter().map(|(title, _)| title.to_string()).collect::<Vec<_>>()];
    lines.extend(rows.into_iter().map(|row| row.cells));
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for cells in &lines {
        let padded = cells.iter().enumerate().map(|(at, cell)| {
            let width = widths[at];
            if view.is_text(at) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;
    use crate::stats::tests::stats;

    fn shown() -> Shown {
        Shown::new(stats(12.0, 1500), Some(&stats(11.0, 1000)))
    }

    fn names(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.cells[0].trim()).collect()
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        for view in View::ALL {
            let rows = rows(&shown(), view);
            assert!(rows.len() > 1, "{view:?}");
            for row in rows {
                assert_eq!((row.cells.len(), row.by.len()), (view.columns().len(), view.columns().len()), "{row:?}");
                for (cell, (_, width)) in row.cells.iter().zip(view.columns()) {
                    assert!(width.is_none_or(|width| cell.chars().count() <= width), "{view:?}: {cell}");
                    assert!(!cell.contains('\x1b'));
                }
            }
        }
    }

    #[test]
    fn rows_are_sorted_by_name_or_from_the_largest() {
        let mut nodes = rows(&shown(), View::Nodes);
        assert_eq!(names(&nodes)[..3], ["camera", "lidar", "resize"]);
        sort(&mut nodes, 0, true);
        assert_eq!(names(&nodes)[..3], ["resize", "net", "log"]);
        // The only one whose inputs lose messages; the others keep their order.
        sort(&mut nodes, 7, false);
        assert_eq!(names(&nodes)[0], "net");
        sort(&mut nodes, 7, true);
        assert_eq!(names(&nodes)[6], "net");
        sort(&mut nodes, 99, false);
        let mut edges = rows(&shown(), View::Edges);
        sort(&mut edges, 1, false);
        assert_eq!(edges[0].cells[0], "resize/out -> net/in");
        assert!(edges[0].warns);
    }

    #[test]
    fn the_graph_shows_every_edge_once() {
        let rows = rows(&shown(), View::Graph);
        let lines: Vec<&str> = rows.iter().map(|row| row.cells[0].as_str()).collect();
        assert_eq!(lines[0], "camera");
        assert_eq!(lines[1], "└ resize");
        assert_eq!(lines[2], "  └ net");
        assert_eq!(lines[3], "    └ fuse_camera_and_lidar_of_the_head");
        assert_eq!(lines[4], "      └ log");
        assert_eq!(lines[6], "lidar");
        assert_eq!(lines[7], "└ fuse_camera_and_lidar_of_the_head ↑");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn a_join_that_starves_is_named_with_its_edge() {
        let mut answer = stats(12.0, 1500).with_rates(&stats(11.0, 1000));
        answer["edges"][3]["starves_s"] = 2.0.into();
        let answer = serde_json::json!({ "version": 1, "ok": true, "stats": answer });
        let shown = Shown::new(Stats::read(answer).unwrap(), None);
        for (view, expected) in [
            (View::Nodes, &["fuse_camera_and_lidar_of_the_head (starves)"][..]),
            (View::Edges, &["lidar/bytes -> fuse_camera_and_lidar_of_the_head/b (starves)"]),
            (View::Graph, &["└ fuse_camera_and_lidar_of_the_head ↑ (starves)"]),
            (View::Paths, &[]),
        ] {
            let rows = rows(&shown, view);
            let starving: Vec<&Row> = rows.iter().filter(|row| row.cells[0].ends_with("(starves)")).collect();
            assert!(starving.iter().all(|row| row.warns), "{view:?}");
            let found: Vec<&str> = starving.iter().map(|row| row.cells[0].trim()).collect();
            assert_eq!(found, expected, "{view:?}");
        }
    }

    #[test]
    fn a_bar_shows_one_message_and_is_full_only_if_the_edge_is() {
        for (now, peak, capacity, expected) in [
            (0, 0, 64, "········"),
            (1, 1, 64, "█·······"),
            (32, 40, 64, "████▒···"),
            (63, 63, 64, "███████·"),
            (64, 64, 64, "████████"),
            (0, 64, 64, "▒▒▒▒▒▒▒▒"),
            (70, 70, 64, "████████"),
            (3, 3, 0, "········"),
        ] {
            assert_eq!(bar(now, peak, capacity), expected, "{now} {peak} {capacity}");
        }
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        for (text, width, expected) in [
            ("left_camera", 11, "left_camera"),
            ("left_camera", 7, "lef…era"),
            ("left_camera", 1, "…"),
            ("left_camera", 0, ""),
            ("größe_der_welt", 6, "grö…lt"),
        ] {
            assert_eq!(cut(text, width), expected);
        }
    }

    #[test]
    fn an_empty_answer_is_an_empty_table() {
        for view in View::ALL {
            assert_eq!(text(&Shown::default(), view).lines().count(), 1);
        }
    }
}
