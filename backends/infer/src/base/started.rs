//! This program, started again for a task in a process of its own.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The arguments by which this program knows such tasks, before everything else.
static SERVED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Notes that this program looks for a task.
pub(crate) fn note_serving(argument: &'static str) {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner).push(argument);
}

/// Whether this program can be started for a task.
pub fn is_serving(argument: &str) -> bool {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner).contains(&argument)
}

/// Returns the file of this program; `None` if it is not known.
pub fn this_program() -> Option<PathBuf> {
    // The file that is running, even if it was replaced meanwhile.
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Some(this.to_path_buf());
    }
    std::env::current_exe().ok()
}
