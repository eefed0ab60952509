//! Where a graph may read and write: its own folder, unless the command line allows more. `files`
//! enforces it.

use crate::host::files::{
    FilesRead, MemoryFiles, PartialFiles, RemoteFiles, real_path, refuse_memory, refuse_url, remote_scheme,
};
use std::path::{Component, Path, PathBuf};

/// Where a graph may read and write.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// The graph file's folder; relative paths start here.
    pub graph: PathBuf,
    /// The folder for outputs, instead of the graph's.
    pub out: Option<PathBuf>,
    /// Allowed folders outside the graph's own.
    pub allowed: Vec<PathBuf>,
    /// Files that the graph reads, and therefore may not write.
    pub read: FilesRead,
    /// What earlier runs left in the folders of outputs.
    pub partial: PartialFiles,
    /// Files in memory, which the graph names `mem:NAME`.
    pub memory: MemoryFiles,
    /// Files of other machines that were fetched before, which the graph names by URL.
    pub remote: RemoteFiles,
}

impl Folders {
    /// Resolves an input path of the graph, which must lie below its folder or an allowed one after
    /// following links. A URL resolves to its local copy, which is not checked.
    ///
    /// # Errors
    /// A message that says what to allow, if the path leads elsewhere; that it is the path of a
    /// file in memory; or that the file of a URL was not fetched.
    pub fn input(&self, path: &str) -> Result<PathBuf, String> {
        refuse_memory(path)?;
        if remote_scheme(path).is_some() {
            let copy = self.remote.get(path).map(|copy| copy.path.clone());
            return copy.ok_or_else(|| format!("`{path}` was not fetched"));
        }
        let joined = self.graph.join(path);
        self.admit(&real_path(&joined), path)?;
        Ok(joined)
    }

    /// Resolves an output path, which must lie below the output folder if one is set, otherwise
    /// below the graph's, or below an allowed one, in each case after following links.
    ///
    /// # Errors
    /// A message that says what to allow, if the path leads elsewhere.
    pub fn output(&self, path: &str) -> Result<PathBuf, String> {
        self.place_output(path).map(|(joined, _)| joined)
    }

    /// Returns the path of an output as written and without links; the admitted path is the one
    /// opened.
    pub(crate) fn place_output(&self, path: &str) -> Result<(PathBuf, PathBuf), String> {
        refuse_memory(path).and_then(|()| refuse_url(path))?;
        let Some(out) = self.out.as_ref().filter(|_| Path::new(path).is_relative()) else {
            let joined = self.graph.join(path);
            let real = real_path(&joined);
            self.admit(&real, path)?;
            return Ok((joined, real));
        };
        if Path::new(path).components().any(|c| matches!(c, Component::ParentDir)) {
            return Err(format!("`{path}` leaves the output folder: write a path without `..`"));
        }
        let joined = out.join(path);
        let real = real_path(&joined);
        if !self.is_inside(&real, out) {
            let folder = real.parent().unwrap_or(&real).display();
            return Err(format!(
                "`{path}` links to a file outside the output folder: run with `--allow-path {folder}`"
            ));
        }
        Ok((joined, real))
    }

    /// Checks that a path without links lies where the graph may read and write.
    pub(crate) fn admit(&self, real: &Path, written: &str) -> Result<(), String> {
        if self.is_inside(real, &self.graph) {
            return Ok(());
        }
        let folder = real.parent().unwrap_or(real).display();
        Err(format!("`{written}` leaves the graph's folder: run with `--allow-path {folder}`"))
    }

    fn is_inside(&self, real: &Path, folder: &Path) -> bool {
        let is_below = |folder: &Path| real.starts_with(real_path(folder));
        is_below(folder) || self.allowed.iter().any(|allowed| is_below(allowed))
    }
}
