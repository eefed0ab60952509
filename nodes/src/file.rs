//! Files that a graph names: where it may read one, how a sink writes one, what an image file holds.

pub(crate) mod image_file;
pub(crate) mod input_file;
pub(crate) mod output_file;

pub use output_file::Exists;
