//! Handles: how a program exchanges messages with the graph it runs.
//!
//! An [`Inlet`] sends messages into the graph, an [`Outlet`] receives them, a [`Tap`] observes
//! them. Each is one end of an edge whose other end belongs to a stage, so the guarantees inside
//! the graph hold here too. Handles are taken from [`Wired`](crate::Wired), before the start; each
//! is used by one thread at a time and may move between threads.
//!
//! The program's end is behind a lock, which no worker ever takes: the report takes it, so that
//! nothing is sent or received while it counts what is left. A handle outlives its graph, and then
//! reports the end of the stream.

mod inlet;
mod outlet;
mod receiver;
mod tap;

pub use inlet::{Inlet, SendError};
pub(crate) use inlet::{InletConfig, InletPlan};
pub use outlet::Outlet;
pub(crate) use outlet::{OutletConfig, OutletPlan};
pub use receiver::RecvError;
pub use tap::Tap;
pub(crate) use tap::{TAP_HOLDS, Tapped};

use crate::exec::shared::RunShared;
use crate::host::clock::{Clock, Time};
use crate::host::wait::Bell;
use crate::message::payload::Payload;
use crate::message::tensor::Tensor;
use std::any::TypeId;

/// Sleeps on a handle's bell unless there is something to do; false if it must not sleep on this
/// thread.
fn sleep_unless(run: &RunShared, bell: &Bell, until: Time, mut is_due: impl FnMut() -> bool) -> bool {
    // A thread that drives the graph itself would wait for itself.
    if run.is_turned_here() {
        return false;
    }
    bell.set_guest();
    bell.arm();
    let left = until.since(Clock::Monotonic.now());
    if is_due() || left == 0 {
        bell.disarm();
        return true;
    }
    bell.sleep(Some(std::time::Duration::from_nanos(left)));
    true
}

/// The end of a duration that begins now, by the monotonic clock.
fn end_of(time: std::time::Duration) -> Time {
    Clock::Monotonic.now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether messages of a payload have buffers, which must be planned.
fn has_buffers<T: Payload>() -> bool {
    TypeId::of::<T>() == TypeId::of::<Tensor>()
}
