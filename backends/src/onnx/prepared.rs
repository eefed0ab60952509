//! A model with known shapes: trial runs find the shapes of its outputs, and whether it takes batches.

use super::artifact::Artifact;
use super::constant::{Constant, Constants};
use super::input::{Input, LeadingDim, Length};
use super::loaded::Loaded;
use super::outline::Outline;
use super::runtime::{Call, CallInput, Runtime, batch_shape};
use super::session::{OnnxSession, SessionInput, SessionOutput, buffer};
use super::shadow::ShadowPlan;
use crate::base::{Access, BackendOptions};
use crate::cache::Compiled;
use crate::steps::Steps;
use limen::backend::{Backend, BackendError, BatchRef, Capabilities, Prepared, Signature, TensorSpec};
use limen::message::{DType, Dim, MAX_RANK, PortSpec};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

/// A runtime as a backend.
pub struct Onnx<R>(PhantomData<R>);

impl<R> std::fmt::Debug for Onnx<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onnx")
    }
}

/// A model's file and how to run it.
#[derive(Clone, Debug, Default)]
pub struct OnnxModel {
    /// Its file. Files of weights are found beside it, by their names in the model.
    pub path: PathBuf,
    /// The content of the file, if it is not to be read from `path`.
    pub bytes: Option<Vec<u8>>,
    /// Threads inside one call; 0 counts as 1.
    pub threads: usize,
    /// Shapes of one item by input, as far as they are known: they bind the symbolic dims.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Batch sizes, ascending, to the next of which a batch is padded; by default the powers of two for a runtime that compiles
    /// for a batch size, and no padding for the others.
    pub buckets: Vec<usize>,
    /// Outputs that are inputs of the next call of the same stream.
    pub states: Vec<ModelState>,
    /// Inputs with the same value in every call, by port name.
    pub constants: BTreeMap<String, Constant>,
    /// Whether a call fails if its inputs or outputs hold an infinity or NaN.
    pub finite: bool,
    /// Whether a session is prepared in its first call, and not before.
    pub lazy: bool,
    /// Whether every call has one item: the trial run on two items is then skipped.
    pub one_item: bool,
    /// The cache folder and the library of ONNX Runtime.
    pub options: BackendOptions,
}

/// An output that is an input of the next call of the same stream. It is not a port; the first call gets zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// The port name of the input.
    pub input: String,
    /// The port name of the output.
    pub output: String,
    /// The index of its batch dim, from 0; by default the dim with the same name as the batch dim of the other inputs.
    pub batch_dim: Option<usize>,
}

impl<R: Runtime> Backend for Onnx<R> {
    const NAME: &'static str = R::NAME;
    type Model = OnnxModel;
    type Prepared = OnnxPrepared<R>;

    /// With default options: `ort` loads its default library, which is then the only one of this process.
    fn probe() -> Result<Capabilities, BackendError> {
        R::probe(&BackendOptions::default())
    }

    fn prepare(mut model: OnnxModel) -> Result<OnnxPrepared<R>, BackendError> {
        let loaded = match model.bytes.take() {
            Some(bytes) => Arc::new(Loaded::of(Artifact::parse(&model.path, bytes)?, &model.options)?),
            None => Loaded::share(Artifact::open(&model.path)?, &model.options)?,
        };
        let batch_dims = batch_dims(&loaded.outline, &model.states)?;
        for (port, constant) in &model.constants {
            constant.check(port, &loaded.outline).map_err(BackendError::Unsupported)?;
            model.shapes.insert(port.clone(), constant.shape.clone());
        }
        let bound = loaded.outline.bind(&model.shapes, &batch_dims).map_err(|unbound| {
            let all: Vec<_> = unbound.iter().map(|u| format!("input `{}`: {}", u.input, u.why)).collect();
            BackendError::Unsupported(all.join("; "))
        })?;
        OnnxPrepared::new(loaded, bound, &model, &Steps::default())
    }
}

/// Returns the index of each input's batch dim.
///
/// # Errors
/// A state that the model does not have, or whose `batch_dim` it does not have.
pub(crate) fn batch_dims(outline: &Outline, states: &[ModelState]) -> Result<Vec<Option<usize>>, BackendError> {
    fn unsupported<T>(why: String) -> Result<T, BackendError> {
        Err(BackendError::Unsupported(why))
    }
    for state in states {
        if !outline.inputs.iter().any(|input| input.port == state.input) {
            return unsupported(format!("the state `{}` is not an input of the model", state.input));
        }
        if !outline.outputs.iter().any(|output| output.port == state.output) {
            return unsupported(format!("the state `{}` is not an output of the model", state.output));
        }
    }
    let state_of = |input: &Input| states.iter().find(|state| state.input == input.port);
    let batches: Vec<&Length> = outline
        .inputs
        .iter()
        .filter(|input| state_of(input).is_none() && input.lead == LeadingDim::Batch)
        .filter_map(|input| input.shape.first())
        .collect();
    let dim_of = |input: &Input| match state_of(input) {
        None => Ok(input.batch_dim()),
        Some(ModelState { batch_dim: Some(dim), .. }) if *dim >= input.shape.len() => {
            unsupported(format!("the state `{}` has {} dims; `batch_dim` is {dim}", input.port, input.shape.len()))
        }
        Some(ModelState { batch_dim: Some(dim), .. }) => Ok(Some(*dim)),
        Some(_) => Ok(input.shape.iter().position(|dim| batches.contains(&dim))),
    };
    outline.inputs.iter().map(dim_of).collect()
}

/// A loaded model with known shapes.
pub struct OnnxPrepared<R: Runtime> {
    loaded: Arc<Loaded<R>>,
    shared: Arc<R::Shared>,
    call: Call,
    outputs: Vec<SessionOutput>,
    /// The input and output of each state.
    states: Vec<(usize, usize)>,
    constants: Constants,
    signature: Signature,
    single: Option<String>,
    buckets: Vec<usize>,
    finite: bool,
    lazy: bool,
    shadow: Option<ShadowPlan>,
}

impl<R: Runtime> std::fmt::Debug for OnnxPrepared<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxPrepared").field("runtime", &R::NAME).field("signature", &self.signature).finish()
    }
}

impl<R: Runtime> OnnxPrepared<R> {
    /// Runs the model on zeros, to find the shapes of its outputs and whether it takes batches.
    pub(crate) fn new(
        loaded: Arc<Loaded<R>>,
        items: Vec<Vec<usize>>,
        model: &OnnxModel,
        steps: &Steps,
    ) -> Result<Self, BackendError> {
        let outline = &loaded.outline;
        let batch_dims = batch_dims(outline, &model.states)?;
        let inputs = std::iter::zip(&outline.inputs, items).zip(&batch_dims).map(|((declared, item), batch_dim)| {
            CallInput { name: declared.name.clone(), elem: declared.elem, item, batch_dim: *batch_dim }
        });
        let names = outline.outputs.iter().map(|output| output.name.clone()).collect();
        let threads = model.threads.max(1);
        let call = Call { inputs: inputs.collect(), outputs: names, threads, batches: Vec::new() };
        let at = |port: &str, ports: &[String]| ports.iter().position(|other| other == port).unwrap_or_default();
        let in_ports: Vec<String> = outline.inputs.iter().map(|input| input.port.clone()).collect();
        let out_ports: Vec<String> = outline.outputs.iter().map(|output| output.port.clone()).collect();
        let states: Vec<(usize, usize)> =
            model.states.iter().map(|state| (at(&state.input, &in_ports), at(&state.output, &out_ports))).collect();

        let shared = loaded.runtime.share(call.threads)?;
        let trial = |batch: usize| {
            let call = Call { batches: vec![batch], ..call.clone() };
            let what = format!("ran it on zeros, {batch} item{}", if batch == 1 { "" } else { "s" });
            let found: Result<TrialOutputs, String> = steps.step(R::NAME, &what, || {
                let found = run_on_zeros(&loaded, &shared, &call, &model.constants, batch)
                    .map_err(|error| error.to_string())?;
                Ok(found.into_iter().map(|(dtype, shape)| (dtype.name().to_string(), shape)).collect())
            });
            parse_outputs(found?, call.outputs.len())
        };
        let one = trial(1).map_err(|e| BackendError::Unsupported(format!("a trial run on zeros failed: {e}")))?;
        let outputs = output_sides(&one, &out_ports, &call.inputs, &states)?;
        let has_no_batch = |at: usize| match states.iter().any(|(input, _)| *input == at) {
            true => batch_dims[at].is_none(),
            // All items share a constant.
            false if model.constants.contains_key(&in_ports[at]) && batch_dims[at].is_none() => false,
            false => outline.inputs[at].lead != LeadingDim::Batch,
        };
        let single = if let Some(at) = (0..in_ports.len()).find(|at| has_no_batch(*at)) {
            Some(format!("its input `{}` has no batch dim of its own", in_ports[at]))
        } else if model.one_item {
            Some("it was loaded for calls with one item".into())
        } else {
            // A model can declare a batch that it does not support, for example with a reshape to [1, …] inside.
            match trial(2) {
                Err(error) => Some(format!("a trial run on two items failed: {error}")),
                Ok(two) => (0..one.len())
                    .find(|at| {
                        let side = &outputs[*at];
                        side.batch_dim.is_none() || two[*at].1 != batch_shape(&side.item, side.batch_dim, 2)
                    })
                    .map(|at| {
                        let (one, two) = (&one[at].1, &two[at].1);
                        format!("its output `{}` is {one:?} for one item and {two:?} for two", out_ports[at])
                    }),
            }
        };

        let max_batch = single.as_ref().map(|_| 1);
        let signature = signature_of(&in_ports, &call.inputs, &outputs, &states, &model.constants, max_batch)?;
        let (buckets, shadow) = (model.buckets.clone(), None);
        let OnnxModel { finite, lazy, .. } = *model;
        let (shared, constants) = (Arc::new(shared), model.constants.clone());
        Ok(OnnxPrepared {
            loaded,
            shared,
            call,
            outputs,
            states,
            constants,
            signature,
            single,
            buckets,
            finite,
            lazy,
            shadow,
        })
    }

    /// Returns the size of its files in bytes, and the number of its parameters.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.loaded.bytes, self.loaded.outline.parameters())
    }

    /// Returns the runtime's compilation counts, if it compiles.
    pub(crate) fn compiled(&self) -> Option<Compiled> {
        self.loaded.runtime.compiled()
    }

    /// Returns the number of threads inside one call.
    pub(crate) fn threads(&self) -> usize {
        self.call.threads
    }

    /// Repeats some of the calls on another backend.
    pub(crate) fn set_shadow(&mut self, shadow: ShadowPlan) {
        self.shadow = Some(shadow);
    }

    /// Returns why the model takes only one item per call, if so.
    pub fn single(&self) -> Option<&str> {
        self.single.as_deref()
    }

    /// Returns the sizes to which batches of up to `max_batch` are padded; empty if they are not padded.
    fn buckets(&self, max_batch: usize) -> Vec<usize> {
        let mut buckets: Vec<usize> = self.buckets.iter().copied().filter(|n| (1..max_batch).contains(n)).collect();
        if R::COMPILES && self.buckets.is_empty() {
            buckets = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < max_batch).collect();
        }
        if R::COMPILES || !buckets.is_empty() {
            buckets.push(max_batch);
        }
        buckets
    }
}

/// Returns the input that an output goes to as a state.
fn input_of(states: &[(usize, usize)], output: usize) -> Option<usize> {
    states.iter().find(|(_, state)| *state == output).map(|(input, _)| *input)
}

/// Returns the outputs of a model, from those of the trial run on one item.
///
/// # Errors
/// An output that no port can carry, or a state whose output does not match its input.
fn output_sides(
    one: &[(DType, Vec<usize>)],
    ports: &[String],
    inputs: &[CallInput],
    states: &[(usize, usize)],
) -> Result<Vec<SessionOutput>, BackendError> {
    let knows_batches = inputs.iter().any(|input| input.batch_dim.is_some());
    let side = |port: &String, (dtype, shape): &(DType, Vec<usize>), state: Option<&CallInput>| {
        let batch_dim = match state {
            Some(input) => input.batch_dim,
            None => (knows_batches && shape.first() == Some(&1)).then_some(0),
        };
        let mut item = shape.clone();
        if let Some(dim) = batch_dim.filter(|dim| *dim < item.len()) {
            item.remove(dim);
        }
        if item.len() > MAX_RANK || item.contains(&0) {
            let why = format!("output `{port}` is {item:?}; a port carries at most {MAX_RANK} dims, none of length 0");
            return Err(BackendError::Unsupported(why));
        }
        if let Some(input) = state
            && (input.item != item || input.elem.dtype() != *dtype)
        {
            let (takes, gives, as_what) = (&input.item, &item, input.elem.dtype());
            let why = format!("the state `{port}` is {dtype}{gives:?} as output and {as_what}{takes:?} as input");
            return Err(BackendError::Unsupported(why));
        }
        Ok(SessionOutput { port: port.clone(), dtype: *dtype, item, batch_dim })
    };
    let state_of = |at| input_of(states, at).map(|input| &inputs[input]);
    std::iter::zip(ports, one).enumerate().map(|(at, (port, received))| side(port, received, state_of(at))).collect()
}

/// Returns the inputs and outputs of a model that are ports.
///
/// # Errors
/// When no output is left, or a node cannot have these ports.
fn signature_of(
    in_ports: &[String],
    inputs: &[CallInput],
    outputs: &[SessionOutput],
    states: &[(usize, usize)],
    constants: &Constants,
    max_batch: Option<usize>,
) -> Result<Signature, BackendError> {
    let mut signature = Signature { max_batch, ..Signature::default() };
    for (at, (port, input)) in std::iter::zip(in_ports, inputs).enumerate() {
        if !states.iter().any(|(state, _)| *state == at) && !constants.contains_key(port) {
            signature.inputs.push(spec(port, input.elem.dtype(), &input.item));
        }
    }
    for (at, output) in outputs.iter().enumerate() {
        if input_of(states, at).is_none() {
            signature.outputs.push(spec(&output.port, output.dtype, &output.item));
        }
    }
    if let Some((_, output)) = states.first().filter(|_| signature.outputs.is_empty()) {
        let output = &outputs[*output].port;
        let why = format!("its only output `{output}` is a state, which is not a port; export it twice (`Identity`)");
        return Err(BackendError::Unsupported(why));
    }
    signature.check()?;
    Ok(signature)
}

/// The dtype and shape of each output of a trial run, as recorded.
type TrialOutputs = Vec<(String, Vec<usize>)>;

/// Parses and checks the recorded outputs of a trial run: they may come from the cache on disk.
fn parse_outputs(found: TrialOutputs, outputs: usize) -> Result<Vec<(DType, Vec<usize>)>, String> {
    let wrong = || "the recorded result of its trial is not of this model".to_string();
    let known = |name: &str| name.parse::<PortSpec>().ok().map(|spec| spec.dtype);
    let fits = |(name, shape): (String, Vec<usize>)| {
        let dtype = known(&name)?;
        let bytes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim))?;
        (bytes <= isize::MAX as usize / 8).then_some((dtype, shape))
    };
    let found: Option<Vec<_>> = found.into_iter().map(fits).collect();
    found.filter(|found| found.len() == outputs).ok_or_else(wrong)
}

/// Runs a model on zeros, and its constants, and returns the dtype and shape of each output.
fn run_on_zeros<R: Runtime>(
    loaded: &Loaded<R>,
    shared: &R::Shared,
    call: &Call,
    constants: &Constants,
    batch: usize,
) -> Result<Vec<(DType, Vec<usize>)>, BackendError> {
    let mut found = vec![None; call.outputs.len()];
    let shapes: Vec<Vec<usize>> = call.inputs.iter().map(|input| input.shape(batch)).collect();
    let mut zeros = Vec::new();
    for ((input, declared), shape) in std::iter::zip(&call.inputs, &loaded.outline.inputs).zip(&shapes) {
        let bytes = shape.iter().try_fold(input.elem.dtype().size(), |n, d| n.checked_mul(*d));
        let bytes = bytes.filter(|n| *n <= isize::MAX as usize / 8);
        let wrong = || format!("input `{}` has the shape {shape:?}, which does not fit in memory", input.name);
        let bytes = bytes.ok_or_else(|| BackendError::Unsupported(wrong()))?;
        let mut words = buffer(bytes);
        if let Some(constant) = constants.get(&declared.port) {
            constant.fill(Access::for_dtype(input.elem.dtype()), &mut bytemuck::cast_slice_mut(&mut words)[..bytes]);
        }
        zeros.push((words, bytes));
    }
    let inputs: Vec<BatchRef<'_>> = std::iter::zip(&call.inputs, &shapes)
        .zip(&zeros)
        .map(|((input, shape), (words, bytes))| BatchRef {
            dtype: input.elem.dtype(),
            shape,
            bytes: &bytemuck::cast_slice(words)[..*bytes],
        })
        .collect();
    loaded.runner(shared, call)?.run(batch, &inputs, &mut |at, output| {
        if let Some(found) = found.get_mut(at) {
            *found = Some((output.dtype, output.shape.to_vec()));
        }
        Ok(())
    })?;
    let missing = |at: usize| {
        let name = &loaded.outline.outputs[at].port;
        BackendError::Unsupported(format!("output `{name}` is not a tensor that a port can carry"))
    };
    found.into_iter().enumerate().map(|(at, found)| found.ok_or_else(|| missing(at))).collect()
}

fn spec(name: &str, dtype: DType, item: &[usize]) -> TensorSpec {
    TensorSpec { name: name.to_string(), dtype, shape: item.iter().copied().map(Dim::Fixed).collect() }
}

impl<R: Runtime> Prepared for OnnxPrepared<R> {
    type Session = OnnxSession<R>;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_stateful(&self) -> bool {
        !self.states.is_empty()
    }

    fn session(&self, max_batch: usize) -> Result<OnnxSession<R>, BackendError> {
        let max_batch = max_batch.max(1);
        if let Some(most) = self.signature.max_batch.filter(|most| max_batch > *most) {
            let why = self.single.as_deref().unwrap_or_default();
            return Err(BackendError::Unsupported(format!("batches of {max_batch}: the model takes {most}, {why}")));
        }
        let buckets = self.buckets(max_batch);
        let batches = if buckets.is_empty() { vec![max_batch] } else { buckets.clone() };
        let call = Call { batches, ..self.call.clone() };
        let runner = match self.lazy {
            true => None,
            false => Some(self.loaded.runner(&self.shared, &call)?),
        };
        let is_padded = !buckets.is_empty() && max_batch > 1;
        let inputs = call.inputs.iter().enumerate().map(|(at, input)| {
            let state = self.states.iter().position(|(state, _)| *state == at);
            let item_bytes = input.item.iter().product::<usize>() * input.elem.dtype().size();
            let port = &self.loaded.outline.inputs[at].port;
            let constant = self.constants.get(port);
            let room = if state.is_some() || constant.is_some() || is_padded { item_bytes * max_batch } else { 0 };
            let mut buffer = buffer(room);
            if let Some(constant) = constant {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
                constant.fill(Access::for_dtype(input.elem.dtype()), &mut bytes[..room]);
            }
            SessionInput {
                port: port.clone(),
                dtype: input.elem.dtype(),
                shape: input.shape(max_batch),
                item_bytes,
                batch_dim: input.batch_dim,
                state,
                is_constant: constant.is_some(),
                buffer,
            }
        });
        let next = self.states.iter().map(|(_, output)| buffer(self.outputs[*output].item_bytes() * max_batch));
        let outputs = self.outputs.iter().enumerate().map(|(at, side)| {
            let state = self.states.iter().position(|(_, state)| *state == at);
            (side.clone(), state)
        });
        let (inputs, outputs) = (inputs.collect(), outputs.collect());
        let shadow = self.shadow.as_ref().map(|shadow| shadow.begin(max_batch)).transpose()?;
        Ok(OnnxSession {
            runner,
            shared: self.shared.clone(),
            call,
            first_call: None,
            inputs,
            outputs,
            next: next.collect(),
            buckets,
            loaded: self.loaded.clone(),
            finite: self.finite,
            shadow,
        })
    }
}
