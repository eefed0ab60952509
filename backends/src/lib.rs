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

mod cache;
mod calibration;
mod candidate;
mod element;
mod in_flight;
mod infer;
mod inspect;
mod linear;
mod mock;
pub mod onnx;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "rten")]
mod rten;
mod shadow;
#[cfg(feature = "tract")]
mod tract;
pub mod trial;
mod verify;
mod weights;

pub use cache::{Compiled, cache_in};
pub use calibration::calibrate;
pub use candidate::Dispatch;
pub use infer::{Choice, Config, Guard, Infer, Load, Require, RequireMemory, ShadowConfig, StateConfig, VerifyConfig};
pub use inspect::{Binding, Inspection, Stored, inspect};
pub use linear::{Activation, LayerConfig, Layers, MlpConfig, Planned};
pub use mock::{Mock, MockConfig, MockPrepared, MockSession};
pub use onnx::OnnxModel;
pub use verify::{Case, CaseError, Tolerance};
pub use weights::{Quantize, Quantized, Slice, WeightConfig, WeightTransform, Weights};

#[cfg(feature = "ort")]
pub use self::ort::{Ort, OrtRunner, OrtRuntime, find_onnxruntime};
#[cfg(feature = "rten")]
pub use self::rten::{Rten, RtenRunner, RtenRuntime, on_rten_thread};
#[cfg(feature = "tract")]
pub use self::tract::{Tract, TractRunner, TractRuntime};

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Adds the kinds that run models: `Registry::new().with(limen_backends::register)`.
pub fn register(registry: limen::Registry) -> limen::Registry {
    registry.infer::<Infer>("infer").transform::<Layers<LayerConfig>>("linear").transform::<Layers<MlpConfig>>("mlp")
}

/// Runs foreign code and turns its panic into a sentence.
///
/// What the code was working on is dropped or never looked at again after a panic, so nothing half-changed is seen.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("it panicked: {}", text.unwrap_or("without a message"))
    })
}

/// A model's tensor name as a graph file can write it: lower case, with `_` for whatever else is not allowed there.
///
/// Exporters write names such as `input.1` and `serving_default_x:0`; the graph file knows them as `input_1` and
/// `serving_default_x_0`.
pub(crate) fn port_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    let mut port: String = name.chars().map(legal).collect();
    if !port.starts_with(|c: char| c.is_ascii_lowercase()) {
        port.insert(0, 't');
    }
    port.truncate(64);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_names_become_port_names() {
        for (name, port) in
            [("logits", "logits"), ("input.1", "input_1"), ("X:0", "x_0"), ("495", "t495"), ("/conv/Ä", "t_conv__")]
        {
            assert_eq!(port_name(name), port);
        }
        assert_eq!(port_name(&"n".repeat(100)).len(), 64);
    }

    #[test]
    fn panics_become_sentences() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| panic!("at {}", 7)), Err::<(), _>("it panicked: at 7".into()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("it panicked: without a message".into()));
    }
}
