//! Shapes of ports while planning, and of loaned tensors at run time.
//!
//! If the spec of an input is unknown (the node upstream has errors, or closes a cycle), a node
//! accepts anything and leaves its output unknown too, so that one mistake is reported once.

use limen::TensorMut;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Connected, NodeError, OutPort, PlanErrors, Ports};

/// Returns height, width and channels of the connected image; `None` if there is no spec with three
/// dims.
pub fn image_dims(given: Option<&PortSpec>) -> Option<&[Dim; 3]> {
    given.and_then(|spec| <&[Dim; 3]>::try_from(&spec.shape[..]).ok())
}

/// Returns both dims of the connected matrix; `None` if there is no spec with two dims.
pub fn matrix_dims(given: Option<&PortSpec>) -> Option<&[Dim; 2]> {
    given.and_then(|spec| <&[Dim; 2]>::try_from(&spec.shape[..]).ok())
}

/// Returns three dims of any length. The engine compares them with the connected output and refuses
/// another rank.
pub fn any_image() -> [Dim; 3] {
    ["h", "w", "c"].map(|name| Dim::Symbol(name.into()))
}

/// Returns the spec of a port that takes as many rows of this length as the connected output can
/// give.
pub fn any_rows(given: Option<&PortSpec>, length: usize) -> PortSpec {
    let rows = matrix_dims(given).map(|[rows, _]| rows.clone());
    PortSpec::new(DType::F32, [rows.unwrap_or_else(|| Dim::Symbol("n".into())), Dim::Fixed(length)])
}

/// Returns the connected spec as numbers of the given dtype. The engine compares the two and
/// refuses another dtype.
pub(crate) fn any_shape(given: &Connected, dtype: DType) -> Option<PortSpec> {
    given.single().map(|spec| spec.clone().with_dtype(dtype).with_content(Content::Numbers))
}

/// Returns ports with an input `in`.
pub fn takes(spec: Option<PortSpec>) -> Ports {
    match spec {
        Some(spec) => Ports::new().input("in", spec),
        None => Ports::new().input_any("in"),
    }
}

/// Returns the ports of a node that forwards some of its messages unchanged.
pub(crate) fn passes(given: &Connected) -> Ports {
    let spec = given.single().cloned();
    takes(spec.clone()).output_forwarding("out", spec, "in").selective()
}

/// Adds an output `out`.
pub fn gives(ports: Ports, spec: Option<PortSpec>) -> Ports {
    ports.out_port(OutPort { name: "out".into(), spec, emits: 1, rows: 1, forwards: Vec::new() })
}

/// Returns what else to say to a user whose tensors should have a fixed shape.
pub(crate) fn how_to_fix(spec: &PortSpec) -> &'static str {
    if spec.fixed_shape().is_some() {
        ""
    } else if spec.layout.is_some() {
        ", or add a `resize` or `letterbox` node upstream"
    } else {
        ", or add a `pad` node with `to` upstream"
    }
}

/// Sets the run-time lengths of a loaned tensor to those of another of the same rank.
pub fn set_shape(tensor: &mut TensorMut, shape: &[usize]) -> Result<(), NodeError> {
    for (dim, length) in shape.iter().enumerate() {
        tensor.set_len(dim, *length)?;
    }
    Ok(())
}

/// Returns the index that a config writes for a sequence of this length: negative numbers count
/// from the end. `None` if it is out of range.
pub(crate) fn place(index: i64, length: usize) -> Option<usize> {
    let from_start = i128::from(index) + if index < 0 { length as i128 } else { 0 };
    usize::try_from(from_start).ok().filter(|index| *index < length)
}

/// Returns the dim of a spec that the config field `dim` names: negative numbers count from the
/// end.
pub(crate) fn named_dim(spec: &PortSpec, dim: i64, errors: &mut PlanErrors) -> Option<usize> {
    let rank = spec.shape.len();
    let found = place(dim, rank);
    if found.is_none() {
        let (message, help) = match rank.checked_sub(1) {
            Some(last) => (
                format!("`dim` must be -{rank} to {last} for {spec}, got {dim}"),
                format!("write 0 to {last}, or -1 for the last dim"),
            ),
            None => {
                (format!("expected at least one dim, found {spec}"), "connect a tensor with at least one dim".into())
            }
        };
        errors.at("dim", message).help(help);
    }
    found
}
