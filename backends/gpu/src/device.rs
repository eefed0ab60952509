//! Devices with memory of their own, for every API: their memory, the order of their calls, their
//! loss and their rebuilding, and the copies to and from host memory.
//!
//! A session enqueues its calls on a stream of its own. A call follows the calls that wrote its
//! inputs, on the device, so nothing waits for it on the host. Calls keep their inputs until the
//! host has seen that they ended (`Session::finish`), so a slot is never written while something
//! reads it, and slots need no event of their last use.
//!
//! A device has a generation, which changes when it is lost and rebuilt. What an earlier generation
//! wrote is lost with it. A call whose inputs are lost has no result, and is not what failed: only
//! the call that wrote them is.

// The mock calls only a part of what is here for all devices.
#![cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, unused_imports))]

mod api;
mod call;
mod choice;
mod copy;
mod memory;
#[cfg(feature = "mock-device")]
mod mock;
mod shared;
mod waiter;

pub(crate) use api::{Api, DeviceFault, EventState};
pub(crate) use call::{Enqueue, SessionCalls};
pub(crate) use choice::SharedDevices;
pub(crate) use memory::buffer_of;
#[cfg(feature = "mock-device")]
pub use mock::{MockDevice, MockFaults, MockStepConfig, MockStepKind};
pub(crate) use shared::SharedDevice;
pub(crate) use waiter::Waiter;
