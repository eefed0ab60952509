//! Escaping of text from files, models and libraries, so that it cannot control the terminal.

use limen::text::{Escaped, is_terminal_control};
use std::fmt::Write;

/// Escapes control characters, and joins lines into one.
pub(crate) fn one_line(text: &str) -> String {
    Escaped(text).to_string().replace(['\n', '\t'], " ")
}

/// Escapes control characters in JSON text as `\u202e`, which means the same to every parser.
pub(crate) fn plain_json(text: String) -> String {
    // Outside of strings there are none but line ends.
    if !text.contains(|c: char| c != '\n' && is_terminal_control(c)) {
        return text;
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' || !is_terminal_control(c) {
            plain.push(c);
        } else {
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        }
    }
    plain
}

/// Escapes control characters in text or JSON.
pub(crate) fn plain(text: &str) -> String {
    // Only JSON begins with a brace.
    if text.starts_with('{') { plain_json(text.to_string()) } else { Escaped(text).to_string() }
}
