//! One binary for all tests of the program and its library: linking is most of what a test binary costs.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod bad_input;
mod embedding;
mod events;
mod explain;
mod files;
mod graphs;
mod hostile;
mod messages;
mod program;
mod reference;
mod streams;
mod trials;
