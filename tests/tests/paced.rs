//! A paced source whose messages go alone, one call a turn: whatever its calls do, the result is that of a source that is called in bursts.

use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source,
};
use limen::{Clock, Drain, Message, Options, Plan, Report, SimulatedClock, Spec, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// One letter a call: what it does, and what it answers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Script {
    script: String,
}

struct Scripted {
    script: Vec<u8>,
    at: usize,
}

impl Node for Scripted {
    type Config = Script;
    fn ports(_: &Script, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::U64, [])))
    }
    fn build(config: Script, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Scripted { script: config.script.into_bytes(), at: 0 })
    }
}

impl Source for Scripted {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let send = |out: &mut Emit<Tensor>| -> Result<(), NodeError> {
            let header = out.header(out.now());
            let mut tensor = out.loan(&header)?;
            tensor.bytes_mut().copy_from_slice(&header.seq.to_ne_bytes());
            out.send(tensor);
            Ok(())
        };
        let Some(letter) = self.script.get(self.at) else { return Ok(Next::Done) };
        self.at += 1;
        let later = Next::At(out.now() + 1_000_000);
        match letter {
            b's' => send(out).map(|()| later),
            b'm' => send(out).map(|()| Next::More),
            b'p' => Ok(later),
            b'n' => Ok(Next::More),
            b'd' => send(out).map(|()| Next::Done),
            b'e' => Err(NodeError::other("this was asked for")),
            // Failures after sending: nothing of a failed call is published.
            b'f' => send(out).and_then(|()| Err(NodeError::other("this was asked for"))),
            b'x' => {
                send(out)?;
                panic!("this was asked for")
            }
            _ => unreachable!("no such letter"),
        }
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct KeeperConfig {}

/// Keeps the sequence numbers.
struct Keeper {
    count: u64,
    hash: u64,
}

impl Node for Keeper {
    type Config = KeeperConfig;
    fn ports(_: &Self::Config, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", PortSpec::fixed(DType::U64, [])))
    }
    fn build(_: Self::Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Keeper { count: 0, hash: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("count", self.count as f64);
        to.set("hash", self.hash as f64);
    }
}

impl Sink for Keeper {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let header = input.header();
        self.count += 1;
        self.hash = (self.hash * 31 + header.seq + 7 * u64::from(header.segment)) % 1_000_003;
        Ok(())
    }
}

fn plan(graph: &str, frames: Option<u64>) -> Plan {
    let registry = limen_tests::registry().source::<Scripted>("scripted").sink::<Keeper>("keeper");
    let spec = Spec::from_text(graph, "test.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options { frames, ..Options::default() };
    Plan::with_options(spec, &registry, &options).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A limit of messages, though it is never reached, has the source called in bursts.
fn report(script: &str, on_error: &str, is_limited: bool) -> Report {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: scripted, config: {{ script: {script} }}, on_error: {on_error}, core: 0 }}\n  \
         b: {{ kind: keeper, from: a, core: 0 }}\n"
    );
    let plan = plan(&graph, is_limited.then_some(1 << 40));
    let simulation = plan.wire().expect("wires").simulate(3).expect("builds");
    simulation.run(10_000_000).unwrap_or_else(|stuck| panic!("{stuck}"))
}

#[test]
fn a_source_that_is_called_alone_does_what_one_called_in_bursts_does() {
    let scripts = [
        "ssssssss",
        "sssmmmmmmsss",
        "spspppss",
        "snsnnss",
        "ssd",
        "smd",
        "sesse",
        "sfsfs",
        "sxsxs",
        "sespxnfmes",
        "eeee",
        "se",
        "sx",
        "ssmmmxmmss",
        "pppp",
        "smmemsnxps",
    ];
    let policies = ["skip", "stop", "detach", "{ restart: { max: 2, backoff: 1ms } }"];
    for script in scripts {
        for on_error in policies {
            let name = format!("{script}, on_error: {on_error}");
            let [alone, bursts] = [false, true].map(|is_limited| report(script, on_error, is_limited));
            let summary = |report: &Report| {
                let a = report.nodes.iter().find(|node| node.name == "a").unwrap();
                let edge = &report.edges[0];
                let failures: Vec<_> = report.failures.iter().map(|f| (f.call, f.text.clone())).collect();
                (
                    (a.done, a.failed, a.restarts, edge.sent, edge.received, edge.lost_total()),
                    (report.metric("count"), report.metric("hash"), report.exit_code(), report.bugs.clone()),
                    failures,
                )
            };
            assert_eq!(summary(&alone), summary(&bursts), "{name}");
            assert!(alone.bugs.is_empty(), "{name}");
            if on_error == "skip" {
                let fails = script.bytes().filter(|letter| b"efx".contains(letter)).count() as u64;
                let sent = script.bytes().filter(|letter| b"smd".contains(letter)).count() as f64;
                let a = alone.nodes.iter().find(|node| node.name == "a").unwrap();
                assert_eq!((a.failed, alone.metric("count")), (fails, Some(sent)), "{name}");
            }
        }
    }
}

#[test]
fn a_source_that_panics_again_and_again_leaves_the_other_stages_their_turns() {
    let script = format!("s{}", "x".repeat(1000));
    // Whichever of them the worker turns first.
    let nodes = [
        format!("  a: {{ kind: scripted, config: {{ script: {script} }}, on_error: skip, core: 0 }}\n"),
        "  b: { kind: keeper, from: a, core: 0 }\n".to_string(),
        "  c: { kind: numbers, config: { count: 1000000 }, core: 0 }\n".to_string(),
        "  d: { kind: \"null\", from: c, core: 0 }\n".to_string(),
    ];
    for order in [[0, 1, 2, 3], [2, 3, 0, 1]] {
        let graph = order.iter().fold("version: 1\nnodes:\n".to_string(), |graph, at| graph + &nodes[*at]);
        check_turns(&graph);
    }
}

fn check_turns(graph: &str) {
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let wired = plan(graph, None).wire().unwrap();
    let mut driven = wired.drive(Clock::Simulated(clock.clone())).unwrap();
    driven.turn();
    clock.advance(2_000_000);
    (0..100).for_each(|_| {
        driven.turn();
    });
    let report = driven.stop(Drain::within(Duration::from_secs(10)));
    let done = |name: &str| report.nodes.iter().find(|node| node.name == name).map(|node| (node.done, node.failed));
    let (Some((sent, failed)), Some((others, 0))) = (done("a"), done("c")) else { panic!("{report:#?}") };
    assert!(sent == 1 && failed >= 50 && others >= 1000, "{sent} sent, {failed} failed, {others} of the other source");
}

#[test]
fn a_source_that_answers_more_is_called_in_bursts_from_then_on() {
    let turns = |script: &str, frames| {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: scripted, config: {{ script: {script} }}, core: 0 }}\n  \
             b: {{ kind: keeper, from: a, core: 0 }}\n"
        );
        let simulation = plan(&graph, frames).wire().unwrap().simulate(3).unwrap();
        let report = simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("{stuck}"));
        let edge = &report.edges[0];
        assert_eq!((edge.received, edge.lost_total()), (script.len() as u64, 0), "{script}");
        report.nodes.iter().find(|node| node.name == "a").unwrap().turns
    };
    // The first call of the burst is made alone.
    let script = format!("ss{}", "m".repeat(40));
    assert_eq!(turns(&script, None), turns(&script, Some(1 << 40)) + 1);
}
