//! Helpers for tensors: shapes and costs while planning, views and copies of elements, several
//! tensors as one, boxes as rows of a tensor, parts of a message, elements as text and as other
//! numbers, formulas over elements.

pub mod boxes;
pub(crate) mod constant;
pub mod cost;
pub(crate) mod formula;
pub mod joined;
pub(crate) mod number;
pub(crate) mod parts;
pub mod shape;
pub mod text;
pub(crate) mod view;

pub use parts::Empty;
