//! Operators that a runtime computes otherwise than ONNX defines them.

use super::contents::Op;

/// An operator that a runtime is known to compute otherwise than ONNX defines it, without an error. Known from the test cases of
/// the ONNX project (`benches/backends/conformance-*.txt`, which say `deviation`), from `benches/backends/operators.py` and from the tests
/// of the backends.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The operator, as in [`Op::id`].
    pub op: &'static str,
    /// Whether a node with this operator is concerned.
    pub concerns: fn(&Op) -> bool,
    /// What the runtime does, as a sentence about the operator.
    pub what: &'static str,
}

/// The rows of a table of deviations, and those of a runtime that computes with 32 bits of an `i64` constant. Such constants matter to
/// the operators of `ARITHMETIC` in `contents`: elsewhere the greatest `i64` means an end, for example.
#[cfg(any(feature = "rten", feature = "tract"))]
macro_rules! with_narrowed_constants {
    ($($row:expr),* $(,)?) => {
        $crate::onnx::with_narrowed_constants!(
            [$($row),*] "Add" "Sub" "Mul" "Div" "Mod" "Max" "Min" "Sum" "Mean" "Pow" "Equal" "Greater" "GreaterOrEqual" "Less"
            "LessOrEqual" "Where"
        )
    };
    ([$($row:expr),*] $($op:literal)*) => {
        &[$($row,)* $($crate::onnx::Deviation {
            op: $op,
            concerns: |op| op.has_wide_constant,
            what: "may compute with 32 bits of an `i64` constant that has more",
        }),*]
    };
}
#[cfg(any(feature = "rten", feature = "tract"))]
pub(crate) use with_narrowed_constants;

/// Whether a softmax covers several dims: before operator set 13 it covers all dims from `axis` on, since then only `axis`.
#[cfg(feature = "rten")]
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
#[cfg(any(feature = "ort", feature = "rten"))]
pub(crate) fn aligns_fractional_corners(op: &Op) -> bool {
    let is_whole = |scales: &Vec<f32>| scales.iter().all(|scale| scale.fract() == 0.0);
    // With a fourth input it has lengths, and no scales.
    op.word("coordinate_transformation_mode") == Some("align_corners")
        && !op.has_input(3)
        && !op.scales.as_ref().is_some_and(is_whole)
}

/// Whether `auto_pad` is `SAME_UPPER` or `SAME_LOWER`.
#[cfg(any(feature = "ort", feature = "rten", feature = "tract"))]
pub(crate) fn has_same_padding(op: &Op) -> bool {
    op.word("auto_pad").is_some_and(|padding| padding.starts_with("SAME"))
}
