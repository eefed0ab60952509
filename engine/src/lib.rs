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

pub mod backend;
mod builder;
mod clock;
mod cpu;
mod crew;
mod descriptors;
mod document;
mod driven;
mod edge;
mod emit;
mod error;
mod event;
pub mod files;
mod folders;
mod handle;
pub mod infer;
mod intake;
mod layers;
mod meter;
mod node;
mod origins;
mod panic;
mod payload;
mod place;
mod plan;
#[allow(unsafe_code, reason = "slots are handed out under a counting protocol that loom checks")]
mod pool;
mod port;
mod registry;
mod report;
mod running;
pub mod sim;
mod spec;
mod stage;
mod sync;
#[allow(unsafe_code, reason = "handles give access to the pool's slots")]
mod tensor;
mod trial;
pub mod unit;
mod wait;
mod wire;
mod worker;

pub use builder::{Connection, GraphBuilder, NodeBuilder};
pub use clock::{Clock, SimulatedClock, Time};
pub use cpu::{Pinned, RealTime, RtPolicy};
pub use crew::Schedule;
pub use descriptors::{Descriptors, Interest, Watched};
pub use driven::{Driven, Turned};
pub use edge::{Reason, WhenFull};
pub use emit::Emit;
pub use error::{
    Escaped, FieldError, NodeError, NodeErrorKind, Place, PlanErrors, Problem, Problems, RunError, is_terminal_control,
    nearest,
};
pub use event::{Event, EventKind};
pub use folders::Folders;
pub use handle::{HandleReport, Inlet, Outlet, RecvError, SendError, Tap, Way};
pub use intake::{JoinPolicy, OneOf, Pick, Picked};
pub use layers::Layers;
pub use meter::{Recorded, Telemetry, Term};
pub use node::{
    Building, Claim, Cost, Given, InPort, Inputs, MAX_PORTS, Many, Metrics, Next, Node, OutPort, Planning, PortType,
    Ports, Progress, Reset, Set, Setting, Sink, Source, Taken, Transform,
};
pub use panic::{catch_panic, panic_hook};
pub use payload::{Header, Message, Payload, Plain, Qos};
pub use place::{Why, WorkerPlan};
pub use plan::{EdgePlan, Memory as PlannedMemory, NodePlan, Options, OutputPlan, PathPlan, Plan};
pub use pool::Pool;
pub use port::{Outputs, Port, PortList};
pub use registry::{Kind, Registry, Role};
pub use report::{
    DeadlineReport, EdgeReport, FailureReport, HistogramReport, NodeReport, Outcome, Report, WorkerReport,
};
pub use running::{Drain, EdgeStats, Events, IntervalReport, NodeStats, PathStats, Running, Stopper, Window};
pub use spec::Spec;
pub use stage::{OnError, OnGap, OnMiss};
pub use tensor::{
    Content, DType, Dim, Element, Layout, MAX_RANK, Memory, PortSpec, Shape, Tensor, TensorError, TensorMut,
};
pub use trial::Trials;
pub use wait::Wait;
pub use wire::Wired;
