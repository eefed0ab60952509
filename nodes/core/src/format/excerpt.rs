//! The beginning of a message that cannot be read, as it came.

use std::fmt::Write;

/// Bytes that are shown.
pub(crate) const SHOWN: usize = 64;

/// Returns the beginning of a message of `length` bytes, which `bytes` begins with:
/// `: 24 47 50 ...`, or `: "$GP" ...` of text. Nothing of an empty one.
pub fn excerpt(bytes: &[u8], length: usize, is_text: bool) -> String {
    let mut begin = &bytes[..bytes.len().min(SHOWN)];
    // The end may be within a character.
    if let Err(error) = str::from_utf8(begin)
        && is_text
        && error.error_len().is_none()
    {
        begin = &begin[..error.valid_up_to()];
    }
    let mut text = String::new();
    match str::from_utf8(begin) {
        _ if begin.is_empty() => return text,
        Ok(begin) if is_text => text += &format!(": {begin:?}"),
        _ => {
            text += ":";
            for byte in begin {
                // Writing to a string cannot fail.
                let _ = write!(text, " {byte:02x}");
            }
        }
    }
    if length > begin.len() {
        text += " ...";
    }
    text
}
