//! A node that is given a burst: whatever it does with it, every message is a call of its own, done or failed, and keeps its place.

use limen::message::{DType, PortSpec};
use limen::node::{Building, Burst, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Plan, Report, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

const COUNT: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum How {
    /// Sends all of it on.
    Forward,
    /// Calls for each, of which one in the middle fails.
    Each,
    /// Leaves it.
    Leave,
    /// Sends all of it on, and fails then.
    ForwardError,
    ForwardPanic,
    /// Calls for each, of which one fails, and returns as if none had.
    Swallow,
    /// Sends all with the last call, which is more than it declared.
    TooMany,
    /// Fails before it takes a message.
    Error,
    Panic,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Config {
    how: How,
    #[serde(default)]
    heavy: bool,
}

struct Handler {
    how: How,
}

impl Node for Handler {
    type Config = Config;
    fn ports(config: &Config, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = PortSpec::fixed(DType::U64, []);
        let ports = Ports::new().input("in", spec.clone()).output_forwarding("out", Some(spec), "in");
        Ok(ports.cost(if config.heavy { Cost::Heavy } else { Cost::Light }))
    }
    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Handler { how: config.how })
    }
}

impl Transform for Handler {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input);
        Ok(())
    }
    fn apply_burst(&mut self, burst: &mut Burst<'_, Message<Tensor>>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        match self.how {
            How::Forward => return burst.forward(out),
            How::Leave => {}
            How::ForwardError => {
                burst.forward(out)?;
                return Err(NodeError::other("this was asked for"));
            }
            How::ForwardPanic => {
                burst.forward(out)?;
                panic!("this was asked for");
            }
            How::Swallow => {
                let mut call = |input: Message<Tensor>, out: &mut Emit<Tensor>| {
                    out.send(input);
                    Err(NodeError::other("this was asked for"))
                };
                let _ = burst.each(out, &mut call);
                let _ = burst.each(out, &mut call);
            }
            How::TooMany => {
                let mut kept = Vec::new();
                burst.each(out, |input, _| {
                    kept.push(input);
                    Ok(())
                })?;
                kept.into_iter().for_each(|message| out.send(message));
            }
            How::Error => return Err(NodeError::other("this was asked for")),
            How::Panic => panic!("this was asked for"),
            How::Each => {
                let (mut n, last) = (0, burst.len() / 2);
                return burst.each(out, |input, out| {
                    n += 1;
                    out.send(input);
                    // It fails after sending: no message of a failed call may be published.
                    if n > last { Err(NodeError::other("this was asked for")) } else { Ok(()) }
                });
            }
        }
        Ok(())
    }
}

/// `numbers -> pass -> burst -> collect`; where it is heavy, its edges cross workers. `more` is another consumer of its output.
fn plan(how: &str, heavy: bool, more: &str) -> Plan {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: {COUNT} }} }}\n  p: {{ kind: pass, from: a }}\n  \
         b: {{ kind: burst, config: {{ how: {how}, heavy: {heavy} }}, from: p, on_error: skip }}\n  \
         c: {{ kind: collect, from: b }}\n{more}"
    );
    let registry = limen_tests::registry().transform::<Handler>("burst");
    let spec = Spec::from_text(&graph, "test.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    Plan::new(spec, &registry).unwrap_or_else(|problems| panic!("{problems}"))
}

/// On threads, where slow calls are made one by one, and simulated, where none is slow and there are always bursts.
fn reports(how: &str, heavy: bool, more: &str) -> [Report; 2] {
    let mut running = plan(how, heavy, more).wire().expect("wires").start().expect("starts");
    assert!(running.wait_for(Duration::from_secs(60)), "{:?}", running.stats());
    let simulation = plan(how, heavy, more).wire().expect("wires").simulate(7).expect("builds");
    [running.wait(), simulation.run(10_000_000).unwrap_or_else(|stuck| panic!("{stuck}"))]
}

#[test]
fn every_message_of_a_burst_is_a_call_of_its_own() {
    let fails = ["each", "error", "panic", "forward_error", "forward_panic", "swallow", "too_many"];
    for how in ["forward", "leave"].into_iter().chain(fails) {
        for (heavy, more) in [(false, ""), (true, ""), (false, "  d: { kind: \"null\", from: b }\n")] {
            let name = format!("{how}, heavy {heavy} {more}");
            let [threads, simulated] = reports(how, heavy, more);
            let failed = |report: &Report| report.nodes.iter().find(|node| node.name == "b").unwrap().failed;
            // Whatever is left of a burst that fails is given to `apply`, which does not.
            assert_eq!(failed(&simulated) > 0, fails.contains(&how), "{name}");
            for report in [threads, simulated] {
                check(how, &report, &name);
            }
        }
    }
}

fn check(how: &str, report: &Report, name: &str) {
    assert_eq!((report.bugs.len(), report.exit_code()), (0, 0), "{name}");
    let node = report.nodes.iter().find(|node| node.name == "b").unwrap();
    assert_eq!(node.done + node.failed, COUNT, "{name}");
    let count = report.metric("count").unwrap();
    match how {
        // What the other calls have not sent is gone with the one that sent it.
        "too_many" => assert!(count <= node.done as f64, "{name}"),
        _ => assert_eq!(count, node.done as f64, "{name}"),
    }
    assert_eq!(report.metric("disorder"), Some(0.0), "{name}");
    let input = report.edges.iter().find(|edge| edge.to == "b/in").unwrap();
    assert_eq!((input.received, input.lost_total()), (COUNT, 0), "{name}");
}
