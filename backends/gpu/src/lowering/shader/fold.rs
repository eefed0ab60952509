//! The variables `folded` and `place` of a fold.

use super::text::{Atom, Text};
use crate::lowering::{Expr, Fold, How, Kernel, Number, Scalar, Unary};

/// The type of what is folded: that of its first read, as expressions keep it.
pub(super) fn scalar_of(text: &Text<'_>, expr: &Expr) -> Result<Scalar, String> {
    Ok(match expr {
        Expr::Read(at) => text.scalar_of(*at),
        Expr::Number(number) => number.scalar(),
        Expr::Cast(to, _) => *to,
        Expr::Unary(Unary::Not, _) => Scalar::I32,
        Expr::Unary(_, a) | Expr::Exact(a) => scalar_of(text, a)?,
        Expr::Binary(op, _, _) if op.compares() => Scalar::I32,
        Expr::Binary(_, a, _) | Expr::Select(_, a, _) => scalar_of(text, a)?,
        Expr::Folded | Expr::Value(_) => return Err("a fold must not read the fold itself".into()),
    })
}

/// Begins a fold: the variable `folded`, and `place` where the coordinate is wanted.
pub(super) fn begin(text: &mut Text<'_>, fold: &Fold) -> Result<Scalar, String> {
    let scalar = scalar_of(text, &fold.value)?;
    let (f, i) = match fold.how {
        How::Sum => (0.0, 0),
        How::Product => (1.0, 1),
        How::Max | How::ArgMax { .. } => (f32::NEG_INFINITY, i32::MIN),
        How::Min | How::ArgMin { .. } => (f32::INFINITY, i32::MAX),
    };
    let first = match scalar {
        Scalar::F32 => Number::F32(f),
        Scalar::I32 => Number::I32(i),
    };
    text.variable("folded", &text.dialect.number(first));
    if matches!(fold.how, How::ArgMax { .. } | How::ArgMin { .. }) {
        text.variable("place", &nowhere(text));
    }
    Ok(scalar)
}

/// The place of a fold that has taken nothing.
fn nowhere(text: &Text<'_>) -> String {
    text.dialect.number(Number::I32(i32::MAX))
}

/// Two folded values in one, where no coordinate is wanted.
pub(super) fn joined(text: &Text<'_>, fold: &Fold, scalar: Scalar, a: &str, b: &str) -> String {
    let (function, operator) = match fold.how {
        How::Max | How::ArgMax { .. } => return text.call("max", &[a, b]),
        How::Min | How::ArgMin { .. } => return text.call("min", &[a, b]),
        How::Sum => ("exact_add", "+"),
        How::Product => ("exact_mul", "*"),
    };
    match scalar {
        _ if fold.exact => text.dialect.checked(function, &[a, b]),
        Scalar::I32 => text.dialect.whole(operator, a, b),
        Scalar::F32 => format!("{a} {operator} {b}"),
    }
}

/// Folds one value.
pub(super) fn take(text: &mut Text<'_>, fold: &Fold, scalar: Scalar, value: &str, place: &str) {
    let op = match fold.how {
        How::ArgMax { last: true } => ">=",
        How::ArgMax { last: false } => ">",
        How::ArgMin { last: true } => "<=",
        How::ArgMin { last: false } => "<",
        _ => {
            let joined = joined(text, fold, scalar, "folded", value);
            return text.line(&format!("folded = {joined};"));
        }
    };
    let first = format!("place == {}", nowhere(text));
    text.line(&format!("if ({first} || {value} {op} folded) {{ folded = {value}; place = {place}; }}"));
}

pub(super) fn result(how: How, scalar: Scalar) -> Atom {
    match how {
        How::ArgMax { .. } | How::ArgMin { .. } => ("place".into(), Scalar::I32),
        _ => ("folded".into(), scalar),
    }
}

/// Reads what does not change along the fold.
pub(super) fn hoist(text: &mut Text<'_>, kernel: &Kernel, value: &Expr) -> Result<(), String> {
    let mut reads = Vec::new();
    value.map_leaves(&mut |leaf| {
        if let Expr::Read(at) = leaf {
            reads.push(*at);
        }
        leaf.clone()
    });
    let is_outer = |at: &usize| !kernel.dims_of(&kernel.reads[*at]).iter().any(|dim| *dim >= kernel.dims.len());
    reads.iter().filter(|at| is_outer(at)).try_for_each(|at| text.read(*at).map(drop))
}
