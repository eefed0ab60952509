//! What is there without any device: the devices that a program brings along, and the limit on
//! calls.

use limen::infer::InferPlan;
use limen::message::{Device, PortSpec};
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a call may take. If a call takes longer, the call is abandoned and the
/// device is lost.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(120);

/// A device that messages can be copied to and from.
pub trait CopyDevice: Device {
    /// Plans a node that copies messages of a spec to the device.
    fn to_device(self: Arc<Self>, spec: &PortSpec) -> InferPlan;

    /// Plans a node that copies them to host memory.
    fn to_host(self: Arc<Self>, spec: &PortSpec) -> InferPlan;
}

/// The devices of a program, beside those that this crate opens by itself, for the kinds of its
/// registry ([`Registry::with_extension`](limen::Registry::with_extension)).
#[derive(Debug, Default)]
pub struct Devices(pub Vec<Arc<dyn CopyDevice>>);
