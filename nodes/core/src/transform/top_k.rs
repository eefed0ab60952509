//! The indices and values of the greatest elements.

use crate::tensor::boxes;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Finds the `k` greatest elements of `f32[n]`, the greatest first.
///
/// The outputs are `index` (`i32[k]`) and `value` (`f32[k]`). If elements are equal, the element
/// with the lower index comes first. NaN comes last.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TopKConfig {
    /// Number of elements to find, 1 to the length of the input.
    pub k: usize,
}

/// Runs `kind: top_k`; [`TopKConfig`] says what it does.
#[derive(Debug)]
pub struct TopK {
    k: usize,
    best: Vec<(f32, usize)>,
}

/// Puts the `k` greatest values and their indices into `best`, without allocating once it has
/// grown.
///
/// `best` is kept sorted (insertion sort). Most elements are not among the greatest and cost one
/// comparison; an insertion moves at most `k` others.
fn greatest(values: &[f32], k: usize, best: &mut Vec<(f32, usize)>) {
    best.clear();
    for entry in values.iter().copied().zip(0..) {
        if best.len() == k {
            // Of equal elements the earlier one is kept. NaN never replaces anything.
            if best.last().is_none_or(|last| entry.0 <= last.0) || entry.0.is_nan() {
                continue;
            }
            best.pop();
        }
        let at = best.partition_point(|better| boxes::by_score(*better, entry).is_lt());
        best.insert(at, entry);
    }
}

impl Node for TopK {
    type Config = TopKConfig;

    fn ports(config: &TopKConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        // The engine refuses another rank when it compares the input with this.
        let length = match given.single().map(|spec| &spec.shape[..]) {
            Some([length]) => length.clone(),
            _ => Dim::Symbol("n".into()),
        };
        // Indices are i32.
        let longest = length.max().unwrap_or(usize::MAX).min(i32::MAX as usize);
        if !(1..=longest).contains(&config.k) {
            let message = format!("`k` must be 1 to {longest}, got {}", config.k);
            errors.at("k", message).help(format!("write 1 to {longest}"));
        }
        let found = match length {
            Dim::AtMost(_) => Dim::AtMost(config.k),
            _ => Dim::Fixed(config.k),
        };
        let ports = Ports::new()
            .input("in", PortSpec::new(DType::F32, [length]))
            .output("index", PortSpec::new(DType::I32, [found.clone()]))
            .output("value", PortSpec::new(DType::F32, [found]))
            .cost(Cost::Medium);
        errors.into_result(ports)
    }

    fn build(config: TopKConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(TopK { k: config.k, best: Vec::with_capacity(config.k) })
    }
}

impl Transform for TopK {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        greatest(input.body.as_slice()?, self.k, &mut self.best);
        if out.0.is_connected() {
            let mut index = out.0.loan(input.header())?;
            index.set_len(0, self.best.len())?;
            index.as_mut_slice::<i32>()?.iter_mut().zip(&self.best).for_each(|(to, (_, at))| *to = *at as i32);
            out.0.send(index);
        }
        if out.1.is_connected() {
            let mut value = out.1.loan(input.header())?;
            value.set_len(0, self.best.len())?;
            value.as_mut_slice::<f32>()?.iter_mut().zip(&self.best).for_each(|(to, (value, _))| *to = *value);
            out.1.send(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_come_first_and_ties_by_index() {
        const NAN: f32 = f32::NAN;
        for (values, k, expected) in [
            (&[0.1, 0.7, 0.2][..], 2, &[1, 2][..]),
            (&[0.5, 0.9, 0.5, 0.9, 0.5], 4, &[1, 3, 0, 2]),
            (&[0.0, -0.0, 0.0], 3, &[0, 1, 2]),
            (&[NAN, 1.0, NAN, 2.0], 3, &[3, 1, 0]),
            (&[1.0, 2.0], 5, &[1, 0]),
            (&[], 1, &[]),
        ] {
            let mut best = Vec::new();
            greatest(values, k, &mut best);
            assert!(best.iter().map(|(_, at)| at).eq(expected), "{values:?}: {best:?}");
        }
    }

    #[test]
    fn the_result_equals_that_of_a_full_sort() {
        let values: Vec<f32> = (0..1000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32).collect();
        let mut all: Vec<usize> = (0..1000).collect();
        all.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
        let mut best = Vec::new();
        for k in [1, 5, 100, 999, 1000] {
            greatest(&values, k, &mut best);
            assert!(best.iter().map(|(_, at)| at).eq(&all[..k]), "{k}");
        }
    }
}
