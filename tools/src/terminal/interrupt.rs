//! SIGINT, SIGTERM and SIGHUP: the first asks the graph to stop, so that what is on its way arrives and every report is
//! written; the second leaves at once.
//!
//! Only a program may install this, never the engine; a process has one such handler.

use crate::terminal::log::{complain, tell};
use crate::text::escape::one_line;
use limen::Stopper;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a shell expects of a program that SIGINT ended. The handler is not told which signal came, so SIGTERM ends
/// with it too.
const SECOND: i32 = 130;

/// So many files are named.
const NAMED: usize = 20;

/// Names the files that were begun and not completed: nobody would look for them.
pub(crate) fn name_unfinished() {
    let parts = limen::files::unfinished();
    for part in parts.iter().take(NAMED) {
        let part = one_line(&part.display().to_string());
        complain(&format!("limen-run: {part} holds what was written of a file that is not complete"));
    }
    if let Some(more) = parts.len().checked_sub(NAMED).filter(|more| *more > 0) {
        complain(&format!("limen-run: and {more} more"));
    }
}

/// The handler's half that the program holds.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    asked: bool,
    stopper: Option<Stopper>,
}

impl Interrupt {
    /// Installs the handler. Where the program has one already, says so on stderr and leaves it.
    pub fn install() -> Self {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        if let Err(error) = ctrlc::set_handler(move || handler.came()) {
            complain(&format!("limen-run: signals are not handled: {error}"));
        }
        interrupt
    }

    /// From now on a signal stops this run; it stops at once where one has come already.
    pub fn stops(&self, stopper: Stopper) {
        let mut state = self.state();
        if state.asked {
            stopper.stop();
        }
        state.stopper = Some(stopper);
    }

    fn came(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.asked, true) {
            // What has not got its name is all that is half-written.
            name_unfinished();
            process::exit(SECOND);
        }
        match &state.stopper {
            Some(stopper) => {
                stopper.stop();
                tell("limen-run: stopping; what is on its way is still done (again to leave at once)");
            }
            None => tell("limen-run: stopping as soon as the graph has started (again to leave at once)"),
        }
    }

    /// A panic while the lock was held leaves plain data behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
