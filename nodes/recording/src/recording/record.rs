//! Parsing one record of an MCAP file.
//!
//! `mcap::parse_record` reserves memory for a string by the length that the file gives, up to 4
//! GiB, before it reads the string. So the lengths within a record are compared with the record
//! first.

use mcap::records::{Record, op};

/// A field whose length a record gives, or the bytes before one. The layouts are those of
/// <https://mcap.dev/spec>.
enum Field {
    /// This many bytes.
    Fixed(usize),
    /// A string with its length in 32 bits.
    Text,
    /// Pairs of strings with the length of them all, in bytes, in 32 bits.
    Texts,
    /// Numbers with the length of them all, in bytes, in 32 bits.
    Numbers,
}

/// The fields of a record up to the last one whose length it gives.
fn layout(opcode: u8) -> &'static [Field] {
    use Field::{Fixed, Numbers, Text, Texts};
    match opcode {
        op::HEADER => &[Text, Text],
        op::SCHEMA => &[Fixed(2), Text, Text, Numbers],
        op::CHANNEL => &[Fixed(4), Text, Text, Texts],
        op::CHUNK => &[Fixed(28), Text],
        op::MESSAGE_INDEX => &[Fixed(2), Numbers],
        op::CHUNK_INDEX => &[Fixed(32), Numbers, Fixed(8), Text],
        op::ATTACHMENT_INDEX => &[Fixed(40), Text, Text],
        op::STATISTICS => &[Fixed(42), Numbers],
        op::METADATA => &[Text, Texts],
        op::METADATA_INDEX => &[Fixed(16), Text],
        _ => &[],
    }
}

/// Parses a record. Reserves no more memory than the record has bytes.
///
/// # Errors
/// Why the record cannot be parsed.
pub(super) fn parse(opcode: u8, record: &[u8]) -> Result<Record<'_>, String> {
    check(opcode, record).ok_or("a length in the record must fit in the rest of the record, got more")?;
    mcap::parse_record(opcode, record).map_err(|error| error.to_string())
}

/// Compares the lengths within a record with its bytes; `None` if one is too great.
fn check(opcode: u8, record: &[u8]) -> Option<()> {
    let mut rest = record;
    for field in layout(opcode) {
        match field {
            Field::Fixed(bytes) => _ = rest.split_off(..*bytes)?,
            Field::Text | Field::Numbers => _ = counted(&mut rest)?,
            Field::Texts => {
                let mut texts = counted(&mut rest)?;
                while !texts.is_empty() {
                    counted(&mut texts)?;
                }
            }
        }
    }
    Some(())
}

/// Splits off bytes that begin with their length.
fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?);
    rest.split_off(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_compared_with_the_record() {
        fn text(record: &mut Vec<u8>, lengths: &mut Vec<usize>, bytes: &[u8]) {
            lengths.push(record.len());
            record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            record.extend_from_slice(bytes);
        }
        // With the number of bytes that follow the fields of the layout.
        for (opcode, after) in [
            (op::HEADER, 0),
            (op::SCHEMA, 0),
            (op::CHANNEL, 0),
            (op::CHUNK, 8),
            (op::MESSAGE_INDEX, 0),
            (op::CHUNK_INDEX, 16),
            (op::ATTACHMENT_INDEX, 0),
            (op::STATISTICS, 0),
            (op::METADATA, 0),
            (op::METADATA_INDEX, 0),
        ] {
            let (mut record, mut lengths) = (Vec::new(), Vec::new());
            for field in layout(opcode) {
                match field {
                    Field::Fixed(bytes) => record.resize(record.len() + bytes, 0),
                    Field::Text => text(&mut record, &mut lengths, b"name"),
                    Field::Numbers => text(&mut record, &mut lengths, b""),
                    Field::Texts => {
                        let (mut texts, mut within) = (Vec::new(), Vec::new());
                        text(&mut texts, &mut within, b"key");
                        text(&mut texts, &mut within, b"value");
                        lengths.extend(within.iter().map(|at| record.len() + 4 + at));
                        text(&mut record, &mut lengths, &texts);
                    }
                }
            }
            record.resize(record.len() + after, 0);
            parse(opcode, &record).unwrap_or_else(|why| panic!("{opcode:#04x}: {why}"));
            for at in lengths {
                for wrong in [u32::MAX, 1 << 31, record.len() as u32] {
                    let mut damaged = record.clone();
                    damaged[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
                    let why = parse(opcode, &damaged).unwrap_err();
                    assert_eq!(
                        why, "a length in the record must fit in the rest of the record, got more",
                        "{opcode:#04x} at {at}"
                    );
                }
            }
            for cut in 0..record.len() {
                // A shorter record may be whole; no cut panics.
                let _ = parse(opcode, &record[..cut]);
            }
        }
    }
}
