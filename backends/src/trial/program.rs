//! The program that tries models.

use super::answer::answer;
use super::request::WORD;
use limen::policy::Trials;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program answers when it is started anew.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Answers a trial, where this process was started for one, and then ends the process; returns at once everywhere else.
///
/// Call it first in `main`, before any thread is started and any argument is looked at. From then on the models of every graph that
/// is planned are tried in a process of their own. [`limen_run::main`](https://docs.rs/limen-tools) calls it.
///
/// ```no_run
/// limen_backends::trial::serve();
/// // arguments, graphs, everything else
/// ```
pub fn serve() {
    let mut words = std::env::args_os().skip(1);
    if words.next().as_deref() == Some(OsStr::new(WORD)) && words.next().is_none() {
        answer();
    }
    ANSWERS.store(true, Ordering::Relaxed);
}

/// The program that tries models, or why there is none.
pub(super) fn program(trials: &Trials) -> Result<PathBuf, &'static str> {
    if trials.here {
        return Err("tried in this process, as was asked: a model that ends its process ends this one");
    }
    if let Some(program) = &trials.program {
        return Ok(program.clone());
    }
    if !ANSWERS.load(Ordering::Relaxed) {
        return Err("tried in this process: a model that ends its process ends this one; call \
                    `limen_backends::trial::serve` first in `main`, or name a program in `Options::trials`");
    }
    // The very file that runs, also when another one lies in its place by now.
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Ok(this.to_path_buf());
    }
    std::env::current_exe().map_err(|_| "tried in this process: the system does not say where its program is")
}
