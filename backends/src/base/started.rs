//! This program, started again for a task in a process of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program looks for such a task before everything else.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Notes that this program looks for such a task.
pub(crate) fn note_serving() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Whether this program can be started for such a task.
pub(crate) fn is_serving() -> bool {
    SERVES.load(Ordering::Relaxed)
}

/// Returns the file of this program; `None` if it is not known.
pub(crate) fn this_program() -> Option<PathBuf> {
    // The file that is running, even if it was replaced meanwhile.
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Some(this.to_path_buf());
    }
    std::env::current_exe().ok()
}
