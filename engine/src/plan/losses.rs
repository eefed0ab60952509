//! Where messages may be lost, multiplied or put out of step on their way.

use super::effort::Effort;
use super::{EdgePlan, NodePlan, OutputPlan};
use crate::base::policy::{EdgePolicy, JoinPolicy, WhenFull};
use std::collections::{BTreeSet, HashSet};

/// A place where messages may be lost, duplicated or put out of step on the way to a join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Edge(usize),
    Node(usize),
    /// An output that gets only part of the messages of a node that routes, or gets them out of
    /// step.
    Port(usize, usize),
}

/// Returns whether an edge delivers as many messages as its source begins.
pub(super) fn loses_nothing(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    losses(edge, nodes, edges, effort).is_empty()
}

/// Returns every place on the paths to an edge's end where messages may be lost or multiplied:
/// either way the inputs of a join no longer match.
pub(super) fn losses(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> BTreeSet<Loss> {
    let (mut found, mut seen, mut todo) = (BTreeSet::new(), HashSet::from([edge]), vec![edge]);
    while let Some(at) = todo.pop() {
        if !effort.allows(4) {
            break;
        }
        let EdgePolicy { when_full, max_age, .. } = edges[at].policy;
        if when_full != WhenFull::Block || max_age.is_some() || edges[at].policy.lane_capacity() > 0 {
            found.insert(Loss::Edge(at));
        }
        let from = edges[at].from;
        let drops = nodes[from].policy().has_fault(|fault| fault.drop > 0.0);
        let gives_up = !nodes[from].stage.rules.deadlines.is_empty();
        let selects = nodes[from].planned.as_ref().is_some_and(|planned| planned.ports().selective);
        let routes = nodes[from].planned.as_ref().is_some_and(|planned| planned.ports().routes);
        // A sampling node drops messages that arrive before the first of its other inputs.
        let parts = matches!(nodes[from].stage.rule.policy, JoinPolicy::ByTime | JoinPolicy::Sample);
        let waits = nodes[from].stage.rule.patience.is_some() || parts;
        let out = &nodes[from].outputs[edges[at].from_port];
        let duplicates = nodes[from].policy().has_fault(|fault| fault.duplicate > 0.0);
        let many = merges_streams(&nodes[from]) || makes_many(&nodes[from], out) || duplicates;
        if many || nodes[from].policy().on_error.continues() || waits || drops || gives_up || (selects && !routes) {
            found.insert(Loss::Node(from));
        }
        // Messages not matched by sequence number and forwarded unchanged have different numbers at
        // each output.
        let is_out_of_step = parts && nodes[from].in_edges.len() > 1 && forwards(&nodes[from], out);
        if routes || is_out_of_step {
            found.insert(Loss::Port(from, edges[at].from_port));
        }
        todo.extend(nodes[from].in_edges.iter().filter(|e| seen.insert(**e)));
    }
    found
}

/// Returns whether every node upstream of an edge sends one message for each that it takes.
pub(super) fn keeps_rate(edge: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let (mut seen, mut todo) = (HashSet::from([edge]), vec![edge]);
    while let Some(at) = todo.pop() {
        let from = &nodes[edges[at].from];
        let selects = from.planned.as_ref().is_some_and(|planned| planned.ports().selective);
        if !effort.allows(1) || selects || makes_many(from, &from.outputs[edges[at].from_port]) {
            return false;
        }
        todo.extend(from.in_edges.iter().filter(|edge| seen.insert(**edge)));
    }
    true
}

/// Returns whether a node forwards messages of several inputs.
pub(super) fn merges_streams(node: &NodePlan) -> bool {
    node.merges() && node.in_edges.len() > 1
}

/// Returns whether an output forwards messages of an input.
fn forwards(node: &NodePlan, out: &OutputPlan) -> bool {
    let outputs = node.planned.iter().flat_map(|planned| &planned.ports().outputs);
    outputs.into_iter().any(|port| port.name == out.name && !port.forwards.is_empty())
}

/// Returns whether a call may make several messages from one.
pub(super) fn makes_many(node: &NodePlan, out: &OutputPlan) -> bool {
    out.emits > out.rows && node.planned.is_some() && !forwards(node, out)
}
