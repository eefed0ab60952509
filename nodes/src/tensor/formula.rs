//! Formulas over numbers: `sqrt(x*x + y*y)`, checked before they run and computed for several elements at a time.

use limen::text::nearest;
use std::f64::consts::{E, PI};

/// Elements that are computed at a time.
pub(crate) const LANES: usize = 64;

/// As many numbers as are computed at a time.
pub(crate) type Block = [f64; LANES];

/// Longer formulas are refused.
const MAX_STEPS: usize = 1024;
/// So are those with more open parentheses and calls.
const MAX_DEPTH: usize = 64;

/// A formula as steps on a stack of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    steps: Vec<Step>,
    /// The numbers in the formula, as blocks.
    numbers: Vec<Block>,
    /// The lists in the formula. A step reads them as inputs that follow the named ones.
    lists: Vec<Vec<f64>>,
    /// How many inputs have a name.
    named: usize,
    /// The most blocks on the stack.
    depth: usize,
    is_truth: bool,
}

/// A function of one number, and of two: of all that are computed at a time, so that the compiler makes a loop without calls.
type Unary = fn(&mut [f64]);
type Binary = fn(&mut [f64], &[f64]);

/// Numbers that a loop takes in a turn: a fixed count is a few vector instructions without a check, also for short blocks.
pub(crate) const TURN: usize = 8;

/// The function of each of several numbers.
macro_rules! one {
    ($of:expr) => {
        |a: &mut [f64]| {
            let of: fn(f64) -> f64 = $of;
            let (turns, rest) = a.as_chunks_mut::<TURN>();
            turns.iter_mut().for_each(|turn| turn.iter_mut().for_each(|a| *a = of(*a)));
            rest.iter_mut().for_each(|a| *a = of(*a));
        }
    };
}

/// The function of each pair of several numbers; the result takes the place of the first.
macro_rules! two {
    ($of:expr) => {
        |a: &mut [f64], b: &[f64]| {
            let of: fn(f64, f64) -> f64 = $of;
            in_turns(a, b, |a, b| *a = of(*a, *b));
        }
    };
}

/// Calls a function for each pair of two slices, as far as both go.
#[inline(always)]
pub(crate) fn in_turns<A, B>(a: &mut [A], b: &[B], mut of: impl FnMut(&mut A, &B)) {
    let n = a.len().min(b.len());
    let (a, b) = (&mut a[..n], &b[..n]);
    let ((a, rest_of_a), (b, rest_of_b)) = (a.as_chunks_mut::<TURN>(), b.as_chunks::<TURN>());
    for (a, b) in std::iter::zip(a, b) {
        std::iter::zip(a, b).for_each(|(a, b)| of(a, b));
    }
    std::iter::zip(rest_of_a, rest_of_b).for_each(|(a, b)| of(a, b));
}

/// Where the second number of a step is.
#[derive(Clone, Copy, Debug)]
enum Operand {
    Stack,
    Input(usize),
    /// One of the numbers in the formula.
    Number(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Input(usize),
    /// One of the numbers in the formula.
    Number(usize),
    Unary(Unary),
    Binary(Binary, Operand),
    /// The first, but not below the second, nor above the third.
    Clamp,
    /// The second where the first is not 0, the third elsewhere.
    If,
}

/// What is wrong with a formula, and where: the number of the character, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) column: usize,
    pub(crate) why: String,
    pub(crate) help: String,
}

/// What a part of a formula is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    /// 0 or 1.
    Truth,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Number => "a number",
            Kind::Truth => "true or false",
        }
    }
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Functions of one number.
const UNARY: &[(&str, Unary)] = &[
    ("abs", one!(f64::abs)),
    ("acos", one!(f64::acos)),
    ("asin", one!(f64::asin)),
    ("atan", one!(f64::atan)),
    ("cbrt", one!(f64::cbrt)),
    ("ceil", one!(f64::ceil)),
    ("cos", one!(f64::cos)),
    ("cosh", one!(f64::cosh)),
    ("deg", one!(f64::to_degrees)),
    ("exp", one!(f64::exp)),
    ("floor", one!(f64::floor)),
    ("ln", one!(f64::ln)),
    ("log10", one!(f64::log10)),
    ("log2", one!(f64::log2)),
    ("rad", one!(f64::to_radians)),
    ("round", one!(f64::round)),
    ("sign", one!(|a| if a == 0.0 { 0.0 } else { a.signum() })),
    ("sin", one!(f64::sin)),
    ("sinh", one!(f64::sinh)),
    ("sqrt", one!(f64::sqrt)),
    ("tan", one!(f64::tan)),
    ("tanh", one!(f64::tanh)),
    ("trunc", one!(f64::trunc)),
];

/// Functions of two numbers.
const BINARY: &[(&str, Binary)] = &[
    ("atan2", two!(f64::atan2)),
    ("hypot", two!(f64::hypot)),
    ("max", two!(maximum)),
    ("min", two!(minimum)),
    ("pow", two!(f64::powf)),
];

/// Functions of a number that are true or false.
const TESTS: &[(&str, Unary)] =
    &[("is_finite", one!(|a| truth(a.is_finite()))), ("is_nan", one!(|a| truth(a.is_nan())))];

/// The others.
const OTHERS: [&str; 2] = ["clamp", "if"];

const CONSTANTS: &[(&str, f64)] = &[("e", E), ("pi", PI)];

/// NaN stays NaN, unlike in `f64::max`.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// Operators between two sides, those that bind least first.
type Operator = (&'static str, Binary, Kind, Kind);
const LEVELS: &[&[Operator]] = &[
    &[("||", two!(|a, b| truth(a != 0.0 || b != 0.0)), Kind::Truth, Kind::Truth)],
    &[("&&", two!(|a, b| truth(a != 0.0 && b != 0.0)), Kind::Truth, Kind::Truth)],
    &[
        ("<=", two!(|a, b| truth(a <= b)), Kind::Number, Kind::Truth),
        (">=", two!(|a, b| truth(a >= b)), Kind::Number, Kind::Truth),
        ("==", two!(|a, b| truth(a == b)), Kind::Number, Kind::Truth),
        ("!=", two!(|a, b| truth(a != b)), Kind::Number, Kind::Truth),
        ("<", two!(|a, b| truth(a < b)), Kind::Number, Kind::Truth),
        (">", two!(|a, b| truth(a > b)), Kind::Number, Kind::Truth),
    ],
    &[("+", two!(|a, b| a + b), Kind::Number, Kind::Number), ("-", two!(|a, b| a - b), Kind::Number, Kind::Number)],
    &[
        ("*", two!(|a, b| a * b), Kind::Number, Kind::Number),
        ("/", two!(|a, b| a / b), Kind::Number, Kind::Number),
        ("%", two!(|a, b| a % b), Kind::Number, Kind::Number),
    ],
];

impl Formula {
    /// Reads a formula over inputs of these names.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub(crate) fn parse(text: &str, inputs: &[&str]) -> Result<Formula, Wrong> {
        let (steps, numbers, lists) = (Vec::new(), Vec::new(), Vec::new());
        let mut parser = Parser { text, at: 0, inputs, steps, numbers, lists, nested: 0 };
        let kind = parser.level(0)?;
        if !parser.rest().is_empty() {
            let found = parser.rest().chars().next().unwrap_or_default();
            return Err(parser.wrong(format!("`{found}` is not understood here"), "write an operator, or leave it out"));
        }
        let Parser { steps, numbers, lists, .. } = parser;
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
        Ok(Formula { steps, numbers, lists, named: inputs.len(), depth, is_truth: kind == Kind::Truth })
    }

    /// Whether it is true or false, and not a number.
    pub(crate) fn is_truth(&self) -> bool {
        self.is_truth
    }

    /// How many blocks it needs to compute.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The named inputs that it reads, by their numbers.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        let all = self.steps.iter().filter_map(|step| match step {
            Step::Input(input) | Step::Binary(_, Operand::Input(input)) => Some(*input),
            _ => None,
        });
        all.filter(|input| *input < self.named)
    }

    /// The lists in the formula. Their elements are inputs of [`compute`](Formula::compute), after the named ones.
    pub(crate) fn lists(&self) -> &[Vec<f64>] {
        &self.lists
    }

    /// Computes `n` elements, of which the inputs have as many, and leaves them in the first block of the stack. The stack has
    /// [`depth`](Formula::depth) blocks.
    pub(crate) fn compute(&self, n: usize, inputs: &[Block], stack: &mut [Block]) {
        let n = n.min(LANES);
        let mut top = 0;
        for step in &self.steps {
            match step {
                Step::Input(input) => {
                    copy(&mut stack[top][..n], &inputs[*input][..n]);
                    top += 1;
                }
                Step::Number(number) => {
                    copy(&mut stack[top][..n], &self.numbers[*number][..n]);
                    top += 1;
                }
                Step::Unary(of) => of(&mut stack[top - 1][..n]),
                Step::Binary(of, Operand::Input(input)) => of(&mut stack[top - 1][..n], &inputs[*input][..n]),
                Step::Binary(of, Operand::Number(number)) => of(&mut stack[top - 1][..n], &self.numbers[*number][..n]),
                Step::Binary(of, Operand::Stack) => {
                    top -= 1;
                    let (below, above) = stack.split_at_mut(top);
                    of(&mut below[top - 1][..n], &above[0][..n]);
                }
                Step::Clamp | Step::If => {
                    top -= 2;
                    let (below, above) = stack.split_at_mut(top);
                    let others = std::iter::zip(&above[0][..n], &above[1][..n]);
                    let all = std::iter::zip(&mut below[top - 1][..n], others);
                    match step {
                        Step::If => all.for_each(|(a, (yes, no))| *a = if *a != 0.0 { *yes } else { *no }),
                        _ => all.for_each(|(a, (low, high))| *a = minimum(maximum(*a, *low), *high)),
                    }
                }
            }
        }
    }
}

/// Copies a few numbers, which is done before a call of `memcpy` has begun.
fn copy(to: &mut [f64], from: &[f64]) {
    in_turns(to, from, |to, from| *to = *from);
}

struct Parser<'a> {
    text: &'a str,
    /// The byte that is next.
    at: usize,
    inputs: &'a [&'a str],
    steps: Vec<Step>,
    numbers: Vec<Block>,
    lists: Vec<Vec<f64>>,
    nested: usize,
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
            Some('-') => Some((Kind::Number, "`-`", one!(|a| -a) as Unary)),
            Some('!') if !rest.starts_with("!=") => Some((Kind::Truth, "`!`", one!(|a| truth(a == 0.0)) as Unary)),
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
        self.binary(two!(f64::powf))?;
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
        } else if let Some((_, number)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
            self.constant(*number)?;
        } else {
            self.at = begin;
            let known = self.inputs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let near = nearest(name, self.inputs.iter().copied());
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
        self.push(Step::Input(self.inputs.len() + self.lists.len()))?;
        self.lists.push(list);
        Ok(Kind::Number)
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
            let is = self.nest(|parser| parser.level(0))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, names: &[&str], numbers: &[f64]) -> f64 {
        let formula = Formula::parse(text, names).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        let inputs: Vec<Block> = numbers.iter().map(|number| [*number; LANES]).collect();
        let mut stack = vec![[f64::NAN; LANES]; formula.depth()];
        for n in [1, LANES] {
            formula.compute(n, &inputs, &mut stack);
        }
        assert!(stack[0].iter().all(|lane| lane.to_bits() == stack[0][0].to_bits()), "{text}");
        stack[0][0]
    }

    #[test]
    fn lists_are_inputs_after_the_named_ones() {
        for (text, lists, expected) in [
            ("x - [1, 2]", &[&[1.0, 2.0][..]][..], 3.0 - 10.0),
            ("x * [ -1 , 2*3, pi ]", &[&[-1.0, 6.0, PI]], 3.0 * 10.0),
            ("(x - [1]) / [2]", &[&[1.0], &[2.0]], (3.0 - 10.0) / 20.0),
            ("1 + [5] ^ 2", &[&[5.0]], 101.0),
            ("clamp([5], [6], 15)", &[&[5.0], &[6.0]], 15.0),
        ] {
            let formula = Formula::parse(text, &["x"]).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
            assert_eq!(formula.lists(), lists, "{text}");
            assert!(formula.inputs().all(|input| input == 0), "{text}");
            let mut stack = vec![[f64::NAN; LANES]; formula.depth()];
            formula.compute(1, &[[3.0; LANES], [10.0; LANES], [20.0; LANES]], &mut stack);
            assert_eq!(stack[0][0], expected, "{text}");
        }
    }

    #[test]
    fn formulas_are_computed_as_they_are_written() {
        for (text, expected) in [
            ("3", 3.0),
            (" 1.5e3 + .5 - 2E-1 ", 1500.3),
            ("x + y * 2", 11.0),
            ("(x + y) * 2", 14.0),
            ("x - y - 1", -2.0),
            ("12 / x / 2", 2.0),
            ("17 % 5", 2.0),
            ("-17 % 5", -2.0),
            ("-x ^ 2", -9.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("2 ^ -1", 0.5),
            ("--x", 3.0),
            ("sqrt(x*x + (y-1)^2)", (9.0f64 + 9.0).sqrt()),
            ("hypot(x, 4)", 5.0),
            ("max(x, y) - min(x, y)", 1.0),
            ("max(0/0, 1) == 1", 0.0),
            ("is_nan(max(1, 0/0))", 1.0),
            ("is_nan(min(0/0, 1)) && is_nan(min(1, 0/0))", 1.0),
            ("clamp(y, 0, 2) + clamp(x, 5, 9) + clamp(1, 0, 2)", 8.0),
            ("if(x < y, x, y)", 3.0),
            ("if(x < y && !(x == 3), 1, if(y >= 4 || x != 3, 2, 3))", 2.0),
            ("x < 3", 0.0),
            ("x <= 3", 1.0),
            ("1 / 0", f64::INFINITY),
            (
                "floor(-1.5) + ceil(-1.5) + trunc(-1.5) + round(-1.5) + abs(-1.5) + sign(-1.5) + sign(0)",
                -2.0 - 1.0 - 1.0 - 2.0 + 1.5 - 1.0,
            ),
            ("deg(pi) + rad(180) / pi", 181.0),
            ("ln(e) + log2(8) + log10(100) + exp(0) + cbrt(27)", 10.0),
            ("atan2(1, 1) * 4 - pi", 0.0),
            ("in_ + _x", 7.0),
        ] {
            let names = ["x", "y", "in_", "_x"];
            let found = value(text, &names, &[3.0, 4.0, 2.0, 5.0]);
            assert!((found - expected).abs() < 1e-9 || found == expected, "{text}: {found}, not {expected}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, column, why, help) in [
            ("", 1, "a number or a name is missing", "write one"),
            ("x +", 4, "a number or a name is missing", "write one"),
            ("x y", 3, "`y` is not understood here", "operator"),
            ("(x", 3, "a `)` is missing", "close"),
            ("z + 1", 1, "there is no input `z`", "the inputs are `x`, `yaw`"),
            ("x + yaww", 5, "there is no input `yaww`", "did you mean `yaw`?"),
            ("sqr(x)", 1, "there is no function `sqr`", "did you mean `sqrt`?"),
            ("min(x)", 6, "`min` takes 2 arguments", "`,`"),
            ("abs(x, x)", 6, "`abs` takes 1 argument", "`)`"),
            ("clamp(x @ 1, 2, 3)", 9, "`@` is not understood here", "operator"),
            ("abs(x x)", 7, "`x` is not understood here", "operator"),
            ("1.2.3", 1, "`1.2.3` is no number", "0.5"),
            ("1e999", 1, "`1e999` is no number", "0.5"),
            ("x && 1", 1, "`&&` takes true or false, and this is a number", "`!= 0`"),
            ("(x > 1) + 1", 1, "`+` takes a number, and this is true or false", "`if(…, 1, 0)`"),
            ("x + (x > 1)", 5, "`+` takes a number", "`if(…, 1, 0)`"),
            ("1 < x < 3", 7, "a comparison of a comparison", "`a < b && b < c`"),
            ("!x", 2, "`!` takes true or false", "`!= 0`"),
            ("if(x, 1, 2)", 4, "`if` takes true or false", "`!= 0`"),
            ("if(x > 1, x > 2, 2)", 1, "`if` gives true or false or a number", "both"),
            ("x = 1", 3, "`=` is not understood here", "operator"),
            ("größe", 1, "there is no input `gr`", "`x`"),
            ("x - [1, 2", 10, "a `]` is missing", "close the list"),
            ("x - [1 2]", 8, "a `]` is missing", "close the list"),
            ("x - []", 6, "a number or a name is missing", "write one"),
            ("[1, x]", 5, "expected a number, found a formula", "`[0.5, -1]`"),
            ("[[1], 2]", 2, "expected a number, found a formula", "`[0.5, -1]`"),
            ("[1 < 2]", 2, "a list takes a number, and this is true or false", "`if(…, 1, 0)`"),
        ] {
            let wrong = Formula::parse(text, &["x", "yaw"]).unwrap_err();
            assert_eq!(wrong.column, column, "{text}: {wrong:?}");
            assert!(wrong.why.contains(why) && wrong.help.contains(help), "{text}: {wrong:?}");
        }
        for long in [
            "(".repeat(100_000),
            "-".repeat(100_000),
            "abs(".repeat(100_000),
            "x^".repeat(100_000),
            "[".repeat(100_000),
        ] {
            assert!(Formula::parse(&long, &["x"]).unwrap_err().why.contains("64 parts in one another"));
        }
        assert!(Formula::parse(&"x+".repeat(100_000), &["x"]).unwrap_err().why.contains("more than 1024 parts"));
        assert!(Formula::parse("1 + x > 2", &["x"]).unwrap().is_truth());
    }
}
