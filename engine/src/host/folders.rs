//! Where a graph may read and write: its own folder, unless the command line says more. How it is done is in `files`.

use crate::host::files::{FilesRead, real_path};
use std::path::{Component, Path, PathBuf};

/// Where a graph may read and write.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// The graph file's folder; relative paths begin here.
    pub graph: PathBuf,
    /// Where outputs go instead of the graph's folder.
    pub out: Option<PathBuf>,
    /// Folders outside the graph's own that were allowed.
    pub allowed: Vec<PathBuf>,
    /// Files that are read, which the graph may not write.
    pub read: FilesRead,
}

impl Folders {
    /// An input path of the graph: below its folder, or below an allowed one, after following links.
    ///
    /// # Errors
    /// A sentence that says what to allow, when it leads elsewhere.
    pub fn input(&self, path: &str) -> Result<PathBuf, String> {
        let joined = self.graph.join(path);
        self.admit(&real_path(&joined), path)?;
        Ok(joined)
    }

    /// An output path: below the output folder where one was given, else below the graph's; in either case after following
    /// links, and also below an allowed one.
    ///
    /// # Errors
    /// As [`Folders::input`].
    pub fn output(&self, path: &str) -> Result<PathBuf, String> {
        self.place_output(path).map(|(joined, _)| joined)
    }

    /// Where an output lies, as people know it and without links: what was admitted is what is opened.
    pub(crate) fn place_output(&self, path: &str) -> Result<(PathBuf, PathBuf), String> {
        let Some(out) = self.out.as_ref().filter(|_| Path::new(path).is_relative()) else {
            let joined = self.graph.join(path);
            let real = real_path(&joined);
            self.admit(&real, path)?;
            return Ok((joined, real));
        };
        if Path::new(path).components().any(|c| matches!(c, Component::ParentDir)) {
            return Err(format!("`{path}` leaves the output folder; write a path without `..`"));
        }
        let joined = out.join(path);
        let real = real_path(&joined);
        if !self.is_inside(&real, out) {
            let folder = real.parent().unwrap_or(&real).display();
            return Err(format!("`{path}` leaves the output folder by a link; allow it with `--allow-path {folder}`"));
        }
        Ok((joined, real))
    }

    /// Whether a path without links lies where the graph may read and write.
    pub(crate) fn admit(&self, real: &Path, written: &str) -> Result<(), String> {
        if self.is_inside(real, &self.graph) {
            return Ok(());
        }
        let folder = real.parent().unwrap_or(real).display();
        Err(format!("`{written}` leaves the graph's folder; allow it with `--allow-path {folder}`"))
    }

    fn is_inside(&self, real: &Path, folder: &Path) -> bool {
        let is_below = |folder: &Path| real.starts_with(real_path(folder));
        is_below(folder) || self.allowed.iter().any(|allowed| is_below(allowed))
    }
}
