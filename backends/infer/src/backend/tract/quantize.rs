//! The quantization that replaces tract's.

use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::bail;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::element_wise::ElementWiseMiniOp;
use tract_onnx::tract_core::ops::math::Div;

/// Elements divided by a scale, rounded to even, plus a zero point, as the nearest number of 8
/// bits. tract multiplies by a rounded reciprocal, which takes some halves to the other of two
/// integers, and wraps far numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizeOperator {
    /// What each element is divided by.
    pub scale: f32,
    /// What is added to each quotient.
    pub zero_point: f32,
    /// `u8` or `i8`.
    pub to: DatumType,
}

impl Eq for QuantizeOperator {}

impl QuantizeOperator {
    fn quantized<T: Datum>(&self, x: &Tensor, narrow: fn(f32) -> T) -> TractResult<Tensor> {
        let x = x.cast_to::<f32>()?;
        let units = x.to_plain_array_view::<f32>()?;
        Ok(units.mapv(|x| narrow((x / self.scale).round_ties_even() + self.zero_point)).into_tensor())
    }
}

impl ElementWiseMiniOp for QuantizeOperator {
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
            other => bail!("`QuantizeLinear` must produce u8 or i8, got {other:?}"),
        }
    }
}

/// tract's quotient, which stays one: tract makes a product with reciprocals of one whose divisor
/// is constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quotient;

impl BinMiniOp for Quotient {
    fn name(&self) -> &'static str {
        Div.name()
    }

    fn result_datum_type(&self, a: DatumType, b: DatumType) -> TractResult<DatumType> {
        Div.result_datum_type(a, b)
    }

    fn eval_in_a(&self, a: &mut Tensor, b: &Tensor) -> TractResult<()> {
        Div.eval_in_a(a, b)
    }

    fn eval_out_of_place(&self, c: &mut Tensor, a: &Tensor, b: &Tensor) -> TractResult<()> {
        Div.eval_out_of_place(c, a, b)
    }

    fn is_commutative(&self) -> bool {
        false
    }
}
