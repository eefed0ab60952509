//! Why a latency, or a part of one, was much longer than usual: judged by the worker that recorded
//! it, by what the kernel says of the worker's thread, and explained later (`run::tails`).

use crate::exec::mailbox::Subject;
use crate::host::usage::{ThreadUsage, UsageReader};
use crate::ledger::{Outlier, PathPart, Term};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;

/// Capacity of the queue.
pub(crate) const QUEUE: usize = 1024;
/// The most parts of latencies that the reader remembers, messages that wait for their explanation,
/// and messages kept for the report.
pub(crate) const PARTS: usize = 2048;
pub(crate) const PENDING: usize = 256;
pub(crate) const KEPT: usize = 1024;
/// The kernel is asked at once about a time this long, ns: switches take some µs.
pub(crate) const WORTH_ASKING_NS: u64 = 20_000;
/// Otherwise, the least time between two questions to the kernel, ns.
pub(crate) const ASK_EVERY: u64 = 1_000_000;
/// What a page takes that the kernel gives without a read, ns: as much in a virtual machine, less
/// on others.
const FAULT_NS: u64 = 4000;
/// What a move to another CPU may cost, ns: the caches that it leaves are filled anew.
const MOVE_NS: u64 = 1_000_000;
/// A pause is unusual if it is longer than this, ns, and than so many usual ones.
const LONG_PAUSE_NS: u64 = 1_000_000;
const LONG_PAUSE: u64 = 5;

/// Why a message took much longer than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum TailCause {
    /// It waited while its node's worker was busy with calls.
    Queued,
    /// It waited for its partners in a join.
    Partner,
    /// It waited for the other messages of a batch.
    Batch,
    /// It waited for room in an edge or a pool behind its node.
    NoRoom,
    /// Its node's worker slept, and the kernel woke it late.
    WokenLate,
    /// The kernel took the CPU away from a call.
    Preempted,
    /// A call waited in the kernel: for a disk, a device, a lock, or because it sleeps. Not said of
    /// a model's call, which waits for its own runtime.
    Blocked,
    /// A call touched memory that it was yet to be given.
    PageFault,
    /// The process, or a control group that it belongs to, had used up its CPU quota.
    Quota,
    /// The kernel moved the thread to another CPU.
    Migrated,
    /// A call took long while its CPU was slowed down by heat, or by a lower limit of its
    /// frequency.
    SlowCpu,
    /// A call was the first one, or the first after a pause that was unusually long: caches and
    /// devices were cold.
    Cold,
    /// A device had other calls to do first.
    DeviceBusy,
    /// A call took long, and nothing above explains it.
    Compute,
    /// Its node had failed and was to be restarted.
    Restarted,
    /// It was old already when its source sent it.
    Source,
    /// The wall clock was set, and the message's origin comes from it.
    ClockStep,
    /// Nothing that was noticed explains it.
    Unexplained,
}

impl TailCause {
    /// The word in machine-readable reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An outlier with its cause, nodes by index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) subject: Subject,
    pub(crate) term: Term,
    pub(crate) value: u64,
    /// The end of what was measured, ns of the run's clock.
    pub(crate) end: u64,
    /// The usual value; 0 while that is not known.
    pub(crate) usual: u64,
    /// Of a path, not yet known.
    pub(crate) cause: TailCause,
    /// The node whose calls a message waited for.
    pub(crate) behind: Option<usize>,
    /// The CPU on which the worker ran.
    pub(crate) cpu: usize,
}

/// The queue of outliers between the workers and the reader. If it is full, the oldest are lost.
pub(crate) struct OutlierQueue(ArrayQueue<Judged>);

/// Size in bytes of the queue and of what its reader remembers, for the plan's memory total.
pub(crate) fn bytes() -> usize {
    QUEUE * (size_of::<Judged>() + size_of::<usize>()) + (PARTS + PENDING + KEPT) * size_of::<Judged>()
}

impl OutlierQueue {
    pub(crate) fn new() -> Self {
        OutlierQueue(ArrayQueue::new(QUEUE))
    }

    pub(crate) fn push(&self, judged: Judged) {
        let _ = self.0.force_push(judged);
    }

    pub(crate) fn pop(&self) -> Option<Judged> {
        self.0.pop()
    }
}

/// Restarts that a worker remembers.
const OUTAGES: usize = 16;

/// What a worker knows of its thread and its nodes.
#[derive(Default)]
pub(crate) struct Judge {
    /// The latest times in which nodes had failed and were not yet restarted.
    outages: ArrayVec<Outage, OUTAGES>,
    /// Made by the worker's thread.
    reader: Option<UsageReader>,
    usage: Option<ThreadUsage>,
    asked_at: u64,
    /// How often it slept since.
    sleeps: u64,
}

/// A time in which a node had failed and was not yet restarted.
#[derive(Clone, Copy)]
struct Outage {
    node: usize,
    from: u64,
    to: u64,
}

/// What happened to the thread in a time.
pub(crate) struct ThreadActivity {
    used: ThreadUsage,
    has_moved: bool,
    wall_ns: u64,
    sleeps: u64,
}

impl Judge {
    /// Notes that the worker sleeps of its own accord.
    pub(crate) fn sleeps(&mut self) {
        self.sleeps += 1;
    }

    /// Notes that a node was missing from one time to another.
    pub(crate) fn note_outage(&mut self, node: usize, from: u64, to: u64) {
        if self.outages.is_full() {
            self.outages.remove(0);
        }
        self.outages.push(Outage { node, from, to });
    }

    /// Whether a node was missing for more than half of a time.
    pub(crate) fn was_missing(&self, node: usize, from: u64, to: u64) -> bool {
        let of_node = self.outages.iter().filter(|outage| outage.node == node);
        let missing: u64 = of_node.map(|outage| to.min(outage.to).saturating_sub(from.max(outage.from))).sum();
        missing > (to - from) / 2
    }

    /// The CPU on which the thread ran when the kernel was asked last.
    pub(crate) fn cpu(&self) -> usize {
        self.usage.map_or(0, |usage| usage.cpu)
    }

    /// Whether the kernel was not asked for some time.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.asked_at) >= ASK_EVERY
    }

    /// Asks the kernel what happened since the last call; `None` if it does not say, or on the
    /// first call.
    pub(crate) fn ask(&mut self, now: u64) -> Option<ThreadActivity> {
        let usage = self.reader.get_or_insert_with(UsageReader::new).read();
        let sleeps = std::mem::take(&mut self.sleeps);
        let wall_ns = now.saturating_sub(std::mem::replace(&mut self.asked_at, now));
        let then = std::mem::replace(&mut self.usage, usage)?;
        let used = usage?.since(&then);
        Some(ThreadActivity { used, has_moved: used.cpu != then.cpu, wall_ns, sleeps })
    }
}

/// How a model's calls are made, as far as it explains what took long.
#[derive(Clone, Copy)]
pub(crate) struct ModelCalls {
    pub(crate) node: usize,
    /// Whether they go on while the thread does something else.
    pub(crate) is_async: bool,
    /// Whether one may have several messages.
    pub(crate) has_batches: bool,
    /// Whether their inputs are joined.
    pub(crate) joins: bool,
}

impl ModelCalls {
    /// What messages wait for after they were taken: for others, or for calls in flight.
    fn wait(self) -> TailCause {
        if self.has_batches { TailCause::Batch } else { TailCause::DeviceBusy }
    }
}

/// Says why a part of a latency was long. `model` is that of the node, if it runs one. `passed`
/// covers the time that the part took.
pub(crate) fn cause_of(
    outlier: &Outlier,
    term: Term,
    model: Option<ModelCalls>,
    passed: Option<&ThreadActivity>,
) -> TailCause {
    let is_cold = outlier.pause.is_none_or(|(pause, mean)| pause > LONG_PAUSE_NS.max(mean * LONG_PAUSE));
    match (outlier.part, term) {
        (_, Term::Wait | Term::BatchWait) => {
            let wait = model.filter(|model| term == Term::BatchWait || !model.joins);
            return wait.map_or(TailCause::Partner, ModelCalls::wait);
        }
        // The kernel knows nothing of the device's time; with a call before it still on its way,
        // there was no pause.
        (PathPart::Call, _) if model.is_some_and(|model| model.is_async) => {
            return match outlier.pause {
                _ if is_cold => TailCause::Cold,
                Some((0, _)) => TailCause::DeviceBusy,
                _ => TailCause::Compute,
            };
        }
        (_, Term::Blocked) => return TailCause::NoRoom,
        // A source whose next message was due waits for its worker, too.
        (PathPart::Wait, Term::Queue | Term::Source) if outlier.behind.is_some() => return TailCause::Queued,
        _ => {}
    }
    let by_kernel = passed.and_then(|passed| passed.cause(outlier, term));
    // A model's call waits for its own runtime: for threads, or for a device.
    let by_kernel = by_kernel.filter(|cause| model.is_none() || *cause != TailCause::Blocked);
    match (by_kernel, term) {
        (Some(cause), _) => cause,
        // Nothing kept the worker busy, and the kernel did not take its CPU away: it was asleep.
        (None, Term::Queue) if passed.is_some_and(|passed| passed.sleeps > 0) => TailCause::WokenLate,
        (None, Term::Queue) => TailCause::Unexplained,
        (None, Term::Source) => TailCause::Source,
        (None, Term::Compute) if is_cold => TailCause::Cold,
        (None, _) => TailCause::Compute,
    }
}

impl ThreadActivity {
    /// Why something took long on this thread, if the kernel can say: what explains at least half
    /// of the time beyond the usual.
    fn cause(&self, outlier: &Outlier, term: Term) -> Option<TailCause> {
        let ThreadUsage { cpu_ns, waited_ns, voluntary, involuntary, minor_faults, major_faults, cpu: _ } = self.used;
        let ns = outlier.value;
        let half = (ns.saturating_sub(outlier.usual) / 2).max(1);
        if waited_ns >= half {
            return Some(if involuntary > 0 { TailCause::Preempted } else { TailCause::WokenLate });
        }
        // The rest is about a call of the node itself; in a wait, it would be about calls of
        // others. A source that sleeps may well do so until a device has something, which is old
        // then.
        if term == Term::Queue || (term == Term::Source && self.sleeps > 0) {
            return None;
        }
        let was_away = match self.sleeps {
            0 => self.wall_ns.saturating_sub(cpu_ns) >= half,
            // Its sleeps are part of the time, and what it did on a CPU is at most what it did
            // here.
            _ => cpu_ns < ns - half,
        };
        if was_away {
            // Its own sleeps are voluntary, too.
            let has_blocked = voluntary > self.sleeps || (voluntary > 0 && involuntary == 0 && self.sleeps == 0);
            return match (major_faults, involuntary) {
                (1.., _) => Some(TailCause::PageFault),
                _ if has_blocked => Some(TailCause::Blocked),
                (_, 1..) => Some(TailCause::Preempted),
                _ => None,
            };
        }
        if minor_faults.saturating_mul(FAULT_NS) >= half {
            return Some(TailCause::PageFault);
        }
        (self.has_moved && ns - outlier.usual.min(ns) <= MOVE_NS).then_some(TailCause::Migrated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Meter;

    const MS: u64 = 1_000_000;

    /// What the kernel says of a thread that had a CPU for so many ms of 20, waited for one for so
    /// many, and was switched off it so often.
    fn passed(cpu: u64, waited: u64, voluntary: u64, involuntary: u64) -> ThreadActivity {
        let (cpu_ns, waited_ns) = (cpu * MS, waited * MS);
        let used = ThreadUsage { cpu_ns, waited_ns, voluntary, involuntary, minor_faults: 0, major_faults: 0, cpu: 0 };
        ThreadActivity { used, has_moved: false, wall_ns: 20 * MS, sleeps: 0 }
    }

    fn model(is_async: bool, has_batches: bool, joins: bool) -> Option<ModelCalls> {
        Some(ModelCalls { node: 0, is_async, has_batches, joins })
    }

    /// Judges a part of 20 ms, of which 1 ms is usual, in a node that was called 1 ms before.
    #[track_caller]
    fn check(term: Term, model: Option<ModelCalls>, passed: Option<&ThreadActivity>, expected: TailCause) {
        let outlier = outlier(term, 20 * MS);
        assert_eq!(cause_of(&outlier, term, model, passed), expected);
    }

    fn outlier(term: Term, value: u64) -> Outlier {
        let part = PathPart::of(term);
        let hist = Meter::new(None).histogram(2, part);
        Outlier { hist, part, value, end: 100 * MS, usual: MS, behind: None, pause: Some((MS, MS)) }
    }

    #[test]
    fn calls_are_judged_by_what_the_kernel_says_of_their_thread() {
        use TailCause::{Blocked, Compute, PageFault, Preempted, WokenLate};
        let runtime = model(false, false, false);
        let faults = |mut passed: ThreadActivity, minor, major| {
            (passed.used.minor_faults, passed.used.major_faults) = (minor, major);
            passed
        };
        let after_sleeps = |passed: ThreadActivity, sleeps| ThreadActivity { sleeps, wall_ns: 50 * MS, ..passed };
        for (passed, of_node, of_model) in [
            (passed(20, 0, 0, 0), Compute, Compute),
            (faults(passed(20, 0, 0, 0), 8000, 0), PageFault, PageFault),
            (faults(passed(1, 0, 3, 0), 0, 3), PageFault, PageFault),
            // A call of a model waits for its own runtime.
            (passed(0, 0, 1, 0), Blocked, Compute),
            (after_sleeps(passed(0, 0, 3, 0), 2), Blocked, Compute),
            (after_sleeps(passed(20, 0, 2, 0), 2), Compute, Compute),
            (passed(5, 15, 0, 2), Preempted, Preempted),
            (passed(5, 15, 2, 0), WokenLate, WokenLate),
            // A kernel that counts no waits for a CPU.
            (passed(5, 0, 0, 2), Preempted, Preempted),
        ] {
            check(Term::Compute, None, Some(&passed), of_node);
            check(Term::Compute, runtime, Some(&passed), of_model);
        }
        check(Term::Compute, None, None, Compute);
    }

    #[test]
    fn a_move_explains_what_refilling_caches_may_take() {
        let moved = ThreadActivity { has_moved: true, ..passed(20, 0, 0, 0) };
        for (value, expected) in [(20 * MS, TailCause::Compute), (3 * MS / 2, TailCause::Migrated)] {
            assert_eq!(cause_of(&outlier(Term::Compute, value), Term::Compute, None, Some(&moved)), expected);
        }
    }

    #[test]
    fn a_call_after_a_long_pause_is_cold_unless_the_kernel_explains_it() {
        for (pause, expected) in [
            (None, TailCause::Cold),
            (Some((80 * MS, MS)), TailCause::Cold),
            (Some((4 * MS, MS)), TailCause::Compute),
            (Some((80 * MS, 30 * MS)), TailCause::Compute),
        ] {
            let outlier = Outlier { pause, ..outlier(Term::Compute, 20 * MS) };
            for model in [None, model(false, true, false)] {
                let judge = |passed: ThreadActivity| cause_of(&outlier, Term::Compute, model, Some(&passed));
                assert_eq!(judge(passed(20, 0, 0, 0)), expected, "{pause:?}");
                assert_eq!(judge(passed(5, 15, 0, 2)), TailCause::Preempted, "{pause:?}");
            }
        }
    }

    #[test]
    fn a_device_is_busy_if_another_call_was_on_its_way() {
        let blocked = passed(0, 0, 1, 0);
        for (pause, expected) in [
            (None, TailCause::Cold),
            (Some((0, MS)), TailCause::DeviceBusy),
            (Some((MS, MS)), TailCause::Compute),
            (Some((80 * MS, MS)), TailCause::Cold),
        ] {
            let outlier = Outlier { pause, ..outlier(Term::Compute, 20 * MS) };
            let cause = cause_of(&outlier, Term::Compute, model(true, false, false), Some(&blocked));
            assert_eq!(cause, expected, "{pause:?}");
        }
    }

    #[test]
    fn waits_are_judged_by_what_a_node_waits_for() {
        use TailCause::{Batch, DeviceBusy, NoRoom, Partner, Preempted, Queued, Source, Unexplained, WokenLate};
        let (idle, preempted, late) = (passed(20, 0, 0, 0), passed(5, 15, 0, 2), passed(5, 15, 2, 0));
        let asleep = ThreadActivity { sleeps: 1, ..passed(0, 0, 1, 0) };
        for (term, model, passed, expected) in [
            (Term::Wait, None, &preempted, Partner),
            (Term::Wait, model(false, true, false), &idle, Batch),
            (Term::Wait, model(true, false, false), &idle, DeviceBusy),
            (Term::Wait, model(true, true, true), &idle, Partner),
            (Term::BatchWait, model(true, true, true), &idle, Batch),
            (Term::BatchWait, model(true, false, true), &idle, DeviceBusy),
            (Term::Blocked, None, &preempted, NoRoom),
            (Term::Queue, None, &preempted, Preempted),
            (Term::Queue, None, &late, WokenLate),
            (Term::Queue, None, &asleep, WokenLate),
            (Term::Queue, None, &idle, Unexplained),
            (Term::Source, None, &idle, Source),
            (Term::Source, None, &asleep, Source),
            (Term::Source, None, &late, WokenLate),
        ] {
            check(term, model, Some(passed), expected);
        }
        // A worker that was busy with calls was not asleep.
        for term in [Term::Queue, Term::Source] {
            let behind = Some(Meter::new(None).histogram(2, PathPart::Call));
            let outlier = Outlier { behind, ..outlier(term, 20 * MS) };
            assert_eq!(cause_of(&outlier, term, None, Some(&preempted)), Queued);
        }
    }

    #[test]
    fn a_node_was_missing_if_outages_take_more_than_half_of_a_time() {
        let mut judge = Judge::default();
        judge.note_outage(1, 10, 50);
        judge.note_outage(1, 60, 70);
        for (node, from, to, expected) in
            [(1, 20, 60, true), (1, 0, 100, false), (1, 15, 110, false), (1, 15, 75, true), (2, 20, 40, false)]
        {
            assert_eq!(judge.was_missing(node, from, to), expected, "{node} {from} {to}");
        }
    }
}
