//! Weights files: the first byte selects SafeTensors, NumPy array or NumPy archive.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let file = ["w.safetensors", "w.npy", "w.npz"][usize::from(*kind) % 3];
    std::fs::write(common::folder().join(file), bytes).expect("a file");
    let folders = limen::Folders { graph: common::folder().to_path_buf(), ..limen::Folders::default() };
    let _ = limen_backends::WeightConfig::of(file).load(&folders);
});
