//! Numbers as text, for people and for programs.

use std::time::Duration;

/// `1 source`, `2 sources`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number; empty for 0.
pub(crate) fn if_some(n: u64) -> String {
    if n == 0 { String::new() } else { n.to_string() }
}

/// A part of a whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0 %".into(),
        // Never rounded to 0 or 100 %: one late message in a million matters.
        _ if percent < 0.01 => "< 0.01 %".into(),
        _ if part == whole => "100 %".into(),
        _ if percent > 99.9 => "> 99.9 %".into(),
        _ if percent < 10.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// A figure with four significant digits; an integer with all of its digits.
pub(crate) fn figure(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    let decimals = usize::try_from(digits.clamp(0, 12)).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Seconds, rounded to microseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.998, "0.998"),
            (7.9, "7.9"),
            (1.0 / 3.0, "0.3333"),
            (12345.678, "12346"),
            (800.0, "800"),
            (-0.5, "-0.5"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
