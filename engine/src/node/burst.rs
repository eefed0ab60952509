//! The messages that a node is given together.

use crate::message::payload::{Message, Payload};
use crate::node::emit::Emit;
use crate::node::error::NodeError;
use crate::node::port::{Outputs, Port, PortSet};
use std::fmt;
use std::vec::Drain;

/// What a node is given for several calls: messages that were published together, in their order. Each counts as a call of its own,
/// done or failed, whatever the node does with the burst.
pub struct Burst<'a, T> {
    /// All of it, while nothing was taken.
    whole: Option<&'a mut Vec<T>>,
    /// The rest, after that.
    rest: Drain<'a, T>,
}

impl<'a, T> Burst<'a, T> {
    /// `empty` is an empty list.
    #[inline]
    pub(crate) fn new(whole: &'a mut Vec<T>, empty: &'a mut Vec<T>) -> Self {
        Burst { whole: Some(whole), rest: empty.drain(..) }
    }

    /// Returns for how many calls inputs are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.whole.as_ref().map_or_else(|| self.rest.len(), |whole| whole.len())
    }

    /// Returns whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rest, to be taken one by one.
    #[inline]
    pub(crate) fn rest(&mut self) -> &mut Drain<'a, T> {
        if let Some(whole) = self.whole.take() {
            self.rest = whole.drain(..);
        }
        &mut self.rest
    }

    /// Calls `call` with each input in turn. What it sends is published if it succeeds.
    ///
    /// # Errors
    /// That of the first call that fails, or the engine's if a call sends more than the node declared: its input counts as failed, and
    /// those behind it are left.
    #[inline(always)]
    pub fn each<O: Outputs>(
        &mut self,
        out: &mut Emit<O>,
        mut call: impl FnMut(T, &mut Emit<O>) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        for input in self.rest() {
            call(input, out)?;
            out.ports.commit()?;
        }
        Ok(())
    }
}

impl<T: Payload> Burst<'_, Message<T>> {
    /// Sends all messages as they are: usually by handing over the list that holds them, however many they are.
    #[inline]
    pub fn forward(&mut self, out: &mut Port<T>) {
        match self.whole.take() {
            Some(whole) => out.send_all(whole),
            None => self.rest.by_ref().for_each(|message| out.send_one_of(message)),
        }
    }
}

impl<T> fmt::Debug for Burst<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("len", &self.len()).finish_non_exhaustive()
    }
}
