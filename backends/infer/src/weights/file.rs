//! Files of tensors: SafeTensors, `.npy` and `.npz`.

use super::encoding::Encoding;
use crate::array::Weights;
use crate::array::{parse_npy, read_npz};
use crate::base::caught;
use limen::files::InputFile;
use limen::message::DType;
use limen::unit::show_bytes;
use safetensors::{Dtype, SafeTensors};
use std::io;
use std::path::Path;

/// Larger files are refused before they are read.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// A tensor of a file.
pub(crate) struct FileTensor {
    /// Its name; empty in a file that names none.
    pub(crate) name: String,
    pub(crate) weights: Weights,
    /// Which FP8 its elements are, if the file says so; they are `u8` in `weights`.
    pub(crate) float8: Option<Encoding>,
}

impl FileTensor {
    pub(super) fn new(name: String, weights: Weights) -> Self {
        FileTensor { name, weights, float8: None }
    }
}

/// Returns the tensors in a file with this extension for whose names `wanted` returns true.
pub(crate) fn tensors(ending: &str, bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Vec<FileTensor>, String> {
    let unreadable = |panic: String| format!("cannot be read: {panic}");
    match ending {
        "safetensors" => caught(|| safetensors(bytes, wanted)).map_err(unreadable)?,
        "npz" => {
            let read = caught(|| read_npz(std::io::Cursor::new(bytes), MAX_BYTES, wanted)).map_err(unreadable)?;
            let arrays = read.map_err(|(array, error)| match array {
                Some(array) => format!("has the array `{array}`, which {error}"),
                None => format!("is not a readable .npz: {error}"),
            })?;
            Ok(arrays.into_iter().map(|(name, weights)| FileTensor::new(name, weights)).collect())
        }
        _ => Ok(vec![FileTensor::new(String::new(), caught(|| parse_npy(bytes)).map_err(unreadable)??)]),
    }
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

/// Returns the tensors for whose names `wanted` returns true.
fn safetensors(bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Vec<FileTensor>, String> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| format!("is not a readable SafeTensors file: {error}"))?;
    let tensors = file.iter().filter(|(name, _)| wanted(name));
    tensors
        .map(|(name, tensor)| {
            let wrong = |why: String| format!("has the tensor `{name}`, which {why}");
            let (dtype, float8) = stored_as(tensor.dtype())
                .ok_or_else(|| wrong(format!("has unsupported elements of type {:?}", tensor.dtype())))?;
            let weights = Weights::new(dtype, tensor.shape().to_vec(), tensor.data().to_vec()).map_err(wrong)?;
            Ok(FileTensor { name: name.to_string(), weights, float8 })
        })
        .collect()
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
