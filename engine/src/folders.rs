//! Where a graph may read and write: its own folder, unless the command line says more.

use std::path::{Path, PathBuf};

/// Where a graph may read and write.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// The graph file's folder; relative paths begin here.
    pub graph: PathBuf,
    /// Where outputs go instead of the graph's folder.
    pub out: Option<PathBuf>,
    /// Folders outside the graph's own that were allowed.
    pub allowed: Vec<PathBuf>,
}

impl Folders {
    /// An input path of the graph: below its folder, or below an allowed one, after following links.
    ///
    /// # Errors
    /// A sentence that says what to allow, when it leads elsewhere.
    pub fn input(&self, path: &str) -> Result<PathBuf, String> {
        let joined = self.graph.join(path);
        self.confine(&joined, path)
    }

    /// An output path: below the output folder where one was given, else below the graph's.
    ///
    /// # Errors
    /// As [`Folders::input`].
    pub fn output(&self, path: &str) -> Result<PathBuf, String> {
        match &self.out {
            Some(out) if Path::new(path).is_relative() => {
                let joined = out.join(path);
                if Path::new(path).components().any(|c| matches!(c, std::path::Component::ParentDir)) {
                    return Err(format!("`{path}` leaves the output folder; write a path without `..`"));
                }
                Ok(joined)
            }
            _ => self.confine(&self.graph.join(path), path),
        }
    }

    fn confine(&self, joined: &Path, written: &str) -> Result<PathBuf, String> {
        self.admit(&real_path(joined), written)?;
        Ok(joined.to_path_buf())
    }

    /// Whether a path without links lies where the graph may read and write.
    pub(crate) fn admit(&self, real: &Path, written: &str) -> Result<(), String> {
        let inside = |folder: &PathBuf| real.starts_with(real_path(folder));
        if inside(&self.graph) || self.allowed.iter().any(inside) {
            return Ok(());
        }
        let folder = real.parent().unwrap_or(real).display();
        Err(format!("`{written}` leaves the graph's folder; allow it with `--allow-path {folder}`"))
    }
}

/// The path after following links, step by step, for as much of it as exists.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut real = PathBuf::new();
    for part in absolute.components() {
        match part {
            std::path::Component::ParentDir => {
                real.pop();
            }
            std::path::Component::CurDir => {}
            other => {
                real.push(other);
                if let Ok(followed) = real.canonicalize() {
                    real = followed;
                }
            }
        }
    }
    real
}
