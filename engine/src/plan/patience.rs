//! `patience`: where a join needs none, and room for as many messages as it waits for.

use super::effort::Effort;
use super::joins::{can_be_held, comes_through, held_by_another};
use super::losses::losses;
use super::planner::Planner;
use super::{EdgePlan, NodePlan};
use crate::base::policy::{JoinPolicy, WhenFull};
use crate::file::spec::{MAX_CAPACITY, NodeSpec};
use crate::message::port_spec::PortSpec;
use std::collections::HashSet;

/// The most bytes and messages for which an input makes room by default because its join has a
/// `patience`.
const PATIENT_BYTES: usize = 64 << 20;
const PATIENT_MESSAGES: usize = 1 << 16;

impl Planner<'_> {
    /// Clears the `patience` of joins of branches of one stream if no branch can lose a message: a
    /// partner is then late and never lost, and giving up on it would lose a set.
    pub(super) fn clear_patience(nodes: &mut [NodePlan], edges: &[EdgePlan]) {
        // A graph that is too wide to be followed keeps its patience.
        let effort = Effort::new();
        let mut kept = HashSet::new();
        // A join without patience loses nothing downstream either.
        while let Some(at) =
            (0..nodes.len()).find(|at| !kept.contains(at) && needs_no_patience(*at, nodes, edges, &effort))
        {
            let patience = nodes[at].stage.rule.patience.take();
            // Without patience it must neither be held up by another join nor hold one up.
            if (0..nodes.len()).any(|join| is_held(join, nodes, edges, &effort)) || effort.is_spent() {
                nodes[at].stage.rule.patience = patience;
                kept.insert(at);
            } else {
                nodes[at].notes.push("ignores `patience`: no partner can be lost".into());
            }
        }
    }

    /// Makes room for as many messages as a join waits for by its `patience`, where no capacity is
    /// written.
    pub(super) fn cover_patience(nodes: &[NodePlan], edges: &mut [EdgePlan]) {
        for (patience, edge) in patient_edges(nodes) {
            let edge = &mut edges[edge];
            let bytes = edge.spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(64).max(1);
            let wanted = patience.min(PATIENT_BYTES / bytes).min(PATIENT_MESSAGES);
            if edge.policy.capacity.is_none() && edge.policy.when_full != WhenFull::Latest && edge.capacity < wanted {
                edge.buffer += wanted - edge.capacity;
                edge.capacity = wanted;
            }
        }
    }

    /// Refuses a written capacity, and notes a default one, with which a join gives up partners
    /// before its `patience` is used up.
    pub(super) fn check_patience(&mut self, nodes: &mut [NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec]) {
        for (patience, edge) in patient_edges(nodes) {
            let EdgePlan { to, policy, capacity, from_name, to_name, .. } = &edges[edge];
            if policy.when_full != WhenFull::Block || *capacity >= patience {
                continue;
            }
            let is_possible = patience <= MAX_CAPACITY;
            if policy.capacity.is_none() {
                let advice = match is_possible {
                    true => format!("write `capacity: {patience}`"),
                    false => format!("write `patience: {capacity}`"),
                };
                nodes[*to].notes.push(format!(
                    "waits for {capacity} messages from `{from_name}`, not for its `patience` of {patience}: {advice}"
                ));
                continue;
            }
            let port = to_name.rsplit('/').next().unwrap_or_default();
            let written = specs[*to].inputs.iter().find(|c| c.port.as_deref().unwrap_or(port) == port);
            let place = written.map_or(&specs[*to].place, |written| written.place_of("capacity"));
            let message = format!(
                "`capacity` must be at least the `patience` of `{}` ({patience}), got {capacity}",
                nodes[*to].name
            );
            let help = if is_possible {
                format!("write `capacity: {patience}`, or a smaller `patience`")
            } else {
                format!("write `patience: {capacity}`")
            };
            self.problem("E0133", place, message, help);
        }
    }
}

/// Returns the inputs of joins with a `patience`, and the patience. A node that merges its inputs
/// loses nothing by giving up.
fn patient_edges(nodes: &[NodePlan]) -> Vec<(usize, usize)> {
    let joins = nodes.iter().filter(|node| node.in_edges.len() > 1 && !node.merges() && node.stage.rule.waits(false));
    let edges = joins.filter_map(|node| Some((node.stage.rule.patience?, &node.in_edges)));
    edges.flat_map(|(patience, edges)| edges.iter().map(move |edge| (patience, *edge))).collect()
}

/// Returns whether another join without patience could hold up this one, which has none either.
fn is_held(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let node = &nodes[at];
    node.in_edges.len() > 1
        && node.stage.rule.patience.is_none()
        && can_be_held(node)
        && held_by_another(at, nodes, edges, effort).is_some()
}

/// Returns whether a join matches branches of one stream, and no branch can lose a message.
fn needs_no_patience(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let node = &nodes[at];
    let rule = &node.stage.rule;
    let matches_sets = matches!(rule.policy, JoinPolicy::Zip | JoinPolicy::ByTime);
    if rule.patience.is_none() || !matches_sets || node.in_edges.len() < 2 {
        return false;
    }
    let is_common = |gate: usize| {
        gate != at
            && nodes[gate].in_edges.len() != 1
            && nodes[gate].reached_by == node.reached_by
            && comes_through(gate, at, nodes, edges, effort)
    };
    if !effort.allows(nodes.len()) || !(0..nodes.len()).any(is_common) {
        return false;
    }
    let mut branches = node.in_edges.iter().map(|edge| losses(*edge, nodes, edges, effort));
    let first = branches.next();
    branches.all(|other| Some(other) == first) && !effort.is_spent()
}
