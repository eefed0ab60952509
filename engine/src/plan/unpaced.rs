//! Sources that send as fast as the graph takes their messages. Downstream of them, planning
//! refuses joins by arrival and notes what waits by the clock.

use crate::base::policy::JoinPolicy;
use crate::file::spec::NodeSpec;
use crate::plan::check::sources_by_number;
use crate::plan::planner::Planner;
use crate::plan::{EdgePlan, NodePlan, PathPlan};
use std::collections::HashMap;

impl Planner<'_> {
    /// Refuses a join by arrival downstream of a source that does not wait for a clock: which of
    /// its messages is the newest when another input has one is up to the threads.
    pub(super) fn check_arrivals(
        &mut self,
        nodes: &[NodePlan],
        edges: &[EdgePlan],
        specs: &[&NodeSpec],
        whole: &[bool],
    ) {
        let samples = |node: &NodePlan| node.stage.rule.policy == JoinPolicy::Sample && node.in_edges.len() > 1;
        if !nodes.iter().any(samples) {
            return;
        }
        let numbered = sources_by_number(nodes);
        let hurries = hurries(nodes, edges);
        for (at, node) in nodes.iter().enumerate().filter(|(at, node)| whole[*at] && samples(node)) {
            let from = |edge: &usize| edges[*edge].from;
            let Some(through) = node.in_edges.iter().map(from).find(|from| hurries[*from]) else { continue };
            let sources = nodes[through].reached_by.iter().filter_map(|number| numbered.get(number));
            let Some((source, unpaced)) = sources.into_iter().find_map(|at| Some((&nodes[*at], unpaced(&nodes[*at])?)))
            else {
                continue;
            };
            let (source, node) = (&source.name, &node.name);
            let (why, help) = match unpaced {
                Unpaced::Ahead => (
                    "runs ahead of the clock",
                    format!("write `pace: original` at `{source}`, and run the graph with `--simulated`"),
                ),
                Unpaced::Until(paced) => ("has no rate", format!("write `{paced}` in the `config` of `{source}`")),
            };
            let message = format!(
                "`{node}` samples messages of `{source}`, which {why}: the sampled message depends on thread timing"
            );
            self.problem("E0167", &specs[at].place, message, help);
        }
    }
}

/// The most times that a note names.
const MAX_NAMED: usize = 4;

/// What waits by the clock downstream of a source.
#[derive(Default)]
struct ClockWaits {
    named: Vec<String>,
    more: usize,
}

impl ClockWaits {
    fn add(&mut self, what: impl FnOnce() -> String) {
        if self.named.len() < MAX_NAMED { self.named.push(what()) } else { self.more += 1 }
    }
}

/// Notes what waits by the clock downstream of a source whose messages have times of their own: no
/// recorded time passes for it.
pub(super) fn note_times(nodes: &[NodePlan], edges: &[EdgePlan], paths: &[PathPlan], notes: &mut Vec<String>) {
    let is_ahead = |node: &&NodePlan| node.planned.as_ref().is_some_and(|planned| planned.ports().ahead);
    let sources: Vec<&NodePlan> = nodes.iter().filter(is_ahead).collect();
    let mut waits: HashMap<usize, ClockWaits> =
        sources.iter().map(|source| (usize::from(source.stage.source), ClockWaits::default())).collect();
    if waits.is_empty() {
        return;
    }
    let mut add = |node: &NodePlan, key: &str, of: &str| {
        for number in &node.reached_by {
            if let Some(waits) = waits.get_mut(number) {
                waits.add(|| format!("`{key}` of `{of}`"));
            }
        }
    };
    for node in nodes {
        let has_wait = node.in_edges.len() > 1 && node.stage.rule.wait > 0;
        let keys = node.planned.iter().flat_map(|planned| &planned.ports().by_clock);
        has_wait.then_some("wait").into_iter().chain(keys.copied()).for_each(|key| add(node, key, &node.name));
    }
    for node in nodes {
        for EdgePlan { policy, to_name, .. } in node.in_edges.iter().map(|edge| &edges[*edge]) {
            let times = [("expect_every", policy.expect_every), ("max_age", policy.max_age)];
            times.into_iter().filter(|(_, time)| time.is_some()).for_each(|(key, _)| add(node, key, to_name));
        }
    }
    let numbers: HashMap<&str, usize> =
        sources.iter().map(|source| (&*source.name, usize::from(source.stage.source))).collect();
    for path in paths.iter().filter(|path| path.deadline.is_some()) {
        if let Some(waits) = numbers.get(&*path.from).and_then(|number| waits.get_mut(number)) {
            waits.add(|| format!("the deadline of `{}` to `{}`", path.from, path.to));
        }
    }
    for source in sources {
        let Some(ClockWaits { mut named, more }) = waits.remove(&usize::from(source.stage.source)) else { continue };
        if named.is_empty() {
            continue;
        }
        if more > 0 {
            named.push(format!("{more} more"));
        }
        notes.push(format!(
            "`{}` runs ahead of the clock, so these settings do not follow its recorded times: {}",
            source.name,
            named.join(", ")
        ));
    }
}

/// Why a source does not wait for a clock.
#[derive(Clone, Copy)]
enum Unpaced {
    /// Its messages have times of their own.
    Ahead,
    /// It has no rate; and what to write for it to have one.
    Until(&'static str),
}

/// Of a source that sends several messages as fast as the graph takes them. A single one is always
/// the newest.
fn unpaced(node: &NodePlan) -> Option<Unpaced> {
    let ports = node.planned.as_ref()?.ports();
    let unpaced = if ports.ahead { Some(Unpaced::Ahead) } else { ports.unpaced.map(Unpaced::Until) };
    unpaced.filter(|_| ports.inputs.is_empty() && ports.total.is_none_or(|total| total > 1))
}

/// By node: whether it sends as fast as its consumers take messages. A join is as slow as its
/// slowest input, and as the trigger where it samples; a merge is as fast as its fastest.
fn hurries(nodes: &[NodePlan], edges: &[EdgePlan]) -> Vec<bool> {
    let mut hurries = vec![true; nodes.len()];
    let mut todo: Vec<usize> = (0..nodes.len()).collect();
    while let Some(at) = todo.pop() {
        let node = &nodes[at];
        let inputs = || node.in_edges.iter().map(|edge| hurries[edges[*edge].from]);
        let rule = &node.stage.rule;
        let hurried = match rule.policy {
            _ if node.in_edges.is_empty() => unpaced(node).is_some(),
            JoinPolicy::Sample => rule.trigger.and_then(|at| inputs().nth(at)).unwrap_or_else(|| inputs().any(|is| is)),
            _ if node.merges() => inputs().any(|is| is),
            _ => inputs().all(|is| is),
        };
        if hurries[at] && !hurried {
            hurries[at] = false;
            todo.extend(node.outputs.iter().flat_map(|out| &out.edges).map(|edge| edges[*edge].to));
        }
    }
    hurries
}
