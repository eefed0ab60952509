//! Devices with memory of their own, for every API: their memory, the order of their calls, their loss and their rebuilding, and the
//! copies to and from host memory.
//!
//! A session enqueues its calls on a stream of its own. A call follows the calls that wrote its inputs, on the device, so nothing waits
//! for it on the host. Calls keep their inputs until the host has seen that they ended (`Session::finish`), so a slot is never written
//! while something reads it, and slots need no event of their last use.
//!
//! A device has a generation, which changes when it is lost and rebuilt. What an earlier generation wrote is lost with it. A call whose
//! inputs are lost has no result, and is not what failed: only the call that wrote them is.

// Without any device nothing calls what is here for all of them.
#![cfg_attr(not(any(feature = "cuda", feature = "wgpu", feature = "mock-device")), allow(dead_code))]

mod api;
mod call;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod choice;
mod copy;
mod memory;
#[cfg(feature = "mock-device")]
mod mock;
mod shared;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod waiter;

pub(crate) use api::LONGEST_CALL;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use api::{Api, EventState, Fault};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use call::{Calls, Enqueue};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use choice::{SharedDevices, chosen};
pub use copy::{CopyDevice, Devices};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use memory::buffer_of;
#[cfg(feature = "mock-device")]
pub use mock::{MockDevice, MockFaults, MockStepConfig, MockStepKind};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use shared::SharedDevice;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use waiter::Waiter;
