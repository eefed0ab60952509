//! Paths with deadlines: whether the graph can meet them at all, and the rules they set at each
//! node.

use super::effort::Effort;
use super::planner::Planner;
use super::{EdgePlan, NodePlan, PathPlan};
use crate::base::error::suggest;
use crate::base::policy::{Criticality, JoinPolicy, OnMiss, WhenFull};
use crate::base::unit::Span;
use crate::exec::stage::Rules;
use crate::file::spec::Doubt;
use crate::plan::kind::Role;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

impl Planner<'_> {
    pub(super) fn paths(&mut self, nodes: &[NodePlan], edges: &[EdgePlan], whole: &[bool]) -> Vec<PathPlan> {
        let spec = self.spec;
        let named: HashMap<&str, usize> = nodes.iter().enumerate().rev().map(|(at, n)| (n.name.as_str(), at)).collect();
        let mut paths = Vec::new();
        for path in &spec.paths {
            for name in [&path.from, &path.to] {
                if !named.contains_key(name.as_str()) && !name.is_empty() && spec.doubt < Doubt::Nodes {
                    let help = suggest(name, spec.nodes.iter().map(|n| n.name.as_str()));
                    self.problem("E0120", &path.place, format!("unknown node `{name}`"), help);
                }
            }
            let ends = [&path.from, &path.to].map(|name| named.get(name.as_str()).copied());
            // What a node is, is known once it is planned; what reaches it, once everything
            // upstream is.
            let is_other =
                |end: Option<usize>, role| end.is_some_and(|at| nodes[at].planned.is_some() && nodes[at].role != role);
            let is_apart = ends[0].zip(ends[1]).is_some_and(|(from, to)| {
                whole[to] && nodes[to].reached_by.binary_search(&usize::from(nodes[from].stage.source)).is_err()
            });
            if is_other(ends[0], Role::Source) || is_other(ends[1], Role::Sink) || is_apart {
                let message =
                    format!("expected a path from a source to a sink, found `{}` to `{}`", path.from, path.to);
                self.problem(
                    "E0137",
                    &path.place,
                    message,
                    "write a source at `from`, and a sink downstream of the source at `to`",
                );
            }
            let indices = ends[0].zip(ends[1]);
            let ends = indices.map(|(from, to)| (&nodes[from], &nodes[to]));
            let untracked = ends.and_then(|(from, to)| to.untracked.get(&from.stage.source));
            let route = match indices {
                Some((from, to)) if path.criticality == Criticality::Critical => self.route(from, to, nodes, edges),
                _ => Vec::new(),
            };
            paths.push(PathPlan {
                from: path.from.clone(),
                to: path.to.clone(),
                deadline: path.deadline.map(crate::base::unit::Span::as_nanos),
                on_miss: path.on_miss,
                untracked_behind: untracked.map(|at| nodes[*at].name.clone()),
                criticality: path.criticality,
                route,
            });
        }
        paths
    }

    /// Returns the nodes through which messages may pass from a source to a sink.
    fn route(&self, from: usize, to: usize, nodes: &[NodePlan], edges: &[EdgePlan]) -> Vec<usize> {
        let (mut reach, mut todo) = (BTreeSet::from([to]), vec![to]);
        while let Some(at) = todo.pop().filter(|_| self.effort.allows(1)) {
            todo.extend(nodes[at].in_edges.iter().map(|edge| edges[*edge].from).filter(|from| reach.insert(*from)));
        }
        behind(from, nodes, edges).into_iter().filter(|at| reach.contains(at)).collect()
    }

    /// Refuses critical paths that cannot be judged or that the graph may give up. Notes edges that
    /// may lose their messages.
    pub(super) fn check_criticality(
        &mut self,
        paths: &[PathPlan],
        nodes: &[NodePlan],
        edges: &[EdgePlan],
        notes: &mut Vec<String>,
    ) {
        let spec = self.spec;
        let critical = std::iter::zip(paths, &spec.paths).filter(|(path, _)| path.criticality == Criticality::Critical);
        for (path, written) in critical {
            let name = format!("the critical path `{}` to `{}`", path.from, path.to);
            if let Some(node) = &path.untracked_behind {
                let message = format!(
                    "{name} cannot be judged: messages from `{node}` do not carry the origin of `{}`",
                    path.from
                );
                self.problem("E0170", &written.place, message, "write `criticality: normal` at the path");
            }
            for node in path.route.iter().map(|at| &nodes[*at]) {
                if node.criticality() == Criticality::BestEffort {
                    let message = format!("{name} passes through `{}`, which is `best_effort`", node.name);
                    let help = format!("remove `criticality` at `{}` or at the path", node.name);
                    self.problem("E0170", &written.place, message, help);
                }
            }
            let is_on_route = |edge: &&EdgePlan| path.route.contains(&edge.from) && path.route.contains(&edge.to);
            let is_lossy =
                |edge: &&EdgePlan| matches!(edge.policy.when_full, WhenFull::DropNewest | WhenFull::DropOldest);
            let lossy: Vec<String> =
                edges.iter().filter(is_on_route).filter(is_lossy).map(|edge| format!("`{}`", edge.to_name)).collect();
            if let Some(first) = lossy.first() {
                let more = match lossy.len() {
                    1 => String::new(),
                    n => format!(" and {} more", n - 1),
                };
                notes.push(format!(
                    "{name} loses messages when the edge to {first}{more} is full, and a lost message misses no deadline;                      write `when_full: latest` if only the newest message counts"
                ));
            }
        }
    }

    /// Refuses deadlines that declared waits and call times exceed for every message. Notes
    /// deadlines that budgets or measured call times exceed. Injected delays do not count.
    pub(super) fn check_waits(
        &mut self,
        nodes: &[NodePlan],
        edges: &[EdgePlan],
        whole: &[bool],
        notes: &mut Vec<String>,
    ) {
        let (spec, show) = (self.spec, crate::base::unit::show_ns);
        let named: HashMap<&str, usize> = nodes.iter().enumerate().rev().map(|(at, n)| (n.name.as_str(), at)).collect();
        let find = |name: &str| named.get(name).copied();
        let mut by_source: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, path) in spec.paths.iter().enumerate().filter(|(_, path)| path.deadline.is_some()) {
            if let (Some(from), Some(to)) = (find(&path.from), find(&path.to).filter(|to| whole[*to])) {
                by_source.entry(from).or_default().push((at, to));
            }
        }
        let takes = |node: &NodePlan| node.planned.as_ref().map_or(0, |p| p.ports().takes);
        let measured = |node: &NodePlan| node.planned.as_ref().map_or(0, |p| p.ports().measured);
        let may_take = |node: &NodePlan| takes(node).max(measured(node)).max(node.policy().budget_ns().unwrap_or(0));
        let mut found = Vec::new();
        let (mut least, mut most) = (vec![None; nodes.len()], vec![None; nodes.len()]);
        for (from, paths) in by_source {
            let behind = behind(from, nodes, edges);
            if !self.effort.allows(behind.len()) {
                return;
            }
            earliest(from, &behind, nodes, edges, &takes, &mut least);
            earliest(from, &behind, nodes, edges, &may_take, &mut most);
            for (at, to) in paths {
                let path = &spec.paths[at];
                let deadline = path.deadline.map_or(0, crate::base::unit::Span::as_nanos);
                if let Some((least, slowest, _)) = least[to].filter(|(least, _, _)| *least > deadline) {
                    let node = &nodes[slowest];
                    let (why, less) = match takes(node) {
                        0 => ("waits".to_string(), format!("shorten the wait of `{}`", node.name)),
                        time => (
                            format!("takes {} per call", show(time)),
                            format!("replace `{}` by a faster node", node.name),
                        ),
                    };
                    let message = format!(
                        "`deadline` must be at least {}, got {}: `{}` {why} on the path from `{}` to `{}`",
                        show(least),
                        show(deadline),
                        node.name,
                        path.from,
                        path.to
                    );
                    let help = format!("write a longer `deadline`, or {less}");
                    self.problem("E0145", &path.deadline_place, message, help);
                    continue;
                }
                if let Some((most, slowest, _)) = most[to].filter(|(most, _, _)| *most > deadline) {
                    let node = &nodes[slowest];
                    let time = may_take(node);
                    let why = match () {
                        () if node.policy().budget_ns() == Some(time) => {
                            format!("may take {} per call (`budget`)", show(time))
                        }
                        () if time > takes(node) => format!("took {} per call when measured", show(time)),
                        () if time > 0 => format!("takes {} per call", show(time)),
                        () => "waits".into(),
                    };
                    let note = format!(
                        "the path from `{}` to `{}` may take {}, more than its deadline of {}: `{}` {why}",
                        path.from,
                        path.to,
                        show(most),
                        show(deadline),
                        node.name
                    );
                    found.push((at, note));
                }
            }
            behind.iter().for_each(|at| (least[*at], most[*at]) = (None, None));
        }
        found.sort_by_key(|(at, _)| *at);
        notes.extend(found.into_iter().map(|(_, note)| note));
    }
}

/// Returns a node and all nodes that its messages reach, in the order of the plan.
fn behind(from: usize, nodes: &[NodePlan], edges: &[EdgePlan]) -> Vec<usize> {
    let (mut seen, mut todo) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = todo.pop() {
        let next = nodes[at].outputs.iter().flat_map(|out| &out.edges).map(|edge| edges[*edge].to);
        todo.extend(next.filter(|to| seen.insert(*to)));
    }
    seen.into_iter().collect()
}

/// When a message leaves a node, which node delayed it the most on its way, and for how long.
type Leaves = Option<(u64, usize, u64)>;

/// Computes for every node behind a source when a message leaves it at the earliest, given the time
/// calls take.
fn earliest(
    from: usize,
    behind: &[usize],
    nodes: &[NodePlan],
    edges: &[EdgePlan],
    takes: &dyn Fn(&NodePlan) -> u64,
    earliest: &mut [Leaves],
) {
    for at in behind.iter().copied() {
        let node = &nodes[at];
        // Edges that close a cycle cannot bring the earliest message.
        let arrivals = node.in_edges.iter().filter(|e| edges[**e].from < at).filter_map(|e| earliest[edges[*e].from]);
        let takes_any = node.merges() || node.stage.rule.policy == JoinPolicy::Sample;
        let arrives = match at {
            _ if at == from => Some((0, at, 0)),
            _ if takes_any => arrivals.min(),
            _ => arrivals.max(),
        };
        earliest[at] = arrives.map(|(arrives, slowest, longest)| {
            let waits = node.planned.as_ref().map_or(0, |p| p.ports().waits).max(node.stage.rule.wait);
            let leaves = arrives.max(waits).saturating_add(takes(node));
            let here = leaves - arrives;
            if here > longest { (leaves, at, here) } else { (leaves, slowest, longest) }
        });
    }
}

/// The deadlines of one source's paths at a node, combined over all sinks reachable from there.
#[derive(Clone, Copy)]
struct DeadlinesAhead {
    /// The earliest deadline.
    soonest: u64,
    /// If every sink has a path that drops: the latest deadline, and what happens to messages that
    /// miss it.
    drops: Option<(u64, OnMiss)>,
}

impl DeadlinesAhead {
    fn of(deadline: u64, on_miss: OnMiss) -> Self {
        let drops = matches!(on_miss, OnMiss::Drop | OnMiss::SkipToLatest);
        DeadlinesAhead { soonest: deadline, drops: drops.then_some((deadline, on_miss)) }
    }

    /// A message is dropped only if it is too late for every sink, and skipped only if every sink
    /// skips.
    fn and(self, other: DeadlinesAhead) -> DeadlinesAhead {
        let drops = self.drops.zip(other.drops).map(|((one, what), (another, also))| {
            let skips = what == OnMiss::SkipToLatest && also == OnMiss::SkipToLatest;
            (one.max(another), if skips { OnMiss::SkipToLatest } else { OnMiss::Drop })
        });
        DeadlinesAhead { soonest: self.soonest.min(other.soonest), drops }
    }
}

/// Sets the rules at each node under which late messages are dropped, so that no call is spent on a
/// message too late for every sink.
pub(super) fn rules(nodes: &mut [NodePlan], edges: &[EdgePlan], paths: &[PathPlan], effort: &Effort) {
    let ahead = ahead(nodes, edges, paths, effort);
    for at in 0..nodes.len() {
        let mut found = Rules::default();
        let awaits = nodes[at].role == Role::Infer
            || nodes[at].in_edges.iter().any(|edge| !nodes[edges[*edge].from].stage.rules.soonest.is_empty());
        for (source, ahead, judged) in ahead.of(at) {
            // A table by source spans the range from its first source to its last.
            if !effort.allows(8 + nodes[at].stage.urgency.distance(source)) {
                return;
            }
            nodes[at].stage.urgency.set(source, ahead.soonest);
            if let Some(drops) = ahead.drops {
                found.deadlines.set(source, drops);
            }
            // The earliest deadline matters only where messages wait for others.
            if awaits {
                found.soonest.set(source, ahead.soonest);
            }
            if let Some(index) = judged.filter(|index| paths[*index].untracked_behind.is_none()) {
                let deadline = paths[index].deadline.unwrap_or(u64::MAX);
                found.paths.set(source, (deadline, paths[index].on_miss, index));
            }
        }
        found.max_age = nodes[at].in_edges.iter().map(|e| edges[*e].policy.max_age.map(Span::as_nanos)).collect();
        if !nodes[at].in_edges.is_empty() && !found.is_empty() {
            nodes[at].stage.rules = found;
        }
    }
}

/// The deadlines ahead of each node, by source; the nodes of a cycle share them.
#[derive(Default)]
struct AheadByNode {
    /// By node: its strongly connected component.
    part: Vec<usize>,
    /// By component, for each source.
    ahead: Vec<BTreeMap<u16, SourceDeadlines>>,
}

/// The deadlines ahead for messages of one source.
struct SourceDeadlines {
    ahead: DeadlinesAhead,
    /// How many of the next components lead to a deadline; 0 at a sink.
    ways: usize,
    /// At a sink: the path.
    path: Option<usize>,
}

impl AheadByNode {
    fn of(&self, at: usize) -> impl Iterator<Item = (u16, DeadlinesAhead, Option<usize>)> {
        let ahead = self.part.get(at).map(|part| &self.ahead[*part]);
        ahead.into_iter().flatten().map(|(source, found)| (*source, found.ahead, found.path))
    }
}

fn ahead(nodes: &[NodePlan], edges: &[EdgePlan], paths: &[PathPlan], effort: &Effort) -> AheadByNode {
    let mut ahead_by_node = AheadByNode::default();
    if paths.iter().all(|path| path.deadline.is_none()) {
        return ahead_by_node;
    }
    let named: HashMap<&str, usize> = nodes.iter().enumerate().rev().map(|(at, n)| (n.name.as_str(), at)).collect();
    // By sink: its paths, by source; the first of several counts.
    let mut ends: HashMap<usize, HashMap<u16, usize>> = HashMap::new();
    for (index, path) in paths.iter().enumerate().filter(|(_, path)| path.deadline.is_some()) {
        let (Some(from), Some(to)) = (named.get(&*path.from), named.get(&*path.to)) else { continue };
        if nodes[*from].role == Role::Source && nodes[*to].outputs.is_empty() {
            ends.entry(*to).or_default().entry(nodes[*from].stage.source).or_insert(index);
        }
    }
    let mut graph = DiGraph::<(), ()>::new();
    let at: Vec<NodeIndex> = nodes.iter().map(|_| graph.add_node(())).collect();
    for edge in nodes.iter().flat_map(|node| &node.outputs).flat_map(|out| &out.edges).map(|edge| &edges[*edge]) {
        graph.add_edge(at[edge.from], at[edge.to], ());
    }
    ahead_by_node.part = vec![0; nodes.len()];
    // Whether a component leads to any sink.
    let mut leads: Vec<bool> = Vec::new();
    // `kosaraju_scc` returns each component after those it leads to.
    for (part, members) in petgraph::algo::kosaraju_scc(&graph).into_iter().enumerate() {
        members.iter().for_each(|member| ahead_by_node.part[member.index()] = part);
        let sink = members.iter().map(|member| member.index()).find(|at| nodes[*at].outputs.is_empty());
        let reaches = |source: &u16| nodes[members[0].index()].reached_by.binary_search(&usize::from(*source)).is_ok();
        let mut all: BTreeMap<u16, SourceDeadlines> = BTreeMap::new();
        if let Some(sink) = sink {
            for (source, index) in ends.get(&sink).into_iter().flatten().filter(|(source, _)| reaches(source)) {
                let ahead = DeadlinesAhead::of(paths[*index].deadline.unwrap_or(u64::MAX), paths[*index].on_miss);
                all.insert(*source, SourceDeadlines { ahead, ways: 0, path: Some(*index) });
            }
            ahead_by_node.ahead.push(all);
            leads.push(true);
            continue;
        }
        let next = members.iter().flat_map(|member| nodes[member.index()].outputs.iter().flat_map(|out| &out.edges));
        let next: HashSet<usize> =
            next.map(|edge| ahead_by_node.part[edges[*edge].to]).filter(|next| *next != part && leads[*next]).collect();
        let behind = next.iter().flat_map(|next| &ahead_by_node.ahead[*next]);
        for (source, SourceDeadlines { ahead, .. }) in behind.filter(|(source, _)| reaches(source)) {
            let known = all.entry(*source).or_insert(SourceDeadlines { ahead: *ahead, ways: 0, path: None });
            (known.ahead, known.ways) = (known.ahead.and(*ahead), known.ways + 1);
        }
        // A sink without a dropping path accepts late messages.
        all.values_mut().filter(|found| found.ways != next.len()).for_each(|found| found.ahead.drops = None);
        if !effort.allows(all.len() * next.len().max(1) + 1) {
            all.clear();
        }
        ahead_by_node.ahead.push(all);
        leads.push(!next.is_empty());
    }
    ahead_by_node
}
