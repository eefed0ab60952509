//! Files of tensors: SafeTensors, `.npy` and `.npz`.

use super::npy::{parse_npy, read_npz};
use super::tensor::Weights;
use crate::base::caught;
use limen::files::InputFile;
use limen::message::DType;
use safetensors::{Dtype, SafeTensors};
use std::io;
use std::path::Path;

/// Larger files are refused before they are read.
const MAX_BYTES: u64 = 1 << 30;

/// Returns the tensor named `wanted` in a file with this extension, or all tensors.
pub(crate) fn tensors(ending: &str, bytes: &[u8], wanted: Option<&str>) -> Result<Vec<(String, Weights)>, String> {
    match ending {
        "safetensors" => caught(|| safetensors(bytes, wanted))?,
        "npz" => {
            let named = |name: &str| wanted.is_none_or(|wanted| wanted == name);
            let read = caught(|| read_npz(std::io::Cursor::new(bytes), MAX_BYTES, named))?;
            read.map_err(|(array, error)| match array {
                Some(array) => format!("array `{array}` {error}"),
                None => format!("is not a readable .npz: {error}"),
            })
        }
        _ => Ok(vec![(String::new(), caught(|| parse_npy(bytes))??)]),
    }
}

/// Opens and reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    whole(&mut InputFile::open(path).map_err(|error| format!("cannot be read: {error}"))?)
}

/// Reads a whole file, at most `MAX_BYTES`.
pub(crate) fn whole(file: &mut InputFile) -> Result<Vec<u8>, String> {
    file.read_whole(MAX_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => error.to_string(),
        _ => format!("cannot be read: {error}"),
    })
}

/// Returns the tensor named `wanted`, or all tensors.
fn safetensors(bytes: &[u8], wanted: Option<&str>) -> Result<Vec<(String, Weights)>, String> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| format!("is not a readable SafeTensors file: {error}"))?;
    let tensors = file.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    tensors
        .map(|(name, tensor)| {
            let wrong = |why: String| format!("tensor `{name}` {why}");
            let dtype = dtype_of(tensor.dtype())
                .ok_or_else(|| wrong(format!("has elements of type {:?}, which are not supported", tensor.dtype())))?;
            let weights = Weights::new(dtype, tensor.shape().to_vec(), tensor.data().to_vec()).map_err(wrong)?;
            Ok((name.to_string(), weights))
        })
        .collect()
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
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
    })
}
