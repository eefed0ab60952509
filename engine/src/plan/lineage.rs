//! Which sources the messages of every port may come from, and where their origins are stored.

use super::effort::Effort;
use super::{EdgePlan, NodePlan};
use crate::base::policy::{JoinPolicy, Pick};
use crate::message::origins::MOST_ORIGINS;
use crate::message::tensor::Tensor;
use crate::node::PortType;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Source numbers, sorted; two sets merge in linear time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sources(Vec<u16>);

impl Sources {
    fn contains(&self, source: u16) -> bool {
        self.0.binary_search(&source).is_ok()
    }

    fn add(&mut self, others: &Sources) {
        if self.0.is_empty() {
            self.0.clone_from(&others.0);
        } else if !others.0.is_empty() && self.0 != others.0 {
            self.0.extend(&others.0);
            // A stable sort merges two sorted runs in linear time.
            self.0.sort();
            self.0.dedup();
        }
    }
}

/// The sources of a port's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Behind {
    /// Sources whose origins a message carries, in its header or beside its row.
    sources: Sources,
    /// Those whose messages may have been used before.
    reused: Sources,
    /// Sources that reach the port but whose origins are no longer tracked, each with the node
    /// where tracking ends.
    untracked: HashMap<u16, usize>,
    /// Whether one message may have several sources behind it.
    is_joined: bool,
}

impl Behind {
    fn add(&mut self, other: &Behind) {
        self.sources.add(&other.sources);
        self.reused.add(&other.reused);
        self.untracked.extend(&other.untracked);
        self.is_joined |= other.is_joined;
    }

    /// Stops tracking the origins of all other sources.
    fn keep_only(&mut self, keep: &Sources, node: usize) {
        let lost = self.sources.0.iter().filter(|source| !keep.contains(**source));
        self.untracked.extend(lost.map(|source| (*source, node)));
        self.sources.0.retain(|source| keep.contains(*source));
        self.reused.0.retain(|source| keep.contains(*source));
    }

    /// The cost of a pass over it, in steps.
    fn size(&self) -> usize {
        self.sources.0.len() + self.reused.0.len() + self.untracked.len() + 1
    }
}

/// Finds the sources of every port, and sets at each node which origins it has to track. `wanted`
/// are the sources of declared paths; they have priority where there are too many to track.
pub(super) fn follow(nodes: &mut [NodePlan], edges: &[EdgePlan], wanted: &HashSet<u16>, effort: &Effort) {
    let mut ports: Vec<Vec<Behind>> = nodes.iter().map(|node| vec![Behind::default(); node.outputs.len()]).collect();
    let mut taken: Vec<Behind> = vec![Behind::default(); nodes.len()];
    // A fixed-point iteration: one pass suffices unless edges close a cycle, and then nodes behind
    // a changed port are visited again. Sets only grow, so it terminates. Not collected: that would
    // compile a sort for them.
    let mut todo = BTreeSet::new();
    todo.extend(0..nodes.len());
    while let Some(at) = todo.pop_first() {
        let node = &nodes[at];
        let into: Vec<Behind> = node.in_edges.iter().map(|edge| from(&ports, &edges[*edge])).collect();
        if !effort.allows(into.iter().map(Behind::size).sum()) {
            return;
        }
        taken[at] = gathered(node, &into);
        let given: Vec<Behind> =
            (0..node.outputs.len()).map(|out| given(node, at, out, &taken[at], &into, wanted)).collect();
        for (out, given) in given.into_iter().enumerate() {
            if given != ports[at][out] {
                todo.extend(node.outputs[out].edges.iter().map(|edge| edges[*edge].to));
                ports[at][out] = given;
            }
        }
    }
    for (at, node) in nodes.iter_mut().enumerate() {
        let types = node.planned.as_ref().map(|planned| planned.output_types()).unwrap_or_default();
        let mut kept = 0;
        for (out, behind) in ports[at].iter().enumerate() {
            let is_filled =
                is_tensor(types.get(out).copied()) && (forwarded(node, out).is_empty() || node.copies.is_some());
            let is_followed = behind.is_joined && is_tensor(types.get(out).copied());
            let origins: Vec<u16> = behind.sources.0.iter().filter(|_| is_followed).copied().collect();
            if is_filled {
                kept = kept.max(origins.len());
            }
            // Also set where buffers are forwarded: a consumer that copies them keeps the same
            // origins.
            node.outputs[out].origins = origins;
        }
        let is_sink = node.outputs.is_empty();
        if kept > 0 {
            let s = if kept == 1 { "" } else { "s" };
            node.notes.push(format!("keeps the origins of {kept} source{s} with each message"));
        }
        node.stage.traced = taken[at].is_joined && (is_sink || kept > 0);
        let told = taken[at].sources.0.iter();
        node.stage.sources = told.map(|source| (*source, taken[at].reused.contains(*source))).collect();
        node.untracked = std::mem::take(&mut taken[at].untracked);
    }
}

fn from(ports: &[Vec<Behind>], edge: &EdgePlan) -> Behind {
    ports[edge.from].get(edge.from_port).cloned().unwrap_or_default()
}

/// Returns the sources of the messages that a call of a node takes.
fn gathered(node: &NodePlan, into: &[Behind]) -> Behind {
    let mut all = Behind::default();
    into.iter().for_each(|behind| all.add(behind));
    if node.in_edges.is_empty() {
        all.sources.add(&Sources(vec![node.stage.source]));
    }
    if node.in_edges.len() > 1 && !node.merges() {
        // Messages of one sequence of one source share an origin; otherwise the oldest origin
        // counts, whichever header survives.
        all.is_joined |= all.sources.0.len() > 1 || node.stage.rule.policy != JoinPolicy::Zip;
        for (at, behind) in into.iter().enumerate() {
            let takes_again = match node.stage.rule.policy {
                JoinPolicy::Sample => node.stage.rule.trigger != Some(at),
                _ => node.stage.rule.pick == Pick::Interpolate && node.stage.rule.anchor != Some(at),
            };
            if takes_again {
                all.reused.add(&behind.sources);
            }
        }
    }
    // A source tracked by one input is tracked.
    all.untracked.retain(|source, _| !all.sources.contains(*source));
    all
}

/// Returns the sources of the messages of an output.
fn given(node: &NodePlan, at: usize, out: usize, taken: &Behind, into: &[Behind], wanted: &HashSet<u16>) -> Behind {
    let mut all = taken.clone();
    let forwards = forwarded(node, out);
    if !forwards.is_empty() {
        // A forwarded buffer keeps only the origins of its own input.
        let mut only = Behind::default();
        for (port, behind) in node.inputs.iter().map(|(name, _)| name).zip(into) {
            if forwards.contains(&port) {
                only.add(behind);
            }
        }
        all.keep_only(&only.sources, at);
        (all.reused, all.is_joined) = (only.reused, only.is_joined);
    } else if all.is_joined {
        let types = node.planned.as_ref().map(|planned| planned.output_types()).unwrap_or_default();
        let most = if is_tensor(types.get(out).copied()) { MOST_ORIGINS } else { 0 };
        if all.sources.0.len() > most {
            let mut order = all.sources.0.clone();
            order.sort_by_key(|source| !wanted.contains(source));
            order.truncate(most);
            order.sort_unstable();
            all.keep_only(&Sources(order), at);
        }
    }
    all
}

fn is_tensor(ty: Option<PortType>) -> bool {
    ty.is_some_and(|ty| ty == PortType::of::<Tensor>())
}

fn forwarded(node: &NodePlan, out: usize) -> Vec<&String> {
    let declared = node.planned.as_ref().and_then(|planned| planned.ports().outputs.get(out));
    declared.map(|port| port.forwards.iter().collect()).unwrap_or_default()
}
