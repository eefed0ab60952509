//! A paced source whose messages go alone, one call a turn: whatever its calls do, the result is
//! that of a source that is called in bursts.

use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink,
    Source, Transform,
};
use limen::{Clock, Drain, Message, Options, Plan, Report, SimulatedClock, Spec, Tensor, TensorMut, Time};
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

/// As [`Scripted`], with two outputs: `b` sends on both, `1` and `2` on one of them, `t` twice on
/// the first, which is one too many, and `e`, `f`, `x` fail as there.
struct Scripted2(Scripted);

impl Node for Scripted2 {
    type Config = Script;
    fn ports(_: &Script, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = || PortSpec::fixed(DType::U64, []);
        Ok(Ports::new().output("first", spec()).output("second", spec()))
    }
    fn build(config: Script, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Scripted2(Scripted::build(config, cx)?))
    }
}

impl Source for Scripted2 {
    type Out = Many<Tensor>;
    fn next(&mut self, out: &mut Emit<Many<Tensor>>) -> Result<Next, NodeError> {
        let header = out.header(out.now());
        let mut send = |at: usize| -> Result<(), NodeError> {
            let mut tensor = out[at].loan(&header)?;
            tensor.bytes_mut().copy_from_slice(&header.seq.to_ne_bytes());
            out[at].send(tensor);
            Ok(())
        };
        let Some(letter) = self.0.script.get(self.0.at) else { return Ok(Next::Done) };
        self.0.at += 1;
        match letter {
            b'b' => send(0).and_then(|()| send(1))?,
            b'1' => send(0)?,
            b'2' => send(1)?,
            b't' => send(0).and_then(|()| send(0))?,
            b'e' => return Err(NodeError::other("this was asked for")),
            b'f' => return send(0).and_then(|()| Err(NodeError::other("this was asked for"))),
            b'x' => {
                send(1)?;
                panic!("this was asked for")
            }
            _ => unreachable!("no such letter"),
        }
        Ok(Next::At(out.now() + 1_000_000))
    }
}

/// Which call fails, and which panics, from 1.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Failing {
    fails: u64,
    panics: u64,
}

impl Failing {
    fn call(&self, calls: &mut u64) -> Result<(), NodeError> {
        *calls += 1;
        assert_ne!(*calls, self.panics, "this was asked for");
        if *calls == self.fails { Err(NodeError::other("this was asked for")) } else { Ok(()) }
    }
}

/// Adds one to each message in place.
struct Adder(Failing, u64);

impl Node for Adder {
    type Config = Failing;
    fn ports(_: &Failing, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = PortSpec::fixed(DType::U64, []);
        Ok(Ports::new().input("in", spec.clone()).output_forwarding("out", Some(spec), "in"))
    }
    fn build(config: Failing, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Adder(config, 0))
    }
}

impl Transform for Adder {
    type In = TensorMut;
    type Out = Tensor;
    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.0.call(&mut self.1)?;
        if let Some(bytes) = input.bytes_mut().first_chunk_mut::<8>() {
            *bytes = (u64::from_ne_bytes(*bytes) + 1).to_ne_bytes();
        }
        out.send(input);
        Ok(())
    }
}

/// Adds up what arrives on inputs of any name.
struct Summer {
    failing: Failing,
    calls: u64,
    count: u64,
    sum: u64,
}

impl Node for Summer {
    type Config = Failing;
    fn ports(_: &Failing, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input(name, PortSpec::fixed(DType::U64, []))))
    }
    fn build(failing: Failing, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Summer { failing, calls: 0, count: 0, sum: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("count", self.count as f64);
        to.set("sum", self.sum as f64);
    }
}

impl Sink for Summer {
    type In = Many<Tensor>;
    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        self.failing.call(&mut self.calls)?;
        self.count += 1;
        for message in &input {
            self.sum += message.body.bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        }
        Ok(())
    }
}

fn plan(graph: &str, frames: Option<u64>) -> Plan {
    let registry = limen_tests::registry()
        .source::<Scripted>("scripted")
        .source::<Scripted2>("scripted2")
        .transform::<Adder>("adder")
        .sink::<Summer>("summer")
        .sink::<Keeper>("keeper");
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

/// Promise (calls): A source that produces single messages behaves like one that produces bursts.
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

/// What a run moved, lost and failed.
fn summary(report: &Report) -> String {
    let nodes: Vec<_> = report
        .nodes
        .iter()
        .map(|n| (&n.name, n.done, n.failed, n.restarts, n.metrics.iter().collect::<Vec<_>>()))
        .collect();
    let edges: Vec<_> = report.edges.iter().map(|e| (&e.from, &e.to, e.sent, e.received, &e.lost)).collect();
    let failures: Vec<_> = report.failures.iter().map(|f| (f.call, &f.text)).collect();
    format!("{nodes:?}\n{edges:?}\n{failures:?}\n{} {:?}", report.exit_code(), report.bugs)
}

/// Promise (calls): Single messages produce the same results, failures and losses as bursts, for
/// every shape of node.
///
/// A budget and a limit of messages have all nodes take the general path; the results are the same.
#[test]
fn messages_alone_go_through_nodes_of_every_shape_as_bursts_do() {
    let scripts = ["bbbbbb", "b12b21b", "btb1t2", "ebfb1x2b", "xb", "tt2"];
    let policies = ["skip", "stop", "detach", "{ restart: { max: 2, backoff: 1ms } }"];
    let failing = [(0, 0), (2, 0), (0, 3), (1, 2)];
    // The first output has two consumers, so that one that writes its input in place gets copies,
    // or the second output has one, too.
    let others = [
        "",
        "  d: { kind: keeper, from: a/first, core: 0 }\n",
        "  e: { kind: summer, config: { fails: 0, panics: 0 }, from: a/second, core: 0 }\n",
    ];
    for script in scripts {
        for on_error in policies {
            for (fails, panics) in failing {
                for other in others {
                    let run = |budget: &str, frames: Option<u64>| {
                        let config = format!(
                            "config: {{ fails: {fails}, panics: {panics} }}, on_error: {on_error}, core: 0{budget}"
                        );
                        let graph = format!(
                            "version: 1\nnodes:\n  \
                             a: {{ kind: scripted2, config: {{ script: {script} }}, on_error: {on_error}, core: 0 }}\n  \
                             b: {{ kind: adder, {config}, from: a/first }}\n  \
                             c: {{ kind: summer, {config}, inputs: {{ any: b }} }}\n{other}"
                        );
                        let simulation = plan(&graph, frames).wire().expect("wires").simulate(3).expect("builds");
                        simulation.run_as_scheduled(10_000_000).unwrap_or_else(|stuck| panic!("{stuck}"))
                    };
                    let alone = run("", None);
                    let bursts = run(", budget: 1s", Some(1 << 40));
                    let name = format!("{script}, {on_error}, fails {fails}, panics {panics}\n{other}");
                    assert_eq!(summary(&alone), summary(&bursts), "{name}");
                    assert!(alone.bugs.is_empty(), "{name}");
                }
            }
        }
    }
}

/// Promise (calls): A panic of a source without consumers is a call failure of that source.
///
/// Nobody but the stage itself catches the panic of a source that is alone on its core, and whose
/// outputs have no consumer.
#[test]
fn a_source_without_consumers_that_panics_is_no_bug() {
    for on_error in ["skip", "stop", "{ restart: { max: 2, backoff: 1ms } }"] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: scripted2, config: {{ script: bxbxb }}, on_error: {on_error}, core: 0 }}\n"
        );
        let report = plan(&graph, None).wire().expect("wires").start().expect("starts").wait();
        assert!(report.bugs.is_empty() && report.nodes[0].failed >= 1, "{on_error}: {report:#?}");
    }
}
