//! `limen-run new FOLDER`: writes a starter graph.

use limen::files;
use std::io;
use std::path::{Path, PathBuf};

/// A graph that runs as it is, with comments on what to change.
const STARTER: &str = include_str!("starter.yaml");

/// Writes a starter graph into a new folder, and returns the path of its file.
///
/// # Errors
/// When the folder exists already, or cannot be created.
pub fn begin(folder: &Path) -> io::Result<PathBuf> {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_lowercase()) { name } else { format!("graph-{name}") };
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), "it exists already: choose another name"),
        _ => error,
    })?;
    let text = STARTER.replace("graph: robot", &format!("graph: {}", name.trim_end_matches('-')));
    files::replace(folder, "graph.yaml", text.as_bytes())?;
    Ok(folder.join("graph.yaml"))
}
