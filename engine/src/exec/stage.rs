//! Stages: a node with its inputs, outputs, counters and loop body.
//!
//! A worker turns its stages, which are type-erased ([`Stage`]), in order. A stage alone on its
//! core runs its own [`Stage::run`], which is monomorphized per concrete stage, so its turn is a
//! direct call. A turn is one bounded piece of work: at most [`BURST`](crate::edge::BURST)
//! messages, or as many as fit in about 20 µs.
//!
//! Messages pass through a stage in one of two ways:
//!
//! | stage | single message, if all of this holds | burst |
//! |---|---|---|
//! | source | its time is set by a timer; its consumers, all on this worker, have taken every earlier message; no stop and no number of frames was requested | every other turn |
//! | transform | one message is waiting, sent alone on this worker to the only input; its output has room; no call without a message was requested | every other turn |
//! | sink | the same; the sink does not wait for descriptors | every other turn |
//!
//! A node with a budget, an injected fault or an edge that fails its producer always takes bursts.
//! So does a node with inputs whose origins are tracked, or whose messages are filtered by deadline
//! or age. The call of a single message is compiled with its stage (`Feed::process_only`,
//! `SourceParts::turn_single`), and the worker's pass guards it against panics. A burst is passed
//! to the node in one call if it was published together, its calls are fast, and none of them needs
//! a closer look; otherwise message by message (`Feed::process_burst`). The filter looks through a
//! burst before the node takes it. Models take batches, in a stage of their own
//! ([`crate::exec::infer`]).

mod call_failure;
mod common;
mod deadline_filter;
mod fault;
mod feed;
mod liveness;
mod path_ends;
mod restart;
mod sink;
mod source;
mod transform;

use crate::node::Node;
use crate::node::live::LiveCounters;
use crate::node::metrics::Metrics;
pub(crate) use call_failure::{CallFailure, guarded};
pub(crate) use common::{Common, Life, Links};
use deadline_filter::count_misses;
pub(crate) use deadline_filter::{BySource, Judged, Peak, Rules, filter_burst};
use fault::InjectedFaults;
pub(crate) use liveness::Liveness;
use restart::Rebuild;
pub(crate) use restart::{Blueprint, build_node};
pub(crate) use sink::{SinkHooks, SinkStage};
pub(crate) use source::{SourceHooks, SourceStage};
pub(crate) use transform::TransformStage;

use crate::exec::shared::Change;
use crate::exec::worker::{Cx, Idler};
use crate::host::sync::Counter;
use crate::ledger::Hist;
use crate::port::error::NodeError;
use crate::port::intake::{Intake, Left, skew_of};
use crate::port::output::PortSet;
use std::any::Any;
use std::marker::PhantomData;
use std::time::Duration;

/// Target duration of a turn, ns.
const TURN_NS: u64 = 20_000;
/// Calls slower than this, ns, are timed and published one at a time.
const SLOW_NS: u64 = 1_000;
/// A stage without recorded messages times one in this many turns, to estimate how long its calls
/// take.
const PROBE: u32 = 32;
/// As [`PROBE`], for calls with a single message: two clock reads are most of the cost of such a
/// call.
const PROBE_ALONE: u64 = 256;

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Messages moved.
    Worked,
    /// Nothing to do before this time.
    Idle(u64),
    /// There is work but no room for its results.
    Blocked,
    /// Work submitted to a device has not finished.
    Pending,
    /// The stage has ended.
    Done,
}

/// Counters of a node; single writer, read by the report.
// Those of every message are in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct StageCounts {
    /// Calls made with messages, or of a source.
    pub(crate) taken: Counter,
    pub(crate) done: Counter,
    pub(crate) turns: Counter,
    pub(crate) failed: Counter,
    /// Messages that a call took, and that have no result because the call that wrote an input on a
    /// device has failed.
    pub(crate) lost: Counter,
    /// Calls begun and not finished: 1 while a call runs, plus the messages a batch holds.
    pub(crate) held: Counter,
    pub(crate) pool_empty: Counter,
    /// Calls that took longer than the node's budget.
    pub(crate) over_budget: Counter,
    /// How often an input was silent for longer than allowed.
    pub(crate) gaps: Counter,
    /// How often the node was rebuilt.
    pub(crate) restarts: Counter,
    /// Estimated time from a message's arrival here to the end of the slowest sink downstream, a
    /// sum of 95th percentiles, ns; 0 until known, and where no stage needs it.
    pub(crate) remaining: Counter,
    /// Calls made to a batching backend.
    pub(crate) batches: Counter,
    /// 1 while the node waits for a time at which it wants to be called without a message.
    pub(crate) wakes: Counter,
    /// What the node counts itself.
    pub(crate) live: LiveCounters,
}

/// A node with everything it needs to run.
pub(crate) trait Stage {
    /// One bounded piece of work.
    fn turn(&mut self, cx: &mut Cx) -> Turn;

    /// Turns until the stage ends or the run is aborted; for a stage alone on its worker.
    fn run(&mut self, cx: &mut Cx, idler: &mut Idler) {
        while !cx.is_aborted() {
            let turn = self.turn(cx);
            if turn == Turn::Done || !idler.after(cx, turn, &mut |wait| self.await_device(wait)) {
                break;
            }
            while let Some(command) = cx.next_command() {
                command.into_iter().for_each(|(_, change)| self.change(change, cx));
            }
        }
    }

    /// Handles a panic that escaped a turn. Returns true if it came from the node, in an unguarded
    /// single-message call; it is then recorded as the node's failure.
    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let _ = (panic, cx);
        false
    }

    /// The state that a schedule decides by.
    fn readiness(&mut self, cx: &mut Cx) -> Readiness;

    /// Waits for a call on a device before the worker sleeps, or has it end the sleep. Returns
    /// whether the call has ended; `None` if the stage waits for none.
    fn await_device(&mut self, wait: DeviceWait) -> Option<bool> {
        let _ = wait;
        None
    }

    /// Drops the node and returns its metrics and the messages left in its inputs.
    fn end(self: Box<Self>, cx: &mut Cx) -> Ended;

    /// Changes a setting of the node; if the node refuses the value, notes the reason.
    fn set(&mut self, name: &str, value: f64, cx: &mut Cx);

    /// Has the stage take no more messages and end; for a node of a loop.
    fn end_loop(&mut self) {}

    /// Applies a change.
    fn change(&mut self, change: Change, cx: &mut Cx) {
        match change {
            Change::Set { name, value } => self.set(&name, value, cx),
            Change::EndLoop => self.end_loop(),
        }
    }
}

/// How an idle worker waits for a call on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceWait {
    /// It blocks, at most so long.
    Block(Duration),
    /// It will sleep; the end of the call rings its bell.
    Ring,
}

impl DeviceWait {
    /// Blocks on the first of several, or has the end of each ring.
    pub(crate) fn over(self, mut waits: impl Iterator<Item = bool>) -> Option<bool> {
        match self {
            DeviceWait::Block(_) => waits.next(),
            DeviceWait::Ring => waits.reduce(|some, other| some || other),
        }
    }
}

/// The state of a stage that a schedule decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Whether a turn would find work.
    pub(crate) ready: bool,
    /// When the result of that work is due; `u64::MAX` where it has no deadline.
    pub(crate) due: u64,
    /// Whether an output is at its soft mark, or full.
    pub(crate) pressed: bool,
}

impl Readiness {
    /// A stage without work.
    pub(crate) const IDLE: Readiness = Readiness { ready: false, due: u64::MAX, pressed: false };
    /// A stage with a short piece of engine work that other stages wait for.
    pub(crate) const URGENT: Readiness = Readiness { ready: true, due: 0, pressed: false };
}

/// The remains of a stage that has ended.
pub(crate) struct Ended {
    pub(crate) node: usize,
    pub(crate) metrics: Metrics,
    pub(crate) left: Vec<Left>,
}

/// Records how far apart in time the messages of a joined call originated.
pub(crate) fn note_skew<I: Intake>(skew: Option<Hist>, taken: &I::Taken, weight: u32, cx: &mut Cx) {
    if let Some(skew) = skew {
        cx.record(skew, skew_of::<I>(taken), 1, weight);
    }
}

/// A stage's node and what is needed to rebuild it.
struct StageSlot<N, H = NoHooks> {
    /// `None` after a failure.
    node: Option<N>,
    again: Option<Rebuild<N>>,
    hooks: PhantomData<fn() -> H>,
}

impl<N: Node, H> StageSlot<N, H> {
    fn new(node: N, blueprint: Option<Blueprint>) -> Self {
        StageSlot { node: Some(node), again: blueprint.map(Blueprint::again), hooks: PhantomData }
    }
}

/// The hooks of every node but the engine's handles: none.
pub(crate) struct NoHooks;

/// A [`StageSlot`], erased over its node's type, for what is done rarely: compiled once, not for
/// every node.
trait NodeSlot {
    fn reset(&mut self, why: crate::node::Reset);
    /// Returns the reason, if the node refuses.
    fn set(&mut self, name: &str, value: f64) -> Option<NodeError>;
    /// Writes the node's metrics. False if it has been dropped.
    fn metrics(&self, to: &mut Metrics) -> bool;
    fn clear(&mut self);
    /// Builds the node again, if that is its policy.
    fn rebuild(&mut self) -> Result<(), NodeError>;
}

impl<N: Node, H> NodeSlot for StageSlot<N, H> {
    fn reset(&mut self, why: crate::node::Reset) {
        if let Some(node) = &mut self.node {
            node.reset(why);
        }
    }
    fn set(&mut self, name: &str, value: f64) -> Option<NodeError> {
        self.node.as_mut().and_then(|node| node.set(name, value).err())
    }
    fn metrics(&self, to: &mut Metrics) -> bool {
        self.node.iter().for_each(|node| node.metrics(to));
        self.node.is_some()
    }
    fn clear(&mut self) {
        drop(self.node.take());
    }
    fn rebuild(&mut self) -> Result<(), NodeError> {
        if let Some(again) = &mut self.again {
            self.node = Some(again()?);
        }
        Ok(())
    }
}

/// Resets a node. `Err` if it panicked.
#[cold]
fn reset_node(node: &mut dyn NodeSlot, why: crate::node::Reset, cx: &mut Cx) -> Result<(), CallFailure> {
    let outcome = guarded("reset", || {
        node.reset(why);
        Ok(())
    });
    cx.invalidate_clock();
    outcome
}

/// Changes a setting of a node. A refusal is noted; `Err` if the node panicked.
#[cold]
fn set_node(at: usize, node: &mut dyn NodeSlot, name: &str, value: f64, cx: &mut Cx) -> Result<(), CallFailure> {
    let refusal = guarded("set", || Ok(node.set(name, value)))?;
    cx.invalidate_clock();
    if let Some(error) = refusal {
        refuse(at, name, value, &error, cx);
    }
    Ok(())
}

/// Notes that a node refused a setting.
pub(crate) fn refuse(at: usize, name: &str, value: f64, error: &NodeError, cx: &Cx) {
    cx.shared.refuse(format!("`{}` refused `{name}` = {value}: {error}", cx.shared.name(at)));
}

/// Drops a node and keeps its metrics; a panic in its `Drop` is reported and contained.
#[cold]
fn drop_node(node: &mut dyn NodeSlot, common: &mut Common, cx: &Cx) {
    let (mut metrics, mut is_there) = (Metrics::default(), true);
    if let Err(failure) = guarded("metrics", || {
        is_there = node.metrics(&mut metrics);
        Ok(())
    }) {
        common.report(cx, failure);
    }
    if is_there {
        for note in metrics.notes.drain(..) {
            cx.shared.note_of(common.node, &note);
        }
        metrics.carry_over(std::mem::take(&mut common.last));
        common.last = metrics;
    }
    if let Err(failure) = guarded("drop", || {
        node.clear();
        Ok(())
    }) {
        common.report(cx, failure);
    }
}

/// Drops a stage's node and returns what is left of the stage, but for the messages left in its
/// inputs.
fn end_node(node: &mut dyn NodeSlot, common: &mut Common, cx: &Cx) -> Ended {
    drop_node(node, common, cx);
    Ended { node: common.node, metrics: std::mem::take(&mut common.last), left: Vec::new() }
}

/// Whether an output is at its soft mark, or full.
fn is_pressed(ports: &mut impl PortSet) -> bool {
    let mut pressed = false;
    ports.each(&mut |port| pressed |= port.is_pressed());
    pressed
}

/// Rebuilds a node, if it is due. `Err` if that failed.
#[cold]
fn build_again(node: &mut dyn NodeSlot, due: u64, common: &mut Common, cx: &mut Cx) -> Result<Turn, CallFailure> {
    // A stop request does not wait for the backoff to elapse.
    if cx.read() < due && !cx.is_stopping() {
        return Ok(Turn::Idle(due));
    }
    common.counts.turns.add(1);
    cx.enter(common.node);
    guarded("build", || node.rebuild())?;
    cx.invalidate_clock();
    common.rebuilt(cx);
    Ok(Turn::Worked)
}

/// The turn of a stage without room: blocked, or waiting briefly for a ring to drain further.
pub(crate) fn blocked(ports: &mut impl PortSet, counts: &StageCounts) -> Turn {
    let (mut settling, mut empty) = (false, false);
    ports.each(&mut |port| {
        // A stage that has just registered as waiting checks once more, or it would miss room freed
        // in between.
        settling |= port.is_settling() | port.request_room();
        empty |= port.pool_is_empty();
    });
    if empty {
        counts.pool_empty.add(1);
    }
    // Immediately: the 20 µs of a settling ring are shorter than any sleep.
    if settling { Turn::Idle(0) } else { Turn::Blocked }
}
