//! Models are tried in a process of their own, which may die.
//!
//! A model is a program, and the runtimes that run it are native code: one that loops for ever, asks for more memory than there
//! is, or overflows a stack takes its process along. So a graph's models are read, folded and tried for the first time in
//! another process, with limits on memory, processor time and wall time, and a graph with a model that ends it is refused as any other
//! that is wrong.
//!
//! That process is the program that runs, started anew: [`serve`], called first in `main`, answers there (`limen_run::main`
//! calls it), or another program that [`Trials::program`](limen::policy::Trials::program) names. Where neither is there, models are tried in this process, and the
//! plan says so. No process is forked: the child is a new program that limits itself before it reads anything, and this one
//! keeps the wall clock, ends it, and takes its status.
//!
//! What is promised is the trial. The model is then loaded into this process too, from files with the same checksums, without being
//! run; its later calls run here, and may still end the process.

mod answer;
mod inspect;
mod limits;
mod planned;
mod process;
mod program;
mod record;
mod request;

pub use inspect::inspect;
pub(crate) use planned::planned;
pub use program::serve;
