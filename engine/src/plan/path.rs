//! Paths with deadlines: what they ask, whether the graph can keep them at all, and what that means at each node.

use super::planner::Planner;
use super::{EdgePlan, NodePlan, PathPlan};
use crate::error::suggest;
use crate::intake::JoinPolicy;
use crate::registry::Role;
use crate::stage::{OnMiss, Rules};
use std::collections::BTreeSet;

impl Planner<'_> {
    pub(super) fn paths(&mut self, nodes: &[NodePlan], is_whole: bool) -> Vec<PathPlan> {
        let spec = self.spec;
        let mut paths = Vec::new();
        for path in &spec.paths {
            let mut ok = true;
            for name in [&path.from, &path.to] {
                if !spec.nodes.iter().any(|n| n.name == *name) {
                    let help = suggest(name, spec.nodes.iter().map(|n| n.name.as_str()));
                    self.wrong("E0120", &path.place, format!("there is no node `{name}`"), help);
                    ok = false;
                }
            }
            let find = |name: &str| nodes.iter().find(|n| n.name == name);
            if let (true, Some(from), Some(to)) = (ok && is_whole, find(&path.from), find(&path.to))
                && (from.role != Role::Source
                    || to.role != Role::Sink
                    || !to.reached_by.contains(&usize::from(from.begin.source)))
            {
                let message = format!("`{}` to `{}` is not a path from a source to a sink", path.from, path.to);
                self.wrong("E0137", &path.place, message, "name a source and a sink that its messages reach");
            }
            let untold = find(&path.from).zip(find(&path.to)).and_then(|(from, to)| to.untold.get(&from.begin.source));
            paths.push(PathPlan {
                from: path.from.clone(),
                to: path.to.clone(),
                deadline: path.deadline.map(crate::unit::Span::as_nanos),
                on_miss: path.on_miss,
                untold_behind: untold.map(|at| nodes[*at].name.clone()),
            });
        }
        paths
    }

    /// A deadline that the plan's own waits exceed is missed by every message. Planted delays are there to be rehearsed.
    pub(super) fn check_waits(&mut self, nodes: &[NodePlan], edges: &[EdgePlan]) {
        let spec = self.spec;
        for path in spec.paths.iter().filter(|path| path.deadline.is_some()) {
            let deadline = path.deadline.map_or(0, crate::unit::Span::as_nanos);
            let Some(from) = nodes.iter().position(|n| n.name == path.from) else { continue };
            // By node: when a message of the source leaves it at the soonest, and which node kept it longest.
            let mut soonest: Vec<Option<(u64, usize)>> = vec![None; nodes.len()];
            for (at, node) in nodes.iter().enumerate() {
                // What closes a cycle comes round later than what enters it.
                let ways =
                    node.in_edges.iter().filter(|e| edges[**e].from < at).filter_map(|e| soonest[edges[*e].from]);
                let one_will_do = node.merges() || node.rule.policy == JoinPolicy::Sample;
                let arrives = match at {
                    _ if at == from => Some((0, at)),
                    _ if one_will_do => ways.min(),
                    _ => ways.max(),
                };
                soonest[at] = arrives.map(|(arrives, slowest)| {
                    let waits = node.planned.as_ref().map_or(0, |p| p.ports().waits).max(node.rule.hold);
                    let leaves = arrives.max(waits);
                    (leaves, if leaves > arrives { at } else { slowest })
                });
            }
            let to = nodes.iter().position(|n| n.name == path.to);
            if let Some((least, slowest)) = to.and_then(|to| soonest[to])
                && least > deadline
            {
                let show = crate::unit::show_ns;
                let message = format!(
                    "`{}` to `{}` takes {} at least, because `{}` waits, and the deadline is {}",
                    path.from,
                    path.to,
                    show(least),
                    nodes[slowest].name,
                    show(deadline)
                );
                self.wrong("E0145", &path.deadline_place, message, "wait for less, or write a later deadline");
            }
        }
    }
}

/// What messages must keep at each node, so that none is worked on that every sink it can reach would get too late.
pub(super) fn rules(nodes: &mut [NodePlan], edges: &[EdgePlan], paths: &[PathPlan]) {
    let mut sources: Vec<(u16, String)> = Vec::new();
    for node in nodes.iter().filter(|n| n.role == Role::Source) {
        sources.push((node.begin.source, node.name.clone()));
    }
    let ends = if paths.iter().any(|path| path.deadline.is_some()) { sinks(nodes, edges) } else { Vec::new() };
    for at in 0..nodes.len() {
        let sinks: Vec<String> = ends.get(at).into_iter().flatten().map(|sink| nodes[*sink].name.clone()).collect();
        let reached = if ends.is_empty() { Vec::new() } else { nodes[at].reached_by.clone() };
        let sources = sources.iter().filter(|(n, _)| reached.contains(&usize::from(*n)));
        let mut found = Rules::default();
        for (number, source) in sources {
            let path =
                |to: &String| paths.iter().position(|p| p.from == *source && p.to == *to && p.deadline.is_some());
            let number = usize::from(*number);
            let dropping = |to: &String| {
                let path = &paths[path(to)?];
                let drops = matches!(path.on_miss, OnMiss::Drop | OnMiss::SkipToLatest);
                path.deadline.filter(|_| drops).map(|deadline| (deadline, path.on_miss))
            };
            let all: Option<Vec<(u64, OnMiss)>> = sinks.iter().map(dropping).collect();
            found.deadlines.resize(number + 1, None);
            found.deadlines[number] = all.and_then(|all| {
                // Hopeless only where the most patient sink is too; skipping must suit all of them.
                let deadline = all.iter().map(|(deadline, _)| *deadline).max()?;
                let skip = all.iter().all(|(_, on_miss)| *on_miss == OnMiss::SkipToLatest);
                Some((deadline, if skip { OnMiss::SkipToLatest } else { OnMiss::Drop }))
            });
            let soonest = sinks.iter().filter_map(|to| paths[path(to)?].deadline).min();
            nodes[at].urgency.resize(number + 1, None);
            nodes[at].urgency[number] = soonest;
            // Only where messages wait for others does anybody ask for the soonest.
            if nodes[at].role == Role::Infer
                || nodes[at].in_edges.iter().any(|edge| !nodes[edges[*edge].from].rules.soonest.is_empty())
            {
                found.soonest.resize(number + 1, None);
                found.soonest[number] = soonest;
            }
            if nodes[at].outputs.is_empty() {
                found.paths.resize(number + 1, None);
                let judged = path(&nodes[at].name).filter(|index| paths[*index].untold_behind.is_none());
                found.paths[number] =
                    judged.and_then(|index| Some((paths[index].deadline?, paths[index].on_miss, index)));
            }
        }
        found.max_age = nodes[at].in_edges.iter().map(|e| edges[*e].max_age).collect();
        if !nodes[at].in_edges.is_empty() && !found.is_empty() {
            nodes[at].rules = found;
        }
    }
}

/// The sinks behind each node.
fn sinks(nodes: &[NodePlan], edges: &[EdgePlan]) -> Vec<BTreeSet<usize>> {
    let mut behind: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes.len()];
    let mut changed = true;
    // Once through from the end finds all, except where edges close a cycle.
    while std::mem::take(&mut changed) {
        for at in (0..nodes.len()).rev() {
            let mut found = if nodes[at].outputs.is_empty() { BTreeSet::from([at]) } else { BTreeSet::new() };
            for edge in nodes[at].outputs.iter().flat_map(|out| &out.edges) {
                found.extend(&behind[edges[*edge].to]);
            }
            changed |= found.len() != behind[at].len();
            behind[at] = found;
        }
    }
    behind
}
