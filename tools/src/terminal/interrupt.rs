//! SIGINT, SIGTERM and SIGHUP: the first asks the graph to stop, which drains the messages in flight and writes every report;
//! the second exits at once.
//!
//! Only a program may install this, never the engine: a process has one such handler.

use crate::terminal::log::{print_error, print_info};
use crate::text::escape::one_line;
use limen::Stopper;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The exit code that shells expect of a program ended by SIGINT. The handler does not know which signal came, so SIGTERM gives
/// the same code.
const SECOND: i32 = 130;

/// The most files that are named.
const NAMED: usize = 20;

/// Names the incomplete files, which the user might not notice otherwise.
pub(crate) fn name_unfinished() {
    let parts = limen::files::unfinished();
    for part in parts.iter().take(NAMED) {
        let part = one_line(&part.display().to_string());
        print_error(&format!("limen-run: {part} is the written part of an incomplete file"));
    }
    if let Some(more) = parts.len().checked_sub(NAMED).filter(|more| *more > 0) {
        print_error(&format!("limen-run: and {more} more"));
    }
}

/// A signal handler that stops runs.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<InterruptState>>);

#[derive(Debug, Default)]
struct InterruptState {
    asked: bool,
    stopper: Option<Stopper>,
}

impl Interrupt {
    /// Installs the handler. If the program has one already, prints an error on stderr and keeps that one.
    pub fn install() -> Self {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        if let Err(error) = ctrlc::set_handler(move || handler.signal()) {
            print_error(&format!("limen-run: signals are not handled: {error}"));
        }
        interrupt
    }

    /// Lets the next signal stop this run. Stops it at once if a signal has come already.
    pub fn stops(&self, stopper: Stopper) {
        let mut state = self.state();
        if state.asked {
            stopper.stop();
        }
        state.stopper = Some(stopper);
    }

    fn signal(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.asked, true) {
            // Files are renamed when they are complete, so these are all the incomplete ones.
            name_unfinished();
            crate::monitor::remove_own();
            process::exit(SECOND);
        }
        match &state.stopper {
            Some(stopper) => {
                stopper.stop();
                print_info("limen-run: stopping; draining the messages in flight (signal again to exit at once)");
            }
            None => print_info("limen-run: stopping as soon as the graph has started (signal again to exit at once)"),
        }
    }

    /// A poisoned lock is no problem: the state is plain data.
    fn state(&self) -> MutexGuard<'_, InterruptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
