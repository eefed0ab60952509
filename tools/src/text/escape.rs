//! Text from files, models and libraries: a terminal shows it and does not obey it.

use limen::text::{Escaped, is_terminal_control};
use std::fmt::Write;

/// Text from a file as one line that a terminal shows and does not obey.
pub(crate) fn one_line(text: &str) -> String {
    Escaped(text).to_string().replace(['\n', '\t'], " ")
}

/// JSON in which no character stands as it is that a terminal obeys: every reader takes `\u202e` for the same.
pub(crate) fn plain_json(text: String) -> String {
    // Outside of text there are none but the ends of lines.
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

/// What is printed, whatever it is made of: a terminal shows it and does not obey it.
pub(crate) fn plain(text: &str) -> String {
    // Nothing for people begins like an object.
    if text.starts_with('{') { plain_json(text.to_string()) } else { Escaped(text).to_string() }
}
