//! The description of a model or a file of weights, read without loading it into a runtime. Written
//! to a file it is a manifest, which a node's model has to match.

use crate::base::sha256;
use crate::onnx::{Elem, Input, Op, Outline, computes_doubles};
use crate::weights::{TensorFile, TensorInfo, WeightFormat, read, whole};
use limen::backend::BackendError;
use limen::files::{InputFile, read_up_to};
use limen::policy::Trials;
use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The description of a model or a file of weights; as JSON it is a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// The file format: `onnx`, `safetensors`, `npy`, `npz`, `pt` or `gguf`.
    pub format: String,
    /// The SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// The files beside a model that hold its weights, with the SHA-256 of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The version of the standard ONNX operator set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opset: Option<i64>,
    /// Inputs of a model, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Binding>,
    /// Outputs of a model, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Binding>,
    /// How many nodes of a model use each operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<String, usize>,
    /// Weights.
    #[serde(default)]
    pub tensors: Vec<Stored>,
    /// What a file of weights says of itself, by key: long texts are cut, and of a list only the
    /// type and the length are kept. At most 1 MiB of them is kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// What else is known of a model.
    #[serde(skip)]
    pub(crate) details: Details,
}

/// What is read of a model, but is no part of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Details {
    pub(crate) ops: Vec<Op>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The ports of outputs whose lengths depend on values.
    pub(crate) value_shaped: BTreeSet<String>,
    /// The ports of inputs and outputs that are f64 in the model.
    pub(crate) narrowed: BTreeSet<String>,
}

/// An input or output of a model, and its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Its port name.
    pub port: String,
    /// Its name in the model.
    pub name: String,
    /// Type and dims as the file declares them, such as `f32[n,1,8,8]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The tensor's name in the file.
    pub name: String,
    /// The type of its elements.
    pub dtype: String,
    /// Its dims.
    pub shape: Vec<u64>,
    /// The file beside the model that holds it, if it is not in the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The bytes of its elements in a file of weights, if the element type is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Stored {
    fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, dim| n.saturating_mul(*dim))
    }
}

/// Reads the description of an ONNX model or a file of weights.
///
/// # Errors
/// When the file cannot be read, or is malformed.
///
/// ```no_run
/// let found = limen_infer::inspect("model.onnx".as_ref()).unwrap();
/// println!("{} inputs, {} parameters", found.inputs.len(), found.parameters());
/// ```
pub fn inspect(path: &Path) -> Result<Inspection, BackendError> {
    inspect_within(path, Trials::MAX_SIZE, &|_| ())
}

/// Like [`inspect`], of a model with at most so many bytes. `on_size` is told how many, before the
/// files of its weights are read.
pub(crate) fn inspect_within(path: &Path, max_size: u64, on_size: &dyn Fn(u64)) -> Result<Inspection, BackendError> {
    let unreadable = |why: String| BackendError::Model(format!("the file {why}"));
    let start = || {
        let mut start = [0; 4];
        let read = read_up_to(&mut InputFile::open(path).ok()?, &mut start).ok()?;
        Some(start[..read].to_vec())
    };
    let format = match WeightFormat::of(path, &start().unwrap_or_default()) {
        None | Some(WeightFormat::Onnx) => {
            return Outline::open_within(path, max_size, on_size).map(|outline| Inspection::of(&outline));
        }
        Some(format) => format,
    };
    let bytes = Bytes::from(read(path).map_err(unreadable)?);
    let file = TensorFile::open(format, &bytes, path, None);
    let (tensors, metadata) = file.and_then(|mut file| file.contents()).map_err(unreadable)?;
    let stored = |TensorInfo { name, dtype, shape, bytes }| Stored { name, dtype, shape, file: None, bytes };
    Ok(Inspection {
        format: format.name().to_string(),
        sha256: sha256(&bytes),
        files: BTreeMap::new(),
        opset: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
        operators: BTreeMap::new(),
        tensors: tensors.into_iter().map(stored).collect(),
        metadata,
        details: Details::default(),
    })
}

impl Inspection {
    pub(crate) fn of(outline: &Outline) -> Self {
        let inputs = outline.inputs.iter().map(|input| Binding {
            port: input.port.clone(),
            name: input.name.clone(),
            spec: Some(input.declared()),
        });
        let outputs = outline.outputs.iter().map(|output| Binding {
            port: output.port.clone(),
            name: output.name.clone(),
            spec: output.declared.as_ref().map(Input::declared),
        });
        let mut operators = BTreeMap::new();
        for op in &outline.ops {
            *operators.entry(op.id.clone()).or_insert(0) += 1;
        }
        let tensors = outline.weights.iter().map(|weight| Stored {
            name: weight.name.clone(),
            dtype: weight.elem.to_string(),
            shape: weight.dims.clone(),
            file: weight.external.as_ref().map(|external| external.file.clone()),
            bytes: None,
        });
        let inputs_narrowed = outline.inputs.iter().filter(|input| input.elem == Elem::F64).map(|input| &input.port);
        let outputs_narrowed = outline.outputs.iter().filter(|output| output.elem == Some(Elem::F64));
        let narrowed = inputs_narrowed.chain(outputs_narrowed.map(|output| &output.port));
        let value_shaped = outline.outputs.iter().filter(|output| output.depends_on_values);
        Inspection {
            format: "onnx".into(),
            sha256: outline.sha256.clone(),
            files: outline.files.clone(),
            opset: Some(outline.opset),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            operators,
            tensors: tensors.collect(),
            metadata: BTreeMap::new(),
            details: Details {
                ops: outline.ops.clone(),
                metadata: outline.metadata.clone(),
                value_shaped: value_shaped.map(|output| output.port.clone()).collect(),
                narrowed: narrowed.cloned().collect(),
            },
        }
    }

    /// Returns a text that the exporter of a model left in it, such as the symbols that it reads.
    /// At most 1 MiB of them is kept.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.details.metadata.get(key).map(String::as_str)
    }

    /// Whether the lengths of an output of a model depend on the values of its inputs, as behind
    /// `NonZero`.
    pub fn depends_on_values(&self, port: &str) -> bool {
        self.details.value_shaped.contains(port)
    }

    /// Whether an input or an output of a model has elements of type f64, which messages carry as
    /// f32.
    pub fn narrows(&self, port: &str) -> bool {
        self.details.narrowed.contains(port)
    }

    /// Whether a model computes with elements of type f64 between its inputs and outputs, which
    /// some backends do in f32.
    pub fn computes_f64(&self) -> bool {
        self.details.ops.iter().any(computes_doubles)
    }

    /// Returns the total bytes of all tensors in a file of weights, as far as they are known.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().filter_map(|stored| stored.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the total number of elements in all tensors.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(Stored::elements).fold(0, u64::saturating_add)
    }

    /// Returns every difference between a model and this manifest, a line each. Names and shapes
    /// are compared, and content too if the manifest has a checksum.
    pub(crate) fn differences(&self, model: &Inspection) -> Vec<String> {
        let mut found = Vec::new();
        if let (Some(expected), Some(opset)) = (self.opset, model.opset)
            && expected != opset
        {
            found.push(format!("expected opset {expected}, found {opset}"));
        }
        for (op, n) in &self.operators {
            let there = model.operators.get(op).copied().unwrap_or(0);
            if there != *n {
                found.push(format!("operator {op}: expected {n}, found {there}"));
            }
        }
        for op in model.operators.keys().filter(|op| !self.operators.contains_key(*op)) {
            found.push(format!("operator {op} is not in the manifest"));
        }
        if !self.sha256.is_empty() && !self.sha256.eq_ignore_ascii_case(&model.sha256) {
            found.push(format!("expected the SHA-256 {}, found {}", self.sha256, model.sha256));
        }
        let files = |files: &BTreeMap<String, String>| -> Vec<(String, String)> {
            files.iter().map(|(name, sum)| (name.clone(), sum.clone())).collect()
        };
        compare(
            "file",
            &files(&self.files),
            &files(&model.files),
            |(name, _)| name,
            |(_, sum)| sum.clone(),
            &mut found,
        );
        for (what, manifest, model) in
            [("input", &self.inputs, &model.inputs), ("output", &self.outputs, &model.outputs)]
        {
            let show = |binding: &Binding| {
                let Binding { name, spec, .. } = binding;
                format!("`{name}` {}", spec.as_deref().unwrap_or_default()).trim_end().to_string()
            };
            compare(what, manifest, model, |binding| &binding.port, show, &mut found);
        }
        let show = |stored: &Stored| match &stored.file {
            Some(file) => format!("{}{:?} in `{file}`", stored.dtype, stored.shape),
            None => format!("{}{:?}", stored.dtype, stored.shape),
        };
        compare("weight", &self.tensors, &model.tensors, |stored| &stored.name, show, &mut found);
        found
    }
}

fn compare<T: PartialEq>(
    what: &str,
    manifest: &[T],
    model: &[T],
    name: impl Fn(&T) -> &String,
    show: impl Fn(&T) -> String,
    found: &mut Vec<String>,
) {
    // Weights of subgraphs may share a name: those with the same name are compared in order.
    // Indices, so that the map is compiled once.
    let mut by_name: BTreeMap<&String, (usize, Vec<usize>)> = BTreeMap::new();
    model.iter().enumerate().for_each(|(at, other)| by_name.entry(name(other)).or_default().1.push(at));
    for expected in manifest {
        let of = name(expected);
        let next = by_name.get_mut(of).and_then(|(next, all)| {
            *next += 1;
            all.get(*next - 1).map(|at| &model[*at])
        });
        match next {
            None => found.push(format!("{what} `{of}` ({}) is not in the model", show(expected))),
            Some(other) if other != expected => {
                found.push(format!("{what} `{of}`: expected {}, found {}", show(expected), show(other)));
            }
            Some(_) => {}
        }
    }
    for other in by_name.values().flat_map(|(next, all)| all.iter().skip(*next)).map(|at| &model[*at]) {
        found.push(format!("{what} `{}` ({}) is not in the manifest", name(other), show(other)));
    }
}

/// Reads a manifest.
///
/// # Errors
/// When the file is not a manifest, with line and column.
pub(crate) fn read_manifest(file: &mut InputFile) -> Result<Inspection, String> {
    serde_json::from_slice(&whole(file)?).map_err(|error| format!("is not a manifest: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{field, model};
    use crate::plan::Dispatch;
    use limen::message::DType;
    use limen::node::Extensions;
    use rten_onnx::onnx::DataType as D;

    fn digits() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/digits/digits.onnx")
    }

    #[test]
    fn a_model_is_read_without_being_loaded() {
        let found = inspect(&digits()).unwrap();
        assert_eq!((found.format.as_str(), found.inputs.len(), found.outputs.len()), ("onnx", 1, 1));
        assert!(found.inputs[0].spec.as_ref().unwrap().starts_with(DType::F32.name()), "{found:?}");
        assert!(found.operators["Conv"] > 0 && found.parameters() > 1000);
        let dispatch = found.dispatch(&Extensions::default());
        let (_, rten) = dispatch.iter().find(|(name, _)| *name == "rten").unwrap();
        let is_known = matches!(rten, Dispatch::Known { unsupported, .. } if unsupported.is_empty());
        assert_eq!(is_known, cfg!(feature = "rten"), "{rten:?}");
    }

    #[test]
    fn notes_of_the_exporter_are_kept_if_they_are_text_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let long = vec![b'x'; (1 << 20) + 1];
        let cases: [(&[u8], &[u8], Option<&str>); 4] = [
            (b"character", "a\nä".as_bytes(), Some("a\nä")),
            (b"character", b"\xff", None),
            (b"other", b"a", None),
            (b"character", &long, None),
        ];
        for (key, value, expected) in cases {
            let mut bytes = std::fs::read(digits()).unwrap();
            bytes.extend(field(14, &[field(1, key), field(2, value)].concat()));
            std::fs::write(&path, &bytes).unwrap();
            let found = inspect(&path).unwrap();
            assert_eq!(found.metadata("character"), expected, "{key:?}");
            assert_eq!(found.differences(&Inspection { details: Details::default(), ..found.clone() }).len(), 0);
            // Damage in it is found, as everywhere in the file.
            bytes.truncate(bytes.len() - 1);
            std::fs::write(&path, &bytes).unwrap();
            assert!(inspect(&path).is_err());
        }
    }

    #[test]
    fn f64_inputs_and_lengths_that_values_decide_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let sides = (
            &[("x", D::DOUBLE, &["n", "4"][..]), ("z", D::FLOAT, &["n", "4"][..])],
            &[("y", D::INT64, &["2", "k"][..]), ("w", D::FLOAT, &["n", "4"][..])],
        );
        std::fs::write(&path, model(sides.0, sides.1, &[], &["y = NonZero x", "w = Relu z"])).unwrap();
        let found = inspect(&path).unwrap();
        assert_eq!(["x", "z"].map(|port| found.narrows(port)), [true, false]);
        assert_eq!(["y", "w"].map(|port| found.depends_on_values(port)), [true, false]);
    }

    #[test]
    fn a_file_of_weights_is_read_and_a_malformed_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let data = [0u8; 24];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 3], &data).unwrap();
        std::fs::write(&path, safetensors::serialize([("w", view)], None).unwrap()).unwrap();
        let found = inspect(&path).unwrap();
        let stored = Stored { name: "w".into(), dtype: "f32".into(), shape: vec![2, 3], file: None, bytes: Some(24) };
        assert_eq!((found.tensors, found.format.as_str()), (vec![stored], "safetensors"));
        std::fs::write(&path, b"none").unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("SafeTensors"));
        assert!(inspect(&folder.path().join("none.onnx")).is_err());
    }

    #[test]
    fn a_manifest_reports_every_difference() {
        let model = inspect(&digits()).unwrap();
        let mut manifest = model.clone();
        assert_eq!(manifest.differences(&model), Vec::<String>::new());
        manifest.sha256.clear();
        manifest.inputs[0].spec = Some("f32[n,3,8,8]".into());
        manifest.outputs[0].port = "other".into();
        manifest.tensors[0].shape.push(7);
        let gone = manifest.tensors.pop().unwrap().name;
        let found = manifest.differences(&model).join("\n");
        for part in ["expected `", "f32[n,3,8,8]", "output `other`", "7]", &gone, "is not in the manifest"] {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert_eq!(found.lines().count(), 5, "{found}");
    }
}
