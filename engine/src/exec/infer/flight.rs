//! Calls of a model, from their start until their messages are done.

use crate::exec::stage::CallFailure;
use crate::ledger::Run;
use crate::message::origins::Origins;
use crate::message::payload::Header;
use crate::message::tensor::Tensor;
use crate::node::backend::Ticket;

/// A call in flight.
#[derive(Debug)]
pub(super) struct Flight {
    /// Identifies an asynchronous call.
    pub(super) ticket: Ticket,
    /// Number of messages in the call.
    pub(super) n: usize,
    pub(super) started: u64,
    /// When it was found to have finished; 0 before.
    pub(super) finished_at: u64,
    /// Why it could not start.
    pub(super) failure: Option<CallFailure>,
    /// Whether it has no result because the call that wrote an input on a device has failed.
    pub(super) is_input_lost: bool,
    /// Its inputs on a device, input by input: no slot is written while the call reads it.
    pub(super) kept: Vec<Tensor>,
    /// Whether it has been reported as overdue.
    pub(super) is_reported: bool,
    /// Headers of the messages that leave with this call.
    pub(super) headers: Vec<Header>,
    /// Their origins, if tracked.
    pub(super) origins: Vec<Origins>,
    /// Their runs, and when they were taken into the batch.
    pub(super) runs: Vec<(Run, u64)>,
}

impl Flight {
    /// Creates an empty call with room for a batch, and for the inputs that it keeps.
    pub(super) fn new(max: usize, traced: bool, kept: usize) -> Self {
        let (headers, runs) = (Vec::with_capacity(max), Vec::with_capacity(max));
        let origins = Vec::with_capacity(if traced { max } else { 0 });
        Flight {
            ticket: Ticket(0),
            n: 0,
            started: 0,
            finished_at: 0,
            failure: None,
            is_input_lost: false,
            kept: Vec::with_capacity(kept),
            is_reported: false,
            headers,
            origins,
            runs,
        }
    }

    /// Number of messages that leave with this call.
    pub(super) fn leaving(&self) -> u64 {
        self.headers.len() as u64
    }
}
