//! Recurrent layers. Their steps are unrolled, as those of other loops.

use super::kernel::{Axis, Binary, Expr, Fold, How, Unary};
use super::model::{Lowering, Operands, Refusal, shape};
use super::scan::MAX_STEPS;
use super::value::{StridedValue, row_major};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;

impl Lowering {
    /// A sequence: the states after each step, and the last one.
    pub(super) fn gru(
        &mut self,
        op: &GruSeq,
        given: &Operands<'_>,
        facts: &[&TypedFact],
    ) -> Result<Vec<StridedValue>, Refusal> {
        let x = given.value(0)?;
        let [batch, steps, _] = x.shape[..] else {
            return Err(format!("a sequence must have 3 dims, got {}", x.shape.len()));
        };
        if steps > MAX_STEPS {
            return Err(format!("a sequence must have at most {MAX_STEPS} steps, got {steps}"));
        }
        let hidden = op.hidden;
        let weights = if op.projected { 1 } else { 2 };
        let r = given.value(weights)?;
        let bias = |part: usize| -> Result<Option<StridedValue>, Refusal> {
            if !op.has_bias {
                return Ok(None);
            }
            let all = given.value(weights + 1)?;
            let stride = all.strides.last().copied().ok_or("the bias must have at least 1 dim, got 0")?;
            let offset = all.offset + stride * (part * 3 * hidden) as i64;
            Ok(Some(StridedValue { shape: vec![3 * hidden], strides: vec![stride], offset, ..all }))
        };
        let xh = if op.projected { x } else { self.product(&x, &given.value(1)?, bias(0)?.as_ref()) };
        let mut state = given.value(given.len() - 1)?;
        if state.len() != batch * hidden {
            return Err(format!("the state must have {} elements, got {}", batch * hidden, state.len()));
        }
        if !state.is_whole() {
            state = self.copy("GRU", &state);
        }
        (state.shape, state.strides) = (vec![batch, hidden], row_major(&[batch, hidden]));
        let all = match facts.first() {
            Some(fact) if op.emit_y => shape(fact)?,
            _ => vec![batch, 0, hidden],
        };
        let whole = self.space("GRU", state.scalar, &all);
        let rb = bias(1)?;
        for step in 0..steps {
            let at = if op.chunk < 0 { steps - 1 - step } else { step };
            let part = |of: &StridedValue, last: usize| StridedValue {
                shape: vec![batch, last],
                strides: vec![of.strides[0], of.strides[2]],
                offset: of.offset + of.strides[1] * at as i64,
                ..of.clone()
            };
            let rh = self.product(&state, &r, rb.as_ref());
            state = self.gru_cell(hidden, &part(&xh, 3 * hidden), &rh, &state);
            if op.emit_y {
                self.copy_into("GRU", &state, &part(&whole, hidden))?;
            }
        }
        (state.shape, state.strides) = (vec![batch, 1, hidden], row_major(&[batch, 1, hidden]));
        Ok(vec![whole, state])
    }

    /// Rows times the rows of a matrix, and a bias.
    fn product(&mut self, rows: &StridedValue, matrix: &StridedValue, bias: Option<&StridedValue>) -> StridedValue {
        let (rank, last) = (rows.shape.len(), rows.shape.len() - 1);
        let mut shape = rows.shape.clone();
        shape[last] = matrix.shape[0];
        let along = |dim: usize| if dim == last { rank } else { dim };
        let left = rows.read((0..rank).map(|dim| Axis::dim(along(dim), rows.stride(dim))).collect());
        let right = matrix.read(vec![Axis::dim(last, matrix.stride(0)), Axis::dim(rank, matrix.stride(1))]);
        let bias = bias.map(|bias| bias.at(rank));
        let value = match bias {
            Some(_) => Expr::Folded.binary(Binary::Add, Expr::Read(2)),
            None => Expr::Folded,
        };
        let product = Expr::Read(0).binary(Binary::Mul, Expr::Read(1));
        let fold = Fold { dims: vec![rows.shape[last]], how: How::Sum, exact: false, value: product };
        self.compute("GRU", rows.scalar, &shape, Some(fold), [left, right].into_iter().chain(bias).collect(), value)
    }

    /// `xh` and `rh` hold the gates z, r, h behind each other.
    pub(super) fn gru_cell(
        &mut self,
        hidden: usize,
        xh: &StridedValue,
        rh: &StridedValue,
        before: &StridedValue,
    ) -> StridedValue {
        let last = before.shape.len() - 1;
        let gate = |gates: &StridedValue, n: usize| {
            let mut gate = gates.clone();
            gate.shape[last] = hidden;
            gate.offset += gates.strides[last] * (n * hidden) as i64;
            gate
        };
        let gates: Vec<StridedValue> = (0..3).flat_map(|n| [gate(xh, n), gate(rh, n)]).collect();
        let inputs: Vec<&StridedValue> = gates.iter().chain([before]).collect();
        let sum = |n: usize| Expr::Read(2 * n).binary(Binary::Add, Expr::Read(2 * n + 1));
        let z = sum(0).unary(Unary::Sigmoid);
        let r = sum(1).unary(Unary::Sigmoid);
        let candidate = Expr::Read(4).binary(Binary::Add, r.binary(Binary::Mul, Expr::Read(5))).unary(Unary::Tanh);
        let keep = z.binary(Binary::Mul, Expr::Read(6).binary(Binary::Sub, candidate.clone()));
        self.map("GRU", before.scalar, &before.shape, &inputs, candidate.binary(Binary::Add, keep))
    }

    /// The gates i, o, f, c lie behind each other.
    pub(super) fn lstm_cell(&mut self, hidden: usize, given: &Operands<'_>) -> Result<Vec<StridedValue>, Refusal> {
        let (gates, before) = (given.value(0)?, given.value(1)?);
        let last = before.shape.len() - 1;
        let parts: Vec<StridedValue> = (0..4)
            .map(|n| {
                let mut gate = gates.clone();
                gate.shape[last] = hidden;
                gate.offset += gates.strides[last] * (n * hidden) as i64;
                gate
            })
            .collect();
        let kept = Expr::Read(1).unary(Unary::Sigmoid).binary(Binary::Mul, Expr::Read(3));
        let new = Expr::Read(0).unary(Unary::Sigmoid).binary(Binary::Mul, Expr::Read(2).unary(Unary::Tanh));
        let inputs = [&parts[0], &parts[2], &parts[3], &before];
        let cell = self.map("LSTM", before.scalar, &before.shape, &inputs, kept.binary(Binary::Add, new));
        let out = Expr::Read(0).unary(Unary::Sigmoid).binary(Binary::Mul, Expr::Read(1).unary(Unary::Tanh));
        let hidden = self.map("LSTM", before.scalar, &before.shape, &[&parts[1], &cell], out);
        Ok(vec![hidden, cell])
    }
}
