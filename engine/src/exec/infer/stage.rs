//! The stage that runs a model.

mod call;
mod device;

use crate::base::unit::Span;
use crate::edge::{EdgeState, Reason};
use crate::exec::infer::flight::Flight;
use crate::exec::infer::session::AnySession;
use crate::exec::infer::side::BatchBuffer;
use crate::exec::infer::{Batch, Make};
use crate::exec::outlier::ModelCalls;
use crate::exec::stage::{
    CallFailure, Common, DeviceWait, Ended, Life, Peak, Readiness, Stage, Turn, blocked, filter_burst, guarded,
    note_skew, refuse,
};
use crate::exec::worker::Cx;
use crate::ledger::Run;
use crate::ledger::{Hist, Term};
use crate::message::origins::Origins;
use crate::message::tensor::Tensor;
use crate::node::backend::{BackendError, BackendStatus, SessionMetadata, Signature, TensorSpec};
use crate::node::metrics::Metrics;
use crate::node::{Many, MessageSet};
use crate::port::emit::Emit;
use crate::port::error::{NodeError, NodeErrorKind};
use crate::port::intake::{Intake, TakenBurst, ZipMany};
use crate::port::output::PortSet;
use std::collections::VecDeque;

/// A message waiting in the batch.
pub(super) struct Held {
    pub(super) set: MessageSet<Tensor>,
    run: Run,
    since: u64,
}

fn session_of(session: &mut Option<Box<dyn AnySession>>) -> Result<&mut dyn AnySession, BackendError> {
    match session {
        Some(session) => Ok(&mut **session),
        None => Err(BackendError::Call("the session of the model has ended".into())),
    }
}

/// Creates a session for this thread. Also returns whether it wakes the worker when a call has
/// finished.
fn begin(make: &Make, max: usize, cx: &Cx) -> Result<(Box<dyn AnySession>, bool), BackendError> {
    let mut session = make.prepared.session(max, cx.source_count(), make.resets)?;
    // A program that drives the graph itself gets no threads; those of a device are its own.
    let wakes = (make.residence.is_some() || !cx.shared.is_turned_here()) && session.begin(&cx.helpers())?;
    Ok((session, wakes))
}

/// Longest sleep while calls are in flight that will wake the worker, ns.
const LOOK_NS: u64 = 1_000_000;

/// Calls that keep a model warm.
#[derive(Debug, Default)]
struct Warmth {
    /// How long without a call, ns; 0 for never.
    after: u64,
    /// When the last call ended; 0 before the first.
    last: u64,
    calls: u64,
}

pub(super) struct InferStage {
    common: Common,
    intake: ZipMany<Tensor>,
    burst: TakenBurst<MessageSet<Tensor>>,
    held: VecDeque<Held>,
    /// The origins of the messages in `held`, if tracked.
    origins: VecDeque<Origins>,
    make: Make,
    session: Option<Box<dyn AnySession>>,
    /// Figures of the last session that was dropped.
    figures: Metrics,
    /// Whether each call of a stream depends on the one before.
    is_stateful: bool,
    /// Calls in flight, oldest first, and their maximum number.
    flights: VecDeque<Flight>,
    max_in_flight: usize,
    /// Whether calls finish later.
    is_async: bool,
    /// The most that were in flight at once.
    peak: usize,
    /// Whether the session wakes this worker when a call has finished.
    wakes: bool,
    /// A gap occurred while calls were in flight.
    reset_pending: bool,
    /// Finished flights, for reuse.
    spare: Vec<Flight>,
    inputs: Vec<BatchBuffer>,
    outputs: Vec<BatchBuffer>,
    emit: Emit<Many<Tensor>>,
    max: usize,
    within: u64,
    stride: usize,
    sizes: Hist,
    /// How long messages wait between being taken and their call, if they do: for the rest of a
    /// batch, or for calls in flight.
    batch_wait: Option<Hist>,
    /// What calls take on the device.
    device_time: Option<Hist>,
    /// Messages in all calls; those kept as context count in each.
    called: u64,
    /// Durations of calls, by number of messages.
    calls: Vec<Peak>,
    warmth: Warmth,
    /// When the batch is to close, 0 while none waits; and how much later its call began.
    closes: u64,
    late: Peak,
}

impl InferStage {
    pub(super) fn new(
        make: Make,
        batch: Batch,
        mut common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Self, NodeError> {
        common.queue = Some(cx.histogram(common.node, Term::Queue, 2));
        if common.joins {
            common.wait = Some(cx.histogram(common.node, Term::Wait, 2));
        }
        common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        common.compute = cx.histogram(common.node, Term::Compute, 3);
        common.note_joins(cx);
        let (session, wakes) = begin(&make, batch.max, cx)?;
        let (residence, is_stateful) = (make.residence, make.prepared.is_stateful());
        // Calls of a stateful stream depend on each other, so only one may be in flight. A program
        // that drives the graph itself, perhaps on its own clock, gets no threads.
        let one_by_one = is_stateful || cx.shared.is_turned_here();
        let max_in_flight = match residence {
            Some(residence) => residence.calls,
            None if one_by_one => 1,
            None => session.in_flight().max(1),
        };
        let is_async = max_in_flight > 1 || residence.is_some();
        cx.has_device |= residence.is_some();
        let (node, has_batches, joins) = (common.node, batch.max > 1, common.joins);
        cx.models.push(ModelCalls { node, is_async, has_batches, joins });
        let wait = if joins { Term::BatchWait } else { Term::Wait };
        let batch_wait = (has_batches || is_async).then(|| cx.histogram(node, wait, 2));
        cx.shared.backend(common.node, |status| {
            let SessionMetadata { device, threads, memory, .. } = session.metadata();
            let backend = make.backend;
            *status = BackendStatus { backend, device, threads, memory, ready: true, ..BackendStatus::default() };
        });
        let signature: &Signature = make.prepared.signature();
        let sides = |specs: &[TensorSpec], on_device: bool| -> Result<Vec<BatchBuffer>, NodeError> {
            specs.iter().map(|s| BatchBuffer::new(s, batch.max, on_device)).collect()
        };
        let (in_device, out_device) = residence.map_or((false, false), |at| (at.inputs, at.outputs));
        let kept = if in_device { batch.max * signature.inputs.len() } else { 0 };
        let spare =
            std::iter::repeat_with(|| Flight::new(batch.max, common.traced, kept)).take(max_in_flight).collect();
        let origins = VecDeque::with_capacity(if common.traced { batch.max } else { 0 });
        let mut burst = intake.burst();
        burst.items.reserve(batch.max);
        burst.runs.reserve(batch.max + 1);
        Ok(InferStage {
            called: 0,
            batch_wait,
            sizes: cx.histogram(common.node, Term::Batch, 2),
            device_time: residence.map(|at| cx.histogram(common.node, at.term(), 2)),
            inputs: sides(&signature.inputs, in_device)?,
            outputs: sides(&signature.outputs, out_device)?,
            common,
            intake,
            burst,
            held: VecDeque::with_capacity(batch.max),
            origins,
            session: Some(session),
            figures: Metrics::default(),
            is_stateful,
            flights: VecDeque::with_capacity(max_in_flight),
            max_in_flight,
            is_async,
            peak: 0,
            wakes,
            reset_pending: false,
            spare,
            emit,
            max: batch.max,
            within: batch.within.map_or(0, Span::as_nanos),
            calls: vec![Peak::default(); batch.max + 1],
            closes: 0,
            warmth: Warmth { after: make.keep_warm, ..Warmth::default() },
            late: Peak::default(),
            stride: batch.stride.unwrap_or(batch.max).clamp(1, batch.max),
            make,
        })
    }

    /// How many of the held messages may go into one call: with state, at most one per stream.
    fn callable(&self) -> usize {
        if !self.is_stateful {
            return self.held.len();
        }
        let source = |held: &Held| ZipMany::header(&held.set, self.common.lead).source;
        let is_again = |at: usize| self.held.iter().take(at).any(|held| source(held) == source(&self.held[at]));
        (0..self.held.len()).find(|at| is_again(*at)).unwrap_or(self.held.len())
    }

    /// Upper estimate of the duration of a call with `n` messages, if known.
    fn call_estimate(&self, n: usize) -> Option<u64> {
        let measured = self.calls.get(n).and_then(Peak::most);
        if self.common.budget == 0 { measured } else { Some(self.common.budget.max(measured.unwrap_or(0))) }
    }

    /// When the call must begin to meet every deadline downstream, if there is one.
    fn latest_start(&self, oldest: &Held) -> Option<u64> {
        let filter = self.common.filter.as_ref()?;
        let header = ZipMany::header(&oldest.set, self.common.lead);
        let done = filter.done_by(header, self.origins.front());
        if done == u64::MAX {
            return None;
        }
        let n = self.callable();
        // The duration of a call is learned by making one.
        let Some(call) = self.call_estimate(n) else { return Some(0) };
        // One more message may arrive before the batch closes, and lengthen the call.
        let more = match self.call_estimate(n + 1) {
            _ if n == self.max => 0,
            Some(more) => more,
            None => call + call / n.max(1) as u64,
        };
        let late = self.late.most().map_or(0, |late| late + late / 4);
        // Until this thread's wakeup latency is known, assume an eighth of the total time
        // available.
        let all = done.saturating_sub(header.origin.0);
        let late = if self.late.is_known() { late } else { late.max(all / 8) };
        Some(done.saturating_sub(call.max(more) + late))
    }

    /// Takes available messages into the batch. Returns whether there were any.
    fn gather(&mut self, cx: &mut Cx) -> bool {
        let want = self.max - self.held.len();
        let ready = self.intake.ready(want);
        if ready == 0 {
            return false;
        }
        let now = cx.mark();
        self.intake.fill(ready, &mut self.burst);
        if self.common.filter.is_some() {
            filter_burst(&mut self.intake, &mut self.burst, &mut self.common, cx);
        }
        let ready = self.burst.items.len();
        if self.common.joins {
            self.note_sets(cx);
        } else if self.common.traced {
            self.trace_sets();
        }
        let mut runs = self.burst.runs.drain(..);
        let mut run = Run::default();
        for set in self.burst.items.drain(..) {
            if run.n == 0 {
                run = runs.next().unwrap_or_default();
            }
            run.n = run.n.saturating_sub(1);
            self.held.push_back(Held { set, run: Run { n: 1, ..run }, since: now });
        }
        self.intake.received(ready as u64);
        self.common.counts.taken.add(ready as u64);
        self.common.counts.held.add(ready as u64);
        self.intake.ring();
        true
    }

    /// Notes the origins of the messages taken.
    fn trace_sets(&mut self) {
        for (at, set) in self.burst.items.iter().enumerate() {
            let (mut origins, fresh) = (Origins::default(), self.intake.fresh_at(at));
            ZipMany::each_origin(set, fresh, &mut |origin| origins.add(origin));
            self.origins.push_back(origins);
        }
    }

    /// Notes how far apart in time the joined messages originated, and their origins.
    fn note_sets(&mut self, cx: &mut Cx) {
        let mut sets = self.burst.items.iter();
        for run in &self.burst.runs {
            for set in sets.by_ref().take(run.n as usize).filter(|_| run.is_recorded()) {
                note_skew::<ZipMany<Tensor>>(self.common.skew, set, run.weight, cx);
            }
        }
        if self.common.traced {
            self.trace_sets();
        }
    }

    /// Makes a call that keeps the model warm, if none was made for long enough. Returns when the
    /// next may be due.
    fn keep_warm(&mut self, cx: &mut Cx) -> u64 {
        let Warmth { after, last, .. } = self.warmth;
        if after == 0 || !self.flights.is_empty() || !self.held.is_empty() {
            return u64::MAX;
        }
        let now = cx.read();
        if last == 0 {
            self.warmth.last = now;
        } else if now >= last.saturating_add(after)
            && let Some(session) = &mut self.session
        {
            let outcome = guarded("keep_warm", || Ok(session.keep_warm()?));
            cx.invalidate_clock();
            self.warmth.last = cx.read();
            self.warmth.calls += 1;
            if let Err(failure) = outcome {
                self.fail(cx, failure);
            }
        }
        self.warmth.last.saturating_add(after)
    }

    /// The outcome of a turn without work: idle until `wake`, unless a call finishes earlier.
    fn idle_until(&mut self, wake: u64, cx: &mut Cx) -> Turn {
        let wake = wake.min(self.keep_warm(cx));
        let Some(first) = self.flights.front_mut() else { return Turn::Idle(wake) };
        let now = cx.mark();
        if !first.is_reported && now.saturating_sub(first.started) > cx.shared.watchdog() {
            first.is_reported = true;
            cx.shared.overdue(self.common.node);
        }
        if self.wakes { Turn::Idle(wake.min(cx.mark().saturating_add(LOOK_NS))) } else { Turn::Pending }
    }

    /// A turn in which no message waits in the batch.
    fn turn_without_messages(&mut self, state: EdgeState, gathered: bool, cx: &mut Cx) -> Turn {
        let freed = self.intake.ring();
        if state != EdgeState::Open && self.flights.is_empty() {
            self.emit.ports.each(&mut |port| port.close(state == EdgeState::Failed));
            // Messages without a partner from an ended input are lost.
            let is_loop = self.common.life == Life::Ending;
            self.common.life = Life::Gone(if is_loop { Reason::Stopped } else { Reason::Unmatched });
            return Turn::Worked;
        }
        let (wake, reset) = self.common.listen(self.intake.due(), cx);
        self.reset_pending |= reset;
        if self.flights.is_empty() && std::mem::take(&mut self.reset_pending) {
            let outcome = guarded("reset", || {
                if let Some(session) = &mut self.session {
                    session.forget();
                    session.reset();
                }
                Ok(())
            });
            if let Err(failure) = outcome {
                self.fail(cx, failure);
                return Turn::Worked;
            }
        }
        if freed || gathered { Turn::Worked } else { self.idle_until(wake, cx) }
    }

    /// Until when the batch waits for further messages; `None` if its call is due. Measures how
    /// late a call begins that was due at a known time.
    fn waits_until(&mut self, ending: bool, cx: &mut Cx) -> Option<u64> {
        let oldest = self.held.front()?;
        if ending || self.held.len() == self.max || self.callable() < self.held.len() {
            return None;
        }
        let latest_start = self.latest_start(oldest);
        let due = oldest.since.saturating_add(self.within).min(latest_start.unwrap_or(u64::MAX));
        if due > cx.mark() && due > cx.read() {
            return Some(due);
        }
        if latest_start.is_some() {
            // Messages that arrived meanwhile may have made it due earlier than the requested time.
            match cx.read().checked_sub(self.closes).filter(|_| self.closes > 0) {
                Some(late) => self.late.add(late),
                None => self.late.decay(),
            }
        }
        None
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, failure: CallFailure) {
        if self.common.report(cx, failure) {
            return;
        }
        cx.shared.backend(self.common.node, |status| status.ready = false);
        // What they give on a device is on its way already.
        self.finish_enqueued_calls();
        self.drop_session(cx);
        // Calls in flight are lost with the session.
        let lost: u64 = self.flights.iter().map(Flight::leaving).sum();
        self.common.counts.failed.add(lost);
        self.common.counts.held.sub(lost);
        self.spare.extend(self.flights.drain(..));
        if self.common.schedule_restart(cx) {
            return;
        }
        // Messages still in the batch were taken and will never be processed.
        let held = self.held.len() as u64;
        self.common.counts.failed.add(held);
        self.common.counts.held.sub(held);
        self.held.clear();
        self.origins.clear();
        let reason = self.common.gone();
        self.emit.ports.each(&mut |port| port.close(true));
        self.intake.discard(reason);
    }

    /// Creates a new session of the loaded model, if it is due.
    #[cold]
    fn rebuild(&mut self, due: u64, cx: &mut Cx) -> Turn {
        if cx.read() < due && !cx.is_stopping() {
            return Turn::Idle(due);
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        let built = guarded("build", || {
            let (mut session, wakes) = begin(&self.make, self.max, cx)?;
            session.resume(&self.figures);
            Ok((session, wakes))
        });
        match built {
            Ok((session, wakes)) => {
                (self.session, self.wakes) = (Some(session), wakes);
                cx.shared.backend(self.common.node, |status| status.ready = true);
                self.common.rebuilt(cx);
            }
            Err(failure) => self.fail(cx, failure),
        }
        cx.invalidate_clock();
        Turn::Worked
    }

    /// Drops the session with the states of its streams, and keeps its figures.
    fn drop_session(&mut self, cx: &Cx) {
        let Some(mut session) = self.session.take() else { return };
        let figures = guarded("figures", || {
            self.figures = Metrics::default();
            session.figures(&mut self.figures);
            Ok(())
        });
        // One after the other, because a second panic while the first one unwinds would end the
        // process.
        let states = guarded("drop", || {
            session.drop_states();
            Ok(())
        });
        let dropped = guarded("drop", || {
            drop(session);
            Ok(())
        });
        for failure in [figures, states, dropped].into_iter().filter_map(Result::err) {
            self.common.report(cx, failure);
        }
    }
}

impl Stage for InferStage {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Ending => _ = self.intake.discard(Reason::Stopped),
            Life::Restarting(due) => return self.rebuild(due, cx),
            Life::Gone(reason) => return self.common.drain(&mut self.intake, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if self.has_finished(cx) {
            if self.sends_at_once() {
                self.finish_first(cx);
                return Turn::Worked;
            }
            if self.emit.ports.room(1, &mut || cx.read()) == 0 {
                return blocked(&mut self.emit.ports, &self.common.counts);
            }
            self.collect_first(cx);
            return Turn::Worked;
        }
        let gathered = self.gather(cx);
        let state = if self.common.life == Life::Ending { EdgeState::Finished } else { self.intake.state() };
        let ending = state != EdgeState::Open;
        if self.held.is_empty() {
            return self.turn_without_messages(state, gathered, cx);
        }
        let waits_until = match self.flights.len() == self.max_in_flight {
            // Until a call finishes, whenever that is.
            true => Some(u64::MAX),
            false => self.waits_until(ending, cx),
        };
        self.closes = waits_until.filter(|until| *until != u64::MAX).unwrap_or(0);
        if let Some(until) = waits_until {
            return if gathered { Turn::Worked } else { self.idle_until(until, cx) };
        }
        if (!self.is_async || self.sends_at_once()) && self.emit.ports.room(1, &mut || cx.read()) == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.emit.ports, &self.common.counts);
        }
        self.run_batch(cx, ending);
        self.common.blocked_since = 0;
        Turn::Worked
    }

    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        let now = cx.mark();
        if let Some(readiness) = self.common.readiness_without_node(now, cx) {
            return readiness;
        }
        if self.has_finished(cx) {
            let mut pressed = false;
            self.emit.ports.each(&mut |port| pressed |= port.is_pressed());
            let first = self.flights.front().and_then(|flight| flight.headers.first());
            return Readiness { ready: true, due: self.common.due_of(first, now), pressed };
        }
        if self.held.is_empty() && self.intake.ready(1) == 0 {
            let has_turn = self.intake.has_freed() || self.intake.state() != EdgeState::Open;
            return if has_turn { Readiness::URGENT } else { Readiness::IDLE };
        }
        let since = self.common.ready_since(now);
        let mut pressed = false;
        self.emit.ports.each(&mut |port| pressed |= port.is_pressed());
        let oldest = self.held.front().map(|held| ZipMany::header(&held.set, self.common.lead));
        Readiness { ready: true, due: self.common.due_of(oldest, since), pressed }
    }

    fn await_device(&mut self, wait: DeviceWait) -> Option<bool> {
        self.await_first(wait)
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        self.drop_session(cx);
        let mut metrics = std::mem::take(&mut self.figures);
        let counts = &self.common.counts;
        if counts.batches.get() > 0 {
            metrics.set("batches", counts.batches.get() as f64);
            metrics.set("mean_batch", self.called as f64 / counts.batches.get() as f64);
        }
        if self.warmth.after > 0 {
            metrics.set("warm_calls", self.warmth.calls as f64);
        }
        if self.make.residence.is_some() {
            metrics.lost("device_lost", counts.lost.get());
        }
        if self.is_async {
            metrics.set("most_in_flight", self.peak as f64);
        }
        Ended { node: self.common.node, metrics, left: self.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        let error = NodeErrorKind::UnknownSetting { name: name.to_string() }.into();
        refuse(self.common.node, name, value, &error, cx);
    }

    fn end_loop(&mut self) {
        self.common.end_loop(&mut self.emit.ports);
    }
}
