//! The stage of a node without outputs, where end-to-end latencies are measured.

use super::feed::{Feed, Work, drop_item};
use super::{
    Again, BURST, Common, Ended, Life, Stage, Standing, Trouble, Turn, build_again, drop_node, guarded, note_skew,
    reset_node,
};
use crate::edge::State;
use crate::error::NodeError;
use crate::intake::{Intake, Lead};
use crate::meter::{Hist, Term};
use crate::node::{Inputs, Reset, Sink};
use crate::port::push_origin;
use crate::worker::Cx;
use std::any::Any;

/// A node without outputs.
pub(crate) struct SinkStage<N: Sink> {
    common: Common,
    feed: Feed<<N::In as Inputs>::Intake>,
    work: SinkWork<N>,
    dirty: bool,
    again: Option<Again<N>>,
}

struct SinkWork<N: Sink> {
    node: Option<N>,
    /// End-to-end histogram by source.
    paths: Vec<Option<Hist>>,
    closure: Hist,
    skew: Option<Hist>,
    origins: Vec<(u64, u32)>,
    lead: Lead,
    source: usize,
    /// Ledger and weight of the portions of this turn, with how many entries of `origins` were there before.
    ledgers: Vec<(u64, u32, usize)>,
}

impl<N: Sink> Work<<N::In as Inputs>::Taken> for SinkWork<N> {
    #[inline(never)]
    fn give(&mut self, items: &mut std::vec::Drain<'_, <N::In as Inputs>::Taken>) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        for item in items {
            node.take(item)?;
        }
        Ok(())
    }
    #[inline(always)]
    fn give_one(&mut self, item: <N::In as Inputs>::Taken) -> Result<(), NodeError> {
        let Some(node) = &mut self.node else { return drop_item(item) };
        node.take(item)
    }
    #[inline]
    fn note(&mut self, item: &<N::In as Inputs>::Taken, weight: u32, cx: &mut Cx) {
        if <N::In as Inputs>::Intake::JOINS {
            note_skew::<<N::In as Inputs>::Intake>(self.skew, item, weight, cx);
        }
        let header = <N::In as Inputs>::Intake::header(item, self.lead);
        self.source = header.source as usize;
        push_origin(&mut self.origins, header.origin);
    }
    fn forget(&mut self, n: usize) {
        let mut left = n as u32;
        while let (1.., Some((_, count))) = (left, self.origins.last_mut()) {
            let gone = left.min(*count);
            (*count, left) = (*count - gone, left - gone);
            if *count == 0 {
                self.origins.pop();
            }
        }
    }
    fn rollback(&mut self) {}
    fn double(&mut self) {}
    #[inline]
    fn portion(&mut self, accounted: u64, weight: u32) {
        if weight > 0 {
            self.ledgers.push((accounted, weight, self.origins.len()));
        }
    }
    #[inline]
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        let mut from = 0;
        for (accounted, weight, to) in self.ledgers.drain(..) {
            for (origin, n) in &self.origins[from..to] {
                if let Some(Some(path)) = self.paths.get(self.source) {
                    cx.record(*path, sent.saturating_sub(*origin), *n, weight);
                }
                cx.record(self.closure, sent.abs_diff(accounted + compute), *n, weight);
            }
            from = to;
        }
        self.origins.clear();
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
            self.publish(cx, sent, compute)?;
        }
        Ok(())
    }
}

impl<N: Sink> SinkStage<N> {
    /// `sources` are the indices of the sources whose messages get here.
    pub(crate) fn new(
        node: N,
        mut common: Common,
        intake: <N::In as Inputs>::Intake,
        inputs: usize,
        sources: &[usize],
        again: Option<Again<N>>,
        cx: &mut Cx,
    ) -> Self {
        common.takes(inputs, cx);
        let mut paths = vec![None; sources.iter().max().map_or(0, |m| m + 1)];
        for source in sources {
            paths[*source] = Some(cx.path_histogram(*source, common.node));
        }
        let work = SinkWork {
            node: Some(node),
            paths,
            closure: cx.histogram(common.node, Term::Closure, 2),
            skew: common.skew,
            origins: Vec::with_capacity(BURST),
            lead: common.lead,
            source: 0,
            ledgers: Vec::with_capacity(BURST + 1),
        };
        SinkStage { common, feed: Feed::new(intake), work, dirty: false, again }
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, trouble: Trouble) {
        self.work.origins.clear();
        self.work.ledgers.clear();
        if self.common.report(cx, trouble) {
            return;
        }
        drop_node(&mut self.work.node, &mut self.common, cx);
        if self.common.rest(cx) {
            return;
        }
        let reason = self.common.gone();
        self.feed.intake.discard(reason);
    }

    fn extra(&mut self, cx: &mut Cx, what: &'static str) {
        let node = &mut self.work.node;
        let outcome = guarded(what, || {
            let Some(node) = node else { return Ok(()) };
            if what == "finish" { node.finish() } else { node.flush() }
        });
        cx.stale();
        if let Err(trouble) = outcome {
            self.fail(cx, trouble);
        }
    }

    /// A turn that may be anything.
    #[inline(never)]
    fn turn_closely(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Resting(due) => {
                let (node, again) = (&mut self.work.node, &mut self.again);
                return build_again(node, again, due, &mut self.common, cx).unwrap_or_else(|trouble| {
                    self.fail(cx, trouble);
                    Turn::Worked
                });
            }
            Life::Gone(reason) => return self.feed.drain(&mut self.common, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        let limit = self.common.limit(self.feed.intake.is_perishable());
        let available = self.feed.intake.ready(limit);
        if available == 0 {
            let freed = self.feed.intake.ring();
            let state = self.feed.intake.state();
            if state != State::Open {
                if let (State::Failed, Some(node)) = (state, &mut self.work.node) {
                    node.feeder_failed();
                }
                self.extra(cx, "finish");
                if self.common.life == Life::Open {
                    self.common.life = self.feed.ended();
                }
                return Turn::Worked;
            }
            if std::mem::take(&mut self.dirty) {
                self.extra(cx, "flush");
            }
            let (wake, reset) = self.common.listen(self.feed.intake.due(), cx);
            if reset {
                reset_node(&mut self.work.node, Reset::Gap, &self.common, cx);
            }
            return if freed { Turn::Worked } else { Turn::Idle(wake) };
        }
        let room = self.work.node.as_ref().map_or(available, |node| node.room(available));
        if room == 0 {
            self.common.note_blocked(cx);
            return Turn::Blocked;
        }
        self.dirty = true;
        if let Err(trouble) = self.feed.process(room, &mut self.common, cx, &mut self.work) {
            self.fail(cx, trouble);
        }
        if let Some(node) = &mut self.work.node {
            node.turned();
        }
        Turn::Worked
    }
}

impl<N: Sink> Stage for SinkStage<N> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        let is_plain = self.common.life == Life::Open && self.feed.has_only(&self.common);
        if is_plain && self.work.node.as_ref().is_some_and(|node| node.room(1) > 0) {
            self.common.counts.turns.add(1);
            cx.enter(self.common.node);
            self.dirty = true;
            if let Err(trouble) = self.feed.process_only(&mut self.common, cx, &mut self.work) {
                self.fail(cx, trouble);
            }
            if let Some(node) = &mut self.work.node {
                node.turned();
            }
            return Turn::Worked;
        }
        self.turn_closely(cx)
    }

    #[cold]
    fn is_struck(&mut self, panic: &(dyn Any + Send), cx: &mut Cx) -> bool {
        let Some(result) = self.feed.struck(panic, &mut self.common, cx, &mut self.work) else { return false };
        if let Err(trouble) = result {
            self.fail(cx, trouble);
        }
        true
    }

    fn standing(&mut self, cx: &mut Cx) -> Standing {
        self.common.standing_of(&mut self.feed.intake, false, cx)
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        drop_node(&mut self.work.node, &mut self.common, cx);
        let metrics = std::mem::take(&mut self.common.last);
        Ended { node: self.common.node, metrics, left: self.feed.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        self.work.node.as_mut().map_or(Ok(()), |node| node.set(name, value))
    }
}
