//! The messages that a node is given together.

use crate::message::payload::{Message, Payload};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::output::{Outputs, Port, PortSet};
use std::fmt;
use std::vec::Drain;

/// What a node is given for one call or several: messages that were published together, in their
/// order. Each is a call of its own, done or failed, whatever the node does with the burst.
pub struct Burst<'a, T> {
    /// All of it, while nothing was taken.
    whole: Option<&'a mut Vec<T>>,
    /// The rest, after that.
    rest: Drain<'a, T>,
    has_failed: bool,
}

impl<'a, T> Burst<'a, T> {
    /// `empty` is an empty list.
    #[inline]
    pub(crate) fn new(whole: &'a mut Vec<T>, empty: &'a mut Vec<T>) -> Self {
        Burst { whole: Some(whole), rest: empty.drain(..), has_failed: false }
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

    /// Ends the last call.
    ///
    /// # Errors
    /// If a call of [`Burst::each`] has failed, or the last one has sent more than the node
    /// declared.
    #[inline]
    pub(crate) fn finish<O: Outputs>(&self, out: &mut Emit<O>) -> Result<(), NodeError> {
        if self.has_failed { Err(went_on()) } else { out.ports.commit() }
    }

    /// Calls `call` with each input in turn. What it sends is published if it succeeds.
    ///
    /// # Errors
    /// That of the first call that fails, or the engine's if a call sends more than the node
    /// declared: its input counts as failed, those behind it are left, and nothing more can be
    /// taken.
    // Output is committed before the next input is taken: until then, the last call may still fail.
    #[inline(always)]
    pub fn each<O: Outputs>(
        &mut self,
        out: &mut Emit<O>,
        mut call: impl FnMut(T, &mut Emit<O>) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        if self.has_failed {
            return Err(went_on());
        }
        let rest = self.rest();
        while rest.len() > 0 {
            let mut result = out.ports.commit();
            if result.is_ok()
                && let Some(input) = rest.next()
            {
                result = call(input, out);
            }
            if result.is_err() {
                self.has_failed = true;
                return result;
            }
        }
        Ok(())
    }
}

/// The error of a node that takes messages after a call has failed, or returns as if none had.
#[cold]
fn went_on() -> NodeError {
    NodeError::other("`apply_burst` must return the error of `each`, but continued after a failed call")
}

impl<T: Payload> Burst<'_, Message<T>> {
    /// Sends all messages as they are: usually by handing over the list that holds them, however
    /// many they are.
    ///
    /// # Errors
    /// If the node has sent more before than it declared, or a call of [`Burst::each`] has failed.
    #[inline]
    pub fn forward(&mut self, out: &mut Port<T>) -> Result<(), NodeError> {
        if self.has_failed {
            return Err(went_on());
        }
        match self.whole.take() {
            Some(whole) => out.send_all(whole),
            None => {
                while self.rest.len() > 0 {
                    PortSet::commit(out)?;
                    self.rest.next().into_iter().for_each(|message| out.send(message));
                }
                Ok(())
            }
        }
    }
}

impl<T> fmt::Debug for Burst<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("len", &self.len()).finish_non_exhaustive()
    }
}
