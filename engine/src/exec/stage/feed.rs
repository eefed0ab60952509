//! What gives a node its messages: the burst, the stamps, the books, and the loop that runs once per message.

use super::{Common, Fault, Life, PROBE, PROBE_ALONE, SLOW_NS, Trouble, count_misses, filter_burst, guarded};
use crate::base::policy::OnError;
use crate::edge::Reason;
use crate::exec::worker::Cx;
use crate::ledger::Run;
use crate::node::error::NodeError;
use crate::node::intake::{Burst, Intake};
use std::any::Any;

/// What a stage does with its messages; transforms and sinks differ only in this.
pub(super) trait Work<T> {
    /// Gives the node all items, until one fails. The one loop that runs once per message, with the node's call inside it and
    /// nothing else; implementations keep it out of line, so that it is compiled once per stage and has all registers to
    /// itself.
    fn give(&mut self, items: &mut std::vec::Drain<'_, T>) -> Result<(), NodeError>;
    /// Gives the node one item.
    fn give_one(&mut self, item: T) -> Result<(), NodeError>;
    /// Where origins are followed: the next call takes this. `fresh` as in [`Intake::each_origin`].
    fn trace(&mut self, item: &T, fresh: u16);
    /// Looks at a message that is recorded and counts for `weight`, before it is given away.
    fn note(&mut self, item: &T, weight: u32, cx: &mut Cx);
    /// The last `n` messages noted failed, or were not given.
    fn forget(&mut self, n: usize);
    /// Takes back what a call that did not return had emitted.
    fn rollback(&mut self);
    /// Sends what the last call sent once more.
    fn double(&mut self);
    /// As [`PortSet::admit`](crate::node::port::PortSet::admit).
    fn admit(&mut self) -> Result<(), NodeError>;
    /// The messages since the last portion have this ledger.
    fn portion(&mut self, accounted: u64, weight: u32);
    /// The staged portions are published: `compute` was the last term of each.
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError>;
    /// Both, where all calls of the turn have one ledger.
    fn publish_all(
        &mut self,
        accounted: u64,
        weight: u32,
        cx: &mut Cx,
        sent: u64,
        compute: u64,
    ) -> Result<(), NodeError>;
}

/// Drops what no node is there to take: out of line, so that the usual case stays small enough to be compiled into its caller.
#[cold]
#[inline(never)]
pub(super) fn drop_item<T>(item: T) -> Result<(), NodeError> {
    drop(item);
    Ok(())
}

/// How far a turn has come with its runs.
#[derive(Default)]
struct Pass {
    slow: bool,
    /// When the turn began; 0 where nobody asks.
    started: u64,
    /// When the last call ended that was stamped singly.
    from: u64,
    /// The run being given.
    at: usize,
    /// How many of its messages are left; 0 before it is entered.
    left: usize,
    /// How many items stay behind its last.
    behind: usize,
    accounted: u64,
    weight: u32,
    /// Items of the turn.
    all: usize,
}

impl Pass {
    /// Begins a run, with `items` still to be given in the whole turn.
    #[inline]
    fn enter(&mut self, run: &Run, items: usize, common: &Common, cx: &mut Cx) {
        self.left = run.n as usize;
        self.weight = if run.is_recorded() { run.weight } else { 0 };
        if self.weight > 0 {
            self.accounted = run.accounted + cx.record_wait(common, run, self.started);
        }
        self.behind = items.saturating_sub(self.left);
    }

    /// Gives run after run.
    fn run<T, W: Work<T>>(
        &mut self,
        runs: &[Run],
        items: &mut std::vec::Drain<'_, T>,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), NodeError> {
        while let Some(run) = runs.get(self.at) {
            if self.left == 0 {
                self.enter(run, items.len(), common, cx);
            }
            while items.len() > self.behind {
                let Some(item) = items.next() else { break };
                if common.traced {
                    let at = self.all - items.len() - 1;
                    work.trace(&item, common.fresh.get(at).copied().unwrap_or(u16::MAX));
                }
                if self.weight > 0 {
                    work.note(&item, self.weight, cx);
                }
                match &mut common.fault {
                    None => work.give_one(item)?,
                    Some(fault) => give_or_fail(fault, item, work)?,
                }
                if self.slow {
                    if common.refuses {
                        work.admit()?;
                    }
                    let end = cx.read();
                    let compute = end - self.from;
                    // Every slow call is recorded, so each stands for itself, whatever its run stands for.
                    cx.record(common.compute, compute, 1, 1);
                    common.check_budget(compute);
                    // Later messages of the burst waited for this one: to them that was time in the queue.
                    work.portion(self.accounted + (self.from - self.started), self.weight);
                    work.publish(cx, end, compute)?;
                    self.from = end;
                }
            }
            if !self.slow {
                work.portion(self.accounted, self.weight);
            }
            self.left = 0;
            self.at += 1;
        }
        Ok(())
    }

    /// What follows a call that failed: the rest, where failures are skipped. Says how many failed, and with what the turn ends.
    /// `noted` is how many messages were noted that the node has not taken; later calls are noted one by one.
    /// Iterator and position live outside the guarded calls, so that a call that fails leaves the rest where it is.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "two callers, and what they share")]
    fn go_on<T, W: Work<T>>(
        &mut self,
        mut trouble: Trouble,
        mut noted: usize,
        runs: &[Run],
        items: &mut std::vec::Drain<'_, T>,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> (u64, Result<(), Trouble>) {
        let mut failed = 0;
        loop {
            work.rollback();
            if self.weight > 0 {
                work.forget(std::mem::replace(&mut noted, 1));
            }
            failed += 1;
            if common.policy.on_error != OnError::Skip {
                return (failed, Err(trouble));
            }
            common.report(cx, trouble);
            // Go on behind the message that failed, in its portion.
            self.left = items.len().saturating_sub(self.behind);
            if self.left == 0 && self.at < runs.len() {
                work.portion(self.accounted, self.weight);
                self.at += 1;
            }
            match guarded("call", || self.run(runs, items, common, cx, work)) {
                Ok(()) => return (failed, Ok(())),
                Err(next) => trouble = next,
            }
        }
    }
}

/// Gives one item to a node that has faults planted. A call that fails has had its message.
#[cold]
fn give_or_fail<T, W: Work<T>>(fault: &mut Fault, item: T, work: &mut W) -> Result<(), NodeError> {
    fault.strike()?;
    work.give_one(item)?;
    if fault.duplicates() {
        work.double();
    }
    Ok(())
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
        if common.filter.is_some() {
            return self.process_fresh(n, common, cx, work);
        }
        if !common.is_slow() && !common.special && self.intake.take_burst(n, &mut self.burst.items) {
            let run = self.intake.last_run(self.burst.items.len());
            return self.process_run(run, common, cx, work);
        }
        self.intake.fill(n, &mut self.burst);
        self.process_burst(common, cx, work)
    }

    /// Only what is still worth a call.
    #[cold]
    #[inline(never)]
    fn process_fresh<W: Work<I::Taken>>(
        &mut self,
        n: usize,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        self.intake.fill(n, &mut self.burst);
        filter_burst(&mut self.intake, &mut self.burst, common, cx);
        if self.burst.items.is_empty() {
            self.intake.recycle(&mut self.burst);
            self.intake.ring();
            common.blocked_since = 0;
            return Ok(());
        }
        let begin = cx.mark();
        let first = self.burst.runs.first().filter(|run| run.is_recorded());
        let waited = first.map(|run| begin.saturating_sub(run.sent));
        let taken = common.counts.taken.get();
        let result = self.process_burst(common, cx, work);
        let given = (common.counts.taken.get() - taken) as usize;
        let call = cx.mark() - begin;
        if let Some(filter) = &mut common.filter {
            filter.learn(waited, call, &common.counts);
        }
        count_misses(common, given, cx);
        result
    }

    /// Whether one message came alone, and needs no closer look.
    #[inline]
    pub(super) fn has_only(&self, common: &Common) -> bool {
        !common.special && self.intake.has_only()
    }

    /// One message alone: what a graph that keeps up does all day, and what its latency is made of. Nobody waits elsewhere for
    /// the room it leaves.
    #[inline(always)]
    pub(super) fn process_only<W: Work<I::Taken>>(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        let Some((item, sent)) = self.intake.take_only() else { return Ok(()) };
        let probed = common.counts.taken.count() % PROBE_ALONE == 1 || common.is_slow();
        if probed || sent != 0 {
            return self.process_timed(item, probed, common, cx, work);
        }
        self.intake.received(1);
        common.calling = true;
        let result = work.give_one(item);
        common.calling = false;
        cx.stale();
        common.blocked_since = 0;
        if let Err(error) = result {
            return self.skip_one(Trouble::error("call", &error), common, cx, work);
        }
        common.counts.done.add(1);
        work.publish_all(0, 0, cx, 0, 0).map_err(|e| Trouble::error("emit", &e))
    }

    /// As [`Feed::process_only`], of a message that is recorded, or a call that is timed. Out of line, so that neither path
    /// has to keep what only the other needs.
    #[inline(never)]
    fn process_timed<W: Work<I::Taken>>(
        &mut self,
        item: I::Taken,
        probed: bool,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        let started = cx.mark();
        let run = self.intake.last_run(1);
        let recorded = run.is_recorded();
        let (mut accounted, mut weight) = (0, 0);
        if recorded {
            weight = run.weight;
            accounted = run.accounted + cx.record_wait_alone(common, &run, started);
            work.note(&item, weight, cx);
        }
        self.intake.received(1);
        common.calling = true;
        let result = work.give_one(item);
        common.calling = false;
        let end = cx.read();
        let compute = end - started;
        if recorded {
            cx.record(common.compute, compute, 1, weight);
        }
        if probed || compute > SLOW_NS {
            common.learn(compute, 1);
        }
        common.blocked_since = 0;
        if let Err(error) = result {
            return self.skip_one(Trouble::error("call", &error), common, cx, work);
        }
        common.counts.done.add(1);
        work.publish_all(accounted, weight, cx, end, compute).map_err(|e| Trouble::error("emit", &e))
    }

    /// What a panic in a call of one message comes to; `None` where it was not in one. See [`crate::exec::scheduler`] for who asks.
    #[cold]
    pub(super) fn take_panic<W: Work<I::Taken>>(
        &mut self,
        panic: &(dyn Any + Send),
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Option<Result<(), Trouble>> {
        if !std::mem::take(&mut common.calling) {
            return None;
        }
        cx.stale();
        common.blocked_since = 0;
        Some(self.skip_one(Trouble::panic("call", panic), common, cx, work))
    }

    #[cold]
    fn skip_one<W: Work<I::Taken>>(
        &mut self,
        trouble: Trouble,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        work.rollback();
        if common.policy.on_error != OnError::Skip {
            common.counts.failed.add(1);
            return Err(trouble);
        }
        common.report(cx, trouble);
        common.counts.failed.add(1);
        // Nothing is staged: a sink forgets what it noted of the message.
        work.publish(cx, 0, 0).map_err(|e| Trouble::error("emit", &e))
    }

    /// Messages that were published together, and calls that are cheap: nearly always.
    #[inline(always)]
    fn process_run<W: Work<I::Taken>>(
        &mut self,
        run: Run,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        common.turns = common.turns.wrapping_add(1);
        let recorded = run.is_recorded();
        let timed = recorded || common.filter.is_some() || common.turns % PROBE == 1;
        let mut pass = Pass { started: if timed { cx.mark() } else { 0 }, ..Pass::default() };
        let Burst { items, runs } = &mut self.burst;
        let all = items.len();
        if recorded {
            pass.weight = run.weight;
            pass.accounted = run.accounted + cx.record_wait(common, &run, pass.started);
            items.iter().for_each(|item| work.note(item, run.weight, cx));
        }
        let (mut failed, mut result) = (0, Ok(()));
        // A block, so that the iterator is dropped where it is: moved into `drop`, it would be copied right behind the
        // stores that made it.
        let unfinished = {
            let mut items = items.drain(..);
            if let Err(trouble) = guarded("call", || work.give(&mut items)) {
                runs.push(run);
                let noted = items.len() + 1;
                (failed, result) = pass.go_on(trouble, noted, runs, &mut items, common, cx, work);
                runs.clear();
            }
            items.len()
        };
        let (mut end, mut compute) = (0, 0);
        if timed {
            end = cx.read();
            compute = end - pass.started;
            if recorded {
                cx.record(common.compute, compute, run.n, run.weight);
            }
            common.learn(compute, all - unfinished);
        } else {
            cx.stale();
        }
        if result.is_ok() {
            let published = match failed {
                0 => work.publish_all(pass.accounted, pass.weight, cx, end, compute),
                _ => work.publish(cx, end, compute),
            };
            result = published.map_err(|e| Trouble::error("emit", &e));
        }
        self.settle(all, unfinished, failed, common);
        result
    }

    fn process_burst<W: Work<I::Taken>>(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        work: &mut W,
    ) -> Result<(), Trouble> {
        let slow = common.is_slow() || common.singled;
        if common.traced {
            common.fresh.clear();
            common.fresh.extend((0..self.burst.items.len()).map(|at| self.intake.fresh_at(at)));
        } else if let ([run], false) = (&self.burst.runs[..], slow) {
            let run = *run;
            self.burst.runs.clear();
            let result = self.process_run(run, common, cx, work);
            self.intake.ring();
            return result;
        }
        common.turns = common.turns.wrapping_add(1);
        let mut pass = Pass { slow, all: self.burst.items.len(), ..Pass::default() };
        let Burst { items, runs } = &mut self.burst;
        let recorded = runs.iter().any(Run::is_recorded);
        let timed = recorded || slow || common.filter.is_some() || common.turns % PROBE == 1;
        if timed {
            pass.started = cx.mark();
            pass.from = pass.started;
        }
        let all = items.len();
        let (mut failed, mut result) = (0, Ok(()));
        let unfinished = {
            let mut items = items.drain(..);
            if let Err(trouble) = guarded("call", || pass.run(runs, &mut items, common, cx, work)) {
                (failed, result) = pass.go_on(trouble, 1, runs, &mut items, common, cx, work);
            }
            items.len()
        };
        let (mut end, mut compute) = (0, 0);
        if timed {
            end = if slow { pass.from } else { cx.read() };
            if !slow {
                compute = end - pass.started;
                for run in runs.iter().filter(|run| run.is_recorded()) {
                    cx.record(common.compute, compute, run.n, run.weight);
                }
            }
            common.learn(end - pass.started, all - unfinished);
        } else {
            cx.stale();
        }
        runs.clear();
        if result.is_ok() {
            result = work.publish(cx, end, compute).map_err(|e| Trouble::error("emit", &e));
        }
        self.settle(all, unfinished, failed, common);
        self.intake.ring();
        result
    }

    /// The books of a turn that took `all`.
    #[inline]
    fn settle(&mut self, all: usize, unfinished: usize, failed: u64, common: &mut Common) {
        // The emptied buffer is the next one that a stage of this worker writes to.
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

    /// What follows the end of a stream: a join whose partner has ended loses what still comes to its other inputs.
    pub(super) fn ended(&mut self) -> Life {
        self.intake.discard(Reason::Unmatched);
        if self.intake.is_drained() { Life::Ended } else { Life::Gone(Reason::Unmatched) }
    }
}
