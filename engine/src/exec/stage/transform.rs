//! The stage of a node with inputs and outputs.

use super::feed::{Feed, Work, drop_item};
use super::{
    Common, Ended, Life, NodeSlot, Rebuild, Stage, Standing, Trouble, Turn, blocked, build_again, drop_node, guarded,
    is_pressed, note_skew, reset_node, set_node,
};
use crate::base::policy::Telemetry;
use crate::edge::EdgeState;
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::ledger::{Hist, Term};
use crate::node::emit::Emit;
use crate::node::error::NodeError;
use crate::node::intake::SealedInputs;
use crate::node::intake::{Intake, trace_call};
use crate::node::port::{Outputs, PortSet};
use crate::node::{Reset, Transform};
use std::any::Any;

/// A node with inputs and outputs.
pub(crate) struct TransformStage<N: Transform> {
    common: Common,
    feed: Feed<<N::In as SealedInputs>::Intake>,
    work: TransformWork<N>,
    again: Option<Rebuild<N>>,
}

struct TransformWork<N: Transform> {
    node: Option<N>,
    emit: Emit<N::Out>,
    skew: Option<Hist>,
}

/// A call of the node without a message.
#[derive(Clone, Copy)]
enum ExtraCall {
    /// The wakeup time it requested has come.
    Wake,
    /// No more messages will come.
    Finish,
}

impl ExtraCall {
    fn name(self) -> &'static str {
        match self {
            ExtraCall::Wake => "wake",
            ExtraCall::Finish => "finish",
        }
    }
}

impl<N: Transform> Work<<N::In as SealedInputs>::Taken> for TransformWork<N> {
    fn erased(&mut self) -> &mut dyn Work<<N::In as SealedInputs>::Taken> {
        self
    }
    #[inline(never)]
    fn give(&mut self, items: &mut std::vec::Drain<'_, <N::In as SealedInputs>::Taken>) -> Result<(), NodeError> {
        // The node exists while the stage's life is `Open`.
        let (Some(node), emit) = (&mut self.node, &mut self.emit) else { return Ok(()) };
        for item in items {
            if let Err(error) = node.apply(item, emit).and_then(|()| emit.ports.commit()) {
                emit.ports.rollback();
                return Err(error);
            }
        }
        Ok(())
    }
    #[inline]
    fn give_one(&mut self, item: <N::In as SealedInputs>::Taken) -> Result<(), NodeError> {
        let (Some(node), emit) = (&mut self.node, &mut self.emit) else { return drop_item(item) };
        node.apply(item, emit)?;
        emit.ports.commit()
    }
    fn trace(&mut self, item: &<N::In as SealedInputs>::Taken, fresh: u16) {
        if let Some(trace) = &self.emit.trace {
            trace_call::<<N::In as SealedInputs>::Intake>(&mut trace.borrow_mut(), item, fresh);
        }
    }
    #[inline]
    fn note(&mut self, item: &<N::In as SealedInputs>::Taken, weight: u32, cx: &mut Cx) {
        if <N::In as SealedInputs>::Intake::JOINS {
            note_skew::<<N::In as SealedInputs>::Intake>(self.skew, item, weight, cx);
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
    fn portion(&mut self, accounted: u64, weight: u32) {
        self.emit.ports.portion(accounted, weight);
    }
    #[inline]
    fn publish(&mut self, _: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        self.emit.ports.publish(sent, compute)
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

/// Makes a call and publishes its output, which derives from messages of earlier calls, whose terms are no longer known: its
/// ledger begins here, its latency at its origin.
fn call_without_message<O: Outputs>(
    emit: &mut Emit<O>,
    call: &mut dyn FnMut(&mut Emit<O>) -> Result<(), NodeError>,
    name: &'static str,
    refuses: bool,
    cx: &mut Cx,
) -> Result<(), Trouble> {
    if let Some(trace) = &emit.trace {
        trace.borrow_mut().begin();
    }
    let outcome = guarded(name, || {
        call(emit)?;
        emit.ports.commit()?;
        if refuses { emit.ports.admit() } else { Ok(()) }
    });
    let outcome = match outcome {
        Ok(()) => {
            let (now, weight) = (cx.read(), u32::from(cx.telemetry() != Telemetry::Off));
            emit.ports.portion(now, weight);
            emit.ports.publish(now, 0).map_err(|e| Trouble::error("emit", &e))
        }
        Err(trouble) => {
            emit.ports.rollback();
            Err(trouble)
        }
    };
    cx.stale();
    outcome
}

/// Handles a failure of the node: by its policy the stage goes on, rebuilds the node, or loses what arrives.
#[cold]
fn fail<O: Outputs>(
    node: &mut dyn NodeSlot,
    emit: &mut Emit<O>,
    intake: &mut impl Intake,
    common: &mut Common,
    cx: &mut Cx,
    trouble: Trouble,
) {
    emit.ports.rollback();
    if common.report(cx, trouble) {
        return;
    }
    // The output of earlier calls of this turn is valid.
    emit.ports.portion(0, 0);
    let _ = emit.ports.publish(0, 0);
    drop_node(node, common, cx);
    emit.wake = Time::NEVER;
    if common.schedule_restart(cx) {
        return;
    }
    let reason = common.gone();
    emit.ports.each(&mut |port| port.close(true));
    intake.discard(reason);
}

impl<N: Transform> TransformStage<N> {
    pub(crate) fn new(
        node: N,
        mut common: Common,
        intake: <N::In as SealedInputs>::Intake,
        emit: Emit<N::Out>,
        inputs: usize,
        again: Option<Rebuild<N>>,
        cx: &mut Cx,
    ) -> Self {
        common.takes(inputs, cx);
        common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        let work = TransformWork { node: Some(node), emit, skew: common.skew };
        TransformStage { common, feed: Feed::new(intake), work, again }
    }

    /// Makes a call without a message; true if it succeeded.
    fn call_extra(&mut self, cx: &mut Cx, call: ExtraCall) -> bool {
        let TransformWork { node, emit, .. } = &mut self.work;
        let mut give = |emit: &mut Emit<N::Out>| match (&mut *node, call) {
            (None, _) => Ok(()),
            (Some(node), ExtraCall::Wake) => node.wake(emit),
            (Some(node), ExtraCall::Finish) => node.finish(emit),
        };
        let outcome = call_without_message(emit, &mut give, call.name(), self.common.refuses, cx);
        outcome.map_err(|trouble| self.fail(cx, trouble)).is_ok()
    }

    /// Calls `wake` if it is due; true if it was.
    #[inline(never)]
    fn wake(&mut self, cx: &mut Cx) -> bool {
        let emit = &mut self.work.emit;
        if emit.wake.0 > cx.mark() || emit.ports.room(1, &mut || cx.read()) == 0 {
            return false;
        }
        emit.now = Time(cx.mark());
        emit.wake = Time::NEVER;
        if self.call_extra(cx, ExtraCall::Wake) {
            self.work.emit.ports.ring();
        }
        true
    }

    #[cold]
    fn turn_without_node(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Restarting(due) => {
                let (node, again) = (&mut self.work.node, &mut self.again);
                build_again(node, again, due, &mut self.common, cx).unwrap_or_else(|trouble| {
                    self.fail(cx, trouble);
                    Turn::Worked
                })
            }
            Life::Gone(reason) => self.common.drain(&mut self.feed.intake, reason),
            Life::Open | Life::Ended => Turn::Done,
        }
    }

    /// Handles the end of the inputs.
    #[cold]
    fn finish(&mut self, state: EdgeState, cx: &mut Cx) -> Turn {
        if self.work.emit.ports.room(1, &mut || cx.read()) == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.work.emit.ports, &self.common.counts);
        }
        if self.call_extra(cx, ExtraCall::Finish) || self.common.life == Life::Open {
            self.work.emit.ports.each(&mut |port| port.close(state == EdgeState::Failed));
            self.common.life = self.feed.ended();
        }
        Turn::Worked
    }

    fn fail(&mut self, cx: &mut Cx, trouble: Trouble) {
        let TransformWork { node, emit, .. } = &mut self.work;
        fail(node, emit, &mut self.feed.intake, &mut self.common, cx, trouble);
    }

    /// Passes the node the only message waiting.
    #[inline(always)]
    fn turn_once(&mut self, cx: &mut Cx) {
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        self.work.emit.now = Time(cx.latest());
        if let Err(trouble) = self.feed.process_only(&mut self.common, cx, &mut self.work) {
            self.fail(cx, trouble);
        }
    }

    /// A turn in the general case.
    #[inline(never)]
    fn turn_closely(&mut self, cx: &mut Cx) -> Turn {
        if self.common.life != Life::Open {
            return self.turn_without_node(cx);
        }
        let has_only = self.work.emit.wake == Time::NEVER && self.feed.has_only(&self.common);
        if has_only && self.work.emit.ports.room(1, &mut || cx.read()) > 0 {
            self.turn_once(cx);
            self.work.emit.ports.ring();
            return Turn::Worked;
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if self.work.emit.wake != Time::NEVER && self.wake(cx) {
            return Turn::Worked;
        }
        let limit = self.common.limit(self.feed.intake.is_perishable());
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            // A join may have taken or lost messages without a partner: producers waiting for that room need another
            // turn.
            let freed = self.feed.intake.ring();
            return match self.feed.intake.state() {
                EdgeState::Open if freed => Turn::Worked,
                EdgeState::Open => {
                    let (wake, reset) = self.common.listen(self.work.emit.wake.0.min(self.feed.intake.due()), cx);
                    match if reset { reset_node(&mut self.work.node, Reset::Gap, cx) } else { Ok(()) } {
                        Ok(()) => Turn::Idle(wake),
                        Err(trouble) => {
                            self.fail(cx, trouble);
                            Turn::Worked
                        }
                    }
                }
                state => self.finish(state, cx),
            };
        }
        let room = self.work.emit.ports.room(available, &mut || cx.read());
        let room = self.feed.intake.room(room);
        if room == 0 {
            self.common.note_blocked(cx);
            return blocked(&mut self.work.emit.ports, &self.common.counts);
        }
        self.work.emit.now = Time(cx.latest());
        if let Err(trouble) = self.feed.process(room, &mut self.common, cx, &mut self.work) {
            self.fail(cx, trouble);
        }
        self.work.emit.ports.ring();
        Turn::Worked
    }
}

impl<N: Transform> Stage for TransformStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        // A single message, and room for its result: no lists, room checks or bells.
        let is_plain = self.common.life == Life::Open && self.work.emit.wake == Time::NEVER;
        if is_plain && self.feed.has_only(&self.common) && self.work.emit.ports.is_clear() {
            self.turn_once(cx);
            return Turn::Worked;
        }
        self.turn_closely(cx)
    }

    #[cold]
    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let Some(result) = self.feed.take_panic(panic, &mut self.common, cx, &mut self.work) else { return false };
        if let Err(trouble) = result {
            self.fail(cx, trouble);
        }
        true
    }

    fn standing(&mut self, cx: &mut Cx) -> Standing {
        let pressed = is_pressed(&mut self.work.emit.ports);
        let wake = self.work.emit.wake;
        if self.common.life == Life::Open && wake != Time::NEVER && wake.0 <= cx.mark() {
            // Messages held back until now are already due.
            return Standing { ready: true, due: wake.0, pressed };
        }
        self.common.standing_of(&mut self.feed.intake, pressed, cx)
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        drop_node(&mut self.work.node, &mut self.common, cx);
        let metrics = std::mem::take(&mut self.common.last);
        Ended { node: self.common.node, metrics, left: self.feed.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        if let Err(trouble) = set_node(&mut self.work.node, name, value, cx) {
            self.fail(cx, trouble);
        }
    }
}
