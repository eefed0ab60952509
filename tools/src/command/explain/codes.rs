//! The codes of problems: cause, remedy, and a graph that has the problem. The page `docs/codes.md`
//! is the table.

use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../../docs/codes.md");

/// A problem's code with its cause, its remedy, and a graph that has the problem.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// As in `error[E0120]`.
    pub code: &'static str,
    /// The problem in a few words.
    pub title: &'static str,
    /// Why the graph is refused.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// A graph that has the problem, if one file can show it.
    pub example: Option<&'static str>,
}

/// Returns all codes, in order.
pub fn codes() -> &'static [Code] {
    static CODES: LazyLock<Vec<Code>> = LazyLock::new(|| PAGE.split("\n## ").filter_map(code).collect());
    &CODES
}

/// Reads a section of the page; `None` for its introduction.
fn code(section: &'static str) -> Option<Code> {
    let (heading, text) = section.split_once('\n')?;
    let (code, title) = heading.split_once(": ")?;
    let (cause, rest) = text.split_once("*What to do:* ")?;
    let (remedy, example) = match rest.split_once("\n```yaml\n") {
        Some((remedy, example)) => (remedy, Some(example.trim_end().trim_end_matches("```"))),
        None => (rest, None),
    };
    Some(Code { code, title, cause: cause.trim(), remedy: remedy.trim(), example })
}
