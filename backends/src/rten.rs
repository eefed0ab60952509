//! ONNX models on the CPU, through rten: pure Rust, nothing to install.
//!
//! # Element types
//! rten knows `f32`, `i32`, `i8` and `u8`. A model's `i64` and `bool` inputs and outputs travel as `i32`, and `f64` as
//! `f32`: those are the types of the node's ports, and values beyond them are lost.
//!
//! # Shapes
//! The first dim of an input is its batch when it is symbolic, or when it is 1 (then one item a call is all the model
//! takes). Other symbolic dims get their lengths from what is connected. The shapes of the outputs are found by a trial
//! run on zeros; a second one, on two items, proves that the first dim of every output is the batch. A call whose
//! outputs come out in another shape fails: outputs whose shape depends on values are not supported.
//!
//! # Threads
//! rten runs every call in a thread pool, also when that has a single thread: a call from elsewhere is handed over and
//! waited for. On the 2-core reference VM an empty call so costs 6–10 µs back to back and 34–38 µs at one call a
//! millisecond, when the pool's thread sleeps on another core. So a session with one thread makes its pool on the thread
//! that will call it, where it inherits that thread's core: 6–10 and 12–14 µs. Nothing is handed over (0.05–0.1 µs) on a
//! thread that is a pool's own: [`on_rten_thread`] makes one. Sessions with more threads share a pool that is made while
//! planning, before anything is pinned.
//!
//! rten also starts a pool for the whole process, as large as the machine has cores, when it first loads or runs a model.
//! It sleeps; `RTEN_NUM_THREADS=1` makes it small.

pub(crate) mod loaded;
mod onnx;

use ::rten::{NodeId, ThreadPool, Value, ValueOrView, ValueType, ValueView};
use bytemuck::Pod;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Prepared, Session, SessionMetadata, Signature, TensorSpec,
};
use limen::{DType, Dim, MAX_RANK, Memory};
use loaded::{Lead, Loaded, dtype_of};
use rten_tensor::prelude::*;
use rten_tensor::{Tensor, TensorView};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// The backend `rten`.
#[derive(Debug)]
pub struct Rten;

/// Where a model comes from and how it shall run.
#[derive(Clone, Debug, Default)]
pub struct RtenModel {
    /// Its file. Weights in files beside it (`model.onnx.data`) are found by its name.
    pub path: PathBuf,
    /// The content of the file, where it is not to be read from `path`.
    pub bytes: Option<Vec<u8>>,
    /// Threads inside one call; 0 is taken as 1.
    pub threads: usize,
    /// Shapes of one item by input, where they are known: they bind the symbolic dims.
    pub shapes: BTreeMap<String, Vec<usize>>,
}

impl Backend for Rten {
    const NAME: &'static str = "rten";
    type Model = RtenModel;
    type Prepared = RtenPrepared;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities {
            dtypes: vec![DType::F32, DType::I32, DType::I8, DType::U8],
            max_batch: None,
            max_rank: MAX_RANK,
            memory: vec![Memory::Host],
            version: "rten 0.27".into(),
        })
    }

    fn prepare(model: RtenModel) -> Result<RtenPrepared, BackendError> {
        let loaded = match model.bytes {
            Some(bytes) => Arc::new(Loaded::parse(&model.path, bytes)?),
            None => Loaded::open(&model.path)?,
        };
        let bound = loaded.bind(&model.shapes).map_err(|unbound| {
            let all: Vec<_> = unbound.iter().map(|u| format!("input `{}`: {}", u.input, u.why)).collect();
            BackendError::Unsupported(all.join("; "))
        })?;
        RtenPrepared::new(loaded, bound, model.threads)
    }
}

/// An input or output with everything known.
#[derive(Clone, Debug)]
struct Side {
    id: NodeId,
    item: Vec<usize>,
    /// Whether the batch comes before the item's dims.
    batched: bool,
}

impl Side {
    /// The shape the model sees.
    fn shape(&self, batch: usize) -> Vec<usize> {
        self.batched.then_some(batch).into_iter().chain(self.item.iter().copied()).collect()
    }
}

/// A loaded model whose shapes are known.
pub struct RtenPrepared {
    loaded: Arc<Loaded>,
    inputs: Vec<Side>,
    outputs: Vec<Side>,
    signature: Signature,
    single: Option<String>,
    threads: usize,
    pool: Option<Arc<ThreadPool>>,
}

impl std::fmt::Debug for RtenPrepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtenPrepared").field("signature", &self.signature).field("threads", &self.threads).finish()
    }
}

impl RtenPrepared {
    /// Tries the model out on zeros, to learn the shapes of its outputs and whether it takes batches.
    pub(crate) fn new(loaded: Arc<Loaded>, items: Vec<Vec<usize>>, threads: usize) -> Result<Self, BackendError> {
        let threads = threads.max(1);
        let pool = (threads > 1).then(|| Arc::new(ThreadPool::with_num_threads(threads)));
        let trial_pool = pool.clone().unwrap_or_else(own_pool);
        let inputs: Vec<Side> = std::iter::zip(&loaded.inputs, items)
            .map(|(declared, item)| Side { id: declared.id, item, batched: declared.lead != Lead::None })
            .collect();
        let ids: Vec<NodeId> = loaded.outputs.iter().map(|(id, _)| *id).collect();
        let trial = |batch: usize| -> Result<Vec<(DType, Vec<usize>)>, BackendError> {
            let zeros = std::iter::zip(&inputs, &loaded.inputs)
                .map(|(side, declared)| Ok((side.id, zeros(declared.dtype, &side.shape(batch))?)))
                .collect::<Result<_, BackendError>>()?;
            let values = loaded.run(zeros, &ids, &trial_pool)?;
            std::iter::zip(values, &loaded.outputs)
                .map(|(value, (_, name))| {
                    match value.dtype() {
                        ValueType::Tensor(dtype) => dtype_of(dtype).map(|dtype| (dtype, value.shape().to_vec())),
                        _ => None,
                    }
                    .ok_or_else(|| {
                        BackendError::Unsupported(format!("output `{name}` is not a tensor that a port can carry"))
                    })
                })
                .collect()
        };

        let one = trial(1).map_err(|e| BackendError::Unsupported(format!("a trial run on zeros failed: {e}")))?;
        let knows_batches = inputs.iter().any(|side| side.batched);
        let single = if let Some(input) = loaded.inputs.iter().find(|d| d.lead != Lead::Batch) {
            Some(format!("its input `{}` has no batch dim of its own", input.name))
        } else {
            // A model can declare a batch that it does not compute with, by a reshape to [1, …] somewhere inside.
            match trial(2) {
                Err(error) => Some(format!("a trial run on two items failed: {error}")),
                Ok(two) => (0..one.len())
                    .find(|i| {
                        one[*i].1.first() != Some(&1)
                            || two[*i].1.first() != Some(&2)
                            || one[*i].1[1..] != two[*i].1[1..]
                    })
                    .map(|i| {
                        let (name, one, two) = (&loaded.outputs[i].1, &one[i].1, &two[i].1);
                        format!("its output `{name}` is {one:?} for one item and {two:?} for two")
                    }),
            }
        };

        let mut signature = Signature { max_batch: single.as_ref().map(|_| 1), ..Signature::default() };
        for (side, declared) in std::iter::zip(&inputs, &loaded.inputs) {
            signature.inputs.push(spec(&declared.name, declared.dtype, &side.item));
        }
        let mut outputs = Vec::new();
        for ((dtype, shape), (id, name)) in std::iter::zip(one, &loaded.outputs) {
            let batched = knows_batches && shape.first() == Some(&1);
            let item = if batched { shape[1..].to_vec() } else { shape };
            if item.len() > MAX_RANK || item.contains(&0) {
                let why =
                    format!("output `{name}` came out as {item:?}; from 0 to {MAX_RANK} dims, none of length 0, fit");
                return Err(BackendError::Unsupported(why));
            }
            signature.outputs.push(spec(name, dtype, &item));
            outputs.push(Side { id: *id, item, batched });
        }
        signature.check()?;
        Ok(RtenPrepared { loaded, inputs, outputs, signature, single, threads, pool })
    }

    /// Why the model takes one item a call, where it does.
    pub fn single(&self) -> Option<&str> {
        self.single.as_deref()
    }
}

fn spec(name: &str, dtype: DType, item: &[usize]) -> TensorSpec {
    TensorSpec { name: name.to_string(), dtype, shape: item.iter().copied().map(Dim::Fixed).collect() }
}

fn zeros(dtype: DType, shape: &[usize]) -> Result<ValueOrView<'static>, BackendError> {
    let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= isize::MAX as usize / 8);
    let elements = elements.ok_or_else(|| BackendError::Unsupported(format!("an input of shape {shape:?}")))?;
    let value = match dtype {
        DType::F32 => Value::from_shape(shape, vec![0f32; elements]).map_err(BackendError::call),
        DType::I32 => Value::from_shape(shape, vec![0i32; elements]).map_err(BackendError::call),
        DType::I8 => Value::from_shape(shape, vec![0i8; elements]).map_err(BackendError::call),
        _ => Value::from_shape(shape, vec![0u8; elements]).map_err(BackendError::call),
    };
    value.map(ValueOrView::Value)
}

thread_local! {
    /// The pool of this thread's one-thread sessions: its own where the thread is a pool's, else one on its core.
    static OWN: RefCell<Weak<ThreadPool>> = const { RefCell::new(Weak::new()) };
}

/// The pool for one-thread sessions on this thread, shared by all of them.
fn own_pool() -> Arc<ThreadPool> {
    OWN.with_borrow_mut(|own| {
        own.upgrade().unwrap_or_else(|| {
            let pool = Arc::new(ThreadPool::with_num_threads(1));
            *own = Arc::downgrade(&pool);
            pool
        })
    })
}

/// Runs `body` on a thread of its own, on which one-thread sessions run without handing their calls to another: an
/// empty call costs 0.1 µs there instead of 10 µs and more. The calling thread waits until `body` ends.
///
/// For threads that live to run models: an engine's worker, or a program that drives a graph itself. What `body` does to
/// its thread (pinning, priority) is done to the thread that runs the model.
///
/// # Panics
/// When `body` does.
pub fn on_rten_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    let pool = Arc::new(ThreadPool::with_num_threads(1));
    pool.run(|| {
        OWN.set(Arc::downgrade(&pool));
        body()
    })
}

impl Prepared for RtenPrepared {
    type Session = RtenSession;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, max_batch: usize) -> Result<RtenSession, BackendError> {
        if let Some(most) = self.signature.max_batch.filter(|most| max_batch > *most) {
            let why = self.single.as_deref().unwrap_or_default();
            return Err(BackendError::Unsupported(format!("batches of {max_batch}: the model takes {most}, {why}")));
        }
        let copied_out = self
            .signature
            .outputs
            .iter()
            .zip(&self.outputs)
            .map(|(spec, side)| side.item.iter().product::<usize>() * spec.dtype.size());
        Ok(RtenSession {
            loaded: self.loaded.clone(),
            pool: self.pool.clone().unwrap_or_else(own_pool),
            shapes: self.inputs.iter().map(|side| side.shape(max_batch.max(1))).collect(),
            ids: self.outputs.iter().map(|side| side.id).collect(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            metadata: SessionMetadata {
                device: "cpu".into(),
                threads: self.threads,
                copied_in: 0,
                copied_out: copied_out.sum(),
            },
        })
    }
}

/// A model on one thread. Inputs are read where they lie; outputs are copied out of rten's buffers.
pub struct RtenSession {
    loaded: Arc<Loaded>,
    pool: Arc<ThreadPool>,
    inputs: Vec<Side>,
    outputs: Vec<Side>,
    /// Shape of each input; the first dim of the batched ones is set for each call.
    shapes: Vec<Vec<usize>>,
    ids: Vec<NodeId>,
    metadata: SessionMetadata,
}

impl std::fmt::Debug for RtenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtenSession").field("shapes", &self.shapes).field("metadata", &self.metadata).finish()
    }
}

impl Session for RtenSession {
    type Lane = ();

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        if inputs.len() != self.inputs.len() || outputs.len() != self.outputs.len() {
            let (i, o) = (inputs.len(), outputs.len());
            return Err(BackendError::Call(format!("{i} inputs and {o} outputs are not those of the model")));
        }
        let mut values = Vec::with_capacity(inputs.len());
        for ((input, side), shape) in inputs.iter().zip(&self.inputs).zip(&mut self.shapes) {
            if side.batched {
                shape[0] = batch;
            }
            let value = match input.dtype {
                DType::F32 => value::<f32>(shape, input.bytes),
                DType::I32 => value::<i32>(shape, input.bytes),
                DType::I8 => value::<i8>(shape, input.bytes),
                DType::U8 => value::<u8>(shape, input.bytes),
                other => Err(BackendError::Unsupported(format!("elements of type {other}"))),
            }?;
            values.push((side.id, value));
        }
        let results = self.loaded.run(values, &self.ids, &self.pool)?;
        for ((result, output), side) in results.iter().zip(outputs).zip(&self.outputs) {
            let bytes = &mut *output.bytes;
            match (result.as_view(), output.dtype) {
                (ValueView::FloatTensor(tensor), DType::F32) => copy(&tensor, side, batch, bytes),
                (ValueView::Int32Tensor(tensor), DType::I32) => copy(&tensor, side, batch, bytes),
                (ValueView::Int8Tensor(tensor), DType::I8) => copy(&tensor, side, batch, bytes),
                (ValueView::UInt8Tensor(tensor), DType::U8) => copy(&tensor, side, batch, bytes),
                (other, planned) => {
                    Err(BackendError::Call(format!("an output came as {}, not {planned}", other.dtype())))
                }
            }?;
        }
        Ok(())
    }

    fn metadata(&self) -> SessionMetadata {
        self.metadata.clone()
    }
}

/// A batch as rten takes it: where it lies if that is aligned, as the engine's buffers are, else a copy.
fn value<'a, T: Pod>(shape: &[usize], bytes: &'a [u8]) -> Result<ValueOrView<'a>, BackendError>
where
    ValueView<'a>: From<TensorView<'a, T>>,
    Value: From<Tensor<T>>,
{
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => ValueView::from_shape(shape, elements).map(ValueOrView::View).map_err(BackendError::call),
        Err(_) if bytes.len().is_multiple_of(size_of::<T>()) => {
            let elements: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
            Value::from_shape(shape, elements).map(ValueOrView::Value).map_err(BackendError::call)
        }
        Err(e) => Err(BackendError::call(e)),
    }
}

fn copy<T: Pod>(tensor: &TensorView<'_, T>, side: &Side, batch: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
    let shape = tensor.shape();
    let (lead, item) = if side.batched { shape.split_at(shape.len().min(1)) } else { shape.split_at(0) };
    let fits = item == side.item && (!side.batched || lead == [batch]);
    if !fits || bytes.len() != size_of::<T>() * tensor.len() {
        let planned = side.shape(batch);
        return Err(BackendError::Call(format!("an output came out as {shape:?}; {planned:?} was planned")));
    }
    match tensor.data() {
        Some(dense) => bytes.copy_from_slice(bytemuck::cast_slice(dense)),
        None => bytes.copy_from_slice(bytemuck::cast_slice(&tensor.to_vec())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caught;
    use crate::verify::{Case, Tolerance};
    use rten_onnx::onnx;
    use rten_onnx::onnx::DataType as D;
    use std::path::Path;

    const STRICT: Tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };
    const MODELS: [&str; 3] = ["digits/digits", "classify/classifier", "detect/detector"];

    fn graphs(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs").join(path)
    }

    fn prepare(path: &str) -> RtenPrepared {
        Rten::prepare(RtenModel { path: graphs(path), ..RtenModel::default() }).unwrap()
    }

    fn prepare_bytes(bytes: Vec<u8>, shapes: &[(&str, &[usize])]) -> Result<RtenPrepared, BackendError> {
        let shapes = shapes.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect();
        Rten::prepare(RtenModel { path: "model.onnx".into(), bytes: Some(bytes), threads: 1, shapes })
    }

    fn case_of(model: &str) -> Case {
        Case::read(&graphs(model).with_file_name("verify.npz")).unwrap()
    }

    type Io<'a> = (&'a str, onnx::DataType, &'a [&'a str]);

    fn io((name, dtype, dims): &Io<'_>) -> onnx::ValueInfoProto {
        let dim = |text: &&str| match text.parse() {
            Ok(length) => onnx::Dimension { dim_value: Some(length), ..Default::default() },
            Err(_) => onnx::Dimension { dim_param: Some(text.to_string()), ..Default::default() },
        };
        let shape = onnx::TensorShapeProto { dim: dims.iter().map(dim).collect() };
        let tensor = onnx::TypeProtoTensor { elem_type: Some(*dtype), shape: Some(shape) };
        let kind = onnx::TypeProto { tensor_type: Some(tensor), ..Default::default() };
        onnx::ValueInfoProto { name: Some(name.to_string()), r#type: Some(kind) }
    }

    fn floats(name: &str, dims: &[i64], data: &[f32]) -> onnx::TensorProto {
        onnx::TensorProto {
            name: Some(name.into()),
            dims: dims.to_vec(),
            data_type: Some(onnx::DataType::FLOAT),
            float_data: data.to_vec(),
            ..Default::default()
        }
    }

    fn ints(name: &str, data: &[i64]) -> onnx::TensorProto {
        onnx::TensorProto {
            name: Some(name.into()),
            dims: vec![data.len() as i64],
            data_type: Some(onnx::DataType::INT64),
            int64_data: data.to_vec(),
            ..Default::default()
        }
    }

    /// The file of a small model. Nodes are written `y = Op a b`.
    fn model(inputs: &[Io<'_>], outputs: &[Io<'_>], weights: &[onnx::TensorProto], nodes: &[&str]) -> Vec<u8> {
        let node = |text: &&str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
            onnx::NodeProto {
                name: Some(words[0].clone()),
                output: vec![words[0].clone()],
                op_type: Some(words[2].clone()),
                input: words[3..].to_vec(),
                ..Default::default()
            }
        };
        let graph = onnx::GraphProto {
            node: nodes.iter().map(node).collect(),
            initializer: weights.to_vec(),
            input: inputs.iter().map(io).collect(),
            output: outputs.iter().map(io).collect(),
            ..Default::default()
        };
        let opset = onnx::OperatorSetIdProto { version: Some(18), ..Default::default() };
        let model = onnx::ModelProto {
            ir_version: Some(10),
            graph: Some(graph),
            opset_import: vec![opset],
            ..Default::default()
        };
        model.write_buf().unwrap()
    }

    /// Runs a session with one f32 input and one f32 output.
    fn call(
        session: &mut RtenSession,
        batch: usize,
        x: &[u8],
        item: &[usize],
        y: &mut [f32],
    ) -> Result<(), BackendError> {
        let input = BatchRef { dtype: DType::F32, shape: item, bytes: x };
        let output = BatchMut { dtype: DType::F32, shape: &[], bytes: bytemuck::cast_slice_mut(y) };
        session.infer_batch(batch, &[input], &mut [output], &mut [()])
    }

    #[test]
    fn the_shipped_models_have_their_signatures() {
        let shown = |model: &str| {
            let prepared = prepare(&format!("{model}.onnx"));
            let signature = prepared.signature();
            assert_eq!((signature.max_batch, prepared.single()), (None, None));
            let sides = signature.inputs.iter().chain(&signature.outputs);
            let text = |s: &TensorSpec| format!("{} {}", s.name, limen::PortSpec::new(s.dtype, s.shape.clone()));
            sides.map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(MODELS[0]), "image f32[1,8,8], logits f32[10]");
        assert_eq!(shown(MODELS[1]), "image f32[3,224,224], logits f32[100]");
        assert_eq!(shown(MODELS[2]), "image f32[3,192,256], scores f32[768,3], boxes f32[768,4]");
    }

    #[test]
    fn the_shipped_models_give_the_recorded_numbers() {
        for (model, items) in MODELS.into_iter().zip([8, 1, 1]) {
            let prepared = prepare(&format!("{model}.onnx"));
            for batch in [1, 3, 8] {
                assert_eq!(case_of(model).check(&prepared, batch, STRICT).unwrap(), items, "{model} {batch}");
            }
        }
    }

    #[test]
    fn other_numbers_than_recorded_are_named() {
        let exact = Tolerance { atol: 0.0, rtol: 0.0 };
        let wrong = case_of(MODELS[0]).check(&prepare("digits/digits.onnx"), 8, exact).unwrap_err();
        let text = wrong[0].to_string();
        assert!(text.starts_with("output `logits` differs from what was recorded: at ["), "{text}");
        assert!(text.contains("apart where 0 is allowed (atol 0, rtol 0)") && text.contains("of 80 numbers"), "{text}");
    }

    #[test]
    fn a_batch_of_eight_is_eight_batches_of_one() {
        let prepared = prepare("digits/digits.onnx");
        let pixels: Vec<f32> = (0..8 * 64).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
        let mut session = prepared.session(8).unwrap();
        let mut together = [0f32; 80];
        call(&mut session, 8, bytemuck::cast_slice(&pixels), &[1, 8, 8], &mut together).unwrap();
        for (image, batched) in pixels.chunks(64).zip(together.chunks(10)) {
            let mut alone = [0f32; 10];
            let output = BatchMut { dtype: DType::F32, shape: &[10], bytes: bytemuck::cast_slice_mut(&mut alone) };
            let input = BatchRef { dtype: DType::F32, shape: &[1, 8, 8], bytes: bytemuck::cast_slice(image) };
            session.infer_one(&[input], &mut [output], &mut ()).unwrap();
            // Kernels may sum in another order for another batch.
            assert!(std::iter::zip(alone, batched).all(|(a, b)| (a - b).abs() < 1e-5), "{alone:?} {batched:?}");
        }
    }

    #[test]
    fn a_model_that_is_cut_short_is_an_error() {
        for model in MODELS {
            let bytes = std::fs::read(graphs(&format!("{model}.onnx"))).unwrap();
            for tenth in 0..10 {
                let cut = bytes[..bytes.len() * tenth / 10].to_vec();
                let error = prepare_bytes(cut, &[]).unwrap_err().to_string();
                assert!(error.starts_with("not a readable model: "), "{model} {tenth}: {error}");
                let what =
                    if tenth == 0 { "an empty file" } else { "an ONNX model that is cut short or damaged: at byte" };
                assert!(error.contains(what), "{model} {tenth}: {error}");
            }
        }
    }

    /// Without `onnx::check`, rten loops for ever on some of these and has the process aborted on others.
    #[test]
    fn damaged_models_are_errors_or_models() {
        let bytes = std::fs::read(graphs("digits/digits.onnx")).unwrap();
        // A small generator of its own, so that a failure can be repeated.
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        // Most of the file are weights, which cannot be wrong; names mark where its structure is.
        let named: Vec<usize> =
            (0..bytes.len() - 6).filter(|i| bytes[*i..*i + 6].iter().all(u8::is_ascii_graphic)).collect();
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            for _ in 0..=random(3) {
                let at = (named[random(named.len())] + random(40)).saturating_sub(20);
                damaged[at] = if random(2) == 0 { random(256) as u8 } else { damaged[at] ^ 1 << random(8) };
            }
            let _ = prepare_bytes(damaged, &[]);
        }
    }

    #[test]
    fn what_is_not_a_model_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, what) in [
            (&b"nodes:\n  camera:\n"[..], "this is text, not an ONNX model"),
            (b"", "this is an empty file"),
            (b"\x89PNG\r\n\x1a\n", "this is a PNG image"),
            (b"PK\x03\x04abc", "this is a zip archive, as PyTorch"),
            (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
            (&[1, 2, 3, 4, 0, 0, 0, 0, 9], "this is not an ONNX model"),
        ] {
            let path = folder.path().join("model.onnx");
            std::fs::write(&path, bytes).unwrap();
            let error = Loaded::open(&path).err().unwrap().to_string();
            assert!(error.contains(what), "{what}: {error}");
        }
        for (path, what) in [(folder.path().join("none.onnx"), "No such file"), (folder.path().into(), "not a file")] {
            let error = Loaded::open(&path).err().unwrap().to_string();
            assert!(error.contains(what), "{what}: {error}");
        }
    }

    #[test]
    fn symbolic_dims_get_their_lengths_from_what_is_connected() {
        let bytes = model(
            &[("a", D::FLOAT, &["n", "h", "w"]), ("b", D::FLOAT, &["n", "h", "w"])],
            &[("y", D::FLOAT, &["n", "h", "w"])],
            &[],
            &["y = Add a b"],
        );
        let bound = prepare_bytes(bytes.clone(), &[("a", &[2, 3])]).unwrap();
        assert_eq!(bound.signature().inputs[1].shape, [Dim::Fixed(2), Dim::Fixed(3)]);
        assert_eq!(bound.signature().outputs[0].shape, [Dim::Fixed(2), Dim::Fixed(3)]);
        assert_eq!(bound.signature().max_batch, None);
        for (shapes, why) in [
            (&[][..], "input `a`: dim `h` of f32[h,w] has no length: connect an input whose shape is fixed"),
            (&[("a", &[2, 3][..]), ("b", &[2, 4])], "input `b`: dim `w` is 4 here and 3 at `a`"),
            (&[("a", &[2][..])], "input `a`: one item is f32[h,w]; what is connected is [2]"),
        ] {
            let error = prepare_bytes(bytes.clone(), shapes).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn a_batch_that_is_not_one_is_found_out() {
        // The model says `n` and computes with 1.
        let reshaped = model(
            &[("x", D::FLOAT, &["n", "4"])],
            &[("y", D::FLOAT, &["n", "4"])],
            &[ints("shape", &[1, 4])],
            &["y = Reshape x shape"],
        );
        let prepared = prepare_bytes(reshaped, &[]).unwrap();
        assert_eq!(prepared.signature().max_batch, Some(1));
        assert!(prepared.single().unwrap().contains("a trial run on two items failed"), "{:?}", prepared.single());
        let error = prepared.session(2).unwrap_err().to_string();
        assert!(error.contains("the model takes 1, a trial run"), "{error}");
        // The batch of the output comes last.
        let turned = model(&[("x", D::FLOAT, &["n", "4"])], &[("y", D::FLOAT, &["4", "n"])], &[], &["y = Transpose x"]);
        let prepared = prepare_bytes(turned, &[]).unwrap();
        assert_eq!(prepared.single(), Some("its output `y` is [4, 1] for one item and [4, 2] for two"));
        assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(4), Dim::Fixed(1)]);
    }

    #[test]
    fn fixed_and_missing_batch_dims_take_one_item() {
        let fixed = model(&[("x", D::FLOAT, &["1", "4"])], &[("y", D::FLOAT, &["1", "4"])], &[], &["y = Relu x"]);
        let prepared = prepare_bytes(fixed, &[]).unwrap();
        assert_eq!((prepared.signature().max_batch, &*prepared.outputs[0].item), (Some(1), &[4][..]));
        let mut y = [9f32; 4];
        let x: [f32; 4] = [1.0, -1.0, 2.0, -2.0];
        call(&mut prepared.session(1).unwrap(), 1, bytemuck::cast_slice(&x), &[4], &mut y).unwrap();
        assert_eq!(y, [1.0, 0.0, 2.0, 0.0]);

        let none = model(
            &[("x", D::FLOAT, &["4"]), ("scale", D::FLOAT, &[])],
            &[("y", D::FLOAT, &["4"])],
            &[],
            &["y = Mul x scale"],
        );
        let prepared = prepare_bytes(none, &[]).unwrap();
        assert_eq!(prepared.single(), Some("its input `x` has no batch dim of its own"));
        assert_eq!(prepared.signature().inputs[1].shape, []);
        assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(4)]);
    }

    #[test]
    fn wide_integers_travel_as_i32_and_names_become_ports() {
        let bytes = model(
            &[("Input.1", D::INT64, &["n", "2"])],
            &[("out:0", D::INT64, &["n", "2"])],
            &[],
            &["out:0 = Neg Input.1"],
        );
        let prepared = prepare_bytes(bytes, &[]).unwrap();
        let input = &prepared.signature().inputs[0];
        assert_eq!((&*input.name, input.dtype), ("input_1", DType::I32));
        let output = &prepared.signature().outputs[0];
        assert_eq!((&*output.name, output.dtype), ("out_0", DType::I32));
        let twice = [("x", D::FLOAT, &["n"][..]), ("X", D::FLOAT, &["n"])];
        let error = prepare_bytes(model(&twice, &[("y", D::FLOAT, &["n"])], &[], &["y = Add x X"]), &[]).unwrap_err();
        assert!(error.to_string().contains("would both be port `x`"), "{error}");
    }

    #[test]
    fn operators_that_do_not_exist_are_named() {
        let bytes = model(&[("x", D::FLOAT, &["n"])], &[("y", D::FLOAT, &["n"])], &[], &["y = Frobnicate x"]);
        let error = prepare_bytes(bytes, &[]).unwrap_err();
        assert!(matches!(&error, BackendError::Unsupported(why) if why.contains("Frobnicate")), "{error}");
    }

    #[test]
    fn outputs_whose_shape_depends_on_values_fail_the_call() {
        let bytes = model(
            &[("x", D::FLOAT, &["n", "4"])],
            &[("y", D::INT64, &["2", "found"])],
            &[floats("one", &[1], &[1.0])],
            &["plus = Add x one", "y = NonZero plus"],
        );
        let prepared = prepare_bytes(bytes, &[]).unwrap();
        let x: [f32; 4] = [0.0, -1.0, 0.0, 0.0];
        let input = BatchRef { dtype: DType::F32, shape: &[4], bytes: bytemuck::cast_slice(&x) };
        let output = BatchMut { dtype: DType::I32, shape: &[2, 4], bytes: &mut [0; 32] };
        let error = prepared.session(1).unwrap().infer_one(&[input], &mut [output], &mut ()).unwrap_err();
        assert!(error.to_string().contains("came out as [2, 3]; [2, 4] was planned"), "{error}");
    }

    #[test]
    fn buffers_that_are_not_aligned_are_copied() {
        let prepared = prepare("digits/digits.onnx");
        let mut session = prepared.session(1).unwrap();
        let pixels: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&pixels);
        let (mut straight, mut skewed) = ([0f32; 10], [0f32; 10]);
        call(&mut session, 1, bytes, &[1, 8, 8], &mut straight).unwrap();
        let mut shifted = vec![0; bytes.len() + 8];
        let at = (1..5).find(|at| !(shifted.as_ptr() as usize + at).is_multiple_of(4)).unwrap();
        shifted[at..at + bytes.len()].copy_from_slice(bytes);
        call(&mut session, 1, &shifted[at..at + bytes.len()], &[1, 8, 8], &mut skewed).unwrap();
        assert_eq!(straight, skewed);
        let error = call(&mut session, 1, &bytes[..60], &[1, 8, 8], &mut skewed).unwrap_err();
        assert!(matches!(error, BackendError::Call(_)), "{error}");
    }

    #[test]
    fn nodes_with_the_same_file_share_its_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let relu = |out: &str| {
            let node = format!("{out} = Relu x");
            model(&[("x", D::FLOAT, &["n"])], &[(out, D::FLOAT, &["n"])], &[], &[&node])
        };
        std::fs::write(&path, relu("y")).unwrap();
        let one = Loaded::open(&path).unwrap();
        assert!(Arc::ptr_eq(&one, &Loaded::open(&folder.path().join("./m.onnx")).unwrap()));
        std::fs::write(&path, relu("other")).unwrap();
        assert_eq!(Loaded::open(&path).unwrap().outputs[0].1, "other");
    }

    #[test]
    fn weights_may_lie_beside_the_model() {
        let entry =
            |key: &str, value: &str| onnx::StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
        let weights = onnx::TensorProto {
            float_data: vec![],
            data_location: Some(onnx::DataLocation::EXTERNAL),
            external_data: vec![entry("location", "m.onnx.data"), entry("offset", "0"), entry("length", "8")],
            ..floats("w", &[2], &[])
        };
        let bytes =
            model(&[("x", D::FLOAT, &["n", "2"])], &[("y", D::FLOAT, &["n", "2"])], &[weights], &["y = Add x w"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, bytes).unwrap();
        let error = Loaded::open(&path).err().unwrap().to_string();
        assert!(error.contains("weights are in another file") && error.contains("m.onnx.data"), "{error}");
        std::fs::write(folder.path().join("m.onnx.data"), bytemuck::cast_slice::<f32, u8>(&[1.0, 2.0])).unwrap();
        let prepared = Rten::prepare(RtenModel { path, ..RtenModel::default() }).unwrap();
        let mut y = [0f32; 2];
        call(&mut prepared.session(1).unwrap(), 1, &[0; 8], &[2], &mut y).unwrap();
        assert_eq!(y, [1.0, 2.0]);
    }

    #[test]
    fn sessions_run_in_place_on_a_thread_of_rten() {
        let here = || std::thread::current().id();
        assert_ne!(own_pool().run(here), here());
        on_rten_thread(|| {
            assert_eq!(own_pool().run(here), here());
            let digits = prepare("digits/digits.onnx");
            assert!(Arc::ptr_eq(&digits.session(8).unwrap().pool, &own_pool()));
            assert_eq!(case_of(MODELS[0]).check(&digits, 8, STRICT).unwrap(), 8);
        });
        assert_eq!(caught(|| on_rten_thread(|| panic!("inside"))), Err::<(), _>("it panicked: inside".into()));
    }

    #[test]
    fn more_threads_give_the_same_numbers() {
        let path = graphs("detect/detector.onnx");
        let prepared = Rten::prepare(RtenModel { path, threads: 2, ..RtenModel::default() }).unwrap();
        assert_eq!(case_of(MODELS[2]).check(&prepared, 1, STRICT).unwrap(), 1);
        let metadata = prepared.session(1).unwrap().metadata();
        assert_eq!((metadata.threads, metadata.copied_out), (2, 768 * 7 * 4));
    }

    #[test]
    fn rten_is_always_there() {
        assert_eq!(Rten::probe().unwrap().max_batch, None);
    }
}
