//! The functions, operators and constants of formulas.

use std::f64::consts::{E, PI};

/// A function of one number, and of two: of all that are computed at a time, so that the compiler makes a loop without calls.
pub(super) type Unary = fn(&mut [f64]);
pub(super) type Binary = fn(&mut [f64], &[f64]);

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

/// What a part of a formula is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    /// 0 or 1.
    Truth,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Number => "a number",
            Kind::Truth => "true or false",
        }
    }
}

pub(super) fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

pub(super) const NEGATED: Unary = one!(|a| -a);
pub(super) const NOT: Unary = one!(|a| truth(a == 0.0));
pub(super) const POWER: Binary = two!(f64::powf);

/// Functions of one number.
pub(super) const UNARY: &[(&str, Unary)] = &[
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
pub(super) const BINARY: &[(&str, Binary)] = &[
    ("atan2", two!(f64::atan2)),
    ("hypot", two!(f64::hypot)),
    ("max", two!(maximum)),
    ("min", two!(minimum)),
    ("pow", POWER),
];

/// Functions of a number that are true or false.
pub(super) const TESTS: &[(&str, Unary)] =
    &[("is_finite", one!(|a| truth(a.is_finite()))), ("is_nan", one!(|a| truth(a.is_nan())))];

/// Functions of an angle that are angles again.
pub(super) const KEEP_ANGLES: [&str; 11] =
    ["abs", "ceil", "clamp", "deg", "floor", "if", "max", "min", "rad", "round", "trunc"];

/// The others.
pub(super) const OTHERS: [&str; 2] = ["clamp", "if"];

pub(super) const CONSTANTS: &[(&str, f64)] = &[("e", E), ("pi", PI)];

/// NaN stays NaN, unlike in `f64::max`.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// Operators between two sides, those that bind least first.
pub(super) type Operator = (&'static str, Binary, Kind, Kind);
pub(super) const LEVELS: &[&[Operator]] = &[
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
