//! Inspects a file in a separate process.

use super::process::{decode, run_trial};
use super::program::program;
use super::request::{AnyPath, ReadError, TrialRequest, TrialTask};
use crate::base::{BackendOptions, caught};
use crate::inspect::{Details, Inspection};
use limen::backend::BackendError;
use limen::catch_panic;
use limen::files::MemoryFiles;
use limen::policy::Trials;
use std::path::Path;

/// Like [`inspect`](crate::inspect), in a separate process if there is a program for it.
///
/// # Errors
/// When the file cannot be read or is malformed, or the process fails.
pub fn inspect(path: &Path, trials: &Trials) -> Result<Inspection, BackendError> {
    let Ok(program) = program(trials) else {
        let found = catch_panic(|| caught(|| crate::inspect::inspect_within(path, trials.max_size(), &|_| ())));
        return match found {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(BackendError::Model(panic)),
            Err(_) => Err(BackendError::Model("the thread that reads the model panicked".into())),
        };
    };
    // Nothing is loaded into a runtime.
    let options = BackendOptions::default();
    let size = path.metadata().map_or(0, |about| about.len());
    let memory = MemoryFiles::default();
    let request = TrialRequest::new(trials, &options, size, &memory, TrialTask::Inspect(AnyPath::new(path)));
    match run_trial(&program, &request, &memory).and_then(decode::<Result<(Inspection, Details), ReadError>>) {
        Ok(Ok((found, details))) => Ok(Inspection { details, ..found }),
        Ok(Err(error)) => Err(error.into()),
        Err(died) => Err(BackendError::Model(format!("{}; {}", died.sentence("the model"), died.help))),
    }
}
