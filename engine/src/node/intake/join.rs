//! Several inputs taken together: what belongs together, and what is lost because its partner is.
//!
//! An edge keeps order, so a head whose partner's edge is already past it can never be matched and is counted lost. A partner
//! that is merely late is waited for as long as the graph says.

use super::{Burst, Intake, IntakeParts, Left, left_of};
use crate::base::policy::JoinPolicy;
use crate::base::policy::Pick;
use crate::edge::BURST;
use crate::edge::{Reason, Rx, State, rx};
use crate::host::clock::{Clock, Time};
use crate::ledger::{Run, push_run};
use crate::message::MAX_PORTS;
use crate::message::origins::Origin;
use crate::message::payload::{Header, Message, Payload};
use crate::message::pool::Pool;
use crate::node::{Inputs, Many, PortType, Set};
use std::any::Any;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;

/// `join:` of a node, at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinRule {
    pub(crate) policy: JoinPolicy,
    /// By time: which message of an input is taken for a moment.
    pub(crate) pick: Pick,
    /// By time: the input whose messages set the moments; whichever has the newest head without.
    pub(crate) anchor: Option<usize>,
    /// Unmatched messages one input may pile up while a partner is missing.
    pub(crate) patience: Option<usize>,
    /// By time: how far from the moment a message may have begun, ns.
    pub(crate) within: u64,
    /// How long a message that others may still overtake is held back, ns.
    pub(crate) hold: u64,
    /// The input whose messages are each taken with the newest of the others.
    pub(crate) trigger: Option<usize>,
    pub(crate) clock: Clock,
}

/// Whose header stands for all messages of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lead {
    /// The one that began first.
    #[default]
    Oldest,
    /// The one that began last.
    Newest,
    /// That of an input.
    Input(usize),
}

impl Lead {
    fn of<'a>(self, mut headers: impl Iterator<Item = &'a Header>) -> Option<&'a Header> {
        match self {
            Lead::Oldest => headers.min_by_key(|header| header.origin),
            Lead::Newest => headers.max_by_key(|header| header.origin),
            Lead::Input(at) => headers.nth(at),
        }
    }
}

/// A message that says it began so much later than now has a clock that cannot be compared, ns. What is less ahead is waited
/// for, so this is also the longest that a wrong clock can hold up a join.
const FUTURE_NS: u64 = 1_000_000_000;

/// One side of a join: an edge and what was taken from it and not yet matched.
pub(super) struct Side<T: Payload> {
    pub(super) rx: Rx<T>,
    queue: VecDeque<(Message<T>, Run)>,
    items: Vec<Message<T>>,
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
pub(super) enum Choice {
    /// The message behind so many others, when it began, and when it was known to be the one, by the clock of runs.
    Found { behind: usize, begun: u64, known: u64 },
    /// A better one may still come.
    Open,
    /// None began near enough, and none will.
    Nothing,
}

/// What matching needs of a side, whatever its payload.
pub(super) trait AnySide {
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
    pub(super) fn new(end: Box<dyn Any>, policy: JoinPolicy, pool: Option<Pool>) -> Self {
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
    pub(super) fn pop(&mut self) -> (Message<T>, Run, bool) {
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

    pub(super) fn discard(&mut self, reason: Reason) -> bool {
        let held = self.held();
        self.queue.clear();
        self.newest = None;
        if let Some(blend) = &mut self.blend {
            blend.before = None;
        }
        self.rx.lose(reason, held);
        self.rx.discard(reason) + held > 0
    }

    pub(super) fn left(self) -> Left {
        let held = self.held();
        left_of(self.rx, held)
    }

    /// When the oldest message that was taken off the edge began; of those that began together, in the order of its source.
    pub(super) fn front(&self) -> Option<(u64, u64, u32)> {
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

/// Brings every side to what belongs together, losing what cannot be matched. True when there is a match, and `known` is when
/// that was clear, where it was later than the last of it came; otherwise `due` is when to look again although nothing comes.
fn align(sides: &mut [&mut dyn AnySide], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    (*due, *known) = (u64::MAX, 0);
    match rule.policy {
        JoinPolicy::ByTime => align_by_time(sides, rule, due, known),
        JoinPolicy::Sample => align_newest(sides, rule.trigger),
        _ => align_by_sequence(sides, rule.patience),
    }
}

/// Gives up the oldest message of every side that has one, where a partner has ended or has been waited for too long.
fn give_up(
    sides: &mut [&mut dyn AnySide],
    missing: impl Fn(&mut dyn AnySide) -> bool,
    patience: Option<usize>,
) -> bool {
    // A partner that has ended sends no more; one that is merely late is waited for, but not for ever: until patience
    // is used up, or the edges hold no more, which may be what keeps the partner from coming.
    let ended = sides.iter_mut().any(|side| missing(&mut **side) && !side.is_open());
    let longest = sides.iter().map(|s| s.waiting()).max().unwrap_or(0);
    if !ended && !patience.is_some_and(|p| longest > p || sides.iter().any(|s| s.is_full())) {
        return false;
    }
    for side in sides.iter_mut().filter(|s| s.waiting() > 0) {
        side.lose_head(Reason::Unmatched);
    }
    true
}

/// By time: each input gives the message that `pick` names for a moment, which an input's head sets. Goes by when messages
/// began; only `hold`, and an edge that is full, end the wait for a better one by the clock.
fn align_by_time(sides: &mut [&mut dyn AnySide], rule: &JoinRule, due: &mut u64, known: &mut u64) -> bool {
    let now = rule.clock.now().0;
    loop {
        let mut newest = None;
        for (at, side) in sides.iter_mut().enumerate() {
            let begun = side.begun(now);
            // Of those that began together the first.
            newest = newest.max(begun.map(|begun| (begun, Reverse(at))));
        }
        let moment = match rule.anchor {
            Some(anchor) => sides[anchor].begun(now).map(|begun| (begun, Reverse(anchor))),
            None => newest,
        };
        let Some((moment, Reverse(anchor))) = moment else {
            if newest.is_some() && give_up(sides, |side| side.begun(now).is_none(), rule.patience) {
                continue;
            }
            return false;
        };
        // Something earlier may still come to any side: what is held back is not yet decided on.
        let held_until = moment.saturating_add(rule.hold);
        let is_full = sides.iter().any(|side| side.is_full());
        if now < held_until && sides.iter().any(|side| side.is_open()) && !is_full {
            *due = held_until;
            return false;
        }
        let longest = sides.iter().map(|side| side.waiting()).max().unwrap_or(0);
        let is_final = rule.hold > 0 || is_full || rule.patience.is_some_and(|patience| longest > patience);
        *known = if rule.hold > 0 { held_until } else { 0 };
        let (mut chosen, mut has_open, mut has_nothing, mut has_passed) = ([0usize; MAX_PORTS], false, false, false);
        for (at, side) in sides.iter_mut().enumerate().filter(|(at, _)| *at != anchor) {
            match side.choose(moment, rule, now, is_final) {
                Choice::Found { behind, begun, known: at_once } => {
                    chosen[at] = behind;
                    *known = (*known).max(at_once);
                    // What was lost as too early uncovered one that is newer still: it sets the moment.
                    has_passed |= rule.anchor.is_none() && behind == 0 && begun > moment;
                }
                Choice::Open => has_open = true,
                Choice::Nothing => has_nothing = true,
            }
        }
        if has_passed {
            continue;
        }
        if has_nothing && sides.iter().all(|side| side.is_open()) {
            // Without an anchor the input that has gone past the moment sets the next.
            sides[anchor].lose_head(Reason::Unmatched);
            continue;
        }
        if has_open || has_nothing {
            let complete = sides.iter_mut().all(|side| side.begun(now).is_some());
            if complete || !give_up(sides, |side| side.begun(now).is_none(), rule.patience) {
                return false;
            }
            continue;
        }
        for (side, behind) in sides.iter_mut().zip(chosen) {
            (0..behind).for_each(|_| side.lose_head(Reason::Unmatched));
        }
        return true;
    }
}

fn align_newest(sides: &mut [&mut dyn AnySide], trigger: Option<usize>) -> bool {
    let mut newer = false;
    for (at, side) in sides.iter_mut().enumerate() {
        if trigger != Some(at) {
            newer |= side.renew();
        }
    }
    let others = |sides: &[&mut dyn AnySide]| {
        sides.iter().enumerate().all(|(at, side)| trigger == Some(at) || side.has_newest())
    };
    let Some(trigger) = trigger else { return newer && others(sides) };
    // A message that nothing else has come before is nothing to be taken with anything.
    while sides[trigger].head().is_some() {
        if others(sides) {
            return true;
        }
        sides[trigger].lose_head(Reason::Unmatched);
    }
    false
}

fn align_by_sequence(sides: &mut [&mut dyn AnySide], patience: Option<usize>) -> bool {
    loop {
        let mut newest = None;
        let mut complete = true;
        for side in sides.iter_mut() {
            let head = side.head();
            complete &= head.is_some();
            newest = newest.max(head);
        }
        let Some(newest) = newest else { return false };
        let mut lost = false;
        for side in sides.iter_mut() {
            while side.head().is_some_and(|head| head < newest) {
                side.lose_head(Reason::Unmatched);
                lost = true;
            }
        }
        if lost {
            continue;
        }
        if complete {
            return true;
        }
        if !give_up(sides, |side| side.head().is_none(), patience) {
            return false;
        }
    }
}

impl JoinRule {
    /// Whether a message may have to wait for one that never comes.
    pub(crate) fn waits(&self, merges: bool) -> bool {
        match self.policy {
            JoinPolicy::Zip => !merges,
            JoinPolicy::ByTime | JoinPolicy::InTurn | JoinPolicy::OldestFirst => true,
            JoinPolicy::Sample | JoinPolicy::Priority => false,
        }
    }

    /// Whether another input sets the moment, so that what comes by this one and finds no partner is thinned, not lost.
    pub(crate) fn thins(&self, input: usize) -> bool {
        match self.policy {
            JoinPolicy::Sample => self.trigger.is_some_and(|trigger| trigger != input),
            JoinPolicy::ByTime => self.anchor.is_some_and(|anchor| anchor != input),
            _ => false,
        }
    }

    /// Whose header stands for a set.
    pub(crate) fn lead(&self) -> Lead {
        match (self.policy, self.trigger) {
            (JoinPolicy::Sample, Some(trigger)) => Lead::Input(trigger),
            (JoinPolicy::Sample, None) => Lead::Newest,
            _ => self.anchor.map_or(Lead::Oldest, Lead::Input),
        }
    }

    /// Whether more can come that belongs together. A partner that has ended is waited for no more; of inputs whose newest is
    /// taken, one that is still open is enough, or the one that everything is taken for.
    fn is_open(&self, mut open: impl Iterator<Item = bool>) -> bool {
        match (self.policy, self.trigger) {
            (JoinPolicy::Sample, Some(trigger)) => open.nth(trigger).unwrap_or(false),
            (JoinPolicy::Sample, None) => open.any(|open| open),
            _ => open.all(|open| open),
        }
    }
}

/// Which messages of the sets that were put together, and not yet counted, their edges gave for the first time. Only where
/// messages are taken more than once is there anything to remember.
struct Fresh(Option<VecDeque<u16>>);

impl Fresh {
    fn new(rule: &JoinRule) -> Self {
        // Sets that wait, and those of the burst that is being worked on.
        let takes_again = rule.policy == JoinPolicy::Sample || rule.pick == Pick::Interpolate;
        Fresh(takes_again.then(|| VecDeque::with_capacity(2 * BURST)))
    }

    fn push(&mut self, fresh: impl Iterator<Item = bool>) {
        if let Some(sets) = &mut self.0 {
            sets.push_back(fresh.enumerate().fold(0, |mask, (at, is)| mask | u16::from(is) << at));
        }
    }

    fn count(n: u64, masks: impl Iterator<Item = u16>) -> [u64; MAX_PORTS] {
        let mut counts = [0; MAX_PORTS];
        for mask in masks.take(n as usize) {
            counts.iter_mut().enumerate().for_each(|(at, count)| *count += u64::from(mask >> at & 1));
        }
        counts
    }

    /// Which messages of the set that `before` others were put together before are new.
    fn at(&self, before: usize) -> u16 {
        self.0.as_ref().and_then(|sets| sets.get(before).copied()).unwrap_or(u16::MAX)
    }

    /// Of the `n` sets put together first, how many messages were new on each input.
    fn pop(&mut self, n: u64) -> [u64; MAX_PORTS] {
        match &mut self.0 {
            None => [n; MAX_PORTS],
            Some(sets) => {
                let n = n.min(sets.len() as u64);
                Fresh::count(n, sets.drain(..n as usize))
            }
        }
    }

    /// As [`Fresh::pop`], of the set that `before` others were put together before.
    fn remove(&mut self, before: usize) -> [u64; MAX_PORTS] {
        match &mut self.0 {
            None => [1; MAX_PORTS],
            Some(sets) => Fresh::count(1, sets.remove(before).into_iter()),
        }
    }

    /// As [`Fresh::pop`], of the sets put together last.
    fn pop_last(&mut self, n: u64) -> [u64; MAX_PORTS] {
        match &mut self.0 {
            None => [n; MAX_PORTS],
            Some(sets) => {
                let first = sets.len() - n.min(sets.len() as u64) as usize;
                Fresh::count(n, sets.drain(first..))
            }
        }
    }
}

/// An origin of an input's message, which was in a set before where its bit is not set.
fn used(origin: Origin, fresh: u16, input: usize) -> Origin {
    Origin { reused: origin.reused || fresh >> input & 1 == 0, ..origin }
}

/// The ledger of a set: that of its oldest message, which waited for the newest, or until it was `known` to belong to it.
fn combine<'a>(known: u64, parts: impl Iterator<Item = (&'a Header, Run)>) -> Run {
    let mut oldest: Option<(u64, Run)> = None;
    let mut complete = known;
    let mut recorded = true;
    for (header, run) in parts.filter(|(_, run)| run.n > 0) {
        recorded &= run.is_recorded();
        complete = complete.max(run.sent);
        if oldest.is_none_or(|(origin, _)| header.origin.0 < origin) {
            oldest = Some((header.origin.0, run));
        }
    }
    let run = oldest.map_or(Run::default(), |(_, run)| run);
    if !recorded {
        return Run { n: 1, ..Run::default() };
    }
    Run { hold: complete.saturating_sub(run.sent), n: 1, ..run }
}

fn joined_state(open: bool, states: impl Iterator<Item = State>) -> State {
    if open {
        State::Open
    } else if states.into_iter().any(|s| s == State::Failed) {
        State::Failed
    } else {
        State::Finished
    }
}

macro_rules! tuple_inputs {
    ($name:ident: $($t:ident $s:ident $i:tt),+) => {
        /// Several inputs of different payloads, zipped.
        #[doc(hidden)]
        pub struct $name<$($t: Payload),+> {
            $($s: Side<$t>,)+
            sets: VecDeque<(($(Message<$t>,)+), Run)>,
            fresh: Fresh,
            rule: JoinRule,
            due: u64,
            known: u64,
        }

        impl<$($t: Payload),+> fmt::Debug for $name<$($t),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        #[allow(private_interfaces)]
        impl<$($t: Payload),+> Intake for $name<$($t),+> {
            type Taken = ($(Message<$t>,)+);
            const JOINS: bool = true;
            fn build(parts: IntakeParts) -> Self {
                let mut edges = parts.edges.into_iter();
                let mut pools = parts.blends.into_iter();
                let policy = |at: usize| if parts.rule.trigger == Some(at) { JoinPolicy::Zip } else { parts.rule.policy };
                $name {
                    $($s: Side::new(edges.next().expect("an edge for each input"), policy($i), pools.next().flatten()),)+
                    sets: VecDeque::with_capacity(BURST),
                    fresh: Fresh::new(&parts.rule),
                    rule: parts.rule,
                    due: u64::MAX,
                    known: 0,
                }
            }
            fn burst(&self) -> Burst<Self::Taken> {
                Burst::new(Vec::with_capacity(BURST), BURST + 1)
            }
            fn ready(&mut self, limit: usize) -> usize {
                while self.sets.len() < limit && align(&mut [$(&mut self.$s),+], &self.rule, &mut self.due, &mut self.known) {
                    $(let $s = self.$s.pop();)+
                    let run = combine(self.known, [$(($s.0.header(), $s.1)),+].into_iter());
                    self.fresh.push([$($s.2),+].into_iter());
                    self.sets.push_back((($($s.0,)+), run));
                }
                self.sets.len().min(limit)
            }
            fn peek(&self, see: &mut dyn FnMut(&Header)) {
                if let Some((set, _)) = self.sets.front() {
                    see(Self::header(set, Lead::Oldest));
                }
            }
            fn fill(&mut self, n: usize, into: &mut Burst<Self::Taken>) {
                for (set, run) in self.sets.drain(..n) {
                    into.items.push(set);
                    push_run(&mut into.runs, run);
                }
            }
            fn received(&mut self, calls: u64) {
                let fresh = self.fresh.pop(calls);
                $(self.$s.rx.received(fresh[$i]);)+
            }
            fn lose(&mut self, reason: Reason, calls: u64) {
                let fresh = self.fresh.pop(calls);
                $(self.$s.rx.lose(reason, fresh[$i]);)+
            }
            fn lose_at(&mut self, before: usize, reason: Reason) {
                let fresh = self.fresh.remove(before);
                $(self.$s.rx.lose(reason, fresh[$i]);)+
            }
            fn due(&self) -> u64 {
                self.due
            }
            fn state(&self) -> State {
                let open = !self.sets.is_empty() || self.rule.is_open([$(self.$s.is_open()),+].into_iter());
                joined_state(open, [$(self.$s.rx.state()),+].into_iter())
            }
            fn is_drained(&self) -> bool {
                self.sets.is_empty() $(&& !self.$s.is_open())+
            }
            fn discard(&mut self, reason: Reason) -> bool {
                let sets = self.sets.len() as u64;
                self.lose(reason, sets);
                self.sets.clear();
                let found = [$(self.$s.discard(reason)),+];
                sets > 0 || found.contains(&true)
            }
            fn ring(&mut self) -> bool {
                [$(self.$s.rx.ring()),+].contains(&true)
            }
            fn has_freed(&self) -> bool {
                [$(self.$s.rx.has_freed()),+].contains(&true)
            }
            fn is_perishable(&self) -> bool {
                false
            }
            fn header(taken: &Self::Taken, lead: Lead) -> &Header {
                // A set has a message of each input, and the plan checked the one that leads.
                lead.of([$(taken.$i.header()),+].into_iter()).unwrap_or(taken.0.header())
            }
            fn each_header(taken: &Self::Taken, see: &mut dyn FnMut(usize, &Header)) {
                $(see($i, taken.$i.header());)+
            }
            fn each_origin(taken: &Self::Taken, fresh: u16, see: &mut dyn FnMut(Origin)) {
                $($t::each_origin(&taken.$i, &mut |origin| see(used(origin, fresh, $i)));)+
            }
            fn fresh_at(&self, at: usize) -> u16 {
                self.fresh.at(at)
            }
            fn left(mut self) -> Vec<Left> {
                let sets = self.sets.len() as u64;
                let fresh = self.fresh.pop_last(sets);
                vec![$({
                    let mut left = self.$s.left();
                    left.counted += fresh[$i];
                    left
                }),+]
            }
        }

        impl<$($t: Payload),+> Inputs for ($($t,)+) {
            type Taken = ($(Message<$t>,)+);
            type Intake = $name<$($t),+>;
            const COUNT: Option<usize> = Some([$($i),+].len());
            fn types(_: usize) -> Vec<PortType> {
                vec![$(PortType::of::<$t>()),+]
            }
        }
    };
}
tuple_inputs!(Zip2: A a 0, B b 1);
tuple_inputs!(Zip3: A a 0, B b 1, C c 2);
tuple_inputs!(Zip4: A a 0, B b 1, C c 2, D d 3);

/// Any number of inputs of one payload, zipped.
#[doc(hidden)]
pub struct ZipMany<T: Payload> {
    sides: Vec<Side<T>>,
    /// There is one input, taken as it comes: nothing to match, and no sets are held.
    is_sole: bool,
    sets: VecDeque<(Set<T>, Run)>,
    fresh: Fresh,
    rule: JoinRule,
    due: u64,
    known: u64,
}

impl<T: Payload> fmt::Debug for ZipMany<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZipMany")
    }
}

impl<T: Payload> ZipMany<T> {
    fn align(&mut self) -> bool {
        // At most `MAX_PORTS` sides, so the list of borrows needs no allocation.
        let mut sides: arrayvec::ArrayVec<&mut dyn AnySide, MAX_PORTS> =
            self.sides.iter_mut().map(|s| s as &mut dyn AnySide).collect();
        align(&mut sides, &self.rule, &mut self.due, &mut self.known)
    }
}

#[allow(private_interfaces)]
impl<T: Payload> Intake for ZipMany<T> {
    type Taken = Set<T>;
    const JOINS: bool = true;
    fn build(parts: IntakeParts) -> Self {
        let policy = |at: usize| if parts.rule.trigger == Some(at) { JoinPolicy::Zip } else { parts.rule.policy };
        ZipMany {
            is_sole: parts.edges.len() == 1 && !matches!(parts.rule.policy, JoinPolicy::ByTime | JoinPolicy::Sample),
            sides: {
                let pools = parts.blends.into_iter().chain(std::iter::repeat_with(|| None));
                let ends = parts.edges.into_iter().zip(pools).enumerate();
                ends.map(|(at, (end, pool))| Side::new(end, policy(at), pool)).collect()
            },
            sets: VecDeque::with_capacity(BURST),
            fresh: Fresh::new(&parts.rule),
            rule: parts.rule,
            due: u64::MAX,
            known: 0,
        }
    }
    fn burst(&self) -> Burst<Set<T>> {
        // A sole input's edge changes lists with this one.
        let buffer = self.sides.iter().map(|side| side.rx.buffer()).max().unwrap_or_default();
        Burst::new(Vec::with_capacity(BURST), BURST.max(buffer) + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        if self.is_sole {
            return self.sides[0].rx.len().min(limit);
        }
        while self.sets.len() < limit && self.align() {
            let mut set = Set::new();
            let mut runs = arrayvec::ArrayVec::<Run, MAX_PORTS>::new();
            let mut fresh = arrayvec::ArrayVec::<bool, MAX_PORTS>::new();
            for side in &mut self.sides {
                let (message, run, is_fresh) = side.pop();
                set.push(message);
                runs.push(run);
                fresh.push(is_fresh);
            }
            self.fresh.push(fresh.into_iter());
            let run = combine(self.known, set.iter().map(Message::header).zip(runs));
            self.sets.push_back((set, run));
        }
        self.sets.len().min(limit)
    }
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        if self.is_sole {
            self.sides[0].rx.peek(see);
        } else if let Some((set, _)) = self.sets.front() {
            see(Self::header(set, Lead::Oldest));
        }
    }
    fn fill(&mut self, n: usize, into: &mut Burst<Set<T>>) {
        if self.is_sole {
            let Side { rx, items, .. } = &mut self.sides[0];
            rx.fill(n, items, &mut into.runs);
            into.items.extend(items.drain(..).map(|message| Set::from_iter([message])));
            return rx.recycle(items);
        }
        for (set, run) in self.sets.drain(..n) {
            into.items.push(set);
            push_run(&mut into.runs, run);
        }
    }
    fn received(&mut self, calls: u64) {
        let fresh = self.fresh.pop(calls);
        self.sides.iter().zip(fresh).for_each(|(s, n)| s.rx.received(n));
    }
    fn lose(&mut self, reason: Reason, calls: u64) {
        let fresh = self.fresh.pop(calls);
        self.sides.iter().zip(fresh).for_each(|(s, n)| s.rx.lose(reason, n));
    }
    fn lose_at(&mut self, before: usize, reason: Reason) {
        let fresh = self.fresh.remove(before);
        self.sides.iter().zip(fresh).for_each(|(s, n)| s.rx.lose(reason, n));
    }
    fn due(&self) -> u64 {
        self.due
    }
    fn state(&self) -> State {
        let open = !self.sets.is_empty() || self.rule.is_open(self.sides.iter().map(AnySide::is_open));
        joined_state(open, self.sides.iter().map(|s| s.rx.state()))
    }
    fn is_drained(&self) -> bool {
        self.sets.is_empty() && !self.sides.iter().any(AnySide::is_open)
    }
    fn discard(&mut self, reason: Reason) -> bool {
        let sets = self.sets.len() as u64;
        self.lose(reason, sets);
        self.sets.clear();
        self.sides.iter_mut().fold(sets > 0, |found, side| side.discard(reason) | found)
    }
    fn ring(&mut self) -> bool {
        self.sides.iter_mut().fold(false, |freed, side| side.rx.ring() | freed)
    }
    fn has_freed(&self) -> bool {
        self.sides.iter().any(|side| side.rx.has_freed())
    }
    fn is_perishable(&self) -> bool {
        // A single perishable input is taken late; a join has to take to match.
        self.sides.len() == 1 && self.sides[0].rx.is_perishable()
    }
    fn header(taken: &Set<T>, lead: Lead) -> &Header {
        lead.of(taken.iter().map(Message::header)).unwrap_or(taken[0].header())
    }
    fn each_header(taken: &Set<T>, see: &mut dyn FnMut(usize, &Header)) {
        taken.iter().enumerate().for_each(|(input, message)| see(input, message.header()));
    }
    fn each_origin(taken: &Set<T>, fresh: u16, see: &mut dyn FnMut(Origin)) {
        for (input, message) in taken.iter().enumerate() {
            T::each_origin(message, &mut |origin| see(used(origin, fresh, input)));
        }
    }
    fn fresh_at(&self, at: usize) -> u16 {
        self.fresh.at(at)
    }
    fn left(mut self) -> Vec<Left> {
        let fresh = self.fresh.pop_last(self.sets.len() as u64);
        let add = |mut left: Left, sets: u64| {
            left.counted += sets;
            left
        };
        self.sides.into_iter().zip(fresh).map(|(side, n)| add(side.left(), n)).collect()
    }
}

impl<T: Payload> Inputs for Many<T> {
    type Taken = Set<T>;
    type Intake = ZipMany<T>;
    const COUNT: Option<usize> = None;
    fn types(ports: usize) -> Vec<PortType> {
        vec![PortType::of::<T>(); ports.min(MAX_PORTS)]
    }
}
