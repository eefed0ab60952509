//! `.hgrm`: percentile text, as HdrHistogram's ports, wrk2 and hdr-plot's other sources print it.
//!
//! A row says how many values are at most as large as its own, so what lies between two rows is
//! counted at the upper one: percentiles of the rows stay what they are, others are rounded up.

use super::{Profile, ProfileReader, Series, Wrong};
use crate::dump::{hgrm::percentile_text, hgrm_unit};
use limen::report::Counts;

/// The milliseconds of load generators in nanoseconds.
const MILLISECOND: f64 = 1e6;

/// Whether a line is the heading of such a text: `Value Percentile TotalCount 1/(1-Percentile)`.
pub(super) fn is_heading(line: &str) -> bool {
    let line = line.replace(['"', ','], " ");
    let mut words = line.split_whitespace();
    words.next() == Some("Value") && words.next() == Some("Percentile") && words.next() == Some("TotalCount")
}

/// Value, percentile and count of a row; `None` for other lines.
fn row(line: &str) -> Option<(f64, f64, u64)> {
    let line = line.replace(',', " ");
    let mut words = line.split_whitespace();
    let row = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let rest: Vec<&str> = words.collect();
    (rest.is_empty() || rest.len() == 1 && rest[0].parse::<f64>().is_ok() || rest == ["Infinity"]).then_some(row)
}

/// Reads a percentile table of HdrHistogram or wrk2 into a profile.
pub(super) fn read(text: &str, profile: &mut Profile, unit: Option<u64>) -> Result<(), Wrong> {
    // wrk2 prints milliseconds, and says so only in the table above.
    let is_wrk2 = text.lines().any(|line| line.trim().starts_with("Detailed Percentile spectrum"));
    let (mut tag, mut digits, mut has_unit) = (String::new(), 3, is_wrk2);
    let (mut rows, mut is_below) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| (Some(at + 1), why);
        if is_heading(line) {
            if !rows.is_empty() {
                return Err(wrong("expected one histogram in a file of percentiles, found a second".into()));
            }
            is_below = true;
            continue;
        }
        if let Some(rest) = line.strip_prefix("# limen ") {
            // `# limen TAG: values in nanoseconds (ns), scale 1`
            let (name, values) = rest.rsplit_once(": values in ").unwrap_or((rest, ""));
            tag = name.trim().into();
            has_unit |= values.starts_with("nanoseconds") || values.starts_with("messages");
        }
        if let Some(buckets) = line.split_once("SubBuckets").and_then(|(_, rest)| rest.trim().strip_prefix('=')) {
            let buckets: f64 = buckets.trim_end_matches(']').trim().parse().unwrap_or(2048.0);
            digits = (buckets / 2.0).log10().floor().clamp(0.0, Counts::MAX_DIGITS.into()) as u8;
        }
        let Some((value, percentile, total)) = row(line).filter(|_| is_below) else { continue };
        if !(0.0..=1.0).contains(&percentile) {
            return Err(wrong(format!("a percentile must be 0 to 1, got {percentile}")));
        }
        // 2⁶³, which is what the largest value is printed as.
        if !(0.0..=9_223_372_036_854_775_808.0).contains(&value) {
            return Err(wrong(format!("a value must be 0 to 2^63, got {value}")));
        }
        if let Some((before, _, less)) = rows.last()
            && (value < *before || total < *less)
        {
            return Err(wrong(format!(
                "expected ascending values and counts, found {value} and {total} after {before} and {less}"
            )));
        }
        let is_whole = value.fract() == 0.0;
        if !is_whole && !is_wrk2 && unit.is_none() {
            return Err(wrong(format!(
                "expected whole values, found {value}: set the unit with --unit, such as --unit 1ms"
            )));
        }
        rows.push((value, percentile, total));
    }
    let factor = match unit {
        _ if is_wrk2 => MILLISECOND,
        // The profile is scaled once more by its unit; fractions must not be lost before.
        Some(unit) if !has_unit => unit as f64,
        _ => 1.0,
    };
    let (mut counts, mut before) = (Counts::new(digits), 0);
    for (value, _, total) in rows {
        counts.record((value * factor).round() as u64, total - before);
        before = total;
    }
    profile.has_unit = has_unit || unit.is_some();
    ProfileReader::new(profile).add(&tag, 0.0, 0.0, counts).map_err(|why| (None, why))
}

/// The text of one histogram.
pub(super) fn text(series: &Series, has_unit: bool) -> String {
    let mut text = percentile_text(&series.sum());
    if has_unit {
        text.push_str(&hgrm_unit(&series.tag, series.is_time()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, unit: Option<u64>) -> Result<Profile, String> {
        Profile::from_text("a.hgrm", text, unit).map_err(|error| error.to_string())
    }

    const WRK2: &str = "  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.97ms  425.80us  19.26ms   66.28%
 50.000%    1.01ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.146     0.000000            5         1.00
       1.010     0.500000      2698447         2.00
       2.007     0.990625      5344086       106.67
      19.279     1.000000      5394558   5991862.86
      19.279     1.000000      5394558          inf
#[Mean    =        0.968, StdDeviation   =        0.426]
#[Max     =       19.264, Total count    =      5394558]
#[Buckets =           27, SubBuckets     =         2048]
----------------------------------------------------------
Requests/sec:    500.00
";

    /// What the percentile text of a histogram is read as prints the same rows again.
    #[test]
    fn rows_stay_what_they_are() {
        let mut counts = Counts::new(3);
        (1..5000u64).for_each(|n| counts.record(n * n * 31, n % 5));
        let series = |counts| Series {
            tag: "a->b.e2e".into(),
            intervals: vec![crate::ProfileInterval { begin: 0.0, length: 0.0, counts }],
        };
        let first = text(&series(counts), true);
        let profile = read(&first, None).unwrap();
        assert!(profile.has_unit);
        assert_eq!(profile.series[0].tag, "a->b.e2e");
        let second = text(&profile.series[0], true);
        let rows =
            |text: &str| text.lines().filter(|line| !line.contains("Mean")).map(String::from).collect::<Vec<_>>();
        assert_eq!(rows(&first), rows(&second));
    }

    #[test]
    fn the_output_of_wrk2_is_read() {
        let profile = read(WRK2, None).unwrap();
        let sum = profile.series[0].sum();
        assert!(profile.has_unit);
        assert_eq!((sum.len(), sum.digits()), (5_394_558, 3));
        let at = |q| sum.quantile(q).unwrap() as f64 / 1e6;
        assert!((at(0.5) - 1.01).abs() < 2e-3 && (at(0.99) - 2.007).abs() < 3e-3 && (at(1.0) - 19.279).abs() < 0.02);
    }

    #[test]
    fn a_unit_scales_values_once() {
        let text = "Value Percentile TotalCount 1/(1-Percentile)\n1.5 0.5 10 2.0\n3.25 1.0 20\n";
        let profile = read(text, Some(1_000_000)).unwrap();
        let sum = profile.series[0].sum();
        assert_eq!((sum.quantile(0.5).unwrap() / 10_000, sum.max() / 10_000), (150, 325));
        let commas =
            "\"Value\",\"Percentile\",\"TotalCount\",\"1/(1-Percentile)\"\n15,0.5,10,2.0\n32,1.0,20,Infinity\n";
        assert_eq!(read(commas, None).unwrap().series[0].sum().iter().collect::<Vec<_>>(), [(15, 10), (32, 10)]);
    }

    #[test]
    fn malformed_rows_are_named() {
        let heading = "Value Percentile TotalCount 1/(1-Percentile)\n";
        for (rows, expected) in [
            ("1.5 0.5 10 2.0", ":2: expected whole values, found 1.5: set the unit"),
            ("1 50 10 2.0", ":2: a percentile must be 0 to 1, got 50"),
            ("-1 0.5 10 2.0", ":2: a value must be 0 to 2^63, got -1"),
            ("1e30 0.5 10 2.0", "a value must be 0 to 2^63"),
            ("nan 0.5 10 2.0", "a value must be 0 to 2^63"),
            ("2 0.5 10 2.0\n1 0.6 20 3.0", ":3: expected ascending values and counts"),
            ("2 0.5 10 2.0\n3 0.6 9 3.0", ":3: expected ascending values"),
            ("2 0.5 10 2.0\nValue Percentile TotalCount", ":3: expected one histogram in a file of percentiles"),
        ] {
            let error = read(&format!("{heading}{rows}\n"), None).unwrap_err();
            assert!(error.contains(expected), "{rows}: {error}");
        }
        assert_eq!(read(heading, None).unwrap().series[0].sum().len(), 0);
    }
}
