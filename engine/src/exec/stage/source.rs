//! The stage of a source, where messages and their ledgers begin.

use super::{
    CallFailure, Common, Ended, Life, NoHooks, NodeSlot, PROBE, Readiness, SLOW_NS, Stage, StageSlot, Turn, blocked,
    build_again, drop_node, end_node, guarded, is_pressed, set_node,
};
use crate::base::policy::OnError;
use crate::edge::BURST;
use crate::exec::planned::StageParts;
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::descriptors::Descriptors;
use crate::ledger::{Hist, Sampler, Term};
use crate::node::{Next, Source};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::output::{Outputs, PortSet};
use crate::port::room::Room;
use std::any::Any;
use std::hint::cold_path;

/// A node without inputs.
pub(crate) struct SourceStage<N: Source, H = NoHooks> {
    slot: StageSlot<N, H>,
    rest: SourceParts<N::Out>,
}

/// What only a source of the engine's own does: an inlet.
pub(crate) trait SourceHooks<N> {
    /// Whether a stop has to wait for messages already promised.
    fn owes(_: &N) -> bool {
        false
    }
    /// Called after a turn, when its output has been published.
    fn turned(_: &mut N) {}
    /// Called after the last call.
    fn ended(_: &mut N) {}
}

impl<N> SourceHooks<N> for NoHooks {}

/// The calls of a source.
trait SourceCalls<O: Outputs>: NodeSlot {
    /// Has the source make calls as long as its next sequence number is below `until`. It may make
    /// fewer.
    fn give(&mut self, emit: &mut Emit<O>, until: u64) -> Result<Next, NodeError>;
    /// Calls it once.
    fn give_one(&mut self, emit: &mut Emit<O>) -> Result<Next, NodeError>;
    fn owes(&self) -> bool;
    fn turned(&mut self);
    fn ended(&mut self);
}

impl<N: Source, H: SourceHooks<N>> SourceCalls<N::Out> for StageSlot<N, H> {
    fn give(&mut self, emit: &mut Emit<N::Out>, until: u64) -> Result<Next, NodeError> {
        let Some(node) = &mut self.node else {
            cold_path();
            return Ok(Next::Done);
        };
        let mut room = Room::new(emit, until);
        let next = node.next_burst(&mut room)?;
        room.finish()?;
        Ok(next)
    }
    // A function of its own: a message alone needs nothing of what bursts do.
    #[inline(never)]
    fn give_one(&mut self, emit: &mut Emit<N::Out>) -> Result<Next, NodeError> {
        let Some(node) = &mut self.node else {
            cold_path();
            return Ok(Next::Done);
        };
        let next = node.next(emit)?;
        emit.end_call()?;
        Ok(next)
    }
    fn owes(&self) -> bool {
        self.node.as_ref().is_some_and(H::owes)
    }
    fn turned(&mut self) {
        if let Some(node) = &mut self.node {
            H::turned(node);
        }
    }
    fn ended(&mut self) {
        if let Some(node) = &mut self.node {
            H::ended(node);
        }
    }
}

/// All of a source's stage but its node: compiled once for each type of outputs.
struct SourceParts<O: Outputs> {
    common: Common,
    emit: Emit<O>,
    sampler: Sampler,
    term: Hist,
    origins: Vec<(u64, u32)>,
    /// The source is not called before this time, unless a descriptor is ready.
    due: u64,
    /// Whether it waits for a descriptor.
    waits: bool,
    descriptors: Descriptors,
    after_idle: bool,
}

impl<O: Outputs> SourceParts<O> {
    #[inline(never)]
    fn new(parts: StageParts, descriptors: Descriptors, cx: &mut Cx) -> Self {
        let StageParts { mut common, outputs, begin, .. } = parts;
        let emit = Emit::new(outputs, begin, cx.clock().clone());
        common.settle();
        let term = cx.histogram(common.node, Term::Source, 2);
        let sampler = Sampler::new(cx.telemetry());
        let origins = Vec::with_capacity(BURST);
        SourceParts { common, emit, sampler, term, origins, due: 0, waits: false, descriptors, after_idle: true }
    }

    /// Whether a descriptor it waits for is ready.
    fn is_woken(&self) -> bool {
        self.waits && self.descriptors.is_woken()
    }

    /// Handles a failure that has been reported.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, node: &mut dyn SourceCalls<O>, cx: &mut Cx) -> Turn {
        drop_node(node, &mut self.common, cx);
        if self.common.schedule_restart(cx) {
            (self.due, self.waits) = (0, false);
            return Turn::Worked;
        }
        self.common.gone();
        self.finish(node, true)
    }

    fn finish(&mut self, node: &mut dyn SourceCalls<O>, failed: bool) -> Turn {
        node.ended();
        self.emit.ports.each(&mut |port| port.close(failed));
        self.common.life = Life::Ended;
        Turn::Worked
    }

    /// Has the source make calls as long as its next sequence number is below `until`. Returns what
    /// it wants next, how many calls failed, and the failure that ends it.
    #[inline]
    fn call(&mut self, node: &mut dyn SourceCalls<O>, until: u64, cx: &mut Cx) -> (Next, u64, Result<(), CallFailure>) {
        let mut failed = 0;
        // Every call that emits or fails uses a sequence number of its own.
        loop {
            let (emit, common) = (&mut self.emit, &mut self.common);
            // The node's `Next` holds even if an edge has no room for its output.
            let mut wants = Next::More;
            let call = guarded("next", || {
                if let Some(fault) = &mut common.fault {
                    cold_path();
                    fault.apply()?;
                }
                wants = if emit.seq + 1 < until { node.give(emit, until)? } else { node.give_one(emit)? };
                if common.singled { finish_call(emit, common) } else { Ok(()) }
            });
            let failure = match call {
                Ok(()) => return (wants, failed, Ok(())),
                Err(failure) => failure,
            };
            cold_path();
            self.emit.ports.rollback();
            self.emit.seq += 1;
            failed += 1;
            if self.common.policy.on_error != OnError::Skip {
                return (Next::Done, failed, Err(failure));
            }
            self.common.report(cx, failure);
            if self.emit.seq >= until {
                return (wants, failed, Ok(()));
            }
        }
    }

    /// Records the calls of a turn that began at `started`. Returns when they ended (`started`, if
    /// the turn is not timed), and the weight of their messages.
    #[inline(always)]
    fn record(&mut self, started: u64, done: u64, failed: u64, cx: &mut Cx) -> (u64, u32) {
        // A turn that began no message is idle time, not a burst to be sampled.
        let weight = if done > 0 { self.sampler.weight(self.after_idle, started, done) } else { 0 };
        self.after_idle = done == 0;
        self.common.turns = self.common.turns.wrapping_add(1);
        let common = &self.common;
        // Until a call that sent something was timed, a turn makes one call.
        let is_probed = common.is_slow() || common.singled || common.turns % PROBE == 1 || common.call_ns == 0;
        if weight == 0 && !is_probed {
            cx.invalidate_clock();
            return (started, weight);
        }
        let end = cx.read();
        if done + failed > 0 && (is_probed || end - started > SLOW_NS) {
            cold_path();
            self.common.learn(end - started, (done + failed) as usize);
            self.common.check_budget(end - started);
        }
        if weight > 0 && done > 0 {
            let n = u32::try_from(done).unwrap_or(u32::MAX);
            cx.record(self.common.compute, end - started, n, weight);
            if let (1, Some(origin)) = (n, self.emit.ports.single_origin()) {
                cx.record(self.term, end.saturating_sub(origin.0), 1, weight);
            } else {
                self.record_origins(end, weight, cx);
            }
        }
        (end, weight)
    }

    /// Records the time from each message's origin to the end of its call.
    #[inline(never)]
    fn record_origins(&mut self, end: u64, weight: u32, cx: &mut Cx) {
        self.origins.clear();
        let origins = &mut self.origins;
        // The ports of a call share their origin; the first port with messages represents all.
        self.emit.ports.each(&mut |port| {
            if origins.is_empty() {
                port.origins(origins);
            }
        });
        for (origin, n) in self.origins.drain(..) {
            cx.record(self.term, end.saturating_sub(origin), n, weight);
        }
    }

    /// Whether the source is paced, and its next message needs no closer look: its consumers, all
    /// on this worker, have taken every earlier message.
    #[inline]
    fn sends_single(&mut self, cx: &Cx) -> bool {
        self.due != 0
            && self.common.life == Life::Open
            && !self.common.singled
            && cx.frames().is_none()
            && !cx.is_stopping()
            && self.emit.ports.is_clear()
    }

    /// As [`SourceParts::turn`], for one call of a source that [`SourceParts::sends_single`]: the
    /// usual case at low rates.
    #[inline(never)]
    fn turn_single<N: Source<Out = O>, H: SourceHooks<N>>(&mut self, node: &mut StageSlot<N, H>, cx: &mut Cx) -> Turn {
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        let started = cx.read();
        if started < self.due && !self.is_woken() {
            self.after_idle = true;
            return Turn::Idle(self.due);
        }
        self.emit.now = Time(started);
        let number = self.emit.seq;
        // A panic is caught by [`crate::exec::scheduler`].
        self.common.calling = true;
        let result = node.give_one(&mut self.emit);
        self.common.calling = false;
        let next = match result {
            Ok(next) => next,
            Err(error) => {
                cold_path();
                let spent = cx.read() - started;
                if self.common.is_slow() || spent > SLOW_NS {
                    self.common.learn(spent, 1);
                }
                return self.fail_single(node, CallFailure::error("next", &error), cx);
            }
        };
        let done = self.emit.seq - number;
        let (end, weight) = self.record(started, done, 0, cx);
        let published = if done > 0 { self.emit.ports.publish_all(end, weight, end, 0) } else { Ok(()) };
        node.turned();
        self.common.counts.taken.add(done);
        self.common.counts.done.add(done);
        if let Err(full) = published {
            cold_path();
            if !self.common.report(cx, CallFailure::error("emit", &full)) {
                return self.fail(node, cx);
            }
        }
        if next == Next::More {
            // It is no longer paced: what it has is taken in bursts.
            self.due = 0;
        }
        self.turn_after(node, next, done > 0, end)
    }

    /// Handles a failure of the call of [`SourceParts::turn_single`].
    #[cold]
    #[inline(never)]
    fn fail_single(&mut self, node: &mut dyn SourceCalls<O>, failure: CallFailure, cx: &mut Cx) -> Turn {
        cx.invalidate_clock();
        self.emit.ports.rollback();
        self.emit.seq += 1;
        node.turned();
        let is_skipped = self.common.report(cx, failure);
        self.common.counts.taken.add(1);
        self.common.counts.failed.add(1);
        if is_skipped { Turn::Worked } else { self.fail(node, cx) }
    }

    /// The outcome of a turn whose last call returned `next`; `has_moved` if any call emitted or
    /// failed.
    #[inline(always)]
    fn turn_after(&mut self, node: &mut dyn SourceCalls<O>, next: Next, has_moved: bool, now: u64) -> Turn {
        match next {
            Next::More if has_moved => return Turn::Worked,
            Next::More => return Turn::Idle(0),
            Next::Done => return self.finish(node, false),
            Next::Idle => (self.due, self.waits) = (0, false),
            Next::WhenReady(time) => {
                self.descriptors.wait_again();
                (self.due, self.waits) = (time.0, true);
            }
            Next::At(time) => (self.due, self.waits) = (time.0, false),
        }
        self.after_idle = true;
        match next {
            _ if has_moved => Turn::Worked,
            Next::At(time) if time.0 <= now => Turn::Worked,
            Next::At(time) => Turn::Idle(time.0),
            Next::WhenReady(_) if self.descriptors.is_woken() => Turn::Idle(0),
            Next::WhenReady(time) => Turn::Idle(time.0),
            Next::Idle | Next::More | Next::Done => Turn::Idle(u64::MAX),
        }
    }
}

/// Finishes a call that is made individually.
///
/// # Errors
/// If an edge that fails its producer has no room for the call's output.
#[cold]
fn finish_call<O: Outputs>(emit: &mut Emit<O>, common: &mut Common) -> Result<(), NodeError> {
    if common.fault.as_mut().is_some_and(|fault| fault.duplicates()) {
        emit.ports.double();
    }
    if common.refuses
        && let Err(full) = emit.ports.admit()
    {
        // The caller adds a failed call's sequence number; `give` has already added it.
        emit.seq -= 1;
        return Err(full);
    }
    Ok(())
}

impl<O: Outputs> SourceParts<O> {
    fn turn(&mut self, node: &mut dyn SourceCalls<O>, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Restarting(_) if cx.is_stopping() => return self.finish(node, true),
            Life::Restarting(due) => {
                self.emit.begin_segment();
                return build_again(node, due, &mut self.common, cx).unwrap_or_else(|failure| {
                    self.common.report(cx, failure);
                    self.fail(node, cx)
                });
            }
            Life::Ending | Life::Gone(_) | Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if (cx.is_stopping() && !node.owes()) || cx.frames().is_some_and(|n| self.emit.seq >= n) {
            cold_path();
            return self.finish(node, false);
        }
        // Without a fixed start time, the end of this worker's last step is precise enough.
        let started = if self.due == 0 {
            cx.mark()
        } else {
            let now = cx.read();
            if now < self.due && !self.is_woken() {
                self.after_idle = true;
                return Turn::Idle(self.due);
            }
            now
        };
        let mut limit = if self.common.singled { 1 } else { self.common.limit(false) };
        if let Some(frames) = cx.frames() {
            cold_path();
            limit = limit.min((frames - self.emit.seq) as usize);
        }
        let room = self.emit.ports.room(limit, &mut || cx.read());
        if room == 0 {
            cold_path();
            self.after_idle = true;
            return blocked(&mut self.emit.ports, &self.common.counts);
        }
        self.emit.now = Time(started);
        let first = self.emit.seq;
        let (next, failed, outcome) = self.call(node, first + room as u64, cx);
        let done = self.emit.seq - first - failed;
        let (end, weight) = self.record(started, done, failed, cx);
        // The ledger begins here: source time is measured from each message's own origin.
        let published = self.emit.ports.publish_all(end, weight, end, 0).map_err(|e| CallFailure::error("emit", &e));
        self.emit.ports.ring();
        node.turned();
        self.common.counts.taken.add(done + failed);
        self.common.counts.done.add(done);
        let ends = outcome.and(published).is_err_and(|failure| !self.common.report(cx, failure));
        self.common.counts.failed.add(failed);
        if ends {
            return self.fail(node, cx);
        }
        self.turn_after(node, next, done + failed > 0, end)
    }

    #[inline(never)]
    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        let now = cx.mark();
        if let Some(readiness) = self.common.readiness_without_node(now, cx) {
            return readiness;
        }
        if now < self.due && !self.is_woken() && !cx.is_stopping() {
            return Readiness::IDLE;
        }
        // A source called at a set time began its next message then.
        let begun = if self.due == 0 || self.due > now { now } else { self.due };
        Readiness { ready: true, due: self.common.due_of(None, begun), pressed: is_pressed(&mut self.emit.ports) }
    }

    #[inline(never)]
    fn set(&mut self, node: &mut dyn SourceCalls<O>, name: &str, value: f64, cx: &mut Cx) {
        if let Err(failure) = set_node(self.common.node, node, name, value, cx)
            && !self.common.report(cx, failure)
        {
            self.fail(node, cx);
        }
    }
}

impl<N: Source, H: SourceHooks<N>> SourceStage<N, H> {
    pub(crate) fn new(node: N, mut parts: StageParts, descriptors: Descriptors, cx: &mut Cx) -> Self {
        let slot = StageSlot::new(node, parts.blueprint.take());
        SourceStage { slot, rest: SourceParts::new(parts, descriptors, cx) }
    }
}

impl<N: Source, H: SourceHooks<N>> Stage for SourceStage<N, H> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        let SourceStage { slot, rest } = self;
        if rest.sends_single(cx) { rest.turn_single(slot, cx) } else { rest.turn(slot, cx) }
    }

    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let SourceStage { slot, rest } = self;
        let was_calling = std::mem::take(&mut rest.common.calling);
        if was_calling {
            // The next call is guarded by itself: a source that panics again and again would end
            // each pass before the other stages' turns.
            rest.due = 0;
            rest.fail_single(slot, CallFailure::panic("next", panic), cx);
        }
        was_calling
    }

    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        self.rest.readiness(cx)
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        end_node(&mut self.slot, &mut self.rest.common, cx)
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        self.rest.set(&mut self.slot, name, value, cx);
    }
}
