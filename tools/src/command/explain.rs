//! `limen-run explain`: the meaning of a problem's code; the summary and config of a kind of node;
//! where a key, a value or a counter is defined.

pub(crate) mod codes;
mod words;

use crate::text::escape::one_line;
use crate::text::paragraph::paragraph;
use codes::{Code, codes};
use limen::Registry;
use limen::plan::{Kind, Role};
use std::fmt::Write;

/// Returns the text of `limen-run explain WHAT` for a code, a kind, or a key, value or counter that
/// the pages and kinds name; `None` if `what` is none of them.
///
/// ```
/// let text = limen_run::explain("E0122", &limen_run::registry()).unwrap();
/// assert!(text.starts_with("E0122: a cycle in which every edge blocks"));
/// assert!(limen_run::explain("resize", &limen_run::registry()).unwrap().contains("width"));
/// assert!(limen_run::explain("unmatched", &limen_run::registry()).unwrap().contains("docs/"));
/// ```
pub fn explain(what: &str, registry: &Registry) -> Option<String> {
    if let Some(code) = codes().iter().find(|code| code.code.eq_ignore_ascii_case(what.trim())) {
        return Some(explain_code(code));
    }
    let kinds: Vec<&Kind> = registry.kinds().filter(|kind| kind.name == what).collect();
    if kinds.is_empty() {
        return words::explain_word(what, registry);
    }
    Some(kinds.into_iter().map(explain_kind).collect::<Vec<_>>().join("\n"))
}

fn explain_code(code: &Code) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &format!("{}: {}", code.code, code.title));
    text.push('\n');
    paragraph(&mut text, "", code.cause);
    text.push('\n');
    paragraph(&mut text, "What to do: ", code.remedy);
    if let Some(example) = code.example {
        text.push_str("\nA graph with this problem:\n\n");
        for line in example.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn explain_kind(kind: &Kind) -> String {
    let mut text = format!("{} ({})\n\n", one_line(&kind.name), kind.role.name());
    for part in kind.about().split("\n\n") {
        paragraph(&mut text, "", part);
        text.push('\n');
    }
    let ports = match kind.role {
        Role::Transform => "Unless stated above, the input is called `in`, and the output is called `out`.",
        Role::Sink => "Unless stated above, the input is called `in`.",
        // A source names its outputs; a model names its inputs and outputs.
        Role::Source | Role::Infer => "",
    };
    if !ports.is_empty() {
        paragraph(&mut text, "", ports);
        text.push('\n');
    }
    let schema = kind.schema();
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(|names| names.as_array())
        .map_or_else(Vec::new, |names| names.iter().filter_map(|name| name.as_str()).collect());
    let Some(settings) = schema.get("properties").and_then(|all| all.as_object()).filter(|all| !all.is_empty()) else {
        text.push_str("This kind has no config.\n");
        return text;
    };
    text.push_str("Keys of `config:`\n");
    for (name, setting) in settings {
        let needed = if required.contains(&name.as_str()) { "; required" } else { "" };
        let about = setting.get("description").and_then(|about| about.as_str()).unwrap_or_default();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        paragraph(&mut text, "  ", &format!("{name}: {}{needed}", takes(setting, &definitions)));
        if !about.is_empty() {
            paragraph(&mut text, "      ", &about);
        }
        for (part, about) in parts(setting, &definitions) {
            paragraph(&mut text, &format!("      {part}: "), &about);
        }
    }
    text
}

/// The values that a setting can have, or the keys of its map, each with its description; for a
/// list those of its items.
fn parts(setting: &serde_json::Value, definitions: &serde_json::Value) -> Vec<(String, String)> {
    let Some(schema) = resolved(setting, definitions) else { return Vec::new() };
    let schema = schema.get("items").and_then(|items| resolved(items, definitions)).unwrap_or(schema);
    let about = |part: &serde_json::Value| {
        let about = part.get("description").and_then(|about| about.as_str()).unwrap_or_default();
        about.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let values = schema.get("oneOf").and_then(|list| list.as_array()).into_iter().flatten();
    let values = values.filter_map(|one| Some((format!("`{}`", one.get("const")?.as_str()?), about(one))));
    let keys = schema.get("properties").and_then(|keys| keys.as_object()).into_iter().flatten();
    let keys = keys.map(|(key, part)| {
        let (takes, about) = (takes(part, definitions), about(part));
        (format!("`{key}`"), if about.is_empty() { takes } else { format!("{takes}; {about}") })
    });
    values.chain(keys).filter(|(_, about)| !about.is_empty()).collect()
}

/// The schema that a setting refers to, which may be optional; `None` if it is one of the engine's
/// quantities.
fn resolved<'a>(setting: &'a serde_json::Value, definitions: &'a serde_json::Value) -> Option<&'a serde_json::Value> {
    let is_null = |one: &&serde_json::Value| one.get("type").and_then(|kind| kind.as_str()) == Some("null");
    let mut choices = setting.get("anyOf").and_then(|list| list.as_array()).into_iter().flatten();
    let setting = choices.find(|one| !is_null(one)).unwrap_or(setting);
    let Some(name) = setting.get("$ref").and_then(|name| name.as_str()) else { return Some(setting) };
    let name = name.rsplit('/').next().unwrap_or(name);
    if unit(name).is_some() { None } else { definitions.get(name) }
}

/// The type of a setting in a few words, from its JSON Schema.
fn takes(setting: &serde_json::Value, definitions: &serde_json::Value) -> String {
    if let Some(name) = setting.get("$ref").and_then(|name| name.as_str()) {
        let name = name.rsplit('/').next().unwrap_or(name);
        return match definitions.get(name) {
            Some(definition) => match unit(name) {
                Some(unit) => unit.into(),
                None => takes(definition, definitions),
            },
            None => name.to_lowercase(),
        };
    }
    let words = |list: &Vec<serde_json::Value>| {
        let named: Vec<String> = list
            .iter()
            .filter_map(|one| one.get("const").and_then(|word| word.as_str()).map(|word| format!("`{word}`")))
            .collect();
        (!named.is_empty()).then(|| named.join(", "))
    };
    for key in ["oneOf", "anyOf"] {
        if let Some(list) = setting.get(key).and_then(|list| list.as_array()) {
            return words(list).unwrap_or_else(|| {
                let parts: Vec<String> = list
                    .iter()
                    .filter(|one| one.get("type").and_then(|kind| kind.as_str()) != Some("null"))
                    .map(|one| takes(one, definitions))
                    .collect();
                parts.join(" or ")
            });
        }
    }
    if let Some(list) = setting.get("enum").and_then(|list| list.as_array()) {
        return list
            .iter()
            .filter_map(|word| word.as_str())
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let kind = match setting.get("type") {
        Some(serde_json::Value::Array(kinds)) => kinds.iter().filter_map(|k| k.as_str()).find(|k| *k != "null"),
        Some(kind) => kind.as_str(),
        None => None,
    };
    match kind {
        Some("integer") => "a whole number".into(),
        Some("number") => "a number".into(),
        Some("boolean") => "true or false".into(),
        Some("string") => "text".into(),
        Some("array") => match setting.get("items") {
            Some(items) => format!("a list, each {}", takes(items, definitions)),
            None => "a list".into(),
        },
        Some("object") => match setting.get("properties").and_then(|keys| keys.as_object()) {
            Some(keys) => {
                let keys: Vec<String> = keys.keys().map(|key| format!("`{key}`")).collect();
                format!("a map with {}", keys.join(", "))
            }
            None => "a map".into(),
        },
        _ => "a value".into(),
    }
}

/// The type of a setting that holds one of the engine's quantities.
fn unit(name: &str) -> Option<&'static str> {
    match name {
        "Span" => Some("a time, such as `10ms`"),
        "Bytes" => Some("a size, such as `4MiB`"),
        "Rate" => Some("a rate, such as `30Hz`"),
        "Address" => Some("a port, or an address such as `192.168.1.5:9000`"),
        "Offset" => Some("a time, such as `-3ms`"),
        _ => None,
    }
}
