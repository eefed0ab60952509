//! `limen-run schema`: the JSON Schema of graph files, with which editors complete keys, kinds and
//! their config.

use limen::Registry;
use limen::plan::Role;
use limen::policy::{Criticality, NAME, OnError, Qos};
use limen::schema::{NODE, maps};
use limen::unit::Span;
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// `node` or `node/port`.
const PORT: &str = r"^[a-z][a-z0-9_-]{0,63}(\.[a-z][a-z0-9_-]{0,63})*(/[a-z][a-z0-9_-]{0,63})?$";
/// A value that contains a variable, which may replace any number, word or quantity.
const VARIABLE: &str = r"\$\{";

/// The schema of a graph whose kinds are those of a registry; a value of `serde_json`, as
/// validators take it.
///
/// ```
/// let schema = limen_run::schema(&limen_run::registry());
/// assert_eq!(schema["$defs"]["node"]["else"]["properties"]["kind"]["anyOf"][0]["enum"][0], "argmax");
/// ```
pub fn schema(registry: &Registry) -> Value {
    let mut definitions = parts();
    definitions.extend([("node", node(registry)), ("overlay", overlay())]);
    definitions.values_mut().for_each(allow_variables);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A limen graph",
        "type": "object",
        "required": ["version", "nodes"],
        "additionalProperties": false,
        "properties": {
            "version": { "const": 1 },
            "graph": { "type": "string", "pattern": NAME, "description": "The graph's name; by default the file's name without its extension." },
            "nodes": {
                "type": "object", "minProperties": 1, "propertyNames": { "pattern": NODE },
                "additionalProperties": { "$ref": "#/$defs/node" },
            },
            "paths": { "type": "array", "items": { "$ref": "#/$defs/path" } },
            "cores": {
                "type": "object", "propertyNames": { "pattern": "^[0-9]{1,4}$" },
                "additionalProperties": { "$ref": "#/$defs/core" },
            },
            "run": { "$ref": "#/$defs/run" },
            "include": { "type": "array", "items": { "type": "string" }, "description": "Files to include; keys of this file override theirs." },
            "defaults": { "$ref": "#/$defs/defaults" },
            "subgraphs": {
                "type": "object", "propertyNames": { "pattern": NAME },
                "additionalProperties": { "$ref": "#/$defs/subgraph" },
            },
            "profiles": {
                "type": "object", "propertyNames": { "pattern": NAME },
                "additionalProperties": { "$ref": "#/$defs/overlay" },
                "description": "Overrides that `--profile NAME` applies to the graph.",
            },
        },
        "$defs": definitions,
    })
}

/// The schema of overrides: the keys of a graph, none required, with any content.
fn overlay() -> Value {
    let any = json!({ "type": "object" });
    keys(
        &[],
        json!({ "version": any_version(), "graph": { "type": "string" }, "nodes": any, "paths": { "type": "array" },
                "cores": any, "run": any, "defaults": { "$ref": "#/$defs/defaults" }, "subgraphs": any }),
    )
}

fn any_version() -> Value {
    json!({ "const": 1 })
}

/// Allows variables in place of words, numbers and quantities.
fn allow_variables(schema: &mut Value) {
    if let Value::Object(object) = schema {
        let scalar = matches!(object.get("type").and_then(Value::as_str), Some("integer" | "number" | "boolean"))
            // A config may have a key of that name, which is not a pattern.
            || object.get("pattern").is_some_and(Value::is_string)
            || object.get("enum").is_some_and(Value::is_array);
        let name = object.get("pattern").and_then(Value::as_str) == Some(NAME);
        if scalar && !name {
            let own = schema.take();
            *schema = json!({ "anyOf": [own, { "type": "string", "pattern": VARIABLE }] });
            return;
        }
    }
    match schema {
        Value::Object(object) => {
            // Patterns of names are not values.
            object.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "propertyNames" | "if")).for_each(
                |(_, inner)| {
                    allow_variables(inner);
                },
            );
        }
        Value::Array(list) => list.iter_mut().for_each(allow_variables),
        _ => {}
    }
}

/// An object with these keys and no others.
fn keys(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties })
}

/// A quantity, or one of the words that a type is read from.
fn value<T: JsonSchema>(about: &str) -> Value {
    plain(schema_for!(T).to_value(), &Value::Null, Some(&about.into()))
}

/// A map that the engine reads as a type, without what is about the type alone.
fn map(mut schema: Value) -> Value {
    let definitions = schema["$defs"].take();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let properties: Map<String, Value> = properties
        .map(|(key, value)| (key.clone(), plain(value.clone(), &definitions, value.get("description"))))
        .collect();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
    keys(&required, properties.into())
}

/// A value of such a map: what it is if it is there.
fn plain(schema: Value, definitions: &Value, about: Option<&Value>) -> Value {
    let of = schema["anyOf"].get(0).unwrap_or(&schema);
    let of = of["$ref"].as_str().and_then(|name| definitions.get(name.strip_prefix("#/$defs/")?)).unwrap_or(of);
    if of.get("properties").is_some() {
        let mut inner = of.clone();
        inner["$defs"] = definitions.clone();
        return map(inner);
    }
    let words = of["oneOf"].as_array().map(|words| words.iter().map(|word| &word["const"]).collect::<Vec<_>>());
    let known = |key: &str| of.get(key).cloned().map(|value| (key.to_string(), value));
    let mut plain: Map<String, Value> = ["pattern", "minimum", "maximum"].into_iter().filter_map(known).collect();
    match (words, &of["type"]) {
        (Some(words), _) => plain.insert("enum".into(), json!(words)),
        (_, Value::Array(types)) => plain.insert("type".into(), types[0].clone()),
        (_, only) => plain.insert("type".into(), only.clone()),
    };
    plain.extend(about.map(|about| ("description".into(), about.clone())));
    plain.into()
}

/// What a node may set, and the defaults of nodes.
fn settings() -> Value {
    json!({
        "core": { "type": "integer", "minimum": 0, "maximum": 1023 },
        "cpu": { "type": "integer", "minimum": 0, "maximum": 1023 },
        "on_error": { "$ref": "#/$defs/on_error" },
        "criticality": value::<Criticality>("How much the run depends on the node; `normal` by default."),
        "join": { "$ref": "#/$defs/join" },
        "budget": value::<Span>("The longest time a call should take."),
        "fault": { "$ref": "#/$defs/fault" },
    })
}

fn parts() -> BTreeMap<&'static str, Value> {
    let text = |pattern: &str, about: &str| json!({ "type": "string", "pattern": pattern, "description": about });
    let mut parts: BTreeMap<&str, Value> =
        maps().into_iter().map(|(name, schema)| (name, map(schema.into()))).collect();
    let mut connection = parts.remove("connection").unwrap_or_default();
    connection["required"] = json!(["from"]);
    connection["properties"]["from"] = text(PORT, "`node` or `node/port`.");
    let restart = parts.remove("restart").unwrap_or_default();
    let mut of_kind = settings();
    of_kind["config"] = json!({ "type": "object" });
    let port =
        json!({ "type": ["string", "null"], "description": "The type it carries, such as `u8[480,640,3]`, or `any`." });
    let named =
        |value: Value| json!({ "type": "object", "propertyNames": { "pattern": NAME }, "additionalProperties": value });
    parts.entry("run").or_default()["properties"]["record"] = json!({
        "description": "Record every connection to an MCAP file: its path, or the config of a node of kind `record`, with `only` or `except`, lists of nodes and ports.",
        "type": ["string", "object"],
    });
    parts.extend([
        (
            "defaults",
            keys(
                &[],
                json!({
                    "node": keys(&[], settings()),
                    "kinds": named(keys(&[], of_kind)),
                    "input": { "type": "object", "description": "Keys of a connection, besides `from`." },
                }),
            ),
        ),
        (
            "subgraph",
            keys(
                &["nodes"],
                json!({
                    "parameters": { "type": "object", "propertyNames": { "pattern": "^[a-z][a-z0-9_]{0,63}$" },
                        "description": "Names and defaults; `~` for a required one. Inner nodes write `${name}`." },
                    "inputs": named(port.clone()),
                    "outputs": named(json!({ "oneOf": [
                        text(PORT, "`node` or `node/port` inside the subgraph."),
                        keys(&["from"], json!({ "from": text(PORT, "`node` or `node/port` inside the subgraph."), "spec": port })),
                    ] })),
                    "nodes": {
                        "type": "object", "propertyNames": { "pattern": NAME },
                        "additionalProperties": { "$ref": "#/$defs/node" },
                    },
                    "paths": { "type": "array", "items": { "$ref": "#/$defs/path" } },
                }),
            ),
        ),
        ("connection", json!({ "oneOf": [text(PORT, "`node` or `node/port`."), connection] })),
        (
            "on_error",
            json!({ "oneOf": [
                value::<OnError>("What happens when a call fails; `stop` by default."),
                keys(&["restart"], json!({ "restart": restart })),
            ] }),
        ),
    ]);
    parts
}

/// A node, with the config of its kind.
fn node(registry: &Registry) -> Value {
    let mut names: Vec<&str> = registry.kinds().map(|kind| kind.name.as_str()).collect();
    names.dedup();
    let mut rules = Vec::new();
    for name in &names {
        let kinds: Vec<_> = registry.kinds().filter(|kind| kind.name == *name).collect();
        for kind in &kinds {
            let mut config = kind.schema().to_value();
            close(&mut config);
            // Definitions of two configs may have the same name.
            inline(&mut config);
            let when = json!({ "kind": { "const": name } });
            if kinds.len() > 1 {
                // A source and a sink of one name: a node with inputs is the sink.
                let takes = json!({ "anyOf": [{ "required": ["from"] }, { "required": ["inputs"] }] });
                let guard = if kind.role == Role::Source { json!({ "not": takes }) } else { takes };
                rules.push(json!({
                    "if": { "allOf": [{ "properties": when }, guard] },
                    "then": { "properties": { "config": config } },
                }));
                continue;
            }
            let needs = config.get("required").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
            let required: &[&str] = if needs { &["config"] } else { &[] };
            let then = json!({ "required": required, "properties": { "config": config } });
            rules.push(json!({ "if": { "properties": when }, "then": then }));
        }
    }
    let made = keys(
        &["subgraph"],
        json!({
            "subgraph": { "type": "string", "pattern": NAME, "description": "One of the graph's `subgraphs`." },
            "config": { "type": "object", "description": "Its parameters." },
            "from": { "$ref": "#/$defs/connection" },
            "inputs": { "type": "object", "additionalProperties": { "$ref": "#/$defs/connection" } },
            "nodes": { "type": "object", "description": "Overrides of its nodes." },
            "core": { "type": "integer", "minimum": 0, "maximum": 1023 },
            "on_error": { "$ref": "#/$defs/on_error" },
        }),
    );
    let mut properties = settings();
    // YAML reads a bare `null` as no value; as a kind it names the sink.
    properties["kind"] =
        json!({ "enum": names.iter().map(|name| json!(name)).chain([Value::Null]).collect::<Vec<_>>() });
    properties["config"] = true.into();
    properties["from"] = json!({ "$ref": "#/$defs/connection" });
    properties["inputs"] = json!({
        "type": "object", "propertyNames": { "pattern": NAME }, "additionalProperties": { "$ref": "#/$defs/connection" },
    });
    properties["qos"] = value::<Qos>("Of a source: how important its messages are; `normal` by default.");
    properties["clock"] = keys(&["offset"], json!({ "offset": { "type": "string" } }));
    let mut plain = keys(&["kind"], properties);
    plain["allOf"] = rules.into();
    json!({ "if": { "required": ["subgraph"] }, "then": made, "else": plain })
}

/// Makes unknown keys errors, at every level.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".into(), json!(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

/// Replaces references by their definitions.
fn inline(schema: &mut Value) {
    let definitions = schema.as_object_mut().and_then(|object| object.remove("$defs")).unwrap_or(Value::Null);
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
    }
    // Definitions are not recursive, and no config nests them as deep.
    for _ in 0..8 {
        replace(schema, &definitions);
    }
}

fn replace(schema: &mut Value, definitions: &Value) {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"))
        && let Some(definition) = definitions.get(name)
    {
        *schema = definition.clone();
        return;
    }
    match schema {
        Value::Object(object) => object.values_mut().for_each(|value| replace(value, definitions)),
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, definitions)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Spec;
    use std::collections::BTreeSet;

    /// The help for an unknown key lists those that are read.
    #[test]
    fn maps_that_are_not_read_as_types_have_the_keys_of_the_schema() {
        let schema = schema(&Registry::new());
        let definitions = &schema["$defs"];
        for (graph, map) in [
            ("version: 1\nunheard: 1\nnodes: { a: { kind: x } }", &schema),
            ("version: 1\nnodes: { a: { kind: x, unheard: 1 } }", &definitions["node"]["else"]),
            (
                "version: 1\nnodes: { a: { kind: x, from: { from: a, unheard: 1 } } }",
                &definitions["connection"]["oneOf"][1],
            ),
        ] {
            let problems = Spec::from_text(graph, "g.yaml").unwrap_err();
            let unknown = problems.0.iter().find(|problem| problem.message.contains("unheard"));
            let help = unknown.and_then(|problem| problem.help.as_deref()).unwrap();
            let read: BTreeSet<&str> = help.split('`').skip(1).step_by(2).collect();
            let written: BTreeSet<&str> = map["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(read, written, "{graph}");
        }
    }
}
