//! A tree as a serde deserializer: typed values, every unknown key, and the place of every wrong
//! value.

use super::{Key, Tree, Value};
use crate::base::error::{Place, Problem, expected_one_of, listed, not_one_of, suggest, suggest_one};
use serde::de::{self, IntoDeserializer};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

/// The reason that a tree cannot be read as a type. One word wide: every field of every config
/// returns one.
#[derive(Debug)]
pub(super) struct ReadError(pub(super) Box<WrongValue>);

/// A value that is not what was expected there.
#[derive(Debug, Default)]
pub(super) struct WrongValue {
    pub(super) place: Option<Place>,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// The missing field, if that is the error.
    pub(super) missing: Option<&'static str>,
    /// A consequence of another error that was reported.
    pub(super) is_known: bool,
    /// The wrong value was set aside: the next pass continues after it.
    pub(super) is_set_aside: bool,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ReadError {}

impl From<WrongValue> for ReadError {
    fn from(wrong: WrongValue) -> Self {
        ReadError(Box::new(wrong))
    }
}

impl ReadError {
    /// Sets the place, if the error has none.
    #[cold]
    fn at(mut self, place: &Place) -> Self {
        self.0.place.get_or_insert_with(|| place.clone());
        self
    }
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        WrongValue { message: message.to_string(), ..WrongValue::default() }.into()
    }
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let number = match found {
            de::Unexpected::Signed(n) => Some(n.to_string()),
            de::Unexpected::Unsigned(n) => Some(n.to_string()),
            de::Unexpected::Float(n) => Some(n.to_string()),
            _ => None,
        };
        let text = if let de::Unexpected::Str(text) = found { Some(text) } else { None };
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
        let expected = expected_in_words(expected);
        let expected = match expected.as_str() {
            "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of at least 0",
            "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
            "f32" | "f64" => "a number",
            "a string" => "text",
            "a boolean" => "`true` or `false`",
            other => other,
        };
        // The right unit cannot be guessed, so several are suggested. `all` are the units that
        // differ in more than the case.
        let (units, all) = match expected.split(" such").next() {
            Some("a duration") => (&["ms", "us", "s"][..], &["ns", "us", "ms", "s", "min", "h", "d"][..]),
            Some("a rate") => (&["Hz"][..], &["Hz", "kHz", "MHz"][..]),
            Some("a size") => {
                (&["B", "KiB", "MiB"][..], &["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"][..])
            }
            _ => (&[][..], &[][..]),
        };
        let help = match number {
            None if let Some(near) = text.and_then(|text| in_other_case(text, all)) => suggest_one(&near),
            Some(number) if !units.is_empty() => {
                let all: Vec<String> = units.iter().map(|unit| format!("`{number}{unit}`")).collect();
                format!("write the unit: {}", all.join(", "))
            }
            _ if expected == "a list" => "write a list: `[..]`".into(),
            _ if expected.starts_with("a whole number") => "write a whole number, such as `8`".into(),
            _ if expected == "a number" => "write a number, such as `0.5`".into(),
            _ => format!("write {expected}"),
        };
        WrongValue { message: format!("expected {expected}, found {found}"), help: Some(help), ..WrongValue::default() }
            .into()
    }
    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let number = match found {
            de::Unexpected::Signed(n) => i128::from(n),
            de::Unexpected::Unsigned(n) => i128::from(n),
            _ => return Self::invalid_type(found, expected),
        };
        let (least, most): (i128, i128) = match expected.to_string().as_str() {
            "u8" => (0, u8::MAX.into()),
            "u16" => (0, u16::MAX.into()),
            "u32" => (0, u32::MAX.into()),
            "u64" | "usize" => (0, u64::MAX.into()),
            "i8" => (i8::MIN.into(), i8::MAX.into()),
            "i16" => (i16::MIN.into(), i16::MAX.into()),
            "i32" => (i32::MIN.into(), i32::MAX.into()),
            "i64" | "isize" => (i64::MIN.into(), i64::MAX.into()),
            _ => return Self::invalid_type(found, expected),
        };
        // The usual slip: not worth naming the largest number.
        if number < least && least == 0 {
            return Self::invalid_type(found, expected);
        }
        let message = format!("expected a whole number from {least} to {most}, found the number {number}");
        let help = Some(format!("write a whole number from {least} to {most}"));
        WrongValue { message, help, ..WrongValue::default() }.into()
    }
    fn invalid_length(found: usize, expected: &dyn de::Expected) -> Self {
        let expected = expected_in_words(expected);
        let help = Some(format!("write {expected}"));
        WrongValue { message: format!("expected {expected}, found length {found}"), help, ..WrongValue::default() }
            .into()
    }
    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let (message, help) = not_one_of(found, expected);
        WrongValue { message, help: Some(help), ..WrongValue::default() }.into()
    }
    fn missing_field(field: &'static str) -> Self {
        WrongValue { message: format!("`{field}` is missing"), missing: Some(field), ..WrongValue::default() }.into()
    }
}

/// Returns a quantity with the letters of its unit in their right case.
fn in_other_case(text: &str, units: &[&str]) -> Option<String> {
    let at = text.find(|c: char| c.is_alphabetic())?;
    let (number, written) = text.split_at(at);
    let unit = units.iter().find(|unit| unit.eq_ignore_ascii_case(written.trim()))?;
    number.trim().parse::<f64>().is_ok().then(|| format!("{}{unit}", number.trim()))
}

/// Describes what serde expects, with arrays and tuples called lists.
fn expected_in_words(expected: &dyn de::Expected) -> String {
    let text = expected.to_string();
    let list = ["an array of length ", "a tuple of size "].iter().find_map(|words| text.strip_prefix(words));
    match list {
        Some(length) => format!("a list of length {length}"),
        None if text == "a sequence" => "a list".into(),
        None => text,
    }
}

/// What was found over all passes: serde stops at the first wrong value, which is set aside before
/// the next pass.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Unknown keys.
    pub(super) unknown: RefCell<Vec<Problem>>,
    /// Maps whose unknown keys were reported.
    looked_at: RefCell<HashSet<*const Tree>>,
    /// Wrong values that were reported.
    aside: RefCell<HashSet<*const Tree>>,
}

impl Findings {
    fn is_aside(&self, tree: &Tree) -> bool {
        self.aside.borrow().contains(&std::ptr::from_ref(tree))
    }

    /// Returns whether a value inside it was set aside.
    fn is_reduced(&self, tree: &Tree) -> bool {
        !self.aside.borrow().is_empty()
            && match &tree.value {
                Value::List(items) => items.iter().any(|item| self.is_reduced(item)),
                Value::Map(entries) => entries.iter().any(|(_, value)| self.is_aside(value) || self.is_reduced(value)),
                _ => false,
            }
    }
}

/// A serde deserializer over a [`Tree`] that adds places to errors.
#[derive(Clone, Copy)]
pub(super) struct TreeReader<'a> {
    tree: &'a Tree,
    findings: &'a Findings,
}

impl<'a> TreeReader<'a> {
    pub(super) fn new(tree: &'a Tree, findings: &'a Findings) -> Self {
        TreeReader { tree, findings }
    }

    fn at(self, tree: &'a Tree) -> Self {
        TreeReader { tree, ..self }
    }

    /// Gives an error without a place the place of this value.
    fn placed<T>(self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|error| self.place(error))
    }

    #[cold]
    fn place(self, mut error: ReadError) -> ReadError {
        if error.0.place.is_none() {
            error.0.is_known = match error.0.missing {
                Some(field) => {
                    self.tree.get(field).is_some() || self.tree.has_misspelt(field, &self.findings.unknown.borrow())
                }
                None => self.findings.is_reduced(self.tree),
            };
        }
        error.at(&self.tree.place)
    }

    /// Sets the wrong value aside, unless a value inside it was.
    #[cold]
    fn set_aside(self, error: ReadError) -> ReadError {
        let mut error = self.place(error);
        if !std::mem::replace(&mut error.0.is_set_aside, true) {
            self.findings.aside.borrow_mut().insert(self.tree);
        }
        error
    }

    /// The entries of a struct with these fields. Reports its unknown keys.
    fn entries(self, fields: &'static [&'static str]) -> Result<Entries<'a>, ReadError> {
        let entries: &[(Key, Tree)] = match &self.tree.value {
            Value::Map(entries) => entries,
            // A missing config is an empty one.
            Value::Null => &[],
            other => {
                // A scalar was most often meant for the first key.
                let value = other.scalar().unwrap_or_else(|| "..".into());
                let help = fields.first().map_or("remove the value".into(), |first| {
                    format!("write `{{ {first}: {value} }}` (keys: {})", listed(fields))
                });
                let (message, help) = (format!("expected a map, found {}", other.describe()), Some(help));
                return Err(WrongValue { message, help, ..WrongValue::default() }.into());
            }
        };
        // All unknown keys now: reading ends at the first wrong value.
        let is_new = !entries.is_empty() && self.findings.looked_at.borrow_mut().insert(self.tree);
        for (key, _) in entries.iter().filter(|(key, _)| is_new && !fields.contains(&key.name.as_str())) {
            let problem = Problem::new("E0103", key.place.clone(), format!("unknown key `{}`", key.name))
                .help(suggest(&key.name, fields.iter().copied()));
            self.findings.unknown.borrow_mut().push(problem);
        }
        Ok(Entries { reader: self, fields: Some(fields), entries: entries.iter(), value: None })
    }

    /// This value as a variant of an enum.
    fn variant(self, variants: &'static [&'static str]) -> Result<Variant<'a>, ReadError> {
        let tree = self.tree;
        match &tree.value {
            Value::Text(name) => Ok(Variant { reader: self, name, place: &tree.place, value: None }),
            Value::Substituted(word) => {
                Ok(Variant { reader: self, name: word.text(), place: &tree.place, value: None })
            }
            Value::Map(entries) if entries.len() == 1 => {
                let (Key { name, place, .. }, value) = &entries[0];
                Ok(Variant { reader: self, name, place, value: Some(value) })
            }
            other => {
                let found = match other {
                    Value::Map(entries) => format!("a map with {} keys", entries.len()),
                    _ => other.describe(),
                };
                let (message, help) = expected_one_of(variants, &found);
                Err(WrongValue { message, help: Some(help), ..WrongValue::default() }.into())
            }
        }
    }

    fn not_text(self) -> ReadError {
        let wrong = WrongValue {
            place: Some(self.tree.place.clone()),
            message: format!("expected text, found {}", self.tree.value.describe()),
            help: Some(
                self.tree
                    .value
                    .scalar()
                    .map_or("write text, such as `\"camera\"`".into(), |value| format!("write `\"{value}\"`")),
            ),
            ..WrongValue::default()
        };
        wrong.into()
    }
}

fn visit_int<'de, V: de::Visitor<'de>>(i: i128, visitor: V) -> Result<V::Value, ReadError> {
    match (u64::try_from(i), i64::try_from(i)) {
        (Ok(n), _) => visitor.visit_u64(n),
        (_, Ok(n)) => visitor.visit_i64(n),
        _ => visitor.visit_i128(i),
    }
}

/// Whole numbers, which may be written as `1e3` or `010`: YAML reads these as floats.
macro_rules! whole_numbers {
    ($($of:ident),*) => {
        $(fn $of<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            let number = match &self.tree.value {
                Value::Float(number) => Some(*number),
                Value::Substituted(word) => match word.value() {
                    Value::Float(number) => Some(number),
                    _ => None,
                },
                _ => None,
            };
            // Larger ones may have lost digits.
            match number.filter(|number| number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0) {
                Some(number) => self.placed(visit_int(number as i128, visitor)),
                None => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for TreeReader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let scalar;
        let value = match &self.tree.value {
            Value::Substituted(word) => {
                scalar = word.value();
                &scalar
            }
            other => other,
        };
        let result = match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i) => visit_int(*i, visitor),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Text(t) => visitor.visit_str(t),
            Value::List(items) => visitor.visit_seq(Items { reader: self, items: items.iter() }),
            Value::Map(entries) => {
                visitor.visit_map(Entries { reader: self, fields: None, entries: entries.iter(), value: None })
            }
            Value::Substituted(_) => unreachable!("a substituted value is a scalar"),
        };
        self.placed(result)
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.tree.value {
            Value::Null => visitor.visit_none(),
            Value::Substituted(word) => match word.null() {
                Some(()) => visitor.visit_none(),
                None => visitor.visit_some(self),
            },
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.placed(self.entries(fields).and_then(|entries| visitor.visit_map(entries)))
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.placed(self.variant(variants).and_then(|variant| visitor.visit_enum(variant)))
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
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => Err(self.not_text()),
            Value::Substituted(word) => self.placed(visitor.visit_str(word.text())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.tree.value {
            Value::Substituted(word) => self.placed(visitor.visit_str(word.text())),
            _ => self.deserialize_any(visitor),
        }
    }

    whole_numbers!(
        deserialize_i8,
        deserialize_i16,
        deserialize_i32,
        deserialize_i64,
        deserialize_i128,
        deserialize_u8,
        deserialize_u16,
        deserialize_u32,
        deserialize_u64,
        deserialize_u128
    );

    serde::forward_to_deserialize_any! {
        bool f32 f64 char
        bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    reader: TreeReader<'a>,
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
    reader: TreeReader<'a>,
    fields: Option<&'static [&'static str]>,
    entries: std::slice::Iter<'a, (Key, Tree)>,
    value: Option<&'a Tree>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        for (key, value) in self.entries.by_ref() {
            let is_unknown = self.fields.is_some_and(|fields| !fields.contains(&key.name.as_str()));
            if is_unknown || self.reader.findings.is_aside(value) {
                continue;
            }
            self.value = Some(value);
            let read = seed.deserialize(key.name.as_str().into_deserializer());
            return read.map(Some).map_err(|e: ReadError| e.at(&key.place));
        }
        Ok(None)
    }

    fn next_value_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take().expect("serde asks for a key before its value");
        let reader = self.reader.at(value);
        seed.deserialize(reader).map_err(|error| reader.set_aside(error))
    }
}

/// A variant: a name alone, or the only key of a map.
struct Variant<'a> {
    reader: TreeReader<'a>,
    name: &'a str,
    place: &'a Place,
    value: Option<&'a Tree>,
}

impl<'a> Variant<'a> {
    /// Reads the value of the variant.
    fn value(self) -> Result<TreeReader<'a>, ReadError> {
        let missing = || WrongValue {
            place: Some(self.place.clone()),
            message: format!("expected a value for `{}`, found none", self.name),
            help: Some(format!("write `{{ {}: .. }}`", self.name)),
            ..WrongValue::default()
        };
        self.value.map(|value| self.reader.at(value)).ok_or_else(|| missing().into())
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = ReadError;
    type Variant = Self;
    fn variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let name = seed.deserialize(self.name.into_deserializer()).map_err(|e: ReadError| e.at(self.place))?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = ReadError;
    fn unit_variant(self) -> Result<(), ReadError> {
        match self.value {
            None | Some(Tree { value: Value::Null, .. }) => Ok(()),
            Some(value) => {
                let wrong = WrongValue {
                    place: Some(value.place.clone()),
                    message: format!("expected `{}` without a value, found {}", self.name, value.value.describe()),
                    help: Some(format!("write `{}`", self.name)),
                    ..WrongValue::default()
                };
                Err(wrong.into())
            }
        }
    }
    fn newtype_variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value()?;
        value.placed(seed.deserialize(value))
    }
    fn tuple_variant<V: de::Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self.value()?, visitor)
    }
    fn struct_variant<V: de::Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_struct(self.value()?, "", fields, visitor)
    }
}
