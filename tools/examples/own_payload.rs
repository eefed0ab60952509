//! A custom payload: a small value that is passed by value, without buffers, pools or shapes.
//!
//! Poses go in through an inlet, a node turns them into commands, and an outlet delivers those. A
//! payload has at most 64 bytes; larger values, and values for stock nodes, are tensors.

use limen::message::Plain;
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Plan, Registry, Spec};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// The pose of the robot.
#[derive(Clone, Debug)]
struct Pose {
    x: f32,
    y: f32,
    heading: f32,
}

impl Plain for Pose {}

/// A motion command.
#[derive(Clone, Debug)]
struct Command {
    speed: f32,
    turn: f32,
}

impl Plain for Command {}

/// Steers towards the origin.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Config {
    /// Speed per metre of distance.
    gain: f32,
}

struct Steer(f32);

impl Node for Steer {
    type Config = Config;
    fn ports(_: &Config, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("pose").output_plain("command"))
    }
    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Steer(config.gain))
    }
}

impl Transform for Steer {
    type In = Pose;
    type Out = Command;

    fn apply(&mut self, pose: Message<Pose>, out: &mut Emit<Command>) -> Result<(), NodeError> {
        let Pose { x, y, heading } = pose.body;
        let command = Command { speed: self.0 * x.hypot(y), turn: (-y).atan2(-x) - heading };
        // The header is passed on: latency is measured from the begin of the pose.
        out.send(Message::new(*pose.header(), command));
        Ok(())
    }
}

const GRAPH: &str = "
version: 1
nodes:
  poses: { kind: poses }
  steer: { kind: steer, config: { gain: 0.5 }, from: poses }
  commands: { kind: commands, config: { hold: 4 }, from: { from: steer, when_full: latest } }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::new().inlet::<Pose>("poses").transform::<Steer>("steer").outlet::<Command>("commands");
    let mut graph = Plan::new(Spec::from_text(GRAPH, "steer.yaml")?, &registry)?.wire()?;
    let mut poses = graph.inlet::<Pose>("poses")?;
    let mut commands = graph.outlet::<Command>("commands")?;
    let running = graph.start()?;
    let mut pose = Pose { x: 3.0, y: 4.0, heading: 0.0 };
    for _ in 0..50 {
        poses.send(Message::new(poses.header(), pose.clone()))?;
        let Command { speed, turn } = commands.recv_timeout(Duration::from_secs(10))?.body;
        pose.heading += turn;
        pose.x += 0.2 * speed * pose.heading.cos();
        pose.y += 0.2 * speed * pose.heading.sin();
    }
    println!("{pose:?}");
    assert!(pose.x.hypot(pose.y) < 0.1);
    poses.close();
    let report = running.wait();
    assert!(report.bugs.is_empty());
    Ok(())
}
