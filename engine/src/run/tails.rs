//! Explains the messages that took longest: which part of their way took the time, and why.
//!
//! Workers judge their own outliers (`exec::outlier`): parts of latencies that took long, each with
//! its cause, and messages that took long on the whole. Here a message is explained by the part
//! that overlaps most with the time it was on its way, among the nodes of its path.

use crate::exec::mailbox::Subject;
use crate::exec::outlier::{Judged, KEPT, OutlierQueue, PARTS, PENDING, QUEUE, TailCause};
use crate::host::cpu_throttle::CpuThrottle;
use crate::ledger::{Recorded, Term};
use crate::report::{TailCauseReport, TailReport};
use crate::run::longest::{LongPart, LongestParts};
use crate::run::neighbours::Neighbours;
use crate::run::throttling::Throttling;
use arrayvec::ArrayVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// A message is explained when it is this old, ns: by then the workers have told of their parts.
const SETTLED_NS: u64 = 1_000_000_000;
/// From this many messages, those beyond the 99.9th percentile are explained; before, the slowest
/// ten.
const MANY: u64 = 10_000;
/// How often a wait is traced back to another.
const DEPTH: usize = 4;
/// The fewest messages of a path whose slowest are explained.
const FEW: u64 = 20;

/// A message that took long, and why.
#[derive(Clone, Copy, Debug)]
struct Explained {
    /// The index of the path.
    path: usize,
    value: u64,
    /// How much longer than usual.
    excess: u64,
    cause: TailCause,
    node: Option<usize>,
    behind: Option<usize>,
}

/// The outliers of a run.
pub(crate) struct Tails {
    pub(super) graph: Neighbours,
    /// The index of each path, and how many of its messages are kept.
    paths: HashMap<(usize, usize), usize>,
    kept_of: Vec<usize>,
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
            kept_of: vec![0; paths.len()],
            paths: paths.into_iter().enumerate().map(|(index, path)| (path, index)).collect(),
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
        if let Subject::Path(from, to) = judged.subject
            && let Some(index) = self.paths.get(&(from, to)).copied()
        {
            let explained = self.explain(judged, (from, to), index);
            self.keep(explained);
        }
    }

    fn explain(&mut self, message: &Judged, path: (usize, usize), index: usize) -> Explained {
        let Tails { graph, parts, clock_set, slowdowns, .. } = self;
        graph.find_between(path.0, path.1);
        let on_path = parts.iter().filter(|part| graph.is_between(node_of(part)));
        let longest = on_path.map(|part| (overlap(part, message), part)).max_by_key(|(overlap, _)| *overlap);
        let excess = message.value - message.usual.min(message.value);
        let (value, cause) = (message.value, TailCause::Unexplained);
        let mut explained = Explained { path: index, value, excess, cause, node: None, behind: None };
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
            // Among the messages, not the paths: there may be many more of these.
            let most = self.kept.iter().map(|kept| kept.path).max_by_key(|path| self.kept_of[*path]);
            let of_most = self.kept.iter().enumerate().filter(|(_, kept)| Some(kept.path) == most);
            let fastest = of_most.min_by_key(|(_, kept)| kept.value).map(|(at, _)| at);
            let lost = self.kept.swap_remove(fastest.unwrap_or(0));
            self.kept_of[lost.path] -= 1;
        }
        self.kept_of[explained.path] += 1;
        self.kept.push(explained);
    }

    /// Makes the report from the histograms of the run.
    pub(crate) fn reports(
        &mut self,
        recorded: &[(Subject, Term, Recorded)],
        name: &impl Fn(usize) -> String,
    ) -> Vec<TailReport> {
        let latencies = recorded.iter().filter_map(|(subject, term, latency)| match subject {
            Subject::Path(from, to) if *term == Term::EndToEnd => Some(((*from, *to), latency)),
            _ => None,
        });
        let enough = latencies.filter(|(_, latency)| latency.samples >= FEW);
        let batches = recorded.iter().filter_map(|(subject, term, sizes)| match subject {
            Subject::Node(node) if *term == Term::Batch && sizes.histogram.max() > 1 => Some(*node),
            _ => None,
        });
        let has_batches: HashSet<usize> = batches.collect();
        let usual = recorded.iter().filter_map(|(subject, term, part)| match subject {
            Subject::Node(node) => Some((*node, *term, part.histogram.quantile(0.5).unwrap_or(0))),
            Subject::Path(..) => None,
        });
        let longest = LongestParts::new(&self.graph, usual, |node| has_batches.contains(&node));
        let report = |(path, latency): ((usize, usize), _)| {
            let longest = longest.on_path(&mut self.graph, path);
            self.report(path, latency, longest, name)
        };
        enough.map(report).collect()
    }

    /// `longest` is the part that takes most of a usual message's time. It explains a message whose
    /// parts are not unusual, if it takes at least half of its time: all messages are late then.
    fn report(
        &self,
        path: (usize, usize),
        Recorded { histogram, samples }: &Recorded,
        longest: Option<LongPart>,
        name: &impl Fn(usize) -> String,
    ) -> TailReport {
        let quantile = if *samples < MANY { 1.0 - 10.0 / *samples as f64 } else { 0.999 };
        let limit = histogram.quantile(quantile).unwrap_or(0);
        let beyond = histogram.iter().filter(|(value, _)| *value > limit).map(|(_, count)| count).sum();
        let index = self.paths.get(&path).copied();
        let mut causes: BTreeMap<_, TailCauseReport> = BTreeMap::new();
        let mut judged = 0;
        for kept in self.kept.iter().filter(|kept| Some(kept.path) == index && kept.value > limit) {
            judged += 1;
            let usual = longest.filter(|part| kept.node.is_none() && part.ns >= kept.value / 2);
            let (cause, node) = usual.map_or((kept.cause, kept.node), |part| (part.cause, Some(part.node)));
            let report = causes.entry((cause, node, kept.behind)).or_insert_with(|| TailCauseReport {
                cause,
                node: node.map(name),
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
        TailReport { from, to, quantile, beyond, limit: Duration::from_nanos(limit), judged, causes }
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

/// How long two measured times overlap.
fn overlap(a: &Judged, b: &Judged) -> u64 {
    let from = a.end.saturating_sub(a.value).max(b.end.saturating_sub(b.value));
    a.end.min(b.end).saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Counts;

    const MS: u64 = 1_000_000;

    fn recorded(value: u64) -> Recorded {
        let mut histogram = Counts::new(3);
        histogram.record(value, 99);
        Recorded { histogram, samples: 100 }
    }

    /// A part of node `node` that took the time from `from` to `to`, ms.
    fn part(node: usize, term: Term, cause: TailCause, from: u64, to: u64) -> Judged {
        let (value, end) = ((to - from) * MS, to * MS);
        Judged { subject: Subject::Node(node), term, value, end, usual: MS, cause, behind: None, cpu: 0 }
    }

    /// The cause, node and `behind` of a message that took the time from 100 to 130 ms on its way
    /// through nodes 0, 1 and 3 of a graph in which 3 joins the messages of 1 and 2, and 4 is
    /// elsewhere.
    fn explained(
        usual_ms: u64,
        parts: &[Judged],
        others: Vec<(Subject, Term, Recorded)>,
        edit: impl FnOnce(&mut Tails),
    ) -> (TailCause, Option<String>, Option<String>) {
        let (edges, path) = ([(0, 1), (1, 3), (2, 3)], (0, 3));
        let mut tails = Tails::new(5, &edges, vec![path], Throttling::default());
        edit(&mut tails);
        let queue = OutlierQueue::new();
        let subject = Subject::Path(path.0, path.1);
        let message =
            Judged { subject, usual: usual_ms * MS, ..part(3, Term::EndToEnd, TailCause::Unexplained, 100, 130) };
        parts.iter().chain([&message]).for_each(|judged| queue.push(*judged));
        tails.take(&queue);
        tails.explain_all();
        let mut all = recorded(usual_ms * MS);
        all.histogram.record(30 * MS, 1);
        let mut histograms = others;
        histograms.push((subject, Term::EndToEnd, all));
        let reports = tails.reports(&histograms, &|node| node.to_string());
        let [TailReport { causes, judged: 1, .. }] = &reports[..] else { panic!("{reports:?}") };
        let [TailCauseReport { cause, node, behind, messages: 1, .. }] = &causes[..] else { panic!("{causes:?}") };
        (*cause, node.clone(), behind.clone())
    }

    #[test]
    fn a_message_is_explained_by_the_part_that_overlaps_most_with_it() {
        use TailCause::{Compute, NoRoom, Partner, Preempted, Queued, Source, Unexplained, WokenLate};
        let behind = |node, wait: Judged| Judged { behind: Some(node), ..wait };
        for (parts, cause, node, waits_behind) in [
            (vec![part(1, Term::Compute, Preempted, 105, 125)], Preempted, Some("1"), None),
            (
                vec![part(1, Term::Compute, Compute, 100, 110), part(3, Term::Queue, WokenLate, 110, 129)],
                WokenLate,
                Some("3"),
                None,
            ),
            // Another path, another time, and too short.
            (vec![part(4, Term::Compute, Compute, 100, 130)], Unexplained, None, None),
            (vec![part(2, Term::Compute, Compute, 100, 130)], Unexplained, None, None),
            (vec![part(1, Term::Compute, Compute, 60, 100)], Unexplained, None, None),
            (vec![part(1, Term::Compute, Compute, 100, 104)], Unexplained, None, None),
            // A wait is traced back to what kept the others busy.
            (vec![behind(4, part(3, Term::Queue, Queued, 102, 130))], Queued, Some("3"), Some("4")),
            (
                vec![behind(4, part(3, Term::Queue, Queued, 102, 130)), part(4, Term::Compute, Preempted, 101, 128)],
                Preempted,
                Some("4"),
                None,
            ),
            (
                vec![part(3, Term::Wait, Partner, 102, 130), part(2, Term::Compute, Compute, 101, 129)],
                Compute,
                Some("2"),
                None,
            ),
            (
                vec![part(1, Term::Blocked, NoRoom, 102, 130), part(3, Term::Compute, Compute, 104, 129)],
                Compute,
                Some("3"),
                None,
            ),
            (vec![part(0, Term::Source, Source, 100, 129)], Source, Some("0"), None),
        ] {
            let found = explained(1, &parts, Vec::new(), |_| {});
            assert_eq!(found, (cause, node.map(Into::into), waits_behind.map(Into::into)), "{parts:?}");
        }
    }

    #[test]
    fn what_stopped_the_cpus_or_set_the_clock_meanwhile_is_the_cause() {
        use TailCause::{ClockStep, Compute, Preempted, Quota, SlowCpu, Source, WokenLate};
        let slowed = |cause, ms: u64| {
            move |tails: &mut Tails| {
                note(&mut tails.slowdowns, Slowdown { cause, cpu: None, from: 0, to: 200 * MS, ns: ms * MS });
            }
        };
        for (cause, by, ms, expected) in [
            (Preempted, Quota, 15, Quota),
            (WokenLate, Quota, 15, Quota),
            (Preempted, Quota, 5, Preempted),
            (Compute, Quota, 15, Compute),
            (Compute, SlowCpu, 15, SlowCpu),
        ] {
            let found = explained(1, &[part(1, Term::Compute, cause, 105, 125)], Vec::new(), slowed(by, ms));
            assert_eq!(found, (expected, Some("1".into()), None), "{cause:?} {by:?} {ms}");
        }
        for (at, expected) in [(110, ClockStep), (50, Source)] {
            let set = |tails: &mut Tails| tails.clock_was_set(at * MS);
            let found = explained(1, &[part(0, Term::Source, Source, 100, 129)], Vec::new(), set);
            assert_eq!(found.0, expected);
        }
    }

    /// Nothing stands out if all messages are late; what they spend their time on is known anyway.
    #[test]
    fn a_path_on_which_all_messages_are_late_names_what_takes_their_time() {
        use TailCause::{Batch, Compute, DeviceBusy, NoRoom, Partner, Queued, Source, Unexplained};
        let batch = |size: u64| (Subject::Node(1), Term::Batch, recorded(size));
        for (node, term, ms, size, expected) in [
            (1, Term::Compute, 25, 1, Some(Compute)),
            (1, Term::Queue, 25, 1, Some(Queued)),
            (1, Term::Blocked, 25, 1, Some(NoRoom)),
            (1, Term::Wait, 25, 4, Some(Batch)),
            (1, Term::Wait, 25, 1, Some(DeviceBusy)),
            (3, Term::Wait, 25, 1, Some(Partner)),
            (0, Term::Source, 25, 1, Some(Source)),
            (1, Term::Compute, 14, 1, None),
            (2, Term::Compute, 25, 1, None),
        ] {
            let others = vec![(Subject::Node(node), term, recorded(ms * MS)), batch(size)];
            let found = explained(28, &[], others, |_| {});
            let expected = expected.map_or((Unexplained, None), |cause| (cause, Some(node.to_string())));
            assert_eq!((found.0, found.1), expected, "{node} {term:?} {ms}");
        }
    }
}
