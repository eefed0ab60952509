//! ONNX models on the CPU, through tract: pure Rust, with operators that rten lacks.
//!
//! tract compiles: a model is read once into a template that keeps its symbolic dims, and is
//! specialized and compiled for each batch size before the graph starts. Batches are padded up to
//! the next of these sizes. It runs on the thread that calls it. On convolutions it is slower than
//! rten, and its batches cost more per item than single calls do.

use crate::base::{BackendOptions, caught, elements, narrow};
use crate::cache::Compiled;
use crate::onnx::{
    Artifact, Call, CallInput, ConstantInput, DataFile, Deviation, Elem, Input, Length, Onnx, Op, Runner, Runtime,
    Take, has_same_padding, with_corrections, with_left_out,
};
use limen::backend::{BackendError, BatchRef, Capabilities, Ops, SessionMetadata};
use limen::files::memory_name;
use limen::message::{DType, Element};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tract_onnx::data_resolver::ModelDataResolver;
use tract_onnx::dim_expr::parse_onnx_dim;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::bail;

mod integers;
mod operators;
mod quantize;
mod wide_sum;

pub use self::quantize::QuantizeOperator;
pub use self::wide_sum::WideSum;

/// The backend `tract`.
pub type Tract = Onnx<TractRuntime>;

/// A model that tract has read.
pub struct TractRuntime(Arc<TractModel>);

/// A model with its symbolic dims, and its compiled plans.
struct TractModel {
    template: Template,
    plans: Mutex<Plans>,
}

enum Template {
    /// Analysed once, for all lengths of the symbolic dims.
    Analysed(TypedModel),
    /// As in the file, for a model that tract can analyse only once the lengths are known.
    Parsed(InferenceModel),
}

/// Compiled models, the most recently used last.
#[derive(Default)]
struct Plans {
    made: Vec<(Vec<Given>, Arc<TypedRunnableModel>)>,
    compiled: Compiled,
}

/// What is known of an input when a model is compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    shape: Vec<usize>,
    constant: Option<ConstantInput>,
    elem: Elem,
}

impl Given {
    /// Creates an input of calls with `batch` items.
    pub fn of(input: &CallInput, batch: usize) -> Given {
        Given { shape: input.shape(batch), constant: input.constant.clone(), elem: input.elem }
    }

    /// The length of each dim, with the batch.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same input, with another shape.
    pub fn with_shape(&self, shape: &[usize]) -> Given {
        Given { shape: shape.to_vec(), constant: self.constant.clone(), elem: self.elem }
    }

    /// Returns what tract has to know.
    fn fact(&self, declared: &InferenceFact) -> TractResult<InferenceFact> {
        let Some(constant) = &self.constant else {
            let shape: TVec<TDim> = self.shape.iter().map(|length| (*length as i64).into()).collect();
            return Ok(declared.clone().with_shape(shape));
        };
        let dtype = self.elem.dtype();
        let bytes = constant.repeated(dtype, self.shape.iter().product());
        let tensor = value(&BatchRef { dtype, shape: &self.shape, bytes: &bytes }, self.elem)?;
        Ok(InferenceFact::from(tensor.into_tensor()))
    }
}

impl std::fmt::Debug for TractRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TractRuntime")
    }
}

/// The files of weights beside the model, which are already in memory.
struct WeightFiles(Vec<DataFile>);

impl ModelDataResolver for WeightFiles {
    fn read_bytes_from_path(
        &self,
        into: &mut Vec<u8>,
        path: &Path,
        offset: usize,
        length: Option<usize>,
    ) -> TractResult<()> {
        let part = self.0.iter().find(|file| file.path == path).and_then(|file| {
            let end = length.map_or(Some(file.bytes.len()), |length| offset.checked_add(length))?;
            file.bytes.get(offset..end)
        });
        match part {
            Some(part) => into.extend_from_slice(part),
            None => bail!("`{}` does not contain the weights at byte {offset}", path.display()),
        }
        Ok(())
    }
}

/// The release that is built in, which tract itself does not say; a test compares it with
/// `Cargo.lock`.
const VERSION: &str = "tract 0.23.9";

/// Operators that tract-onnx 0.23 runs as they are; it expands the others into its own, such as
/// `EinSum`, when it loads them.
const AS_THEY_ARE: &str = "\
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip \
    Compress Cos Cosh Div Dropout Equal Erf Exp EyeLike Floor GatherND Greater GreaterOrEqual HardSwish Identity \
    If IsInf IsNaN LRN Less LessOrEqual Log Max Mean Min Mul Neg NonZero Not Or Pad Reciprocal Round Rsqrt Sigmoid \
    Sign Sin Sinh Slice Sqrt Sub Sum Tan Tanh";

/// Loaded as others: see [`with_corrections`].
const CORRECTED: [&str; 3] = ["Softplus", "LogSoftmax", "NonMaxSuppression"];

/// What tract 0.23 computes otherwise than ONNX.
const DEVIATIONS: &[Deviation] = &[
    Deviation { op: "Acosh", concerns: |_| true, what: "returns infinity for inputs beyond 1.8e19" },
    Deviation { op: "Asinh", concerns: |_| true, what: "returns infinity for inputs beyond 1.8e19" },
    Deviation {
        op: "BitShift",
        // Before this version such shifts were undefined.
        concerns: |op| op.opset >= 28,
        what: "applies negative and too large shifts modulo the number of bits",
    },
    Deviation {
        op: "Celu",
        concerns: |op| op.float("alpha").is_some_and(|alpha| alpha != 1.0),
        what: "does not multiply by `alpha`",
    },
    Deviation {
        op: "ConvTranspose",
        concerns: |op| has_same_padding(op) && op.ints("output_padding").iter().any(|padding| *padding != 0),
        what: "ignores `output_padding` if `auto_pad` is `SAME_UPPER` or `SAME_LOWER`",
    },
    Deviation {
        op: "ConvTranspose",
        concerns: |op| !op.ints("output_shape").is_empty(),
        what: "shifts the result or fails if `output_shape` is set",
    },
    Deviation { op: "GlobalLpPool", concerns: |_| true, what: "computes the wrong norm" },
    Deviation { op: "GRU", concerns: is_reverse, what: RUNS_FORWARD },
    Deviation { op: "GRU", concerns: is_clipped, what: DOES_NOT_CLIP },
    Deviation { op: "GRU", concerns: has_other_activations, what: HAS_ITS_OWN },
    Deviation { op: "LSTM", concerns: is_reverse, what: RUNS_FORWARD },
    Deviation { op: "LSTM", concerns: is_clipped, what: DOES_NOT_CLIP },
    Deviation { op: "LSTM", concerns: has_other_activations, what: HAS_ITS_OWN },
    Deviation {
        op: "LSTM",
        concerns: |op| op.int("input_forget").is_some_and(|coupled| coupled != 0),
        what: "does not couple the gates if `input_forget` is 1",
    },
    Deviation { op: "Einsum", concerns: is_wide, what: SUMS_IN_32_BITS },
    Deviation { op: "Gemm", concerns: is_wide, what: SUMS_IN_32_BITS },
    Deviation { op: "MatMul", concerns: is_wide, what: SUMS_IN_32_BITS },
    Deviation {
        op: "Mod",
        // A second operand without dims is never larger than the first.
        concerns: |op| op.ranks[1] != Some(0),
        what: "may swap the operands if the first operand is broadcast",
    },
    Deviation {
        op: "ReduceLogSumExp",
        concerns: |_| true,
        what: "returns infinity for inputs above 88, and rounds integers down",
    },
    Deviation { op: "RNN", concerns: is_reverse, what: RUNS_FORWARD },
    Deviation { op: "RNN", concerns: is_clipped, what: DOES_NOT_CLIP },
    Deviation { op: "RNN", concerns: has_other_activations, what: HAS_ITS_OWN },
    Deviation { op: "Shrink", concerns: |_| true, what: "rounds `bias` if the inputs are integers" },
    Deviation {
        op: "SpaceToDepth",
        concerns: |op| op.word("mode") == Some("CRD"),
        what: "uses the order `DCR` if `mode` is `CRD`",
    },
    Deviation {
        op: "Swish",
        concerns: |op| op.float("alpha").is_some_and(|alpha| alpha != 1.0),
        what: "uses 1 instead of `alpha`",
    },
];
const RUNS_FORWARD: &str = "runs forward if `direction` is `reverse`";
const DOES_NOT_CLIP: &str = "does not apply `clip`";
const HAS_ITS_OWN: &str = "ignores `activations` and uses ONNX's defaults";

const SUMS_IN_32_BITS: &str = "sums `int64`, `uint32` and `uint64` in 32 bits, or fails";

/// Whether an operator computes with integers that need more than 32 bits with a sign.
fn is_wide(op: &Op) -> bool {
    matches!(op.elems()[0], Some(Elem::I64 | Elem::U32 | Elem::U64))
}

fn is_reverse(op: &Op) -> bool {
    op.word("direction") == Some("reverse")
}

fn is_clipped(op: &Op) -> bool {
    op.float("clip").is_some()
}

/// Whether an operator has other activations than those that ONNX gives it by default, for each
/// direction.
fn has_other_activations(op: &Op) -> bool {
    let usual = match op.id.as_str() {
        "RNN" => "Tanh",
        "GRU" => "Sigmoid Tanh",
        _ => "Sigmoid Tanh Tanh",
    };
    op.word("activations").is_some_and(|given| given != usual && given != format!("{usual} {usual}"))
}

impl Runtime for TractRuntime {
    const NAME: &'static str = "tract";
    const COMPILES: bool = true;
    const KEEPS_COMPILED: bool = false;
    type Shared = ();
    type Runner = TractRunner;

    fn probe(_: &BackendOptions) -> Result<Capabilities, BackendError> {
        let ops = tract_onnx::onnx().op_register.0.into_keys().collect();
        let dtypes = Elem::readable(|elem, input| value(input, elem).is_ok());
        let mut cpu = Capabilities::cpu(VERSION, dtypes, Ops::Listed(ops));
        cpu.max_threads = Some(1);
        Ok(cpu)
    }

    fn rewrites(operator: &str) -> bool {
        !AS_THEY_ARE.split_whitespace().any(|name| name == operator)
    }

    fn deviations() -> &'static [Deviation] {
        DEVIATIONS
    }

    fn load(artifact: Artifact, _: &BackendOptions) -> Result<Self, BackendError> {
        if let Some(file) =
            artifact.data.iter().find(|file| file.path.to_str().is_some_and(|path| memory_name(path).is_some()))
        {
            let why = format!("tract expects weight files on disk, found `{}` in memory", file.name);
            return Err(BackendError::Unsupported(why));
        }
        let mut onnx = operators::reader();
        onnx.provider = Arc::new(WeightFiles(artifact.data));
        let unsupported = |error: TractError| BackendError::Unsupported(text(&error));
        let bytes = with_left_out(artifact.bytes, &artifact.outline.ops);
        let corrected = artifact.outline.ops.iter().any(|op| CORRECTED.contains(&&*op.id));
        let rewritten = corrected.then(|| with_corrections(&bytes, &CORRECTED)).flatten();
        let bytes = rewritten.map_or(bytes, Arc::new);
        let proto = onnx.proto_model_for_read(&mut bytes.as_slice());
        let proto = proto.map_err(|error| BackendError::Model(text(&error)))?;
        let parse = |onnx: &tract_onnx::Onnx| -> Result<InferenceModel, BackendError> {
            let mut model = onnx.parse(&proto, artifact.folder.to_str()).map_err(unsupported)?.model;
            // Unnamed dims are unknown to tract; as symbols they can be given a length.
            for (at, input) in artifact.outline.inputs.iter().enumerate() {
                let dim = |dim: &Length| match dim {
                    Length::Fixed(length) => (*length as i64).into(),
                    Length::Symbol(name) => {
                        parse_onnx_dim(&model.symbols, name).unwrap_or_else(|_| model.symbols.sym(name).into())
                    }
                };
                let shape: TVec<TDim> = input.shape.iter().map(dim).collect();
                let fact = InferenceFact::dt_shape(datum_type(input)?, shape);
                model.set_input_fact(at, fact).map_err(unsupported)?;
            }
            Ok(model)
        };
        let analysed = match operators::compares_lengths(&artifact.outline.ops) {
            true => None,
            false => {
                let parsed = parse(&onnx)?;
                // A recurrent operator without a first state panics where its batch has no length
                // yet.
                let analysed = caught(|| parsed.into_typed().and_then(|model| model.into_decluttered()));
                analysed.ok().and_then(Result::ok)
            }
        };
        let template = match analysed {
            Some(model) => Template::Analysed(model),
            None => {
                // What the file says about its tensors has symbols that would contradict the
                // lengths.
                onnx.ignore_value_info = true;
                Template::Parsed(parse(&onnx)?)
            }
        };
        Ok(TractRuntime(Arc::new(TractModel { template, plans: Mutex::default() })))
    }

    fn share(&self, _: &Call) -> Result<(), BackendError> {
        Ok(())
    }

    fn runner(&self, (): &(), call: &Call) -> Result<TractRunner, BackendError> {
        let mut plans = BTreeMap::new();
        for batch in &call.batches {
            let given = call.inputs.iter().map(|input| Given::of(input, *batch)).collect();
            let plan = self.0.compile(given, call.plans).map_err(|error| BackendError::Unsupported(text(&error)))?;
            plans.insert(*batch, plan);
        }
        let elems = call.inputs.iter().map(|input| input.elem).collect();
        let varies = call.inputs.iter().any(|input| input.varies.contains(&true));
        let varying = varies.then(|| (self.0.clone(), call.inputs.iter().map(|input| Given::of(input, 1)).collect()));
        Ok(TractRunner { plans, kept: call.plans, varying, elems, outputs: call.outputs.clone() })
    }

    fn compiled(&self) -> Option<Compiled> {
        Some(self.0.plans.lock().unwrap_or_else(PoisonError::into_inner).compiled.clone())
    }
}

impl TractRuntime {
    /// Returns the model with a length for every dim, simplified but not yet compiled.
    ///
    /// # Errors
    /// What tract does not support.
    #[doc(hidden)]
    pub fn typed(&self, given: &[Given]) -> Result<TypedModel, BackendError> {
        let model = self.0.with_lengths(given).and_then(|model| model.into_decluttered());
        model.map_err(|error| BackendError::Unsupported(text(&error)))
    }
}

impl TractModel {
    /// Gives every symbol its length and compiles the model, unless it is compiled already for the
    /// same inputs. Keeps the `most` plans that were used last.
    fn compile(&self, given: Vec<Given>, most: usize) -> TractResult<(Arc<TypedRunnableModel>, TypedSimpleState)> {
        // Held while compiling, so that two nodes do not compile the same model at once.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let Plans { made, compiled } = &mut *plans;
        let plan = match made.iter().position(|(key, _)| *key == given) {
            Some(at) => {
                compiled.hits += 1;
                made.remove(at).1
            }
            None => {
                let begun = Instant::now();
                let plan = self.with_lengths(&given)?.into_optimized()?.into_runnable()?;
                compiled.compiled += 1;
                compiled.compile_ns += begun.elapsed().as_nanos() as u64;
                while made.len() >= most.max(1) {
                    made.remove(0);
                    compiled.evicted += 1;
                }
                plan
            }
        };
        made.push((given, plan.clone()));
        drop(plans);
        let state = plan.spawn()?;
        Ok((plan, state))
    }

    /// Returns the model with a length for every symbol.
    fn with_lengths(&self, given: &[Given]) -> TractResult<TypedModel> {
        let template = match &self.template {
            Template::Analysed(template) => template,
            Template::Parsed(parsed) => {
                let mut model = parsed.clone();
                for (at, given) in given.iter().enumerate() {
                    let fact = given.fact(model.input_fact(at)?)?;
                    model.set_input_fact(at, fact)?;
                }
                return model.into_typed()?.into_decluttered();
            }
        };
        let mut lengths = HashMap::new();
        for (at, Given { shape, .. }) in given.iter().enumerate() {
            let fact = template.input_fact(at)?;
            for (dim, length) in std::iter::zip(fact.shape.iter(), shape) {
                if let TDim::Sym(symbol) = dim {
                    lengths.insert(symbol.clone(), (*length as i64).into());
                }
            }
        }
        template.set_symbols(&lengths)
    }
}

fn datum_type(input: &Input) -> Result<DatumType, BackendError> {
    Ok(match input.elem {
        Elem::F32 => DatumType::F32,
        Elem::F64 => DatumType::F64,
        Elem::F16 => DatumType::F16,
        Elem::U8 => DatumType::U8,
        Elem::I8 => DatumType::I8,
        Elem::U16 => DatumType::U16,
        Elem::I16 => DatumType::I16,
        Elem::U32 => DatumType::U32,
        Elem::I32 => DatumType::I32,
        Elem::U64 => DatumType::U64,
        Elem::I64 => DatumType::I64,
        Elem::Bool => DatumType::Bool,
        Elem::BF16 => return Err(BackendError::Unsupported(format!("input `{}` is bf16", input.port))),
    })
}

/// Returns an error and its causes in one line.
fn text(error: &TractError) -> String {
    let parts: Vec<String> = error.chain().map(ToString::to_string).collect();
    parts.join(": ")
}

/// A model on one thread, compiled for some batch sizes.
pub struct TractRunner {
    plans: BTreeMap<usize, (Arc<TypedRunnableModel>, TypedSimpleState)>,
    /// How many shapes stay compiled.
    kept: usize,
    /// The model, and the inputs for which one item was compiled last, if their shapes vary.
    varying: Option<(Arc<TractModel>, Vec<Given>)>,
    elems: Vec<Elem>,
    /// Their names in the model.
    outputs: Vec<String>,
}

impl std::fmt::Debug for TractRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TractRunner").field("batches", &self.plans.keys()).finish_non_exhaustive()
    }
}

impl Runner for TractRunner {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        if let Some((model, given)) = &mut self.varying
            && !given.iter().map(|given| &given.shape[..]).eq(inputs.iter().map(|input| input.shape))
        {
            let now = std::iter::zip(&*given, inputs);
            let now: Vec<Given> =
                now.map(|(before, input)| Given { shape: input.shape.to_vec(), ..before.clone() }).collect();
            let compiled = model.compile(now.clone(), self.kept).map_err(|error| BackendError::Call(text(&error)))?;
            *given = now;
            self.plans.insert(1, compiled);
        }
        let plan = self.plans.get_mut(&batch);
        let (plan, state) =
            plan.ok_or_else(|| BackendError::Call(format!("the model was not compiled for a batch size of {batch}")))?;
        // An operator with a state of its own (`Scan`, to which recurrent ones are lowered) goes on
        // from the call before.
        if state.op_states.iter().any(Option::is_some) {
            *state = plan.spawn().map_err(|error| BackendError::Call(text(&error)))?;
        }
        let values: TVec<TValue> =
            std::iter::zip(inputs, &self.elems).map(|(input, elem)| value(input, *elem)).collect::<Result<_, _>>()?;
        let outputs = state.run(values).map_err(|error| BackendError::Call(text(&error)))?;
        let mut all = std::iter::zip(&self.outputs, outputs.iter()).enumerate();
        all.try_for_each(|(at, (name, output))| give(at, name, output, take))
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "cpu".into(), threads: 1, ..SessionMetadata::default() }
    }
}

fn value(input: &BatchRef<'_>, elem: Elem) -> Result<TValue, BackendError> {
    let (shape, bytes) = (input.shape, input.bytes);
    let tensor = match elem {
        Elem::F32 => Tensor::from_shape(shape, &elements::<f32>(bytes)?),
        Elem::F16 => Tensor::from_shape(shape, &elements::<half::f16>(bytes)?),
        Elem::U8 => Tensor::from_shape(shape, &elements::<u8>(bytes)?),
        Elem::I8 => Tensor::from_shape(shape, &elements::<i8>(bytes)?),
        Elem::U16 => Tensor::from_shape(shape, &elements::<u16>(bytes)?),
        Elem::I16 => Tensor::from_shape(shape, &elements::<i16>(bytes)?),
        Elem::U32 => Tensor::from_shape(shape, &elements::<u32>(bytes)?),
        Elem::I32 => Tensor::from_shape(shape, &elements::<i32>(bytes)?),
        Elem::U64 => Tensor::from_shape(shape, &elements::<u64>(bytes)?),
        Elem::I64 => Tensor::from_shape(shape, &convert(bytes, |v: i32| i64::from(v))?),
        Elem::Bool => Tensor::from_shape(shape, &convert(bytes, |v: i32| v != 0)?),
        Elem::F64 => Tensor::from_shape(shape, &convert(bytes, |v: f32| f64::from(v))?),
        Elem::BF16 => return Err(BackendError::Unsupported("elements of type bf16".into())),
    };
    tensor.map(IntoTValue::into_tvalue).map_err(|error| BackendError::Call(text(&error)))
}

fn convert<T: Element, U>(bytes: &[u8], wider: impl Fn(T) -> U) -> Result<Vec<U>, BackendError> {
    Ok(elements::<T>(bytes)?.iter().map(|value| wider(*value)).collect())
}

fn give(at: usize, name: &str, tensor: &Tensor, take: &mut Take<'_>) -> Result<(), BackendError> {
    let failed = |error: TractError| BackendError::Call(text(&error));
    let shape = tensor.shape();
    let mut plain = |dtype: DType| take(at, BatchRef { dtype, shape, bytes: tensor.as_bytes() });
    match tensor.datum_type() {
        DatumType::F32 => plain(DType::F32),
        DatumType::F16 => plain(DType::F16),
        DatumType::U8 => plain(DType::U8),
        DatumType::I8 => plain(DType::I8),
        DatumType::U16 => plain(DType::U16),
        DatumType::I16 => plain(DType::I16),
        DatumType::U32 => plain(DType::U32),
        DatumType::I32 => plain(DType::I32),
        DatumType::U64 => plain(DType::U64),
        DatumType::F64 | DatumType::Bool => {
            let to = if tensor.datum_type() == DatumType::F64 { DatumType::F32 } else { DatumType::I32 };
            let narrow = tensor.cast_to_dt(to).map_err(failed)?;
            give(at, name, &narrow, take)
        }
        // Lengths that a model computes have tract's own type, `TDim`.
        DatumType::I64 | DatumType::TDim => {
            let wide = tensor.cast_to::<i64>().map_err(failed)?;
            let plain = wide.try_as_plain_ram().map_err(failed)?;
            let narrow = narrow(name, plain.as_slice().map_err(failed)?)?;
            take(at, BatchRef { dtype: DType::I32, shape, bytes: bytemuck::cast_slice(&narrow) })
        }
        // The caller counts outputs: one that no port can carry is reported as missing.
        _ => Ok(()),
    }
}
