//! Whole numbers that are computed from the lengths of messages: `ceil_div(h * w, 64)`.

use limen::expression::{ExpressionError, Token, parse};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// The lengths of dims by name.
pub(crate) type Symbols = BTreeMap<String, i64>;

/// An expression over names: `+`, `-`, `*`, `/` (rounded towards zero), `ceil_div`, `min`, `max`
/// and parentheses.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Expression {
    text: String,
    /// Steps on a stack.
    steps: Vec<ExpressionStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpressionStep {
    Number(i64),
    Name(String),
    /// One of the operators.
    Of(&'static str),
}

const OPERATORS: [&str; 7] = ["+", "-", "*", "/", "ceil_div", "min", "max"];
const HELP: &str = "write whole numbers, names, `+ - * /`, `ceil_div(a, b)`, `min`, `max`";

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number, or an expression such as `ceil_div(h * w, 64)`")]
        enum Written {
            Number(i64),
            Text(String),
        }
        let text = match Written::deserialize(from)? {
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        };
        Expression::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is not understood.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let (text, mut steps) = (text.trim(), Vec::new());
        let parsed = parse(text, &mut |token, at, operands| {
            let wrong = |why: String| ExpressionError::new(text, at, why, HELP);
            let operator =
                |name: &str| OPERATORS.iter().find(|known| **known == name).map(|known| ExpressionStep::Of(known));
            let step = match token {
                Token::Number(number) => {
                    number.parse().map(ExpressionStep::Number).map_err(|error| format!("`{number}`: {error}"))
                }
                Token::Name(name) => Ok(ExpressionStep::Name(name.into())),
                Token::Infix(sign) => {
                    operator(sign).ok_or_else(|| format!("expected `+`, `-`, `*` or `/`, found `{sign}`"))
                }
                Token::Call(name) => match operator(name) {
                    Some(_) if operands.len() != 2 => {
                        Err(format!("`{name}` expects two numbers, found {}", operands.len()))
                    }
                    step => step.ok_or_else(|| format!("expected `ceil_div`, `min` or `max`, found `{name}`")),
                },
                Token::Prefix(sign) => Err(format!("expected a number or a name, found `{sign}`")),
                Token::List => Err("expected a number or a name, found a list".into()),
            };
            steps.push(step.map_err(wrong)?);
            Ok(())
        });
        let of_text =
            |wrong: ExpressionError| format!("character {} of `{text}`: {}: {}", wrong.column, wrong.why, wrong.help);
        parsed.map(|()| Expression { text: text.into(), steps }).map_err(of_text)
    }

    /// Returns the name, if it is nothing else.
    pub fn name(&self) -> Option<&str> {
        if let [ExpressionStep::Name(name)] = &self.steps[..] { Some(name) } else { None }
    }

    /// Computes it.
    ///
    /// # Errors
    /// A name without a length, a division by zero, or a number beyond 64 bits.
    pub(crate) fn value(&self, symbols: &Symbols) -> Result<i64, String> {
        let mut stack = Vec::new();
        for step in &self.steps {
            let value = match step {
                ExpressionStep::Number(number) => Ok(*number),
                ExpressionStep::Name(name) => named(name, symbols),
                ExpressionStep::Of(operator) => {
                    let (b, a) = (stack.pop(), stack.pop());
                    compute(operator, a.unwrap_or(0), b.unwrap_or(0))
                }
            };
            stack.push(value.map_err(|why| format!("`{self}`: {why}"))?);
        }
        Ok(stack.pop().unwrap_or(0))
    }

    /// Computes a length.
    ///
    /// # Errors
    /// As [`Expression::value`], and what is no length.
    pub(crate) fn length(&self, symbols: &Symbols) -> Result<usize, String> {
        let value = self.value(symbols)?;
        usize::try_from(value)
            .ok()
            .filter(|length| *length > 0)
            .ok_or_else(|| format!("`{self}` must be at least 1, got {value}"))
    }
}

fn named(name: &str, symbols: &Symbols) -> Result<i64, String> {
    let known = || match symbols.is_empty() {
        true => "a number".to_string(),
        false => format!("a dim (`{}`)", symbols.keys().cloned().collect::<Vec<_>>().join("`, `")),
    };
    symbols.get(name).copied().ok_or_else(|| format!("expected {}, found `{name}`", known()))
}

fn compute(operator: &str, a: i64, b: i64) -> Result<i64, String> {
    let found = match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" | "ceil_div" if b == 0 => return Err("division by zero".into()),
        "/" => a.checked_div(b),
        "ceil_div" => b.checked_sub(1).and_then(|less| a.checked_add(less)?.checked_div(b)),
        "min" => Some(a.min(b)),
        _ => Some(a.max(b)),
    };
    found.ok_or_else(|| "the result must fit 64 bits, got more".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_computed_or_say_what_is_wrong() {
        let symbols = Symbols::from([("h".to_string(), 480), ("w".to_string(), 641)]);
        for (text, value) in [
            ("3", 3),
            ("h * w + 1", 480 * 641 + 1),
            ("2*(h-1)/4", 239),
            ("ceil_div(w, 64)", 11),
            (" min( h , max(w, 1) ) ", 480),
            ("h - w - 1", -162),
            ("100 / 7 / 2", 7),
        ] {
            assert_eq!(Expression::parse(text).unwrap().value(&symbols), Ok(value), "{text}");
        }
        for (text, why) in [
            ("", "expected a number or a name"),
            ("h +", "expected a number or a name"),
            ("(h", "character 3 of `(h`: expected `)`"),
            ("h w", "character 3 of `h w`: expected an operator, found `w`"),
            ("h % w", "expected `+`, `-`, `*` or `/`, found `%`: write whole numbers"),
            ("-h", "found `-`"),
            ("[h]", "found a list"),
            ("0.5 * h", "`0.5`: invalid digit"),
            ("pow(h, 2)", "expected `ceil_div`, `min` or `max`, found `pow`"),
            ("min(h)", "`min` expects two numbers, found 1"),
            ("99999999999999999999", "number too large"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        for (long, why) in
            [("(".repeat(100_000), "at most 64 levels of nesting"), ("1+".repeat(100_000), "at most 4096 parts")]
        {
            assert!(Expression::parse(&long).unwrap_err().contains(why));
        }
        for (text, why) in [
            ("d", "expected a dim (`h`, `w`), found `d`"),
            ("h / (w - w)", "division by zero"),
            ("9223372036854775807 * h", "must fit 64 bits"),
            ("ceil_div(9223372036854775807, 2)", "must fit 64 bits"),
            ("h - w", "`h - w` must be at least 1, got -161"),
        ] {
            let error = Expression::parse(text).unwrap().length(&symbols).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
