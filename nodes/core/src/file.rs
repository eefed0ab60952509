//! Files that a graph reads and writes: input files, output files, image files, sound files.

pub(crate) mod image_file;
pub(crate) mod image_survey;
pub(crate) mod input_file;
mod jpeg_scan;
pub(crate) mod output_file;
pub(crate) mod sound_file;

pub use output_file::{Exists, OnFull};
