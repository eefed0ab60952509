//! Paragraphs for a terminal, wrapped between words.

use super::escape::one_line;
use std::fmt::Write;

/// The most columns of a line.
pub(crate) const WIDTH: usize = 80;

pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Writes a paragraph, wrapped between words; lines after the first are indented by the width of `lead`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_wraps_between_words() {
        let mut text = String::new();
        paragraph(&mut text, "note: ", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].len() <= WIDTH && lines[1].starts_with("      word"), "{text}");
    }
}
