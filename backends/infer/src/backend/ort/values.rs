//! Tensors of limen as values of ONNX Runtime, and back.

use crate::base::{elements, narrow};
use crate::onnx::{Elem, Take};
use ::ort::session::SessionInputValue;
use ::ort::value::{DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, TensorRef, ValueType};
use limen::backend::{BackendError, BatchRef};
use limen::message::{DType, Element};
use std::borrow::Cow;
use std::fmt::Debug;

/// Returns an input as a value of ONNX Runtime, without a copy where its elements have the model's
/// type.
pub(super) fn value<'a>(input: &BatchRef<'a>, elem: Elem) -> Result<SessionInputValue<'a>, BackendError> {
    match elem {
        Elem::F32 => plain::<f32>(input),
        Elem::F16 => plain::<half::f16>(input),
        Elem::U8 => plain::<u8>(input),
        Elem::I8 => plain::<i8>(input),
        Elem::U16 => plain::<u16>(input),
        Elem::I16 => plain::<i16>(input),
        Elem::U32 => plain::<u32>(input),
        Elem::I32 => plain::<i32>(input),
        Elem::U64 => plain::<u64>(input),
        Elem::I64 => converted(input, |v: i32| i64::from(v)),
        Elem::Bool => converted(input, |v: i32| v != 0),
        Elem::F64 => converted(input, |v: f32| f64::from(v)),
        Elem::BF16 => Err(BackendError::Unsupported("elements of type bf16".into())),
    }
}

fn plain<'a, T>(input: &BatchRef<'a>) -> Result<SessionInputValue<'a>, BackendError>
where
    T: Element + PrimitiveTensorElementType + Debug,
{
    match elements::<T>(input.bytes)? {
        Cow::Borrowed(elements) => TensorRef::from_array_view((input.shape, elements)).map(Into::into),
        Cow::Owned(elements) => Tensor::from_array((input.shape, elements)).map(Into::into),
    }
    .map_err(BackendError::call)
}

fn converted<'a, T, U>(input: &BatchRef<'_>, wider: impl Fn(T) -> U) -> Result<SessionInputValue<'a>, BackendError>
where
    T: Element,
    U: PrimitiveTensorElementType + Debug + Clone + 'static,
{
    let wide: Vec<U> = elements::<T>(input.bytes)?.iter().map(|value| wider(*value)).collect();
    Tensor::from_array((input.shape, wide)).map(Into::into).map_err(BackendError::call)
}

/// Passes an output on, as elements that a port can carry.
pub(super) fn give(at: usize, name: &str, value: &DynValue, take: &mut Take<'_>) -> Result<(), BackendError> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else { return Ok(()) };
    let shape: Vec<usize> = shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect();
    fn read<T: PrimitiveTensorElementType>(value: &DynValue) -> Result<&[T], BackendError> {
        value.try_extract_tensor::<T>().map(|(_, elements)| elements).map_err(BackendError::call)
    }
    macro_rules! plain {
        ($t:ty) => {
            take(at, BatchRef { dtype: <$t>::DTYPE, shape: &shape, bytes: bytemuck::cast_slice(read::<$t>(value)?) })
        };
    }
    let mut converted = |dtype: DType, bytes: &[u8]| take(at, BatchRef { dtype, shape: &shape, bytes });
    match ty {
        TensorElementType::Int64 => converted(DType::I32, bytemuck::cast_slice(&narrow(name, read(value)?)?)),
        TensorElementType::Bool => {
            let numbers: Vec<i32> = read::<bool>(value)?.iter().map(|v| i32::from(*v)).collect();
            converted(DType::I32, bytemuck::cast_slice(&numbers))
        }
        TensorElementType::Float64 => {
            let numbers: Vec<f32> = read::<f64>(value)?.iter().map(|v| *v as f32).collect();
            converted(DType::F32, bytemuck::cast_slice(&numbers))
        }
        TensorElementType::Float32 => plain!(f32),
        TensorElementType::Float16 => plain!(half::f16),
        TensorElementType::Uint8 => plain!(u8),
        TensorElementType::Int8 => plain!(i8),
        TensorElementType::Uint16 => plain!(u16),
        TensorElementType::Int16 => plain!(i16),
        TensorElementType::Uint32 => plain!(u32),
        TensorElementType::Int32 => plain!(i32),
        TensorElementType::Uint64 => plain!(u64),
        // The caller counts outputs: one that no port can carry is reported as missing.
        _ => Ok(()),
    }
}
