//! The stage of a sink, where end-to-end latencies are measured.

use super::feed::{Feed, NodeCalls, drop_item};
use super::path_ends::PathEnds;
use super::{
    CallFailure, Common, Ended, Life, NoHooks, NodeSlot, Readiness, Stage, StageSlot, Turn, build_again, drop_node,
    end_node, guarded, reset_node, set_node,
};
use crate::edge::EdgeState;
use crate::exec::planned::StageParts;
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::descriptors::Descriptors;
use crate::ledger::Term;
use crate::node::{Progress, Reset, Sink};
use crate::port::burst::Burst;
use crate::port::error::NodeError;
use crate::port::intake::Intake;
use crate::port::intake::SealedInputs;
use std::any::Any;

/// While messages keep coming, the node is asked so often to write what it buffers, ns.
const FLUSH_NS: u64 = 500_000_000;

/// A node without outputs.
pub(crate) struct SinkStage<N: Sink, H = NoHooks> {
    slot: StageSlot<N, H>,
    rest: SinkParts<<N::In as SealedInputs>::Intake>,
}

/// What only a sink of the engine's own does: an outlet.
pub(crate) trait SinkHooks<N> {
    /// Returns how many of `calls` calls there is room for downstream.
    fn room(_: &N, calls: usize) -> usize {
        calls
    }
    /// Called after a turn.
    fn turned(_: &mut N) {}
    /// Called before [`Sink::finish`] if the upstream node has failed.
    fn feeder_failed(_: &mut N) {}
}

impl<N> SinkHooks<N> for NoHooks {}

/// All of a sink's stage but its node. Turns in the general case are made here, compiled once for
/// each type of inputs.
struct SinkParts<I: Intake> {
    common: Common,
    feed: Feed<I>,
    ends: PathEnds,
    dirty: bool,
    /// When the node writes what it buffers even if another message is waiting, ns.
    flush_due: u64,
    /// `None` if the node does not wait for descriptors.
    waits: Option<DescriptorWaits>,
}

/// The calls of a sink.
trait SinkCalls<T>: NodeCalls<T, PathEnds> {
    /// Makes a call without a message.
    fn extra(&mut self, call: ExtraCall) -> Result<(), NodeError>;
    fn progress(&mut self) -> Result<Progress, NodeError>;
    fn room(&self, calls: usize) -> usize;
    fn turned(&mut self);
    fn feeder_failed(&mut self);
}

/// State of a node that waits for descriptors.
struct DescriptorWaits {
    descriptors: Descriptors,
    /// When `progress` is called next, ns.
    due: u64,
    is_full: bool,
    /// The stream has ended; the node ends once it accepts messages again.
    is_finishing: bool,
}

/// A call of the node without a message.
#[derive(Clone, Copy, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum ExtraCall {
    /// No more messages are waiting.
    Flush,
    /// No more messages will come.
    Finish,
}

impl ExtraCall {
    fn name(self) -> &'static str {
        self.into()
    }
}

impl<N: Sink, H> NodeCalls<<N::In as SealedInputs>::Taken, PathEnds> for StageSlot<N, H> {
    fn give(
        &mut self,
        burst: &mut Burst<'_, <N::In as SealedInputs>::Taken>,
        _: &mut PathEnds,
    ) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        for item in burst.rest() {
            node.take(item)?;
        }
        Ok(())
    }
    #[inline(always)]
    fn give_one(&mut self, item: <N::In as SealedInputs>::Taken, _: &mut PathEnds) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return drop_item(item) };
        node.take(item)
    }
}

impl<N: Sink, H: SinkHooks<N>> SinkCalls<<N::In as SealedInputs>::Taken> for StageSlot<N, H> {
    fn extra(&mut self, call: ExtraCall) -> Result<(), NodeError> {
        match (&mut self.node, call) {
            (None, _) => Ok(()),
            (Some(node), ExtraCall::Flush) => node.flush(),
            (Some(node), ExtraCall::Finish) => node.finish(),
        }
    }
    fn progress(&mut self) -> Result<Progress, NodeError> {
        self.node.as_mut().map_or(Ok(Progress::Takes(Time::NEVER)), N::progress)
    }
    fn room(&self, calls: usize) -> usize {
        self.node.as_ref().map_or(calls, |node| H::room(node, calls))
    }
    #[inline]
    fn turned(&mut self) {
        if let Some(node) = &mut self.node {
            H::turned(node);
        }
    }
    fn feeder_failed(&mut self) {
        if let Some(node) = &mut self.node {
            H::feeder_failed(node);
        }
    }
}

impl<I: Intake> SinkParts<I> {
    #[inline(never)]
    fn new(parts: StageParts, descriptors: Option<Descriptors>, cx: &mut Cx) -> Self {
        let StageParts { mut common, intake, sources, .. } = parts;
        common.takes(intake.edges.len(), cx);
        if descriptors.is_some() {
            common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        }
        let ends = PathEnds::new(&common, &sources, cx);
        let waits =
            descriptors.map(|descriptors| DescriptorWaits { descriptors, due: 0, is_full: false, is_finishing: false });
        SinkParts { common, feed: Feed::new(Intake::build(intake)), ends, dirty: false, flush_due: 0, waits }
    }

    /// Calls `progress` if it is due. Returns the turn's outcome if no message is to be taken in
    /// it.
    fn progress(&mut self, node: &mut dyn SinkCalls<I::Taken>, cx: &mut Cx) -> Option<Turn> {
        let waits = self.waits.as_mut()?;
        if cx.mark() >= waits.due || waits.descriptors.is_woken() {
            let outcome = guarded("progress", || node.progress());
            cx.invalidate_clock();
            // Also after a failure, or a ready descriptor would wake it again and again.
            waits.descriptors.wait_again();
            match outcome {
                Ok(Progress::Takes(due)) => (waits.due, waits.is_full) = (due.0, false),
                Ok(Progress::WhenReady(due)) => (waits.due, waits.is_full) = (due.0, true),
                Err(failure) => {
                    let is_finishing = waits.is_finishing;
                    self.fail(node, cx, failure);
                    // A node that continues takes messages, and `progress` is not called again
                    // immediately.
                    if let Some(waits) = &mut self.waits {
                        (waits.due, waits.is_full) = (u64::MAX, false);
                    }
                    if is_finishing && self.common.life == Life::Open {
                        self.common.life = self.feed.ended(Life::Open);
                    }
                    return Some(Turn::Worked);
                }
            }
        }
        if waits.is_full {
            // Writes the kernel cannot wait for are retried in the next turn.
            let turn = Turn::Idle(if waits.descriptors.is_woken() { 0 } else { waits.due });
            self.common.note_blocked(cx);
            return Some(turn);
        }
        if waits.is_finishing {
            self.common.life = self.feed.ended(Life::Open);
            return Some(Turn::Worked);
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, node: &mut dyn NodeSlot, cx: &mut Cx, failure: CallFailure) {
        self.ends.discard();
        if self.common.report(cx, failure) {
            return;
        }
        drop_node(node, &mut self.common, cx);
        if let Some(waits) = &mut self.waits {
            (waits.is_full, waits.is_finishing) = (false, false);
        }
        if self.common.schedule_restart(cx) {
            return;
        }
        let reason = self.common.gone();
        self.feed.intake.discard(reason);
    }

    /// Makes a call without a message.
    fn call_extra(&mut self, node: &mut dyn SinkCalls<I::Taken>, call: ExtraCall, cx: &mut Cx) {
        let outcome = guarded(call.name(), || node.extra(call));
        cx.invalidate_clock();
        if let Err(failure) = outcome {
            self.fail(node, cx, failure);
        }
    }

    /// Has the node write what it buffers, if that is due though another message may be waiting.
    /// The last clock reading is recent enough: only slow calls, which are timed, make messages
    /// rare.
    #[inline(always)]
    fn flush_if_due(&mut self, node: &mut dyn SinkCalls<I::Taken>, cx: &mut Cx) {
        if cx.latest() >= self.flush_due {
            self.flush(node, cx);
        }
    }

    /// Has the node write what it buffers.
    #[cold]
    #[inline(never)]
    fn flush(&mut self, node: &mut dyn SinkCalls<I::Taken>, cx: &mut Cx) {
        self.dirty = false;
        self.flush_due = cx.latest().saturating_add(FLUSH_NS);
        self.call_extra(node, ExtraCall::Flush, cx);
    }

    #[cold]
    fn turn_without_node(&mut self, node: &mut dyn NodeSlot, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Restarting(due) => {
                if let Some(waits) = &mut self.waits {
                    waits.due = 0;
                }
                build_again(node, due, &mut self.common, cx).unwrap_or_else(|failure| {
                    self.fail(node, cx, failure);
                    Turn::Worked
                })
            }
            Life::Gone(reason) => self.common.drain(&mut self.feed.intake, reason),
            Life::Open | Life::Ending | Life::Ended => Turn::Done,
        }
    }

    /// The turn of a stage whose inputs are empty.
    fn turn_without_message(&mut self, node: &mut dyn SinkCalls<I::Taken>, cx: &mut Cx) -> Turn {
        let freed = self.feed.intake.ring();
        let state = self.feed.intake.state();
        if state != EdgeState::Open {
            let failed = state == EdgeState::Failed;
            if failed {
                node.feeder_failed();
            }
            // For a sink that got nothing the run did not begin: it is dropped without `finish`, so
            // what it would replace stays.
            if self.common.counts.taken.get() == 0 && (failed || cx.shared.has_failed()) {
                self.common.life = self.feed.ended(Life::Open);
                return Turn::Worked;
            }
            self.call_extra(node, ExtraCall::Finish, cx);
            if self.common.life != Life::Open {
                return Turn::Worked;
            }
            match &mut self.waits {
                Some(waits) => (waits.due, waits.is_finishing) = (0, true),
                None => self.common.life = self.feed.ended(Life::Open),
            }
            return Turn::Worked;
        }
        let is_dirty = self.dirty;
        if is_dirty {
            self.flush(node, cx);
        }
        let mut wake = u64::MAX;
        if let Some(waits) = &mut self.waits {
            if is_dirty {
                // A write begun now continues in the next turn.
                waits.due = 0;
            }
            wake = waits.due;
            // No message has waited for the node.
            self.common.blocked_since = 0;
        }
        let (soonest, reset) = self.common.listen(self.feed.intake.due(), cx);
        if reset && let Err(failure) = reset_node(node, Reset::Gap, cx) {
            self.fail(node, cx, failure);
            return Turn::Worked;
        }
        if freed { Turn::Worked } else { Turn::Idle(wake.min(soonest)) }
    }

    /// A turn in the general case.
    fn turn(&mut self, node: &mut dyn SinkCalls<I::Taken>, cx: &mut Cx) -> Turn {
        if self.common.life != Life::Open {
            return self.turn_without_node(node, cx);
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if let Some(turn) = self.progress(node, cx) {
            return turn;
        }
        let limit = if self.waits.is_some() { 1 } else { self.common.limit(self.feed.intake.is_perishable()) };
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            return self.turn_without_message(node, cx);
        }
        let room = node.room(available);
        if room == 0 {
            self.common.note_blocked(cx);
            return Turn::Blocked;
        }
        self.dirty = true;
        if let Some(waits) = &mut self.waits {
            waits.due = 0;
        }
        if let Err(failure) = self.feed.process(room, &mut self.common, cx, node, &mut self.ends) {
            self.fail(node, cx, failure);
        }
        node.turned();
        self.flush_if_due(node, cx);
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

    /// Whether exactly one message is waiting that the node may be called with at once.
    #[inline]
    fn has_only<N: Sink>(&self) -> bool {
        !N::WAITS && self.common.life == Life::Open && self.feed.has_only(&self.common)
    }

    #[inline(never)]
    fn readiness(&mut self, cx: &mut Cx) -> Readiness {
        if self.common.life == Life::Open
            && let Some(waits) = &self.waits
        {
            if cx.mark() >= waits.due || waits.descriptors.is_woken() {
                return Readiness { ready: true, due: 0, pressed: false };
            }
            if waits.is_full {
                return Readiness::IDLE;
            }
        }
        self.common.readiness_of(&mut self.feed.intake, false, cx)
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

impl<N: Sink, H: SinkHooks<N>> SinkStage<N, H> {
    pub(crate) fn new(node: N, mut parts: StageParts, descriptors: Descriptors, cx: &mut Cx) -> Self {
        let slot = StageSlot::new(node, parts.blueprint.take());
        let descriptors = N::WAITS.then_some(descriptors);
        SinkStage { slot, rest: SinkParts::new(parts, descriptors, cx) }
    }

    /// As [`TransformStage::turn_burst`](super::TransformStage).
    #[inline(never)]
    fn turn_burst(&mut self, cx: &mut Cx) -> Turn {
        self.rest.turn(&mut self.slot, cx)
    }
}

impl<N: Sink, H: SinkHooks<N>> Stage for SinkStage<N, H> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        let SinkStage { slot, rest } = self;
        if rest.has_only::<N>() && slot.room(1) > 0 {
            rest.common.counts.turns.add(1);
            cx.enter(rest.common.node);
            rest.dirty = true;
            if let Err(failure) = rest.feed.process_only(&mut rest.common, cx, slot, &mut rest.ends) {
                rest.fail(slot, cx, failure);
            }
            slot.turned();
            rest.flush_if_due(slot, cx);
            return Turn::Worked;
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
        let SinkStage { mut slot, rest } = *self;
        rest.end(&mut slot, cx)
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        self.rest.set(&mut self.slot, name, value, cx);
    }
}
