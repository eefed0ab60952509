//! The YAML library's result as a tree, and its errors in the words of graph files.

use super::{Key, Tree, Value};
use crate::base::error::{Place, Problem};
use serde::de;
use serde_saphyr::Spanned;
use std::fmt;
use std::sync::Arc;

/// Deeper nesting is refused; a graph file needs six levels.
const MAX_DEPTH: usize = 64;
/// Files with more values are refused.
const MAX_VALUES: usize = 300_000;
/// Larger files are refused; 10,000 nodes take about 1 MiB.
const MAX_BYTES: usize = 4 << 20;

impl Tree {
    /// Parses a text; messages call it `file`.
    ///
    /// # Errors
    /// One problem with its place: malformed YAML, too large, nested too deep, duplicate keys,
    /// dangling or exploding aliases, or several documents.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Tree, Problem> {
        let file: Arc<str> = file.into();
        let start = Place { file: file.clone(), line: 1, column: 1 };
        if text.len() > MAX_BYTES {
            return Err(Problem::new(
                "E0101",
                start,
                format!("the text must be at most {MAX_BYTES} bytes, got {}", text.len()),
            )
            .help(SPLIT));
        }
        let options = serde_saphyr::options! {
            strict_booleans: true,
            with_snippet: false,
            budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH, max_nodes: MAX_VALUES },
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
                let (message, help) = translate(error.without_snippet());
                Err(Problem::new("E0102", place, format!("invalid YAML: {message}")).help(help))
            }
        }
    }

    /// Undoes YAML's reading of the bare word `null` under `kind`: it names the sink of that kind.
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
}

/// The help for a file that is too large.
const SPLIT: &str = "move parts to other files: `include: [part.yaml]`";

/// Translates an error of the YAML library into a message and a way out, without its advice to Rust
/// programmers.
fn translate(error: &serde_saphyr::Error) -> (String, &'static str) {
    use serde_saphyr::Error;
    let (message, help) = match error {
        Error::AliasError { error, .. } => return translate(error),
        Error::NullIntoString { .. } | Error::InvalidCharNull { .. } => {
            ("expected a name before `:`, found nothing, `null` or `~`", "write a name, or `\"null\"` in quotes")
        }
        Error::Unexpected { expected, .. } if *expected == "string scalar" => {
            ("expected a name before `:`, found a list or a map", "write a name before `:`")
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. } => {
            ("expected a name before `:`, found a tag", "remove the tag, which begins with `!`")
        }
        Error::UnsupportedTag { .. } | Error::InvalidBinaryBase64 { .. } | Error::BinaryNotUtf8 { .. } => {
            ("expected a value, found a tag", "remove the tag, which begins with `!`")
        }
        Error::MultipleDocuments { .. } => {
            ("expected one document, found several", "remove all documents except the first")
        }
        Error::Budget { .. } => {
            return (format!("the text must have at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep"), SPLIT);
        }
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            ("the aliases must expand to at most 20000 values", "replace aliases by `defaults:`")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias contains itself", "write the value in place of the alias")
        }
        Error::UnknownAnchor { .. } => (
            "an alias refers to an unknown anchor",
            "write `&name` before the value that `*name` repeats, or quote text that begins with `*`",
        ),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            return (format!("duplicate key `{key}`"), "remove one of the two keys");
        }
        Error::DuplicateMappingKey { .. } => ("duplicate key", "remove one of the two keys"),
        other => {
            // The library repeats the position in its text; the problem has its place.
            let text = other.to_string();
            let text = text.rfind(" at line ").map_or(&text[..], |at| &text[..at]);
            if text.contains("recursion limit") {
                return (format!("values must be nested at most {MAX_DEPTH} deep"), "remove levels of nesting");
            }
            if text.contains("tabs ") {
                return ("expected spaces, found a tab".into(), "indent with spaces");
            }
            // `while parsing a flow mapping, did not find expected ',' or '}'`
            let parts =
                text.split_once(", did not find ").map(|(within, what)| (within.rsplit("while parsing ").next(), what));
            let text = match parts {
                Some((Some(within), what)) => format!("{} in {within}", what.replace("expected key", "expected a key")),
                _ => text.to_string(),
            };
            let help = if text.contains("key in a block mapping") {
                "start all keys of one map in the same column"
            } else {
                "close every bracket, write a space after `:`, and quote text that begins with `*`, `&` or `@`"
            };
            return (text, help);
        }
    };
    (message.to_string(), help)
}

/// A text with an index of its lines, built on first use.
struct Positions<'a> {
    text: &'a str,
    /// All characters, and the offset of each line.
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

/// A value as the YAML library returns it, before places get the file's name.
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
            // Collected in place, the vector would keep the larger allocation of its raw items.
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

    /// Promise (output): Errors do not repeat a library's advice to programmers.
    #[test]
    fn messages_do_not_repeat_the_librarys_advice_to_programmers() {
        let deep = "[".repeat(100);
        let many = format!("a: [{}]", "1,".repeat(400_000));
        for (text, expected) in [
            ("null: 1", "expected a name before `:`, found nothing"),
            ("~: 1", "expected a name before `:`, found nothing"),
            (": 1", "expected a name before `:`, found nothing"),
            ("? [a, b]\n: 1", "found a list or a map"),
            ("? { a: b }\n: 1", "found a list or a map"),
            ("!!int a: 1", ""),
            ("a: !!binary x", ""),
            ("a: !!binary /w==", ""),
            ("a: 1\n---\nb: 2", "expected one document"),
            ("a: *b", "an alias refers to an unknown anchor"),
            ("a: &a [*a]", "an alias"),
            ("a: 1\na: 2", "duplicate key `a`"),
            (&deep[..], "nested at most 64 deep"),
            (&many[..], "at most 300000 values"),
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
