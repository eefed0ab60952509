//! The messages between a trial process and its parent.

use super::limits::{RequestedLimits, TrialCalls};
#[cfg(feature = "ort")]
use crate::backend::{onnxruntime, onnxruntime_plugin};
use crate::base::BackendOptions;
use limen::backend::BackendError;
use limen::files::MemoryFiles;
use limen::message::{Content, Layout, PortSpec};
use limen::policy::Trials;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The only argument of a trial process.
pub(super) const ARGUMENT: &str = "limen-model-trial";
/// The content of its first reply.
pub(super) const GREETING: &str = concat!("limen ", env!("CARGO_PKG_VERSION"));

/// The message of a Rust program whose allocation failed, up to the number.
pub(super) const OUT_OF_MEMORY: &str = "memory allocation of ";

/// The request of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TrialRequest {
    /// The parent's process id: the trial ends with the parent.
    pub(super) parent: u32,
    pub(super) limits: RequestedLimits,
    /// Bytes of the model's file.
    pub(super) size: u64,
    pub(super) cache: Option<AnyPath>,
    pub(super) onnxruntime: Option<AnyPath>,
    pub(super) onnxruntime_plugin: Option<AnyPath>,
    /// The names and lengths of files in memory, whose bytes follow the request.
    pub(super) memory: Vec<(String, u64)>,
    pub(super) allow_software: bool,
    pub(super) gpu: Option<String>,
    pub(super) report_differences: bool,
    pub(super) task: TrialTask,
}

impl TrialRequest {
    /// A request for a model whose file has `size` bytes, with these files in memory.
    pub(super) fn new(
        trials: &Trials,
        options: &BackendOptions,
        size: u64,
        memory: &MemoryFiles,
        task: TrialTask,
    ) -> Self {
        #[cfg(feature = "ort")]
        let (onnxruntime, plugin) = (onnxruntime(options), onnxruntime_plugin(options));
        #[cfg(not(feature = "ort"))]
        let (onnxruntime, plugin) = (options.onnxruntime.clone(), options.onnxruntime_plugin.clone());
        TrialRequest {
            parent: std::process::id(),
            limits: RequestedLimits::new(trials),
            size,
            cache: options.cache.as_deref().map(AnyPath::new),
            onnxruntime: onnxruntime.as_deref().map(AnyPath::new),
            onnxruntime_plugin: plugin.as_deref().map(AnyPath::new),
            memory: memory.iter().map(|(name, bytes)| (name.to_string(), bytes.len() as u64)).collect(),
            allow_software: options.allow_software,
            gpu: options.gpu.clone(),
            report_differences: options.report_differences,
            task,
        }
    }

    /// Returns the backend options of the parent.
    pub(super) fn options(&self) -> BackendOptions {
        BackendOptions {
            cache: self.cache.as_ref().map(AnyPath::path),
            calibrate: matches!(&self.task, TrialTask::Plan(node) if node.calibrate),
            onnxruntime: self.onnxruntime.as_ref().map(AnyPath::path),
            onnxruntime_plugin: self.onnxruntime_plugin.as_ref().map(AnyPath::path),
            allow_software: self.allow_software,
            gpu: self.gpu.clone(),
            allow_kernels: false,
            // A trial is a process of its own.
            isolation: limen::policy::Isolation::None,
            report_differences: self.report_differences,
        }
    }

    pub(super) fn calls(&self) -> TrialCalls {
        match &self.task {
            TrialTask::Plan(RequestedNode { runtimes, threads, items, item, .. }) => {
                TrialCalls { runtimes: *runtimes, threads: *threads, items: *items, item: *item }
            }
            TrialTask::Inspect(_) | TrialTask::DataFiles(_) => {
                TrialCalls { runtimes: 1, threads: 1, items: 1, item: 0 }
            }
        }
    }
}

/// The task of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TrialTask {
    /// Plan a node; the answer is a `Result<Record, PlanErrors>`.
    Plan(RequestedNode),
    /// Inspect a file; the answer is a `Result<(Inspection, Details), ReadError>`, with only the
    /// operators that deviate somewhere.
    Inspect(AnyPath),
    /// Name the files beside a model that hold its weights; the answer is a
    /// `Result<BTreeSet<String>, ReadError>`.
    DataFiles(AnyPath),
}

/// A node that runs a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RequestedNode {
    pub(super) config: Value,
    /// The connected inputs, as far as their specs are known.
    pub(super) given: Vec<(String, Option<GivenSpec>)>,
    pub(super) graph: AnyPath,
    pub(super) allowed: Vec<AnyPath>,
    /// The local copies of files that are named by URL: URL, path, size, SHA-256.
    pub(super) remote: Vec<(String, AnyPath, u64, String)>,
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

/// The spec of a connected input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct GivenSpec {
    /// Its type and dims as text.
    spec: String,
    layout: Option<Layout>,
    content: Content,
}

impl GivenSpec {
    pub(super) fn of(spec: &PortSpec) -> Self {
        GivenSpec { spec: spec.to_string(), layout: spec.layout, content: spec.content }
    }

    pub(super) fn spec(&self) -> Option<PortSpec> {
        let mut spec: PortSpec = self.spec.parse().ok()?;
        (spec.layout, spec.content) = (self.layout, self.content);
        Some(spec)
    }
}

/// A path, which need not be valid UTF-8.
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

/// A reply of a trial, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The program and its version.
    Hello(String),
    /// The next step.
    Doing { runtime: Option<String>, what: String },
    /// The size of the model and its weights, in bytes.
    Size(u64),
    /// The result.
    Answer(Value),
}

/// Why a file could not be read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ReadError {
    Model(String),
    Unsupported(String),
    Other(String),
}

impl From<BackendError> for ReadError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Model(why) => ReadError::Model(why),
            BackendError::Unsupported(why) => ReadError::Unsupported(why),
            other => ReadError::Other(other.to_string()),
        }
    }
}

impl From<ReadError> for BackendError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Model(why) => BackendError::Model(why),
            ReadError::Unsupported(why) => BackendError::Unsupported(why),
            ReadError::Other(why) => BackendError::Call(why),
        }
    }
}
