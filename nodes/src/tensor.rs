//! Helpers for tensors: shapes while planning, boxes as rows of a tensor, elements as text.

pub(crate) mod boxes;
pub(crate) mod shape;
pub(crate) mod text;
