//! Tensors as text: for tables, JSON and the terminal.

use half::{bf16, f16};
use limen::Tensor;
use limen::message::DType;
use limen::node::NodeError;
use std::io::Write;

/// How infinities and NaN are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonFinite {
    /// As `NaN`, `inf` and `-inf`.
    Plain,
    /// As `null`.
    Json,
}

/// The elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Of `f32`.
    F32(&'a [f32]),
    /// Of `f16`.
    F16(&'a [f16]),
    /// Of `bf16`.
    BF16(&'a [bf16]),
    /// Of `f64`.
    F64(&'a [f64]),
    /// Of `i8`.
    I8(&'a [i8]),
    /// Of `u8`.
    U8(&'a [u8]),
    /// Of `i16`.
    I16(&'a [i16]),
    /// Of `u16`.
    U16(&'a [u16]),
    /// Of `i32`.
    I32(&'a [i32]),
    /// Of `u32`.
    U32(&'a [u32]),
    /// Of `i64`.
    I64(&'a [i64]),
    /// Of `u64`.
    U64(&'a [u64]),
}

/// Evaluates an expression for the slice of the variant.
macro_rules! each {
    ($values:expr, $v:ident => $body:expr) => {
        match $values {
            Values::F32($v) => $body,
            Values::F16($v) => $body,
            Values::BF16($v) => $body,
            Values::F64($v) => $body,
            Values::I8($v) => $body,
            Values::U8($v) => $body,
            Values::I16($v) => $body,
            Values::U16($v) => $body,
            Values::I32($v) => $body,
            Values::U32($v) => $body,
            Values::I64($v) => $body,
            Values::U64($v) => $body,
        }
    };
}

impl<'a> Values<'a> {
    /// Returns the elements of a tensor.
    ///
    /// # Errors
    /// That the tensor is on a device.
    pub fn of(tensor: &'a Tensor) -> Result<Self, NodeError> {
        Ok(match tensor.dtype() {
            DType::F32 => Values::F32(tensor.as_slice()?),
            DType::F16 => Values::F16(tensor.as_slice()?),
            DType::BF16 => Values::BF16(tensor.as_slice()?),
            DType::F64 => Values::F64(tensor.as_slice()?),
            DType::I8 => Values::I8(tensor.as_slice()?),
            DType::U8 => Values::U8(tensor.as_slice()?),
            DType::I16 => Values::I16(tensor.as_slice()?),
            DType::U16 => Values::U16(tensor.as_slice()?),
            DType::I32 => Values::I32(tensor.as_slice()?),
            DType::U32 => Values::U32(tensor.as_slice()?),
            DType::I64 => Values::I64(tensor.as_slice()?),
            DType::U64 => Values::U64(tensor.as_slice()?),
        })
    }

    pub(crate) fn len(self) -> usize {
        each!(self, v => v.len())
    }

    /// Appends a range of the elements, separated by commas.
    pub(crate) fn list(self, range: std::ops::Range<usize>, form: NonFinite, to: &mut Vec<u8>) {
        each!(self, v => for (i, value) in v.get(range).unwrap_or_default().iter().enumerate() {
            if i > 0 {
                to.push(b',');
            }
            value.write(form, to);
        });
    }
}

/// An element that can be written as text.
trait TextElement {
    fn write(&self, form: NonFinite, to: &mut Vec<u8>);
}

macro_rules! whole {
    ($($t:ty)*) => { $(impl TextElement for $t {
        fn write(&self, _: NonFinite, to: &mut Vec<u8>) {
            let _ = write!(to, "{self}");
        }
    })* };
}
whole!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! float {
    ($($t:ty)*) => { $(impl TextElement for $t {
        /// Writes the shortest digits that read back as the same number, with an exponent for very
        /// small and large ones.
        fn write(&self, form: NonFinite, to: &mut Vec<u8>) {
            let size = self.abs();
            // Writing to a vector cannot fail.
            let _ = if !self.is_finite() && form == NonFinite::Json {
                write!(to, "null")
            } else if *self == 0.0 || (1e-5..1e16).contains(&size) || !self.is_finite() {
                write!(to, "{self}")
            } else {
                write!(to, "{self:e}")
            };
        }
    })* };
}
float!(f32 f64);

impl TextElement for f16 {
    fn write(&self, form: NonFinite, to: &mut Vec<u8>) {
        self.to_f32().write(form, to);
    }
}

impl TextElement for bf16 {
    fn write(&self, form: NonFinite, to: &mut Vec<u8>) {
        self.to_f32().write(form, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_the_fewest_digits() {
        let list = |values: Values<'_>, form| {
            let mut to = Vec::new();
            values.list(0..values.len(), form, &mut to);
            String::from_utf8(to).unwrap()
        };
        let floats = [0.1, 1.0, -0.0, 1e-10, 3.4e38, 123_456.0, 1e-5];
        assert_eq!(list(Values::F32(&floats), NonFinite::Json), "0.1,1,-0,1e-10,3.4e38,123456,0.00001");
        assert_eq!(list(Values::F64(&[0.1, 1e300]), NonFinite::Plain), "0.1,1e300");
        let non_finite = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        assert_eq!(list(Values::F32(&non_finite), NonFinite::Plain), "NaN,inf,-inf");
        assert_eq!(list(Values::F32(&non_finite), NonFinite::Json), "null,null,null");
        assert_eq!(list(Values::F16(&[f16::from_f32(0.5)]), NonFinite::Json), "0.5");
        assert_eq!(list(Values::I64(&[i64::MIN]), NonFinite::Json), "-9223372036854775808");
        assert_eq!(list(Values::U8(&[]), NonFinite::Json), "");
    }

    #[test]
    fn every_finite_number_reads_back_as_itself() {
        for bits in (0..u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            let mut to = Vec::new();
            value.write(NonFinite::Json, &mut to);
            let text = String::from_utf8(to).unwrap();
            if value.is_finite() {
                assert_eq!(text.parse::<f32>().unwrap().to_bits(), bits, "{text}");
                assert!(serde_json::from_str::<f64>(&text).is_ok(), "{text}");
            }
        }
    }
}
