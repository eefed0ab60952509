//! Binary packets: numbers at fixed offsets, as in a C struct.

use limen::message::DType;
use limen::node::{MAX_PORTS, PlanErrors};
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
    /// The name of the field, and of its port unless `to` is set.
    pub name: String,
    /// The element type, such as `f32` or `u16`.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The offset in bytes from the start of the message; by default the end of the previous field.
    pub offset: Option<usize>,
    /// The number of values in a row; the port then has a vector.
    pub repeat: Option<usize>,
    /// The byte order; by default `endian` of the config.
    pub endian: Option<Endian>,
    /// The name of the port, which several fields of one type may share; by default the name of the field.
    pub to: Option<String>,
}

/// A port and the parts of a packet that belong to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// `None` for a scalar.
    pub(crate) length: Option<usize>,
    pub(crate) parts: Vec<Part>,
}

/// A range of bytes that is contiguous both in a packet and in the tensor of a port.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) is_reversed: bool,
}

/// The fields of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    pub(crate) fields: &'a [Field],
    /// The byte order of fields without one.
    pub(crate) endian: Endian,
    /// The exact length of a packet.
    pub(crate) size: Option<usize>,
}

/// Returns whether a port may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Returns the ports of a packet's fields and how many bytes they need, and reports all their errors. `most` is the length of the longest
/// packet that arrives.
pub(crate) fn layout(config: Layout<'_>, most: Option<usize>, errors: &mut PlanErrors) -> (Vec<Vector>, usize) {
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
                let message = format!("`{name}` is not a valid name of a port");
                errors.at(format!("fields[{i}].{key}"), message).help("write letters, digits, `_` and `-`");
            }
        }
        if config.fields[..i].iter().any(|other| other.name == *name) {
            let message = format!("`{name}` is a field already");
            let help = "write another name; fields share a port through `to`";
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
                let message = format!("`{name}` is {}, but `{to}` is {}", field.dtype, vector.dtype);
                errors.at(format!("fields[{i}].type"), message).help("a port has one type; write another `to`");
            }
            Some(vector) => {
                vector.length = Some(vector.length.unwrap_or(1).saturating_add(count));
                vector.parts.push(part);
            }
        }
    }
    if vectors.len() > MAX_PORTS {
        let message = format!("{} ports, a node has at most {MAX_PORTS} on a side", vectors.len());
        errors
            .at("fields", message)
            .help("remove fields that are not used, or let fields of one type share a port through `to`");
    }
    (vectors, least)
}

/// Copies the parts of a packet one after the other, and converts numbers to native byte order.
pub(crate) fn copy_parts(parts: &[Part], width: usize, message: &[u8], mut into: &mut [u8]) {
    for part in parts {
        let (numbers, rest) = into.split_at_mut(part.bytes);
        numbers.copy_from_slice(&message[part.offset..part.offset + part.bytes]);
        if part.is_reversed {
            numbers.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        into = rest;
    }
}

/// Copies numbers to the parts of a packet, in their order, and converts them from native byte order.
pub(crate) fn put_parts(parts: &[Part], width: usize, mut from: &[u8], packet: &mut [u8]) {
    for part in parts {
        let (numbers, rest) = from.split_at(part.bytes);
        let into = &mut packet[part.offset..part.offset + part.bytes];
        into.copy_from_slice(numbers);
        if part.is_reversed {
            into.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        from = rest;
    }
}
