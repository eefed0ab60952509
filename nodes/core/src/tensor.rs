//! Helpers for tensors: shapes and costs while planning, views and copies of elements, several tensors as one, images and their parts,
//! colours and filters, boxes and quads as rows of a tensor, pairs that cost the least, regions of a map, parts of a message, elements as text and as other numbers,
//! formulas over elements.

pub(crate) mod assignment;
pub(crate) mod boxes;
pub(crate) mod colour;
pub(crate) mod constant;
pub(crate) mod cost;
pub(crate) mod filter;
pub(crate) mod formula;
pub(crate) mod frame;
pub(crate) mod image;
pub(crate) mod joined;
pub(crate) mod number;
pub(crate) mod parts;
pub(crate) mod placement;
pub(crate) mod quads;
pub(crate) mod regions;
pub(crate) mod shape;
pub(crate) mod text;
pub(crate) mod view;
pub(crate) mod yuv;

pub use colour::Colour;
pub use filter::Filter;
pub use parts::Empty;
