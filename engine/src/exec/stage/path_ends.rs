//! Where paths end at a sink: end-to-end latencies and ages of its messages, and their residuals.

use super::feed::{Ends, SingleLedger};
use super::{Common, note_skew};
use crate::edge::BURST;
use crate::exec::worker::Cx;
use crate::ledger::{Hist, Term};
use crate::message::origins::{Origin, Origins};
use crate::message::payload::Header;
use crate::port::error::NodeError;
use crate::port::intake::{Intake, Lead};
use std::hint::cold_path;

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

/// The paths that end at a sink: their histograms, and the messages of the turn that are yet to be
/// recorded.
pub(super) struct PathEnds {
    /// By source: the end-to-end histogram, and the age histogram of reused messages.
    paths: Vec<Option<Hist>>,
    ages: Vec<Option<Hist>>,
    residual: Hist,
    skew: Option<Hist>,
    origins: Vec<OriginNote>,
    /// If origins are tracked: those of the next message, and the number of each noted message.
    now: Origins,
    traced: bool,
    spans: Vec<u16>,
    lead: Lead,
    /// Ledger and weight of each segment of this turn, and the end of its entries in `origins`.
    ledgers: Vec<(u64, u32, usize)>,
}

impl<I: Intake> Ends<I> for PathEnds {
    #[inline]
    fn note(&mut self, item: &I::Taken, weight: u32, cx: &mut Cx) {
        if I::JOINS {
            note_skew::<I>(self.skew, item, weight, cx);
        }
        if self.traced {
            cold_path();
            return self.note_all();
        }
        self.note_one(I::header(item, self.lead));
    }
    fn trace(&mut self, item: &I::Taken, fresh: u16) {
        let now = &mut self.now;
        now.clear();
        I::each_origin(item, fresh, &mut |origin| now.add(origin));
    }
    fn forget(&mut self, n: usize) {
        self.discard_last(n);
    }
    fn rollback(&mut self) {}
    fn double(&mut self) {}
    fn admit(&mut self) -> Result<(), NodeError> {
        Ok(())
    }
    #[inline]
    fn segment(&mut self, accounted: u64, weight: u32) {
        self.end_segment(accounted, weight);
    }
    fn publish(&mut self, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        self.record(cx, sent, compute);
        Ok(())
    }
    #[inline]
    fn publish_single(&mut self, ledger: SingleLedger, cx: &mut Cx, sent: u64, compute: u64) -> Result<(), NodeError> {
        debug_assert!(self.skew.is_none() && !self.traced, "such messages are never single");
        let SingleLedger { source, begun, accounted, weight } = ledger;
        if weight > 0 {
            let note = OriginNote { source, reused: false, closes: true, begun, n: 1 };
            self.record_note(&note, accounted + compute, weight, cx, sent);
        }
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
            self.end_segment(accounted, weight);
            self.record(cx, sent, compute);
        }
        Ok(())
    }
}

impl PathEnds {
    /// `sources` holds the numbers of the sources whose messages arrive here, and whether they may
    /// be used more than once.
    pub(super) fn new(common: &Common, sources: &[(u16, bool)], cx: &mut Cx) -> Self {
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
            residual: cx.histogram(common.node, Term::Residual, 2),
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
    fn note_one(&mut self, header: &Header) {
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

    #[inline]
    fn end_segment(&mut self, accounted: u64, weight: u32) {
        if weight > 0 {
            self.ledgers.push((accounted, weight, self.origins.len()));
        }
    }

    /// Discards the notes of the last `n` messages.
    fn discard_last(&mut self, n: usize) {
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

    /// Records the noted messages of all segments.
    #[inline(never)]
    fn record(&mut self, cx: &mut Cx, sent: u64, compute: u64) {
        let mut from = 0;
        for (accounted, weight, to) in &self.ledgers {
            for note in &self.origins[from..*to] {
                self.record_note(note, accounted + compute, *weight, cx, sent);
            }
            from = *to;
        }
        self.discard();
    }

    /// Records noted messages whose ledger's terms add up to `accounted`.
    #[inline]
    fn record_note(&self, note: &OriginNote, accounted: u64, weight: u32, cx: &mut Cx, sent: u64) {
        let OriginNote { source, reused, closes, begun, n } = *note;
        let hists = if reused { &self.ages } else { &self.paths };
        if let Some(Some(hist)) = hists.get(usize::from(source)) {
            cx.record(*hist, sent.saturating_sub(begun), n, weight);
        }
        if closes {
            cx.record_mostly_zero(sent, self.residual, sent.abs_diff(accounted), n, weight);
        }
    }

    /// Discards all notes.
    pub(super) fn discard(&mut self) {
        self.origins.clear();
        self.spans.clear();
        self.ledgers.clear();
    }
}
