//! A custom node: a config struct and one short `impl`.
//!
//! `cargo run --example own_node` runs the graph below. For the whole command line of `limen-run`
//! with this kind added, call
//! `limen_run::main(limen_run::registry().transform::<Brighten>("brighten"))`.

use limen::message::DType;
use limen::node::{Building, Connected, Emit, Node, NodeError, NodeErrorKind, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Plan, Spec, Tensor, TensorMut};
use schemars::JsonSchema;
use serde::Deserialize;

/// Adds a number to every byte of an image; the sum saturates at 255.
///
/// The first line is the summary in `limen-run kinds`; the fields are the keys of `config:`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Config {
    /// The number to add.
    by: u8,
}

struct Brighten(u8);

impl Node for Brighten {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.by == 0 {
            errors.at("by", "0 changes nothing").help("write 1 to 255, or remove the node");
        }
        // The output has the spec and the buffers of the input: the node writes in place.
        let spec = given.single().cloned();
        if spec.as_ref().is_some_and(|spec| spec.dtype != DType::U8) {
            errors.input("in", "only images of bytes can be brightened");
        }
        let ports = match &spec {
            Some(spec) => Ports::new().input("in", spec.clone()),
            None => Ports::new().input_any("in"),
        };
        errors.into_result(ports.output_forwarding("out", spec, "in").setting("by", 0.0..=255.0))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Brighten(config.by))
    }

    /// `Running::set("node", "by", 30.0)`, applied between two turns. Called only for settings that
    /// `ports` declares.
    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        match name {
            "by" => self.0 = value as u8,
            _ => return Err(NodeErrorKind::UnknownSetting { name: name.into() }.into()),
        }
        Ok(())
    }
}

impl Transform for Brighten {
    /// `TensorMut` is writable in place. With `Tensor`, the node would read it and fill a new
    /// buffer: `out.loan(input.header())`.
    type In = TensorMut;
    type Out = Tensor;

    fn apply(&mut self, mut image: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        for byte in image.as_mut_slice::<u8>()? {
            *byte = byte.saturating_add(self.0);
        }
        out.send(Message::from(image));
        Ok(())
    }
}

const GRAPH: &str = "
version: 1
graph: brighter
nodes:
  camera: { kind: synthetic, config: { pattern: ramp, width: 64, height: 48, count: 100 } }
  bright: { kind: brighten, config: { by: 20 }, from: camera/image }
  end: { kind: \"null\", from: bright }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = limen_run::registry().transform::<Brighten>("brighten");
    let plan = Plan::new(Spec::from_text(GRAPH, "brighter.yaml")?, &registry)?;
    let report = plan.wire()?.start()?.wait();
    print!("{}", limen_run::show_report(&report, limen_run::Detail::Usual));
    assert_eq!(report.node("bright").map(|node| node.done), Some(100));
    Ok(())
}
