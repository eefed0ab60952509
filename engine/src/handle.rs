//! Handles: how a program takes part in the graph it runs.
//!
//! An [`Inlet`] sends messages into the graph, an [`Outlet`] takes them out, a [`Tap`] looks on. Each is one end of an edge
//! whose other end is a stage's, so the laws that hold inside the graph hold here too. They are taken from
//! [`Wired`](crate::Wired), before the start; each belongs to one thread at a time and may travel.
//!
//! The program's end lies behind a lock, which no worker ever touches: the report takes it to count what is left at a
//! moment when nobody is sending or taking. A handle outlives its graph: it then says that no more will come.

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

/// Sleeps on a handle's bell unless there is something to do after all; false where it must not sleep here.
fn sleep_unless(run: &RunShared, bell: &Bell, until: Time, mut is_due: impl FnMut() -> bool) -> bool {
    // Who turns the graph itself would wait for its own turns.
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

/// When a time that begins now is over, by the machine's clock.
fn end_of(time: std::time::Duration) -> Time {
    Clock::Monotonic.now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether messages of a payload have buffers, which have to be planned.
fn has_buffers<T: Payload>() -> bool {
    TypeId::of::<T>() == TypeId::of::<Tensor>()
}
