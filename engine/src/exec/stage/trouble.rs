//! How calls of an author's code fail.

use crate::node::error::NodeError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call failed. One word wide, so that the result of a call that did not fail is one too: it is looked at behind a
/// burst's worth of stores, and a wider one would have to wait until they have all reached the cache.
#[derive(Debug)]
pub(crate) struct Trouble(pub(super) Box<TroubleText>);

#[derive(Debug)]
pub(super) struct TroubleText {
    pub(super) call: &'static str,
    pub(super) text: String,
    pub(super) panicked: bool,
}

impl Trouble {
    /// A call that returned an error.
    #[cold]
    pub(crate) fn error(call: &'static str, error: &NodeError) -> Trouble {
        Trouble(Box::new(TroubleText { call, text: error.to_string(), panicked: false }))
    }

    #[cold]
    pub(super) fn panic(call: &'static str, panic: &(dyn Any + Send)) -> Trouble {
        Trouble(Box::new(TroubleText { call, text: crate::host::panic::panic_text(panic), panicked: true }))
    }

    /// What happened, without the call's name.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// As [`Trouble::text`].
    pub(crate) fn into_text(self) -> String {
        self.0.text
    }
}

/// Runs an author's code, of a node or a backend: a panic becomes an error of that node. Whatever methods of theirs the engine calls
/// once a graph has begun go through here; a call of one message, for which that would cost too much, goes through
/// [`Scheduler::turn`](crate::exec::scheduler::Scheduler::turn). `Clone` and `Drop` of a payload run wherever messages move and belong to no node: a panic of
/// theirs ends the run as a bug.
#[inline(always)]
pub(crate) fn guarded<R>(name: &'static str, call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Trouble::error(name, &error)),
        Err(panic) => Err(Trouble::panic(name, &*panic)),
    }
}
