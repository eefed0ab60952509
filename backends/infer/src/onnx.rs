//! ONNX models: reading them, and the code that all runtimes share.
//!
//! A file is read and checked once ([`Artifact`], [`Outline`]), and the bytes that were checked are
//! the bytes that run. A [`Runtime`] prepares the model for the connected shapes; [`Onnx`] makes a
//! backend of any runtime.
//!
//! # Element types
//! Ports carry a model's `i64` and `bool` inputs and outputs as `i32`, and `f64` as `f32`, on every
//! runtime, so that a graph does not change with its backend. If the runtime computes with the
//! wider type, a value that does not fit fails the call.
//!
//! # Shapes
//! The first dim of an input is its batch if it is symbolic, or if it is 1 (then the model takes
//! one item per call). Other symbolic dims get their lengths from the connected inputs. A trial run
//! finds the shapes of the outputs; a second one, on two items, checks that the first dim of every
//! output is the batch. Lengths that vary, with the messages or with their values, have a bound,
//! and such a model takes one item per call. A call whose outputs have other shapes fails.

mod artifact;
mod buffers;
mod compare;
mod constant;
mod contents;
mod data_file;
#[cfg_attr(not(all(feature = "rten", feature = "ort")), allow(dead_code))]
mod deviation;
mod elem;
mod elems;
mod fallback;
mod initializers;
mod input;
mod items;
mod lane;
mod lengths;
mod loaded;
mod measure;
mod node;
mod node_shapes;
mod outline;
mod outputs;
mod prepared;
mod ranks;
mod reference;
#[cfg_attr(not(all(feature = "rten", feature = "tract", feature = "ort")), allow(dead_code, unused_imports))]
mod rewrite;
mod runtime;
mod session;
mod shadow;
mod shapes;
mod sizes;
#[cfg(test)]
pub(crate) mod test_models;
#[cfg(test)]
pub(crate) mod test_subgraphs;
mod trial_call;
mod warm_up;
mod wide;
mod wire;
mod wrong;

pub use artifact::Artifact;
pub(crate) use artifact::{UncheckedModel, data_files_of};
pub(crate) use compare::{Compared, Comparison, compare};
pub use constant::ConstantInput;
pub(crate) use constant::Constants;
pub use contents::{External, Op, Weight};
pub use data_file::DataFile;
pub(crate) use data_file::split_advice;
pub use deviation::Deviation;
#[doc(hidden)]
pub use deviation::{NARROWS_CONSTANTS, NARROWS_FLOATS, computes_doubles};
#[allow(unused_imports, reason = "each runtime uses some")]
pub(crate) use deviation::{aligns_fractional_corners, computes_halves, covers_several_dims, has_same_padding};
pub use elem::Elem;
pub(crate) use initializers::{Initializer, Initializers};
pub use input::{Input, LeadingDim, Length};
pub(crate) use items::{ItemComparison, compare_items};
pub use lane::OnnxLane;
pub(crate) use loaded::Loaded;
pub(crate) use measure::measure;
pub(crate) use node::brief;
pub(crate) use outline::BoundShapes;
pub use outline::{Outline, Output};
pub(crate) use outputs::NotPrepared;
pub(crate) use prepared::batch_dims;
pub use prepared::{ModelState, Onnx, OnnxModel, OnnxPrepared};
pub(crate) use reference::{AnySession, Reference};
#[allow(unused_imports, reason = "each runtime uses some")]
pub(crate) use rewrite::*;
#[doc(hidden)]
pub use runtime::capabilities;
pub use runtime::{Call, CallInput, DeviceCalls, OpenMemory, Precision, Provider, Runner, Runtime, Take};
pub use session::OnnxSession;
pub(crate) use shadow::ShadowPlan;
