//! `--fail 'p99(camera->labels) = +5%'`: by how much a figure may get worse before the comparison
//! fails.
//!
//! As with `--fail-on`, a limit that cannot be judged trips.

use super::bootstrap::{MOST_RUNS, Stat};
use super::comparison::{Change, ChangeVerdict, Comparison, percent, shown};
use crate::old_names;
use crate::report::condition::{Amount, Condition, percentile, percentile_name};
use crate::report::gate::GateVerdict;
use crate::text::escape::one_line;
use std::fmt;
use std::str::FromStr;

/// By how much a figure may get worse.
///
/// ```
/// use limen_run::Limit;
/// assert!("p99(camera->labels) = +5%".parse::<Limit>().is_ok());
/// assert!("mean(digit.compute) = +200us".parse::<Limit>().is_ok());
/// let error = "p99(e2e) > 5%".parse::<Limit>().unwrap_err();
/// assert!(error.to_string().contains("expected `=`"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    text: String,
    stat: Stat,
    /// A tag, with or without `.e2e`; `e2e` for every path; empty for a histogram without a tag.
    of: String,
    /// A fraction or a time.
    allowed: Amount,
}

/// How many times wider than a limit the half of an interval may be: beyond, the runs cannot show
/// whether the limit is kept.
const WIDEST: f64 = 5.0;
/// A limit below this fraction counts as this fraction: no number of runs resolves a change of 0 %.
const FINEST: f64 = 0.02;

/// An error in a [`Limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError(String);

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LimitError {}

impl Stat {
    /// Returns the figure of a name such as `p99.9` or `mean`.
    pub fn named(name: &str) -> Option<Self> {
        if name == "mean" { Some(Stat::Mean) } else { percentile(name).map(Stat::Quantile) }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stat::Mean => f.write_str("mean"),
            Stat::Quantile(fraction) => f.write_str(&percentile_name(*fraction)),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let text = text.trim();
        let wrong = |why: String| LimitError(format!("{why}, as in `p99(camera->labels) = +5%`"));
        let Condition { figure, of: Some(of), sign, value } = Condition::new(text) else {
            return Err(wrong(format!("expected a figure of a histogram, `=` and a limit, found `{text}`")));
        };
        let Some(stat) = Stat::named(figure) else {
            let help = if figure == "max" { ": the maximum is one value, and differs from run to run" } else { "" };
            return Err(wrong(format!("expected `mean` or a percentile such as `p99.9`, found `{figure}`{help}")));
        };
        if sign != "=" {
            let found = format!("{sign} {value}");
            return Err(wrong(format!("expected `=` and a limit, found `{}`", found.trim())));
        }
        let allowed = Amount::parse(value.strip_prefix('+').unwrap_or(value).trim());
        match allowed {
            Some(allowed @ (Amount::Fraction(most) | Amount::Time(most))) if most >= 0.0 => {
                Ok(Limit { text: text.into(), stat, of: of.into(), allowed })
            }
            _ => Err(wrong(format!("expected a percentage such as `+5%` or a time such as `+2ms`, found `{value}`"))),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Limit {
    /// Returns the figure that a comparison needs for it.
    pub fn stat(&self) -> Stat {
        self.stat
    }

    /// Judges a comparison.
    ///
    /// The limit trips if the figure got worse by more than the limit, and by more than runs
    /// differ. It also trips if it cannot be judged: the hosts cannot be compared (unless
    /// `any_host`), a figure is missing, or the half of the 99 % interval is more than five times
    /// wider than the limit while its upper end exceeds the limit. A limit below 2 % counts as 2 %
    /// for that width.
    pub fn judge(&self, comparison: &Comparison, any_host: bool) -> GateVerdict {
        let verdict = |tripped, value, text: String| GateVerdict {
            gate: self.text.clone(),
            tripped,
            value,
            text: one_line(&text),
        };
        let not_judged = |why: &str| verdict(true, None, format!("{} cannot be judged: {why}", self.text));
        if let (Some(difference), false) = (comparison.hosts.iter().find(|d| d.is_decisive), any_host) {
            return not_judged(&format!("the hosts differ in {}: add --any-host to compare the runs", difference.what));
        }
        if comparison.base.len().min(comparison.new.len()) < 2 {
            return not_judged(
                "one run on a side does not show the noise between runs: compare at least three runs on each side",
            );
        }
        let all = comparison.base.len() + comparison.new.len();
        if let (Some(run), false) = (comparison.unknown_hosts.first(), any_host)
            && comparison.unknown_hosts.len() < all
        {
            return not_judged(&format!(
                "the host of {run} is unknown, but other hosts are known: add --any-host to compare the runs"
            ));
        }
        let is_meant = |tag: &str| match self.of.as_str() {
            "e2e" => tag == "e2e" || tag.ends_with(".e2e"),
            of => tag == of || tag.strip_suffix(".e2e") == Some(of) || tag == old_names::tag(of),
        };
        let meant: Vec<&Change> =
            comparison.changes.iter().filter(|c| c.stat == self.stat && is_meant(&c.tag)).collect();
        if let Some((tag, side)) = comparison.missing.iter().find(|(tag, _)| is_meant(tag)) {
            return not_judged(&format!("`{tag}` is only in {side}"));
        }
        if meant.is_empty() {
            let mut tags: Vec<&str> = comparison.changes.iter().map(|change| change.tag.as_str()).collect();
            tags.sort_unstable();
            tags.dedup();
            return not_judged(&format!("the runs have no such histogram; the histograms are: {}", tags.join(", ")));
        }
        let excess = |change: &Change| change.change - self.fraction_of(change.base);
        let one = |change: &Change| {
            if matches!(self.allowed, Amount::Time(_)) && (!comparison.has_unit || change.tag.ends_with(".batch")) {
                return not_judged(&format!(
                    "`{}` is not in units of time: write a percentage, or set the unit with --unit",
                    change.tag
                ));
            }
            let name = format!("{}({})", change.stat, change.tag);
            let figure = |x: f64| shown(x, comparison.has_unit, &change.tag);
            let by = format!(
                "{name} went from {} to {}, {} ({} to {})",
                figure(change.base),
                figure(change.new),
                percent(change.change),
                percent(change.low),
                percent(change.high),
            );
            let exceeds = excess(change) > 0.0;
            let runs = comparison.base.len().min(comparison.new.len());
            let needed = self.runs_needed(change, runs);
            match change.verdict {
                ChangeVerdict::Unknown => not_judged(&format!("{name}: {}", change.why)),
                ChangeVerdict::Higher if exceeds => {
                    verdict(true, Some(change.change), format!("{} is exceeded: {by}", self.text))
                }
                _ if needed.is_some() => not_judged(&format!("{by}; {}", needed.unwrap_or_default())),
                _ if exceeds => {
                    let text = format!("{} is exceeded, but not by more than noise: {by}", self.text);
                    verdict(false, Some(change.change), text)
                }
                _ => verdict(false, Some(change.change), format!("{} is kept: {by}", self.text)),
            }
        };
        // The worst of all paths.
        let rank = |v: &GateVerdict| (v.tripped, v.value.unwrap_or(f64::INFINITY));
        let worst = meant.iter().map(|change| one(change)).max_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        worst.unwrap_or_else(|| not_judged("the runs have no such histogram"))
    }

    /// The limit as a fraction of a figure.
    fn fraction_of(&self, base: f64) -> f64 {
        match self.allowed {
            Amount::Fraction(most) | Amount::Number(most) => most,
            Amount::Time(most) => most / base,
        }
    }

    /// How many runs a side would show a change as small as the limit, if these runs differ too
    /// much to judge it.
    fn runs_needed(&self, change: &Change, runs: usize) -> Option<String> {
        let most = self.fraction_of(change.base);
        let finest = most.max(FINEST);
        let half = (change.high.ln_1p() - change.low.ln_1p()) / 2.0;
        if change.high <= most || half <= (WIDEST * finest).ln_1p() {
            return None;
        }
        // The width of an interval falls with the square root of the number of runs.
        let needed = (runs as f64 * (half / finest.ln_1p()).powi(2)).ceil();
        let of = format!("a change of {}", percent(finest));
        Some(if needed <= MOST_RUNS as f64 {
            format!("the runs differ too much to show {of}: compare about {needed} runs a side")
        } else {
            format!(
                "the runs differ too much to show {of}: over {MOST_RUNS} runs a side are needed: use a quieter host or a higher limit"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_limits_are_parsed() {
        let percent = |x: f64| Amount::Fraction(x / 100.0);
        for (text, stat, of, allowed) in [
            ("p99(camera->labels) = +5%", Stat::Quantile(0.99), "camera->labels", percent(5.0)),
            (" p99.9( e2e )=2.5 % ", Stat::Quantile(0.999), "e2e", percent(2.5)),
            ("mean(digit.compute) = +2ms", Stat::Mean, "digit.compute", Amount::Time(2e6)),
            ("p50() = +0%", Stat::Quantile(0.5), "", percent(0.0)),
            ("p50(a (b)) = +0%", Stat::Quantile(0.5), "a (b)", percent(0.0)),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!((limit.stat, limit.of.as_str(), limit.allowed), (stat, of, allowed), "{text}");
            assert_eq!(limit.to_string(), text.trim());
        }
    }

    #[test]
    fn a_wrong_limit_names_what_was_expected() {
        for (text, expected) in [
            ("", "expected a figure of a histogram"),
            ("p99 = +5%", "expected a figure of a histogram"),
            ("e2e) = +5%", "found `e2e) = +5%`"),
            ("max(e2e) = +5%", "found `max`: the maximum is one value"),
            ("p100(e2e) = +5%", "found `p100`"),
            ("p0(e2e) = +5%", "found `p0`"),
            ("pnan(e2e) = +5%", "found `pnan`"),
            ("p99(e2e) > +5%", "expected `=` and a limit, found `> +5%`"),
            ("p99(e2e)", "expected `=` and a limit, found ``"),
            ("p99(e2e) = -5%", "found `-5%`"),
            ("p99(e2e) = 5", "found `5`"),
            ("p99(e2e) = inf%", "found `inf%`"),
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
