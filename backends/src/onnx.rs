//! ONNX models: reading them, and the code that all runtimes share.
//!
//! A file is read and checked once ([`Artifact`], [`Outline`]), and the bytes that were checked are the bytes that run. A
//! [`Runtime`] prepares the model for the connected shapes; [`Onnx`] makes a backend of any runtime.
//!
//! # Element types
//! Ports carry a model's `i64` and `bool` inputs and outputs as `i32`, and `f64` as `f32`, on every runtime, so that a graph
//! does not change with its backend. If the runtime computes with the wider type, a value that does not fit fails the call.
//!
//! # Shapes
//! The first dim of an input is its batch if it is symbolic, or if it is 1 (then the model takes one item per call). Other
//! symbolic dims get their lengths from the connected inputs. A trial run finds the shapes of the outputs; a second one, on two
//! items, checks that the first dim of every output is the batch. Lengths that vary, with the messages or with their values,
//! have a bound, and such a model takes one item per call. A call whose outputs have other shapes fails.

mod artifact;
#[cfg(feature = "rten")]
mod bool_cast;
mod buffers;
mod compare;
mod constant;
mod contents;
#[cfg(any(feature = "rten", feature = "tract"))]
mod corrected;
mod data_file;
mod deviation;
#[cfg(feature = "rten")]
mod dropout;
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
mod edit;
mod elem;
mod elems;
#[cfg(feature = "rten")]
mod external;
mod fallback;
mod input;
#[cfg(feature = "rten")]
mod int_cast;
mod items;
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
mod known_dims;
mod lane;
mod lengths;
mod loaded;
#[cfg(feature = "rten")]
mod lrn;
mod measure;
mod node;
mod node_shapes;
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
mod optional;
mod outline;
mod outputs;
mod prepared;
mod ranks;
mod reference;
mod runtime;
#[cfg(feature = "rten")]
mod same_lower;
#[cfg(feature = "rten")]
mod separate;
mod session;
mod shadow;
mod shapes;
mod sizes;
#[cfg(test)]
pub(crate) mod test_models;
mod trial_call;
mod warm_up;
mod wide;
#[cfg(feature = "rten")]
mod window;
mod wire;
mod wrong;

pub use artifact::Artifact;
pub(crate) use artifact::UncheckedModel;
#[cfg(feature = "rten")]
pub(crate) use bool_cast::{LONGER as BOOL_CAST_LONGER, without_bool_casts};
pub(crate) use compare::{Compared, Comparison, compare};
pub use constant::Constant;
pub(crate) use constant::Constants;
pub use contents::{External, Op, Weight};
#[cfg(feature = "rten")]
pub(crate) use corrected::LONGER as CORRECTED_LONGER;
#[cfg(any(feature = "rten", feature = "tract"))]
pub(crate) use corrected::with_corrections;
pub use data_file::DataFile;
pub(crate) use data_file::split_advice;
pub use deviation::Deviation;
#[cfg(any(feature = "rten", feature = "wgpu", feature = "cuda"))]
pub(crate) use deviation::NARROWS_CONSTANTS;
pub(crate) use deviation::NARROWS_FLOATS;
#[cfg(any(feature = "ort", feature = "rten"))]
pub(crate) use deviation::aligns_fractional_corners;
pub(crate) use deviation::computes_doubles;
#[cfg(feature = "rten")]
pub(crate) use deviation::computes_halves;
#[cfg(feature = "rten")]
pub(crate) use deviation::covers_several_dims;
#[cfg(any(feature = "ort", feature = "rten", feature = "tract"))]
pub(crate) use deviation::has_same_padding;
#[cfg(feature = "rten")]
pub(crate) use dropout::without_dropout;
pub use elem::Elem;
#[cfg(feature = "rten")]
pub(crate) use external::with_external_places;
pub use input::{Input, LeadingDim, Length};
#[cfg(feature = "rten")]
pub(crate) use int_cast::{LONGER as INT_CAST_LONGER, with_checked_casts};
pub(crate) use items::{ItemComparison, compare_items};
pub use lane::OnnxLane;
pub(crate) use loaded::Loaded;
#[cfg(feature = "rten")]
pub(crate) use lrn::{LONGER as LRN_LONGER, without_lrn};
pub(crate) use measure::measure;
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
pub(crate) use optional::with_left_out;
pub(crate) use outline::BoundShapes;
pub use outline::{Outline, Output};
pub(crate) use outputs::NotPrepared;
pub(crate) use prepared::batch_dims;
pub use prepared::{ModelState, Onnx, OnnxModel, OnnxPrepared};
pub(crate) use reference::{AnySession, Reference};
pub use runtime::{Call, CallInput, DeviceCalls, Precision, Provider, Runner, Runtime, Take};
#[cfg(feature = "rten")]
pub(crate) use same_lower::{LONGER as SAME_LOWER_LONGER, without_same_lower};
#[cfg(feature = "rten")]
pub(crate) use separate::separate_weights;
pub use session::OnnxSession;
pub(crate) use shadow::ShadowPlan;
#[cfg(feature = "rten")]
pub(crate) use window::with_window_attributes;
