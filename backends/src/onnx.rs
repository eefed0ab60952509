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
mod buffers;
mod compare;
mod contents;
mod data_file;
mod elem;
mod input;
mod lane;
mod loaded;
mod measure;
mod node;
mod outline;
mod prepared;
mod reference;
mod runtime;
mod session;
mod shadow;
mod sizes;
#[cfg(test)]
pub(crate) mod test_models;
mod wire;
mod wrong;

pub use artifact::Artifact;
pub(crate) use artifact::ModelFile;
pub(crate) use compare::{Comparison, compare};
pub use contents::{External, Op, Weight};
pub use data_file::DataFile;
pub use elem::Elem;
pub use input::{Input, Lead, Length};
pub use lane::OnnxLane;
pub(crate) use loaded::Loaded;
pub(crate) use measure::measure;
pub use outline::{Outline, Output};
pub(crate) use prepared::batch_dims;
pub use prepared::{Onnx, OnnxModel, OnnxPrepared, State};
pub(crate) use reference::{AnySession, Reference};
pub use runtime::{Call, CallInput, Runner, Runtime, Take};
pub use session::OnnxSession;
pub(crate) use shadow::ShadowPlan;
