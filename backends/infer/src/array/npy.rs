//! NumPy arrays: `.npy`, and `.npz`, which is a zip of those.

use super::tensor::Weights;
use limen::message::DType;
use limen::unit::show_bytes;
use limen_npy::{ElementKind, HeaderError, MAX_HEADER};
use std::io::{Read, Seek, SeekFrom};

/// The most bytes before the numbers: magic, version and length, and the header.
const MAX_HEAD: usize = 12 + MAX_HEADER;

/// What the arrays of any archive may take, unless the caller allows less.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// The most that larger arrays may take, as a multiple of their archive. Trained weights shrink to
/// half at best.
const MAX_RATIO: u64 = 100;

/// A parsed header.
struct Head {
    dtype: DType,
    shape: Vec<usize>,
    is_bool: bool,
    is_big_endian: bool,
    /// The offset of the numbers.
    at: usize,
    /// The size of the numbers in bytes.
    takes: u64,
}

impl Head {
    /// Reads the header of an array from its first bytes.
    fn read(mut bytes: &[u8]) -> Result<Self, String> {
        let header = limen_npy::NpyHeader::read(&mut bytes).map_err(|error| match error {
            HeaderError::NotNpy | HeaderError::TooShort => "is not an .npy".into(),
            HeaderError::Truncated | HeaderError::TooLong(_) => "has a truncated or oversized header".into(),
            HeaderError::Fields => "has fields: save each field as a separate array".into(),
            HeaderError::Malformed(what, at) => format!("has a header that NumPy does not write: {what} at byte {at}"),
            error => format!("is an .npy that cannot be read: {error}"),
        });
        let limen_npy::NpyHeader { element, is_fortran, shape: dims, start } = header?;
        if is_fortran && dims.len() > 1 {
            return Err(
                "is in Fortran order: save the array with `numpy.save(file, numpy.ascontiguousarray(array))`".into()
            );
        }
        let dtype = match (element.kind, element.size) {
            (ElementKind::Float, 2) => DType::F16,
            (ElementKind::Float, 4) => DType::F32,
            (ElementKind::Float, 8) => DType::F64,
            (ElementKind::Int, 1) => DType::I8,
            (ElementKind::Int, 2) => DType::I16,
            (ElementKind::Int, 4) => DType::I32,
            (ElementKind::Int, 8) => DType::I64,
            // Models have bools as numbers.
            (ElementKind::Uint | ElementKind::Bool, 1) => DType::U8,
            (ElementKind::Uint, 2) => DType::U16,
            (ElementKind::Uint, 4) => DType::U32,
            (ElementKind::Uint, 8) => DType::U64,
            _ => return Err(format!("must have numbers or bools as elements, got '{element}'")),
        };
        let shape: Option<Vec<usize>> = dims.iter().map(|n| usize::try_from(*n).ok()).collect();
        let shape = shape.ok_or_else(|| format!("must have a shape that fits in memory, got {dims:?}"))?;
        let takes = dims.iter().try_fold(dtype.size() as u64, |n, dim| n.checked_mul(*dim));
        let takes = takes.ok_or_else(|| format!("must have a shape that fits in memory, got {shape:?}"))?;
        let is_bool = element.kind == ElementKind::Bool;
        Ok(Head { dtype, shape, is_bool, is_big_endian: element.is_big_endian, at: start, takes })
    }

    /// Checks that the header is followed by exactly the bytes of its numbers.
    fn check(&self, bytes: u64) -> Result<(), String> {
        let Head { dtype, shape, takes, .. } = self;
        if bytes == *takes { Ok(()) } else { Err(format!("must have {takes} bytes for {dtype}{shape:?}, got {bytes}")) }
    }

    fn weights(self, mut numbers: Vec<u8>) -> Result<Weights, String> {
        self.check(numbers.len() as u64)?;
        if self.is_big_endian {
            numbers.chunks_exact_mut(self.dtype.size()).for_each(<[u8]>::reverse);
        }
        if self.is_bool {
            numbers.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Weights::new(self.dtype, self.shape, numbers)
    }
}

/// Reads an `.npy`.
///
/// # Errors
/// A message that continues "it …".
pub(crate) fn parse_npy(bytes: &[u8]) -> Result<Weights, String> {
    let head = Head::read(bytes)?;
    let numbers = bytes.get(head.at..).unwrap_or_default();
    head.check(numbers.len() as u64)?;
    head.weights(numbers.to_vec())
}

/// An error of an archive, or of the array of that name in it.
pub(crate) type NpzError = (Option<String>, std::io::Error);

/// Reads the arrays of an `.npz` for which `wanted` returns true, of at most `most` bytes in all,
/// and at most the larger of 64 MiB and 100 times the archive. Each header is read first: its size
/// is compared with the archive's and with the limit before the numbers are unpacked.
///
/// # Errors
/// The array's name, unless the archive itself is malformed, and a message.
pub(crate) fn read_npz(
    mut file: impl Read + Seek,
    most: u64,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<(String, Weights)>, NpzError> {
    let whole = |e: zip::result::ZipError| (None, std::io::Error::from(e));
    let size = file.seek(SeekFrom::End(0)).map_err(|e| (None, e))?;
    let unfolded = size.saturating_mul(MAX_RATIO).max(ALWAYS_ALLOWED);
    let mut archive = zip::ZipArchive::new(file).map_err(whole)?;
    let (mut arrays, mut left) = (Vec::new(), most.min(unfolded));
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(whole)?;
        let name = file.name().map_err(|e| (None, e.into()))?.trim_end_matches(".npy").to_string();
        if !wanted(&name) {
            continue;
        }
        let wrong = |why: String| (Some(name.clone()), std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        let mut bytes = Vec::new();
        let unreadable = |e: std::io::Error| wrong(format!("cannot be unpacked: {e}"));
        (&mut file).take(MAX_HEAD as u64).read_to_end(&mut bytes).map_err(unreadable)?;
        let head = Head::read(&bytes).map_err(wrong)?;
        left = left.checked_sub(head.takes).ok_or_else(|| {
            let (takes, left, all) = (show_bytes(head.takes), show_bytes(left), show_bytes(most.min(unfolded)));
            wrong(if unfolded < most {
                let size = show_bytes(size);
                format!(
                    "must have at most {left} (left of {all} for an archive of {size}), got {takes}: save the arrays \
                     without compression, with `numpy.savez`"
                )
            } else {
                format!("must have at most {left} (left of {all} for a file), got {takes}")
            })
        })?;
        head.check(file.size().saturating_sub(head.at as u64)).map_err(wrong)?;
        bytes.drain(..head.at);
        // The archive's size may be wrong too: read at most one byte more than expected, so that an
        // excess shows.
        let rest = (head.takes + 1).saturating_sub(bytes.len() as u64);
        let more = usize::try_from(rest).unwrap_or(usize::MAX);
        bytes
            .try_reserve_exact(more)
            .map_err(|_| wrong(format!("must fit in the free memory, got {}", show_bytes(head.takes))))?;
        file.take(rest).read_to_end(&mut bytes).map_err(unreadable)?;
        let array = head.weights(bytes).map_err(wrong)?;
        arrays.push((name, array));
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    const MIB: usize = 1 << 20;

    /// An archive of arrays of so many zero bytes each.
    fn archive(arrays: &[usize], method: zip::CompressionMethod) -> Cursor<Vec<u8>> {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (at, size) in arrays.iter().enumerate() {
            let head = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}\n");
            archive.start_file(format!("a{at}.npy"), options).unwrap();
            archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
            archive.write_all(&u16::try_from(head.len()).unwrap().to_le_bytes()).unwrap();
            archive.write_all(head.as_bytes()).unwrap();
            archive.write_all(&vec![0; *size]).unwrap();
        }
        archive.finish().unwrap()
    }

    #[test]
    fn an_archive_unfolds_to_64_mib_or_100_times_its_size() {
        use zip::CompressionMethod::{Deflated, Stored};
        let read = |archive: &Cursor<Vec<u8>>, most, wanted: &str| {
            let read = read_npz(archive.clone(), most, |name| name.starts_with(wanted));
            read.map(|arrays| arrays.len()).map_err(|(array, error)| format!("{}: {error}", array.unwrap_or_default()))
        };
        let bomb = archive(&[40 * MIB, 25 * MIB], Deflated);
        let error = read(&bomb, 1 << 30, "a").unwrap_err();
        let why = "KiB), got 25.0 MiB: save the arrays without compression, with `numpy.savez`";
        assert!(
            error.starts_with("a1: must have at most 24.0 MiB (left of 64.0 MiB for an archive of ")
                && error.ends_with(why),
            "{error}"
        );
        // Only the arrays that are read count.
        assert_eq!(read(&bomb, 1 << 30, "a1"), Ok(1));
        let stored = archive(&[65 * MIB], Stored);
        assert_eq!(read(&stored, 1 << 30, "a"), Ok(1));
        let why = "a0: must have at most 2.00 MiB (left of 2.00 MiB for a file), got 65.0 MiB";
        assert_eq!(read(&stored, 2 << 20, "a"), Err(why.into()));
    }
}
