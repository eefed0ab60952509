//! A paced source whose messages go alone, one call a turn: whatever its calls do, the result is that of a source that is called in bursts.

use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source,
};
use limen::{Message, Options, Plan, Report, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

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

/// A limit of messages, though it is never reached, has the source called in bursts.
fn report(script: &str, on_error: &str, is_limited: bool) -> Report {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: scripted, config: {{ script: {script} }}, on_error: {on_error} }}\n  \
         b: {{ kind: keeper, from: a }}\n"
    );
    let registry = limen_tests::registry().source::<Scripted>("scripted").sink::<Keeper>("keeper");
    let spec = Spec::from_text(&graph, "test.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options { frames: is_limited.then_some(1 << 40), ..Options::default() };
    let plan = Plan::with_options(spec, &registry, &options).unwrap_or_else(|problems| panic!("{problems}"));
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
