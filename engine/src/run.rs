//! A graph at run time, seen from outside: wiring, turning by threads or by the caller, watching
//! and stopping.

pub(crate) mod driven;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod events;
mod inside;
mod longest;
mod loops;
mod misses;
mod named;
mod neighbours;
mod run_results;
pub(crate) mod running;
pub mod sim;
pub(crate) mod spans;
mod starving;
mod tails;
mod throttling;
pub(crate) mod windows;
pub(crate) mod wire;

pub use crate::node::{EdgeStats, NodeStats, PathStats, StatisticsWindow};
pub use running::IntervalReport;
pub use spans::{SpanKind, Spans, TraceSpan};
