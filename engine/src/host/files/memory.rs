//! Files that a program holds in memory for a graph, which names them `mem:NAME`.

use super::InputFile;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};

/// What the path of a file in memory begins with.
const PREFIX: &str = "mem:";
/// The most names shown in an error.
const MAX_SHOWN: usize = 8;

/// Returns the name of a file in memory, if a path of a graph names one: `model.onnx` for
/// `mem:model.onnx`.
pub fn memory_name(path: &str) -> Option<&str> {
    path.strip_prefix(PREFIX)
}

/// Refuses a path of a file in memory where only files on disk are possible.
pub(crate) fn refuse_memory(path: &str) -> Result<(), String> {
    match memory_name(path) {
        Some(_) => Err(format!("expected the path of a file on disk, found `{path}`")),
        None => Ok(()),
    }
}

/// Files in memory that a graph may read, by name. A graph names them `mem:NAME`, wherever a node
/// opens one input file; nothing else reads or writes them, and no such path ever leads to a file
/// on disk. Clones share the contents.
///
/// ```
/// let mut files = limen::files::MemoryFiles::default();
/// files.add("weights.npy", vec![1, 2, 3]); // or `include_bytes!`, which takes no memory of its own
/// assert_eq!(files.get("weights.npy"), Some(&[1, 2, 3][..]));
/// ```
#[derive(Clone, Default)]
pub struct MemoryFiles {
    files: Arc<BTreeMap<String, MemoryBytes>>,
    /// The names of the files opened since they were last taken.
    opened: Arc<Mutex<BTreeSet<String>>>,
}

impl MemoryFiles {
    /// Adds a file; it replaces an earlier one of the same name. A node that tells formats apart by
    /// the ending of a name does so here too.
    pub fn add(&mut self, name: impl Into<String>, bytes: impl Into<Cow<'static, [u8]>>) {
        Arc::make_mut(&mut self.files).insert(name.into(), MemoryBytes(Arc::new(bytes.into())));
    }

    /// Returns the files with the names for which `is_wanted` returns true.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = self.files.iter().filter(|(name, _)| is_wanted(name));
        // Not collected: that would compile a sort for them, in every crate that calls this.
        let mut files = BTreeMap::new();
        files.extend(wanted.map(|(name, bytes)| (name.clone(), bytes.clone())));
        MemoryFiles { files: Arc::new(files), opened: Arc::default() }
    }

    /// Returns the same files; which are opened is not shared.
    pub(crate) fn detached(&self) -> Self {
        MemoryFiles { files: self.files.clone(), opened: Arc::default() }
    }

    /// Returns the names of the files that were opened since the last call.
    pub(crate) fn take_opened(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the content of a file.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(AsRef::as_ref)
    }

    /// Returns the names and the contents of the files, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_ref()))
    }

    /// Opens the file of a relative path beside another of these files: `mem:voice/b` for `b` or
    /// `./b`, beside `mem:voice/a`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open_beside(&self, path: &Path, name: &str) -> io::Result<InputFile> {
        let beside = path.to_str().and_then(memory_name).unwrap_or_default();
        let folder = beside.rsplit_once('/').map_or("", |(folder, _)| folder);
        let parts = Path::new(name).components().filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        });
        let parts: Vec<&str> = Some(folder).filter(|folder| !folder.is_empty()).into_iter().chain(parts).collect();
        let name = parts.join("/");
        Ok(InputFile::in_memory(self, &name, &format!("{PREFIX}{name}"))?)
    }

    /// Returns the bytes that the files take, without those that are part of the program.
    pub(crate) fn owned(&self) -> usize {
        let owned = |bytes: &MemoryBytes| match &*bytes.0 {
            Cow::Borrowed(_) => 0,
            Cow::Owned(bytes) => bytes.capacity(),
        };
        self.files.values().map(owned).fold(0, usize::saturating_add)
    }

    /// Returns the content of a file without copying it.
    pub(crate) fn share(&self, name: &str) -> io::Result<MemoryBytes> {
        let found = self.files.get(name).cloned();
        if found.is_some() {
            self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string());
        }
        found.ok_or_else(|| {
            let mut why = "this program does not contain the file".to_string();
            let names: Vec<String> =
                self.files.keys().take(MAX_SHOWN).map(|name| format!("`{PREFIX}{name}`")).collect();
            if !names.is_empty() {
                let more = if self.files.len() > MAX_SHOWN { ", …" } else { "" };
                why.push_str(&format!(": write one of {}{more}", names.join(", ")));
            }
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }
}

/// Names and sizes; contents may be secret.
impl fmt::Debug for MemoryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, bytes)| (name, bytes.len()))).finish()
    }
}

/// The content of a file in memory.
#[derive(Clone)]
pub(crate) struct MemoryBytes(Arc<Cow<'static, [u8]>>);

impl AsRef<[u8]> for MemoryBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for MemoryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
