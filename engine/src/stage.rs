//! Stages: a node with its inputs, outputs, counters and loop body.
//!
//! [`Stage`] is the one erased trait. A worker turns its stages one after the other; a stage alone on its core is left
//! to its own [`Stage::run`], which the compiler makes once for every concrete stage, so that no call inside it is
//! indirect. A turn is one bounded piece of work: at most [`BURST`] messages, or as many as take about 20 µs.

use crate::edge::{Reason, State};
use crate::error::NodeError;
use crate::intake::{Burst, Intake, Left};
use crate::meter::{Hist, Sampler, Term};
use crate::node::{Inputs, Metrics, Next, Node, Sink, Source, Transform};
use crate::port::{Emit, PortSet, push_origin};
use crate::running::Failure;
use crate::sync::{Arc, Counter};
use crate::worker::{Cx, Idler};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most messages a stage takes in one turn. 64 gets most of what batching can give cheap nodes; 16 was too few.
pub(crate) const BURST: usize = 64;
/// A turn should not take longer than this, ns.
const TURN_NS: u64 = 20_000;
/// Calls above this, ns, are stamped and published singly.
const SLOW_NS: u64 = 1_000;
/// A stage that nothing recorded passes through is timed once in so many turns, to know how long its calls take.
const PROBE: u32 = 32;

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something moved.
    Worked,
    /// Nothing to do before this time.
    Idle(u64),
    /// There is work but no room for its results.
    Blocked,
    /// Work was submitted to a device and is not finished.
    #[allow(dead_code, reason = "asked of backends with asynchronous sessions")]
    Pending,
    /// The stage has ended.
    Done,
}

/// What happens when a call of a node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run drains and ends with exit code 1.
    #[default]
    Stop,
    /// The call's inputs count as failed; the node goes on.
    Skip,
    /// The node is taken out; the rest goes on.
    Detach,
}

impl OnError {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            OnError::Stop => "stop",
            OnError::Skip => "skip",
            OnError::Detach => "detach",
        }
    }
}

/// What a node did; one writer, the report reads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Calls that were given something, or that a source was asked for.
    pub(crate) taken: Counter,
    pub(crate) done: Counter,
    pub(crate) failed: Counter,
    /// Calls begun and not ended: 1 while a call runs, plus what a batch holds.
    pub(crate) held: Counter,
    pub(crate) turns: Counter,
    pub(crate) pool_empty: Counter,
    /// Calls that were really made of a batching backend, and the messages in them.
    pub(crate) batches: Counter,
}

/// A node at work.
pub(crate) trait Stage {
    /// One bounded piece of work.
    fn turn(&mut self, cx: &mut Cx) -> Turn;

    /// Turns until the stage has ended or the run is aborted; for a stage alone on its worker.
    fn run(&mut self, cx: &mut Cx, idler: &mut Idler) {
        while !cx.is_aborted() {
            let turn = self.turn(cx);
            if turn == Turn::Done || !idler.after(cx, turn) {
                break;
            }
            cx.obey(|_, name, value| self.set(name, value));
        }
    }

    /// Drops the node and says what is left.
    fn end(self: Box<Self>, cx: &mut Cx) -> Ended;

    /// Changes a setting of the node.
    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError>;
}

/// What a stage leaves behind.
pub(crate) struct Ended {
    pub(crate) node: usize,
    pub(crate) metrics: Metrics,
    pub(crate) left: Vec<Left>,
}

/// Whether the node is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The node has failed; what still comes is lost for this reason.
    Gone(Reason),
    Ended,
}

/// The half of a stage that knows neither node nor payload.
pub(crate) struct Common {
    pub(crate) node: usize,
    pub(crate) on_error: OnError,
    pub(crate) counts: Arc<Counts>,
    pub(crate) compute: Hist,
    pub(crate) queue: Option<Hist>,
    pub(crate) hold: Option<Hist>,
    pub(crate) blocked: Option<Hist>,
    life: Life,
    /// Mean time of a call, ns; 0 before the first was timed.
    call_ns: u64,
    /// How many messages one turn may take: what fits into 20 µs.
    limit: usize,
    turns: u32,
    blocked_since: u64,
}

impl Common {
    /// `first_limit` is how many messages the first turn may take, before any call was timed.
    pub(crate) fn new(node: usize, on_error: OnError, counts: Arc<Counts>, first_limit: usize, cx: &mut Cx) -> Self {
        Common {
            node,
            on_error,
            counts,
            compute: cx.histogram(node, Term::Compute, 2),
            queue: None,
            hold: None,
            blocked: None,
            life: Life::Open,
            call_ns: 0,
            limit: first_limit,
            turns: 0,
            blocked_since: 0,
        }
    }

    fn takes(&mut self, inputs: usize, cx: &mut Cx) {
        self.queue = Some(cx.histogram(self.node, Term::Queue, 2));
        if inputs > 1 {
            self.hold = Some(cx.histogram(self.node, Term::Hold, 2));
        }
    }

    /// How many messages one turn may take.
    #[inline]
    fn limit(&self, perishable: bool) -> usize {
        if perishable && self.is_slow() {
            return 1;
        }
        self.limit
    }

    #[inline]
    fn is_slow(&self) -> bool {
        self.call_ns > SLOW_NS
    }

    fn learn(&mut self, ns: u64, calls: usize) {
        let call = (ns / calls.max(1) as u64).max(1);
        self.call_ns = if self.call_ns == 0 { call } else { self.call_ns - self.call_ns / 4 + call / 4 };
        self.limit = ((TURN_NS / self.call_ns.max(1)) as usize).clamp(1, BURST);
    }

    /// Since when the stage has had work but no room; 0 when it has.
    #[inline]
    pub(crate) fn blocked_since(&self) -> u64 {
        self.blocked_since
    }

    fn note_blocked(&mut self, cx: &mut Cx) {
        if self.blocked_since == 0 {
            self.blocked_since = cx.mark();
        }
    }

    /// What becomes of the node's inputs after it failed.
    fn gone(&mut self) -> Reason {
        let reason = if self.on_error == OnError::Detach { Reason::Detached } else { Reason::ConsumerGone };
        self.life = Life::Gone(reason);
        reason
    }

    /// Records a failure and what the policy makes of it.
    #[cold]
    fn report(&self, cx: &Cx, call: &'static str, error: Trouble) -> bool {
        let skip = self.on_error == OnError::Skip;
        let number = self.counts.done.get() + self.counts.failed.get();
        let (text, panicked) = match error {
            Trouble::Error(error) => (error.to_string(), false),
            Trouble::Panic(text) => (text, true),
        };
        cx.shared.fail(Failure { node: self.node, call, number, text, panicked }, self.on_error);
        skip
    }
}

/// How a call failed.
pub(crate) enum Trouble {
    Error(NodeError),
    Panic(String),
}

/// Runs node code: a panic becomes an error of that node.
pub(crate) fn guarded<R>(call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Trouble::Error(error)),
        Err(panic) => Err(Trouble::Panic(crate::running::panic_text(&*panic))),
    }
}

/// What a stage does with one message; transforms and sinks differ only in this.
trait Work<T> {
    /// Gives the node one message.
    fn call(&mut self, item: T) -> Result<(), NodeError>;
    /// Looks at a message that is recorded, before it is given away.
    fn note(&mut self, item: &T);
    /// Takes back what a call that did not return had emitted.
    fn rollback(&mut self);
    /// The messages since the last portion have this ledger.
    fn portion(&mut self, accounted: u64, weight: u32);
    /// The staged portions are published: `compute` was the last term of each.
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError>;
}

/// Gives the node up to `n` items. The one loop that runs once per message, with the node's call inside it and nothing
/// else; kept out of line so that it is compiled once per stage, with all registers to itself.
#[inline(never)]
fn call_some<T, W: Work<T>>(
    items: &mut std::vec::Drain<'_, T>,
    n: usize,
    noted: bool,
    work: &mut W,
) -> Result<(), NodeError> {
    if noted {
        let slice = items.as_slice();
        slice[..n.min(slice.len())].iter().for_each(|item| work.note(item));
    }
    for item in items.by_ref().take(n) {
        work.call(item)?;
    }
    Ok(())
}

/// Inputs, and the messages taken from them for the current turn.
struct Feed<I: Intake> {
    intake: I,
    burst: Burst<I::Taken>,
}

impl<I: Intake> Feed<I> {
    fn new(intake: I) -> Self {
        let burst = Burst::with_capacity(intake.buffer());
        Feed { intake, burst }
    }

    /// Takes `n` calls' worth and gives them to the node. `Err` when the node is to be taken out.
    #[inline]
    fn process<W: Work<I::Taken>>(
        &mut self,
        n: usize,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), (&'static str, Trouble)> {
        self.intake.fill(n, &mut self.burst);
        let Burst { items, portions } = &mut self.burst;
        let recorded = portions.iter().any(|p| p.run.is_recorded());
        let slow = common.is_slow();
        common.turns = common.turns.wrapping_add(1);
        let timed = recorded || slow || common.turns % PROBE == 1;
        let started = if timed { cx.mark() } else { 0 };
        let (mut given, mut failed) = (0u64, 0u64);
        let mut from = started;
        let mut items = items.drain(..);
        let skip = common.on_error == OnError::Skip;
        let (mut at, mut left, mut behind, mut accounted) = (0, 0usize, 0, 0);
        // Iterator and position live outside the guarded call, so that a call that fails leaves the rest where it is.
        let mut result = loop {
            let before = items.len();
            let outcome = guarded(|| {
                while at < portions.len() {
                    let portion = &portions[at];
                    let weight = if portion.run.is_recorded() { portion.run.weight } else { 0 };
                    if left == 0 {
                        left = portion.run.n as usize;
                        if weight > 0 {
                            accounted = portion.run.accounted + cx.record_wait(common, portion, started);
                        }
                    }
                    // How many items stay behind this portion's.
                    behind = items.len().saturating_sub(left);
                    if slow {
                        while items.len() > behind {
                            call_some(&mut items, 1, weight > 0, work)?;
                            let end = cx.read();
                            let compute = end - from;
                            cx.record(common.compute, compute, weight.max(1));
                            // Later messages of the burst waited for this one: to them that was time in the queue.
                            work.portion(accounted + (from - started), weight);
                            work.publish(cx, end, compute)?;
                            from = end;
                        }
                    } else {
                        call_some(&mut items, left, weight > 0, work)?;
                        work.portion(accounted, weight);
                    }
                    left = 0;
                    at += 1;
                }
                Ok(())
            });
            let now_given = before - items.len();
            given += now_given as u64;
            match outcome {
                Ok(()) => break Ok(()),
                Err(trouble) => {
                    work.rollback();
                    failed += 1;
                    if !skip {
                        break Err(("call", trouble));
                    }
                    common.report(cx, "call", trouble);
                    // Go on behind the message that failed, in its portion.
                    left = items.len().saturating_sub(behind);
                    if left == 0
                        && let Some(portion) = portions.get(at)
                    {
                        work.portion(accounted, if portion.run.is_recorded() { portion.run.weight } else { 0 });
                        at += 1;
                    }
                }
            }
        };
        let unfinished = items.len() as u64;
        drop(items);
        if timed {
            let end = if slow { from } else { cx.read() };
            if !slow {
                for portion in portions.iter().filter(|p| p.run.is_recorded()) {
                    cx.record(common.compute, end - started, portion.run.weighted());
                }
                if result.is_ok() {
                    result = work.publish(cx, end, end - started).map_err(|e| ("emit", Trouble::Error(e)));
                }
            }
            common.learn(end - started, given as usize);
        } else {
            if result.is_ok() {
                result = work.publish(cx, 0, 0).map_err(|e| ("emit", Trouble::Error(e)));
            }
            cx.stale();
        }
        portions.clear();
        common.counts.taken.add(given);
        common.counts.done.add(given - failed);
        common.counts.failed.add(failed);
        self.intake.received(given);
        if unfinished > 0 {
            let reason = if common.on_error == OnError::Detach { Reason::Detached } else { Reason::ConsumerGone };
            self.intake.lose(reason, unfinished);
        }
        self.intake.ring();
        common.blocked_since = 0;
        result
    }

    /// The turn of a stage whose node is gone: what comes is lost and counted, so that no producer waits for it.
    fn drain(&mut self, common: &mut Common, reason: Reason) -> Turn {
        self.intake.discard(reason);
        if self.intake.state() == State::Open {
            Turn::Idle(u64::MAX)
        } else {
            common.life = Life::Ended;
            Turn::Done
        }
    }
}

/// A node with inputs and outputs.
pub(crate) struct TransformStage<N: Transform> {
    common: Common,
    feed: Feed<<N::In as Inputs>::Intake>,
    work: TransformWork<N>,
}

struct TransformWork<N: Transform> {
    node: Option<N>,
    emit: Emit<N::Out>,
}

impl<N: Transform> Work<<N::In as Inputs>::Taken> for TransformWork<N> {
    #[inline(always)]
    fn call(&mut self, item: <N::In as Inputs>::Taken) -> Result<(), NodeError> {
        self.emit.ports.begin();
        // The node is there while the stage's life is `Open`.
        let Some(node) = &mut self.node else { return Ok(()) };
        match node.apply(item, &mut self.emit).and_then(|()| self.emit.ports.commit()) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.emit.ports.rollback();
                Err(error)
            }
        }
    }
    #[inline]
    fn note(&mut self, _: &<N::In as Inputs>::Taken) {}
    fn rollback(&mut self) {
        self.emit.ports.rollback();
    }
    #[inline]
    fn portion(&mut self, accounted: u64, weight: u32) {
        self.emit.ports.portion(accounted, weight);
    }
    #[inline]
    fn publish(&mut self, _: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        self.emit.ports.publish(sent, compute)
    }
}

impl<N: Transform> TransformStage<N> {
    pub(crate) fn new(
        node: N,
        mut common: Common,
        intake: <N::In as Inputs>::Intake,
        emit: Emit<N::Out>,
        inputs: usize,
        cx: &mut Cx,
    ) -> Self {
        common.takes(inputs, cx);
        common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        TransformStage { common, feed: Feed::new(intake), work: TransformWork { node: Some(node), emit } }
    }

    /// Calls `finish` or `wake`, whose outputs have no ledger: they descend from no single message.
    fn extra(&mut self, cx: &mut Cx, what: &'static str) -> Result<(), ()> {
        let work = &mut self.work;
        work.emit.ports.begin();
        let outcome = guarded(|| {
            let Some(node) = &mut work.node else { return Ok(()) };
            match what {
                "finish" => node.finish(&mut work.emit)?,
                _ => node.wake(&mut work.emit)?,
            }
            work.emit.ports.commit()
        });
        let outcome = match outcome {
            Ok(()) => {
                work.emit.ports.portion(0, 0);
                work.emit.ports.publish(0, 0).map_err(Trouble::Error)
            }
            Err(trouble) => {
                work.emit.ports.rollback();
                Err(trouble)
            }
        };
        cx.stale();
        outcome.map_err(|trouble| self.fail(cx, what, trouble))
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, call: &'static str, trouble: Trouble) {
        self.work.emit.ports.rollback();
        if self.common.report(cx, call, trouble) {
            return;
        }
        let reason = self.common.gone();
        // What earlier calls of this turn emitted was good.
        self.work.emit.ports.portion(0, 0);
        let _ = self.work.emit.ports.publish(0, 0);
        drop_node(&mut self.work.node, &self.common, cx);
        self.work.emit.ports.each(&mut |port| port.close(true));
        self.feed.intake.discard(reason);
    }
}

/// Drops a node; a panic in its `Drop` is reported and goes no further.
fn drop_node<N: Node>(node: &mut Option<N>, common: &Common, cx: &Cx) {
    let node = node.take();
    if let Err(trouble) = guarded(|| {
        drop(node);
        Ok(())
    }) {
        common.report(cx, "drop", trouble);
    }
}

fn metrics_of<N: Node>(node: &Option<N>, common: &Common, cx: &Cx) -> Metrics {
    let mut metrics = Metrics::default();
    if let Some(node) = node
        && let Err(trouble) = guarded(|| {
            node.metrics(&mut metrics);
            Ok(())
        })
    {
        common.report(cx, "metrics", trouble);
    }
    metrics
}

impl<N: Transform> Stage for TransformStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Gone(reason) => return self.feed.drain(&mut self.common, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        let emit = &mut self.work.emit;
        if emit.wake.0 != u64::MAX && emit.wake.0 <= cx.mark() && emit.ports.room(1, cx) > 0 {
            emit.now = crate::clock::Time(cx.mark());
            emit.wake = crate::clock::Time::NEVER;
            if self.extra(cx, "wake").is_err() {
                return Turn::Worked;
            }
            self.work.emit.ports.ring();
        }
        let limit = self.common.limit(self.feed.intake.is_perishable());
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            self.feed.intake.ring();
            let state = self.feed.intake.state();
            if state == State::Open {
                return Turn::Idle(self.work.emit.wake.0);
            }
            if self.work.emit.ports.room(1, cx) == 0 {
                self.common.note_blocked(cx);
                return Turn::Blocked;
            }
            if self.extra(cx, "finish").is_ok() || self.common.life == Life::Open {
                self.work.emit.ports.each(&mut |port| port.close(state == State::Failed));
                self.common.life = Life::Ended;
            }
            return Turn::Worked;
        }
        let room = self.work.emit.ports.room(available, cx);
        let room = self.feed.intake.room(room);
        if room == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.work.emit.ports, &self.common.counts);
        }
        self.work.emit.now = crate::clock::Time(cx.latest());
        if let Err((call, trouble)) = self.feed.process(room, &mut self.common, cx, &mut self.work) {
            self.fail(cx, call, trouble);
        }
        self.work.emit.ports.ring();
        Turn::Worked
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        let metrics = metrics_of(&self.work.node, &self.common, cx);
        drop_node(&mut self.work.node, &self.common, cx);
        Ended { node: self.common.node, metrics, left: self.feed.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        self.work.node.as_mut().map_or(Ok(()), |node| node.set(name, value))
    }
}

/// Blocked, or merely letting a ring come free a little more.
fn blocked(ports: &mut impl PortSet, counts: &Counts) -> Turn {
    let (mut settling, mut empty) = (false, false);
    ports.each(&mut |port| {
        settling |= port.is_settling();
        empty |= port.pool_is_empty();
    });
    if empty {
        counts.pool_empty.add(1);
    }
    // At once: the 20 µs of a settling ring are shorter than any sleep.
    if settling { Turn::Idle(0) } else { Turn::Blocked }
}

/// A node without outputs.
pub(crate) struct SinkStage<N: Sink> {
    common: Common,
    feed: Feed<<N::In as Inputs>::Intake>,
    work: SinkWork<N>,
    dirty: bool,
}

struct SinkWork<N: Sink> {
    node: Option<N>,
    /// End-to-end histogram by source.
    paths: Vec<Option<Hist>>,
    closure: Hist,
    origins: Vec<(u64, u32)>,
    source: usize,
    /// Ledger and weight of the portions of this turn, with how many entries of `origins` were there before.
    ledgers: Vec<(u64, u32, usize)>,
}

impl<N: Sink> Work<<N::In as Inputs>::Taken> for SinkWork<N> {
    #[inline(always)]
    fn call(&mut self, item: <N::In as Inputs>::Taken) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        node.take(item)
    }
    #[inline]
    fn note(&mut self, item: &<N::In as Inputs>::Taken) {
        let header = <N::In as Inputs>::Intake::header(item);
        self.source = header.source as usize;
        push_origin(&mut self.origins, header.origin);
    }
    fn rollback(&mut self) {}
    #[inline]
    fn portion(&mut self, accounted: u64, weight: u32) {
        if weight > 0 {
            self.ledgers.push((accounted, weight, self.origins.len()));
        }
    }
    #[inline]
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        let mut from = 0;
        for (accounted, weight, to) in self.ledgers.drain(..) {
            for (origin, n) in &self.origins[from..to] {
                if let Some(Some(path)) = self.paths.get(self.source) {
                    cx.record(*path, sent.saturating_sub(*origin), n * weight);
                }
                cx.record(self.closure, sent.abs_diff(accounted + compute), n * weight);
            }
            from = to;
        }
        self.origins.clear();
        Ok(())
    }
}

impl<N: Sink> SinkStage<N> {
    /// `sources` are the indices of the sources whose messages get here.
    pub(crate) fn new(
        node: N,
        mut common: Common,
        intake: <N::In as Inputs>::Intake,
        inputs: usize,
        sources: &[usize],
        cx: &mut Cx,
    ) -> Self {
        common.takes(inputs, cx);
        let mut paths = vec![None; sources.iter().max().map_or(0, |m| m + 1)];
        for source in sources {
            paths[*source] = Some(cx.path_histogram(*source, common.node));
        }
        let work = SinkWork {
            node: Some(node),
            paths,
            closure: cx.histogram(common.node, Term::Closure, 2),
            origins: Vec::with_capacity(BURST),
            source: 0,
            ledgers: Vec::with_capacity(BURST + 1),
        };
        SinkStage { common, feed: Feed::new(intake), work, dirty: false }
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, call: &'static str, trouble: Trouble) {
        self.work.origins.clear();
        self.work.ledgers.clear();
        if self.common.report(cx, call, trouble) {
            return;
        }
        let reason = self.common.gone();
        drop_node(&mut self.work.node, &self.common, cx);
        self.feed.intake.discard(reason);
    }

    fn extra(&mut self, cx: &mut Cx, what: &'static str) {
        let node = &mut self.work.node;
        let outcome = guarded(|| {
            let Some(node) = node else { return Ok(()) };
            if what == "finish" { node.finish() } else { node.flush() }
        });
        cx.stale();
        if let Err(trouble) = outcome {
            self.fail(cx, what, trouble);
        }
    }
}

impl<N: Sink> Stage for SinkStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Gone(reason) => return self.feed.drain(&mut self.common, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        let limit = self.common.limit(self.feed.intake.is_perishable());
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            self.feed.intake.ring();
            if self.feed.intake.state() != State::Open {
                self.extra(cx, "finish");
                if self.common.life == Life::Open {
                    self.common.life = Life::Ended;
                }
                return Turn::Worked;
            }
            if std::mem::take(&mut self.dirty) {
                self.extra(cx, "flush");
            }
            return Turn::Idle(u64::MAX);
        }
        self.dirty = true;
        if let Err((call, trouble)) = self.feed.process(available, &mut self.common, cx, &mut self.work) {
            self.fail(cx, call, trouble);
        }
        Turn::Worked
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        let metrics = metrics_of(&self.work.node, &self.common, cx);
        drop_node(&mut self.work.node, &self.common, cx);
        Ended { node: self.common.node, metrics, left: self.feed.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        self.work.node.as_mut().map_or(Ok(()), |node| node.set(name, value))
    }
}

/// A node without inputs.
pub(crate) struct SourceStage<N: Source> {
    common: Common,
    node: Option<N>,
    emit: Emit<N::Out>,
    sampler: Sampler,
    term: Hist,
    origins: Vec<(u64, u32)>,
    /// Nothing before this time.
    due: u64,
    after_idle: bool,
}

impl<N: Source> SourceStage<N> {
    pub(crate) fn new(node: N, common: Common, emit: Emit<N::Out>, cx: &mut Cx) -> Self {
        let term = cx.histogram(common.node, Term::Source, 2);
        let sampler = Sampler::new(cx.telemetry());
        let origins = Vec::with_capacity(BURST);
        SourceStage { common, node: Some(node), emit, sampler, term, origins, due: 0, after_idle: true }
    }

    fn finish(&mut self, failed: bool) -> Turn {
        self.emit.ports.each(&mut |port| port.close(failed));
        self.common.life = Life::Ended;
        Turn::Worked
    }
}

impl<N: Source> Stage for SourceStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        if self.common.life != Life::Open {
            return Turn::Done;
        }
        self.common.counts.turns.add(1);
        if cx.is_stopping() || cx.frames().is_some_and(|n| self.emit.seq >= n) {
            return self.finish(false);
        }
        let started = cx.read();
        if started < self.due {
            self.after_idle = true;
            return Turn::Idle(self.due);
        }
        let mut limit = self.common.limit(false);
        if let Some(frames) = cx.frames() {
            limit = limit.min((frames - self.emit.seq) as usize);
        }
        let room = self.emit.ports.room(limit, cx);
        if room == 0 {
            self.after_idle = true;
            return blocked(&mut self.emit.ports, &self.common.counts);
        }
        self.emit.now = crate::clock::Time(started);
        let (mut done, mut failed) = (0u64, 0u64);
        let mut next = Next::More;
        let (emit, node) = (&mut self.emit, &mut self.node);
        let skip = self.common.on_error == OnError::Skip;
        let common = &self.common;
        let outcome = guarded(|| {
            let Some(node) = node else { return Ok(()) };
            while next == Next::More && done + failed < room as u64 {
                emit.ports.begin();
                match node.next(emit).and_then(|next| emit.ports.commit().map(|()| next)) {
                    Ok(n) => {
                        next = n;
                        // A call that sent nothing has no sequence number. One that wants to be called again all the
                        // same, the source is polling for something: the others get their turn first.
                        if !emit.ports.has_emitted() {
                            break;
                        }
                        done += 1;
                        emit.seq += 1;
                    }
                    Err(error) => {
                        failed += 1;
                        emit.ports.rollback();
                        emit.seq += 1;
                        if !skip {
                            return Err(error);
                        }
                        common.report(cx, "next", Trouble::Error(error));
                    }
                }
            }
            Ok(())
        });
        if outcome.is_err() {
            self.emit.ports.rollback();
        }
        let weight = self.sampler.weight(self.after_idle);
        self.after_idle = false;
        let end = cx.read();
        if done + failed > 0 {
            self.common.learn(end - started, (done + failed) as usize);
        }
        if weight > 0 && done > 0 {
            let n = u32::try_from(done).unwrap_or(u32::MAX) * weight;
            cx.record(self.common.compute, end - started, n);
            self.origins.clear();
            let origins = &mut self.origins;
            // Ports of one call share their origin; the first that has messages stands for all.
            self.emit.ports.each(&mut |port| {
                if origins.is_empty() {
                    port.origins(origins);
                }
            });
            for (origin, n) in self.origins.drain(..) {
                cx.record(self.term, end.saturating_sub(origin), n * weight);
            }
        }
        // The ledger begins here: source time is measured from each message's own origin.
        self.emit.ports.portion(end, weight);
        let published = self.emit.ports.publish(end, 0).map_err(Trouble::Error);
        self.emit.ports.ring();
        let outcome = outcome.map_err(|trouble| {
            failed += u64::from(matches!(trouble, Trouble::Panic(_)));
            trouble
        });
        self.common.counts.taken.add(done + failed);
        self.common.counts.done.add(done);
        self.common.counts.failed.add(failed);
        if let Err(trouble) = outcome.and(published)
            && !self.common.report(cx, "next", trouble)
        {
            self.common.gone();
            drop_node(&mut self.node, &self.common, cx);
            return self.finish(true);
        }
        match next {
            Next::More if done + failed == 0 => Turn::Idle(0),
            Next::More => Turn::Worked,
            Next::At(time) => {
                self.due = time.0;
                self.after_idle = true;
                if time.0 <= end { Turn::Worked } else { Turn::Idle(time.0) }
            }
            Next::Done => self.finish(false),
        }
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        let metrics = metrics_of(&self.node, &self.common, cx);
        drop_node(&mut self.node, &self.common, cx);
        Ended { node: self.common.node, metrics, left: Vec::new() }
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        self.node.as_mut().map_or(Ok(()), |node| node.set(name, value))
    }
}
