//! The program that is started to try models.

use super::answer::answer;
use super::request::ARGUMENT;
use crate::base::{is_serving, note_serving, this_program};
use crate::plan::Runtimes;
use limen::Registry;
use limen::policy::Trials;
use std::ffi::OsStr;
use std::path::PathBuf;

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
    serve_for(&Registry::new());
}

/// Like [`serve`], with the runtimes that a registry has beside those of this crate
/// ([`RegisterRuntime::runtime`](crate::RegisterRuntime::runtime)).
pub fn serve_for(registry: &Registry) {
    let mut words = std::env::args_os().skip(1);
    let asked = words.next().filter(|_| words.next().is_none());
    if asked.as_deref() == Some(OsStr::new(ARGUMENT)) {
        answer(Runtimes::of(registry.extensions()).clone());
    }
    #[cfg(feature = "cuda")]
    if asked.as_deref() == Some(OsStr::new(crate::backend::DEVICE_ARGUMENT)) {
        crate::backend::serve_device();
    }
    note_serving();
}

/// Returns the program that tries models, or why there is none.
pub(super) fn program(trials: &Trials) -> Result<PathBuf, &'static str> {
    if trials.here {
        return Err("tried in this process, as requested: a model that crashes its process crashes this one");
    }
    if let Some(program) = &trials.program {
        return Ok(program.clone());
    }
    if !is_serving() {
        return Err("tried in this process: a model that crashes its process crashes this one; call \
                    `limen_backends::trial::serve` first in `main`, or name a program in `Options::trials`");
    }
    this_program().ok_or("tried in this process: the path of this program is unknown")
}
