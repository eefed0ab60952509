//! Files of arrays, for tests.

use std::io::Write;
use std::path::Path;

/// Returns the bytes of an `.npy` file.
pub(crate) fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}").into_bytes();
    header.push(b'\n');
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00".as_slice(), &length, &header, data].concat()
}

pub(crate) fn f32s(shape: &str, data: &[f32]) -> Vec<u8> {
    npy("'<f4'", "False", shape, bytemuck::cast_slice(data))
}

/// Writes arrays, each as its name and its `.npy` bytes, to one archive.
pub(crate) fn write_npz(path: &Path, arrays: &[(&str, Vec<u8>)]) {
    let mut npz = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        npz.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        npz.write_all(bytes).unwrap();
    }
    npz.finish().unwrap();
}
