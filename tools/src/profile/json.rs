//! `.json`: one object with the counts of every interval and, for readers that need no more,
//! quantiles of the sums.

use super::{Profile, ProfileInterval, ProfileReader, Wrong};
use crate::text::escape::plain_json;
use limen::report::Counts;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, Serialize)]
struct File {
    /// `ns`, or nothing.
    #[serde(default)]
    unit: Option<String>,
    histograms: Vec<One>,
}

#[derive(Deserialize, Serialize)]
struct One {
    #[serde(default)]
    tag: String,
    #[serde(default = "three")]
    digits: u8,
    /// Not read: it is passed over, whatever it is.
    #[serde(default, skip_deserializing)]
    sum: serde_json::Value,
    intervals: Vec<Interval>,
}

#[derive(Deserialize, Serialize)]
struct Interval {
    #[serde(default)]
    begin_s: f64,
    #[serde(default)]
    length_s: f64,
    /// Values with their counts.
    counts: Vec<(u64, u64)>,
}

fn three() -> u8 {
    3
}

/// Reads an object.
pub(super) fn read(text: &str, profile: &mut Profile) -> Result<(), Wrong> {
    let file: File = serde_json::from_str(text).map_err(|error| {
        let help = if error.to_string().contains("missing field `intervals`") {
            ": a summary has no counts: read the .hlog in the same folder"
        } else {
            ""
        };
        (Some(error.line()), format!("{error}{help}"))
    })?;
    profile.has_unit = match file.unit.as_deref() {
        Some("ns") => true,
        None => false,
        Some(other) => return Err((None, format!("`unit` must be \"ns\" or null, got \"{other}\""))),
    };
    let mut reading = ProfileReader::new(profile);
    for one in file.histograms {
        if one.digits > Counts::MAX_DIGITS {
            return Err((None, format!("`digits` must be 0 to {}, got {}", Counts::MAX_DIGITS, one.digits)));
        }
        for Interval { begin_s, length_s, counts } in one.intervals {
            reading.add(&one.tag, begin_s, length_s, Counts::of(one.digits, counts)).map_err(|why| (None, why))?;
        }
    }
    Ok(())
}

/// The object of a profile.
pub(super) fn text(profile: &Profile) -> String {
    let histograms = profile.series.iter().map(|series| {
        let sum = series.sum();
        let at = |fraction| sum.quantile(fraction);
        let interval = |one: &ProfileInterval| Interval {
            begin_s: one.begin,
            length_s: one.length,
            counts: one.counts.iter().collect(),
        };
        One {
            tag: series.tag.clone(),
            digits: sum.digits(),
            sum: json!({
                "count": sum.len(), "mean": sum.mean(), "min": sum.min(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99),
                "p999": at(0.999), "max": sum.max(),
            }),
            intervals: series.intervals.iter().map(interval).collect(),
        }
    });
    let file = File { unit: profile.has_unit.then(|| "ns".into()), histograms: histograms.collect() };
    // Only text, finite numbers and lists of those: this cannot fail.
    plain_json(serde_json::to_string(&file).unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_reads_back_as_written() {
        let mut profile =
            Profile::from_text("a", "value_ns,count,tag,begin_s\n5,2,a.queue,1.5\n7000000,1,a.queue,2.5\n", None)
                .unwrap();
        let again = Profile::from_text("a", &text(&profile), None).unwrap();
        assert_eq!(profile, again);
        profile.has_unit = false;
        assert!(!Profile::from_text("a", &text(&profile), None).unwrap().has_unit);
    }

    #[test]
    fn malformed_objects_are_refused() {
        for (text, expected) in [
            ("{", "a:1: EOF"),
            ("{\"histograms\": 3}", "invalid type"),
            (
                "{\"histograms\": [{ \"tag\": \"a\", \"p50\": 3 }]}",
                "a summary has no counts: read the .hlog in the same folder",
            ),
            ("{\"unit\": \"ms\", \"histograms\": []}", "must be \"ns\" or null"),
            ("{\"histograms\": [{\"digits\": 9, \"intervals\": []}]}", "`digits` must be 0 to 5, got 9"),
            ("{\"histograms\": [{\"intervals\": [{\"counts\": [[-1, 2]]}]}]}", "invalid value"),
            ("{\"histograms\": [{\"intervals\": [{\"begin_s\": -5, \"counts\": []}]}]}", "invalid interval"),
        ] {
            let error = Profile::from_text("a", text, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = "{\"histograms\":".to_string() + &"[".repeat(100_000);
        assert!(Profile::from_text("a", &deep, None).is_err());
    }
}
