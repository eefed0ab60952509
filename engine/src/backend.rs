//! What an inference backend is: `Prepared → Session → Lane`.
//!
//! [`Backend::prepare`] checks a model and loads its weights once; the result is shared by every node that runs the
//! model. [`Prepared::session`] gives the buffers and bound shapes of one thread. A [`Session::Lane`] is the state of
//! one stream. The engine assembles batches and calls [`Session::infer_batch`]; it knows no model format.

use crate::node::MAX_PORTS;
use crate::tensor::{DType, Dim, Memory};
use std::fmt;

/// A way to run models. Which ones exist is decided when the program is built, which one a node uses when its graph is
/// loaded; inside a node everything is monomorphic.
pub trait Backend: 'static {
    /// The name in YAML.
    const NAME: &'static str;
    /// Where a model comes from and how it shall be run, as this backend needs it.
    type Model: Send + 'static;
    /// A loaded model.
    type Prepared: Prepared;

    /// Whether the backend can work on this machine, and what it can do. Never panics, never loads a model.
    ///
    /// # Errors
    /// What is missing and how to get it.
    fn probe() -> Result<Capabilities, BackendError>;

    /// Loads and checks a model.
    ///
    /// # Errors
    /// What is wrong with the model or what the backend cannot do, naming tensors and operators.
    fn prepare(model: Self::Model) -> Result<Self::Prepared, BackendError>;
}

/// What a backend can do. Published before any model is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Element types of inputs and outputs.
    pub dtypes: Vec<DType>,
    /// Largest batch; `None` is unbounded.
    pub max_batch: Option<usize>,
    /// Highest rank of a tensor.
    pub max_rank: usize,
    /// Where inputs and outputs may lie.
    pub memory: Vec<Memory>,
    /// Version of the runtime.
    pub version: String,
}

/// A model that is checked and loaded; shared by all threads.
pub trait Prepared: Send + Sync + 'static {
    /// A model with buffers, for one thread.
    type Session: Session;

    /// Names, types and shapes of inputs and outputs.
    fn signature(&self) -> &Signature;

    /// A session for batches of up to `max_batch`.
    ///
    /// # Errors
    /// When buffers cannot be had or the shapes cannot be bound.
    fn session(&self, max_batch: usize) -> Result<Self::Session, BackendError>;
}

/// What a model takes and gives. Shapes are those of one item; the batch dim comes before them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Largest batch the model itself allows; `None` where its batch dim is symbolic.
    pub max_batch: Option<usize>,
}

impl Signature {
    /// Whether the numbers of inputs and outputs can be ports of a node.
    ///
    /// # Errors
    /// A sentence, when there are too many or none.
    pub fn check(&self) -> Result<(), BackendError> {
        for (what, n) in [("inputs", self.inputs.len()), ("outputs", self.outputs.len())] {
            if n == 0 || n > MAX_PORTS {
                return Err(BackendError::Unsupported(format!("the model has {n} {what}; from 1 to {MAX_PORTS} fit")));
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

/// A batch of one input: dense, row-major, `batch` items one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct BatchRef<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape of one item.
    pub shape: &'a [usize],
    /// The bytes of all items.
    pub bytes: &'a [u8],
}

/// A batch of one output, to be written completely.
#[derive(Debug)]
pub struct BatchMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape of one item.
    pub shape: &'a [usize],
    /// Where the bytes of all items go.
    pub bytes: &'a mut [u8],
}

/// A model that one thread runs.
pub trait Session: 'static {
    /// The state of one stream of a model that has state; `()` for the others.
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

    /// Runs `batch` items in one call. `lanes` holds one lane, or one for each item.
    ///
    /// # Errors
    /// The call failed; nothing of `outputs` may be used.
    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [Self::Lane],
    ) -> Result<(), BackendError>;

    /// Begins a batch that finishes later. Synchronous by default: the work is done when this returns.
    ///
    /// # Errors
    /// As [`Session::infer_batch`].
    fn submit(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [Self::Lane],
    ) -> Result<Ticket, BackendError> {
        self.infer_batch(batch, inputs, outputs, lanes)?;
        Ok(Ticket(0))
    }

    /// Whether a submitted batch has finished. Always true where `submit` is synchronous.
    ///
    /// # Errors
    /// The batch failed.
    fn poll(&mut self, ticket: &Ticket) -> Result<bool, BackendError> {
        let _ = ticket;
        Ok(true)
    }

    /// Waits for everything submitted.
    ///
    /// # Errors
    /// Something submitted failed.
    fn drain(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Forgets all state: a gap or a new stream.
    fn reset(&mut self) {}

    /// What the plan and the report say of this session.
    fn metadata(&self) -> SessionMetadata {
        SessionMetadata::default()
    }
}

/// A batch that was submitted.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// What a session says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionMetadata {
    /// Where it computes.
    pub device: String,
    /// Threads inside one call.
    pub threads: usize,
    /// Bytes copied into the runtime per item.
    pub copied_in: usize,
    /// Bytes copied out of the runtime per item.
    pub copied_out: usize,
}

/// Why a backend or a model does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend cannot work on this machine.
    #[error("not available: {0}")]
    Unavailable(String),
    /// The model cannot be read.
    #[error("not a readable model: {0}")]
    Model(String),
    /// The model needs what the backend cannot do.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A call failed.
    #[error("inference failed: {0}")]
    Call(String),
    /// The model gave other numbers than were recorded.
    #[error("output `{output}` differs from what was recorded: {difference}")]
    Verify {
        /// The output.
        output: String,
        /// Where and by how much.
        difference: String,
    },
}

impl BackendError {
    /// A failed call.
    pub fn call(error: impl fmt::Display) -> Self {
        BackendError::Call(error.to_string())
    }
}
