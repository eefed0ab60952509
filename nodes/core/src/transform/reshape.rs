//! The same elements in another shape.

use crate::tensor::{cost, shape};
use limen::message::{Dim, MAX_RANK, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Changes the shape of a tensor of any type without changing the order of the elements.
///
/// If the length of an input dim varies (`≤n`), `shape` must contain -1. The length of the output
/// dim marked -1 then also varies. If the number of elements of a message does not fit `shape`, the
/// call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ReshapeConfig {
    /// Lengths of the dims, each at least 1. One length may be -1, which limen computes from the
    /// number of elements.
    pub shape: Vec<i64>,
}

/// Runs `kind: reshape`; [`ReshapeConfig`] says what it does.
#[derive(Debug)]
pub struct Reshape {
    /// The lengths; `None` for the one that the others leave.
    shape: Vec<Option<usize>>,
    /// The product of the others.
    known: usize,
}

/// Returns the lengths of a config and the product of those that it gives, and reports its errors.
fn lengths(config: &ReshapeConfig, errors: &mut PlanErrors) -> Option<(Vec<Option<usize>>, usize)> {
    if config.shape.len() > MAX_RANK {
        let message = format!("a tensor must have at most {MAX_RANK} dims, got {}", config.shape.len());
        errors.at("shape", message).help("merge dims: write `[6]` instead of `[2, 3]`");
        return None;
    }
    let (mut lengths, mut is_valid) = (Vec::new(), true);
    for (i, length) in config.shape.iter().enumerate() {
        let known = usize::try_from(*length).ok().filter(|length| *length > 0);
        if known.is_none() && *length != -1 {
            let message = format!("a length must be at least 1, or -1, got {length}");
            errors
                .at(format!("shape[{i}]"), message)
                .help("write 1 or more, or -1 to compute the length from the other lengths");
            is_valid = false;
        } else if known.is_none() && config.shape[..i].contains(&-1) {
            let count = config.shape.iter().filter(|length| **length == -1).count();
            errors
                .at(format!("shape[{i}]"), format!("`shape` must contain -1 at most once, got {count} times"))
                .help("write a length of 1 or more");
            is_valid = false;
        }
        lengths.push(known);
    }
    let known = lengths.iter().flatten().try_fold(1_usize, |product, length| product.checked_mul(*length));
    if known.is_none() {
        let message = format!("a tensor must fit into memory, got the shape {:?}", config.shape);
        errors.at("shape", message).help("write smaller lengths");
    }
    Some((lengths, known?)).filter(|_| is_valid)
}

/// Returns the output's dims, and reports a shape that does not fit the input.
fn planned(config: &ReshapeConfig, spec: &PortSpec, errors: &mut PlanErrors) -> Option<Vec<Dim>> {
    let (lengths, known) = lengths(config, errors)?;
    // Without a bound, the input has a problem of its own.
    let most = spec.max_elements()?;
    let is_open = lengths.contains(&None);
    let is_fixed = spec.fixed_shape().is_some();
    let message = if !is_fixed && !is_open {
        format!("expected a fixed number of elements for {:?}, found {spec}", config.shape)
    } else if is_fixed && is_open && !most.is_multiple_of(known) {
        format!("expected a multiple of {known} elements, found {most} in {spec}")
    } else if is_fixed && !is_open && most != known {
        format!("expected {known} elements for {:?}, found {most} in {spec}", config.shape)
    } else if most < known {
        format!("expected at least {known} elements, found at most {most} in {spec}")
    } else {
        let open = if is_fixed { Dim::Fixed(most / known) } else { Dim::AtMost(most / known) };
        return Some(lengths.iter().map(|length| length.map_or(open.clone(), Dim::Fixed)).collect());
    };
    errors.at("shape", message).help(if is_fixed || is_open {
        "write lengths whose product is the number of elements"
    } else {
        "write -1 for one length, or add a `pad` node with `to` upstream"
    });
    None
}

impl Node for Reshape {
    type Config = ReshapeConfig;

    fn ports(config: &ReshapeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let out = match given.single() {
            Some(spec) => planned(config, spec, &mut errors)
                .map(|shape| PortSpec::new(spec.dtype, shape).with_orientation_of(spec)),
            None => lengths(config, &mut errors).and(None),
        };
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(shape::takes(given.single().cloned()), out).cost(cost))
    }

    fn build(config: ReshapeConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        // `ports` has refused all others.
        let (shape, known) = lengths(&config, &mut PlanErrors::default()).unwrap_or((Vec::new(), 1));
        Ok(Reshape { shape, known })
    }
}

impl Transform for Reshape {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(input.header())?;
        let elements = input.body.shape().elements();
        if !elements.is_multiple_of(self.known) {
            let why = format!("expected a multiple of {} elements, found {elements} in {:?}", self.known, input.body);
            return Err(NodeError::input("in", why));
        }
        for (dim, length) in self.shape.iter().enumerate() {
            tensor.set_len(dim, length.unwrap_or(elements / self.known))?;
        }
        tensor.bytes_mut().copy_from_slice(input.body.bytes());
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_length_is_what_the_others_leave() {
        for (from, shape, expected) in [
            ("f32[2,3]", &[3, 2][..], "f32[3,2]"),
            ("f32[2,3]", &[1, -1], "f32[1,6]"),
            ("f32[2,3]", &[-1, 3, 1], "f32[2,3,1]"),
            ("u8[1]", &[], "u8[]"),
            ("u8", &[-1], "u8[1]"),
            ("f32[<=9]", &[-1], "f32[≤9]"),
            ("f32[<=9]", &[-1, 2], "f32[≤4,2]"),
            ("f32[<=9,6]", &[3, -1], "f32[3,≤18]"),
            ("f32[<=9,<=6]", &[-1], "f32[≤54]"),
            ("f32[2,3]", &[4, 2], "expected 8 elements for [4, 2], found 6 in f32[2,3]"),
            ("f32[2,3]", &[4, -1], "expected a multiple of 4 elements, found 6"),
            ("f32[<=9]", &[9], "expected a fixed number of elements for [9]"),
            ("f32[<=9]", &[10, -1], "expected at least 10 elements, found at most 9"),
            ("f32[2,3]", &[0, -1], "a length must be at least 1, or -1, got 0"),
            ("f32[2,3]", &[i64::MIN, -1], "a length must be at least 1"),
            ("f32[2,3]", &[-1, -1], "-1 at most once"),
            ("f32[2,3]", &[1, 1, 1, 1, 1, 1, 6], "at most 6 dims, got 7"),
            ("f32[2,3]", &[i64::MAX, i64::MAX, -1], "must fit into memory"),
        ] {
            let mut errors = PlanErrors::default();
            let spec: PortSpec = from.parse().unwrap();
            let shape = planned(&ReshapeConfig { shape: shape.to_vec() }, &spec, &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(PortSpec::new(spec.dtype, shape.unwrap()).to_string(), expected),
                Err(errors) => assert!(format!("{errors:?}").contains(expected), "{from}: {errors:?}"),
            }
        }
    }
}
