//! A running graph: stopping it, watching it, waiting for it.

use crate::base::error::suggest;
use crate::edge::EdgeShared;
use crate::exec::endpoint::AnyEndpoint;
use crate::exec::mailbox::Subject;
use crate::exec::shared::{COMMANDS, Change, RunShared};
use crate::exec::stage::{Judged, StageCounts};
use crate::exec::worker;
use crate::host::clock::Clock;
use crate::host::cpu::Pinned;
use crate::host::sync::{Arc, DynArc};
use crate::node::statistics::Observe;
use crate::node::{EdgeStats, NodeStats, PathStats};
use crate::plan::Plan;
use crate::report::{HistogramReport, Report};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::events::{Events, Watcher};
use crate::run::spans::Spans;
use crate::run::windows::RecordedInterval;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time limit of a stop; see [`Running::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain(Duration);

impl Drain {
    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// Messages in flight may take this long to arrive; those that have not arrived by then count
    /// as left.
    pub fn within(time: Duration) -> Self {
        Drain(time)
    }
}

/// A running graph. Dropping it aborts the run, and waits for its threads as long as a stop may
/// take.
///
/// ```
/// # use limen::message::Plain;
/// # use limen::{Plan, Registry, Spec};
/// # #[derive(Clone, Debug)]
/// # struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let spec = Spec::from_text(text, "g.yaml").unwrap();
/// # let mut graph = Plan::new(spec, &registry).unwrap().wire().unwrap();
/// # drop((graph.inlet::<Number>("a").unwrap(), graph.outlet::<Number>("z").unwrap()));
/// use limen::Drain;
/// use std::time::Duration;
/// let mut running = graph.start().unwrap();
/// let stopper = running.stopper(); // for another thread, such as a signal handler's
/// for _ in 0..10 {
///     if running.wait_for(Duration::from_millis(1)) {
///         break; // the graph ended by itself
///     }
///     for node in running.stats() {
///         println!("{}: {} calls", node.node, node.done);
///     }
/// }
/// let report = running.stop(Drain::within(Duration::from_secs(2)));
/// assert!(report.bugs.is_empty());
/// # let _ = stopper;
/// ```
pub struct Running {
    pub(crate) plan: Plan,
    pub(crate) shared: Arc<RunShared>,
    pub(crate) edges: Vec<Arc<EdgeShared>>,
    /// The endpoints of handles, each with its node.
    pub(crate) endpoints: Vec<(usize, DynArc<dyn AnyEndpoint>)>,
    pub(crate) counts: Vec<Arc<StageCounts>>,
    /// Deadline counts at the sinks, by path of the plan.
    pub(crate) judged: Arc<Vec<Judged>>,
    pub(crate) pinned: Vec<Pinned>,
    pub(crate) done: Receiver<worker::WorkerOutcome>,
    pub(crate) outcomes: Vec<Option<worker::WorkerOutcome>>,
    /// The workers' threads, as far as they were started, and the watchdog thread.
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) watch: Option<JoinHandle<()>>,
    pub(crate) started: Instant,
    pub(crate) started_at: std::time::SystemTime,
    pub(crate) stop_within: Duration,
    pub(crate) finished: bool,
    pub(crate) watcher: DynArc<Watcher>,
}

/// A handle that stops a running graph from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<RunShared>);

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stopper")
    }
}

impl Stopper {
    /// Ends the sources and lets messages in flight arrive, within the graph's `run.stop`.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Ends every node after its current call. Messages in flight count as left.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// What was recorded in an interval of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IntervalReport {
    /// The begin of the interval, from the start of the run.
    pub begin: Duration,
    /// The length of the interval.
    pub length: Duration,
    /// The histogram, and what it measures.
    pub histogram: HistogramReport,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("nodes", &self.counts.len()).finish_non_exhaustive()
    }
}

/// After the deadline of a stop, threads get this long to end before they are abandoned.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

impl Running {
    /// Starts the run on a clock; `here` means on the calling thread, without workers.
    pub(crate) fn begin_by(&self, clock: Clock, here: bool) {
        self.watcher.begin_windows(clock.now().0, !self.plan.warmup.is_zero());
        let observer: DynArc<dyn Observe> = self.watcher.clone();
        self.shared.set_observer(Some(observer));
        self.shared.begin_by(clock, here, self.endpoints.iter().map(|(_, endpoint)| endpoint.bell()).collect());
    }

    /// Returns a handle that can stop this run from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Returns the events of this run, for any thread to read.
    pub fn events(&self) -> Events {
        Events(self.watcher.clone())
    }

    /// Returns the spans of this run, for any thread to read; there are none unless it was planned
    /// with [`Options::spans`](crate::Options::spans).
    pub fn spans(&self) -> Spans {
        Spans(self.watcher.clone())
    }

    /// Waits up to `within` for the next event, and returns `None` if none arrives; see
    /// [`Events::next_within`].
    pub fn next_event(&self, within: Duration) -> Option<Event> {
        self.events().next_within(within)
    }

    /// Returns the current counters of every node, and its statistics of the last window.
    ///
    /// A window lasts a second, or the time between two queries if that is longer. If the last has
    /// ended, this waits up to 5 ms for the workers; a worker that is in a call replies afterwards,
    /// for the next query.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.watcher.look();
        self.watcher.node_stats(&self.watcher.windows())
    }

    /// Returns the ages at the sinks in the last window, for every path from a source to a sink;
    /// before the first window only the paths with a deadline. The counts of missed deadlines are
    /// exact. Waits as [`stats`](Running::stats) does.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.watcher.look();
        self.watcher.path_stats(&self.watcher.windows())
    }

    /// Returns everything recorded since the last call, in intervals of a second or longer. The
    /// first call starts the recording of intervals, so make it right after the start, and call it
    /// often. Nothing is counted twice or omitted, except what workers have not passed on: the
    /// report's histograms minus all intervals are the last one. Waits as [`stats`](Running::stats)
    /// does.
    pub fn intervals(&self) -> Vec<IntervalReport> {
        self.watcher.look();
        let name = |at: usize| self.plan.nodes()[at].name.clone();
        let intervals = self.watcher.intervals().into_iter();
        intervals
            .map(|RecordedInterval { subject, term, begin, length, recorded }| {
                let (node, to) = match subject {
                    Subject::Node(node) => (name(node), None),
                    Subject::Path(from, to) => (name(from), Some(name(to))),
                };
                IntervalReport { begin, length, histogram: HistogramReport { node, to, term, recorded } }
            })
            .collect()
    }

    /// Returns the run's id, which its report has too.
    pub fn run_id(&self) -> &str {
        &self.shared.run_id
    }

    /// Returns whether a stop was requested, or a node has stopped the graph.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Returns how long the run has lasted.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns when the run began, by the wall clock.
    pub fn started(&self) -> std::time::SystemTime {
        self.started_at
    }

    /// Returns the queue depth of every edge, in the order of the graph.
    pub fn edge_stats(&self) -> Vec<EdgeStats> {
        self.watcher.look();
        self.watcher.edge_stats()
    }

    /// Changes a setting of a node between two of its turns; the node declared it with
    /// [`Ports::setting`](crate::node::Ports::setting). If the node rejects a value within the
    /// range, the report has a note.
    ///
    /// ```
    /// use limen::{RunError, Running};
    /// fn brighten(running: &Running) -> Result<(), RunError> {
    ///     running.set("bright", "by", 30.0)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if there is no such node or setting; [`RunError::Refused`] if the value
    /// is out of range, or too many settings are queued.
    pub fn set(&self, node: &str, name: &str, value: f64) -> Result<(), RunError> {
        self.watcher.look();
        let nodes = self.plan.nodes();
        let index = nodes.iter().position(|n| n.name == node);
        let index = index.ok_or_else(|| {
            let names = nodes.iter().map(|node| node.name.as_str());
            RunError::NoSuch(format!("unknown node `{node}`: {}", suggest(node, names)))
        })?;
        let settings = &nodes[index].settings;
        let setting = settings.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let names = settings.iter().map(|setting| setting.name.as_str());
            RunError::NoSuch(format!("unknown setting `{name}` of `{node}`: {}", suggest(name, names)))
        })?;
        if !setting.range.contains(&value) {
            let (least, most) = (setting.range.start(), setting.range.end());
            return Err(RunError::Refused(format!("`{name}` of `{node}` must be {least} to {most}, got {value}")));
        }
        let change = Change::Set { name: name.to_string(), value };
        if !self.shared.command(nodes[index].worker, vec![(index, change)]) {
            return Err(RunError::Refused(format!(
                "at most {COMMANDS} settings may be queued for the worker of `{node}`: try again later"
            )));
        }
        Ok(())
    }

    /// Waits until the graph ends by itself or `time` has passed; returns whether it has ended.
    /// `Duration::MAX` waits without limit.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        // An overflow means no limit.
        let end = Instant::now().checked_add(time);
        let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        loop {
            if self.have_all_ended() {
                return true;
            }
            self.watcher.look();
            let mut wait = left();
            if let Some(stopping) = self.shared.stopping_for() {
                let left = self.stop_within.saturating_sub(stopping);
                if left.is_zero() {
                    return true;
                }
                wait = wait.min(left);
                if self.watcher.has_loops() {
                    // A loop takes several looks.
                    wait = wait.min(self.stop_within / 16);
                    self.watcher.end_loops(stopping > self.stop_within / 2);
                }
            }
            // Wake up regularly, to notice a stop requested elsewhere and a turn that does not end.
            wait = wait.min(Duration::from_millis(50)).min(self.plan.watchdog / 2).max(Duration::from_millis(1));
            match self.done.recv_timeout(wait) {
                Ok(outcome) => self.arrived(outcome),
                Err(RecvTimeoutError::Timeout) if !left().is_zero() => {}
                Err(_) => return self.have_all_ended(),
            }
        }
    }

    fn have_all_ended(&self) -> bool {
        self.outcomes.iter().all(Option::is_some)
    }

    fn arrived(&mut self, outcome: worker::WorkerOutcome) {
        let worker = outcome.worker;
        self.outcomes[worker] = Some(outcome);
    }

    /// Waits until the graph ends by itself or, after a stop was requested, until the stop's
    /// deadline.
    pub fn wait(mut self) -> Report {
        while !self.wait_for(Duration::from_secs(3600)) {}
        self.finish()
    }

    /// Stops the sources, waits for the messages in flight within the limit, and returns the
    /// report. Messages that have not arrived by then count as left.
    pub fn stop(mut self, drain: Drain) -> Report {
        self.stop_within = drain.0;
        self.shared.stop();
        self.wait()
    }

    /// Collects the workers' results, abandoning workers that do not reply.
    fn finish(mut self) -> Report {
        if !self.have_all_ended() && self.watcher.has_loops() {
            self.watcher.end_loops(true);
            self.await_threads(GRACE);
        }
        let late = !self.have_all_ended();
        if late {
            self.shared.abort();
            self.await_threads(GRACE);
        }
        self.into_report(late)
    }

    /// Waits up to `time` for the results of the threads that were started.
    fn await_threads(&mut self, time: Duration) {
        let end = Instant::now().checked_add(time);
        while self.outcomes.iter().take(self.threads.len()).any(Option::is_none) {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            match self.done.recv_timeout(left) {
                Ok(outcome) => self.arrived(outcome),
                Err(_) => break,
            }
        }
    }

    /// Joins the threads that have sent their results. The others may never end.
    fn join_threads(&mut self) {
        let threads = std::mem::take(&mut self.threads).into_iter().zip(&self.outcomes);
        threads.filter(|(_, outcome)| outcome.is_some()).for_each(|(thread, _)| _ = thread.join());
    }

    /// Makes the report, once all workers have sent their results or were abandoned; `late` if
    /// messages in flight have not arrived.
    pub(crate) fn into_report(mut self, late: bool) -> Report {
        self.finished = true;
        self.join_threads();
        self.report(late)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.abort();
            // A node that drops its own run must not wait for itself.
            let here = std::thread::current().id();
            if !self.threads.iter().any(|thread| thread.thread().id() == here) {
                self.await_threads(self.stop_within);
            }
            self.join_threads();
        }
        self.shared.events.end();
        // The watcher holds what is shared.
        self.shared.set_observer(None);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
    }
}
