//! Inference backends: `Prepared → Session → Lane`.
//!
//! [`Backend::prepare`] checks a model and loads its weights once; the result is shared by every
//! node that runs the model. [`Prepared::session`] creates the buffers and bound shapes for one
//! thread. A [`Session::Lane`] is the state of one stream. The engine assembles batches and calls
//! [`Session::infer_batch`]; it knows no model format.

pub use crate::port::error::BackendError;

use crate::host::sync::Arc;
use crate::host::wait::Bell;
use crate::message::MAX_PORTS;
use crate::message::device::DeviceTensor;
use crate::message::port_spec::{DType, Dim, MAX_RANK, Memory};
use crate::message::tensor::Tensor;
use crate::node::metrics::Metrics;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// A runtime for models. The available backends are fixed when the program is compiled, the one a
/// node uses when its graph is loaded. A call of the model is one indirect call, for a whole batch.
pub trait Backend: 'static {
    /// The name in YAML.
    const NAME: &'static str;
    /// The source of a model and its options, in this backend's terms.
    type Model: Send + 'static;
    /// A loaded model.
    type Prepared: Prepared;

    /// Returns what the backend can do on this machine. Never panics, never loads a model.
    ///
    /// # Errors
    /// If the backend cannot work: what is missing and how to get it.
    fn probe() -> Result<Capabilities, BackendError>;

    /// Loads and checks a model.
    ///
    /// # Errors
    /// Problems of the model or limits of the backend, naming tensors and operators.
    fn prepare(model: Self::Model) -> Result<Self::Prepared, BackendError>;
}

/// The capabilities of a backend, known before any model is loaded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Where it computes.
    pub devices: Vec<String>,
    /// Supported element types of inputs and outputs.
    pub dtypes: Vec<DType>,
    /// Largest batch; `None` is unbounded.
    pub max_batch: Option<usize>,
    /// Highest rank of a tensor.
    pub max_rank: usize,
    /// Maximum number of threads in one call; `None` is unbounded.
    pub max_threads: Option<usize>,
    /// Supported operators.
    pub ops: Ops,
    /// Memory in which inputs and outputs may reside.
    pub memory: Vec<Memory>,
    /// Whether asynchronous calls are supported.
    pub streams: bool,
    /// Whether a call can be recorded once and replayed.
    pub graph_capture: bool,
    /// Version of the runtime.
    pub version: String,
}

impl Capabilities {
    /// Creates the capabilities of a CPU backend that makes one call at a time, with these element
    /// types.
    pub fn cpu(version: impl Into<String>, dtypes: impl Into<Vec<DType>>, ops: Ops) -> Self {
        Capabilities {
            devices: vec!["cpu".into()],
            dtypes: dtypes.into(),
            max_batch: None,
            max_rank: MAX_RANK,
            max_threads: None,
            ops,
            memory: vec![Memory::Host],
            streams: false,
            graph_capture: false,
            version: version.into(),
        }
    }

    /// Returns every requirement that is not met; every field is compared.
    ///
    /// ```
    /// use limen::message::DType;
    /// use limen::backend::{Capabilities, Ops, Requirements};
    /// let cpu = Capabilities::cpu("1.0", [DType::F32], Ops::Listed(["Conv".to_string()].into()));
    /// let required = Requirements { dtypes: vec![(DType::F16, "input `x`".into())], max_batch: 8, ..Requirements::default() };
    /// let lacks: Vec<_> = cpu.lacks(&required).iter().map(ToString::to_string).collect();
    /// assert_eq!(lacks, ["no elements of type f16 (input `x`)"]);
    /// ```
    pub fn lacks(&self, required: &Requirements) -> Vec<MissingCapability> {
        let mut lacks = Vec::new();
        if let Some(device) = required.device.as_ref().filter(|device| !self.devices.contains(device)) {
            lacks.push(MissingCapability::Device { required: device.clone(), there: self.devices.clone() });
        }
        for (dtype, of) in &required.dtypes {
            if !self.dtypes.contains(dtype) {
                lacks.push(MissingCapability::DType { required: *dtype, of: of.clone() });
            }
        }
        if let Some(most) = self.max_batch.filter(|most| required.max_batch > *most) {
            lacks.push(MissingCapability::Batch { required: required.max_batch, most });
        }
        if required.max_rank > self.max_rank {
            lacks.push(MissingCapability::Rank { required: required.max_rank, most: self.max_rank });
        }
        if let Some(most) = self.max_threads.filter(|most| required.threads > *most) {
            lacks.push(MissingCapability::Threads { required: required.threads, most });
        }
        for memory in required.memory.iter().filter(|memory| !self.memory.contains(memory)) {
            lacks.push(MissingCapability::Memory { required: *memory });
        }
        if let Ops::Listed(ops) = &self.ops {
            for (op, node) in required.ops.iter().filter(|(op, _)| !ops.contains(op)) {
                lacks.push(MissingCapability::Op { op: op.clone(), node: node.clone() });
            }
        }
        if required.streams && !self.streams {
            lacks.push(MissingCapability::Streams);
        }
        if required.graph_capture && !self.graph_capture {
            lacks.push(MissingCapability::GraphCapture);
        }
        lacks
    }
}

/// The operators of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ops {
    /// These, with their domain unless it is ONNX's own: `Conv`, `com.microsoft.Gelu`.
    Listed(BTreeSet<String>),
    /// Unknown until a model is loaded.
    Unlisted,
}

/// The requirements of a model and its node. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The required device.
    pub device: Option<String>,
    /// Element types, and the tensors that have them.
    pub dtypes: Vec<(DType, String)>,
    /// Items in one call.
    pub max_batch: usize,
    /// Highest rank of a tensor.
    pub max_rank: usize,
    /// Threads inside one call.
    pub threads: usize,
    /// Memory in which inputs and outputs reside.
    pub memory: Vec<Memory>,
    /// Operators, and the model's node that uses each.
    pub ops: Vec<(String, String)>,
    /// Asynchronous calls.
    pub streams: bool,
    /// Calls that are recorded and replayed.
    pub graph_capture: bool,
}

/// A requirement that a backend does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum MissingCapability {
    Device { required: String, there: Vec<String> },
    DType { required: DType, of: String },
    Batch { required: usize, most: usize },
    Rank { required: usize, most: usize },
    Threads { required: usize, most: usize },
    Memory { required: Memory },
    Op { op: String, node: String },
    Streams,
    GraphCapture,
}

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingCapability::Device { required, there } => {
                write!(f, "no device `{required}`, only {}", there.join(", "))
            }
            MissingCapability::DType { required, of } => write!(f, "no elements of type {required} ({of})"),
            MissingCapability::Batch { required, most } => write!(f, "no batches of {required}, at most {most}"),
            MissingCapability::Rank { required, most } => write!(f, "no tensors of {required} dims, at most {most}"),
            MissingCapability::Threads { required, most } => {
                write!(f, "no calls with {required} threads, at most {most}")
            }
            MissingCapability::Memory { required } => write!(f, "no inputs or outputs in {required}"),
            MissingCapability::Op { op, node } if node.is_empty() => write!(f, "no operator {op}"),
            MissingCapability::Op { op, node } => write!(f, "no operator {op} (node `{node}` of the model)"),
            MissingCapability::Streams => f.write_str("no asynchronous calls"),
            MissingCapability::GraphCapture => f.write_str("no graph capture"),
        }
    }
}

/// A checked and loaded model; shared by all threads.
pub trait Prepared: Send + Sync + 'static {
    /// A model with buffers, for one thread.
    type Session: Session;

    /// Returns names, types and shapes of inputs and outputs.
    fn signature(&self) -> &Signature;

    /// Returns whether each call of a stream depends on the previous one. Then a call gets at most
    /// one item of each stream, together with that stream's lane.
    fn is_stateful(&self) -> bool {
        false
    }

    /// Creates a session for batches of up to `max_batch`.
    ///
    /// # Errors
    /// If buffers cannot be allocated or shapes cannot be bound.
    fn session(&self, max_batch: usize) -> Result<Self::Session, BackendError>;

    /// Returns how to start the worker that calls the sessions, if the runtime otherwise hands each
    /// call over to a thread of its own: the worker waits for that thread, which costs two
    /// wake-ups, and what the kernel says of the worker does not describe the call.
    fn worker_host(&self) -> Option<WorkerHost> {
        None
    }
}

/// Runs the body of a worker on a thread on which a runtime makes its calls in place, and returns
/// when the body has returned. The body pins and names its thread itself.
pub type WorkerHost = fn(&mut (dyn FnMut() + Send));

/// The inputs and outputs of a model. Shapes are those of one item; the batch dim precedes them. A
/// model with a dim that is [`Dim::AtMost`] takes one item in a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Largest batch the model itself allows; `None` if its batch dim is symbolic.
    pub max_batch: Option<usize>,
}

impl Signature {
    /// Checks that the numbers of inputs and outputs fit the ports of a node.
    ///
    /// # Errors
    /// If there are too many or none.
    pub fn check(&self) -> Result<(), BackendError> {
        for (what, n) in [("inputs", self.inputs.len()), ("outputs", self.outputs.len())] {
            if n == 0 || n > MAX_PORTS {
                return Err(BackendError::Unsupported(format!("a model must have 1 to {MAX_PORTS} {what}, got {n}")));
            }
        }
        Ok(())
    }
}

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape of one item, without the batch dim.
    pub shape: Vec<Dim>,
}

/// A batch of one input: dense, row-major, `batch` contiguous items.
#[derive(Clone, Copy, Debug)]
pub struct BatchRef<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape of one item.
    pub shape: &'a [usize],
    /// The bytes of all items, aligned for the element type.
    pub bytes: &'a [u8],
}

/// A batch of one output, which must be written completely.
#[derive(Debug)]
pub struct BatchMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape of one item. Dims of the signature that are [`Dim::AtMost`] have their greatest length
    /// here; the session writes the item's length instead, and its elements densely at the
    /// beginning of the buffer.
    pub shape: &'a mut [usize],
    /// The buffer for the bytes of all items.
    pub bytes: &'a mut [u8],
}

/// A call with tensors on a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCall<'a> {
    /// How many items it has.
    pub batch: usize,
    /// The inputs, if they are in host memory.
    pub host_inputs: &'a [BatchRef<'a>],
    /// The inputs, if they are on the device ([`Tensor::on_device`]): for each input the tensors of
    /// all items, one input after the other.
    pub inputs: &'a [Tensor],
    /// The outputs, if they are on the device: for each output the first row of the slot whose next
    /// rows are those of the items; `None` for an output that nothing takes.
    pub outputs: &'a [Option<DeviceTensor<'a>>],
}

/// A model as run by one thread.
pub trait Session: 'static {
    /// The state of one stream of a stateful model; `()` for stateless ones.
    type Lane: Default + 'static;

    /// Runs one item.
    ///
    /// # Errors
    /// As [`Session::infer_batch`].
    fn infer_one(
        &mut self,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lane: &mut Self::Lane,
    ) -> Result<(), BackendError> {
        self.infer_batch(1, inputs, outputs, std::slice::from_mut(lane))
    }

    /// Runs `batch` items in one call. `lanes` has one lane per item for a stateful model,
    /// otherwise one. A failed call leaves the lanes unchanged.
    ///
    /// # Errors
    /// If the call failed; the content of `outputs` must not be used.
    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [Self::Lane],
    ) -> Result<(), BackendError>;

    /// Returns how many batches may be in flight. With 1, the default, calls are made by
    /// [`Session::infer_batch`] and end when it returns; with more by [`Session::submit`],
    /// [`Session::poll`] and [`Session::collect`], unless the model is stateful.
    fn in_flight(&self) -> usize {
        1
    }

    /// Called once on the thread that will call the session. `helpers` provides what asynchronous
    /// calls need: threads, and a bell for the worker. Returns whether the session rings the bell
    /// when a batch has finished; otherwise it is polled.
    ///
    /// # Errors
    /// If threads or devices are unavailable.
    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        let _ = helpers;
        Ok(false)
    }

    /// Starts an asynchronous batch; the inputs may be overwritten when this returns. Batches are
    /// collected in the order in which they were submitted, and never more than
    /// [`Session::in_flight`] are in flight.
    ///
    /// # Errors
    /// If the batch cannot be started.
    fn submit(&mut self, batch: usize, inputs: &[BatchRef<'_>]) -> Result<Ticket, BackendError> {
        let _ = (batch, inputs);
        Err(BackendError::Unsupported("asynchronous calls".into()))
    }

    /// Returns whether a submitted batch has finished, successfully or not. Never blocks.
    fn poll(&mut self, ticket: &Ticket) -> bool {
        let _ = ticket;
        true
    }

    /// Writes the outputs of a finished batch.
    ///
    /// # Errors
    /// If this batch failed; the content of `outputs` must not be used. Batches submitted after it
    /// may have succeeded.
    fn collect(&mut self, ticket: Ticket, outputs: &mut [BatchMut<'_>]) -> Result<(), BackendError> {
        let _ = (ticket, outputs);
        Err(BackendError::Unsupported("asynchronous calls".into()))
    }

    /// Starts a call with tensors on a device. Inputs in host memory may be overwritten when this
    /// returns; those on the device are kept until [`EnqueuedCalls::finish`] or
    /// [`Session::collect`], so that no slot is written while a call reads it.
    ///
    /// Outputs on the device are sent on at once: whoever takes them starts calls that follow this
    /// one on the device. Outputs in host memory are written by [`Session::collect`].
    ///
    /// # Errors
    /// If the call cannot be started. [`BackendError::InputLost`] if the call that wrote an input
    /// has failed.
    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let _ = call;
        Err(BackendError::Unsupported("calls with tensors on a device".into()))
    }

    /// Returns the calls that [`Session::enqueue`] has started.
    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        None
    }

    /// Makes a call whose result nobody takes, because none was made for a while and the next one
    /// would be slow: devices save power, and caches fill with other data. States stay as they are.
    ///
    /// # Errors
    /// As [`Session::infer_batch`].
    fn keep_warm(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Resets all state: the input was silent for too long.
    fn reset(&mut self) {}

    /// Adds metrics for the report, when the session ends.
    fn figures(&self, metrics: &mut Metrics) {
        let _ = metrics;
    }

    /// Continues from the metrics of the failed session that this one replaces, so that counts are
    /// kept.
    fn resume(&mut self, figures: &Metrics) {
        let _ = figures;
    }

    /// Returns the session's properties for the plan and the report.
    fn metadata(&self) -> SessionMetadata {
        SessionMetadata::default()
    }
}

/// The calls that a session has enqueued on a device.
pub trait EnqueuedCalls {
    /// Returns whether a call has finished, successfully or not. Never blocks.
    fn poll(&mut self, ticket: &Ticket) -> bool;

    /// Waits until a call has finished, at most so long, and returns whether it has.
    fn wait(&mut self, ticket: &Ticket, at_most: Duration) -> bool;

    /// Has the worker woken ([`Helpers::wake`]) when a call has finished; requested before the
    /// worker sleeps, perhaps more than once. The worker polls sessions whose [`Session::begin`]
    /// returned false.
    fn wake_worker(&mut self, ticket: &Ticket) {
        let _ = ticket;
    }

    /// Returns how long the device worked on a call that has finished, or how long the host took to
    /// pass messages to it. Not every call is timed.
    fn device_time(&mut self, ticket: &Ticket) -> Option<Duration> {
        let _ = ticket;
        None
    }

    /// Ends a call whose outputs are on the device, after [`EnqueuedCalls::poll`] returned true.
    ///
    /// # Errors
    /// If the call failed. [`BackendError::InputLost`] if one did that wrote an input.
    fn finish(&mut self, ticket: Ticket) -> Result<(), BackendError>;
}

/// Identifies a submitted batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// The engine's services for asynchronous calls.
#[derive(Clone)]
pub struct Helpers {
    pub(crate) bell: Arc<Bell>,
    pub(crate) cpus: Vec<usize>,
}

impl Helpers {
    /// Starts a thread that is not bound to the core of the node's worker: it may run on every CPU
    /// of the run. The engine does not wait for it; a session must end its own threads when it is
    /// dropped, except one stuck in a call.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spawn(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<std::thread::JoinHandle<()>, BackendError> {
        crate::host::thread::spawn_helper(name, self.cpus.clone(), run)
            .map_err(|error| BackendError::Unavailable(format!("cannot start a thread for `{name}`: {error}")))
    }

    /// Wakes the node's worker if it sleeps. Call it from any thread, once a result is visible.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl fmt::Debug for Helpers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Helpers").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

/// The status of a node's backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct BackendStatus {
    /// The backend's name in YAML.
    #[serde(rename = "name")]
    pub backend: &'static str,
    /// Where it computes.
    pub device: String,
    /// Threads inside one call.
    pub threads: usize,
    /// Bytes of weights and buffers, as far as the backend knows.
    pub memory: u64,
    /// Whether the model is loaded and can be called.
    pub ready: bool,
    /// Calls made.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The error of the last failed call.
    pub last_error: Option<String>,
}

/// The properties of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionMetadata {
    /// Where it computes.
    pub device: String,
    /// Threads inside one call.
    pub threads: usize,
    /// Bytes of weights and buffers, as far as the backend knows; shared bytes count in full.
    pub memory: u64,
    /// Bytes of `memory` shared by all sessions of the model.
    pub shared: u64,
    /// Bytes copied into the runtime per item.
    pub copied_in: usize,
    /// Bytes copied out of the runtime per item.
    pub copied_out: usize,
}
