//! Elements as ports carry them, and as programs have them: words of 32 bits.

use crate::lowering::Scalar;
use limen::backend::{BackendError, BatchRef};
use limen::message::{DType, Element};
use limen_infer::internal::elements;
use limen_infer::onnx::{Elem, Take};
use tract_onnx::prelude::DatumType;

/// Converts an input to the elements of the device; `wide` stays empty if it has them already.
pub(super) fn widen(input: &BatchRef<'_>, elem: Elem, wide: &mut Vec<u32>) -> Result<(), BackendError> {
    fn all<T: Element>(bytes: &[u8], wide: &mut Vec<u32>, bits: impl Fn(T) -> u32) -> Result<(), BackendError> {
        wide.extend(elements::<T>(bytes)?.iter().map(|value| bits(*value)));
        Ok(())
    }
    wide.clear();
    let bytes = input.bytes;
    match elem {
        Elem::F32 | Elem::F64 | Elem::I32 | Elem::I64 => Ok(()),
        Elem::F16 => all(bytes, wide, |v: half::f16| v.to_f32().to_bits()),
        // As they are, in whole words.
        Elem::U8 if bytes.len().is_multiple_of(4) => Ok(()),
        Elem::U8 => {
            wide.resize(bytes.len().div_ceil(4), 0);
            bytemuck::cast_slice_mut(wide)[..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        Elem::I8 => all(bytes, wide, |v: i8| i32::from(v) as u32),
        Elem::U16 => all(bytes, wide, |v: u16| u32::from(v)),
        Elem::I16 => all(bytes, wide, |v: i16| i32::from(v) as u32),
        Elem::Bool => all(bytes, wide, |v: i32| u32::from(v != 0)),
        Elem::U32 | Elem::U64 | Elem::BF16 => {
            Err(BackendError::Unsupported(format!("elements of type {}", elem.dtype().name())))
        }
    }
}

/// Passes an output on, as its port carries it.
pub(super) fn give(
    at: usize,
    dtype: DatumType,
    scalar: Scalar,
    shape: &[usize],
    bytes: &[u8],
    narrow: &mut Vec<u8>,
    take: &mut Take<'_>,
) -> Result<(), BackendError> {
    fn all<T: bytemuck::NoUninit>(bytes: &[u8], narrow: &mut Vec<u8>, to: impl Fn(u32) -> T) {
        narrow.clear();
        for word in bytes.chunks_exact(4) {
            narrow.extend_from_slice(bytemuck::bytes_of(&to(bytemuck::pod_read_unaligned(word))));
        }
    }
    let own = match dtype {
        DatumType::F16 => {
            all(bytes, narrow, |bits| half::f16::from_f32(f32::from_bits(bits)));
            DType::F16
        }
        DatumType::U8 => {
            all(bytes, narrow, |bits| bits as u8);
            DType::U8
        }
        DatumType::I8 => {
            all(bytes, narrow, |bits| bits as i8);
            DType::I8
        }
        DatumType::U16 => {
            all(bytes, narrow, |bits| bits as u16);
            DType::U16
        }
        DatumType::I16 => {
            all(bytes, narrow, |bits| bits as i16);
            DType::I16
        }
        _ => {
            let dtype = if scalar == Scalar::F32 { DType::F32 } else { DType::I32 };
            return take(at, BatchRef { dtype, shape, bytes });
        }
    };
    take(at, BatchRef { dtype: own, shape, bytes: narrow })
}
