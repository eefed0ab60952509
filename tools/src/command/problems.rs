//! Problems of a graph as text: each with the line that it is about and a mark below the word.

use crate::text::escape::one_line;
use crate::text::paragraph::{WIDTH, wrapped};
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use limen::text::is_terminal_control;
use limen::{Place, Problem, Problems};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// The number of problems that are shown with their source lines; further ones take a line each.
const EXCERPTS: usize = 50;
/// Longer source lines are not shown, in bytes.
const MAX_LINE: usize = 400;
/// The digits of a line's number for which messages leave room.
const MAX_DIGITS: usize = 5;
/// Larger files are not read again; no graph file is as large.
const MAX_BYTES: u64 = 4 << 20;

/// Formats problems as text; with `colours` for a terminal, in lines of at most 80 columns but for
/// the excerpts of files.
///
/// ```
/// let problems = limen::Spec::from_text("version: 1\nspeed: 3", "no-such-file.yaml").unwrap_err();
/// assert!(limen_run::show_problems(&problems, false).starts_with("error[E0113]: the graph has no nodes"));
/// ```
pub fn show_problems(problems: &Problems, colours: bool) -> String {
    let renderer = if colours { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let mut sources = Sources::default();
    let mut text = String::new();
    for (at, problem) in problems.0.iter().enumerate() {
        if at >= EXCERPTS {
            let _ = writeln!(text, "{}", problem.to_string().replace('\n', " "));
            continue;
        }
        let _ = writeln!(text, "{}\n", renderer.render(&[group(problem, &mut sources, colours)]));
    }
    text.truncate(text.trim_end().len());
    text
}

fn group(problem: &Problem, sources: &mut Sources, is_wrapped: bool) -> Group<'static> {
    let place = &problem.place;
    let path = one_line(&place.file);
    let lines = |text: &str, lead: usize| match is_wrapped {
        true => wrapped(&one_line(text), WIDTH - lead),
        false => one_line(text),
    };
    let title = lines(&problem.message, "error[E0100]: ".len());
    let title = Level::ERROR.primary_title(title).id(problem.code);
    let group = match sources.line(place) {
        Some(line) => {
            let start = byte_of(&line, place.column);
            let mark = AnnotationKind::Primary.span(start..end_of(&line, start));
            let number = usize::try_from(place.line).unwrap_or(1);
            title.element(Snippet::source(line).path(path).line_start(number).annotation(mark))
        }
        None if place.line > 0 => title.element(Origin::path(format!("{path}:{}:{}", place.line, place.column))),
        None => title.element(Origin::path(path)),
    };
    match &problem.help {
        Some(help) => group.element(Level::HELP.message(lines(help, " = help: ".len() + MAX_DIGITS))),
        None => group,
    }
}

/// The byte offset at which a column begins.
fn byte_of(line: &str, column: u64) -> usize {
    let column = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    line.char_indices().nth(column).map_or(line.len(), |(at, _)| at)
}

/// The end of the word that begins at a byte offset.
fn end_of(line: &str, start: usize) -> usize {
    let rest = &line[start..];
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let length = match quote {
        Some(quote) => rest[1..].find(quote).map(|at| at + 2),
        None => rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']' | '{' | '[')),
    };
    // A colon ends a key; no other word ends with one.
    let word = &rest[..length.unwrap_or(rest.len())];
    let word = word.strip_suffix(':').unwrap_or(word);
    start + word.len().max(rest.chars().next().map_or(0, char::len_utf8))
}

/// The files that problems are about, read again when their lines are shown.
#[derive(Default)]
struct Sources(HashMap<Arc<str>, Option<String>>);

impl Sources {
    fn line(&mut self, place: &Place) -> Option<String> {
        let text = self.0.entry(place.file.clone()).or_insert_with(|| read(&place.file));
        let at = usize::try_from(place.line).ok()?.checked_sub(1)?;
        let line = text.as_ref()?.lines().nth(at)?;
        // One character for each, so that the mark stays below its word.
        let shown = |c| if c != '\t' && is_terminal_control(c) { char::REPLACEMENT_CHARACTER } else { c };
        (line.len() <= MAX_LINE).then(|| line.chars().map(shown).collect())
    }
}

/// The text of a graph file; `None` if it cannot be read or is not UTF-8.
fn read(file: &str) -> Option<String> {
    String::from_utf8(limen::files::read(file, MAX_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let place = Place { file: "no-such-file.yaml".into(), line: 99999, column: 1 };
        let problem = Problem::new("E0130", place, "word ".repeat(60)).help("help ".repeat(60));
        let lines = |is_terminal| {
            let text = show_problems(&Problems(vec![problem.clone()]), is_terminal);
            let parts: String =
                text.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect();
            parts.lines().map(|line| line.chars().count()).max()
        };
        assert!(lines(true) <= Some(WIDTH), "{:?}", lines(true));
        assert!(lines(false) > Some(2 * WIDTH), "as it is for programs");
    }

    #[test]
    fn a_mark_covers_the_word() {
        for (line, column, expected) in [
            ("  kind: resize", 9, "resize"),
            ("  kind: resize", 3, "kind"),
            ("a: { kind: x, core: 1 }", 6, "kind"),
            ("a: { kind: x, core: 1 }", 12, "x"),
            ("a: \"two words\" # why", 4, "\"two words\""),
            ("größe: 10", 8, "10"),
            ("a: [1,2]", 4, "["),
            ("short", 40, ""),
        ] {
            let start = byte_of(line, column);
            assert_eq!(&line[start..end_of(line, start)], expected, "{line}");
        }
    }
}
