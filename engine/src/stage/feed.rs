//! What gives a node its messages: the burst, the stamps, the books, and the loop that runs once per message.

use super::{Common, Life, OnError, PROBE, Trouble, Turn, guarded};
use crate::edge::{Reason, State};
use crate::error::NodeError;
use crate::intake::{Burst, Intake};
use crate::worker::Cx;

/// What a stage does with its messages; transforms and sinks differ only in this.
pub(super) trait Work<T> {
    /// Gives the node items until only `behind` are left, or one fails. The one loop that runs once per message, with the
    /// node's call inside it and nothing else; implementations keep it out of line, so that it is compiled once per stage
    /// and has all registers to itself.
    fn give(&mut self, items: &mut std::vec::Drain<'_, T>, behind: usize) -> Result<(), NodeError>;
    /// Looks at a message that is recorded, before it is given away.
    fn note(&mut self, item: &T);
    /// Takes back what a call that did not return had emitted.
    fn rollback(&mut self);
    /// The messages since the last portion have this ledger.
    fn portion(&mut self, accounted: u64, weight: u32);
    /// The staged portions are published: `compute` was the last term of each.
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError>;
}

/// Notes the items that are given away until only `behind` are left.
fn note<T, W: Work<T>>(items: &std::vec::Drain<'_, T>, behind: usize, work: &mut W) {
    let slice = items.as_slice();
    slice[..slice.len().saturating_sub(behind)].iter().for_each(|item| work.note(item));
}

/// Inputs, and the messages taken from them for the current turn.
pub(super) struct Feed<I: Intake> {
    pub(super) intake: I,
    burst: Burst<I::Taken>,
}

impl<I: Intake> Feed<I> {
    pub(super) fn new(intake: I) -> Self {
        let burst = intake.burst();
        Feed { intake, burst }
    }

    /// Takes `n` calls' worth and gives them to the node. `Err` when the node is to be taken out.
    #[inline]
    pub(super) fn process<W: Work<I::Taken>>(
        &mut self,
        n: usize,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
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
            let outcome = guarded("call", || {
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
                            let rest = items.len() - 1;
                            if weight > 0 {
                                note(&items, rest, work);
                            }
                            work.give(&mut items, rest)?;
                            let end = cx.read();
                            let compute = end - from;
                            // Every slow call is recorded, so each stands for itself, whatever its run stands for.
                            cx.record(common.compute, compute, 1);
                            // Later messages of the burst waited for this one: to them that was time in the queue.
                            work.portion(accounted + (from - started), weight);
                            work.publish(cx, end, compute)?;
                            from = end;
                        }
                    } else {
                        if weight > 0 {
                            note(&items, behind, work);
                        }
                        work.give(&mut items, behind)?;
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
                        break Err(trouble);
                    }
                    common.report(cx, trouble);
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
                    result = work.publish(cx, end, end - started).map_err(|e| Trouble::error("emit", &e));
                }
            }
            common.learn(end - started, given as usize);
        } else {
            if result.is_ok() {
                result = work.publish(cx, 0, 0).map_err(|e| Trouble::error("emit", &e));
            }
            cx.stale();
        }
        portions.clear();
        self.intake.recycle(&mut self.burst);
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
    pub(super) fn drain(&mut self, common: &mut Common, reason: Reason) -> Turn {
        self.intake.discard(reason);
        if self.intake.state() == State::Open {
            Turn::Idle(u64::MAX)
        } else {
            common.life = Life::Ended;
            Turn::Done
        }
    }
}
