//! `.hgrm`: the percentile text that HdrHistogram's tools print and plot.
//!
//! The Rust crate has no such writer, and its quantile iterator takes other steps: it adds tenths,
//! which are not exact in binary, while the Java and JavaScript ports add percents, so rows differ
//! on ties. This writer takes the steps of the ports and writes the same text: as many decimals as
//! the histogram has digits, five ticks per half distance, no last column at percentile 100. Values
//! are printed as recorded (nanoseconds, scale 1).

use super::hlog::histogram;
use limen::report::Counts;
use std::fmt::Write;

/// Steps per halving of the distance to 100 %: the default of every port.
const TICKS: f64 = 5.0;

/// Returns the percentile distribution of counts as text, such as those of a report,
/// [`Recorded::histogram`](limen::report::Recorded).
///
/// ```
/// let mut counts = limen_run::Counts::new(3);
/// counts.record(1500, 1);
/// let text = limen_run::percentile_text(&counts);
/// assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"));
/// assert!(text.contains("#[Max     =     1500.000, Total count    =            1]"));
/// ```
pub fn percentile_text(counts: &Counts) -> String {
    // Has the standard deviation and the number of buckets, which the text ends with.
    let histogram = histogram(counts);
    let digits = usize::from(counts.digits());
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let (mut total, mut level) = (0u64, 0.0f64);
    for (value, count) in counts.iter() {
        let value = value as f64;
        total += count;
        let last = total == counts.len();
        while level < 100.0 && 100.0 * total as f64 / counts.len() as f64 >= level {
            let (p, beyond) = (half_up(level / 100.0, 12), half_up(1.0 / (1.0 - level / 100.0), 2));
            let _ = writeln!(text, "{value:12.digits$} {p:2.12} {total:10} {beyond:14.2}");
            level = next(level);
            if last {
                break;
            }
        }
        if last {
            let _ = writeln!(text, "{value:12.digits$} {:2.12} {total:10}", 1.0);
        }
    }
    let _ = writeln!(
        text,
        "#[Mean    = {:12.digits$}, StdDeviation   = {:12.digits$}]",
        histogram.mean(),
        histogram.stdev()
    );
    let _ = writeln!(text, "#[Max     = {:12.digits$}, Total count    = {:12}]", counts.max() as f64, counts.len());
    let _ =
        writeln!(text, "#[Buckets = {:12}, SubBuckets     = {:12}]", histogram.buckets(), sub_buckets(counts.digits()));
    text
}

/// Rounds halves away from zero, as the ports do. Rust's formatting rounds exact halves, which
/// percentiles often are, to even.
fn half_up(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

/// The percentile after `level`: each halving of the distance to 100 takes [`TICKS`] steps.
fn next(level: f64) -> f64 {
    let halvings = (100.0 / (100.0 - level)).log2().floor() + 1.0;
    let next = level + 100.0 / (TICKS * halvings.exp2());
    // Close to 100 a step is lost in rounding.
    if next > level { next } else { 100.0 }
}

/// The number of sub-buckets for a number of significant digits; the crate does not expose it.
fn sub_buckets(digits: u8) -> u64 {
    (2 * 10u64.pow(digits.into())).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JavaScript port printed this for the same values, except for the maximum, which it
    /// prints as recorded; the Java port prints, as here, the highest equivalent value.
    #[test]
    fn the_text_equals_that_of_the_other_ports() {
        let mut counts = Counts::new(2);
        [1, 2, 3, 1000].iter().for_each(|value| counts.record(*value, 1));
        let expected = "       Value     Percentile TotalCount 1/(1-Percentile)

        1.00 0.000000000000          1           1.00
        1.00 0.100000000000          1           1.11
        1.00 0.200000000000          1           1.25
        2.00 0.300000000000          2           1.43
        2.00 0.400000000000          2           1.67
        2.00 0.500000000000          2           2.00
        3.00 0.550000000000          3           2.22
        3.00 0.600000000000          3           2.50
        3.00 0.650000000000          3           2.86
        3.00 0.700000000000          3           3.33
        3.00 0.750000000000          3           4.00
     1003.00 0.775000000000          4           4.44
     1003.00 1.000000000000          4
#[Mean    =       252.00, StdDeviation   =       433.01]
#[Max     =      1003.00, Total count    =            4]
#[Buckets =           29, SubBuckets     =          256]
";
        assert_eq!(percentile_text(&counts), expected);
    }

    #[test]
    fn an_empty_histogram_has_no_rows() {
        let text = percentile_text(&Counts::new(3));
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("#[Mean    =        0.000, StdDeviation   =        0.000]"), "{text}");
    }

    #[test]
    fn one_hundred_percent_is_printed_once() {
        let mut counts = Counts::new(3);
        (1..=10_000).for_each(|value| counts.record(value * 97, value % 7 + 1));
        counts.record(50_000_000_000, u64::MAX / 2);
        let text = percentile_text(&counts);
        assert_eq!(text.lines().filter(|l| l.contains(" 1.000000000000 ")).count(), 1, "{text}");
    }
}
