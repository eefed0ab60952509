//! What everything stands on: problems with their places, quantities, the words of policies, YAML as a tree. Names nothing above it.

pub(crate) mod document;
pub(crate) mod error;
pub mod policy;
pub mod unit;
