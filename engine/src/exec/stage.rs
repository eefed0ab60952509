//! Stages: a node with its inputs, outputs, counters and loop body.
//!
//! [`Stage`] is the one erased trait. A worker turns its stages one after the other; a stage alone on its core is left
//! to its own [`Stage::run`], which the compiler makes once for every concrete stage, so that no call inside it is
//! indirect. A turn is one bounded piece of work: at most [`BURST`] messages, or as many as take about 20 µs.

mod deadline_filter;
mod fault;
mod feed;
mod liveness;
mod restart;
mod sink;
mod source;
mod transform;

use crate::base::policy::{NodePolicy, OnError, OnGap};
use crate::edge::BURST;
pub(crate) use deadline_filter::{BySource, Judged, Peak, Rules, filter_burst};
use deadline_filter::{DeadlineFilter, count_misses};
use fault::Fault;
pub(crate) use liveness::Liveness;
use restart::Restart;
pub(crate) use restart::{Again, Blueprint};
pub(crate) use sink::SinkStage;
pub(crate) use source::SourceStage;
pub(crate) use transform::TransformStage;

use crate::edge::{Reason, State};
use crate::exec::notice::Noticed;
use crate::exec::planned::StagePlan;
use crate::exec::shared::{Command, Failure, RunShared};
use crate::exec::worker::{Cx, Idler};
use crate::host::sync::{Arc, Counter};
use crate::ledger::{Hist, Term};
use crate::message::payload::Header;
use crate::node::Node;
use crate::node::error::NodeError;
use crate::node::intake::{Intake, Lead, Left, skew_of};
use crate::node::metrics::Metrics;
use crate::node::port::PortSet;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    fresh: Vec<u16>,
    pub(crate) life: Life,
    /// Whether messages need more than to be given to the node, a closer look before or a call each by itself: `filter`,
    /// `singled` and `traced` in one question, asked once a turn.
    special: bool,
    /// Mean time of a call, ns; 0 before the first was timed.
    call_ns: u64,
    /// How many messages one turn may take: what fits into 20 µs.
    limit: usize,
    turns: u32,
    /// The node has been given one message, and has not returned.
    calling: bool,
    blocked_since: u64,
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
    singled: bool,
    /// Inputs that must not be silent.
    pub(crate) live: Vec<Liveness>,
    /// Whether a node that failed is built again, and when.
    pub(crate) restart: Option<Box<Restart>>,
    /// By source: the shortest deadline of the paths through here, ns; for a schedule that asks.
    pub(crate) urgency: BySource<u64>,
    /// After which turn a schedule found something to do here, and when.
    ready: (u64, u64),
    /// The figures of the node that was dropped last.
    last: Metrics,
    /// A turn that takes longer is told, ns.
    watchdog: u64,
    shared: Arc<RunShared>,
}

impl Common {
    /// Takes out of the plan of a stage what its calls go by.
    pub(crate) fn new(node: usize, plan: &mut StagePlan, links: Links, cx: &mut Cx) -> Self {
        let Links { counts, live, judged, behind } = links;
        let policy = Box::new(std::mem::take(&mut plan.policy));
        let rules = std::mem::take(&mut plan.rules);
        let is_filtered = !rules.is_empty() || policy.is_planted(|fault| fault.drop > 0.0);
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
    fn settle(&mut self) {
        self.singled = self.fault.is_some() || self.budget != 0 || self.refuses;
        self.special = self.filter.is_some() || self.singled || self.traced;
    }

    fn takes(&mut self, inputs: usize, cx: &mut Cx) {
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
    fn limit(&self, perishable: bool) -> usize {
        // What was taken together with a message that fails would be lost with the node.
        if (self.is_slow() && (perishable || self.filter.is_some())) || self.restart.is_some() {
            return 1;
        }
        self.limit
    }

    #[inline]
    fn is_slow(&self) -> bool {
        self.call_ns > SLOW_NS
    }

    /// Looks after the inputs that must not be silent while there is nothing to do before `wake`. Says when to look again,
    /// and whether the node is to forget what it saw.
    #[inline]
    pub(crate) fn listen(&mut self, wake: u64, cx: &mut Cx) -> (u64, bool) {
        if self.live.is_empty() { (wake, false) } else { self.listen_closely(wake, cx) }
    }

    #[cold]
    fn listen_closely(&mut self, mut wake: u64, cx: &mut Cx) -> (u64, bool) {
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
    fn learn(&mut self, ns: u64, calls: usize) {
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

    fn note_blocked(&mut self, cx: &mut Cx) {
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
    fn loss_of_inputs(&self) -> Reason {
        if self.policy.on_error == OnError::Detach { Reason::Detached } else { Reason::ConsumerGone }
    }

    /// Tells that the node is out and the rest goes on, where its policy says so.
    #[cold]
    fn tell_detached(&self) {
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
    fn standing_of(&mut self, intake: &mut impl Intake, pressed: bool, cx: &mut Cx) -> Standing {
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

/// How a call failed. One word wide, so that the result of a call that did not fail is one too: it is looked at behind a
/// burst's worth of stores, and a wider one would have to wait until they have all reached the cache.
#[derive(Debug)]
pub(crate) struct Trouble(Box<TroubleText>);

#[derive(Debug)]
struct TroubleText {
    call: &'static str,
    text: String,
    panicked: bool,
}

impl Trouble {
    /// A call that returned an error.
    #[cold]
    pub(crate) fn error(call: &'static str, error: &NodeError) -> Trouble {
        Trouble(Box::new(TroubleText { call, text: error.to_string(), panicked: false }))
    }

    #[cold]
    fn panic(call: &'static str, panic: &(dyn Any + Send)) -> Trouble {
        Trouble(Box::new(TroubleText { call, text: crate::host::panic::panic_text(panic), panicked: true }))
    }

    /// What happened, without the call's name.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// As [`Trouble::text`].
    pub(crate) fn into_text(self) -> String {
        self.0.text
    }
}

/// Runs an author's code, of a node or a backend: a panic becomes an error of that node. Whatever methods of theirs the engine calls
/// once a graph has begun go through here; a call of one message, for which that would cost too much, goes through
/// [`Scheduler::turn`](crate::exec::scheduler::Scheduler::turn). `Clone` and `Drop` of a payload run wherever messages move and belong to no node: a panic of
/// theirs ends the run as a bug.
#[inline(always)]
pub(crate) fn guarded<R>(name: &'static str, call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Trouble::error(name, &error)),
        Err(panic) => Err(Trouble::panic(name, &*panic)),
    }
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
