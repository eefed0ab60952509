//! What all stages have: whether the node lives, the books, and how many messages a turn may take.

use super::deadline_filter::{BySource, DeadlineFilter};
use super::fault::Fault;
use super::liveness::Liveness;
use super::restart::Restart;
use super::trouble::{Trouble, TroubleText};
use super::{Counts, Judged, SLOW_NS, Standing, TURN_NS, Turn};
use crate::base::policy::{NodePolicy, OnError, OnGap};
use crate::edge::{BURST, Reason, State};
use crate::exec::notice::Noticed;
use crate::exec::planned::StagePlan;
use crate::exec::shared::{Failure, RunShared};
use crate::exec::worker::Cx;
use crate::host::sync::Arc;
use crate::ledger::{Hist, Term};
use crate::message::payload::Header;
use crate::node::intake::{Intake, Lead};
use crate::node::metrics::Metrics;

/// Whether the node is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// The node has failed and is to be built again at this time.
    Resting(u64),
    /// The node has failed; what still comes is lost for this reason.
    Gone(Reason),
    Ended,
}

/// What a stage has in common with others, and with the report.
pub(crate) struct Links {
    pub(crate) counts: Arc<Counts>,
    /// Inputs that must not be silent.
    pub(crate) live: Vec<Liveness>,
    /// What became of messages at their sink, by path of the plan.
    pub(crate) judged: Arc<Vec<Judged>>,
    /// The counters of the nodes behind.
    pub(crate) behind: Vec<Arc<Counts>>,
}

/// The half of a stage that knows neither node nor payload. What is asked for every message or turn is a number or a truth value of its
/// own, made once of what the policy says.
pub(crate) struct Common {
    pub(crate) node: usize,
    /// What the graph file asks of the node.
    pub(crate) policy: Box<NodePolicy>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) compute: Hist,
    pub(crate) queue: Option<Hist>,
    pub(crate) hold: Option<Hist>,
    pub(crate) blocked: Option<Hist>,
    /// How far apart the messages of a join began.
    pub(crate) skew: Option<Hist>,
    /// Whether a call takes messages of several inputs together.
    pub(crate) joins: bool,
    /// Whether the origins of what it takes are followed.
    pub(crate) traced: bool,
    /// Most messages of a turn.
    pub(crate) most: usize,
    /// Of the turn's calls: which messages were in no call before, a bit for each input.
    pub(super) fresh: Vec<u16>,
    pub(crate) life: Life,
    /// Whether messages need more than to be given to the node, a closer look before or a call each by itself: `filter`,
    /// `singled` and `traced` in one question, asked once a turn.
    pub(super) special: bool,
    /// Mean time of a call, ns; 0 before the first was timed.
    pub(super) call_ns: u64,
    /// How many messages one turn may take: what fits into 20 µs.
    pub(super) limit: usize,
    pub(super) turns: u32,
    /// The node has been given one message, and has not returned.
    pub(super) calling: bool,
    pub(super) blocked_since: u64,
    /// Whose header stands for what a call takes.
    pub(crate) lead: Lead,
    /// What goes wrong on purpose.
    pub(crate) fault: Option<Box<Fault>>,
    /// Which messages are still worth a call.
    pub(crate) filter: Option<Box<DeadlineFilter>>,
    /// How long a call may take, ns; 0 where nobody minds.
    pub(crate) budget: u64,
    /// Whether an edge fails the node where it has no room for what a call has sent.
    pub(crate) refuses: bool,
    /// Whether every call is made, stamped and published by itself, and nothing may be left out on the way.
    pub(super) singled: bool,
    /// Inputs that must not be silent.
    pub(crate) live: Vec<Liveness>,
    /// Whether a node that failed is built again, and when.
    pub(crate) restart: Option<Box<Restart>>,
    /// By source: the shortest deadline of the paths through here, ns; for a schedule that asks.
    pub(crate) urgency: BySource<u64>,
    /// After which turn a schedule found something to do here, and when.
    pub(super) ready: (u64, u64),
    /// The figures of the node that was dropped last.
    pub(super) last: Metrics,
    /// A turn that takes longer is told, ns.
    pub(super) watchdog: u64,
    pub(super) shared: Arc<RunShared>,
}

impl Common {
    /// Takes out of the plan of a stage what its calls go by.
    pub(crate) fn new(node: usize, plan: &mut StagePlan, links: Links, cx: &mut Cx) -> Self {
        let Links { counts, live, judged, behind } = links;
        let policy = Box::new(std::mem::take(&mut plan.policy));
        let rules = std::mem::take(&mut plan.rules);
        let is_filtered = !rules.is_empty() || policy.has_fault(|fault| fault.drop > 0.0);
        let filter =
            is_filtered.then(|| Box::new(DeadlineFilter::new(rules, plan.buffer, judged, behind, plan.traced)));
        Common {
            node,
            counts,
            compute: cx.histogram(node, Term::Compute, 2),
            queue: None,
            hold: None,
            blocked: None,
            skew: None,
            joins: plan.joins,
            traced: plan.traced,
            most: plan.buffer.max(BURST) + 1,
            fresh: Vec::new(),
            life: Life::Open,
            special: false,
            call_ns: 0,
            // The first call tells how many a turn has time for.
            limit: 1,
            turns: 0,
            calling: false,
            blocked_since: 0,
            lead: plan.rule.lead(),
            fault: policy.fault.clone().map(|spec| Box::new(Fault::new(spec, cx.clock().clone()))),
            filter,
            budget: policy.budget_ns().unwrap_or(0),
            refuses: plan.refuses,
            singled: false,
            live,
            restart: plan.config.is_some().then(|| Box::new(Restart::new(policy.restart))),
            urgency: std::mem::take(&mut plan.urgency),
            ready: (0, 0),
            last: Metrics::default(),
            watchdog: cx.shared.watchdog(),
            shared: cx.shared.clone(),
            policy,
        }
    }

    /// Settles how calls are made, once it is known what is asked of them.
    pub(super) fn settle(&mut self) {
        self.singled = self.fault.is_some() || self.budget != 0 || self.refuses;
        self.special = self.filter.is_some() || self.singled || self.traced;
    }

    pub(super) fn takes(&mut self, inputs: usize, cx: &mut Cx) {
        self.settle();
        if self.traced {
            self.fresh.reserve(self.most);
        }
        self.queue = Some(cx.histogram(self.node, Term::Queue, 2));
        if inputs > 1 {
            self.hold = Some(cx.histogram(self.node, Term::Hold, 2));
        }
        self.note_joins(cx);
    }

    /// Prepares what only a join records.
    pub(crate) fn note_joins(&mut self, cx: &mut Cx) {
        if self.joins {
            self.skew = Some(cx.histogram(self.node, Term::Skew, 2));
        }
    }

    /// How many messages one turn may take.
    #[inline]
    pub(super) fn limit(&self, perishable: bool) -> usize {
        // What was taken together with a message that fails would be lost with the node.
        if (self.is_slow() && (perishable || self.filter.is_some())) || self.restart.is_some() {
            return 1;
        }
        self.limit
    }

    #[inline]
    pub(super) fn is_slow(&self) -> bool {
        self.call_ns > SLOW_NS
    }

    /// Looks after the inputs that must not be silent while there is nothing to do before `wake`. Says when to look again,
    /// and whether the node is to forget what it saw.
    #[inline]
    pub(crate) fn listen(&mut self, wake: u64, cx: &mut Cx) -> (u64, bool) {
        if self.live.is_empty() { (wake, false) } else { self.listen_closely(wake, cx) }
    }

    #[cold]
    pub(super) fn listen_closely(&mut self, mut wake: u64, cx: &mut Cx) -> (u64, bool) {
        let now = cx.read();
        let mut reset = false;
        for live in &mut self.live {
            let (again, gap) = live.look(now);
            wake = wake.min(again);
            let Some(text) = gap else { continue };
            self.counts.gaps.add(1);
            reset |= live.on_gap == OnGap::Reset;
            if live.on_gap == OnGap::Stop {
                let number = self.counts.done.get();
                let failure = Failure { node: self.node, call: "expect_every", number, text, panicked: false };
                cx.shared.fail(failure, OnError::Stop);
            } else {
                let (node, edge, every) = (self.node, live.index, live.every);
                cx.shared.notice(|| Noticed::Gap { node, edge, every });
                cx.shared.note(text);
            }
        }
        (wake, reset)
    }

    /// Counts a call that took longer than it may.
    #[inline]
    pub(crate) fn check_budget(&self, ns: u64) {
        if self.budget != 0 && ns > self.budget {
            self.counts.over_budget.add(1);
        }
    }

    /// Tells of a turn, or a call, that took longer than `watchdog`.
    #[inline]
    pub(crate) fn check_watchdog(&self, ns: u64) {
        if ns > self.watchdog {
            self.shared.returned(self.node, ns);
        }
    }

    #[inline]
    pub(super) fn learn(&mut self, ns: u64, calls: usize) {
        let call = if calls <= 1 { ns } else { ns / calls as u64 };
        self.call_ns = if self.call_ns == 0 { call } else { self.call_ns - self.call_ns / 4 + call / 4 };
        // Cheap nodes take whole bursts; only for the others is there something to divide.
        self.limit = if self.call_ns <= TURN_NS / BURST as u64 {
            BURST
        } else {
            // After a call that takes longer than a watchdog's time, no mean is that low.
            self.check_watchdog(ns);
            ((TURN_NS / self.call_ns) as usize).max(1)
        };
    }

    /// Since when the stage has had work but no room; 0 when it has.
    #[inline]
    pub(crate) fn blocked_since(&self) -> u64 {
        self.blocked_since
    }

    pub(super) fn note_blocked(&mut self, cx: &mut Cx) {
        if self.blocked_since == 0 {
            self.blocked_since = cx.mark();
        }
    }

    /// What becomes of the node's inputs after it failed.
    pub(crate) fn gone(&mut self) -> Reason {
        let reason = self.loss_of_inputs();
        self.life = Life::Gone(reason);
        self.tell_detached();
        reason
    }

    /// Why messages are lost that a node which has failed was to take.
    pub(super) fn loss_of_inputs(&self) -> Reason {
        if self.policy.on_error == OnError::Detach { Reason::Detached } else { Reason::ConsumerGone }
    }

    /// Tells that the node is out and the rest goes on, where its policy says so.
    #[cold]
    pub(super) fn tell_detached(&self) {
        if self.policy.on_error == OnError::Detach {
            let node = self.node;
            self.shared.notice(|| Noticed::Detached { node });
        }
    }

    /// Whether the node, which has failed, is to be built again; says so where it has failed too often.
    #[cold]
    pub(crate) fn rest(&mut self, cx: &mut Cx) -> bool {
        let Some(restart) = &mut self.restart else { return false };
        let now = cx.read();
        if let Some(due) = restart.again_at(now) {
            self.life = Life::Resting(due);
            let (node, after) = (self.node, due - now);
            self.shared.notice(|| Noticed::Restarting { node, after });
            return true;
        }
        let text = format!("it has been built again {} times, and fails", restart.tries());
        let number = self.counts.done.get() + self.counts.failed.get();
        cx.shared.fail(Failure { node: self.node, call: "restart", number, text, panicked: false }, OnError::Stop);
        false
    }

    /// The node has been built again.
    pub(crate) fn rise(&mut self) {
        self.life = Life::Open;
        self.counts.restarts.add(1);
        let node = self.node;
        self.shared.notice(|| Noticed::Restarted { node });
    }

    /// When what comes of a message is due; of one that cannot be seen, as if it began now.
    pub(crate) fn due_of(&self, header: Option<&Header>, now: u64) -> u64 {
        match header {
            Some(header) => {
                let path = self.urgency.get(header.source).copied();
                path.map_or(u64::MAX, |deadline| header.origin.0.saturating_add(deadline)).min(header.deadline.0)
            }
            None => {
                let soonest = self.urgency.iter().min();
                soonest.map_or(u64::MAX, |deadline| now.saturating_add(*deadline))
            }
        }
    }

    /// What a schedule asks of a stage that has no node, or one that rests; `None` where the node is there.
    pub(crate) fn standing_without_node(&self, now: u64, cx: &Cx) -> Option<Standing> {
        match self.life {
            Life::Open => None,
            Life::Resting(due) if now < due && !cx.is_stopping() => Some(Standing::IDLE),
            Life::Resting(_) | Life::Gone(_) | Life::Ended => Some(Standing::AT_ONCE),
        }
    }

    /// The turn of a stage whose node is gone: what comes is lost and counted, so that no producer waits for it.
    pub(crate) fn drain(&mut self, intake: &mut impl Intake, reason: Reason) -> Turn {
        if intake.discard(reason) {
            Turn::Worked
        } else if intake.is_drained() {
            self.life = Life::Ended;
            Turn::Done
        } else {
            Turn::Idle(u64::MAX)
        }
    }

    /// What a schedule asks of a stage with inputs.
    pub(super) fn standing_of(&mut self, intake: &mut impl Intake, pressed: bool, cx: &mut Cx) -> Standing {
        let now = cx.mark();
        if let Some(standing) = self.standing_without_node(now, cx) {
            return standing;
        }
        if intake.ready(1) == 0 {
            // A join may have lost what had no partner: its producer has room again, and the next turn is to say so.
            let has_turn = intake.has_freed() || intake.state() != State::Open;
            return if has_turn { Standing::AT_ONCE } else { Standing::IDLE };
        }
        let mut due = None;
        intake.peek(&mut |header| due = Some(self.due_of(Some(header), now)));
        let since = self.ready_since(now);
        Standing { ready: true, due: due.unwrap_or_else(|| self.due_of(None, since)), pressed }
    }

    /// Since when the stage has had something to do, as far as anybody has looked.
    pub(crate) fn ready_since(&mut self, now: u64) -> u64 {
        let turns = self.counts.turns.get();
        if self.ready.0 != turns || self.ready.1 == 0 {
            self.ready = (turns, now);
        }
        self.ready.1
    }

    /// Records a failure and what the policy makes of it.
    #[cold]
    pub(crate) fn report(&self, cx: &Cx, trouble: Trouble) -> bool {
        let number = self.counts.done.get() + self.counts.failed.get();
        let TroubleText { call, text, panicked } = *trouble.0;
        cx.shared.fail(Failure { node: self.node, call, number, text, panicked }, self.policy.on_error);
        self.policy.on_error == OnError::Skip
    }
}
