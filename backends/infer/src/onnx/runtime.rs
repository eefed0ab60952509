//! The interface of the runtimes that run ONNX models.

use super::artifact::Artifact;
use super::constant::ConstantInput;
use super::contents::Op;
use super::deviation::Deviation;
use super::elem::Elem;
use crate::base::BackendOptions;
use crate::cache::Compiled;
use limen::backend::{
    BackendError, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, SessionMetadata, Ticket, WorkerHost,
};
use limen::message::{Device, Memory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A runtime for ONNX models: the part that differs between rten, tract and ONNX Runtime.
/// [`Onnx`](super::Onnx) makes a backend of it, and
/// [`RegisterRuntime::runtime`](crate::RegisterRuntime::runtime) lets graphs name it.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// The name, in messages and for cached results: that in YAML, unless a backend has a runtime
    /// for each device. Without spaces.
    const NAME: &'static str;
    /// The name in YAML.
    const BACKEND: &'static str = Self::NAME;
    /// Whether calls are compiled for a batch size. Batches are then padded to the compiled sizes.
    const COMPILES: bool;
    /// Whether a cache folder keeps what it compiles.
    const KEEPS_COMPILED: bool = true;
    /// Whether it is a shared library that is loaded on first use. Loading is slow, so it is
    /// skipped unless a node names the runtime.
    const IS_LIBRARY: bool = false;
    /// Whether the first call with a number of items does what later ones do not: it chooses
    /// algorithms, or loads code. Each session then makes such calls on zeros before its first
    /// message, unless the model is loaded lazily or not to be tried. A session is made before the
    /// run, and again after the device was lost.
    const WARMS_UP: bool = false;
    /// Whether a call of another size than the one before is slow: batches are then padded to the
    /// largest, unless there are `buckets`. A message alone costs as much as a batch then, and a
    /// device without memory for the largest makes no smaller one.
    const PREFERS_ONE_SIZE: bool = false;
    /// How to start the worker that calls sessions of one thread
    /// ([`Prepared::worker_host`](limen::backend::Prepared::worker_host)).
    const WORKER_HOST: Option<WorkerHost> = None;
    /// The device of a session that is not prepared yet. If it is not `cpu`, `auto` selects the
    /// runtime only if `calibrate` measured it, and a node may have a `fallback:`.
    const DEVICE: &'static str = "cpu";
    /// The name of the device in whose memory it can keep messages, and what returns it. Calls with
    /// such messages are asynchronous ([`Runner::on_device`]).
    const MEMORY: Option<(&'static str, OpenMemory)> = None;
    /// Whether it records a call once and replays the recording.
    const CAPTURES: bool = false;
    /// The values of `precision:` that it can have.
    const PRECISIONS: &'static [Precision] = &[Precision::F32];
    /// For a driver that reserves more addresses than a machine has memory: opens the device before
    /// a process that tries models limits the memory that it can write.
    const OPENS_FIRST: Option<fn(&BackendOptions)> = None;
    /// Resources that the threads of one node share.
    type Shared: Send + Sync;
    /// The model on one thread.
    type Runner: Runner;

    /// Like [`limen::backend::Backend::probe`]. [`Runtime::MEMORY`] and [`Runtime::CAPTURES`]
    /// decide about `memory`, `streams` and `graph_capture`, whatever this function returns.
    ///
    /// # Errors
    /// What is missing and how to get it.
    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError>;

    /// Like [`Runtime::probe`], for a look at its operators: a runtime on a device does not look
    /// for drivers.
    ///
    /// # Errors
    /// What is missing and how to get it.
    fn listed(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        Self::probe(options)
    }

    /// Returns what distinguishes this build of the runtime from others in the names of cached
    /// results: by default the version that `probe` returns. Empty if it is unavailable.
    fn build(options: &BackendOptions) -> String {
        Self::probe(options).map(|found| found.version).unwrap_or_default()
    }

    /// Whether loading replaces an operator that it has by other operators or a constant, for lack
    /// of a kernel of that name.
    fn rewrites(operator: &str) -> bool {
        operator == "Constant"
    }

    /// Returns what a node needs that it lacks, although it has the operator; `None` if nothing.
    /// Such a model is refused before it is loaded.
    fn refuses(_node: &Op) -> Option<&'static str> {
        None
    }

    /// Whether it has an operator only where loading folds it into a constant. Such an operator
    /// does not meet `require: { ops }`.
    fn only_folds(_operator: &str) -> bool {
        false
    }

    /// Whether it refuses a node whose operator it can read, unless the result is a constant.
    fn lacks(node: &Op) -> bool {
        Self::refuses(node).is_some()
    }

    /// Returns the device that models run on, and its driver; `None` if it is the CPU.
    fn device(_options: &BackendOptions) -> Option<String> {
        None
    }

    /// Whether a model of 8 bits that has this operator is often slower than its f32 form: the
    /// runtime converts to f32 and back around each operator, or its integer kernels are slow.
    fn is_slow_in_8_bits(operator: &str) -> bool {
        operator == "QuantizeLinear"
    }

    /// Operators that it computes otherwise than ONNX defines them.
    fn deviations() -> &'static [Deviation] {
        &[]
    }

    /// Reads a model; shared by all nodes that run it with the same `cache`.
    ///
    /// # Errors
    /// What is wrong with the model, or not supported.
    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError>;

    /// Creates the shared resources of one node while planning, before any thread is pinned:
    /// threads inherit no worker's affinity.
    ///
    /// # Errors
    /// When a resource cannot be created.
    fn share(&self, call: &Call) -> Result<Self::Shared, BackendError>;

    /// Prepares the model for calls of a shape on the calling thread.
    ///
    /// # Errors
    /// When the call is not supported, or a resource cannot be created.
    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<Self::Runner, BackendError>;

    /// Returns the compilation counts of this model so far; `None` if the runtime does not compile.
    fn compiled(&self) -> Option<Compiled> {
        None
    }
}

/// Returns what a runtime can do: what it finds on this machine, and what its constants say of its
/// calls.
///
/// # Errors
/// Those of [`Runtime::probe`].
#[doc(hidden)]
pub fn capabilities<R: Runtime>(options: &BackendOptions) -> Result<Capabilities, BackendError> {
    let mut found = R::probe(options)?;
    let is_on_device = R::MEMORY.is_some();
    found.memory = std::iter::once(Memory::Host).chain(is_on_device.then_some(Memory::Device(0))).collect();
    found.streams = is_on_device;
    found.graph_capture = R::CAPTURES;
    Ok(found)
}

/// Returns the device in whose memory a runtime can keep messages.
pub type OpenMemory = fn(&BackendOptions) -> Arc<dyn Device>;

/// The form of a model's calls.
#[derive(Clone, Debug)]
pub struct Call {
    /// Inputs, in the model's order.
    pub inputs: Vec<CallInput>,
    /// Names of the outputs in the model, in its order.
    pub outputs: Vec<String>,
    /// Threads inside one call, at least 1.
    pub threads: usize,
    /// The batch sizes of calls: exactly these if the runtime compiles, otherwise any.
    pub batches: Vec<usize>,
    /// How many shapes of calls stay compiled.
    pub plans: usize,
    /// How precise the numbers between inputs and outputs are, if the runtime can choose.
    pub precision: Precision,
    /// How an execution provider of ONNX Runtime is used.
    pub provider: Provider,
}

/// How precise the numbers of a model are between its inputs and its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16-bit weights and intermediate results, with 32-bit arithmetic. `f16` halves memory and
    /// keeps 3 decimal digits instead of 7. Supported by `cuda`, and by `wgpu` on an adapter with
    /// `f16`.
    F16,
    /// Like `f16`, but with 2 decimal digits and the range of `f32`. Supported by `cuda`.
    Bf16,
    /// 32 bits. Matrix products and convolutions keep 3 decimal digits of each factor. Supported by
    /// `cuda` with cuBLASLt, on a GPU with compute capability 8.0 or later.
    Tf32,
}

impl Precision {
    /// Returns the name in YAML.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How an execution provider of ONNX Runtime is used. Runtimes without one ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// Whether operators that it does not run may run on the CPU.
    pub cpu_fallback: bool,
    /// Its options, by their names.
    pub options: BTreeMap<String, String>,
}

/// An input of a call.
#[derive(Clone, Debug)]
pub struct CallInput {
    /// Its name in the model.
    pub name: String,
    /// Its element type in the model.
    pub elem: Elem,
    /// Shape of one item, with the greatest length of each dim that varies.
    pub item: Vec<usize>,
    /// Which dims of an item vary from call to call; a call then has one item.
    pub varies: Vec<bool>,
    /// The index of the batch dim in the model's shape; `None` if the model has no batch.
    pub batch_dim: Option<usize>,
    /// Its value, if that is the same for each item of each call.
    pub constant: Option<ConstantInput>,
}

impl CallInput {
    /// Returns the shape of a batch as the model has it.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        batch_shape(&self.item, self.batch_dim, batch)
    }
}

/// Returns the shape of a batch of items.
pub(super) fn batch_shape(item: &[usize], batch_dim: Option<usize>, batch: usize) -> Vec<usize> {
    let mut shape = item.to_vec();
    if let Some(dim) = batch_dim {
        shape.insert(dim, batch);
    }
    shape
}

/// A model on one thread.
pub trait Runner: 'static {
    /// Runs the model on `batch` items; the inputs have the model's shapes, including the batch
    /// dim. Passes each output to `take`.
    ///
    /// # Errors
    /// When the call or `take` fails.
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError>;

    /// Returns what a call copies and where it runs.
    fn metadata(&self) -> SessionMetadata;

    /// Returns what makes calls with tensors on the runtime's device, if it has one.
    fn on_device(&mut self) -> Option<&mut dyn DeviceCalls> {
        None
    }
}

impl Runner for Box<dyn Runner> {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        (**self).run(batch, inputs, take)
    }

    fn metadata(&self) -> SessionMetadata {
        (**self).metadata()
    }

    fn on_device(&mut self) -> Option<&mut dyn DeviceCalls> {
        (**self).on_device()
    }
}

/// Calls with tensors on a device, as those of [`limen::backend::Session`]. A call has one item.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait DeviceCalls {
    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError>;
    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError>;
    fn enqueued(&mut self) -> &mut dyn EnqueuedCalls;
}

/// Takes an output: its index and its batch.
pub type Take<'a> = dyn FnMut(usize, BatchRef<'_>) -> Result<(), BackendError> + 'a;
