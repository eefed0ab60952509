//! A model that is loaded into a second backend, to be compared with.

use super::lane::OnnxLane;
use limen::backend::{BackendError, Session, Signature, TensorSpec};
use std::fmt;

/// A session of any runtime.
pub(crate) type AnySession = Box<dyn Session<Lane = OnnxLane>>;

/// A model that is loaded into another backend.
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
    /// Whether it can be asked what a model is asked in calls of so many items: outputs are compared number by number.
    ///
    /// # Errors
    /// The output that is another, or the calls it does not take.
    pub(crate) fn fits(&self, signature: &Signature, max_batch: usize) -> Result<(), String> {
        let show = |spec: Option<&TensorSpec>| match spec {
            Some(spec) => format!("`{}` {}", spec.name, limen::message::PortSpec::new(spec.dtype, spec.shape.clone())),
            None => "none".to_string(),
        };
        let (ours, theirs) = (&signature.outputs, &self.signature.outputs);
        if let Some(at) = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at)) {
            let (ours, theirs) = (show(ours.get(at)), show(theirs.get(at)));
            return Err(format!("output {at} is {theirs} by `{}`, and {ours} here", self.name));
        }
        match self.signature.max_batch {
            Some(most) if most < max_batch => {
                Err(format!("`{}` takes at most {most} in a call, and calls have up to {max_batch} here", self.name))
            }
            _ => Ok(()),
        }
    }
}
