//! The stages of a worker, and the order in which they are turned.

use crate::base::policy::Schedule;
use crate::exec::stage::{DeviceWait, Ended, Readiness, Stage, Turn};
use crate::exec::worker::{Cx, Idler};
use crate::host::footprint::Footprint;
use crate::ledger::span::Activity;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A stage without a turn for this long is overdue, ns. Less than half of the 50 ms within which
/// every stage must have its turn, because overdue stages alternate with urgent ones.
const FAIR_NS: u64 = 20_000_000;
/// Turns chosen individually before the worker does its other duties.
const CHOICES: usize = 64;
/// Most consecutive turns of one stage.
const AGAIN: usize = 16;

/// The stages of a worker.
pub(crate) struct Scheduler {
    members: Vec<ScheduledStage>,
    schedule: Schedule,
    /// The stage chosen last by deadline.
    last: usize,
}

struct ScheduledStage {
    stage: Box<dyn Stage>,
    node: usize,
    is_done: bool,
    /// Found no work since a message last moved.
    is_quiet: bool,
    /// When its last turn began, ns; maintained only for schedules that use it.
    turned_at: u64,
}

impl Scheduler {
    pub(crate) fn new(stages: Vec<Box<dyn Stage>>, nodes: &[usize], schedule: Schedule) -> Self {
        let member = |(stage, node): (Box<dyn Stage>, &usize)| ScheduledStage {
            stage,
            node: *node,
            is_done: false,
            is_quiet: false,
            turned_at: 0,
        };
        Scheduler { members: stages.into_iter().zip(nodes).map(member).collect(), schedule, last: 0 }
    }

    /// Adds the stages with the nodes in them.
    pub(crate) fn footprint(&self, to: &mut Footprint) {
        to.add(self.members.as_ptr(), size_of_val(&*self.members));
        self.members.iter().for_each(|member| to.add_value(&*member.stage));
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The node of a stage.
    pub(crate) fn node(&self, at: usize) -> usize {
        self.members[at].node
    }

    /// Turns one stage.
    pub(crate) fn turn(&mut self, at: usize, cx: &mut Cx) -> Turn {
        self.guard(cx, |scheduler, cx| scheduler.members[at].stage.turn(cx))
    }

    /// Turns stages in the order of the schedule; all of them if none was found to have work.
    pub(crate) fn pass(&mut self, cx: &mut Cx) -> Turn {
        self.guard(cx, |scheduler, cx| match scheduler.schedule {
            Schedule::RoundRobin => scheduler.pass_in_turn(cx),
            Schedule::Deadline => scheduler.pass_by_deadline(cx),
            Schedule::Throughput => scheduler.pass_for_throughput(cx),
        })
    }

    /// Runs turns: a panic in a node's call becomes that node's failure. A stage guards the calls
    /// of a burst itself. Single-message calls are guarded here, once for the whole pass, because a
    /// guard for each would cost as much as the call.
    #[inline(always)]
    fn guard(&mut self, cx: &mut Cx, turns: impl FnOnce(&mut Scheduler, &mut Cx) -> Turn) -> Turn {
        match catch_unwind(AssertUnwindSafe(|| turns(self, cx))) {
            Ok(turn) => turn,
            Err(panic) => self.take_panic(cx, panic),
        }
    }

    /// # Panics
    /// Resumes a panic that did not come from a node.
    #[cold]
    #[inline(never)]
    fn take_panic(&mut self, cx: &mut Cx, panic: Box<dyn Any + Send>) -> Turn {
        if !self.members.iter_mut().any(|member| member.stage.take_panic(&*panic, cx)) {
            resume_unwind(panic);
        }
        Turn::Worked
    }

    /// Turns every stage once.
    fn pass_in_turn(&mut self, cx: &mut Cx) -> Turn {
        let mut outcome = PassOutcome::default();
        for member in &mut self.members {
            outcome.add(member.turn(cx));
        }
        outcome.turn()
    }

    /// Earliest deadline first, round robin among equals. After each such turn, an overdue stage
    /// gets one regardless of deadlines.
    #[inline(never)]
    fn pass_by_deadline(&mut self, cx: &mut Cx) -> Turn {
        let (mut worked, mut was_overdue) = (false, false);
        self.members.iter_mut().for_each(|member| member.is_quiet = false);
        for _ in 0..CHOICES {
            let now = cx.mark();
            let overdue = if was_overdue { None } else { self.most_overdue(now) };
            was_overdue = overdue.is_some();
            let Some(at) = overdue.or_else(|| self.most_urgent(cx)) else { break };
            self.members[at].turned_at = now;
            if self.members[at].turn(cx) == Turn::Worked {
                worked = true;
                // A message moved: stages without work may have some now.
                self.members.iter_mut().for_each(|member| member.is_quiet = false);
            } else {
                self.members[at].is_quiet = true;
            }
        }
        if worked {
            return Turn::Worked;
        }
        // Every stage gets a turn: also those waiting for a timer, for the end of a stream, or for
        // room.
        let turn = self.pass_in_turn(cx);
        let now = cx.mark();
        self.members.iter_mut().for_each(|member| member.turned_at = now);
        turn
    }

    fn most_overdue(&self, now: u64) -> Option<usize> {
        let longest = self.members.iter().enumerate().filter(|(_, member)| !member.is_done);
        let (at, member) = longest.min_by_key(|(_, member)| member.turned_at)?;
        (now.saturating_sub(member.turned_at) >= FAIR_NS).then_some(at)
    }

    fn most_urgent(&mut self, cx: &mut Cx) -> Option<usize> {
        let n = self.members.len();
        let mut first: Option<(u64, usize)> = None;
        for step in 1..=n {
            let at = (self.last + step) % n;
            let member = &mut self.members[at];
            if member.is_done || member.is_quiet {
                continue;
            }
            let Readiness { ready, due, .. } = member.stage.readiness(cx);
            if ready && first.is_none_or(|(soonest, _)| due < soonest) {
                first = Some((due, at));
            }
        }
        let (_, at) = first?;
        self.last = at;
        Some(at)
    }

    #[inline(never)]
    fn pass_for_throughput(&mut self, cx: &mut Cx) -> Turn {
        let mut outcome = PassOutcome::default();
        let begin = cx.mark();
        self.members.iter_mut().for_each(|member| member.is_quiet = false);
        for may_be_pressed in [false, true] {
            for member in &mut self.members {
                // Stages whose outputs are under backpressure wait until the others have had their
                // turn.
                if member.is_quiet || (!may_be_pressed && !member.is_done && member.stage.readiness(cx).pressed) {
                    continue;
                }
                member.is_quiet = true;
                for _ in 0..AGAIN {
                    let turn = member.turn(cx);
                    outcome.add(turn);
                    if turn != Turn::Worked || member.is_done || cx.mark().saturating_sub(begin) >= FAIR_NS / 2 {
                        break;
                    }
                    let Readiness { ready, pressed, .. } = member.stage.readiness(cx);
                    if !ready || pressed {
                        break;
                    }
                }
            }
        }
        outcome.turn()
    }

    pub(crate) fn run(&mut self, cx: &mut Cx, idler: &mut Idler) {
        // A stage alone on its worker has no edge within it, and guards every call itself.
        if let ([member], false) = (&mut self.members[..], cx.writes_spans()) {
            member.stage.run(cx, idler);
            member.is_done = true;
            return;
        }
        while !cx.is_aborted() {
            let turn = self.pass(cx);
            if turn == Turn::Done || !idler.after(cx, turn, &mut |wait| self.await_device(wait)) {
                break;
            }
            self.apply_commands(cx);
        }
    }

    /// Waits for a call on a device that a stage needs, as [`Stage::await_device`]: blocks on the
    /// first one, has the end of each ring.
    #[cold]
    pub(crate) fn await_device(&mut self, wait: DeviceWait) -> Option<bool> {
        let waiting = |member: &mut ScheduledStage| if member.is_done { None } else { member.stage.await_device(wait) };
        wait.over(self.members.iter_mut().filter_map(waiting))
    }

    /// Applies changes from outside.
    pub(crate) fn apply_commands(&mut self, cx: &mut Cx) {
        while let Some(command) = cx.next_command() {
            for (node, change) in command {
                if let Some(member) = self.members.iter_mut().find(|member| member.node == node) {
                    member.stage.change(change, cx);
                }
            }
        }
    }

    pub(crate) fn end(self, cx: &mut Cx) -> Vec<Ended> {
        self.members.into_iter().map(|member| member.stage.end(cx)).collect()
    }
}

impl ScheduledStage {
    #[inline]
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        if self.is_done {
            return Turn::Done;
        }
        let turn = if cx.writes_spans() { self.turn_written(cx) } else { self.stage.turn(cx) };
        if turn == Turn::Done {
            self.is_done = true;
            // Stages waiting for its end need another turn.
            return Turn::Worked;
        }
        turn
    }

    /// A turn that is written if something moved.
    #[cold]
    #[inline(never)]
    fn turn_written(&mut self, cx: &mut Cx) -> Turn {
        let begin = cx.read();
        let turn = self.stage.turn(cx);
        if turn == Turn::Worked {
            cx.write_span(Activity::Turn(self.node as u32), begin);
        }
        turn
    }
}

/// The combined outcome of the turns of a pass.
struct PassOutcome {
    worked: bool,
    pending: bool,
    all_done: bool,
    wake: u64,
}

impl Default for PassOutcome {
    fn default() -> Self {
        PassOutcome { worked: false, pending: false, all_done: true, wake: u64::MAX }
    }
}

impl PassOutcome {
    // Comparisons: the jump table of a `match` would be one more cache line between two stages.
    #[inline]
    fn add(&mut self, turn: Turn) {
        if turn == Turn::Worked {
            self.worked = true;
        } else if let Turn::Idle(until) = turn {
            self.wake = self.wake.min(until);
            self.all_done = false;
        } else if turn != Turn::Done {
            self.pending |= turn == Turn::Pending;
            self.all_done = false;
        }
    }

    fn turn(&self) -> Turn {
        if self.worked {
            Turn::Worked
        } else if self.all_done {
            Turn::Done
        } else if self.pending {
            Turn::Pending
        } else {
            Turn::Idle(self.wake)
        }
    }
}
