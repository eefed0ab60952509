//! A YAML text as a tree in which every value remembers where it stands.
//!
//! The only module that touches the YAML library. A text is parsed once; the graph's own structure is read off the
//! tree by hand in [`crate::file::spec`], and each node's typed config through [`Tree::read`], so that every problem found
//! later, however deep, points into the file. Aliases are expanded under the library's budget, nesting is capped.

mod printer;
mod reader;

use crate::base::error::{Place, Problem, Problems};
use reader::{Findings, Reader};
use serde::de::{self, DeserializeOwned};
use serde_saphyr::Spanned;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Deeper nesting than this is refused; a graph file needs six levels.
const MAX_DEPTH: usize = 64;
/// Larger files than this are refused; 10,000 nodes take about 1 MiB.
const MAX_BYTES: usize = 4 << 20;

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
    /// What came from outside of the file (a variable, a parameter, the command line): number, text or switch, whichever is wanted
    /// where it stands.
    Word(Word),
    /// A list.
    List(Vec<Tree>),
    /// A map, in the order of the file; keys are unique.
    Map(Vec<(Key, Tree)>),
}

/// A value from outside of the file.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// The value.
    text: String,
    /// How the file writes it, where the value is not to be shown.
    written: Option<String>,
    /// As what it was read, by whoever holds a copy of it: [`AS_TEXT`], [`AS_VALUE`] or both.
    read: Arc<AtomicU8>,
}

const AS_TEXT: u8 = 1;
const AS_VALUE: u8 = 2;

impl Word {
    pub(crate) fn new(text: String, written: Option<String>) -> Self {
        Word { text, written, read: Arc::default() }
    }

    /// Its characters, for what does not depend on what it is read as.
    pub(crate) fn characters(&self) -> &str {
        &self.text
    }

    /// How the file writes it, where the value is not to be shown.
    pub(crate) fn written(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// As text.
    pub(crate) fn text(&self) -> &str {
        self.read.fetch_or(AS_TEXT, Ordering::Relaxed);
        &self.text
    }

    /// As what a plain scalar of the same text would be.
    fn value(&self) -> Value {
        self.read.fetch_or(AS_VALUE, Ordering::Relaxed);
        self.plain()
    }

    /// Whether a plain scalar of the same text would be nothing: then it is read as that.
    fn is_nothing(&self) -> bool {
        self.plain() == Value::Null && self.value() == Value::Null
    }

    fn plain(&self) -> Value {
        // A structure, a comment, or what is no YAML, is text: nothing from outside of the file can add structure to it.
        match Tree::parse(&self.text, "").map(|tree| tree.value) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_)))
                if !self.text.contains(['#', '}']) =>
            {
                value
            }
            _ => Value::Text(self.text.clone()),
        }
    }

    /// The one value that it is: what it was read as, or the only thing that it can be read as.
    fn settled(&self) -> Option<Value> {
        match (self.read.load(Ordering::Relaxed), self.plain()) {
            (_, text @ Value::Text(_)) => Some(text),
            (AS_TEXT, _) => Some(Value::Text(self.text.clone())),
            (AS_VALUE, value) => Some(value),
            _ => None,
        }
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.written == other.written
    }
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
            Value::Word(word) => format!("`{}`", word.written.as_ref().unwrap_or(&word.text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }
}

impl Value {
    /// Whether two scalars are the same; a word that may be one or the other is the same as either.
    fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Word(a), Value::Word(b)) => match (a.settled(), b.settled()) {
                (Some(a), Some(b)) => a == b,
                _ => a.text == b.text || a.plain() == b.plain(),
            },
            (Value::Word(word), value) | (value, Value::Word(word)) => match word.settled() {
                Some(settled) => settled == *value,
                None => word.plain() == *value || *value == Value::Text(word.text.clone()),
            },
            (a, b) => a == b,
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
            )
            .help("split the graph"));
        }
        let options = serde_saphyr::options! {
            strict_booleans: true,
            with_snippet: false,
            budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH, max_nodes: 300_000 },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        };
        match serde_saphyr::from_str_with_options::<Raw>(text, options) {
            Ok(raw) => {
                let mut tree = raw.place(&file);
                tree.name_null_kinds(&mut Positions { text, found: None });
                Ok(tree)
            }
            Err(error) => {
                let place = match error.location() {
                    Some(l) if l.line() > 0 => Place { file, line: l.line(), column: l.column() },
                    _ => start,
                };
                let (message, help) = in_words(error.without_snippet());
                Err(Problem::new("E0102", place, format!("not readable as YAML: {message}")).help(help))
            }
        }
    }

    /// YAML reads the bare word `null` as nothing; as a kind it names the sink.
    fn name_null_kinds(&mut self, text: &mut Positions<'_>) {
        let Value::Map(entries) = &mut self.value else { return };
        for (key, value) in entries {
            if key.name == "kind" && value.value == Value::Null {
                if text.begins_with(&value.place, "null") {
                    value.value = Value::Text("null".into());
                }
            } else if key.name != "config" {
                value.name_null_kinds(text);
            }
        }
    }

    /// The text, where it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Word(word) => Some(word.text()),
            _ => None,
        }
    }

    /// The whole number, where it is one.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match &self.value {
            Value::Int(n) => Some(*n),
            Value::Word(word) => match word.value() {
                Value::Int(n) => Some(n),
                _ => None,
            },
            _ => None,
        }
    }

    /// The entries, where it is a map.
    pub(crate) fn entries(&self) -> &[(Key, Tree)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value under a key of a map, taken out of it.
    pub(crate) fn take(&mut self, key: &str) -> Option<Tree> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(k, _)| k.name == key)?;
        Some(entries.remove(at).1)
    }

    /// The value under a key of a map.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// How much it is: a unit for each value, and one for every 64 bytes of text.
    pub(crate) fn size(&self) -> usize {
        match &self.value {
            Value::List(items) => items.iter().map(Tree::size).sum::<usize>() + 1,
            Value::Map(entries) => {
                entries.iter().map(|(key, value)| value.size() + key.name.len() / 64).sum::<usize>() + 1
            }
            Value::Text(text) => text.len() / 64 + 1,
            Value::Word(word) => word.text.len() / 64 + 1,
            _ => 1,
        }
    }

    /// Whether both say the same, wherever they stand.
    pub(crate) fn says(&self, other: &Tree) -> bool {
        match (&self.value, &other.value) {
            (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.says(b)),
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k.name == l.name && a.says(b))
            }
            (a, b) => a.is_same(b),
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
        self.read_or(problems, |field| format!("write `{field}:` here"))
    }

    /// Reads the config of a node. Where the graph gives none, what is missing belongs under a key that is missing too.
    pub(crate) fn read_config<T: DeserializeOwned>(&self, problems: &mut Problems) -> Option<T> {
        match self.value {
            Value::Null => self.read_or(problems, |field| format!("write `config: {{ {field}: .. }}`")),
            _ => self.read(problems),
        }
    }

    fn read_or<T: DeserializeOwned>(&self, problems: &mut Problems, missing: fn(&str) -> String) -> Option<T> {
        let findings = Findings::default();
        let mut wrong = Vec::new();
        let value = loop {
            match T::deserialize(Reader::new(self, &findings)) {
                Ok(value) => break Some(value),
                Err(error) => {
                    let goes_on = error.is_set_aside;
                    if !error.is_known {
                        let place = error.place.unwrap_or_else(|| self.place.clone());
                        let mut problem = Problem::new("E0104", place, error.message);
                        problem.help = error.help.or_else(|| error.missing.map(missing));
                        wrong.push(problem);
                    }
                    if !goes_on || wrong.len() == MOST_WRONG {
                        break None;
                    }
                }
            }
        };
        wrong.extend(findings.unknown.into_inner());
        let value = value.filter(|_| wrong.is_empty());
        problems.0.extend(wrong);
        value
    }
}

/// What the YAML library found, without its advice to programmers, and a way out.
fn in_words(error: &serde_saphyr::Error) -> (String, &'static str) {
    use serde_saphyr::Error;
    let (message, help) = match error {
        Error::AliasError { error, .. } => return in_words(error),
        Error::NullIntoString { .. } | Error::InvalidCharNull { .. } => {
            ("a key has no name: it is empty, `null` or `~`", "give it a name; in quotes, `\"null\"` is one")
        }
        Error::Unexpected { expected, .. } if *expected == "string scalar" => {
            ("a key is a list or a map", "write a name before the `:`")
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. } => {
            ("a key has a tag", "leave the tag, which begins with `!`, out")
        }
        Error::UnsupportedTag { .. } | Error::InvalidBinaryBase64 { .. } | Error::BinaryNotUtf8 { .. } => {
            ("a tag that means nothing in a graph", "leave the tag, which begins with `!`, out")
        }
        Error::MultipleDocuments { .. } => ("it holds several documents", "keep one of them: `---` begins another"),
        Error::Budget { .. } => {
            ("it has too many values, or is nested too deep", "split the graph, or include parts of it")
        }
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            ("its aliases stand for too much", "write less behind each `*`, or use `defaults`")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias stands for what it is a part of", "write out what is meant")
        }
        Error::UnknownAnchor { .. } => (
            "an alias stands for nothing",
            "`*name` repeats what `&name` marks before; put text that begins with `*` in quotes",
        ),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            return (format!("duplicate mapping key: {key}"), "keep one of them");
        }
        Error::DuplicateMappingKey { .. } => ("duplicate mapping key", "keep one of them"),
        other => {
            // The library repeats the position in its text; the place says it already.
            let text = other.to_string();
            let text = text.rfind(" at line ").map_or(&text[..], |at| &text[..at]);
            if text.contains("recursion limit") {
                return ("it is nested too deep".into(), "split the graph, or include parts of it");
            }
            let help = if text.contains("tabs ") {
                "indent with spaces"
            } else {
                "a missing space after `:`, an unclosed bracket and unquoted `*`, `&` or `@` are the usual reasons"
            };
            return (text.to_string(), help);
        }
    };
    (message.to_string(), help)
}

/// Wrong values of one config that are reported: each takes another reading of it.
const MOST_WRONG: usize = 20;

/// A text whose lines and columns are counted once, when the first is asked for.
struct Positions<'a> {
    text: &'a str,
    /// All characters, and where each line begins.
    found: Option<(Vec<char>, Vec<usize>)>,
}

impl Positions<'_> {
    fn begins_with(&mut self, place: &Place, word: &str) -> bool {
        let (chars, lines) = self.found.get_or_insert_with(|| {
            let chars: Vec<char> = self.text.chars().collect();
            let ends = chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(at, _)| at + 1);
            let lines = std::iter::once(0).chain(ends).collect();
            (chars, lines)
        });
        let index = |n: u64| usize::try_from(n).ok().and_then(|n| n.checked_sub(1));
        let at = index(place.line).and_then(|line| lines.get(line)?.checked_add(index(place.column)?));
        at.and_then(|at| chars.get(at..)).is_some_and(|rest| word.chars().eq(rest.iter().take(word.len()).copied()))
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
            // Collected in place, they would keep the room that reading took.
            RawValue::List(items) => {
                let mut items: Vec<Tree> = items.into_iter().map(|i| i.place(file)).collect();
                items.shrink_to_fit();
                Value::List(items)
            }
            RawValue::Map(entries) => {
                let key = |k: Spanned<String>| Key { place: place_of(k.referenced, file), name: k.value };
                let mut entries: Vec<(Key, Tree)> = entries.into_iter().map(|(k, v)| (key(k), v.place(file))).collect();
                entries.shrink_to_fit();
                Value::Map(entries)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::unit::Span;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code)]
    struct Batch {
        max: u32,
        within: Option<Span>,
        mode: Option<Mode>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)]
    enum Mode {
        Fast,
        Exact,
        Within([u32; 2]),
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
                "g.yaml:2:9: error[E0104]: the number 10 is not a time with its unit, such as `10ms`\n    help: write the unit: `10ms`, `10us`, `10s`",
            ),
            (
                "max: three",
                "g.yaml:1:6: error[E0104]: `three` is not a whole number, 0 or more\n    help: write a whole number, 0 or more",
            ),
            ("within: 1ms", "g.yaml:1:1: error[E0104]: `max` is missing\n    help: write `max:` here"),
            (
                "max: 1\nmode: exakt",
                "g.yaml:2:7: error[E0104]: `exakt` is not one of `fast`, `exact`, `within`\n    help: did you mean `exact`?",
            ),
            (
                "max: 1\nmode: within",
                "g.yaml:2:7: error[E0104]: `within` alone says too little\n    help: write `{ within: … }`",
            ),
            (
                "max: 1\nmode: { fast: 2, exact: 1 }",
                "g.yaml:2:7: error[E0104]: a map of 2 is not one of `fast`, `exact`, `within`\n    help: write one of them alone",
            ),
            (
                "max: 1\nmode: { fast: 2 }",
                "g.yaml:2:15: error[E0104]: `fast` takes no value\n    help: write `fast` alone",
            ),
            (
                "max: 1\nmode: { within: 2 }",
                "g.yaml:2:17: error[E0104]: the number 2 is not a list of 2\n    help: write a list of 2",
            ),
            (
                "max: 1\nmode: { within: [2] }",
                "g.yaml:2:17: error[E0104]: a list of 1 is not a list of 2\n    help: write a list of 2",
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
    fn every_wrong_value_is_reported_once() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        struct Outer {
            first: bool,
            batch: Batch,
            all: std::collections::BTreeMap<String, u32>,
            steps: Vec<Batch>,
        }
        let text = "batch: { max: x, within: 1, mode: fst, maxx: 3 }\nall: { a: b, c: 1, d: e }\n\
                    steps: [{ max: 1 }, { max: y, within: 2 }, { within: 3ms }]\n";
        let mut problems = Problems::default();
        assert!(Tree::parse(text, "g.yaml").unwrap().read::<Outer>(&mut problems).is_none());
        let places: Vec<_> = problems.0.iter().map(|p| (p.place.line, p.place.column, p.code)).collect();
        assert_eq!(
            places,
            [
                (1, 15, "E0104"),
                (1, 26, "E0104"),
                (1, 35, "E0104"),
                (2, 11, "E0104"),
                (2, 23, "E0104"),
                (3, 28, "E0104"),
                (3, 39, "E0104"),
                (1, 1, "E0104"),
                (1, 40, "E0103"),
            ],
            "{problems}"
        );
        assert!(problems.to_string().contains("`first` is missing"), "{problems}");
    }

    /// Each is read again behind what is wrong, and there may be a hundred thousand of them.
    #[test]
    fn a_config_that_is_wrong_throughout_is_not_read_for_ever() {
        let wrong: String = (0..100_000).map(|n| format!("k{n}: x\n")).collect();
        let tree = Tree::parse(&wrong, "g.yaml").unwrap();
        let mut problems = Problems::default();
        assert!(tree.read::<std::collections::BTreeMap<String, u32>>(&mut problems).is_none());
        assert_eq!(problems.0.len(), MOST_WRONG);
        let mut problems = Problems::default();
        assert!(tree.read::<Batch>(&mut problems).is_none());
        assert_eq!(problems.0.len(), 100_001);
    }

    #[test]
    fn all_unknown_keys_are_reported_with_a_suggestion() {
        let (batch, found) = read("max: 1\nwithim: 1ms\nnothing_like_it: 2");
        assert!(batch.is_none());
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("g.yaml:2:1") && found[0].contains("did you mean `within`?"), "{}", found[0]);
    }

    /// What the library advises its users, who write Rust, helps nobody who writes graphs.
    #[test]
    fn what_the_library_says_to_programmers_is_not_repeated() {
        let deep = "[".repeat(100);
        let many = format!("a: [{}]", "1,".repeat(400_000));
        for (text, expected) in [
            ("null: 1", "a key has no name"),
            ("~: 1", "a key has no name"),
            (": 1", "a key has no name"),
            ("? [a, b]\n: 1", "a key is a list or a map"),
            ("? { a: b }\n: 1", "a key is a list or a map"),
            ("!!int a: 1", ""),
            ("a: !!binary x", ""),
            ("a: !!binary /w==", ""),
            ("a: 1\n---\nb: 2", "several documents"),
            ("a: *b", "an alias stands for nothing"),
            ("a: &a [*a]", "an alias stands for"),
            ("a: 1\na: 2", "duplicate mapping key: a"),
            (&deep[..], "nested too deep"),
            (&many[..], "too many values"),
        ] {
            let Err(problem) = Tree::parse(text, "g.yaml") else {
                assert_eq!(expected, "", "{text:.40}");
                continue;
            };
            let said = format!("{problem}");
            assert!(said.contains(expected) && problem.help.is_some(), "{text:.40}: {said}");
            for noise in ["Option", "Policy", "Budget", "budget", "serde", "deserialize", "{ ", "_events", "::"] {
                assert!(!said.contains(noise), "{text:.40}: {said}");
            }
        }
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
