//! One binary for all integration tests: linking is most of what a test binary costs.

mod batch;
mod faults;
mod joins;
mod ledger;
mod moving;
mod overload;
mod refused;
mod stepper;
mod time;
