//! One side of a join: an edge, and the messages taken from it and not yet matched.

use super::super::{Left, left_of};
use crate::base::policy::JoinPolicy;
use crate::base::policy::Pick;
use crate::edge::BURST;
use crate::edge::{EdgeState, Reason, Rx, rx};
use crate::host::clock::Time;
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crate::message::pool::Pool;
use crate::port::intake::join::JoinRule;
use std::any::Any;
use std::collections::VecDeque;

/// One side of a join: an edge, and the messages taken from it and not yet matched.
pub(in crate::port::intake) struct JoinInput<T: Payload> {
    pub(in crate::port::intake) rx: Rx<T>,
    /// The run of a message counts none once an interpolation has used it as the later of its two:
    /// it is not lost if it is never taken.
    queue: VecDeque<(Message<T>, Run)>,
    pub(super) items: Vec<Message<T>>,
    runs: Vec<Run>,
    order: Order,
    interval: ShortestInterval,
    blend: Option<Box<Blend<T>>>,
    /// The message joined with messages of other inputs until a newer one arrives, and whether it
    /// has been used already.
    newest: Option<(Message<T>, Run, bool)>,
    /// By time: how far the nearest message was from a moment for which it was not near enough, ns.
    nearest: Option<u64>,
}

/// Interpolates messages for a moment from the ones before and after it.
struct Blend<T: Payload> {
    pool: Pool,
    /// Where a message has a quaternion.
    quaternion: Option<usize>,
    /// The moment to interpolate for; 0 if a message lies exactly there.
    moment: u64,
    /// The last message taken: it may also precede the next moment.
    before: Option<(Message<T>, Run)>,
    /// How far the nearest message was from a moment that had none on its other side, ns.
    alone: Option<u64>,
}

/// The order of a side's messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// In order of arrival.
    Sent,
    /// By origin; a message that arrives after a later one was taken is lost.
    Begun { taken: u64 },
}

/// The shortest recent interval between the origins of successive messages of a side.
#[derive(Clone, Copy, Debug, Default)]
struct ShortestInterval {
    /// Origin of the last message, ns; 0 before the first.
    last: u64,
    gaps: [u64; ShortestInterval::KEPT],
    n: usize,
}

impl ShortestInterval {
    /// Intervals kept, and needed before an estimate is made.
    const KEPT: usize = 8;

    fn note(&mut self, begun: u64) {
        if self.last != 0 {
            self.gaps[self.n % Self::KEPT] = begun.saturating_sub(self.last);
            self.n += 1;
        }
        self.last = begun;
    }

    /// The earliest origin expected of a message that follows one with origin `begun`: half of the
    /// shortest interval seen leaves room for jitter. Based on origins, not on arrival times, so
    /// that a recorded stream is joined the same way again.
    fn next_after(&self, begun: u64) -> u64 {
        let shortest = if self.n < Self::KEPT { 0 } else { self.gaps.iter().copied().min().unwrap_or(0) };
        begun.saturating_add(shortest / 2)
    }
}

/// What a side can supply for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port::intake) enum Choice {
    /// The message `behind` others, its origin, and when it became certain, by the clock of runs.
    Found { behind: usize, begun: u64, known: u64 },
    /// A better one may still come.
    Open,
    /// No message is near enough, and none will be.
    Nothing,
}

/// The operations matching needs, independent of the payload.
pub(in crate::port::intake) trait AnyJoinInput {
    /// Sequence number and part of the oldest message, taken off the edge if necessary.
    fn head(&mut self) -> Option<(u64, u32)>;
    /// Origin of the oldest message, after sorting in the messages that have arrived; those that
    /// began after `latest` are lost.
    fn begun(&mut self, latest: u64) -> Option<u64>;
    /// Chooses a message for a moment; loses messages that cannot serve this or a later one. With
    /// `is_final`, no better message is waited for.
    fn choose(&mut self, moment: u64, rule: &JoinRule, latest: u64, is_final: bool) -> Choice;
    /// Advances to the newest message available; true if it changed.
    fn renew(&mut self) -> bool;
    fn has_newest(&self) -> bool;
    fn lose_head(&mut self, reason: Reason);
    fn waiting(&self) -> usize;
    /// Whether the producer waits for room that only this side can make.
    fn is_full(&self) -> bool;
    /// Whether more messages may arrive from the edge.
    fn may_grow(&self) -> bool;
    fn is_open(&self) -> bool;
}

impl<T: Payload> JoinInput<T> {
    /// `made` is the pool of interpolated messages, and where they have a quaternion.
    pub(in crate::port::intake) fn new(
        end: Box<dyn Any>,
        policy: JoinPolicy,
        made: Option<(Pool, Option<usize>)>,
    ) -> Self {
        let rx: Rx<T> = rx(end);
        let buffer = rx.buffer();
        JoinInput {
            queue: VecDeque::with_capacity(buffer + BURST),
            items: rx.list(),
            runs: Vec::with_capacity(buffer + 1),
            order: if policy == JoinPolicy::ByTime { Order::Begun { taken: 0 } } else { Order::Sent },
            interval: ShortestInterval::default(),
            blend: made
                .map(|(pool, quaternion)| Box::new(Blend { pool, quaternion, moment: 0, before: None, alone: None })),
            newest: None,
            nearest: None,
            rx,
        }
    }

    /// Returns the oldest message, or the newest one again. The bool says whether it is taken for
    /// the first time.
    pub(in crate::port::intake) fn pop(&mut self) -> (Message<T>, Run, bool) {
        if let Some((message, run, was_taken)) = &mut self.newest {
            let is_first = !std::mem::replace(was_taken, true);
            // A reused message has already had its wait recorded: it counts as no message of a run.
            return (message.share(), Run { n: u32::from(is_first), ..*run }, is_first);
        }
        if self.blend.is_some() { self.pop_blended() } else { self.pop_head() }
    }

    /// The message for the chosen moment.
    #[cold]
    #[inline(never)]
    fn pop_blended(&mut self) -> (Message<T>, Run, bool) {
        let Some(mut blend) = self.blend.take() else { return self.pop_head() };
        let moment = blend.moment;
        let is_before = self.queue.front().is_some_and(|(message, _)| message.header().origin.0 <= moment);
        let (before, run, is_fresh) = match &blend.before {
            // A reused message: already counted, and its wait recorded.
            Some((message, run)) if moment != 0 && !is_before => (message.share(), Run { n: 0, ..*run }, false),
            _ => {
                let (message, run, is_fresh) = self.pop_head();
                (message, Run { n: 1, ..run }, is_fresh)
            }
        };
        if is_fresh {
            blend.before = Some((before.share(), run));
        }
        let after = self.queue.front_mut().filter(|_| moment != 0);
        let (pool, quaternion) = (&mut blend.pool, blend.quaternion);
        let made = after.and_then(|(after, run)| {
            let made = T::interpolate(&before, after, Time(moment), pool, quaternion)?;
            run.n = 0;
            Some(made)
        });
        self.blend = Some(blend);
        (made.unwrap_or(before), run, is_fresh)
    }

    #[inline]
    fn pop_head(&mut self) -> (Message<T>, Run, bool) {
        let (message, run) = self.queue.pop_front().expect("a match has a head on every side");
        if let Order::Begun { taken } = &mut self.order {
            *taken = message.header().origin.0;
        }
        (message, run, true)
    }

    /// Takes up to `most` messages off the edge and passes each to `give`.
    fn take(&mut self, most: usize, mut give: impl FnMut(&mut VecDeque<(Message<T>, Run)>, &Rx<T>, Message<T>, Run)) {
        self.rx.fill(most, &mut self.items, &mut self.runs);
        let mut items = self.items.drain(..);
        for run in self.runs.drain(..) {
            for message in items.by_ref().take(run.n as usize) {
                give(&mut self.queue, &self.rx, message, Run { n: 1, ..run });
            }
        }
        drop(items);
        self.rx.recycle(&mut self.items);
    }

    /// Number of messages taken off the edge and neither taken by the node nor used by an
    /// interpolation.
    fn held(&self) -> u64 {
        self.queue.len() as u64 - self.used()
            + u64::from(self.newest.as_ref().is_some_and(|(.., was_taken)| !was_taken))
    }

    /// Number of messages in the queue that an interpolation has used.
    fn used(&self) -> u64 {
        if self.blend.is_none() { 0 } else { self.queue.iter().filter(|(_, run)| run.n == 0).count() as u64 }
    }

    pub(in crate::port::intake) fn discard(&mut self, reason: Reason) -> bool {
        let (held, used) = (self.held(), self.used());
        self.rx.received(used);
        self.queue.clear();
        self.newest = None;
        if let Some(blend) = &mut self.blend {
            blend.before = None;
        }
        self.rx.lose(reason, held);
        self.rx.discard(reason) + held + used > 0
    }

    pub(in crate::port::intake) fn left(self) -> Left {
        let alone = self.blend.as_ref().and_then(|blend| blend.alone);
        let (held, nearest) = (self.held(), self.nearest.or(alone));
        self.rx.received(self.used());
        Left { nearest, ..left_of(self.rx, held) }
    }

    /// Origin of the oldest message taken off the edge; on equal origins, sequence number and part
    /// decide.
    pub(in crate::port::intake) fn front(&self) -> Option<(u64, u64, u32)> {
        let (message, _) = self.queue.front()?;
        let header = message.header();
        Some((header.origin.0, header.seq, header.part))
    }

    /// Drops messages until the head may serve the moment. Returns its origin, and the place in the
    /// queue and the origin of the first message with a later one; `None` if no message is left.
    fn serving_head(&mut self, moment: u64, rule: &JoinRule, latest: u64) -> Option<(u64, Option<(usize, u64)>)> {
        // A message can be dropped when the next one is at least as good for this moment and for
        // every later one.
        let serves = match rule.pick {
            Pick::Nearest | Pick::Interpolate => moment,
            Pick::Oldest => 0,
            Pick::Newest => moment.saturating_add(rule.within),
        };
        loop {
            let head = self.begun(latest)?;
            // Parts of one message share an origin and serve equally well.
            let begun = |(message, _): &(Message<T>, Run)| message.header().origin.0;
            let later = self.queue.iter().position(|other| begun(other) > head).map(|at| (at, begun(&self.queue[at])));
            let is_early = head.saturating_add(rule.within) < moment;
            if !is_early && (head >= serves || later.is_none_or(|(_, next)| next > serves)) {
                return Some((head, later));
            }
            if is_early {
                self.note_distances(moment, Some(head), None);
            }
            self.lose_head(Reason::Unmatched);
        }
    }

    /// Notes how far the messages before and after a moment are from it, if they are not near
    /// enough: the nearer one, or with `pick: interpolate`, which needs both, the farther one.
    fn note_distances(&mut self, moment: u64, before: Option<u64>, after: Option<u64>) {
        let [before, after] = [before, after].map(|begun| begun.map(|begun| begun.abs_diff(moment)));
        let (nearest, distance) = match (&mut self.blend, before, after) {
            (Some(_), Some(before), Some(after)) => (&mut self.nearest, Some(before.max(after))),
            (Some(blend), before, after) => (&mut blend.alone, before.or(after)),
            (None, before, after) => (&mut self.nearest, before.into_iter().chain(after).min()),
        };
        *nearest = (*nearest).into_iter().chain(distance).min();
    }

    /// The origin of the last message that was taken or lost.
    fn passed(&self) -> Option<u64> {
        match self.order {
            Order::Begun { taken } => Some(taken).filter(|taken| *taken > 0),
            Order::Sent => None,
        }
    }

    /// As [`AnyJoinInput::choose`], with `pick: interpolate`: needs a message on each side of the
    /// moment, or one at it.
    fn choose_around(
        &mut self,
        moment: u64,
        within: u64,
        head: u64,
        later: Option<(usize, u64)>,
        is_final: bool,
    ) -> Choice {
        let Some(blend) = &mut self.blend else { return Choice::Nothing };
        let known = later.map_or(0, |(at, _)| self.queue[at].1.sent);
        let is_near = |begun: u64| begun.abs_diff(moment) <= within;
        blend.moment = if head == moment { 0 } else { moment };
        let has_before =
            head <= moment || blend.before.as_ref().is_some_and(|(message, _)| is_near(message.header().origin.0));
        let after = if head > moment { Some(head) } else { later.map(|(_, next)| next) };
        let choice = match after {
            _ if head == moment => Choice::Found { behind: 0, begun: head, known: 0 },
            _ if !has_before => Choice::Nothing,
            Some(after) if is_near(after) => Choice::Found { behind: 0, begun: head, known },
            Some(_) => Choice::Nothing,
            None if is_final => Choice::Nothing,
            None => Choice::Open,
        };
        if choice == Choice::Nothing {
            let before = if head <= moment { Some(head) } else { self.passed() };
            self.note_distances(moment, before, after);
        }
        choice
    }
}

impl<T: Payload> AnyJoinInput for JoinInput<T> {
    fn head(&mut self) -> Option<(u64, u32)> {
        if self.queue.is_empty() {
            // A message taken early can no longer be superseded by a fresher one.
            let most = if self.rx.is_perishable() { 1 } else { BURST };
            self.take(most, |queue, _, message, run| queue.push_back((message, run)));
        }
        self.queue.front().map(|(message, _)| (message.header().seq, message.header().part))
    }
    fn begun(&mut self, latest: u64) -> Option<u64> {
        let Order::Begun { taken } = self.order else { return None };
        if self.queue.len() < BURST {
            let mut interval = self.interval;
            self.take(BURST, |queue, rx, message, run| {
                let begun = message.header().origin.0;
                if begun == 0 || begun > latest {
                    rx.lose(Reason::InvalidTime, 1);
                } else if begun < taken {
                    rx.lose(Reason::Unmatched, 1);
                } else {
                    interval.note(begun);
                    // Usually at the end.
                    let behind = queue.iter().rev().take_while(|(other, _)| other.header().origin.0 > begun).count();
                    queue.insert(queue.len() - behind, (message, run));
                }
            });
            self.interval = interval;
        }
        self.queue.front().map(|(message, _)| message.header().origin.0)
    }
    fn choose(&mut self, moment: u64, rule: &JoinRule, latest: u64, is_final: bool) -> Choice {
        let last = moment.saturating_add(rule.within);
        let Some((head, later)) = self.serving_head(moment, rule, latest) else {
            return if self.may_grow() { Choice::Open } else { Choice::Nothing };
        };
        if head > last {
            let before = self.blend.as_ref().and_then(|_| self.passed());
            self.note_distances(moment, before, Some(head));
            return Choice::Nothing;
        }
        // With a full burst of equal origins, no more are taken off the edge.
        let is_final = is_final || !self.may_grow() || (self.queue.len() >= BURST && later.is_none());
        if rule.pick == Pick::Interpolate && self.blend.is_some() {
            return self.choose_around(moment, rule.within, head, later, is_final);
        }
        let found = |behind, begun, known| Choice::Found { behind, begun, known };
        match (rule.pick, later) {
            (Pick::Oldest, _) => found(0, head, 0),
            (Pick::Nearest, _) if head >= moment => found(0, head, 0),
            (Pick::Newest, _) if head >= last => found(0, head, 0),
            (pick, Some((at, next))) => {
                // The first message past the target shows that no better one will come.
                let is_nearer = pick == Pick::Nearest && next - moment < moment - head;
                let (behind, begun) = if is_nearer { (at, next) } else { (0, head) };
                found(behind, begun, self.queue[at].1.sent)
            }
            (pick, None) => {
                // A better message would lie between the head and its mirror image beyond the
                // moment, or before the window's end.
                let end = if pick == Pick::Nearest { moment + (moment - head) } else { last };
                if is_final || self.interval.next_after(head) >= end { found(0, head, 0) } else { Choice::Open }
            }
        }
    }
    fn renew(&mut self) -> bool {
        let mut newer = false;
        while self.head().is_some() {
            while let Some((message, run)) = self.queue.pop_front() {
                if let Some((.., false)) = self.newest.replace((message, run, false)) {
                    self.rx.lose(Reason::Superseded, 1);
                }
                newer = true;
            }
        }
        newer
    }
    fn has_newest(&self) -> bool {
        self.newest.is_some()
    }
    fn lose_head(&mut self, reason: Reason) {
        if let Some((message, run)) = self.queue.pop_front() {
            if run.n == 0 {
                self.rx.received(1);
            } else {
                self.rx.lose(reason, 1);
            }
            if let Order::Begun { taken } = &mut self.order {
                *taken = message.header().origin.0;
            }
        }
    }
    fn waiting(&self) -> usize {
        self.queue.len() + self.rx.len()
    }
    fn is_full(&self) -> bool {
        self.rx.is_full()
    }
    fn may_grow(&self) -> bool {
        self.rx.state() == EdgeState::Open
    }
    fn is_open(&self) -> bool {
        !self.queue.is_empty() || self.may_grow()
    }
}
