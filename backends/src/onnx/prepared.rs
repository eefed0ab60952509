//! What all ONNX runtimes share: the trial that finds the shapes of the outputs, and the calls.

use super::artifact::{Artifact, Key, Opened};
use super::outline::{Elem, Input, Lead, Length, Outline};
use crate::cache::Compiled;
use crate::caught;
use crate::element::Access;
use crate::shadow::{Shadow, ShadowPlan};
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Prepared, Session, SessionMetadata, Signature, TensorSpec,
};
use limen::{DType, Dim, MAX_RANK, Metrics};
use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A program that runs ONNX models: what differs between rten, tract and ONNX Runtime. [`Onnx`] makes a backend of it.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// The name in YAML.
    const NAME: &'static str;
    /// Whether a call is compiled for the number of its items. Then batches are padded to the sizes that were compiled.
    const COMPILES: bool;
    /// What the threads of one node share.
    type Shared: Send + Sync;
    /// The model on one thread.
    type Runner: Runner;

    /// As [`Backend::probe`].
    ///
    /// # Errors
    /// What is missing and how to get it.
    fn probe() -> Result<Capabilities, BackendError>;

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
fn whole(item: &[usize], batch_dim: Option<usize>, batch: usize) -> Vec<usize> {
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

/// A runtime as a backend.
pub struct Onnx<R>(PhantomData<R>);

impl<R> std::fmt::Debug for Onnx<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onnx")
    }
}

/// Where a model comes from and how it shall run.
#[derive(Clone, Debug, Default)]
pub struct OnnxModel {
    /// Its file. Weights in files beside it are found by the names the model gives them.
    pub path: PathBuf,
    /// The content of the file, where it is not to be read from `path`.
    pub bytes: Option<Vec<u8>>,
    /// Threads inside one call; 0 is taken as 1.
    pub threads: usize,
    /// Shapes of one item by input, where they are known: they bind the symbolic dims.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Numbers of items to which batches are padded, rising; by default the powers of two where the runtime compiles for
    /// a number of items, and none where it does not.
    pub buckets: Vec<usize>,
    /// What a call leaves for the next one of its stream.
    pub states: Vec<State>,
    /// Whether a call fails whose inputs or outputs hold what is no finite number.
    pub finite: bool,
}

/// An output that is an input of the next call of the same stream. It is no port; the first call gets zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The input, by its name as a port.
    pub input: String,
    /// The output, by its name as a port.
    pub output: String,
    /// Which of its dims is the batch; by default the one that has the name of the other inputs' batch.
    pub batch_dim: Option<usize>,
}

impl<R: Runtime> Backend for Onnx<R> {
    const NAME: &'static str = R::NAME;
    type Model = OnnxModel;
    type Prepared = OnnxPrepared<R>;

    fn probe() -> Result<Capabilities, BackendError> {
        R::probe()
    }

    fn prepare(mut model: OnnxModel) -> Result<OnnxPrepared<R>, BackendError> {
        let loaded = match model.bytes.take() {
            Some(bytes) => Arc::new(Loaded::of(Artifact::parse(&model.path, bytes)?)?),
            None => Loaded::open(&model.path)?,
        };
        let batch_dims = batch_dims(&loaded.outline, &model.states)?;
        let bound = loaded.outline.bind(&model.shapes, &batch_dims).map_err(|unbound| {
            let all: Vec<_> = unbound.iter().map(|u| format!("input `{}`: {}", u.input, u.why)).collect();
            BackendError::Unsupported(all.join("; "))
        })?;
        OnnxPrepared::new(loaded, bound, &model)
    }
}

/// Which dim of each input is the batch.
///
/// # Errors
/// A state that the model does not have, or whose batch cannot be told.
pub(crate) fn batch_dims(outline: &Outline, states: &[State]) -> Result<Vec<Option<usize>>, BackendError> {
    fn unsupported<T>(why: String) -> Result<T, BackendError> {
        Err(BackendError::Unsupported(why))
    }
    for state in states {
        if !outline.inputs.iter().any(|input| input.port == state.input) {
            return unsupported(format!("the state `{}` is no input of the model", state.input));
        }
        if !outline.outputs.iter().any(|output| output.port == state.output) {
            return unsupported(format!("the state `{}` is no output of the model", state.output));
        }
    }
    let state_of = |input: &Input| states.iter().find(|state| state.input == input.port);
    let batches: Vec<&Length> = outline
        .inputs
        .iter()
        .filter(|input| state_of(input).is_none() && input.lead == Lead::Batch)
        .filter_map(|input| input.shape.first())
        .collect();
    let dim_of = |input: &Input| match state_of(input) {
        None => Ok(input.batch_dim()),
        Some(State { batch_dim: Some(dim), .. }) if *dim >= input.shape.len() => {
            unsupported(format!("the state `{}` has {} dims, and none numbered {dim}", input.port, input.shape.len()))
        }
        Some(State { batch_dim: Some(dim), .. }) => Ok(Some(*dim)),
        Some(_) => Ok(input.shape.iter().position(|dim| batches.contains(&dim))),
    };
    outline.inputs.iter().map(dim_of).collect()
}

/// A model that a runtime has read.
pub(crate) struct Loaded<R> {
    pub(crate) outline: Outline,
    pub(crate) bytes: u64,
    runtime: R,
}

type Shared = Weak<dyn Any + Send + Sync>;

/// Models in use, by runtime and file, so that nodes that name the same file share its weights. Held weakly: a model goes
/// with its last node.
static IN_USE: Mutex<Vec<(&str, Key, Shared)>> = Mutex::new(Vec::new());

impl<R: Runtime> Loaded<R> {
    /// Loads a file, or takes it from another node that runs the very same one.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>, BackendError> {
        let opened = Opened::new(path)?;
        let Some(key) = opened.key.clone() else { return Ok(Arc::new(Loaded::of(opened.read()?)?)) };
        // Held while loading, so that two plans made at once do not load the same model twice.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, _, model)| model.strong_count() > 0);
        let found = in_use.iter().find(|(name, k, _)| *name == R::NAME && *k == key);
        if let Some(Ok(loaded)) = found.and_then(|(_, _, model)| model.upgrade()).map(Arc::downcast) {
            return Ok(loaded);
        }
        let loaded = Arc::new(Loaded::of(opened.read()?)?);
        let shared: Arc<dyn Any + Send + Sync> = loaded.clone();
        in_use.push((R::NAME, key, Arc::downgrade(&shared)));
        Ok(loaded)
    }

    fn of(artifact: Artifact) -> Result<Self, BackendError> {
        let (outline, bytes) = (artifact.outline.clone(), artifact.size());
        let runtime = caught(|| R::load(artifact))
            .map_err(|panic| BackendError::Model(format!("{} cannot load it, {panic}", R::NAME)))??;
        Ok(Loaded { outline, bytes, runtime })
    }

    fn runner(&self, shared: &R::Shared, call: &Call) -> Result<Guarded<R::Runner>, BackendError> {
        let runner = caught(|| self.runtime.runner(shared, call))
            .map_err(|panic| BackendError::Unsupported(format!("{} cannot make it ready, {panic}", R::NAME)))??;
        Ok(Guarded { name: R::NAME, runner })
    }
}

/// A runner whose panics are errors.
struct Guarded<R> {
    name: &'static str,
    runner: R,
}

impl<R: Runner> Guarded<R> {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        match caught(|| self.runner.run(batch, inputs, take)) {
            Ok(result) => result,
            Err(panic) => Err(BackendError::Call(format!("{} cannot run it, {panic}", self.name))),
        }
    }
}

/// An output with everything known.
#[derive(Clone, Debug)]
struct Side {
    port: String,
    dtype: DType,
    item: Vec<usize>,
    batch_dim: Option<usize>,
}

impl Side {
    fn item_bytes(&self) -> usize {
        self.item.iter().product::<usize>() * self.dtype.size()
    }
}

/// A loaded model whose shapes are known.
pub struct OnnxPrepared<R: Runtime> {
    loaded: Arc<Loaded<R>>,
    shared: R::Shared,
    call: Call,
    outputs: Vec<Side>,
    /// Inputs and outputs that are a state.
    states: Vec<(usize, usize)>,
    signature: Signature,
    single: Option<String>,
    buckets: Vec<usize>,
    finite: bool,
    shadow: Option<ShadowPlan>,
}

impl<R: Runtime> std::fmt::Debug for OnnxPrepared<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxPrepared").field("runtime", &R::NAME).field("signature", &self.signature).finish()
    }
}

impl<R: Runtime> OnnxPrepared<R> {
    /// Tries the model out on zeros, to learn the shapes of its outputs and whether it takes batches.
    pub(crate) fn new(loaded: Arc<Loaded<R>>, items: Vec<Vec<usize>>, model: &OnnxModel) -> Result<Self, BackendError> {
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
            try_out(&loaded, &shared, &call, batch)
        };
        let one = trial(1).map_err(|e| BackendError::Unsupported(format!("a trial run on zeros failed: {e}")))?;
        let input_of = |output: usize| states.iter().find(|(_, state)| *state == output).map(|(input, _)| *input);
        let knows_batches = batch_dims.iter().any(Option::is_some);
        let mut outputs = Vec::new();
        for (at, (dtype, shape)) in one.iter().enumerate() {
            let batch_dim = match input_of(at) {
                Some(input) => batch_dims[input],
                None => (knows_batches && shape.first() == Some(&1)).then_some(0),
            };
            let mut item = shape.clone();
            if let Some(dim) = batch_dim.filter(|dim| *dim < item.len()) {
                item.remove(dim);
            }
            let name = &out_ports[at];
            if item.len() > MAX_RANK || item.contains(&0) {
                let why =
                    format!("output `{name}` came out as {item:?}; from 0 to {MAX_RANK} dims, none of length 0, fit");
                return Err(BackendError::Unsupported(why));
            }
            if let Some(input) = input_of(at).map(|input| &call.inputs[input])
                && (input.item != item || input.elem.dtype() != *dtype)
            {
                let (takes, gives) = (&input.item, &item);
                let why = format!(
                    "the state `{name}` comes out as {dtype}{gives:?} and is taken as {}{takes:?}",
                    input.elem.dtype()
                );
                return Err(BackendError::Unsupported(why));
            }
            outputs.push(Side { port: name.clone(), dtype: *dtype, item, batch_dim });
        }
        let has_no_batch = |at: usize| match states.iter().any(|(input, _)| *input == at) {
            true => batch_dims[at].is_none(),
            false => outline.inputs[at].lead != Lead::Batch,
        };
        let single = if let Some(at) = (0..in_ports.len()).find(|at| has_no_batch(*at)) {
            Some(format!("its input `{}` has no batch dim of its own", in_ports[at]))
        } else {
            // A model can declare a batch that it does not compute with, by a reshape to [1, …] somewhere inside.
            match trial(2) {
                Err(error) => Some(format!("a trial run on two items failed: {error}")),
                Ok(two) => (0..one.len())
                    .find(|at| {
                        let side = &outputs[*at];
                        side.batch_dim.is_none() || two[*at].1 != whole(&side.item, side.batch_dim, 2)
                    })
                    .map(|at| {
                        let (one, two) = (&one[at].1, &two[at].1);
                        format!("its output `{}` is {one:?} for one item and {two:?} for two", out_ports[at])
                    }),
            }
        };

        let mut signature = Signature { max_batch: single.as_ref().map(|_| 1), ..Signature::default() };
        for (at, input) in call.inputs.iter().enumerate() {
            if !states.iter().any(|(state, _)| *state == at) {
                signature.inputs.push(spec(&in_ports[at], input.elem.dtype(), &input.item));
            }
        }
        for (at, output) in outputs.iter().enumerate() {
            if input_of(at).is_none() {
                signature.outputs.push(spec(&out_ports[at], output.dtype, &output.item));
            }
        }
        signature.check()?;
        let (buckets, finite) = (model.buckets.clone(), model.finite);
        Ok(OnnxPrepared { loaded, shared, call, outputs, states, signature, single, buckets, finite, shadow: None })
    }

    /// Bytes of its files, and how many weights they hold.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.loaded.bytes, self.loaded.outline.parameters())
    }

    /// What compiling the model came to.
    pub(crate) fn compiled(&self) -> Option<Compiled> {
        self.loaded.runtime.compiled()
    }

    /// Threads inside one call.
    pub(crate) fn threads(&self) -> usize {
        self.call.threads
    }

    /// Every so often another backend is asked the same.
    pub(crate) fn shadowed(&mut self, shadow: ShadowPlan) {
        self.shadow = Some(shadow);
    }

    /// Why the model takes one item a call, where it does.
    pub fn single(&self) -> Option<&str> {
        self.single.as_deref()
    }

    /// The numbers of items to which batches of up to `max_batch` are padded; none where they are not.
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

/// Runs a model on zeros and says what comes out.
fn try_out<R: Runtime>(
    loaded: &Loaded<R>,
    shared: &R::Shared,
    call: &Call,
    batch: usize,
) -> Result<Vec<(DType, Vec<usize>)>, BackendError> {
    let mut found = vec![None; call.outputs.len()];
    let shapes: Vec<Vec<usize>> = call.inputs.iter().map(|input| input.shape(batch)).collect();
    let mut zeros = Vec::new();
    for (input, shape) in std::iter::zip(&call.inputs, &shapes) {
        let bytes = shape.iter().try_fold(input.elem.dtype().size(), |n, d| n.checked_mul(*d));
        let bytes = bytes.filter(|n| *n <= isize::MAX as usize / 8);
        let bytes = bytes.ok_or_else(|| BackendError::Unsupported(format!("an input of shape {shape:?}")))?;
        zeros.push((buffer(bytes), bytes));
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

/// Zeros, in 8-byte words, so that they are aligned for every dtype.
fn buffer(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
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
        let runner = self.loaded.runner(&self.shared, &call)?;
        let is_padded = !buckets.is_empty() && max_batch > 1;
        let inputs = call.inputs.iter().enumerate().map(|(at, input)| {
            let state = self.states.iter().position(|(state, _)| *state == at);
            let item_bytes = input.item.iter().product::<usize>() * input.elem.dtype().size();
            let room = if state.is_some() || is_padded { item_bytes * max_batch } else { 0 };
            Whole {
                port: self.loaded.outline.inputs[at].port.clone(),
                dtype: input.elem.dtype(),
                shape: input.shape(max_batch),
                item_bytes,
                batch_dim: input.batch_dim,
                state,
                buffer: buffer(room),
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

/// An input as a session gives it to its runner.
#[derive(Debug)]
struct Whole {
    port: String,
    dtype: DType,
    /// The batch is set for each call.
    shape: Vec<usize>,
    item_bytes: usize,
    batch_dim: Option<usize>,
    /// Which state it is, where it is none of the node's inputs.
    state: Option<usize>,
    /// A batch that is padded, or put together from lanes; without room where neither is.
    buffer: Vec<u64>,
}

impl Whole {
    /// Of a call with so many items.
    fn bytes(&self, size: usize) -> usize {
        self.item_bytes * if self.batch_dim.is_some() { size } else { 1 }
    }

    /// Bytes that follow each other in one item, where others of the batch come between; and how often they do.
    fn strides(&self) -> (usize, usize) {
        let pieces = self.shape[..self.batch_dim.unwrap_or_default()].iter().product::<usize>().max(1);
        (self.item_bytes / pieces, pieces)
    }
}

/// The state of one stream; that of its beginning is zeros.
#[derive(Clone, Debug, Default)]
pub struct OnnxLane {
    states: Vec<Vec<u8>>,
}

/// A model on one thread. Inputs are read where they lie, unless they are padded; outputs are copied out of the runtime.
pub struct OnnxSession<R: Runtime> {
    runner: Guarded<R::Runner>,
    /// All inputs of the model, states among them.
    inputs: Vec<Whole>,
    /// All outputs of the model, and which state each is.
    outputs: Vec<(Side, Option<usize>)>,
    /// What a call leaves as states: kept apart until all of it has succeeded.
    next: Vec<Vec<u64>>,
    /// The numbers of items a call may have, rising; any where there are none.
    buckets: Vec<usize>,
    loaded: Arc<Loaded<R>>,
    finite: bool,
    shadow: Option<Shadow>,
}

impl<R: Runtime> std::fmt::Debug for OnnxSession<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxSession").field("runtime", &R::NAME).field("buckets", &self.buckets).finish()
    }
}

impl<R: Runtime> Session for OnnxSession<R> {
    type Lane = OnnxLane;

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let states = self.next.len();
        if inputs.len() + states != self.inputs.len() || outputs.len() + states != self.outputs.len() {
            let (i, o) = (inputs.len(), outputs.len());
            return Err(BackendError::Call(format!("{i} inputs and {o} outputs are not those of the model")));
        }
        if batch == 0 {
            return Err(BackendError::Call("a batch of no items".into()));
        }
        if states > 0 && lanes.len() != batch {
            let lanes = lanes.len();
            return Err(BackendError::Call(format!("{batch} items of {lanes} streams; a state goes with one each")));
        }
        let is_compared = self.shadow.as_mut().is_some_and(|shadow| shadow.is_due(lanes));
        // The least number of items that was compiled and is enough.
        let size = match self.buckets.iter().find(|size| **size >= batch) {
            Some(size) => *size,
            None if self.buckets.is_empty() => batch,
            None => return Err(BackendError::Call(format!("a batch of {batch} is more than was planned"))),
        };
        let mut given = inputs.iter();
        for input in &mut self.inputs {
            if let Some(dim) = input.batch_dim {
                input.shape[dim] = size;
            }
            match input.state {
                Some(state) => gather(input, state, size, lanes),
                None => {
                    let given = given.next().map_or(&[][..], |given| given.bytes);
                    if self.finite {
                        guard("input", &input.port, input.dtype, given)?;
                    }
                    pad(input, given, batch, size)?;
                }
            }
        }
        let mut given = inputs.iter();
        let mut whole = arrayvec::ArrayVec::<BatchRef<'_>, { 2 * limen::MAX_PORTS }>::new();
        for input in &self.inputs {
            let is_padded = size != batch && input.batch_dim.is_some();
            let given = if input.state.is_none() { given.next() } else { None };
            let bytes = match given {
                Some(given) if !is_padded => given.bytes,
                _ => &bytemuck::cast_slice(&input.buffer)[..input.bytes(size)],
            };
            whole.push(BatchRef { dtype: input.dtype, shape: &input.shape, bytes });
        }
        let (sides, next, finite, mut came) = (&self.outputs, &mut self.next, self.finite, 0);
        self.runner.run(size, &whole, &mut |at, output| {
            let Some((side, state)) = sides.get(at) else { return Ok(()) };
            check(side, size, output)?;
            if finite {
                guard("output", &side.port, side.dtype, output.bytes)?;
            }
            came += 1;
            match state {
                Some(state) => {
                    let into: &mut [u8] = bytemuck::cast_slice_mut(&mut next[*state]);
                    into[..output.bytes.len()].copy_from_slice(output.bytes);
                    Ok(())
                }
                None => {
                    let port = at - sides[..at].iter().filter(|(_, state)| state.is_some()).count();
                    copy(side, batch, output, &mut outputs[port])
                }
            }
        })?;
        if came != sides.len() {
            return Err(BackendError::Call(format!("{came} of {} outputs came", sides.len())));
        }
        for input in &self.inputs {
            if let Some(state) = input.state {
                scatter(input, state, size, bytemuck::cast_slice(&self.next[state]), lanes);
            }
        }
        if let Some(shadow) = self.shadow.as_mut().filter(|_| is_compared) {
            shadow.compare(batch, inputs, outputs);
        }
        Ok(())
    }

    fn figures(&self, metrics: &mut Metrics) {
        if let Some(compiled) = self.loaded.runtime.compiled() {
            metrics.set("compiled", compiled.compiled as f64);
            metrics.set("compile_ms", compiled.compile_ns as f64 / 1e6);
            metrics.set("compile_hits", compiled.hits as f64);
            metrics.set("compile_from_disk", compiled.from_disk as f64);
            metrics.set("compile_evicted", compiled.evicted as f64);
        }
        if let Some(shadow) = &self.shadow {
            shadow.figures(metrics);
        }
    }

    fn metadata(&self) -> SessionMetadata {
        let copied_out = self.outputs.iter().map(|(side, _)| side.item_bytes()).sum();
        let buffers =
            self.inputs.iter().map(|input| input.buffer.len()).chain(self.next.iter().map(Vec::len)).sum::<usize>();
        SessionMetadata { copied_out, memory: self.loaded.bytes + 8 * buffers as u64, ..self.runner.runner.metadata() }
    }
}

/// Checks an input of a call; where fewer items came than the call has, puts it into the buffer with zeros behind it.
fn pad(input: &mut Whole, given: &[u8], batch: usize, size: usize) -> Result<(), BackendError> {
    let (takes, total) = (input.bytes(batch), input.bytes(size));
    if given.len() != takes {
        let has = given.len();
        return Err(BackendError::Call(format!("input `{}` has {has} bytes; {batch} items take {takes}", input.port)));
    }
    if total != takes {
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut input.buffer);
        let (used, rest) = buffer[..total].split_at_mut(takes);
        used.copy_from_slice(given);
        // What was there could be anything, also what makes a kernel slow.
        rest.fill(0);
    }
    Ok(())
}

/// Puts the states of all lanes into the buffer of one input.
fn gather(input: &mut Whole, state: usize, size: usize, lanes: &[OnnxLane]) {
    let (piece, pieces) = input.strides();
    let (total, size) = (input.bytes(size), if input.batch_dim.is_some() { size } else { 1 });
    let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut input.buffer);
    buffer[..total].fill(0);
    for (lane, values) in lanes.iter().enumerate() {
        let Some(values) = values.states.get(state) else { continue };
        for (n, values) in values.chunks_exact(piece.max(1)).enumerate().take(pieces) {
            let to = (n * size + lane) * piece;
            buffer[to..to + piece].copy_from_slice(values);
        }
    }
}

/// What came out as a state, lane by lane.
fn scatter(input: &Whole, state: usize, size: usize, from: &[u8], lanes: &mut [OnnxLane]) {
    let size = if input.batch_dim.is_some() { size } else { 1 };
    let (piece, _) = input.strides();
    for (lane, values) in lanes.iter_mut().enumerate() {
        if values.states.len() <= state {
            values.states.resize(state + 1, Vec::new());
        }
        let values = &mut values.states[state];
        values.resize(input.item_bytes, 0);
        for (n, values) in values.chunks_exact_mut(piece.max(1)).enumerate() {
            let at = (n * size + lane) * piece;
            values.copy_from_slice(&from[at..at + piece]);
        }
    }
}

/// Refuses what is no finite number.
fn guard(side: &str, port: &str, dtype: DType, bytes: &[u8]) -> Result<(), BackendError> {
    let access = Access::to(dtype);
    if access.holds_only_whole() {
        return Ok(());
    }
    match access.values(bytes).position(|value| !value.is_finite()) {
        Some(at) => {
            let value = access.values(bytes).nth(at).unwrap_or(f64::NAN);
            Err(BackendError::Call(format!("{side} `{port}` holds {value} at element {at}, under `guard: finite`")))
        }
        None => Ok(()),
    }
}

/// Whether an output is what was planned.
fn check(side: &Side, size: usize, output: BatchRef<'_>) -> Result<(), BackendError> {
    if output.dtype != side.dtype {
        return Err(BackendError::Call(format!("an output came as {}, not {}", output.dtype, side.dtype)));
    }
    let planned = whole(&side.item, side.batch_dim, size);
    if output.shape != planned || output.bytes.len() != planned.iter().product::<usize>() * side.dtype.size() {
        let shape = output.shape;
        return Err(BackendError::Call(format!("an output came out as {shape:?}; {planned:?} was planned")));
    }
    Ok(())
}

/// Copies the items of an output that are no padding.
fn copy(side: &Side, batch: usize, output: BatchRef<'_>, into: &mut BatchMut<'_>) -> Result<(), BackendError> {
    let used = if side.batch_dim.is_some() { batch } else { 1 } * side.item_bytes();
    if into.dtype != side.dtype || into.bytes.len() != used {
        let (has, dtype) = (into.bytes.len(), into.dtype);
        return Err(BackendError::Call(format!("{used} bytes of {} came, for {has} of {dtype}", side.dtype)));
    }
    into.bytes.copy_from_slice(&output.bytes[..used]);
    Ok(())
}
