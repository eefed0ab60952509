//! The lock of a graph: the size and SHA-256 of each file that the graph names by URL.

use super::cache::{FetchCache, fetched_folder};
use crate::text::escape::{one_line, shell_word};
use limen::files::{self, FetchedFile, RemoteFiles};
use limen_infer::internal::sha256_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The layout of the file.
const VERSION: u32 = 1;
/// Larger files are not read.
const MAX_BYTES: u64 = 4 << 20;

/// The content of a lock, which is JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    version: u32,
    /// The files by URL.
    pub(super) files: BTreeMap<String, LockedFile>,
}

/// A file of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockedFile {
    /// The SHA-256 in lower-case hexadecimal digits.
    pub(super) sha256: String,
    /// The size in bytes.
    pub(super) size: u64,
    /// The commit of an `hf://` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
}

impl Default for Lock {
    fn default() -> Self {
        Lock { version: VERSION, files: BTreeMap::new() }
    }
}

impl Lock {
    /// Returns the path of a graph's lock: `graph.lock` for `graph.yaml`.
    pub(crate) fn path_for(graph: &Path) -> PathBuf {
        let path = graph.with_extension("lock");
        if path == graph { graph.with_added_extension("lock") } else { path }
    }

    /// Reads a lock; one that does not exist is empty.
    pub(crate) fn read(path: &Path) -> Result<Lock, String> {
        let wrong = |why: String| format!("{}: {why}", one_line(&path.to_string_lossy()));
        let bytes = match files::read(path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Lock::default()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let lock: Lock = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("expected a lock that `limen-run fetch` wrote: {error}")))?;
        if lock.version != VERSION {
            return Err(wrong(format!("`version` must be {VERSION}, got {}", lock.version)));
        }
        // The checksum becomes the name of a file.
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(is_digit);
        match lock.files.iter().find(|(_, file)| !is_sum(&file.sha256)) {
            Some((url, file)) => {
                let (url, sum) = (one_line(url), one_line(&file.sha256));
                Err(wrong(format!("`sha256` of `{url}` must be 64 lower-case hexadecimal digits, got `{sum}`")))
            }
            None => Ok(lock),
        }
    }

    /// Replaces the file.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let text = serde_json::to_string_pretty(self)? + "\n";
        files::replace(folder, path.file_name().unwrap_or_default(), text.as_bytes())
    }
}

/// Returns the files of other machines that a graph may read: those of its lock, in the cache. The
/// cache is a folder as for `--cache`; by default `limen` in the user's folder for caches. Nothing
/// is read from another machine. Set it as [`Options::remote`](limen::Options::remote).
///
/// A lock that cannot be read refuses every URL of the graph, with the reason.
///
/// ```
/// let remote = limen_run::fetched_files("graph.yaml".as_ref(), Some("models".as_ref()));
/// assert_eq!(remote.iter().count(), 0, "there is no `graph.lock`");
/// let options = limen::Options { remote: Some(remote), ..limen::Options::default() };
/// ```
pub fn fetched_files(graph: &Path, cache: Option<&Path>) -> RemoteFiles {
    let word = |path: &Path| one_line(&shell_word(&path.to_string_lossy()));
    let mut words = word(graph);
    if let Some(cache) = cache {
        words.push_str(&format!(" --cache {}", word(cache)));
    }
    let found = Lock::read(&Lock::path_for(graph));
    match found.and_then(|lock| Ok((lock, fetched_folder(cache)?))) {
        Err(why) => RemoteFiles::refused(why, words),
        Ok((lock, folder)) => {
            let copies = lock.files.into_iter().map(|(url, LockedFile { sha256, size, .. })| {
                (url, FetchedFile { path: FetchCache::path_in(&folder, &sha256), size, sha256 })
            });
            RemoteFiles::new(copies.collect(), sha256_of, words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_back_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.lock");
        assert_eq!(Lock::read(&path), Ok(Lock::default()));
        let mut lock = Lock::default();
        let file = LockedFile { sha256: "0a".repeat(32), size: 3, revision: Some("main".into()) };
        lock.files.insert("hf://a/b/c".into(), file.clone());
        lock.files.insert("https://h/c".into(), LockedFile { revision: None, ..file });
        lock.write(&path).unwrap();
        assert_eq!(Lock::read(&path), Ok(lock));
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to, expected) in [
            ("\"version\": 1", "\"version\": 2", "`version` must be 1, got 2"),
            ("0a0a", "../a", "`sha256` of `hf://a/b/c` must be 64 lower-case hexadecimal digits"),
            ("0a0a", "0A0A", "64 lower-case"),
            ("\"size\"", "\"length\"", "unknown field `length`"),
            ("{", "[", "expected a lock that `limen-run fetch` wrote"),
        ] {
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let why = Lock::read(&path).unwrap_err();
            assert!(why.contains("graph.lock: ") && why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_lock_is_named_after_its_graph() {
        for (graph, lock) in [
            ("graph.yaml", "graph.lock"),
            ("a/voice.v1.yml", "a/voice.v1.lock"),
            ("g", "g.lock"),
            ("g.lock", "g.lock.lock"),
        ] {
            assert_eq!(Lock::path_for(graph.as_ref()), Path::new(lock));
        }
    }
}
