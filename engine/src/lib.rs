//! limen: a streaming dataflow engine for robotics and edge machines.
//!
//! A graph file declares nodes; lock-free rings connect them; each core has one worker that runs its nodes to
//! completion; models run on a backend chosen when the graph is loaded; every message and every microsecond is accounted
//! for. This crate is the engine: it knows no node, backend or file format but YAML.
//!
//! Five nouns, in the order data meets them: [`Spec`] (what the file says) → [`Plan`] (what it means) → [`Wired`] (rings
//! and pools exist) → [`Running`] (threads run) → [`Report`] (what moved, what was lost, where the time went). Each
//! consumes the one before.
//!
//! A program may be one of the graph's sources and sinks, and look at what passes: [`Inlet`], [`Outlet`], [`Tap`]. It may also
//! turn the graph itself, on a thread and by a clock of its own: [`Driven`].
//!
//! ```no_run
//! use limen::{Drain, Plan, Registry, Spec};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new(); // `.with(limen_nodes::register)` for the stock nodes
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
mod message;
mod node;
mod plan;
mod report;
mod run;

pub use base::error::{Escaped, FieldError, Place, PlanErrors, Problem, Problems, is_terminal_control, nearest};
pub use base::policy::{
    JoinPolicy, OnError, OnGap, OnMiss, Pick, Qos, RealTime, RtPolicy, Schedule, Telemetry, Wait, WhenFull,
};
pub use base::unit;
pub use edge::Reason;
pub use exec::endpoint::{HandleReport, Way};
pub use exec::infer;
pub use file::builder::{Connection, GraphBuilder, NodeBuilder};
pub use file::layers::Layers;
pub use file::spec::Spec;
pub use handle::{Inlet, Outlet, RecvError, SendError, Tap};
pub use host::clock::{Clock, SimulatedClock, Time};
pub use host::cpu::Pinned;
pub use host::descriptors::{Descriptors, Interest, Watched};
pub use host::files;
pub use host::folders::Folders;
pub use host::panic::{catch_panic, panic_hook};
pub use ledger::{Recorded, Term};
pub use message::MAX_PORTS;
pub use message::payload::{Header, Message, Payload, Plain};
pub use message::pool::Pool;
pub use message::tensor::{
    Content, DType, Dim, Element, Layout, MAX_RANK, Memory, PortSpec, Shape, Tensor, TensorError, TensorMut,
};
pub use node::backend;
pub use node::emit::Emit;
pub use node::error::{NodeError, NodeErrorKind};
pub use node::intake::{OneOf, Picked};
pub use node::metrics::Metrics;
pub use node::planning::{Building, Given, Planning};
pub use node::port::{Outputs, Port, PortList};
pub use node::ports::{Claim, Cost, InPort, OutPort, Ports, Setting};
pub use node::trial::Trials;
pub use node::{Inputs, Many, Next, Node, PortType, Progress, Reset, Set, Sink, Source, Taken, Transform};
pub use plan::place::{Why, WorkerPlan};
pub use plan::registry::{Kind, Registry, Role};
pub use plan::{EdgePlan, Memory as PlannedMemory, NodePlan, Options, OutputPlan, PathPlan, Plan};
pub use report::{
    DeadlineReport, EdgeReport, FailureReport, HistogramReport, NodeReport, Outcome, Report, WorkerReport,
};
pub use run::driven::{Driven, Turned};
pub use run::error::RunError;
pub use run::event::{Event, EventKind};
pub use run::events::Events;
pub use run::running::{Drain, EdgeStats, IntervalReport, NodeStats, PathStats, Running, Stopper};
pub use run::sim;
pub use run::windows::Window;
pub use run::wire::Wired;
