//! A model loaded into a second backend, as the reference of a comparison.

use super::lane::OnnxLane;
use limen::backend::{BackendError, Session, Signature, TensorSpec};
use std::fmt;

/// A session of any runtime.
pub(crate) type AnySession = Box<dyn Session<Lane = OnnxLane>>;

/// A model loaded into a second backend.
pub(crate) struct Reference {
    pub(crate) name: &'static str,
    pub(crate) signature: Signature,
    pub(crate) is_stateful: bool,
    pub(crate) session: Box<dyn Fn(usize) -> Result<AnySession, BackendError> + Send + Sync>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Reference {
    /// Checks that it has the same outputs as a model and takes calls of as many items.
    ///
    /// # Errors
    /// The first output that differs, or the largest call it takes.
    pub(crate) fn fits(&self, signature: &Signature, max_batch: usize) -> Result<(), String> {
        let show = |spec: Option<&TensorSpec>| match spec {
            Some(spec) => format!("`{}` {}", spec.name, limen::message::PortSpec::new(spec.dtype, spec.shape.clone())),
            None => "absent".to_string(),
        };
        let (ours, theirs) = (&signature.outputs, &self.signature.outputs);
        if let Some(at) = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at)) {
            let (ours, theirs) = (show(ours.get(at)), show(theirs.get(at)));
            return Err(format!("output {at} must be {ours}, got {theirs} on `{}`", self.name));
        }
        match self.signature.max_batch {
            Some(most) if most < max_batch => {
                Err(format!("the batch size must be at most {most} on `{}`, got {max_batch}", self.name))
            }
            _ => Ok(()),
        }
    }
}
