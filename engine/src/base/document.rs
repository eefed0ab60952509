//! A YAML text as a tree in which every value has its place.
//!
//! The only module that uses the YAML library, in `parse` and `printer`. A text is parsed once;
//! [`crate::file::spec`] reads the graph's structure from the tree by hand, and each node's typed
//! config is read through [`Tree::read`], so every problem found later, however deep, points into
//! the file. Alias expansion and nesting are limited.

mod parse;
mod printer;
mod reader;
mod substituted;

pub(crate) use substituted::Substituted;

use crate::base::deprecation::Deprecation;
use crate::base::error::{Place, Problem, Problems, suggest_one};
use reader::{Findings, ReadError, TreeReader};
use serde::de::DeserializeOwned;

/// The maximum number of wrong values reported of one config: each takes another pass over it.
const MAX_WRONG_VALUES: usize = 20;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    /// Where the value begins.
    pub(crate) place: Place,
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
    Text(String),
    /// A value substituted from outside the file (a variable, a parameter, the command line). It is
    /// read as a number, text or boolean, whichever is expected at its place.
    Substituted(Substituted),
    List(Vec<Tree>),
    /// A map, in the order of the file; keys are unique.
    Map(Vec<(Key, Tree)>),
}

/// A key of a map and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Where the key begins.
    pub(crate) place: Place,
    /// The key.
    pub(crate) name: String,
}

impl Value {
    /// Describes the value for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".into(),
            Value::Bool(b) => format!("`{b}`"),
            Value::Int(i) => format!("the number {i}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Text(t) => format!("`{t}`"),
            Value::Substituted(word) => format!("`{}`", word.written().unwrap_or(word.characters())),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }

    /// Returns a scalar as the graph writes it, for help texts.
    pub(crate) fn scalar(&self) -> Option<String> {
        match self {
            Value::Null | Value::List(_) | Value::Map(_) => None,
            Value::Text(text) => Some(text.clone()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Int(i) => Some(i.to_string()),
            Value::Float(x) => Some(x.to_string()),
            Value::Substituted(word) => Some(word.written().unwrap_or(word.characters()).to_string()),
        }
    }

    /// Returns whether two scalars are equal; a substituted value that is still ambiguous equals
    /// either reading.
    fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Substituted(a), Value::Substituted(b)) => match (a.settled(), b.settled()) {
                (Some(a), Some(b)) => a == b,
                _ => a.characters() == b.characters() || a.plain() == b.plain(),
            },
            (Value::Substituted(word), value) | (value, Value::Substituted(word)) => match word.settled() {
                Some(settled) => settled == *value,
                None => word.plain() == *value || *value == Value::Text(word.characters().into()),
            },
            (a, b) => a == b,
        }
    }
}

impl Tree {
    /// Returns the text, if it is text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Substituted(word) => Some(word.text()),
            _ => None,
        }
    }

    /// Returns the number, if it is a whole number.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match &self.value {
            Value::Int(n) => Some(*n),
            Value::Substituted(word) => match word.value() {
                Value::Int(n) => Some(n),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the entries of a map; none for other values.
    pub(crate) fn entries(&self) -> &[(Key, Tree)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Removes and returns the value under a key of a map.
    pub(crate) fn take(&mut self, key: &str) -> Option<Tree> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(k, _)| k.name == key)?;
        Some(entries.remove(at).1)
    }

    /// Returns the key of a map that has its old name, unless the map has the new one too.
    pub(crate) fn deprecated(&self, old: &'static str, new: &'static str) -> Option<Deprecation> {
        let key = |name: &str| self.entries().iter().map(|(key, _)| key).find(|key| key.name == name);
        let found = key(old).filter(|_| key(new).is_none())?;
        Some(Deprecation { place: found.place.clone(), old, new })
    }

    /// Renames a deprecated key of the map.
    pub(crate) fn rename(&mut self, deprecation: &Deprecation) {
        let Value::Map(entries) = &mut self.value else { return };
        for (key, _) in entries.iter_mut().filter(|(key, _)| key.name == deprecation.old) {
            key.name = deprecation.new.into();
        }
    }

    /// Returns the value under a key of a map.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// A measure of size: one unit for each value, and one for every 64 bytes of text.
    pub(crate) fn size(&self) -> usize {
        match &self.value {
            Value::List(items) => items.iter().map(Tree::size).sum::<usize>() + 1,
            Value::Map(entries) => {
                entries.iter().map(|(key, value)| value.size() + key.name.len() / 64).sum::<usize>() + 1
            }
            Value::Text(text) => text.len() / 64 + 1,
            Value::Substituted(word) => word.characters().len() / 64 + 1,
            _ => 1,
        }
    }

    /// Returns whether two trees have equal content, ignoring places.
    pub(crate) fn has_same_content(&self, other: &Tree) -> bool {
        match (&self.value, &other.value) {
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.has_same_content(b))
            }
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k.name == l.name && a.has_same_content(b))
            }
            (a, b) => a.is_same(b),
        }
    }

    /// Returns the value under a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Returns whether a reported unknown key of the map was meant for this one, so that it is not
    /// missing.
    pub(crate) fn has_misspelt(&self, key: &str, reported: &[Problem]) -> bool {
        let suggested = suggest_one(key);
        let meant = reported.iter().filter(|problem| problem.help.as_ref() == Some(&suggested));
        let meant: Vec<&Place> = meant.map(|problem| &problem.place).collect();
        self.entries().iter().any(|(there, _)| meant.contains(&&there.place))
    }

    /// Returns the map without a key.
    pub(crate) fn without(&self, key: &str) -> Tree {
        let mut tree = self.clone();
        if let Value::Map(entries) = &mut tree.value {
            entries.retain(|(k, _)| k.name != key);
        }
        tree
    }

    /// Returns the place of the value at a path such as `batch.max` or `range[1]`, or of its
    /// nearest existing ancestor.
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

    /// Reads the tree as a type. Reports all unknown keys of its structs with suggestions, and up
    /// to [`MAX_WRONG_VALUES`] wrong values.
    pub(crate) fn read<T: DeserializeOwned>(&self, problems: &mut Problems) -> Option<T> {
        self.read_or(problems, |field| format!("add `{field}: ..`"))
    }

    /// Reads the config of a node. If the graph has none, the help for a missing field includes the
    /// missing `config` key.
    pub(crate) fn read_config<T: DeserializeOwned>(&self, problems: &mut Problems) -> Option<T> {
        match self.value {
            Value::Null => self.read_or(problems, |field| format!("write `config: {{ {field}: .. }}`")),
            _ => self.read(problems),
        }
    }

    fn read_or<T: DeserializeOwned>(&self, problems: &mut Problems, missing: fn(&str) -> String) -> Option<T> {
        let mut value = None;
        let is_right = self.read_all(problems, missing, &mut |reader| {
            value = Some(T::deserialize(reader)?);
            Ok(())
        });
        value.filter(|_| is_right)
    }

    /// Calls `read` until no wrong value is left to report. True if there was none.
    fn read_all(
        &self,
        problems: &mut Problems,
        missing: fn(&str) -> String,
        read: &mut dyn FnMut(TreeReader<'_>) -> Result<(), ReadError>,
    ) -> bool {
        let findings = Findings::default();
        let mut wrong = Vec::new();
        while let Err(ReadError(error)) = read(TreeReader::new(self, &findings)) {
            let goes_on = error.is_set_aside;
            if !error.is_known {
                let place = error.place.unwrap_or_else(|| self.place.clone());
                let mut problem = Problem::new("E0104", place, error.message);
                problem.help = error.help.or_else(|| error.missing.map(missing));
                wrong.push(problem);
            }
            if !goes_on || wrong.len() == MAX_WRONG_VALUES {
                wrong.extend(findings.unknown.into_inner());
                problems.0.extend(wrong);
                return false;
            }
        }
        wrong.extend(findings.unknown.into_inner());
        let is_right = wrong.is_empty();
        problems.0.extend(wrong);
        is_right
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
    fn a_wrong_value_is_reported_at_its_place() {
        for (text, expected) in [
            (
                "max: 3\nwithin: 10\n",
                "g.yaml:2:9: error[E0104]: expected a duration such as `10ms`, found the number 10\n    help: write the unit: `10ms`, `10us`, `10s`",
            ),
            (
                "max: 3\nwithin: 1.5 MS\n",
                "g.yaml:2:9: error[E0104]: expected a duration such as `10ms`, found `1.5 MS`\n    help: did you mean `1.5ms`?",
            ),
            (
                "max: 1.5",
                "g.yaml:1:6: error[E0104]: expected a whole number of at least 0, found the number 1.5\n    help: write a whole number, such as `8`",
            ),
            (
                "max: -1e3",
                "g.yaml:1:6: error[E0104]: expected a whole number of at least 0, found the number -1000\n    help: write a whole number, such as `8`",
            ),
            (
                "max: 1e10",
                "g.yaml:1:6: error[E0104]: expected a whole number from 0 to 4294967295, found the number 10000000000\n    help: write a whole number from 0 to 4294967295",
            ),
            (
                "max: three",
                "g.yaml:1:6: error[E0104]: expected a whole number of at least 0, found `three`\n    help: write a whole number, such as `8`",
            ),
            ("within: 1ms", "g.yaml:1:1: error[E0104]: `max` is missing\n    help: add `max: ..`"),
            (
                "max: 1\nmode: exakt",
                "g.yaml:2:7: error[E0104]: expected one of `fast`, `exact`, `within`, found `exakt`\n    help: did you mean `exact`?",
            ),
            (
                "max: 1\nmode: within",
                "g.yaml:2:7: error[E0104]: expected a value for `within`, found none\n    help: write `{ within: .. }`",
            ),
            (
                "max: 1\nmode: { fast: 2, exact: 1 }",
                "g.yaml:2:7: error[E0104]: expected one of `fast`, `exact`, `within`, found a map with 2 keys\n    help: write a value such as `fast`",
            ),
            (
                "max: 1\nmode: { fast: 2 }",
                "g.yaml:2:15: error[E0104]: expected `fast` without a value, found the number 2\n    help: write `fast`",
            ),
            (
                "max: 1\nmode: { within: 2 }",
                "g.yaml:2:17: error[E0104]: expected a list of length 2, found the number 2\n    help: write a list of length 2",
            ),
            (
                "max: 1\nmode: { within: [2] }",
                "g.yaml:2:17: error[E0104]: expected a list of length 2, found length 1\n    help: write a list of length 2",
            ),
            (
                "max: -1",
                "g.yaml:1:6: error[E0104]: expected a whole number of at least 0, found the number -1\n    help: write a whole number, such as `8`",
            ),
            (
                "max: 4294967296",
                "g.yaml:1:6: error[E0104]: expected a whole number from 0 to 4294967295, found the number 4294967296\n    help: write a whole number from 0 to 4294967295",
            ),
        ] {
            let (_, found) = read(text);
            assert_eq!(found, [expected], "{text}");
        }
    }

    #[test]
    fn a_whole_number_may_be_written_as_a_float() {
        for (text, expected) in [("1e3", 1000), ("2.0", 2), ("010", 10), ("0x10", 16), ("0o17", 15)] {
            let (read, found) = read(&format!("max: {text}"));
            assert!(found.is_empty(), "{text}: {found:?}");
            assert_eq!(read.unwrap().max, expected, "{text}");
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

    /// Each wrong value takes another pass, and a file may have a hundred thousand of them.
    #[test]
    fn the_number_of_reported_wrong_values_is_limited() {
        let wrong: String = (0..100_000).map(|n| format!("k{n}: x\n")).collect();
        let tree = Tree::parse(&wrong, "g.yaml").unwrap();
        let mut problems = Problems::default();
        assert!(tree.read::<std::collections::BTreeMap<String, u32>>(&mut problems).is_none());
        assert_eq!(problems.0.len(), MAX_WRONG_VALUES);
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
}
