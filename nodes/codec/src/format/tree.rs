//! Fields in messages of objects and arrays: JSON and CBOR, by their paths.

use cbor4ii::core::dec::Read;
use cbor4ii::core::utils::SliceReader;
use limen::node::PlanErrors;
use limen_nodes_core::format::field::Field;
use limen_nodes_core::format::record::{Fault, Record, Value};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// What a message has at a place, as far as fields need it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// The number of a field, or an array of its numbers.
    Field {
        field: usize,
        is_array: bool,
    },
    Object(Vec<(String, Tree)>),
    /// Elements by their indexes.
    Array(Vec<(usize, Tree)>),
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq)]
enum PathStep {
    Key(String),
    Index(usize),
}

impl Tree {
    /// Returns the tree of all paths, and reports those that cannot be.
    pub(crate) fn new(fields: &[Field], format: &str, errors: &mut PlanErrors) -> Tree {
        let mut tree: Option<Tree> = None;
        for (i, field) in fields.iter().enumerate() {
            field.allow(i, &["path"], format, errors);
            let key = if field.path.is_some() { "path" } else { "name" };
            let place = format!("fields[{i}].{key}");
            let steps = match steps(field.path()) {
                Ok(steps) => steps,
                Err(why) => {
                    let help = "write keys and indexes, such as `pose.position[0]` or `[\"a key\"].x`";
                    errors.at(place, format!("`{}` is not a path: {why}", field.path())).help(help);
                    continue;
                }
            };
            let leaf = Tree::Field { field: i, is_array: field.repeat.is_some() };
            if let Err(why) = insert(&mut tree, &steps, leaf) {
                let message = format!("`{}` reads `{}`, {why}", field.name, field.path());
                let help = "write a path that no other field reads, or select elements with a `slice` node downstream";
                errors.at(place, message).help(help);
            }
        }
        let mut tree = tree.unwrap_or_else(|| Tree::Object(Vec::new()));
        tree.sort();
        tree
    }

    /// Sorts the elements of arrays by their indexes.
    fn sort(&mut self) {
        match self {
            Tree::Field { .. } => {}
            Tree::Object(entries) => entries.iter_mut().for_each(|(_, tree)| tree.sort()),
            Tree::Array(entries) => {
                entries.sort_unstable_by_key(|(index, _)| *index);
                entries.iter_mut().for_each(|(_, tree)| tree.sort());
            }
        }
    }

    /// Reads a message of JSON.
    pub(crate) fn read_json(&self, message: &[u8], record: &mut Record) -> Result<(), Fault> {
        record.clear();
        let mut reader = serde_json::Deserializer::from_slice(message);
        let read = Seed { tree: self, record }.deserialize(&mut reader).and_then(|()| reader.end());
        read.map_err(|error| record.fault.take().unwrap_or_else(|| Fault::Syntax(error.to_string())))?;
        record.finish()
    }

    /// Reads a message of CBOR.
    pub(crate) fn read_cbor(&self, message: &[u8], record: &mut Record) -> Result<(), Fault> {
        record.clear();
        let mut reader = cbor4ii::serde::Deserializer::new(SliceReader::new(message));
        let read = Seed { tree: self, record }.deserialize(&mut reader);
        read.map_err(|error| record.fault.take().unwrap_or_else(|| Fault::Syntax(error.to_string())))?;
        // Reading from a slice cannot fail.
        let is_whole = reader.into_inner().fill(1).map_or(true, |rest| rest.as_ref().is_empty());
        if !is_whole {
            return Err(Fault::Syntax("expected the end of the message after the value, found more bytes".into()));
        }
        record.finish()
    }
}

/// Adds a field at a path.
fn insert(tree: &mut Option<Tree>, path: &[PathStep], leaf: Tree) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        return match tree.replace(leaf) {
            None => Ok(()),
            Some(_) => Err("which contains the value of another field".into()),
        };
    };
    let empty = || match step {
        PathStep::Key(_) => Tree::Object(Vec::new()),
        PathStep::Index(_) => Tree::Array(Vec::new()),
    };
    match (tree.get_or_insert_with(empty), step) {
        (Tree::Object(entries), PathStep::Key(key)) => inner(entries, key, rest, leaf),
        (Tree::Array(entries), PathStep::Index(index)) => inner(entries, index, rest, leaf),
        (Tree::Field { .. }, _) => Err("which is a part of the value of another field".into()),
        (Tree::Object(_), PathStep::Index(index)) => {
            Err(format!("which has the index {index} where another path has a key"))
        }
        (Tree::Array(_), PathStep::Key(key)) => {
            Err(format!("which has the key `{key}` where another path has an index"))
        }
    }
}

fn inner<K: PartialEq + Clone>(
    entries: &mut Vec<(K, Tree)>,
    key: &K,
    path: &[PathStep],
    leaf: Tree,
) -> Result<(), String> {
    match entries.iter_mut().find(|(other, _)| other == key) {
        Some((_, tree)) => {
            let mut entry = Some(std::mem::replace(tree, Tree::Object(Vec::new())));
            let inserted = insert(&mut entry, path, leaf);
            *tree = entry.unwrap_or_else(|| Tree::Object(Vec::new()));
            inserted
        }
        None => {
            let mut entry = None;
            insert(&mut entry, path, leaf)?;
            entries.extend(entry.map(|tree| (key.clone(), tree)));
            Ok(())
        }
    }
}

/// How deep paths go at most.
const DEEPEST: usize = 32;

/// Splits a path such as `a.b[0]["c d"]` into its parts. The path `.` is the message itself.
fn steps(path: &str) -> Result<Vec<PathStep>, String> {
    let mut steps = Vec::new();
    let mut rest = path;
    if path == "." {
        return Ok(steps);
    }
    let mut is_key = true;
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            if let Some(quoted) = bracket.strip_prefix('"') {
                let end = quoted.find("\"]").ok_or("expected `\"]`")?;
                steps.push(PathStep::Key(quoted[..end].into()));
                rest = &quoted[end + 2..];
            } else {
                let end = bracket.find(']').ok_or("expected `]`")?;
                let index = bracket[..end].parse().map_err(|_| format!("`{}` is not an index", &bracket[..end]))?;
                steps.push(PathStep::Index(index));
                rest = &bracket[end + 1..];
            }
        } else if is_key {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return Err("a key is empty".into());
            }
            steps.push(PathStep::Key(rest[..end].into()));
            rest = &rest[end..];
        } else {
            return Err(format!("expected `.` or `[`, found `{rest}`"));
        }
        is_key = rest.starts_with('.');
        if is_key {
            rest = &rest[1..];
            if rest.is_empty() || rest.starts_with('[') {
                return Err("a key is empty".into());
            }
        }
    }
    if steps.is_empty() {
        return Err("the path is empty".into());
    }
    if steps.len() > DEEPEST {
        return Err(format!("expected at most {DEEPEST} parts, found {}", steps.len()));
    }
    Ok(steps)
}

/// Reads the value at a place into the record.
struct Seed<'a> {
    tree: &'a Tree,
    record: &'a mut Record,
}

impl Seed<'_> {
    fn fail<T, E: Error>(self, fault: Fault) -> Result<T, E> {
        self.record.fault = Some(fault);
        Err(E::custom("a field does not match"))
    }

    fn put<E: Error>(self, value: Value) -> Result<(), E> {
        match self.tree {
            Tree::Field { field, is_array: false } => match self.record.put(*field, value) {
                Ok(()) => Ok(()),
                Err(fault) => self.fail(fault),
            },
            _ => self.mismatch(),
        }
    }

    /// Something else is there than the paths say.
    fn mismatch<T, E: Error>(self) -> Result<T, E> {
        match self.tree {
            Tree::Field { field, is_array: true } => {
                let expected = self.record.count(*field);
                self.fail(Fault::NoArray { field: *field, expected })
            }
            Tree::Field { field, .. } => self.fail(Fault::NoNumber { field: *field }),
            Tree::Object(_) | Tree::Array(_) => self.fail(Fault::NoBranch),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self.tree {
            Tree::Field { is_array: false, .. } => "a number",
            Tree::Field { .. } | Tree::Array(_) => "an array",
            Tree::Object(_) => "an object",
        })
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(Value::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.put(Value::Whole(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.put(Value::Whole(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<(), E> {
        self.put(Value::Whole(value))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<(), E> {
        match (i128::try_from(value), self.tree) {
            (Ok(value), _) => self.put(Value::Whole(value)),
            // No type has all of its digits.
            (Err(_), Tree::Field { field, is_array: false }) => {
                self.fail(Fault::OutOfRange { field: *field, value: Value::Fraction(value as f64) })
            }
            _ => self.mismatch(),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.put(Value::Fraction(value))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(Value::Missing)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.put(Value::Missing)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.mismatch()
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<(), E> {
        self.mismatch()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        match self.tree {
            Tree::Field { field, is_array: true } => {
                if self.record.filled(*field) > 0 {
                    return self.fail(Fault::Twice { field: *field });
                }
                let element = Tree::Field { field: *field, is_array: false };
                let mut found = 0;
                while self.record.filled(*field) < self.record.count(*field) {
                    let Some(()) = from.next_element_seed(Seed { tree: &element, record: self.record })? else { break };
                    found += 1;
                }
                while let Some(IgnoredAny) = from.next_element()? {
                    found += 1;
                }
                let expected = self.record.count(*field);
                if found != expected {
                    return self.fail(Fault::Count { field: *field, found, expected });
                }
                Ok(())
            }
            Tree::Array(entries) => {
                let (mut index, mut rest) = (0, entries.iter().peekable());
                loop {
                    let found = match rest.next_if(|(at, _)| *at == index) {
                        Some((_, tree)) => from.next_element_seed(Seed { tree, record: self.record })?,
                        None => from.next_element()?.map(|IgnoredAny| ()),
                    };
                    let Some(()) = found else { return Ok(()) };
                    index += 1;
                }
            }
            _ => self.mismatch(),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Tree::Object(entries) = self.tree else { return self.mismatch() };
        while let Some(entry) = from.next_key_seed(KeyLookup(entries))? {
            match entry {
                Some(tree) => from.next_value_seed(Seed { tree, record: self.record })?,
                None => drop(from.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Finds the entry of a key.
struct KeyLookup<'a>(&'a [(String, Tree)]);

impl<'de, 'a> DeserializeSeed<'de> for KeyLookup<'a> {
    type Value = Option<&'a Tree>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, 'a> Visitor<'de> for KeyLookup<'a> {
    type Value = Option<&'a Tree>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(name, _)| name == key).map(|(_, tree)| tree))
    }

    // Keys of CBOR may be anything; those of fields are text.
    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_keys_and_indexes() {
        let key = |key: &str| PathStep::Key(key.into());
        for (path, expected) in [
            ("a", Ok(vec![key("a")])),
            ("a.b-c_d", Ok(vec![key("a"), key("b-c_d")])),
            ("a[2].b", Ok(vec![key("a"), PathStep::Index(2), key("b")])),
            ("[0][\"x.y\"]", Ok(vec![PathStep::Index(0), key("x.y")])),
            ("a[\"\"]", Ok(vec![key("a"), key("")])),
            (".", Ok(vec![])),
            ("", Err("the path is empty")),
            ("a.", Err("a key is empty")),
            ("a..b", Err("a key is empty")),
            ("a.[0]", Err("a key is empty")),
            ("a[0]b", Err("expected `.` or `[`")),
            ("a[x]", Err("`x` is not an index")),
            ("a[-1]", Err("`-1` is not an index")),
            ("a[0", Err("expected `]`")),
            ("a[\"b", Err("expected `\"]`")),
            (&"a.".repeat(40), Err("a key is empty")),
            (&["a"; 40].join("."), Err("found 40")),
        ] {
            match (steps(path), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{path}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{path}: {why}"),
                other => panic!("{path}: {other:?}"),
            }
        }
    }
}
