//! A model's files: where a graph may read them, and which runtimes get them.

use crate::onnx::{Artifact, UncheckedModel, split_advice};
use limen::backend::BackendError;
use limen::files::FileError;
use limen::node::{PlanErrors, Planning};
use limen::text::nearest;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::Path;

/// The files of a model, read once, for the runtimes that load it. Dropped with the
/// [`PlanRequest`](super::candidate::PlanRequest), or sooner.
pub(crate) struct ModelFiles {
    artifact: RefCell<Option<Artifact>>,
    /// Whether more than one runtime may ask for them.
    is_shared: bool,
}

impl ModelFiles {
    pub(crate) fn new(artifact: Artifact, is_shared: bool) -> Self {
        ModelFiles { artifact: RefCell::new(Some(artifact)), is_shared }
    }

    /// Returns the files; without a copy if only one runtime loads them.
    pub(crate) fn give(&self) -> Result<Artifact, BackendError> {
        let found = if self.is_shared { self.artifact.borrow().clone() } else { self.artifact.take() };
        found.ok_or_else(|| BackendError::Model("another runtime already uses the files of the model".into()))
    }
}

/// Reads a model's file, if the graph may read it.
pub(crate) fn read_model(model: &str, cx: &Planning<'_>) -> Result<UncheckedModel, PlanErrors> {
    let mut errors = PlanErrors::default();
    let opened = cx.folders.open(model).map_err(|error| match error {
        FileError::Outside(why) => {
            errors.at("model", why).help("write a path below the graph's folder");
            errors
        }
        FileError::NotFetched { message, help } => {
            errors.at("model", message).help(help);
            errors
        }
        error => {
            let is_missing = matches!(&error, FileError::System(_, error) if error.kind() == ErrorKind::NotFound);
            let why = format!("the file cannot be read: {}", std::io::Error::from(error));
            match beside(model, &cx.folders.graph).filter(|_| is_missing) {
                Some(help) => {
                    errors.at("model", format!("`{model}`: {}", BackendError::Model(why))).help(help);
                    errors
                }
                None => unreadable(model, &BackendError::Model(why)),
            }
        }
    });
    UncheckedModel::read(opened?, cx.trials.max_size()).map_err(|error| unreadable(model, &error))
}

/// The most entries of a folder that are searched for a model.
const MAX_LISTED: usize = 1000;
/// The most models that are named.
const MAX_NAMED: usize = 8;

/// Names the models in the folder of a file that is not there; `None` if there are none.
fn beside(model: &str, graph: &Path) -> Option<String> {
    let path = Path::new(model);
    let asked = path.file_name()?.to_string_lossy();
    let folder = graph.join(path.parent().unwrap_or(Path::new("")));
    let names = std::fs::read_dir(folder).ok()?.take(MAX_LISTED).flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".onnx")).collect();
    names.sort_unstable();
    let written = |name: &str| path.with_file_name(name).display().to_string();
    if let Some(near) = nearest(&asked, names.iter().map(String::as_str)) {
        return Some(format!("did you mean `{}`?", written(near)));
    }
    let more = if names.len() > MAX_NAMED { " and more" } else { "" };
    let named: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{}`", written(name))).collect();
    (!named.is_empty()).then(|| format!("name a model of this folder: {}{more}", named.join(", ")))
}

/// Returns the errors for a model that its runtime cannot load or call.
pub(super) fn unusable<R: crate::onnx::Runtime>(model: &str, error: &BackendError) -> PlanErrors {
    let mut errors = PlanErrors::default();
    let help = match error {
        BackendError::Model(_) => return unreadable(model, error),
        // A runtime of its own for the device.
        _ if R::NAME != R::BACKEND => {
            let help = format!("write `provider: cpu`, or a `backend` other than `{}`", R::BACKEND);
            errors.at("provider", format!("`{model}`: {error}")).help(help);
            return errors;
        }
        _ => format!(
            "write `backend: auto` to use the first backend that runs the model, or a `backend` other than `{}`",
            R::NAME
        ),
    };
    errors.at("model", format!("`{model}`: {error}")).help(help);
    errors
}

pub(crate) fn unreadable(model: &str, error: &BackendError) -> PlanErrors {
    let mut errors = PlanErrors::default();
    let message = format!("`{model}`: {error}");
    match split_advice(&message) {
        Some((why, advice)) => errors.at("model", why).help(advice),
        None => errors.at("model", message).help("name a complete ONNX model below the graph's folder"),
    };
    errors
}
