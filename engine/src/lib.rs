//! limen is a streaming dataflow engine for robots and edge machines. A graph file in YAML declares
//! nodes and connections, and limen runs it on pinned worker threads that exchange messages through
//! lock-free rings. The report of a run accounts for every message and breaks down its latency.
//!
//! This crate is the engine. It contains no stock nodes and no model runtimes: other crates add
//! them to a [`Registry`].
//!
//! # Three ways to use limen
//!
//! 1. **Run a graph file.** The program `limen-run` of the package `limen-tools` needs no Rust
//!    code: `limen-run graph.yaml`.
//! 2. **Embed the engine.** [`Spec`] → [`Plan`] → [`Wired::start`] → [`Report`]. The program
//!    exchanges messages with the graph through an [`Inlet`], an [`Outlet`] and a [`Tap`].
//! 3. **Write a node.** Implement [`InPlace`](node::InPlace) or [`OneToOne`](node::OneToOne) for
//!    one input and one output. Implement [`Source`](node::Source), [`Transform`](node::Transform)
//!    or [`Sink`](node::Sink) for everything else.
//!
//! # From a file to a report
//!
//! Each step consumes the value of the previous step:
//!
//! ```text
//!  graph.yaml --> Spec --> Plan --> Wired --> Running --> Report
//!                  |        |        |         |           |
//!               parsed   checked,   rings    threads    counters,
//!                        sized,     and      run        latencies,
//!                        placed     pools               failures
//!
//!  a running graph:
//!
//!    worker 0, CPU 2                     worker 1, CPU 3
//!    +-------------------------+         +-------------------------+
//!    | Source  ->  Transform --|--ring-->|--> Transform  ->  Sink  |
//!    +----^---------------|----+         +---------------------|---+
//!         |               |                                    |
//!       Inlet            Tap        your program            Outlet
//! ```
//!
//! # Example
//!
//! A node of the program's own, in a graph from text, between an inlet and an outlet:
//!
//! ```
//! use limen::node::prelude::*;
//! use limen::{Plan, Registry, Spec};
//!
//! /// Multiplies every number.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Gain {
//!     /// The factor.
//!     factor: f32,
//! }
//!
//! impl InPlace for Gain {
//!     fn apply(&mut self, tensor: &mut TensorMut) -> Result<(), NodeError> {
//!         for number in tensor.as_mut_slice::<f32>()? {
//!             *number *= self.factor;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! const GRAPH: &str = "
//! version: 1
//! nodes:
//!   numbers: { kind: inlet, config: { spec: 'f32[3]' } }
//!   gain: { kind: gain, config: { factor: 2 }, from: numbers }
//!   results: { kind: outlet, from: gain }
//! ";
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new()
//!     .inlet::<Tensor>("inlet")
//!     .in_place::<Gain>("gain")
//!     .outlet::<Tensor>("outlet");
//! let plan = Plan::new(Spec::from_text(GRAPH, "gain.yaml")?, &registry)?;
//! let mut graph = plan.wire()?;
//! let mut numbers = graph.inlet::<Tensor>("numbers")?;
//! let mut results = graph.outlet::<Tensor>("results")?;
//! let running = graph.start()?;
//!
//! let header = numbers.header();
//! let mut tensor = numbers.loan(&header)?;
//! tensor.as_mut_slice::<f32>()?.copy_from_slice(&[1.0, 2.0, 3.0]);
//! numbers.send(tensor)?;
//! assert_eq!(results.recv()?.body.as_slice::<f32>()?, [2.0, 4.0, 6.0]);
//!
//! numbers.close(); // ends the stream, so that the graph ends
//! let report = running.wait();
//! assert_eq!(report.lost_total(), 0);
//! assert_eq!(report.node("gain").map(|node| node.done), Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! `.with(limen_nodes_core::register)` adds the stock nodes of a crate to the registry.
//! `limen_run::registry()` of the package `limen-tools` has all stock nodes.
//!
//! # Where to continue
//!
//! | task | types |
//! |---|---|
//! | read a graph file | [`Spec`], [`Layers`], [`GraphBuilder`] builds one in Rust |
//! | check and plan it | [`Plan`], [`Options`], [`Problems`] |
//! | run it | [`Wired`], [`Running`], [`Stopper`], [`Drain`] |
//! | run it on the caller's thread | [`Driven`], [`Clock`], [`sim`] for deterministic tests |
//! | exchange messages | [`Inlet`], [`Outlet`], [`Tap`], [`Message`], [`Tensor`] |
//! | observe it | [`Events`], [`Event`], [`Running::stats`], [`Running::edge_stats`] |
//! | judge a run | [`Report`], [`report`] |
//! | write a node | [`node`], [`message`], [`Registry`] |
//! | run models | [`infer`], [`backend`] |

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

/// Public because the stock nodes and `limen-run` show text from graphs and files on a terminal.
/// Not part of the stable API.
#[doc(hidden)]
pub mod text {
    pub use crate::base::error::{Escaped, is_terminal_control, nearest};
}
