//! Lowers a model to a program, operator by operator. The model is tract's, decluttered and with a
//! length for every dim: batch norms are folded into convolutions, constants are computed, and few
//! operators are left.

use super::kernel::{ArrayRead, Binary, Expr, Fold, How, Kernel, Number, Scalar, Write};
use super::program::{Program, Source};
use super::value::{StridedValue, row_major};
use std::collections::HashMap;
use std::sync::Arc;
use tract_onnx::prelude::*;

/// Why a model has no program.
pub(super) type Refusal = String;

/// A program that is being written.
#[derive(Default)]
pub(super) struct Lowering {
    pub(super) program: Program,
    /// Constants that are in the program already, by the tensor they were made of.
    constants: HashMap<usize, StridedValue>,
}

/// More kernels than this take minutes to compile. Loops are unrolled, so a small file may ask for
/// any number.
const MAX_KERNELS: usize = 1 << 15;

/// Values of a model's tensors.
type ModelValues = HashMap<OutletId, StridedValue>;

/// Lowers a model whose inputs have fixed shapes.
///
/// # Errors
/// The operator that cannot be lowered, and why.
pub(crate) fn lower(model: &TypedModel) -> Result<Program, String> {
    let mut lowering = Lowering::default();
    let mut inputs = Vec::new();
    for outlet in model.input_outlets().map_err(text)? {
        let fact = model.outlet_fact(*outlet).map_err(text)?;
        let (scalar, shape) = (scalar(fact.datum_type)?, shape(fact)?);
        let source = if fact.datum_type == DatumType::U8 { Source::Bytes } else { Source::Input };
        let array = lowering.program.array(scalar, shape.iter().product(), source);
        lowering.program.inputs.push(array);
        let strides = row_major(&shape);
        let value = StridedValue { array, scalar, shape, offset: 0, strides };
        // A message may have other numbers than 0 and 1.
        inputs.push(match fact.datum_type {
            DatumType::Bool => {
                let is_set = Expr::Read(0).binary(Binary::NotEqual, Expr::Number(Number::zero(scalar)));
                let shape = value.shape.clone();
                lowering.map("input", scalar, &shape, &[&value], is_set)
            }
            _ => value,
        });
    }
    let outputs = lowering.body(model, inputs)?;
    for value in outputs {
        // An output is an array of its own: not an input, not a constant, and not part of another
        // output.
        let is_own = matches!(lowering.program.arrays[value.array].source, Source::Computed)
            && value.is_whole()
            && lowering.program.arrays[value.array].len == value.len()
            && !lowering.program.outputs.iter().any(|(array, _)| *array == value.array);
        let value = if is_own { value } else { lowering.copy("output", &value) };
        lowering.program.outputs.push((value.array, value.shape));
    }
    let mut program = lowering.program;
    program.kernels = program.kernels.into_iter().map(Kernel::without_single_dims).collect();
    super::fuse::fuse(&mut program);
    program.drop_unread();
    Ok(program)
}

pub(super) fn text(error: impl std::fmt::Display) -> Refusal {
    error.to_string()
}

/// The type that a tensor's elements have in device memory.
pub(super) fn scalar(dtype: DatumType) -> Result<Scalar, Refusal> {
    use DatumType::*;
    match dtype {
        F32 | F64 | F16 => Ok(Scalar::F32),
        Bool | U8 | I8 | U16 | I16 | I32 | I64 | TDim => Ok(Scalar::I32),
        other => Err(format!("elements of type {other:?}")),
    }
}

/// Whether the elements of a tensor are wider than those of the device: results that do not fit
/// fail the call.
pub(super) fn is_wide(dtype: DatumType) -> bool {
    matches!(dtype, DatumType::I64 | DatumType::TDim)
}

pub(super) fn shape(fact: &TypedFact) -> Result<Vec<usize>, Refusal> {
    let shape = fact
        .shape
        .as_concrete()
        .ok_or_else(|| format!("lengths must be known before the call, got {:?}", fact.shape))?;
    Ok(shape.to_vec())
}

impl Lowering {
    /// Lowers every operator of a model; its inputs are given. Returns its outputs.
    pub(super) fn body(&mut self, model: &TypedModel, inputs: Vec<StridedValue>) -> Result<Vec<StridedValue>, Refusal> {
        let mut values: ModelValues = HashMap::new();
        values.extend(std::iter::zip(model.input_outlets().map_err(text)?.iter().copied(), inputs));
        for id in model.eval_order().map_err(text)? {
            let node = model.node(id);
            if node.outputs.iter().enumerate().all(|(slot, _)| values.contains_key(&OutletId::new(id, slot))) {
                continue;
            }
            if let [output] = &node.outputs[..]
                && let Some(constant) = &output.fact.konst
            {
                // Read only if a kernel needs it: shapes are constants, too.
                if is_needed(model, id) {
                    let refused = |why| format!("constant `{}`: {why}", node.name);
                    values.insert(id.into(), self.constant(constant).map_err(refused)?);
                }
                continue;
            }
            let refused = |why: Refusal| format!("operator {} of node `{}`: {why}", node.op.name(), node.name);
            let facts: Vec<&TypedFact> = node.outputs.iter().map(|output| &output.fact).collect();
            let given = Operands { model, node, values: &values };
            let first = self.program.kernels.len();
            let results = self.operator(&given, &facts).map_err(refused)?;
            let n = self.program.kernels.len();
            if n > MAX_KERNELS {
                return Err(refused(format!("a program must have at most {MAX_KERNELS} kernels, got {n}")));
            }
            for kernel in &mut self.program.kernels[first..] {
                kernel.name += &format!(" of node `{}`", node.name);
            }
            values.extend(results.into_iter().enumerate().map(|(slot, value)| (OutletId::new(id, slot), value)));
        }
        let outputs = model.output_outlets().map_err(text)?.iter();
        outputs
            .map(|outlet| {
                values.get(outlet).cloned().ok_or_else(|| "an output of the model is never computed".to_string())
            })
            .collect()
    }

    /// Puts a constant into the program.
    pub(super) fn constant(&mut self, tensor: &Arc<Tensor>) -> Result<StridedValue, Refusal> {
        let key = Arc::as_ptr(tensor) as usize;
        if let Some(value) = self.constants.get(&key) {
            return Ok(value.clone());
        }
        let scalar = scalar(tensor.datum_type())?;
        let bits = bits(tensor, scalar)?;
        let shape = tensor.shape().to_vec();
        let value = self.constant_bits(scalar, bits, shape);
        self.constants.insert(key, value.clone());
        Ok(value)
    }

    pub(super) fn constant_bits(&mut self, scalar: Scalar, bits: Vec<u32>, shape: Vec<usize>) -> StridedValue {
        let array = self.program.array(scalar, bits.len(), Source::Constant(bits.into()));
        let strides = row_major(&shape);
        StridedValue { array, scalar, shape, offset: 0, strides }
    }

    /// Adds a kernel that computes a new tensor and returns the tensor.
    pub(super) fn compute(
        &mut self,
        name: &str,
        scalar: Scalar,
        shape: &[usize],
        fold: Option<Fold>,
        reads: Vec<ArrayRead>,
        value: Expr,
    ) -> StridedValue {
        let array = self.program.array(scalar, shape.iter().product(), Source::Computed);
        let strides = row_major(shape);
        let write = Write { array, offset: 0, strides: strides.clone() };
        let (name, dims) = (name.to_string(), shape.to_vec());
        let (values, fails, suppression) = (vec![value], None, None);
        self.program.kernels.push(Kernel { name, dims, fold, reads, values, write, fails, suppression });
        StridedValue { array, scalar, shape: shape.to_vec(), offset: 0, strides }
    }

    /// Copies a tensor into an array of its own.
    pub(super) fn copy(&mut self, name: &str, from: &StridedValue) -> StridedValue {
        let read = from.at(from.shape.len());
        self.compute(name, from.scalar, &from.shape, None, vec![read], Expr::Read(0))
    }

    /// A tensor that is written in parts.
    pub(super) fn space(&mut self, name: &str, scalar: Scalar, shape: &[usize]) -> StridedValue {
        let whole = self.map(name, scalar, shape, &[], Expr::Number(Number::zero(scalar)));
        // The kernel that was added writes zeros; those of the parts take its place.
        self.program.kernels.pop();
        whole
    }

    /// Copies a tensor into a part of another one.
    pub(super) fn copy_into(&mut self, name: &str, from: &StridedValue, part: &StridedValue) -> Result<(), Refusal> {
        self.copy(name, from);
        let kernel = self.program.kernels.last_mut().ok_or("expected a kernel, found none")?;
        kernel.write = Write { array: part.array, offset: part.offset, strides: part.strides.clone() };
        Ok(())
    }

    /// Computes one element from the elements at its coordinates; the inputs are broadcast from
    /// behind.
    pub(super) fn map(
        &mut self,
        name: &str,
        scalar: Scalar,
        shape: &[usize],
        inputs: &[&StridedValue],
        value: Expr,
    ) -> StridedValue {
        let reads = inputs.iter().map(|input| input.at(shape.len())).collect();
        self.compute(name, scalar, shape, None, reads, value)
    }

    /// Folds dims of a tensor, which keep length 1.
    pub(super) fn reduce(
        &mut self,
        name: &str,
        input: &StridedValue,
        axes: &[usize],
        how: How,
        of: Expr,
        value: Expr,
    ) -> StridedValue {
        let rank = input.shape.len();
        let shape: Vec<usize> = (0..rank).map(|dim| if axes.contains(&dim) { 1 } else { input.shape[dim] }).collect();
        let dims: Vec<usize> = axes.iter().map(|axis| input.shape[*axis]).collect();
        let along = |dim: usize| axes.iter().position(|axis| *axis == dim).map_or(dim, |at| rank + at);
        let read = input.read((0..rank).map(|dim| Axis::dim(along(dim), input.stride(dim))).collect());
        let scalar = match how {
            How::ArgMax { .. } | How::ArgMin { .. } => Scalar::I32,
            _ => input.scalar,
        };
        self.compute(name, scalar, &shape, Some(Fold { dims, how, exact: false, value: of }), vec![read], value)
    }
}

use super::kernel::Axis;

/// Whether an operator that is not a constant itself reads a node.
fn is_needed(model: &TypedModel, id: usize) -> bool {
    let is_output = model.outputs.iter().any(|outlet| outlet.node == id);
    let mut readers = model.node(id).outputs.iter().flat_map(|output| &output.successors);
    is_output || readers.any(|reader| model.node(reader.node).outputs.iter().any(|output| output.fact.konst.is_none()))
}

/// The bits of a constant's elements.
fn bits(tensor: &Tensor, scalar: Scalar) -> Result<Vec<u32>, Refusal> {
    match scalar {
        Scalar::F32 => {
            let tensor = tensor.cast_to::<f32>().map_err(text)?;
            let plain = tensor.try_as_plain_ram().map_err(text)?;
            Ok(plain.as_slice::<f32>().map_err(text)?.iter().map(|value| value.to_bits()).collect())
        }
        Scalar::I32 => {
            let tensor = tensor.cast_to::<i64>().map_err(text)?;
            let plain = tensor.try_as_plain_ram().map_err(text)?;
            let narrow = |value: &i64| match i32::try_from(*value) {
                Ok(value) => Ok(value as u32),
                Err(_) => Err(format!("integers must fit 32 bits on the device, got {value}")),
            };
            plain.as_slice::<i64>().map_err(text)?.iter().map(narrow).collect()
        }
    }
}

/// What an operator reads.
pub(super) struct Operands<'a> {
    pub(super) model: &'a TypedModel,
    pub(super) node: &'a TypedNode,
    values: &'a ModelValues,
}

impl Operands<'_> {
    pub(super) fn len(&self) -> usize {
        self.node.inputs.len()
    }

    pub(super) fn value(&self, at: usize) -> Result<StridedValue, Refusal> {
        let outlet = self.node.inputs.get(at).ok_or_else(|| format!("input {at} is missing"))?;
        self.values.get(outlet).cloned().ok_or_else(|| format!("input {at} is not computed"))
    }

    pub(super) fn all(&self) -> Result<Vec<StridedValue>, Refusal> {
        (0..self.len()).map(|at| self.value(at)).collect()
    }

    pub(super) fn fact(&self, at: usize) -> Result<&TypedFact, Refusal> {
        let outlet = self.node.inputs.get(at).ok_or_else(|| format!("input {at} is missing"))?;
        self.model.outlet_fact(*outlet).map_err(text)
    }

    /// The constant value of an input.
    pub(super) fn constant(&self, at: usize) -> Result<Arc<Tensor>, Refusal> {
        self.fact(at)?.konst.clone().ok_or_else(|| format!("input {at} must be constant"))
    }

    /// An input that is one number everywhere, written into the expression instead of read.
    pub(super) fn number(&self, at: usize) -> Option<Number> {
        uniform(self.fact(at).ok()?.konst.as_ref()?)
    }
}

/// The number that a tensor has everywhere.
pub(super) fn uniform(tensor: &Tensor) -> Option<Number> {
    if !tensor.is_uniform() || tensor.len() == 0 {
        return None;
    }
    let scalar = scalar(tensor.datum_type()).ok()?;
    let first = *bits(tensor, scalar).ok()?.first()?;
    Some(match scalar {
        Scalar::F32 => Number::F32(f32::from_bits(first)),
        Scalar::I32 => Number::I32(first as i32),
    })
}
