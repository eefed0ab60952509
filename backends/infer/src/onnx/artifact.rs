//! A model's file and the files of its weights, read and checked before any runtime sees them.

use super::data_file::{DataFile, data_files, too_large};
use super::initializers::Initializers;
use super::lengths::ValueShaped;
use super::outline::Outline;
use super::{sizes, wide};
use crate::base::{read_and_sum, sha256};
use limen::backend::BackendError;
use limen::files::{InputFile, Neighbours};
use limen::policy::Trials;
use prost::bytes::Bytes;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model's files in memory. Each file is read once: the bytes that are checked, hashed and loaded
/// are the same, and clones share them.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The folder of its file.
    pub folder: PathBuf,
    /// The name of its file.
    pub file: String,
    /// The content of its file. `Arc::unwrap_or_clone` copies nothing for the last owner.
    pub bytes: Arc<Vec<u8>>,
    /// The files beside it that hold its weights.
    pub data: Vec<DataFile>,
    /// Its inputs, outputs, operators and weights.
    pub outline: Arc<Outline>,
}

/// A file that may hold a model, read but not parsed.
#[derive(Debug)]
pub(crate) struct UncheckedModel {
    path: PathBuf,
    /// Where the files beside it are found, if not on the disk.
    neighbours: Option<Neighbours>,
    bytes: Vec<u8>,
    /// The SHA-256 of its content.
    sum: String,
    /// The most bytes of all its files.
    max_size: u64,
}

impl UncheckedModel {
    /// Reads an open file of a model whose files have at most so many bytes.
    pub(crate) fn read(mut file: InputFile, max_size: u64) -> Result<Self, BackendError> {
        if file.size() > max_size {
            return Err(BackendError::Model(format!("the file {}", too_large(file.size(), max_size))));
        }
        let (bytes, sum) = read_and_sum(&mut file, max_size).map_err(unreadable)?;
        Ok(UncheckedModel { path: file.path().to_path_buf(), neighbours: file.neighbours(), bytes, sum, max_size })
    }

    /// Returns the SHA-256 of its content in hexadecimal digits.
    pub(crate) fn sum(&self) -> &str {
        &self.sum
    }

    /// Checks its content, and reads the files of its weights. `on_size` is told the size of all
    /// files before each of these is read, as far as it is known.
    pub(crate) fn artifact(self, on_size: &dyn Fn(u64)) -> Result<Artifact, BackendError> {
        let UncheckedModel { path, neighbours, bytes, sum, max_size } = self;
        if let Some(other) = recognise(&bytes) {
            return Err(BackendError::Model(format!("expected an ONNX model, found {other}")));
        }
        let bytes = Arc::new(bytes);
        let (mut outline, graph) = Outline::read(&Bytes::from_owner(SharedBytes(bytes.clone())), sum)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (data, sums) =
            data_files(&path, folder, neighbours.as_ref(), &outline, bytes.len() as u64, max_size, on_size)?;
        outline.files = sums;
        sizes::check(&graph, &data)?;
        for (op, is_user) in std::iter::zip(&mut outline.ops, wide::users(&graph, &data)) {
            op.has_wide_constant = is_user;
        }
        if outline.outputs.iter().any(|output| output.depends_on_values) {
            outline.value_shaped = Some(Arc::new(ValueShaped::new(&graph, &data)));
        }
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Artifact { folder: folder.to_path_buf(), file, bytes, data, outline: Arc::new(outline) })
    }
}

/// Shares the content with the parsed form, which refers to it.
struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the names of the files beside a model that hold its weights, which need not exist.
pub(crate) fn data_files_of(path: &Path, max_size: u64) -> Result<BTreeSet<String>, BackendError> {
    let model = UncheckedModel::read(InputFile::open(path).map_err(unreadable)?, max_size)?;
    let bytes = Bytes::from(model.bytes);
    match Outline::read(&bytes, model.sum) {
        Ok((outline, _)) => Ok(outline.weights.into_iter().filter_map(|weight| Some(weight.external?.file)).collect()),
        // `linear` and `mlp` also read the weights of a model that no runtime can run.
        Err(error) => Initializers::parse(&bytes).and_then(|found| found.data_files()).map_err(|_| error),
    }
}

fn unreadable(error: std::io::Error) -> BackendError {
    match error.kind() {
        ErrorKind::FileTooLarge => BackendError::Model(error.to_string()),
        _ => BackendError::Model(format!("the file cannot be read: {error}")),
    }
}

impl Artifact {
    /// Checks the content of a model's file, and reads the files of its weights.
    ///
    /// # Errors
    /// When the model is malformed, contradictory or too large; names the tensor or file.
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Artifact, BackendError> {
        let (path, sum) = (path.to_path_buf(), sha256(&bytes));
        UncheckedModel { path, neighbours: None, bytes, sum, max_size: Trials::MAX_SIZE }.artifact(&|_| ())
    }

    /// Reads a model's file and the files of its weights.
    pub(crate) fn open(path: &Path, max_size: u64) -> Result<Artifact, BackendError> {
        UncheckedModel::read(InputFile::open(path).map_err(unreadable)?, max_size)?.artifact(&|_| ())
    }

    /// Returns the model with the first dim of each input as part of an item.
    pub(crate) fn without_batch(mut self) -> Artifact {
        Arc::make_mut(&mut self.outline).remove_batch();
        self
    }

    /// Returns the size of all its files in bytes.
    pub fn size(&self) -> u64 {
        (self.bytes.len() + self.data.iter().map(|file| file.bytes.len()).sum::<usize>()) as u64
    }
}

impl Outline {
    /// Reads the outline of a model's file, and drops the content.
    ///
    /// # Errors
    /// When the model is malformed, contradictory or too large; names the tensor or file.
    pub fn open(path: &Path) -> Result<Outline, BackendError> {
        Outline::open_within(path, Trials::MAX_SIZE, &|_| ())
    }

    /// Like [`open`](Outline::open), of a model whose files have at most `max_size` bytes.
    /// `on_size` is told how many, before the files of weights are read.
    pub(crate) fn open_within(path: &Path, max_size: u64, on_size: &dyn Fn(u64)) -> Result<Outline, BackendError> {
        let file = UncheckedModel::read(InputFile::open(path).map_err(unreadable)?, max_size)?;
        Ok(Arc::unwrap_or_clone(file.artifact(on_size)?.outline))
    }
}

/// Names the type of a file that is not a model, from its first bytes.
fn recognise(bytes: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    if bytes.is_empty() {
        return Some("an empty file");
    }
    if begins(b"version https://git-lfs") {
        return Some("a Git LFS pointer (fetch the file itself with `git lfs pull`)");
    }
    let kinds: [(&[u8], &str); 8] = [
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"PK\x03\x04", "a zip archive, as PyTorch and NumPy write them"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x89HDF", "an HDF5 file, as Keras writes them"),
        (b"GGUF", "a GGUF file"),
        (b"RTEN", "a model in rten's own format"),
        (b"\x7fELF", "an executable"),
    ];
    if let Some((_, name)) = kinds.iter().find(|(magic, _)| begins(magic)) {
        return Some(name);
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model");
    }
    // A protobuf soon has bytes that do not occur in text.
    let head = &bytes[..bytes.len().min(512)];
    let is_text = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    (head.iter().all(is_text) && String::from_utf8_lossy(head).chars().filter(|c| *c == '\u{fffd}').count() <= 1)
        .then_some("text")
}
