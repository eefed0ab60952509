//! Joins: messages of several inputs matched into sets; unmatched messages are lost.
//!
//! An edge keeps order, so a head whose partner's edge is already past it can never be matched and
//! counts as lost. A late partner is waited for as long as the graph says.

mod align;
mod many;
mod side;

use align::align;
pub(crate) use many::ZipMany;
pub(super) use side::{AnyJoinInput, JoinInput};

use super::{Intake, IntakeParts, Left, SealedInputs, TakenBurst};
use crate::base::policy::JoinPolicy;
use crate::base::policy::Pick;
use crate::edge::BURST;
use crate::edge::{EdgeState, Reason};
use crate::host::clock::Clock;
use crate::ledger::{Run, push_run};
use crate::message::MAX_PORTS;
use crate::message::origins::Origin;
use crate::message::payload::{Header, Message, Payload};
use crate::port::{Inputs, PortType, Taken};
use std::collections::VecDeque;
use std::fmt;

/// The resolved `join:` of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinRule {
    pub(crate) policy: JoinPolicy,
    /// By time: which message of an input is chosen for a moment.
    pub(crate) pick: Pick,
    /// By time: the input whose messages set the moments; without it, the input with the newest
    /// head.
    pub(crate) anchor: Option<usize>,
    /// Unmatched messages one input may accumulate while a partner is missing.
    pub(crate) patience: Option<usize>,
    /// By time: how far from the moment a message's origin may be, ns.
    pub(crate) within: u64,
    /// How long a message is held back so that older ones can still arrive, ns.
    pub(crate) wait: u64,
    /// By time: whether messages may begin later than now.
    pub(crate) ahead: bool,
    /// The input whose messages are each joined with the newest of the others.
    pub(crate) trigger: Option<usize>,
    /// The input whose headers represent the sets, where a model keeps a state for its streams.
    pub(crate) stream: Option<usize>,
    pub(crate) clock: Clock,
}

/// Which header represents a set of messages: with `join`, that of the `trigger` or the `anchor`;
/// see [`Building::lead`](crate::node::Building::lead).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Lead {
    /// The one with the oldest origin.
    #[default]
    Oldest,
    /// The one with the newest origin.
    Newest,
    /// That of an input.
    Input(usize),
}

impl Lead {
    /// Returns the header that represents what a node takes in a call.
    pub fn header_of<I: Inputs>(self, taken: &Taken<I>) -> &Header {
        <I as SealedInputs>::Intake::header(taken, self)
    }

    fn of<'a>(self, mut headers: impl Iterator<Item = &'a Header>) -> Option<&'a Header> {
        match self {
            Lead::Oldest => headers.min_by_key(|header| header.origin),
            Lead::Newest => headers.max_by_key(|header| header.origin),
            Lead::Input(at) => headers.nth(at),
        }
    }
}

impl JoinRule {
    /// Whether a message may wait for a partner that never arrives.
    pub(crate) fn waits(&self, merges: bool) -> bool {
        match self.policy {
            JoinPolicy::Zip => !merges,
            JoinPolicy::ByTime | JoinPolicy::InTurn | JoinPolicy::OldestFirst => true,
            JoinPolicy::Sample | JoinPolicy::Priority => false,
        }
    }

    /// Whether another input sets the moment, so that an unmatched message of this one is
    /// discarded, not lost.
    pub(crate) fn discards_unmatched(&self, input: usize) -> bool {
        match self.policy {
            JoinPolicy::Sample => self.trigger.is_some_and(|trigger| trigger != input),
            JoinPolicy::ByTime => self.anchor.is_some_and(|anchor| anchor != input),
            _ => false,
        }
    }

    /// Which header represents a set.
    pub(crate) fn lead(&self) -> Lead {
        if let Some(stream) = self.stream {
            return Lead::Input(stream);
        }
        match (self.policy, self.trigger) {
            (JoinPolicy::Sample, Some(trigger)) => Lead::Input(trigger),
            (JoinPolicy::Sample, None) => Lead::Newest,
            _ => self.anchor.map_or(Lead::Oldest, Lead::Input),
        }
    }

    /// Whether further matches are possible. Normally every input must be open; with `sample`, the
    /// trigger must be, or any input if there is no trigger.
    fn is_open(&self, mut open: impl Iterator<Item = bool>) -> bool {
        match (self.policy, self.trigger) {
            (JoinPolicy::Sample, Some(trigger)) => open.nth(trigger).unwrap_or(false),
            (JoinPolicy::Sample, None) => open.any(|open| open),
            _ => open.all(|open| open),
        }
    }
}

/// For each set assembled and not yet counted: which of its messages are taken for the first time.
/// Kept only if messages can be taken more than once.
struct Fresh(Option<VecDeque<u16>>);

impl Fresh {
    fn new(rule: &JoinRule) -> Self {
        // Sets waiting, and those of the burst being processed.
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

    /// Which messages are new in the set `before` places after the oldest.
    fn at(&self, before: usize) -> u16 {
        self.0.as_ref().and_then(|sets| sets.get(before).copied()).unwrap_or(u16::MAX)
    }

    /// Removes the oldest `n` sets and returns how many of their messages were new on each input.
    fn pop(&mut self, n: u64) -> [u64; MAX_PORTS] {
        match &mut self.0 {
            None => [n; MAX_PORTS],
            Some(sets) => {
                let n = n.min(sets.len() as u64);
                Fresh::count(n, sets.drain(..n as usize))
            }
        }
    }

    /// As [`Fresh::pop`], for the set `before` places after the oldest.
    fn remove(&mut self, before: usize) -> [u64; MAX_PORTS] {
        match &mut self.0 {
            None => [1; MAX_PORTS],
            Some(sets) => Fresh::count(1, sets.remove(before).into_iter()),
        }
    }

    /// As [`Fresh::pop`], for the newest sets.
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

/// Marks an origin as reused if its input's bit in `fresh` is not set.
fn used(origin: Origin, fresh: u16, input: usize) -> Origin {
    Origin { reused: origin.reused || fresh >> input & 1 == 0, ..origin }
}

/// The ledger of a set: that of its oldest message, which waited for the newest one, or until the
/// match was `known`.
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
    Run { wait: complete.saturating_sub(run.sent), n: 1, ..run }
}

fn joined_state(open: bool, states: impl Iterator<Item = EdgeState>) -> EdgeState {
    if open {
        EdgeState::Open
    } else if states.into_iter().any(|s| s == EdgeState::Failed) {
        EdgeState::Failed
    } else {
        EdgeState::Finished
    }
}

macro_rules! tuple_inputs {
    ($name:ident: $($t:ident $s:ident $i:tt),+) => {
        /// Several inputs of different payloads, zipped.
        pub struct $name<$($t: Payload),+> {
            $($s: JoinInput<$t>,)+
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
                    $($s: JoinInput::new(edges.next().expect("an edge for each input"), policy($i), pools.next().flatten()),)+
                    sets: VecDeque::with_capacity(BURST),
                    fresh: Fresh::new(&parts.rule),
                    rule: parts.rule,
                    due: u64::MAX,
                    known: 0,
                }
            }
            fn burst(&self) -> TakenBurst<Self::Taken> {
                TakenBurst::new(Vec::with_capacity(BURST), BURST + 1)
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
            fn fill(&mut self, n: usize, into: &mut TakenBurst<Self::Taken>) {
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
            fn state(&self) -> EdgeState {
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
                // A set has a message of each input, and the plan has checked the lead.
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

        impl<$($t: Payload),+> SealedInputs for ($($t,)+) {
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
