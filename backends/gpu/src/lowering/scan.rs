//! Loops over the steps of a sequence are unrolled: the kernels of each step follow those of the
//! step before.

use super::model::{Lowering, Operands, Refusal, scalar, shape, text};
use super::value::StridedValue;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::scan::{InputMapping, Scan};

/// More steps than this are too many kernels.
pub(super) const MAX_STEPS: usize = 4096;

impl Lowering {
    pub(super) fn scan(
        &mut self,
        op: &Scan,
        given: &Operands<'_>,
        facts: &[&TypedFact],
    ) -> Result<Vec<StridedValue>, Refusal> {
        let inputs = given.all()?;
        let mappings = || std::iter::zip(&op.input_mapping, &inputs);
        let lengths = mappings().filter_map(|(mapping, value)| {
            let scan = mapping.as_scan()?;
            Some(value.shape[scan.axis].div_ceil(scan.chunk.unsigned_abs()))
        });
        let steps = lengths.max().ok_or("expected an input with steps, found none")?;
        if op.skip != 0 {
            return Err(format!("the scan must skip 0 steps, got {}", op.skip));
        }
        if steps > MAX_STEPS {
            return Err(format!("a sequence must have at most {MAX_STEPS} steps, got {steps}"));
        }
        let mut states: Vec<StridedValue> =
            mappings().filter(|(mapping, _)| mapping.is_state()).map(|(_, value)| value.clone()).collect();
        let mut results: Vec<Option<StridedValue>> = vec![None; facts.len()];
        for output in &op.output_mapping {
            if let Some((slot, _)) = output.scan {
                let fact = facts.get(slot).ok_or("an output of the scan is missing")?;
                let (scalar, shape) = (scalar(fact.datum_type)?, shape(fact)?);
                results[slot] = Some(self.space("Scan", scalar, &shape));
            }
        }
        for step in 0..steps {
            let mut state = states.iter();
            let mut given = Vec::new();
            for (mapping, value) in mappings() {
                given.push(match mapping {
                    InputMapping::Full => value.clone(),
                    InputMapping::State => state.next().ok_or("a state of the scan is missing")?.clone(),
                    InputMapping::Scan(scan) => chunk(value, scan.axis, scan.chunk, step)?,
                });
            }
            let outputs = self.body(&op.body, given)?;
            states.clear();
            for (mapping, value) in std::iter::zip(&op.output_mapping, outputs) {
                if mapping.state {
                    states.push(value.clone());
                }
                if let Some((slot, scan)) = mapping.scan {
                    let whole = results[slot].clone().ok_or("an output of the scan is missing")?;
                    let into = chunk(&whole, scan.axis, scan.chunk, step)?;
                    self.copy_into("Scan", &value, &into)?;
                }
                if let Some(slot) = mapping.last_value_slot
                    && step + 1 == steps
                {
                    results[slot] = Some(value);
                }
            }
        }
        let missing = || text("an output of the scan is never computed");
        results.into_iter().map(|value| value.ok_or_else(missing)).collect()
    }
}

/// The part of a tensor that belongs to a step; a negative length counts from the end.
fn chunk(of: &StridedValue, axis: usize, chunk: isize, step: usize) -> Result<StridedValue, Refusal> {
    let (length, size) = (of.shape[axis], chunk.unsigned_abs());
    if size == 0 || length % size != 0 {
        return Err(format!("the steps must be a multiple of {size}, got {length}"));
    }
    let at = if chunk < 0 { length - (step + 1) * size } else { step * size };
    let mut part = of.clone();
    part.offset += part.strides[axis] * at as i64;
    part.shape[axis] = size;
    Ok(part)
}
