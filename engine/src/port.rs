//! Ports: how messages get into a node's calls ([`intake`]) and out of them ([`emit`], [`output`]),
//! one by one or in bursts.

pub(crate) mod burst;
pub(crate) mod emit;
pub(crate) mod error;
pub(crate) mod intake;
pub(crate) mod output;
pub(crate) mod room;

use crate::message::MAX_PORTS;
use crate::message::payload::{Message, Payload};
use arrayvec::ArrayVec;
use intake::SealedInputs;
use std::any::TypeId;

/// The input of one call: a message, a tuple of messages, or a [`MessageSet`].
pub type Taken<I> = <I as SealedInputs>::Taken;

/// The inputs of a node: a payload, a tuple of payloads, [`Many`], [`OneOf`](intake::OneOf), or
/// `TensorMut`. Sealed: the engine has an intake for each.
pub trait Inputs: SealedInputs {}

impl<I: SealedInputs> Inputs for I {}

/// Any number of inputs or outputs of one payload, named by the graph file or by the node while
/// planning.
#[derive(Debug)]
pub struct Many<T>(std::marker::PhantomData<T>);

/// The messages of one sequence, one for each input of a [`Many`], in the order of
/// [`Ports`](crate::node::Ports). An `ArrayVec`, stored inline in its queue, so no set is
/// allocated. Use it as a slice, or iterate.
pub type MessageSet<T> = ArrayVec<Message<T>, MAX_PORTS>;

/// A payload's type, compared while planning.
#[derive(Clone, Copy)]
pub struct PortType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
    pub(crate) connect: crate::edge::Connect,
    /// Bytes of a message in a queue.
    pub(crate) message: usize,
}

impl PortType {
    /// Returns the type of a payload.
    pub fn of<T: Payload>() -> Self {
        let (id, name, connect) = (TypeId::of::<T>(), short_name::<T>(), crate::edge::connect::<T>());
        PortType { id, name, connect, message: size_of::<Message<T>>() }
    }
}

impl PartialEq for PortType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl std::fmt::Debug for PortType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A type's name without its path.
pub(crate) fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}
