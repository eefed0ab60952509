//! Workers: one thread per core, which turns its stages in topological order.
//!
//! The only module that starts worker threads. A worker pins its thread, builds its nodes on it,
//! waits at the start barrier until every node of the graph is built, then passes over its stages
//! until they end. When nothing moved it folds its log, and waits as its
//! [`Wait`](crate::base::policy::Wait) says ([`idler`]); before it sleeps it arms its bell and
//! makes one more pass. A worker whose nodes wait for file descriptors sleeps in the poller
//! instead, and polls now and then while it is awake.

mod idler;

pub(crate) use idler::Idler;

use crate::base::policy::Schedule;
use crate::base::policy::Telemetry;
use crate::exec::mailbox::Subject;
use crate::exec::mailbox::{HistogramPart, Mailbox};
use crate::exec::outlier::{Judge, Judged, ModelCalls, TailCause, ThreadActivity, WORTH_ASKING_NS, cause_of};
use crate::exec::scheduler::Scheduler;
use crate::exec::shared::{BuildError, Command, RunShared, RunStatistics, TurningNode};
use crate::exec::stage::{Common, Ended, Stage};
use crate::host::clock::{Clock, Watch};
use crate::host::cpu::{self, ThreadPlace};
use crate::host::descriptors::Poller;
use crate::host::footprint::Footprint;
use crate::host::sync::{Arc, DynArc};
use crate::ledger::span::{self, Activity, SpanWriter};
use crate::ledger::{self, Copying, Hist, Meter, Recorded, Run, Term};
use crate::node::Statistics;
use crate::node::backend::{Helpers, WorkerHost};
use std::hint::cold_path;
use std::rc::Rc;
use std::thread::JoinHandle;

/// The worker's services during a turn: the clock, the log, the run's state.
pub(crate) struct Cx {
    watch: Watch,
    now: u64,
    /// Whether `now` is the end of the last step, so that it can serve as the start of the next.
    fresh: bool,
    meter: Meter,
    subjects: Vec<(Subject, Term, Hist)>,
    pub(crate) shared: Arc<RunShared>,
    telemetry: Telemetry,
    frames: Option<u64>,
    /// When the warm-up ends; 0 when it has.
    warm_at: u64,
    /// Node index of each source, by source number.
    sources: Arc<Vec<usize>>,
    worker: usize,
    /// The node being turned, for the watchdog.
    at: Arc<TurningNode>,
    /// The file descriptors the nodes wait for.
    pub(crate) poller: Rc<Poller>,
    /// Whether a node makes calls on a device.
    pub(crate) has_device: bool,
    /// Where histogram copies are handed over, the copy in progress, when it was requested, and how
    /// often the histograms were cleared.
    mailbox: Arc<Mailbox>,
    copying: Option<Copying>,
    asked_at: u64,
    epoch: u64,
    judge: Judge,
    /// What a single message touches on this worker.
    pub(crate) footprint: Footprint,
    /// The nodes that run models.
    pub(crate) models: Vec<ModelCalls>,
}

/// A histogram copy still incomplete after this time is finished in one step, ns.
const HAND_OVER_NS: u64 = 2_000_000;

impl Cx {
    pub(crate) fn new(
        worker: usize,
        clock: Clock,
        shared: Arc<RunShared>,
        telemetry: Telemetry,
        frames: Option<u64>,
        sources: Arc<Vec<usize>>,
        poller: Rc<Poller>,
    ) -> Self {
        Cx {
            at: shared.at(worker),
            mailbox: shared.mailboxes[worker].clone(),
            copying: None,
            asked_at: 0,
            epoch: 0,
            judge: Judge::default(),
            models: Vec::new(),
            footprint: Footprint::default(),
            worker,
            watch: Watch::new(clock),
            now: 0,
            fresh: false,
            meter: Meter::new(shared.spans.get(worker).cloned().map(SpanWriter::new)),
            subjects: Vec::new(),
            shared,
            telemetry,
            frames,
            warm_at: 0,
            sources,
            poller,
            has_device: false,
        }
    }

    /// Returns the end of the last step if nothing untimed happened since; otherwise reads the
    /// clock.
    #[inline]
    pub(crate) fn mark(&mut self) -> u64 {
        if self.fresh {
            return self.now;
        }
        cold_path();
        self.read()
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        self.now = self.watch.now();
        self.fresh = true;
        self.now
    }

    /// Returns the last clock reading, however old.
    #[inline]
    pub(crate) fn latest(&self) -> u64 {
        self.now
    }

    /// Whether the worker's turns and sleeps are written.
    #[inline]
    pub(crate) fn writes_spans(&self) -> bool {
        self.meter.spans.is_some()
    }

    /// Writes what the worker did from `begin` until now.
    #[cold]
    pub(crate) fn write_span(&mut self, activity: Activity, begin: u64) {
        let end = self.watch.now();
        if let Some(spans) = &mut self.meter.spans {
            spans.write(span::SpanEntry { activity, messages: 0, begin, end });
        }
    }

    /// Marks a node as being turned.
    #[inline]
    pub(crate) fn enter(&self, node: usize) {
        self.at.enter(node);
    }

    /// Marks that no node is being turned.
    fn leave(&self) {
        self.at.leave();
    }

    /// Starts the warm-up, which lasts `ns`.
    pub(crate) fn warm_up(&mut self, ns: u64) {
        if ns > 0 {
            self.warm_at = self.read() + ns;
        }
    }

    /// Folds the log, and ends the warm-up when it is due.
    pub(crate) fn flush(&mut self) {
        if !self.meter.is_quiet() {
            self.meter.fold();
            if self.judge.is_due(self.now) || self.meter.longest_outlier() >= WORTH_ASKING_NS {
                self.ask_kernel();
            } else if self.meter.has_outliers() {
                self.judge_outliers(None);
            }
        }
        if self.warm_at != 0 && self.watch.now() >= self.warm_at {
            self.warm_at = 0;
            self.meter.clear();
            self.epoch += 1;
            self.copying = self.copying.take().map(|copying| Copying::new(copying.into_words()));
        }
        if self.mailbox.is_asked() {
            self.hand_over();
        }
        self.invalidate_clock();
    }

    /// Asks the kernel what happened to this thread, and says by that why latencies were long.
    #[cold]
    #[inline(never)]
    fn ask_kernel(&mut self) {
        // On a simulated clock, nothing takes time that the kernel knows of.
        let is_monotonic = matches!(self.watch.clock(), Clock::Monotonic);
        let now = self.watch.now();
        let passed = if is_monotonic { self.judge.ask(now) } else { None };
        self.judge_outliers(passed.as_ref());
    }

    #[cold]
    #[inline(never)]
    fn judge_outliers(&mut self, passed: Option<&ThreadActivity>) {
        while let Some(outlier) = self.meter.pop_outlier() {
            let (subject, term, _) = self.subjects[outlier.hist.index()];
            let node_of = |hist: Hist| match self.subjects[hist.index()].0 {
                Subject::Node(node) | Subject::Path(_, node) => node,
            };
            let (value, end, usual) = (outlier.value, outlier.end, outlier.usual);
            let cause = match subject {
                Subject::Path(..) => TailCause::Unexplained,
                Subject::Node(node) if self.judge.was_missing(node, end.saturating_sub(value), end) => {
                    TailCause::Restarted
                }
                Subject::Node(node) => {
                    let model = self.models.iter().find(|model| model.node == node);
                    cause_of(&outlier, term, model.copied(), passed)
                }
            };
            let (behind, cpu) = (outlier.behind.map(node_of), self.judge.cpu());
            self.shared.outliers.push(Judged { subject, term, value, end, usual, cause, behind, cpu });
        }
    }

    /// Notes that a node was missing since it failed, until now.
    #[cold]
    pub(crate) fn note_outage(&mut self, node: usize, since: u64) {
        let now = self.watch.now();
        self.judge.note_outage(node, since, now);
    }

    /// Polls the descriptors without blocking, unless that was done less than `every` ns ago.
    /// Returns whether one is ready.
    fn ask(&mut self, every: u64) -> bool {
        let now = self.watch.now();
        self.invalidate_clock();
        self.poller.ask(now, every)
    }

    /// Whether a copy of the histograms has been requested.
    fn is_handing_over(&self) -> bool {
        self.mailbox.is_asked()
    }

    /// Copies the next piece of the histograms, and hands the copy over when it is complete.
    #[cold]
    #[inline(never)]
    fn hand_over(&mut self) {
        let now = self.watch.now();
        self.meter.fold_zeros();
        if self.copying.is_none() {
            self.copying = self.mailbox.begin().map(Copying::new);
            self.asked_at = now;
        }
        let Some(copying) = &mut self.copying else { return };
        let mut is_complete = self.meter.copy_piece(copying);
        // With long turns, folds are rare, and finishing the copy costs little beside a turn.
        while !is_complete && now.saturating_sub(self.asked_at) > HAND_OVER_NS {
            is_complete = self.meter.copy_piece(copying);
        }
        if let (true, Some(copying)) = (is_complete, self.copying.take_if(|_| is_complete)) {
            self.mailbox.answer(now, self.epoch, copying.into_words());
        }
    }

    /// Allocates the buffer for histogram copies; only while building, once all histograms exist.
    fn open_mailbox(&self) {
        let part = |(subject, term, hist): &(Subject, Term, Hist)| HistogramPart {
            subject: *subject,
            term: *term,
            digits: self.meter.digits(*hist),
        };
        self.mailbox.open(self.subjects.iter().map(part).collect());
    }

    /// Adds the memory of the worker and its stages, when all nodes of the worker are built.
    fn collect_footprint(&mut self, scheduler: &Scheduler) {
        let mut footprint = std::mem::take(&mut self.footprint);
        footprint.add_value(self);
        footprint.add_value(&*self.at);
        self.meter.footprint(&mut footprint);
        scheduler.footprint(&mut footprint);
        footprint.settle();
        self.footprint = footprint;
    }

    /// Marks that untimed work has happened since the last reading.
    #[inline]
    pub(crate) fn invalidate_clock(&mut self) {
        self.fresh = false;
    }

    /// Creates a histogram of a node; only while building.
    pub(crate) fn histogram(&mut self, node: usize, term: Term, digits: u8) -> Hist {
        let hist = self.meter.histogram(digits, ledger::PathPart::of(term));
        self.subjects.push((Subject::Node(node), term, hist));
        hist
    }

    /// Creates a histogram of a path; only while building. `source` is the source's number, not its
    /// node.
    pub(crate) fn path_histogram(&mut self, source: usize, sink: usize, term: Term) -> Hist {
        let digits = if term == Term::EndToEnd { 3 } else { 2 };
        let hist = self.meter.histogram(digits, ledger::PathPart::of(term));
        self.subjects.push((Subject::Path(self.sources[source], sink), term, hist));
        hist
    }

    /// Records `n` messages with the same value, each counting for `weight`, 1 or more; what it
    /// measures has ended at the last clock reading.
    #[inline]
    pub(crate) fn record(&mut self, hist: Hist, value: u64, n: u32, weight: u32) {
        self.record_until(self.now, hist, value, n, weight);
    }

    /// As [`Cx::record`], of what has ended at `end`.
    #[inline]
    pub(crate) fn record_until(&mut self, end: u64, hist: Hist, value: u64, n: u32, weight: u32) {
        if self.telemetry != Telemetry::Off {
            self.meter.record(hist, value, n, weight, end);
        }
    }

    /// As [`Cx::record_until`], of a wait or the residual.
    #[inline]
    pub(crate) fn record_mostly_zero(&mut self, end: u64, hist: Hist, value: u64, n: u32, weight: u32) {
        if self.telemetry != Telemetry::Off {
            self.meter.record_mostly_zero(hist, value, n, weight, end);
        }
    }

    /// Records a run's waiting time until `started`, split into waiting for partners, for room, and
    /// in the queue. Returns the sum of the recorded terms.
    #[inline]
    pub(crate) fn record_wait(&mut self, common: &Common, run: &Run, started: u64) -> u64 {
        let (n, weight) = (run.n, run.weight);
        let waited = started.saturating_sub(run.sent);
        let wait = run.wait.min(waited);
        let blocked = match common.blocked_since() {
            0 => 0,
            since => started.saturating_sub(since).min(waited - wait),
        };
        if let (Some(hist), true) = (common.wait, wait > 0) {
            self.record_until(started, hist, wait, n, weight);
        }
        if let (Some(hist), true) = (common.blocked, blocked > 0) {
            self.record_until(started, hist, blocked, n, weight);
        }
        let queue = waited - wait - blocked;
        if let Some(hist) = common.queue {
            self.record_mostly_zero(started, hist, queue, n, weight);
        }
        wait + blocked + queue
    }

    /// As [`Cx::record_wait`], for one message that waited for no partner.
    #[inline]
    pub(crate) fn record_wait_single(&mut self, common: &Common, sent: u64, weight: u32, started: u64) -> u64 {
        if let (Some(hist), 0) = (common.queue, common.blocked_since()) {
            let waited = started.saturating_sub(sent);
            self.record_mostly_zero(started, hist, waited, 1, weight);
            return waited;
        }
        cold_path();
        self.record_wait(common, &Run { sent, accounted: 0, wait: 0, n: 1, weight }, started)
    }

    /// The services for a backend session on this thread.
    pub(crate) fn helpers(&self) -> Helpers {
        self.shared.helpers(self.worker)
    }

    /// The number of sources in the graph.
    pub(crate) fn source_count(&self) -> usize {
        self.sources.len()
    }

    pub(crate) fn telemetry(&self) -> Telemetry {
        self.telemetry
    }

    pub(crate) fn frames(&self) -> Option<u64> {
        self.frames
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.watch.clock()
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.shared.run_id
    }

    pub(crate) fn wall_offset(&self) -> u64 {
        self.shared.wall_offset(self.clock())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics(DynArc::new(RunStatistics(self.shared.clone())))
    }

    /// The next change from outside.
    #[inline]
    pub(crate) fn next_command(&self) -> Option<Command> {
        if self.shared.has_commands(self.worker) { self.shared.next_command(self.worker) } else { None }
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.shared.is_aborted()
    }
}

/// Builds one worker's stages on its thread.
pub(crate) type BuildStages = Box<dyn FnOnce(&mut Cx) -> Result<Vec<Box<dyn Stage>>, BuildError> + Send>;

/// Everything a worker needs to start.
pub(crate) struct WorkerStart {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) place: ThreadPlace,
    /// Whether it is a helper thread, whose core may have a worker.
    pub(crate) is_helper: bool,
    pub(crate) schedule: Schedule,
    pub(crate) nodes: Vec<usize>,
    /// How to start it, if the runtime of one of its models says so.
    pub(crate) host: Option<WorkerHost>,
    pub(crate) build: BuildStages,
}

impl WorkerStart {
    /// Builds the nodes on the calling thread.
    pub(crate) fn build(self, cx: &mut Cx) -> Result<Scheduler, BuildError> {
        let build = self.build;
        let stages = match crate::exec::stage::guarded("build", || Ok(build(cx))) {
            Ok(built) => built?,
            Err(failure) => {
                return Err(BuildError { node: self.nodes.first().copied().unwrap_or(0), text: failure.into_text() });
            }
        };
        cx.leave();
        cx.open_mailbox();
        Ok(Scheduler::new(stages, &self.nodes, self.schedule))
    }
}

/// The result of a worker.
pub(crate) struct WorkerOutcome {
    pub(crate) worker: usize,
    pub(crate) histograms: Vec<(Subject, Term, Recorded)>,
    pub(crate) ended: Vec<Ended>,
    /// A panic outside any node: an engine bug.
    pub(crate) bug: Option<String>,
}

impl WorkerOutcome {
    /// Ends a worker's nodes and collects their results.
    pub(crate) fn of(worker: usize, scheduler: Scheduler, mut cx: Cx, bug: Option<String>) -> Self {
        let ended = scheduler.end(&mut cx);
        cx.meter.fold();
        cx.meter.fold_zeros();
        cx.ask_kernel();
        if let Some(spans) = &mut cx.meter.spans {
            spans.hand_over();
        }
        cx.mailbox.close();
        cx.leave();
        let subjects = std::mem::take(&mut cx.subjects);
        let histograms =
            subjects.into_iter().map(|(subject, term, hist)| (subject, term, cx.meter.recorded(hist))).collect();
        WorkerOutcome { worker, histograms, ended, bug }
    }
}

/// The body of a worker's thread.
pub(crate) fn work(plan: WorkerStart, mut cx: Cx, warmup: u64) -> WorkerOutcome {
    let shared = cx.shared.clone();
    let bell = shared.bell(plan.index);
    bell.set_sleeper();
    let pinned = cpu::apply(&plan.place);
    let index = plan.index;
    let (wait, is_helper) = (plan.place.wait, plan.is_helper);
    let mut bug = None;
    let (mut scheduler, error) = match plan.build(&mut cx) {
        Ok(scheduler) => {
            cx.collect_footprint(&scheduler);
            (scheduler, None)
        }
        Err(error) => (Scheduler::new(Vec::new(), &[], Schedule::default()), Some(error)),
    };
    let go = shared.built(index, pinned, error);
    if go {
        cx.warm_up(warmup);
        let mut idler = Idler::new(wait, is_helper, bell);
        // Node code is guarded call by call. A panic here is the engine's own, and must not hang
        // the other workers.
        if let Err(failure) = crate::exec::stage::guarded("run", || {
            scheduler.run(&mut cx, &mut idler);
            Ok(())
        }) {
            bug = Some(failure.into_text());
            shared.abort();
        }
    }
    WorkerOutcome::of(index, scheduler, cx, bug)
}

/// Starts a worker's thread.
///
/// # Errors
/// The error of the operating system if the thread cannot be started.
pub(crate) fn spawn(
    plan: WorkerStart,
    cx: impl FnOnce() -> Cx + Send + 'static,
    warmup: u64,
    done: std::sync::mpsc::SyncSender<WorkerOutcome>,
) -> std::io::Result<JoinHandle<()>> {
    let (name, host) = (plan.name.clone(), plan.host);
    let mut start = Some((plan, cx));
    let mut body = move || {
        let Some((plan, cx)) = start.take() else { return };
        crate::host::files::outlive_size_limit();
        let outcome = work(plan, cx(), warmup);
        // The receiver is dropped only if the run was abandoned.
        let _ = done.send(outcome);
    };
    // The kernel shows the name of a worker on one thread.
    let started = host.map_or_else(|| name.clone(), |_| "limen-host".into());
    std::thread::Builder::new().name(started).spawn(move || match host {
        Some(host) => host(&mut || {
            crate::host::thread::adopt(&name);
            body();
        }),
        None => body(),
    })
}
