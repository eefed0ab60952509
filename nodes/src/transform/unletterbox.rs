//! Boxes in the images that `letterbox` scaled.

use crate::tensor::boxes::{self, ROW};
use crate::tensor::placement::Placement;
use crate::tensor::shape;
use limen::node::{Building, Connected, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts boxes in the frame of `letterbox` into boxes in pixels of the source image, clipped to it: `boxes` `f32[≤n,6]` and
/// `placement` `f32[6]` to `boxes` `f32[≤n,6]`.
///
/// Rows are x0, y0, x1, y1, score, class; score and class are kept, and so is the order.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Config {}

/// The node.
#[derive(Debug)]
pub struct Unletterbox;

impl Node for Unletterbox {
    type Config = Config;

    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let given = given.input("boxes");
        let input = boxes::any_spec(given);
        let spec = given.map(|_| input.clone());
        let out = OutPort { name: "boxes".into(), spec, emits: 1, rows: 1, forwards: Vec::new() };
        Ok(Ports::new().input("boxes", input).input("placement", Placement::spec()).out_port(out))
    }

    fn build(_: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Unletterbox)
    }
}

impl Transform for Unletterbox {
    type In = (Tensor, Tensor);
    type Out = Tensor;

    fn apply(
        &mut self,
        (found, placement): (Message<Tensor>, Message<Tensor>),
        out: &mut Emit<Tensor>,
    ) -> Result<(), NodeError> {
        let header =
            if placement.header().origin < found.header().origin { placement.header() } else { found.header() };
        let placement = Placement::of(&placement.body)?;
        let rows = boxes::rows(&found.body)?;
        let mut converted = out.loan(header)?;
        shape::set_shape(&mut converted, &[rows.len(), ROW])?;
        for (to, row) in converted.as_mut_slice::<f32>()?.as_chunks_mut().0.iter_mut().zip(rows) {
            *to = placement.to_image(*row);
        }
        out.send(converted);
        Ok(())
    }
}
