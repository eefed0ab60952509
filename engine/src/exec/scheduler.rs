//! The stages of a worker, and the order in which they are turned.

use crate::base::policy::Schedule;
use crate::exec::shared::Command;
use crate::exec::stage::{Ended, Stage, Standing, Turn};
use crate::exec::worker::{Cx, Idler};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A stage that has had no turn for so long is due one, ns: less than half of the 50 ms in which every stage shall have its turn,
/// because those that are overdue share the core with those that are urgent.
const FAIR_NS: u64 = 20_000_000;
/// Turns chosen one by one between two looks at everything else the worker has to do.
const CHOICES: usize = 64;
/// Turns that a stage may have one after the other.
const AGAIN: usize = 16;

/// The stages of a worker.
pub(crate) struct Scheduler {
    members: Vec<Member>,
    schedule: Schedule,
    /// Who was the most urgent last.
    last: usize,
}

struct Member {
    stage: Box<dyn Stage>,
    node: usize,
    is_done: bool,
    /// Had nothing to do since something moved.
    is_quiet: bool,
    /// When it had its last turn, ns; kept by the schedules that ask.
    turned_at: u64,
}

impl Scheduler {
    pub(crate) fn new(stages: Vec<Box<dyn Stage>>, nodes: &[usize], schedule: Schedule) -> Self {
        let member = |(stage, node): (Box<dyn Stage>, &usize)| Member {
            stage,
            node: *node,
            is_done: false,
            is_quiet: false,
            turned_at: 0,
        };
        Scheduler { members: stages.into_iter().zip(nodes).map(member).collect(), schedule, last: 0 }
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

    /// Turns stages as the schedule says, all of them where none was found to have work.
    pub(crate) fn pass(&mut self, cx: &mut Cx) -> Turn {
        self.guard(cx, |scheduler, cx| match scheduler.schedule {
            Schedule::RoundRobin => scheduler.pass_in_turn(cx),
            Schedule::Deadline => scheduler.pass_by_deadline(cx),
            Schedule::Throughput => scheduler.pass_for_throughput(cx),
        })
    }

    /// Runs turns: a panic that comes out of a node's call becomes that node's failure. A stage guards the calls of a burst
    /// itself; those of one message are guarded here, together, because a guard each would cost as much as the call.
    #[inline(always)]
    fn guard(&mut self, cx: &mut Cx, turns: impl FnOnce(&mut Scheduler, &mut Cx) -> Turn) -> Turn {
        match catch_unwind(AssertUnwindSafe(|| turns(self, cx))) {
            Ok(turn) => turn,
            Err(panic) => self.take_panic(cx, panic),
        }
    }

    /// # Panics
    /// Goes on with a panic that was no node's.
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
        let mut found = Found::default();
        for member in &mut self.members {
            found.add(member.turn(cx));
        }
        found.turn()
    }

    /// Earliest deadline first; what no deadline tells apart takes turns. Between two of these, a stage that has had no turn for
    /// long gets one, whatever is due.
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
                // Something moved: whoever had nothing to do may have now.
                self.members.iter_mut().for_each(|member| member.is_quiet = false);
            } else {
                self.members[at].is_quiet = true;
            }
        }
        if worked {
            return Turn::Worked;
        }
        // Everybody's turn: also theirs who wait for a time, for an end, or for room.
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
            let Standing { ready, due, .. } = member.stage.standing(cx);
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
        let mut found = Found::default();
        let begin = cx.mark();
        self.members.iter_mut().for_each(|member| member.is_quiet = false);
        for may_be_pressed in [false, true] {
            for member in &mut self.members {
                // Those whose outputs are under pressure wait until the others have had their turn.
                if member.is_quiet || (!may_be_pressed && !member.is_done && member.stage.standing(cx).pressed) {
                    continue;
                }
                member.is_quiet = true;
                for _ in 0..AGAIN {
                    let turn = member.turn(cx);
                    found.add(turn);
                    if turn != Turn::Worked || member.is_done || cx.mark().saturating_sub(begin) >= FAIR_NS / 2 {
                        break;
                    }
                    let Standing { ready, pressed, .. } = member.stage.standing(cx);
                    if !ready || pressed {
                        break;
                    }
                }
            }
        }
        found.turn()
    }

    pub(crate) fn run(&mut self, cx: &mut Cx, idler: &mut Idler) {
        // What is alone on its worker has no edge within it, and guards every call itself.
        if let [member] = &mut self.members[..] {
            member.stage.run(cx, idler);
            member.is_done = true;
            return;
        }
        while !cx.is_aborted() {
            let turn = self.pass(cx);
            if turn == Turn::Done || !idler.after(cx, turn) {
                break;
            }
            self.obey(cx);
        }
    }

    /// Applies the settings that were changed from outside.
    pub(crate) fn obey(&mut self, cx: &mut Cx) {
        while let Some(Command { node, name, value }) = cx.next_command() {
            if let Some(member) = self.members.iter_mut().find(|member| member.node == node) {
                member.stage.set(&name, value, cx);
            }
        }
    }

    pub(crate) fn end(self, cx: &mut Cx) -> Vec<Ended> {
        self.members.into_iter().map(|member| member.stage.end(cx)).collect()
    }
}

impl Member {
    #[inline]
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        if self.is_done {
            return Turn::Done;
        }
        let turn = self.stage.turn(cx);
        if turn == Turn::Done {
            self.is_done = true;
            // Whoever waits for its end is to be turned again.
            return Turn::Worked;
        }
        turn
    }
}

/// What the turns of a pass came to.
struct Found {
    worked: bool,
    pending: bool,
    all_done: bool,
    wake: u64,
}

impl Default for Found {
    fn default() -> Self {
        Found { worked: false, pending: false, all_done: true, wake: u64::MAX }
    }
}

impl Found {
    #[inline]
    fn add(&mut self, turn: Turn) {
        if turn == Turn::Worked { self.worked = true } else { self.add_idle(turn) }
    }

    fn add_idle(&mut self, turn: Turn) {
        match turn {
            Turn::Idle(until) => self.wake = self.wake.min(until),
            Turn::Worked | Turn::Blocked => {}
            Turn::Pending => self.pending = true,
            Turn::Done => return,
        }
        self.all_done = false;
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
