//! Paragraphs for a terminal, wrapped between words.

use super::escape::one_line;
use std::fmt::Write;

/// The most columns of a line.
pub(crate) const WIDTH: usize = 80;

pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Writes a paragraph, wrapped between words; lines after the first are indented by the width of
/// `lead`.
pub(crate) fn paragraph(to: &mut String, lead: &str, text: &str) {
    // A long lead would leave too little room.
    let indent = if width(lead) > WIDTH / 3 { 8 } else { width(lead) };
    to.push_str(lead);
    let mut column = width(lead);
    let mut gap = 0;
    for word in one_line(text).split_whitespace() {
        if column + gap + width(word) > WIDTH && column > indent {
            to.truncate(to.trim_end_matches(' ').len());
            let _ = write!(to, "\n{:indent$}", "");
            (column, gap) = (indent, 0);
        }
        let _ = write!(to, "{:gap$}{word}", "");
        column += gap + width(word);
        gap = 1;
    }
    to.push('\n');
}

/// Breaks a text between words into lines of at most `most` columns; a longer word has a line of
/// its own.
pub(crate) fn wrapped(text: &str, most: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 {
            let fits = column + 1 + width(word) <= most;
            lines.push(if fits { ' ' } else { '\n' });
            column = if fits { column + 1 } else { 0 };
        }
        lines.push_str(word);
        column += width(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_between_words() {
        for (text, most, expected) in [
            ("one two three", 7, "one two\nthree"),
            ("one two three", 80, "one two three"),
            ("a-long-word b", 4, "a-long-word\nb"),
            ("", 4, ""),
        ] {
            assert_eq!(wrapped(text, most), expected, "{text}");
        }
    }

    #[test]
    fn a_paragraph_wraps_between_words() {
        let mut text = String::new();
        paragraph(&mut text, "note: ", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].len() <= WIDTH && lines[1].starts_with("      word"), "{text}");
    }
}
