//! The inference backends of limen, and the kind `infer` that chooses among them.
//!
//! A backend is what `limen::backend` asks for: it loads a model once (`Prepared`), gives each thread a `Session`, and
//! runs whole batches. Which backends exist is decided by cargo features when a program is built; which one a node uses
//! is decided by `backend:` in its graph file when that is planned, and everything behind that choice is monomorphic.
//!
//! | `backend:` | cargo feature | what it is |
//! |---|---|---|
//! | `rten` | `rten` (default) | ONNX models on the CPU, in pure Rust |
//! | `tract` | `tract` | ONNX models on the CPU, in pure Rust, compiled for each number of items |
//! | `ort` | `ort` | ONNX models on the CPU, with ONNX Runtime's library, which is found when it is first needed |
//! | `auto` | | the first of `ort`, `rten` and `tract` that is there and can run the model |
//! | `mock` | always | answers of the right shape after a set time; fails, panics or hangs when told to |
//!
//! Planning loads the model, checks its shapes by a trial run and, with `verify:`, compares its numbers with recorded
//! ones, so that a graph whose model is missing, cut short or wrong never starts. Model files are input: nothing in one
//! makes this crate panic, and what its constants and attributes make larger than fits is refused before any runtime sees
//! it. A model is still a program: it can compute a length that no memory holds, which has the process aborted, or loop for
//! ever. So it is tried first in a process of its own, where the program lets itself be started for that ([`trial`]).
//!
//! ```
//! let registry = limen::Registry::new().with(limen_backends::register);
//! assert_eq!(registry.kinds().next().unwrap().name, "infer");
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]
// Without any runtime what they share is not used: a program that needs `mock`, `linear` and `mlp` only.
#![cfg_attr(not(any(feature = "rten", feature = "tract", feature = "ort")), allow(dead_code, unused_imports))]

mod backend;
mod base;
mod cache;
mod inspect;
mod kind;
pub mod onnx;
mod plan;
mod steps;
pub mod trial;
mod verify;
mod weights;

pub use backend::{Mock, MockConfig, MockPrepared, MockSession};
#[cfg(feature = "ort")]
pub use backend::{Ort, OrtRunner, OrtRuntime, find_onnxruntime};
#[cfg(feature = "rten")]
pub use backend::{Rten, RtenRunner, RtenRuntime, on_rten_thread};
#[cfg(feature = "tract")]
pub use backend::{Tract, TractRunner, TractRuntime};
pub use cache::{Compiled, cache_in, calibrate};
pub use inspect::{Binding, Inspection, Stored, inspect};
pub use kind::{Activation, Infer, LayerConfig, Layers, MlpConfig, Planned};
pub use onnx::OnnxModel;
pub use plan::{
    Choice, Config, Dispatch, Guard, Load, Require, RequireMemory, ShadowConfig, StateConfig, VerifyConfig,
};
pub use verify::{Case, CaseError, Tolerance};
pub use weights::{Quantize, Quantized, Slice, WeightConfig, WeightTransform, Weights};

/// Adds the kinds that run models: `Registry::new().with(limen_backends::register)`.
pub fn register(registry: limen::Registry) -> limen::Registry {
    registry.infer::<Infer>("infer").transform::<Layers<LayerConfig>>("linear").transform::<Layers<MlpConfig>>("mlp")
}
