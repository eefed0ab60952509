//! A graph at work, seen from outside: rings and pools are made, threads or the caller turn it, it is watched and stopped.

pub(crate) mod driven;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod events;
mod gathered;
pub(crate) mod running;
pub mod sim;
pub(crate) mod windows;
pub(crate) mod wire;

pub use running::{EdgeStats, IntervalReport, NodeStats, PathStats};
pub use windows::Window;
