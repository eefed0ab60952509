//! Probabilities from scores.

use crate::tensor::shape;
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Tensor, TensorMut};
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts scores `f32[..., n]` to probabilities over the last dim, in place.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct SoftmaxConfig {}

/// Runs `kind: softmax`; [`SoftmaxConfig`] says what it does.
#[derive(Debug)]
pub struct Softmax;

fn softmax(row: &mut [f32]) {
    // Subtract the maximum so that no exponential overflows. Its own exponential is 1, so the sum
    // is at least 1.
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - greatest).exp();
        sum += f64::from(*value);
    }
    let inverse = (1.0 / sum) as f32;
    row.iter_mut().for_each(|value| *value *= inverse);
}

impl Node for Softmax {
    type Config = SoftmaxConfig;

    fn ports(_: &SoftmaxConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = shape::any_shape(given, DType::F32);
        if let Some(spec) = spec.as_ref().filter(|spec| spec.shape.is_empty()) {
            let message = format!("expected at least one dim, found the scalar {spec}");
            errors.input("in", message).help("connect a tensor with at least one dim");
        }
        errors.into_result(
            shape::takes(spec.clone())
                .output_forwarding("out", spec.map(PortSpec::without_units), "in")
                .cost(Cost::Medium),
        )
    }

    fn build(_: SoftmaxConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Softmax)
    }
}

impl Transform for Softmax {
    type In = TensorMut;
    type Out = Tensor;

    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let last = input.shape().last().copied().unwrap_or(1);
        // A tensor without elements has no rows, but `chunks_exact_mut` panics on 0.
        input.as_mut_slice()?.chunks_exact_mut(last.max(1)).for_each(softmax);
        out.send(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_1_even_for_extreme_scores() {
        let third = 1.0 / 3.0;
        for (scores, expected) in [
            ([0.0, 0.0, 0.0], [third; 3]),
            ([1e30, 1e30, 1e30], [third; 3]),
            ([-1e30, -1e30, 0.0], [0.0, 0.0, 1.0]),
            ([1000.0, 1000.0 + 2f32.ln(), f32::NEG_INFINITY], [third, 2.0 * third, 0.0]),
            ([88.0, 89.0, 90.0], [0.090_030_57, 0.244_728_47, 0.665_240_96]),
        ] {
            let mut row = scores;
            softmax(&mut row);
            assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-5), "{scores:?}: {row:?}");
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{scores:?}");
        }
        softmax(&mut []);
    }
}
