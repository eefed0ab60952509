//! Arrays as NumPy writes them: `.npy`, and `.npz`, which is a zip of those.

use super::Weights;
use limen::{DType, Element};
use npyz::{NpyFile, Order, TypeChar};
use std::io::{Read, Seek};

/// Reads an `.npy`.
///
/// # Errors
/// A sentence that continues "it …".
pub(crate) fn parse_npy(bytes: &[u8]) -> Result<Weights, String> {
    // The header is a Python literal that is parsed recursively; a deep one would overflow the stack, which cannot
    // be caught. NumPy's own are a few brackets and some hundred characters.
    let header = match bytes {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, rest @ ..] => {
            rest.get(..usize::from(u16::from_le_bytes([*a, *b])))
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', _, _, a, b, c, d, rest @ ..] => {
            rest.get(..u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => return Err("is not an .npy".into()),
    };
    let header = header.filter(|h| h.len() <= 4096).ok_or("has a header that is cut short or far too long")?;
    if header.iter().filter(|b| matches!(b, b'(' | b'[' | b'{')).count() > 64 {
        return Err("has a header that NumPy does not write".into());
    }
    let npy = NpyFile::new(bytes).map_err(|e| e.to_string())?;
    if npy.order() == Order::Fortran && npy.shape().len() > 1 {
        return Err("is in Fortran order; save it with `numpy.ascontiguousarray`".into());
    }
    let shape: Option<Vec<usize>> = npy.shape().iter().map(|n| usize::try_from(*n).ok()).collect();
    let shape = shape.ok_or("its shape does not fit in memory")?;
    let npyz::DType::Plain(kind) = npy.dtype() else {
        return Err("has fields; save each as an array of its own".into());
    };
    let found = npy.dtype().descr();
    fn plain<T: Element + npyz::Deserialize>(npy: NpyFile<&[u8]>) -> std::io::Result<(DType, Vec<u8>)> {
        Ok((T::DTYPE, bytemuck::cast_slice(&npy.into_vec::<T>()?).to_vec()))
    }
    let read = match (kind.type_char(), kind.size_field()) {
        (TypeChar::Float, 2) => plain::<half::f16>(npy),
        (TypeChar::Float, 4) => plain::<f32>(npy),
        (TypeChar::Float, 8) => plain::<f64>(npy),
        (TypeChar::Int, 1) => plain::<i8>(npy),
        (TypeChar::Int, 2) => plain::<i16>(npy),
        (TypeChar::Int, 4) => plain::<i32>(npy),
        (TypeChar::Int, 8) => plain::<i64>(npy),
        (TypeChar::Uint, 1) => plain::<u8>(npy),
        (TypeChar::Uint, 2) => plain::<u16>(npy),
        (TypeChar::Uint, 4) => plain::<u32>(npy),
        (TypeChar::Uint, 8) => plain::<u64>(npy),
        // Models take and give bools as numbers.
        (TypeChar::Bool, _) => npy.into_vec::<bool>().map(|all| (DType::U8, all.into_iter().map(u8::from).collect())),
        _ => return Err(format!("elements are {found}; numbers and bools can be read")),
    };
    let (dtype, bytes) = read.map_err(|e| e.to_string())?;
    Weights::new(dtype, shape, bytes)
}

/// What is wrong with an archive, or with the array of that name in it.
pub(crate) type NpzError = (Option<String>, std::io::Error);

/// Reads the arrays of an `.npz`, of at most so many bytes together; `wanted` says which.
///
/// # Errors
/// The array's name, where one is wrong and not the archive itself, and a sentence.
pub(crate) fn read_npz(
    file: impl Read + Seek,
    mut most: u64,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<(String, Weights)>, NpzError> {
    let whole = |e: zip::result::ZipError| (None, std::io::Error::from(e));
    let mut archive = zip::ZipArchive::new(file).map_err(whole)?;
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let file = archive.by_index(index).map_err(whole)?;
        let name = file.name().map_err(|e| (None, e.into()))?.trim_end_matches(".npy").to_string();
        if !wanted(&name) {
            continue;
        }
        let wrong = |why: String| (Some(name.clone()), std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
        if bytes.len() as u64 > most {
            return Err(wrong(format!("is larger than {} MiB", most >> 20)));
        }
        most -= bytes.len() as u64;
        let array = parse_npy(&bytes).map_err(wrong)?;
        arrays.push((name, array));
    }
    Ok(arrays)
}
