//! GPUs for limen: backends for models, the kind `kernel`, and stock kinds on a device.
//!
//! | device | cargo feature | what it is |
//! |---|---|---|
//! | `wgpu` | `wgpu` | a GPU, through its Vulkan driver |
//! | `cuda` | `cuda12` or `cuda13` | an NVIDIA GPU, through CUDA |
//!
//! Both are also values of `backend:` for the kind `infer` of `limen-infer`, which this crate adds
//! them to: tract reads and simplifies a model, and its operators are lowered to programs of
//! kernels. Stock kinds with `device:` are lowered to the same programs.
//!
//! Without either feature a program has the kinds of this crate, and says which feature it lacks.
//!
//! ```
//! let registry = limen::Registry::new().with(limen_infer::register).with(limen_gpu::register);
//! assert!(registry.kinds().any(|kind| kind.name == "kernel"));
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod backend;
mod base;
#[cfg(any(feature = "cuda", feature = "mock-device", feature = "wgpu"))]
pub mod device;
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, unused_imports))]
mod kernel;
mod kind;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod lowering;
#[cfg(test)]
#[path = "../../infer/src/onnx/test_models.rs"]
#[allow(dead_code, reason = "those of limen-infer use the rest")]
mod test_models;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use backend::*;
pub use base::{CopyDevice, Devices};
pub use kernel::{ArgumentNumber, Expression, KernelArgument, KernelConfig, KernelNumber, KernelOutput};
pub use kind::{CopyConfig, KernelKind, ToDeviceKind, ToHostKind};

/// Adds the kinds `kernel`, `to_device` and `to_host`, the devices of stock kinds, and the backends
/// `wgpu` and `cuda`, each if this crate was built with it:
/// `Registry::new().with(limen_infer::register).with(limen_gpu::register)`. Stock kinds that are to
/// run on a device have to be in the registry before.
pub fn register(registry: limen::Registry) -> limen::Registry {
    let registry = kind::register_on_devices(registry);
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    let registry = backend::register(registry);
    registry.infer::<KernelKind>("kernel").infer::<ToDeviceKind>("to_device").infer::<ToHostKind>("to_host")
}
