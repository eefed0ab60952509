//! Transforms of weights, applied when they are loaded.

use crate::array::{Quantized, Weights, gather};
use crate::base::Access;
use limen::message::DType;
use schemars::JsonSchema;
use serde::Deserialize;

/// A transform of weights, applied when they are loaded.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightTransform {
    /// Permutes the dims: `[1, 0]` transposes a matrix.
    Transpose(Vec<usize>),
    /// Changes the shape and keeps the order of the numbers.
    Reshape(Vec<usize>),
    /// Converts the elements to another type. Integers are truncated towards zero. A value outside
    /// the range of the new type is an error.
    Cast(DType),
    /// Selects a range of one dim.
    Slice(WeightSlice),
    /// Multiplies every number by this factor. Only for floating-point types.
    Scale(f64),
    /// Quantizes to 8-bit integers with a scale. Only for floating-point types.
    Quantize(Quantize),
}

/// A range of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WeightSlice {
    /// The dim, counted from 0. Default: 0.
    #[serde(default)]
    pub axis: usize,
    /// The first index. Default: 0.
    #[serde(default)]
    pub from: usize,
    /// The index after the last one.
    pub to: usize,
}

/// How numbers are quantized to 8-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantize {
    /// `i8` from -127 to 127, with zero point 0. Each index of the first dim has its own scale.
    Symmetric,
    /// `u8` from 0 to 255. Each index of the first dim has its own scale and zero point.
    Asymmetric,
}

impl Weights {
    /// Applies one transform.
    ///
    /// # Errors
    /// A message, if it does not fit these weights.
    pub fn transform(self, step: &WeightTransform) -> Result<Weights, String> {
        if self.quantized.is_some() {
            return Err("`quantize` must be the last transform".into());
        }
        match step {
            WeightTransform::Transpose(order) => self.transpose(order),
            WeightTransform::Reshape(shape) => {
                let elements = shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
                if elements != Some(self.elements()) {
                    return Err(format!("the shape {:?} cannot be reshaped to {shape:?}", self.shape));
                }
                Ok(Weights { shape: shape.clone(), ..self })
            }
            WeightTransform::Cast(dtype) => self.cast(*dtype),
            WeightTransform::Slice(slice) => self.slice(*slice),
            WeightTransform::Scale(factor) => {
                if !factor.is_finite() {
                    return Err(format!("`scale` must be finite, got {factor}"));
                }
                self.needs_floats("scale")?;
                let access = Access::for_dtype(self.dtype);
                let mut bytes = vec![0; self.bytes.len()];
                access.write(access.values(&self.bytes).map(|value| value * factor), &mut bytes);
                Ok(Weights { bytes, ..self })
            }
            WeightTransform::Quantize(how) => self.quantize(*how),
        }
    }

    fn needs_floats(&self, step: &str) -> Result<(), String> {
        if self.is_float() {
            Ok(())
        } else {
            Err(format!("`{step}` expects floating-point weights, found {}", self.dtype))
        }
    }

    fn transpose(self, order: &[usize]) -> Result<Weights, String> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return Err(format!("`transpose` must list each dim of the shape {:?} once, got {order:?}", self.shape));
        }
        let mut strides = vec![1; self.shape.len()];
        for at in (1..self.shape.len()).rev() {
            strides[at - 1] = strides[at] * self.shape[at];
        }
        let (shape, strides): (Vec<usize>, Vec<usize>) =
            order.iter().map(|dim| (self.shape[*dim], strides[*dim])).unzip();
        let bytes = gather(&self.bytes, self.dtype.size(), 0, &shape, &strides);
        Ok(Weights { shape, bytes, ..self })
    }

    fn slice(mut self, WeightSlice { axis, from, to }: WeightSlice) -> Result<Weights, String> {
        let Some(length) = self.shape.get(axis).copied() else {
            return Err(format!(
                "`axis` must be below {} for the shape {:?}, got {axis}",
                self.shape.len(),
                self.shape
            ));
        };
        if from >= to || to > length {
            return Err(format!(
                "`from` and `to` must be a range within the length {length} of dim {axis}, got {from} to {to}"
            ));
        }
        let inner = self.shape[axis + 1..].iter().product::<usize>() * self.dtype.size();
        let rows = self.bytes.chunks_exact((length * inner).max(1));
        self.bytes = rows.flat_map(|row| &row[from * inner..to * inner]).copied().collect();
        self.shape[axis] = to - from;
        Ok(self)
    }

    fn cast(self, dtype: DType) -> Result<Weights, String> {
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64);
        let (from, to) = (Access::for_dtype(self.dtype), Access::for_dtype(dtype));
        let whole = |value: f64| if is_float { value } else { value.trunc() };
        if let Some(value) = from.values(&self.bytes).find(|value| !to.holds(whole(*value))) {
            return Err(format!("the values must fit in {dtype}, got {value}"));
        }
        let mut bytes = vec![0; self.elements() * dtype.size()];
        to.write(from.values(&self.bytes).map(whole), &mut bytes);
        Ok(Weights { dtype, bytes, ..self })
    }

    fn quantize(self, how: Quantize) -> Result<Weights, String> {
        self.needs_floats("quantize")?;
        let rows = self.shape.first().copied().unwrap_or(1);
        let values: Vec<f64> = Access::for_dtype(self.dtype).values(&self.bytes).collect();
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(format!("`quantize` expects finite numbers, found {value}"));
        }
        let mut quantized = Quantized { scales: Vec::with_capacity(rows), zeros: Vec::with_capacity(rows) };
        let mut bytes = Vec::with_capacity(values.len());
        for row in values.chunks_exact((values.len() / rows.max(1)).max(1)) {
            let (low, high) = row.iter().fold((0f64, 0f64), |(low, high), v| (low.min(*v), high.max(*v)));
            let span = if how == Quantize::Symmetric { low.abs().max(high) / 127.0 } else { (high - low) / 255.0 };
            // Rounded to f32 before use, so that quantizing and dequantizing use the same scale.
            let scale = if span > 0.0 { (span as f32).max(f32::MIN_POSITIVE) } else { 1.0 };
            let zero = if how == Quantize::Symmetric { 0.0 } else { (-low / f64::from(scale)).round() };
            for value in row {
                let q = (value / f64::from(scale)).round_ties_even() + zero;
                match how {
                    Quantize::Symmetric => bytes.push((q.clamp(-127.0, 127.0) as i8).cast_unsigned()),
                    Quantize::Asymmetric => bytes.push(q.clamp(0.0, 255.0) as u8),
                }
            }
            quantized.scales.push(scale);
            quantized.zeros.push(zero as i32);
        }
        let dtype = if how == Quantize::Symmetric { DType::I8 } else { DType::U8 };
        Ok(Weights { dtype, bytes, quantized: Some(quantized), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], values: &[f32]) -> Weights {
        Weights::new(DType::F32, shape.to_vec(), bytemuck::cast_slice(values).to_vec()).unwrap()
    }

    fn numbers(weights: &Weights) -> Vec<f64> {
        Access::for_dtype(weights.dtype).values(&weights.bytes).collect()
    }

    /// Each transform, and its result for the numbers 0 to 5 in two rows according to NumPy.
    #[test]
    fn every_transform_matches_numpy() {
        let steps = [
            (r#"{"transpose": [1, 0]}"#, vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]),
            (r#"{"reshape": [3, 2]}"#, vec![3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            (r#"{"reshape": [6]}"#, vec![6], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            (r#"{"slice": {"axis": 1, "from": 1, "to": 3}}"#, vec![2, 2], vec![1.0, 2.0, 4.0, 5.0]),
            (r#"{"slice": {"to": 1}}"#, vec![1, 3], vec![0.0, 1.0, 2.0]),
            (r#"{"scale": 0.5}"#, vec![2, 3], vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
            (r#"{"cast": "u8"}"#, vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            (r#"{"cast": "bf16"}"#, vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        ];
        for (step, shape, expected) in steps {
            let step: WeightTransform = serde_json::from_str(step).unwrap();
            let weights = floats(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).transform(&step).unwrap();
            assert_eq!((&weights.shape, numbers(&weights)), (&shape, expected), "{step:?}");
        }
        let cube = floats(&[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let turned = cube.transform(&WeightTransform::Transpose(vec![2, 0, 1])).unwrap();
        assert_eq!(numbers(&turned), [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]);
        let cut = floats(&[4], &[1.9, -1.9, 0.5, 127.4]).transform(&WeightTransform::Cast(DType::I8)).unwrap();
        assert_eq!(numbers(&cut), [1.0, -1.0, 0.0, 127.0]);
    }

    #[test]
    fn a_transform_that_does_not_fit_is_an_error() {
        let steps = [
            (r#"{"transpose": [0]}"#, "`transpose` must list each dim of the shape [2, 3] once, got [0]"),
            (r#"{"transpose": [0, 0]}"#, "must list each dim"),
            (r#"{"reshape": [4]}"#, "[2, 3] cannot be reshaped to [4]"),
            (r#"{"slice": {"axis": 2, "to": 1}}"#, "`axis` must be below 2 for the shape [2, 3], got 2"),
            (r#"{"slice": {"axis": 1, "from": 2, "to": 2}}"#, "must be a range within the length 3 of dim 1"),
            (r#"{"slice": {"axis": 1, "to": 4}}"#, "must be a range within the length 3 of dim 1"),
            (r#"{"cast": "u8"}"#, "must fit in u8, got -1"),
            (r#"{"quantize": "symmetric"}"#, "`quantize` expects finite numbers, found inf"),
        ];
        for (step, why) in steps {
            let step: WeightTransform = serde_json::from_str(step).unwrap();
            let error = floats(&[2, 3], &[0.0, -1.0, 2.0, 3.0, 4.0, f32::INFINITY]).transform(&step).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let whole = floats(&[2], &[1.0, 2.0]).transform(&WeightTransform::Cast(DType::I32)).unwrap();
        let error = whole.transform(&WeightTransform::Scale(2.0)).unwrap_err();
        assert_eq!(error, "`scale` expects floating-point weights, found i32");
    }

    /// Each dequantized value is at most half a scale from the original.
    #[test]
    fn quantized_weights_are_near_the_original() {
        let values = [0.5f32, -1.0, 0.25, 10.0, 20.0, 30.0, 0.0, 0.0, 0.0];
        for how in [Quantize::Symmetric, Quantize::Asymmetric] {
            let weights = floats(&[3, 3], &values).transform(&WeightTransform::Quantize(how)).unwrap();
            let Quantized { scales, zeros } = weights.quantized.clone().unwrap();
            for (at, (q, value)) in std::iter::zip(numbers(&weights), values).enumerate() {
                let (scale, zero) = (f64::from(scales[at / 3]), f64::from(zeros[at / 3]));
                let dequantized = scale * (q - zero);
                assert!(
                    (dequantized - f64::from(value)).abs() <= scale * 0.5001,
                    "{how:?} {at}: {dequantized} {value}"
                );
            }
            assert_eq!((scales[2], zeros[2]), (1.0, 0), "a row of zeros");
        }
        let exact = floats(&[1, 3], &[-127.0, 1.0, 127.0]).transform(&WeightTransform::Quantize(Quantize::Symmetric));
        let exact = exact.unwrap();
        assert_eq!((exact.dtype, numbers(&exact)), (DType::I8, vec![-127.0, 1.0, 127.0]));
        let whole = floats(&[1, 3], &[-55.0, 0.0, 200.0]).transform(&WeightTransform::Quantize(Quantize::Asymmetric));
        let whole = whole.unwrap();
        assert_eq!((whole.dtype, numbers(&whole)), (DType::U8, vec![0.0, 55.0, 255.0]));
    }
}
