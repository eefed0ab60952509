//! Fields of Protocol Buffers, written into a buffer and read from a message without copies.
//!
//! The wire format: <https://protobuf.dev/programming-guides/encoding>. `prost` does the varints;
//! its messages would copy every image.

use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// Appends fields to a buffer.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a mut Vec<u8>);

impl Fields<'_> {
    pub(crate) fn double(&mut self, tag: u32, value: f64) {
        encode_key(tag, WireType::SixtyFourBit, self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn fixed32(&mut self, tag: u32, value: u32) {
        encode_key(tag, WireType::ThirtyTwoBit, self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn varint(&mut self, tag: u32, value: u64) {
        encode_key(tag, WireType::Varint, self.0);
        encode_varint(value, self.0);
    }

    pub(crate) fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.bytes_place(tag, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// As [`bytes`](Fields::bytes), but leaves out the bytes; returns where they belong.
    pub(crate) fn bytes_place(&mut self, tag: u32, length: usize) -> usize {
        encode_key(tag, WireType::LengthDelimited, self.0);
        encode_varint(length as u64, self.0);
        self.0.len()
    }

    pub(crate) fn text(&mut self, tag: u32, text: &str) {
        self.bytes(tag, text.as_bytes());
    }

    /// Appends a small message; a long one is moved when its length is known.
    pub(crate) fn message(&mut self, tag: u32, fill: impl FnOnce(&mut Fields<'_>)) {
        encode_key(tag, WireType::LengthDelimited, self.0);
        let start = self.0.len();
        self.0.push(0);
        fill(&mut Fields(self.0));
        let length = (self.0.len() - start - 1) as u64;
        if length < 0x80 {
            self.0[start] = length as u8;
            return;
        }
        let mut bytes = [0u8; 10];
        let mut rest = &mut bytes[..];
        encode_varint(length, &mut rest);
        let used = 10 - rest.len();
        self.0.splice(start..=start, bytes[..used].iter().copied());
    }

    /// Appends a `google.protobuf.Timestamp` of ns since 1970.
    pub(crate) fn timestamp(&mut self, tag: u32, ns: u64) {
        self.message(tag, |stamp| {
            stamp.varint(1, ns / 1_000_000_000);
            stamp.varint(2, ns % 1_000_000_000);
        });
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ProtoValue<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> ProtoValue<'a> {
    /// A number in any of the wire formats, as a double is only in eight bytes.
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            ProtoValue::Varint(value) => Some(value),
            ProtoValue::Fixed64(bytes) => Some(u64::from_le_bytes(bytes)),
            ProtoValue::Fixed32(bytes) => Some(u64::from(u32::from_le_bytes(bytes))),
            ProtoValue::Bytes(_) => None,
        }
    }

    pub(crate) fn double(self) -> Option<f64> {
        match self {
            ProtoValue::Fixed64(bytes) => Some(f64::from_le_bytes(bytes)),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            ProtoValue::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// A `google.protobuf.Timestamp` as ns since 1970; `None` before 1970.
    pub(crate) fn timestamp(self) -> Option<u64> {
        let (mut seconds, mut nanos) = (0u64, 0u64);
        for field in read(self.bytes()?) {
            match field.ok()? {
                (1, value) => seconds = value.number()?,
                (2, value) => nanos = value.number()?,
                _ => {}
            }
        }
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    }
}

/// Reads the fields of a message, with their tags.
///
/// # Errors
/// Once, if it is malformed.
pub(crate) fn read(mut data: &[u8]) -> impl Iterator<Item = Result<(u32, ProtoValue<'_>), String>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let field = one(&mut data);
        if field.is_err() {
            data = &[];
        }
        Some(field)
    })
}

fn one<'a>(data: &mut &'a [u8]) -> Result<(u32, ProtoValue<'a>), String> {
    let wrong = |error: prost::DecodeError| error.to_string();
    let cut = || "the message ends within a field".to_string();
    let (tag, wire) = decode_key(data).map_err(wrong)?;
    let value = match wire {
        WireType::Varint => ProtoValue::Varint(decode_varint(data).map_err(wrong)?),
        WireType::SixtyFourBit => ProtoValue::Fixed64(take(data).ok_or_else(cut)?),
        WireType::ThirtyTwoBit => ProtoValue::Fixed32(take(data).ok_or_else(cut)?),
        WireType::LengthDelimited => {
            let length = decode_varint(data).map_err(wrong)?;
            let length = usize::try_from(length).ok().filter(|length| *length <= data.len()).ok_or_else(cut)?;
            let (bytes, rest) = data.split_at(length);
            *data = rest;
            ProtoValue::Bytes(bytes)
        }
        WireType::StartGroup | WireType::EndGroup => {
            return Err("expected fields, found a group, which protobuf no longer supports".into());
        }
    };
    Ok((tag, value))
}

fn take<const N: usize>(data: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, _) = data.split_first_chunk::<N>()?;
    let bytes = *bytes;
    data.advance(N);
    Some(bytes)
}

/// Reads packed varints.
pub(crate) fn varints(mut data: &[u8]) -> impl Iterator<Item = Option<u64>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let value = decode_varint(&mut data).ok();
        if value.is_none() {
            data = &[];
        }
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = Vec::new();
        let mut fields = Fields(&mut buffer);
        fields.double(1, -2.5);
        fields.fixed32(2, 640);
        fields.varint(300, u64::MAX);
        fields.text(4, "rgb8");
        fields.timestamp(5, 1_700_000_000_123_456_789);
        fields.message(6, |inner| inner.bytes(1, &[7; 500]));
        let read: Vec<_> = read(&buffer).map(Result::unwrap).collect();
        assert_eq!(read[0], (1, ProtoValue::Fixed64((-2.5f64).to_le_bytes())));
        assert_eq!((read[1].0, read[1].1.number()), (2, Some(640)));
        assert_eq!(read[2], (300, ProtoValue::Varint(u64::MAX)));
        assert_eq!(read[3].1.text(), Some("rgb8"));
        assert_eq!(read[4].1.timestamp(), Some(1_700_000_000_123_456_789));
        let inner: Vec<_> = super::read(read[5].1.bytes().unwrap()).map(Result::unwrap).collect();
        assert_eq!(inner, [(1, ProtoValue::Bytes(&[7; 500]))]);
    }

    #[test]
    fn malformed_messages_end_with_one_error() {
        for bytes in [&[0x0a, 5, 1][..], &[0x0b], &[0x09, 1, 2], &[0x0d], &[0x08, 0xff], &[0x00, 1], &[0xff; 12]] {
            let fields: Vec<_> = read(bytes).collect();
            assert!(fields.last().is_some_and(Result::is_err) && fields.len() == 1, "{bytes:?}: {fields:?}");
        }
    }
}
