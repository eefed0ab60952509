//! Merges: several inputs, one message at a time.

use super::join::{AnyJoinInput, JoinInput, JoinRule, Lead};
use super::{Intake, IntakeParts, Left, SealedInputs, TakenBurst};
use crate::base::policy::JoinPolicy;
use crate::edge::BURST;
use crate::edge::{EdgeState, Reason};
use crate::ledger::{Run, push_run};
use crate::message::MAX_PORTS;
use crate::message::origins::Origin;
use crate::message::payload::{Header, Message, Payload};
use crate::port::PortType;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

/// Any number of inputs of one payload, named by the graph file. A call reads one message of any
/// input.
///
/// ```
/// use limen::node::prelude::*;
/// use limen::node::{OneOf, Picked};
/// # struct Merge;
/// # impl Node for Merge {
/// #     type Config = ();
/// #     fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
/// #         Ok(Ports::new())
/// #     }
/// #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(Merge) }
/// # }
/// impl Transform for Merge {
///     type In = OneOf<Tensor>;
///     type Out = Tensor;
///     fn apply(
///         &mut self,
///         picked: Picked<Tensor>,
///         out: &mut Emit<Tensor>,
///     ) -> Result<(), NodeError> {
///         out.send(picked.message);
///         Ok(())
///     }
/// }
/// ```
#[derive(Debug)]
pub struct OneOf<T>(PhantomData<T>);

/// A message and the input it came from.
#[derive(Debug)]
pub struct Picked<T: Payload> {
    /// The input, in the order of the node's ports.
    pub input: usize,
    /// The message that was picked.
    pub message: Message<T>,
}

/// Merges several inputs.
pub struct Merge<T: Payload> {
    sides: Vec<JoinInput<T>>,
    picked: VecDeque<(Picked<T>, Run)>,
    /// The inputs of the messages picked and not yet counted.
    inputs: VecDeque<u8>,
    rule: JoinRule,
    /// The input whose turn it is.
    next: usize,
}

impl<T: Payload> fmt::Debug for Merge<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Merge")
    }
}

impl<T: Payload> Merge<T> {
    /// The input whose message is next.
    fn choose(&mut self) -> Option<usize> {
        let n = self.sides.len();
        match self.rule.policy {
            JoinPolicy::Priority => (0..n).find(|at| self.sides[*at].head().is_some()),
            JoinPolicy::OldestFirst => self.oldest(),
            JoinPolicy::InTurn => {
                // Inputs that have ended are skipped.
                let at = (0..n).map(|i| (self.next + i) % n).find(|at| self.sides[*at].is_open())?;
                let comes = self.sides[at].head().is_some();
                if comes { Some(at) } else { self.is_impatient().then(|| self.any()).flatten() }
            }
            _ => self.any(),
        }
    }

    /// The next input with a message.
    fn any(&mut self) -> Option<usize> {
        let n = self.sides.len();
        (0..n).map(|i| (self.next + i) % n).find(|at| self.sides[*at].head().is_some())
    }

    /// Whether a silent input has been waited for long enough: more than `patience` messages wait
    /// on another input, or one is full, which may itself be blocking the silent one. Never without
    /// `patience`.
    fn is_impatient(&self) -> bool {
        let longest = self.sides.iter().map(AnyJoinInput::waiting).max().unwrap_or(0);
        self.rule.patience.is_some_and(|p| longest > p || self.sides.iter().any(AnyJoinInput::is_full))
    }

    /// The input with the oldest message, once every input that could still supply an older one has
    /// a message.
    fn oldest(&mut self) -> Option<usize> {
        let (mut oldest, mut waits) = (None, false);
        for (at, side) in self.sides.iter_mut().enumerate() {
            match side.head().and_then(|_| side.front()) {
                Some(begun) if oldest.is_none_or(|(other, _)| begun < other) => oldest = Some((begun, at)),
                Some(_) => {}
                None => waits |= side.is_open(),
            }
        }
        oldest.filter(|_| !waits || self.is_impatient()).map(|(_, at)| at)
    }

    /// Picks messages until `most` are picked or none is left. Returns the number picked.
    fn pick(&mut self, most: usize) -> usize {
        while self.picked.len() < most
            && let Some(at) = self.choose()
        {
            let (message, run, _) = self.sides[at].pop();
            self.picked.push_back((Picked { input: at, message }, run));
            self.inputs.push_back(at as u8);
            self.next = (at + 1) % self.sides.len();
        }
        self.picked.len()
    }

    fn lose_input(&mut self, input: Option<u8>, reason: Reason) {
        if let Some(side) = input.and_then(|at| self.sides.get(usize::from(at))) {
            side.rx.lose(reason, 1);
        }
    }
}

#[allow(private_interfaces)]
impl<T: Payload> Intake for Merge<T> {
    type Taken = Picked<T>;
    fn build(parts: IntakeParts) -> Self {
        Merge {
            sides: parts.edges.into_iter().map(|end| JoinInput::new(end, JoinPolicy::Zip, None)).collect(),
            picked: VecDeque::with_capacity(BURST),
            // Those waiting, and those of the burst being processed.
            inputs: VecDeque::with_capacity(2 * BURST),
            rule: parts.rule,
            next: 0,
        }
    }
    fn burst(&self) -> TakenBurst<Picked<T>> {
        TakenBurst::new(Vec::with_capacity(BURST), BURST + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        match self.rule.policy {
            JoinPolicy::InTurn | JoinPolicy::OldestFirst => self.pick(limit),
            // Nothing has to be waited for, so the choice is made only when there is room: messages
            // arriving meanwhile may go first.
            _ => self.picked.len() + self.sides.iter().map(AnyJoinInput::waiting).sum::<usize>(),
        }
        .min(limit)
    }
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        if let Some((picked, _)) = self.picked.front() {
            see(picked.message.header());
        }
    }
    fn fill(&mut self, n: usize, into: &mut TakenBurst<Picked<T>>) {
        let n = self.pick(n).min(n);
        for (picked, run) in self.picked.drain(..n) {
            into.items.push(picked);
            push_run(&mut into.runs, run);
        }
    }
    fn received(&mut self, calls: u64) {
        for _ in 0..calls {
            if let Some(at) = self.inputs.pop_front() {
                self.sides[usize::from(at)].rx.received(1);
            }
        }
    }
    fn lose(&mut self, reason: Reason, calls: u64) {
        for _ in 0..calls {
            let input = self.inputs.pop_front();
            self.lose_input(input, reason);
        }
    }
    fn lose_at(&mut self, before: usize, reason: Reason) {
        let input = self.inputs.remove(before);
        self.lose_input(input, reason);
    }
    fn state(&self) -> EdgeState {
        if !self.picked.is_empty() || self.sides.iter().any(AnyJoinInput::is_open) {
            EdgeState::Open
        } else if self.sides.iter().any(|side| side.rx.state() == EdgeState::Failed) {
            EdgeState::Failed
        } else {
            EdgeState::Finished
        }
    }
    fn discard(&mut self, reason: Reason) -> bool {
        let picked = self.picked.len() as u64;
        self.lose(reason, picked);
        self.picked.clear();
        self.sides.iter_mut().fold(picked > 0, |found, side| side.discard(reason) | found)
    }
    fn ring(&mut self) -> bool {
        self.sides.iter_mut().fold(false, |freed, side| side.rx.ring() | freed)
    }
    fn has_freed(&self) -> bool {
        self.sides.iter().any(|side| side.rx.has_freed())
    }
    fn is_perishable(&self) -> bool {
        false
    }
    fn header(taken: &Picked<T>, _: Lead) -> &Header {
        taken.message.header()
    }
    fn each_header(taken: &Picked<T>, see: &mut dyn FnMut(usize, &Header)) {
        see(taken.input, taken.message.header());
    }
    fn each_origin(taken: &Picked<T>, _: u16, see: &mut dyn FnMut(Origin)) {
        T::each_origin(&taken.message, see);
    }
    fn left(self) -> Vec<Left> {
        let inputs = self.inputs;
        let add = |(at, side): (usize, JoinInput<T>)| {
            let mut left = side.left();
            left.counted += inputs.iter().filter(|input| usize::from(**input) == at).count() as u64;
            left
        };
        self.sides.into_iter().enumerate().map(add).collect()
    }
}

impl<T: Payload> SealedInputs for OneOf<T> {
    type Taken = Picked<T>;
    type Intake = Merge<T>;
    const COUNT: Option<usize> = None;
    const MERGES: bool = true;
    fn types(ports: usize) -> Vec<PortType> {
        vec![PortType::of::<T>(); ports.min(MAX_PORTS)]
    }
}
