//! The functions, operators and constants of formulas.

use std::f64::consts::{E, PI};

/// A function of one number, and of two: of all that are computed at a time, so that the compiler
/// makes a loop without calls.
pub(super) type Unary = fn(&mut [f64]);
pub(super) type Binary = fn(&mut [f64], &[f64]);

/// Numbers that a loop takes in a turn: a fixed count is a few vector instructions without a check,
/// also for short blocks.
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

/// What a part of a formula is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermKind {
    Number,
    /// 0 or 1.
    Truth,
}

impl TermKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            TermKind::Number => "a number",
            TermKind::Truth => "true or false",
        }
    }
}

pub(super) fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

pub(super) const NEGATED: Unary = one!(|a| -a);
pub(super) const NOT: Unary = one!(|a| truth(a == 0.0));
pub(super) const POWER: Binary = two!(f64::powf);

/// A function that formulas may call, by the number of its arguments.
#[derive(Clone, Copy)]
pub(super) enum FormulaFunction {
    /// Of one number, and what it gives.
    One(Unary, TermKind),
    /// Of two numbers.
    Two(Binary),
    Clamp,
    If,
    /// Of an input, not of its numbers.
    Age,
}

use FormulaFunction::{Age, Clamp, If, One, Two};

pub(super) const FUNCTIONS: &[(&str, FormulaFunction)] = &[
    ("abs", One(one!(f64::abs), TermKind::Number)),
    ("acos", One(one!(f64::acos), TermKind::Number)),
    ("asin", One(one!(f64::asin), TermKind::Number)),
    ("atan", One(one!(f64::atan), TermKind::Number)),
    ("cbrt", One(one!(f64::cbrt), TermKind::Number)),
    ("ceil", One(one!(f64::ceil), TermKind::Number)),
    ("cos", One(one!(f64::cos), TermKind::Number)),
    ("cosh", One(one!(f64::cosh), TermKind::Number)),
    ("deg", One(one!(f64::to_degrees), TermKind::Number)),
    ("exp", One(one!(f64::exp), TermKind::Number)),
    ("floor", One(one!(f64::floor), TermKind::Number)),
    ("ln", One(one!(f64::ln), TermKind::Number)),
    ("log10", One(one!(f64::log10), TermKind::Number)),
    ("log2", One(one!(f64::log2), TermKind::Number)),
    ("rad", One(one!(f64::to_radians), TermKind::Number)),
    ("round", One(one!(f64::round), TermKind::Number)),
    ("sign", One(one!(|a| if a == 0.0 { 0.0 } else { a.signum() }), TermKind::Number)),
    ("sin", One(one!(f64::sin), TermKind::Number)),
    ("sinh", One(one!(f64::sinh), TermKind::Number)),
    ("sqrt", One(one!(f64::sqrt), TermKind::Number)),
    ("tan", One(one!(f64::tan), TermKind::Number)),
    ("tanh", One(one!(f64::tanh), TermKind::Number)),
    ("trunc", One(one!(f64::trunc), TermKind::Number)),
    ("is_finite", One(one!(|a| truth(a.is_finite())), TermKind::Truth)),
    ("is_nan", One(one!(|a| truth(a.is_nan())), TermKind::Truth)),
    ("atan2", Two(two!(f64::atan2))),
    ("hypot", Two(two!(f64::hypot))),
    ("max", Two(two!(maximum))),
    ("min", Two(two!(minimum))),
    ("pow", Two(POWER)),
    ("clamp", Clamp),
    ("if", If),
    ("age", Age),
];

/// Functions of an angle that are angles again.
pub(super) const KEEP_ANGLES: [&str; 11] =
    ["abs", "ceil", "clamp", "deg", "floor", "if", "max", "min", "rad", "round", "trunc"];

pub(super) const CONSTANTS: &[(&str, f64)] = &[("e", E), ("pi", PI)];

/// NaN stays NaN, unlike in `f64::max`.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// Operators between two sides, with what they take and give.
pub(super) type Operator = (&'static str, Binary, TermKind, TermKind);
pub(super) const OPERATORS: &[Operator] = &[
    ("||", two!(|a, b| truth(a != 0.0 || b != 0.0)), TermKind::Truth, TermKind::Truth),
    ("&&", two!(|a, b| truth(a != 0.0 && b != 0.0)), TermKind::Truth, TermKind::Truth),
    ("<=", two!(|a, b| truth(a <= b)), TermKind::Number, TermKind::Truth),
    (">=", two!(|a, b| truth(a >= b)), TermKind::Number, TermKind::Truth),
    ("==", two!(|a, b| truth(a == b)), TermKind::Number, TermKind::Truth),
    ("!=", two!(|a, b| truth(a != b)), TermKind::Number, TermKind::Truth),
    ("<", two!(|a, b| truth(a < b)), TermKind::Number, TermKind::Truth),
    (">", two!(|a, b| truth(a > b)), TermKind::Number, TermKind::Truth),
    ("+", two!(|a, b| a + b), TermKind::Number, TermKind::Number),
    ("-", two!(|a, b| a - b), TermKind::Number, TermKind::Number),
    ("*", two!(|a, b| a * b), TermKind::Number, TermKind::Number),
    ("/", two!(|a, b| a / b), TermKind::Number, TermKind::Number),
    ("%", two!(|a, b| a % b), TermKind::Number, TermKind::Number),
    ("^", POWER, TermKind::Number, TermKind::Number),
];
