//! Joins of any number of inputs of one payload.

use super::align::align;
use super::side::{AnyJoinInput, JoinInput};
use super::{Fresh, JoinRule, Lead, combine, joined_state, used};
use crate::base::policy::JoinPolicy;
use crate::edge::{BURST, EdgeState, Reason};
use crate::ledger::{Run, push_run};
use crate::message::MAX_PORTS;
use crate::message::origins::Origin;
use crate::message::payload::{Header, Message, Payload};
use crate::port::intake::{Intake, IntakeParts, Left, SealedInputs, TakenBurst};
use crate::port::{Many, MessageSet, PortType};
use std::collections::VecDeque;
use std::fmt;

/// Any number of inputs of one payload, zipped.
pub struct ZipMany<T: Payload> {
    sides: Vec<JoinInput<T>>,
    /// There is one input, taken in order: nothing to match, and no sets are held.
    is_sole: bool,
    sets: VecDeque<(MessageSet<T>, Run)>,
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
        let mut sides: arrayvec::ArrayVec<&mut dyn AnyJoinInput, MAX_PORTS> =
            self.sides.iter_mut().map(|s| s as &mut dyn AnyJoinInput).collect();
        align(&mut sides, &self.rule, &mut self.due, &mut self.known)
    }
}

#[allow(private_interfaces)]
impl<T: Payload> Intake for ZipMany<T> {
    type Taken = MessageSet<T>;
    const JOINS: bool = true;
    fn build(parts: IntakeParts) -> Self {
        let policy = |at: usize| if parts.rule.trigger == Some(at) { JoinPolicy::Zip } else { parts.rule.policy };
        ZipMany {
            is_sole: parts.edges.len() == 1 && !matches!(parts.rule.policy, JoinPolicy::ByTime | JoinPolicy::Sample),
            sides: {
                let pools = parts.blends.into_iter().chain(std::iter::repeat_with(|| None));
                let ends = parts.edges.into_iter().zip(pools).enumerate();
                ends.map(|(at, (end, pool))| JoinInput::new(end, policy(at), pool)).collect()
            },
            sets: VecDeque::with_capacity(BURST),
            fresh: Fresh::new(&parts.rule),
            rule: parts.rule,
            due: u64::MAX,
            known: 0,
        }
    }
    fn burst(&self) -> TakenBurst<MessageSet<T>> {
        // A sole input's edge swaps lists with this burst.
        let buffer = self.sides.iter().map(|side| side.rx.buffer()).max().unwrap_or_default();
        TakenBurst::new(Vec::with_capacity(BURST), BURST.max(buffer) + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        if self.is_sole {
            return self.sides[0].rx.len().min(limit);
        }
        while self.sets.len() < limit && self.align() {
            let mut set = MessageSet::new();
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
    #[inline]
    fn has_only(&self) -> bool {
        self.is_sole && self.sides[0].rx.has_only()
    }
    #[inline]
    fn take_only(&mut self) -> Option<(MessageSet<T>, u64)> {
        let (message, sent) = self.sides[0].rx.take_only()?;
        Some((MessageSet::from_iter([message]), sent))
    }
    #[inline]
    fn last_run(&self, n: usize) -> Run {
        self.sides[0].rx.last_run(n)
    }
    fn fill(&mut self, n: usize, into: &mut TakenBurst<MessageSet<T>>) {
        if self.is_sole {
            let JoinInput { rx, items, .. } = &mut self.sides[0];
            rx.fill(n, items, &mut into.runs);
            into.items.extend(items.drain(..).map(|message| MessageSet::from_iter([message])));
            return rx.recycle(items);
        }
        for (set, run) in self.sets.drain(..n) {
            into.items.push(set);
            push_run(&mut into.runs, run);
        }
    }
    #[inline]
    fn received(&mut self, calls: u64) {
        if self.is_sole {
            return self.sides[0].rx.received(calls);
        }
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
    fn state(&self) -> EdgeState {
        let open = !self.sets.is_empty() || self.rule.is_open(self.sides.iter().map(AnyJoinInput::is_open));
        joined_state(open, self.sides.iter().map(|s| s.rx.state()))
    }
    fn is_drained(&self) -> bool {
        self.sets.is_empty() && !self.sides.iter().any(AnyJoinInput::is_open)
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
        // A single perishable input is taken late; a join must take messages to match them.
        self.sides.len() == 1 && self.sides[0].rx.is_perishable()
    }
    fn header(taken: &MessageSet<T>, lead: Lead) -> &Header {
        if let [sole] = &taken[..] {
            return sole.header();
        }
        lead.of(taken.iter().map(Message::header)).unwrap_or(taken[0].header())
    }
    fn each_header(taken: &MessageSet<T>, see: &mut dyn FnMut(usize, &Header)) {
        taken.iter().enumerate().for_each(|(input, message)| see(input, message.header()));
    }
    fn each_origin(taken: &MessageSet<T>, fresh: u16, see: &mut dyn FnMut(Origin)) {
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

impl<T: Payload> SealedInputs for Many<T> {
    type Taken = MessageSet<T>;
    type Intake = ZipMany<T>;
    const COUNT: Option<usize> = None;
    fn types(ports: usize) -> Vec<PortType> {
        vec![PortType::of::<T>(); ports.min(MAX_PORTS)]
    }
}
