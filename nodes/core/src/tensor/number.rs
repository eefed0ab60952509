//! Elements as numbers of other types.

use half::{bf16, f16};
use limen::message::Element;

/// An element that converts to and from `f64` and `i128`.
pub(crate) trait Number: Element {
    const IS_WHOLE: bool;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// Used between integer types only.
    fn to_whole(self) -> i128;
    /// Used between integer types only.
    fn from_whole(value: i128) -> Self;
}

macro_rules! whole {
    ($($t:ty)*) => { $(impl Number for $t {
        const IS_WHOLE: bool = true;
        fn to_f64(self) -> f64 {
            self as f64
        }
        fn from_f64(value: f64) -> Self {
            value as $t
        }
        fn to_whole(self) -> i128 {
            i128::from(self)
        }
        fn from_whole(value: i128) -> Self {
            value.clamp(i128::from(<$t>::MIN), i128::from(<$t>::MAX)) as $t
        }
    })* };
}
whole!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! float {
    ($($t:ty, $to:expr, $from:expr;)*) => { $(impl Number for $t {
        const IS_WHOLE: bool = false;
        fn to_f64(self) -> f64 {
            $to(self)
        }
        fn from_f64(value: f64) -> Self {
            $from(value)
        }
        fn to_whole(self) -> i128 {
            $to(self) as i128
        }
        fn from_whole(value: i128) -> Self {
            $from(value as f64)
        }
    })* };
}
float! {
    f32, f64::from, |v: f64| v as f32;
    f64, |v: f64| v, |v: f64| v;
    f16, f16::to_f64, f16::from_f64;
    bf16, bf16::to_f64, bf16::from_f64;
}

/// Evaluates an expression with a type alias bound to the Rust type of a dtype.
macro_rules! with_type {
    ($dtype:expr, $t:ident, $body:expr) => {
        match $dtype {
            limen::message::DType::F32 => {
                type $t = f32;
                $body
            }
            limen::message::DType::F16 => {
                type $t = half::f16;
                $body
            }
            limen::message::DType::BF16 => {
                type $t = half::bf16;
                $body
            }
            limen::message::DType::F64 => {
                type $t = f64;
                $body
            }
            limen::message::DType::I8 => {
                type $t = i8;
                $body
            }
            limen::message::DType::U8 => {
                type $t = u8;
                $body
            }
            limen::message::DType::I16 => {
                type $t = i16;
                $body
            }
            limen::message::DType::U16 => {
                type $t = u16;
                $body
            }
            limen::message::DType::I32 => {
                type $t = i32;
                $body
            }
            limen::message::DType::U32 => {
                type $t = u32;
                $body
            }
            limen::message::DType::I64 => {
                type $t = i64;
                $body
            }
            limen::message::DType::U64 => {
                type $t = u64;
                $body
            }
        }
    };
}
pub(crate) use with_type;
