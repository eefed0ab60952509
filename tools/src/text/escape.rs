//! Escaping of text from files, models and libraries, so that it cannot control the terminal.

use limen::text::{Escaped, is_terminal_control};
use std::fmt::Write;

/// Escapes control characters, and joins lines into one.
pub(crate) fn one_line(text: &str) -> String {
    Escaped(text).to_string().replace(['\n', '\t'], " ")
}

/// Returns a path as one word of a shell command, in quotes if it needs them.
pub(crate) fn shell_word(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
    // A word that begins with a dash would be an option.
    let path = if path.starts_with('-') { format!("./{path}") } else { path.into() };
    if !path.is_empty() && path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Escapes text for XML, in which control characters were escaped before. What XML cannot contain
/// is replaced.
pub(crate) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_command_is_quoted_where_a_shell_would_change_it() {
        for (text, expected) in [
            ("some/robot-1/graph.yaml", "some/robot-1/graph.yaml"),
            ("my robot/graph.yaml", "'my robot/graph.yaml'"),
            ("it's/graph.yaml", r"'it'\''s/graph.yaml'"),
            ("$HOME;ls", "'$HOME;ls'"),
            ("-x/graph.yaml", "./-x/graph.yaml"),
            ("größe", "größe"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }
}
