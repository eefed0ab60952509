//! The files beside a model that hold its weights.

use super::contents::{External, Weight};
use super::outline::Outline;
use crate::base::read_and_sum;
use limen::backend::BackendError;
use limen::files::{InputFile, Neighbours};
use limen::unit::show_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A file of weights beside a model.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Its name in the model.
    pub name: String,
    /// Its path, with symbolic links resolved; `mem:NAME` for one in memory, the
    /// URL of a fetched one.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Arc<Vec<u8>>,
}

/// Returns that a model with at least `bytes` bytes must have at most `most`.
pub(super) fn too_large(bytes: u64, most: u64) -> String {
    let gib = bytes.div_ceil(1 << 30);
    let (found, most) = (show_bytes(bytes), show_bytes(most));
    format!("must have at most {most}, got {found}{ADVICE}size={gib}GiB` (in a program, `Trials::size`)")
}

/// What stands between a message and its advice.
const ADVICE: &str = ": write `--model-limits ";

/// Splits a message that says how to allow a larger model from that advice.
pub(crate) fn split_advice(message: &str) -> Option<(&str, String)> {
    let (why, advice) = message.split_once(ADVICE)?;
    Some((why, ADVICE[2..].to_string() + advice))
}

/// Reads the files that hold a model's weights, and returns also the SHA-256 of each. With them the
/// model has at most `max_size` bytes, of which its own file has `own`; `on_size` is told how many,
/// as far as it is known, before each file is read. Runtimes do not read them, because they would
/// trust the paths, offsets and lengths in the model. The files of a model that is not on the disk
/// are in `neighbours`.
pub(super) fn data_files(
    model: &Path,
    folder: &Path,
    neighbours: Option<&Neighbours>,
    outline: &Outline,
    own: u64,
    max_size: u64,
    on_size: &dyn Fn(u64),
) -> Result<(Vec<DataFile>, BTreeMap<String, String>), BackendError> {
    let mut named: BTreeMap<&String, Vec<(&Weight, &External)>> = BTreeMap::new();
    for weight in &outline.weights {
        weight.external.iter().for_each(|part| named.entry(&part.file).or_default().push((weight, part)));
    }
    let (mut found, mut sums, mut read) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let mut all = own;
    for (name, parts) in named {
        let wrong = |why: String| BackendError::Model(format!("the weight file `{name}` {why}"));
        let unreadable = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
        let mut file = open_beside(model, folder, neighbours, name).map_err(wrong)?;
        let path = file.path().to_path_buf();
        // A file with many names would be read into memory once for each.
        if !read.insert(path.clone()) {
            return Err(wrong("must have one name in the model, got two".into()));
        }
        let least = all.saturating_add(file.size()).max(max_size.saturating_add(1));
        on_size(all.saturating_add(file.size()).min(max_size));
        let (bytes, sum) =
            read_and_sum(&mut file, max_size.saturating_sub(all)).map_err(|error| match error.kind() {
                ErrorKind::FileTooLarge => wrong(format!("and the model together {}", too_large(least, max_size))),
                _ => unreadable(error),
            })?;
        let size = bytes.len() as u64;
        all += size;
        for (weight, part) in parts {
            if part.offset.checked_add(part.length).is_none_or(|end| end > size) {
                let (External { offset, length, .. }, weight) = (part, &weight.name);
                return Err(wrong(format!(
                    "must have {length} bytes at offset {offset} for `{weight}`, got a file of {size} bytes"
                )));
            }
        }
        sums.insert(name.clone(), sum);
        found.push(DataFile { name: name.clone(), path, bytes: Arc::new(bytes) });
    }
    Ok((found, sums))
}

/// Opens the file beside a model that the model names `name`.
///
/// # Errors
/// A message that continues "the weight file …", also if the file is outside the model's folder.
pub(super) fn open_beside(
    model: &Path,
    folder: &Path,
    neighbours: Option<&Neighbours>,
    name: &str,
) -> Result<InputFile, String> {
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !is_plain {
        return Err("is outside the model's folder".into());
    }
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    if let Some(neighbours) = neighbours {
        return neighbours.open(model, name).map_err(unreadable);
    }
    let path = folder.join(name).canonicalize().map_err(unreadable)?;
    // A link could point out of the folders that the graph may read.
    if !path.starts_with(folder.canonicalize().map_err(unreadable)?) {
        return Err("links to a file outside the model's folder".into());
    }
    InputFile::again(&path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{external, model};
    use limen::policy::Trials;
    use rten_onnx::onnx::DataType;
    use std::cell::RefCell;

    #[test]
    fn the_size_of_weights_is_told_before_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (x, y) = ([("x", DataType::FLOAT, &["2"][..])], [("y", DataType::FLOAT, &["2"][..])]);
        let weights = external("w", &[2], "w.data", 4000, 8);
        let file = model(&x, &y, &[weights], &["y = Add x w"]);
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, &file).unwrap();
        // Too short, so it is read and refused.
        std::fs::write(folder.path().join("w.data"), [0; 4003]).unwrap();
        let told = RefCell::new(Vec::new());
        let read = Outline::open_within(&path, Trials::MAX_SIZE, &|size| told.borrow_mut().push(size));
        assert!(read.unwrap_err().to_string().contains("got a file of 4003 bytes"));
        assert_eq!(told.take(), [file.len() as u64 + 4003]);
    }
}
