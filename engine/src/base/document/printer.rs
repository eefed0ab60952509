//! Prints a tree as YAML text, optionally with the place of each value as a comment.

use super::{Tree, Value};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde_saphyr::Commented;

/// A tree to print, with or without places.
#[derive(Clone, Copy)]
struct Printed<'a> {
    tree: &'a Tree,
    places: bool,
}

impl Serialize for Printed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = |tree| Printed { tree, places: self.places };
        match &self.tree.value {
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(&inner(item)))?;
                list.end()
            }
            Value::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                entries.iter().try_for_each(|(key, value)| map.serialize_entry(&key.name, &inner(value)))?;
                map.end()
            }
            scalar if self.places => Commented(YamlScalar(scalar), self.tree.place.to_string()).serialize(serializer),
            scalar => YamlScalar(scalar).serialize(serializer),
        }
    }
}

struct YamlScalar<'a>(&'a Value);

impl Serialize for YamlScalar<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Int(i) => match (u64::try_from(*i), i64::try_from(*i)) {
                (Ok(n), _) => serializer.serialize_u64(n),
                (_, Ok(n)) => serializer.serialize_i64(n),
                _ => serializer.serialize_i128(*i),
            },
            Value::Float(x) => serializer.serialize_f64(*x),
            Value::Substituted(word) => match (word.written(), word.settled()) {
                // A secret is printed as its variable, so that it is looked up again.
                (Some(written), _) => serializer.serialize_str(written),
                (None, Some(value)) => YamlScalar(&value).serialize(serializer),
                // Still ambiguous: printed as a variable with only a default, which stays
                // ambiguous.
                (None, None) => serializer.serialize_str(&format!("${{:-{}}}", word.characters())),
            },
            Value::Text(text) => serializer.serialize_str(&escaped(text)),
            Value::Null | Value::List(_) | Value::Map(_) => serializer.serialize_unit(),
        }
    }
}

/// Escapes text that would be read as a variable.
fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

impl Tree {
    /// Converts a program's value to a tree.
    pub(crate) fn of(value: &impl Serialize) -> Result<Tree, String> {
        let text = serde_saphyr::to_string(value).map_err(|error| error.to_string())?;
        Tree::parse(&text, "<graph>").map_err(|problem| problem.message)
    }

    /// Converts to YAML; with `places`, each value's place follows it as a comment.
    pub(crate) fn to_yaml(&self, places: bool) -> String {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        let mut text = String::new();
        let printed = Printed { tree: self, places };
        match serde_saphyr::to_fmt_writer_with_options(&mut text, &printed, options) {
            Ok(()) => text,
            // Maps with names as keys, lists and scalars always convert.
            Err(error) => format!("# {error}\n"),
        }
    }
}
