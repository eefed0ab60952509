//! Formulas over numbers: `sqrt(x*x + y*y)`, checked before they run and computed for several
//! elements at a time.

mod functions;
mod parser;

use functions::{Binary, Unary, maximum, minimum};
pub(crate) use functions::{TURN, in_turns};

/// Elements that are computed at a time.
pub(crate) const LANES: usize = 64;

/// As many numbers as are computed at a time.
pub(crate) type Block = [f64; LANES];

/// A formula as steps on a stack of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    steps: Vec<FormulaStep>,
    /// The numbers in the formula, as blocks.
    numbers: Vec<Block>,
    /// The lists in the formula. A step reads them as inputs that follow the named ones.
    lists: Vec<Vec<f64>>,
    /// The named inputs whose ages the formula reads, as inputs that follow the lists.
    ages: Vec<usize>,
    /// How many inputs have a name.
    named: usize,
    /// The most blocks on the stack.
    depth: usize,
    is_truth: bool,
    /// The named inputs whose angles its results keep.
    carried: Vec<usize>,
    /// Whether its results are angles because a function makes them.
    makes_angles: bool,
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
enum FormulaStep {
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

impl Formula {
    /// Whether it is true or false, and not a number.
    pub(crate) fn is_truth(&self) -> bool {
        self.is_truth
    }

    /// The named inputs that its results are angles of if they are: `yaw` in `yaw + 0.1`, but not
    /// in `sin(yaw)`.
    pub(crate) fn carried(&self) -> &[usize] {
        &self.carried
    }

    /// Whether its results are angles whatever the inputs are, as those of `atan2(y, x)`.
    pub(crate) fn makes_angles(&self) -> bool {
        self.makes_angles
    }

    /// How many blocks it needs to compute.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The named inputs that it reads, by their numbers.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        let all = self.steps.iter().filter_map(|step| match step {
            FormulaStep::Input(input) | FormulaStep::Binary(_, Operand::Input(input)) => Some(*input),
            _ => None,
        });
        all.filter(|input| *input < self.named)
    }

    /// The lists in the formula. Their elements are inputs of [`compute`](Formula::compute), after
    /// the named ones.
    pub(crate) fn lists(&self) -> &[Vec<f64>] {
        &self.lists
    }

    /// The named inputs whose ages the formula reads, in seconds. They are inputs of
    /// [`compute`](Formula::compute), after the lists.
    pub(crate) fn ages(&self) -> &[usize] {
        &self.ages
    }

    /// Computes `n` elements, of which the inputs have as many, and leaves them in the first block
    /// of the stack. The stack has [`depth`](Formula::depth) blocks.
    pub(crate) fn compute(&self, n: usize, inputs: &[Block], stack: &mut [Block]) {
        let n = n.min(LANES);
        let mut top = 0;
        for step in &self.steps {
            match step {
                FormulaStep::Input(input) => {
                    copy(&mut stack[top][..n], &inputs[*input][..n]);
                    top += 1;
                }
                FormulaStep::Number(number) => {
                    copy(&mut stack[top][..n], &self.numbers[*number][..n]);
                    top += 1;
                }
                FormulaStep::Unary(of) => of(&mut stack[top - 1][..n]),
                FormulaStep::Binary(of, Operand::Input(input)) => of(&mut stack[top - 1][..n], &inputs[*input][..n]),
                FormulaStep::Binary(of, Operand::Number(number)) => {
                    of(&mut stack[top - 1][..n], &self.numbers[*number][..n])
                }
                FormulaStep::Binary(of, Operand::Stack) => {
                    top -= 1;
                    let (below, above) = stack.split_at_mut(top);
                    of(&mut below[top - 1][..n], &above[0][..n]);
                }
                FormulaStep::Clamp | FormulaStep::If => {
                    top -= 2;
                    let (below, above) = stack.split_at_mut(top);
                    let others = std::iter::zip(&above[0][..n], &above[1][..n]);
                    let all = std::iter::zip(&mut below[top - 1][..n], others);
                    match step {
                        FormulaStep::If => all.for_each(|(a, (yes, no))| *a = if *a != 0.0 { *yes } else { *no }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::f64::consts::PI;

    fn value(text: &str, names: &[&str], numbers: &[f64]) -> f64 {
        let formula = Formula::parse(text, names, &BTreeMap::new()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
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
            let formula =
                Formula::parse(text, &["x"], &BTreeMap::new()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
            assert_eq!(formula.lists(), lists, "{text}");
            assert!(formula.inputs().all(|input| input == 0), "{text}");
            let mut stack = vec![[f64::NAN; LANES]; formula.depth()];
            formula.compute(1, &[[3.0; LANES], [10.0; LANES], [20.0; LANES]], &mut stack);
            assert_eq!(stack[0][0], expected, "{text}");
        }
    }

    #[test]
    fn ages_are_inputs_after_the_lists() {
        for (text, ages, reads, expected) in [
            ("age(x)", &[0][..], &[][..], 0.25),
            ("if(age(y) > 0.2, 0, x - [10])", &[1], &[0], 0.0),
            ("age(y) + age(x) + age((y)) + x", &[1, 0], &[0], 0.25 + 0.5 + 0.25 + 3.0),
            ("[10] * age(x)", &[0], &[], 2.5),
        ] {
            let inputs = ["x", "y"];
            let formula =
                Formula::parse(text, &inputs, &BTreeMap::new()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
            assert_eq!(formula.ages(), ages, "{text}");
            assert_eq!(formula.inputs().collect::<Vec<_>>(), reads, "{text}");
            let mut blocks = vec![[3.0; LANES], [7.0; LANES]];
            blocks.extend(formula.lists().iter().map(|list| [list[0]; LANES]));
            blocks.extend([[0.25; LANES], [0.5; LANES]]);
            let mut stack = vec![[f64::NAN; LANES]; formula.depth()];
            formula.compute(1, &blocks, &mut stack);
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
            ("", 1, "expected a number or a name", "write a number"),
            ("x +", 4, "expected a number or a name", "write a number"),
            ("x y", 3, "expected an operator, found `y`", "operator"),
            ("(x", 3, "expected `)`", "write `)`"),
            ("z + 1", 1, "unknown input `z`", "write one of `x`, `yaw`"),
            ("x + yaww", 5, "unknown input `yaww`", "did you mean `yaw`?"),
            ("sqr(x)", 1, "unknown function `sqr`", "did you mean `sqrt`?"),
            ("min(x)", 6, "`min` expects 2 arguments", "`min(a, b)`"),
            ("abs(x, x)", 6, "`abs` expects 1 argument", "`abs(a)`"),
            ("clamp(x @ 1, 2, 3)", 9, "expected an operator, found `@`", "operator"),
            ("abs(x x)", 7, "expected an operator, found `x`", "operator"),
            ("1.2.3", 1, "`1.2.3` is not a number", "0.5"),
            ("1e999", 1, "`1e999` is not a number", "0.5"),
            ("x && 1", 1, "`&&` expects true or false, found a number", "`(x != 0)`"),
            ("(x > 1) + 1", 1, "`+` expects a number, found true or false", "`if((x > 1), 1, 0)`"),
            ("x + (x > 1)", 5, "`+` expects a number", "`if((x > 1), 1, 0)`"),
            ("1 < x < 3", 7, "expected one comparison, found a chain", "`a < b && b < c`"),
            ("!x", 2, "`!` expects true or false", "`(x != 0)`"),
            ("if(x, 1, 2)", 4, "`if` expects true or false", "`(x != 0)`"),
            (
                "if(x > 1, x > 2, 2)",
                1,
                "`if` expects two results of one type, found true or false and a number",
                "write two numbers or two conditions",
            ),
            ("x = 1", 3, "expected an operator, found `=`", "operator"),
            ("größe", 1, "unknown input `gr`", "`x`"),
            ("x - [1, 2", 10, "expected `]`", "write `]`"),
            ("x - [1 2]", 8, "expected `]`", "write `]`"),
            ("x - []", 6, "expected a number or a name", "write a number"),
            ("[1, x]", 5, "expected a number, found a formula", "`[0.5, -1]`"),
            ("[[1], 2]", 2, "expected a number, found a formula", "`[0.5, -1]`"),
            (
                "age(x + 1)",
                5,
                "`age` expects an input, found a formula",
                "write the name of an input, such as `age(x)`",
            ),
            ("age(1)", 5, "`age` expects an input, found a formula", "`age(x)`"),
            ("age([1])", 5, "`age` expects an input, found a formula", "`age(x)`"),
            ("age(age(x))", 5, "`age` expects an input, found a formula", "`age(x)`"),
            ("age(-x)", 5, "`age` expects an input, found a formula", "`age(x)`"),
            ("age(x > 1)", 5, "`age` expects a number, found true or false", "`if(x > 1, 1, 0)`"),
            ("[1 < 2]", 2, "a list expects a number, found true or false", "`if(1 < 2, 1, 0)`"),
        ] {
            let wrong = Formula::parse(text, &["x", "yaw"], &BTreeMap::new()).unwrap_err();
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
            assert!(
                Formula::parse(&long, &["x"], &BTreeMap::new())
                    .unwrap_err()
                    .why
                    .contains("at most 64 levels of nesting")
            );
        }
        assert!(
            Formula::parse(&"x+".repeat(100_000), &["x"], &BTreeMap::new())
                .unwrap_err()
                .why
                .contains("at most 4096 parts")
        );
        assert!(Formula::parse("1 + x > 2", &["x"], &BTreeMap::new()).unwrap().is_truth());
    }
}
