//! Calls of a model, from the moment they begin until their messages are done.

use crate::exec::stage::Trouble;
use crate::ledger::Run;
use crate::message::origins::Origins;
use crate::message::payload::Header;
use crate::node::backend::Ticket;

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Flight {
    /// Where it finishes later.
    pub(super) ticket: Ticket,
    /// How many messages it has.
    pub(super) n: usize,
    pub(super) started: u64,
    /// When it was seen to have finished; 0 before.
    pub(super) landed: u64,
    /// Why it could not begin.
    pub(super) trouble: Option<Trouble>,
    /// Whether it was said that it takes too long.
    pub(super) is_said: bool,
    /// Headers of the messages that leave with it.
    pub(super) headers: Vec<Header>,
    /// Their origins, where they are followed.
    pub(super) origins: Vec<Origins>,
    /// Their runs, and since when they were held.
    pub(super) runs: Vec<(Run, u64)>,
}

impl Flight {
    /// An empty one, with room for a batch.
    pub(super) fn new(max: usize, traced: bool) -> Self {
        let (headers, runs) = (Vec::with_capacity(max), Vec::with_capacity(max));
        let origins = Vec::with_capacity(if traced { max } else { 0 });
        Flight { ticket: Ticket(0), n: 0, started: 0, landed: 0, trouble: None, is_said: false, headers, origins, runs }
    }

    /// Messages that leave with it.
    pub(super) fn leaving(&self) -> u64 {
        self.headers.len() as u64
    }
}
