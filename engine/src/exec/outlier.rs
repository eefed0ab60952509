//! Why a latency, or a part of one, was much longer than usual: judged by the worker that recorded it, by what the kernel says of the
//! worker's thread, and explained later (`run::tails`).

use crate::exec::mailbox::Subject;
use crate::host::usage::{ThreadUsage, UsageReader};
use crate::ledger::{Outlier, Part, Term};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;

/// Capacity of the queue.
pub(crate) const QUEUE: usize = 1024;
/// The most parts of latencies that the reader remembers, messages that wait for their explanation, and messages kept for the report.
pub(crate) const PARTS: usize = 2048;
pub(crate) const PENDING: usize = 256;
pub(crate) const KEPT: usize = 1024;
/// The kernel is asked at once about a time this long, ns: switches take some µs.
pub(crate) const WORTH_ASKING_NS: u64 = 20_000;
/// Otherwise, the least time between two questions to the kernel, ns.
pub(crate) const ASK_EVERY: u64 = 1_000_000;
/// What a page takes that the kernel gives without a read, ns: as much in a virtual machine, less on others.
const FAULT_NS: u64 = 4000;
/// A pause is unusual if it is longer than this, ns, and than so many usual ones.
const LONG_PAUSE_NS: u64 = 1_000_000;
const LONG_PAUSE: u64 = 5;

/// Why a message took much longer than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// A call waited in the kernel: for a disk, a device, a lock, or because it sleeps.
    Blocked,
    /// A call touched memory that it was yet to be given.
    PageFault,
    /// The process, or a control group that it belongs to, had used up its CPU quota.
    Quota,
    /// The kernel moved the thread to another CPU.
    Migrated,
    /// A call took long while its CPU was slowed down by heat, or by a lower limit of its frequency.
    SlowCpu,
    /// A call was the first one, or the first after a pause that was unusually long: caches and devices were cold.
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
        match self {
            TailCause::Queued => "queued",
            TailCause::Partner => "partner",
            TailCause::Batch => "batch",
            TailCause::NoRoom => "no_room",
            TailCause::WokenLate => "woken_late",
            TailCause::Preempted => "preempted",
            TailCause::Blocked => "blocked",
            TailCause::PageFault => "page_fault",
            TailCause::Quota => "quota",
            TailCause::Migrated => "migrated",
            TailCause::SlowCpu => "slow_cpu",
            TailCause::Cold => "cold",
            TailCause::DeviceBusy => "device_busy",
            TailCause::Compute => "compute",
            TailCause::Restarted => "restarted",
            TailCause::Source => "source",
            TailCause::ClockStep => "clock_step",
            TailCause::Unexplained => "unexplained",
        }
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
pub(crate) struct Passed {
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

    /// Asks the kernel what happened since the last call; `None` if it does not say, or on the first call.
    pub(crate) fn ask(&mut self, now: u64) -> Option<Passed> {
        let usage = self.reader.get_or_insert_with(UsageReader::new).read();
        let sleeps = std::mem::take(&mut self.sleeps);
        let wall_ns = now.saturating_sub(std::mem::replace(&mut self.asked_at, now));
        let then = std::mem::replace(&mut self.usage, usage)?;
        let used = usage?.since(&then);
        Some(Passed { used, has_moved: used.cpu != then.cpu, wall_ns, sleeps })
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

/// Says why a part of a latency was long. `model` is that of the node, if it runs one. `passed` covers the time that the part took.
pub(crate) fn cause_of(outlier: &Outlier, term: Term, model: Option<ModelCalls>, passed: Option<&Passed>) -> TailCause {
    let is_cold = outlier.pause.is_none_or(|(pause, mean)| pause > LONG_PAUSE_NS.max(mean * LONG_PAUSE));
    match (outlier.part, term) {
        (_, Term::Hold | Term::BatchWait) => {
            let wait = model.filter(|model| term == Term::BatchWait || !model.joins);
            return wait.map_or(TailCause::Partner, ModelCalls::wait);
        }
        // The kernel knows nothing of the device's time; with a call before it still on its way, there was no pause.
        (Part::Call, _) if model.is_some_and(|model| model.is_async) => {
            return match outlier.pause {
                _ if is_cold => TailCause::Cold,
                Some((0, _)) => TailCause::DeviceBusy,
                _ => TailCause::Compute,
            };
        }
        (_, Term::Blocked) => return TailCause::NoRoom,
        // A source whose next message was due waits for its worker, too.
        (Part::Wait, Term::Queue | Term::Source) if outlier.behind.is_some() => return TailCause::Queued,
        _ => {}
    }
    let by_kernel = passed.and_then(|passed| passed.cause(outlier, term));
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

impl Passed {
    /// Why something took long on this thread, if the kernel can say: what explains at least half of the time beyond the usual.
    fn cause(&self, outlier: &Outlier, term: Term) -> Option<TailCause> {
        let ThreadUsage { cpu_ns, waited_ns, voluntary, involuntary, minor_faults, major_faults, cpu: _ } = self.used;
        let ns = outlier.value;
        let half = (ns.saturating_sub(outlier.usual) / 2).max(1);
        if waited_ns >= half {
            return Some(if involuntary > 0 { TailCause::Preempted } else { TailCause::WokenLate });
        }
        // The rest is about a call of the node itself; in a wait, it would be about calls of others. A source that sleeps may well do so
        // until a device has something, which is old then.
        if term == Term::Queue || (term == Term::Source && self.sleeps > 0) {
            return None;
        }
        let was_away = match self.sleeps {
            0 => self.wall_ns.saturating_sub(cpu_ns) >= half,
            // Its sleeps are part of the time, and what it did on a CPU is at most what it did here.
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
        self.has_moved.then_some(TailCause::Migrated)
    }
}
