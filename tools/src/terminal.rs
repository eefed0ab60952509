//! What the process has: stdout and stderr, the line that says how far a run is, signals.

pub(crate) mod events;
pub(crate) mod interrupt;
pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod stdout;
