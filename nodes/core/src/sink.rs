//! Sinks: nodes that consume messages. `console`, `csv`, `jsonl` and `null` take any number of inputs, under any names.

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
