//! The encoded histogram in a line of an interval log: base64 of HdrHistogram's V2 encoding,
//! deflated or not.
//!
//! Not the decoder of the crate `hdrhistogram`, which takes the sizes in the header at their word:
//! 60 bytes make it allocate 4 GiB.

use crate::dump::hlog::histogram;
use data_encoding::BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use limen::report::Counts;
use std::io::{self, Read};

/// The first four bytes of a histogram, and of a deflated one.
const V2: u32 = 0x1c84_9313;
const V2_DEFLATED: u32 = 0x1c84_9314;
/// A histogram that a Java program recorded as floating-point numbers.
const DOUBLES: [u32; 2] = [0x0c72_124e, 0x0c72_124f];
/// The bytes before the counts.
const HEADER: usize = 40;
/// The most bytes of an inflated histogram: with three digits and 64 bits it has at most half a
/// million.
const MAX_INFLATED: u64 = 16 << 20;
const BEYOND: &str = "the histogram has counts that are too large, or beyond the largest value";
/// The most bytes of a number in it.
const MAX_NUMBER: usize = 9;

/// Decodes a histogram.
///
/// # Errors
/// What is wrong with it, in words that follow the place.
pub(super) fn decode(text: &str) -> Result<Counts, String> {
    let bytes = BASE64.decode(text.as_bytes()).map_err(|error| format!("the histogram is not base64: {error}"))?;
    let cut = || "the histogram is truncated".to_string();
    let word =
        |bytes: &[u8], at: usize| -> Option<u32> { Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    match word(&bytes, 0).ok_or_else(cut)? {
        V2 => counts(&bytes),
        V2_DEFLATED => {
            let length = word(&bytes, 4).ok_or_else(cut)? as usize;
            let deflated = bytes[8..].get(..length).ok_or_else(cut)?;
            let mut inflated = Vec::new();
            let read = ZlibDecoder::new(deflated).take(MAX_INFLATED + 1).read_to_end(&mut inflated);
            read.map_err(|error| format!("the histogram cannot be inflated: {error}"))?;
            if inflated.len() as u64 > MAX_INFLATED {
                return Err(format!("the histogram must be at most {} MiB, got more", MAX_INFLATED >> 20));
            }
            match word(&inflated, 0) {
                Some(V2) => counts(&inflated),
                Some(cookie) => {
                    Err(format!("expected HdrHistogram's V2 encoding in the deflated histogram, found {cookie:08x}"))
                }
                None => Err(cut()),
            }
        }
        cookie if DOUBLES.contains(&cookie) => {
            Err("expected a histogram of integers, found floating-point numbers: record integers".into())
        }
        cookie => Err(format!("expected HdrHistogram's V2 encoding, found {cookie:08x}")),
    }
}

fn counts(bytes: &[u8]) -> Result<Counts, String> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Err("the histogram is truncated".into()) };
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let (length, offset, digits, low, ratio) = (word(4), word(8), word(12), long(16), f64::from_bits(long(32)));
    if offset != 0 || ratio.to_bits() != 1f64.to_bits() {
        return Err("shifted or scaled histograms are not supported".into());
    }
    let counts = u8::try_from(digits).ok().and_then(|digits| Counts::with_lowest(digits, low.max(1)));
    let mut counts = counts.ok_or_else(|| format!("invalid histogram: {digits} digits from the lowest value {low}"))?;
    let Some(mut rest) = rest.get(..length as usize) else { return Err("the histogram is truncated".into()) };
    let mut index = 0u64;
    while !rest.is_empty() {
        let (number, size) = number(rest).ok_or("the histogram ends within a number")?;
        rest = &rest[size..];
        let skipped = if number < 0 { number.unsigned_abs() } else { 1 };
        if number > 0 && !counts.record_at(index, number.unsigned_abs()) {
            return Err(BEYOND.into());
        }
        index = index.checked_add(skipped).ok_or(BEYOND)?;
    }
    Ok(counts)
}

/// Decodes a number, LEB128 of at most nine bytes in zig-zag order, and returns it with its size.
fn number(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(MAX_NUMBER).enumerate() {
        // The ninth byte has eight bits.
        let is_last = at + 1 == MAX_NUMBER || byte & 0x80 == 0;
        let bits = if at + 1 == MAX_NUMBER { *byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * at);
        if is_last {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), at + 1));
        }
    }
    None
}

/// Encodes a histogram as [`decode`] reads it, deflated.
///
/// # Errors
/// Counts of more than 63 bits.
pub(super) fn encode(counts: &Counts) -> io::Result<String> {
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(&histogram(counts), &mut bytes);
    written.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(BASE64.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    /// A histogram with any header and payload, deflated or not.
    fn made(length: u32, digits: u32, low: u64, payload: &[u8], deflated: bool) -> String {
        let mut bytes = Vec::new();
        for word in [V2, length, 0, digits] {
            bytes.extend(word.to_be_bytes());
        }
        for long in [low, 60_000_000_000, 1f64.to_bits()] {
            bytes.extend(long.to_be_bytes());
        }
        bytes.extend(payload);
        if deflated {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&bytes).unwrap();
            let packed = encoder.finish().unwrap();
            bytes = [V2_DEFLATED.to_be_bytes(), (packed.len() as u32).to_be_bytes()].concat();
            bytes.extend(packed);
        }
        BASE64.encode(&bytes)
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for digits in 0..=Counts::MAX_DIGITS {
            let mut counts = Counts::new(digits);
            (0..60).for_each(|bit| counts.record((1 << bit) + 7, bit + 1));
            assert_eq!(decode(&encode(&counts).unwrap()).unwrap(), counts);
        }
        let empty = Counts::new(3);
        assert_eq!(decode(&encode(&empty).unwrap()).unwrap(), empty);
    }

    /// Java's `HistogramLogWriter` wrote these for jHiccup.
    #[test]
    fn histograms_of_java_are_decoded() {
        for (text, total, max) in [
            (
                "HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=",
                741,
                2_768_895,
            ),
            (
                "HISTFAAAAEJ42pNpmSzMwMAgxwABTBDKT4GBgdnNYMcCBvsPEBEWLj45FTExAT4pBSEBKa6UkAgBi1uM7xjfMMlwMDABAC0CCjM=",
                0,
                442_367,
            ),
        ] {
            let counts = decode(text).unwrap();
            assert_eq!(counts.max(), max);
            assert!(total == 0 || counts.len() == total, "{}", counts.len());
        }
    }

    #[test]
    fn malformed_histograms_are_refused() {
        // A run of 2^63 zeros, then a count.
        let run = [[0xff; 9].as_slice(), &[2]].concat();
        let bomb = vec![0u8; 64 << 20];
        for (text, expected) in [
            ("*".to_string(), "is not base64"),
            (String::new(), "is truncated"),
            ("AAAA".into(), "is truncated"),
            ("AAAAAAAA".into(), "expected HdrHistogram's V2 encoding, found 00000000"),
            (BASE64.encode(&DOUBLES[0].to_be_bytes()), "floating-point"),
            (BASE64.encode(&V2.to_be_bytes()), "is truncated"),
            (BASE64.encode(&[V2_DEFLATED.to_be_bytes(), u32::MAX.to_be_bytes()].concat()), "is truncated"),
            (BASE64.encode(&[V2_DEFLATED.to_be_bytes(), 0u32.to_be_bytes()].concat()), "cannot be inflated"),
            (BASE64.encode(&[V2_DEFLATED.to_be_bytes(), 4u32.to_be_bytes(), [1; 4]].concat()), "cannot be inflated"),
            (made(u32::MAX, 3, 1, &[2], true), "is truncated"),
            (made(u32::MAX, 3, 1, &[2], false), "is truncated"),
            (made(1, 6, 1, &[2], false), "invalid histogram: 6 digits"),
            (made(1, u32::MAX, 1, &[2], false), "digits"),
            (made(1, 3, u64::MAX, &[2], false), "digits from the lowest value"),
            (made(1, 3, 1, &[0x80], false), "ends within a number"),
            (made(10, 3, 1, &run, false), "beyond the largest value"),
            (made(18, 3, 1, &[[0xff; 9], [0xff; 9]].concat(), false), "beyond the largest value"),
            (
                made(
                    18,
                    3,
                    1,
                    &[[0xfe, 255, 255, 255, 255, 255, 255, 255, 255], [0xfe, 255, 255, 255, 255, 255, 255, 255, 255]]
                        .concat(),
                    false,
                ),
                "too large",
            ),
            (made(bomb.len() as u32, 3, 1, &bomb, true), "at most 16 MiB"),
        ] {
            let error = decode(&text).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
