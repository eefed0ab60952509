//! A YAML text as a tree in which every value remembers where it stands.
//!
//! The only module that touches the YAML library. A text is parsed once; the graph's own structure is read off the
//! tree by hand in [`crate::spec`], and each node's typed config through [`Tree::read`], so that every problem found
//! later, however deep, points into the file. Aliases are expanded under the library's budget, nesting is capped.

use crate::error::{Place, Problem, Problems, suggest};
use serde::de::{self, DeserializeOwned, IntoDeserializer};
use serde_saphyr::Spanned;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// Deeper nesting than this is refused; a graph file needs six levels.
const MAX_DEPTH: usize = 64;
/// Larger files than this are refused; 10,000 nodes take about 1 MiB.
const MAX_BYTES: usize = 16 << 20;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    /// Where the value begins.
    pub(crate) place: Place,
    /// The value.
    pub(crate) value: Value,
}

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// A map, in the order of the file; keys are unique.
    Map(Vec<(Key, Tree)>),
}

/// A key of a map and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Where the key begins.
    pub(crate) place: Place,
    /// The key.
    pub(crate) name: String,
}

impl Value {
    /// What kind of value it is, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".into(),
            Value::Bool(b) => format!("`{b}`"),
            Value::Int(i) => format!("the number {i}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Text(t) => format!("`{t}`"),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }
}

impl Tree {
    /// Parses a text; `file` is the name used in messages.
    ///
    /// # Errors
    /// One problem with its place: the text is not YAML, too large, nested too deep, has duplicate keys, a dangling
    /// or explosive alias, or several documents.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Tree, Problem> {
        let file: Arc<str> = file.into();
        let start = Place { file: file.clone(), line: 1, column: 1 };
        if text.len() > MAX_BYTES {
            return Err(Problem::new(
                "E0101",
                start,
                format!("{} bytes of YAML; at most {MAX_BYTES} are read", text.len()),
            ));
        }
        let options = serde_saphyr::options! {
            strict_booleans: true,
            with_snippet: false,
            budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH, max_nodes: 400_000 },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        };
        match serde_saphyr::from_str_with_options::<Raw>(text, options) {
            Ok(raw) => Ok(raw.place(&file)),
            Err(error) => {
                let place = match error.location() {
                    Some(l) if l.line() > 0 => Place { file, line: l.line(), column: l.column() },
                    _ => start,
                };
                // The library repeats the position in its text; the place says it already.
                let message = error.without_snippet().to_string();
                let message = match message.rfind(" at line ") {
                    Some(at) => message[..at].to_string(),
                    None => message,
                };
                Err(Problem::new("E0102", place, format!("not readable as YAML: {message}")))
            }
        }
    }

    /// The value under a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The place of the value at a path such as `batch.max` or `range[1]`, or of the nearest part of it that exists.
    pub(crate) fn locate(&self, path: &str) -> Place {
        let mut here = self;
        for step in path.split(['.', '[']).map(|s| s.trim_end_matches(']')).filter(|s| !s.is_empty()) {
            let next = match &here.value {
                Value::Map(_) => here.get(step),
                Value::List(items) => step.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => None,
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        here.place.clone()
    }

    /// Reads the tree as a type. Unknown keys of its structs are all reported with a suggestion; the first wrong
    /// value ends the reading.
    pub(crate) fn read<T: DeserializeOwned>(&self, problems: &mut Problems) -> Option<T> {
        let found = RefCell::new(Vec::new());
        let result = T::deserialize(Reader { tree: self, found: &found });
        let found = found.into_inner();
        let clean = found.is_empty();
        problems.0.extend(found);
        match result {
            Ok(value) => clean.then_some(value),
            Err(error) => {
                let place = error.place.unwrap_or_else(|| self.place.clone());
                let mut problem = Problem::new("E0104", place, error.message);
                problem.help = error.help;
                problems.push(problem);
                None
            }
        }
    }
}

/// What the YAML library gives, before the file's name is put into every place.
struct Raw(Spanned<RawValue>);

enum RawValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Raw>),
    Map(Vec<(Spanned<String>, Raw)>),
}

fn place_of(location: serde_saphyr::Location, file: &Arc<str>) -> Place {
    Place { file: file.clone(), line: location.line(), column: location.column() }
}

impl Raw {
    fn place(self, file: &Arc<str>) -> Tree {
        let value = match self.0.value {
            RawValue::Null => Value::Null,
            RawValue::Bool(b) => Value::Bool(b),
            RawValue::Int(i) => Value::Int(i),
            RawValue::Float(x) => Value::Float(x),
            RawValue::Text(t) => Value::Text(t),
            RawValue::List(items) => Value::List(items.into_iter().map(|i| i.place(file)).collect()),
            RawValue::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(k, v)| (Key { place: place_of(k.referenced, file), name: k.value }, v.place(file)))
                    .collect(),
            ),
        };
        Tree { place: place_of(self.0.referenced, file), value }
    }
}

impl<'de> de::Deserialize<'de> for Raw {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Raw)
    }
}

impl<'de> de::Deserialize<'de> for RawValue {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> de::Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }
    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }
    fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<RawValue, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E>(self, v: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<RawValue, E> {
        Ok(RawValue::Int(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<RawValue, E> {
        Ok(RawValue::Int(v.into()))
    }
    fn visit_i128<E>(self, v: i128) -> Result<RawValue, E> {
        Ok(RawValue::Int(v))
    }
    fn visit_f64<E>(self, v: f64) -> Result<RawValue, E> {
        Ok(RawValue::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(v.to_string()))
    }
    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<RawValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(RawValue::List(items))
    }
    fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key()? {
            entries.push((key, access.next_value()?));
        }
        Ok(RawValue::Map(entries))
    }
}

/// Why a tree cannot be read as a type.
#[derive(Debug)]
pub(crate) struct ReadError {
    place: Option<Place>,
    message: String,
    help: Option<String>,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        ReadError { place: None, message: message.to_string(), help: None }
    }
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            de::Unexpected::Str(t) => format!("`{t}`"),
            de::Unexpected::Unit => "nothing".into(),
            de::Unexpected::Seq => "a list".into(),
            de::Unexpected::Map => "a map".into(),
            de::Unexpected::Signed(n) => format!("the number {n}"),
            de::Unexpected::Unsigned(n) => format!("the number {n}"),
            de::Unexpected::Float(n) => format!("the number {n}"),
            other => other.to_string(),
        };
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number, 0 or more",
            "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
            "f32" | "f64" => "a number",
            "a string" => "text",
            "a boolean" => "`true` or `false`",
            other => other,
        };
        ReadError {
            place: None,
            message: format!("{found} is not {expected}"),
            help: Some(format!("write {expected}")),
        }
    }
    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let help = suggest(found, expected.iter().copied());
        let all = expected.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ");
        ReadError { place: None, message: format!("`{found}` is not one of {all}"), help: Some(help) }
    }
    fn missing_field(field: &'static str) -> Self {
        ReadError {
            place: None,
            message: format!("`{field}` is missing"),
            help: Some(format!("write `{field}:` here")),
        }
    }
}

/// Reads a [`Tree`] as a serde deserializer, remembering the place of what it is at.
#[derive(Clone, Copy)]
struct Reader<'a> {
    tree: &'a Tree,
    found: &'a RefCell<Vec<Problem>>,
}

impl<'a> Reader<'a> {
    fn at(self, tree: &'a Tree) -> Self {
        Reader { tree, ..self }
    }

    /// Puts the place of this value on an error that has none yet.
    fn placed<T>(self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|mut e| {
            e.place.get_or_insert_with(|| self.tree.place.clone());
            e
        })
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let result = match &self.tree.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i) => match (u64::try_from(*i), i64::try_from(*i)) {
                (Ok(n), _) => visitor.visit_u64(n),
                (_, Ok(n)) => visitor.visit_i64(n),
                _ => visitor.visit_i128(*i),
            },
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Text(t) => visitor.visit_str(t),
            Value::List(items) => visitor.visit_seq(Items { reader: self, items: items.iter() }),
            Value::Map(entries) => {
                visitor.visit_map(Entries { reader: self, fields: None, entries: entries.iter(), value: None })
            }
        };
        self.placed(result)
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.tree.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let result = match &self.tree.value {
            Value::Map(entries) => {
                // All of them now: the first wrong value would end the reading.
                for (key, _) in entries.iter().filter(|(key, _)| !fields.contains(&key.name.as_str())) {
                    let problem = Problem::new("E0103", key.place.clone(), format!("unknown key `{}`", key.name))
                        .help(suggest(&key.name, fields.iter().copied()));
                    self.found.borrow_mut().push(problem);
                }
                visitor.visit_map(Entries { reader: self, fields: Some(fields), entries: entries.iter(), value: None })
            }
            // A config left out is an empty one.
            Value::Null => {
                visitor.visit_map(Entries { reader: self, fields: Some(fields), entries: [].iter(), value: None })
            }
            other => Err(ReadError {
                place: None,
                message: format!("{} is not a map", other.describe()),
                help: Some(format!("keys: {}", fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", "))),
            }),
        };
        self.placed(result)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let result = match &self.tree.value {
            Value::Text(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Map(entries) if entries.len() == 1 => {
                visitor.visit_enum(Variant { reader: self, entry: &entries[0] })
            }
            other => Err(ReadError {
                place: None,
                message: format!(
                    "{} is not one of {}",
                    other.describe(),
                    variants.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ")
                ),
                help: None,
            }),
        };
        self.placed(result)
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.tree.value {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => Err(ReadError {
                place: Some(self.tree.place.clone()),
                message: format!("{} is not text", self.tree.value.describe()),
                help: Some("put it in quotes if text is meant".into()),
            }),
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str
        bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    reader: Reader<'a>,
    items: std::slice::Iter<'a, Tree>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = ReadError;
    fn next_element_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.items.next().map(|item| seed.deserialize(self.reader.at(item))).transpose()
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'a> {
    reader: Reader<'a>,
    fields: Option<&'static [&'static str]>,
    entries: std::slice::Iter<'a, (Key, Tree)>,
    value: Option<&'a Tree>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        for (key, value) in self.entries.by_ref() {
            if let Some(fields) = self.fields
                && !fields.contains(&key.name.as_str())
            {
                continue;
            }
            self.value = Some(value);
            return seed.deserialize(key.name.as_str().into_deserializer()).map(Some).map_err(|mut e: ReadError| {
                e.place.get_or_insert_with(|| key.place.clone());
                e
            });
        }
        Ok(None)
    }

    fn next_value_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take().expect("serde asks for a key before its value");
        let reader = self.reader.at(value);
        reader.placed(seed.deserialize(reader))
    }
}

struct Variant<'a> {
    reader: Reader<'a>,
    entry: &'a (Key, Tree),
}

impl<'de, 'a> de::EnumAccess<'de> for Variant<'a> {
    type Error = ReadError;
    type Variant = Reader<'a>;
    fn variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Reader<'a>), ReadError> {
        let name = seed.deserialize(self.entry.0.name.as_str().into_deserializer()).map_err(|mut e: ReadError| {
            e.place.get_or_insert_with(|| self.entry.0.place.clone());
            e
        })?;
        Ok((name, self.reader.at(&self.entry.1)))
    }
}

impl<'de> de::VariantAccess<'de> for Reader<'_> {
    type Error = ReadError;
    fn unit_variant(self) -> Result<(), ReadError> {
        match self.tree.value {
            Value::Null => Ok(()),
            _ => self.placed(Err(de::Error::custom("this takes no value"))),
        }
    }
    fn newtype_variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        self.placed(seed.deserialize(self))
    }
    fn tuple_variant<V: de::Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self, visitor)
    }
    fn struct_variant<V: de::Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_struct(self, "", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code)]
    struct Batch {
        max: u32,
        within: Option<Span>,
        mode: Option<Mode>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Fast,
        Exact,
    }

    fn read(text: &str) -> (Option<Batch>, Vec<String>) {
        let mut problems = Problems::default();
        let batch = Tree::parse(text, "g.yaml").unwrap().read::<Batch>(&mut problems);
        (batch, problems.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_wrong_value_is_found_where_it_stands() {
        for (text, expected) in [
            (
                "max: 3\nwithin: 10\n",
                "g.yaml:2:9: error[E0104]: the number 10 is not a time with its unit, such as `10ms`\n    help: write a time with its unit, such as `10ms`",
            ),
            (
                "max: three",
                "g.yaml:1:6: error[E0104]: `three` is not a whole number, 0 or more\n    help: write a whole number, 0 or more",
            ),
            ("within: 1ms", "g.yaml:1:1: error[E0104]: `max` is missing\n    help: write `max:` here"),
            (
                "max: 1\nmode: exakt",
                "g.yaml:2:7: error[E0104]: `exakt` is not one of `fast`, `exact`\n    help: did you mean `exact`?",
            ),
            (
                "max: -1",
                "g.yaml:1:6: error[E0104]: the number -1 is not a whole number, 0 or more\n    help: write a whole number, 0 or more",
            ),
        ] {
            let (_, found) = read(text);
            assert_eq!(found, [expected], "{text}");
        }
    }

    #[test]
    fn all_unknown_keys_are_reported_with_a_suggestion() {
        let (batch, found) = read("max: 1\nwithim: 1ms\nnothing_like_it: 2");
        assert!(batch.is_none());
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("g.yaml:2:1") && found[0].contains("did you mean `within`?"), "{}", found[0]);
    }

    #[test]
    fn a_text_that_is_not_yaml_is_a_problem_with_a_place() {
        let deep = "[".repeat(100_000);
        let bomb = "a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g]";
        for text in ["a: 1\na: 2", "a: [1,2", "a: b: c", "a: *nope", "a: 1\n---\nb: 2", &deep, bomb] {
            let problem = Tree::parse(text, "g.yaml").expect_err(&text[..text.len().min(40)]);
            assert!(problem.place.line >= 1, "{problem}");
        }
    }
}
