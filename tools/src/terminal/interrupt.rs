//! SIGINT, SIGTERM and SIGHUP: the first asks the graph to stop, which drains the messages in
//! flight and writes every report; the second exits at once. A signal within half a second of the
//! first is the same request, delivered twice.
//!
//! Only a program may install this, never the engine.

use crate::terminal::log::{Unwaiting, print_error, print_info};
use crate::text::escape::one_line;
use limen::Stopper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

/// Signals that follow the first within this time are the same request: `timeout` and `sudo` signal
/// the process and its group.
const SAME_REQUEST: Duration = Duration::from_millis(500);
/// Shells expect this plus the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

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
        print_error(&format!("limen-run: incomplete files not listed: {more}"));
    }
}

/// A signal handler that stops runs.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<InterruptState>>);

#[derive(Debug, Default)]
struct InterruptState {
    /// When the first signal came.
    asked: Option<Instant>,
    stopper: Option<Stopper>,
}

impl Interrupt {
    /// Installs the handler, and starts the thread that answers signals. If the system refuses,
    /// prints an error on stderr.
    pub fn install() -> Self {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        let installed = Signals::new([SIGINT, SIGTERM, SIGHUP]).and_then(|mut signals| {
            let answer = move || {
                // A second signal is answered although nobody reads what is said to the first.
                let _unwaiting = Unwaiting::begin();
                signals.forever().for_each(|signal| handler.signal(signal));
            };
            thread::Builder::new().name("limen-signals".into()).spawn(answer)
        });
        if let Err(error) = installed {
            print_error(&format!("limen-run: signal handlers cannot be installed: {error}"));
        }
        interrupt
    }

    /// Lets the next signal stop this run. Stops it at once if a signal has come already.
    pub fn stops(&self, stopper: Stopper) {
        let mut state = self.state();
        if state.asked.is_some() {
            stopper.stop();
        }
        state.stopper = Some(stopper);
    }

    fn signal(&self, signal: i32) {
        let mut state = self.state();
        if let Some(asked) = state.asked {
            if asked.elapsed() < SAME_REQUEST {
                return;
            }
            // Files are renamed when they are complete, so these are all the incomplete ones.
            name_unfinished();
            crate::monitor::remove_own();
            process::exit(SIGNALLED + signal);
        }
        state.asked = Some(Instant::now());
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
