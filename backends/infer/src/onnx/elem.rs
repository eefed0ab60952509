//! The element types of models.

use limen::backend::BatchRef;
use limen::message::DType;

/// An element type of a model's input or output that a port can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Elem {
    F32,
    U8,
    I8,
    U16,
    I16,
    I32,
    I64,
    Bool,
    F16,
    F64,
    U32,
    U64,
    BF16,
}

impl Elem {
    /// Every element type.
    pub const ALL: [Elem; 13] = [
        Elem::F32,
        Elem::U8,
        Elem::I8,
        Elem::U16,
        Elem::I16,
        Elem::I32,
        Elem::I64,
        Elem::Bool,
        Elem::F16,
        Elem::F64,
        Elem::U32,
        Elem::U64,
        Elem::BF16,
    ];

    /// Returns the element types of the ports that a runtime can read: `reads` is called with each
    /// type and an input of one zero. Use it in [`Runtime::probe`](super::Runtime::probe) with the
    /// function that converts the inputs of a call.
    ///
    /// ```
    /// use limen::message::DType;
    /// use limen_infer::onnx::Elem;
    /// // Ports carry `f64` as `f32`.
    /// let floats = Elem::readable(|elem, _| matches!(elem, Elem::F16 | Elem::F64));
    /// assert_eq!(floats, [DType::F16, DType::F32]);
    /// ```
    pub fn readable(reads: impl Fn(Elem, &BatchRef<'_>) -> bool) -> Vec<DType> {
        let mut found = Vec::new();
        for elem in Elem::ALL {
            let dtype = elem.dtype();
            let zero = [0; size_of::<u64>()];
            let input = BatchRef { dtype, shape: &[1], bytes: &zero[..dtype.size()] };
            if !found.contains(&dtype) && reads(elem, &input) {
                found.push(dtype);
            }
        }
        found
    }

    pub(super) fn of(code: i32) -> Option<Elem> {
        Some(match code {
            1 => Elem::F32,
            2 => Elem::U8,
            3 => Elem::I8,
            4 => Elem::U16,
            5 => Elem::I16,
            6 => Elem::I32,
            7 => Elem::I64,
            9 => Elem::Bool,
            10 => Elem::F16,
            11 => Elem::F64,
            12 => Elem::U32,
            13 => Elem::U64,
            16 => Elem::BF16,
            _ => return None,
        })
    }

    /// Returns the dtype of the port that carries it: `i32` for `i64` and `bool`, and `f32` for
    /// `f64`, on every runtime, so that a graph does not change with its backend.
    pub fn dtype(self) -> DType {
        match self {
            Elem::F32 | Elem::F64 => DType::F32,
            Elem::U8 => DType::U8,
            Elem::I8 => DType::I8,
            Elem::U16 => DType::U16,
            Elem::I16 => DType::I16,
            Elem::I32 | Elem::I64 | Elem::Bool => DType::I32,
            Elem::F16 => DType::F16,
            Elem::U32 => DType::U32,
            Elem::U64 => DType::U64,
            Elem::BF16 => DType::BF16,
        }
    }
}

/// Returns ONNX's name of an element type, and the bits of an element; 0 if they are not fixed.
pub(super) fn elem_of(code: i32) -> (&'static str, u64) {
    match code {
        1 => ("float", 32),
        2 => ("uint8", 8),
        3 => ("int8", 8),
        4 => ("uint16", 16),
        5 => ("int16", 16),
        6 => ("int32", 32),
        7 => ("int64", 64),
        8 => ("string", 0),
        9 => ("bool", 8),
        10 => ("float16", 16),
        11 => ("double", 64),
        12 => ("uint32", 32),
        13 => ("uint64", 64),
        14 => ("complex64", 64),
        15 => ("complex128", 128),
        16 => ("bfloat16", 16),
        17..=20 | 24 => ("float8", 8),
        21 => ("uint4", 4),
        22 => ("int4", 4),
        23 => ("float4e2m1", 4),
        _ => ("unknown", 0),
    }
}
