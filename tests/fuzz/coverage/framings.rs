//! Framings of streams: the first byte selects one, the second the maximum length of a message.
#![no_main]

mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [which, max, bytes @ ..] = bytes else { return };
    let framing =
        ["lines", "raw", "length", "length_le", "fixed", "cobs", "slip", "lines_crlf"][usize::from(*which) % 8];
    let max = u32::from(*max) + 1;
    common::read(
        &format!("kind: file, config: {{ path: f.bin, framing: {framing}, max_bytes: {max}B }}"),
        "f.bin",
        bytes,
    );
});
