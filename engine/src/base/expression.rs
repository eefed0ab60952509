//! The grammar of expressions, such as formulas of `map` and sizes of kernels.
//!
//! An expression has numbers, names, calls `f(a, b)`, lists `[1, 2]`, parentheses, and operators.
//! Those that bind least come first: `||`, `&&`, comparisons, `+ -`, `* / %`, `-` and `!` before an
//! operand, and `^`. Operators of one level are computed from the left, `^` from the right, and a
//! comparison of a comparison is an error. Which of the operators and functions exist, and what
//! they compute, is up to the caller.

use std::ops::Range;

/// Operators between two operands, those that bind least first. A sign comes before its prefix.
const LEVELS: [&[&str]; 5] = [&["||"], &["&&"], COMPARISONS, &["+", "-"], &["*", "/", "%"]];
const COMPARISONS: &[&str] = &["<=", ">=", "==", "!=", "<", ">"];
/// Longer expressions are refused.
const MAX_PARTS: usize = 4096;
/// So are those with more open parentheses and calls.
const MAX_DEPTH: usize = 64;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Where: the number of the character, from 1.
    pub column: usize,
    /// What.
    pub why: String,
    /// How to mend it.
    pub help: String,
}

impl ExpressionError {
    /// Returns an error at a byte of a text.
    pub fn new(text: &str, at: usize, why: impl Into<String>, help: impl Into<String>) -> Self {
        ExpressionError { column: text[..at].chars().count() + 1, why: why.into(), help: help.into() }
    }
}

/// A part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// The text of a number.
    Number(&'a str),
    /// A name of ASCII letters, digits and `_`.
    Name(&'a str),
    /// A list of its operands.
    List,
    /// An operator before an operand.
    Prefix(&'static str),
    /// An operator between two operands.
    Infix(&'static str),
    /// A function of its operands.
    Call(&'a str),
}

/// Parses an expression. Calls `part` with each part, its place, and the places of its operands, in
/// bytes. Operands come before the part that they belong to, as on a stack.
///
/// # Errors
/// The first part that is wrong, also by what `part` says.
pub fn parse<'a>(text: &'a str, part: &mut Part<'_, 'a>) -> Result<()> {
    let mut parser = ExpressionParser { text, at: 0, nested: 0, parts: 0, part };
    parser.level(0)?;
    if parser.rest().is_empty() { Ok(()) } else { Err(parser.not_understood()) }
}

type Part<'p, 'a> = dyn FnMut(Token<'a>, usize, &[Range<usize>]) -> Result<()> + 'p;
type Result<T> = std::result::Result<T, ExpressionError>;

struct ExpressionParser<'p, 'a> {
    text: &'a str,
    /// The byte that is next.
    at: usize,
    nested: usize,
    parts: usize,
    part: &'p mut Part<'p, 'a>,
}

impl<'a> ExpressionParser<'_, 'a> {
    /// What is not read yet, without spaces in front.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn error(&self, why: impl Into<String>, help: &str) -> ExpressionError {
        ExpressionError::new(self.text, self.at, why, help)
    }

    fn not_understood(&mut self) -> ExpressionError {
        let found = self.found();
        let help = format!("remove {found}, or write an operator such as `+` before {found}");
        self.error(format!("expected an operator, found {found}"), &help)
    }

    /// Describes the next character.
    fn found(&mut self) -> String {
        self.rest().chars().next().map_or("the end".into(), |found| format!("`{found}`"))
    }

    /// Takes a sign, if it is next.
    fn takes(&mut self, sign: &str) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len() } else { 0 };
        is_next
    }

    fn close(&mut self, sign: &str) -> Result<()> {
        if self.takes(sign) {
            Ok(())
        } else {
            let message = format!("expected `{sign}`, found {}", self.found());
            Err(self.error(message, &format!("write `{sign}`")))
        }
    }

    fn emit(&mut self, token: Token<'a>, at: usize, operands: &[Range<usize>]) -> Result<()> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            let message = format!("the expression must have at most {MAX_PARTS} parts, got more");
            return Err(self.error(message, "split the expression"));
        }
        (self.part)(token, at, operands)
    }

    /// Calls `read`, and returns the place of what it read.
    fn place(&mut self, read: impl FnOnce(&mut Self) -> Result<()>) -> Result<Range<usize>> {
        self.rest();
        let begin = self.at;
        read(self)?;
        self.rest();
        Ok(begin..self.at)
    }

    /// As [`ExpressionParser::place`], one level deeper.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<()>) -> Result<Range<usize>> {
        self.nested += 1;
        if self.nested > MAX_DEPTH {
            let message = format!("the expression must have at most {MAX_DEPTH} levels of nesting, got more");
            return Err(self.error(message, "split the expression"));
        }
        let place = self.place(read)?;
        self.nested -= 1;
        Ok(place)
    }

    fn level(&mut self, level: usize) -> Result<()> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let left = self.place(|parser| parser.level(level + 1))?.start;
        let mut is_compared = false;
        while let Some(sign) = operators.iter().find(|sign| self.rest().starts_with(**sign)) {
            if is_compared {
                return Err(self.error("expected one comparison, found a chain", "write `a < b && b < c`"));
            }
            let at = self.at;
            self.at += sign.len();
            let right = self.place(|parser| parser.level(level + 1))?;
            self.emit(Token::Infix(sign), at, &[left..at, right])?;
            is_compared = *operators == COMPARISONS;
        }
        Ok(())
    }

    fn unary(&mut self) -> Result<()> {
        let (rest, at) = (self.rest(), self.at);
        let sign = ["-", "!"].into_iter().find(|sign| rest.starts_with(sign) && !rest.starts_with("!="));
        let Some(sign) = sign else { return self.power() };
        self.at += 1;
        let operand = self.nested(Self::unary)?;
        self.emit(Token::Prefix(sign), at, &[operand])
    }

    fn power(&mut self) -> Result<()> {
        let left = self.place(Self::atom)?;
        let at = self.at;
        if !self.takes("^") {
            return Ok(());
        }
        let right = self.nested(Self::unary)?;
        self.emit(Token::Infix("^"), at, &[left, right])
    }

    fn atom(&mut self) -> Result<()> {
        let (rest, at) = (self.rest(), self.at);
        if self.takes("(") {
            self.nested(|parser| parser.level(0))?;
            return self.close(")");
        }
        if self.takes("[") {
            let elements = self.operands()?;
            self.close("]")?;
            return self.emit(Token::List, at, &elements);
        }
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let mut before = ' ';
        let end = rest.find(|c: char| {
            let is_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            let is_other = if is_number { c == '.' || is_sign } else { c == '_' };
            before = c;
            !c.is_ascii_alphanumeric() && !is_other
        });
        let word = &rest[..end.unwrap_or(rest.len())];
        if word.is_empty() {
            let message = format!("expected a number or a name, found {}", self.found());
            return Err(self.error(message, "write a number or a name"));
        }
        self.at += word.len();
        if is_number || !self.takes("(") {
            return self.emit(if is_number { Token::Number(word) } else { Token::Name(word) }, at, &[]);
        }
        let arguments = self.operands()?;
        if !self.rest().is_empty() && !self.rest().starts_with(')') {
            return Err(self.not_understood());
        }
        self.close(")")?;
        self.emit(Token::Call(word), at, &arguments)
    }

    /// Reads operands with `,` between.
    fn operands(&mut self) -> Result<Vec<Range<usize>>> {
        let mut operands = Vec::new();
        loop {
            operands.push(self.nested(|parser| parser.level(0))?);
            if !self.takes(",") {
                return Ok(operands);
            }
        }
    }
}
