//! `limen-run kinds`: the kinds of node that this program knows.

use crate::text::escape::one_line;
use crate::text::paragraph::paragraph;
use limen::Registry;
use limen::plan::Kind;
use serde_json::{Value, json};

/// The first sentence of a kind's documentation.
fn about(kind: &Kind) -> String {
    let about = kind.about();
    // Line breaks within the first paragraph are not significant.
    let paragraph = about.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}

/// Formats a table of all kinds: name, role, and a one-sentence summary.
pub fn show_kinds(registry: &Registry) -> String {
    let widest = registry.kinds().map(|kind| kind.name.chars().count()).max().unwrap_or(0).max("kind".len());
    let lead = |kind: &str, role: &str| format!("{kind:widest$}  {role:9}  ");
    let mut text = lead("kind", "role") + "what it does\n";
    for kind in registry.kinds() {
        paragraph(&mut text, &lead(&one_line(&kind.name), kind.role.name()), &about(kind));
    }
    text
}

/// Formats all kinds as one JSON object, `{"kinds": [..]}`, with the JSON Schema of each kind's
/// `config:`.
pub fn kinds_json(registry: &Registry) -> String {
    let kinds: Vec<Value> = registry
        .kinds()
        .map(|kind| {
            json!({
                "kind": kind.name,
                "role": kind.role.name(),
                "about": about(kind),
                "config": kind.schema().to_value(),
            })
        })
        .collect();
    format!("{:#}\n", json!({ "kinds": kinds }))
}
