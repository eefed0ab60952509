//! Files of tensors: SafeTensors, `.npy` and `.npz`, files of PyTorch, GGUF, and ONNX models.

use super::encoding::Encoding;
use super::gguf::{GgufFile, shortened};
use super::torch::TorchFile;
use crate::array::Weights;
use crate::array::{parse_npy, read_npz};
use crate::base::caught;
use crate::onnx::{Elem, Initializer, Initializers};
use limen::files::{InputFile, Neighbours};
use limen::message::DType;
use limen::unit::show_bytes;
use prost::bytes::Bytes;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Larger files are refused before they are read.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// A format of files that hold tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum WeightFormat {
    SafeTensors,
    Npy,
    Npz,
    Pt,
    Gguf,
    Onnx,
}

impl WeightFormat {
    /// Returns the format of a file by its ending or by its first bytes; `None` for raw numbers and
    /// for formats that are not read.
    pub(crate) fn of(path: &Path, start: &[u8]) -> Option<WeightFormat> {
        match path.extension().and_then(|ending| ending.to_str()).unwrap_or_default() {
            "safetensors" => Some(WeightFormat::SafeTensors),
            "npy" => Some(WeightFormat::Npy),
            "npz" => Some(WeightFormat::Npz),
            "pt" | "pth" | "ckpt" => Some(WeightFormat::Pt),
            "gguf" => Some(WeightFormat::Gguf),
            "onnx" => Some(WeightFormat::Onnx),
            _ if start.starts_with(b"GGUF") => Some(WeightFormat::Gguf),
            _ if start.starts_with(b"PK\x03\x04") => Some(WeightFormat::Pt),
            _ => None,
        }
    }

    /// Returns the usual ending of a file.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// A tensor of a file.
pub(crate) struct FileTensor {
    /// Its name; empty in a file that names none.
    pub(crate) name: String,
    pub(crate) weights: Weights,
    /// Which FP8 its elements are, if the file says so; they are `u8` in `weights`.
    pub(crate) float8: Option<Encoding>,
    /// Whether its elements are in another file, beside an ONNX model.
    pub(crate) is_external: bool,
}

impl FileTensor {
    pub(super) fn new(name: String, weights: Weights) -> Self {
        FileTensor { name, weights, float8: None, is_external: false }
    }
}

/// What a file says of a tensor.
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    /// Its element type or encoding.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    /// The bytes of its elements, if the element type is known.
    pub(crate) bytes: Option<u64>,
}

/// A file of tensors whose index was read.
pub(crate) enum TensorFile<'a> {
    SafeTensors(&'a [u8], SafeTensors<'a>),
    Npy(&'a [u8]),
    Npz(&'a [u8]),
    Pt(TorchFile<'a>),
    Gguf(GgufFile<'a>),
    Onnx(Initializers, &'a Path, Option<Neighbours>),
}

impl<'a> TensorFile<'a> {
    /// Reads the index of a file. `path` and `neighbours` tell where the files beside an ONNX model
    /// are.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn open(
        format: WeightFormat,
        bytes: &'a Bytes,
        path: &'a Path,
        neighbours: Option<Neighbours>,
    ) -> Result<Self, String> {
        guarded(|| {
            Ok(match format {
                WeightFormat::SafeTensors => {
                    let file = SafeTensors::deserialize(bytes);
                    let unreadable = |error| format!("is not a readable SafeTensors file: {error}");
                    TensorFile::SafeTensors(bytes, file.map_err(unreadable)?)
                }
                WeightFormat::Npy => TensorFile::Npy(bytes),
                WeightFormat::Npz => TensorFile::Npz(bytes),
                WeightFormat::Pt => TensorFile::Pt(TorchFile::parse(bytes)?),
                WeightFormat::Gguf => TensorFile::Gguf(GgufFile::parse(bytes)?),
                WeightFormat::Onnx => TensorFile::Onnx(Initializers::parse(bytes)?, path, neighbours),
            })
        })
    }

    /// Returns the names of all tensors: a single empty one if the file names none.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn names(&self) -> Result<Vec<String>, String> {
        Ok(match self {
            TensorFile::SafeTensors(_, file) => file.names().into_iter().map(str::to_string).collect(),
            TensorFile::Npy(_) => vec![String::new()],
            TensorFile::Npz(bytes) => {
                let mut names = Vec::new();
                npz(bytes, |name| {
                    names.push(name.to_string());
                    false
                })?;
                names
            }
            TensorFile::Pt(file) => file.names().map(str::to_string).collect(),
            TensorFile::Gguf(file) => file.names().map(str::to_string).collect(),
            TensorFile::Onnx(file, ..) => file.names().map(str::to_string).collect(),
        })
    }

    /// Reads the tensors for whose names `wanted` returns true.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn tensors(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Vec<FileTensor>, String> {
        match self {
            TensorFile::SafeTensors(_, file) => safetensors(file, wanted),
            TensorFile::Npy(bytes) => Ok(vec![FileTensor::new(String::new(), guarded(|| parse_npy(bytes))?)]),
            TensorFile::Npz(bytes) => npz(bytes, wanted),
            TensorFile::Pt(file) => {
                let chosen = chosen(file.names(), wanted);
                chosen.into_iter().map(|at| guarded(|| file.read(at))).collect()
            }
            TensorFile::Gguf(file) => chosen(file.names(), wanted).into_iter().map(|at| file.read(at)).collect(),
            TensorFile::Onnx(file, path, neighbours) => {
                let read = |name: &str| initializer(name, file.read(name, path, neighbours.as_ref(), MAX_BYTES)?);
                file.names().filter(|name| wanted(name)).map(read).collect()
            }
        }
    }

    /// Returns what the file says of its tensors, and its metadata.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn contents(&mut self) -> Result<(Vec<TensorInfo>, BTreeMap<String, String>), String> {
        Ok(match self {
            TensorFile::SafeTensors(bytes, file) => {
                let info = |(name, tensor): (&str, safetensors::tensor::TensorView<'_>)| TensorInfo {
                    name: name.to_string(),
                    dtype: match stored_as(tensor.dtype()) {
                        Some((dtype, float8)) => float8.map_or(dtype.name(), Encoding::name).to_string(),
                        None => format!("{:?}", tensor.dtype()).to_lowercase(),
                    },
                    shape: tensor.shape().iter().map(|dim| *dim as u64).collect(),
                    bytes: Some(tensor.data().len() as u64),
                };
                let (_, about) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
                let metadata = about.metadata().iter().flatten();
                let metadata = metadata.map(|(key, value)| (key.clone(), shortened(value))).collect();
                (file.iter().map(info).collect(), metadata)
            }
            TensorFile::Npy(_) | TensorFile::Npz(_) | TensorFile::Onnx(..) => {
                let info = |tensor: FileTensor| TensorInfo {
                    name: tensor.name,
                    dtype: tensor.weights.dtype.name().to_string(),
                    shape: tensor.weights.shape.iter().map(|dim| *dim as u64).collect(),
                    bytes: Some(tensor.weights.bytes.len() as u64),
                };
                (self.tensors(|_| true)?.into_iter().map(info).collect(), BTreeMap::new())
            }
            TensorFile::Pt(file) => (file.listed(), BTreeMap::new()),
            TensorFile::Gguf(file) => (file.listed(), file.metadata().clone()),
        })
    }
}

/// Returns the indices of the names for which `wanted` returns true.
fn chosen<'n>(names: impl Iterator<Item = &'n str>, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    names.enumerate().filter(|(_, name)| wanted(name)).map(|(at, _)| at).collect()
}

/// Reads, and turns a panic of the reader into an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(read).map_err(panicked)?
}

fn panicked(panic: String) -> String {
    format!("cannot be read: {panic}")
}

/// Opens and reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    whole(&mut InputFile::open(path).map_err(|error| format!("cannot be read: {error}"))?)
}

/// Reads a whole file, at most `MAX_BYTES`.
pub(crate) fn whole(file: &mut InputFile) -> Result<Vec<u8>, String> {
    file.read_whole(MAX_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("must be at most {}, got more", show_bytes(MAX_BYTES)),
        _ => format!("cannot be read: {error}"),
    })
}

fn npz(bytes: &[u8], wanted: impl FnMut(&str) -> bool) -> Result<Vec<FileTensor>, String> {
    let read = caught(|| read_npz(io::Cursor::new(bytes), MAX_BYTES, wanted)).map_err(panicked)?;
    let arrays = read.map_err(|(array, error)| match array {
        Some(array) => format!("has the array `{array}`, which {error}"),
        None => format!("is not a readable .npz: {error}"),
    })?;
    Ok(arrays.into_iter().map(|(name, weights)| FileTensor::new(name, weights)).collect())
}

/// Returns the tensors for whose names `wanted` returns true.
fn safetensors(file: &SafeTensors<'_>, wanted: impl Fn(&str) -> bool) -> Result<Vec<FileTensor>, String> {
    let tensors = file.iter().filter(|(name, _)| wanted(name));
    tensors
        .map(|(name, tensor)| {
            let wrong = |why: String| format!("has the tensor `{name}`, which {why}");
            let (dtype, float8) = stored_as(tensor.dtype())
                .ok_or_else(|| wrong(format!("has unsupported elements of type {:?}", tensor.dtype())))?;
            let weights = Weights::new(dtype, tensor.shape().to_vec(), tensor.data().to_vec()).map_err(wrong)?;
            Ok(FileTensor { float8, ..FileTensor::new(name.to_string(), weights) })
        })
        .collect()
}

/// Makes a tensor of an initialiser, with the model's element type.
fn initializer(name: &str, initializer: Initializer) -> Result<FileTensor, String> {
    let Initializer { elem, dims, mut bytes, is_external } = initializer;
    let dtype = match elem {
        Elem::F64 => DType::F64,
        Elem::I64 => DType::I64,
        Elem::Bool => {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            DType::U8
        }
        other => other.dtype(),
    };
    let wrong = |why: String| format!("has the tensor `{name}`, which {why}");
    let shape = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>();
    let shape = shape.map_err(|_| wrong(format!("must have a shape that fits in memory, got {dims:?}")))?;
    let weights = Weights::new(dtype, shape, bytes).map_err(wrong)?;
    Ok(FileTensor { is_external, ..FileTensor::new(name.to_string(), weights) })
}

fn stored_as(dtype: Dtype) -> Option<(DType, Option<Encoding>)> {
    let dtype = match dtype {
        Dtype::F8_E4M3 => return Some((DType::U8, Some(Encoding::F8E4m3))),
        Dtype::F8_E5M2 => return Some((DType::U8, Some(Encoding::F8E5m2))),
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::U8 | Dtype::BOOL => DType::U8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        _ => return None,
    };
    Some((dtype, None))
}
