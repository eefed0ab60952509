//! Whole numbers that are computed from the lengths of messages: `ceil_div(h * w, 64)`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// The lengths of dims by name.
pub(crate) type Symbols = BTreeMap<String, i64>;

/// An expression over names: `+`, `-`, `*`, `/` (rounded towards zero), `ceil_div`, `min`, `max` and parentheses.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Expression {
    text: String,
    node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(i64),
    Name(String),
    Of(Operator, Box<[Node; 2]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    CeilDiv,
    Min,
    Max,
}

/// Expressions with more numbers and names are refused.
const MAX_PARTS: usize = 256;

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a whole number, or an expression of them such as `ceil_div(h * w, 64)`"
        )]
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
        let mut parser = Parser { rest: text.trim(), parts: 0 };
        let node = parser.sum().map_err(|why| format!("`{text}`: {why}"))?;
        match parser.rest {
            "" => Ok(Expression { text: text.trim().into(), node }),
            rest => Err(format!(
                "`{text}`: `{rest}` is not understood; write whole numbers, names, `+ - * /`, `ceil_div(a, b)`, `min`, `max`"
            )),
        }
    }

    /// Returns the name, if it is nothing else.
    pub fn name(&self) -> Option<&str> {
        if let Node::Name(name) = &self.node { Some(name) } else { None }
    }

    /// Computes it.
    ///
    /// # Errors
    /// A name without a length, a division by zero, or a number beyond 64 bits.
    pub(crate) fn value(&self, symbols: &Symbols) -> Result<i64, String> {
        self.node.value(symbols).map_err(|why| format!("`{self}`: {why}"))
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
            .ok_or_else(|| format!("`{self}` is {value}, which is no length"))
    }
}

impl Node {
    fn value(&self, symbols: &Symbols) -> Result<i64, String> {
        let (operator, [a, b]) = match self {
            Node::Number(number) => return Ok(*number),
            Node::Name(name) => {
                let known = || match symbols.is_empty() {
                    true => "numbers here".to_string(),
                    false => symbols.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
                };
                return symbols.get(name).copied().ok_or_else(|| format!("no dim is named `{name}`, only {}", known()));
            }
            Node::Of(operator, both) => (operator, &**both),
        };
        let (a, b) = (a.value(symbols)?, b.value(symbols)?);
        let found = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Sub => a.checked_sub(b),
            Operator::Mul => a.checked_mul(b),
            Operator::Div | Operator::CeilDiv if b == 0 => return Err("a division by zero".into()),
            Operator::Div => a.checked_div(b),
            Operator::CeilDiv => b.checked_sub(1).and_then(|less| a.checked_add(less)?.checked_div(b)),
            Operator::Min => Some(a.min(b)),
            Operator::Max => Some(a.max(b)),
        };
        found.ok_or_else(|| "the number has more than 64 bits".into())
    }
}

struct Parser<'a> {
    rest: &'a str,
    parts: usize,
}

impl<'a> Parser<'a> {
    /// Takes a token, if it is next.
    fn takes(&mut self, token: char) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn sum(&mut self) -> Result<Node, String> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.takes('+') => Operator::Add,
                () if self.takes('-') => Operator::Sub,
                () => return Ok(left),
            };
            left = Node::Of(operator, Box::new([left, self.product()?]));
        }
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut left = self.atom()?;
        loop {
            let operator = match () {
                () if self.takes('*') => Operator::Mul,
                () if self.takes('/') => Operator::Div,
                () => return Ok(left),
            };
            left = Node::Of(operator, Box::new([left, self.atom()?]));
        }
    }

    fn atom(&mut self) -> Result<Node, String> {
        // Also bounds how deep it is nested.
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(format!("it has more than {MAX_PARTS} parts"));
        }
        if self.takes('(') {
            let inner = self.sum()?;
            return if self.takes(')') { Ok(inner) } else { Err("a `(` without its `)`".into()) };
        }
        let digits = self.word(|c| c.is_ascii_digit());
        if !digits.is_empty() {
            return digits.parse().map(Node::Number).map_err(|_| format!("`{digits}` has more than 64 bits"));
        }
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            return Err("a number or a name is missing".into());
        }
        if !self.takes('(') {
            return Ok(Node::Name(name.into()));
        }
        let operator = match name {
            "ceil_div" => Operator::CeilDiv,
            "min" => Operator::Min,
            "max" => Operator::Max,
            _ => return Err(format!("there is no function `{name}`, only `ceil_div`, `min` and `max`")),
        };
        let first = self.sum()?;
        if !self.takes(',') {
            return Err(format!("`{name}` takes two numbers"));
        }
        let second = self.sum()?;
        if !self.takes(')') {
            return Err("a `(` without its `)`".into());
        }
        Ok(Node::Of(operator, Box::new([first, second])))
    }
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
            ("", "a number or a name is missing"),
            ("h +", "a number or a name is missing"),
            ("(h", "a `(` without its `)`"),
            ("h w", "`w` is not understood"),
            ("pow(h, 2)", "there is no function `pow`"),
            ("min(h)", "`min` takes two numbers"),
            ("99999999999999999999", "more than 64 bits"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        for long in ["(".repeat(100_000), "1+".repeat(100_000)] {
            assert!(Expression::parse(&long).unwrap_err().contains("more than 256 parts"));
        }
        for (text, why) in [
            ("d", "no dim is named `d`, only `h`, `w`"),
            ("h / (w - w)", "a division by zero"),
            ("9223372036854775807 * h", "more than 64 bits"),
            ("ceil_div(9223372036854775807, 2)", "more than 64 bits"),
            ("h - w", "`h - w` is -161, which is no length"),
        ] {
            let error = Expression::parse(text).unwrap().length(&symbols).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
