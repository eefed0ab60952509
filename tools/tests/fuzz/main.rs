//! Attacks on the program itself: it is killed at random moments, and given models that may crash their process, and files of
//! histograms from anywhere.
//!
//! `LIMEN_FUZZ` and `LIMEN_FUZZ_FIRST` as for the suites of `limen-tests`.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod histograms;
mod kills;
mod models;
mod signals;

use std::path::Path;
use std::process::{Command, Stdio};

/// A command that starts the program in a folder, without `LIMEN_*` variables.
fn program(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limen-run"));
    command.current_dir(folder).args(words.split_whitespace()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LIMEN_")) {
        command.env_remove(name);
    }
    command
}
