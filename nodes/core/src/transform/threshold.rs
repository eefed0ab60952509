//! Thresholds with hysteresis.

use crate::tensor::shape;
use limen::message::DType;
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts `f32[...]` to `u8[...]`: 1 where an element is at least `at`, otherwise 0.
///
/// NaN becomes 0. If `release` is below `at`, the output stays 1 until the input element falls
/// below `release` (hysteresis). With hysteresis, noise does not toggle the output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ThresholdConfig {
    /// Lowest input value that changes an output element to 1.
    pub at: f32,
    /// Input value below which an output element changes from 1 to 0, at most `at`. Default: `at`.
    pub release: Option<f32>,
}

/// Runs `kind: threshold`; [`ThresholdConfig`] says what it does.
#[derive(Debug)]
pub struct Threshold {
    at: f32,
    release: f32,
    /// The last output for each element.
    on: Vec<u8>,
}

impl Node for Threshold {
    type Config = ThresholdConfig;

    fn ports(config: &ThresholdConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.at.is_nan() {
            errors.at("at", "`at` must be a number, got NaN").help("write a number");
        }
        if let Some(release) = config.release
            && (release.is_nan() || release > config.at)
        {
            let message = format!("`release` must be at most {} (`at`), got {release}", config.at);
            errors.at("release", message).help("write a number at or below `at`");
        }
        let spec = shape::any_shape(given, DType::F32);
        let out = spec.as_ref().map(|spec| spec.clone().with_dtype(DType::U8).without_units());
        errors.into_result(shape::gives(shape::takes(spec), out))
    }

    fn build(config: ThresholdConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let elements = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_elements()).unwrap_or(0);
        Ok(Threshold { at: config.at, release: config.release.unwrap_or(config.at), on: vec![0; elements] })
    }

    fn reset(&mut self, _: Reset) {
        self.on.fill(0);
    }
}

impl Transform for Threshold {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let values: &[f32] = input.body.as_slice()?;
        let mut result = out.loan(input.header())?;
        shape::set_shape(&mut result, &input.body.shape())?;
        for ((value, on), result) in values.iter().zip(&mut self.on).zip(result.as_mut_slice::<u8>()?) {
            let least = if *on == 1 { self.release } else { self.at };
            // A comparison with NaN is false.
            *on = u8::from(*value >= least);
            *result = *on;
        }
        out.send(result);
        Ok(())
    }
}
