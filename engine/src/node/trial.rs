//! In which process models are tried before a graph starts, and what a trial may use.

use std::path::PathBuf;
use std::time::Duration;

/// How the models of a graph are tried before it starts. The engine hands this to the kinds that run models
/// ([`Planning::trials`](crate::Planning::trials)); it starts no process itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The program that is started for each trial. By default the one that runs now, where it answers trials.
    pub program: Option<PathBuf>,
    /// Whether models are tried in this process, which ends with a model that ends its process.
    pub here: bool,
    /// Most memory of a trial, in bytes, beyond what the program takes by itself. By default it follows from the model's size, as
    /// the other two do.
    pub memory: Option<u64>,
    /// Most processor time of a trial, in whole seconds, rounded up.
    pub cpu: Option<Duration>,
    /// When a trial that has not ended is ended.
    pub wall: Option<Duration>,
}
