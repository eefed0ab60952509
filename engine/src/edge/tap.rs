//! The producing end of a tap: copies of what a port sends, for a program that looks on.
//!
//! It takes its place beside the edges of its port, so that a port without taps asks nothing. A copy is made only while the
//! tap has room and its own pool a slot: whoever looks slowly, or not at all, costs the graph nothing but the counting.

use super::{CrossTx, CrossTxKind, OuterTx, Params, Reason};
use crate::message::payload::{Message, Payload};
use crate::message::pool::Pool;

/// Where a tap's copies are made.
pub(crate) struct TapTx<T: Payload> {
    tx: OuterTx<T>,
    /// Its own buffers; none where messages are plain values.
    pool: Option<Pool>,
}

impl<T: Payload> TapTx<T> {
    pub(crate) fn new(tx: OuterTx<T>, pool: Option<Pool>) -> Self {
        TapTx { tx, pool }
    }

    /// The end as a port takes it.
    pub(crate) fn into_cross(self, params: &Params) -> CrossTx<T> {
        CrossTx { params: params.clone(), kind: CrossTxKind::Tap(Box::new(self)) }
    }

    /// Copies what there is room for; the rest is counted lost.
    #[inline(never)]
    pub(super) fn look(&mut self, messages: &[Message<T>]) {
        if self.tx.is_gone() {
            return self.tx.lose(Reason::ConsumerGone, messages.len() as u64);
        }
        for message in messages {
            // Asked first, because a copy may be large.
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
