//! The comparison of two sides' runs: what got worse, by how much, and whether runs of one side
//! differ as much among themselves.

use super::bootstrap::{CONFIDENCE, Estimate, FEWEST_INTERVALS, MOST_RUNS, RunFigure, Stat, estimate, figures};
use super::host::{Host, HostDifference};
use super::{Profile, ProfileError};
use crate::report::gate::GateVerdict;
use crate::text::escape::{one_line, plain_json};
use crate::text::number::{count, figure};
use crate::text::paragraph::paragraph;
use crate::text::table::Table;
use fastrand::Rng;
use limen::unit::show_ns;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Whether a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// It is higher: slower, if it is a time.
    Higher,
    /// It is lower.
    Lower,
    /// It differs no more than runs of one side may.
    Noise,
    /// Nothing can be said.
    Unknown,
}

/// The change of a figure from the base to the new runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The histogram.
    pub tag: String,
    /// The figure.
    pub stat: Stat,
    /// Its value in the median run of the base; NaN if there is none.
    pub base: f64,
    /// Its value in the median new run.
    pub new: f64,
    /// The change from `base` to `new`, as a fraction of `base`.
    pub change: f64,
    /// The ends of the interval in which the true change is with a confidence of 99 %.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Whether it changed.
    pub verdict: ChangeVerdict,
    /// Why nothing can be said, if so.
    pub why: String,
}

/// A comparison of runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names of the runs of the base.
    pub base: Vec<String>,
    /// Names of the new runs.
    pub new: Vec<String>,
    /// Whether the values are nanoseconds, except where a tag ends in `.batch`.
    pub has_unit: bool,
    /// Changes: what got worse, the worst first; what is within noise; what got better; what is not
    /// known.
    pub changes: Vec<Change>,
    /// Histograms of one side only, and the name of the side.
    pub missing: Vec<(String, &'static str)>,
    /// In what the hosts differ.
    pub hosts: Vec<HostDifference>,
    /// Runs whose host is not known.
    pub unknown_hosts: Vec<String>,
    /// Whether the runs are of different graph files.
    pub graphs_differ: bool,
}

/// Draws of a comparison are always the same, so its result is too.
const SEED: u64 = 0x6c69_6d65_6e00;

impl Comparison {
    /// Compares figures of every histogram that both sides have.
    ///
    /// # Errors
    /// No run on one side; a run whose values have no known unit beside others that have one.
    pub fn new(base: &[Profile], new: &[Profile], stats: &[Stat]) -> Result<Self, ProfileError> {
        let all = || base.iter().chain(new);
        let has_unit = all().all(|profile| profile.has_unit);
        if let Some(odd) = all().find(|profile| !profile.has_unit).filter(|_| all().any(|profile| profile.has_unit)) {
            let why = "the values have no unit, but other runs have a unit: set the unit with --unit".into();
            return Err(ProfileError { path: odd.path.clone(), line: None, why });
        }
        if base.is_empty() || new.is_empty() {
            let (path, why) = (std::path::PathBuf::new(), "expected at least one run on each side, found none".into());
            return Err(ProfileError { path, line: None, why });
        }
        if base.len().max(new.len()) > MOST_RUNS {
            let (path, why) = (
                base[0].path.clone(),
                format!("expected at most {MOST_RUNS} runs on a side, found {}", base.len().max(new.len())),
            );
            return Err(ProfileError { path, line: None, why });
        }
        let mut rng = Rng::with_seed(SEED);
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for tag in all().flat_map(|profile| &profile.series).map(|series| &series.tag).filter(|tag| seen.insert(*tag)) {
            let is_in = |profiles: &[Profile]| profiles.iter().any(|profile| profile.series(tag).is_some());
            match (is_in(base), is_in(new)) {
                (true, true) => changes.extend(compare(tag, base, new, stats, &mut rng)),
                (true, false) => missing.push((tag.clone(), "the base")),
                _ => missing.push((tag.clone(), "the new runs")),
            }
        }
        let rank = |change: &Change| match change.verdict {
            ChangeVerdict::Higher => 0,
            ChangeVerdict::Noise => 1,
            ChangeVerdict::Lower => 2,
            ChangeVerdict::Unknown => 3,
        };
        changes.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.change.total_cmp(&a.change)));
        let hosts =
            |profiles: &'_ [Profile]| profiles.iter().filter_map(|profile| profile.host.clone()).collect::<Vec<_>>();
        let (base_hosts, new_hosts) = (hosts(base), hosts(new));
        let graphs: HashSet<&String> =
            base_hosts.iter().chain(&new_hosts).filter_map(|h| h.graph_fnv1a64.as_ref()).collect();
        let names = |profiles: &[Profile]| profiles.iter().map(|profile| one_line(&profile.name())).collect();
        Ok(Comparison {
            base: names(base),
            new: names(new),
            has_unit,
            changes,
            missing,
            hosts: Host::differences(&base_hosts.iter().collect::<Vec<_>>(), &new_hosts.iter().collect::<Vec<_>>()),
            unknown_hosts: all().filter(|profile| profile.host.is_none()).map(|p| one_line(&p.name())).collect(),
            graphs_differ: graphs.len() > 1,
        })
    }

    /// Returns the comparison as text for a terminal of 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (lead, names) in [("base: ", &self.base), ("new:  ", &self.new)] {
            let shown = match &names[..] {
                [one] => one.clone(),
                all => format!("{}: {}", count(all.len(), "run"), all.join(", ")),
            };
            paragraph(&mut text, lead, &shown);
        }
        self.notes(&mut text);
        let sections = [
            ("worse", ChangeVerdict::Higher),
            ("no change beyond noise", ChangeVerdict::Noise),
            ("better", ChangeVerdict::Lower),
        ];
        for (heading, verdict) in sections {
            let mut table = Table::new(["<histogram", "<", "base", "new", "change", "99 % interval"]);
            for change in self.changes.iter().filter(|change| change.verdict == verdict) {
                let figure = |x: f64| shown(x, self.has_unit, &change.tag);
                table.row([
                    named(&change.tag),
                    change.stat.to_string(),
                    figure(change.base),
                    figure(change.new),
                    percent(change.change),
                    format!("{} to {}", percent(change.low), percent(change.high)),
                ]);
            }
            if !table.is_empty() {
                text.push_str(&format!("\n{heading}:\n"));
                table.write(&mut text);
            }
        }
        let unknown: Vec<&Change> = self.changes.iter().filter(|c| c.verdict == ChangeVerdict::Unknown).collect();
        let mut reasons: Vec<&str> = unknown.iter().map(|change| change.why.as_str()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        for why in reasons {
            let all = unknown.iter().filter(|change| change.why == why);
            let all: Vec<String> = all.map(|change| format!("{} {}", named(&change.tag), change.stat)).collect();
            text.push('\n');
            paragraph(&mut text, "not judged: ", &format!("{}: {why}", all.join(", ")));
        }
        text
    }

    /// What a reader has to know about the runs.
    fn notes(&self, text: &mut String) {
        for difference in &self.hosts {
            let lead = if difference.is_decisive { "hosts differ: " } else { "note: " };
            let values =
                format!("{} {}, new {}", difference.what, difference.base.join(" | "), difference.new.join(" | "));
            paragraph(text, lead, &values);
        }
        if self.graphs_differ {
            paragraph(text, "note: ", "the runs are of different graph files");
        }
        if !self.unknown_hosts.is_empty() {
            let all = self.unknown_hosts.len() == self.base.len() + self.new.len();
            let which = if all { "all runs".into() } else { self.unknown_hosts.join(", ") };
            paragraph(text, "note: ", &format!("no run.json names the host of {which}"));
        }
        if self.base.len() == 1 || self.new.len() == 1 {
            let why = "a single run does not show the noise between runs: compare at least three runs of each side, \
                       interleaved";
            paragraph(text, "note: ", why);
        }
        for side in ["the base", "the new runs"] {
            let tags: Vec<String> =
                self.missing.iter().filter(|(_, its)| *its == side).map(|(tag, _)| named(tag)).collect();
            if !tags.is_empty() {
                paragraph(text, "note: ", &format!("only in {side}: {}", tags.join(", ")));
            }
        }
    }

    /// Returns the comparison and the verdicts on its limits as one JSON object with a final
    /// newline.
    pub fn json(&self, verdicts: &[GateVerdict]) -> String {
        let number = |x: f64| if x.is_finite() { json!(x) } else { Value::Null };
        let changes = self.changes.iter().map(|change| {
            let verdict = match change.verdict {
                ChangeVerdict::Higher => "worse",
                ChangeVerdict::Lower => "better",
                ChangeVerdict::Noise => "noise",
                ChangeVerdict::Unknown => "unknown",
            };
            json!({
                "tag": change.tag, "figure": change.stat.to_string(), "base": number(change.base), "new": number(change.new),
                "change": number(change.change), "low": number(change.low), "high": number(change.high), "verdict": verdict,
                "why": change.why,
            })
        });
        let hosts = self
            .hosts
            .iter()
            .map(|d| json!({ "what": d.what, "base": d.base, "new": d.new, "decisive": d.is_decisive }));
        let missing = self.missing.iter().map(|(tag, side)| json!({ "tag": tag, "only_in": side }));
        let gates =
            verdicts.iter().map(|v| json!({ "gate": v.gate, "tripped": v.tripped, "value": v.value, "text": v.text }));
        let object = json!({
            "base": self.base, "new": self.new, "unit": self.has_unit.then_some("ns"), "confidence": CONFIDENCE,
            "changes": changes.collect::<Vec<_>>(), "missing": missing.collect::<Vec<_>>(), "hosts": hosts.collect::<Vec<_>>(),
            "unknown_hosts": self.unknown_hosts, "graphs_differ": self.graphs_differ,
            "gates": gates.collect::<Vec<_>>(),
        });
        plain_json(format!("{object:#}\n"))
    }
}

/// Compares the figures of one histogram.
fn compare(tag: &str, base: &[Profile], new: &[Profile], stats: &[Stat], rng: &mut Rng) -> Vec<Change> {
    let mut side = |profiles: &[Profile]| -> Vec<Vec<Option<RunFigure>>> {
        let intervals = |profile: &Profile| profile.series(tag).map_or(Vec::new(), |series| series.intervals.clone());
        profiles.iter().map(|profile| figures(&intervals(profile), stats, rng)).collect()
    };
    let is_time = base.iter().chain(new).all(|profile| profile.has_unit) && !tag.ends_with(".batch");
    let (base, new) = (side(base), side(new));
    let one = |(at, stat): (usize, &Stat)| {
        let known =
            |side: &[Vec<Option<RunFigure>>]| side.iter().map(|run| run[at].clone()).collect::<Option<Vec<_>>>();
        let unknown = |why: String| Change {
            tag: tag.into(),
            stat: *stat,
            base: f64::NAN,
            new: f64::NAN,
            change: f64::NAN,
            low: f64::NAN,
            high: f64::NAN,
            verdict: ChangeVerdict::Unknown,
            why,
        };
        let (Some(base), Some(new)) = (known(&base), known(&new)) else {
            return unknown("fewer than ten values of a run lie beyond this figure".into());
        };
        let Some(found) = estimate(&base, &new, rng) else {
            return unknown(format!(
                "a single run needs {FEWEST_INTERVALS} intervals to show its noise: compare several runs"
            ));
        };
        // Most messages wait for nothing, before as after.
        let is_nothing = is_time && found.base <= 1.0 && found.new <= 1.0;
        let found = if is_nothing { Estimate { base: 0.0, new: 0.0, change: 0.0, low: 0.0, high: 0.0 } } else { found };
        let verdict = match () {
            () if found.low > 0.0 => ChangeVerdict::Higher,
            () if found.high < 0.0 => ChangeVerdict::Lower,
            () => ChangeVerdict::Noise,
        };
        Change {
            tag: tag.into(),
            stat: *stat,
            base: found.base,
            new: found.new,
            change: found.change,
            low: found.low,
            high: found.high,
            verdict,
            why: String::new(),
        }
    };
    stats.iter().enumerate().map(one).collect()
}

/// A tag for people: most histograms of other programs have none.
pub(super) fn named(tag: &str) -> String {
    if tag.is_empty() { "(no tag)".into() } else { one_line(tag.strip_suffix(".e2e").unwrap_or(tag)) }
}

/// A value of a histogram for people.
pub(super) fn shown(value: f64, has_unit: bool, tag: &str) -> String {
    match () {
        () if value.is_nan() => "–".into(),
        () if has_unit && !tag.ends_with(".batch") => show_ns(value.round() as u64),
        () => figure(value),
    }
}

/// A change for people.
pub(super) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent.abs() {
        nan if nan.is_nan() => "–".into(),
        // Less than this is `0.0`, without a sign.
        small if small < 0.05 => "0.0 %".into(),
        // Beyond this, only the order matters, and a column has its width.
        _ if fraction > 9999.0 => "> +9999 x".into(),
        large if large >= 1000.0 => format!("{:+.0} x", fraction),
        _ => format!("{percent:+.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ProfileInterval, Series};
    use crate::text::paragraph::WIDTH;
    use limen::report::Counts;

    /// A run of 20 intervals of 600 values around `centre`.
    fn run(name: &str, tag: &str, centre: u64, seed: u64) -> Profile {
        let mut rng = Rng::with_seed(seed);
        let intervals = (0..20).map(|at| {
            let values = (0..600).map(|_| (centre + rng.u64(..centre / 20 + 1), 1)).collect();
            ProfileInterval { begin: f64::from(at), length: 1.0, counts: Counts::of(3, values) }
        });
        let series = vec![Series { tag: tag.into(), intervals: intervals.collect() }];
        Profile { path: format!("{name}/g.hlog").into(), has_unit: true, series, host: Some(Host::default()) }
    }

    fn side(tag: &str, centre: u64, first: u64) -> Vec<Profile> {
        (0..3).map(|n| run(&format!("run-{n}"), tag, centre, first + n)).collect()
    }

    const STATS: [Stat; 2] = [Stat::Quantile(0.5), Stat::Quantile(0.99)];

    #[test]
    fn limits_are_judged() {
        let (base, slower) = (side("a->b.e2e", 1_000_000, 1), side("a->b.e2e", 1_100_000, 10));
        let same = side("a->b.e2e", 1_000_000, 20);
        for (new, limit, tripped, words) in [
            (&slower, "p99(a->b) = +5%", true, "is exceeded: p99(a->b.e2e) went from 1.05 ms to 1.16 ms, +10"),
            (&slower, "p50(e2e) = +50us", true, "is exceeded"),
            (&slower, "p50(a->b.e2e) = +20%", false, "is kept"),
            (&slower, "p50(e2e) = +1ms", false, "is kept"),
            (&same, "p99(a->b) = +5%", false, "is kept"),
            (&same, "p99(a->b) = +0%", false, ""),
            (
                &same,
                "p99(b->a) = +5%",
                true,
                "cannot be judged: the runs have no such histogram; the histograms are: a->b.e2e",
            ),
            (&same, "p99.9(a->b) = +5%", true, "cannot be judged: the runs have no such histogram"),
        ] {
            let comparison = Comparison::new(&base, new, &STATS).unwrap();
            let verdict = limit.parse::<super::super::limit::Limit>().unwrap().judge(&comparison, false);
            assert_eq!(verdict.tripped, tripped, "{}", verdict.text);
            assert!(verdict.text.contains(words), "{}", verdict.text);
        }
    }

    #[test]
    fn a_limit_far_finer_than_the_noise_cannot_be_judged() {
        let side = |centres: [u64; 3], first: u64| -> Vec<Profile> {
            (first..)
                .zip(centres)
                .map(|(seed, centre)| run("r", "camera->command.e2e", centre * 10_000, seed))
                .collect()
        };
        let (noisy, noisy_new) = (side([604, 658, 7470], 1), side([623, 5790, 7250], 10));
        let wide = side([1000, 1100, 1200], 1);
        for (base, new, limit, words) in [
            (&noisy, &noisy_new, "p99(camera->command) = +5%", "over 100 runs a side are needed"),
            (&noisy, &noisy_new, "p99(e2e) = +1us", "cannot be judged"),
            (&noisy_new, &noisy, "p99(e2e) = +5%", "cannot be judged"),
            (&wide, &wide, "p99(e2e) = +7.5%", "too much to show a change of +7.5 %: compare about 9"),
        ] {
            let comparison = Comparison::new(base, new, &STATS).unwrap();
            let verdict = limit.parse::<super::super::limit::Limit>().unwrap().judge(&comparison, false);
            assert!(verdict.tripped && verdict.text.contains("cannot be judged"), "{}", verdict.text);
            assert!(verdict.text.contains(words), "{}", verdict.text);
            for change in &comparison.changes {
                let shown = change.new / change.base - 1.0;
                assert!((change.change - shown).abs() < 1e-6 * (1.0 + shown.abs()), "{change:?}");
            }
        }
        // A limit that even these runs can judge.
        let comparison = Comparison::new(&wide, &wide, &STATS).unwrap();
        let limit: super::super::limit::Limit = "p99(e2e) = +50%".parse().unwrap();
        assert!(!limit.judge(&comparison, false).tripped);
    }

    /// Runs of 1,200 latencies with an exponential tail. The medians of runs have a standard
    /// deviation of 4 %.
    #[test]
    fn five_runs_a_side_find_30_percent_and_rarely_raise_a_false_alarm() {
        fn run(centre: f64, rng: &mut Rng) -> Profile {
            let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
            let centre = centre * (0.04 * normal).exp();
            let mut interval = |at: u8| {
                let values = (0..300).map(|_| ((centre * (1.0 - 0.1 * (1.0 - rng.f64()).ln())) as u64, 1)).collect();
                ProfileInterval { begin: f64::from(at), length: 1.0, counts: Counts::of(3, values) }
            };
            let series = vec![Series { tag: "a->b.e2e".into(), intervals: (0..4).map(&mut interval).collect() }];
            Profile { path: "r/g.hlog".into(), has_unit: true, series, host: Some(Host::default()) }
        }
        let limit: super::super::limit::Limit = "p99(e2e) = +5%".parse().unwrap();
        let tripped = |factor: f64| {
            let trial = |seed: &u64| {
                let mut rng = Rng::with_seed(*seed);
                let mut side = |centre: f64| (0..5).map(|_| run(centre, &mut rng)).collect::<Vec<_>>();
                let (base, new) = (side(1e6), side(1e6 * factor));
                let comparison = Comparison::new(&base, &new, &[limit.stat()]).unwrap();
                let verdict = limit.judge(&comparison, false);
                // An alarm for lack of runs is no finding.
                verdict.tripped && (factor <= 1.0 || verdict.text.contains("is exceeded"))
            };
            (0..100).filter(trial).count()
        };
        let (found, false_alarms) = (tripped(1.3), tripped(1.0));
        assert!(found >= 95, "found {found} of 100");
        assert!(false_alarms <= 5, "{false_alarms} false alarms of 100");
    }

    #[test]
    fn the_text_of_a_change_has_a_bounded_width() {
        for (fraction, text) in [
            (0.05, "+5.0 %"),
            (7.8, "+780.0 %"),
            (397.0, "+397 x"),
            (10_820_815.0, "> +9999 x"),
            (f64::INFINITY, "> +9999 x"),
            (-1.0, "-100.0 %"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(percent(fraction), text);
        }
    }

    #[test]
    fn hosts_that_differ_are_judged_only_when_asked() {
        let (base, mut new) = (side("a->b.e2e", 1_000_000, 1), side("a->b.e2e", 1_000_000, 10));
        new[1].host.as_mut().unwrap().cpu = Some("other".into());
        let comparison = Comparison::new(&base, &new, &STATS).unwrap();
        let limit: super::super::limit::Limit = "p99(e2e) = +5%".parse().unwrap();
        let verdict = limit.judge(&comparison, false);
        assert!(
            verdict.tripped && verdict.text.contains("the hosts differ in CPU: add --any-host"),
            "{}",
            verdict.text
        );
        assert!(!limit.judge(&comparison, true).tripped);
        assert!(
            comparison.text().contains("hosts differ: CPU not known, new not known | other"),
            "{}",
            comparison.text()
        );
    }

    #[test]
    fn what_got_worse_comes_first() {
        let join = |mut left: Vec<Profile>, right: Vec<Profile>| {
            left.iter_mut().zip(right).for_each(|(left, right)| left.series.extend(right.series));
            left
        };
        let base = join(
            join(side("same.queue", 500, 1), side("better.compute", 70_000, 4)),
            side("worse.compute", 9_000_000, 7),
        );
        let base = join(base, side("gone.batch", 8, 7));
        let new = join(
            join(side("same.queue", 500, 11), side("better.compute", 50_000, 14)),
            side("worse.compute", 11_000_000, 17),
        );
        let comparison = Comparison::new(&base, &new, &STATS).unwrap();
        let order: Vec<(&str, ChangeVerdict)> =
            comparison.changes.iter().map(|c| (c.tag.as_str(), c.verdict)).collect();
        let expected = [
            ("worse.compute", ChangeVerdict::Higher),
            ("worse.compute", ChangeVerdict::Higher),
            ("same.queue", ChangeVerdict::Noise),
            ("same.queue", ChangeVerdict::Noise),
            ("better.compute", ChangeVerdict::Lower),
            ("better.compute", ChangeVerdict::Lower),
        ];
        assert_eq!(order, expected);
        let text = comparison.text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("only in the base: gone.batch"), "{text}");
        let json: Value = serde_json::from_str(&comparison.json(&[])).unwrap();
        assert_eq!(json["changes"][0]["verdict"], "worse");
        assert_eq!(comparison.json(&[]), Comparison::new(&base, &new, &STATS).unwrap().json(&[]), "the same draws");
    }

    #[test]
    fn nothing_stays_nothing() {
        let (mut base, mut new) = (side("a.queue", 0, 1), side("a.queue", 0, 9));
        base.iter_mut().chain(&mut new).for_each(|run| run.series[0].intervals.truncate(5));
        let comparison = Comparison::new(&base, &new, &STATS).unwrap();
        let change = &comparison.changes[0];
        assert_eq!((change.base, change.high, change.verdict), (0.0, 0.0, ChangeVerdict::Noise));
        assert!(comparison.text().contains("0 ns  0 ns   0.0 %  0.0 % to 0.0 %"), "{}", comparison.text());
    }

    #[test]
    fn one_run_a_side_is_compared_with_a_note() {
        let (base, new) = (run("a", "n.compute", 1_000_000, 1), run("b", "n.compute", 1_200_000, 2));
        let comparison = Comparison::new(std::slice::from_ref(&base), &[new], &STATS).unwrap();
        assert!(comparison.changes.iter().all(|change| change.verdict == ChangeVerdict::Higher));
        assert!(comparison.text().contains("a single run does not show"));
        let mut short = base.clone();
        short.series[0].intervals.truncate(3);
        let comparison = Comparison::new(&[base], &[short], &STATS).unwrap();
        assert!(comparison.changes.iter().all(|change| change.verdict == ChangeVerdict::Unknown));
        assert!(
            comparison.text().contains("not judged: n.compute p50, n.compute p99: a single run needs"),
            "{}",
            comparison.text()
        );
    }
}
