//! The stage of a sink, where end-to-end latencies are measured.

use super::feed::{Feed, Work, drop_item};
use super::{
    Common, Ended, Life, Rebuild, Stage, Standing, Trouble, Turn, build_again, drop_node, guarded, note_skew,
    reset_node, set_node,
};
use crate::edge::BURST;
use crate::edge::EdgeState;
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::descriptors::Descriptors;
use crate::ledger::{Hist, Term};
use crate::message::origins::{Origin, Origins};
use crate::message::payload::Header;
use crate::node::error::NodeError;
use crate::node::intake::SealedInputs;
use crate::node::intake::{Intake, IntakeParts, Lead};
use crate::node::{EngineOnly, Progress, Reset, Sink};
use std::any::Any;

/// A node without outputs.
pub(crate) struct SinkStage<N: Sink> {
    common: Common,
    feed: Feed<<N::In as SealedInputs>::Intake>,
    work: SinkWork<N>,
    dirty: bool,
    again: Option<Rebuild<N>>,
    waits: Waits,
}

/// State of a node that waits for descriptors.
struct Waits {
    descriptors: Descriptors,
    /// When `progress` is called next, ns.
    due: u64,
    is_full: bool,
    /// The stream has ended; the node ends once it accepts messages again.
    is_finishing: bool,
}

/// A call of the node without a message.
#[derive(Clone, Copy)]
enum ExtraCall {
    /// No more messages are waiting.
    Flush,
    /// No more messages will come.
    Finish,
}

impl ExtraCall {
    fn name(self) -> &'static str {
        match self {
            ExtraCall::Flush => "flush",
            ExtraCall::Finish => "finish",
        }
    }
}

/// An origin of one or more recorded messages of the turn.
#[derive(Clone, Copy)]
struct OriginNote {
    source: u16,
    /// Its source's message was already used in an earlier call.
    reused: bool,
    /// It is the first origin of its message: the message's ledger closes once.
    closes: bool,
    begun: u64,
    /// Number of messages.
    n: u32,
}

struct SinkWork<N: Sink> {
    node: Option<N>,
    ends: PathEnds,
}

/// The paths that end at a sink: their histograms, and the messages of the turn that are yet to be recorded.
struct PathEnds {
    /// By source: the end-to-end histogram, and the age histogram of reused messages.
    paths: Vec<Option<Hist>>,
    ages: Vec<Option<Hist>>,
    closure: Hist,
    skew: Option<Hist>,
    origins: Vec<OriginNote>,
    /// If origins are tracked: those of the next message, and the number of each noted message.
    now: Origins,
    traced: bool,
    spans: Vec<u16>,
    lead: Lead,
    /// Ledger and weight of each portion of this turn, and the end of its entries in `origins`.
    ledgers: Vec<(u64, u32, usize)>,
}

impl<N: Sink> Work<<N::In as SealedInputs>::Taken> for SinkWork<N> {
    fn erased(&mut self) -> &mut dyn Work<<N::In as SealedInputs>::Taken> {
        self
    }
    #[inline(never)]
    fn give(&mut self, items: &mut std::vec::Drain<'_, <N::In as SealedInputs>::Taken>) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        for item in items {
            node.take(item)?;
        }
        Ok(())
    }
    #[inline(always)]
    fn give_one(&mut self, item: <N::In as SealedInputs>::Taken) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return drop_item(item) };
        node.take(item)
    }
    #[inline]
    fn note(&mut self, item: &<N::In as SealedInputs>::Taken, weight: u32, cx: &mut Cx) {
        if <N::In as SealedInputs>::Intake::JOINS {
            note_skew::<<N::In as SealedInputs>::Intake>(self.ends.skew, item, weight, cx);
        }
        if self.ends.traced {
            return self.ends.note_all();
        }
        self.ends.note(<N::In as SealedInputs>::Intake::header(item, self.ends.lead));
    }
    fn trace(&mut self, item: &<N::In as SealedInputs>::Taken, fresh: u16) {
        let now = &mut self.ends.now;
        now.clear();
        <N::In as SealedInputs>::Intake::each_origin(item, fresh, &mut |origin| now.add(origin));
    }
    fn forget(&mut self, n: usize) {
        self.ends.forget(n);
    }
    fn rollback(&mut self) {}
    fn double(&mut self) {}
    fn admit(&mut self) -> Result<(), NodeError> {
        Ok(())
    }
    #[inline]
    fn portion(&mut self, accounted: u64, weight: u32) {
        if weight > 0 {
            self.ends.ledgers.push((accounted, weight, self.ends.origins.len()));
        }
    }
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        self.ends.record(cx, sent, compute);
        Ok(())
    }
    #[inline]
    fn publish_all(
        &mut self,
        accounted: u64,
        weight: u32,
        cx: &mut Cx,
        sent: u64,
        compute: u64,
    ) -> Result<(), NodeError> {
        if weight > 0 {
            self.portion(accounted, weight);
            self.ends.record(cx, sent, compute);
        }
        Ok(())
    }
}

impl PathEnds {
    /// `sources` holds the numbers of the sources whose messages arrive here, and whether they may be used more than
    /// once.
    fn new(common: &Common, sources: &[(u16, bool)], cx: &mut Cx) -> Self {
        let n = sources.iter().map(|(source, _)| usize::from(*source) + 1).max().unwrap_or(0);
        let (mut paths, mut ages) = (vec![None; n], vec![None; n]);
        for (source, is_reused) in sources {
            let source = usize::from(*source);
            paths[source] = Some(cx.path_histogram(source, common.node, Term::EndToEnd));
            if *is_reused {
                ages[source] = Some(cx.path_histogram(source, common.node, Term::Age));
            }
        }
        let (most, each) = if common.traced { (common.most, sources.len().max(1)) } else { (BURST, 1) };
        PathEnds {
            paths,
            ages,
            closure: cx.histogram(common.node, Term::Closure, 2),
            skew: common.skew,
            origins: Vec::with_capacity(most * each),
            now: Origins::default(),
            traced: common.traced,
            spans: Vec::with_capacity(if common.traced { most } else { 0 }),
            lead: common.lead,
            ledgers: Vec::with_capacity(most + 1),
        }
    }

    /// Notes the origin of the next message.
    #[inline]
    fn note(&mut self, header: &Header) {
        let (source, begun) = (header.source, header.origin.0);
        match self.origins.last_mut() {
            Some(last) if (last.source, last.begun) == (source, begun) => last.n += 1,
            _ => self.origins.push(OriginNote { source, reused: false, closes: true, begun, n: 1 }),
        }
    }

    /// Notes all origins of the next message.
    fn note_all(&mut self) {
        let before = self.origins.len();
        for Origin { source, reused, begun } in self.now.iter() {
            let closes = self.origins.len() == before;
            self.origins.push(OriginNote { source, reused, closes, begun, n: 1 });
        }
        self.spans.push((self.origins.len() - before) as u16);
    }

    /// Discards the notes of the last `n` messages.
    fn forget(&mut self, n: usize) {
        if self.traced {
            for _ in 0..n {
                let entries = usize::from(self.spans.pop().unwrap_or(0));
                self.origins.truncate(self.origins.len().saturating_sub(entries));
            }
            return;
        }
        let mut left = n as u32;
        while let (1.., Some(last)) = (left, self.origins.last_mut()) {
            let gone = left.min(last.n);
            (last.n, left) = (last.n - gone, left - gone);
            if last.n == 0 {
                self.origins.pop();
            }
        }
    }

    /// Records the noted messages of all portions.
    fn record(&mut self, cx: &mut Cx, sent: u64, compute: u64) {
        let mut from = 0;
        for (accounted, weight, to) in self.ledgers.drain(..) {
            for OriginNote { source, reused, closes, begun, n } in &self.origins[from..to] {
                let hists = if *reused { &self.ages } else { &self.paths };
                if let Some(Some(hist)) = hists.get(usize::from(*source)) {
                    cx.record(*hist, sent.saturating_sub(*begun), *n, weight);
                }
                if *closes {
                    cx.record(self.closure, sent.abs_diff(accounted + compute), *n, weight);
                }
            }
            from = to;
        }
        self.discard();
    }

    /// Discards all notes.
    fn discard(&mut self) {
        self.origins.clear();
        self.spans.clear();
        self.ledgers.clear();
    }
}

impl<N: Sink> SinkStage<N> {
    pub(crate) fn new(
        node: N,
        mut common: Common,
        intake: IntakeParts,
        sources: &[(u16, bool)],
        again: Option<Rebuild<N>>,
        descriptors: Descriptors,
        cx: &mut Cx,
    ) -> Self {
        common.takes(intake.edges.len(), cx);
        if N::WAITS {
            common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        }
        let work = SinkWork { node: Some(node), ends: PathEnds::new(&common, sources, cx) };
        let waits = Waits { descriptors, due: 0, is_full: false, is_finishing: false };
        SinkStage { common, feed: Feed::new(Intake::build(intake)), work, dirty: false, again, waits }
    }

    /// Calls `progress` if it is due. Returns the turn's outcome if no message is to be taken in it.
    fn progress(&mut self, cx: &mut Cx) -> Option<Turn> {
        if cx.mark() >= self.waits.due || self.waits.descriptors.is_woken() {
            let node = &mut self.work.node;
            let outcome = guarded("progress", || node.as_mut().map_or(Ok(Progress::Takes(Time::NEVER)), N::progress));
            cx.stale();
            // Also after a failure, or a ready descriptor would wake it again and again.
            self.waits.descriptors.wait_again();
            match outcome {
                Ok(Progress::Takes(due)) => (self.waits.due, self.waits.is_full) = (due.0, false),
                Ok(Progress::WhenReady(due)) => (self.waits.due, self.waits.is_full) = (due.0, true),
                Err(trouble) => {
                    let is_finishing = self.waits.is_finishing;
                    self.fail(cx, trouble);
                    // A node that continues takes messages, and `progress` is not called again immediately.
                    (self.waits.due, self.waits.is_full) = (u64::MAX, false);
                    if is_finishing && self.common.life == Life::Open {
                        self.common.life = self.feed.ended();
                    }
                    return Some(Turn::Worked);
                }
            }
        }
        if self.waits.is_full {
            self.common.note_blocked(cx);
            // Writes the kernel cannot wait for are retried in the next turn.
            let is_woken = self.waits.descriptors.is_woken();
            return Some(Turn::Idle(if is_woken { 0 } else { self.waits.due }));
        }
        if self.waits.is_finishing {
            self.common.life = self.feed.ended();
            return Some(Turn::Worked);
        }
        None
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, trouble: Trouble) {
        self.work.ends.discard();
        if self.common.report(cx, trouble) {
            return;
        }
        drop_node(&mut self.work.node, &mut self.common, cx);
        (self.waits.is_full, self.waits.is_finishing) = (false, false);
        if self.common.schedule_restart(cx) {
            return;
        }
        let reason = self.common.gone();
        self.feed.intake.discard(reason);
    }

    /// Makes a call without a message.
    fn call_extra(&mut self, cx: &mut Cx, call: ExtraCall) {
        let node = &mut self.work.node;
        let outcome = guarded(call.name(), || match (node, call) {
            (None, _) => Ok(()),
            (Some(node), ExtraCall::Flush) => node.flush(),
            (Some(node), ExtraCall::Finish) => node.finish(),
        });
        cx.stale();
        if let Err(trouble) = outcome {
            self.fail(cx, trouble);
        }
    }

    /// A turn in the general case.
    #[inline(never)]
    fn turn_closely(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Restarting(due) => {
                self.waits.due = 0;
                let (node, again) = (&mut self.work.node, &mut self.again);
                return build_again(node, again, due, &mut self.common, cx).unwrap_or_else(|trouble| {
                    self.fail(cx, trouble);
                    Turn::Worked
                });
            }
            Life::Gone(reason) => return self.common.drain(&mut self.feed.intake, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if N::WAITS
            && let Some(turn) = self.progress(cx)
        {
            return turn;
        }
        let limit = if N::WAITS { 1 } else { self.common.limit(self.feed.intake.is_perishable()) };
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            let freed = self.feed.intake.ring();
            let state = self.feed.intake.state();
            if state != EdgeState::Open {
                if let (EdgeState::Failed, Some(node)) = (state, &mut self.work.node) {
                    node.feeder_failed(EngineOnly);
                }
                self.call_extra(cx, ExtraCall::Finish);
                if self.common.life != Life::Open {
                    return Turn::Worked;
                }
                if N::WAITS {
                    (self.waits.due, self.waits.is_finishing) = (0, true);
                } else {
                    self.common.life = self.feed.ended();
                }
                return Turn::Worked;
            }
            if std::mem::take(&mut self.dirty) {
                self.call_extra(cx, ExtraCall::Flush);
                // A write begun now continues in the next turn.
                self.waits.due = 0;
            }
            if N::WAITS {
                // No message has waited for the node.
                self.common.blocked_since = 0;
            }
            let (wake, reset) = self.common.listen(self.feed.intake.due(), cx);
            if reset && let Err(trouble) = reset_node(&mut self.work.node, Reset::Gap, cx) {
                self.fail(cx, trouble);
                return Turn::Worked;
            }
            let wake = if N::WAITS { wake.min(self.waits.due) } else { wake };
            return if freed { Turn::Worked } else { Turn::Idle(wake) };
        }
        let room = self.work.node.as_ref().map_or(available, |node| node.room(available, EngineOnly));
        if room == 0 {
            self.common.note_blocked(cx);
            return Turn::Blocked;
        }
        (self.dirty, self.waits.due) = (true, 0);
        if let Err(trouble) = self.feed.process(room, &mut self.common, cx, &mut self.work) {
            self.fail(cx, trouble);
        }
        if let Some(node) = &mut self.work.node {
            node.turned(EngineOnly);
        }
        Turn::Worked
    }
}

impl<N: Sink> Stage for SinkStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        let is_plain = !N::WAITS && self.common.life == Life::Open && self.feed.has_only(&self.common);
        if is_plain && self.work.node.as_ref().is_some_and(|node| node.room(1, EngineOnly) > 0) {
            self.common.counts.turns.add(1);
            cx.enter(self.common.node);
            self.dirty = true;
            if let Err(trouble) = self.feed.process_only(&mut self.common, cx, &mut self.work) {
                self.fail(cx, trouble);
            }
            if let Some(node) = &mut self.work.node {
                node.turned(EngineOnly);
            }
            return Turn::Worked;
        }
        self.turn_closely(cx)
    }

    #[cold]
    fn take_panic(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let Some(result) = self.feed.take_panic(panic, &mut self.common, cx, &mut self.work) else { return false };
        if let Err(trouble) = result {
            self.fail(cx, trouble);
        }
        true
    }

    fn standing(&mut self, cx: &mut Cx) -> Standing {
        if N::WAITS && self.common.life == Life::Open {
            if cx.mark() >= self.waits.due || self.waits.descriptors.is_woken() {
                return Standing { ready: true, due: 0, pressed: false };
            }
            if self.waits.is_full {
                return Standing::IDLE;
            }
        }
        self.common.standing_of(&mut self.feed.intake, false, cx)
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        drop_node(&mut self.work.node, &mut self.common, cx);
        let metrics = std::mem::take(&mut self.common.last);
        Ended { node: self.common.node, metrics, left: self.feed.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        if let Err(trouble) = set_node(&mut self.work.node, name, value, cx) {
            self.fail(cx, trouble);
        }
    }
}
