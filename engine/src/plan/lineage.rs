//! Which sources may be behind the messages of every port, and where the origin of each is kept.

use super::effort::Effort;
use super::{EdgePlan, NodePlan};
use crate::base::policy::{JoinPolicy, Pick};
use crate::message::origins::MOST_ORIGINS;
use crate::message::tensor::Tensor;
use crate::node::PortType;
use std::collections::{BTreeMap, BTreeSet};

/// Sources by their numbers, in order: a set that is put together in as many steps as it is long.
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
            // Two runs in order, which a stable sort merges.
            self.0.sort();
            self.0.dedup();
        }
    }
}

/// What the messages of a port are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Behind {
    /// Sources whose origins a message may tell, in its header or beside its row.
    sources: Sources,
    /// Those of them whose message may have been in one before.
    reused: Sources,
    /// Sources that reach the port, and whose origins nothing tells from here on, with the node where they are lost.
    untold: BTreeMap<u16, usize>,
    /// Whether one message may have several sources behind it.
    is_joined: bool,
}

impl Behind {
    fn add(&mut self, other: &Behind) {
        self.sources.add(&other.sources);
        self.reused.add(&other.reused);
        self.untold.extend(&other.untold);
        self.is_joined |= other.is_joined;
    }

    /// The origins of the other sources are told no more.
    fn keep_only(&mut self, keep: &Sources, node: usize) {
        let lost = self.sources.0.iter().filter(|source| !keep.contains(**source));
        self.untold.extend(lost.map(|source| (*source, node)));
        self.sources.0.retain(|source| keep.contains(*source));
        self.reused.0.retain(|source| keep.contains(*source));
    }

    /// Steps of a look at it.
    fn size(&self) -> usize {
        self.sources.0.len() + self.reused.0.len() + self.untold.len() + 1
    }
}

/// Finds what is behind every port, and notes at each node what it has to follow. `wanted` are the sources of declared paths: where
/// there are more sources than can be followed, these come first.
pub(super) fn follow(nodes: &mut [NodePlan], edges: &[EdgePlan], wanted: &BTreeSet<u16>, effort: &Effort) {
    let mut ports: Vec<Vec<Behind>> = nodes.iter().map(|node| vec![Behind::default(); node.outputs.len()]).collect();
    let mut taken: Vec<Behind> = vec![Behind::default(); nodes.len()];
    // Once through finds all, except where edges close a cycle: then what is behind a changed port is looked at again. Sets only grow,
    // so that ends.
    let mut todo: BTreeSet<usize> = (0..nodes.len()).collect();
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
            // Also where buffers go on as they are: whoever copies them keeps the same.
            node.outputs[out].origins = origins;
        }
        let is_sink = node.outputs.is_empty();
        if kept > 0 {
            node.notes.push(format!("keeps the origins of {kept} sources with each message"));
        }
        node.stage.traced = taken[at].is_joined && (is_sink || kept > 0);
        let told = taken[at].sources.0.iter();
        node.stage.sources = told.map(|source| (*source, taken[at].reused.contains(*source))).collect();
        node.untold = std::mem::take(&mut taken[at].untold);
    }
}

fn from(ports: &[Vec<Behind>], edge: &EdgePlan) -> Behind {
    ports[edge.from].get(edge.from_port).cloned().unwrap_or_default()
}

/// What is behind what a call of a node takes.
fn gathered(node: &NodePlan, into: &[Behind]) -> Behind {
    let mut all = Behind::default();
    into.iter().for_each(|behind| all.add(behind));
    if node.in_edges.is_empty() {
        all.sources.add(&Sources(vec![node.stage.source]));
    }
    if node.in_edges.len() > 1 && !node.merges() {
        // Of one number of one source all began together; otherwise the oldest counts, whichever header survives.
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
    // What is told somewhere is told.
    all.untold.retain(|source, _| !all.sources.contains(*source));
    all
}

/// What is behind the messages of an output.
fn given(node: &NodePlan, at: usize, out: usize, taken: &Behind, into: &[Behind], wanted: &BTreeSet<u16>) -> Behind {
    let mut all = taken.clone();
    let forwards = forwarded(node, out);
    if !forwards.is_empty() {
        // A buffer that goes on as it is keeps what is told of it, and nothing else.
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
