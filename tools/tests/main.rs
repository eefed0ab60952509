//! One binary for all tests of the program and its library: linking is most of what a test binary costs.

mod bad_input;
mod embedding;
mod events;
mod explain;
mod graphs;
mod hostile;
mod program;
mod reference;
mod streams;
