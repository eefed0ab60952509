//! `.hlog`: HdrHistogram's interval log, as Java's `HistogramLogWriter` and its ports write it.

use super::encoded::{decode, encode};
use super::{Profile, ProfileReader, Wrong};
use crate::dump::hlog::{HEADING, UNITS, clean};
use std::fmt::Write;
use std::io;

/// The first column of the legend.
const LEGEND: &str = "\"StartTimestamp\"";
/// Times below this many seconds before the start of the log count from the start, as in Java's
/// reader.
const YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// Whether a line is one of an interval log.
pub(super) fn is_line(line: &str) -> bool {
    let is_heading = ["#[Histogram log format", "#[StartTime:", "#[BaseTime:", LEGEND, "Tag="].iter();
    is_heading.clone().any(|heading| line.starts_with(heading))
        || fields(line).is_some_and(|at| at.3.starts_with("HIST"))
}

/// Tag, begin, length and histogram of a line.
fn fields(line: &str) -> Option<(&str, &str, &str, &str)> {
    let (tag, rest) = match line.strip_prefix("Tag=") {
        Some(rest) => rest.split_once(',')?,
        None => ("", line),
    };
    let mut columns = rest.split(',').map(str::trim);
    let (begin, length, _, histogram) = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
    columns.next().is_none().then_some((tag, begin, length, histogram))
}

/// The seconds in `#[StartTime: 1441812279.474 (seconds since epoch), Wed ..`.
fn seconds(line: &str, heading: &str) -> Option<f64> {
    line.strip_prefix("#[")?.strip_prefix(heading)?.split_whitespace().next()?.parse().ok()
}

/// Reads a log.
pub(super) fn read(text: &str, profile: &mut Profile) -> Result<(), Wrong> {
    let mut reading = ProfileReader::new(profile);
    let (mut start, mut base) = (0.0, None);
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| (Some(at + 1), why);
        let line = line.trim();
        if let Some(seconds) = seconds(line, "StartTime:") {
            start = seconds;
        } else if let Some(seconds) = seconds(line, "BaseTime:") {
            base = Some(seconds);
        } else if line.strip_prefix('#') == Some(UNITS) {
            reading.profile.has_unit = true;
        }
        if line.is_empty() || line.starts_with('#') || line.starts_with(LEGEND) {
            continue;
        }
        let (tag, begin, length, histogram) = fields(line).ok_or_else(|| {
            wrong("expected `Tag=NAME,` (or nothing), begin, length, maximum and histogram, separated by commas".into())
        })?;
        let number = |text: &str| {
            text.parse::<f64>().map_err(|_| wrong(format!("expected a number of seconds, found `{text}`")))
        };
        let (begin, length) = (number(begin)?, number(length)?);
        // As Java's reader does without a base time.
        let base = base.unwrap_or(if begin < start - YEAR { start } else { 0.0 });
        let counts = decode(histogram).map_err(wrong)?;
        reading.add(tag, base + begin, length, counts).map_err(wrong)?;
    }
    Ok(())
}

/// The text of a log with every interval of a profile, in the order of time.
///
/// # Errors
/// Counts that cannot be encoded.
pub(super) fn text(profile: &Profile) -> io::Result<String> {
    let mut lines: Vec<_> = profile
        .series
        .iter()
        .flat_map(|series| series.intervals.iter().map(|interval| (&series.tag, interval)))
        .collect();
    lines.sort_by(|a, b| a.1.begin.total_cmp(&b.1.begin));
    // Milliseconds, as they are printed.
    let start = lines.first().map_or(0.0, |(_, interval)| (interval.begin * 1e3).floor() / 1e3);
    let units = if profile.has_unit { format!("#{UNITS}\n") } else { String::new() };
    let mut text = format!(
        "#{HEADING}\n{units}#[StartTime: {start:.3} (seconds since epoch)]\n#[BaseTime: {start:.3} (seconds since epoch)]\n\
         {LEGEND},\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
    );
    for (tag, interval) in lines {
        if !tag.is_empty() {
            let _ = write!(text, "Tag={},", clean(tag));
        }
        let (begin, max) = (interval.begin - start, interval.counts.max() as f64);
        let _ = writeln!(text, "{begin:.3},{:.3},{max:.3},{}", interval.length, encode(&interval.counts)?);
    }
    Ok(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The first lines of a log that jHiccup wrote with Java's `HistogramLogWriter`, once with a
    /// base time and tags.
    const JAVA: &str = "#[Logged with jHiccup version 2.0.7-SNAPSHOT]
#[Histogram log format version 1.2]
#[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 08:24:39 PDT 2015]
#[BaseTime: 1441812123.123 (seconds since epoch), Wed Sep 09 08:24:39 PDT 2015]
\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"
0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=
Tag=A,0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=
1.134,0.999,0.442,HISTFAAAAEJ42pNpmSzMwMAgxwABTBDKT4GBgdnNYMcCBvsPEBEWLj45FTExAT4pBSEBKa6UkAgBi1uM7xjfMMlwMDABAC0CCjM=
";

    fn profile(text: &str) -> Result<Profile, String> {
        Profile::from_text("a.hlog", text, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_log_of_java_is_read() {
        for (text, begin) in [
            (JAVA.to_string(), 1_441_812_123.25),
            (JAVA.replace("#[BaseTime", "#[Base"), 1_441_812_279.601),
            (JAVA.replace("#[BaseTime", "#[Base").replace("\n0.127", "\n1441812280.0"), 1_441_812_280.0),
            (JAVA.lines().filter(|line| !line.starts_with(['#', '"'])).collect::<Vec<_>>().join("\r\n"), 0.127),
        ] {
            let read = profile(&text).unwrap();
            assert!(!read.has_unit);
            let tags: Vec<(&str, usize)> = read.series.iter().map(|s| (s.tag.as_str(), s.intervals.len())).collect();
            assert_eq!(tags, [("", 2), ("A", 1)]);
            assert!((read.series[0].intervals[0].begin - begin).abs() < 1e-3, "{}", read.series[0].intervals[0].begin);
            assert_eq!(read.series[0].sum().max(), 2_768_895);
        }
        assert_eq!(Profile::from_text("a", JAVA, Some(1000)).unwrap().series[1].sum().max() / 100_000_000, 27);
    }

    #[test]
    fn a_log_reads_back_as_written() {
        let mut read = profile(JAVA).unwrap();
        read.has_unit = true;
        let again = profile(&text(&read).unwrap()).unwrap();
        assert!(again.has_unit);
        for (mine, its) in read.series.iter().zip(&again.series) {
            assert_eq!((&mine.tag, mine.sum()), (&its.tag, its.sum()));
            for (mine, its) in mine.intervals.iter().zip(&its.intervals) {
                assert!((mine.begin - its.begin).abs() < 2e-3 && (mine.length - its.length).abs() < 1e-3);
            }
        }
    }

    #[test]
    fn a_malformed_line_is_named() {
        let good = JAVA.lines().nth(5).unwrap();
        for (line, expected) in [
            ("0.1,1.0,2.7", "a.hlog:2: expected `Tag=NAME,`"),
            ("0.1,1.0,2.7,HISTFAAA,5", "a.hlog:2: expected"),
            ("Tag=a", "a.hlog:2: expected"),
            (&good.replace("0.127", "soon"), "expected a number of seconds, found `soon`"),
            (&good.replace("0.127", "nan"), "invalid interval"),
            (&good.replace("0.127", "-1"), "invalid interval"),
            (&good.replace("1.007", "1e300"), "invalid interval"),
            ("0.1,1.0,2.7,HISTFAAAAEV42p", "a.hlog:2: the histogram"),
        ] {
            let error = profile(&format!("#[Histogram log format version 1.3]\n{line}\n{good}\n")).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
