//! `--fail-on`: a condition on the report that fails the run.
//!
//! An expression is `FIGURE OP VALUE`. It is parsed before the run, so that a typo costs nothing,
//! and judged after it. A gate that cannot be judged (an unknown figure, one that is not a number,
//! too few samples for a quantile) trips: a check that silently checks nothing is worse than none.

mod expression;

pub use expression::GateError;

use crate::text::escape::one_line;
use expression::{Expression, Figure, Of, Op, Stat};
use limen::unit::show_ns;
use limen::{Plan, Report};
use std::fmt;
use std::str::FromStr;

/// One `--fail-on` expression.
///
/// ```
/// use limen_run::Gate;
/// assert!("accuracy < 0.97".parse::<Gate>().is_ok());
/// assert!("p99(camera->labels) > 20ms".parse::<Gate>().is_ok());
/// let error = "p99(e2e) >> 20ms".parse::<Gate>().unwrap_err();
/// assert!(error.to_string().contains("expected one of < <= > >= == !="));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    text: String,
    figure: Figure,
    op: Op,
    value: f64,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let Expression { figure, op, value } = Expression::parse(text.trim())?;
        Ok(Gate { text: text.trim().into(), figure, op, value })
    }
}

/// The result of a gate.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct GateVerdict {
    /// The expression.
    pub gate: String,
    /// Whether the gate fails the run.
    pub tripped: bool,
    /// The value of the figure, if it is known.
    pub value: Option<f64>,
    /// The result in words: `accuracy < 0.97 holds (accuracy is 0.95)`.
    pub text: String,
}

impl Gate {
    /// Checks that the graph has the nodes that the expression names.
    ///
    /// # Errors
    /// [`GateError::NoNode`] if it has not.
    pub fn check(&self, plan: &Plan) -> Result<(), GateError> {
        let Figure::Recorded { of, .. } = &self.figure else { return Ok(()) };
        let named: Vec<&String> = match of {
            Of::EveryPath => Vec::new(),
            Of::Path(from, to) => vec![from, to],
            Of::Term(node, _) => vec![node],
        };
        match named.into_iter().find(|name| plan.nodes().iter().all(|n| n.name != **name)) {
            None => Ok(()),
            Some(name) => {
                let nodes = plan.nodes().iter().map(|n| n.name.clone()).collect();
                Err(GateError::NoNode { found: name.clone(), nodes })
            }
        }
    }

    /// Evaluates the expression on the report of a run.
    pub fn judge(&self, report: &Report) -> GateVerdict {
        let verdict = |tripped, value, text: String| GateVerdict { gate: self.text.clone(), tripped, value, text };
        match self.look_up(report) {
            Err(why) => verdict(true, None, format!("{} cannot be judged: {why}", self.text)),
            Ok(value) if value.is_nan() => {
                let text = format!("{} cannot be judged: {} is not a number", self.text, self.figure);
                verdict(true, Some(value), text)
            }
            Ok(value) => {
                let holds = self.op.holds(value, self.value);
                let shown = if self.figure.is_time() { show_ns(value as u64) } else { value.to_string() };
                let word = if holds { "holds" } else { "does not hold" };
                verdict(holds, Some(value), format!("{} {word} ({} is {shown})", self.text, self.figure))
            }
        }
    }

    fn look_up(&self, report: &Report) -> Result<f64, String> {
        let (stat, of) = match &self.figure {
            Figure::Metric(name) => return report.metric(name).ok_or_else(|| unknown(name, report)),
            Figure::Recorded { stat, of } => (*stat, of),
        };
        let found: Vec<_> = match of {
            Of::EveryPath => report.paths().map(|(_, _, recorded)| recorded).collect(),
            Of::Path(from, to) => {
                report.paths().filter(|(f, t, _)| f == from && t == to).map(|(_, _, recorded)| recorded).collect()
            }
            Of::Term(node, term) => report.histogram(node, *term).into_iter().collect(),
        };
        let mut worst = None;
        for recorded in found {
            let value = match stat {
                Stat::Max => recorded.histogram.max(),
                Stat::Quantile(q) => recorded.quantile(q).ok_or_else(|| {
                    let needed = (10.0 / (1.0 - q)).round();
                    format!("expected {needed} samples for {stat}, found {}", recorded.samples)
                })?,
            };
            worst = worst.max(Some(value));
        }
        let recorded = || report.histograms.iter().map(|h| one_line(&h.tag())).collect::<Vec<_>>().join(", ");
        worst.map(|value| value as f64).ok_or_else(|| match recorded().as_str() {
            "" => "nothing was recorded".into(),
            all => format!("the figure was not recorded (recorded histograms: {all})"),
        })
    }
}

/// The message for an unknown or ambiguous figure, with the known ones.
fn unknown(name: &str, report: &Report) -> String {
    let metrics = report.nodes.iter().flat_map(|n| n.metrics.iter().map(|(metric, _)| format!("{}.{metric}", n.name)));
    let lost = report.losses().into_keys().map(|reason| format!("lost.{reason}"));
    let all = ["lost", "discarded", "left", "failed"].map(String::from).into_iter().chain(lost);
    let all: Vec<String> = all.chain(metrics).collect();
    let several = all.iter().filter(|full| full.strip_suffix(name).is_some_and(|node| node.ends_with('.'))).count() > 1;
    let why = if several { "several nodes have the figure" } else { "the report has no figure" };
    one_line(&format!("{why} `{name}`; the figures are: {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_report;
    use limen::report::Term;

    fn parse(text: &str) -> Result<(Figure, Op, f64), GateError> {
        text.parse::<Gate>().map(|gate| (gate.figure, gate.op, gate.value))
    }

    #[test]
    fn valid_expressions_are_parsed() {
        let metric = |name: &str| Figure::Metric(name.into());
        let of = |stat, of| Figure::Recorded { stat, of };
        let p99 = Stat::Quantile(0.99);
        for (text, figure, op, value) in [
            ("accuracy < 0.97", metric("accuracy"), Op::Less, 0.97),
            (" score.accuracy<=1 ", metric("score.accuracy"), Op::LessOrEqual, 1.0),
            ("lost>0", metric("lost"), Op::Greater, 0.0),
            ("failed != 0", metric("failed"), Op::Different, 0.0),
            ("net-2.accuracy == -1e-3", metric("net-2.accuracy"), Op::Equal, -1e-3),
            ("p99(e2e) > 20ms", of(p99, Of::EveryPath), Op::Greater, 20e6),
            ("p95(e2e) > 1m 30s", of(Stat::Quantile(0.95), Of::EveryPath), Op::Greater, 90e9),
            ("p99.9( e2e )>=1.5s", of(Stat::Quantile(0.999), Of::EveryPath), Op::GreaterOrEqual, 1.5e9),
            ("max(digit.compute) > 900ns", of(Stat::Max, Of::Term("digit".into(), Term::Compute)), Op::Greater, 900.0),
            (
                "max(left.digit.compute) > 1ns",
                of(Stat::Max, Of::Term("left.digit".into(), Term::Compute)),
                Op::Greater,
                1.0,
            ),
            ("p50(digit.batch) < 2", of(Stat::Quantile(0.5), Of::Term("digit".into(), Term::Batch)), Op::Less, 2.0),
            ("p99(a->b) > 1us", of(p99, Of::Path("a".into(), "b".into())), Op::Greater, 1e3),
            ("p99(a -> b.e2e) > 1us", of(p99, Of::Path("a".into(), "b".into())), Op::Greater, 1e3),
        ] {
            assert_eq!(parse(text), Ok((figure, op, value)), "{text}");
        }
    }

    #[test]
    fn a_wrong_expression_names_what_was_expected() {
        for (text, expected) in [
            ("", "expected a figure"),
            ("< 3", "expected a figure"),
            ("accuracy", "expected one of < <= > >= == != and a value"),
            ("accuracy 0.97", "expected one of < <= > >= == !=, found `0.97`"),
            ("accuracy = 0.97", "found `=`"),
            ("accuracy => 0.97", "found `=>`"),
            ("accuracy <", "a number or a time such as `20ms` after the comparison, found ``"),
            ("accuracy < high", "found `high`"),
            ("accuracy < nan", "found `nan`"),
            ("accuracy < inf", "found `inf`"),
            ("accuracy < 20ms", "`accuracy` is a number without a unit"),
            ("p50(digit.batch) < 20ms", "is a number without a unit"),
            ("p100(e2e) > 1ms", "expected `max` or a percentile such as `p99.9` before the parenthesis, found `p100`"),
            ("mean(e2e) > 1ms", "before the parenthesis, found `mean`"),
            ("(e2e) > 1ms", "before the parenthesis, found ``"),
            ("accuracy < 5%", "found `5%`"),
            ("p99(e2e > 20ms", "expected a figure"),
            ("p99() > 20ms", "expected `e2e`, `source->sink` or `node.term`"),
            ("p99(digit) > 20ms", "found `digit`"),
            ("p99(digit.time) > 20ms", "the terms are: source queue wait"),
            ("p99(->b) > 20ms", "found `->b`"),
            ("p99(e2e) > 20 parsecs", "found `20 parsecs`"),
            ("p99(e2e) > 20", "`p99(e2e)` is a time: write a unit after 20, such as `20ms`"),
            ("a b < 3", "expected a figure"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn verdicts_name_the_figure_and_its_value() {
        let report = test_report::report();
        for (text, tripped, words) in [
            ("accuracy < 0.999", true, "accuracy < 0.999 holds (accuracy is 0.998)"),
            ("score.accuracy < 0.97", false, "does not hold (score.accuracy is 0.998)"),
            ("lost > 0", false, "lost > 0 does not hold (lost is 0)"),
            ("discarded == 40", true, "discarded == 40 holds (discarded is 40)"),
            ("p50(e2e) > 10ms", false, "does not hold (p50(e2e) is 2.5"),
            ("max(camera->labels) > 4ms", true, "holds (max(camera->labels) is 5.00 ms)"),
            ("p99(digit.compute) > 1ms", true, "cannot be judged: expected 1000 samples for p99, found 100"),
            (
                "max(digit.wait) > 1ms",
                true,
                "the figure was not recorded (recorded histograms: digit.queue, digit.compute, ",
            ),
            (
                "speed < 1",
                true,
                "the report has no figure `speed`; the figures are: lost, discarded, left, failed, digit.mean_batch, score.accuracy",
            ),
            ("odd < 1", true, "cannot be judged: odd is not a number"),
        ] {
            let verdict = text.parse::<Gate>().unwrap().judge(&report);
            assert_eq!(verdict.tripped, tripped, "{text}");
            assert!(verdict.text.contains(words), "{text}: {}", verdict.text);
        }
    }

    /// `lost` includes the losses of nodes, and there is a figure for each reason.
    #[test]
    fn losses_have_a_total_and_a_figure_for_each_reason() {
        let mut report = test_report::report();
        report.nodes[0].metrics.lost("overrun", 7);
        report.nodes[3].metrics.lost("unwritten", 2);
        report.nodes[2].metrics.lost("unwritten", 3);
        report.nodes[3].metrics.lost("full", 0);
        report.edges[1].lost.push((limen::report::Reason::FullNewest, 1));
        for (text, tripped, words) in [
            ("lost > 0", true, "holds (lost is 13)"),
            ("lost.overrun > 0", true, "holds (lost.overrun is 7)"),
            ("lost.unwritten > 5", false, "does not hold (lost.unwritten is 5)"),
            ("lost.full_newest > 0", true, "holds (lost.full_newest is 1)"),
            ("lost.full > 0", false, "does not hold (lost.full is 0)"),
            // Every reason of an edge is known, lost or discarded.
            ("lost.expired > 0", false, "does not hold (lost.expired is 0)"),
            ("lost.superseded > 0", false, "does not hold (lost.superseded is 0)"),
            (
                "lost.overun > 0",
                true,
                "cannot be judged: the report has no figure `lost.overun`; the figures are: lost, discarded, left, failed, lost.full,",
            ),
        ] {
            let verdict = text.parse::<Gate>().unwrap().judge(&report);
            assert_eq!(verdict.tripped, tripped, "{text}");
            assert!(verdict.text.contains(words), "{text}: {}", verdict.text);
        }
        assert!(report.is_degraded());
    }

    #[test]
    fn e2e_is_that_of_the_worst_path() {
        let mut report = test_report::report();
        let mut second = report.histograms.iter().find(|h| h.to.is_some()).cloned().unwrap();
        second.to = Some("alarm".into());
        second.recorded.histogram.record(30_000_000, 1);
        report.histograms.insert(0, second);
        let verdict = "max(e2e) > 29ms".parse::<Gate>().unwrap().judge(&report);
        assert!(verdict.tripped, "{}", verdict.text);
    }
}
