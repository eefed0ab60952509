//! Models with other nodes than their files have, for what a runtime refuses or computes otherwise
//! than ONNX.

mod bool_cast;
mod corrected;
mod dropout;
mod edit;
mod external;
mod int_cast;
mod known_dims;
mod lrn;
mod optional;
mod same_lower;
mod separate;
mod window;

pub(crate) use self::bool_cast::{LONGER as BOOL_CAST_LONGER, without_bool_casts};
pub(crate) use self::corrected::{LONGER as CORRECTED_LONGER, with_corrections};
pub(crate) use self::dropout::without_dropout;
pub(crate) use self::external::with_external_places;
pub(crate) use self::int_cast::{LONGER as INT_CAST_LONGER, with_checked_casts};
pub(crate) use self::lrn::{LONGER as LRN_LONGER, without_lrn};
pub(crate) use self::optional::with_left_out;
pub(crate) use self::same_lower::{LONGER as SAME_LOWER_LONGER, without_same_lower};
pub(crate) use self::separate::separate_weights;
pub(crate) use self::window::with_window_attributes;
use super::{contents, elems, node, outline, wire};
