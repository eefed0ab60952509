//! The grammar of `--fail-on`, `FIGURE OP VALUE`, and its errors.

use crate::old_names;
use crate::report::condition::{Amount, Condition, percentile, percentile_name};
use limen::report::Term;
use std::fmt;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expression {
    pub(super) figure: Figure,
    pub(super) op: Op,
    pub(super) value: f64,
}

/// The left side of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figure {
    /// A figure that [`Report::metric`] knows.
    Metric(String),
    /// A statistic of the histograms `of` something, in their unit.
    Recorded { stat: Stat, of: Of },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stat {
    Quantile(f64),
    Max,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Of {
    EveryPath,
    Path(String, String),
    Term(String, Term),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Different,
}

const OPS: [(&str, Op); 6] = [
    // `<=` before `<`, its prefix.
    ("<=", Op::LessOrEqual),
    (">=", Op::GreaterOrEqual),
    ("==", Op::Equal),
    ("!=", Op::Different),
    ("<", Op::Less),
    (">", Op::Greater),
];

const TERMS: [Term; 13] = [
    Term::Source,
    Term::Queue,
    Term::Wait,
    Term::BatchWait,
    Term::Blocked,
    Term::Compute,
    Term::Emit,
    Term::Residual,
    Term::Batch,
    Term::Skew,
    Term::Upload,
    Term::Kernel,
    Term::Download,
];

/// An error in a `--fail-on` expression.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// There is no figure before the operator.
    NoFigure,
    /// There is no operator after the figure.
    NoOperator {
        /// The text found there.
        found: String,
    },
    /// There is no value after the operator.
    NoValue {
        /// The text found there.
        found: String,
    },
    /// A figure without a unit is compared with a time.
    TimeForNumber {
        /// The figure, as written in the expression.
        figure: String,
    },
    /// A number compared with a time.
    NumberForTime {
        /// The figure, as written in the expression.
        figure: String,
        /// The number, as written in the expression.
        number: String,
    },
    /// `name(..)` where `name` is not a statistic.
    NoStatistic {
        /// The name.
        found: String,
    },
    /// `p99(..)` of something that is not recorded.
    NoSubject {
        /// The text in the parentheses.
        found: String,
    },
    /// A node that the graph does not have.
    NoNode {
        /// Its name.
        found: String,
        /// The nodes of the graph.
        nodes: Vec<String>,
    },
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FIGURES: &str =
            "a figure such as `accuracy`, `score.accuracy`, `lost`, `discarded`, `left`, `failed` or `p99(e2e)`";
        match self {
            GateError::NoFigure => write!(f, "expected {FIGURES} before the comparison"),
            GateError::NoOperator { found } if found.is_empty() => {
                write!(f, "expected one of < <= > >= == != and a value after the figure")
            }
            GateError::NoOperator { found } => write!(f, "expected one of < <= > >= == !=, found `{found}`"),
            GateError::NoValue { found } => {
                write!(f, "expected a number or a time such as `20ms` after the comparison, found `{found}`")
            }
            GateError::TimeForNumber { figure } => {
                write!(f, "`{figure}` is a number without a unit; only latencies such as p99(e2e) compare with a time")
            }
            GateError::NumberForTime { figure, number } => {
                write!(f, "`{figure}` is a time: write a unit after {number}, such as `{number}ms`")
            }
            GateError::NoStatistic { found } => {
                write!(f, "expected `max` or a percentile such as `p99.9` before the parenthesis, found `{found}`")
            }
            GateError::NoSubject { found } => {
                let terms = TERMS.map(Term::name).join(" ");
                write!(f, "expected `e2e`, `source->sink` or `node.term` in the parentheses, found `{found}`; ")?;
                write!(f, "the terms are: {terms}")
            }
            GateError::NoNode { found, nodes } => {
                write!(f, "the graph has no node `{found}`; the nodes are: {}", nodes.join(", "))
            }
        }
    }
}

impl std::error::Error for GateError {}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self, GateError> {
        let Condition { figure: name, of, sign, value } = Condition::new(text);
        let figure = Figure::parse(name, of)?;
        let Some((_, op)) = OPS.iter().find(|(known, _)| *known == sign) else {
            return Err(GateError::NoOperator { found: if sign.is_empty() { value } else { sign }.into() });
        };
        let figure_name = || figure.to_string();
        let value = match Amount::parse(value) {
            Some(Amount::Number(number)) if number != 0.0 && figure.is_time() => {
                return Err(GateError::NumberForTime { figure: figure_name(), number: value.into() });
            }
            Some(Amount::Number(number)) => number,
            Some(Amount::Time(time)) if figure.is_time() => time,
            Some(Amount::Time(_)) => return Err(GateError::TimeForNumber { figure: figure_name() }),
            _ => return Err(GateError::NoValue { found: value.into() }),
        };
        Ok(Expression { figure, op: *op, value })
    }
}

impl Figure {
    fn parse(name: &str, of: Option<&str>) -> Result<Self, GateError> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let stat = match (of, name) {
            (None, name) if !name.is_empty() && name.chars().all(is_of_name) => {
                return Ok(Figure::Metric(old_names::figure(name).into()));
            }
            (None, _) => return Err(GateError::NoFigure),
            (_, "max") => Stat::Max,
            _ => Stat::Quantile(percentile(name).ok_or_else(|| GateError::NoStatistic { found: name.into() })?),
        };
        Ok(Figure::Recorded { stat, of: Of::parse(of.unwrap_or_default())? })
    }

    pub(super) fn is_time(&self) -> bool {
        matches!(self, Figure::Recorded { of, .. } if !matches!(of, Of::Term(_, Term::Batch)))
    }
}

impl Of {
    fn parse(text: &str) -> Result<Self, GateError> {
        let wrong = || GateError::NoSubject { found: text.into() };
        if text == Term::EndToEnd.name() {
            return Ok(Of::EveryPath);
        }
        if let Some((from, to)) = text.split_once("->") {
            // The dumps tag a path `camera->labels.e2e`; that is accepted too.
            let (from, to) = (from.trim(), to.trim().trim_end_matches(".e2e"));
            let whole = !from.is_empty() && !to.is_empty();
            return whole.then(|| Of::Path(from.into(), to.into())).ok_or_else(wrong);
        }
        let (node, term) = text.rsplit_once('.').ok_or_else(wrong)?;
        let term = old_names::term(term);
        let term = TERMS.into_iter().find(|t| t.name() == term).ok_or_else(wrong)?;
        Ok(Of::Term(node.into(), term))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Metric(name) => f.write_str(name),
            Figure::Recorded { stat, of: Of::EveryPath } => write!(f, "{stat}(e2e)"),
            Figure::Recorded { stat, of: Of::Path(from, to) } => write!(f, "{stat}({from}->{to})"),
            Figure::Recorded { stat, of: Of::Term(node, term) } => write!(f, "{stat}({node}.{})", term.name()),
        }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stat::Quantile(fraction) => f.write_str(&percentile_name(*fraction)),
            Stat::Max => f.write_str("max"),
        }
    }
}

impl Op {
    #[allow(clippy::float_cmp, reason = "`==` of an expression means what it says")]
    pub(super) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Op::Less => left < right,
            Op::LessOrEqual => left <= right,
            Op::Greater => left > right,
            Op::GreaterOrEqual => left >= right,
            Op::Equal => left == right,
            Op::Different => left != right,
        }
    }
}
