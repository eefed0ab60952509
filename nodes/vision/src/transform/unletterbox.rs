//! Boxes in the images that `letterbox` scaled.

use crate::tensor::placement::Placement;
use crate::tensor::quads;
use limen::message::PortSpec;
use limen::node::{Building, Connected, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::{boxes, shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts boxes from the frame of `letterbox` to pixels of the source image: `boxes` `f32[≤n,6]`
/// and `placement` `f32[6]` to `boxes` `f32[≤n,6]`.
///
/// Rows are x0, y0, x1, y1, score, class. The node clips boxes to the source image, and keeps
/// scores, classes and the order of rows.
///
/// The node reads either `boxes`, or `quads` `f32[≤n,8]` from `decode_db` with x and y of four
/// corners. From `quads`, the node produces `quads`. The node moves corners outside the image to
/// the nearest edge pixel.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct UnletterboxConfig {}

/// Runs `kind: unletterbox`; [`UnletterboxConfig`] says what it does.
#[derive(Debug)]
pub struct Unletterbox {
    quads: bool,
}

impl Node for Unletterbox {
    type Config = UnletterboxConfig;

    fn ports(_: &UnletterboxConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let quads = quads::are_given(given);
        let (name, any_spec) =
            if quads { (quads::PORT, quads::any_spec as fn(_) -> _) } else { ("boxes", boxes::any_spec as _) };
        let given = given.input(name);
        let input: PortSpec = any_spec(given);
        let spec = given.map(|_| input.clone());
        let out = OutPort { name: name.into(), spec, emits: 1, rows: 1, forwards: Vec::new() };
        Ok(Ports::new().input(name, input).input("placement", Placement::spec()).out_port(out))
    }

    fn build(_: UnletterboxConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Unletterbox { quads: cx.inputs().iter().any(|(name, _)| name == quads::PORT) })
    }
}

impl Transform for Unletterbox {
    type In = (Tensor, Tensor);
    type Out = Tensor;

    fn apply(&mut self, input: (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let (found, placement) = &input;
        let placement = Placement::of(&placement.body)?;
        let mut converted = out.loan(header)?;
        shape::set_shape(&mut converted, &found.body.shape())?;
        let numbers = converted.as_mut_slice::<f32>()?;
        if self.quads {
            for (to, row) in numbers.as_chunks_mut().0.iter_mut().zip(quads::rows(&found.body)?) {
                *to = placement.quad_to_image(*row);
            }
        } else {
            for (to, row) in numbers.as_chunks_mut().0.iter_mut().zip(boxes::rows(&found.body)?) {
                *to = placement.to_image(*row);
            }
        }
        out.send(converted);
        Ok(())
    }
}
