//! Nodes that run models: how they are planned, for every backend.
//!
//! Messages of all inputs are paired by sequence, gathered into a batch, copied into one dense buffer per input, and
//! given to the backend in one call; its outputs are rows of one slot per output port. A batch is closed when it is
//! full, when its oldest message has waited `within` or must go to be in time, or when the stream has ended: the tail is never lost.
//!
//! Where a session's calls finish later, several are on their way. They are collected in the order in which they began, so
//! order is kept, and a call that failed fails the messages it was made of; those that began after it fail too only if the node is
//! taken out or built again.

mod flight;
mod side;
mod stage;
mod streams;

use crate::base::error::PlanErrors;
use crate::base::unit::Span;
use crate::exec::infer::stage::InferStage;
use crate::exec::infer::streams::Anew;
use crate::exec::stage::{Common, Stage};
use crate::exec::worker::Cx;
use crate::host::sync::Arc;
use crate::message::tensor::{PortSpec, Tensor};
use crate::node::Many;
use crate::node::backend::{Backend, Prepared};
use crate::node::emit::Emit;
use crate::node::error::NodeError;
use crate::node::intake::ZipMany;
use crate::node::planning::{Connected, Planning};
use crate::node::ports::{Cost, InPort, OutPort, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How messages are put together into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Batch {
    /// Most messages in one call of the model.
    #[serde(default = "one")]
    pub max: usize,
    /// How long the oldest message may wait for others; without it a batch is whatever is there.
    pub within: Option<Span>,
    /// How many messages leave after a full batch; the others are context for the next. All by default.
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
    /// What `config:` holds.
    type Config: DeserializeOwned + JsonSchema;

    /// Loads the model and says how it is to be run.
    ///
    /// # Errors
    /// Everything that is wrong with the config, the model, or what is connected.
    fn plan(config: Self::Config, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors>;
}

/// A planned model node, erased over its backend.
pub struct InferPlan {
    pub(crate) ports: Ports,
    pub(crate) make: Box<dyn MakeInfer>,
    pub(crate) batch: Batch,
}

/// What becomes of a stream's state when a message of it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSkip {
    /// It stays.
    #[default]
    Keep,
    /// It begins anew.
    Reset,
}

/// What becomes of a stream's state where the stream ends and another begins: a file that is read again, a source that was
/// built again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnEnd {
    /// It begins anew.
    #[default]
    Reset,
    /// It stays.
    Keep,
}

impl InferPlan {
    /// Plans a loaded model with the batching it shall get. Its ports are the model's inputs and outputs.
    pub fn new<B: Backend>(prepared: Arc<B::Prepared>, batch: Batch) -> Self {
        let signature = prepared.signature();
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
        // Where a batch is put together, and where its outputs go that nothing takes.
        let sides = signature.inputs.iter().chain(&signature.outputs);
        let bytes = sides.filter_map(|side| PortSpec::new(side.dtype, side.shape.iter().cloned()).max_bytes());
        let bytes = bytes.fold(0usize, |sum, item| sum.saturating_add(item.saturating_mul(batch.max)));
        let ports = ports.note(format!("backend {}", B::NAME)).memory(bytes);
        InferPlan { ports, make: Box::new(Make::<B> { prepared, anew: Anew::default() }), batch }
    }

    /// What becomes of a stream's state when a message of it is missing: its number is not the one after the last.
    #[must_use]
    pub fn on_skip(mut self, on_skip: OnSkip) -> Self {
        self.make.anew().on_skip = on_skip;
        self
    }

    /// What becomes of a stream's state where another begins: its segment is not that of the last message.
    #[must_use]
    pub fn on_end(mut self, on_end: OnEnd) -> Self {
        self.make.anew().on_end = on_end;
        self
    }

    /// Its session starts so many threads ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)).
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.ports = self.ports.helpers(threads);
        self
    }

    /// No call takes less than this ([`Ports::takes`]).
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.ports = self.ports.takes(time);
        self
    }

    /// What a call took when it was measured ([`Ports::measured`]).
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.ports = self.ports.measured(time);
        self
    }

    /// Adds a line for `--plan`.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.ports = self.ports.note(line);
        self
    }
}

impl std::fmt::Debug for InferPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InferPlan").field("ports", &self.ports).field("batch", &self.batch).finish_non_exhaustive()
    }
}

struct Make<B: Backend> {
    prepared: Arc<B::Prepared>,
    anew: Anew,
}

/// Makes the monomorphic stage of one backend.
pub(crate) trait MakeInfer: Send {
    fn anew(&mut self) -> &mut Anew;
    fn make(
        self: Box<Self>,
        batch: Batch,
        common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError>;
}

impl<B: Backend> MakeInfer for Make<B> {
    fn anew(&mut self) -> &mut Anew {
        &mut self.anew
    }

    fn make(
        self: Box<Self>,
        batch: Batch,
        common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        Ok(Box::new(InferStage::new(*self, batch, common, intake, emit, cx)?))
    }
}
