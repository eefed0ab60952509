//! `hist print`: the percentiles of every histogram.

use super::comparison::{named, shown};
use super::{Profile, Series};
use crate::text::escape::one_line;
use crate::text::paragraph::paragraph;
use crate::text::table::Table;

/// The columns of quantiles.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Returns a table of percentiles for each profile, for a terminal of 80 columns. A quantile with
/// fewer than ten values beyond it is shown as `–`.
pub fn show_profiles(profiles: &[Profile]) -> String {
    let mut text = String::new();
    for (at, profile) in profiles.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        if profiles.len() > 1 {
            paragraph(&mut text, "", &format!("{}:", one_line(&profile.path.to_string_lossy())));
        }
        let mut table = Table::new(["<histogram", "n", "p50", "p90", "p99", "p99.9", "max"]);
        for series in &profile.series {
            table.row(cells(series, profile.has_unit));
        }
        if table.is_empty() {
            text.push_str("no histograms\n");
        }
        table.write(&mut text);
        if !profile.has_unit && !profile.series.is_empty() {
            let note = "the file does not declare the unit of its values: set the unit with --unit";
            paragraph(&mut text, "note: ", note);
        }
    }
    text
}

fn cells(series: &Series, has_unit: bool) -> Vec<String> {
    let sum = series.sum();
    let shown = |value: u64| shown(value as f64, has_unit, &series.tag);
    let quantiles = QUANTILES.iter().map(|(_, fraction)| match sum.quantile(*fraction) {
        Some(value) if sum.shows(*fraction) => shown(value),
        _ => "–".into(),
    });
    let max = if !sum.is_empty() { shown(sum.max()) } else { "–".into() };
    [named(&series.tag), sum.len().to_string()].into_iter().chain(quantiles).chain([max]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_shown_where_values_lie_beyond() {
        let mut csv = String::from("tag,value_ns,count\n");
        csv.extend((1..=1000).map(|n| format!("camera->labels.e2e,{},1\n", n * 10_000)));
        csv.push_str("m.batch,8,1000\n");
        let profile = Profile::from_text("a.csv", &csv, None).unwrap();
        let text = show_profiles(&[profile]);
        let expected = "\
histogram          n      p50      p90      p99  p99.9      max
camera->labels  1000  5.00 ms  9.00 ms  9.90 ms      –  10.0 ms
m.batch         1000        8        8        8      –        8
";
        assert_eq!(text, expected);
        let other = Profile::from_text("b.csv", "value,count\n7,3\n", None).unwrap();
        let text = show_profiles(&[other]);
        assert!(text.contains("(no tag)") && text.contains("set the unit with --unit"), "{text}");
    }
}
