//! Numbers out of packets.

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

/// Bytes of the first malformed message that are kept to be shown.
const SHOWN: usize = 32;

/// Reads the numbers in packets: each field of `u8[≤n]` is an output of its name, `type[]`, or `type[repeat]`.
///
/// `format: struct` is fields at fixed places, as a C struct or Python's `struct.pack` writes them. Fields with the same `to` are one
/// output of that name, `type[k]`, in their order. Bytes that no field names are passed over. A message that is shorter than its
/// fields, or with `size` of another length, goes no further and is counted (`malformed`); a note of the report shows the first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// How a message is laid out.
    pub format: Format,
    /// What is read, in the order of the outputs: `name` and `type` (`f32`, `u16`) of each; `offset` in bytes from the message's
    /// first, behind the field before by default; `repeat` for so many in a row; its own `endian`; `to`, the output, by
    /// default the field's own.
    pub fields: Vec<Field>,
    /// Which byte of a number comes first, where its field does not say; `little` by default.
    #[serde(default)]
    pub endian: Endian,
    /// Bytes of every message. Without it a message may be longer than its fields.
    pub size: Option<usize>,
}

/// How a message is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Numbers at fixed places.
    Struct,
}

/// Which byte of a number comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// The least significant.
    #[default]
    Little,
    /// The most significant, as networks have it.
    Big,
}

/// A number of a message, or several in a row.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Field {
    /// Its name, and that of its output.
    pub name: String,
    /// What it is: `f32`, `u16`.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Where it begins, in bytes from the message's first; behind the field before by default.
    pub offset: Option<usize>,
    /// So many numbers of this type in a row; the output is then a vector.
    pub repeat: Option<usize>,
    /// Which byte comes first; as `endian` of the whole by default.
    pub endian: Option<Endian>,
    /// The output, which several fields of one type may share; the field's own by default.
    pub to: Option<String>,
}

/// An output as it is put together.
#[derive(Debug, Clone, PartialEq)]
struct Vector {
    name: String,
    dtype: DType,
    /// Without it a scalar.
    length: Option<usize>,
    parts: Vec<Part>,
}

/// Bytes of a message that stand behind one another in an output too.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    offset: usize,
    bytes: usize,
    is_reversed: bool,
}

/// Whether an output may be called so.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// The outputs of a config and how many bytes its fields need; everything that is wrong with it. `most` is how long a message can
/// be.
fn layout(config: &Config, most: Option<usize>, errors: &mut PlanErrors) -> (Vec<Vector>, usize) {
    let (mut vectors, mut end, mut least) = (Vec::<Vector>::new(), 0usize, 0);
    if config.fields.is_empty() {
        errors.at("fields", "nothing is read").help("write `fields: [{ name: ax, type: f32 }]`");
    }
    if let Some(size) = config.size
        && (size == 0 || most.is_some_and(|most| size > most))
    {
        let message = match most {
            Some(most) if size > 0 => format!("messages of {size} bytes, where what arrives has at most {most}"),
            _ => "messages of 0 bytes hold nothing".into(),
        };
        errors.at("size", message).help("write the bytes of one message, and at its source a `max_bytes` as large");
    }
    let (most, of) = match (config.size, most) {
        (Some(size), _) => (size, "`size`"),
        (None, most) => (most.unwrap_or(usize::MAX), "what arrives"),
    };
    for (i, field) in config.fields.iter().enumerate() {
        let (name, to) = (&field.name, field.to.as_ref().unwrap_or(&field.name));
        for (key, name) in [("name", Some(name)), ("to", field.to.as_ref())] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                let message = format!("`{name}` cannot be an output's name");
                errors.at(format!("fields[{i}].{key}"), message).help("write letters, digits, `_` and `-`");
            }
        }
        if config.fields[..i].iter().any(|other| other.name == *name) {
            let message = format!("`{name}` is a field already");
            errors.at(format!("fields[{i}].name"), message).help("name it otherwise; `to` says which output it shares");
        }
        let (offset, count) = (field.offset.unwrap_or(end), field.repeat.unwrap_or(1));
        if count == 0 {
            errors.at(format!("fields[{i}].repeat"), "0 numbers are none").help("write 1 or more, or leave it out");
        }
        let bytes = count.saturating_mul(field.dtype.size());
        end = offset.saturating_add(bytes);
        least = least.max(end);
        if end > most {
            let key = [("offset", field.offset), ("repeat", field.repeat)];
            let key = key.iter().find(|(_, value)| value.is_some()).map_or("name", |(key, _)| key);
            let message = format!("`{name}` ends with byte {end}, and {of} has {most}");
            let help =
                "write a lower `offset` or `repeat`, or let messages be longer: `size`, and `max_bytes` at the source";
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
                let message = format!("`{name}` is {}, and the output `{to}` has {}", field.dtype, vector.dtype);
                errors.at(format!("fields[{i}].type"), message).help("an output has one type: name another with `to`");
            }
            Some(vector) => {
                vector.length = Some(vector.length.unwrap_or(1).saturating_add(count));
                vector.parts.push(part);
            }
        }
    }
    if vectors.len() > MAX_PORTS {
        let message = format!("{} outputs, where a node has at most {MAX_PORTS}", vectors.len());
        errors
            .at("fields", message)
            .help("leave out what nothing takes, or let fields of one type share one with `to`");
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
    /// How the first of them began, and how long it was.
    first: Vec<u8>,
    length: usize,
}

impl Decode {
    fn new(config: &Config) -> Self {
        // What is wrong with it was said while planning.
        let (vectors, least) = layout(config, None, &mut PlanErrors::default());
        let first = Vec::with_capacity(SHOWN);
        Decode { vectors, least, size: config.size, malformed: 0, first, length: 0 }
    }

    /// Whether a message has what is read; one that has not is counted.
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

    /// What is said of the messages that were let go.
    fn complaint(&self) -> Option<String> {
        let expected = match self.size {
            Some(size) => format!("{size}"),
            None => format!("at least {}", self.least),
        };
        let Decode { malformed, first, length, .. } = self;
        let mut text = format!("{malformed} malformed; the first had {length} bytes, not {expected}");
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

/// Puts the parts of a message behind one another, numbers as this machine has them.
fn gather(parts: &[Part], width: usize, message: &[u8], mut into: &mut [u8]) {
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
            errors.input("in", format!("{spec} is no packet: that is u8[≤n]")).help(help);
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
        if let Some(complaint) = self.complaint() {
            to.note(complaint);
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
            gather(&vector.parts, vector.dtype.size(), message.body.bytes(), tensor.bytes_mut());
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

    /// The outputs that a message of these bytes has: name, type, length, bytes as a little-endian machine has them.
    fn read(fields: &str, keys: &str, message: &[u8]) -> Vec<(String, String, Vec<u8>)> {
        let config = config(fields, keys);
        let mut errors = PlanErrors::default();
        let (vectors, least) = layout(&config, Some(message.len()), &mut errors);
        assert_eq!(errors.messages().count(), 0, "{fields}: {:?}", errors.messages().collect::<Vec<_>>());
        assert!(least <= message.len() && Decode::new(&config).accept(message));
        let out = |vector: &Vector| {
            let width = vector.dtype.size();
            let mut bytes = vec![0; width * vector.length.unwrap_or(1)];
            gather(&vector.parts, width, message, &mut bytes);
            if cfg!(target_endian = "big") {
                bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            let spec = PortSpec::fixed(vector.dtype, vector.length).to_string();
            (vector.name.clone(), spec, bytes)
        };
        vectors.iter().map(out).collect()
    }

    #[test]
    fn fields_are_read_where_and_how_the_config_says() {
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
            // Fields may lie over one another.
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
            // One output of several fields, in their order and not in that of the bytes.
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
    fn what_cannot_be_read_is_said_all_at_once() {
        let field = |keys: &str| format!(r#"{{"name": "a", "type": "f32"{keys}}}"#);
        let many: Vec<String> = (0..17).map(|n| format!(r#"{{"name": "n{n}", "type": "u8"}}"#)).collect();
        let cases: [(String, &str, Option<usize>, &[&str]); 11] = [
            (String::new(), "", None, &["nothing is read"]),
            (field(""), r#", "size": 0"#, None, &["hold nothing", "ends with byte 4, and `size` has 0"]),
            (field(""), r#", "size": 40"#, Some(32), &["messages of 40 bytes, where what arrives has at most 32"]),
            (field(""), "", Some(3), &["`a` ends with byte 4, and what arrives has 3"]),
            (field(r#", "offset": 8"#), r#", "size": 11"#, Some(64), &["`a` ends with byte 12, and `size` has 11"]),
            (field(r#", "repeat": 18446744073709551615"#), "", Some(64), &["what arrives has 64"]),
            (field(r#", "repeat": 0"#), "", None, &["0 numbers are none"]),
            (format!("{}, {}", field(""), field("")), "", None, &["`a` is a field already"]),
            (
                format!(r#"{}, {{"name": "b", "type": "u16", "to": "a"}}"#, field("")),
                "",
                None,
                &["`b` is u16, and the output `a` has f32"],
            ),
            (r#"{"name": "a/b", "type": "u8", "to": ""}"#.into(), "", None, &["`a/b` cannot be", "`` cannot be"]),
            (many.join(", "), "", None, &["17 outputs, where a node has at most 16"]),
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
    fn what_is_malformed_is_counted_and_the_first_is_shown() {
        let field = r#"{"name": "a", "type": "u32"}"#;
        let long = [7u8; 40];
        for (keys, messages, malformed, says) in [
            ("", [&b"1234"[..], b"12345"], 0, None),
            ("", [b"12", b"123"], 2, Some("2 malformed; the first had 2 bytes, not at least 4: 31 32")),
            (
                r#", "size": 4"#,
                [b"1234", b"\n2345"],
                1,
                Some("1 malformed; the first had 5 bytes, not 4: 0a 32 33 34 35"),
            ),
            (r#", "size": 4"#, [b"", b"1234"], 1, Some("1 malformed; the first had 0 bytes, not 4")),
            (r#", "size": 4"#, [&long, b"1234"], 1, Some("07 07 07 ...")),
        ] {
            let mut node = Decode::new(&config(field, keys));
            for message in messages {
                node.accept(message);
            }
            let complaint = node.complaint();
            assert_eq!((node.malformed, complaint.is_some()), (malformed, says.is_some()));
            assert!(complaint.as_deref().unwrap_or_default().ends_with(says.unwrap_or_default()), "{complaint:?}");
            assert!(node.first.len() <= SHOWN);
        }
    }
}
