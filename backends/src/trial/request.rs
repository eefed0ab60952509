//! What is asked of a trial, and what it says.

use super::limits::{Asked, Calls};
#[cfg(feature = "ort")]
use crate::backend::onnxruntime_told;
use crate::cache;
use limen::backend::BackendError;
use limen::policy::Trials;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The only argument of a process that tries a model.
pub(super) const WORD: &str = "limen-model-trial";
/// What it says first.
pub(super) const HELLO: &str = concat!("limen ", env!("CARGO_PKG_VERSION"));

/// What every Rust program says when it finds no memory, up to the number.
pub(super) const OUT_OF_MEMORY: &str = "memory allocation of ";

/// What is asked of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Who asks: nobody waits for the answer once that process is gone.
    pub(super) parent: u32,
    pub(super) limits: Asked,
    /// Bytes of the model's file.
    pub(super) size: u64,
    pub(super) cache: Option<AnyPath>,
    pub(super) onnxruntime: Option<AnyPath>,
    pub(super) task: Task,
}

impl Request {
    pub(super) fn new(trials: &Trials, model: &Path, task: Task) -> Self {
        #[cfg(feature = "ort")]
        let onnxruntime = onnxruntime_told().map(AnyPath::new);
        #[cfg(not(feature = "ort"))]
        let onnxruntime = None;
        Request {
            parent: std::process::id(),
            limits: Asked::new(trials),
            size: model.metadata().map_or(0, |about| about.len()),
            cache: cache::folder().map(AnyPath::new),
            onnxruntime,
            task,
        }
    }

    pub(super) fn calls(&self) -> Calls {
        match &self.task {
            Task::Plan(Node { runtimes, threads, items, item, .. }) => {
                Calls { runtimes: *runtimes, threads: *threads, items: *items, item: *item }
            }
            Task::Inspect(_) => Calls { runtimes: 1, threads: 1, items: 1, item: 0 },
        }
    }
}

/// What is done with the model.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Its node is planned: the answer is a `Result<Record, PlanErrors>`.
    Plan(Node),
    /// It is read: the answer is a `Result<Inspection, Unread>`.
    Inspect(AnyPath),
}

/// A node that runs a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) config: Value,
    /// What is connected, as text.
    pub(super) given: Vec<(String, Option<String>)>,
    pub(super) graph: AnyPath,
    pub(super) allowed: Vec<AnyPath>,
    /// Whether every backend is measured.
    pub(super) calibrate: bool,
    /// Runtimes that are not to be tried again, and why.
    pub(super) dead: Vec<(String, String)>,
    pub(super) runtimes: u64,
    pub(super) threads: u64,
    pub(super) items: u64,
    /// Bytes of an item, as far as they are known.
    pub(super) item: u64,
}

/// A path, which need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnyPath(Vec<u8>);

impl AnyPath {
    pub(super) fn new(path: &Path) -> Self {
        AnyPath(path.as_os_str().as_bytes().to_vec())
    }

    pub(super) fn path(&self) -> PathBuf {
        OsString::from_vec(self.0.clone()).into()
    }
}

/// What a trial says, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Heard {
    /// That it is one, of which version.
    Hello(String),
    /// What it does next.
    Doing { runtime: Option<String>, what: String },
    /// How large the model turned out to be, in bytes.
    Size(u64),
    /// What came of it.
    Answer(Value),
}

/// Why a file could not be read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unread {
    Model(String),
    Unsupported(String),
    Other(String),
}

impl From<BackendError> for Unread {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Model(why) => Unread::Model(why),
            BackendError::Unsupported(why) => Unread::Unsupported(why),
            other => Unread::Other(other.to_string()),
        }
    }
}

impl From<Unread> for BackendError {
    fn from(error: Unread) -> Self {
        match error {
            Unread::Model(why) => BackendError::Model(why),
            Unread::Unsupported(why) => BackendError::Unsupported(why),
            Unread::Other(why) => BackendError::Call(why),
        }
    }
}
