//! The kinds that run models, `infer`, `linear` and `mlp`, and those that copy their messages to and from devices.

mod copy;
mod infer;
#[cfg(feature = "wgpu")]
mod kernel;
mod layer;
mod layers;
#[cfg(feature = "wgpu")]
mod stock;

/// The stock kinds that run on a device, in programs with the feature `wgpu`.
#[cfg(any(not(feature = "wgpu"), test))]
pub(crate) const ON_DEVICE: [&str; 8] =
    ["to_tensor", "normalize", "resize", "crop", "letterbox", "threshold", "argmax", "nms"];

pub use copy::{CopyConfig, ToDeviceKind, ToHostKind};
pub use infer::InferKind;
#[cfg(feature = "wgpu")]
pub use kernel::KernelKind;
pub use layer::{Activation, LayerConfig};
pub use layers::{LayersNode, MlpConfig, PlannedLayers};
#[cfg(feature = "wgpu")]
pub(crate) use stock::register as register_on_device;
