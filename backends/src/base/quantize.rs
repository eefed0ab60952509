//! The quantization that replaces tract's.

use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::bail;
use tract_onnx::tract_core::ops::element_wise::ElementWiseMiniOp;

/// Elements divided by a scale, rounded to even, plus a zero point, as the nearest number of 8 bits. tract multiplies by a rounded
/// reciprocal, which takes some halves to the other of two integers, and wraps far numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantize {
    pub(crate) scale: f32,
    pub(crate) zero_point: f32,
    /// `u8` or `i8`.
    pub(crate) to: DatumType,
}

impl Eq for Quantize {}

impl Quantize {
    fn quantized<T: Datum>(&self, x: &Tensor, narrow: fn(f32) -> T) -> TractResult<Tensor> {
        let x = x.cast_to::<f32>()?;
        let units = x.to_plain_array_view::<f32>()?;
        Ok(units.mapv(|x| narrow((x / self.scale).round_ties_even() + self.zero_point)).into_tensor())
    }
}

impl ElementWiseMiniOp for Quantize {
    fn name(&self) -> String {
        "Quantize".into()
    }

    fn output_type(&self, _: DatumType) -> Option<DatumType> {
        Some(self.to)
    }

    fn eval_out_of_place(&self, x: &Tensor, _: Option<DatumType>) -> TractResult<Tensor> {
        // Casts of Rust saturate.
        match self.to {
            DatumType::U8 => self.quantized(x, |x| x as u8),
            DatumType::I8 => self.quantized(x, |x| x as i8),
            other => bail!("no quantization to {other:?}"),
        }
    }
}
