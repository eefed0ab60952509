//! Files that nodes read: the first byte selects the reader.
#![no_main]

mod common;

use limen_tests::fuzz::files::{ReaderCase, readers};
use std::sync::LazyLock;

static READERS: LazyLock<Vec<ReaderCase>> = LazyLock::new(readers);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, content)) = bytes.split_first() else { return };
    let reader = &READERS[usize::from(*which) % READERS.len()];
    reader.write(common::folder(), content);
    common::run(&reader.graph(true));
});
