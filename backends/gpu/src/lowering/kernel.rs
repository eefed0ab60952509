//! The kernels of a device program. A kernel computes every element of an array by one expression,
//! which may fold over dims that the array does not have: a sum over the taps of a window, a
//! maximum over a row. Everything a model does is put together of these.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The type of elements in device memory. Truth values are `I32`: 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Scalar {
    F32,
    I32,
}

/// A number in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Number {
    F32(#[serde(with = "bits")] f32),
    I32(i32),
}

/// A number as its bits, so that infinities and NaN are kept.
mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &f32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(number.to_bits())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        u32::deserialize(from).map(f32::from_bits)
    }
}

impl Number {
    pub(crate) fn scalar(self) -> Scalar {
        match self {
            Number::F32(_) => Scalar::F32,
            Number::I32(_) => Scalar::I32,
        }
    }

    /// Zero of a type.
    pub(crate) fn zero(scalar: Scalar) -> Number {
        match scalar {
            Scalar::F32 => Number::F32(0.0),
            Scalar::I32 => Number::I32(0),
        }
    }
}

/// Computes `write` for every coordinate of `dims`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kernel {
    /// What it does, for messages: the operator and the node of the model.
    pub(crate) name: String,
    /// The lengths of the output's dims.
    pub(crate) dims: Vec<usize>,
    pub(crate) fold: Option<Fold>,
    pub(crate) reads: Vec<ArrayRead>,
    /// Each may use those before it; the last one is the element's value.
    pub(crate) values: Vec<Expr>,
    pub(crate) write: Write,
    /// What it means if a result does not fit, where that is more than the number.
    pub(crate) fails: Option<Cow<'static, str>>,
    /// Instead of a fold and values: it chooses boxes, one after the other.
    pub(crate) suppression: Option<Suppression>,
}

/// The numbers of a box: left, top, right, bottom, score, class.
pub(crate) const BOX: usize = 6;

/// Greedy non-maximum suppression of the boxes of an array. The kernel's array gets `most` boxes,
/// the highest score first and zeros behind the last, and their count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suppression {
    /// The most boxes there are.
    pub(crate) boxes: usize,
    /// Whether their count follows them in the array; else there are always so many.
    pub(crate) is_counted: bool,
    /// The most boxes that are chosen.
    pub(crate) most: usize,
    /// A box is removed if its intersection over union with a chosen one is above this.
    #[serde(with = "bits")]
    pub(crate) iou: f32,
    /// Whether boxes of different classes are compared too.
    pub(crate) across_classes: bool,
}

/// A fold over dims whose coordinates come after those of the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fold {
    pub(crate) dims: Vec<usize>,
    pub(crate) how: How,
    /// Whether it fails the call where its result does not fit.
    pub(crate) exact: bool,
    /// What is folded.
    pub(crate) value: Expr,
}

/// How values are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum How {
    Sum,
    Product,
    Max,
    Min,
    /// The coordinate of the greatest value: of the first, or of the last.
    ArgMax {
        last: bool,
    },
    /// The coordinate of the smallest value: of the first, or of the last.
    ArgMin {
        last: bool,
    },
}

/// An element of an array, found by the coordinates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArrayRead {
    pub(crate) array: usize,
    pub(crate) offset: i64,
    pub(crate) axes: Vec<Axis>,
    /// The value outside of the array.
    pub(crate) outside: Number,
}

/// An index along an axis of an array: `(sum of factor x coordinate + offset) / divisor`, rounded
/// down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Axis {
    /// Coordinates of the kernel and their factors.
    pub(crate) terms: Vec<(usize, i64)>,
    /// A read whose value is added to the sum.
    pub(crate) table: Option<usize>,
    pub(crate) offset: i64,
    pub(crate) divisor: i64,
    /// Whether an index that is not a whole number lies outside.
    pub(crate) exact: bool,
    /// The length of the axis, if the index may lie outside of it.
    pub(crate) limit: Option<i64>,
    /// The distance of elements along the axis.
    pub(crate) stride: i64,
}

impl Axis {
    /// The coordinate of one dim.
    pub(crate) fn dim(dim: usize, stride: i64) -> Axis {
        Axis::sum(vec![(dim, 1)], stride)
    }

    /// A sum of coordinates.
    pub(crate) fn sum(terms: Vec<(usize, i64)>, stride: i64) -> Axis {
        Axis { terms, table: None, offset: 0, divisor: 1, exact: false, limit: None, stride }
    }

    /// Whether the index is a plain sum, which cannot lie outside.
    pub(crate) fn is_linear(&self) -> bool {
        self.table.is_none() && self.divisor == 1 && self.limit.is_none()
    }
}

/// Where a kernel stores its elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Write {
    pub(crate) array: usize,
    pub(crate) offset: i64,
    /// The distance of elements along each dim of the kernel.
    pub(crate) strides: Vec<i64>,
}

/// An expression over the coordinates of one element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Expr {
    Read(usize),
    /// The result of the fold.
    Folded,
    /// An earlier value of the kernel.
    Value(usize),
    Number(Number),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// The second where the first is not 0, the third elsewhere.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(Scalar, Box<Expr>),
    /// The result of an operation on integers that have 64 bits in the model: the call fails where
    /// it does not fit.
    Exact(Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Unary {
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    BitNot,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Floor,
    IsInf,
    IsNan,
    Ln,
    Neg,
    /// 1 for 0, 0 for every other number.
    Not,
    Recip,
    /// Halves away from zero.
    Round,
    /// Halves to the even number.
    RoundEven,
    Sigmoid,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Binary {
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Div,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Max,
    Min,
    Mul,
    NotEqual,
    Or,
    Pow,
    /// With the sign of the dividend.
    Rem,
    /// By more bits than there are: all of them.
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
}

impl Binary {
    /// Whether it compares: its result is a truth value whatever it compares.
    pub(crate) fn compares(self) -> bool {
        use Binary::*;
        matches!(self, Equal | NotEqual | Greater | GreaterEqual | Less | LessEqual)
    }
}

impl Expr {
    pub(crate) fn f32(value: f32) -> Expr {
        Expr::Number(Number::F32(value))
    }

    pub(crate) fn unary(self, op: Unary) -> Expr {
        Expr::Unary(op, Box::new(self))
    }

    pub(crate) fn binary(self, op: Binary, other: Expr) -> Expr {
        Expr::Binary(op, Box::new(self), Box::new(other))
    }

    /// Fails the call where an integer does not fit.
    pub(crate) fn exact(self) -> Expr {
        use Binary::{Add, Div, Mul, ShiftLeft, Sub};
        match self {
            Expr::Binary(Add | Div | Mul | ShiftLeft | Sub, ..)
            | Expr::Unary(Unary::Abs | Unary::Neg, _)
            | Expr::Cast(Scalar::I32, _) => Expr::Exact(Box::new(self)),
            other => other,
        }
    }

    fn is_exact(&self) -> bool {
        match self {
            Expr::Read(_) | Expr::Folded | Expr::Value(_) | Expr::Number(_) => false,
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.is_exact(),
            Expr::Binary(_, a, b) => a.is_exact() || b.is_exact(),
            Expr::Select(a, b, c) => a.is_exact() || b.is_exact() || c.is_exact(),
            Expr::Exact(_) => true,
        }
    }

    /// Calls `change` on every leaf and puts its result there.
    pub(crate) fn map_leaves(&self, change: &mut impl FnMut(&Expr) -> Expr) -> Expr {
        let mut go = |expr: &Expr| Box::new(expr.map_leaves(change));
        match self {
            Expr::Read(_) | Expr::Folded | Expr::Value(_) | Expr::Number(_) => change(self),
            Expr::Unary(op, a) => Expr::Unary(*op, go(a)),
            Expr::Binary(op, a, b) => Expr::Binary(*op, go(a), go(b)),
            Expr::Select(a, b, c) => Expr::Select(go(a), go(b), go(c)),
            Expr::Cast(to, a) => Expr::Cast(*to, go(a)),
            Expr::Exact(a) => Expr::Exact(go(a)),
        }
    }
}

impl Fold {
    /// The two reads whose products are summed, if that is all that is folded.
    pub(super) fn factors(&self) -> Option<[usize; 2]> {
        let (How::Sum, Expr::Binary(Binary::Mul, a, b)) = (self.how, &self.value) else { return None };
        let (&Expr::Read(a), &Expr::Read(b)) = (&**a, &**b) else { return None };
        Some([a, b])
    }
}

impl Kernel {
    /// The dims on whose coordinates a read depends.
    pub(super) fn dims_of(&self, read: &ArrayRead) -> Vec<usize> {
        let of_axis = |axis: &Axis| {
            let table = axis.table.map(|table| self.dims_of(&self.reads[table])).unwrap_or_default();
            axis.terms.iter().map(|(dim, _)| *dim).chain(table).collect::<Vec<_>>()
        };
        read.axes.iter().flat_map(of_axis).collect()
    }

    /// The numbers and lengths of its dims: those on which only `a` depends, only `b`, and both or
    /// neither.
    pub(super) fn sides(&self, a: &ArrayRead, b: &ArrayRead) -> [Vec<(usize, usize)>; 3] {
        let (of_a, of_b) = (self.dims_of(a), self.dims_of(b));
        let mut sides = [const { Vec::new() }; 3];
        for (dim, length) in self.dims.iter().enumerate() {
            let side = match (of_a.contains(&dim), of_b.contains(&dim)) {
                (true, false) => 0,
                (false, true) => 1,
                _ => 2,
            };
            sides[side].push((dim, *length));
        }
        sides
    }

    /// The arrays it reads, each once, in order of their first read.
    pub(crate) fn arrays(&self) -> Vec<usize> {
        let mut arrays = Vec::new();
        for read in &self.reads {
            if !arrays.contains(&read.array) {
                arrays.push(read.array);
            }
        }
        arrays
    }

    /// Whether it may fail the call.
    pub(crate) fn is_exact(&self) -> bool {
        self.fold.as_ref().is_some_and(|fold| fold.exact || fold.value.is_exact())
            || self.values.iter().any(Expr::is_exact)
    }

    /// What it says where it fails the call.
    pub(crate) fn fault(&self) -> String {
        format!("{}: {}", self.name, self.fails.as_deref().unwrap_or("a result does not fit 32 bits"))
    }

    /// The elements it writes.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Removes dims of length 1, which are always at coordinate 0.
    pub(crate) fn without_single_dims(mut self) -> Kernel {
        let folded = self.fold.as_ref().map_or(&[][..], |fold| &fold.dims[..]);
        let lengths: Vec<usize> = self.dims.iter().chain(folded).copied().collect();
        let mut to = Vec::with_capacity(lengths.len());
        let mut next = 0;
        for length in &lengths {
            to.push((*length != 1).then_some(next));
            next += usize::from(*length != 1);
        }
        for read in &mut self.reads {
            for axis in &mut read.axes {
                axis.terms = axis.terms.iter().filter_map(|(dim, factor)| Some((to[*dim]?, *factor))).collect();
            }
            read.axes.retain(|axis| !(axis.terms.is_empty() && axis.is_linear() && axis.offset == 0));
        }
        let strides = std::iter::zip(&self.dims, &self.write.strides);
        self.write.strides = strides.filter(|(length, _)| **length != 1).map(|(_, stride)| *stride).collect();
        self.dims.retain(|length| *length != 1);
        if let Some(fold) = &mut self.fold {
            fold.dims.retain(|length| *length != 1);
        }
        self
    }
}
