//! The producer's end of a tap: copies of a port's messages, for a program that observes them.
//!
//! It sits beside the edges of its port, so that a port without taps checks nothing. A copy is made
//! only while the tap has room and its own pool a free slot: a slow or absent reader costs the
//! graph only the counting.

use super::{CrossTx, CrossTxKind, OuterTx, Params, Reason};
use crate::message::payload::{Message, Payload};
use crate::message::pool::Pool;

/// The producer's end of a tap.
pub(crate) struct TapTx<T: Payload> {
    tx: OuterTx<T>,
    /// Its own buffers; none if messages are plain values.
    pool: Option<Pool>,
}

impl<T: Payload> TapTx<T> {
    pub(crate) fn new(tx: OuterTx<T>, pool: Option<Pool>) -> Self {
        TapTx { tx, pool }
    }

    /// Converts it to the end a port takes.
    pub(crate) fn into_cross(self, params: &Params) -> CrossTx<T> {
        CrossTx { params: params.clone(), kind: CrossTxKind::Tap(Box::new(self)) }
    }

    /// Copies as many messages as there is room for; the rest counts as lost.
    #[inline(never)]
    pub(super) fn look(&mut self, messages: &[Message<T>]) {
        if self.tx.is_gone() {
            return self.tx.lose(Reason::ConsumerGone, messages.len() as u64);
        }
        for message in messages {
            // Checked first, because a copy may be large.
            let copy = if self.tx.room() > 0 { T::copy(message, self.pool.as_mut()) } else { None };
            if copy.is_none_or(|copy| self.tx.push(copy).is_err()) {
                self.tx.lose(Reason::FullNewest, 1);
            }
        }
    }

    pub(super) fn close(&self, failed: bool) {
        self.tx.close(failed);
    }
}
