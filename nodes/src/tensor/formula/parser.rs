//! Reads formulas.

use super::functions::{
    BINARY, Binary, CONSTANTS, KEEP_ANGLES, Kind, LEVELS, NEGATED, NOT, OTHERS, POWER, TESTS, UNARY, Unary,
};
use super::{Block, Formula, LANES, Operand, Step};
use crate::tensor::constant::Constant;
use limen::text::nearest;
use std::collections::BTreeMap;

/// Longer formulas are refused.
const MAX_STEPS: usize = 1024;
/// So are those with more open parentheses and calls.
const MAX_DEPTH: usize = 64;

/// What is wrong with a formula, and where: the number of the character, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) column: usize,
    pub(crate) why: String,
    pub(crate) help: String,
}

impl Formula {
    /// Reads a formula over inputs of these names, and constants.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub(crate) fn parse(text: &str, inputs: &[&str], constants: &BTreeMap<String, Constant>) -> Result<Formula, Wrong> {
        let (steps, numbers, lists) = (Vec::new(), Vec::new(), Vec::new());
        let (carried, at, nested, hidden, makes_angles) = (Vec::new(), 0, 0, 0, false);
        let mut parser =
            Parser { text, at, inputs, constants, steps, numbers, lists, nested, hidden, carried, makes_angles };
        let kind = parser.level(0)?;
        if !parser.rest().is_empty() {
            let found = parser.rest().chars().next().unwrap_or_default();
            return Err(parser.wrong(format!("`{found}` is not understood here"), "write an operator, or leave it out"));
        }
        let Parser { steps, numbers, lists, mut carried, makes_angles, .. } = parser;
        let (mut now, mut depth) = (0usize, 0);
        for step in &steps {
            now = match step {
                Step::Input(_) | Step::Number(_) => now + 1,
                Step::Unary(_) | Step::Binary(_, Operand::Input(_) | Operand::Number(_)) => now,
                Step::Binary(_, Operand::Stack) => now - 1,
                Step::Clamp | Step::If => now - 2,
            };
            depth = depth.max(now);
        }
        let is_truth = kind == Kind::Truth;
        if is_truth {
            carried.clear();
        }
        Ok(Formula { steps, numbers, lists, named: inputs.len(), depth, is_truth, carried, makes_angles })
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The byte that is next.
    at: usize,
    inputs: &'a [&'a str],
    constants: &'a BTreeMap<String, Constant>,
    steps: Vec<Step>,
    numbers: Vec<Block>,
    lists: Vec<Vec<f64>>,
    nested: usize,
    /// How many calls are open whose results are not angles although their arguments are.
    hidden: usize,
    carried: Vec<usize>,
    makes_angles: bool,
}

impl<'a> Parser<'a> {
    /// What is not read yet, without spaces in front.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn wrong(&self, why: String, help: &str) -> Wrong {
        Wrong { column: self.text[..self.at].chars().count() + 1, why, help: help.into() }
    }

    /// Takes a token, if it is next.
    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn push(&mut self, step: Step) -> Result<(), Wrong> {
        if self.steps.len() >= MAX_STEPS {
            return Err(self.wrong(format!("it has more than {MAX_STEPS} parts"), "divide it between several nodes"));
        }
        self.steps.push(step);
        Ok(())
    }

    /// Adds a number.
    fn constant(&mut self, number: f64) -> Result<(), Wrong> {
        self.push(Step::Number(self.numbers.len()))?;
        self.numbers.push([number; LANES]);
        Ok(())
    }

    /// Adds a function of one number. That of a constant is computed now.
    fn unary_step(&mut self, of: Unary) -> Result<(), Wrong> {
        match (self.steps.last(), self.numbers.last_mut()) {
            (Some(Step::Number(_)), Some(number)) => {
                of(number);
                Ok(())
            }
            _ => self.push(Step::Unary(of)),
        }
    }

    /// Adds a function of two numbers. The second is read where it is, if it was not computed; that of two constants is computed now.
    fn binary(&mut self, of: Binary) -> Result<(), Wrong> {
        if let ([.., Step::Number(_), Step::Number(_)], [.., first, second]) = (&self.steps[..], &mut self.numbers[..])
        {
            of(first, second);
            self.steps.pop();
            self.numbers.pop();
            return Ok(());
        }
        let operand = match self.steps.last() {
            Some(Step::Input(input)) => Operand::Input(*input),
            Some(Step::Number(number)) => Operand::Number(*number),
            _ => Operand::Stack,
        };
        if !matches!(operand, Operand::Stack) {
            self.steps.pop();
        }
        self.push(Step::Binary(of, operand))
    }

    fn expect(&self, is: Kind, wanted: Kind, at: usize, what: &str) -> Result<(), Wrong> {
        if is == wanted {
            return Ok(());
        }
        let column = self.text[..at].chars().count() + 1;
        let help = match wanted {
            Kind::Number => "write `if(…, 1, 0)` around it",
            Kind::Truth => "compare it, such as with `!= 0`",
        };
        let why = format!("{what} takes {}, and this is {}", wanted.name(), is.name());
        Err(Wrong { column, why, help: help.into() })
    }

    fn level(&mut self, level: usize) -> Result<Kind, Wrong> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        self.rest();
        let begin = self.at;
        let mut kind = self.level(level + 1)?;
        let mut is_compared = false;
        while let Some((sign, of, takes, gives)) = operators.iter().find(|(sign, ..)| self.rest().starts_with(sign)) {
            if is_compared {
                let help = "compare twice: `a < b && b < c`";
                return Err(self.wrong("a comparison of a comparison".into(), help));
            }
            self.expect(kind, *takes, begin, &format!("`{sign}`"))?;
            self.at += sign.len();
            self.rest();
            let at = self.at;
            let other = self.level(level + 1)?;
            self.expect(other, *takes, at, &format!("`{sign}`"))?;
            self.binary(*of)?;
            (kind, is_compared) = (*gives, *takes == Kind::Number && *gives == Kind::Truth);
        }
        Ok(kind)
    }

    /// Calls `read` one level deeper.
    fn nest<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        self.nested += 1;
        if self.nested > MAX_DEPTH {
            return Err(
                self.wrong(format!("more than {MAX_DEPTH} parts in one another"), "divide it between several nodes")
            );
        }
        let read = read(self)?;
        self.nested -= 1;
        Ok(read)
    }

    fn unary(&mut self) -> Result<Kind, Wrong> {
        let rest = self.rest();
        let sign = match rest.chars().next() {
            Some('-') => Some((Kind::Number, "`-`", NEGATED)),
            Some('!') if !rest.starts_with("!=") => Some((Kind::Truth, "`!`", NOT)),
            _ => None,
        };
        let Some((kind, name, of)) = sign else { return self.power() };
        self.at += 1;
        self.rest();
        let at = self.at;
        let is = self.nest(Self::unary)?;
        self.expect(is, kind, at, name)?;
        self.unary_step(of)?;
        Ok(kind)
    }

    fn power(&mut self) -> Result<Kind, Wrong> {
        self.rest();
        let begin = self.at;
        let kind = self.atom()?;
        if !self.takes("^") {
            return Ok(kind);
        }
        self.expect(kind, Kind::Number, begin, "`^`")?;
        self.rest();
        let at = self.at;
        let other = self.nest(Self::unary)?;
        self.expect(other, Kind::Number, at, "`^`")?;
        self.binary(POWER)?;
        Ok(Kind::Number)
    }

    fn atom(&mut self) -> Result<Kind, Wrong> {
        let rest = self.rest();
        if self.takes("(") {
            let kind = self.nest(|parser| parser.level(0))?;
            return match self.takes(")") {
                true => Ok(kind),
                false => Err(self.wrong("a `)` is missing".into(), "close the parenthesis")),
            };
        }
        if self.takes("[") {
            return self.list();
        }
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        if rest.starts_with(is_digit) {
            return self.number(rest);
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        if name.is_empty() {
            return Err(self.wrong("a number or a name is missing".into(), "write one"));
        }
        let begin = self.at;
        self.at += end;
        if self.takes("(") {
            return self.call(name, begin);
        }
        if let Some(input) = self.inputs.iter().position(|input| *input == name) {
            self.push(Step::Input(input))?;
            if self.hidden == 0 {
                self.carried.push(input);
            }
        } else if let Some(constant) = self.constants.get(name) {
            match constant {
                Constant::Number(number) => self.constant(*number)?,
                Constant::List(list) => self.push_list(list.clone())?,
            }
        } else if let Some((_, number)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
            self.constant(*number)?;
        } else {
            self.at = begin;
            let names = || self.inputs.iter().copied().chain(self.constants.keys().map(String::as_str));
            let known = names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let near = nearest(name, names());
            let help = near.map_or(format!("the inputs are {known}"), |near| {
                format!("did you mean `{near}`? the inputs are {known}")
            });
            return Err(self.wrong(format!("there is no input `{name}`"), &help));
        }
        Ok(Kind::Number)
    }

    fn number(&mut self, rest: &str) -> Result<Kind, Wrong> {
        let bytes = rest.as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let is_sign = matches!(byte, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || *byte == b'.' || is_sign) {
                break;
            }
            end += 1;
        }
        match rest[..end].parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.constant(number)?;
                self.at += end;
                Ok(Kind::Number)
            }
            _ => Err(self.wrong(format!("`{}` is no number", &rest[..end]), "write a number such as 0.5 or 1e-3")),
        }
    }

    /// Reads the numbers of a list, up to its end.
    fn list(&mut self) -> Result<Kind, Wrong> {
        let mut list = Vec::new();
        loop {
            self.rest();
            let begin = self.at;
            let is = self.nest(|parser| parser.level(0))?;
            self.expect(is, Kind::Number, begin, "a list")?;
            // What has no input was computed to one number.
            let (Some(Step::Number(_)), Some([number, ..])) = (self.steps.pop(), self.numbers.pop()) else {
                self.at = begin;
                return Err(self.wrong("expected a number, found a formula".into(), "write a list such as `[0.5, -1]`"));
            };
            list.push(number);
            if !self.takes(",") {
                break;
            }
        }
        if !self.takes("]") {
            return Err(self.wrong("a `]` is missing".into(), "close the list"));
        }
        self.push_list(list)?;
        Ok(Kind::Number)
    }

    /// Adds a list.
    fn push_list(&mut self, list: Vec<f64>) -> Result<(), Wrong> {
        self.push(Step::Input(self.inputs.len() + self.lists.len()))?;
        self.lists.push(list);
        Ok(())
    }

    /// Reads the arguments of a function, of these kinds.
    fn arguments(&mut self, name: &str, kinds: &[Option<Kind>]) -> Result<Vec<Kind>, Wrong> {
        let mut found = Vec::new();
        for (at, wanted) in kinds.iter().enumerate() {
            if at > 0 && !self.takes(",") {
                self.check_end()?;
                let why = format!("`{name}` takes {} arguments, not {at}", kinds.len());
                return Err(self.wrong(why, "write them with `,` between"));
            }
            self.rest();
            let begin = self.at;
            let hides = usize::from(!KEEP_ANGLES.contains(&name) || *wanted == Some(Kind::Truth));
            self.hidden += hides;
            let is = self.nest(|parser| parser.level(0))?;
            self.hidden -= hides;
            if let Some(wanted) = wanted {
                self.expect(is, *wanted, begin, &format!("`{name}`"))?;
            }
            found.push(is);
        }
        if self.takes(")") {
            return Ok(found);
        }
        self.check_end()?;
        let plural = if kinds.len() == 1 { "" } else { "s" };
        Err(self.wrong(format!("`{name}` takes {} argument{plural}", kinds.len()), "close it with `)`"))
    }

    /// Refuses what neither ends an argument nor a call.
    fn check_end(&mut self) -> Result<(), Wrong> {
        match self.rest().chars().next() {
            Some(found) if !matches!(found, ',' | ')') => {
                Err(self.wrong(format!("`{found}` is not understood here"), "write an operator, or leave it out"))
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, name: &str, begin: usize) -> Result<Kind, Wrong> {
        let one = |list: &[(&str, Unary)]| list.iter().find(|(known, _)| *known == name).map(|(_, of)| *of);
        const NUMBER: Option<Kind> = Some(Kind::Number);
        if let Some(of) = one(UNARY) {
            self.arguments(name, &[NUMBER])?;
            self.unary_step(of)?;
            return Ok(Kind::Number);
        }
        if let Some(of) = one(TESTS) {
            self.arguments(name, &[NUMBER])?;
            self.unary_step(of)?;
            return Ok(Kind::Truth);
        }
        if let Some((_, of)) = BINARY.iter().find(|(known, _)| *known == name) {
            self.arguments(name, &[NUMBER, NUMBER])?;
            self.binary(*of)?;
            self.makes_angles |= self.hidden == 0 && name == "atan2";
            return Ok(Kind::Number);
        }
        match name {
            "clamp" => {
                self.arguments(name, &[NUMBER, NUMBER, NUMBER])?;
                self.push(Step::Clamp)?;
                Ok(Kind::Number)
            }
            "if" => {
                let kinds = self.arguments(name, &[Some(Kind::Truth), None, None])?;
                let (yes, no) = (kinds[1], kinds[2]);
                if yes != no {
                    self.at = begin;
                    let why = format!("`if` gives {} or {}", yes.name(), no.name());
                    return Err(self.wrong(why, "let both be numbers, or both true or false"));
                }
                self.push(Step::If)?;
                Ok(yes)
            }
            _ => {
                self.at = begin;
                let known = UNARY.iter().chain(TESTS).map(|(name, _)| *name);
                let known: Vec<&str> = known.chain(BINARY.iter().map(|(name, _)| *name)).chain(OTHERS).collect();
                let near = nearest(name, known.iter().copied())
                    .map(|near| format!("did you mean `{near}`? "))
                    .unwrap_or_default();
                Err(self
                    .wrong(format!("there is no function `{name}`"), &format!("{near}there are {}", known.join(", "))))
            }
        }
    }
}
