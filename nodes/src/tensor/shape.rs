//! What nodes say of shapes while planning, and how a loaned tensor gets the shape of the message it is made from.
//!
//! Where nothing is known of what arrives (the node upstream has problems of its own, or closes a cycle) a node takes
//! anything and leaves its output unknown too, so that one mistake is reported once.

use limen::TensorMut;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Connected, NodeError, OutPort, Ports};

/// Height, width and channels of the image a node is given; `None` where no image is known.
pub(crate) fn image_dims(given: &Connected) -> Option<&[Dim; 3]> {
    given.single().and_then(|spec| <&[Dim; 3]>::try_from(&spec.shape[..]).ok())
}

/// Three dims of any length, to be compared with what arrives: another rank is then refused by the engine.
pub(crate) fn any_image() -> [Dim; 3] {
    ["h", "w", "c"].map(|name| Dim::Symbol(name.into()))
}

/// What arrives, as numbers of the dtype the node works on: the engine then compares the two.
pub(crate) fn any_shape(given: &Connected, dtype: DType) -> Option<PortSpec> {
    given.single().map(|spec| PortSpec { dtype, content: Content::Numbers, ..spec.clone() })
}

/// Ports with an input `in`.
pub(crate) fn takes(spec: Option<PortSpec>) -> Ports {
    match spec {
        Some(spec) => Ports::new().input("in", spec),
        None => Ports::new().input_any("in"),
    }
}

/// Ports of a node that sends some of its messages on as they are.
pub(crate) fn passes(given: &Connected) -> Ports {
    let spec = given.single().cloned();
    takes(spec.clone()).output_forwarding("out", spec, "in").selective()
}

/// Adds an output `out`.
pub(crate) fn gives(ports: Ports, spec: Option<PortSpec>) -> Ports {
    ports.out_port(OutPort { name: "out".into(), spec, emits: 1, rows: 1, forwards: Vec::new() })
}

/// Gives a loaned tensor the run-time lengths of another of the same rank. Costs next to nothing where all are fixed.
pub(crate) fn set_shape(tensor: &mut TensorMut, shape: &[usize]) -> Result<(), NodeError> {
    for (dim, length) in shape.iter().enumerate() {
        tensor.set_len(dim, *length)?;
    }
    Ok(())
}
