//! Messages of bytes from numbers.

use crate::format::packet::Packet;
use crate::format::sentence_writer::{MOST, SentenceWriter};
use crate::format::template::{Notation, Template};
use crate::format::tree::Tree;
pub use crate::format::{Algorithm, Checksum, MessageFormat, Sentence};
use limen::Tensor;
use limen::message::{Content, DType, Dim, Label, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use limen_nodes_core::format::field::{FieldPort, ports};
use limen_nodes_core::format::precision::READ_AS_F64;
use limen_nodes_core::format::row;
pub use limen_nodes_core::format::{Endian, Field};
use limen_nodes_core::tensor::{joined, shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes numbers to messages `u8[≤n]` that `decode` can read.
///
/// Each field reads an input with the name of the field. The input is `type[]`, or `type[repeat]`
/// with `repeat`. A single input may have any name. Fields with the same `to` are packed into one
/// input, in field order. `to` names the input, and its type is `type[k]`. `join` determines the
/// header of the output.
///
/// `format: struct` writes numbers at fixed offsets, as in a C struct or in Python's `struct.pack`.
/// Bytes outside all fields are 0.
///
/// `format: json` and `format: cbor` write an object with each number at its `path`, such as
/// `pose.position[0]`. JSON cannot represent infinity and NaN, so the node writes `null`. The node
/// writes `f16` and `bf16` as `f32`.
///
/// `format: csv` writes a row of text with each number in its `column`. The node writes NaN as an
/// empty column. The node writes the row without a line ending. A sink with `framing: lines` adds
/// the line ending.
///
/// `format: nmea` writes a `sentence` of NMEA 0183 with a checksum. The values and units of
/// `format: nmea` are the same as in `decode`. The node writes the sentence without a line ending.
/// A sink with `framing: lines_crlf` adds the line ending.
///
/// If a value has no field or is NaN, the value is empty in the sentence. If `quality` or `valid`
/// has no number, the node writes 1 if the message has a position, otherwise 0.
///
/// Positions have five decimal places of a minute (a resolution of 2 cm). The year of an `rmc` has
/// two digits. Other numbers have one or two decimal places, because the standard limits a sentence
/// to 82 characters.
///
/// The node wraps a course or heading to the range from 0 to 360 degrees. A number that an NMEA
/// 0183 sentence cannot represent, such as a latitude of 91, fails the call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct EncodeConfig {
    /// Format of the messages.
    pub format: MessageFormat,
    /// Fields of a message. A field requires `name` and `type`. In the following descriptions, a
    /// port is an input. The `unit` must equal the unit of the connected output, if both units are
    /// known.
    pub fields: Vec<Field>,
    /// Byte order of `struct` fields without `endian`. Default: `little`.
    pub endian: Option<Endian>,
    /// Length of a `struct` message in bytes. By default, a message ends with the last field.
    pub size: Option<usize>,
    /// Character between the columns of `csv`, one ASCII character. Default: `,`.
    pub delimiter: Option<char>,
    /// Type of the `nmea` sentences to write. `format: nmea` requires `sentence`.
    pub sentence: Option<Sentence>,
    /// Identifier of the `nmea` talker, two capital letters or digits. The first character must not
    /// be `P`. Default: `GP`.
    pub talker: Option<String>,
    /// Checksum at the end of each message. `crc8` is CRC-8/SMBUS. `crc16_ccitt` is
    /// CRC-16/IBM-3740, also called CCITT-FALSE. `crc32` is the CRC of Ethernet and zlib.
    /// `crc16_ccitt` and `crc16_xmodem` are big-endian, and all other checksums are little-endian.
    /// `{ of: crc32, endian: big }` changes the byte order. Offsets and `size` exclude the
    /// checksum. `format: nmea` rejects `crc`, because each NMEA 0183 sentence has a checksum.
    pub crc: Option<Checksum>,
}

impl EncodeConfig {
    fn ports(&self, errors: &mut PlanErrors) -> Vec<FieldPort> {
        match self.format {
            MessageFormat::Nmea => ports(&Sentence::with_units(&self.fields, errors), errors),
            _ => ports(&self.fields, errors),
        }
    }
}

/// How messages are written.
#[derive(Debug)]
enum Writer {
    Packet(Packet),
    Template(Template),
    Sentence(Box<SentenceWriter>),
}

impl Writer {
    /// Returns the writer, and reports all errors of the config.
    fn new(config: &EncodeConfig, ports: &[FieldPort], errors: &mut PlanErrors) -> Writer {
        let EncodeConfig { format, fields, endian, size, delimiter, sentence, talker, crc } = config;
        let keys = [
            ("endian", endian.is_some(), MessageFormat::Struct),
            ("size", size.is_some(), MessageFormat::Struct),
            ("delimiter", delimiter.is_some(), MessageFormat::Csv),
            ("sentence", sentence.is_some(), MessageFormat::Nmea),
            ("talker", talker.is_some(), MessageFormat::Nmea),
        ];
        format.check_keys(&keys, *crc, errors);
        let notation = match format {
            MessageFormat::Nmea => {
                if sentence.is_none() {
                    MessageFormat::needs_sentence("writes", errors);
                }
                let sentence = sentence.unwrap_or(Sentence::Gga);
                let writer = SentenceWriter::new(sentence, talker.as_deref(), fields, ports, errors);
                return Writer::Sentence(Box::new(writer));
            }
            MessageFormat::Struct => {
                let packet = Packet::new(fields, ports, endian.unwrap_or_default(), *size, None, errors);
                packet.forbid_overlaps(fields, errors);
                return Writer::Packet(packet);
            }
            MessageFormat::Csv => {
                let delimiter = row::delimiter(*delimiter, errors);
                return Writer::Template(Template::of_row(fields, ports, delimiter, errors));
            }
            MessageFormat::Json => Notation::Json,
            MessageFormat::Cbor => Notation::Cbor,
        };
        let tree = Tree::new(fields, format.name(), errors);
        Writer::Template(Template::of_tree(notation, fields, ports, &tree, errors))
    }

    /// The most bytes of a message.
    fn most(&self) -> usize {
        match self {
            Writer::Packet(packet) => packet.len(),
            Writer::Template(template) => template.most(),
            Writer::Sentence(_) => MOST,
        }
    }

    fn spec(&self, crc: Option<Checksum>) -> PortSpec {
        let most = self.most().saturating_add(crc.map_or(0, Checksum::bytes));
        let spec = match self {
            Writer::Packet(_) => PortSpec::fixed(DType::U8, [most]),
            Writer::Template(_) | Writer::Sentence(_) => PortSpec::new(DType::U8, [Dim::AtMost(most)]),
        };
        let is_text = match self {
            Writer::Packet(_) => false,
            Writer::Template(template) => crc.is_none() && template.is_text(),
            Writer::Sentence(_) => true,
        };
        spec.with_content(if is_text { Content::Text } else { Content::Bytes })
    }
}

/// Runs `kind: encode`; [`EncodeConfig`] says what it does.
#[derive(Debug)]
pub struct Encode {
    writer: Writer,
    crc: Option<Checksum>,
    /// The most bytes of a message without its checksum.
    most: usize,
    /// The number of each port's input.
    inputs: Vec<usize>,
}

impl Node for Encode {
    type Config = EncodeConfig;

    fn ports(config: &EncodeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = config.ports(&mut errors);
        let writer = Writer::new(config, &ports, &mut errors);
        let is_alone = given.inputs().count() == 1 && ports.len() == 1;
        for (name, _) in given.inputs().filter(|(name, _)| !is_alone && ports.iter().all(|port| port.name != *name)) {
            let known: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
            let help = format!("write one of the fields {}", known.join(", "));
            errors.input(name, format!("expected a field, found `{name}`")).help(help);
        }
        for port in ports.iter().filter(|port| !is_alone && given.inputs().all(|(name, _)| name != port.name)) {
            let help = format!("connect an output to `{}`, or remove the field from `fields`", port.name);
            errors.at("fields", format!("nothing is connected to `{}`", port.name)).help(help);
        }
        for (name, spec) in given.inputs() {
            let port = ports.iter().find(|port| is_alone || port.name == name);
            let labels = port.zip(spec).map(|(port, spec)| std::iter::zip(&port.labels, spec.labels()));
            let differs = |(want, have): &(&Label, &Label)| {
                !want.unit().is_empty() && !have.unit().is_empty() && want.unit() != have.unit()
            };
            // The type of the field has room, so the engine would advise a `cast`.
            if let (MessageFormat::Nmea, Some(port), Some(spec)) = (config.format, port, spec)
                && spec.dtype != port.dtype
                && let Some((what, _)) =
                    port.fields.iter().find_map(|field| Sentence::too_long(config.fields[*field].path(), spec.dtype))
            {
                errors.input(name, format!("{} cannot hold {what}", spec.dtype)).help(READ_AS_F64);
            }
            if let Some((want, have)) = labels.into_iter().flatten().find(differs) {
                let message =
                    format!("unit mismatch: the input has `{}`, the field expects `{}`", have.unit(), want.unit());
                errors
                    .input(name, message)
                    .help("put a `map` node with `unit` upstream of this node, or change `unit` of the field");
            }
        }
        let spec = |name: &str| ports.iter().find(|port| is_alone || port.name == name).map(FieldPort::spec);
        let inputs = given.inputs().fold(Ports::new(), |ports, (name, _)| match spec(name) {
            Some(spec) => ports.input(name, spec),
            None => ports.input_any(name),
        });
        errors.into_result(shape::gives(inputs, Some(writer.spec(config.crc))))
    }

    fn build(config: EncodeConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        // Errors of the config were reported while planning.
        let mut errors = PlanErrors::default();
        let ports = config.ports(&mut errors);
        let writer = Writer::new(&config, &ports, &mut errors);
        let names = joined::names(cx);
        let is_alone = names.len() == 1 && ports.len() == 1;
        let of = |port: &FieldPort| names.iter().position(|name| is_alone || *name == port.name).unwrap_or(0);
        let inputs = ports.iter().map(of).collect();
        Ok(Encode { most: writer.most(), crc: config.crc, writer, inputs })
    }
}

impl Transform for Encode {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let mut message = out.loan(header)?;
        let more = self.crc.map_or(0, Checksum::bytes);
        let numbers = |port: usize| input[self.inputs[port]].body.bytes();
        let len = match &self.writer {
            // All packets have one length, which the port's spec fixes.
            Writer::Packet(packet) => {
                let bytes = message.bytes_mut();
                if !packet.is_full() {
                    bytes.fill(0);
                }
                for port in 0..self.inputs.len() {
                    packet.write(port, numbers(port), bytes);
                }
                self.most
            }
            Writer::Template(template) => {
                message.set_len(0, self.most + more)?;
                let len = template.write(numbers, &mut message.bytes_mut()[..self.most]);
                message.set_len(0, len + more)?;
                len
            }
            Writer::Sentence(writer) => {
                message.set_len(0, self.most)?;
                let len = writer.write(numbers, message.bytes_mut())?;
                message.set_len(0, len)?;
                len
            }
        };
        if let Some(crc) = self.crc {
            crc.append(message.bytes_mut(), len);
        }
        out.send(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn config(fields: &str, keys: &str) -> EncodeConfig {
        let text = format!("{{\"format\": \"struct\", \"fields\": [{fields}] {keys}}}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn packets_have_the_bytes_of_their_fields() {
        let fields = r#"{"name": "a", "type": "u16", "endian": "big"}, {"name": "b", "type": "f32", "offset": 4, "repeat": 2, "to": "v"},
            {"name": "c", "type": "f32", "endian": "big", "to": "v"}, {"name": "d", "type": "i8", "offset": 2}"#;
        let config = config(fields, r#", "size": 20"#);
        let ports = ports(&config.fields, &mut PlanErrors::default());
        let Writer::Packet(layout) = Writer::new(&config, &ports, &mut PlanErrors::default()) else { panic!() };
        let numbers: Vec<Vec<u8>> = vec![
            0x1234u16.to_ne_bytes().into(),
            [1.5f32, -2.0, 3.25].iter().flat_map(|number| number.to_ne_bytes()).collect(),
            vec![0xf0],
        ];
        let mut packet = vec![0; layout.len()];
        for (port, numbers) in numbers.iter().enumerate() {
            layout.write(port, numbers, &mut packet);
        }
        let expected = [
            &[0x12, 0x34, 0xf0, 0][..],
            &1.5f32.to_le_bytes(),
            &(-2.0f32).to_le_bytes(),
            &3.25f32.to_be_bytes(),
            &[0; 4],
        ];
        assert_eq!(packet, expected.concat());
        for (port, numbers) in numbers.iter().enumerate() {
            let mut read = vec![0; numbers.len()];
            layout.read(port, &packet, &mut read);
            assert_eq!(read, *numbers, "{}", ports[port].name);
        }
    }

    /// The bytes by RFC 8949: whole numbers in their shortest form, floats in that of their type.
    #[test]
    fn cbor_has_the_numbers_of_its_fields() {
        let fields =
            r#"{"name": "n", "type": "u64"}, {"name": "x", "type": "f32"}, {"name": "q", "type": "i16", "repeat": 3}"#;
        let config: EncodeConfig =
            serde_json::from_str(&format!("{{\"format\": \"cbor\", \"fields\": [{fields}]}}")).unwrap();
        let mut errors = PlanErrors::default();
        let ports = ports(&config.fields, &mut errors);
        let Writer::Template(template) = Writer::new(&config, &ports, &mut errors) else { panic!() };
        let numbers: [Vec<u8>; 3] = [
            u64::MAX.to_ne_bytes().into(),
            0.5f32.to_ne_bytes().into(),
            [-1i16, 0, 700].iter().flat_map(|number| number.to_ne_bytes()).collect(),
        ];
        let mut message = vec![0; template.most()];
        let len = template.write(|port| &numbers[port], &mut message);
        let expected = [
            &[0xa3, 0x61, b'n', 0x1b][..],
            &[0xff; 8],
            &[0x61, b'x', 0xfa, 0x3f, 0, 0, 0],
            &[0x61, b'q', 0x83, 0x20, 0x00, 0x19, 0x02, 0xbc],
        ];
        assert_eq!(message[..len], expected.concat());
    }

    #[test]
    fn objects_and_rows_have_the_numbers_of_their_fields() {
        let objects = r#"{"name": "n", "type": "u64", "path": "head[0]"}, {"name": "x", "type": "f32", "path": "pose.x"},
            {"name": "q", "type": "i16", "repeat": 3, "path": "pose[\"a q\"]"},
            {"name": "t", "type": "f64", "to": "t2"}, {"name": "u", "type": "f64", "repeat": 2, "to": "t2"}"#;
        let rows = r#"{"name": "n", "type": "u64"}, {"name": "x", "type": "f32", "column": 3},
            {"name": "q", "type": "i16", "repeat": 3},
            {"name": "t", "type": "f64", "to": "t2", "column": 1}, {"name": "u", "type": "f64", "repeat": 2, "to": "t2", "column": 7}"#;
        let cases = [
            (
                "json",
                objects,
                r#"{"head":[18446744073709551615],"pose":{"x":0.1,"a q":[-1,0,7]},"t":1e+300,"u":[null,-0.0]}"#,
            ),
            ("csv", rows, "18446744073709551615,1e+300,,0.1,-1,0,7,,-0.0"),
        ];
        for (format, fields, expected) in cases {
            let text = format!("{{\"format\": \"{format}\", \"fields\": [{fields}]}}");
            let config: EncodeConfig = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut errors = PlanErrors::default();
            let ports = ports(&config.fields, &mut errors);
            let Writer::Template(template) = Writer::new(&config, &ports, &mut errors) else { panic!() };
            assert_eq!(errors.messages().collect::<Vec<_>>(), [""; 0], "{format}");
            let numbers: [Vec<u8>; 4] = [
                u64::MAX.to_ne_bytes().into(),
                0.1f32.to_ne_bytes().into(),
                [-1i16, 0, 7].iter().flat_map(|number| number.to_ne_bytes()).collect(),
                [1e300f64, f64::NAN, -0.0].iter().flat_map(|number| number.to_ne_bytes()).collect(),
            ];
            let mut message = vec![0; template.most()];
            let len = template.write(|port| &numbers[port], &mut message);
            assert_eq!(str::from_utf8(&message[..len]).unwrap(), expected);
        }
    }

    #[test]
    fn keys_of_a_sentence_are_checked() {
        let speed = r#"{"name": "speed", "type": "f32"}"#;
        for (fields, keys, expected) in [
            (speed, r#", "sentence": "rmc", "talker": "IN""#, &[][..]),
            (
                speed,
                "",
                &["`format: nmea` writes sentences of one type", "expected a value of the sentence, found `speed`"],
            ),
            (
                speed,
                r#", "sentence": "vtg", "talker": "PG""#,
                &["`talker` must be two capital letters or digits that do not start with `P`, got `PG`"],
            ),
            (speed, r#", "sentence": "vtg", "talker": "gp", "crc": "crc8""#, &["already has a checksum", "got `gp`"]),
            (
                r#"{"name": "a", "type": "f32", "path": "speed"}, {"name": "b", "type": "f32", "path": "speed"}"#,
                r#", "sentence": "vtg", "size": 3"#,
                &["`size` is not a key of `format: nmea`", "expected one field for `speed`"],
            ),
            (
                r#"{"name": "none", "type": "f32"}, {"name": "a", "type": "f32", "path": "speed"}, {"name": "b", "type": "f32", "path": "speed"}"#,
                r#", "sentence": "vtg""#,
                &["expected a value of the sentence, found `none`", "expected one field for `speed`"],
            ),
            (r#"{"name": "date", "type": "f32"}"#, r#", "sentence": "zda""#, &["f32 cannot hold a date"]),
            (
                r#"{"name": "speed", "type": "f32", "unit": "m/s"}"#,
                r#", "sentence": "vtg""#,
                &["expected the unit `kn` for `speed`, found `m/s`"],
            ),
        ] {
            let text = format!("{{\"format\": \"nmea\", \"fields\": [{fields}] {keys}}}");
            let config: EncodeConfig = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut errors = PlanErrors::default();
            let ports = config.ports(&mut errors);
            Writer::new(&config, &ports, &mut errors);
            let found: Vec<&str> = errors.messages().collect();
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            assert!(found.iter().zip(expected).all(|(found, text)| found.contains(text)), "{text}: {found:?}");
        }
    }

    #[test]
    fn fields_that_lie_in_each_other_are_refused() {
        for (fields, keys, expected) in [
            (
                r#"{"name": "a", "type": "u16"}, {"name": "b", "type": "u16", "offset": 1}"#,
                "",
                "`b` must begin at byte 2 or later, after `a`, got 1",
            ),
            (
                r#"{"name": "a", "type": "u32", "offset": 2}, {"name": "b", "type": "u32", "offset": 0}"#,
                "",
                "`a` must begin at byte 4 or later, after `b`, got 2",
            ),
            (r#"{"name": "a", "type": "u32"}"#, r#", "size": 3"#, "`a` must end at byte 3 or earlier (`size`), got 4"),
            ("", "", "`fields` must have at least 1 entry, got 0"),
        ] {
            let mut errors = PlanErrors::default();
            let config = config(fields, keys);
            let ports = ports(&config.fields, &mut errors);
            Writer::new(&config, &ports, &mut errors);
            let found: Vec<&str> = errors.messages().collect();
            assert!(found.iter().any(|found| found.contains(expected)), "{fields}: {found:?}");
        }
    }
}
