//! Conversion between element types.

use crate::tensor::number::{Number, with_type};
use crate::tensor::shape;
use limen::message::DType;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor, TensorMut};
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts the elements of a tensor of any shape to another type: `value · scale + offset`.
///
/// A value outside the range of the output type becomes the nearest value of the output type. For a
/// floating-point type, the nearest value may be infinity. Conversion to an integer type truncates
/// fractions, as in NumPy and ONNX, and converts NaN to 0.
///
/// Without `scale` and `offset`, conversion between integer types is exact within the range of the
/// output type. The node computes all other conversions in `f64`.
///
/// Without `scale` and `offset`, an integer that `f32` or `f64` cannot represent, such as 16777217
/// in `f32`, fails the call. Time stamps and counters therefore never lose digits silently. With
/// `scale` or `offset`, the node rounds the result. `scale: 1` selects rounding without scaling.
/// For example, `scale: 1e-9` converts nanoseconds to seconds.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CastConfig {
    /// Element type of the output.
    pub dtype: DType,
    /// Factor for each element. Default: 1.
    pub scale: Option<f64>,
    /// Value added to each scaled element. Default: 0. For an integer type, `offset: 0.5` rounds
    /// non-negative values to the nearest integer.
    pub offset: Option<f64>,
}

/// Runs `kind: cast`; [`CastConfig`] says what it does.
#[derive(Debug)]
pub struct Cast {
    /// Scale and offset, if the config has either of them.
    scaled: Option<(f64, f64)>,
}

/// Converts all numbers. Returns the first integer that `D` has to round, without a scale.
fn convert<S: Number, D: Number>(scaled: Option<(f64, f64)>, from: &[S], into: &mut [D]) -> Result<(), i128> {
    let pairs = into.iter_mut().zip(from);
    match scaled {
        Some((scale, offset)) => pairs.for_each(|(to, from)| *to = D::from_f64(from.to_f64() * scale + offset)),
        None if S::IS_WHOLE && D::IS_WHOLE => pairs.for_each(|(to, from)| *to = D::from_whole(from.to_whole())),
        None => {
            pairs.for_each(|(to, from)| *to = D::from_f64(from.to_f64()));
            return first_rounded(from, into).map_or(Ok(()), Err);
        }
    }
    Ok(())
}

/// Returns the first integer that `f32` or `f64` rounds. Shorter floating-point types are for
/// models, which need no digits.
fn first_rounded<S: Number, D: Number>(from: &[S], into: &[D]) -> Option<i128> {
    if !S::IS_WHOLE || D::IS_WHOLE || size_of::<D>() < size_of::<f32>() || size_of::<S>() < size_of::<D>() {
        return None;
    }
    // A type has every integer below this.
    let exact = if size_of::<D>() == size_of::<f32>() { (1u64 << 24) as f64 } else { (1u64 << 53) as f64 };
    let is_kept = |(from, to): &(&S, &D)| from.to_f64().abs() < exact || from.to_whole() == to.to_whole();
    let rounded = from.iter().zip(into).find(|pair| !is_kept(pair))?;
    Some(rounded.0.to_whole())
}

fn cast(scaled: Option<(f64, f64)>, from: &Tensor, into: &mut TensorMut) -> Result<(), NodeError> {
    let dtype = into.dtype();
    let converted = with_type!(from.dtype(), S, {
        let from = from.as_slice::<S>()?;
        with_type!(dtype, D, convert(scaled, from, into.as_mut_slice::<D>()?))
    });
    converted.map_err(|rounded| {
        let why = format!("{dtype} cannot represent {rounded} exactly: write `scale: 1` to allow rounding");
        NodeError::input("in", why)
    })
}

impl Node for Cast {
    type Config = CastConfig;

    fn ports(config: &CastConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, value) in [("scale", config.scale), ("offset", config.offset)] {
            if let Some(value) = value.filter(|v| !v.is_finite()) {
                errors.at(field, format!("`{field}` must be finite, got {value}")).help("write a finite number");
            }
        }
        let ports = shape::takes(given.single().cloned());
        // Scaled numbers have another unit.
        let is_same = config.scale.is_none() && config.offset.is_none();
        let out = shape::any_shape(given, config.dtype).map(|spec| if is_same { spec } else { spec.without_units() });
        errors.into_result(shape::gives(ports, out).cost(Cost::Medium))
    }

    fn build(config: CastConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let is_scaled = config.scale.is_some() || config.offset.is_some();
        let scaled = is_scaled.then(|| (config.scale.unwrap_or(1.0), config.offset.unwrap_or(0.0)));
        Ok(Cast { scaled })
    }
}

impl Transform for Cast {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(input.header())?;
        shape::set_shape(&mut tensor, &input.body.shape())?;
        cast(self.scaled, &input.body, &mut tensor)?;
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn check<S: Number, D: Number + std::fmt::Debug>(scaled: Option<(f64, f64)>, from: &[S], expected: &[D]) {
        let mut out = vec![D::from_f64(0.0); from.len()];
        convert(scaled, from, &mut out).unwrap();
        assert_eq!(out, expected);
    }

    #[test]
    fn integers_are_exact_in_f32_and_f64_or_fail_the_call() {
        fn first<S: Number, D: Number>(scaled: Option<(f64, f64)>, from: &[S]) -> Result<(), i128> {
            convert(scaled, from, &mut vec![D::from_f64(0.0); from.len()])
        }
        const PAST: i64 = (1 << 53) + 1;
        const STAMP: i64 = 1_403_636_579_758_555_393;
        for (found, expected) in [
            (first::<i64, f64>(None, &[1, 1 << 53, 1 << 62, i64::MIN]), Ok(())),
            (first::<i64, f64>(None, &[1, PAST, STAMP]), Err(PAST.into())),
            (first::<i64, f64>(None, &[-PAST]), Err((-PAST).into())),
            (first::<i64, f64>(None, &[i64::MAX]), Err(i64::MAX.into())),
            (first::<u64, f64>(None, &[u64::MAX]), Err(u64::MAX.into())),
            (first::<i64, f32>(None, &[STAMP]), Err(STAMP.into())),
            (first::<u32, f32>(None, &[1 << 24, 1_700_000_000]), Ok(())),
            (first::<u32, f32>(None, &[1_700_000_001]), Err(1_700_000_001)),
            (first::<i32, f32>(None, &[-16_777_217]), Err(-16_777_217)),
            (first::<u32, f64>(None, &[u32::MAX]), Ok(())),
            (first::<u16, f32>(None, &[u16::MAX]), Ok(())),
            (first::<u16, f16>(None, &[2_049]), Ok(())),
            (first::<f64, f32>(None, &[16_777_217.0]), Ok(())),
            (first::<i64, f64>(Some((1.0, 0.0)), &[PAST]), Ok(())),
            (first::<i64, f64>(Some((1e-9, 0.0)), &[STAMP]), Ok(())),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn values_out_of_range_saturate() {
        check(None, &[-1i32, 0, 255, 256, 70_000], &[0u8, 0, 255, 255, 255]);
        check(None, &[u64::MAX, 1], &[i64::MAX, 1]);
        check(None, &[i64::MIN, -1], &[0u64, 0]);
        check(None, &[-1.9f32, 1.9, 1e9, f32::NAN, f32::NEG_INFINITY], &[-1i8, 1, 127, 0, -128]);
        check(None, &[1e9f64], &[f16::INFINITY]);
    }

    #[test]
    fn conversion_between_integer_types_is_exact() {
        let odd = (1u64 << 62) + 1;
        check(None, &[odd], &[odd as i64]);
        check(None, &[i64::MIN], &[i64::MIN]);
        check(None, &[0u8, 255], &[f16::from_f32(0.0), f16::from_f32(255.0)]);
    }

    #[test]
    fn scale_and_offset_are_applied_before_the_conversion() {
        check(Some((255.0, 0.5)), &[0.0f32, 0.5, 1.0, 2.0], &[0u8, 128, 255, 255]);
        check(Some((0.5, -1.0)), &[4u8, 255], &[1.0f32, 126.5]);
        check(Some((1.0, 1.0)), &[bf16::from_f32(2.0)], &[3i16]);
    }

    #[test]
    fn every_type_converts_to_every_other() {
        use limen::message::PortSpec;
        let types = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::U8, DType::I16, DType::U16];
        let types = [&types[..], &[DType::I32, DType::U32, DType::I64, DType::U64]].concat();
        let loan = |dtype| TensorMut::alone(&PortSpec::fixed(dtype, [2])).unwrap();
        for from in &types {
            for to in &types {
                let mut source = loan(*from);
                with_type!(*from, T, source.as_mut_slice::<T>().unwrap()[1] = Number::from_f64(42.0));
                let mut target = loan(*to);
                cast(None, &source.freeze(), &mut target).unwrap();
                with_type!(*to, T, assert_eq!(target.as_slice::<T>().unwrap()[1].to_f64(), 42.0, "{from} to {to}"));
            }
        }
    }
}
