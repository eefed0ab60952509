//! Text in aligned columns for people: plans and reports.
//!
//! Every cell passes through [`Escaped`], because names and messages come from files. A column in which no row has
//! anything is left out. Lines end before [`WIDTH`]: where cells are longer, the widest column of text gives way.

use limen::Escaped;
use std::fmt::Write;

/// The most columns a line takes.
pub(crate) const WIDTH: usize = 120;
/// No column of text is cut below this.
const NARROWEST: usize = 16;

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A heading, and rows below it.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A heading that begins with `<` is that of a column of text, all others are of numbers.
    pub(crate) fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = headings.into_iter().map(|heading| match heading.strip_prefix('<') {
            Some(text) => (text.to_string(), Align::Left),
            None => (heading.to_string(), Align::Right),
        });
        Table { columns: columns.collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are not given are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Width of each column; 0 for one that is left out.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, (heading, _))| match self.rows.iter().map(|row| width(&row[i])).max() {
                None | Some(0) => 0,
                Some(widest) => widest.max(width(heading)),
            })
            .collect();
        loop {
            let total: usize = widths.iter().filter(|w| **w > 0).map(|w| w + 2).sum();
            let excess = (total + 2).saturating_sub(WIDTH);
            let text = |i: &usize| self.columns[*i].1 == Align::Left;
            let widest = (0..widths.len()).filter(text).max_by_key(|i| widths[*i]);
            match widest {
                Some(i) if excess > 0 && widths[i] > NARROWEST => widths[i] -= excess.min(widths[i] - NARROWEST),
                _ => return widths,
            }
        }
    }

    /// Writes headings and rows.
    pub(crate) fn write(&self, to: &mut String) {
        let widths = self.widths();
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate().filter(|(i, _)| widths[*i] > 0) {
                let cell = cut(cell, widths[i]);
                let pad = widths[i] - width(&cell);
                let _ = match self.columns[i].1 {
                    Align::Left => write!(line, "{cell}{:pad$}  ", ""),
                    Align::Right => write!(line, "{:pad$}{cell}  ", ""),
                };
            }
            to.push_str(line.trim_end());
            to.push('\n');
        }
    }
}

/// Writes a paragraph, broken between words; lines after the first begin with `indent` spaces more.
pub(crate) fn paragraph(to: &mut String, lead: &str, text: &str) {
    let indent = width(lead);
    to.push_str(lead);
    let mut column = indent;
    for (i, word) in one_line(text).split_whitespace().enumerate() {
        if i > 0 && column + 1 + width(word) > WIDTH {
            let _ = write!(to, "\n{:indent$}", "");
            column = indent;
        } else if i > 0 {
            to.push(' ');
            column += 1;
        }
        to.push_str(word);
        column += width(word);
    }
    to.push('\n');
}

/// Text from a file as one line that a terminal shows and does not obey.
pub(crate) fn one_line(text: &str) -> String {
    Escaped(text).to_string().replace(['\n', '\t'], " ")
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, to: usize) -> String {
    if width(text) <= to {
        return text.to_string();
    }
    text.chars().take(to.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells<const N: usize>(cells: [&str; N]) -> [String; N] {
        cells.map(String::from)
    }

    #[test]
    fn columns_align_and_empty_ones_are_left_out() {
        let mut table = Table::new(["<node", "calls", "failed", "p50"]);
        table.row(cells(["camera", "6400", "", "1.20 µs"]));
        table.row(cells(["csv", "7", "", "–"]));
        let mut text = String::new();
        table.write(&mut text);
        assert_eq!(text, "node    calls      p50\ncamera   6400  1.20 µs\ncsv         7        –\n");
    }

    #[test]
    fn a_long_cell_gives_way_and_an_evil_one_is_escaped() {
        let mut table = Table::new(["<edge", "<spec", "n"]);
        table.row([format!("{}/out", "x".repeat(150)), "\u{1b}[31mred\nline".into(), "1".into()]);
        let mut text = String::new();
        table.write(&mut text);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("…  \\u{1b}[31mred line"), "{text}");
    }

    #[test]
    fn a_paragraph_breaks_between_words() {
        let mut text = String::new();
        paragraph(&mut text, "note: ", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].len() <= WIDTH && lines[1].starts_with("      word"), "{text}");
    }
}
