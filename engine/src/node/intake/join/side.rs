//! One side of a join: an edge, and what was taken from it and not yet matched.

use super::super::{Left, left_of};
use crate::base::policy::JoinPolicy;
use crate::base::policy::Pick;
use crate::edge::BURST;
use crate::edge::{Reason, Rx, State, rx};
use crate::host::clock::Time;
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crate::message::pool::Pool;
use crate::node::intake::join::JoinRule;
use std::any::Any;
use std::collections::VecDeque;

/// A message that says it began so much later than now has a clock that cannot be compared, ns. What is less ahead is waited
/// for, so this is also the longest that a wrong clock can hold up a join.
const FUTURE_NS: u64 = 1_000_000_000;

/// One side of a join: an edge and what was taken from it and not yet matched.
pub(in crate::node::intake) struct Side<T: Payload> {
    pub(in crate::node::intake) rx: Rx<T>,
    queue: VecDeque<(Message<T>, Run)>,
    pub(super) items: Vec<Message<T>>,
    runs: Vec<Run>,
    order: Order,
    interval: Interval,
    blend: Option<Box<Blend<T>>>,
    /// What is taken with messages of other inputs until something newer comes, and whether it has been already.
    newest: Option<(Message<T>, Run, bool)>,
}

/// Messages that are made for a moment, from the one before it and the one after.
struct Blend<T: Payload> {
    pool: Pool,
    /// The moment that the next one is for; 0 where a message lies just there.
    moment: u64,
    /// The last message taken: it may be the one before the next moment too.
    before: Option<(Message<T>, Run)>,
}

/// The order of a side's messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As they came.
    Sent,
    /// By when they began; what comes after a later one was taken is lost.
    Begun { taken: u64 },
}

/// The least time between two messages of a side that began one after the other, as far as its last ones tell.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// When the last one began, ns; 0 before the first.
    last: u64,
    gaps: [u64; Interval::KEPT],
    n: usize,
}

impl Interval {
    /// Intervals kept, and needed before anything is concluded.
    const KEPT: usize = 8;

    fn note(&mut self, begun: u64) {
        if self.last != 0 {
            self.gaps[self.n % Self::KEPT] = begun.saturating_sub(self.last);
            self.n += 1;
        }
        self.last = begun;
    }

    /// Before when no message will begin that follows one which began at a time: half of the shortest interval seen leaves room
    /// for jitter. Goes by what the messages say, not by when they came, so that a recorded stream is joined the same again.
    fn next_after(&self, begun: u64) -> u64 {
        let shortest = if self.n < Self::KEPT { 0 } else { self.gaps.iter().copied().min().unwrap_or(0) };
        begun.saturating_add(shortest / 2)
    }
}

/// What a side has for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node::intake) enum Choice {
    /// The message behind so many others, when it began, and when it was known to be the one, by the clock of runs.
    Found { behind: usize, begun: u64, known: u64 },
    /// A better one may still come.
    Open,
    /// None began near enough, and none will.
    Nothing,
}

/// What matching needs of a side, whatever its payload.
pub(in crate::node::intake) trait AnySide {
    /// Sequence and part of the oldest message, looking at the edge if need be.
    fn head(&mut self) -> Option<(u64, u32)>;
    /// When the oldest message began, after sorting in what has come by now.
    fn begun(&mut self, now: u64) -> Option<u64>;
    /// What it has for a moment; loses what can be of no use to it nor to a later one. `is_final`: nothing better is waited for.
    fn choose(&mut self, moment: u64, rule: &JoinRule, now: u64, is_final: bool) -> Choice;
    /// Goes on to the newest message there is; true where that is another than before.
    fn renew(&mut self) -> bool;
    fn has_newest(&self) -> bool;
    fn lose_head(&mut self, reason: Reason);
    fn waiting(&self) -> usize;
    /// Whether the producer waits for room that only this side can make.
    fn is_full(&self) -> bool;
    /// Whether more may come than has been taken off the edge.
    fn may_grow(&self) -> bool;
    fn is_open(&self) -> bool;
}

impl<T: Payload> Side<T> {
    /// `pool` is for messages that are interpolated.
    pub(in crate::node::intake) fn new(end: Box<dyn Any>, policy: JoinPolicy, pool: Option<Pool>) -> Self {
        let rx: Rx<T> = rx(end);
        let buffer = rx.buffer();
        Side {
            queue: VecDeque::with_capacity(buffer + BURST),
            items: rx.list(),
            runs: Vec::with_capacity(buffer + 1),
            order: if policy == JoinPolicy::ByTime { Order::Begun { taken: 0 } } else { Order::Sent },
            interval: Interval::default(),
            blend: pool.map(|pool| Box::new(Blend { pool, moment: 0, before: None })),
            newest: None,
            rx,
        }
    }

    /// The oldest message, or the newest once more. The last part says whether the edge has given it now.
    pub(in crate::node::intake) fn pop(&mut self) -> (Message<T>, Run, bool) {
        if let Some((message, run, was_taken)) = &mut self.newest {
            let is_first = !std::mem::replace(was_taken, true);
            // What was taken before has had its wait recorded: it counts for no message of a run.
            return (message.share(), Run { n: u32::from(is_first), ..*run }, is_first);
        }
        if self.blend.is_some() { self.pop_blended() } else { self.pop_head() }
    }

    /// What lies at the moment that was chosen.
    #[cold]
    #[inline(never)]
    fn pop_blended(&mut self) -> (Message<T>, Run, bool) {
        let Some(mut blend) = self.blend.take() else { return self.pop_head() };
        let moment = blend.moment;
        let is_before = self.queue.front().is_some_and(|(message, _)| message.header().origin.0 <= moment);
        let (before, run, is_fresh) = match &blend.before {
            // Taken before: it has been counted, and its wait recorded.
            Some((message, run)) if moment != 0 && !is_before => (message.share(), Run { n: 0, ..*run }, false),
            _ => self.pop_head(),
        };
        if is_fresh {
            blend.before = Some((before.share(), run));
        }
        let after = self.queue.front().filter(|_| moment != 0);
        let made = after.and_then(|(after, _)| T::interpolate(&before, after, Time(moment), &mut blend.pool));
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

    /// Takes what there is off the edge, up to `most` messages, and hands each on.
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

    /// What was taken off the edge and not yet by the node.
    fn held(&self) -> u64 {
        self.queue.len() as u64 + u64::from(self.newest.as_ref().is_some_and(|(.., was_taken)| !was_taken))
    }

    pub(in crate::node::intake) fn discard(&mut self, reason: Reason) -> bool {
        let held = self.held();
        self.queue.clear();
        self.newest = None;
        if let Some(blend) = &mut self.blend {
            blend.before = None;
        }
        self.rx.lose(reason, held);
        self.rx.discard(reason) + held > 0
    }

    pub(in crate::node::intake) fn left(self) -> Left {
        let held = self.held();
        left_of(self.rx, held)
    }

    /// When the oldest message that was taken off the edge began; of those that began together, in the order of its source.
    pub(in crate::node::intake) fn front(&self) -> Option<(u64, u64, u32)> {
        let (message, _) = self.queue.front()?;
        let header = message.header();
        Some((header.origin.0, header.seq, header.part))
    }
}

impl<T: Payload> AnySide for Side<T> {
    fn head(&mut self) -> Option<(u64, u32)> {
        if self.queue.is_empty() {
            // What is taken early can no longer be replaced by something fresher.
            let most = if self.rx.is_perishable() { 1 } else { BURST };
            self.take(most, |queue, _, message, run| queue.push_back((message, run)));
        }
        self.queue.front().map(|(message, _)| (message.header().seq, message.header().part))
    }
    fn begun(&mut self, now: u64) -> Option<u64> {
        let Order::Begun { taken } = self.order else { return None };
        if self.queue.len() < BURST {
            let mut interval = self.interval;
            self.take(BURST, |queue, rx, message, run| {
                let begun = message.header().origin.0;
                if begun == 0 || begun > now.saturating_add(FUTURE_NS) {
                    rx.lose(Reason::InvalidTime, 1);
                } else if begun < taken {
                    rx.lose(Reason::Unmatched, 1);
                } else {
                    interval.note(begun);
                    // Nearly always the last.
                    let behind = queue.iter().rev().take_while(|(other, _)| other.header().origin.0 > begun).count();
                    queue.insert(queue.len() - behind, (message, run));
                }
            });
            self.interval = interval;
        }
        self.queue.front().map(|(message, _)| message.header().origin.0)
    }
    fn choose(&mut self, moment: u64, rule: &JoinRule, now: u64, is_final: bool) -> Choice {
        let last = moment.saturating_add(rule.within);
        // A message is of no use when the next one is at least as good for this moment and for every later one.
        let serves = match rule.pick {
            Pick::Nearest | Pick::Interpolate => moment,
            Pick::Oldest => 0,
            Pick::Newest => last,
        };
        let (head, later) = loop {
            let Some(head) = self.begun(now) else {
                return if self.may_grow() { Choice::Open } else { Choice::Nothing };
            };
            // Parts of one message began together: they are as good as each other.
            let begun = |(message, _): &(Message<T>, Run)| message.header().origin.0;
            let later = self.queue.iter().position(|other| begun(other) > head).map(|at| (at, begun(&self.queue[at])));
            let is_early = head.saturating_add(rule.within) < moment;
            if !is_early && (head >= serves || later.is_none_or(|(_, next)| next > serves)) {
                break (head, later);
            }
            self.lose_head(Reason::Unmatched);
        };
        if head > last {
            return Choice::Nothing;
        }
        // Of so many that began together no more are taken off the edge.
        let is_final = is_final || !self.may_grow() || (self.queue.len() >= BURST && later.is_none());
        if let (Pick::Interpolate, Some(blend)) = (rule.pick, &mut self.blend) {
            let known = later.map_or(0, |(at, _)| self.queue[at].1.sent);
            let is_near = |begun: u64| begun.abs_diff(moment) <= rule.within;
            blend.moment = if head == moment { 0 } else { moment };
            let has_before =
                head <= moment || blend.before.as_ref().is_some_and(|(message, _)| is_near(message.header().origin.0));
            let after = if head > moment { Some(head) } else { later.map(|(_, next)| next) };
            return match after {
                _ if head == moment => Choice::Found { behind: 0, begun: head, known: 0 },
                _ if !has_before => Choice::Nothing,
                Some(after) if is_near(after) => Choice::Found { behind: 0, begun: head, known },
                Some(_) => Choice::Nothing,
                None if is_final => Choice::Nothing,
                None => Choice::Open,
            };
        }
        let found = |behind, begun, known| Choice::Found { behind, begun, known };
        match (rule.pick, later) {
            (Pick::Oldest, _) => found(0, head, 0),
            (Pick::Nearest, _) if head >= moment => found(0, head, 0),
            (Pick::Newest, _) if head >= last => found(0, head, 0),
            (pick, Some((at, next))) => {
                // The first beyond what serves shows that nothing better comes.
                let is_nearer = pick == Pick::Nearest && next - moment < moment - head;
                let (behind, begun) = if is_nearer { (at, next) } else { (0, head) };
                found(behind, begun, self.queue[at].1.sent)
            }
            (pick, None) => {
                // What could be better begins between the head and as far behind the moment, or at the window's end.
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
        if let Some((message, _)) = self.queue.pop_front() {
            self.rx.lose(reason, 1);
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
        self.rx.state() == State::Open
    }
    fn is_open(&self) -> bool {
        !self.queue.is_empty() || self.may_grow()
    }
}
