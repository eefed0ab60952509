//! One binary for all integration tests: linking is most of what a test binary costs.

mod batch;
mod faults;
mod joins;
mod ledger;
mod load;
mod moving;
mod overload;
mod policies;
mod refused;
mod semantics;
mod stepper;
mod time;
