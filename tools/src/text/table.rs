//! Tables with aligned columns, for plans and reports.
//!
//! Every cell passes through [`one_line`], because names and messages come from files. A column
//! without content is left out. No line is longer than [`WIDTH`]: a table with too many columns
//! continues below, with the name of each row repeated, and a cell that is still too long is cut in
//! its middle.

use super::escape::one_line;
use super::paragraph::{WIDTH, width};
use std::fmt::Write;

/// Text cells are cut to this width before a table continues below.
pub(crate) const NAME: usize = 36;
/// No text column is cut below this width.
const NARROWEST: usize = 12;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Headings and rows.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    /// The column that names a row.
    name: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A heading that begins with `<` makes a left-aligned text column, any
    /// other a right-aligned one for numbers.
    pub(crate) fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = headings.into_iter().map(|heading| match heading.strip_prefix('<') {
            Some(text) => (text.to_string(), Align::Left),
            None => (heading.to_string(), Align::Right),
        });
        Table { columns: columns.collect(), name: 0, rows: Vec::new() }
    }

    /// Names rows by another column than the first.
    pub(crate) fn named_by(self, name: usize) -> Self {
        Table { name, ..self }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The width of each column; 0 for one that is left out.
    fn widths(&self) -> Vec<usize> {
        let widest =
            |(i, (heading, _)): (usize, &(String, Align))| match self.rows.iter().map(|row| width(&row[i])).max() {
                None | Some(0) => 0,
                Some(widest) => widest.max(width(heading)),
            };
        self.columns.iter().enumerate().map(widest).collect()
    }

    /// Groups of columns that fit side by side, in order; each group after the first begins with
    /// the name of the row.
    fn blocks(&self, widths: &[usize]) -> Vec<Vec<usize>> {
        let shown: Vec<usize> = (0..widths.len()).filter(|i| widths[*i] > 0).collect();
        let fits = |columns: &[usize]| {
            let capped = columns.iter().map(|i| match self.columns[*i].1 {
                Align::Left => widths[*i].min(NAME),
                Align::Right => widths[*i],
            });
            capped.map(|width| width + 2).sum::<usize>() <= WIDTH + 2
        };
        let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
        let mut rest = &shown[..];
        while let Some(first) = rest.first() {
            // A quantile stays beside the column it belongs to.
            let also = rest[1..].iter().take_while(|i| is_quantile(&self.columns[**i].0)).count();
            let (together, later) = rest.split_at(1 + also);
            let last = blocks.last_mut().expect("there is always one");
            let joined: Vec<usize> = last.iter().chain(together).copied().collect();
            if last.len() <= 1 || fits(&joined) {
                *last = joined;
            } else {
                let name = (*first != self.name && widths[self.name] > 0).then_some(self.name);
                blocks.push(name.into_iter().chain(together.iter().copied()).collect());
            }
            rest = later;
        }
        blocks
    }

    /// Narrows the widest text columns until a group fits.
    fn cut(&self, block: &[usize], widths: &mut [usize]) {
        loop {
            let total: usize = block.iter().map(|i| widths[*i] + 2).sum();
            let excess = total.saturating_sub(WIDTH + 2);
            let widest = block.iter().filter(|i| self.columns[**i].1 == Align::Left).max_by_key(|i| widths[**i]);
            match widest {
                Some(i) if excess > 0 && widths[*i] > NARROWEST => widths[*i] -= excess.min(widths[*i] - NARROWEST),
                _ => return,
            }
        }
    }

    /// Writes headings and rows.
    pub(crate) fn write(&self, to: &mut String) {
        let natural = self.widths();
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        for (at, block) in self.blocks(&natural).iter().enumerate() {
            let mut widths = natural.clone();
            self.cut(block, &mut widths);
            if at > 0 {
                to.push('\n');
            }
            for row in std::iter::once(&headings).chain(&self.rows) {
                let mut line = String::new();
                for i in block {
                    let cell = cut(&row[*i], widths[*i]);
                    let pad = widths[*i] - width(&cell);
                    let _ = match self.columns[*i].1 {
                        Align::Left => write!(line, "{cell}{:pad$}  ", ""),
                        Align::Right => write!(line, "{:pad$}{cell}  ", ""),
                    };
                }
                to.push_str(line.trim_end());
                to.push('\n');
            }
        }
    }
}

/// Whether a heading has no meaning without the one before it.
fn is_quantile(heading: &str) -> bool {
    matches!(heading, "p50" | "p90" | "p99" | "p99.9" | "max")
}

/// Cuts a text in its middle to a width.
pub(crate) fn cut(text: &str, to: usize) -> String {
    if width(text) <= to {
        return text.to_string();
    }
    // In the middle: the begins of names are often alike, and the ends tell ports apart.
    let (head, tail) = (to.saturating_sub(1).div_ceil(2), to.saturating_sub(1) / 2);
    let end = text.chars().skip(width(text) - tail);
    text.chars().take(head).chain(['…']).chain(end).collect()
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
    fn a_long_cell_is_cut_and_control_characters_are_escaped() {
        let mut table = Table::new(["<edge", "<spec", "n"]);
        table.row([format!("{}/out", "x".repeat(150)), "\u{1b}[31mred\nline".into(), "1".into()]);
        let mut text = String::new();
        table.write(&mut text);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("xxx…xxx") && text.contains("x/out  \\u{1b}[31mred line  1"), "{text}");
    }

    #[test]
    fn a_table_that_is_too_wide_continues_below() {
        let mut table = Table::new(["<node", "calls", "queue p50", "p99", "compute p50", "p99", "max", "<why"]);
        for name in ["left_camera_of_the_robots_head", "right_camera_of_the_robots_head"] {
            table.row(cells([name, "1234567", "1.20 ms", "2.20 ms", "100 µs", "200 µs", "1.00 s", "it is there"]));
        }
        let mut text = String::new();
        table.write(&mut text);
        let expected = "\
node                               calls  queue p50      p99
left_camera_of_the_robots_head   1234567    1.20 ms  2.20 ms
right_camera_of_the_robots_head  1234567    1.20 ms  2.20 ms

node                             compute p50     p99     max  why
left_camera_of_the_robots_head        100 µs  200 µs  1.00 s  it is there
right_camera_of_the_robots_head       100 µs  200 µs  1.00 s  it is there
";
        assert_eq!(text, expected);
    }
}
