//! `.hlog`: the interval log that HdrHistogram's tools read, V2 encoding, deflated.
//!
//! A line holds one histogram for one interval, usually a second. Its tag is `node.term`, or
//! `from->to.e2e` for a path. Lines are written while the graph runs, so that a log of any length
//! takes no memory. The intervals of a tag add up to the report's histogram.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use hdrhistogram::serialization::{V2DeflateSerializeError, V2DeflateSerializer};
use limen::Report;
use limen::report::{Counts, HistogramReport};
use limen::run::IntervalReport;
use limen::text::is_terminal_control;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime};

/// The highest value of a histogram with lower ones, as in those of a run: some readers add no
/// histograms of different bounds.
const HIGH: u64 = 60_000_000_000;

/// The first line of a log, after its `#`.
pub(crate) const HEADING: &str = "[Histogram log format version 1.3]";
/// The line that says what values are, after its `#`.
pub(crate) const UNITS: &str = "limen: values are nanoseconds; where the tag ends in `.batch` they are messages";

/// An interval log under construction.
#[derive(Debug)]
pub(crate) struct Log<W> {
    to: W,
    started: SystemTime,
    /// By tag: the sum of the intervals written, and the begin of the next one.
    written: BTreeMap<String, (Counts, Duration)>,
}

impl<W: io::Write> Log<W> {
    /// Begins the log of a run that began at `started`.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn new(mut to: W, started: SystemTime) -> io::Result<Self> {
        to.write_all(&lines(started, std::iter::empty())?)?;
        to.flush()?;
        Ok(Log { to, started, written: BTreeMap::new() })
    }

    /// Appends intervals, and flushes the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write(&mut self, intervals: &[IntervalReport]) -> io::Result<()> {
        intervals.iter().try_for_each(|one| self.interval(&one.histogram, one.begin, one.length))?;
        self.to.flush()
    }

    fn interval(&mut self, one: &HistogramReport, begin: Duration, length: Duration) -> io::Result<()> {
        let histogram = &one.recorded.histogram;
        self.line(one, histogram, begin, length)?;
        let empty = || (Counts::new(histogram.digits()), begin);
        let (sum, next) = self.written.entry(one.tag()).or_insert_with(empty);
        sum.add(histogram);
        *next = begin + length;
        Ok(())
    }

    /// Writes what the report recorded after the last intervals, and returns the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn finish(mut self, report: &Report) -> io::Result<W> {
        for one in &report.histograms {
            let whole = &one.recorded.histogram;
            let known = self.written.get(&one.tag()).map(|(sum, next)| (whole.since(sum), *next));
            let (rest, begin) = known.as_ref().map_or((whole, Duration::ZERO), |(rest, begin)| (rest, *begin));
            if !rest.is_empty() {
                self.line(one, rest, begin, report.wall.saturating_sub(begin))?;
            }
        }
        self.to.flush()?;
        Ok(self.to)
    }

    fn line(&mut self, one: &HistogramReport, histogram: &Counts, begin: Duration, length: Duration) -> io::Result<()> {
        let text = lines(self.started, std::iter::once((clean(&one.tag()), histogram, begin, length)))?;
        // The headings were written by `new`.
        let is_heading = |line: &&[u8]| line.starts_with(b"#") || line.starts_with(b"\"");
        text.split_inclusive(|byte| *byte == b'\n')
            .filter(|line| !is_heading(line))
            .try_for_each(|line| self.to.write_all(line))
    }
}

/// Writes every histogram of a report as one interval.
///
/// # Errors
/// Those of the writer.
pub fn write_hlog(to: &mut impl io::Write, report: &Report) -> io::Result<()> {
    Log::new(to, report.started)?.finish(report).map(|_| ())
}

/// Returns counts as a histogram of the library. Those of a run have the bounds of all of them:
/// some readers add no histograms of different bounds.
pub(crate) fn histogram(counts: &Counts) -> Histogram<u64> {
    let low = counts.width(0);
    let high = counts.max().max(2 * low).max(HIGH);
    // `Counts` has no cells that are impossible.
    let mut whole = Histogram::new_with_bounds(low, high, counts.digits()).expect("its cells are possible");
    counts.iter().for_each(|(value, count)| whole.saturating_record_n(value, count));
    whole
}

/// The headings, and a line for each histogram.
fn lines<'a>(
    started: SystemTime,
    histograms: impl Iterator<Item = (String, &'a Counts, Duration, Duration)>,
) -> io::Result<Vec<u8>> {
    let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(HEADING)
        .add_comment(UNITS)
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(1.0)
        .begin_log_with(&mut text, &mut serializer)?;
    for (tag, counts, begin, length) in histograms {
        log.write_histogram(&histogram(counts), begin, length, Tag::new(&tag)).map_err(io_error)?;
    }
    Ok(text)
}

/// Replaces the characters that would end a tag.
pub(crate) fn clean(tag: &str) -> String {
    tag.replace(|c| matches!(c, ',' | ' ') || is_terminal_control(c), "_")
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
    use crate::report::test_report;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_log_reads_back_as_written() {
        let report = test_report::report();
        let bytes = Log::new(Vec::new(), report.started).unwrap().finish(&report).unwrap();
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
            assert_eq!(*histogram, super::histogram(&one.recorded.histogram));
        }
    }

    #[test]
    fn intervals_of_a_tag_add_up_to_its_histogram() {
        let report = test_report::report();
        let mut log = Log::new(Vec::new(), report.started).unwrap();
        // A tenth of the values in each of two intervals.
        for at in 0..2 {
            for one in &report.histograms {
                let mut part = one.clone();
                part.recorded.histogram = Counts::new(one.recorded.histogram.digits());
                let values = one.recorded.histogram.iter().skip(at).step_by(10);
                values.for_each(|(value, _)| part.recorded.histogram.record(value, 1));
                log.interval(&part, Duration::from_secs(at as u64), Duration::from_secs(1)).unwrap();
            }
        }
        let bytes = log.finish(&report).unwrap();
        let (mut sums, mut lines) = (BTreeMap::<String, Histogram<u64>>::new(), 0);
        for entry in IntervalLogIterator::new(&bytes) {
            let LogEntry::Interval(interval) = entry.unwrap() else { continue };
            let histogram = decode(interval.encoded_histogram());
            let tag = interval.tag().unwrap().as_str().to_string();
            lines += 1;
            match sums.get_mut(&tag) {
                Some(sum) => sum.add(&histogram).unwrap(),
                None => _ = sums.insert(tag, histogram),
            }
        }
        assert!(lines > 2 * report.histograms.len(), "{lines} lines");
        for one in &report.histograms {
            assert!(sums[&one.tag()] == histogram(&one.recorded.histogram), "{}", one.tag());
        }
        // The headings come once.
        assert_eq!(String::from_utf8(bytes).unwrap().matches("#[StartTime").count(), 1);
    }

    #[test]
    fn a_tag_cannot_break_its_line() {
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
