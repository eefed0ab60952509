//! The inference backends of limen, and the kind `infer` that chooses among them.
//!
//! A backend implements `limen::backend::Backend`: it loads a model once (`Prepared`), gives each
//! thread a `Session`, and runs whole batches. Cargo features decide which backends a program has;
//! `backend:` in the graph file decides, at planning, which one a node uses. A call of the model is
//! one indirect call, for a whole batch.
//!
//! | `backend:` | cargo feature | what it is |
//! |---|---|---|
//! | `rten` | `rten` (default) | ONNX models on the CPU, in pure Rust |
//! | `tract` | `tract` | ONNX models on the CPU, in pure Rust, compiled for each number of items |
//! | `ort` | `ort` | ONNX models on the CPU, with ONNX Runtime's shared library, which is loaded on first use; on a GPU with `provider: webgpu`, `cuda` or `tensorrt` |
//! | `auto` | | the first of `ort`, `rten` and `tract` that is available and can run the model; after `limen-run calibrate` the fastest, also on a GPU |
//! | `mock` | always | outputs of the right shape after a configured latency; fails, panics or hangs on request |
//!
//! Another crate adds a runtime with [`RegisterRuntime::runtime`]: `limen-gpu` adds `wgpu` and
//! `cuda`, and `backends/example-runtime` is the smallest one.
//!
//! Planning loads the model, checks its shapes by a trial run and, with `verify:`, compares its
//! outputs with recorded ones, so a graph whose model is missing, truncated or wrong never starts.
//! Model files are untrusted input: none of them makes this crate panic, and a model whose
//! constants and attributes ask for oversized tensors is refused before any runtime sees it. A
//! model is still a program: it can compute a length that exceeds all memory, which aborts the
//! process, or loop forever. It is therefore tried first in a separate process, if the program
//! supports being started for that ([`trial`]).
//!
//! ```
//! let registry = limen::Registry::new().with(limen_infer::register);
//! assert_eq!(registry.kinds().next().unwrap().name, "infer");
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]
// Without any runtime their shared code is unused, as in a program that needs only `mock`, `linear`
// and `mlp`.
#![cfg_attr(not(any(feature = "rten", feature = "tract", feature = "ort")), allow(dead_code, unused_imports))]

mod array;
mod backend;
mod base;
mod cache;
mod inspect;
mod kind;
pub mod onnx;
mod plan;
mod record;
mod steps;
pub mod trial;
mod verify;
mod weights;

/// What `limen-gpu` shares with this crate. It may change in every release.
#[doc(hidden)]
pub mod internal {
    #[cfg(feature = "tract")]
    pub use crate::backend::tract::{Given, QuantizeOperator, WideSum};
    pub use crate::base::{
        chosen, elements, is_serving, nvidia_gpus, set_nvidia_gpus, sha256, sha256_of, this_program,
    };
    pub use crate::cache::{CacheKey, Kept, read_private, write_private};
    pub use crate::kind::DenseLayer;
    pub use crate::onnx::{NARROWS_CONSTANTS, NARROWS_FLOATS, capabilities, computes_doubles};
}

pub use array::{Quantized, Weights};
pub use backend::*;
pub use base::{BEYOND_TOLERANCE, BackendOptions};
pub use cache::Compiled;
pub use inspect::{Binding, Inspection, Stored, inspect};
pub use kind::{Activation, InferKind, LayerConfig, LayersNode, MlpConfig, PlannedLayers};
pub use onnx::OnnxModel;
pub use plan::{
    BatchDim, ConstantConfig, Dispatch, Guard, InferConfig, Load, MaxConfig, OrtDevice, RegisterRuntime, Require,
    RequireMemory, Runtimes, ShadowConfig, StateConfig, VerifyConfig,
};
pub use record::{RecordRequest, RecordedCase, record_case};
pub use verify::{Case, CaseError, Tolerance};
pub use weights::{Encoding, Quantize, WeightConfig, WeightSlice, WeightTransform};

/// Adds the kinds that run models: `Registry::new().with(limen_infer::register)`.
pub fn register(registry: limen::Registry) -> limen::Registry {
    registry
        .infer::<InferKind>("infer")
        .transform::<LayersNode<LayerConfig>>("linear")
        .transform::<LayersNode<MlpConfig>>("mlp")
        .renamed_key("infer", "device", "provider")
}

/// Like [`register`], with options. To set options on a registry that has the kinds already, use
/// [`Registry::with_extension`](limen::Registry::with_extension).
///
/// ```
/// use limen_infer::{BackendOptions, register_with};
/// let options = BackendOptions { cache: Some("models".into()), ..BackendOptions::default() };
/// let registry = limen::Registry::new().with(register_with(options.clone()));
/// assert_eq!(registry.extensions().get(), Some(&options));
/// ```
pub fn register_with(options: BackendOptions) -> impl FnOnce(limen::Registry) -> limen::Registry {
    move |registry| register(registry).with_extension(options)
}
