//! Words that are neither codes nor kinds: keys of a graph, values, counters. They are explained
//! where the pages of `docs/` and the kinds define them, so there is no list of words.

use crate::command::schema::schema;
use crate::text::escape::one_line;
use crate::text::paragraph::paragraph;
use limen::Registry;
use limen::plan::Kind;
use serde_json::Value;
use std::collections::BTreeSet;

/// The pages that define words.
const PAGES: [(&str, &str); 7] = [
    ("docs/graphs.md", include_str!("../../../../docs/graphs.md")),
    ("docs/policies.md", include_str!("../../../../docs/policies.md")),
    ("docs/reports.md", include_str!("../../../../docs/reports.md")),
    ("docs/sensors.md", include_str!("../../../../docs/sensors.md")),
    ("docs/semantics.md", include_str!("../../../../docs/semantics.md")),
    ("docs/recordings.md", include_str!("../../../../docs/recordings.md")),
    ("docs/devices.md", include_str!("../../../../docs/devices.md")),
];
/// The most passages that are quoted; later sections are only named.
const QUOTED: usize = 3;
/// The most kinds that are named.
const KINDS: usize = 12;

/// A place where a page has a word.
struct Passage {
    page: &'static str,
    section: &'static str,
    text: String,
}

/// Whether a text has a word as code: `` `max_age` ``, `` `max_age: 1s` ``.
fn has(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split('`').skip(1).step_by(2).any(|span| span.split(|c| !is_part(c)).any(|part| part == word))
}

/// Paragraphs and rows of tables that have the word: those that begin with it, which define it,
/// then the others.
fn passages(word: &str) -> Vec<Passage> {
    let mut found = Vec::new();
    for (page, text) in PAGES {
        let (mut section, mut is_code, mut block) = ("", false, Vec::new());
        for line in text.lines().chain([""]) {
            is_code ^= line.trim_start().starts_with("```");
            let starts_anew = ["|", "- "].iter().any(|start| line.trim_start().starts_with(start));
            if line.is_empty() || starts_anew || line.starts_with('#') || is_code {
                let text = std::mem::take(&mut block).join(" ");
                if has(&text, word) {
                    found.push(Passage { page, section, text });
                }
            }
            match line.strip_prefix('#').filter(|_| !is_code) {
                Some(title) => section = title.trim_start_matches('#').trim(),
                None if !is_code && !line.starts_with("```") && !line.is_empty() => block.push(line.trim()),
                None => {}
            }
        }
    }
    let begins = |text: &str| {
        text.trim_start_matches(['|', '-', '*', ' ']).strip_prefix('`').is_some_and(|rest| rest.starts_with(word))
    };
    found.sort_by_key(|passage| !begins(&passage.text));
    found
}

/// Removes links and the bars of a row.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, name) = before.rsplit_once('[').unwrap_or((before, ""));
        plain.push_str(before);
        plain.push_str(name);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    let cells = plain.trim_matches('|').split(" | ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("; ").trim_start_matches("- ").to_string()
}

/// The descriptions of a key in the schema of graphs.
fn keys(schema: &Value, word: &str, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            let key = object.get("properties").and_then(|properties| properties.get(word));
            let about = key.and_then(|key| {
                let inner = key.get("anyOf").and_then(|list| list.get(0));
                key.get("description").or_else(|| inner?.get("description"))?.as_str()
            });
            found.extend(about.map(str::to_string));
            object.values().for_each(|inner| keys(inner, word, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| keys(inner, word, found)),
        _ => {}
    }
}

/// Whether the schema of a kind has the word: as a key, a value, or in a description.
fn mentions(schema: &Value, word: &str) -> bool {
    let object = match schema {
        Value::Array(list) => return list.iter().any(|inner| mentions(inner, word)),
        Value::Object(object) => object,
        _ => return false,
    };
    let is = |value: &Value| value.as_str() == Some(word);
    object.get("properties").and_then(Value::as_object).is_some_and(|keys| keys.contains_key(word))
        || object.get("const").is_some_and(is)
        || object.get("enum").and_then(Value::as_array).is_some_and(|list| list.iter().any(is))
        || object.get("description").and_then(Value::as_str).is_some_and(|about| has(about, word))
        || object.values().any(|inner| mentions(inner, word))
}

/// Explains a word from what the schema, the pages and the kinds say of it; `None` if nothing does.
pub(super) fn explain_word(word: &str, registry: &Registry) -> Option<String> {
    let word = word.trim();
    let mut about = BTreeSet::new();
    keys(&schema(&Registry::default()), word, &mut about);
    let passages = passages(word);
    let named = |kind: &&Kind| mentions(&kind.schema().to_value(), word);
    let kinds: BTreeSet<&str> = registry.kinds().filter(named).map(|kind| kind.name.as_str()).collect();
    if about.is_empty() && passages.is_empty() && kinds.is_empty() {
        return None;
    }
    let mut text = format!("{}\n", one_line(word));
    for about in &about {
        text.push('\n');
        paragraph(&mut text, "In a graph: ", about);
    }
    for passage in passages.iter().take(QUOTED) {
        text.push('\n');
        paragraph(&mut text, "", &format!("{}, {}:", passage.page, passage.section));
        paragraph(&mut text, "  ", &plain(&passage.text));
    }
    let mut more: Vec<String> =
        passages.iter().skip(QUOTED).map(|passage| format!("{}, {}", passage.page, passage.section)).collect();
    more.dedup();
    if !more.is_empty() {
        text.push('\n');
        paragraph(&mut text, "See also: ", &more.join("; "));
    }
    if !kinds.is_empty() {
        let some: Vec<&str> = kinds.iter().copied().take(KINDS).collect();
        let more = if kinds.len() > KINDS { format!(" and {} more", kinds.len() - KINDS) } else { String::new() };
        text.push('\n');
        let named = format!("{}{more}; `limen-run explain KIND` describes one of them", some.join(", "));
        paragraph(&mut text, "Kinds with this word: ", &named);
    }
    Some(text)
}
