//! Feeding messages to a node: bursts, timing, counters, and the per-message loop.

use super::{
    CallFailure, Common, InjectedFaults, Life, NodeSlot, PROBE, PROBE_ALONE, SLOW_NS, count_misses, filter_burst,
    guarded,
};
use crate::base::policy::OnError;
use crate::edge::Reason;
use crate::exec::worker::Cx;
use crate::ledger::Run;
use crate::port::burst::Burst;
use crate::port::error::NodeError;
use crate::port::intake::{Intake, TakenBurst};
use std::any::Any;
use std::hint::cold_path;

/// The calls of a node with inputs. Single messages are passed to the concrete node; everything
/// else goes through a `dyn NodeCalls`, in code compiled once for each type of inputs and outputs:
/// one indirect call for a burst of one run, and one for each message of the others.
pub(super) trait NodeCalls<T, E>: NodeSlot {
    /// Passes the node all inputs, until one fails. This is the per-message loop, with nothing in
    /// it but the node's call.
    fn give(&mut self, burst: &mut Burst<'_, T>, ends: &mut E) -> Result<(), NodeError>;
    /// Passes the node one item.
    fn give_one(&mut self, item: T, ends: &mut E) -> Result<(), NodeError>;
}

/// Source, origin (`begun`) and ledger of a single message whose call has ended; `weight` is 0 if
/// it is not recorded.
#[derive(Clone, Copy, Default)]
pub(super) struct SingleLedger {
    pub(super) source: u16,
    pub(super) begun: u64,
    pub(super) accounted: u64,
    pub(super) weight: u32,
}

/// Where a stage's messages go: the ports of a transform, or the paths that end at a sink.
pub(super) trait Ends<I: Intake> {
    /// If origins are tracked: records the item of the next call. `fresh` as in
    /// [`Intake::each_origin`].
    fn trace(&mut self, item: &I::Taken, fresh: u16);
    /// Records a sampled message that counts for `weight`, before the node takes it.
    fn note(&mut self, item: &I::Taken, weight: u32, cx: &mut Cx);
    /// Discards the last `n` noted messages, which failed or never reached the node.
    fn forget(&mut self, n: usize);
    /// Discards the output of a failed call.
    fn rollback(&mut self);
    /// Sends the last call's output a second time.
    fn double(&mut self);
    /// As [`PortSet::admit`](crate::port::output::PortSet::admit).
    fn admit(&mut self) -> Result<(), NodeError>;
    /// Ends a segment: the messages staged since the last one share this ledger.
    fn segment(&mut self, accounted: u64, weight: u32);
    /// Publishes the staged segments; `compute` is the last term of each.
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError>;
    /// As [`Ends::publish_all`], for a single message that was not noted.
    fn publish_single(&mut self, ledger: SingleLedger, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError>;
    /// `segment` and `publish` in one, when all calls of the turn share one ledger.
    fn publish_all(
        &mut self,
        accounted: u64,
        weight: u32,
        cx: &mut Cx,
        sent: u64,
        compute: u64,
    ) -> Result<(), NodeError>;
}

/// Drops an item when there is no node: out of line, so that the usual case stays small enough to
/// be inlined.
#[cold]
#[inline(never)]
pub(super) fn drop_item<T>(item: T) -> Result<(), NodeError> {
    drop(item);
    Ok(())
}

/// The position of a turn in its runs.
#[derive(Default)]
struct Pass {
    slow: bool,
    /// When the turn began; 0 if the turn is not timed.
    started: u64,
    /// When the last individually timed call ended.
    from: u64,
    /// Index of the current run.
    at: usize,
    /// Messages left in the run; 0 before it is entered.
    left: usize,
    /// Items of the turn after the run's last message.
    behind: usize,
    accounted: u64,
    weight: u32,
    /// Number of items of the turn.
    all: usize,
}

impl Pass {
    /// Enters a run, with `items` left in the whole turn.
    #[inline]
    fn enter(&mut self, run: &Run, items: usize, common: &Common, cx: &mut Cx) {
        self.left = run.n as usize;
        self.weight = if run.is_recorded() { run.weight } else { 0 };
        if self.weight > 0 {
            self.accounted = run.accounted + cx.record_wait(common, run, self.started);
        }
        self.behind = items.saturating_sub(self.left);
    }

    /// Passes the node run after run.
    fn run<I: Intake, E: Ends<I>>(
        &mut self,
        runs: &[Run],
        items: &mut std::vec::Drain<'_, I::Taken>,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut dyn NodeCalls<I::Taken, E>,
        ends: &mut E,
    ) -> Result<(), NodeError> {
        while let Some(run) = runs.get(self.at) {
            if self.left == 0 {
                self.enter(run, items.len(), common, cx);
            }
            while items.len() > self.behind {
                let Some(item) = items.next() else { break };
                if common.traced {
                    let at = self.all - items.len() - 1;
                    ends.trace(&item, common.fresh.get(at).copied().unwrap_or(u16::MAX));
                }
                if self.weight > 0 {
                    ends.note(&item, self.weight, cx);
                }
                match &mut common.fault {
                    None => node.give_one(item, ends)?,
                    Some(fault) => give_or_fail::<I, E>(fault, item, node, ends)?,
                }
                if self.slow {
                    if common.refuses {
                        ends.admit()?;
                    }
                    let end = cx.read();
                    let compute = end - self.from;
                    // Every slow call is recorded, so each has weight 1, whatever the weight of its
                    // run.
                    cx.record(common.compute, compute, 1, 1);
                    common.check_budget(compute);
                    // Later messages of the burst waited for this one; for them that counts as
                    // queueing time.
                    ends.segment(self.accounted + (self.from - self.started), self.weight);
                    ends.publish(cx, end, compute)?;
                    self.from = end;
                }
            }
            if !self.slow {
                ends.segment(self.accounted, self.weight);
            }
            self.left = 0;
            self.at += 1;
        }
        Ok(())
    }

    /// Continues after a failed call, if failures are skipped. Returns how many calls failed, and
    /// the result of the turn. `noted` is the number of messages noted that the node has not taken;
    /// later calls are noted one by one. Iterator and position live outside the guarded calls, so a
    /// failed call leaves the rest in place.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "two callers share this state")]
    fn go_on<I: Intake, E: Ends<I>>(
        &mut self,
        mut failure: CallFailure,
        mut noted: usize,
        runs: &[Run],
        items: &mut std::vec::Drain<'_, I::Taken>,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut dyn NodeCalls<I::Taken, E>,
        ends: &mut E,
    ) -> (u64, Result<(), CallFailure>) {
        let mut failed = 0;
        loop {
            ends.rollback();
            failure.set_number(common.ended_calls() + (self.all - items.len()).saturating_sub(1) as u64);
            if self.weight > 0 {
                ends.forget(std::mem::replace(&mut noted, 1));
            }
            failed += 1;
            if failure.then(common.policy.on_error) != OnError::Skip {
                return (failed, Err(failure));
            }
            common.report(cx, failure);
            // Continue after the failed message, in its segment.
            self.left = items.len().saturating_sub(self.behind);
            if self.left == 0 && self.at < runs.len() {
                ends.segment(self.accounted, self.weight);
                self.at += 1;
            }
            match guarded("call", || self.run::<I, E>(runs, items, common, cx, node, ends)) {
                Ok(()) => return (failed, Ok(())),
                Err(next) => failure = next,
            }
        }
    }
}

/// Passes one item to a node with injected faults. A failed call has consumed its message.
#[cold]
fn give_or_fail<I: Intake, E: Ends<I>>(
    fault: &mut InjectedFaults,
    item: I::Taken,
    node: &mut dyn NodeCalls<I::Taken, E>,
    ends: &mut E,
) -> Result<(), NodeError> {
    fault.apply()?;
    node.give_one(item, ends)?;
    if fault.duplicates() {
        ends.double();
    }
    Ok(())
}

/// A burst of which a filter has selected messages.
struct Selection {
    /// When it was passed to the node, and how long its first message waited, if that is recorded.
    begin: u64,
    waited: Option<u64>,
    /// How many messages the node had taken before.
    taken: u64,
}

impl Selection {
    /// Has the filter learn how long the calls took.
    #[cold]
    #[inline(never)]
    fn end(self, common: &mut Common, cx: &mut Cx) {
        let given = (common.counts.taken.get() - self.taken) as usize;
        let call = cx.mark() - self.begin;
        if let Some(filter) = &mut common.filter {
            filter.learn(self.waited, call, &common.counts);
        }
        count_misses(common, given, cx);
    }
}

/// The inputs, and the messages taken from them for the current turn.
#[repr(C)]
pub(super) struct Feed<I: Intake> {
    pub(super) intake: I,
    burst: TakenBurst<I::Taken>,
}

impl<I: Intake> Feed<I> {
    pub(super) fn new(intake: I) -> Self {
        let burst = intake.burst();
        Feed { intake, burst }
    }

    /// Takes the messages of `n` calls and passes them to the node. `Err` if the node is to be
    /// removed.
    #[inline]
    pub(super) fn process<E: Ends<I>>(
        &mut self,
        n: usize,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut dyn NodeCalls<I::Taken, E>,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        let mut whole = None;
        if !common.is_slow() && !common.special && self.intake.take_burst(n, &mut self.burst.items) {
            whole = Some(self.intake.last_run(self.burst.items.len()));
        } else {
            self.intake.fill(n, &mut self.burst);
        }
        let mut selection = None;
        if common.filter.is_some() {
            selection = self.select(common, cx);
            if selection.is_none() {
                return Ok(());
            }
        }
        let result = self.process_burst(whole, common, cx, node, ends);
        if let Some(selection) = selection {
            selection.end(common, cx);
        }
        result
    }

    /// Leaves only the messages still worth a call. `None` if there are none.
    #[cold]
    #[inline(never)]
    fn select(&mut self, common: &mut Common, cx: &mut Cx) -> Option<Selection> {
        filter_burst(&mut self.intake, &mut self.burst, common, cx);
        if self.burst.items.is_empty() {
            self.intake.recycle(&mut self.burst);
            self.intake.ring();
            common.blocked_since = 0;
            return None;
        }
        let begin = cx.mark();
        let first = self.burst.runs.first().filter(|run| run.is_recorded());
        let waited = first.map(|run| begin.saturating_sub(run.sent));
        Some(Selection { begin, waited, taken: common.counts.taken.get() })
    }

    /// Whether exactly one message is waiting, and needs no closer look.
    #[inline]
    pub(super) fn has_only(&self, common: &Common) -> bool {
        !common.special && self.intake.has_only()
    }

    /// Processes a single message: the usual case of a graph that keeps up, and what its latency
    /// consists of. No other worker waits for the room it frees.
    #[inline(always)]
    pub(super) fn process_only<E: Ends<I>, C: NodeCalls<I::Taken, E>>(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut C,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        let Some((item, sent)) = self.intake.take_only() else { return Ok(()) };
        let probed = common.counts.taken.count() % PROBE_ALONE == 1 || common.is_slow();
        if probed || sent != 0 {
            self.call_timed(item, probed, common, cx, node, ends)
        } else {
            self.call_only::<E, C, false>(item, false, common, cx, node, ends)
        }
    }

    /// Out of line, so that a call that is not timed does not pay for the state of one that is.
    #[inline(never)]
    fn call_timed<E: Ends<I>, C: NodeCalls<I::Taken, E>>(
        &mut self,
        item: I::Taken,
        probed: bool,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut C,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        self.call_only::<E, C, true>(item, probed, common, cx, node, ends)
    }

    /// Calls the node with a single message; `TIMED` if the message is recorded or the call is
    /// `probed`.
    #[inline(always)]
    fn call_only<E: Ends<I>, C: NodeCalls<I::Taken, E>, const TIMED: bool>(
        &mut self,
        item: I::Taken,
        probed: bool,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut C,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        let (mut started, mut end, mut compute) = (0, 0, 0);
        let mut ledger = SingleLedger::default();
        if TIMED {
            started = cx.mark();
            let header = I::header(&item, common.lead);
            (ledger.source, ledger.begun) = (header.source, header.origin.0);
        }
        self.intake.received(1);
        common.calling = true;
        let result = node.give_one(item, ends);
        common.calling = false;
        if TIMED {
            end = cx.read();
            compute = end - started;
            let run = self.intake.last_run(1);
            // Recorded after the call, so that the node has its message earlier. A message whose
            // call panics has no terms.
            if run.is_recorded() {
                ledger.weight = run.weight;
                ledger.accounted = run.accounted + cx.record_wait_single(common, run.sent, run.weight, started);
                cx.record(common.compute, compute, 1, run.weight);
            }
            if probed || compute > SLOW_NS {
                cold_path();
                common.learn(compute, 1);
            }
        } else {
            cx.invalidate_clock();
        }
        common.blocked_since = 0;
        if let Err(error) = result {
            cold_path();
            return self.skip_one(CallFailure::error("call", &error), common, cx, ends);
        }
        common.counts.done.add(1);
        ends.publish_single(ledger, cx, end, compute).map_err(|e| CallFailure::error("emit", &e))
    }

    /// Handles a panic in a single-message call; `None` if it was not in one.
    /// [`crate::exec::scheduler`] catches it.
    #[cold]
    pub(super) fn take_panic<E: Ends<I>>(
        &mut self,
        panic: &(dyn Any + Send),
        common: &mut Common,
        cx: &mut Cx,
        ends: &mut E,
    ) -> Option<Result<(), CallFailure>> {
        if !std::mem::take(&mut common.calling) {
            return None;
        }
        cx.invalidate_clock();
        common.blocked_since = 0;
        Some(self.skip_one(CallFailure::panic("call", panic), common, cx, ends))
    }

    #[cold]
    fn skip_one<E: Ends<I>>(
        &mut self,
        mut failure: CallFailure,
        common: &mut Common,
        cx: &mut Cx,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        ends.rollback();
        failure.set_number(common.ended_calls());
        if failure.then(common.policy.on_error) != OnError::Skip {
            common.counts.failed.add(1);
            return Err(failure);
        }
        common.report(cx, failure);
        common.counts.failed.add(1);
        Ok(())
    }

    /// Passes the node the messages taken for this turn: in one call if they are a `whole` run, are
    /// cheap, and need no closer look; otherwise one by one. A run that was taken whole is not in
    /// the list of runs.
    #[inline(always)]
    fn process_burst<E: Ends<I>>(
        &mut self,
        mut whole: Option<Run>,
        common: &mut Common,
        cx: &mut Cx,
        node: &mut dyn NodeCalls<I::Taken, E>,
        ends: &mut E,
    ) -> Result<(), CallFailure> {
        let slow = common.is_slow() || common.singled;
        let TakenBurst { items, runs } = &mut self.burst;
        if common.traced {
            common.fresh.clear();
            common.fresh.extend((0..items.len()).map(|at| self.intake.fresh_at(at)));
        } else if runs.len() == 1 && !slow {
            whole = runs.pop();
        }
        common.turns = common.turns.wrapping_add(1);
        let recorded = whole.iter().chain(&*runs).any(Run::is_recorded);
        let timed = recorded || slow || common.filter.is_some() || common.turns % PROBE == 1;
        let all = items.len();
        let mut pass = Pass { slow, all, ..Pass::default() };
        if timed {
            pass.started = cx.mark();
            pass.from = pass.started;
        }
        if let Some(run) = whole.filter(Run::is_recorded) {
            pass.weight = run.weight;
            pass.accounted = run.accounted + cx.record_wait(common, &run, pass.started);
            items.iter().for_each(|item| ends.note(item, run.weight, cx));
        }
        let (mut failed, mut result) = (0, Ok(()));
        // A block, so that the burst is dropped in place: moving it into `drop` would copy it right
        // after the stores that made it.
        let unfinished = {
            let mut empty = Vec::new();
            let mut burst = Burst::new(items, &mut empty);
            let given = guarded("call", || match whole {
                Some(_) => node.give(&mut burst, ends),
                None => pass.run::<I, E>(runs, burst.rest(), common, cx, node, ends),
            });
            if let Err(failure) = given {
                if burst.len() == all {
                    let _ = guarded("drop", || {
                        drop(burst.rest().next());
                        Ok(())
                    });
                }
                // Of a whole run, all messages have been noted.
                let noted = if whole.is_some() { burst.len() + 1 } else { 1 };
                runs.extend(whole.take());
                (failed, result) = pass.go_on::<I, E>(failure, noted, runs, burst.rest(), common, cx, node, ends);
            }
            // Dropped with the iterator.
            burst.rest().len()
        };
        let (mut end, mut compute) = (0, 0);
        if timed {
            end = if slow { pass.from } else { cx.read() };
            if !slow {
                compute = end - pass.started;
                for run in whole.iter().chain(&*runs).filter(|run| run.is_recorded()) {
                    cx.record(common.compute, compute, run.n, run.weight);
                }
            }
            common.learn(end - pass.started, all - unfinished);
        } else {
            cx.invalidate_clock();
        }
        runs.clear();
        if result.is_ok() {
            let published = match whole {
                Some(_) => ends.publish_all(pass.accounted, pass.weight, cx, end, compute),
                None => ends.publish(cx, end, compute),
            };
            result = published.map_err(|e| CallFailure::error("emit", &e));
        }
        self.settle(all, unfinished, failed, common);
        self.intake.ring();
        result
    }

    /// Updates the counters after a turn that took `all`.
    #[inline]
    fn settle(&mut self, all: usize, unfinished: usize, failed: u64, common: &mut Common) {
        // The emptied buffer is the next one a stage of this worker writes to.
        self.intake.recycle(&mut self.burst);
        let given = (all - unfinished) as u64;
        common.counts.taken.add(given);
        common.counts.done.add(given - failed);
        if failed > 0 {
            common.counts.failed.add(failed);
        }
        self.intake.received(given);
        if unfinished > 0 {
            self.intake.lose(common.loss_of_inputs(), unfinished as u64);
        }
        common.blocked_since = 0;
    }

    /// Handles the end of a stream: a join whose partner has ended loses further messages of its
    /// other inputs.
    pub(super) fn ended(&mut self, life: Life) -> Life {
        let reason = if life == Life::Ending { Reason::Stopped } else { Reason::Unmatched };
        self.intake.discard(reason);
        if self.intake.is_drained() { Life::Ended } else { Life::Gone(reason) }
    }
}
