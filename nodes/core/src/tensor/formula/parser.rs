//! Compiles formulas.

use super::functions::{
    Binary, CONSTANTS, FUNCTIONS, FormulaFunction, KEEP_ANGLES, NEGATED, NOT, OPERATORS, TermKind, Unary,
};
use super::{Block, Formula, FormulaStep, LANES, Operand};
use crate::tensor::constant::FormulaConstant;
use limen::expression::{ExpressionError, Token, parse};
use limen::text::nearest;
use std::collections::BTreeMap;
use std::ops::Range;

impl Formula {
    /// Reads a formula over inputs of these names, and constants.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub(crate) fn parse(
        text: &str,
        inputs: &[&str],
        constants: &BTreeMap<String, FormulaConstant>,
    ) -> Result<Formula, ExpressionError> {
        let (steps, numbers, lists) = (Vec::new(), Vec::new(), Vec::new());
        let (stack, carried, ages) = (Vec::new(), Vec::new(), Vec::new());
        let mut compiler = Compiler { text, inputs, constants, steps, numbers, lists, ages, stack, carried };
        parse(text, &mut |token, at, operands| compiler.part(token, at, operands))?;
        let Compiler { mut steps, numbers, lists, ages, mut stack, carried, .. } = compiler;
        // How many lists precede the ages is known only now.
        for step in &mut steps {
            if let FormulaStep::Input(input) | FormulaStep::Binary(_, Operand::Input(input)) = step
                && let Some(age) = input.checked_sub(FIRST_AGE)
            {
                *input = inputs.len() + lists.len() + age;
            }
        }
        let (mut now, mut depth) = (0usize, 0);
        for step in &steps {
            now = match step {
                FormulaStep::Input(_) | FormulaStep::Number(_) => now + 1,
                FormulaStep::Unary(_) | FormulaStep::Binary(_, Operand::Input(_) | Operand::Number(_)) => now,
                FormulaStep::Binary(_, Operand::Stack) => now - 1,
                FormulaStep::Clamp | FormulaStep::If => now - 2,
            };
            depth = depth.max(now);
        }
        let Made { kind, makes_angles, .. } = stack.pop().expect("an expression leaves one value");
        let is_truth = kind == TermKind::Truth;
        Ok(Formula { steps, numbers, lists, ages, named: inputs.len(), depth, is_truth, carried, makes_angles })
    }
}

/// The number of the first age among the inputs, while a formula is read.
const FIRST_AGE: usize = 1 << 32;

struct Compiler<'a> {
    text: &'a str,
    inputs: &'a [&'a str],
    constants: &'a BTreeMap<String, FormulaConstant>,
    steps: Vec<FormulaStep>,
    numbers: Vec<Block>,
    lists: Vec<Vec<f64>>,
    /// The named inputs whose ages are read.
    ages: Vec<usize>,
    /// What is on the stack after the steps.
    stack: Vec<Made>,
    /// The inputs whose angles the values on the stack keep, in the order of the stack.
    carried: Vec<usize>,
}

/// What a part of a formula makes.
struct Made {
    kind: TermKind,
    /// Where its inputs begin in [`Compiler::carried`].
    carried_from: usize,
    /// Whether it is an angle whatever the inputs are.
    makes_angles: bool,
}

/// What the arguments of a function are; `None` is either.
fn arguments(function: FormulaFunction) -> &'static [Option<TermKind>] {
    const NUMBERS: [Option<TermKind>; 3] = [Some(TermKind::Number); 3];
    match function {
        FormulaFunction::One(..) | FormulaFunction::Age => &NUMBERS[..1],
        FormulaFunction::Two(_) => &NUMBERS[..2],
        FormulaFunction::Clamp => &NUMBERS,
        FormulaFunction::If => &[Some(TermKind::Truth), None, None],
    }
}

impl Compiler<'_> {
    fn part(&mut self, token: Token<'_>, at: usize, operands: &[Range<usize>]) -> Result<(), ExpressionError> {
        let text = self.text;
        let made = self.stack.split_off(self.stack.len() - operands.len());
        let expect = |operand: usize, wanted: TermKind, what: &str| {
            let is = made[operand].kind;
            if is == wanted {
                return Ok(());
            }
            let written = text[operands[operand].clone()].trim();
            let help = match wanted {
                TermKind::Number => format!("write `if({written}, 1, 0)`"),
                TermKind::Truth => format!("write `({written} != 0)`"),
            };
            let why = format!("{what} expects {}, found {}", wanted.name(), is.name());
            Err(ExpressionError::new(text, operands[operand].start, why, help))
        };
        let kind = match token {
            Token::Number(number) => {
                let value = number.parse().ok().filter(|value: &f64| value.is_finite());
                let (why, help) = (format!("`{number}` is not a number"), "write a number such as 0.5 or 1e-3");
                self.constant(value.ok_or_else(|| ExpressionError::new(text, at, why, help))?);
                TermKind::Number
            }
            Token::Name(name) => {
                self.name(name, at)?;
                TermKind::Number
            }
            Token::List => {
                (0..operands.len()).try_for_each(|element| expect(element, TermKind::Number, "a list"))?;
                self.list(operands)?;
                TermKind::Number
            }
            Token::Prefix(sign) => {
                let (kind, of) = if sign == "-" { (TermKind::Number, NEGATED) } else { (TermKind::Truth, NOT) };
                expect(0, kind, &format!("`{sign}`"))?;
                self.unary(of);
                kind
            }
            Token::Infix(sign) => {
                let known = OPERATORS.iter().find(|(known, ..)| *known == sign);
                let (_, of, takes, gives) = known.expect("formulas have all operators of the grammar");
                [0, 1].into_iter().try_for_each(|operand| expect(operand, *takes, &format!("`{sign}`")))?;
                self.binary(*of);
                *gives
            }
            Token::Call(name) => {
                let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
                let (_, function) = known.ok_or_else(|| {
                    let known: Vec<&str> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
                    self.unknown("function", name, at, &known)
                })?;
                let arguments = arguments(*function);
                if arguments.len() != operands.len() {
                    let plural = if arguments.len() == 1 { "" } else { "s" };
                    let why =
                        format!("`{name}` expects {} argument{plural}, found {}", arguments.len(), operands.len());
                    let help = format!("write `{name}({})`", ["a", "b", "c"][..arguments.len()].join(", "));
                    let end = operands[operands.len().min(arguments.len()) - 1].end;
                    return Err(ExpressionError::new(text, end, why, help));
                }
                for (operand, wanted) in arguments.iter().enumerate() {
                    wanted.map_or(Ok(()), |wanted| expect(operand, wanted, &format!("`{name}`")))?;
                }
                match *function {
                    FormulaFunction::One(of, gives) => {
                        self.unary(of);
                        gives
                    }
                    FormulaFunction::Two(of) => {
                        self.binary(of);
                        TermKind::Number
                    }
                    FormulaFunction::Clamp => {
                        self.steps.push(FormulaStep::Clamp);
                        TermKind::Number
                    }
                    FormulaFunction::Age => {
                        self.age(operands[0].start)?;
                        TermKind::Number
                    }
                    FormulaFunction::If if made[1].kind != made[2].kind => {
                        let (then, otherwise) = (made[1].kind.name(), made[2].kind.name());
                        let why = format!("`if` expects two results of one type, found {then} and {otherwise}");
                        let help = "write two numbers or two conditions";
                        return Err(ExpressionError::new(text, at, why, help));
                    }
                    FormulaFunction::If => {
                        self.steps.push(FormulaStep::If);
                        made[1].kind
                    }
                }
            }
        };
        let keeps_angles = kind == TermKind::Number
            && match token {
                Token::Call(name) => KEEP_ANGLES.contains(&name),
                _ => true,
            };
        let carried_from = made.first().map_or(self.carried.len(), |first| first.carried_from);
        if !keeps_angles {
            self.carried.truncate(carried_from);
        }
        if let Token::Name(name) = token {
            self.carried.extend(self.inputs.iter().position(|input| *input == name));
        }
        let makes_angles =
            token == Token::Call("atan2") || keeps_angles && made.iter().any(|operand| operand.makes_angles);
        self.stack.push(Made { kind, carried_from, makes_angles });
        Ok(())
    }

    /// Adds a number.
    fn constant(&mut self, number: f64) {
        self.steps.push(FormulaStep::Number(self.numbers.len()));
        self.numbers.push([number; LANES]);
    }

    /// Adds a function of one number. That of a constant is computed now.
    fn unary(&mut self, of: Unary) {
        match (self.steps.last(), self.numbers.last_mut()) {
            (Some(FormulaStep::Number(_)), Some(number)) => of(number),
            _ => self.steps.push(FormulaStep::Unary(of)),
        }
    }

    /// Adds a function of two numbers. The second is read where it is, if it was not computed; that
    /// of two constants is computed now.
    fn binary(&mut self, of: Binary) {
        if let ([.., FormulaStep::Number(_), FormulaStep::Number(_)], [.., first, second]) =
            (&self.steps[..], &mut self.numbers[..])
        {
            of(first, second);
            self.steps.pop();
            self.numbers.pop();
            return;
        }
        let operand = match self.steps.last() {
            Some(FormulaStep::Input(input)) => Operand::Input(*input),
            Some(FormulaStep::Number(number)) => Operand::Number(*number),
            _ => Operand::Stack,
        };
        if !matches!(operand, Operand::Stack) {
            self.steps.pop();
        }
        self.steps.push(FormulaStep::Binary(of, operand));
    }

    fn name(&mut self, name: &str, at: usize) -> Result<(), ExpressionError> {
        if let Some(input) = self.inputs.iter().position(|input| *input == name) {
            self.steps.push(FormulaStep::Input(input));
        } else if let Some(constant) = self.constants.get(name) {
            match constant {
                FormulaConstant::Number(number) => self.constant(*number),
                FormulaConstant::List(list) => self.push_list(list.clone()),
            }
        } else if let Some((_, number)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
            self.constant(*number);
        } else {
            let names: Vec<&str> =
                self.inputs.iter().copied().chain(self.constants.keys().map(String::as_str)).collect();
            return Err(self.unknown("input", name, at, &names));
        }
        Ok(())
    }

    /// Replaces the input read last by its age.
    fn age(&mut self, at: usize) -> Result<(), ExpressionError> {
        let Some(FormulaStep::Input(input)) = self
            .steps
            .last_mut()
            .filter(|step| matches!(step, FormulaStep::Input(input) if *input < self.inputs.len()))
        else {
            let help = match self.inputs.first() {
                Some(input) => format!("write the name of an input, such as `age({input})`"),
                None => "connect an input".into(),
            };
            return Err(ExpressionError::new(self.text, at, "`age` expects an input, found a formula", help));
        };
        let known = self.ages.iter().position(|age| age == input).unwrap_or_else(|| {
            self.ages.push(*input);
            self.ages.len() - 1
        });
        *input = FIRST_AGE + known;
        Ok(())
    }

    /// Makes a list of the numbers computed last.
    fn list(&mut self, elements: &[Range<usize>]) -> Result<(), ExpressionError> {
        let mut list = Vec::new();
        for element in elements.iter().rev() {
            // What has no input was computed to one number.
            let (Some(FormulaStep::Number(_)), Some([number, ..])) = (self.steps.pop(), self.numbers.pop()) else {
                let (why, help) = ("expected a number, found a formula", "write a list such as `[0.5, -1]`");
                return Err(ExpressionError::new(self.text, element.start, why, help));
            };
            list.push(number);
        }
        list.reverse();
        self.push_list(list);
        Ok(())
    }

    /// Adds a list.
    fn push_list(&mut self, list: Vec<f64>) {
        self.steps.push(FormulaStep::Input(self.inputs.len() + self.lists.len()));
        self.lists.push(list);
    }

    fn unknown(&self, what: &str, name: &str, at: usize, known: &[&str]) -> ExpressionError {
        let near = nearest(name, known.iter().copied());
        let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let help = format!("{near}write one of `{}`", known.join("`, `"));
        ExpressionError::new(self.text, at, format!("unknown {what} `{name}`"), help)
    }
}
