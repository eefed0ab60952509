//! One binary for all tests of the program and its library: linking is most of the cost of a test
//! binary.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod bad_input;
mod blocked_output;
mod cuda;
#[cfg(feature = "wgpu")]
mod devices;
mod embedding;
mod events;
mod explain;
mod files;
mod full_disk;
mod graphs;
mod growth;
mod histograms;
mod hostile;
mod json_keys;
mod memory;
mod metrics;
mod migrate;
mod model_commands;
mod monitor;
mod new_model;
mod pictures;
mod program;
mod recordings;
mod reference_pages;
mod report_page;
mod sensors;
#[cfg(feature = "audio")]
mod sound;
mod starts;
mod streams;
mod terminal_escapes;
mod trials;
#[cfg(feature = "ort")]
mod webgpu;
