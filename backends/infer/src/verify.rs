//! Recorded cases: inputs of a model with the outputs that another runtime computed for them.
//!
//! Every runtime silently computes wrong numbers for some operator, so a model node can have a
//! case, which is run once when the graph is planned, through the session type that will serve the
//! graph. A case is an `.npz` whose arrays have the names and shapes of the model's inputs and
//! outputs: `[items, …]`.

mod case;
mod comparison;
#[cfg(test)]
pub(crate) mod test_files;
#[cfg(test)]
mod tests;
mod tried;

pub use case::{Case, CaseError};
pub use comparison::Tolerance;
