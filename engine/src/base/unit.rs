//! Quantities as a graph file writes them: `10ms`, `4MiB`, `30Hz`. Each has a unit.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

macro_rules! quantity {
    ($name:ident, $parse:path, $expect:literal, $pattern:literal) => {
        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text).map($name).ok_or_else(|| format!(concat!("expected ", $expect, ", found `{}`"), text))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expect)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

/// A duration, written `10ms`, `1.5s`, `20us`, `2h`. At most about 584 years.
///
/// ```
/// use limen::unit::Span;
/// let wait: Span = "1.5ms".parse().unwrap();
/// assert_eq!(wait.as_nanos(), 1_500_000);
/// assert!("1.5".parse::<Span>().is_err(), "the unit is missing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

quantity!(
    Span,
    parse_span,
    "a duration such as `10ms`",
    r"^\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d)(\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d))*\s*$"
);

impl Span {
    /// The time in nanoseconds, saturating.
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn parse_span(text: &str) -> Option<Duration> {
    // humantime reads `M` as months, which no graph file means.
    if text.contains('M') || !text.contains(char::is_alphabetic) {
        return None;
    }
    humantime::parse_duration(text).ok()
}

/// A signed duration in ns, written `3ms`, `+3ms`, `-250us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub i64);

quantity!(
    Offset,
    parse_offset,
    "a duration such as `-3ms`",
    r"^\s*[+-]?\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d)(\s*[0-9.]+\s*(ns|us|µs|ms|s|m|min|h|d))*\s*$"
);

fn parse_offset(text: &str) -> Option<i64> {
    let text = text.trim();
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let ns = i64::try_from(parse_span(rest)?.as_nanos()).ok()?;
    Some(if is_negative { -ns } else { ns })
}

/// A number of bytes, written `4096B`, `64KiB`, `4MiB`, `1GB`.
///
/// ```
/// use limen::unit::Bytes;
/// assert_eq!("4KiB".parse(), Ok(Bytes(4096)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

quantity!(Bytes, parse_bytes, "a size such as `4MiB`", r"^\s*[0-9.]+\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*$");

fn parse_bytes(text: &str) -> Option<u64> {
    // bytesize is lenient (`4m`, a bare number); the unit is checked here first.
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim();
    if !matches!(unit, "B" | "kB" | "KB" | "MB" | "GB" | "TB" | "KiB" | "MiB" | "GiB" | "TiB") {
        return None;
    }
    text.trim().parse::<bytesize::ByteSize>().ok().map(|b| b.as_u64())
}

/// Events per second, written `30Hz`, `4kHz`, `1.5MHz`; always above zero.
///
/// ```
/// use limen::unit::Rate;
/// let rate: Rate = "50Hz".parse().unwrap();
/// assert_eq!(rate.period_ns(), 20_000_000.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

quantity!(Rate, parse_rate, "a rate such as `30Hz`", r"^\s*[0-9.]+\s*(mHz|Hz|kHz|MHz)\s*$");

impl Rate {
    /// Returns the time between two events, in nanoseconds.
    pub fn period_ns(self) -> f64 {
        1e9 / self.0
    }
}

fn parse_rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let scale = match text[split..].trim() {
        "mHz" => 1e-3,
        "Hz" => 1.0,
        "kHz" => 1e3,
        "MHz" => 1e6,
        _ => return None,
    };
    let value = text[..split].parse::<f64>().ok()? * scale;
    // A lower rate would overflow the period; a higher one exceeds the clock's resolution.
    (1e-9..=1e9).contains(&value).then_some(value)
}

/// Formats a time for people: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn show_ns(ns: u64) -> String {
    let n = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three(n / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three(n / 1e6)),
        _ => format!("{} s", three(n / 1e9)),
    }
}

/// Formats a number of bytes for people: `512 B`, `64.0 KiB`, `1.50 MiB`.
pub fn show_bytes(bytes: u64) -> String {
    let b = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", three(b / 1024.0)),
        1_048_576..1_073_741_824 => format!("{} MiB", three(b / 1_048_576.0)),
        _ => format!("{} GiB", three(b / 1_073_741_824.0)),
    }
}

/// Formats with three significant digits below a thousand.
fn three(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_without_its_unit_is_refused() {
        let span = |t: &str| t.parse::<Span>().ok().map(Span::as_nanos);
        for (text, ns) in [
            ("10ms", Some(10_000_000)),
            ("1s 500ms", Some(1_500_000_000)),
            ("20us", Some(20_000)),
            ("10", None),
            ("-1s", None),
            ("1M", None),
            ("", None),
        ] {
            assert_eq!(span(text), ns, "{text}");
        }
        let bytes = |t: &str| t.parse::<Bytes>().ok().map(|b| b.0);
        for (text, n) in [
            ("4MiB", Some(4 << 20)),
            ("4096B", Some(4096)),
            ("1GB", Some(1_000_000_000)),
            ("4096", None),
            ("4m", None),
            ("4Mib", None),
            ("x", None),
        ] {
            assert_eq!(bytes(text), n, "{text}");
        }
        let rate = |t: &str| t.parse::<Rate>().ok().map(|r| r.0);
        for (text, hz) in [
            ("30Hz", Some(30.0)),
            ("4kHz", Some(4000.0)),
            ("30", None),
            ("0Hz", None),
            ("-3Hz", None),
            ("NaNHz", None),
            ("1e5Hz", None),
        ] {
            assert_eq!(rate(text), hz, "{text}");
        }
    }
}
