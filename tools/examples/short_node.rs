//! The shortest custom node: the config is the node, and one `impl` changes a message in place.

use limen::node::prelude::*;
use limen::{Plan, Spec};

/// Adds a number to every byte of an image; the sum saturates at 255.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Brighten {
    /// The number to add.
    by: u8,
}

impl InPlace for Brighten {
    fn apply(&mut self, image: &mut TensorMut) -> Result<(), NodeError> {
        for byte in image.as_mut_slice::<u8>()? {
            *byte = byte.saturating_add(self.by);
        }
        Ok(())
    }
}

const GRAPH: &str = "
version: 1
nodes:
  camera: { kind: synthetic, config: { pattern: ramp, width: 64, height: 48, count: 100 } }
  bright: { kind: brighten, config: { by: 20 }, from: camera/image }
  out: { kind: outlet, config: { hold: 100 }, from: bright }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = limen_run::registry().in_place::<Brighten>("brighten");
    let mut graph = Plan::new(Spec::from_text(GRAPH, "brighter.yaml")?, &registry)?.wire()?;
    let mut out = graph.outlet::<Tensor>("out")?;
    let running = graph.start()?;
    let image = out.recv()?;
    assert!(image.body.as_slice::<u8>()?.iter().all(|byte| *byte >= 20));
    assert_eq!(running.wait().node("bright").map(|node| node.done), Some(100));
    Ok(())
}
