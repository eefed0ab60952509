//! The picture of a graph: where its nodes are drawn, and which way its messages take most of their
//! time.

use limen::Plan;
use limen::plan::Role;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// How often nodes are put in the order of their neighbours.
const SWEEPS: usize = 8;

/// A node in the picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OutlineNode {
    pub(crate) name: String,
    pub(super) kind: String,
    pub(super) role: &'static str,
    pub(super) worker: usize,
    /// The column, after those of all nodes that it takes messages of.
    pub(super) layer: usize,
    /// The place in the column.
    pub(super) row: usize,
    /// How long a message waits in it at least, ns.
    pub(crate) waits: u64,
}

/// An edge in the picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OutlineEdge {
    pub(super) from: usize,
    pub(crate) to: usize,
    /// The type of its messages.
    pub(super) spec: String,
    /// Whether it closes a cycle.
    pub(super) is_back: bool,
    /// Column and row of the places that it passes between its nodes.
    pub(super) bends: Vec<(usize, usize)>,
}

/// The nodes and edges of a plan, in its order.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlanOutline {
    pub(crate) nodes: Vec<OutlineNode>,
    pub(crate) edges: Vec<OutlineEdge>,
    /// The number of places in each column.
    rows: Vec<usize>,
}

/// The most places that edges pass: beyond that they are drawn straight.
const MAX_BENDS: usize = 4096;

impl PlanOutline {
    pub(crate) fn new(plan: &Plan) -> Self {
        let at: HashMap<&str, usize> =
            plan.nodes().iter().enumerate().map(|(n, node)| (node.name.as_str(), n)).collect();
        let node = |end: &str| at.get(end.rsplit_once('/').map_or(end, |(node, _)| node)).copied();
        let ends = plan.edges().iter().map(|edge| Some((node(&edge.from_name)?, node(&edge.to_name)?)));
        let ends: Vec<(usize, usize)> = ends.map(Option::unwrap_or_default).collect();
        let (layers, is_back) = layers(plan.nodes().len(), &ends);
        let passed = PassedColumns::new(&layers, &ends, &is_back);
        let rows = rows(&passed.layers, &passed.edges, &vec![false; passed.edges.len()]);
        let mut counts = vec![0; layers.iter().max().map_or(0, |most| most + 1)];
        passed.layers.iter().for_each(|layer| counts[*layer] += 1);
        let bends: Vec<Vec<(usize, usize)>> =
            passed.places.iter().map(|places| places.clone().map(|n| (passed.layers[n], rows[n])).collect()).collect();
        let nodes = plan.nodes().iter().zip(layers).zip(rows.iter().copied()).map(|((node, layer), row)| OutlineNode {
            name: node.name.clone(),
            kind: node.kind.clone(),
            role: match node.role {
                Role::Source => "source",
                Role::Transform => "transform",
                Role::Infer => "model",
                Role::Sink => "sink",
            },
            worker: node.worker,
            layer,
            row,
            waits: u64::try_from(node.waits().as_nanos()).unwrap_or(u64::MAX),
        });
        let edges = plan.edges().iter().zip(ends).zip(is_back).zip(bends);
        let edges = edges.map(|(((edge, (from, to)), is_back), bends)| OutlineEdge {
            from,
            to,
            spec: edge.spec.as_ref().map_or_else(|| "a plain value".into(), ToString::to_string),
            is_back,
            bends,
        });
        PlanOutline { nodes: nodes.collect(), edges: edges.collect(), rows: counts }
    }

    /// Returns the nodes from a source to a sink by the way on which the costs of the nodes add up
    /// to most; empty if there is none.
    pub(crate) fn slowest_route(&self, from: &str, to: &str, costs: &[f64]) -> Vec<usize> {
        let find = |name: &str| self.nodes.iter().position(|node| node.name == name);
        let (Some(from), Some(to)) = (find(from), find(to)) else { return Vec::new() };
        let mut edges: Vec<&OutlineEdge> = self.edges.iter().filter(|edge| !edge.is_back).collect();
        edges.sort_by_key(|edge| self.nodes[edge.from].layer);
        let mut best: Vec<Option<(f64, usize)>> = vec![None; self.nodes.len()];
        best[from] = Some((costs[from], from));
        for edge in edges {
            let Some((sum, _)) = best[edge.from] else { continue };
            let sum = sum + costs[edge.to];
            if best[edge.to].is_none_or(|(before, _)| sum > before) {
                best[edge.to] = Some((sum, edge.from));
            }
        }
        let mut route = Vec::new();
        let mut at = to;
        while let Some((_, before)) = best[at] {
            route.push(at);
            if at == from || route.len() > self.nodes.len() {
                break;
            }
            at = before;
        }
        if route.last() != Some(&from) {
            return Vec::new();
        }
        route.reverse();
        route
    }
}

/// The graph with a place in each column that an edge passes, so that no edge is drawn across a
/// node.
struct PassedColumns {
    /// Of the nodes, then of the places.
    layers: Vec<usize>,
    /// From each column to the next.
    edges: Vec<(usize, usize)>,
    /// Of each edge the places.
    places: Vec<Range<usize>>,
}

impl PassedColumns {
    fn new(layers: &[usize], edges: &[(usize, usize)], is_back: &[bool]) -> Self {
        let mut passed = PassedColumns { layers: layers.to_vec(), edges: Vec::new(), places: Vec::new() };
        for ((from, to), is_back) in edges.iter().zip(is_back) {
            let begin = passed.layers.len();
            let between = layers[*from] + 1..layers[*to];
            if !is_back && begin + between.len() <= layers.len() + MAX_BENDS {
                passed.layers.extend(between);
            }
            let places = begin..passed.layers.len();
            if !is_back {
                let stops = std::iter::once(*from).chain(places.clone());
                passed.edges.extend(stops.zip(places.clone().chain(std::iter::once(*to))));
            }
            passed.places.push(places);
        }
        passed
    }
}

/// Returns the column of each node, and for each edge whether it closes a cycle.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> (Vec<usize>, Vec<bool>) {
    let mut is_back: Vec<bool> = edges.iter().map(|(from, to)| from == to).collect();
    let (mut out, mut waits_for) = (vec![Vec::new(); nodes], vec![0usize; nodes]);
    for (at, (from, to)) in edges.iter().enumerate().filter(|(at, _)| !is_back[*at]) {
        out[*from].push(at);
        waits_for[*to] += 1;
    }
    let mut layer = vec![0; nodes];
    let mut left: BTreeSet<usize> = (0..nodes).collect();
    let mut ready: BTreeSet<usize> = (0..nodes).filter(|n| waits_for[*n] == 0).collect();
    // Of a cycle, the first node comes first.
    while let Some(n) = ready.pop_first().or_else(|| left.first().copied()) {
        left.remove(&n);
        for at in &out[n] {
            let to = edges[*at].1;
            if left.contains(&to) {
                layer[to] = layer[to].max(layer[n] + 1);
                waits_for[to] -= 1;
                if waits_for[to] == 0 {
                    ready.insert(to);
                }
            } else {
                is_back[*at] = true;
            }
        }
    }
    (layer, is_back)
}

/// Returns the place of each node in its column: near those of its neighbours, so that few edges
/// cross (the barycenter method of Sugiyama, Tagawa and Toda, 1981).
fn rows(layers: &[usize], edges: &[(usize, usize)], is_back: &[bool]) -> Vec<usize> {
    let mut columns = vec![Vec::new(); layers.iter().max().map_or(0, |most| most + 1)];
    layers.iter().enumerate().for_each(|(n, layer)| columns[*layer].push(n));
    let (mut before, mut behind) = (vec![Vec::new(); layers.len()], vec![Vec::new(); layers.len()]);
    for ((from, to), _) in edges.iter().zip(is_back).filter(|(_, is_back)| !**is_back) {
        before[*to].push(*from);
        behind[*from].push(*to);
    }
    let mut row = vec![0usize; layers.len()];
    let place = |column: &[usize], row: &mut [usize]| column.iter().enumerate().for_each(|(at, n)| row[*n] = at);
    columns.iter().for_each(|column| place(column, &mut row));
    for sweep in 0..SWEEPS {
        let is_forward = sweep % 2 == 0;
        for step in 0..columns.len() {
            let layer = if is_forward { step } else { columns.len() - 1 - step };
            let mean = |n: usize| {
                let near: &[usize] = if is_forward { &before[n] } else { &behind[n] };
                let sum: usize = near.iter().map(|other| row[*other]).sum();
                if near.is_empty() { row[n] as f64 } else { sum as f64 / near.len() as f64 }
            };
            let mut column: Vec<(f64, usize)> = columns[layer].iter().map(|n| (mean(*n), *n)).collect();
            column.sort_by(|a, b| a.0.total_cmp(&b.0));
            columns[layer] = column.into_iter().map(|(_, n)| n).collect();
            place(&columns[layer], &mut row);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_edges_and_cycles_are_cut() {
        for (nodes, edges, expected, back) in [
            (3, &[(0, 1), (1, 2)][..], &[0, 1, 2][..], &[][..]),
            (4, &[(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)], &[0, 1, 1, 2], &[]),
            // A loop through a delay.
            (4, &[(0, 1), (1, 2), (2, 1), (2, 3)], &[0, 1, 2, 3], &[2]),
            (2, &[(0, 0), (0, 1)], &[0, 1], &[0]),
            (0, &[], &[], &[]),
        ] {
            let (layers, is_back) = layers(nodes, edges);
            assert_eq!(layers, expected, "{edges:?}");
            let found: Vec<usize> = (0..edges.len()).filter(|n| is_back[*n]).collect();
            assert_eq!(found, back, "{edges:?}");
        }
    }

    #[test]
    fn an_edge_has_a_place_in_each_column_that_it_passes() {
        let edges = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 1)];
        let (layers, is_back) = layers(4, &edges);
        let passed = PassedColumns::new(&layers, &edges, &is_back);
        assert_eq!(passed.layers, [0, 1, 2, 3, 1, 2]);
        assert_eq!(passed.places, [4..4, 4..4, 4..4, 4..6, 6..6]);
        assert_eq!(passed.edges, [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 3)]);
        let rows = rows(&passed.layers, &passed.edges, &[false; 6]);
        assert!(rows[1] != rows[4] && rows[2] != rows[5], "{rows:?}");
    }

    #[test]
    fn neighbours_are_beside_each_other() {
        // Two chains, whose nodes are listed crosswise.
        let edges = [(0, 3), (1, 2), (2, 5), (3, 4)];
        let (layers, is_back) = layers(6, &edges);
        let rows = rows(&layers, &edges, &is_back);
        assert!(edges.iter().all(|(from, to)| rows[*from] == rows[*to]), "{rows:?}");
    }
}
