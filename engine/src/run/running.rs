//! A graph at work: handles to stop it, watch it, wait for it.

use crate::base::error::suggest;
use crate::edge::Shared;
use crate::exec::endpoint::AnyEndpoint;
use crate::exec::mailbox::Subject;
use crate::exec::shared::{COMMANDS, Command, RunShared};
use crate::exec::stage::{Counts, Judged};
use crate::exec::worker;
use crate::host::clock::Clock;
use crate::host::cpu::Pinned;
use crate::host::sync::{Arc, DynArc};
use crate::ledger::Term;
use crate::node::backend::BackendStatus;
use crate::plan::Plan;
use crate::report::{HistogramReport, Report};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::events::{Events, Watcher};
use crate::run::windows::{Interval, Window};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a stop may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain(Duration);

impl Drain {
    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// What is on its way may take so long to arrive; what has not by then is counted as left.
    pub fn within(time: Duration) -> Self {
        Drain(time)
    }
}

/// A graph at work. Dropping it aborts the run, and waits for its threads as long as a stop may take.
pub struct Running {
    pub(crate) plan: Plan,
    pub(crate) shared: Arc<RunShared>,
    pub(crate) edges: Vec<Arc<Shared>>,
    /// Where the program takes part, and at which node.
    pub(crate) endpoints: Vec<(usize, DynArc<dyn AnyEndpoint>)>,
    pub(crate) counts: Vec<Arc<Counts>>,
    /// What became of messages at their sink, by path of the plan.
    pub(crate) judged: Arc<Vec<Judged>>,
    pub(crate) pinned: Vec<Pinned>,
    pub(crate) done: Receiver<worker::Outcome>,
    pub(crate) outcomes: Vec<Option<worker::Outcome>>,
    /// The workers' threads, as many as were started, and the one that watches them.
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) watch: Option<JoinHandle<()>>,
    pub(crate) started: Instant,
    pub(crate) started_at: std::time::SystemTime,
    pub(crate) stop_within: Duration,
    pub(crate) finished: bool,
    pub(crate) watcher: Arc<Watcher>,
}

/// A handle that asks a running graph to stop, from any thread or signal handler's thread.
#[derive(Clone)]
pub struct Stopper(Arc<RunShared>);

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stopper")
    }
}

impl Stopper {
    /// Sources end, what is on its way is done.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Every node ends with the call it is in.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// What one node has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStats {
    /// The node's name.
    pub node: String,
    /// Calls given something.
    pub taken: u64,
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// How its backend stands, where it runs a model.
    pub backend: Option<BackendStatus>,
    /// How long messages waited to be taken in the last window; `None` before the first, and for a source.
    pub queue: Option<Window>,
    /// How long calls took in the last window; `None` before the first.
    pub compute: Option<Window>,
}

/// How old messages of one source were at the end of a sink's call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStats {
    /// The source.
    pub from: String,
    /// The sink.
    pub to: String,
    /// The last window.
    pub latency: Window,
}

/// What is in an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeStats {
    /// Producer, `node/port`.
    pub from: String,
    /// Consumer, `node/port`.
    pub to: String,
    /// Messages in it now.
    pub messages: u64,
    /// The bytes that so many messages take at most, where their size is known.
    pub bytes: Option<u64>,
    /// The most messages that were found in it since this was last asked. A thread looks at least once a second, and so does every call
    /// that waits or asks; what came and went between two looks was seen by nobody.
    pub highest: u64,
    /// Messages it holds.
    pub capacity: usize,
}

/// What was recorded of something in an interval of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IntervalReport {
    /// When it began, from the begin of the run.
    pub begin: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was recorded in it, and of what.
    pub histogram: HistogramReport,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("nodes", &self.counts.len()).finish_non_exhaustive()
    }
}

/// Beyond the deadline of a stop, threads get this long to notice before they are given up.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

impl Running {
    /// The run begins by a clock; on this very thread, where it has no workers.
    pub(crate) fn begin_by(&self, clock: Clock, here: bool) {
        self.watcher.begin_windows(clock.now().0, !self.plan.warmup.is_zero());
        self.shared.begin_by(clock, here, self.endpoints.iter().map(|(_, endpoint)| endpoint.bell()).collect());
    }

    /// A handle that can stop this run from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// The events of this run, for whichever thread is to read them.
    pub fn events(&self) -> Events {
        Events(self.watcher.clone())
    }

    /// Waits for the next event, at most for a time; as [`Events::next_within`].
    pub fn next_event(&self, within: Duration) -> Option<Event> {
        self.events().next_within(within)
    }

    /// Counters of every node at this moment, and its figures of the last window.
    ///
    /// A window is a second long, or as long as nobody asked. Where the last has ended this waits for the workers, at most 5 ms: one that
    /// is in a call hands its figures over afterwards, and the next to ask gets them.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.watcher.look();
        let windows = self.watcher.windows();
        let nodes = self.plan.nodes().iter().zip(&self.counts).enumerate();
        nodes
            .map(|(at, (node, counts))| NodeStats {
                node: node.name.clone(),
                taken: counts.taken.get(),
                done: counts.done.get(),
                failed: counts.failed.get(),
                backend: self.shared.backend_status(at, counts.batches.get()),
                queue: windows.get(&(Subject::Node(at), Term::Queue)).copied(),
                compute: windows.get(&(Subject::Node(at), Term::Compute)).copied(),
            })
            .collect()
    }

    /// Ages at the sinks in the last window, of every path from a source to a sink; nothing before the first window. As
    /// [`stats`](Running::stats).
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.watcher.look();
        let name = |at: usize| self.plan.nodes()[at].name.clone();
        let windows = self.watcher.windows().into_iter();
        let paths = windows.filter_map(|((subject, term), latency)| match subject {
            Subject::Path(from, to) if term == Term::EndToEnd => {
                Some(PathStats { from: name(from), to: name(to), latency })
            }
            _ => None,
        });
        paths.collect()
    }

    /// Everything recorded since the last call, a second or longer; call it often, and what has come is returned. The first call begins
    /// the keeping, so make it right after the start. Nothing is recorded twice or left out but what is still with the workers:
    /// the report's histograms, less all intervals, are the last one. As [`stats`](Running::stats).
    pub fn intervals(&self) -> Vec<IntervalReport> {
        self.watcher.look();
        let name = |at: usize| self.plan.nodes()[at].name.clone();
        let intervals = self.watcher.intervals().into_iter();
        intervals
            .map(|Interval { subject, term, begin, length, recorded }| {
                let (node, to) = match subject {
                    Subject::Node(node) => (name(node), None),
                    Subject::Path(from, to) => (name(from), Some(name(to))),
                };
                IntervalReport { begin, length, histogram: HistogramReport { node, to, term, recorded } }
            })
            .collect()
    }

    /// When the run began, by the wall clock.
    pub fn started(&self) -> std::time::SystemTime {
        self.started_at
    }

    /// What is in every edge, in the order of the graph.
    pub fn edge_stats(&self) -> Vec<EdgeStats> {
        self.watcher.look();
        let edges = self.plan.edges().iter().zip(self.watcher.fills());
        edges
            .map(|(edge, (messages, highest))| EdgeStats {
                from: edge.from_name.clone(),
                to: edge.to_name.clone(),
                messages,
                bytes: edge.spec.as_ref().and_then(|spec| Some(messages * spec.max_bytes()? as u64)),
                highest,
                capacity: edge.capacity,
            })
            .collect()
    }

    /// Changes a setting of a node between two of its turns. What the node itself makes of a value that is within the setting's
    /// range and still does not please it stands in the report's notes.
    ///
    /// # Errors
    /// [`RunError::NoSuch`] where there is no such node or setting; [`RunError::Refused`] where the value is out of its range, and
    /// while too many settings wait.
    pub fn set(&self, node: &str, name: &str, value: f64) -> Result<(), RunError> {
        self.watcher.look();
        let nodes = self.plan.nodes();
        let index = nodes.iter().position(|n| n.name == node);
        let index = index.ok_or_else(|| {
            let names = nodes.iter().map(|node| node.name.as_str());
            RunError::NoSuch(format!("there is no node `{node}`; {}", suggest(node, names)))
        })?;
        let settings = &nodes[index].settings;
        let setting = settings.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let names = settings.iter().map(|setting| setting.name.as_str());
            RunError::NoSuch(format!("`{node}` has no setting `{name}`; {}", suggest(name, names)))
        })?;
        if !setting.range.contains(&value) {
            let (least, most) = (setting.range.start(), setting.range.end());
            return Err(RunError::Refused(format!("`{name}` of `{node}` is from {least} to {most}, not {value}")));
        }
        let command = Command { node: index, name: name.to_string(), value };
        if self.shared.commands[nodes[index].worker].push(command).is_err() {
            return Err(RunError::Refused(format!("{COMMANDS} settings wait for the worker of `{node}` already")));
        }
        self.shared.bell(nodes[index].worker).ring();
        Ok(())
    }

    /// Waits until the graph ends by itself or a time has passed; true when it has ended. `Duration::MAX` waits as long as it takes.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        // Later than any clock can say is never.
        let end = Instant::now().checked_add(time);
        let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        loop {
            if self.outcomes.iter().all(Option::is_some) {
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
            }
            // A stop asked for from elsewhere has to be noticed, and a turn that does not end.
            wait = wait.min(Duration::from_millis(50)).min(self.plan.watchdog / 2).max(Duration::from_millis(1));
            match self.done.recv_timeout(wait) {
                Ok(outcome) => self.arrived(outcome),
                Err(RecvTimeoutError::Timeout) if !left().is_zero() => {}
                Err(_) => return self.outcomes.iter().all(Option::is_some),
            }
        }
    }

    fn arrived(&mut self, outcome: worker::Outcome) {
        let worker = outcome.worker;
        self.outcomes[worker] = Some(outcome);
    }

    /// Waits until the graph ends by itself, or, when it is asked to stop, until its deadline.
    pub fn wait(mut self) -> Report {
        while !self.wait_for(Duration::from_secs(3600)) {}
        self.finish()
    }

    /// Asks the graph to stop, and waits for it.
    pub fn stop(mut self, drain: Drain) -> Report {
        self.stop_within = drain.0;
        self.shared.stop();
        self.wait()
    }

    /// Gathers what the workers left, giving up those that do not answer.
    fn finish(mut self) -> Report {
        let late = !self.outcomes.iter().all(Option::is_some);
        if late {
            self.shared.abort();
            self.await_threads(GRACE);
        }
        self.gathered(late)
    }

    /// Waits for what the threads that were started hand over, at most for a time.
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

    /// Joins the threads that have handed over what they leave, and do nothing else any more. Of the others nobody knows whether they
    /// ever end.
    fn join_threads(&mut self) {
        let threads = std::mem::take(&mut self.threads).into_iter().zip(&self.outcomes);
        threads.filter(|(_, outcome)| outcome.is_some()).for_each(|(thread, _)| _ = thread.join());
    }

    /// The report, once every worker that will has handed over what it leaves.
    pub(crate) fn gathered(mut self, late: bool) -> Report {
        self.finished = true;
        self.join_threads();
        self.report(late)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.abort();
            // A node that drops the run it is part of would wait for itself.
            let here = std::thread::current().id();
            if !self.threads.iter().any(|thread| thread.thread().id() == here) {
                self.await_threads(self.stop_within);
            }
            self.join_threads();
        }
        self.shared.events.end();
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
    }
}
