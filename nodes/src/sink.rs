//! Nodes that end messages. Those that write take any inputs, under the names the graph file gives them.

pub mod console;
pub mod csv;
pub mod file;
pub mod jsonl;
pub mod npy;
pub mod null;
mod output_file;
pub mod score;
pub mod serial;
pub mod stdout;
pub mod tcp;
mod text;
pub mod udp;
pub mod wav;

pub use output_file::Exists;
