//! The program that is started to try models.

use super::answer::answer;
use super::request::ARGUMENT;
use crate::base::{is_serving, note_serving, this_program};
use crate::plan::Runtimes;
use limen::Registry;
use limen::policy::Trials;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Answers a trial and exits, if this process was started for one; otherwise returns at once. The
/// registry has the runtimes ([`RegisterRuntime::runtime`](crate::RegisterRuntime::runtime)) of the
/// graphs that the program plans. If this process was started to use a device for another one
/// (`run: { isolation: process }`), does that and exits.
///
/// Call it first in `main`, before any thread is started and before arguments are parsed. From then
/// on the models of every graph that is planned are tried in a separate process.
/// [`limen_run::main`](https://docs.rs/limen-tools) calls it.
///
/// ```no_run
/// let registry = limen::Registry::new().with(limen_infer::register);
/// limen_infer::trial::serve(&registry);
/// // arguments, graphs, everything else
/// ```
pub fn serve(registry: &Registry) {
    let mut words = std::env::args_os().skip(1);
    let asked = words.next().filter(|_| words.next().is_none());
    let runtimes = Runtimes::of(registry.extensions());
    if asked.as_deref() == Some(OsStr::new(ARGUMENT)) {
        answer(runtimes.clone());
    }
    note_serving(ARGUMENT);
    for isolated in runtimes.all_isolated() {
        if asked.as_deref() == Some(OsStr::new(isolated.argument)) {
            (isolated.main)();
        }
        note_serving(isolated.argument);
    }
}

/// Returns the program that tries models, or why there is none.
pub(super) fn program(trials: &Trials) -> Result<PathBuf, &'static str> {
    if trials.here {
        return Err("tried in this process, as requested: a crash of the model ends this process");
    }
    if let Some(program) = &trials.program {
        return Ok(program.clone());
    }
    if !is_serving(ARGUMENT) {
        return Err("tried in this process, which a crash of the model ends: call \
                    `limen_infer::trial::serve` first in `main`, or name a program in `Options::trials`");
    }
    this_program().ok_or("tried in this process: the path of this program is unknown")
}
