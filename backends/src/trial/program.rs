//! The program that is started to try models.

use super::answer::answer;
use super::request::ARGUMENT;
use limen::policy::Trials;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program answers trials: `serve` was called.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Answers a trial and exits, if this process was started for one, or uses a GPU for another process (`run: { isolation: process }`);
/// otherwise returns at once.
///
/// Call it first in `main`, before any thread is started and before arguments are parsed. From then on the models of every graph
/// that is planned are tried in a separate process. [`limen_run::main`](https://docs.rs/limen-tools) calls it.
///
/// ```no_run
/// limen_backends::trial::serve();
/// // arguments, graphs, everything else
/// ```
pub fn serve() {
    let mut words = std::env::args_os().skip(1);
    let asked = words.next().filter(|_| words.next().is_none());
    if asked.as_deref() == Some(OsStr::new(ARGUMENT)) {
        answer();
    }
    #[cfg(feature = "cuda")]
    if asked.as_deref() == Some(OsStr::new(crate::backend::DEVICE_ARGUMENT)) {
        crate::backend::serve_device();
    }
    ANSWERS.store(true, Ordering::Relaxed);
}

/// Returns the program that tries models, or why there is none.
pub(crate) fn program(trials: &Trials) -> Result<PathBuf, &'static str> {
    if trials.here {
        return Err("tried in this process, as requested: a model that crashes its process crashes this one");
    }
    if let Some(program) = &trials.program {
        return Ok(program.clone());
    }
    if !ANSWERS.load(Ordering::Relaxed) {
        return Err("tried in this process: a model that crashes its process crashes this one; call \
                    `limen_backends::trial::serve` first in `main`, or name a program in `Options::trials`");
    }
    // The file that is running, even if it was replaced meanwhile.
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Ok(this.to_path_buf());
    }
    std::env::current_exe().map_err(|_| "tried in this process: the path of this program is unknown")
}
