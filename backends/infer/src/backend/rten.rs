//! ONNX models on the CPU, through rten: pure Rust, nothing to install.
//!
//! # Element types
//! rten has `f32`, `i32`, `i8` and `u8`. It computes a model's `i64` and `bool` as `i32`, and `f64`
//! as `f32`. It reads a wider constant as the nearest `i32`, so such a model needs a case. It is
//! compiled with overflow checks in every profile (`Cargo.toml`), so a result that does not fit
//! fails its call, and so does a float that becomes an `i64` ([`with_checked_casts`]).
//!
//! # Threads
//! rten runs every call in a thread pool, even a pool of one thread: a call from another thread is
//! handed over, and the caller waits. On the 2-core reference VM an empty call therefore costs 6–10
//! µs back to back, and 34–38 µs at one call per millisecond, when the pool's thread sleeps on
//! another core. On a thread of the pool itself nothing is handed over (0.05–0.1 µs). So the engine
//! runs a worker with sessions of one thread on such a thread ([`Runtime::WORKER_HOST`]), and a
//! program that drives a graph itself can do so with [`on_rten_thread`]. On any other thread a
//! session creates its pool on the thread that calls it, whose core affinity it inherits: 6–10 and
//! 12–14 µs. Sessions with more threads share a pool that is created while planning, before any
//! thread is pinned.
//!
//! rten also starts a pool for the whole process, with a thread per core, when it first loads or
//! runs a model. Its threads sleep; `RTEN_NUM_THREADS=1` makes it small.

use crate::base::{BackendOptions, caught, elements};
use crate::onnx::{
    Artifact, BOOL_CAST_LONGER, CORRECTED_LONGER, Call, Deviation, Elem, INT_CAST_LONGER, LRN_LONGER,
    NARROWS_CONSTANTS, NARROWS_FLOATS, Onnx, Op, Runner, Runtime, SAME_LOWER_LONGER, Take, aligns_fractional_corners,
    computes_doubles, computes_halves, covers_several_dims, has_same_padding, separate_weights, with_checked_casts,
    with_corrections, with_external_places, with_left_out, with_window_attributes, without_bool_casts, without_dropout,
    without_lrn, without_same_lower,
};
use ::rten::{
    LoadError, LoadErrorKind, Model, ModelOptions, NodeId, RunOptions, ShapeInferenceMode, ThreadPool, Value,
    ValueOrView, ValueView,
};
use bytemuck::Pod;
use limen::backend::{BackendError, BatchRef, Capabilities, Ops, SessionMetadata, WorkerHost};
use limen::message::{DType, Element};
use rten_tensor::prelude::*;
use rten_tensor::{Tensor, TensorView};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// The backend `rten`.
pub type Rten = Onnx<RtenRuntime>;

/// The release that is built in, which rten itself does not say; a test compares it with
/// `Cargo.lock`.
const VERSION: &str = "rten 0.27.0";

/// The operators of rten 0.27 as built here: without random numbers and Fourier transforms. rten
/// cannot list them; a test loads a model with each of these, and with some that it does not have.
const OPS: &str = "\
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization BitCast \
    Cast CastLike Ceil Clip Concat ConcatFromSequence Constant Conv ConvInteger ConstantOfShape ConvTranspose Cos \
    Cosh CumSum DequantizeLinear DepthToSpace Div DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike \
    Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual \
    GridSample GRU HardSigmoid HardSwish Identity If InstanceNormalization IsInf IsNaN LayerNormalization \
    LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LSTM MatMul MatMulInteger Max MaxPool Mean Min \
    Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or Pad Pow PRelu QuantizeLinear RMSNormalization Range \
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum \
    ReduceSumSquare Relu Reshape Resize ReverseSequence RotaryEmbedding Round Scatter ScatterElements ScatterND \
    SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Sigmoid Sign \
    SimplifiedLayerNormalization Sin Sinh Size Slice Softmax Softplus Softsign Split SplitToSequence Sqrt Squeeze \
    Sub Sum Swish Tan Tanh Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor com.microsoft.BiasGelu \
    com.microsoft.DynamicQuantizeLSTM com.microsoft.FastGelu com.microsoft.Gelu com.microsoft.GroupQueryAttention \
    com.microsoft.MatMulNBits com.microsoft.MultiHeadAttention com.microsoft.QuickGelu \
    com.microsoft.SkipLayerNormalization";

/// The `data_type` of `int64` and of bools.
const INT64: i64 = 7;
const BOOL: i64 = 9;
const DYNAMIC_LSTM: &str = "com.microsoft.DynamicQuantizeLSTM";

/// Loaded as `Identity`.
const DROPOUT: &str = "Dropout";
/// Loaded as a mean over channels.
const LRN: &str = "LRN";

/// Loaded as others: see [`with_corrections`].
const CORRECTED: [&str; 3] = ["Softplus", "ReduceL2", "QuantizeLinear"];

/// Refused, or taken for images, if attributes that ONNX infers are left out: see
/// [`with_window_attributes`].
const WINDOWS: [&str; 5] = ["Conv", "ConvInteger", "ConvTranspose", "MaxPool", "AveragePool"];

/// What rten 0.27 computes otherwise than ONNX.
const DEVIATIONS: &[Deviation] = &[
    NARROWS_CONSTANTS,
    Deviation { op: Deviation::ANY, concerns: computes_doubles, what: NARROWS_FLOATS },
    Deviation {
        op: Deviation::ANY,
        concerns: computes_halves,
        what: "computes `float16` in 32 bits, where values above 65504 do not overflow",
    },
    Deviation { op: "Acosh", concerns: |_| true, what: "returns infinity for inputs beyond 1.8e19" },
    Deviation {
        op: "ArgMax",
        concerns: |op| op.int("select_last_index") != Some(1),
        what: "selects the last of several equal elements",
    },
    Deviation {
        op: "ArgMin",
        concerns: |op| op.int("select_last_index") != Some(1),
        what: "selects the last of several equal elements",
    },
    Deviation { op: "Asinh", concerns: |_| true, what: "returns infinity for inputs beyond 1.8e19" },
    Deviation {
        op: "ConvInteger",
        concerns: |op| op.has_input(2) && (has_same_padding(op) || op.ints("pads").iter().any(|pad| *pad != 0)),
        what: "does not pad with the zero point",
    },
    Deviation { op: "DynamicQuantizeLinear", concerns: |_| true, what: "may produce a neighbouring integer" },
    Deviation { op: "GRU", concerns: has_lengths, what: RUNS_ALL_STEPS },
    Deviation { op: "LSTM", concerns: has_lengths, what: RUNS_ALL_STEPS },
    Deviation {
        op: "LogSoftmax",
        concerns: covers_several_dims,
        what: "normalizes one dim, although operator sets before 13 require all dims from `axis` on",
    },
    Deviation {
        op: "MatMul",
        concerns: |op| {
            let [first, second, output] = op.ranks;
            second == Some(1) && first.or(output.map(|rank| rank + 1)).is_none_or(|rank| rank > 2)
        },
        what: "keeps a dim of length 1 if the second operand is a vector",
    },
    Deviation { op: "NonMaxSuppression", concerns: |_| true, what: "suppresses boxes across classes and images" },
    Deviation {
        op: "Pow",
        concerns: |op| match op.elems() {
            [Some(Elem::I64), ..] => true,
            [Some(Elem::I32), exponent, _] => !matches!(exponent, Some(Elem::I32 | Elem::I64)),
            _ => false,
        },
        what: "computes integer powers with 32 bits, or with 7 digits if the exponent is a float",
    },
    Deviation {
        op: "Resize",
        concerns: |op: &Op| op.word("mode") == Some("cubic"),
        what: "interpolates linearly if `mode` is `cubic`",
    },
    Deviation {
        op: "Resize",
        concerns: aligns_fractional_corners,
        what: "aligns corners to the rounded length if the scales produce a fractional length",
    },
    Deviation { op: "Sign", concerns: |_| true, what: "returns 1 for 0" },
    Deviation {
        op: "Softmax",
        concerns: covers_several_dims,
        what: "normalizes one dim, although operator sets before 13 require all dims from `axis` on",
    },
    Deviation { op: DYNAMIC_LSTM, concerns: |_| true, what: "may quantize to a neighbouring integer" },
];
const RUNS_ALL_STEPS: &str = "runs all steps and ignores `sequence_lens`";

fn has_lengths(op: &Op) -> bool {
    op.has_input(4)
}

/// The longest chain of operators. rten recurses along it when it loads a model and in the first
/// call, and a stack overflow cannot be caught. A frame takes about 400 bytes in a debug build, and
/// a thread's stack has 2 MiB.
const MAX_DEPTH: usize = 4096;

/// The name of the file in memory with a model's large weights.
const SEPARATED: &str = "limen.data";
/// The `data_type` of `f32`, `u8`, `i8` and `i32`, which rten uses where they lie; it converts the
/// others.
const IN_PLACE: [i32; 4] = [1, 2, 3, 6];

/// A model that rten has read.
pub struct RtenRuntime {
    model: Arc<Model>,
    /// The nodes that compute integers.
    whole: Arc<str>,
}

impl std::fmt::Debug for RtenRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RtenRuntime")
    }
}

impl Runtime for RtenRuntime {
    const NAME: &'static str = "rten";
    const COMPILES: bool = false;
    const WORKER_HOST: Option<WorkerHost> = Some(|body| on_rten_thread(body));
    /// A pool of more than one thread.
    type Shared = Option<Arc<ThreadPool>>;
    type Runner = RtenRunner;

    fn probe(_: &BackendOptions) -> Result<Capabilities, BackendError> {
        let ops = OPS.split_whitespace().chain([DROPOUT, LRN]).map(str::to_string).collect();
        let dtypes = Elem::readable(|elem, input| any_value(input, elem == Elem::Bool).is_ok());
        Ok(Capabilities::cpu(VERSION, dtypes, Ops::Listed(ops)))
    }

    fn rewrites(operator: &str) -> bool {
        matches!(operator, "Constant" | "QuantizeLinear" | "Softplus" | DROPOUT | LRN)
    }

    fn refuses(node: &Op) -> Option<&'static str> {
        let is_other = node.id == "GRU" && node.int("linear_before_reset").unwrap_or(0) == 0;
        is_other.then_some("the default `linear_before_reset: 0`")
    }

    fn is_slow_in_8_bits(operator: &str) -> bool {
        matches!(operator, "QuantizeLinear" | "DynamicQuantizeLinear")
    }

    fn deviations() -> &'static [Deviation] {
        DEVIATIONS
    }

    fn load(artifact: Artifact, _: &BackendOptions) -> Result<Self, BackendError> {
        // rten has this rule too, but reports it only as "disallowed path".
        let is_known = |name: &str| {
            let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
            !name.contains('/') && (ending.starts_with("data") || ending.starts_with("onnx_data"))
        };
        if let Some(file) = artifact.data.iter().find(|file| !is_known(&file.name)) {
            return Err(BackendError::Unsupported(format!(
                "rten expects weight files `*.data` or `*.onnx_data` in the model's folder, found `{}`",
                file.name
            )));
        }
        let has = |id: &str| artifact.outline.ops.iter().filter(|op| op.id == id).count();
        let (lrns, dropouts, dynamic) = (has(LRN), has(DROPOUT), has(DYNAMIC_LSTM));
        let count = |is: fn(&Op) -> bool| artifact.outline.ops.iter().filter(|op| is(op)).count();
        let casts = count(|op| op.id == "Cast" && op.int("to") == Some(BOOL) || op.id == "CastLike");
        let int_casts = count(|op| op.id == "Cast" && op.int("to") == Some(INT64) || op.id == "CastLike");
        let lower = count(|op| op.word("auto_pad") == Some("SAME_LOWER"));
        let corrected = count(|op| CORRECTED.contains(&&*op.id));
        let longer = [
            (lrns, LRN_LONGER),
            (casts, BOOL_CAST_LONGER),
            (int_casts, INT_CAST_LONGER),
            (corrected, CORRECTED_LONGER),
            (lower, SAME_LOWER_LONGER),
        ];
        let depth = longer.iter().fold(artifact.outline.depth, |depth, (nodes, longer)| depth + nodes * longer);
        if depth > MAX_DEPTH {
            return Err(BackendError::Unsupported(format!(
                "a chain must have at most {MAX_DEPTH} operators on rten, got {depth}"
            )));
        }
        let mut options = ModelOptions::with_all_ops();
        let data: BTreeSet<String> = artifact.data.iter().map(|file| file.name.clone()).collect();
        for file in artifact.data {
            options.external_data(&file.name, Arc::unwrap_or_clone(file.bytes));
        }
        // rten infers the shapes of that operator as those of an LSTM, whose weights are
        // transposed, and replaces each `Shape` by them.
        if dynamic > 0 {
            options.shape_inference(ShapeInferenceMode::Off);
        }
        let mut bytes = artifact.bytes;
        let rewritten = with_external_places(&bytes, &artifact.outline);
        bytes = rewritten.map_or(bytes, Arc::new);
        bytes = with_left_out(bytes, &artifact.outline.ops);
        let rewritten = (dropouts > 0).then(|| without_dropout(&bytes)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let rewritten = (lrns > 0).then(|| without_lrn(&bytes)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let rewritten = (casts > 0).then(|| without_bool_casts(&bytes)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let rewritten = (int_casts > 0).then(|| with_checked_casts(&bytes)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let rewritten = (corrected > 0).then(|| with_corrections(&bytes, &CORRECTED)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let windows = count(|op| WINDOWS.contains(&&*op.id));
        let rewritten = (windows > 0).then(|| with_window_attributes(&bytes, &WINDOWS)).flatten();
        bytes = rewritten.map_or(bytes, Arc::new);
        let rewritten = if lower > 0 { without_same_lower(&bytes).map_err(BackendError::Unsupported)? } else { None };
        let mut bytes = rewritten.unwrap_or_else(|| Arc::unwrap_or_clone(bytes));
        // rten copies the weights in the model, but uses those beside it where they lie.
        if !data.contains(SEPARATED)
            && let Some(model) = separate_weights(&mut bytes, SEPARATED, &IN_PLACE)
        {
            options.external_data(SEPARATED, std::mem::replace(&mut bytes, model));
        }
        let whole: Arc<str> = whole_numbers(&artifact.outline.ops).into();
        let model = caught(|| options.load(bytes));
        let model = model.map_err(|panic| BackendError::Unsupported(panicked(&whole, &panic)))?;
        Ok(RtenRuntime { model: Arc::new(model.map_err(|error| load_error(&error))?), whole })
    }

    fn share(&self, call: &Call) -> Result<Self::Shared, BackendError> {
        Ok((call.threads > 1).then(|| Arc::new(ThreadPool::with_num_threads(call.threads))))
    }

    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<RtenRunner, BackendError> {
        let id = |name: &String| self.model.node_id(name).map_err(|e| BackendError::Model(e.to_string()));
        Ok(RtenRunner {
            model: self.model.clone(),
            whole: self.whole.clone(),
            pool: shared.clone().unwrap_or_else(own_pool),
            inputs: call.inputs.iter().map(|input| id(&input.name)).collect::<Result<_, _>>()?,
            outputs: call.outputs.iter().map(id).collect::<Result<_, _>>()?,
            bools: call.inputs.iter().map(|input| input.elem == Elem::Bool).collect(),
            threads: call.threads,
        })
    }
}

fn load_error(error: &LoadError) -> BackendError {
    match error.kind() {
        LoadErrorKind::OperatorInvalid => BackendError::Unsupported(error.to_string()),
        _ => BackendError::Model(error.to_string()),
    }
}

/// The most nodes that a message names.
const MAX_NAMED: usize = 3;

/// Returns the nodes of a model that compute integers of 32 bits or more.
fn whole_numbers(ops: &[Op]) -> String {
    let is_whole = |op: &&Op| matches!(op.elems()[2], Some(Elem::I32 | Elem::I64)) && OVERFLOWING.contains(&&*op.id);
    let nodes: Vec<String> = ops.iter().filter(is_whole).map(|op| format!("{} (node `{}`)", op.id, op.node)).collect();
    match nodes.len().checked_sub(MAX_NAMED) {
        Some(more @ 1..) => format!("{} or {more} more", nodes[..MAX_NAMED].join(", ")),
        _ => nodes.join(" or "),
    }
}

/// Operators whose result may need more bits than their inputs.
const OVERFLOWING: [&str; 13] = [
    "Abs",
    "Add",
    "Cast",
    "CastLike",
    "CumSum",
    "Mul",
    "Neg",
    "ReduceL1",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Sub",
    "Sum",
];

/// Returns what a panic of rten means.
fn panicked(whole: &str, panic: &str) -> String {
    if !panic.ends_with("with overflow") || whole.is_empty() {
        return format!("rten cannot run the model: {panic}");
    }
    format!(
        "a result of {whole} does not fit 32 bits, which `rten` uses for `int64`: write `backend: tract` or \
         `backend: ort`"
    )
}

thread_local! {
    /// The pool of this thread's one-thread sessions: the pool that the thread belongs to, else one
    /// on its core.
    static OWN: RefCell<Weak<ThreadPool>> = const { RefCell::new(Weak::new()) };
}

/// Returns the pool for one-thread sessions on this thread, shared by all of them.
fn own_pool() -> Arc<ThreadPool> {
    OWN.with_borrow_mut(|own| {
        own.upgrade().unwrap_or_else(|| {
            let pool = Arc::new(ThreadPool::with_num_threads(1));
            *own = Arc::downgrade(&pool);
            pool
        })
    })
}

/// Runs `body` on a new thread, on which one-thread sessions run without handing their calls to
/// another thread: an empty call costs 0.1 µs there instead of 10 µs and more. The calling thread
/// waits until `body` returns.
///
/// For threads that mainly run models: an engine's worker, or a program that drives a graph itself.
/// Pinning and priority that `body` sets apply to the thread that runs the model.
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

/// A model on one thread, through rten.
pub struct RtenRunner {
    model: Arc<Model>,
    /// The nodes that compute integers.
    whole: Arc<str>,
    pool: Arc<ThreadPool>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    /// Which inputs are bools in the model.
    bools: Vec<bool>,
    threads: usize,
}

/// rten finds only in a call that an operator does not have a type. Other numbers do not mend it.
fn run_error(error: &dyn std::fmt::Display) -> BackendError {
    let why = error.to_string();
    match why.contains("unsupported input type") || why.contains("expected tensor with type") {
        true => BackendError::Unsupported(why),
        false => BackendError::Call(why),
    }
}

impl std::fmt::Debug for RtenRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtenRunner").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Runner for RtenRunner {
    fn run(&mut self, _: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        let mut values = Vec::with_capacity(inputs.len());
        for (at, (input, id)) in inputs.iter().zip(&self.inputs).enumerate() {
            values.push((*id, any_value(input, self.bools[at])?));
        }
        let options = RunOptions::default().with_thread_pool(Some(self.pool.clone()));
        let results = caught(|| self.model.run(values, &self.outputs, Some(options)));
        let results = results.map_err(|panic| BackendError::Call(panicked(&self.whole, &panic)))?;
        let results = results.map_err(|error| run_error(&error))?;
        for (at, result) in results.iter().enumerate() {
            match result.as_view() {
                ValueView::FloatTensor(tensor) => give(at, DType::F32, &tensor, take),
                ValueView::Int32Tensor(tensor) => give(at, DType::I32, &tensor, take),
                ValueView::Int8Tensor(tensor) => give(at, DType::I8, &tensor, take),
                ValueView::UInt8Tensor(tensor) => give(at, DType::U8, &tensor, take),
                // The caller counts outputs: one that is not a tensor is reported as missing.
                _ => Ok(()),
            }?;
        }
        Ok(())
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "cpu".into(), threads: self.threads, ..SessionMetadata::default() }
    }
}

/// Returns an input as rten has it.
fn any_value<'a>(input: &BatchRef<'a>, is_bool: bool) -> Result<ValueOrView<'a>, BackendError> {
    match input.dtype {
        // rten computes with bools as with integers, so a message's other numbers become 1.
        DType::I32 if is_bool => {
            let bools: Vec<i32> = elements::<i32>(input.bytes)?.iter().map(|x| i32::from(*x != 0)).collect();
            Value::from_shape(input.shape, bools).map(ValueOrView::Value).map_err(BackendError::call)
        }
        DType::F32 => value::<f32>(input),
        DType::I32 => value::<i32>(input),
        DType::I8 => value::<i8>(input),
        DType::U8 => value::<u8>(input),
        other => Err(BackendError::Unsupported(format!("elements of type {other}"))),
    }
}

/// Returns a batch as rten takes it: borrowed if it is aligned, as the engine's buffers are, else
/// copied.
fn value<'a, T: Element>(input: &BatchRef<'a>) -> Result<ValueOrView<'a>, BackendError>
where
    ValueView<'a>: From<TensorView<'a, T>>,
    Value: From<Tensor<T>>,
{
    match elements(input.bytes)? {
        Cow::Borrowed(elements) => {
            ValueView::from_shape(input.shape, elements).map(ValueOrView::View).map_err(BackendError::call)
        }
        Cow::Owned(elements) => {
            Value::from_shape(input.shape, elements).map(ValueOrView::Value).map_err(BackendError::call)
        }
    }
}

fn give<T: Pod>(at: usize, dtype: DType, tensor: &TensorView<'_, T>, take: &mut Take<'_>) -> Result<(), BackendError> {
    let shape = tensor.shape();
    match tensor.data() {
        Some(dense) => take(at, BatchRef { dtype, shape, bytes: bytemuck::cast_slice(dense) }),
        None => take(at, BatchRef { dtype, shape, bytes: bytemuck::cast_slice(&tensor.to_vec()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::caught;
    use crate::onnx::{OnnxModel, test_models, test_subgraphs};
    use crate::verify::Tolerance;
    use limen::backend::{Backend, Prepared, Session};

    #[test]
    fn sessions_run_in_place_on_an_rten_thread() {
        let here = || std::thread::current().id();
        assert_ne!(own_pool().run(here), here());
        on_rten_thread(|| {
            assert_eq!(own_pool().run(here), here());
            let path = test_models::graphs("digits/digits.onnx");
            let digits = Rten::prepare(OnnxModel { path, ..OnnxModel::default() }).unwrap();
            let tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };
            assert_eq!(test_subgraphs::case_of("digits/digits").check(&digits, 8, tolerance).unwrap(), 8);
            assert!(Arc::strong_count(&own_pool()) > 1, "the session holds this thread's own pool");
            drop(digits.session(8).unwrap());
            // The engine starts a worker that way, unless its calls need more threads.
            let host = digits.worker_host().unwrap();
            host(&mut || assert_eq!(own_pool().run(here), here()));
        });
        assert_eq!(caught(|| on_rten_thread(|| panic!("inside"))), Err::<(), _>("the code panicked: inside".into()));
    }

    #[test]
    fn a_session_reports_its_threads() {
        let path = test_models::graphs("detect/detector.onnx");
        let prepared = Rten::prepare(OnnxModel { path, threads: 2, ..OnnxModel::default() }).unwrap();
        assert_eq!(prepared.session(1).unwrap().metadata().threads, 2);
        assert!(prepared.worker_host().is_none());
    }

    /// Loading names an operator that rten lacks, whatever else is wrong with the node here.
    #[test]
    fn the_operator_list_matches_rten() {
        use rten_onnx::onnx;
        let offer = |id: &str| {
            let (domain, op) = id.rsplit_once('.').unwrap_or(("", id));
            let node = onnx::NodeProto {
                name: Some("y".into()),
                op_type: Some(op.into()),
                domain: Some(domain.into()),
                input: vec!["x".into()],
                output: vec!["y".into()],
                ..Default::default()
            };
            let value = |name: &str| onnx::ValueInfoProto { name: Some(name.into()), ..Default::default() };
            let (input, output) = (vec![value("x")], vec![value("y")]);
            let graph = onnx::GraphProto { node: vec![node], input, output, ..Default::default() };
            let opset = |domain: &str, version| onnx::OperatorSetIdProto {
                domain: Some(domain.into()),
                version: Some(version),
            };
            let opset_import = vec![opset("", 21), opset("com.microsoft", 1)];
            let model =
                onnx::ModelProto { ir_version: Some(8), graph: Some(graph), opset_import, ..Default::default() };
            let loaded = caught(|| ModelOptions::with_all_ops().load(model.write_buf().unwrap()).map(drop));
            let why = loaded.unwrap().err().map(|error| error.to_string()).unwrap_or_default();
            !why.contains("not supported or not enabled") && !why.contains("not enabled because")
        };
        for op in OPS.split_whitespace() {
            assert!(offer(op), "{op} is listed, but rten does not have it");
        }
        for op in "Frobnicate RandomNormal Dropout DFT STFT LRN LpPool Hardmax BitShift Compress MaxRoiPool \
                   com.microsoft.Conv com.microsoft.QLinearAdd"
            .split_whitespace()
        {
            assert!(!OPS.split_whitespace().any(|listed| listed == op) && !offer(op), "{op} is not listed");
        }
    }

    /// The longest chain allowed runs too, on a test thread of 2 MiB: an overflow would end the
    /// process.
    #[test]
    fn a_chain_that_is_too_long_is_an_error() {
        use rten_onnx::onnx::DataType;
        let prepare = |length: usize| {
            let between = (1..length - 1).map(|at| format!("a{} = Neg a{at}", at + 1));
            let nodes: Vec<String> = std::iter::once("a1 = Neg x".to_string()).chain(between).collect();
            let last = format!("y = Neg a{}", length - 1);
            // Reversed: nodes in a file need not be in the order in which they run.
            let nodes: Vec<&str> = nodes.iter().chain([&last]).rev().map(String::as_str).collect();
            let io = |name| (name, DataType::FLOAT, &["n"][..]);
            let bytes = Some(test_models::model(&[io("x")], &[io("y")], &[], &nodes));
            Rten::prepare(OnnxModel { path: "m.onnx".into(), bytes, ..OnnxModel::default() })
        };
        assert_eq!(prepare(MAX_DEPTH).map(drop), Ok(()));
        let error = prepare(MAX_DEPTH + 1).unwrap_err().to_string();
        assert!(error.contains("a chain must have at most 4096 operators on rten, got 4097"), "{error}");
        assert!(prepare(20_000).is_err());
    }

    #[test]
    fn rten_is_always_available() {
        assert_eq!(Rten::probe().unwrap().max_batch, None);
    }
}
