//! Numbers from binary packets.

pub use crate::tensor::packet::{Endian, Field};
use crate::tensor::packet::{Layout, Vector, copy_parts, layout};
use crate::tensor::shape;
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform,
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

impl Config {
    fn layout(&self) -> Layout<'_> {
        Layout { fields: &self.fields, endian: self.endian, size: self.size }
    }
}

/// The layout of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Numbers at fixed offsets.
    Struct,
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
        let (vectors, least) = layout(config.layout(), None, &mut PlanErrors::default());
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
        let (vectors, _) = layout(config.layout(), most, &mut errors);
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
        let (vectors, least) = layout(config.layout(), Some(message.len()), &mut errors);
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
                &["`b` is u16, but `a` is f32"],
            ),
            (
                r#"{"name": "a/b", "type": "u8", "to": ""}"#.into(),
                "",
                None,
                &["`a/b` is not a valid name", "`` is not a valid name"],
            ),
            (many.join(", "), "", None, &["17 ports, a node has at most 16"]),
        ];
        for (fields, keys, most, expected) in cases {
            let mut errors = PlanErrors::default();
            layout(config(&fields, keys).layout(), most, &mut errors);
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
