//! ONNX models: reading them, and what every runtime that runs them shares.
//!
//! A file is read and checked once ([`Artifact`], [`Outline`]), and what was read is what runs; a [`Runtime`] makes it ready for the shapes that are
//! connected; [`Onnx`] makes a backend of any runtime.
//!
//! # Element types
//! A model's `i64` and `bool` inputs and outputs travel as `i32`, and `f64` as `f32`, whatever runs it: those are the types
//! of the node's ports, so that a graph does not change with its backend. A value that does not fit fails its call, where
//! the runtime itself computes with more.
//!
//! # Shapes
//! The first dim of an input is its batch when it is symbolic, or when it is 1 (then one item a call is all the model
//! takes). Other symbolic dims get their lengths from what is connected. The shapes of the outputs are found by a trial
//! run on zeros; a second one, on two items, proves that the first dim of every output is the batch. A call whose
//! outputs come out in another shape fails: outputs whose shape depends on values are not supported.

mod artifact;
mod loaded;
mod outline;
mod prepared;
mod runtime;
mod session;
mod sizes;
#[cfg(all(test, any(feature = "rten", feature = "tract", feature = "ort")))]
pub(crate) mod tests;
mod wire;

pub(crate) use artifact::ModelFile;
pub use artifact::{Artifact, DataFile};
pub(crate) use loaded::Loaded;
pub use outline::{Elem, External, Input, Lead, Length, Op, Outline, Output, Weight};
pub(crate) use prepared::batch_dims;
pub use prepared::{Onnx, OnnxModel, OnnxPrepared, State};
pub use runtime::{Call, CallInput, Runner, Runtime, Take};
pub use session::{OnnxLane, OnnxSession};
