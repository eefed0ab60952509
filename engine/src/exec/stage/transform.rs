//! The stage of a node with inputs and outputs.

use super::feed::{Ends, Feed, NodeCalls, SingleLedger, drop_item};
use super::{
    CallFailure, Common, Ended, Life, NodeSlot, Readiness, Stage, StageSlot, Turn, blocked, build_again, drop_node,
    end_node, guarded, is_pressed, note_skew, reset_node, set_node,
};
use crate::base::policy::Telemetry;
use crate::edge::{EdgeState, Reason};
use crate::exec::planned::StageParts;
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::ledger::{Hist, Term};
use crate::node::{Reset, Transform};
use crate::port::burst::Burst;
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::intake::SealedInputs;
use crate::port::intake::{Intake, trace_call};
use crate::port::output::{Outputs, PortSet};
use std::any::Any;

/// A node with inputs and outputs.
#[repr(C)]
pub(crate) struct TransformStage<N: Transform> {
    slot: StageSlot<N>,
    rest: TransformParts<<N::In as SealedInputs>::Intake, N::Out>,
}

/// All of a transform's stage but its node. Turns in the general case are made here, compiled once
/// for each type of inputs and outputs.
#[repr(C)]
struct TransformParts<I: Intake, O: Outputs> {
    feed: Feed<I>,
    common: Common,
    ends: PortEnds<O>,
    /// Whether the node is called once before its first message.
    wakes: bool,
}

/// The ports of a transform.
#[repr(C)]
struct PortEnds<O: Outputs> {
    emit: Emit<O>,
    skew: Option<Hist>,
}

/// The calls of a transform.
trait TransformCalls<T, O: Outputs>: NodeCalls<T, PortEnds<O>> {
    /// Makes a call without a message.
    fn extra(&mut self, call: ExtraCall, emit: &mut Emit<O>) -> Result<(), NodeError>;
}

/// Passes a node what it left of a burst, one message a call.
#[cold]
#[inline(never)]
fn give_rest<N: Transform>(
    node: &mut N,
    burst: &mut Burst<'_, <N::In as SealedInputs>::Taken>,
    emit: &mut Emit<N::Out>,
) -> Result<(), NodeError> {
    burst.each(emit, |input, emit| node.apply(input, emit))?;
    burst.finish(emit)
}

/// A call of the node without a message.
#[derive(Clone, Copy, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum ExtraCall {
    /// The wakeup time it requested has come.
    Wake,
    /// No more messages will come.
    Finish,
}

impl ExtraCall {
    fn name(self) -> &'static str {
        self.into()
    }
}

impl<N: Transform> NodeCalls<<N::In as SealedInputs>::Taken, PortEnds<N::Out>> for StageSlot<N> {
    fn give(
        &mut self,
        burst: &mut Burst<'_, <N::In as SealedInputs>::Taken>,
        ends: &mut PortEnds<N::Out>,
    ) -> Result<(), NodeError> {
        // The node exists while the stage's life is `Open`.
        let (Some(node), emit) = (&mut self.node, &mut ends.emit) else { return Ok(()) };
        let mut result = node.apply_burst(burst, emit).and_then(|()| burst.finish(emit));
        if result.is_ok() && !burst.is_empty() {
            result = give_rest(node, burst, emit);
        }
        if result.is_err() {
            emit.ports.rollback();
        }
        result
    }
    #[inline]
    fn give_one(&mut self, item: <N::In as SealedInputs>::Taken, ends: &mut PortEnds<N::Out>) -> Result<(), NodeError> {
        let (Some(node), emit) = (&mut self.node, &mut ends.emit) else { return drop_item(item) };
        node.apply(item, emit)?;
        emit.ports.commit()
    }
}

impl<N: Transform> TransformCalls<<N::In as SealedInputs>::Taken, N::Out> for StageSlot<N> {
    fn extra(&mut self, call: ExtraCall, emit: &mut Emit<N::Out>) -> Result<(), NodeError> {
        match (&mut self.node, call) {
            (None, _) => Ok(()),
            (Some(node), ExtraCall::Wake) => node.wake(emit),
            (Some(node), ExtraCall::Finish) => node.finish(emit),
        }
    }
}

impl<I: Intake, O: Outputs> Ends<I> for PortEnds<O> {
    fn trace(&mut self, item: &I::Taken, fresh: u16) {
        if let Some(trace) = &self.emit.trace {
            trace_call::<I>(&mut trace.borrow_mut(), item, fresh);
        }
    }
    #[inline]
    fn note(&mut self, item: &I::Taken, weight: u32, cx: &mut Cx) {
        if I::JOINS {
            note_skew::<I>(self.skew, item, weight, cx);
        }
    }
    fn forget(&mut self, _: usize) {}
    fn rollback(&mut self) {
        self.emit.ports.rollback();
    }
    fn double(&mut self) {
        self.emit.ports.double();
    }
    fn admit(&mut self) -> Result<(), NodeError> {
        self.emit.ports.admit()
    }
    #[inline]
    fn segment(&mut self, accounted: u64, weight: u32) {
        self.emit.ports.segment(accounted, weight);
    }
    #[inline]
    fn publish(&mut self, _: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        self.emit.ports.publish(sent, compute)
    }
    #[inline(always)]
    fn publish_single(&mut self, ledger: SingleLedger, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        Ends::<I>::publish_all(self, ledger.accounted, ledger.weight, cx, sent, compute)
    }
    #[inline(always)]
    fn publish_all(
        &mut self,
        accounted: u64,
        weight: u32,
        _: &mut Cx,
        sent: u64,
        compute: u64,
    ) -> Result<(), NodeError> {
        self.emit.ports.publish_all(accounted, weight, sent, compute)
    }
}

impl<I: Intake, O: Outputs> TransformParts<I, O> {
    #[inline(never)]
    fn new(parts: StageParts, cx: &mut Cx) -> Self {
        let StageParts { mut common, intake, outputs, begin, wakes, .. } = parts;
        common.takes(intake.edges.len(), cx);
        common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        let mut emit = Emit::new(outputs, begin, cx.clock().clone());
        emit.lead = common.lead;
        let ends = PortEnds { emit, skew: common.skew };
        let mut parts = TransformParts { common, feed: Feed::new(I::build(intake)), ends, wakes };
        parts.request_first_wake();
        parts
    }

    /// Requests the call of a new node before its first message, if the node declares one.
    fn request_first_wake(&mut self) {
        if self.wakes {
            self.ends.emit.wake = Time::ZERO;
        }
    }

    /// Makes a call without a message and publishes its output, which derives from messages of
    /// earlier calls, whose terms are no longer known: its ledger begins here, its latency at its
    /// origin. True if it succeeded.
    fn call_extra(&mut self, node: &mut dyn TransformCalls<I::Taken, O>, call: ExtraCall, cx: &mut Cx) -> bool {
        let emit = &mut self.ends.emit;
        if let Some(trace) = &emit.trace {
            trace.borrow_mut().begin();
        }
        let outcome = guarded(call.name(), || {
            node.extra(call, emit)?;
            emit.ports.commit()?;
            if self.common.refuses { emit.ports.admit() } else { Ok(()) }
        });
        let outcome = match outcome {
            Ok(()) => {
                let (now, weight) = (cx.read(), u32::from(cx.telemetry() != Telemetry::Off));
                emit.ports.segment(now, weight);
                emit.ports.publish(now, 0).map_err(|e| CallFailure::error("emit", &e))
            }
            Err(failure) => {
                emit.ports.rollback();
                Err(failure)
            }
        };
        cx.invalidate_clock();
        outcome.map_err(|failure| self.fail(node, cx, failure)).is_ok()
    }

    /// Handles a failure of the node: by its policy the stage goes on, rebuilds the node, or loses
    /// what arrives.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, node: &mut dyn NodeSlot, cx: &mut Cx, failure: CallFailure) {
        let emit = &mut self.ends.emit;
        emit.ports.rollback();
        if self.common.report(cx, failure) {
            return;
        }
        // The output of earlier calls of this turn is valid.
        emit.ports.segment(0, 0);
        let _ = emit.ports.publish(0, 0);
        drop_node(node, &mut self.common, cx);
        emit.wake = Time::NEVER;
        self.common.counts.wakes.set(0);
        if self.common.schedule_restart(cx) {
            return;
        }
        let reason = self.common.gone();
        emit.ports.each(&mut |port| port.close(true));
        self.feed.intake.discard(reason);
    }

    /// Calls `wake` if it is due; true if it was.
    fn wake(&mut self, node: &mut dyn TransformCalls<I::Taken, O>, cx: &mut Cx) -> bool {
        let emit = &mut self.ends.emit;
        if emit.wake.0 > cx.mark() || emit.ports.room(1, &mut || cx.read()) == 0 {
            return false;
        }
        emit.now = Time(cx.mark());
        emit.wake = Time::NEVER;
        if self.call_extra(node, ExtraCall::Wake, cx) {
            self.ends.emit.ports.ring();
        }
        true
    }

    #[cold]
    fn turn_without_node(&mut self, node: &mut dyn TransformCalls<I::Taken, O>, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Restarting(due) => match build_again(node, due, &mut self.common, cx) {
                Ok(turn) => {
                    if self.common.life == Life::Open {
                        self.request_first_wake();
                    }
                    turn
                }
                Err(failure) => {
                    self.fail(node, cx, failure);
                    Turn::Worked
                }
            },
            Life::Ending => {
                cx.enter(self.common.node);
                self.feed.intake.discard(Reason::Stopped);
                self.finish(node, EdgeState::Finished, cx)
            }
            Life::Gone(reason) => self.common.drain(&mut self.feed.intake, reason),
            Life::Open | Life::Ended => Turn::Done,
        }
    }

    /// Handles the end of the inputs.
    #[cold]
    fn finish(&mut self, node: &mut dyn TransformCalls<I::Taken, O>, state: EdgeState, cx: &mut Cx) -> Turn {
        if self.ends.emit.ports.room(1, &mut || cx.read()) == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.ends.emit.ports, &self.common.counts);
        }
        let life = self.common.life;
        if self.call_extra(node, ExtraCall::Finish, cx) || self.common.life == life {
            self.ends.emit.ports.each(&mut |port| port.close(state == EdgeState::Failed));
            self.common.life = self.feed.ended(life);
        }
        Turn::Worked
    }

    /// Whether exactly one message is waiting that the node may be called with at once.
    #[inline]
    fn has_only(&self) -> bool {
        self.common.life == Life::Open && self.ends.emit.wake == Time::NEVER && self.feed.has_only(&self.common)
    }

    /// Whether there is room for the output of one call.
    #[inline(never)]
    fn has_room(&mut self, cx: &mut Cx) -> bool {
        self.ends.emit.ports.room(1, &mut || cx.read()) > 0
    }

    /// A turn in the general case.
    fn turn(&mut self, node: &mut dyn TransformCalls<I::Taken, O>, cx: &mut Cx) -> Turn {
        if self.common.life != Life::Open {
            return self.turn_without_node(node, cx);
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if self.ends.emit.wake != Time::NEVER && self.wake(node, cx) {
            return Turn::Worked;
        }
        let limit = self.common.limit(self.feed.intake.is_perishable());
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            // A join may have taken or lost messages without a partner: producers waiting for that
            // room need another turn.
            let freed = self.feed.intake.ring();
            return match self.feed.intake.state() {
                EdgeState::Open if freed => Turn::Worked,
                EdgeState::Open => {
                    self.common.counts.wakes.set(u64::from(self.ends.emit.wake != Time::NEVER));
                    let (wake, reset) = self.common.listen(self.ends.emit.wake.0.min(self.feed.intake.due()), cx);
                    match if reset { reset_node(node, Reset::Gap, cx) } else { Ok(()) } {
                        Ok(()) => Turn::Idle(wake),
                        Err(failure) => {
                            self.fail(node, cx, failure);
                            Turn::Worked
                        }
                    }
                }
                state => self.finish(node, state, cx),
            };
        }
        let room = self.ends.emit.ports.room(available, &mut || cx.read());
        let room = self.feed.intake.room(room);
        if room == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.ends.emit.ports, &self.common.counts);
        }
        self.ends.emit.now = Time(cx.latest());
        if let Err(failure) = self.feed.process(room, &mut self.common, cx, node, &mut self.ends) {
            self.fail(node, cx, failure);
        }
        self.ends.emit.ports.ring();
        Turn::Worked
    }

    #[cold]
    #[inline(never)]
    fn take_panic(&mut self, node: &mut dyn NodeSlot, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let Some(result) = self.feed.take_panic(panic, &mut self.common, cx, &mut self.ends) else { return false };
        if let Err(failure) = result {
            self.fail(node, cx, failure);
        }
        true
    }

    #[inline(never)]
    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        let pressed = is_pressed(&mut self.ends.emit.ports);
        let wake = self.ends.emit.wake;
        if self.common.life == Life::Open && wake != Time::NEVER && wake.0 <= cx.mark() {
            // Messages held back until now are already due.
            return Readiness { ready: true, due: wake.0, pressed };
        }
        self.common.readiness_of(&mut self.feed.intake, pressed, cx)
    }

    #[inline(never)]
    fn end(mut self, node: &mut dyn NodeSlot, cx: &mut Cx) -> Ended {
        let ended = end_node(node, &mut self.common, cx);
        Ended { left: self.feed.intake.left(), ..ended }
    }

    #[inline(never)]
    fn set(&mut self, node: &mut dyn NodeSlot, name: &str, value: f64, cx: &mut Cx) {
        if let Err(failure) = set_node(self.common.node, node, name, value, cx) {
            self.fail(node, cx, failure);
        }
    }
}

impl<N: Transform> TransformStage<N> {
    pub(crate) fn new(node: N, mut parts: StageParts, cx: &mut Cx) -> Self {
        let slot = StageSlot::new(node, parts.blueprint.take());
        TransformStage { slot, rest: TransformParts::new(parts, cx) }
    }

    /// Out of line, so that the way of a single message stays short; for each node, so that it is
    /// optimized as the node is: what depends only on the types of inputs and outputs comes from
    /// the first crate with such a node.
    #[inline(never)]
    fn turn_burst(&mut self, cx: &mut Cx) -> Turn {
        self.rest.turn(&mut self.slot, cx)
    }
}

impl<N: Transform> Stage for TransformStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        let TransformStage { slot, rest } = self;
        // A single message: no lists, and where its edge is clear, no room checks or bells.
        if rest.has_only() {
            let is_clear = rest.ends.emit.ports.is_clear();
            if is_clear || rest.has_room(cx) {
                rest.common.counts.turns.add(1);
                cx.enter(rest.common.node);
                rest.ends.emit.now = Time(cx.latest());
                if let Err(failure) = rest.feed.process_only(&mut rest.common, cx, slot, &mut rest.ends) {
                    rest.fail(slot, cx, failure);
                }
                if !is_clear {
                    rest.ends.emit.ports.ring();
                }
                return Turn::Worked;
            }
        }
        self.turn_burst(cx)
    }

    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        self.rest.take_panic(&mut self.slot, panic, cx)
    }

    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        self.rest.readiness(cx)
    }

    fn end(self: Box<Self>, cx: &mut Cx) -> Ended {
        let TransformStage { mut slot, rest } = *self;
        rest.end(&mut slot, cx)
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        self.rest.set(&mut self.slot, name, value, cx);
    }

    fn end_loop(&mut self) {
        self.rest.common.end_loop(&mut self.rest.ends.emit.ports);
    }
}
