//! State shared by all workers of a run: its progress, failures and settings.

use crate::base::policy::OnError;
use crate::base::unit::show_ns;
use crate::exec::mailbox::Mailbox;
use crate::exec::outlier::OutlierQueue;
use crate::exec::worker_event::{EventQueue, WorkerEvent, shortened};
use crate::host::clock::Clock;
use crate::host::cpu::Pinned;
use crate::host::sync::Padded;
use crate::host::sync::{Arc, AtomicBool, AtomicU8, AtomicU64, DynArc, Ordering};
use crate::host::wait::Bell;
use crate::ledger::span::Pages;
use crate::node::RunStats;
use crate::node::backend::{BackendStatus, Helpers};
use crate::node::statistics::Observe;
use crossbeam_queue::ArrayQueue;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const RUN: u8 = 0;
const STOPPING: u8 = 1;
const ABORTED: u8 = 2;

/// Failures kept with their text; further ones are only counted.
const FAILURES_KEPT: usize = 64;
/// Changes that may be queued for one worker.
pub(crate) const COMMANDS: usize = 64;

/// The node a worker is turning; none while it waits.
#[derive(Debug, Default)]
pub(crate) struct TurningNode(Padded<AtomicU64>);

impl TurningNode {
    /// Marks a node as being turned.
    #[inline]
    pub(crate) fn enter(&self, node: usize) {
        self.0.store(node as u64 + 1, Ordering::Relaxed);
    }

    /// Marks that no node is being turned. Who sees it sees what the nodes have sent.
    pub(crate) fn leave(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The node being turned.
    pub(crate) fn node(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(|node| node as usize)
    }
}

/// How a call of a node failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) node: usize,
    pub(crate) call: &'static str,
    pub(crate) number: u64,
    pub(crate) text: String,
    pub(crate) panicked: bool,
}

/// Changes on their way to nodes of a worker.
pub(crate) type Command = Vec<(usize, Change)>;

/// What changes at a node between two of its turns.
pub(crate) enum Change {
    /// The value of a setting.
    Set { name: String, value: f64 },
    /// It takes no more messages, although its loop may bring some.
    EndLoop,
}

/// A node that failed to build, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildError {
    pub(crate) node: usize,
    pub(crate) text: String,
}

/// Why a run did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// A node failed to build, or not within `run.start`.
    Build(BuildError),
    /// The system refused a required setting.
    Refused(String),
}

/// State shared by all workers of a run.
pub(crate) struct RunShared {
    state: AtomicU8,
    /// When the stop was requested, ns of the process clock; 0 before.
    stop_at: AtomicU64,
    bells: Vec<Arc<Bell>>,
    /// The CPUs the run uses.
    cpus: Vec<usize>,
    /// Time limit of a call before it is reported, ns, and the nodes' names.
    watchdog: u64,
    names: Vec<String>,
    /// The node each worker is turning.
    pub(crate) at: Vec<Arc<TurningNode>>,
    started: StartGate,
    pub(crate) failures: Mutex<Failures>,
    commands: Vec<ArrayQueue<Command>>,
    pub(crate) notes: Mutex<Vec<String>>,
    pub(crate) events: EventQueue,
    pub(crate) outliers: OutlierQueue,
    /// By worker, if spans are written.
    pub(crate) spans: Vec<Arc<Pages>>,
    /// The workers' histogram mailboxes.
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    /// Nodes whose overlong turn has been reported while it still runs.
    reported: Vec<AtomicBool>,
    /// The backends' status, by node.
    backends: Mutex<HashMap<usize, BackendStatus>>,
    begun: OnceLock<Begun>,
    /// The run's id.
    pub(crate) run_id: String,
    /// The wall clock's lead over the run's, read once.
    wall_offset: OnceLock<u64>,
    /// Reads statistics for nodes, while the run goes on.
    observer: Mutex<Option<DynArc<dyn Observe>>>,
}

/// The statistics of a run, for its nodes.
pub(crate) struct RunStatistics(pub(crate) Arc<RunShared>);

impl Observe for RunStatistics {
    fn observe(&self) -> Option<RunStats> {
        let observer = try_lock(&self.0.observer)?.clone()?;
        observer.observe()
    }
    fn is_aborted(&self) -> bool {
        self.0.is_aborted()
    }
    fn report_staleness(&self, node: &str, is_stale: bool, time: Duration) {
        let Some(node) = self.0.names.iter().position(|name| name == node) else { return };
        let time = nanos(time);
        self.0.record_event(|| match is_stale {
            true => WorkerEvent::Stale { node, limit: time },
            false => WorkerEvent::StaleEnded { node, after: time },
        });
    }
}

/// Returns a random id of a run: 16 hexadecimal digits.
fn new_run_id() -> String {
    // The standard library's only source of random numbers.
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0u8);
    format!("{random:016x}")
}

/// State set when a run begins.
struct Begun {
    clock: Clock,
    /// The thread that drives the graph, if it has no workers.
    turned_by: Option<ThreadId>,
    /// Bells of the program's handles: a blocked sender must learn of a stop.
    handles: Vec<Arc<Bell>>,
}

#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) kept: Vec<Failure>,
    pub(crate) counts: HashMap<usize, u64>,
    pub(crate) stop: bool,
}

struct StartGate {
    state: Mutex<StartGateState>,
    /// Wakes the thread that starts the run: a worker has built its nodes. Waking all the others,
    /// too, would take a time that grows with the square of their number.
    built: Condvar,
    /// Wakes the workers: the run starts, or is called off.
    opened: Condvar,
}

#[derive(Default)]
struct StartGateState {
    built: usize,
    pinned: Vec<Option<Pinned>>,
    errors: Vec<BuildError>,
    go: Option<bool>,
}

/// Locks a mutex, poisoned or not: the data is plain, so a panicking holder leaves it usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], but `None` while another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl RunShared {
    pub(crate) fn new(
        bells: Vec<Arc<Bell>>,
        cpus: Vec<usize>,
        watchdog: Duration,
        names: Vec<String>,
        writes_spans: bool,
    ) -> Self {
        let workers = bells.len();
        let gate = StartGateState { pinned: vec![None; workers], ..StartGateState::default() };
        RunShared {
            state: AtomicU8::new(RUN),
            stop_at: AtomicU64::new(0),
            bells,
            cpus,
            watchdog: nanos(watchdog),
            reported: names.iter().map(|_| AtomicBool::new(false)).collect(),
            names,
            at: (0..workers).map(|_| Arc::default()).collect(),
            started: StartGate { state: Mutex::new(gate), built: Condvar::new(), opened: Condvar::new() },
            failures: Mutex::default(),
            commands: (0..workers).map(|_| ArrayQueue::new(COMMANDS)).collect(),
            notes: Mutex::default(),
            events: EventQueue::new(),
            outliers: OutlierQueue::new(),
            spans: if writes_spans { (0..workers).map(|_| Arc::new(Pages::new())).collect() } else { Vec::new() },
            mailboxes: (0..workers).map(|_| Arc::default()).collect(),
            backends: Mutex::default(),
            begun: OnceLock::new(),
            run_id: new_run_id(),
            wall_offset: OnceLock::new(),
            observer: Mutex::default(),
        }
    }

    /// Starts the run with its clock; on the calling thread if `here`, without workers.
    pub(crate) fn begin_by(&self, clock: Clock, here: bool, handles: Vec<Arc<Bell>>) {
        let turned_by = here.then(|| std::thread::current().id());
        let _ = self.begun.set(Begun { clock, turned_by, handles });
    }

    /// What to add to a time of the run's clock for that of the wall clock.
    pub(crate) fn wall_offset(&self, clock: &Clock) -> u64 {
        *self.wall_offset.get_or_init(|| clock.wall_offset())
    }

    /// Sets or removes what reads statistics for nodes.
    pub(crate) fn set_observer(&self, observer: Option<DynArc<dyn Observe>>) {
        *lock(&self.observer) = observer;
    }

    /// The names of the nodes.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Updates a backend's status; not called per call of the model.
    pub(crate) fn backend(&self, node: usize, say: impl FnOnce(&mut BackendStatus)) {
        say(lock(&self.backends).entry(node).or_default());
    }

    /// The status of a node's backend, with `calls` as the number of its calls.
    pub(crate) fn backend_status(&self, node: usize, calls: u64) -> Option<BackendStatus> {
        lock(&self.backends).get(&node).map(|status| BackendStatus { calls, ..status.clone() })
    }

    /// The clock of the run, once it has begun.
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.begun.get().map(|begun| &begun.clock)
    }

    /// Whether the calling thread is the one that drives the graph.
    pub(crate) fn is_turned_here(&self) -> bool {
        self.begun.get().is_some_and(|begun| begun.turned_by == Some(std::thread::current().id()))
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.load(Ordering::Relaxed) != RUN
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABORTED
    }

    pub(crate) fn bell(&self, worker: usize) -> Arc<Bell> {
        self.bells[worker].clone()
    }

    /// How long a call may take before it is reported, ns.
    pub(crate) fn watchdog(&self) -> u64 {
        self.watchdog
    }

    /// Reports an asynchronous call that has exceeded the watchdog's limit.
    #[cold]
    pub(crate) fn overdue(&self, node: usize) {
        let (name, limit) = (self.name(node), show_ns(self.watchdog));
        self.note(format!("a call of `{name}` has been in flight for more than {limit}"));
        self.mark_reported(node);
        self.record_event(|| WorkerEvent::Overdue { node });
    }

    /// Reports a turn that has exceeded the watchdog's limit and still runs.
    #[cold]
    pub(crate) fn hangs(&self, node: usize) {
        let (name, limit) = (self.name(node), show_ns(self.watchdog));
        self.note(format!("`{name}` has not returned for more than {limit}"));
        self.mark_reported(node);
        self.record_event(|| WorkerEvent::Hangs { node });
    }

    /// Reports the end of a turn or call that exceeded the watchdog's limit.
    #[cold]
    #[inline(never)]
    pub(crate) fn returned(&self, node: usize, took: u64) {
        if !self.take_reported(node) {
            // The watchdog did not look while the turn ran.
            let (name, took) = (self.name(node), show_ns(took));
            self.note(format!("`{name}` returned after {took}"));
        }
        self.record_event(|| WorkerEvent::Returned { node, took });
    }

    fn mark_reported(&self, node: usize) {
        if let Some(reported) = self.reported.get(node) {
            reported.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a node's overlong turn has been reported; clears the mark.
    pub(crate) fn take_reported(&self, node: usize) -> bool {
        self.reported.get(node).is_some_and(|reported| reported.swap(false, Ordering::Relaxed))
    }

    /// A node's name.
    pub(crate) fn name(&self, node: usize) -> &str {
        self.names.get(node).map_or("?", String::as_str)
    }

    /// Queues an event. `event` is called only if the queue has room.
    #[cold]
    pub(crate) fn record_event(&self, event: impl FnOnce() -> WorkerEvent) {
        let now = self.clock().map(Clock::now).unwrap_or_default();
        self.events.push(now, event);
    }

    /// Reports that a request was refused; the run goes on.
    #[cold]
    pub(crate) fn refuse(&self, text: String) {
        self.record_event(|| WorkerEvent::Refused { text: text.as_str().into() });
        self.note(text);
    }

    /// The services for a backend session on a worker's thread.
    pub(crate) fn helpers(&self, worker: usize) -> Helpers {
        Helpers { bell: self.bell(worker), cpus: self.cpus.clone() }
    }

    pub(crate) fn at(&self, worker: usize) -> Arc<TurningNode> {
        self.at[worker].clone()
    }

    pub(crate) fn ring_all(&self) {
        let handles = self.begun.get().map_or(&[][..], |begun| &begun.handles);
        self.bells.iter().chain(handles).for_each(|bell| bell.ring());
    }

    /// Ends the sources; messages in flight are still processed.
    pub(crate) fn stop(&self) {
        let now = Clock::Monotonic.now().0;
        // The first request counts for the deadline.
        let _ = self.stop_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.state.compare_exchange(RUN, STOPPING, Ordering::Release, Ordering::Relaxed);
        self.ring_all();
    }

    /// Ends every stage after its current turn.
    pub(crate) fn abort(&self) {
        let now = Clock::Monotonic.now().0;
        let _ = self.stop_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.state.store(ABORTED, Ordering::Release);
        self.ring_all();
    }

    /// Time since the stop was requested.
    pub(crate) fn stopping_for(&self) -> Option<Duration> {
        match self.stop_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(Clock::Monotonic.now().0.saturating_sub(at))),
        }
    }

    pub(crate) fn fail(&self, failure: Failure, on_error: OnError) {
        self.record_event(|| {
            let Failure { node, call, number, ref text, panicked } = failure;
            WorkerEvent::Failed { node, call, number, text: shortened(text), panicked, then: on_error }
        });
        let mut failures = lock(&self.failures);
        *failures.counts.entry(failure.node).or_default() += 1;
        if failures.kept.len() < FAILURES_KEPT {
            failures.kept.push(failure);
        }
        if on_error == OnError::Stop {
            failures.stop = true;
            drop(failures);
            self.stop();
        }
    }

    /// Whether a node has failed whose policy stops the run.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.failures).stop
    }

    pub(crate) fn note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if notes.len() < FAILURES_KEPT {
            notes.push(note);
        }
    }

    /// Records a node's note about itself.
    #[cold]
    pub(crate) fn note_of(&self, node: usize, note: &str) {
        let name = self.names.get(node).map_or("?", String::as_str);
        self.note(format!("`{name}`: {note}"));
    }

    /// Reports that a worker has built its nodes or failed to. Waits for all others and returns
    /// whether the run starts.
    pub(crate) fn built(&self, worker: usize, pinned: Pinned, error: Option<BuildError>) -> bool {
        let mut state = lock(&self.started.state);
        state.built += 1;
        state.pinned[worker] = Some(pinned);
        state.errors.extend(error);
        self.started.built.notify_all();
        loop {
            if let Some(go) = state.go {
                return go;
            }
            state = self.started.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for every worker and starts them, unless a node failed to build, not all did within
    /// `within`, or `refuse` returns a reason. Returns how the workers are pinned and the start
    /// time, which precedes every message.
    pub(crate) fn begin(
        &self,
        workers: usize,
        within: Duration,
        refuse: impl FnOnce(&[Option<Pinned>]) -> Option<String>,
    ) -> Result<(Vec<Pinned>, Instant), StartError> {
        let state = lock(&self.started.state);
        let waiting = self.started.built.wait_timeout_while(state, within, |state| state.built < workers);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = (0..workers).find(|worker| state.pinned[*worker].is_none()) {
            state.go = Some(false);
            self.started.opened.notify_all();
            // A build error explains more than a timeout.
            if let Some(error) = state.errors.first().cloned() {
                return Err(StartError::Build(error));
            }
            let text = format!("building took longer than {} (`run.start`)", show_ns(nanos(within)));
            return Err(StartError::Build(BuildError { node: self.at[worker].node().unwrap_or(0), text }));
        }
        let refused = refuse(&state.pinned);
        let error = state.errors.first().cloned();
        let begun = Instant::now();
        state.go = Some(error.is_none() && refused.is_none());
        let pinned = state.pinned.iter().cloned().map(Option::unwrap_or_default).collect();
        self.started.opened.notify_all();
        match (error, refused) {
            (Some(error), _) => Err(StartError::Build(error)),
            (None, Some(refused)) => Err(StartError::Refused(refused)),
            (None, None) => Ok((pinned, begun)),
        }
    }

    /// Releases waiting workers without starting the run.
    pub(crate) fn call_off(&self) {
        lock(&self.started.state).go = Some(false);
        self.started.opened.notify_all();
    }

    #[inline]
    pub(crate) fn has_commands(&self, worker: usize) -> bool {
        !self.commands[worker].is_empty()
    }

    /// Queues changes for nodes of a worker; false if too much is queued for it.
    pub(crate) fn command(&self, worker: usize, command: Command) -> bool {
        let is_queued = self.commands[worker].push(command).is_ok();
        self.bell(worker).ring();
        is_queued
    }

    pub(crate) fn next_command(&self, worker: usize) -> Option<Command> {
        self.commands[worker].pop()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::host::sync::thread;

    /// A worker about to sleep always notices a stop request.
    #[test]
    fn loom_a_stop_wakes_every_sleeper() {
        loom::model(|| {
            let bell = Arc::new(Bell::default());
            bell.set_sleeper();
            let shared = Arc::new(RunShared::new(vec![bell.clone()], Vec::new(), Duration::MAX, Vec::new(), false));
            let stopper = {
                let shared = shared.clone();
                thread::spawn(move || shared.stop())
            };
            while !shared.is_stopping() {
                bell.arm();
                if shared.is_stopping() {
                    bell.disarm();
                    break;
                }
                bell.sleep(None);
            }
            stopper.join().unwrap();
        });
    }
}
