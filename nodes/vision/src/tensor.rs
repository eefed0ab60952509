//! Images and their parts, colours and filters, quads as rows of a tensor, pairs that cost the
//! least, regions of a map.

pub(crate) mod assignment;
pub(crate) mod colour;
pub(crate) mod filter;
pub(crate) mod frame;
pub(crate) mod image;
pub(crate) mod placement;
pub(crate) mod quads;
pub(crate) mod regions;
pub mod yuv;

pub use colour::Colour;
pub use filter::ResizeFilter;
