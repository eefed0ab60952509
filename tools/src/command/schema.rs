//! `limen-run schema`: the JSON Schema of graph files, with which editors complete keys, kinds and their config.

use limen::Registry;
use limen::plan::Role;
use limen::policy::{
    Isolation, JoinPolicy, OnError, OnGap, OnMiss, Pick, RtPolicy, Schedule, Telemetry, Wait, WhenFull,
};
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};

/// Names of graphs, nodes and ports.
const NAME: &str = "^[a-z][a-z0-9_-]{0,63}$";
/// Names of nodes; a node of a subgraph has dots in its name.
const NODE: &str = r"^[a-z][a-z0-9_-]{0,63}(\.[a-z][a-z0-9_-]{0,63})*$";
/// `node` or `node/port`.
const PORT: &str = r"^[a-z][a-z0-9_-]{0,63}(\.[a-z][a-z0-9_-]{0,63})*(/[a-z][a-z0-9_-]{0,63})?$";
/// A value that contains a variable, which may replace any number, word or quantity.
const VARIABLE: &str = r"\$\{";
const SPAN: &str = r"^\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d)(\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d))*\s*$";
const BYTES: &str = r"^\s*[0-9.]+\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*$";

/// The schema of a graph whose kinds are those of a registry; a value of `serde_json`, as validators take it.
///
/// ```
/// let schema = limen_run::schema(&limen_run::registry());
/// assert_eq!(schema["$defs"]["node"]["else"]["properties"]["kind"]["anyOf"][0]["enum"][0], "argmax");
/// ```
pub fn schema(registry: &Registry) -> Value {
    let mut definitions = Map::new();
    for (name, value) in parts() {
        definitions.insert(name.into(), value);
    }
    definitions.insert("node".into(), node(registry));
    definitions.insert("overlay".into(), overlay());
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

/// One of the words that a type is read from.
fn one_of<T: JsonSchema>(about: &str) -> Value {
    let schema = schema_for!(T).to_value();
    let words: Vec<&Value> = schema["oneOf"].as_array().into_iter().flatten().map(|word| &word["const"]).collect();
    json!({ "enum": words, "description": about })
}

fn parts() -> Vec<(&'static str, Value)> {
    let text = |pattern: &str, about: &str| json!({ "type": "string", "pattern": pattern, "description": about });
    let span = |about: &str| text(SPAN, about);
    let bytes = |about: &str| text(BYTES, about);
    let count = |least: u64, about: &str| json!({ "type": "integer", "minimum": least, "description": about });
    let when_full = one_of::<WhenFull>("What happens when a message finds the edge full; `block` by default.");
    let connection = keys(
        &["from"],
        json!({
            "from": text(PORT, "`node` or `node/port`."),
            "capacity": count(
                1,
                "Messages it holds; by default 64 within a core and 256 between two, fewer if they are large, and at least 4.",
            ),
            "when_full": when_full,
            "soft_capacity": count(1, "Soft watermark: the number of messages from which the edge is under pressure."),
            "max_bytes": bytes("Bytes it holds."),
            "soft_bytes": bytes("Soft watermark: the number of bytes from which the edge is under pressure."),
            "soft_evict": { "type": "boolean", "description": "`drop_oldest` evicts from the soft watermark on." },
            "urgent_capacity": count(1, "Messages in a separate lane for urgent ones."),
            "max_age": span("A message that began longer ago is lost."),
            "expect_every": span("The longest gap between messages that is not an error."),
            "on_gap": one_of::<OnGap>("What happens after a longer gap."),
            "stream": { "type": "boolean", "description": "A model with several inputs keeps its state for the sources of this one." },
        }),
    );
    let restart = keys(
        &[],
        json!({
            "max": count(1, "The most restarts; 3 by default."),
            "backoff": span("The delay after the first failure; it doubles with each further one. 100ms by default."),
            "within": span("Failures longer ago are not counted."),
        }),
    );
    let defaults = |config: bool| {
        let mut may = json!({
            "core": { "type": "integer", "minimum": 0, "maximum": 1023 },
            "cpu": { "type": "integer", "minimum": 0, "maximum": 1023 },
            "on_error": { "$ref": "#/$defs/on_error" },
            "join": { "$ref": "#/$defs/join" },
            "budget": span("The longest time a call should take."),
            "fault": { "$ref": "#/$defs/fault" },
        });
        if config {
            may["config"] = json!({ "type": "object" });
        }
        keys(&[], may)
    };
    let port =
        json!({ "type": ["string", "null"], "description": "The type it carries, such as `u8[480,640,3]`, or `any`." });
    let named =
        |value: Value| json!({ "type": "object", "propertyNames": { "pattern": NAME }, "additionalProperties": value });
    vec![
        (
            "defaults",
            keys(
                &[],
                json!({
                    "node": defaults(false),
                    "kinds": named(defaults(true)),
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
                one_of::<OnError>("What happens when a call fails; `stop` by default."),
                keys(&["restart"], json!({ "restart": restart })),
            ] }),
        ),
        (
            "join",
            keys(
                &[],
                json!({
                    "policy": one_of::<JoinPolicy>("Which messages of several inputs are combined, or which is taken next; `zip` by default.",
                    ),
                    "patience": count(0, "Unmatched messages after which a partner counts as lost."),
                    "within": span("By time: how far from the reference time a message may have begun."),
                    "hold": span("By time: how long a message is held, so that late ones can be put in order."),
                    "trigger": text(NAME, "With `sample`: the input whose every message triggers a call."),
                    "pick": one_of::<Pick>("By time: which message of an input is taken for a reference time; `nearest` by default.",
                    ),
                    "anchor": text(NAME, "By time: the input whose messages set the reference times; the newest head by default."),
                }),
            ),
        ),
        (
            "fault",
            keys(
                &[],
                json!({
                    "panic_at": count(1, "This call panics."),
                    "error_at": count(1, "This call returns an error."),
                    "error_every": count(1, "Every n-th call returns an error."),
                    "hang_at": count(1, "This call never returns."),
                    "delay": span("Every call takes this much longer."),
                    "delay_to": span("Every call takes longer by a random time from `delay` to this."),
                    "drop": { "type": "number", "minimum": 0, "maximum": 1, "description": "The fraction of messages that is lost." },
                    "duplicate": { "type": "number", "minimum": 0, "maximum": 1, "description": "The fraction of calls that send twice." },
                    "seed": count(0, "The seed of the random numbers."),
                }),
            ),
        ),
        (
            "path",
            keys(
                &["from", "to"],
                json!({
                    "from": text(NODE, "A source."),
                    "to": text(NODE, "A sink that its messages reach."),
                    "deadline": span("A message that arrives later than this after it began is late."),
                    "on_miss": one_of::<OnMiss>("What happens to late messages; `count` by default."),
                }),
            ),
        ),
        (
            "core",
            keys(
                &[],
                json!({
                    "wait": one_of::<Wait>("How an idle worker waits."),
                    "schedule": one_of::<Schedule>("Which of its nodes takes its turn next."),
                    "rt": keys(
                        &["priority"],
                        json!({
                            "policy": one_of::<RtPolicy>("The kernel's real-time policy; `fifo` by default."),
                            "priority": { "type": "integer", "minimum": 1, "maximum": 99 },
                        }),
                    ),
                }),
            ),
        ),
        (
            "run",
            keys(
                &[],
                json!({
                    "stop": span("How long a stop may take; 2s by default."),
                    "start": span("How long it may take to build all nodes; 5min by default."),
                    "watchdog": span("A turn that takes longer is reported; 1s by default."),
                    "drops_above": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                        "description": "An edge that loses a larger fraction of a second's messages is reported; 0.01 by default.",
                    },
                    "strict": { "type": "boolean", "description": "A refusal by the system ends the run." },
                    "mlock": { "type": "boolean", "description": "Keep all memory of the process in RAM." },
                    "max_memory": bytes("A plan that needs more is refused."),
                    "warmup": span("Histograms begin after this time."),
                    "telemetry": one_of::<Telemetry>("What is recorded; `auto` by default."),
                    "record": {
                        "description": "Record every connection to an MCAP file: its path, or the config of a node of kind `record`, with `only` or `except`, lists of nodes and ports.",
                        "type": ["string", "object"],
                    },
                    "monitor": { "type": "boolean", "description": "`limen-run` serves the run to `limen-top`, as `--monitor` does." },
                    "isolation": one_of::<Isolation>("Whether `cuda` is used in a process of its own, which may end alone."),
                }),
            ),
        ),
    ]
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
    let plain = json!({
        "type": "object",
        "required": ["kind"],
        "additionalProperties": false,
        "properties": {
            // YAML reads a bare `null` as no value; as a kind it names the sink.
            "kind": { "enum": names.iter().map(|name| json!(name)).chain([Value::Null]).collect::<Vec<_>>() },
            "config": true,
            "from": { "$ref": "#/$defs/connection" },
            "inputs": {
                "type": "object", "propertyNames": { "pattern": NAME },
                "additionalProperties": { "$ref": "#/$defs/connection" },
            },
            "core": { "type": "integer", "minimum": 0, "maximum": 1023 },
            "cpu": { "type": "integer", "minimum": 0, "maximum": 1023 },
            "on_error": { "$ref": "#/$defs/on_error" },
            "join": { "$ref": "#/$defs/join" },
            "budget": { "type": "string", "pattern": SPAN, "description": "The longest time a call should take." },
            "fault": { "$ref": "#/$defs/fault" },
            "qos": { "enum": ["normal", "urgent", "background"] },
            "clock": keys(&["offset"], json!({ "offset": { "type": "string" } })),
        },
        "allOf": rules,
    });
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
