//! Operators that a runtime computes otherwise than ONNX defines them.

use super::contents::Op;
use super::elem::Elem;
use super::wide::MOVING;

/// An operator that a runtime is known to compute otherwise than ONNX defines it, without an error.
/// Known from the test cases of the ONNX project (`benches/backends/conformance-*.txt`, which say
/// `deviation`), from `benches/backends/operators.py` and from the tests of the backends.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The operator, as in [`Op::id`].
    pub op: &'static str,
    /// Whether a node with this operator is concerned.
    pub concerns: fn(&Op) -> bool,
    /// What the runtime does, as a sentence about the operator.
    pub what: &'static str,
}

impl Deviation {
    /// The operator of a deviation that concerns all of them.
    pub const ANY: &str = "any";

    /// Whether it concerns a node.
    pub fn is_of(&self, op: &Op) -> bool {
        (self.op == Deviation::ANY || self.op == op.id) && (self.concerns)(op)
    }
}

/// What a runtime does that computes `float64` as `float32`. A node with `allow_narrowing` accepts
/// it.
pub const NARROWS_FLOATS: &str = "computes `float64` with 7 digits instead of 15";

/// The deviation of a runtime that computes `int64` as `int32`.
pub const NARROWS_CONSTANTS: Deviation = Deviation {
    op: Deviation::ANY,
    concerns: |op| op.has_wide_constant,
    what: "narrows an `int64` constant to 32 bits",
};

/// Operators that do not compute with the numbers of their inputs, beside those that only move
/// them.
const UNCOMPUTING: &str = "\
    Cast CastLike Constant ConstantOfShape Dropout EyeLike If IsInf IsNaN Loop Not ReverseSequence Shape Size Trilu";

fn is_moving(op: &Op) -> bool {
    MOVING.iter().map(|(id, _)| *id).chain(UNCOMPUTING.split_whitespace()).any(|id| id == op.id)
}

/// Whether an operator may give a `float16` that overflows.
pub(crate) fn computes_halves(op: &Op) -> bool {
    let is_cast = matches!(&*op.id, "Cast" | "CastLike") && op.elems()[0] != Some(Elem::F16);
    op.elems()[2] == Some(Elem::F16) && (is_cast || !is_moving(op))
}

/// Whether an operator computes with numbers of `float64`, or makes integers of them.
pub fn computes_doubles(op: &Op) -> bool {
    let elems = op.elems();
    let is_cut = elems[0] == Some(Elem::F64)
        && matches!(&*op.id, "Cast" | "CastLike")
        && !matches!(elems[2], Some(Elem::F16 | Elem::F32 | Elem::F64 | Elem::Bool));
    elems.contains(&Some(Elem::F64)) && (!is_moving(op) || is_cut)
}

/// Whether a softmax covers several dims: before operator set 13 it covers all dims from `axis` on,
/// since then only `axis`.
pub(crate) fn covers_several_dims(op: &Op) -> bool {
    if op.opset >= 13 {
        return false;
    }
    let [input, _, output] = op.ranks;
    match (op.int("axis").unwrap_or(1), input.or(output)) {
        (-1, _) => false,
        (axis, Some(rank)) => axis != rank as i64 - 1,
        (_, None) => true,
    }
}

/// Whether a `Resize` aligns corners to a length that its scales give only after rounding.
pub(crate) fn aligns_fractional_corners(op: &Op) -> bool {
    let is_whole = |scales: &Vec<f32>| scales.iter().all(|scale| scale.fract() == 0.0);
    // With a fourth input it has lengths, and no scales.
    op.word("coordinate_transformation_mode") == Some("align_corners")
        && !op.has_input(3)
        && !op.scales.as_ref().is_some_and(is_whole)
}

/// Whether `auto_pad` is `SAME_UPPER` or `SAME_LOWER`.
pub(crate) fn has_same_padding(op: &Op) -> bool {
    op.word("auto_pad").is_some_and(|padding| padding.starts_with("SAME"))
}
