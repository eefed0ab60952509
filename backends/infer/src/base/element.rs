//! Elements of any dtype as `f64`, for code that treats all dtypes alike: recorded cases and the
//! mock.
//!
//! Real models never use this: they pass whole buffers.

use limen::backend::BackendError;
use limen::message::{DType, Element};
use std::borrow::Cow;

/// An element as a number. Integers above 2⁵³ lose their lowest bits.
trait ElementNumber: Element {
    /// The range of an integer type; `None` for floating-point types, which round.
    const RANGE: Option<(f64, f64)>;
    fn into_f64(self) -> f64;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

macro_rules! numbers {
    ($($t:ty: $range:expr),* $(,)?) => {
        $(impl ElementNumber for $t {
            const RANGE: Option<(f64, f64)> = $range;
            fn into_f64(self) -> f64 {
                self as f64
            }
            fn from_f64(value: f64) -> Self {
                value as $t
            }
        })*
    };
}
macro_rules! integers {
    ($($t:ty),*) => { numbers!($($t: Some((<$t>::MIN as f64, <$t>::MAX as f64))),*); };
}
numbers!(f32: None, f64: None);
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! halves {
    ($($t:ty),*) => {
        $(impl ElementNumber for $t {
            const RANGE: Option<(f64, f64)> = None;
            fn into_f64(self) -> f64 {
                self.to_f64()
            }
            fn from_f64(value: f64) -> Self {
                <$t>::from_f64(value)
            }
        })*
    };
}
halves!(half::f16, half::bf16);

/// Reads and writes elements of a dtype that is known only at run time.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    get: fn(&[u8]) -> f64,
    put: fn(f64, &mut [u8]),
    range: Option<(f64, f64)>,
    size: usize,
}

impl Access {
    fn of<T: ElementNumber>() -> Self {
        Access {
            // Read and written by value: the bytes may be unaligned.
            get: |bytes| bytemuck::pod_read_unaligned::<T>(bytes).into_f64(),
            put: |value, bytes| bytes.copy_from_slice(bytemuck::bytes_of(&T::from_f64(value))),
            range: T::RANGE,
            size: T::DTYPE.size(),
        }
    }

    pub(crate) fn for_dtype(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Access::of::<f32>(),
            DType::F16 => Access::of::<half::f16>(),
            DType::BF16 => Access::of::<half::bf16>(),
            DType::F64 => Access::of::<f64>(),
            DType::I8 => Access::of::<i8>(),
            DType::U8 => Access::of::<u8>(),
            DType::I16 => Access::of::<i16>(),
            DType::U16 => Access::of::<u16>(),
            DType::I32 => Access::of::<i32>(),
            DType::U32 => Access::of::<u32>(),
            DType::I64 => Access::of::<i64>(),
            DType::U64 => Access::of::<u64>(),
        }
    }

    /// The elements of some bytes.
    pub(crate) fn values(self, bytes: &[u8]) -> impl Iterator<Item = f64> + Clone {
        bytes.chunks_exact(self.size).map(self.get)
    }

    /// Writes as many elements as there are bytes and values for, rounded or saturated to the
    /// dtype.
    pub(crate) fn write(self, values: impl IntoIterator<Item = f64>, bytes: &mut [u8]) {
        for (bytes, value) in bytes.chunks_exact_mut(self.size).zip(values) {
            (self.put)(value, bytes);
        }
    }

    /// Whether the elements are integers.
    pub(crate) fn holds_only_whole(self) -> bool {
        self.range.is_some()
    }

    /// Whether the dtype can represent a value: integers must be whole and in range; floating-point
    /// types round.
    pub(crate) fn holds(self, value: f64) -> bool {
        self.range.is_none_or(|(min, max)| value.fract() == 0.0 && (min..=max).contains(&value))
    }
}

/// Returns `bytes` as elements: borrowed if they are aligned, as the engine's buffers are, else
/// copied.
///
/// # Errors
/// If the bytes are not a whole number of elements.
pub fn elements<T: Element>(bytes: &[u8]) -> Result<Cow<'_, [T]>, BackendError> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Ok(Cow::Borrowed(elements)),
        Err(_) if bytes.len().is_multiple_of(size_of::<T>()) => {
            Ok(Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()))
        }
        Err(e) => Err(BackendError::call(e)),
    }
}

/// Narrows an output that a model computes as `i64` to the `i32` that ports carry.
///
/// # Errors
/// When a value does not fit.
#[cfg(any(feature = "tract", feature = "ort", test))]
pub(crate) fn narrow(output: &str, values: &[i64]) -> Result<Vec<i32>, BackendError> {
    let narrow = |value: &i64| {
        i32::try_from(*value).map_err(|_| BackendError::Call(format!("output `{output}` must fit in i32, got {value}")))
    };
    values.iter().map(narrow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_keeps_small_numbers() {
        use DType::*;
        for dtype in [F32, F16, BF16, F64, I8, U8, I16, U16, I32, U32, I64, U64] {
            let mut bytes = vec![0; 3 * dtype.size()];
            let access = Access::for_dtype(dtype);
            access.write([0.0, 1.0, 100.0], &mut bytes);
            assert_eq!(access.values(&bytes).collect::<Vec<_>>(), [0.0, 1.0, 100.0], "{dtype}");
        }
    }

    #[test]
    fn integers_hold_only_whole_numbers_in_range() {
        let u8s = Access::for_dtype(DType::U8);
        assert!(u8s.holds(255.0) && !u8s.holds(256.0) && !u8s.holds(-1.0) && !u8s.holds(0.5) && !u8s.holds(f64::NAN));
        assert!(Access::for_dtype(DType::F32).holds(0.1));
    }

    #[test]
    fn a_number_that_is_too_large_is_named_with_its_output() {
        assert_eq!(narrow("y", &[1, i64::from(i32::MIN)]), Ok(vec![1, i32::MIN]));
        let error = narrow("y", &[1, 1 << 31]).unwrap_err().to_string();
        assert_eq!(error, "inference failed: output `y` must fit in i32, got 2147483648");
    }
}
