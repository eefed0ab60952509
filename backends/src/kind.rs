//! The kinds that run models, `infer`, `linear` and `mlp`, and those that copy their messages to and from devices.

mod copy;
mod infer;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod kernel;
mod layer;
mod layers;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod stock;

/// The stock kinds that run on a device.
pub(crate) const ON_DEVICE: [&str; 8] =
    ["to_tensor", "normalize", "resize", "crop", "letterbox", "threshold", "argmax", "nms"];

/// Adds the devices of this program to the kinds that can run on them, and says of the others how to get them.
pub(crate) fn register_on_devices(registry: limen::Registry) -> limen::Registry {
    #[cfg(feature = "wgpu")]
    let registry = stock::register::<crate::backend::WgpuApi>(registry);
    #[cfg(feature = "cuda")]
    let registry = stock::register::<crate::backend::CudaApi>(registry);
    let missing = [
        (cfg!(feature = "wgpu"), "wgpu", "build it with the cargo feature `wgpu`"),
        (cfg!(feature = "cuda"), "cuda", "build it with the cargo feature `cuda12` or `cuda13`"),
    ];
    let missing = missing.into_iter().filter(|(is_built, ..)| !is_built);
    missing.fold(registry, |registry, (_, device, way)| {
        ON_DEVICE.into_iter().fold(registry, |registry, kind| registry.without_device(kind, device, way))
    })
}

pub use copy::{CopyConfig, ToDeviceKind, ToHostKind};
pub use infer::InferKind;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use kernel::KernelKind;
pub use layer::{Activation, LayerConfig};
pub use layers::{LayersNode, MlpConfig, PlannedLayers};
