//! The index and value of the maximum.

use crate::tensor::shape;
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Finds the greatest element of `f32[...]` and its index.
///
/// The output `index` (`i32[]`) is the index in the flattened tensor. The output `value` (`f32[]`)
/// is the greatest element.
///
/// If several elements are equal, the node selects the first one. The node ignores NaN. If every
/// element is NaN, the call fails.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct ArgmaxConfig {}

/// Runs `kind: argmax`; [`ArgmaxConfig`] says what it does.
#[derive(Debug)]
pub struct Argmax;

/// Returns the index and value of the first greatest element, ignoring NaN.
fn greatest(values: &[f32]) -> Option<(usize, f32)> {
    let mut best = None;
    for (i, value) in values.iter().enumerate() {
        // A comparison with NaN is false, so NaN has to be excluded only as the first value.
        if best.map_or(!value.is_nan(), |(_, best)| *value > best) {
            best = Some((i, *value));
        }
    }
    best
}

impl Node for Argmax {
    type Config = ArgmaxConfig;

    fn ports(_: &ArgmaxConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = shape::any_shape(given, DType::F32);
        if let Some(spec) = spec.as_ref().filter(|s| s.max_elements().is_some_and(|n| n > i32::MAX as usize)) {
            let message = format!("expected at most {} elements, found {spec}", i32::MAX);
            errors.input("in", message).help("add a `slice` node upstream");
        }
        let ports = shape::takes(spec)
            .output("index", PortSpec::fixed(DType::I32, []))
            .output("value", PortSpec::fixed(DType::F32, []));
        errors.into_result(ports)
    }

    fn build(_: ArgmaxConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Argmax)
    }
}

impl Transform for Argmax {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let Some((at, best)) = greatest(input.body.as_slice()?) else {
            let why = format!("expected an element other than NaN, found only NaN in {:?}", input.body);
            return Err(NodeError::input("in", why));
        };
        if out.0.is_connected() {
            let mut index = out.0.loan(input.header())?;
            index.as_mut_slice::<i32>()?[0] = at as i32;
            out.0.send(index);
        }
        if out.1.is_connected() {
            let mut value = out.1.loan(input.header())?;
            value.as_mut_slice::<f32>()?[0] = best;
            out.1.send(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_maximum_wins_and_nan_is_ignored() {
        const NAN: f32 = f32::NAN;
        for (values, expected) in [
            (&[1.0, 3.0, 2.0][..], Some((1, 3.0))),
            (&[3.0, 3.0], Some((0, 3.0))),
            (&[NAN, -5.0, NAN, -4.0], Some((3, -4.0))),
            (&[f32::NEG_INFINITY], Some((0, f32::NEG_INFINITY))),
            (&[2.0, f32::INFINITY, NAN], Some((1, f32::INFINITY))),
            (&[NAN, NAN], None),
            (&[], None),
        ] {
            assert_eq!(greatest(values), expected, "{values:?}");
        }
    }
}
