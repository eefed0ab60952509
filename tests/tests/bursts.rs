//! A node that is given a burst, or room for one: whatever it does with it, every message is a call
//! of its own, done or failed, and keeps its place.

use limen::message::TensorMut;
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Burst, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Room, Source, Transform,
};
use limen::{Message, Options, Plan, Report, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

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

/// `numbers -> pass -> burst -> collect`; where it is heavy, its edges cross workers. `more` is
/// another consumer of its output.
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

/// On threads, where slow calls are made one by one, and simulated, where none is slow and there
/// are always bursts.
fn reports(plan: impl Fn() -> Plan) -> [Report; 2] {
    let report = limen_tests::finished(plan().wire().expect("wires").start().expect("starts"));
    let simulation = plan().wire().expect("wires").simulate(7).expect("builds");
    [report, simulation.run(10_000_000).unwrap_or_else(|stuck| panic!("{stuck}"))]
}

/// Promise (calls): Each message of a burst is a separate call that succeeds or fails, in the order
/// of the messages.
#[test]
fn every_message_of_a_burst_is_a_call_of_its_own() {
    let fails = ["each", "error", "panic", "forward_error", "forward_panic", "swallow", "too_many"];
    for how in ["forward", "leave"].into_iter().chain(fails) {
        for (heavy, more) in [(false, ""), (true, ""), (false, "  d: { kind: \"null\", from: b }\n")] {
            let name = format!("{how}, heavy {heavy} {more}");
            let [threads, simulated] = reports(|| plan(how, heavy, more));
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Make {
    /// Calls, one by one.
    Each,
    /// Tensors, all at once.
    Fill,
    /// Both: some at once, the others one by one.
    Both,
    /// The fifth of those made at once fails.
    FillError,
    FillPanic,
    /// The fifth call fails after it has sent, and the node returns as if it had not.
    Swallow,
    /// As that, and the node makes more calls.
    GoOn,
    /// The fifth call sends two messages, which is more than it declared.
    Two,
    /// Fails when all calls are made.
    Late,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct MakerConfig {
    make: Make,
    /// How many messages it sends; any number if absent.
    count: Option<u64>,
}

struct Maker {
    make: Make,
    /// How many messages it is to send yet.
    left: u64,
}

impl Node for Maker {
    type Config = MakerConfig;
    fn ports(config: &MakerConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().output("out", PortSpec::fixed(DType::U64, []));
        Ok(if config.count.is_none() { ports.endless() } else { ports })
    }
    fn build(config: MakerConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Maker { make: config.make, left: config.count.unwrap_or(u64::MAX) })
    }
}

fn asked() -> NodeError {
    NodeError::other("this was asked for")
}

impl Maker {
    fn send(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.left > 0 {
            let header = out.header(out.now());
            let mut number = out.loan(&header)?;
            number.as_mut_slice::<u64>()?[0] = header.seq;
            out.send(number);
            self.left -= 1;
        }
        Ok(self.then())
    }
    fn fill(&mut self, room: &mut Room<'_, Tensor>, most: u64) -> Result<u64, NodeError> {
        let (make, mut n) = (self.make, 0);
        room.fill(most.min(self.left), room.now(), |number: &mut TensorMut, seq| {
            n += 1;
            match make {
                Make::FillError if n == 5 => return Err(asked()),
                Make::FillPanic if n == 5 => panic!("this was asked for"),
                _ => {}
            }
            number.as_mut_slice::<u64>()?[0] = seq;
            self.left -= 1;
            Ok(())
        })
    }
    /// Calls, of which the fifth goes wrong.
    fn each(&mut self, room: &mut Room<'_, Tensor>) -> Result<Next, NodeError> {
        let mut n = 0;
        room.each(|out| {
            n += 1;
            let next = self.send(out)?;
            match self.make {
                Make::Two if n == 5 && next == Next::More => self.send(out),
                Make::Swallow | Make::GoOn if n == 5 => Err(asked()),
                _ => Ok(next),
            }
        })
    }
    fn then(&self) -> Next {
        if self.left > 0 { Next::More } else { Next::Done }
    }
}

impl Source for Maker {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        self.send(out)
    }
    fn next_burst(&mut self, room: &mut Room<'_, Tensor>) -> Result<Next, NodeError> {
        match self.make {
            Make::Each | Make::Two => return self.each(room),
            Make::Fill | Make::FillError | Make::FillPanic => {
                if self.fill(room, u64::MAX)? == 0 {
                    return self.each(room);
                }
            }
            Make::Both => {
                self.fill(room, 3)?;
                self.each(room)?;
                if room.calls() == 0 {
                    assert_eq!((self.fill(room, 3)?, self.each(room)?), (0, Next::More));
                }
            }
            Make::Swallow => _ = self.each(room),
            Make::GoOn => {
                let _ = self.each(room);
                // Nothing more is made.
                assert!(self.fill(room, 3).is_err() && self.each(room).is_err() || self.left == 0 || room.calls() == 0);
            }
            Make::Late => {
                self.each(room)?;
                return Err(asked());
            }
        }
        Ok(self.then())
    }
}

/// `maker -> pass -> collect`; `more` is another consumer of the messages.
fn maker_plan(make: &str, count: Option<u64>, more: &str) -> Plan {
    let counted = count.map(|count| format!(", count: {count}")).unwrap_or_default();
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: maker, config: {{ make: {make}{counted} }}, on_error: skip }}\n  \
         p: {{ kind: pass, from: a }}\n  c: {{ kind: collect, inputs: {{ in: p }} }}\n{more}"
    );
    let registry = limen_tests::registry().source::<Maker>("maker");
    let spec = Spec::from_text(&graph, "test.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options { frames: count.is_none().then_some(1000), ..Options::default() };
    Plan::with_options(spec, &registry, &options).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Promise (calls): Each message of a burst that a source produces is a separate call.
#[test]
fn every_message_that_a_source_makes_at_once_is_a_call_of_its_own() {
    // How many messages are lost with each call that fails.
    for (make, lost) in [
        ("each", None),
        ("fill", None),
        ("both", None),
        ("fill_error", Some(0)),
        ("fill_panic", Some(0)),
        ("swallow", Some(1)),
        ("go_on", Some(1)),
        ("two", Some(2)),
        ("late", Some(0)),
    ] {
        for (count, more) in [(Some(COUNT), ""), (Some(COUNT), "  d: { kind: \"null\", from: a }\n"), (None, "")] {
            let name = format!("{make}, {count:?} {more}");
            let [threads, simulated] = reports(|| maker_plan(make, count, more));
            for (report, is_simulated) in [(&threads, false), (&simulated, true)] {
                assert_eq!((report.bugs.len(), report.exit_code()), (0, 0), "{name}");
                let node = report.nodes.iter().find(|node| node.name == "a").unwrap();
                // Threads may be slow all the time, and then make calls one by one.
                assert!(node.failed > 0 || !is_simulated || lost.is_none(), "{name}");
                assert!(node.failed == 0 || lost.is_some(), "{name}");
                match count {
                    Some(count) => assert_eq!(node.done + lost.unwrap_or(0) * node.failed, count, "{name}"),
                    // One that fails when there is no room for another call is one more.
                    None => {
                        assert!((1000..1001 + u64::from(make == "late")).contains(&(node.done + node.failed)), "{name}")
                    }
                }
                let edge = report.edges.iter().find(|edge| edge.to == "p/in").unwrap();
                assert_eq!((edge.received, edge.lost_total()), (node.done, 0), "{name}");
                assert_eq!(report.metric("disorder"), Some(0.0), "{name}");
                if lost.is_none() {
                    // Each message has the number of its call.
                    assert_eq!(report.metric("sum_in"), Some((node.done * (node.done - 1) / 2) as f64), "{name}");
                }
            }
        }
    }
}
