//! Files that a graph reads and writes.

pub mod input_file;
pub mod output_file;

pub use output_file::{Exists, OnFull};
