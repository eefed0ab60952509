//! Numbers from binary packets.

use crate::tensor::shape;
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, MAX_PORTS, Many, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports,
    Transform,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write as _;

/// How many bytes of the first malformed message are shown.
const SHOWN: usize = 32;

/// Reads numbers from binary packets `u8[≤n]`: each field is an output with its name, `type[]`, or `type[repeat]`.
///
/// With `format: struct` fields are at fixed offsets, as in a C struct or in Python's `struct.pack`. Fields with the same `to`
/// form one output of that name, `type[k]`, in their order. Bytes outside all fields are ignored. A message that is too short
/// for its fields, or whose length is not `size`, is dropped and counted (`malformed`); the report shows the first one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The layout of a message.
    pub format: Format,
    /// The fields, in the order of the outputs. Each has a `name` and a `type` (`f32`, `u16`). Optional: `offset` in bytes from
    /// the start of the message, by default the end of the previous field; `repeat`, the number of values in a row; `endian`, by
    /// default that of the config; `to`, the name of the output, by default that of the field.
    pub fields: Vec<Field>,
    /// Byte order of fields without their own `endian`; `little` by default.
    #[serde(default)]
    pub endian: Endian,
    /// Exact length of every message in bytes. By default a message may be longer than its fields.
    pub size: Option<usize>,
}

/// The layout of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Numbers at fixed offsets.
    Struct,
}

/// The byte order of a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first (network byte order).
    Big,
}

/// A number in a message, or several in a row.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Field {
    /// The name of the field, and of its output unless `to` is set.
    pub name: String,
    /// The element type, such as `f32` or `u16`.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The offset in bytes from the start of the message; by default the end of the previous field.
    pub offset: Option<usize>,
    /// The number of values in a row; the output is then a vector.
    pub repeat: Option<usize>,
    /// The byte order; by default `endian` of the config.
    pub endian: Option<Endian>,
    /// The name of the output, which several fields of one type may share; by default the name of the field.
    pub to: Option<String>,
}

/// An output and the parts of a message that form it.
#[derive(Debug, Clone, PartialEq)]
struct Vector {
    name: String,
    dtype: DType,
    /// `None` for a scalar.
    length: Option<usize>,
    parts: Vec<Part>,
}

/// A range of bytes that is contiguous both in a message and in an output.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    offset: usize,
    bytes: usize,
    is_reversed: bool,
}

/// Returns whether an output may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Returns the outputs of a config and how many bytes its fields need, and reports all its errors. `most` is the length of the
/// longest message.
fn layout(config: &Config, most: Option<usize>, errors: &mut PlanErrors) -> (Vec<Vector>, usize) {
    let (mut vectors, mut end, mut least) = (Vec::<Vector>::new(), 0usize, 0);
    if config.fields.is_empty() {
        errors.at("fields", "there is no field").help("write `fields: [{ name: ax, type: f32 }]`");
    }
    if let Some(size) = config.size
        && (size == 0 || most.is_some_and(|most| size > most))
    {
        let message = match most {
            Some(most) if size > 0 => format!("{size} bytes, but arriving messages have at most {most}"),
            _ => "0 bytes leave no room for a field".into(),
        };
        errors
            .at("size", message)
            .help("write the length of a message, and a `max_bytes` of at least that at its source");
    }
    let (most, of) = match (config.size, most) {
        (Some(size), _) => (size, "`size`"),
        (None, most) => (most.unwrap_or(usize::MAX), "an arriving message"),
    };
    for (i, field) in config.fields.iter().enumerate() {
        let (name, to) = (&field.name, field.to.as_ref().unwrap_or(&field.name));
        for (key, name) in [("name", Some(name)), ("to", field.to.as_ref())] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                let message = format!("`{name}` is not a valid name of an output");
                errors.at(format!("fields[{i}].{key}"), message).help("write letters, digits, `_` and `-`");
            }
        }
        if config.fields[..i].iter().any(|other| other.name == *name) {
            let message = format!("`{name}` is a field already");
            let help = "write another name; fields share an output through `to`";
            errors.at(format!("fields[{i}].name"), message).help(help);
        }
        let (offset, count) = (field.offset.unwrap_or(end), field.repeat.unwrap_or(1));
        if count == 0 {
            errors.at(format!("fields[{i}].repeat"), "0 is not possible").help("write 1 or more, or leave it out");
        }
        let bytes = count.saturating_mul(field.dtype.size());
        end = offset.saturating_add(bytes);
        least = least.max(end);
        if end > most {
            let key = [("offset", field.offset), ("repeat", field.repeat)];
            let key = key.iter().find(|(_, value)| value.is_some()).map_or("name", |(key, _)| key);
            let message = format!("`{name}` ends at byte {end}, but {of} has {most}");
            let help =
                "write a lower `offset` or `repeat`, or allow longer messages: `size`, and `max_bytes` at the source";
            errors.at(format!("fields[{i}].{key}"), message).help(help);
        }
        let is_reversed = field.endian.unwrap_or(config.endian) == Endian::Big && field.dtype.size() > 1;
        let part = Part { offset, bytes, is_reversed: is_reversed != cfg!(target_endian = "big") };
        match vectors.iter_mut().find(|vector| vector.name == *to) {
            None => {
                let (name, dtype, length) = (to.clone(), field.dtype, field.repeat);
                vectors.push(Vector { name, dtype, length, parts: vec![part] });
            }
            Some(vector) if vector.dtype != field.dtype => {
                let message = format!("`{name}` is {}, but the output `{to}` is {}", field.dtype, vector.dtype);
                errors.at(format!("fields[{i}].type"), message).help("an output has one type; write another `to`");
            }
            Some(vector) => {
                vector.length = Some(vector.length.unwrap_or(1).saturating_add(count));
                vector.parts.push(part);
            }
        }
    }
    if vectors.len() > MAX_PORTS {
        let message = format!("{} outputs, a node has at most {MAX_PORTS}", vectors.len());
        errors
            .at("fields", message)
            .help("remove fields that are not used, or let fields of one type share an output through `to`");
    }
    (vectors, least)
}

/// The node.
#[derive(Debug)]
pub struct Decode {
    vectors: Vec<Vector>,
    least: usize,
    size: Option<usize>,
    malformed: u64,
    /// The beginning of the first malformed message, and its length.
    first: Vec<u8>,
    length: usize,
}

impl Decode {
    fn new(config: &Config) -> Self {
        // Errors of the config were reported while planning.
        let (vectors, least) = layout(config, None, &mut PlanErrors::default());
        let first = Vec::with_capacity(SHOWN);
        Decode { vectors, least, size: config.size, malformed: 0, first, length: 0 }
    }

    /// Returns whether a message has all fields, and counts it if it has not.
    fn accept(&mut self, message: &[u8]) -> bool {
        if message.len() >= self.least && self.size.is_none_or(|size| size == message.len()) {
            return true;
        }
        if self.malformed == 0 {
            self.first.extend_from_slice(&message[..message.len().min(SHOWN)]);
            self.length = message.len();
        }
        self.malformed += 1;
        false
    }

    /// Returns the note of the report about malformed messages, if there were any.
    fn malformed_note(&self) -> Option<String> {
        let expected = match self.size {
            Some(size) => format!("{size}"),
            None => format!("at least {}", self.least),
        };
        let Decode { malformed, first, length, .. } = self;
        let mut text = format!("{malformed} malformed; the first had {length} bytes, expected {expected}");
        for (i, byte) in first.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{} {byte:02x}", if i == 0 { ":" } else { "" });
        }
        if *length > first.len() {
            text += " ...";
        }
        (*malformed > 0).then_some(text)
    }
}

/// Copies the parts of a message one after the other, and converts numbers to native byte order.
fn copy_parts(parts: &[Part], width: usize, message: &[u8], mut into: &mut [u8]) {
    for part in parts {
        let (numbers, rest) = into.split_at_mut(part.bytes);
        numbers.copy_from_slice(&message[part.offset..part.offset + part.bytes]);
        if part.is_reversed {
            numbers.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        into = rest;
    }
}

impl Node for Decode {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = given.single();
        let is_packet = |spec: &&PortSpec| spec.dtype == DType::U8 && spec.shape.len() == 1;
        if let Some(spec) = spec.filter(|spec| !is_packet(spec)) {
            let help = "connect messages of `udp`, `tcp`, `serial` or `file`";
            errors.input("in", format!("{spec} is not a packet, expected u8[≤n]")).help(help);
        }
        let most = spec.filter(is_packet).and_then(PortSpec::max_bytes);
        let (vectors, _) = layout(config, most, &mut errors);
        let ports = vectors.into_iter().fold(shape::takes(spec.cloned()), |ports, vector| {
            let spec = Some(PortSpec::fixed(vector.dtype, vector.length));
            ports.out_port(OutPort { name: vector.name, spec, emits: 1, rows: 1, forwards: Vec::new() })
        });
        errors.into_result(ports.selective())
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Decode::new(&config))
    }

    fn metrics(&self, to: &mut Metrics) {
        to.lost("malformed", self.malformed);
        if let Some(note) = self.malformed_note() {
            to.note(note);
        }
    }
}

impl Transform for Decode {
    type In = Tensor;
    type Out = Many<Tensor>;

    fn apply(&mut self, message: Message<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        if !self.accept(message.body.bytes()) {
            return Ok(());
        }
        for (port, vector) in out.iter_mut().zip(&self.vectors).filter(|(port, _)| port.is_connected()) {
            let mut tensor = port.loan(message.header())?;
            copy_parts(&vector.parts, vector.dtype.size(), message.body.bytes(), tensor.bytes_mut());
            port.send(tensor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(fields: &str, keys: &str) -> Config {
        let text = format!("{{\"format\": \"struct\", \"fields\": [{fields}] {keys}}}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns the outputs for a message: name, type and shape, bytes in little-endian order.
    fn read(fields: &str, keys: &str, message: &[u8]) -> Vec<(String, String, Vec<u8>)> {
        let config = config(fields, keys);
        let mut errors = PlanErrors::default();
        let (vectors, least) = layout(&config, Some(message.len()), &mut errors);
        assert_eq!(errors.messages().count(), 0, "{fields}: {:?}", errors.messages().collect::<Vec<_>>());
        assert!(least <= message.len() && Decode::new(&config).accept(message));
        let out = |vector: &Vector| {
            let width = vector.dtype.size();
            let mut bytes = vec![0; width * vector.length.unwrap_or(1)];
            copy_parts(&vector.parts, width, message, &mut bytes);
            if cfg!(target_endian = "big") {
                bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            let spec = PortSpec::fixed(vector.dtype, vector.length).to_string();
            (vector.name.clone(), spec, bytes)
        };
        vectors.iter().map(out).collect()
    }

    #[test]
    fn fields_are_read_at_their_offset_with_their_type_and_byte_order() {
        let bytes: Vec<u8> = (0..16).collect();
        let (a, b) = (r#"{"name": "a", "type": "u16"}"#, r#"{"name": "b", "type": "u32"}"#);
        type Expected<'a> = &'a [(&'a str, &'a str, &'a [u8])];
        let cases: [(String, &str, Expected<'_>); 9] = [
            (format!("{a}, {b}"), "", &[("a", "u16[]", &[0, 1]), ("b", "u32[]", &[2, 3, 4, 5])]),
            (format!("{a}, {b}"), r#", "endian": "big""#, &[("a", "u16[]", &[1, 0]), ("b", "u32[]", &[5, 4, 3, 2])]),
            (r#"{"name": "a", "type": "u16", "endian": "big"}"#.into(), r#", "size": 16"#, &[("a", "u16[]", &[1, 0])]),
            (
                r#"{"name": "t", "type": "f64", "offset": 8}"#.into(),
                "",
                &[("t", "f64[]", &[8, 9, 10, 11, 12, 13, 14, 15])],
            ),
            (
                format!(r#"{{"name": "x", "type": "i8", "offset": 9}}, {a}"#),
                "",
                &[("x", "i8[]", &[9]), ("a", "u16[]", &[10, 11])],
            ),
            // Fields may overlap.
            (
                format!(r#"{a}, {{"name": "low", "type": "u8", "offset": 0}}"#),
                "",
                &[("a", "u16[]", &[0, 1]), ("low", "u8[]", &[0])],
            ),
            (
                r#"{"name": "v", "type": "i16", "repeat": 3, "endian": "big"}"#.into(),
                "",
                &[("v", "i16[3]", &[1, 0, 3, 2, 5, 4])],
            ),
            (r#"{"name": "v", "type": "u8", "repeat": 1}"#.into(), "", &[("v", "u8[1]", &[0])]),
            // One output from several fields, in the order of the fields instead of their offsets.
            (
                format!(
                    r#"{{"name": "x", "type": "u16", "offset": 4, "to": "v"}}, {b}, {{"name": "y", "type": "u16", "offset": 0, "repeat": 2, "to": "v"}}"#
                ),
                "",
                &[("v", "u16[3]", &[4, 5, 0, 1, 2, 3]), ("b", "u32[]", &[6, 7, 8, 9])],
            ),
        ];
        for (fields, keys, expected) in cases {
            let found = read(&fields, keys, &bytes);
            let found: Vec<_> = found.iter().map(|(name, spec, bytes)| (&**name, &**spec, &**bytes)).collect();
            assert_eq!(found, expected, "{fields}");
        }
    }

    #[test]
    fn all_errors_of_a_config_are_reported_at_once() {
        let field = |keys: &str| format!(r#"{{"name": "a", "type": "f32"{keys}}}"#);
        let many: Vec<String> = (0..17).map(|n| format!(r#"{{"name": "n{n}", "type": "u8"}}"#)).collect();
        let cases: [(String, &str, Option<usize>, &[&str]); 11] = [
            (String::new(), "", None, &["there is no field"]),
            (field(""), r#", "size": 0"#, None, &["0 bytes leave no room", "ends at byte 4, but `size` has 0"]),
            (field(""), r#", "size": 40"#, Some(32), &["40 bytes, but arriving messages have at most 32"]),
            (field(""), "", Some(3), &["`a` ends at byte 4, but an arriving message has 3"]),
            (field(r#", "offset": 8"#), r#", "size": 11"#, Some(64), &["`a` ends at byte 12, but `size` has 11"]),
            (field(r#", "repeat": 18446744073709551615"#), "", Some(64), &["an arriving message has 64"]),
            (field(r#", "repeat": 0"#), "", None, &["0 is not possible"]),
            (format!("{}, {}", field(""), field("")), "", None, &["`a` is a field already"]),
            (
                format!(r#"{}, {{"name": "b", "type": "u16", "to": "a"}}"#, field("")),
                "",
                None,
                &["`b` is u16, but the output `a` is f32"],
            ),
            (
                r#"{"name": "a/b", "type": "u8", "to": ""}"#.into(),
                "",
                None,
                &["`a/b` is not a valid name", "`` is not a valid name"],
            ),
            (many.join(", "), "", None, &["17 outputs, a node has at most 16"]),
        ];
        for (fields, keys, most, expected) in cases {
            let mut errors = PlanErrors::default();
            layout(&config(&fields, keys), most, &mut errors);
            let found: Vec<&str> = errors.messages().collect();
            assert_eq!(found.len(), expected.len(), "{fields}: {found:?}");
            assert!(found.iter().zip(expected).all(|(found, text)| found.contains(text)), "{fields}: {found:?}");
        }
    }

    #[test]
    fn malformed_messages_are_counted_and_the_first_is_shown() {
        let field = r#"{"name": "a", "type": "u32"}"#;
        let long = [7u8; 40];
        for (keys, messages, malformed, says) in [
            ("", [&b"1234"[..], b"12345"], 0, None),
            ("", [b"12", b"123"], 2, Some("2 malformed; the first had 2 bytes, expected at least 4: 31 32")),
            (
                r#", "size": 4"#,
                [b"1234", b"\n2345"],
                1,
                Some("1 malformed; the first had 5 bytes, expected 4: 0a 32 33 34 35"),
            ),
            (r#", "size": 4"#, [b"", b"1234"], 1, Some("1 malformed; the first had 0 bytes, expected 4")),
            (r#", "size": 4"#, [&long, b"1234"], 1, Some("07 07 07 ...")),
        ] {
            let mut node = Decode::new(&config(field, keys));
            for message in messages {
                node.accept(message);
            }
            let note = node.malformed_note();
            assert_eq!((node.malformed, note.is_some()), (malformed, says.is_some()));
            assert!(note.as_deref().unwrap_or_default().ends_with(says.unwrap_or_default()), "{note:?}");
            assert!(node.first.len() <= SHOWN);
        }
    }
}
