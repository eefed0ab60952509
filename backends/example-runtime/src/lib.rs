//! A runtime in a crate outside limen: an inference library as a backend of `infer`, here the
//! library rten with few of its types.
//!
//! [`register`] adds it to a registry. A graph then names it in `backend:`, `verify.against`,
//! `shadow.backend` and `fallback:`, and `backend: auto` tries it after the stock backends, or
//! before them if it is measured to be faster.

use limen::Registry;
use limen::backend::{BackendError, BatchRef, Capabilities, Ops, SessionMetadata};
use limen::message::DType;
use limen_infer::onnx::{Artifact, Call, Runner, Runtime, Take};
use limen_infer::{BackendOptions, RegisterRuntime};
use rten::{Model, NodeId, Value, ValueView};
use rten_tensor::prelude::*;
use std::sync::Arc;

/// Adds the backend `example`:
/// `Registry::new().with(limen_infer::register).with(example_runtime::register)`.
pub fn register(registry: Registry) -> Registry {
    registry.runtime::<Example>()
}

/// A model that the library has read. The nodes that run a model share it.
pub struct Example(Arc<Model>);

impl Runtime for Example {
    const NAME: &'static str = "example";
    const COMPILES: bool = false;
    type Shared = ();
    type Runner = Calls;

    /// What the library can do here. If something is missing, an error says what and how to get it.
    fn probe(_: &BackendOptions) -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("example 0.1.0", [DType::F32], Ops::Unlisted))
    }

    fn load(artifact: Artifact, _: &BackendOptions) -> Result<Self, BackendError> {
        let model = Model::load(Arc::unwrap_or_clone(artifact.bytes));
        model.map(|model| Example(Arc::new(model))).map_err(|error| BackendError::Unsupported(error.to_string()))
    }

    fn share(&self, _: &Call) -> Result<(), BackendError> {
        Ok(())
    }

    fn runner(&self, (): &(), call: &Call) -> Result<Calls, BackendError> {
        let id = |name: &String| self.0.node_id(name).map_err(|error| BackendError::Model(error.to_string()));
        let inputs = call.inputs.iter().map(|input| id(&input.name)).collect::<Result<_, _>>()?;
        let outputs = call.outputs.iter().map(id).collect::<Result<_, _>>()?;
        Ok(Calls { model: self.0.clone(), inputs, outputs })
    }
}

/// The model on one thread.
pub struct Calls {
    model: Arc<Model>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
}

impl Runner for Calls {
    fn run(&mut self, _: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        let value = |input: &BatchRef<'_>| -> Result<Value, BackendError> {
            let floats = bytemuck::cast_slice::<u8, f32>(input.bytes).to_vec();
            Value::from_shape(input.shape, floats).map_err(BackendError::call)
        };
        let values = inputs.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let values = std::iter::zip(self.inputs.iter().copied(), values.into_iter().map(Into::into)).collect();
        let results = self.model.run(values, &self.outputs, None).map_err(BackendError::call)?;
        for (at, result) in results.iter().enumerate() {
            let ValueView::FloatTensor(tensor) = result.as_view() else {
                return Err(BackendError::Unsupported(format!("output {at}, whose elements are not f32")));
            };
            let (shape, floats) = (tensor.shape(), tensor.to_vec());
            take(at, BatchRef { dtype: DType::F32, shape, bytes: bytemuck::cast_slice(&floats) })?;
        }
        Ok(())
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "cpu".into(), threads: 1, ..SessionMetadata::default() }
    }
}
