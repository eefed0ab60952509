//! Files of `torch.save`: a zip archive with a pickle, which describes the tensors, and a file for
//! each storage. limen runs nothing of the pickle.

use super::file::{FileTensor, MAX_BYTES, TensorInfo};
use super::pickle::{TorchStorage, TorchTensor, read_pickle};
use crate::array::{Weights, gather};
use crate::onnx::brief;
use limen::unit::show_bytes;
use std::io::{Cursor, Read};
use zip::{CompressionMethod, ZipArchive};

/// The most bytes of a pickle.
const MAX_PICKLE: u64 = 16 << 20;

/// What a tensor that repeats its elements may take, as a multiple of its file.
const MAX_REPEATS: u64 = 16;

/// The start of a file from before PyTorch 1.6, which is several pickles, the first of them a
/// number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// An archive whose pickle was read.
pub(crate) struct TorchFile<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// The bytes of the file.
    size: u64,
    /// The folder of the archive that has all files.
    folder: String,
    tensors: Vec<TorchTensor>,
    storages: Vec<TorchStorage>,
}

impl<'a> TorchFile<'a> {
    /// Reads the archive's index and its pickle.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.starts_with(LEGACY) {
            let why = "is a PyTorch file of the format before 1.6, expected a zip archive";
            return Err(format!("{why}: save the file again with `torch.save(torch.load(FILE), FILE)`"));
        }
        let unreadable = |error: zip::result::ZipError| format!("is not a readable PyTorch archive: {error}");
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(unreadable)?;
        if archive.has_overlapping_files().map_err(unreadable)? {
            return Err("is not a readable PyTorch archive: the files of the archive overlap".into());
        }
        let names = archive.file_names().filter_map(Result::ok);
        let folder = names.filter_map(|name| Some(name.strip_suffix("data.pkl")?.to_string()));
        let folder = folder.into_iter().find(|folder| folder.is_empty() || folder.ends_with('/'));
        let Some(folder) = folder else {
            return Err("is a zip archive without `data.pkl`, expected a file of `torch.save`".into());
        };
        if archive.index_for_name(&format!("{folder}constants.pkl")).is_some() {
            return Err("is a TorchScript archive, expected tensors: save the tensors with \
                 `torch.save(torch.jit.load(FILE).state_dict(), FILE)`"
                .into());
        }
        let size = bytes.len() as u64;
        let mut file = TorchFile { archive, size, folder, tensors: Vec::new(), storages: Vec::new() };
        if file.archive.index_for_name(&format!("{}byteorder", file.folder)).is_some() {
            let order = file.entry("byteorder", 16)?;
            if order != b"little" {
                let order = String::from_utf8_lossy(&order).into_owned();
                return Err(format!(
                    "must have the byte order `little`, got `{order}`: save the file again with \
                     `torch.save(torch.load(FILE), FILE)`"
                ));
            }
        }
        let pickle = file.entry("data.pkl", MAX_PICKLE)?;
        (file.tensors, file.storages) = read_pickle(&pickle)?;
        Ok(file)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| &*tensor.name)
    }

    pub(super) fn listed(&self) -> Vec<TensorInfo> {
        let info = |tensor: &TorchTensor| {
            let TorchTensor { name, element, shape, .. } = tensor;
            TensorInfo {
                name: name.clone(),
                dtype: element.float8.map_or(element.dtype.name(), |float8| float8.name()).to_string(),
                shape: shape.clone(),
                bytes: Some(taken(tensor)),
            }
        };
        self.tensors.iter().map(info).collect()
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(super) fn read(&mut self, at: usize) -> Result<FileTensor, String> {
        let TorchTensor { name, element, storage, offset, shape, strides } = self.tensors[at].clone();
        let takes = taken(&self.tensors[at]);
        let wrong = |why: String| format!("has the tensor `{}`, which {why}", brief(&name));
        let TorchStorage { key, bytes, .. } = &self.storages[storage];
        let (key, expected) = (format!("data/{key}"), *bytes);
        let stored = self.entry(&key, MAX_BYTES)?;
        if stored.len() as u64 != expected {
            return Err(wrong(format!("must have {expected} bytes in `{key}`, got {}", stored.len())));
        }
        let most = self.size.saturating_mul(MAX_REPEATS).min(MAX_BYTES);
        if takes > most {
            let (takes, size, most) = (show_bytes(takes), show_bytes(self.size), show_bytes(most));
            let why = format!("must be at most {most} in a file of {size}, got {takes}");
            return Err(wrong(format!("{why}: save the repeated elements once")));
        }
        let small = |number: u64| {
            usize::try_from(number).map_err(|_| wrong(format!("must have sizes that fit in memory, got {number}")))
        };
        let all = |sizes: Vec<u64>| sizes.into_iter().map(small).collect::<Result<Vec<usize>, String>>();
        let (shape, strides) = (all(shape)?, all(strides)?);
        let mut bytes = gather(&stored, element.dtype.size(), small(offset)?, &shape, &strides);
        if element.is_bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        let weights = Weights::new(element.dtype, shape, bytes).map_err(wrong)?;
        Ok(FileTensor { float8: element.float8, ..FileTensor::new(name.clone(), weights) })
    }

    /// Reads a file of the archive, of at most `most` bytes.
    fn entry(&mut self, name: &str, most: u64) -> Result<Vec<u8>, String> {
        let wrong = |why: String| format!("has `{}`, which {why}", brief(name));
        let unreadable = |error: String| wrong(format!("cannot be read: {error}"));
        let most = most.min(self.size);
        let path = format!("{}{name}", self.folder);
        let mut entry = self.archive.by_name(&path).map_err(|error| unreadable(error.to_string()))?;
        if entry.compression() != CompressionMethod::Stored {
            return Err(wrong(
                "must be uncompressed, got a compressed file: save the file again with `torch.save`".into(),
            ));
        }
        let size = entry.size();
        if size > most {
            return Err(wrong(format!("must be at most {}, got {}", show_bytes(most), show_bytes(size))));
        }
        let mut bytes = Vec::new();
        let room = usize::try_from(size).unwrap_or(usize::MAX);
        bytes
            .try_reserve_exact(room)
            .map_err(|_| wrong(format!("must fit in the free memory, got {}", show_bytes(size))))?;
        entry.read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
        Ok(bytes)
    }
}

/// The bytes of a tensor's elements; its shape was checked.
fn taken(tensor: &TorchTensor) -> u64 {
    tensor.shape.iter().fold(tensor.element.dtype.size() as u64, |bytes, dim| bytes.saturating_mul(*dim))
}
