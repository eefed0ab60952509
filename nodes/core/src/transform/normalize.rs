//! Mean and standard deviation per channel, or per element of the last dim.

use crate::tensor::shape;
use limen::message::{DType, Dim, Layout, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Tensor, TensorMut};
use schemars::JsonSchema;
use serde::Deserialize;

/// Subtracts a mean from each element and divides the difference by a standard deviation, in place.
///
/// The input is `f32` of any shape. A single value in `mean` or `std` applies to all elements. For
/// an image, `f32[c,h,w]` or `f32[h,w,c]`, a list may contain one value per channel. For other
/// shapes, a list may contain one value per element of the last dim.
///
/// For example, an observation `f32[3]` of a policy has three means and three standard deviations,
/// as recorded in training.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct NormalizeConfig {
    /// Mean to subtract: one value, one value per channel of an image, or one value per element of
    /// the last dim.
    pub mean: Vec<f32>,
    /// Standard deviation to divide by: one value, or one value per channel or element as for
    /// `mean`. A value must not be 0.
    pub std: Vec<f32>,
    /// Layout of the image, if the upstream output does not declare a layout.
    pub layout: Option<Layout>,
}

/// Runs `kind: normalize`; [`NormalizeConfig`] says what it does.
#[derive(Debug)]
pub struct Normalize {
    /// Mean and inverse standard deviation of each channel; a single entry applies to all.
    channels: Vec<(f32, f32)>,
    layout: Layout,
}

impl NormalizeConfig {
    /// Returns the mean and the inverse standard deviation of each channel; a single pair is for
    /// all of them.
    pub fn channels(&self) -> Vec<(f32, f32)> {
        let count = self.mean.len().max(self.std.len());
        (0..count).map(|i| (of_channel(&self.mean, i), 1.0 / of_channel(&self.std, i))).collect()
    }
}

/// Returns where the channels are: elements of the last dim, unless it is an image of planes.
fn channels_of(spec: &PortSpec, written: Option<Layout>) -> Option<Layout> {
    if spec.shape.len() == 3 { spec.layout.or(written) } else { Some(Layout::Hwc) }
}

/// Returns `values[i]`, or the only value.
fn of_channel(values: &[f32], i: usize) -> f32 {
    if values.len() == 1 { values[0] } else { values[i] }
}

fn normalize(channels: &[(f32, f32)], layout: Layout, values: &mut [f32]) {
    let scale = |value: &mut f32, (mean, inverse): (f32, f32)| *value = (*value - mean) * inverse;
    match (channels, layout) {
        ([one], _) => values.iter_mut().for_each(|v| scale(v, *one)),
        (_, Layout::Chw) => {
            let plane = values.len() / channels.len().max(1);
            for (plane, channel) in values.chunks_exact_mut(plane.max(1)).zip(channels) {
                plane.iter_mut().for_each(|v| scale(v, *channel));
            }
        }
        (_, Layout::Hwc) => {
            for pixel in values.chunks_exact_mut(channels.len().max(1)) {
                pixel.iter_mut().zip(channels).for_each(|(v, channel)| scale(v, *channel));
            }
        }
    }
}

impl Node for Normalize {
    type Config = NormalizeConfig;

    fn ports(config: &NormalizeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, values) in [("mean", &config.mean), ("std", &config.std)] {
            if values.is_empty() {
                errors
                    .at(field, format!("`{field}` must have at least 1 value, got 0"))
                    .help("write one value, or one per channel");
            }
            for (i, value) in values.iter().enumerate() {
                if !value.is_finite() || field == "std" && *value == 0.0 {
                    let range = if field == "std" { " and not 0" } else { "" };
                    errors
                        .at(format!("{field}[{i}]"), format!("`{field}` must be finite{range}, got {value}"))
                        .help("write a number such as 1");
                }
            }
        }
        let count = config.mean.len().max(config.std.len());
        if config.mean.len() > 1 && config.std.len() > 1 && config.mean.len() != config.std.len() {
            let message = format!("`std` must have {} values as `mean`, got {}", config.mean.len(), config.std.len());
            errors.at("std", message).help("write one value per channel in `mean` and `std`");
        }
        let Some(mut spec) = shape::any_shape(given, DType::F32) else {
            return errors.into_result(shape::takes(None).output_forwarding("out", None, "in"));
        };
        let layout = spec.layout.or(config.layout);
        if let (Some(given), Some(written)) = (spec.layout, config.layout)
            && given != written
        {
            let message = format!("expected the layout {given:?} of the input, found {written:?}").to_lowercase();
            errors.at("layout", message).help("remove `layout`");
        }
        if count > 1 {
            let field = if config.mean.len() > 1 { "mean" } else { "std" };
            match (channels_of(&spec, config.layout), &spec.shape[..]) {
                (_, []) => {
                    let message = format!("expected one value for the input {spec}, found {count}");
                    errors.at(field, message).help("write one value");
                }
                (None, _) => {
                    errors
                        .node(format!("`layout` is missing: the input, {spec}, declares no channel dim"))
                        .help("add `layout: chw` or `layout: hwc`");
                }
                (Some(layout), shape) => {
                    let (length, what) = match (layout, shape.len()) {
                        (Layout::Chw, _) => (&shape[0], "channels"),
                        (_, 3) => (&shape[2], "channels"),
                        (_, rank) => (&shape[rank - 1], "elements in its last dim"),
                    };
                    let fits = match length {
                        Dim::AtMost(_) => false,
                        length => length.max().is_none_or(|n| n == count),
                    };
                    if !fits {
                        let message =
                            format!("expected {length} values, found {count}: the input, {spec}, has {length} {what}");
                        errors.at(field, message).help(match length {
                            Dim::AtMost(_) => "connect an input whose last dim has a fixed length".to_string(),
                            length => format!("write {length} values"),
                        });
                    }
                }
            }
        }
        spec.layout = layout;
        let ports = shape::takes(Some(spec.clone())).output_forwarding("out", Some(spec.without_units()), "in");
        errors.into_result(ports.cost(Cost::Medium))
    }

    fn build(config: NormalizeConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let planned = cx.inputs().first().and_then(|(_, spec)| channels_of(spec.as_ref()?, config.layout));
        let layout = planned.or(config.layout).unwrap_or(Layout::Chw);
        Ok(Normalize { channels: config.channels(), layout })
    }
}

impl Transform for Normalize {
    type In = TensorMut;
    type Out = Tensor;

    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        normalize(&self.channels, self.layout, input.as_mut_slice()?);
        out.send(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_own_mean_and_standard_deviation() {
        let two = [(1.0, 1.0), (10.0, 0.5)];
        for (channels, layout, expected) in [
            (&two[..1], Layout::Chw, [0.0, 1.0, 2.0, 3.0]),
            (&two[..], Layout::Chw, [0.0, 1.0, -3.5, -3.0]),
            (&two[..], Layout::Hwc, [0.0, -4.0, 2.0, -3.0]),
        ] {
            let mut values = [1.0, 2.0, 3.0, 4.0];
            normalize(channels, layout, &mut values);
            assert_eq!(values, expected, "{channels:?} {layout:?}");
        }
        normalize(&two, Layout::Chw, &mut []);
    }
}
