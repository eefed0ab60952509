//! Trials: each model is tried in a separate process first, which may crash.
//!
//! A model is a program, and the runtimes that run it are native code: a model that loops forever,
//! asks for more memory than there is, or overflows a stack kills its process. So a graph's models
//! are read, folded and run for the first time in another process, with limits on memory, CPU time
//! and wall-clock time. A model that crashes that process or exceeds a limit makes its graph fail
//! to plan.
//!
//! The trial process is a new instance of the running program, in which [`serve`], called first in
//! `main`, answers the request (`limen_run::main` calls it), or of the program that
//! [`Trials::program`](limen::policy::Trials::program) names. Without either, models are tried in
//! this process, and the plan says so. The child is always a new program, not a bare fork: it
//! limits itself before it reads anything, and the parent enforces the wall-clock limit, kills it
//! and reaps it.
//!
//! The guarantee covers the trial only. The model is then loaded into this process too, from files
//! with the same checksums, without being run; its later calls run here, and may still crash the
//! process.

mod answer;
mod inspect;
mod limits;
mod planned;
mod process;
mod program;
mod record;
mod request;

pub use inspect::{data_files, inspect};
pub(crate) use planned::planned;
pub use program::serve;
