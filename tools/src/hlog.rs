//! `.hlog`: the interval log that HdrHistogram's tools read, V2 encoding, deflated.
//!
//! The whole run is one interval, and each histogram is a line of it, told apart by its tag: `node.term`, or
//! `from->to.e2e` for a path.

use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use hdrhistogram::serialization::{V2DeflateSerializeError, V2DeflateSerializer};
use limen::Report;
use std::io;
use std::time::Duration;

/// Writes every histogram of a report.
///
/// # Errors
/// What writing answered.
pub fn write_hlog(to: &mut impl io::Write, report: &Report) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("limen: values are nanoseconds; where the tag ends in `.batch` they are messages")
        .with_start_time(report.started)
        .with_base_time(report.started)
        .with_max_value_divisor(1.0)
        .begin_log_with(to, &mut serializer)?;
    for one in &report.histograms {
        let tag = clean(&one.tag());
        log.write_histogram(&one.recorded.histogram, Duration::ZERO, report.wall, Tag::new(&tag)).map_err(io_error)?;
    }
    Ok(())
}

/// A tag without the characters that would end it.
pub(crate) fn clean(tag: &str) -> String {
    tag.replace([',', ' ', '\r', '\n'], "_")
}

fn io_error(error: IntervalLogWriterError<V2DeflateSerializeError>) -> io::Error {
    match error {
        IntervalLogWriterError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn what_was_written_is_read_back() {
        let report = made_up::report();
        let mut bytes = Vec::new();
        write_hlog(&mut bytes, &report).unwrap();
        let mut read = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let tag = interval.tag().unwrap().as_str().to_string();
                let encoded = interval.encoded_histogram();
                read.push((tag, decode(encoded)));
            }
        }
        assert_eq!(read.len(), report.histograms.len());
        for ((tag, histogram), one) in read.iter().zip(&report.histograms) {
            assert_eq!(*tag, one.tag());
            assert_eq!(*histogram, one.recorded.histogram);
        }
    }

    #[test]
    fn a_tag_keeps_the_line_in_one_piece() {
        assert_eq!(clean("a b,c\r\nd->e.e2e"), "a_b_c__d->e.e2e");
    }

    fn decode(base64: &str) -> Histogram<u64> {
        let value = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let mut bytes = Vec::new();
        let (mut bits, mut n) = (0u32, 0);
        for c in base64.bytes().filter(|c| *c != b'=') {
            bits = (bits << 6) | u32::from(value(c));
            n += 6;
            if n >= 8 {
                n -= 8;
                bytes.push((bits >> n) as u8);
            }
        }
        Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
    }
}
