//! Nodes that run models: their planning, for every backend.
//!
//! Messages of all inputs are joined by sequence number, gathered into a batch, copied into one
//! dense buffer per input, and passed to the backend in one call. Its outputs are rows of one slot
//! per output port. A batch closes when it is full, when its oldest message has waited `within` or
//! must leave to meet its deadline, or when the stream ends: the tail is never lost.
//!
//! With an asynchronous session, several calls may be in flight. They are collected in the order in
//! which they began, so message order is kept. A failed call fails the messages it was made from;
//! later calls fail too only if the node is removed or rebuilt.

mod flight;
mod session;
mod side;
mod stage;
mod streams;

use crate::base::error::PlanErrors;
use crate::base::unit::Span;
use crate::exec::infer::session::AnyPrepared;
use crate::exec::infer::stage::InferStage;
use crate::exec::infer::streams::ResetRules;
use crate::exec::stage::{Common, Stage};
use crate::exec::worker::Cx;
use crate::host::sync::{Arc, DynArc};
use crate::ledger::Term;
use crate::message::device::Device;
use crate::message::port_spec::{Memory, PortSpec};
use crate::message::tensor::Tensor;
use crate::node::Many;
use crate::node::backend::{Backend, Signature};
use crate::node::extensions::Extensions;
use crate::node::planning::{Connected, Planning};
use crate::node::ports::{Cost, InPort, OutPort, Ports};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::intake::ZipMany;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How messages are grouped into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Batch {
    /// Maximum number of messages in one call of the model. Default: 1.
    #[serde(default = "one")]
    pub max: usize,
    /// Maximum time that the oldest message waits for other messages. Without `within`, a batch
    /// contains only messages that have already arrived.
    pub within: Option<Span>,
    /// Number of messages that leave the window after a full batch. The remaining messages are
    /// context for the next batch. By default, all messages leave the window.
    pub stride: Option<usize>,
}

fn one() -> usize {
    1
}

impl Default for Batch {
    fn default() -> Self {
        Batch { max: 1, within: None, stride: None }
    }
}

/// A kind whose nodes run models; it plans which backend runs which model.
pub trait Infer: 'static {
    /// What `config:` holds; as [`Node::Config`](crate::node::Node::Config).
    type Config: DeserializeOwned + JsonSchema;

    /// Loads the model and plans how to run it.
    ///
    /// # Errors
    /// All problems of the config, the model and the connected ports.
    fn plan(config: Self::Config, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors>;

    /// Returns the device on which nodes of a config keep their messages. Asked before the graph is
    /// planned, to insert copies where the ends of a connection differ; [`Connected::is_on_device`]
    /// tells `plan` whether a node that only prefers the device resides there.
    fn device(config: &Self::Config, extensions: &Extensions) -> Option<DeviceUse> {
        let _ = (config, extensions);
        None
    }
}

/// How the nodes of a config use a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its name ([`Device::name`]).
    pub device: String,
    /// The ports whose messages are in its memory.
    pub side: DeviceSide,
    /// Whether they are only if those of a neighbour are; else the node copies within its calls.
    pub is_optional: bool,
}

/// A planned model node, erased over its backend.
pub struct InferPlan {
    pub(crate) ports: Ports,
    make: Make,
    pub(crate) batch: Batch,
}

/// What happens to a stream's state when one of its messages is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnSkip {
    /// limen keeps the state.
    #[default]
    Keep,
    /// limen resets the state.
    Reset,
}

/// What happens to a stream's state when the stream ends and another begins: a file that is read
/// again, a source that was rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnEnd {
    /// limen resets the state.
    #[default]
    Reset,
    /// limen keeps the state.
    Keep,
}

impl InferPlan {
    /// Creates the plan of a loaded model with its batching. The ports are the model's inputs and
    /// outputs.
    pub fn new<B: Backend>(prepared: Arc<B::Prepared>, batch: Batch) -> Self {
        InferPlan::of(B::NAME, Box::new(prepared), batch)
    }

    fn of(backend: &'static str, prepared: Box<dyn AnyPrepared>, batch: Batch) -> Self {
        let signature: &Signature = prepared.signature();
        let mut ports = Ports::new().cost(Cost::Infer);
        for input in &signature.inputs {
            let spec = PortSpec::new(input.dtype, input.shape.iter().cloned());
            ports = ports.in_port(InPort { name: input.name.clone(), spec: Some(spec), holds: batch.max });
        }
        for output in &signature.outputs {
            let spec = PortSpec::new(output.dtype, output.shape.iter().cloned());
            ports = ports.out_port(OutPort {
                name: output.name.clone(),
                spec: Some(spec),
                emits: batch.max,
                rows: batch.max,
                forwards: Vec::new(),
            });
        }
        // The buffers in which a batch is assembled, and those for unconnected outputs.
        let sides = signature.inputs.iter().chain(&signature.outputs);
        let bytes = sides.filter_map(|side| PortSpec::new(side.dtype, side.shape.iter().cloned()).max_bytes());
        let bytes = bytes.fold(0usize, |sum, item| sum.saturating_add(item.saturating_mul(batch.max)));
        let mut ports = ports.note(format!("backend {backend}")).memory(bytes);
        ports.stateful = prepared.is_stateful();
        ports.worker_host = prepared.worker_host();
        if batch.within.is_some() {
            ports = ports.by_clock("batch.within");
        }
        let make = Make { backend, prepared, resets: ResetRules::default(), residence: None, keep_warm: 0 };
        InferPlan { ports, make, batch }
    }

    /// Keeps the messages of its inputs, of its outputs, or of both in the memory of a device;
    /// calls are made by [`Session::enqueue`](crate::node::backend::Session::enqueue), up to
    /// `calls` of them at the same time. The model has no state, and its tensors have fixed shapes
    /// but for their first dim, whose length then lies in the device's memory behind the elements.
    #[must_use]
    pub fn on_device(mut self, device: DynArc<dyn Device>, side: DeviceSide, calls: usize) -> Self {
        let calls = calls.max(1);
        let residence = Residence { inputs: side != DeviceSide::Outputs, outputs: side != DeviceSide::Inputs, calls };
        let memory = Memory::Device(device.number());
        let mut bytes = 0usize;
        let mut reside = |spec: &mut Option<PortSpec>| {
            if let Some(spec) = spec {
                spec.memory = memory;
                bytes = bytes.saturating_add(spec.max_bytes().unwrap_or(0).saturating_mul(self.batch.max));
            }
        };
        for input in self.ports.inputs.iter_mut().filter(|_| residence.inputs) {
            reside(&mut input.spec);
            // Calls hold the tensors that they read until they have finished.
            input.holds = input.holds.saturating_add(calls.saturating_mul(self.batch.max));
        }
        for output in self.ports.outputs.iter_mut().filter(|_| residence.outputs) {
            reside(&mut output.spec);
        }
        // Nothing is assembled in host memory on that side.
        self.ports.memory = self.ports.memory.saturating_sub(bytes);
        self.ports.device = Some(device);
        self.make.residence = Some(residence);
        self
    }

    /// Returns name and spec of each input.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Option<&PortSpec>)> {
        self.ports.inputs.iter().map(|input| (input.name.as_str(), input.spec.as_ref()))
    }

    /// Returns name and spec of each output.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, Option<&PortSpec>)> {
        self.ports.outputs.iter().map(|output| (output.name.as_str(), output.spec.as_ref()))
    }

    /// Lets all ports carry the messages of a spec, with its layout and content.
    #[must_use]
    pub fn carries(mut self, spec: &PortSpec) -> Self {
        let specs = self.ports.inputs.iter_mut().map(|input| &mut input.spec);
        for own in specs.chain(self.ports.outputs.iter_mut().map(|output| &mut output.spec)).flatten() {
            (own.layout, own.content) = (spec.layout, spec.content);
        }
        self
    }

    /// Gives its outputs the layout and the content of others with their names.
    #[must_use]
    pub(crate) fn with_content(mut self, outputs: &[(String, PortSpec)]) -> Self {
        for own in &mut self.ports.outputs {
            let Some((_, of)) = outputs.iter().find(|(name, _)| *name == own.name) else { continue };
            own.spec.iter_mut().for_each(|spec| (spec.layout, spec.content) = (of.layout, of.content));
        }
        self
    }

    /// Has its session make a call of its own after so long without one
    /// ([`Session::keep_warm`](crate::node::backend::Session::keep_warm)).
    #[must_use]
    pub fn keep_warm(mut self, after: Span) -> Self {
        self.make.keep_warm = after.as_nanos();
        self
    }

    /// Sets how long a call takes on the host; by default that of a model.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.ports = self.ports.cost(cost);
        self
    }

    /// Declares memory that its session allocates ([`Ports::memory`]).
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.ports = self.ports.memory(bytes);
        self
    }

    /// Sets what happens to a stream's state when a message is missing: its sequence number does
    /// not follow the last one.
    #[must_use]
    pub fn on_skip(mut self, on_skip: OnSkip) -> Self {
        self.make.resets.on_skip = on_skip;
        self
    }

    /// Sets what happens to a stream's state when another stream begins: its segment differs from
    /// the last message's.
    #[must_use]
    pub fn on_end(mut self, on_end: OnEnd) -> Self {
        self.make.resets.on_end = on_end;
        self
    }

    /// Declares how many threads its session starts
    /// ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)).
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.ports = self.ports.helpers(threads);
        self
    }

    /// Declares the minimum duration of a call ([`Ports::takes`]).
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.ports = self.ports.takes(time);
        self
    }

    /// Sets the measured duration of a call ([`Ports::measured`]).
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.ports = self.ports.measured(time);
        self
    }

    /// Names an output of the model that is no port ([`Ports::left_out`]).
    #[must_use]
    pub fn left_out(mut self, name: impl Into<String>, why: impl Into<String>) -> Self {
        self.ports = self.ports.left_out(name, why);
        self
    }

    /// Adds a line for `--plan`.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.ports = self.ports.note(line);
        self
    }

    /// Adds a remark that every user of the graph must see ([`Ports::notice`]).
    #[must_use]
    pub fn notice(mut self, line: impl Into<String>) -> Self {
        self.ports = self.ports.notice(line);
        self
    }
}

/// Which ports of a node have their messages on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSide {
    /// The inputs: the node copies to host memory.
    Inputs,
    /// The outputs: the node copies from host memory.
    Outputs,
    /// All.
    Both,
}

/// Where the tensors of a node's calls are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residence {
    /// Whether inputs, and whether outputs are on the device.
    pub(crate) inputs: bool,
    pub(crate) outputs: bool,
    /// The most calls at the same time.
    pub(crate) calls: usize,
}

impl Residence {
    /// What calls do on the device.
    pub(crate) fn term(self) -> Term {
        match (self.inputs, self.outputs) {
            (false, _) => Term::Upload,
            (true, false) => Term::Download,
            (true, true) => Term::Kernel,
        }
    }
}

impl std::fmt::Debug for InferPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InferPlan").field("ports", &self.ports).field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// What a planned node's stage is made of.
struct Make {
    /// The backend's name in YAML.
    backend: &'static str,
    prepared: Box<dyn AnyPrepared>,
    resets: ResetRules,
    residence: Option<Residence>,
    /// How long without a call, ns; 0 for never.
    keep_warm: u64,
}

impl InferPlan {
    /// Makes the stage on the thread that will run it.
    pub(crate) fn stage(
        self,
        common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let batch = Batch { max: self.batch.max.max(1), ..self.batch };
        Ok(Box::new(InferStage::new(self.make, batch, common, intake, emit, cx)?))
    }
}
