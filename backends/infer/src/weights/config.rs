//! The config of weights.

use super::encoding::Encoding;
use super::file::{FileTensor, TensorFile, WeightFormat, whole};
use super::int4::Int4Layout;
use super::transform::WeightTransform;
use crate::array::Weights;
use crate::base::{check_sum, sha256};
use crate::onnx::brief;
use limen::Folders;
use limen::files::{FileError, InputFile};
use limen::message::DType;
use limen::text::nearest;
use prost::bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io;
use std::path::Path;

/// A file of weights, and the transforms applied when they are loaded.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct WeightConfig {
    /// The file, relative to the graph's folder. `.safetensors`, `.npy`, `.npz`, `.pt`, `.pth`,
    /// `.ckpt`, `.gguf` and `.onnx` are files of tensors. Any other file has raw little-endian
    /// numbers, unless the content begins like a `.gguf` or `.pt` file.
    pub file: String,
    /// The name of the tensor in the file. A file with a single tensor needs no `tensor`. In a
    /// PyTorch file, the name consists of the keys of the dicts, joined by dots, such as
    /// `state_dict.fc.weight`. The tensors of an ONNX model are its initialisers. With a 4-bit
    /// encoding, write the common prefix of the names of a layer's tensors. For example, `layer`
    /// selects `layer.qweight`, `layer.qzeros`, `layer.scales` and `layer.g_idx`.
    pub tensor: Option<String>,
    /// The encoding of the numbers, if the tensor's type does not determine the encoding. limen
    /// widens encoded numbers to `f32`. GGUF files, and SafeTensors and PyTorch files with FP8, do
    /// not need `encoding`.
    pub encoding: Option<Encoding>,
    /// The tensor of scale factors in the same file: a scalar, or one value for each row. limen
    /// multiplies the numbers by the factors, which produces `f32`. By default, limen does not
    /// scale the numbers. 4-bit encodings contain scales and reject the key `scale`.
    pub scale: Option<String>,
    /// The element type of raw numbers. Required for raw numbers only.
    pub dtype: Option<DType>,
    /// The shape of raw numbers. Required for raw numbers only.
    pub shape: Option<Vec<usize>>,
    /// The expected SHA-256 of the file, in hexadecimal digits. limen rejects `sha256` for an
    /// ONNX model whose tensor is in another file.
    pub sha256: Option<String>,
    /// Transforms, applied in order: `[{ transpose: [1, 0] }, { scale: 0.5 }]`.
    #[serde(default)]
    pub transform: Vec<WeightTransform>,
}

impl WeightConfig {
    /// The config of a file with a single tensor and without transforms; not for raw numbers.
    pub fn of(file: impl Into<String>) -> Self {
        let file = file.into();
        let (tensor, encoding, scale, dtype, shape, sha256) = (None, None, None, None, None, None);
        WeightConfig { file, tensor, encoding, scale, dtype, shape, sha256, transform: Vec::new() }
    }

    /// Reads the weights and applies the transforms.
    ///
    /// # Errors
    /// The config field and a message that names the file and tensor.
    pub fn load(&self, folders: &Folders) -> Result<Weights, (&'static str, String)> {
        let file = &self.file;
        let wrong = |error: FileError| match error {
            FileError::Outside(why) => ("file", why),
            FileError::NotFetched { message, help } => ("file", format!("{message}; {help}")),
            error => ("file", format!("`{file}` cannot be read: {}", io::Error::from(error))),
        };
        let mut opened = folders.open(file).map_err(wrong)?;
        let bytes = whole(&mut opened).map_err(|why| ("file", format!("`{file}` {why}")))?;
        if let Some(sum) = &self.sha256 {
            check_sum(&sha256(&bytes), sum).map_err(|why| ("sha256", format!("`{file}` {why}")))?;
        }
        let mut weights = self.find(&opened, bytes)?;
        for (at, step) in self.transform.iter().enumerate() {
            let wrong = |why| ("transform", format!("step {}, for `{file}`: {why}", at + 1));
            weights = weights.transform(step).map_err(wrong)?;
        }
        Ok(weights)
    }

    fn find(&self, opened: &InputFile, bytes: Vec<u8>) -> Result<Weights, (&'static str, String)> {
        let file = &self.file;
        let wrong = |why: String| ("file", format!("`{file}` {why}"));
        let format = WeightFormat::of(opened.path(), &bytes);
        match (format, &self.dtype, &self.shape) {
            (Some(_), Some(_), _) => {
                return Err(("dtype", format!("`{file}` has its own element type: remove `dtype:`")));
            }
            (Some(_), _, Some(_)) => {
                let why =
                    format!("`{file}` has its own shape: write `transform: [{{ reshape: … }}]` instead of `shape:`");
                return Err(("shape", why));
            }
            _ => {}
        }
        if let Some(why) = foreign_format(opened.path(), &bytes).filter(|_| format.is_none()) {
            return Err(wrong(why));
        }
        let layout = self.encoding.and_then(Int4Layout::of);
        let parts = layout.as_ref().map(|layout| layout.names(self.tensor.as_deref()));
        let is_wanted = |name: &str| match (&parts, &self.tensor) {
            (Some(parts), _) => parts.iter().any(|part| part == name),
            (None, Some(tensor)) => tensor == name || self.scale.as_deref() == Some(name),
            (None, None) => true,
        };
        let mut tensors = match (format, self.dtype, &self.shape) {
            (Some(format), ..) => {
                let bytes = Bytes::from(bytes);
                let mut opened = TensorFile::open(format, &bytes, opened.path(), opened.neighbours()).map_err(wrong)?;
                if parts.is_none() {
                    self.check_names(&opened.names().map_err(wrong)?)?;
                }
                opened.tensors(is_wanted).map_err(wrong)?
            }
            (None, Some(dtype), Some(shape)) => {
                let weights = Weights::new(dtype, shape.clone(), bytes).map_err(wrong)?;
                vec![FileTensor::new(String::new(), weights)]
            }
            _ => {
                let why = format!("`{file}` holds raw numbers: write the `dtype` and `shape` of the numbers");
                return Err((if self.dtype.is_none() { "dtype" } else { "shape" }, why));
            }
        };
        if self.sha256.is_some() && tensors.iter().any(|tensor| tensor.is_external) {
            let why = format!("`{file}` has its tensors in another file, which `sha256` does not cover");
            return Err(("sha256", format!("{why}: save the model as a single file, or remove `sha256:`")));
        }
        if let Some(layout) = layout {
            if self.scale.is_some() {
                return Err(("scale", "a 4-bit layer has its own scales: remove `scale:`".into()));
            }
            let matrix = layout.widen(self.tensor.as_deref(), &tensors);
            return matrix.map_err(|(field, why)| (field, format!("`{file}` {why}")));
        }
        let scale = match &self.scale {
            Some(name) => {
                let at = tensors.iter().position(|tensor| tensor.name == *name && self.tensor.as_ref() != Some(name));
                let at = at.ok_or_else(|| {
                    let why = format!("`{file}` has no tensor `{name}` for the scale");
                    ("scale", format!("{why}: name another tensor, or remove `scale:`"))
                })?;
                Some(tensors.remove(at))
            }
            None => None,
        };
        let FileTensor { name, weights, float8, .. } = self.single(tensors)?;
        let weights = match (self.encoding, float8) {
            (Some(given), Some(is)) if given != is => {
                let why = format!("tensor `{name}` of `{file}` is {}: remove `encoding:`", is.name());
                return Err(("encoding", why));
            }
            (None, None) => weights,
            (Some(encoding), _) | (None, Some(encoding)) => {
                let field = if self.encoding.is_some() { "encoding" } else { "file" };
                encoding.widen(&weights).map_err(|why| (field, format!("`{file}` {why}")))?
            }
        };
        match scale {
            Some(scale) => {
                let scaled = weights.scaled(&scale.weights);
                scaled.map_err(|why| ("scale", format!("tensor `{}` of `{file}` {why}", scale.name)))
            }
            None => Ok(weights),
        }
    }

    /// Checks before any read that the file has the tensor that the config names, or a single one.
    fn check_names(&self, names: &[String]) -> Result<(), (&'static str, String)> {
        let file = &self.file;
        let others: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| self.scale.as_deref() != Some(*name)).collect();
        match (&self.tensor, &others[..]) {
            (None, []) => Err(("file", format!("`{file}` holds no tensors"))),
            (Some(tensor), [""]) => {
                Err(("tensor", format!("`{file}` holds a single unnamed tensor: remove `tensor: {tensor}`")))
            }
            (None, [_]) => Ok(()),
            (None, _) => {
                let shown: Vec<String> = others.iter().take(LISTED).map(|name| format!("`{}`", brief(name))).collect();
                let rest = match others.len().saturating_sub(LISTED) {
                    0 => String::new(),
                    more => format!(" and {more} more (`limen-run inspect {file}` lists all)"),
                };
                let shown = shown.join(", ");
                Err((
                    "tensor",
                    format!("`{file}` holds several tensors: write the name of one tensor in `tensor`: {shown}{rest}"),
                ))
            }
            (Some(tensor), _) => match names.iter().filter(|name| *name == tensor).count() {
                0 => {
                    let near = nearest(tensor, names.iter().map(String::as_str));
                    let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
                    Err(("tensor", format!("`{file}` has no tensor `{tensor}`{near}")))
                }
                1 => Ok(()),
                _ => Err((
                    "tensor",
                    format!("`{file}` has two tensors `{tensor}`: save the tensors under different names"),
                )),
            },
        }
    }

    /// The tensor that the config names, or the only one.
    fn single(&self, tensors: Vec<FileTensor>) -> Result<FileTensor, (&'static str, String)> {
        let file = &self.file;
        match (&self.tensor, <[_; 1]>::try_from(tensors)) {
            (Some(tensor), Ok([FileTensor { name, .. }])) if *tensor != name => {
                Err(("tensor", format!("`{file}` holds a single unnamed tensor: remove `tensor: {tensor}`")))
            }
            (_, Ok([tensor])) => Ok(tensor),
            (_, Err(_)) => Err(("file", format!("`{file}` holds no tensors"))),
        }
    }
}

/// The most tensors that an error lists.
const LISTED: usize = 8;

/// Returns what is wrong with a file that only looks like raw numbers: its format holds tensors,
/// and is not read.
fn foreign_format(path: &Path, bytes: &[u8]) -> Option<String> {
    /// Two bytes begin a pickle of protocol 2 or later.
    const PICKLES: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let (what, way_out) = if bytes.starts_with(b"\x89HDF") || matches!(ending, "h5" | "hdf5" | "keras") {
        ("an HDF5 file", "save its tensors as `.npz`")
    } else if ending == "pkl" || PICKLES.iter().any(|start| bytes.starts_with(start)) {
        ("a pickle", "save its tensors with `safetensors.torch.save_file` or `torch.save`")
    } else {
        return None;
    };
    Some(format!(
        "is {what}, expected `.safetensors`, `.npy`, `.npz`, `.pt`, `.gguf`, `.onnx` or raw numbers: {way_out}"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use safetensors::{Dtype, tensor::TensorView};
    use std::io::Write;

    /// A tensor to save: name, type, shape, bytes.
    pub(in crate::weights) type ToSave<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

    /// Writes a SafeTensors file.
    pub(in crate::weights) fn save(path: &Path, tensors: &[ToSave<'_>]) {
        let tensors = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.to_string(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        std::fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    }

    pub(in crate::weights) fn load(folder: &Path, config: serde_json::Value) -> Result<Weights, String> {
        let config: WeightConfig = serde_json::from_value(config).unwrap();
        let folders = Folders { graph: folder.to_path_buf(), ..Folders::default() };
        config.load(&folders).map_err(|(field, why)| format!("{field}: {why}"))
    }

    macro_rules! json { ($($t:tt)*) => { serde_json::json!($($t)*) }; }

    /// A folder with the numbers 1 to 6 in every format.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let values: Vec<f32> = (1u8..=6).map(f32::from).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("w.bin", bytes);
        let tensor = TensorView::new(Dtype::F32, vec![2, 3], bytes).unwrap();
        write("w.safetensors", &safetensors::serialize([("w", &tensor)], None).unwrap());
        write("two.safetensors", &safetensors::serialize([("w", &tensor), ("v", &tensor)], None).unwrap());
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let header = format!("{header:<117}\n");
        let npy = [&b"\x93NUMPY\x01\x00"[..], &118u16.to_le_bytes(), header.as_bytes(), bytes].concat();
        write("w.npy", &npy);
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in ["w", "v"] {
            zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&npy).unwrap();
        }
        write("w.npz", &zip.finish().unwrap().into_inner());
        folder
    }

    #[test]
    fn every_format_holds_the_same_numbers() {
        let folder = folder();
        let expected = load(folder.path(), json!({ "file": "w.bin", "dtype": "f32", "shape": [2, 3] })).unwrap();
        assert_eq!((expected.dtype, &expected.shape[..], expected.elements()), (DType::F32, &[2, 3][..], 6));
        for config in [
            json!({ "file": "w.safetensors" }),
            json!({ "file": "w.safetensors", "tensor": "w" }),
            json!({ "file": "two.safetensors", "tensor": "v" }),
            json!({ "file": "w.npy" }),
            json!({ "file": "w.npz", "tensor": "w" }),
            json!({ "file": "w.npy", "transform": [{ "transpose": [1, 0] }, { "transpose": [1, 0] }] }),
        ] {
            assert_eq!(load(folder.path(), config.clone()).unwrap(), expected, "{config}");
        }
        let sum = "6c1b9a4d8bd1ac5f6a5b9a3bb3ed4e5b1ac5d8cdd3c1a6f1e8e4f5c7f2b4a1d0";
        let error = load(folder.path(), json!({ "file": "w.npy", "sha256": sum })).unwrap_err();
        let (_, is) = error.split_once(", got ").unwrap();
        assert!(load(folder.path(), json!({ "file": "w.npy", "sha256": is.to_uppercase() })).is_ok());
    }

    #[test]
    fn errors_name_the_field() {
        let folder = folder();
        std::fs::write(
            folder.path().join("cut.safetensors"),
            &std::fs::read(folder.path().join("w.safetensors")).unwrap()[..40],
        )
        .unwrap();
        std::fs::write(folder.path().join("bad.npz"), b"PK\x03\x04").unwrap();
        for (name, start) in
            [("m.pt", "x"), ("m.onnx", "x"), ("m.gguf", "x"), ("gguf.bin", "GGUF"), ("zip.bin", "PK\x03\x04")]
        {
            std::fs::write(folder.path().join(name), start).unwrap();
        }
        std::fs::write(folder.path().join("h5.bin"), b"\x89HDF\r\n").unwrap();
        std::fs::write(folder.path().join("pickle.bin"), b"\x80\x02}q").unwrap();
        for (config, why) in [
            (json!({ "file": "https://a.b/w.safetensors" }), "file: `https://a.b/w.safetensors` was not fetched"),
            (json!({ "file": "s3://bucket/w.npy" }), "`s3://bucket/w.npy` was not fetched"),
            (json!({ "file": "hf://user/model/w.npy" }), "`hf://user/model/w.npy` was not fetched"),
            (json!({ "file": "../w.npy" }), "file: `../w.npy` leaves the graph's folder"),
            (json!({ "file": "none.npy" }), "file: `none.npy` cannot be read: No such file"),
            (json!({ "file": "." }), "file: `.` cannot be read: `.` is not a regular file"),
            (
                json!({ "file": "w.bin" }),
                "dtype: `w.bin` holds raw numbers: write the `dtype` and `shape` of the numbers",
            ),
            (json!({ "file": "w.bin", "dtype": "f32" }), "shape: `w.bin` holds raw numbers"),
            (
                json!({ "file": "w.bin", "dtype": "f32", "shape": [2, 4] }),
                "file: `w.bin` must have 32 bytes for f32[2, 4], got 24",
            ),
            (
                json!({ "file": "w.bin", "dtype": "f32", "shape": [1u64 << 40, 1u64 << 40] }),
                "must have a shape that fits in memory, got",
            ),
            (json!({ "file": "m.pt", "dtype": "u8", "shape": [1] }), "dtype: `m.pt` has its own element type"),
            (json!({ "file": "m.pt" }), "file: `m.pt` is not a readable PyTorch archive: "),
            (json!({ "file": "m.onnx" }), "file: `m.onnx` is not a readable ONNX model: "),
            (json!({ "file": "m.gguf" }), "file: `m.gguf` is truncated: expected 4 bytes at 0, found 1"),
            (json!({ "file": "gguf.bin" }), "file: `gguf.bin` is truncated"),
            (json!({ "file": "zip.bin" }), "file: `zip.bin` is not a readable PyTorch archive"),
            (json!({ "file": "pickle.bin" }), "file: `pickle.bin` is a pickle, expected"),
            (json!({ "file": "h5.bin" }), "file: `h5.bin` is an HDF5 file, expected"),
            (json!({ "file": "w.npy", "dtype": "f32" }), "dtype: `w.npy` has its own element type"),
            (json!({ "file": "w.npy", "shape": [6] }), "shape: `w.npy` has its own shape"),
            (json!({ "file": "w.npy", "tensor": "w" }), "tensor: `w.npy` holds a single unnamed tensor"),
            (
                json!({ "file": "w.npz" }),
                "tensor: `w.npz` holds several tensors: write the name of one tensor in `tensor`: `w`, `v`",
            ),
            (json!({ "file": "w.npz", "tensor": "x" }), "tensor: `w.npz` has no tensor `x`"),
            (json!({ "file": "w.safetensors", "tensor": "x" }), "tensor: `w.safetensors` has no tensor `x`"),
            (json!({ "file": "two.safetensors" }), "tensor: `two.safetensors` holds several tensors"),
            (json!({ "file": "cut.safetensors" }), "file: `cut.safetensors` is not a readable SafeTensors file"),
            (json!({ "file": "bad.npz", "tensor": "w" }), "file: `bad.npz` is not a readable .npz"),
            (
                json!({ "file": "w.npy", "transform": [{ "scale": 2.0 }, { "reshape": [5] }] }),
                "transform: step 2, for `w.npy`: the shape [2, 3] cannot be reshaped to [5]",
            ),
        ] {
            let error = load(folder.path(), config).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
