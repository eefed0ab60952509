//! Binary packets: numbers at fixed offsets, as in a C struct.

use limen::node::PlanErrors;
use limen_nodes_core::format::field::{Endian, Field, FieldPort, overlaps};
use limen_nodes_core::format::record::Fault;

/// The numbers of a packet.
#[derive(Debug)]
pub(crate) struct Packet {
    /// The range of each field.
    ranges: Vec<ByteRange>,
    /// The ranges of each port: those of its fields, of which neighbours are one.
    ports: Vec<Vec<ByteRange>>,
    /// How many bytes the fields need.
    pub(crate) least: usize,
    /// The exact length of a packet.
    pub(crate) size: Option<usize>,
}

/// A range of bytes that is contiguous both in a packet and in the tensor of a port.
#[derive(Debug, Clone, Copy)]
struct ByteRange {
    offset: usize,
    bytes: usize,
    /// Bytes of a number whose order is not the native one.
    reversed: Option<usize>,
}

impl ByteRange {
    /// Returns one range for this and the next one of a port, if they are neighbours.
    fn with(self, next: ByteRange) -> Option<ByteRange> {
        let is_next = self.offset.checked_add(self.bytes) == Some(next.offset) && self.reversed == next.reversed;
        is_next.then(|| ByteRange { bytes: self.bytes.saturating_add(next.bytes), ..self })
    }

    fn copy(self, from: &[u8], to: &mut [u8]) {
        to.copy_from_slice(from);
        if let Some(size) = self.reversed {
            to.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }
}

impl Packet {
    /// Returns the layout of packets, and reports all its errors. `most` is the length of the
    /// longest packet that arrives.
    pub(crate) fn new(
        fields: &[Field],
        ports: &[FieldPort],
        endian: Endian,
        size: Option<usize>,
        most: Option<usize>,
        errors: &mut PlanErrors,
    ) -> Packet {
        if let Some(size) = size
            && (size == 0 || most.is_some_and(|most| size > most))
        {
            let message = match most {
                Some(most) if size > 0 => format!("`size` must be at most {most} (the longest message), got {size}"),
                _ => "`size` must be at least 1, got 0".into(),
            };
            errors
                .at("size", message)
                .help("write the length of a message as `size`, and at least `size` as `max_bytes` at the source");
        }
        let (most, of) = match (size, most) {
            (Some(size), _) => (size, "`size`"),
            (None, most) => (most.unwrap_or(usize::MAX), "the longest message"),
        };
        let (mut packet, mut end) = (Packet { ranges: Vec::new(), ports: Vec::new(), least: 0, size }, 0usize);
        for (i, field) in fields.iter().enumerate() {
            field.allow(i, &["offset", "endian"], "struct", errors);
            let offset = field.offset.unwrap_or(end);
            let bytes = field.count().saturating_mul(field.dtype.size());
            end = offset.saturating_add(bytes);
            packet.least = packet.least.max(end);
            if end > most {
                let key = [("offset", field.offset), ("repeat", field.repeat)];
                let key = key.iter().find(|(_, value)| value.is_some()).map_or("name", |(key, _)| key);
                let message = format!("`{}` must end at byte {most} or earlier ({of}), got {end}", field.name);
                let help = "write a lower `offset` or `repeat`, or a higher `size` here and `max_bytes` at the source";
                errors.at(format!("fields[{i}].{key}"), message).help(help);
            }
            let is_big = field.endian.unwrap_or(endian) == Endian::Big;
            let is_reversed = field.dtype.size() > 1 && is_big != cfg!(target_endian = "big");
            packet.ranges.push(ByteRange { offset, bytes, reversed: is_reversed.then(|| field.dtype.size()) });
        }
        for port in ports {
            let mut joined = Vec::<ByteRange>::new();
            for range in port.fields.iter().map(|field| packet.ranges[*field]) {
                match joined.last_mut().and_then(|last| Some((last.with(range)?, last))) {
                    Some((both, last)) => *last = both,
                    None => joined.push(range),
                }
            }
            packet.ports.push(joined);
        }
        packet
    }

    /// Reports fields that lie in each other.
    pub(crate) fn forbid_overlaps(&self, fields: &[Field], errors: &mut PlanErrors) {
        let ranges: Vec<(usize, usize, usize)> = self
            .ranges
            .iter()
            .enumerate()
            .map(|(at, range)| (range.offset, range.offset.saturating_add(range.bytes), at))
            .collect();
        for (one, other, (begin, end)) in overlaps(ranges) {
            let (name, before) = (&fields[other].name, &fields[one].name);
            let message = format!("`{name}` must begin at byte {end} or later, after `{before}`, got {begin}");
            errors.at(format!("fields[{other}].name"), message).help(format!("write `offset: {end}` or higher"));
        }
    }

    /// The length of a packet that is written.
    pub(crate) fn len(&self) -> usize {
        self.size.unwrap_or(self.least)
    }

    /// Whether a message has all fields.
    pub(crate) fn accept(&self, message: &[u8]) -> Result<(), Fault> {
        match self.size {
            Some(size) if size != message.len() => {
                Err(Fault::Length { found: message.len(), expected: size, least: false })
            }
            None if message.len() < self.least => {
                Err(Fault::Length { found: message.len(), expected: self.least, least: true })
            }
            _ => Ok(()),
        }
    }

    /// Whether every byte of a packet is in a field, where no two fields overlap.
    pub(crate) fn is_full(&self) -> bool {
        self.ranges.iter().fold(0usize, |sum, range| sum.saturating_add(range.bytes)) == self.len()
    }

    /// Copies the numbers of a port, in native byte order, from a packet that was accepted.
    pub(crate) fn read(&self, port: usize, message: &[u8], mut into: &mut [u8]) {
        for range in &self.ports[port] {
            let (numbers, rest) = into.split_at_mut(range.bytes);
            range.copy(&message[range.offset..range.offset + range.bytes], numbers);
            into = rest;
        }
    }

    /// Copies the numbers of a port, in native byte order, to a packet.
    pub(crate) fn write(&self, port: usize, mut from: &[u8], packet: &mut [u8]) {
        for range in &self.ports[port] {
            let (numbers, rest) = from.split_at(range.bytes);
            range.copy(numbers, &mut packet[range.offset..range.offset + range.bytes]);
            from = rest;
        }
    }
}
