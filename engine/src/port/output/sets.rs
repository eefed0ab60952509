//! The ports of nodes with several outputs: of different payloads (a tuple), or any number of one
//! payload ([`Many`]).

use super::{AnyPort, Port, PortParts, PortSet, SealedOutputs};
use crate::host::clock::Time;
use crate::message::MAX_PORTS;
use crate::message::payload::Payload;
use crate::port::error::NodeError;
use crate::port::{Many, PortType};
use std::ops::{Deref, DerefMut};

macro_rules! tuple_outputs {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Payload),+> SealedOutputs for ($($t,)+) {
            type Ports = ($(Port<$t>,)+);
            const COUNT: Option<usize> = Some([$($i),+].len());
            fn types(_: usize) -> Vec<PortType> {
                vec![$(PortType::of::<$t>()),+]
            }
        }

        impl<$($t: Payload),+> PortSet for ($(Port<$t>,)+) {
            fn build(parts: Vec<PortParts>) -> Self {
                let mut parts = parts.into_iter();
                // One part for each port: the plan made them from `types`.
                ($(Port::<$t>::new(parts.next().expect("a part for each port")),)+)
            }
            fn each(&mut self, step: &mut dyn FnMut(&mut dyn AnyPort)) {
                $(step(&mut self.$i);)+
            }
            fn room(&mut self, calls: usize, now: &mut impl FnMut() -> u64) -> usize {
                let mut room = calls;
                $(room = self.$i.room(room, now);)+
                room
            }
            #[inline]
            fn is_clear(&mut self) -> bool {
                ($(self.$i.staged.is_local ||)+ false) $(&& self.$i.is_clear_or_unused())+
            }
            fn ring(&mut self) {
                $(self.$i.ring();)+
            }
            fn has_emitted(&self) -> bool {
                $(self.$i.has_emitted() ||)+ false
            }
            #[inline]
            fn single_origin(&self) -> Option<Time> {
                $(if !self.$i.staged.items.is_empty() {
                    return self.$i.single_origin();
                })+
                None
            }
            fn rollback(&mut self) {
                $(self.$i.rollback();)+
            }
            fn commit(&mut self) -> Result<(), NodeError> {
                // One port over its bound discards the call's messages on all ports.
                $(self.$i.check()?;)+
                $(self.$i.settle();)+
                Ok(())
            }
            fn segment(&mut self, accounted: u64, weight: u32) {
                $(self.$i.segment(accounted, weight);)+
            }
            fn double(&mut self) {
                $(self.$i.double();)+
            }
            fn publish(&mut self, sent: u64, emit: u64) -> Result<(), NodeError> {
                let results = [$(self.$i.publish(sent, emit)),+];
                results.into_iter().collect()
            }
            #[inline]
            fn publish_all(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError> {
                let mut result = Ok(());
                $(result = result.and(self.$i.publish_any(accounted, weight, sent, emit));)+
                result
            }
        }
    };
}
tuple_outputs!(A 0, B 1);
tuple_outputs!(A 0, B 1, C 2);
tuple_outputs!(A 0, B 1, C 2, D 3);

impl<T: Payload> SealedOutputs for Many<T> {
    type Ports = PortList<T>;
    const COUNT: Option<usize> = None;
    fn types(ports: usize) -> Vec<PortType> {
        vec![PortType::of::<T>(); ports.min(MAX_PORTS)]
    }
}

/// The output ports of a [`Many`], in the order of the node's ports.
#[derive(Debug)]
pub struct PortList<T: Payload>(Vec<Port<T>>);

impl<T: Payload> Deref for PortList<T> {
    type Target = [Port<T>];
    fn deref(&self) -> &[Port<T>] {
        &self.0
    }
}

impl<T: Payload> DerefMut for PortList<T> {
    fn deref_mut(&mut self) -> &mut [Port<T>] {
        &mut self.0
    }
}

impl<T: Payload> PortList<T> {
    /// Gives the next `n` staged messages of every port this ledger.
    pub(crate) fn segment_of(&mut self, n: usize, accounted: u64, weight: u32) {
        self.0.iter_mut().for_each(|p| p.segment_of(n, accounted, weight));
    }
}

impl<T: Payload> PortSet for PortList<T> {
    fn build(parts: Vec<PortParts>) -> Self {
        PortList(parts.into_iter().map(Port::new).collect())
    }
    fn each(&mut self, step: &mut dyn FnMut(&mut dyn AnyPort)) {
        self.0.iter_mut().for_each(|p| step(p));
    }
    fn room(&mut self, calls: usize, now: &mut impl FnMut() -> u64) -> usize {
        self.0.iter_mut().fold(calls, |room, p| p.room(room, now))
    }
    #[inline]
    fn is_clear(&mut self) -> bool {
        self.0.iter().any(|port| port.staged.is_local) && self.0.iter_mut().all(Port::is_clear_or_unused)
    }
    fn ring(&mut self) {
        self.0.iter_mut().for_each(PortSet::ring);
    }
    fn has_emitted(&self) -> bool {
        self.0.iter().any(PortSet::has_emitted)
    }
    #[inline]
    fn single_origin(&self) -> Option<Time> {
        self.0.iter().find(|port| !port.staged.items.is_empty()).and_then(PortSet::single_origin)
    }
    fn rollback(&mut self) {
        self.0.iter_mut().for_each(PortSet::rollback);
    }
    fn commit(&mut self) -> Result<(), NodeError> {
        self.0.iter_mut().try_for_each(Port::check)?;
        self.0.iter_mut().for_each(Port::settle);
        Ok(())
    }
    fn segment(&mut self, accounted: u64, weight: u32) {
        self.0.iter_mut().for_each(|p| p.segment(accounted, weight));
    }
    fn double(&mut self) {
        self.0.iter_mut().for_each(PortSet::double);
    }
    fn publish(&mut self, sent: u64, emit: u64) -> Result<(), NodeError> {
        self.0.iter_mut().map(|p| p.publish(sent, emit)).fold(Ok(()), Result::and)
    }
    #[inline]
    fn publish_all(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError> {
        let publish = |port: &mut Port<T>| port.publish_any(accounted, weight, sent, emit);
        self.0.iter_mut().map(publish).fold(Ok(()), Result::and)
    }
}
