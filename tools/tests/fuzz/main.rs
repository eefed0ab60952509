//! Attacks on the program itself: it is killed at random moments, and given models that may crash
//! their process, and files of histograms from anywhere.
//!
//! `LIMEN_FUZZ` and `LIMEN_FUZZ_FIRST` as for the suites of `limen-tests`.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod histograms;
mod kills;
mod models;
mod signals;

use std::path::Path;
use std::process::Command;

/// A command that starts the program in a folder.
fn program(folder: &Path, words: &str) -> Command {
    let mut command = limen_tests::command(env!("CARGO_BIN_EXE_limen-run"), folder);
    command.args(words.split_whitespace());
    command
}
