//! Explains the messages that took longest: which part of their way took the time, and why.
//!
//! Workers judge their own outliers (`exec::outlier`): parts of latencies that took long, each with its cause, and messages that took
//! long on the whole. Here a message is explained by the part that overlaps most with the time it was on its way, among the nodes of its
//! path.

use crate::exec::mailbox::Subject;
use crate::exec::outlier::{Judged, KEPT, OutlierQueue, PARTS, PENDING, QUEUE, TailCause};
use crate::host::cpu_throttle::CpuThrottle;
use crate::ledger::{Recorded, Term};
use crate::report::{TailCauseReport, TailReport};
use crate::run::throttling::Throttling;
use arrayvec::ArrayVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A message is explained when it is this old, ns: by then the workers have told of their parts.
const SETTLED_NS: u64 = 1_000_000_000;
/// From this many messages, those beyond the 99.9th percentile are explained; before, the slowest ten.
const MANY: u64 = 10_000;
/// How often a wait is traced back to another.
const DEPTH: usize = 4;
/// The fewest messages of a path whose slowest are explained.
const FEW: u64 = 20;

/// A message that took long, and why.
#[derive(Clone, Copy, Debug)]
struct Explained {
    path: (usize, usize),
    value: u64,
    /// How much longer than usual.
    excess: u64,
    cause: TailCause,
    node: Option<usize>,
    behind: Option<usize>,
}

/// The outliers of a run.
pub(crate) struct Tails {
    graph: Neighbours,
    paths: Vec<(usize, usize)>,
    parts: VecDeque<Judged>,
    pending: VecDeque<Judged>,
    kept: Vec<Explained>,
    /// When the wall clock was set last, ns of the run's clock.
    clock_set: Option<u64>,
    pub(crate) throttling: Throttling,
    /// The latest times in which CPUs were slowed down.
    slowdowns: ArrayVec<Slowdown, SLOWDOWNS>,
}

/// Slowdowns remembered: what goes on is one.
const SLOWDOWNS: usize = 64;

/// A time in which a CPU was slowed down; all of them if `cpu` is `None`.
#[derive(Clone, Copy, Debug)]
struct Slowdown {
    cause: TailCause,
    cpu: Option<usize>,
    from: u64,
    to: u64,
    /// How long CPUs stood still.
    ns: u64,
}

impl Tails {
    /// `edges` are pairs of nodes, `paths` of sources and sinks.
    pub(crate) fn new(
        nodes: usize,
        edges: &[(usize, usize)],
        paths: Vec<(usize, usize)>,
        throttling: Throttling,
    ) -> Self {
        Tails {
            graph: Neighbours::new(nodes, edges),
            paths,
            parts: VecDeque::with_capacity(PARTS),
            pending: VecDeque::with_capacity(PENDING),
            kept: Vec::with_capacity(KEPT),
            clock_set: None,
            throttling,
            slowdowns: ArrayVec::new(),
        }
    }

    /// Notes that the wall clock was set.
    pub(crate) fn clock_was_set(&mut self, at: u64) {
        self.clock_set = Some(at);
    }

    /// Looks for what has throttled CPUs since the last look, and calls `report` with it.
    pub(crate) fn look_at_throttling(&mut self, now: u64, at_once: bool, report: impl FnMut(CpuThrottle)) {
        let Tails { throttling, slowdowns, .. } = self;
        let slowdowns = RefCell::new(slowdowns);
        let add = |slowdown| note(&mut slowdowns.borrow_mut(), slowdown);
        let slow = |from, cpu| add(Slowdown { cause: TailCause::SlowCpu, cpu, from, to: now, ns: u64::MAX });
        let find = |from, by| match by {
            CpuThrottle::Quota { stopped, .. } => {
                let ns = u64::try_from(stopped.as_nanos()).unwrap_or(u64::MAX);
                add(Slowdown { cause: TailCause::Quota, cpu: None, from, to: now, ns });
            }
            CpuThrottle::Heat { cpu, .. } => slow(from, cpu),
            // As long as it is lower, not only when it changes.
            CpuThrottle::Frequency { .. } => {}
        };
        throttling.look(now, at_once, find, |from, cpu| slow(from, Some(cpu)));
        throttling.report(now, report);
    }

    /// Takes what workers have judged so far.
    pub(crate) fn take(&mut self, queue: &OutlierQueue) {
        // Workers may go on as fast as this takes.
        for _ in 0..QUEUE {
            let Some(judged) = queue.pop() else { break };
            let (list, most) = match judged.subject {
                Subject::Node(_) => (&mut self.parts, PARTS),
                Subject::Path(..) => (&mut self.pending, PENDING),
            };
            if list.len() == most
                && let Some(oldest) = list.pop_front()
            {
                // Too many messages at once: this one has to do with the parts known by now.
                self.conclude(&oldest);
            }
            match judged.subject {
                Subject::Node(_) => self.parts.push_back(judged),
                Subject::Path(..) => self.pending.push_back(judged),
            }
        }
    }

    /// Explains the messages that are old enough for all workers to have told of their parts.
    pub(crate) fn explain_settled(&mut self, now: u64) {
        while let Some(oldest) = self.pending.pop_front_if(|oldest| now.saturating_sub(oldest.end) >= SETTLED_NS) {
            self.conclude(&oldest);
        }
    }

    /// Explains all messages, at the end of a run.
    pub(crate) fn explain_all(&mut self) {
        while let Some(oldest) = self.pending.pop_front() {
            self.conclude(&oldest);
        }
    }

    /// Explains and keeps a message; does nothing with a part of one.
    fn conclude(&mut self, judged: &Judged) {
        if let Subject::Path(from, to) = judged.subject {
            let explained = self.explain(judged, (from, to));
            self.keep(explained);
        }
    }

    fn explain(&mut self, message: &Judged, path: (usize, usize)) -> Explained {
        let Tails { graph, parts, clock_set, slowdowns, .. } = self;
        graph.find_between(path.0, path.1);
        let on_path = parts.iter().filter(|part| graph.is_between(node_of(part)));
        let longest = on_path.map(|part| (overlap(part, message), part)).max_by_key(|(overlap, _)| *overlap);
        let excess = message.value - message.usual.min(message.value);
        let mut explained =
            Explained { path, value: message.value, excess, cause: TailCause::Unexplained, node: None, behind: None };
        let Some((_, mut part)) = longest.filter(|(overlap, _)| *overlap > 0 && *overlap >= excess / 4) else {
            return explained;
        };
        // Of a wait: what others did meanwhile, if that was unusual.
        for _ in 0..DEPTH {
            match root(part, parts, graph) {
                Some(root) => part = root,
                None => break,
            }
        }
        let origin = part.end.saturating_sub(part.value);
        let half = part.value.saturating_sub(part.usual) / 2;
        let was_slowed = |by: TailCause| {
            let at_once = |slow: &&Slowdown| slow.cause == by && slow.from < part.end && origin < slow.to;
            let of_cpu = slowdowns.iter().filter(at_once).filter(|slow| slow.cpu.is_none_or(|cpu| cpu == part.cpu));
            of_cpu.fold(0_u64, |sum, slow| sum.saturating_add(slow.ns)) > half
        };
        explained.cause = match part.cause {
            TailCause::Source if clock_set.is_some_and(|set| origin <= set && set <= part.end) => TailCause::ClockStep,
            // What the kernel did not let run, it did not let run because of the quota.
            TailCause::Preempted | TailCause::WokenLate if was_slowed(TailCause::Quota) => TailCause::Quota,
            TailCause::Compute if was_slowed(TailCause::SlowCpu) => TailCause::SlowCpu,
            cause => cause,
        };
        (explained.node, explained.behind) = (Some(node_of(part)), part.behind);
        explained
    }

    /// Keeps a message; if there are too many, the path with most of them loses its fastest.
    fn keep(&mut self, explained: Explained) {
        if self.kept.len() == KEPT {
            let count = |path: (usize, usize)| self.kept.iter().filter(|kept| kept.path == path).count();
            let most = self.paths.iter().copied().max_by_key(|path| count(*path));
            let of_most = self.kept.iter().enumerate().filter(|(_, kept)| Some(kept.path) == most);
            let fastest = of_most.min_by_key(|(_, kept)| kept.value).map(|(at, _)| at);
            self.kept.swap_remove(fastest.unwrap_or(0));
        }
        self.kept.push(explained);
    }

    /// Makes the report. `latencies` are the end-to-end histograms by path.
    pub(crate) fn reports<'a>(
        &self,
        latencies: impl Iterator<Item = ((usize, usize), &'a Recorded)>,
        name: &impl Fn(usize) -> String,
    ) -> Vec<TailReport> {
        latencies.filter_map(|(path, recorded)| self.report(path, recorded, name)).collect()
    }

    fn report(
        &self,
        path: (usize, usize),
        Recorded { histogram, samples }: &Recorded,
        name: &impl Fn(usize) -> String,
    ) -> Option<TailReport> {
        if *samples < FEW {
            return None;
        }
        let quantile = if *samples < MANY { 1.0 - 10.0 / *samples as f64 } else { 0.999 };
        let limit = histogram.value_at_quantile(quantile);
        let beyond = histogram.len() - histogram.count_between(0, limit);
        let mut causes: BTreeMap<_, TailCauseReport> = BTreeMap::new();
        let mut judged = 0;
        for kept in self.kept.iter().filter(|kept| kept.path == path && kept.value > limit) {
            judged += 1;
            let report = causes.entry((kept.cause, kept.node, kept.behind)).or_insert_with(|| TailCauseReport {
                cause: kept.cause,
                node: kept.node.map(name),
                behind: kept.behind.map(name),
                messages: 0,
                excess: Duration::ZERO,
                longest: Duration::ZERO,
            });
            report.messages += 1;
            report.excess += Duration::from_nanos(kept.excess);
            report.longest = report.longest.max(Duration::from_nanos(kept.value));
        }
        let mut causes: Vec<_> = causes.into_values().collect();
        causes.sort_by_key(|cause| std::cmp::Reverse((cause.excess, cause.messages)));
        let (from, to) = (name(path.0), name(path.1));
        Some(TailReport { from, to, quantile, beyond, limit: Duration::from_nanos(limit), judged, causes })
    }
}

/// Notes a time in which CPUs were slowed down; of too many, the oldest is forgotten.
fn note(slowdowns: &mut ArrayVec<Slowdown, SLOWDOWNS>, slowdown: Slowdown) {
    let before = |of: &&mut Slowdown| (of.cause, of.cpu, of.to) == (slowdown.cause, slowdown.cpu, slowdown.from);
    if slowdown.cause == TailCause::SlowCpu
        && let Some(before) = slowdowns.iter_mut().find(before)
    {
        before.to = slowdown.to;
        return;
    }
    if slowdowns.is_full() {
        slowdowns.remove(0);
    }
    slowdowns.push(slowdown);
}

/// The node of a part of a latency.
fn node_of(part: &Judged) -> usize {
    match part.subject {
        Subject::Node(node) | Subject::Path(_, node) => node,
    }
}

/// What a wait was for, if an outlier of another node takes at least half of it.
fn root<'a>(wait: &Judged, parts: &'a VecDeque<Judged>, graph: &mut Neighbours) -> Option<&'a Judged> {
    let waiting = node_of(wait);
    match wait.cause {
        TailCause::NoRoom => graph.find_after(waiting),
        TailCause::Partner => graph.find_before(waiting),
        TailCause::Queued => {}
        _ => return None,
    }
    let is_root = |part: &Judged| match wait.cause {
        TailCause::Queued => part.term == Term::Compute && Some(node_of(part)) == wait.behind,
        _ => node_of(part) != waiting && graph.is_found(node_of(part)),
    };
    let found = parts.iter().filter(|part| is_root(part)).map(|part| (overlap(part, wait), part));
    let longest = found.max_by_key(|(overlap, _)| *overlap);
    longest.filter(|(overlap, _)| *overlap >= wait.value / 2).map(|(_, part)| part)
}

/// The neighbours of each node, and the nodes found last: a run allocates nothing.
struct Neighbours {
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    found: Vec<bool>,
    between: Vec<bool>,
    open: Vec<usize>,
}

impl Neighbours {
    fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let (mut after, mut before) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (from, to) in edges {
            after[*from].push(*to);
            before[*to].push(*from);
        }
        let (found, between) = (vec![false; nodes], vec![false; nodes]);
        Neighbours { after, before, found, between, open: Vec::with_capacity(edges.len() + 1) }
    }

    /// Finds the nodes that messages of a node can reach, itself included.
    fn find_after(&mut self, node: usize) {
        find(node, &self.after, &mut self.found, &mut self.open);
    }

    /// Finds the nodes whose messages can reach a node, itself included.
    fn find_before(&mut self, node: usize) {
        find(node, &self.before, &mut self.found, &mut self.open);
    }

    fn is_found(&self, node: usize) -> bool {
        self.found.get(node).copied().unwrap_or(false)
    }

    /// Finds the nodes on the ways from one node to another.
    fn find_between(&mut self, from: usize, to: usize) {
        self.find_after(from);
        self.between.copy_from_slice(&self.found);
        self.find_before(to);
        self.between.iter_mut().zip(&self.found).for_each(|(between, found)| *between &= found);
    }

    fn is_between(&self, node: usize) -> bool {
        self.between.get(node).copied().unwrap_or(false)
    }
}

fn find(start: usize, next: &[Vec<usize>], found: &mut [bool], open: &mut Vec<usize>) {
    found.fill(false);
    open.push(start);
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut found[node], true) {
            open.extend(&next[node]);
        }
    }
}

/// How long two measured times overlap.
fn overlap(a: &Judged, b: &Judged) -> u64 {
    let from = a.end.saturating_sub(a.value).max(b.end.saturating_sub(b.value));
    a.end.min(b.end).saturating_sub(from)
}
