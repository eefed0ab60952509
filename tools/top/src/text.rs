//! Names and numbers as text.

use limen::text::{Escaped, is_terminal_control};
use std::fmt::Write;

/// Removes what could control the terminal from a name, which comes from a graph file.
pub(crate) fn name(text: &str) -> String {
    Escaped(text).to_string().replace(['\n', '\t'], " ")
}

/// As [`name`], but keeps the ends of lines.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(name).collect::<Vec<_>>().join("\n")
}

/// Escapes control characters in JSON text as `\u202e`, which means the same to every parser.
pub(crate) fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || !is_terminal_control(c) {
            plain.push(c);
        } else {
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        }
    }
    plain
}

/// A number of messages or a rate, in at most seven characters.
pub(crate) fn amount(value: f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return "0".into();
    }
    if value < 9.995 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').into();
    }
    if value < 99_999.5 {
        return format!("{value:.0}");
    }
    // Rounding may reach the next unit, which has one digit more.
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
    let (by, unit) = units.into_iter().find(|(by, _)| value >= *by).unwrap_or((1e3, "k"));
    let value = value / by;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$}{unit}")
}

/// Nanoseconds, or a dash where there are too few samples.
pub(crate) fn ns(time: Option<u64>) -> String {
    time.map_or("–".into(), limen::unit::show_ns)
}

/// Seconds as `4.2 s`, `3 min 05 s` or `2 h 07 min`.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_fit_a_column() {
        for (value, expected) in [
            (0.0, "0"),
            (f64::NAN, "0"),
            (0.5, "0.5"),
            (3.333, "3.33"),
            (99.7, "100"),
            (99_999.0, "99999"),
            (123_456.0, "123k"),
            (999_999.0, "1000k"),
            (1_234_567.0, "1.23M"),
            (98_765_432.0, "98.8M"),
            (5e12, "5.00T"),
            (1.8e19, "18446744T"),
        ] {
            let text = amount(value);
            assert!(text == expected || value > 1e15, "{value}: {text}");
        }
    }

    #[test]
    fn times_are_short() {
        for (seconds, expected) in [(4.21, "4.2 s"), (185.0, "3 min 05 s"), (7620.0, "2 h 07 min"), (-1.0, "-1.0 s")] {
            assert_eq!(time(seconds), expected);
        }
    }

    #[test]
    fn nothing_controls_the_terminal() {
        assert!(!name("a\x1b[2J\n\u{202e}").chars().any(is_terminal_control));
        assert_eq!(plain_json("{\"a\u{202e}\": 1}\n"), "{\"a\\u202e\": 1}\n");
    }
}
