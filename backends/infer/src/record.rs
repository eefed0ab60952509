//! Recording a case of a model on ONNX Runtime, for a graph that does not have one from the
//! framework that trained the model.

use crate::base::BackendOptions;
use limen::backend::BackendError;
use std::collections::BTreeMap;
use std::path::Path;

/// How to call a model whose case is recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordRequest {
    /// How many items the case has at most; those of a model with a state are steps of one stream.
    pub items: usize,
    /// Whether the first dim of each input is part of an item, as with `batch_dim: none`.
    pub no_batch: bool,
    /// Shapes of one item by input, which bind the symbolic dims.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Inputs and outputs that are a state.
    pub states: Vec<(String, String)>,
    /// The numbers of inputs that have one value in every call.
    pub constants: BTreeMap<String, f64>,
    /// The greatest lengths of outputs whose lengths depend on values, as in the config of a node.
    pub max: BTreeMap<String, Vec<usize>>,
}

/// A case that was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedCase {
    /// The `.npz` of inputs and outputs, for `verify: { case: … }`: the calls before the first
    /// whose outputs have other lengths. `None` if an output has no elements.
    pub npz: Option<Vec<u8>>,
    /// The greatest length that a call gave, of each output with lengths that vary.
    pub longest: BTreeMap<String, usize>,
    /// The greatest number that a call gave, of each output of f32.
    pub greatest: BTreeMap<String, f32>,
}

/// Calls a model on ONNX Runtime with numbers from 0 to 1, and ones for whole numbers, and returns
/// its inputs and outputs.
///
/// # Errors
/// When this program or machine has no ONNX Runtime, or it does not run the model.
pub fn record_case(
    model: &Path,
    request: &RecordRequest,
    options: &BackendOptions,
) -> Result<RecordedCase, BackendError> {
    #[cfg(feature = "ort")]
    return on_ort::record(model, request, options);
    #[cfg(not(feature = "ort"))]
    {
        let _ = (model, request, options);
        Err(BackendError::Unavailable("this program was built without the backend `ort`".into()))
    }
}

#[cfg(feature = "ort")]
mod on_ort {
    use super::{BackendOptions, RecordRequest, RecordedCase};
    use crate::backend::{Ort, OrtRuntime};
    use crate::base::{Access, caught};
    use crate::onnx::{ConstantInput, ModelState, OnnxLane, OnnxModel, Runtime};
    use limen::backend::{Backend, BackendError, BatchMut, BatchRef, Prepared, Session, TensorSpec};
    use limen::message::{DType, Dim};
    use std::collections::BTreeMap;
    use std::io::{Cursor, Write};
    use std::path::Path;
    use zip::write::SimpleFileOptions;

    /// The most bytes of a case: half of what `verify:` reads.
    const MAX_BYTES: usize = 32 << 20;

    /// An array of the case: its spec, and the items so far.
    struct Array {
        spec: TensorSpec,
        /// The shape of the largest item.
        most: Vec<usize>,
        /// The shape of the newest item.
        item: Vec<usize>,
        bytes: Vec<u8>,
    }

    impl Array {
        fn of(spec: &TensorSpec) -> Array {
            let most: Vec<usize> = spec.shape.iter().map(|dim| dim.max().unwrap_or(1)).collect();
            Array { spec: spec.clone(), item: most.clone(), most, bytes: Vec::new() }
        }

        fn bytes_of(&self, item: &[usize]) -> usize {
            item.iter().product::<usize>() * self.spec.dtype.size()
        }

        fn most_bytes(&self) -> usize {
            self.bytes_of(&self.most)
        }

        /// Returns the greatest length of the newest item, of the dims that vary.
        fn longest(&self) -> Option<usize> {
            let dims = std::iter::zip(&self.item, &self.spec.shape);
            dims.filter(|(_, dim)| matches!(dim, Dim::AtMost(_))).map(|(length, _)| *length).max()
        }

        /// Returns the greatest number of the newest item.
        fn greatest(&self) -> Option<f32> {
            let begin = self.bytes.len() - self.most_bytes();
            let item = self.bytes.get(begin..begin + self.bytes_of(&self.item))?;
            let numbers = item.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap_or_default()));
            numbers.reduce(f32::max).filter(|_| self.spec.dtype == DType::F32)
        }
    }

    pub(super) fn record(
        path: &Path,
        request: &RecordRequest,
        options: &BackendOptions,
    ) -> Result<RecordedCase, BackendError> {
        OrtRuntime::probe(options)?;
        let fixed =
            |(port, shape): (&String, &Vec<usize>)| (port.clone(), shape.iter().copied().map(Dim::Fixed).collect());
        let state = |(input, output): &(String, String)| ModelState {
            input: input.clone(),
            output: output.clone(),
            batch_dim: None,
        };
        let constant =
            |(port, value): (&String, &f64)| (port.clone(), ConstantInput { shape: Vec::new(), values: vec![*value] });
        let model = OnnxModel {
            path: path.to_path_buf(),
            shapes: request.shapes.iter().map(fixed).collect(),
            states: request.states.iter().map(state).collect(),
            constants: request.constants.iter().map(constant).collect(),
            max: request.max.clone(),
            no_batch: request.no_batch,
            one_item: true,
            options: options.clone(),
            ..OnnxModel::default()
        };
        let prepared = Ort::prepare(model)?;
        let mut session = prepared.session(1)?;
        let (mut lane, mut noise) = (OnnxLane::default(), 1u32);
        let arrays = |specs: &[TensorSpec]| -> Vec<Array> { specs.iter().map(Array::of).collect() };
        let (mut inputs, mut outputs) = (arrays(&prepared.signature().inputs), arrays(&prepared.signature().outputs));
        let item_bytes: usize = inputs.iter().chain(&outputs).map(Array::most_bytes).sum();
        let items = request.items.min(MAX_BYTES / item_bytes.max(1));
        if items == 0 {
            let why = format!("an item of a case must have at most {MAX_BYTES} bytes, got {item_bytes}");
            return Err(BackendError::Unsupported(why));
        }
        let (mut longest, mut kept, mut is_kept) = (BTreeMap::new(), 0, true);
        let mut greatest = BTreeMap::new();
        let mut lengths: Option<Vec<Vec<usize>>> = None;
        for _ in 0..items {
            for input in &mut inputs {
                let (begin, bytes) = (input.bytes.len(), input.most_bytes());
                input.bytes.resize(begin + bytes, 0);
                let is_whole = Access::for_dtype(input.spec.dtype).holds_only_whole();
                let numbers = std::iter::repeat_with(|| {
                    // A linear congruential generator (Numerical Recipes): the same numbers on
                    // every machine.
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if is_whole { 1.0 } else { f64::from(noise >> 8) / f64::from(1 << 24) }
                });
                Access::for_dtype(input.spec.dtype).write(numbers, &mut input.bytes[begin..]);
            }
            for output in &mut outputs {
                let bytes = output.bytes.len() + output.most_bytes();
                output.bytes.resize(bytes, 0);
                output.item.clone_from(&output.most);
            }
            let given = inputs.iter().map(|array| BatchRef {
                dtype: array.spec.dtype,
                shape: &array.item,
                bytes: &array.bytes[array.bytes.len() - array.most_bytes()..],
            });
            let given: Vec<BatchRef<'_>> = given.collect();
            let taken = outputs.iter_mut().map(|array| {
                let begin = array.bytes.len() - array.most_bytes();
                let Array { spec, item, bytes, .. } = array;
                BatchMut { dtype: spec.dtype, shape: item, bytes: &mut bytes[begin..] }
            });
            let mut taken: Vec<BatchMut<'_>> = taken.collect();
            caught(|| session.infer_one(&given, &mut taken, &mut lane)).map_err(BackendError::Call)??;
            for output in &outputs {
                if let Some(length) = output.longest() {
                    let most = longest.entry(output.spec.name.clone()).or_insert(0);
                    *most = length.max(*most);
                }
                if let Some(number) = output.greatest() {
                    let most = greatest.entry(output.spec.name.clone()).or_insert(number);
                    *most = number.max(*most);
                }
            }
            let given: Vec<Vec<usize>> = outputs.iter().map(|output| output.item.clone()).collect();
            is_kept &= *lengths.get_or_insert_with(|| given.clone()) == given;
            kept += usize::from(is_kept);
            for array in inputs.iter_mut().chain(&mut outputs) {
                let used = if is_kept { array.bytes_of(&array.item) } else { 0 };
                array.bytes.truncate(array.bytes.len() - array.most_bytes() + used);
            }
        }
        for (output, lengths) in std::iter::zip(&mut outputs, lengths.unwrap_or_default()) {
            output.item = lengths;
        }
        let is_empty = outputs.iter().any(|output| output.item.contains(&0));
        let npz = (!is_empty).then(|| write(kept, inputs.iter().chain(&outputs))).transpose()?;
        Ok(RecordedCase { npz, longest, greatest })
    }

    fn write<'a>(items: usize, arrays: impl Iterator<Item = &'a Array>) -> Result<Vec<u8>, BackendError> {
        let failed = |error: &dyn std::fmt::Display| BackendError::Call(format!("the case cannot be written: {error}"));
        let mut npz = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for Array { spec, item, bytes, .. } in arrays {
            let descriptor = match spec.dtype {
                DType::F16 => "<f2",
                DType::F32 => "<f4",
                DType::F64 => "<f8",
                DType::I8 => "|i1",
                DType::U8 => "|u1",
                DType::I16 => "<i2",
                DType::U16 => "<u2",
                DType::I32 => "<i4",
                DType::U32 => "<u4",
                DType::I64 => "<i8",
                DType::U64 => "<u8",
                DType::BF16 => return Err(failed(&"NumPy has no type bf16")),
            };
            let shape = std::iter::once(items).chain(item.iter().copied());
            npz.start_file(format!("{}.npy", spec.name), SimpleFileOptions::default())
                .map_err(|error| failed(&error))?;
            let header = limen_npy::header(descriptor, shape.map(|length| length as u64));
            npz.write_all(&header).and_then(|()| npz.write_all(bytes)).map_err(|error| failed(&error))?;
        }
        npz.finish().map(Cursor::into_inner).map_err(|error| failed(&error))
    }
}

#[cfg(all(test, feature = "ort"))]
mod tests {
    use super::*;
    use crate::inspect::inspect;
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType as D;

    /// The model gives the places of three numbers from 0 to 1 that do not become 0.
    #[test]
    fn outputs_of_other_lengths_end_a_case() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let io = (&[("x", D::FLOAT, &["1", "3"][..])], &[("y", D::INT64, &["k", "2"][..])]);
        let shapes = |items, places| Some([("x", vec![items, 3]), ("y", vec![items, places, 2])]);
        for (rounded, expected, longest) in [("Ceil", shapes(8, 3), 3), ("Round", shapes(2, 1), 2), ("Floor", None, 0)]
        {
            let nodes = [&format!("a = {rounded} x"), "b = NonZero a", "y = Transpose b perm=1,0"];
            std::fs::write(&path, model(io.0, io.1, &[], &nodes)).unwrap();
            let max = BTreeMap::from([("y".to_string(), vec![100])]);
            let request = RecordRequest { items: 8, max, ..RecordRequest::default() };
            let found = record_case(&path, &request, &BackendOptions::default()).unwrap();
            let items = found.npz.map(|npz| {
                let case = folder.path().join("case.npz");
                std::fs::write(&case, npz).unwrap();
                let arrays = inspect(&case).unwrap().tensors;
                arrays.into_iter().map(|array| (array.name, array.shape)).collect::<Vec<_>>()
            });
            let expected = expected.map(|shapes| shapes.map(|(name, shape)| (name.to_string(), shape)).to_vec());
            assert_eq!((items, found.longest["y"]), (expected, longest), "{rounded}");
        }
    }
}
