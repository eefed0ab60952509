//! The numbers of a message, and the ports that they belong to.

use limen::message::{DType, Label, MAX_PORTS, PortSpec};
use limen::node::PlanErrors;
use schemars::JsonSchema;
use serde::Deserialize;

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
    /// Name of the field. Without `to`, also the name of the port.
    pub name: String,
    /// Element type, such as `f32` or `u16`.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Number of consecutive values. With `repeat`, the port is a vector, and a JSON or CBOR value
    /// is an array.
    pub repeat: Option<usize>,
    /// Name of the port. Several fields of one type may share a port. Default: the name of the
    /// field.
    pub to: Option<String>,
    /// Unit of the numbers, such as `m/s²`.
    pub unit: Option<String>,
    /// Offset of a `struct` field, in bytes from the start of the message. Default: the end of the
    /// previous field.
    pub offset: Option<usize>,
    /// Byte order of a `struct` field. Default: `endian` of the config.
    pub endian: Option<Endian>,
    /// Path of the value in `json` or `cbor`, such as `pose.position[0]` or `["a key"].x`. With
    /// `format: nmea`, `path` is the name of the value, such as `latitude`. Default: the name of
    /// the field.
    pub path: Option<String>,
    /// Index of the `csv` column, from 0. Default: the column after the column of the previous
    /// field.
    pub column: Option<usize>,
}

impl Field {
    /// Where its value is, in a format with names.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.name)
    }

    /// What the last part of its path calls it, with its unit.
    pub fn label_of_path(&self) -> Label {
        let is_word = |part: &&str| part.contains(|c: char| c.is_alphabetic());
        let last = self.path().rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(is_word);
        Label::of(last.unwrap_or_default(), self.unit.as_deref().unwrap_or_default().trim())
    }

    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.repeat.unwrap_or(1)
    }

    /// Reports the keys that only other formats have.
    pub fn allow(&self, i: usize, allowed: &[&str], format: &str, errors: &mut PlanErrors) {
        let keys = [
            ("offset", self.offset.is_some()),
            ("endian", self.endian.is_some()),
            ("path", self.path.is_some()),
            ("column", self.column.is_some()),
        ];
        for (key, _) in keys.into_iter().filter(|(key, is_given)| *is_given && !allowed.contains(key)) {
            errors
                .at(format!("fields[{i}].{key}"), format!("`{key}` is not a key of `format: {format}`"))
                .help(format!("remove `{key}`"));
        }
    }
}

/// A port of a node, with the numbers of one or several fields.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPort {
    /// The port's name in the graph file.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// `None` for a scalar.
    pub(crate) length: Option<usize>,
    /// The fields, in the order of their numbers.
    pub fields: Vec<usize>,
    /// What its numbers are called; empty if nothing is known but the port's name.
    pub labels: Vec<Label>,
}

impl FieldPort {
    /// Returns the type of its messages.
    pub fn spec(&self) -> PortSpec {
        PortSpec::fixed(self.dtype, self.length).with_labels(self.labels.iter().cloned())
    }

    /// Returns the size of a message.
    pub fn bytes(&self) -> usize {
        self.dtype.size().saturating_mul(self.length.unwrap_or(1))
    }
}

/// Returns whether a port may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Returns the ports of fields, and reports all errors that do not depend on the format.
pub fn ports(fields: &[Field], errors: &mut PlanErrors) -> Vec<FieldPort> {
    let mut ports = Vec::<FieldPort>::new();
    if fields.is_empty() {
        errors
            .at("fields", "`fields` must have at least 1 entry, got 0")
            .help("write `fields: [{ name: ax, type: f32 }]`");
    }
    for (i, field) in fields.iter().enumerate() {
        let (name, to) = (&field.name, field.to.as_ref().unwrap_or(&field.name));
        for (key, name) in [("name", Some(name)), ("to", field.to.as_ref())] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                let message = format!("`{name}` is not a valid port name");
                errors.at(format!("fields[{i}].{key}"), message).help("write a name of letters, digits, `_` and `-`");
            }
        }
        if fields[..i].iter().any(|other| other.name == *name) {
            let message = format!("duplicate field `{name}`");
            errors.at(format!("fields[{i}].name"), message).help("write another `name`");
        }
        if field.repeat == Some(0) {
            errors
                .at(format!("fields[{i}].repeat"), "`repeat` must be at least 1, got 0")
                .help("write 1 or more, or remove `repeat`");
        }
        match ports.iter_mut().find(|port| port.name == *to) {
            None => {
                let (name, dtype, length) = (to.clone(), field.dtype, field.repeat);
                ports.push(FieldPort { name, dtype, length, fields: vec![i], labels: Vec::new() });
            }
            Some(port) if port.dtype != field.dtype => {
                let message =
                    format!("type mismatch: field `{name}` is {}, port `{to}` is {}", field.dtype, port.dtype);
                let help = format!("write `type: {}`, or another `to`", port.dtype);
                errors.at(format!("fields[{i}].type"), message).help(help);
            }
            Some(port) => {
                port.length = Some(port.length.unwrap_or(1).saturating_add(field.count()));
                port.fields.push(i);
            }
        }
    }
    for port in &mut ports {
        port.labels = labels(port, fields, errors);
    }
    if ports.len() > MAX_PORTS {
        let message = format!("`fields` must have at most {MAX_PORTS} ports, got {}", ports.len());
        errors.at("fields", message).help("remove unused fields, or write the same `to` for fields of one type");
    }
    ports
}

/// Returns what the numbers of a port are called, and reports units that are none.
fn labels(port: &FieldPort, fields: &[Field], errors: &mut PlanErrors) -> Vec<Label> {
    let mut is_right = true;
    for (i, unit) in port.fields.iter().filter_map(|i| Some((i, fields[*i].unit.as_ref()?))) {
        if let Err(why) = Label::new("", unit.trim()) {
            let help = "write a unit such as `m/s²` or `deg`";
            errors.at(format!("fields[{i}].unit"), format!("`unit` {why}, got {unit:?}")).help(help);
            is_right = false;
        }
    }
    let is_shared = port.fields.iter().any(|i| fields[*i].to.is_some());
    let has_units = port.fields.iter().any(|i| fields[*i].unit.is_some());
    if !is_right || !(is_shared || has_units) || port.length.is_some_and(|length| length > Label::MAX_COUNT) {
        return Vec::new();
    }
    let labels = port.fields.iter().map(|i| &fields[*i]).flat_map(|field| {
        let unit = field.unit.as_deref().unwrap_or_default().trim();
        (0..field.count()).map(move |at| {
            let name = match field.repeat {
                // The numbers of the port are those of the field, so their places say it all.
                Some(_) if !is_shared => String::new(),
                Some(_) => format!("{}_{at}", field.name),
                None => field.name.clone(),
            };
            Label::of(&name, unit)
        })
    });
    labels.collect()
}

/// Returns the ranges that lie in one another, of `(begin, end, field)`: the field of the one that
/// begins first, that of the other, and what the first takes of it.
pub fn overlaps(mut ranges: Vec<(usize, usize, usize)>) -> Vec<(usize, usize, (usize, usize))> {
    ranges.sort_unstable();
    let (mut found, mut furthest) = (Vec::new(), (0, 0));
    for (begin, end, field) in ranges {
        if begin < furthest.0 {
            found.push((furthest.1, field, (begin, furthest.0)));
        }
        furthest = furthest.max((end, field));
    }
    found
}

/// Where the numbers of a field are.
#[derive(Debug, Clone, Copy)]
pub struct FieldPlace {
    /// The index of the port.
    pub port: usize,
    /// Where its first number begins in the bytes of the port.
    pub offset: usize,
    /// How many numbers it has.
    pub count: usize,
    /// Their type.
    pub dtype: DType,
}

/// Returns the place of each field.
pub fn places(fields: &[Field], ports: &[FieldPort]) -> Vec<FieldPlace> {
    let place = |field: &Field| FieldPlace { port: 0, offset: 0, count: field.count(), dtype: field.dtype };
    let mut places: Vec<FieldPlace> = fields.iter().map(place).collect();
    for (at, port) in ports.iter().enumerate() {
        let mut offset = 0usize;
        for field in &port.fields {
            let place = &mut places[*field];
            (place.port, place.offset) = (at, offset);
            offset = offset.saturating_add(place.count.saturating_mul(place.dtype.size()));
        }
    }
    places
}
