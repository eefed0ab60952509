//! Nodes that end messages. Those that write take any inputs, under the names the graph file gives them.

pub mod console;
pub mod csv;
mod file;
pub mod jsonl;
pub mod null;
pub mod score;
mod text;

pub use file::Exists;
