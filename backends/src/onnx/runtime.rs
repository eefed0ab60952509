//! What differs between the programs that run ONNX models.

use super::artifact::Artifact;
use super::elem::Elem;
use crate::cache::Compiled;
use limen::backend::{BackendError, BatchRef, Capabilities, SessionMetadata};

/// A program that runs ONNX models: what differs between rten, tract and ONNX Runtime. [`Onnx`](super::Onnx) makes a backend of it.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// The name in YAML.
    const NAME: &'static str;
    /// Whether a call is compiled for the number of its items. Then batches are padded to the sizes that were compiled.
    const COMPILES: bool;
    /// Whether it is a library, which is loaded when it is first asked: that takes long, and is left where nobody names it.
    const IS_LIBRARY: bool = false;
    /// What the threads of one node share.
    type Shared: Send + Sync;
    /// The model on one thread.
    type Runner: Runner;

    /// As [`limen::backend::Backend::probe`].
    ///
    /// # Errors
    /// What is missing and how to get it.
    fn probe() -> Result<Capabilities, BackendError>;

    /// Whether it has no kernel of that name for an operator it knows: loading makes others of it, or a constant.
    fn rewrites(operator: &str) -> bool {
        operator == "Constant"
    }

    /// Reads a model; shared by all nodes that run it.
    ///
    /// # Errors
    /// What is wrong with the model, or not supported.
    fn load(artifact: Artifact) -> Result<Self, BackendError>;

    /// What one node needs before anything is pinned: threads that are not to be its worker's.
    ///
    /// # Errors
    /// What could not be had.
    fn share(&self, threads: usize) -> Result<Self::Shared, BackendError>;

    /// Makes the model ready for calls of a shape on the calling thread.
    ///
    /// # Errors
    /// What is not supported, or what could not be had.
    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<Self::Runner, BackendError>;

    /// What compiling this model came to so far; nothing where the runtime does not compile.
    fn compiled(&self) -> Option<Compiled> {
        None
    }
}

/// What calls of a model will look like.
#[derive(Clone, Debug)]
pub struct Call {
    /// Inputs, in the model's order.
    pub inputs: Vec<CallInput>,
    /// Names of the outputs in the model, in its order.
    pub outputs: Vec<String>,
    /// Threads inside one call, at least 1.
    pub threads: usize,
    /// How many items a call may have; only these where the runtime compiles, otherwise any.
    pub batches: Vec<usize>,
}

/// An input of a call.
#[derive(Clone, Debug)]
pub struct CallInput {
    /// Its name in the model.
    pub name: String,
    /// Its elements in the model.
    pub elem: Elem,
    /// Shape of one item.
    pub item: Vec<usize>,
    /// Where the batch is among the dims that the model sees; nowhere where it knows none.
    pub batch_dim: Option<usize>,
}

impl CallInput {
    /// The shape that the model sees.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        whole(&self.item, self.batch_dim, batch)
    }
}

/// The shape of a batch of items.
pub(super) fn whole(item: &[usize], batch_dim: Option<usize>, batch: usize) -> Vec<usize> {
    let mut shape = item.to_vec();
    if let Some(dim) = batch_dim {
        shape.insert(dim, batch);
    }
    shape
}

/// A model on one thread.
pub trait Runner: 'static {
    /// Runs the model on `batch` items; the inputs have whole shapes, the batch before the item where the model has one.
    /// Gives each output to `take`.
    ///
    /// # Errors
    /// The call failed, or `take` did.
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError>;

    /// What a call copies and where it runs.
    fn metadata(&self) -> SessionMetadata;
}

/// Takes an output: its index, and what came.
pub type Take<'a> = dyn FnMut(usize, BatchRef<'_>) -> Result<(), BackendError> + 'a;
