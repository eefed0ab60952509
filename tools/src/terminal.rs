//! The terminal and the process: stdout, stderr, the progress line, signals.

pub(crate) mod events;
pub(crate) mod interrupt;
pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod stdout;
