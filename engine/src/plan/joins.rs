//! Joins that could wait for ever: for a message that was lost, or for one that another join holds
//! up.

use super::effort::Effort;
use super::losses::{Loss, losses, makes_many, merges_streams};
use super::planner::Planner;
use super::{EdgePlan, NodePlan};
use crate::base::policy::JoinPolicy;
use crate::file::spec::NodeSpec;
use crate::plan::kind::Role;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Planner<'_> {
    /// Refuses joins that could wait forever for a lost partner. A message lost before the paths to
    /// the inputs part is missing at all inputs, and no input waits for it.
    pub(super) fn check_joins(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], specs: &[&NodeSpec], whole: &[bool]) {
        let all_known = !whole.contains(&false);
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| whole[*at]) {
            let rule = &node.stage.rule;
            if node.in_edges.len() < 2 || rule.patience.is_some() || !rule.waits(node.merges()) {
                continue;
            }
            if specs[at].has_unreadable_join() {
                continue;
            }
            if node.merges() {
                // Backpressure from one input may stop the source that the other input waits for.
                let from = |e: &usize| &nodes[edges[*e].from];
                let shared = node.in_edges.iter().enumerate().find_map(|(i, e)| {
                    let others = &node.in_edges[i + 1..];
                    let has = |other: &usize, source: &usize| from(other).reached_by.binary_search(source).is_ok();
                    let reached = |source: &&usize| others.iter().any(|other| has(other, source));
                    from(e).reached_by.iter().take_while(|_| self.effort.allows(others.len())).find(reached)
                });
                if let Some(source) = shared
                    .and_then(|n| nodes.iter().find(|s| usize::from(s.stage.source) == *n && s.role == Role::Source))
                {
                    let message = format!(
                        "`{}` (`policy: {}`) could deadlock: several inputs come from `{}`, and backpressure on one input can \
                         block another",
                        node.name,
                        node.stage.rule.policy.name(),
                        source.name
                    );
                    let help = patience_help(&node.name);
                    self.problem("E0134", &specs[at].place, message, help);
                    continue;
                }
            }
            if can_be_held(node)
                && all_known
                && let Some(other) = held_by_another(at, nodes, edges, &self.effort)
            {
                let message = format!(
                    "`{}` (`policy: {}`) could deadlock: `{}` waits for the same sources, and backpressure of `{2}` can \
                     block an input of `{0}`",
                    node.name,
                    node.stage.rule.policy.name(),
                    nodes[other].name
                );
                let help = patience_help(&node.name);
                self.problem("E0134", &specs[at].place, message, help);
                continue;
            }
            if node.stage.rule.policy == JoinPolicy::ByTime && stands_alone(at, nodes, edges, &self.effort) {
                continue;
            }
            let ways: Vec<BTreeSet<Loss>> =
                node.in_edges.iter().map(|e| losses(*e, nodes, edges, &self.effort)).collect();
            let parted = ways.iter().flatten().find(|loss| !ways.iter().all(|way| way.contains(loss)));
            let Some(loss) = parted else { continue };
            let why = match *loss {
                Loss::Edge(e) if edges[e].policy.max_age.is_some() => {
                    format!("`{}` drops messages older than its `max_age`", edges[e].to_name)
                }
                Loss::Edge(e) if edges[e].policy.lane_capacity() > 0 => {
                    format!("urgent messages overtake others on the edge from `{}`", edges[e].from_name)
                }
                Loss::Edge(e) => {
                    format!(
                        "the edge from `{}` may lose messages (`when_full: {}`)",
                        edges[e].from_name,
                        edges[e].policy.when_full.name()
                    )
                }
                Loss::Node(n) if nodes[n].stage.rule.policy == JoinPolicy::Sample => {
                    format!(
                        "`{}` (`policy: sample`) drops messages until every other input has a message",
                        nodes[n].name
                    )
                }
                Loss::Node(n) if merges_streams(&nodes[n]) => {
                    format!("`{}` merges several streams", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].outputs.iter().any(|out| makes_many(&nodes[n], out)) => {
                    format!("`{}` makes several messages from one", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].stage.rule.patience.is_some() => {
                    format!("`{}` stops waiting for partners after its `patience`", nodes[n].name)
                }
                Loss::Node(n) if nodes[n].policy().on_error.continues() => {
                    format!("`{}` skips messages after an error", nodes[n].name)
                }
                Loss::Port(n, _) if !nodes[n].planned.as_ref().is_some_and(|planned| planned.ports().routes) => {
                    format!(
                        "`{}` forwards each input to another output, and the outputs may drift apart",
                        nodes[n].name
                    )
                }
                Loss::Node(n) | Loss::Port(n, _) => format!("`{}` may drop messages", nodes[n].name),
            };
            let message = format!("join `{}` could wait forever for a partner: {why}", node.name);
            let has_source = |e: &usize, source: &usize| nodes[edges[*e].from].reached_by.binary_search(source).is_ok();
            let first = node.in_edges.first().map_or(&[][..], |e| &nodes[edges[*e].from].reached_by);
            let is_apart = |e: &usize| !first.iter().any(|source| has_source(e, source));
            let help = if rule.policy == JoinPolicy::Zip && node.in_edges.iter().skip(1).any(is_apart) {
                "write `join: { policy: by_time, within: 10ms }` for inputs of different sources, or `join: { patience: 16 }` \
                 for messages that match by number"
            } else {
                "write `join: { patience: 16 }`: a partner counts as lost after 16 messages"
            };
            self.problem("E0134", &specs[at].place, message, help);
        }
    }
}

/// The help for a merging node that could deadlock.
fn patience_help(name: &str) -> String {
    format!("write `patience: 16` in the `join` of `{name}`: `{name}` then skips an input after 16 messages")
}

/// Returns whether another join could hold up a node. Nodes that match by sequence number, as `zip`
/// and `in_turn` do, stay in step with each other.
pub(super) fn can_be_held(node: &NodePlan) -> bool {
    matches!(node.stage.rule.policy, JoinPolicy::OldestFirst | JoinPolicy::ByTime)
}

/// Returns whether a join by time has streams of its own: no two inputs share a source, and no
/// other node waits for any of them except downstream of this node. A loss on one input then shows
/// by the next message on it, which nothing holds back.
fn stands_alone(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let mut sources = HashSet::new();
    let own = nodes[at].in_edges.iter().flat_map(|e| &nodes[edges[*e].from].reached_by).all(|n| sources.insert(*n));
    own && nodes.iter().enumerate().all(|(other, node)| {
        let waits =
            node.in_edges.len() > 1 && node.stage.rule.patience.is_none() && node.stage.rule.waits(node.merges());
        let shares = || effort.allows(node.reached_by.len()) && node.reached_by.iter().any(|n| sources.contains(n));
        other == at || !waits || !shares() || comes_through(at, other, nodes, edges, effort)
    })
}

/// Returns whether every message that reaches `node` has passed through `gate`.
pub(super) fn comes_through(gate: usize, node: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> bool {
    let (mut seen, mut todo) = (HashSet::from([node]), vec![node]);
    while let Some(at) = todo.pop() {
        if nodes[at].in_edges.is_empty() || !effort.allows(2) {
            return false;
        }
        let before = nodes[at].in_edges.iter().map(|edge| edges[*edge].from).filter(|from| *from != gate);
        todo.extend(before.filter(|from| seen.insert(*from)));
    }
    true
}

/// Maps each source upstream of a node to its inputs, one bit for each.
fn ways_in(
    node: &NodePlan,
    nodes: &[NodePlan],
    edges: &[EdgePlan],
    among: impl Fn(usize) -> bool,
) -> HashMap<usize, u32> {
    let mut ways = HashMap::new();
    for (input, edge) in node.in_edges.iter().enumerate() {
        for source in nodes[edges[*edge].from].reached_by.iter().filter(|source| among(**source)) {
            *ways.entry(*source).or_insert(0) |= 1 << (input % 32);
        }
    }
    ways
}

/// Returns another node without patience that waits for two sources which this one takes by
/// different inputs, not in step.
pub(super) fn held_by_another(at: usize, nodes: &[NodePlan], edges: &[EdgePlan], effort: &Effort) -> Option<usize> {
    if !effort.allows(4 * nodes[at].reached_by.len()) {
        return None;
    }
    let here = ways_in(&nodes[at], nodes, edges, |_| true);
    // Whether two sources do not come by the same single input.
    let are_apart = |one: u32, other: u32| one != other || one.count_ones() > 1;
    (0..nodes.len()).find(|other| {
        let node = &nodes[*other];
        if *other == at
            || node.in_edges.len() < 2
            || node.stage.rule.patience.is_some()
            || !node.stage.rule.waits(node.merges())
        {
            return false;
        }
        // With fewer than two shared sources it cannot block one against another.
        let shared = node.reached_by.iter().filter(|source| here.contains_key(source)).take(2).count();
        if !effort.allows(2 * node.reached_by.len()) || shared < 2 {
            return false;
        }
        // A node that zips messages sent by this very node stays in step with it.
        if node.stage.rule.policy == JoinPolicy::Zip && comes_through(at, *other, nodes, edges, effort) {
            return false;
        }
        let there = ways_in(node, nodes, edges, |source| here.contains_key(&source));
        // Sources that come by the same inputs at both nodes are equivalent.
        let mut alike: HashMap<(u32, u32), bool> = HashMap::new();
        #[expect(clippy::iter_over_hash_type, reason = "how often each pair occurs does not depend on the order")]
        for (source, way) in &there {
            alike.entry((here[source], *way)).and_modify(|is_several| *is_several = true).or_insert(false);
        }
        if !effort.allows(8 * there.len() + alike.len() * alike.len()) {
            return false;
        }
        let kinds: Vec<(&(u32, u32), &bool)> = alike.iter().collect();
        kinds.iter().enumerate().any(|(i, (one, is_several))| {
            let others = kinds[i + 1..].iter().map(|(other, _)| *other).chain(is_several.then_some(*one));
            others.into_iter().any(|other| are_apart(one.0, other.0) && are_apart(one.1, other.1))
        })
    })
}
