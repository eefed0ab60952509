//! limen: a streaming dataflow engine for robotics and edge machines.
//!
//! A graph file declares nodes; lock-free rings connect them; each core has one worker that runs its nodes to
//! completion; models run on a backend chosen when the graph is loaded; every message and every microsecond is accounted
//! for. This crate is the engine: it contains no nodes, backends or file formats except YAML.
//!
//! Five types, in the order of data flow: [`Spec`] (what the file says) → [`Plan`] (what it means) → [`Wired`] (rings
//! and pools allocated) → [`Running`] (threads run) → [`Report`] (what moved, what was lost, where the time went). Each
//! consumes the one before.
//!
//! A program can be one of the graph's sources and sinks, and observe ports: [`Inlet`], [`Outlet`], [`Tap`]. It can also
//! turn the graph itself, on its own thread and clock: [`Driven`].
//!
//! ```no_run
//! use limen::{Drain, Plan, Registry, Spec};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new(); // `.with(limen_nodes_core::register)` for the stock nodes
//! let plan = Plan::new(Spec::from_file("graph.yaml")?, &registry)?;
//! let running = plan.wire()?.start()?;
//! let report = running.stop(Drain::within(Duration::from_secs(2)));
//! assert!(report.bugs.is_empty());
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

mod base;
mod edge;
mod exec;
mod file;
mod handle;
mod host;
mod ledger;
pub mod message;
pub mod node;
pub mod plan;
mod port;
pub mod report;
pub mod run;

pub use base::deprecation::Deprecation;
pub use base::error::{Place, Problem, Problems};
pub use base::{expression, policy, unit};
pub use exec::infer;
pub use file::builder::{Connection, GraphBuilder, NodeBuilder};
pub use file::layers::{Layers, SourceFile};
pub use file::schema;
pub use file::spec::Spec;
pub use handle::{Inlet, Outlet, RecvError, SendError, Tap};
pub use host::clock::{Clock, SimulatedClock, Time};
pub use host::cpu::leave_placement;
pub use host::cpu_throttle::CpuThrottle;
pub use host::files;
pub use host::folders::Folders;
pub use host::panic::{catch_panic, panic_hook};
pub use message::payload::Message;
pub use message::tensor::{Tensor, TensorMut};
pub use node::backend;
pub use plan::registry::Registry;
pub use plan::{Options, Plan};
pub use report::Report;
pub use run::driven::{Driven, Turned};
pub use run::error::RunError;
pub use run::event::{Event, EventKind};
pub use run::events::Events;
pub use run::running::{Drain, Running, Stopper};
pub use run::sim;
pub use run::wire::Wired;

/// Public because the stock nodes and `limen-run` show text from graphs and files on a terminal and must treat it alike. Not part of the
/// stable API.
#[doc(hidden)]
pub mod text {
    pub use crate::base::error::{Escaped, is_terminal_control, nearest};
}
