//! Partial files: what a file is called until it is complete, and what earlier runs left behind.

use super::output::FOLDER;
use super::{open_real, real_path, regular};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of leftovers of earlier runs checked per file.
const MAX_LEFT: usize = 16;
/// The longest part of a file's name, in bytes, repeated in the name of its partial file, which
/// adds up to 24.
pub(super) const MAX_REPEATED: usize = 224;

/// The partial files of folders. Each folder is searched once: a search for each file would take a
/// time that grows with the square of their number. All clones of one [`Folders`](crate::Folders)
/// share them; a plan begins with none.
#[derive(Clone, Debug, Default)]
pub struct PartialFiles(Arc<Mutex<HashMap<PathBuf, BTreeSet<OsString>>>>);

impl PartialFiles {
    /// Returns leftovers of earlier runs of the file at a path: partial files that were begun and
    /// not completed.
    pub fn left(&self, path: &Path) -> Vec<PathBuf> {
        let real = real_path(path);
        let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return Vec::new() };
        let Ok(opened) = open_real(folder, FOLDER) else { return Vec::new() };
        // A link may lead to a file with another name, in another folder.
        let beside = if path.file_name() == Some(name) { path } else { &real };
        self.left_in(folder, &opened, name).iter().map(|left| beside.with_file_name(left)).collect()
    }

    /// Returns leftovers of earlier runs of a file in a folder.
    pub(super) fn left_in(&self, folder: &Path, opened: &OwnedFd, name: &OsStr) -> Vec<OsString> {
        let repeated = shortened(name, MAX_REPEATED);
        let mut first = OsString::from(".");
        first.push(&repeated);
        first.push(".");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = all.entry(folder.to_path_buf()).or_insert_with(|| parts_in(folder));
        let from = parts.range::<OsStr, _>((Bound::Included(first.as_os_str()), Bound::Unbounded));
        let named = from.take_while(|part| part.as_bytes().starts_with(first.as_bytes()));
        let own = named.filter(|part| is_part_of(part, &repeated) && is_left(opened, part));
        own.take(MAX_LEFT).cloned().collect()
    }

    /// Adds a partial file of this process to those of a folder that was searched.
    pub(super) fn note(&self, folder: &Path, part: &OsStr) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = all.get_mut(folder) {
            parts.insert(part.to_owned());
        }
    }
}

/// Whether no process writes a partial file any more: it is not locked.
pub(super) fn is_left(folder: &OwnedFd, part: &OsStr) -> bool {
    let open = |flags: OFlag| openat(folder, part, flags | OFlag::O_NOFOLLOW, Mode::empty());
    regular(&open, "").is_ok_and(|(file, _)| file.try_lock().is_ok())
}

/// Shortens a name to at most `most` bytes, which must be 17 or more: a longer name is cut and ends
/// with a digest of the whole.
pub fn shortened(name: &OsStr, most: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= most {
        return name.to_owned();
    }
    // FNV-1a: the same in every version, so that leftovers of earlier versions are recognised.
    let digest = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    // Do not cut within a character.
    let mut end = most.saturating_sub(17);
    while end > 0 && bytes[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    let mut short = OsStr::from_bytes(&bytes[..end]).to_owned();
    short.push(format!("~{digest:016x}"));
    short
}

/// Returns the names of partial files in a folder.
fn parts_in(folder: &Path) -> BTreeSet<OsString> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    names.filter(|name| name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".part")).collect()
}

/// Returns whether a name is `.FILE.123.part` or `.FILE.123-2.part`.
fn is_part_of(name: &OsStr, file: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(b".").and_then(|rest| rest.strip_prefix(file.as_bytes()));
    let number = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".part"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(|b| b.is_ascii_digit() || *b == b'-'))
}

/// Returns the name under which the leftover `.result.csv.123.part` of `result.csv` is kept:
/// `result-interrupted-123.csv`.
pub(super) fn kept_name(file: &OsStr, left: &OsStr) -> OsString {
    let number = left.as_bytes().strip_suffix(b".part").and_then(|left| left.rsplit(|byte| *byte == b'.').next());
    let file = shortened(file, MAX_REPEATED);
    let file = Path::new(&file);
    let mut kept = file.file_stem().unwrap_or_default().to_owned();
    kept.push("-interrupted-");
    kept.push(OsStr::from_bytes(number.unwrap_or_default()));
    if let Some(extension) = file.extension() {
        kept.push(".");
        kept.push(extension);
    }
    kept
}

/// Returns the path under which a leftover of an earlier run of the file at `path` is kept.
pub fn kept_path(path: &Path, left: &Path) -> PathBuf {
    let real = real_path(path);
    left.with_file_name(kept_name(real.file_name().unwrap_or_default(), left.file_name().unwrap_or_default()))
}
