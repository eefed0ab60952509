//! Stages: a node with its inputs, outputs, counters and loop body.
//!
//! [`Stage`] is the one erased trait. A worker turns its stages one after the other; a stage alone on its core is left
//! to its own [`Stage::run`], which the compiler makes once for every concrete stage, so that no call inside it is
//! indirect. A turn is one bounded piece of work: at most [`BURST`](crate::edge::BURST) messages, or as many as take about 20 µs.

mod common;
mod deadline_filter;
mod fault;
mod feed;
mod liveness;
mod restart;
mod sink;
mod source;
mod transform;
mod trouble;

use crate::node::Node;
use crate::node::metrics::Metrics;
pub(crate) use common::{Common, Life, Links};
use deadline_filter::count_misses;
pub(crate) use deadline_filter::{BySource, Judged, Peak, Rules, filter_burst};
use fault::Fault;
pub(crate) use liveness::Liveness;
pub(crate) use restart::{Again, Blueprint};
pub(crate) use sink::SinkStage;
pub(crate) use source::SourceStage;
pub(crate) use transform::TransformStage;
pub(crate) use trouble::{Trouble, guarded};

use crate::exec::shared::Command;
use crate::exec::worker::{Cx, Idler};
use crate::host::sync::Counter;
use crate::ledger::Hist;
use crate::node::error::NodeError;
use crate::node::intake::{Intake, Left, skew_of};
use crate::node::port::PortSet;
use std::any::Any;

/// A turn should not take longer than this, ns.
const TURN_NS: u64 = 20_000;
/// Calls above this, ns, are stamped and published singly.
const SLOW_NS: u64 = 1_000;
/// A stage that nothing recorded passes through is timed once in so many turns, to know how long its calls take.
const PROBE: u32 = 32;
/// As [`PROBE`], in so many calls of one message: two readings of the clock are most of what such a call costs.
const PROBE_ALONE: u64 = 256;

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
    Pending,
    /// The stage has ended.
    Done,
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
    /// Calls that took longer than the node's budget.
    pub(crate) over_budget: Counter,
    /// How often an input was silent for longer than it may be.
    pub(crate) gaps: Counter,
    /// How often the node was built again.
    pub(crate) restarts: Counter,
    /// How long a message needs from its arrival here to the end of the slowest sink behind, ns, as most of the last did; 0
    /// before that is known, and where nobody asks.
    pub(crate) rest: Counter,
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
            while let Some(Command { name, value, .. }) = cx.next_command() {
                self.set(&name, value, cx);
            }
        }
    }

    /// A panic came out of a turn. Where it was the node's own, in a call of one message that nothing guards, it is the node's
    /// failure and goes no further.
    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let _ = (panic, cx);
        false
    }

    /// What a schedule asks before it decides.
    fn standing(&mut self, cx: &mut Cx) -> Standing;

    /// Drops the node and says what is left.
    fn end(self: Box<Self>, cx: &mut Cx) -> Ended;

    /// Changes a setting of the node, or notes what it says against the value.
    fn set(&mut self, name: &str, value: f64, cx: &mut Cx);
}

/// What a schedule asks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether a turn would find something to work on.
    pub(crate) ready: bool,
    /// When what comes of it is due; never, where nobody waits for it.
    pub(crate) due: u64,
    /// Whether an output is at its soft mark, or full.
    pub(crate) pressed: bool,
}

impl Standing {
    /// Of a stage that has nothing to work on.
    pub(crate) const IDLE: Standing = Standing { ready: false, due: u64::MAX, pressed: false };
    /// Of a stage that is soon done with what is no node's work, while others wait for it.
    pub(crate) const AT_ONCE: Standing = Standing { ready: true, due: 0, pressed: false };
}

/// What a stage leaves behind.
pub(crate) struct Ended {
    pub(crate) node: usize,
    pub(crate) metrics: Metrics,
    pub(crate) left: Vec<Left>,
}

/// Records how far apart the messages of a call began, where it takes several together.
pub(crate) fn note_skew<I: Intake>(skew: Option<Hist>, taken: &I::Taken, weight: u32, cx: &mut Cx) {
    if let Some(skew) = skew {
        cx.record(skew, skew_of::<I>(taken), 1, weight);
    }
}

/// Tells a node to forget what it saw. `Err` where it panicked.
#[cold]
fn reset_node<N: Node>(node: &mut Option<N>, why: crate::node::Reset, cx: &mut Cx) -> Result<(), Trouble> {
    let outcome = guarded("reset", || {
        if let Some(node) = node {
            node.reset(why);
        }
        Ok(())
    });
    cx.stale();
    outcome
}

/// Changes a setting of a node. What it says against the value is noted; `Err` where it panicked.
#[cold]
fn set_node<N: Node>(node: &mut Option<N>, name: &str, value: f64, cx: &mut Cx) -> Result<(), Trouble> {
    let said = guarded("set", || Ok(node.as_mut().and_then(|node| node.set(name, value).err())))?;
    cx.stale();
    if let Some(error) = said {
        refuse(name, value, &error, cx);
    }
    Ok(())
}

/// Notes what a node says against a setting.
pub(crate) fn refuse(name: &str, value: f64, error: &NodeError, cx: &Cx) {
    cx.shared.refuse(format!("set {name} = {value}: {error}"));
}

/// Drops a node; a panic in its `Drop` is reported and goes no further.
fn drop_node<N: Node>(node: &mut Option<N>, common: &mut Common, cx: &Cx) {
    if let Some(node) = node {
        let mut metrics = metrics_of(node, common, cx);
        metrics.go_on_from(std::mem::take(&mut common.last));
        common.last = metrics;
    }
    let node = node.take();
    if let Err(trouble) = guarded("drop", || {
        drop(node);
        Ok(())
    }) {
        common.report(cx, trouble);
    }
}

fn metrics_of<N: Node>(node: &N, common: &Common, cx: &Cx) -> Metrics {
    let mut metrics = Metrics::default();
    if let Err(trouble) = guarded("metrics", || {
        node.metrics(&mut metrics);
        Ok(())
    }) {
        common.report(cx, trouble);
    }
    for note in metrics.notes.drain(..) {
        cx.shared.note_of(common.node, &note);
    }
    metrics
}

/// Whether an output is at its soft mark, or full.
fn is_pressed(ports: &mut impl PortSet) -> bool {
    let mut pressed = false;
    ports.each(&mut |port| pressed |= port.is_pressed());
    pressed
}

/// Builds a node again, if it is time. `Err` when that failed.
#[cold]
fn build_again<N>(
    node: &mut Option<N>,
    again: &mut Option<Again<N>>,
    due: u64,
    common: &mut Common,
    cx: &mut Cx,
) -> Result<Turn, Trouble> {
    // Who asks the graph to stop does not wait for a rest to end.
    if cx.read() < due && !cx.is_stopping() {
        return Ok(Turn::Idle(due));
    }
    common.counts.turns.add(1);
    cx.enter(common.node);
    if let Some(again) = again {
        *node = Some(guarded("build", again)?);
    }
    cx.stale();
    common.rise();
    Ok(Turn::Worked)
}

/// Blocked, or merely letting a ring come free a little more.
pub(crate) fn blocked(ports: &mut impl PortSet, counts: &Counts) -> Turn {
    let (mut settling, mut empty) = (false, false);
    ports.each(&mut |port| {
        // Whoever says for the first time that it waits looks once more, or it would miss what came free meanwhile.
        settling |= port.is_settling() | port.ask();
        empty |= port.pool_is_empty();
    });
    if empty {
        counts.pool_empty.add(1);
    }
    // At once: the 20 µs of a settling ring are shorter than any sleep.
    if settling { Turn::Idle(0) } else { Turn::Blocked }
}
