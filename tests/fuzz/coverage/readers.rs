//! Files that sources read: the first byte selects the reader.
#![no_main]

mod common;

const READERS: &[(&str, &str)] = &[
    ("kind: csv, config: { path: f.csv, max_bytes: 1KiB }", "f.csv"),
    ("kind: npy, config: { path: f.npy }", "f.npy"),
    ("kind: wav, config: { path: f.wav, frames: 16 }", "f.wav"),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let (config, file) = READERS[usize::from(*which) % READERS.len()];
    common::read(config, file, bytes);
});
