//! The conditions of `--fail-on` and `--fail`: a figure, a sign and a value, such as
//! `p99(camera->labels) > 1m 30s`.

use crate::old_names;
use limen::unit::Span;

const SIGNS: [char; 4] = ['<', '>', '=', '!'];

/// A condition in its parts. Which figures, signs and values there are is up to the option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Condition<'a> {
    /// A name, or a statistic of what the parentheses name.
    pub(crate) figure: &'a str,
    /// The text in parentheses, such as the tag of a histogram, which may be any text.
    pub(crate) of: Option<&'a str>,
    /// Empty if there is none.
    pub(crate) sign: &'a str,
    /// What follows the sign, or the figure.
    pub(crate) value: &'a str,
}

impl<'a> Condition<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let sign = text.find(SIGNS);
        let (figure, of, rest) = match (text.find('('), text.rfind(')')) {
            // A sign in parentheses belongs to the tag, and no value has parentheses.
            (Some(open), Some(close)) if open < close && sign.is_none_or(|sign| open < sign) => {
                (&text[..open], Some(text[open + 1..close].trim()), &text[close + 1..])
            }
            _ => {
                let end = sign.or_else(|| text.trim_end().find(char::is_whitespace)).unwrap_or(text.len());
                (&text[..end], None, &text[end..])
            }
        };
        let rest = rest.trim();
        let (sign, value) = rest.split_at(rest.len() - rest.trim_start_matches(SIGNS).len());
        Condition { figure: figure.trim(), of, sign, value: value.trim() }
    }
}

/// Returns the warning for a condition that has a deprecated name.
pub(crate) fn deprecation(condition: &str) -> Option<String> {
    let Condition { figure, of, .. } = Condition::new(condition);
    old_names::warning(figure, of)
}

/// The value of a condition; a finite number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// A number without a unit.
    Number(f64),
    /// Nanoseconds.
    Time(f64),
    /// `5%` is 0.05.
    Fraction(f64),
}

impl Amount {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        match text.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| Amount::Fraction(percent / 100.0)),
            None => number(text)
                .map(Amount::Number)
                .or_else(|| text.parse::<Span>().ok().map(|span| Amount::Time(span.as_nanos() as f64))),
        }
    }
}

/// Returns the fraction of a percentile: 0.999 for `p99.9`.
pub(crate) fn percentile(name: &str) -> Option<f64> {
    let percent: f64 =
        name.strip_prefix('p').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?.parse().ok()?;
    // 99.9 / 100 is not the number nearest to 0.999.
    (0.0 < percent && percent < 100.0).then_some((percent * 1e10).round() / 1e12)
}

/// Returns the name of a percentile: `p99.9` for 0.999.
pub(crate) fn percentile_name(fraction: f64) -> String {
    // 0.999 is not exactly 99.9 %.
    format!("p{}", (fraction * 1e11).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_divided_whatever_its_tag() {
        for (text, figure, of, sign, value) in [
            ("accuracy < 0.97", "accuracy", None, "<", "0.97"),
            (" lost>0 ", "lost", None, ">", "0"),
            ("p99( e2e )>= 1m 30s", "p99", Some("e2e"), ">=", "1m 30s"),
            ("p99(a->b)=+5%", "p99", Some("a->b"), "=", "+5%"),
            ("p50(a (b) < c) < 2ms", "p50", Some("a (b) < c"), "<", "2ms"),
            ("p50()", "p50", Some(""), "", ""),
            ("accuracy 0.97", "accuracy", None, "", "0.97"),
            ("a b < 3", "a b", None, "<", "3"),
            ("a < (3)", "a", None, "<", "(3)"),
            ("a) < 3", "a)", None, "<", "3"),
            ("p99(a < 3", "p99(a", None, "<", "3"),
            ("a => 3", "a", None, "=>", "3"),
            ("", "", None, "", ""),
        ] {
            assert_eq!(Condition::new(text), Condition { figure, of, sign, value }, "{text}");
        }
    }

    #[test]
    fn values_have_a_unit_or_none() {
        for (text, amount) in [
            ("-1e-3", Some(Amount::Number(-1e-3))),
            ("1m 30s", Some(Amount::Time(90e9))),
            ("2.5 %", Some(Amount::Fraction(0.025))),
            ("nan", None),
            ("inf%", None),
            ("1 parsec", None),
            ("", None),
        ] {
            assert_eq!(Amount::parse(text), amount, "{text}");
        }
    }

    #[test]
    fn percentiles_have_their_names() {
        for (name, fraction) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.999", 0.99999), ("p12.5", 0.125)]
        {
            assert_eq!((percentile(name), percentile_name(fraction).as_str()), (Some(fraction), name));
        }
        for name in ["p0", "p100", "pnan", "p+5", "99", "mean"] {
            assert_eq!(percentile(name), None, "{name}");
        }
    }

    #[test]
    fn deprecated_names_are_reported() {
        for (condition, expected) in [
            ("thinned > 0", Some("`thinned` is a deprecated name of `discarded`: write `discarded`")),
            ("p99(a.b.hold) > 1ms", Some("`hold` is a deprecated name of `wait`: write `wait`")),
            ("p99(labels.closure) = +5%", Some("`closure` is a deprecated name of `residual`: write `residual`")),
            ("discarded > 0", None),
            ("p99(hold.wait) > 1ms", None),
            ("a.thinned > 0", None),
        ] {
            assert_eq!(deprecation(condition).as_deref(), expected, "{condition}");
        }
    }
}
