//! Weights files: the first byte selects the format and the encoding.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod common;

use limen_tests::fuzz::files::{WeightsCase, weights};
use std::sync::LazyLock;

static KINDS: LazyLock<Vec<WeightsCase>> = LazyLock::new(weights);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, content)) = bytes.split_first() else { return };
    let kind = &KINDS[usize::from(*which) % KINDS.len()];
    std::fs::write(common::folder().join(&kind.config.file), (kind.wrap)(content)).expect("a file");
    let folders = limen::Folders { graph: common::folder().to_path_buf(), ..limen::Folders::default() };
    let _ = kind.config.load(&folders);
});
