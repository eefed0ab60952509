//! Nodes that end messages. Those that write take any inputs, under the names the graph file gives them.

pub mod console;
pub mod csv;
pub mod file;
pub mod jsonl;
pub mod npy;
pub mod null;
pub mod score;
pub mod serial;
pub mod stdout;
pub mod tcp;
pub mod udp;
pub mod wav;
