//! A file that is read in a process of its own.

use super::process::{ask, understood};
use super::program::program;
use super::request::{AnyPath, Request, Task, Unread};
use crate::base::caught;
use crate::inspect::Inspection;
use limen::backend::BackendError;
use limen::catch_panic;
use limen::policy::Trials;
use std::path::Path;

/// As [`inspect`](crate::inspect), in a process of its own where there is a program for it.
///
/// # Errors
/// What is wrong with the file, or what became of the process.
pub fn inspect(path: &Path, trials: &Trials) -> Result<Inspection, BackendError> {
    let Ok(program) = program(trials) else {
        let found = catch_panic(|| caught(|| crate::inspect::inspect(path)));
        return match found {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(BackendError::Model(panic)),
            Err(_) => Err(BackendError::Model("what reads it panicked".into())),
        };
    };
    let request = Request::new(trials, path, Task::Inspect(AnyPath::new(path)));
    match ask(&program, &request).and_then(understood::<Result<Inspection, Unread>>) {
        Ok(found) => found.map_err(BackendError::from),
        Err(died) => Err(BackendError::Model(format!("{}; {}", died.sentence("it"), died.help))),
    }
}
