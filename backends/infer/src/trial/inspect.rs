//! Reads a file in a separate process.

use super::process::{decode, run_trial};
use super::program::program;
use super::request::{AnyPath, ReadError, TrialRequest, TrialTask};
use crate::base::{BackendOptions, caught};
use crate::inspect::{Details, Inspection, inspect_within};
use crate::onnx::data_files_of;
use limen::backend::BackendError;
use limen::catch_panic;
use limen::files::MemoryFiles;
use limen::policy::Trials;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;

/// Like [`inspect`](crate::inspect), in a separate process if there is a program for it.
///
/// # Errors
/// When the file cannot be read or is malformed, or the process fails.
pub fn inspect(path: &Path, trials: &Trials) -> Result<Inspection, BackendError> {
    let (found, details): (Inspection, Details) = read(path, trials, TrialTask::Inspect, || {
        inspect_within(path, trials.max_size(), &|_| ()).map(|found| (found.clone(), found.details))
    })?;
    Ok(Inspection { details, ..found })
}

/// Returns the names of the files beside an ONNX model that hold its weights, as the model writes
/// them. The files need not exist. Reads the model in a separate process if there is a program for
/// it.
///
/// # Errors
/// When the model cannot be read or is malformed, or the process fails.
pub fn data_files(path: &Path, trials: &Trials) -> Result<BTreeSet<String>, BackendError> {
    read(path, trials, TrialTask::DataFiles, || data_files_of(path, trials.max_size()))
}

/// Reads a file: in a separate process by a task, or here.
fn read<T: DeserializeOwned>(
    path: &Path,
    trials: &Trials,
    task: fn(AnyPath) -> TrialTask,
    here: impl Fn() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let Ok(program) = program(trials) else {
        return match catch_panic(|| caught(&here)) {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(BackendError::Model(panic)),
            Err(_) => Err(BackendError::Model("the thread that reads the model panicked".into())),
        };
    };
    // Nothing is loaded into a runtime.
    let options = BackendOptions::default();
    let size = path.metadata().map_or(0, |about| about.len());
    let memory = MemoryFiles::default();
    let request = TrialRequest::new(trials, &options, size, &memory, task(AnyPath::new(path)));
    match run_trial(&program, &request, &memory).and_then(decode::<Result<T, ReadError>>) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(error.into()),
        Err(died) => Err(BackendError::Model(format!("{}: {}", died.sentence("the model"), died.help))),
    }
}
