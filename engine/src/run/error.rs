//! Errors of wiring, starting or querying a graph.

use crate::exec::shared::{BuildError, StartError};
use crate::plan::Plan;

/// Why a graph could not be wired, started or queried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node could not be built; nothing has run.
    #[error("node `{node}` could not be built: {error}")]
    Build {
        /// Name of the node.
        node: String,
        /// The node's error.
        error: String,
    },
    /// The system refused something that `strict` demands.
    #[error("{0}")]
    Refused(String),
    /// There is no such node or port, or it has another kind or type.
    #[error("{0}")]
    NoSuch(String),
    /// A worker thread could not be started.
    #[error("worker {worker} could not be started: {source}")]
    Thread {
        /// The worker's index.
        worker: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

impl RunError {
    /// Adds the node's name.
    pub(crate) fn build(plan: &Plan, error: BuildError) -> RunError {
        RunError::Build { node: plan.nodes()[error.node].name.clone(), error: error.text }
    }

    pub(crate) fn start(plan: &Plan, error: StartError) -> RunError {
        match error {
            StartError::Build(error) => RunError::build(plan, error),
            StartError::Refused(refused) => RunError::Refused(format!("{refused} (`strict` is set)")),
        }
    }
}
