//! Models loaded into a runtime, shared by all nodes that run them.

use super::artifact::Artifact;
use super::outline::Outline;
use super::runtime::{Call, Runner, Runtime, Take};
use crate::base::{BackendOptions, caught};
use limen::backend::{BackendError, BatchRef};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A model loaded into a runtime.
pub(crate) struct Loaded<R> {
    pub(crate) outline: Arc<Outline>,
    pub(crate) bytes: u64,
    /// The name of its file, for errors.
    pub(super) file: String,
    pub(super) runtime: R,
}

type SharedModel = Weak<dyn Any + Send + Sync>;

/// The identity of a loaded model: its path, the checksums of all its files, whether it has a
/// batch, and the backend's options.
type ModelKey = (PathBuf, String, BTreeMap<String, String>, bool, BackendOptions);

fn key(artifact: &Artifact, options: &BackendOptions) -> ModelKey {
    let Artifact { folder, file, outline, .. } = artifact;
    let path = limen::files::real_path(&folder.join(file));
    let options = BackendOptions { calibrate: false, ..options.clone() };
    (path, outline.sha256.clone(), outline.files.clone(), outline.has_batch, options)
}

/// Models in use, by runtime and file, so that nodes with the same file share its weights. Weak
/// references: a model is dropped with its last node.
static IN_USE: Mutex<Vec<(&str, ModelKey, SharedModel)>> = Mutex::new(Vec::new());

impl<R: Runtime> Loaded<R> {
    /// Loads a model, or returns the one that another node has loaded with the same key.
    pub(crate) fn share(artifact: Artifact, options: &BackendOptions) -> Result<Arc<Self>, BackendError> {
        let key = key(&artifact, options);
        // Held while loading, so that two plans do not load the same model at once.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, _, model)| model.strong_count() > 0);
        let found = in_use.iter().find(|(name, k, _)| *name == R::NAME && *k == key);
        if let Some(Ok(loaded)) = found.and_then(|(_, _, model)| model.upgrade()).map(Arc::downcast::<Self>) {
            return Ok(loaded);
        }
        let loaded = Arc::new(Loaded::of(artifact, options)?);
        let shared: Arc<dyn Any + Send + Sync> = loaded.clone();
        in_use.push((R::NAME, key, Arc::downgrade(&shared)));
        Ok(loaded)
    }

    pub(super) fn of(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let (outline, bytes, file) = (artifact.outline.clone(), artifact.size(), artifact.file.clone());
        let runtime = caught(|| R::load(artifact, options))
            .map_err(|panic| BackendError::Model(format!("{} cannot load the model: {panic}", R::NAME)))??;
        Ok(Loaded { outline, bytes, file, runtime })
    }

    pub(super) fn runner(&self, shared: &R::Shared, call: &Call) -> Result<Guarded<R::Runner>, BackendError> {
        let runner = caught(|| self.runtime.runner(shared, call))
            .map_err(|panic| BackendError::Unsupported(format!("{} cannot prepare the model: {panic}", R::NAME)))??;
        Ok(Guarded { name: R::NAME, runner })
    }
}

/// A runner whose panics are errors.
pub(super) struct Guarded<R> {
    name: &'static str,
    pub(super) runner: R,
}

impl<R: Runner> Guarded<R> {
    pub(super) fn run(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        take: &mut Take<'_>,
    ) -> Result<(), BackendError> {
        match caught(|| self.runner.run(batch, inputs, take)) {
            Ok(result) => result,
            Err(panic) => Err(BackendError::Call(format!("{} cannot run the model: {panic}", self.name))),
        }
    }
}
