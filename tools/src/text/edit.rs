//! Edits of a text that leave every other byte as it is: comments, order, quotes, line ends.

use std::fmt;
use std::ops::Range;

/// One edit of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The bytes to replace.
    pub(crate) span: Range<usize>,
    /// What they must be.
    pub(crate) expected: String,
    /// What they become.
    pub(crate) text: String,
}

/// Why a text cannot be edited. Nothing of it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EditError {
    /// Another edit begins before this span ends, or at the same byte.
    Overlap(Range<usize>),
    /// The bytes at this span are not the expected ones.
    Unexpected(Range<usize>),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::Overlap(Range { start, end }) => write!(f, "two edits overlap at bytes {start} to {end}"),
            EditError::Unexpected(Range { start, end }) => write!(f, "unexpected text at bytes {start} to {end}"),
        }
    }
}

/// Returns the text with all edits made. Their order does not matter.
///
/// # Errors
/// The first edit that cannot be made, from the start of the text.
pub(crate) fn apply(text: &str, edits: &[Edit]) -> Result<String, EditError> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let overlaps = |pair: &&[&Edit]| pair[0].span.end > pair[1].span.start || pair[0].span.start == pair[1].span.start;
    if let Some(pair) = edits.windows(2).find(overlaps) {
        return Err(EditError::Overlap(pair[1].span.clone()));
    }
    let (mut edited, mut done) = (String::with_capacity(text.len()), 0);
    for edit in edits {
        let span = edit.span.clone();
        if text.get(span.clone()) != Some(&edit.expected) {
            return Err(EditError::Unexpected(span));
        }
        edited.push_str(&text[done..span.start]);
        edited.push_str(&edit.text);
        done = span.end;
    }
    edited.push_str(&text[done..]);
    Ok(edited)
}

/// The lines of a text, to find the places that a YAML parser names.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Finds the lines as YAML does: they end with `\n`, `\r\n` or `\r`, and a byte order mark is
    /// no part of the first.
    pub(crate) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let ends = |at: &usize| bytes[*at] == b'\n' || bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
        let first = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let starts = std::iter::once(first).chain((0..bytes.len()).filter(ends).map(|at| at + 1)).collect();
        Lines { text, starts }
    }

    /// Returns the byte at which a character begins. `line` and `column` count from 1, and `column`
    /// counts characters.
    pub(crate) fn offset(&self, line: u64, column: u64) -> Option<usize> {
        let index = |n: u64| usize::try_from(n).ok()?.checked_sub(1);
        let start = *self.starts.get(index(line)?)?;
        let (at, _) = self.text[start..].char_indices().nth(index(column)?)?;
        Some(start + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(span: Range<usize>, expected: &str, text: &str) -> Edit {
        Edit { span, expected: expected.into(), text: text.into() }
    }

    #[test]
    fn edits_change_their_spans_and_nothing_else() {
        let text = "a: 1 # ä\r\nb: 2\r\n";
        let edits =
            [edit(11..12, "b", "longer"), edit(0..1, "a", "x"), edit(3..4, "1", ""), edit(17..17, "", "# end\n")];
        assert_eq!(apply(text, &edits).unwrap(), "x:  # ä\r\nlonger: 2\r\n# end\n");
        assert_eq!(apply(text, &[]).unwrap(), text);
        // Neighbours do not overlap.
        assert_eq!(apply("ab", &[edit(0..1, "a", "x"), edit(1..2, "b", "y")]).unwrap(), "xy");
    }

    #[test]
    fn edits_that_cannot_be_made_are_refused() {
        for (edits, expected) in [
            (vec![edit(0..2, "ab", "x"), edit(1..3, "bc", "y")], EditError::Overlap(1..3)),
            (vec![edit(1..2, "b", "y"), edit(0..3, "abc", "x")], EditError::Overlap(1..2)),
            (vec![edit(1..1, "", "x"), edit(1..1, "", "y")], EditError::Overlap(1..1)),
            (vec![edit(0..1, "b", "x")], EditError::Unexpected(0..1)),
            // Within a character, and behind the end.
            (vec![edit(3..4, "ä", "x")], EditError::Unexpected(3..4)),
            (vec![edit(9..10, "x", "y")], EditError::Unexpected(9..10)),
        ] {
            assert_eq!(apply("abcä", &edits), Err(expected), "{edits:?}");
        }
    }

    #[test]
    fn places_count_characters_and_every_line_end() {
        let text = "one\r\nzwei ä:x\rdrei\nvier";
        let lines = Lines::new(text);
        for (line, column, expected) in [(1, 1, "one"), (2, 8, "x\r"), (3, 1, "drei"), (4, 4, "r")] {
            assert!(text[lines.offset(line, column).unwrap()..].starts_with(expected), "{line}:{column}");
        }
        assert_eq!(Lines::new("\u{feff}a").offset(1, 1), Some(3));
        for (line, column) in [(0, 1), (1, 0), (5, 1), (4, 9)] {
            assert_eq!(lines.offset(line, column), None, "{line}:{column}");
        }
    }
}
