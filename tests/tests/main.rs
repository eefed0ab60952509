//! One binary for all integration tests: linking is most of what a test binary costs.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod admission;
mod batch;
mod events;
mod faults;
mod flights;
mod growth;
mod handles;
mod joins;
mod layers;
mod ledger;
mod lineage;
mod load;
mod losses;
mod moving;
mod overload;
mod policies;
mod refused;
mod schedule;
mod semantics;
mod stepper;
mod streams;
mod time;
mod windows;
