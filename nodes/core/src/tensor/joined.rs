//! Several inputs whose tensors become parts of one.

use limen::Tensor;
use limen::message::{Content, Dim, MAX_PORTS, PortSpec};
use limen::node::{Building, Connected, MessageSet, NodeError, PlanErrors, Ports};

/// Returns ports with all connected inputs, of which there must be several.
pub(crate) fn takes(given: &Connected, errors: &mut PlanErrors) -> Ports {
    if given.inputs().count() < 2 {
        errors
            .node(format!("the node must have at least 2 inputs, got {}", given.inputs().count()))
            .help("write at least 2 inputs, such as `inputs: { position: gps, motion: imu }`");
    }
    if given.inputs().count() > MAX_PORTS {
        let message = format!("a node must have at most {MAX_PORTS} inputs, got {}", given.inputs().count());
        errors.node(message).help("join some inputs in another node of this kind upstream");
    }
    given.inputs().fold(Ports::new(), |ports, (name, spec)| match spec {
        Some(spec) => ports.input(name, spec.clone()),
        None => ports.input_any(name),
    })
}

/// Returns the names of the inputs, in the order of their messages.
pub fn names(cx: &Building<'_>) -> Vec<String> {
    cx.inputs().iter().map(|(name, _)| name.clone()).collect()
}

/// Returns the spec that all inputs have in common, apart from the length of dim `except`, which is
/// that of the first input. `None` if the spec of an input is unknown.
pub(crate) fn common(given: &Connected, except: Option<usize>, errors: &mut PlanErrors) -> Option<PortSpec> {
    let mut inputs = given.inputs().filter_map(|(name, spec)| Some((name, spec?)));
    let (first, mut common) = inputs.next().map(|(name, spec)| (name, spec.clone().with_orientation_of(spec)))?;
    for (name, spec) in inputs {
        if spec.dtype != common.dtype {
            let message =
                format!("type mismatch: expected {1} (the type of `{first}`), found {0}", spec.dtype, common.dtype);
            errors.input(name, message).help(format!("add a `cast` node with `dtype: {}` upstream", common.dtype));
        } else if let Some(shape) = common_shape(&common, spec, except) {
            common.shape = shape;
        } else {
            let but = except.map(|dim| format!(" apart from dim {dim}")).unwrap_or_default();
            let message = format!("expected the shape of `{first}` ({common}){but}, found {spec}");
            errors.input(name, message).help("add a `slice`, `pad`, `transpose` or `reshape` node upstream");
        }
        common = common.with_orientation_of(spec);
        common.layout = common.layout.filter(|layout| spec.layout == Some(*layout));
        if spec.content != common.content {
            common.content = Content::Bytes;
        }
        if spec.labels() != common.labels() {
            common = common.clone().with_labels([]).with_orientation_of(&common);
        }
    }
    given.inputs().all(|(_, spec)| spec.is_some()).then_some(common)
}

fn common_shape(one: &PortSpec, other: &PortSpec, except: Option<usize>) -> Option<Vec<Dim>> {
    if one.shape.len() != other.shape.len() {
        return None;
    }
    let pairs = one.shape.iter().zip(&other.shape).enumerate();
    pairs
        .map(|(dim, (one, other))| if except == Some(dim) { Some(one.clone()) } else { common_dim(one, other) })
        .collect()
}

fn common_dim(one: &Dim, other: &Dim) -> Option<Dim> {
    match (one, other) {
        (Dim::Fixed(n), Dim::AtMost(most)) | (Dim::AtMost(most), Dim::Fixed(n)) if n <= most => Some(Dim::Fixed(*n)),
        (Dim::AtMost(a), Dim::AtMost(b)) => Some(Dim::AtMost(*a.min(b))),
        _ => (one == other).then(|| one.clone()),
    }
}

/// Checks that all messages have the same shape, apart from dim `except`.
///
/// # Errors
/// The first input whose message differs.
pub(crate) fn check(names: &[String], set: &MessageSet<Tensor>, except: Option<usize>) -> Result<(), NodeError> {
    let Some((first, others)) = set.split_first() else { return Ok(()) };
    let shape = first.body.shape();
    for (message, name) in others.iter().zip(names.iter().skip(1)) {
        let other = message.body.shape();
        let mut pairs = shape.iter().zip(other.iter()).enumerate();
        if shape.len() != other.len() || !pairs.all(|(dim, (one, other))| one == other || except == Some(dim)) {
            let but = except.map(|dim| format!(" apart from dim {dim}")).unwrap_or_default();
            let why = format!("expected the shape of `{}` ({:?}){but}, found {:?}", names[0], first.body, message.body);
            return Err(NodeError::input(name, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_shape_has_the_fixed_lengths_and_the_lowest_bounds() {
        for (one, other, except, expected) in [
            ("f32[2,3]", "f32[2,3]", None, Some("f32[2,3]")),
            ("f32[2,3]", "f32[5,3]", Some(0), Some("f32[2,3]")),
            ("f32[2,<=3]", "f32[2,<=4]", None, Some("f32[2,≤3]")),
            ("f32[2,<=3]", "f32[<=2,2]", None, Some("f32[2,2]")),
            ("f32[]", "f32[]", None, Some("f32[]")),
            ("f32[2,3]", "f32[5,3]", None, None),
            ("f32[2,3]", "f32[5,4]", Some(0), None),
            ("f32[2,3]", "f32[2,<=2]", None, None),
            ("f32[2,3]", "f32[2]", Some(1), None),
            ("f32[2]", "f64[2]", None, None),
        ] {
            let spec = |text: &str| text.parse::<PortSpec>().ok();
            let given = Connected::of([("a".to_string(), spec(one)), ("b".to_string(), spec(other))]);
            let mut errors = PlanErrors::default();
            let common = common(&given, except, &mut errors);
            match expected {
                Some(expected) => assert_eq!(common.unwrap().to_string(), expected, "{one} {other}"),
                None => assert!(errors.into_result(()).is_err(), "{one} {other}"),
            }
        }
    }
}
