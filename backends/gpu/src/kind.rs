//! The kind `kernel`, stock kinds on a device, and the kinds that copy messages to and from
//! devices.

mod copy;
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code))]
mod kernel;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod stock;

/// The stock kinds that run on a device.
pub(crate) const ON_DEVICE: [&str; 10] =
    ["to_tensor", "normalize", "resize", "crop", "letterbox", "threshold", "argmax", "nms", "linear", "mlp"];

/// The devices, whether this program has them, and how to get them.
const DEVICES: [(&str, bool, &str); 2] = [
    (
        "wgpu",
        cfg!(feature = "wgpu"),
        "build limen-run with `--features wgpu`, or your own program with the feature `wgpu` of limen-gpu",
    ),
    (
        "cuda",
        cfg!(feature = "cuda"),
        "build limen-run with `--features cuda12` or `cuda13`, or your own program with this feature of limen-gpu",
    ),
];

/// Adds the devices of this program to the kinds that can run on them, and says of the others how
/// to get them.
pub(crate) fn register_on_devices(registry: limen::Registry) -> limen::Registry {
    #[cfg(feature = "wgpu")]
    let registry = stock::register::<crate::backend::WgpuApi>(registry);
    #[cfg(feature = "cuda")]
    let registry = stock::register::<crate::backend::CudaApi>(registry);
    let missing = DEVICES.into_iter().filter(|(_, is_built, _)| !is_built);
    missing.fold(registry, |registry, (device, _, way)| {
        ON_DEVICE.into_iter().fold(registry, |registry, kind| registry.without_device(kind, device, way))
    })
}

pub use copy::{CopyConfig, ToDeviceKind, ToHostKind};
pub use kernel::KernelKind;
