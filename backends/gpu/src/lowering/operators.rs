//! The operators of tract's decluttered models.

use super::kernel::{Axis, Binary, Expr, How, Number, Scalar, Unary};
use super::model::{Lowering, Operands, Refusal, is_wide, scalar, shape, text};
use super::value::{StridedValue, row_major};
use limen_infer::internal::{QuantizeOperator, WideSum};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::array::{
    Gather, GatherElements, MultiBroadcastTo, OneHot, Pad, Slice, Trilu, TypedConcat,
};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::change_axes::AxisOp;
use tract_onnx::tract_core::ops::cnn::{Conv, Deconv, MaxPool, SumPool};
use tract_onnx::tract_core::ops::downsample::Downsample;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::gru_cell::GruEpilogue;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::identity::Identity;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::lstm_cell::LstmEpilogue;
use tract_onnx::tract_core::ops::math::{IsInf, PowConst};
use tract_onnx::tract_core::ops::nn::{
    GeluApproximate, LeakyRelu, NearestUpsample, Reduce, Reducer, Resize, RmsNorm, Softmax, SoftmaxKind,
};
use tract_onnx::tract_core::ops::quant::DequantizeLinearF32;
use tract_onnx::tract_core::ops::scan::Scan;

impl Lowering {
    /// Lowers one operator and returns its outputs.
    pub(super) fn operator(
        &mut self,
        given: &Operands<'_>,
        facts: &[&TypedFact],
    ) -> Result<Vec<StridedValue>, Refusal> {
        let op = &*given.node.op;
        if let Some(op) = op.downcast_ref::<Scan>() {
            return self.scan(op, given, facts);
        }
        if let Some(op) = op.downcast_ref::<LstmEpilogue>() {
            return self.lstm_cell(op.hidden, given);
        }
        if let Some(op) = op.downcast_ref::<GruSeq>() {
            return self.gru(op, given, facts);
        }
        let fact = facts.first().ok_or("expected an output, found none")?;
        let (shape, scalar) = (shape(fact)?, scalar(fact.datum_type)?);
        Ok(vec![self.one_output(given, fact, shape, scalar)?])
    }

    fn one_output(
        &mut self,
        given: &Operands<'_>,
        fact: &TypedFact,
        shape: Vec<usize>,
        scalar: Scalar,
    ) -> Result<StridedValue, Refusal> {
        let op = &*given.node.op;
        let name = &*given.node.op.name();
        if op.is::<Identity>() {
            return given.value(0);
        }
        if let Some(op) = op.downcast_ref::<TypedBinOp>() {
            let (binary, swapped) = match op.0.name() {
                "SubF" => (Binary::Sub, true),
                other => (binary(other)?, false),
            };
            let (a, b) = if swapped { (1, 0) } else { (0, 1) };
            let value = |v: &[Expr]| wrap(v[a].clone().binary(binary, v[b].clone()), fact.datum_type);
            return self.broadcast(name, given, scalar, &shape, value);
        }
        if let Some(op) = op.downcast_ref::<ElementWiseOp>() {
            let x = given.value(0)?;
            let value = element_wise(op, given.fact(0)?.datum_type)?;
            return Ok(self.map(name, scalar, &shape, &[&x], wrap(value, fact.datum_type)));
        }
        if let Some(op) = op.downcast_ref::<DequantizeLinearF32>() {
            let units = Expr::Read(0).binary(Binary::Sub, Expr::Number(Number::I32(op.zero_point)));
            let value = Expr::Cast(Scalar::F32, Box::new(units)).binary(Binary::Mul, Expr::f32(op.scale));
            return Ok(self.map(name, scalar, &shape, &[&given.value(0)?], value));
        }
        if let Some(op) = op.downcast_ref::<Cast>() {
            return self.cast(name, given, op.to, scalar, &shape);
        }
        if op.is::<Iff>() {
            let select = |v: &[Expr]| Expr::Select(v[0].clone().into(), v[1].clone().into(), v[2].clone().into());
            return self.broadcast(name, given, scalar, &shape, select);
        }
        if let Some(op) = op.downcast_ref::<AxisOp>() {
            return self.axis_op(op, given.value(0)?, shape);
        }
        if op.is::<MultiBroadcastTo>() {
            let mut x = given.value(0)?;
            let new = shape.len() - x.shape.len();
            let stride = |dim: usize| if dim < new { 0 } else { x.stride(dim - new) };
            x.strides = (0..shape.len()).map(stride).collect();
            x.shape = shape;
            return Ok(x);
        }
        if let Some(op) = op.downcast_ref::<Slice>() {
            let mut x = given.value(0)?;
            x.offset += x.strides[op.axis] * op.start.to_i64().map_err(text)?;
            x.shape = shape;
            return Ok(x);
        }
        if let Some(op) = op.downcast_ref::<Downsample>() {
            let mut x = given.value(0)?;
            let first = if op.stride < 0 { x.shape[op.axis] as i64 - 1 - op.modulo as i64 } else { op.modulo as i64 };
            x.offset += x.strides[op.axis] * first;
            x.strides[op.axis] *= op.stride as i64;
            x.shape = shape;
            return Ok(x);
        }
        if let Some(op) = op.downcast_ref::<TypedConcat>() {
            return self.concat(name, &given.all()?, op.axis, scalar, &shape);
        }
        if let Some(op) = op.downcast_ref::<Gather>() {
            return self.gather(name, op.axis, &given.value(0)?, &given.value(1)?, &shape);
        }
        if let Some(op) = op.downcast_ref::<GatherElements>() {
            return Ok(self.gather_elements(name, op.axis, &given.value(0)?, &given.value(1)?, &shape));
        }
        if let Some(op) = op.downcast_ref::<OneHot>() {
            return self.one_hot(name, op, &given.value(0)?, &shape);
        }
        if let Some(op) = op.downcast_ref::<Trilu>() {
            return self.triangle(name, op, given, &shape);
        }
        if let Some(op) = op.downcast_ref::<Pad>() {
            return self.pad(name, op, &given.value(0)?, &shape);
        }
        if let Some(op) = op.downcast_ref::<NearestUpsample>() {
            let x = given.value(0)?;
            let axis = |dim: usize| {
                let mut axis = Axis::dim(dim, x.stride(dim));
                axis.divisor = op.scales[dim] as i64;
                axis
            };
            let read = x.read((0..shape.len()).map(axis).collect());
            return Ok(self.compute(name, scalar, &shape, None, vec![read], Expr::Read(0)));
        }
        if let Some(op) = op.downcast_ref::<Resize>() {
            return self.resize(name, op, given, &shape);
        }
        let sum = op.downcast_ref::<WideSum>().map(|sum| &sum.0);
        if let Some(op) = op.downcast_ref::<Reduce>().or(sum) {
            return self.reduce_op(name, op, given.value(0)?, fact);
        }
        if let Some(op) = op.downcast_ref::<Softmax>() {
            if op.quant_output_dt.is_some() {
                return Err("quantized results are not supported".into());
            }
            return Ok(self.softmax(&given.value(0)?, &op.axes, op.kind));
        }
        if let Some(op) = op.downcast_ref::<RmsNorm>() {
            let x = given.value(0)?;
            let eps: f32 = op.eps.cast_to_scalar().map_err(text)?;
            let square = Expr::Read(0).binary(Binary::Mul, Expr::Read(0));
            let mean = mean(x.shape[op.axis]).binary(Binary::Add, Expr::f32(eps));
            let scale = mean.unary(Unary::Sqrt).unary(Unary::Recip);
            let scale = self.reduce(name, &x, &[op.axis], How::Sum, square, scale);
            let value = Expr::Read(0).binary(Binary::Mul, Expr::Read(1));
            return Ok(self.map(name, scalar, &shape, &[&x, &scale], value));
        }
        if let Some(op) = op.downcast_ref::<EinSum>() {
            return self.einsum(op, given, &shape);
        }
        if let Some(op) = op.downcast_ref::<Conv>() {
            return self.conv(op, given, &shape);
        }
        if let Some(op) = op.downcast_ref::<Deconv>() {
            return self.deconv(op, given, &shape);
        }
        if let Some(op) = op.downcast_ref::<MaxPool>() {
            if op.with_index_outputs.is_some() {
                return Err("an output of indices is not supported".into());
            }
            return self.pool(name, &op.pool_spec, given, &shape, None);
        }
        if let Some(op) = op.downcast_ref::<SumPool>() {
            let count = op.normalize.then_some(op.count_include_pad);
            return self.pool(name, &op.pool_spec, given, &shape, Some(count));
        }
        if let Some(op) = op.downcast_ref::<GruEpilogue>() {
            let [xh, rh, before] = [given.value(0)?, given.value(1)?, given.value(2)?];
            return Ok(self.gru_cell(op.hidden, &xh, &rh, &before));
        }
        Err("the operator is not implemented on devices".into())
    }

    /// Computes elements from those of all inputs at the same place; numbers that are one
    /// everywhere are written into the expression.
    fn broadcast(
        &mut self,
        name: &str,
        given: &Operands<'_>,
        scalar: Scalar,
        shape: &[usize],
        value: impl Fn(&[Expr]) -> Expr,
    ) -> Result<StridedValue, Refusal> {
        let mut inputs = Vec::new();
        let mut exprs = Vec::new();
        for at in 0..given.len() {
            match given.number(at) {
                Some(number) => exprs.push(Expr::Number(number)),
                None => {
                    exprs.push(Expr::Read(inputs.len()));
                    inputs.push(given.value(at)?);
                }
            }
        }
        let inputs: Vec<&StridedValue> = inputs.iter().collect();
        Ok(self.map(name, scalar, shape, &inputs, value(&exprs)))
    }

    fn cast(
        &mut self,
        name: &str,
        given: &Operands<'_>,
        to: DatumType,
        scalar: Scalar,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let x = given.value(0)?;
        let from = given.fact(0)?.datum_type;
        if to == DatumType::Bool {
            let zero = Expr::Number(Number::zero(x.scalar));
            return Ok(self.map(name, scalar, shape, &[&x], Expr::Read(0).binary(Binary::NotEqual, zero)));
        }
        if x.scalar == scalar {
            // An `f64` and an `f16` are an `f32` on the device; integers keep their low bits.
            let value = wrap(Expr::Read(0), to);
            let is_same = from == to || from == DatumType::Bool || value == Expr::Read(0);
            return Ok(if is_same { x } else { self.map(name, scalar, shape, &[&x], value) });
        }
        // Numbers beyond a narrow type become its greatest or least, as tract casts them.
        let within = match (scalar, range(to)) {
            (Scalar::I32, Some([least, greatest])) => {
                Expr::Read(0).binary(Binary::Max, Expr::f32(least)).binary(Binary::Min, Expr::f32(greatest))
            }
            _ => Expr::Read(0),
        };
        let value = Expr::Cast(scalar, Box::new(within));
        Ok(self.map(name, scalar, shape, &[&x], if is_wide(to) { value.exact() } else { value }))
    }

    fn axis_op(&mut self, op: &AxisOp, mut x: StridedValue, shape: Vec<usize>) -> Result<StridedValue, Refusal> {
        match op {
            AxisOp::Add(at) => {
                x.shape.insert(*at, 1);
                x.strides.insert(*at, 0);
            }
            AxisOp::Rm(at) => {
                x.shape.remove(*at);
                x.strides.remove(*at);
            }
            AxisOp::Move(from, to) => {
                let (length, stride) = (x.shape.remove(*from), x.strides.remove(*from));
                x.shape.insert(*to, length);
                x.strides.insert(*to, stride);
            }
            AxisOp::Reshape(..) => {
                if !x.is_whole() {
                    x = self.copy("Reshape", &x);
                }
                x.strides = row_major(&shape);
                x.shape = shape;
            }
        }
        Ok(x)
    }

    fn concat(
        &mut self,
        name: &str,
        parts: &[StridedValue],
        axis: usize,
        scalar: Scalar,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let whole = self.space(name, scalar, shape);
        let mut into = whole.clone();
        for part in parts {
            self.copy_into(name, part, &into)?;
            into.offset += part.shape[axis] as i64 * into.strides[axis];
        }
        Ok(whole)
    }

    fn reduce_op(
        &mut self,
        name: &str,
        op: &Reduce,
        x: StridedValue,
        fact: &TypedFact,
    ) -> Result<StridedValue, Refusal> {
        if op.axes.iter().any(|axis| x.shape[*axis] == 0) {
            return Err("a reduced axis must have at least 1 element, got 0".into());
        }
        let square = Expr::Read(0).binary(Binary::Mul, Expr::Read(0));
        let count = op.axes.iter().map(|axis| x.shape[*axis]).product();
        let (how, of, value) = match op.reducer {
            Reducer::Sum => (How::Sum, Expr::Read(0), Expr::Folded),
            Reducer::Prod => (How::Product, Expr::Read(0), Expr::Folded),
            Reducer::Max | Reducer::Any => (How::Max, Expr::Read(0), Expr::Folded),
            Reducer::Min | Reducer::All => (How::Min, Expr::Read(0), Expr::Folded),
            Reducer::MeanOfSquares => (How::Sum, square, mean(count)),
            Reducer::ArgMax(_) | Reducer::ArgMin(_) if op.axes.len() != 1 => {
                return Err(format!("expected 1 axis, found {}", op.axes.len()));
            }
            Reducer::ArgMax(last) => (How::ArgMax { last }, Expr::Read(0), Expr::Folded),
            Reducer::ArgMin(last) => (How::ArgMin { last }, Expr::Read(0), Expr::Folded),
        };
        if fact.datum_type.is_float() != (x.scalar == Scalar::F32)
            && !matches!(how, How::ArgMax { .. } | How::ArgMin { .. })
        {
            return Err(format!("results of type {:?} are not supported", fact.datum_type));
        }
        let result = self.reduce(name, &x, &op.axes, how, of, value);
        let fold = self.program.kernels.last_mut().and_then(|kernel| kernel.fold.as_mut());
        // A greatest, least or place of an element fits where the element does.
        let grows = matches!(how, How::Sum | How::Product);
        fold.into_iter().for_each(|fold| fold.exact = grows && is_wide(fact.datum_type));
        Ok(result)
    }

    fn softmax(&mut self, x: &StridedValue, axes: &[usize], kind: SoftmaxKind) -> StridedValue {
        let rank = x.shape.len();
        let greatest = self.reduce("Softmax", x, axes, How::Max, Expr::Read(0), Expr::Folded);
        let shifted = |x: usize, greatest: usize| Expr::Read(x).binary(Binary::Sub, Expr::Read(greatest));
        let total = self.reduce("Softmax", x, axes, How::Sum, shifted(0, 1).unary(Unary::Exp), Expr::Folded);
        // The sum reads the greatest value of its row, too.
        if let Some(kernel) = self.program.kernels.last_mut() {
            kernel.reads.push(greatest.at(rank));
        }
        let value = match kind {
            SoftmaxKind::Softmax => shifted(0, 1).unary(Unary::Exp).binary(Binary::Div, Expr::Read(2)),
            SoftmaxKind::LogSoftmax => shifted(0, 1).binary(Binary::Sub, Expr::Read(2).unary(Unary::Ln)),
        };
        self.map("Softmax", x.scalar, &x.shape, &[x, &greatest, &total], value)
    }
}

/// The least and the greatest number of an integer type that is narrower than those of the device.
fn range(dtype: DatumType) -> Option<[f32; 2]> {
    match dtype {
        DatumType::U8 => Some([0.0, 255.0]),
        DatumType::I8 => Some([-128.0, 127.0]),
        DatumType::U16 => Some([0.0, 65535.0]),
        DatumType::I16 => Some([-32768.0, 32767.0]),
        _ => None,
    }
}

fn mean(count: usize) -> Expr {
    Expr::Folded.binary(Binary::Mul, Expr::f32(1.0 / count as f32))
}

fn binary(name: &str) -> Result<Binary, Refusal> {
    Ok(match name {
        "Add" => Binary::Add,
        "Sub" => Binary::Sub,
        "Mul" => Binary::Mul,
        "Div" => Binary::Div,
        "Rem" => Binary::Rem,
        "Min" => Binary::Min,
        "Max" => Binary::Max,
        "Pow" => Binary::Pow,
        "And" => Binary::And,
        "Or" => Binary::Or,
        "Xor" => Binary::Xor,
        "BitAnd" => Binary::BitAnd,
        "BitOr" => Binary::BitOr,
        "BitXor" => Binary::BitXor,
        "ShiftLeft" => Binary::ShiftLeft,
        "ShiftRight" => Binary::ShiftRight,
        "Eq" => Binary::Equal,
        "NE" => Binary::NotEqual,
        "LT" => Binary::Less,
        "LTE" => Binary::LessEqual,
        "GT" => Binary::Greater,
        "GTE" => Binary::GreaterEqual,
        _ => return Err("the operator is not implemented on devices".into()),
    })
}

/// A result as its type has it. The arithmetic of integers narrower than those of the device wraps
/// around; the results of wider ones have to fit.
fn wrap(value: Expr, dtype: DatumType) -> Expr {
    let int = |value: i32| Expr::Number(Number::I32(value));
    let (mask, sign) = match dtype {
        DatumType::U8 => (0xff, 0),
        DatumType::I8 => (0xff, 0x80),
        DatumType::U16 => (0xffff, 0),
        DatumType::I16 => (0xffff, 0x8000),
        _ if is_wide(dtype) => return value.exact(),
        _ => return value,
    };
    let low = value.binary(Binary::BitAnd, int(mask));
    if sign == 0 { low } else { low.binary(Binary::BitXor, int(sign)).binary(Binary::Sub, int(sign)) }
}

fn element_wise(op: &ElementWiseOp, dtype: DatumType) -> Result<Expr, Refusal> {
    let x = || Expr::Read(0);
    if let Some(op) = op.0.downcast_ref::<PowConst>() {
        return Ok(x().binary(Binary::Pow, Expr::f32(op.exponent)));
    }
    if let Some(QuantizeOperator { scale, zero_point, to }) = op.0.downcast_ref() {
        let Some([least, greatest]) = range(*to) else {
            return Err(format!("results of type {to:?} are not supported"));
        };
        let x = if dtype.is_float() { x() } else { Expr::Cast(Scalar::F32, Box::new(x())) };
        let whole = x.binary(Binary::Div, Expr::f32(*scale)).unary(Unary::RoundEven);
        let shifted = whole.binary(Binary::Add, Expr::f32(*zero_point));
        let within = shifted.binary(Binary::Max, Expr::f32(least)).binary(Binary::Min, Expr::f32(greatest));
        return Ok(Expr::Cast(Scalar::I32, Box::new(within)));
    }
    if let Some(op) = op.0.downcast_ref::<IsInf>() {
        let is_infinite = x().unary(Unary::IsInf);
        let sign = if op.detect_positive { Binary::Greater } else { Binary::Less };
        return match (op.detect_positive, op.detect_negative) {
            (true, true) => Ok(is_infinite),
            (false, false) => Err("`detect_positive` or `detect_negative` must be 1, got 0 for both".into()),
            _ => Ok(is_infinite.binary(Binary::And, x().binary(sign, Expr::f32(0.0)))),
        };
    }
    if let Some(op) = op.0.downcast_ref::<GeluApproximate>() {
        let cube = match op.fast_impl {
            true => x().binary(Binary::Mul, x()),
            false => x().binary(Binary::Mul, x()).binary(Binary::Mul, x()),
        };
        let inner = x().binary(Binary::Add, cube.binary(Binary::Mul, Expr::f32(0.044_715)));
        let tanh = inner.binary(Binary::Mul, Expr::f32((2.0 / std::f32::consts::PI).sqrt())).unary(Unary::Tanh);
        let half = x().binary(Binary::Mul, Expr::f32(0.5));
        return Ok(half.binary(Binary::Mul, tanh.binary(Binary::Add, Expr::f32(1.0))));
    }
    if let Some(op) = op.0.downcast_ref::<LeakyRelu>() {
        let is_positive = x().binary(Binary::Greater, Expr::f32(0.0));
        return Ok(Expr::Select(is_positive.into(), x().into(), x().binary(Binary::Mul, Expr::f32(op.alpha)).into()));
    }
    let unary = match &*op.0.name() {
        "Abs" => Unary::Abs,
        "Acos" => Unary::Acos,
        "Acosh" => Unary::Acosh,
        "Asin" => Unary::Asin,
        "Asinh" => Unary::Asinh,
        "Atan" => Unary::Atan,
        "Atanh" => Unary::Atanh,
        "BitNot" if dtype == DatumType::Bool => Unary::Not,
        "BitNot" => Unary::BitNot,
        "Ceil" => Unary::Ceil,
        "Cos" => Unary::Cos,
        "Cosh" => Unary::Cosh,
        "Erf" => Unary::Erf,
        "Exp" => Unary::Exp,
        "Floor" => Unary::Floor,
        "IsNan" => Unary::IsNan,
        "Ln" => Unary::Ln,
        "Neg" => Unary::Neg,
        "Not" => Unary::Not,
        "Recip" => Unary::Recip,
        "Round" => Unary::Round,
        "RoundHalfToEven" => Unary::RoundEven,
        "Sigmoid" => Unary::Sigmoid,
        "Sign" => Unary::Sign,
        "Sin" => Unary::Sin,
        "Sinh" => Unary::Sinh,
        "Sqrt" => Unary::Sqrt,
        "Tan" => Unary::Tan,
        "Tanh" => Unary::Tanh,
        "Rsqrt" => return Ok(x().unary(Unary::Sqrt).unary(Unary::Recip)),
        "Square" => return Ok(x().binary(Binary::Mul, x())),
        "Silu" => return Ok(x().binary(Binary::Mul, x().unary(Unary::Sigmoid))),
        "GeluExact" => {
            let erf = x().binary(Binary::Mul, Expr::f32(std::f32::consts::FRAC_1_SQRT_2)).unary(Unary::Erf);
            let half = x().binary(Binary::Mul, Expr::f32(0.5));
            return Ok(half.binary(Binary::Mul, erf.binary(Binary::Add, Expr::f32(1.0))));
        }
        "HardSwish" => {
            let gate = x().binary(Binary::Mul, Expr::f32(1.0 / 6.0)).binary(Binary::Add, Expr::f32(0.5));
            let gate = gate.binary(Binary::Min, Expr::f32(1.0)).binary(Binary::Max, Expr::f32(0.0));
            return Ok(x().binary(Binary::Mul, gate));
        }
        _ => return Err("the operator is not implemented on devices".into()),
    };
    Ok(x().unary(unary))
}
