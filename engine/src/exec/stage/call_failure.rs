//! Failures of calls into a node's or backend's code.

use crate::base::policy::OnError;
use crate::port::error::NodeError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call's failure. One word wide, so that `Result<(), CallFailure>` is one word too: it is read
/// right after a burst's worth of stores, and a wider one would defeat store-to-load forwarding.
#[derive(Debug)]
pub(crate) struct CallFailure(pub(super) Box<FailureText>);

#[derive(Debug)]
pub(super) struct FailureText {
    pub(super) call: &'static str,
    pub(super) text: String,
    pub(super) panicked: bool,
    /// How many calls of the node had ended before, if the node's counters differ.
    pub(super) number: Option<u64>,
    /// What happens, if the node's policy does not decide.
    pub(super) then: Option<OnError>,
}

impl CallFailure {
    /// Creates the failure of a call that returned an error.
    #[cold]
    pub(crate) fn error(call: &'static str, error: &NodeError) -> CallFailure {
        let (text, then) = (error.to_string(), error.then());
        CallFailure(Box::new(FailureText { call, text, panicked: false, number: None, then }))
    }

    #[cold]
    pub(super) fn panic(call: &'static str, panic: &(dyn Any + Send)) -> CallFailure {
        let text = crate::host::panic::panic_text(panic);
        CallFailure(Box::new(FailureText { call, text, panicked: true, number: None, then: None }))
    }

    /// Notes how many calls of the node had ended before.
    pub(crate) fn set_number(&mut self, number: u64) {
        self.0.number = Some(number);
    }

    /// What happens at a node of a policy.
    pub(super) fn then(&self, on_error: OnError) -> OnError {
        self.0.then.unwrap_or(on_error)
    }

    /// The error text, without the call's name.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// Takes the error text out, without the call's name.
    pub(crate) fn into_text(self) -> String {
        self.0.text
    }
}

/// Runs code of a node or a backend and turns a panic into an error. All of their methods that the
/// engine calls once a graph runs go through here, except single-message calls, for which that
/// would cost too much: they go through
/// [`Scheduler::turn`](crate::exec::scheduler::Scheduler::turn). `Clone` and `Drop` of a payload
/// run wherever messages move and belong to no node: if they panic, the run ends with an engine
/// bug.
#[inline(always)]
pub(crate) fn guarded<R>(name: &'static str, call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, CallFailure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(CallFailure::error(name, &error)),
        Err(panic) => Err(CallFailure::panic(name, &*panic)),
    }
}
