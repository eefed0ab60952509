//! Deprecated names in reports, statistics and metrics. Until 0.2 they are written beside the new
//! names, and read as the new names.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A deprecated name and the new one.
type Renamed = (&'static str, &'static str);

/// Figures of a whole run.
const FIGURES: &[Renamed] = &[("thinned", "discarded")];
/// Fields of nodes, edges, handles and paths.
const FIELDS: &[Renamed] =
    &[("thinned", "discarded"), ("closure_p99", "residual_p99"), ("messages", "depth"), ("highest", "peak_depth")];
/// Terms of latencies.
const TERMS: &[Renamed] = &[("closure", "residual"), ("hold", "wait")];
/// Families of metrics, with the help of the deprecated name.
const METRICS: &[(&str, &str, &str)] = &[
    ("limen_node_thinned_total", "limen_node_discarded_total", "Deprecated, use limen_node_discarded_total."),
    ("limen_edge_fill", "limen_edge_depth", "Deprecated, use limen_edge_depth."),
    ("limen_edge_highest_fill", "limen_edge_peak_depth", "Deprecated, use limen_edge_peak_depth."),
];

/// Serializes an object, or a list of objects, with the deprecated names of its fields too.
pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(value).map_err(S::Error::custom)?;
    for object in objects(&mut value) {
        for (old, new) in FIELDS {
            if let Some(field) = object.get(*new).cloned() {
                object.entry(*old).or_insert(field);
            }
        }
    }
    value.serialize(to)
}

/// Deserializes an object, or a list of objects, whose fields have new or deprecated names.
pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let mut value = Value::deserialize(from)?;
    renew(&mut value);
    T::deserialize(value).map_err(D::Error::custom)
}

/// Gives the fields of an object, or of a list of objects, their new names.
pub(crate) fn renew(value: &mut Value) {
    for object in objects(value) {
        for (old, new) in FIELDS {
            if let Some(field) = object.remove(*old) {
                object.entry(*new).or_insert(field);
            }
        }
    }
}

fn objects(value: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let all = match value {
        Value::Array(list) => list.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    all.iter_mut().filter_map(Value::as_object_mut)
}

fn renamed(names: &'static [Renamed], name: &str) -> Option<&'static Renamed> {
    names.iter().find(|(old, _)| *old == name)
}

/// Returns the name of a figure of a whole run.
pub(crate) fn figure(name: &str) -> &str {
    renamed(FIGURES, name).map_or(name, |(_, new)| new)
}

/// Returns the name of a term.
pub(crate) fn term(name: &str) -> &str {
    renamed(TERMS, name).map_or(name, |(_, new)| new)
}

/// Returns the tag of a histogram: `labels.residual` for `labels.closure`.
pub(crate) fn tag(tag: &str) -> Cow<'_, str> {
    match tag.rsplit_once('.').and_then(|(node, term)| Some((node, renamed(TERMS, term)?))) {
        Some((node, (_, new))) => format!("{node}.{new}").into(),
        None => tag.into(),
    }
}

/// Returns the names of a family of metrics with their help: its own, then the deprecated one.
pub(crate) fn families(name: &'static str, help: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let old = METRICS.iter().filter(move |(_, new, _)| *new == name).map(|(old, _, help)| (*old, *help));
    std::iter::once((name, help)).chain(old)
}

/// Returns the warning for a figure, or a percentile `of` a tag, that has a deprecated name.
pub(crate) fn warning(figure: &str, of: Option<&str>) -> Option<String> {
    let (old, new) = match of {
        None => renamed(FIGURES, figure)?,
        Some(tag) => renamed(TERMS, tag.rsplit_once('.')?.1)?,
    };
    Some(format!("`{old}` is a deprecated name of `{new}`: write `{new}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_written_with_both_names_and_read_with_either() {
        let new = json!([{ "depth": 3, "peak_depth": 9, "metrics": { "depth": 1 } }]);
        let both = json!([{ "depth": 3, "peak_depth": 9, "messages": 3, "highest": 9, "metrics": { "depth": 1 } }]);
        assert_eq!(serialize(&new, serde_json::value::Serializer).unwrap(), both);
        let old = json!([{ "messages": 3, "highest": 9, "metrics": { "depth": 1 } }]);
        for text in [&new, &both, &old] {
            assert_eq!(deserialize::<Value, _>(text).unwrap(), new, "{text}");
        }
        let figures = serialize(&json!({ "discarded": 4 }), serde_json::value::Serializer).unwrap();
        assert_eq!(figures, json!({ "discarded": 4, "thinned": 4 }));
    }

    #[test]
    fn only_the_term_of_a_tag_is_renamed() {
        assert_eq!(
            (tag("a.b.hold"), tag("hold.queue"), tag("hold")),
            ("a.b.wait".into(), "hold.queue".into(), "hold".into())
        );
    }
}
