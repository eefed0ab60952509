//! State common to all stages: the node's life cycle, its counters, and how many messages a turn
//! may take.

use super::call_failure::{CallFailure, FailureText};
use super::deadline_filter::{BySource, DeadlineFilter};
use super::fault::InjectedFaults;
use super::liveness::{GapChange, Liveness};
use super::restart::Restart;
use super::{Judged, Readiness, SLOW_NS, StageCounts, TURN_NS, Turn};
use crate::base::policy::{NodePolicy, OnError, OnGap};
use crate::edge::{BURST, EdgeState, Reason};
use crate::exec::planned::StagePlan;
use crate::exec::shared::{Failure, RunShared};
use crate::exec::worker::Cx;
use crate::exec::worker_event::WorkerEvent;
use crate::host::sync::Arc;
use crate::ledger::{Hist, Term};
use crate::message::payload::Header;
use crate::node::metrics::Metrics;
use crate::port::intake::{Intake, Lead};
use crate::port::output::PortSet;
use std::hint::cold_path;

/// The life cycle of a stage's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// The node has failed and will be rebuilt at this time.
    Restarting(u64),
    /// The node takes no more messages, and ends when there is room for its last output.
    Ending,
    /// The node is gone; further messages are lost for this reason.
    Gone(Reason),
    Ended,
}

/// The state a stage shares with other stages and with the report.
pub(crate) struct Links {
    pub(crate) counts: Arc<StageCounts>,
    /// Inputs with an `expect_every` limit.
    pub(crate) live: Vec<Liveness>,
    /// Deadlines met and missed at a sink, by path of the plan.
    pub(crate) judged: Arc<Vec<Judged>>,
    /// The counters of the downstream nodes.
    pub(crate) behind: Vec<Arc<StageCounts>>,
}

/// The part of a stage that is independent of node and payload types. Whatever is tested per
/// message or per turn is a number or a bool of its own here, derived once from the policy.
// What a single message needs comes first, in two cache lines: at low rates a message costs what it
// fetches.
#[repr(C, align(64))]
pub(crate) struct Common {
    pub(crate) counts: Arc<StageCounts>,
    pub(crate) node: usize,
    pub(crate) life: Life,
    /// Whether messages need a closer look or a call each: `filter`, `singled` and `traced` in one
    /// test, made once a turn.
    pub(super) special: bool,
    /// A single-message call has begun and not returned.
    pub(super) calling: bool,
    /// Whether the origins of its input messages are tracked.
    pub(crate) traced: bool,
    /// Whether a full edge fails the node.
    pub(crate) refuses: bool,
    /// Whether every call is made, timed and published individually.
    pub(super) singled: bool,
    /// Whether a call takes messages of several inputs together.
    pub(crate) joins: bool,
    pub(crate) compute: Hist,
    pub(crate) queue: Option<Hist>,
    pub(crate) blocked_since: u64,
    /// Mean time of a call, ns; 0 before the first was timed.
    pub(super) call_ns: u64,
    /// How many messages one turn may take: as many as fit in 20 µs.
    pub(super) limit: usize,
    /// The budget of a call, ns; 0 for none.
    pub(crate) budget: u64,
    /// A turn longer than this is reported, ns.
    pub(super) watchdog: u64,
    /// Selects the messages still worth a call.
    pub(crate) filter: Option<Box<DeadlineFilter>>,
    /// Restart state, if a failed node is rebuilt.
    pub(crate) restart: Option<Box<Restart>>,
    pub(super) turns: u32,
    pub(crate) wait: Option<Hist>,
    pub(crate) blocked: Option<Hist>,
    /// How far apart in time joined messages originated.
    pub(crate) skew: Option<Hist>,
    pub(crate) fault: Option<Box<InjectedFaults>>,
    /// Inputs with an `expect_every` limit.
    pub(crate) live: Vec<Liveness>,
    /// The node's policy from the graph file.
    pub(crate) policy: Box<NodePolicy>,
    /// Maximum number of messages of a turn.
    pub(crate) most: usize,
    /// For each call of the turn: which messages were in no earlier call, one bit per input.
    pub(super) fresh: Vec<u16>,
    /// Which input's header represents a call.
    pub(crate) lead: Lead,
    /// By source: the shortest deadline of the paths through this node, ns; for schedules that use
    /// it.
    pub(crate) urgency: BySource<u64>,
    /// The turn count at which a schedule first found work here, and the time.
    pub(super) ready: (u64, u64),
    /// Metrics of the last node that was dropped.
    pub(super) last: Metrics,
    pub(super) shared: Arc<RunShared>,
}

impl Common {
    /// Moves the state that calls depend on out of a stage's plan.
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
            wait: None,
            blocked: None,
            skew: None,
            joins: plan.joins,
            traced: plan.traced,
            most: plan.buffer.max(BURST) + 1,
            fresh: Vec::new(),
            life: Life::Open,
            special: false,
            call_ns: 0,
            // The first call shows how many fit into a turn.
            limit: 1,
            turns: 0,
            calling: false,
            blocked_since: 0,
            lead: plan.rule.lead(),
            fault: policy.fault.clone().map(|spec| Box::new(InjectedFaults::new(spec, cx.clock().clone()))),
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

    /// Derives how calls are made from the finished settings.
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
            self.wait = Some(cx.histogram(self.node, Term::Wait, 2));
        }
        self.note_joins(cx);
    }

    /// Creates the histogram that only joins record.
    pub(crate) fn note_joins(&mut self, cx: &mut Cx) {
        if self.joins {
            self.skew = Some(cx.histogram(self.node, Term::Skew, 2));
        }
    }

    /// How many messages one turn may take.
    #[inline]
    pub(super) fn limit(&self, perishable: bool) -> usize {
        // The other messages taken in the same turn would be lost if the node failed.
        if (self.is_slow() && (perishable || self.filter.is_some())) || self.restart.is_some() {
            cold_path();
            return 1;
        }
        self.limit
    }

    #[inline]
    pub(super) fn is_slow(&self) -> bool {
        self.call_ns > SLOW_NS
    }

    /// Checks inputs with an `expect_every` limit while there is nothing to do before `wake`.
    /// Returns when to check again, and whether the node must be reset.
    #[inline]
    pub(crate) fn listen(&mut self, wake: u64, cx: &mut Cx) -> (u64, bool) {
        if self.live.is_empty() { (wake, false) } else { self.listen_closely(wake, cx) }
    }

    #[cold]
    pub(super) fn listen_closely(&mut self, mut wake: u64, cx: &mut Cx) -> (u64, bool) {
        let now = cx.read();
        let mut reset = false;
        for live in &mut self.live {
            let (again, change) = live.look(now);
            wake = wake.min(again);
            let (node, edge, every) = (self.node, live.index, live.every);
            let text = match change {
                None => continue,
                Some(GapChange::Ended(after)) => {
                    cx.shared.record_event(|| WorkerEvent::GapEnded { node, edge, after });
                    continue;
                }
                Some(GapChange::Begun(text)) => text,
            };
            self.counts.gaps.add(1);
            reset |= live.on_gap == OnGap::Reset;
            if live.on_gap == OnGap::Stop {
                let number = self.counts.done.get();
                let failure = Failure { node: self.node, call: "expect_every", number, text, panicked: false };
                cx.shared.fail(failure, OnError::Stop);
            } else {
                cx.shared.record_event(|| WorkerEvent::Gap { node, edge, every });
                cx.shared.note(text);
            }
        }
        (wake, reset)
    }

    /// Counts a call that exceeded its budget.
    #[inline]
    pub(crate) fn check_budget(&self, ns: u64) {
        if self.budget != 0 && ns > self.budget {
            cold_path();
            self.counts.over_budget.add(1);
        }
    }

    /// Reports a turn or call that took longer than `watchdog`.
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
        // Cheap nodes take whole bursts; only the others need the division.
        self.limit = if self.call_ns <= TURN_NS / BURST as u64 {
            BURST
        } else {
            cold_path();
            // Only checked here: callers pass every call slower than `SLOW_NS`, and one that
            // exceeds the watchdog raises the mean this far.
            self.check_watchdog(ns);
            ((TURN_NS / self.call_ns) as usize).max(1)
        };
    }

    /// Since when the stage has had work but no room; 0 if it has room.
    #[inline]
    pub(crate) fn blocked_since(&self) -> u64 {
        self.blocked_since
    }

    pub(crate) fn note_blocked(&mut self, cx: &mut Cx) {
        if self.blocked_since == 0 {
            self.blocked_since = cx.mark();
        }
    }

    /// Has the node of a loop end. One that waits for its restart is gone.
    pub(crate) fn end_loop(&mut self, ports: &mut impl PortSet) {
        match self.life {
            Life::Open => self.life = Life::Ending,
            Life::Restarting(_) => {
                ports.each(&mut |port| port.close(false));
                self.life = Life::Gone(Reason::Stopped);
            }
            Life::Ending | Life::Gone(_) | Life::Ended => {}
        }
    }

    /// Marks the node as gone and returns the reason its input messages are lost for.
    pub(crate) fn gone(&mut self) -> Reason {
        let reason = if self.life == Life::Ending { Reason::Stopped } else { self.loss_of_inputs() };
        self.life = Life::Gone(reason);
        self.report_detached();
        reason
    }

    /// The loss reason for input messages of a failed node.
    pub(super) fn loss_of_inputs(&self) -> Reason {
        if self.policy.on_error == OnError::Detach { Reason::Detached } else { Reason::ConsumerGone }
    }

    /// Reports the node as detached, if that is its policy.
    #[cold]
    pub(super) fn report_detached(&self) {
        if self.policy.on_error == OnError::Detach {
            let node = self.node;
            self.shared.record_event(|| WorkerEvent::Detached { node });
        }
    }

    pub(crate) fn ended_calls(&self) -> u64 {
        self.counts.done.get() + self.counts.failed.get()
    }

    /// Whether the failed node will be rebuilt; reports a failure if it has failed too often. A
    /// node that ends is not rebuilt.
    #[cold]
    pub(crate) fn schedule_restart(&mut self, cx: &mut Cx) -> bool {
        if self.life == Life::Ending {
            return false;
        }
        let Some(restart) = &mut self.restart else { return false };
        let now = cx.read();
        if let Some(due) = restart.again_at(now) {
            self.life = Life::Restarting(due);
            let (node, after) = (self.node, due - now);
            self.shared.record_event(|| WorkerEvent::Restarting { node, after });
            return true;
        }
        let tries = restart.tries();
        let text = format!("failed again after {tries} restart{}", if tries == 1 { "" } else { "s" });
        let number = self.ended_calls();
        cx.shared.fail(Failure { node: self.node, call: "restart", number, text, panicked: false }, OnError::Stop);
        false
    }

    /// Marks the node as rebuilt.
    pub(crate) fn rebuilt(&mut self, cx: &mut Cx) {
        self.life = Life::Open;
        if let Some(since) = self.restart.as_mut().and_then(|restart| restart.take_missing_since()) {
            cx.note_outage(self.node, since);
        }
        self.counts.restarts.add(1);
        let node = self.node;
        self.shared.record_event(|| WorkerEvent::Restarted { node });
    }

    /// When the result of a message is due; without a header, as if the message began now.
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

    /// The readiness of a stage without a node; `None` if the node is there.
    pub(crate) fn readiness_without_node(&self, now: u64, cx: &Cx) -> Option<Readiness> {
        match self.life {
            Life::Open => None,
            Life::Restarting(due) if now < due && !cx.is_stopping() => Some(Readiness::IDLE),
            Life::Restarting(_) | Life::Ending | Life::Gone(_) | Life::Ended => Some(Readiness::URGENT),
        }
    }

    /// The turn of a stage whose node is gone: input messages are lost and counted, so that no
    /// producer waits for room.
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

    /// The readiness of a stage with inputs.
    pub(super) fn readiness_of(&mut self, intake: &mut impl Intake, pressed: bool, cx: &mut Cx) -> Readiness {
        let now = cx.mark();
        if let Some(readiness) = self.readiness_without_node(now, cx) {
            return readiness;
        }
        if intake.ready(1) == 0 {
            // A join may have lost messages without a partner. Their producer has room again, and
            // the next turn must tell it.
            let has_turn = intake.has_freed() || intake.state() != EdgeState::Open;
            return if has_turn { Readiness::URGENT } else { Readiness::IDLE };
        }
        let mut due = None;
        intake.peek(&mut |header| due = Some(self.due_of(Some(header), now)));
        let since = self.ready_since(now);
        Readiness { ready: true, due: due.unwrap_or_else(|| self.due_of(None, since)), pressed }
    }

    /// Since when the stage has had work, as far as a schedule has seen.
    pub(crate) fn ready_since(&mut self, now: u64) -> u64 {
        let turns = self.counts.turns.get();
        if self.ready.0 != turns || self.ready.1 == 0 {
            self.ready = (turns, now);
        }
        self.ready.1
    }

    /// Reports a failure. Returns true if the policy is to skip it.
    #[cold]
    pub(crate) fn report(&mut self, cx: &Cx, failure: CallFailure) -> bool {
        let then = failure.then(self.policy.on_error);
        let FailureText { call, text, panicked, number, .. } = *failure.0;
        let number = number.unwrap_or_else(|| self.ended_calls());
        cx.shared.fail(Failure { node: self.node, call, number, text, panicked }, then);
        if then == OnError::Skip {
            return true;
        }
        if then != self.policy.on_error {
            // The node ends by the policy of this error.
            (self.policy.on_error, self.restart) = (then, None);
        }
        false
    }
}
