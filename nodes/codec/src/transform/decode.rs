//! Numbers from messages of bytes.

use crate::format::packet::Packet;
use crate::format::tree::Tree;
pub use crate::format::{Algorithm, Checksum, MessageFormat, Sentence};
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, DiscardCounter, Emit, IncidentCounter, LossCounter, Many, Metrics, Node, NodeError, OutPort,
    PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor};
use limen_nodes_core::format::excerpt::excerpt;
use limen_nodes_core::format::field::{FieldPort, ports};
use limen_nodes_core::format::record::{Fault, Record};
use limen_nodes_core::format::row::{self, Row};
pub use limen_nodes_core::format::{Endian, Field};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Reads numbers from messages `u8[≤n]`.
///
/// Each field produces an output with the name of the field. The output is `type[]`, or
/// `type[repeat]` with `repeat`. Fields with the same `to` are packed into one output, in field
/// order. `to` names the output, and its type is `type[k]`.
///
/// The outputs have the header of the message. A time that the node decodes, such as a `stamp` in
/// JSON, does not change the origin. `join: { policy: by_time }` therefore ignores decoded times.
///
/// `format: struct` reads numbers at fixed offsets, as in a C struct or in Python's `struct.pack`.
/// The node ignores bytes outside all fields. Fields may overlap.
///
/// `format: json` and `format: cbor` select numbers in an object by `path`. With `repeat`, the
/// value is an array of exactly `repeat` numbers. The node ignores all values that `fields` does
/// not select. A CBOR number that a field selects must not have a tag.
///
/// `format: csv` selects numbers in a row of text by `column`.
///
/// `format: nmea` reads values of NMEA 0183 sentences of the type `sentence`, from any talker
/// (`GP`, `GN`). The checksum of the sentence must match. The node discards sentences of other
/// types and counts them (`other`). Without a position fix, most values are missing.
///
/// Units of `format: nmea`: `latitude` and `longitude` are in degrees, negative in the south and
/// the west. `time` is in seconds since midnight UTC. `date` is YYYYMMDD. `valid` is 1 or 0.
/// `speed` is in knots. `altitude` and `geoid_separation` are in metres. `course` and `heading` are
/// in degrees. `magnetic_variation` is in degrees, negative in the west. `zone` is in minutes and
/// keeps the sign in the sentence, which is negative in the east.
///
/// Types of `format: nmea`: `time`, `latitude` and `longitude` require `f64`. `date` requires
/// `f64`, or an integer type of 32 or 64 bits. For all other values, the precision of `f32` is
/// sufficient.
///
/// A message must contain a number of the field's type for every field. Otherwise, the node counts
/// the message as lost (`malformed`). The report shows the first malformed message.
///
/// The node reads `true` as 1. A missing value (`null`, an empty column or an empty NMEA value)
/// becomes NaN. Only floating-point types accept a missing value. The node counts messages with a
/// missing value (`missing`). A note in the report shows the first message with a missing value.
///
/// An integer type accepts only whole numbers in its range. A floating-point type rounds fractions.
/// A whole number that the type would round, such as 1700000001 in `f32`, is malformed. A fraction
/// above 2^24 with more digits than `f32` can represent is also malformed. Time stamps therefore
/// need `f64` or `i64`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeConfig {
    /// Format of the messages.
    pub format: MessageFormat,
    /// Fields of a message, in the order of the outputs. A field requires `name` and `type`. In the
    /// following descriptions, a port is an output. Tables and recordings show the `unit`.
    pub fields: Vec<Field>,
    /// Byte order of `struct` fields without `endian`. Default: `little`.
    pub endian: Option<Endian>,
    /// Exact length of every `struct` message in bytes. By default, a message may be longer than
    /// its fields.
    pub size: Option<usize>,
    /// Character between the columns of `csv`, one ASCII character. Default: `,`.
    pub delimiter: Option<char>,
    /// Type of the `nmea` sentences to read. `format: nmea` requires `sentence`.
    pub sentence: Option<Sentence>,
    /// Checksum at the end of each message. `crc8` is CRC-8/SMBUS. `crc16_ccitt` is
    /// CRC-16/IBM-3740, also called CCITT-FALSE. `crc32` is the CRC of Ethernet and zlib.
    /// `crc16_ccitt` and `crc16_xmodem` are big-endian, and all other checksums are little-endian.
    /// `{ of: crc32, endian: big }` changes the byte order. A message with a wrong checksum is
    /// malformed. Offsets and `size` exclude the checksum. `format: nmea` rejects `crc`, because
    /// each NMEA 0183 sentence has a checksum.
    pub crc: Option<Checksum>,
}

/// How messages are read.
#[derive(Debug)]
enum Reader {
    Packet(Packet),
    Json(Tree, Record),
    Cbor(Tree, Record),
    Row(Box<Row>, Record),
    Sentence(Sentence, Vec<usize>, Record),
}

/// Returns the ports of a config, and reports all its errors. `most` is the length of the longest
/// message that arrives.
fn planned(config: &DecodeConfig, most: Option<usize>, errors: &mut PlanErrors) -> Vec<FieldPort> {
    let DecodeConfig { format, fields, endian, size, delimiter, sentence, crc } = config;
    let most = most.map(|most| most.saturating_sub(crc.map_or(0, Checksum::bytes)));
    let ports = match format {
        MessageFormat::Nmea => ports(&Sentence::with_units(fields, errors), errors),
        _ => ports(fields, errors),
    };
    let keys = [
        ("endian", endian.is_some(), MessageFormat::Struct),
        ("size", size.is_some(), MessageFormat::Struct),
        ("delimiter", delimiter.is_some(), MessageFormat::Csv),
        ("sentence", sentence.is_some(), MessageFormat::Nmea),
    ];
    format.check_keys(&keys, *crc, errors);
    // A number takes a byte at least.
    let too_many = |field: &&Field| *format != MessageFormat::Struct && most.is_some_and(|most| field.count() > most);
    if let Some((i, field)) = fields.iter().enumerate().find(|(_, field)| too_many(field)) {
        let message = format!(
            "`{}` must have at most {} numbers, one per byte of the message, got {}",
            field.name,
            most.unwrap_or(0),
            field.count()
        );
        errors
            .at(format!("fields[{i}].repeat"), message)
            .help("write a lower `repeat`, or a higher `max_bytes` at the source");
    }
    match format {
        MessageFormat::Struct => drop(Packet::new(fields, &ports, endian.unwrap_or_default(), *size, most, errors)),
        MessageFormat::Json | MessageFormat::Cbor => drop(Tree::new(fields, format.name(), errors)),
        MessageFormat::Csv => {
            row::delimiter(*delimiter, errors);
            row::check(fields, errors);
        }
        MessageFormat::Nmea => match sentence {
            Some(sentence) => drop(sentence.values(fields, errors)),
            None => MessageFormat::needs_sentence("reads", errors),
        },
    }
    ports
}

impl Reader {
    /// Errors of the config were reported while planning.
    fn new(config: &DecodeConfig, ports: &[FieldPort]) -> Reader {
        let DecodeConfig { format, fields, endian, size, delimiter, sentence, .. } = config;
        let errors = &mut PlanErrors::default();
        let record = || Record::exact(fields, ports);
        match format {
            MessageFormat::Struct => {
                Reader::Packet(Packet::new(fields, ports, endian.unwrap_or_default(), *size, None, errors))
            }
            MessageFormat::Json => Reader::Json(Tree::new(fields, format.name(), errors), record()),
            MessageFormat::Cbor => Reader::Cbor(Tree::new(fields, format.name(), errors), record()),
            MessageFormat::Csv => {
                let row = Row::new(fields, row::delimiter(*delimiter, errors));
                Reader::Row(row.into(), record())
            }
            MessageFormat::Nmea => {
                let sentence = sentence.unwrap_or(Sentence::Gga);
                let values = sentence.values(fields, errors).into_iter().flatten().collect();
                Reader::Sentence(sentence, values, record())
            }
        }
    }

    /// Reads a message; `false` if it is none that is asked for.
    fn read(&mut self, message: &[u8]) -> Result<bool, Fault> {
        match self {
            Reader::Packet(packet) => packet.accept(message)?,
            Reader::Json(tree, record) => tree.read_json(message, record)?,
            Reader::Cbor(tree, record) => tree.read_cbor(message, record)?,
            Reader::Row(row, record) => row.read(message, record)?,
            Reader::Sentence(sentence, values, record) => return sentence.read(values, message, record),
        }
        Ok(true)
    }

    /// Copies the numbers of a port, in native byte order, from the message that was read last.
    fn copy(&self, port: usize, message: &[u8], into: &mut [u8]) {
        match self {
            Reader::Packet(packet) => packet.read(port, message, into),
            Reader::Json(_, record)
            | Reader::Cbor(_, record)
            | Reader::Row(_, record)
            | Reader::Sentence(_, _, record) => into.copy_from_slice(record.port(port)),
        }
    }

    /// The first field that the message read last leaves out.
    fn missing(&self) -> Option<usize> {
        match self {
            Reader::Packet(_) => None,
            Reader::Json(_, record)
            | Reader::Cbor(_, record)
            | Reader::Row(_, record)
            | Reader::Sentence(_, _, record) => record.missing(),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Reader::Json(..) | Reader::Row(..) | Reader::Sentence(..))
    }
}

/// Runs `kind: decode`; [`DecodeConfig`] says what it does.
#[derive(Debug)]
pub struct Decode {
    reader: Reader,
    crc: Option<Checksum>,
    malformed: LossCounter,
    /// Sentences of other types.
    other: DiscardCounter,
    /// Messages with a value that is left out, and what the report says of the first one.
    missing: IncidentCounter,
    fields: Vec<Field>,
}

impl Decode {
    fn new(config: DecodeConfig, malformed: LossCounter) -> Self {
        let ports = ports(&config.fields, &mut PlanErrors::default());
        let reader = Reader::new(&config, &ports);
        let DecodeConfig { crc, fields, .. } = config;
        Decode { reader, crc, malformed, other: DiscardCounter::default(), missing: IncidentCounter::default(), fields }
    }

    /// Reads a message and returns it without its checksum; counts it if there is nothing to be
    /// sent.
    fn accept<'a>(&mut self, message: &'a [u8]) -> Option<&'a [u8]> {
        let stripped = self.crc.map_or(Ok(message), |crc| crc.strip(message));
        match stripped.and_then(|stripped| Ok((stripped, self.reader.read(stripped)?))) {
            Ok((stripped, true)) => {
                if let Some(field) = self.reader.missing() {
                    self.note_missing(field, message);
                }
                return Some(stripped);
            }
            Ok((_, false)) => self.other += 1,
            Err(fault) => {
                let why = || {
                    let shown = excerpt(message, message.len(), self.reader.is_text());
                    format!("{}{shown}", fault.text(&self.fields))
                };
                self.malformed.lose(1, why);
            }
        }
        None
    }

    /// Counts a message that leaves out a value.
    #[cold]
    fn note_missing(&mut self, field: usize, message: &[u8]) {
        self.missing.note(1, || {
            let shown = excerpt(message, message.len(), self.reader.is_text());
            format!("`{}` is missing{shown}", self.fields[field].name)
        });
    }
}

impl Node for Decode {
    type Config = DecodeConfig;

    fn ports(config: &DecodeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = given.single();
        let is_packet = |spec: &&PortSpec| spec.dtype == DType::U8 && spec.shape.len() == 1;
        if let Some(spec) = spec.filter(|spec| !is_packet(spec)) {
            let help = "connect a `udp`, `tcp`, `serial`, `stdin` or `file` node";
            errors.input("in", format!("expected u8[≤n], found {spec}")).help(help);
        }
        let most = spec.filter(is_packet).and_then(PortSpec::max_bytes);
        let ports = planned(config, most, &mut errors);
        let is_angle = |field: &usize| matches!(config.fields[*field].path(), "course" | "heading");
        let ports = ports.into_iter().fold(shape::takes(spec.cloned()), |ports, port| {
            let has_angle = config.format == MessageFormat::Nmea && port.fields.iter().any(is_angle);
            let fields = port.fields.iter().map(|field| config.fields[*field].label_of_path());
            let spec = fields.fold(port.spec(), |spec, label| spec.with_other_label(&label));
            let spec = Some(if has_angle { spec.with_orientation() } else { spec });
            ports.out_port(OutPort { name: port.name, spec, emits: 1, rows: 1, forwards: Vec::new() })
        });
        errors.into_result(ports.selective())
    }

    fn build(config: DecodeConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut node = Decode::new(config, cx.lost("malformed"));
        if !matches!(node.reader, Reader::Packet(_)) {
            node.missing = cx.incidents("missing");
        }
        if matches!(node.reader, Reader::Sentence(..)) {
            node.other = cx.discarded("other");
        }
        Ok(node)
    }

    fn metrics(&self, to: &mut Metrics) {
        if let Some(first) = self.missing.first() {
            let missing = self.missing.get();
            to.note(format!("messages with missing values, which are NaN: {missing} (first: {first})"));
        }
    }
}

impl Transform for Decode {
    type In = Tensor;
    type Out = Many<Tensor>;

    fn apply(&mut self, message: Message<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let Some(bytes) = self.accept(message.body.bytes()) else { return Ok(()) };
        for (port, to) in out.iter_mut().enumerate().filter(|(_, to)| to.is_connected()) {
            let mut tensor = to.loan(message.header())?;
            self.reader.copy(port, bytes, tensor.bytes_mut());
            to.send(tensor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
