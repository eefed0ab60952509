//! A model's files: where a graph may read them, and which runtimes get them.

use crate::base::refuse_remote;
use crate::onnx::{Artifact, UncheckedModel};
use limen::backend::BackendError;
use limen::files::FileError;
use limen::node::{PlanErrors, Planning};
use std::cell::RefCell;

/// The files of a model, read once, for the runtimes that load it. Dropped with the [`PlanRequest`](super::candidate::PlanRequest), or sooner.
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
        found.ok_or_else(|| BackendError::Model("its files were given to another runtime".into()))
    }
}

/// Reads a model's file, if the graph may read it.
pub(crate) fn read_model(model: &str, cx: &Planning<'_>) -> Result<UncheckedModel, PlanErrors> {
    let mut errors = PlanErrors::default();
    if let Err(why) = refuse_remote(model) {
        errors.at("model", why);
        return Err(errors);
    }
    let opened = cx.folders.open(model).map_err(|error| match error {
        FileError::Outside(why) => {
            errors
                .at("model", why)
                .help("write a path below the graph's folder, or allow another with `--allow-path DIR`");
            errors
        }
        error => {
            let why = format!("the file cannot be read: {}", std::io::Error::from(error));
            unreadable(model, &BackendError::Model(why))
        }
    });
    UncheckedModel::read(opened?).map_err(|error| unreadable(model, &error))
}

/// Returns the errors for a model that its runtime cannot load or call.
pub(super) fn unusable<R: crate::onnx::Runtime>(model: &str, error: &BackendError) -> PlanErrors {
    let mut errors = PlanErrors::default();
    let help = match error {
        BackendError::Model(_) => return unreadable(model, error),
        _ => format!(
            "take another backend than `{}` (`auto` takes the first that runs the model), or change what the message names",
            R::NAME
        ),
    };
    errors.at("model", format!("`{model}`: {error}")).help(help);
    errors
}

pub(crate) fn unreadable(model: &str, error: &BackendError) -> PlanErrors {
    let mut errors = PlanErrors::default();
    errors.at("model", format!("`{model}`: {error}")).help(
        "name a complete ONNX model below the graph's folder; `verify:` and `limen-run --plan` say what was loaded",
    );
    errors
}
