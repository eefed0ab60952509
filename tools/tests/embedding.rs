//! A program with kinds of its own can print and write everything that `limen-run` does, through
//! the public functions.

use limen::message::Plain;
use limen::node::{
    Building, Connected, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source, Taken,
};
use limen::policy::Telemetry;
use limen::{GraphBuilder, Message, NodeBuilder, Options, Plan, Registry, Report, Spec};
use limen_run::{Detail, Dump, Gate, GraphFile, RunInfo, Summary, show_plan, show_report};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug)]
struct Number(u64);

impl Plain for Number {}

/// Counts to `to`.
#[derive(Deserialize, JsonSchema)]
struct CountConfig {
    to: u64,
}

struct Count {
    at: u64,
    to: u64,
}

impl Node for Count {
    type Config = CountConfig;
    fn ports(_: &CountConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output_plain("number").note("counts in steps of one"))
    }
    fn build(config: CountConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Count { at: 0, to: config.to })
    }
}

impl Source for Count {
    type Out = Number;
    fn next(&mut self, out: &mut Emit<Number>) -> Result<Next, NodeError> {
        if self.at == self.to {
            return Ok(Next::Done);
        }
        self.at += 1;
        let header = out.header(out.clock());
        out.send(Message::new(header, Number(self.at)));
        Ok(Next::More)
    }
}

/// Sums the numbers it takes.
#[derive(Deserialize, JsonSchema)]
struct SumConfig {}

struct Sum(u64);

impl Node for Sum {
    type Config = SumConfig;
    fn ports(_: &SumConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(_: SumConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Sum(0))
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("sum", self.0 as f64);
    }
}

impl Sink for Sum {
    type In = Number;
    fn take(&mut self, input: Taken<Number>) -> Result<(), NodeError> {
        self.0 += input.body.0;
        Ok(())
    }
}

const GRAPH: &str = "
version: 1
graph: adding
nodes:
  numbers: { kind: count, config: { to: 5000 } }
  sum: { kind: sum, from: numbers }
paths: [{ from: numbers, to: sum, deadline: 10s }]
";

fn plan() -> Plan {
    let registry = Registry::new().source::<Count>("count").sink::<Sum>("sum");
    let options = Options { telemetry: Some(Telemetry::Full), ..Options::default() };
    Plan::with_options(Spec::from_text(GRAPH, "adding.yaml").unwrap(), &registry, &options).unwrap()
}

fn run() -> Report {
    plan().wire().unwrap().start().unwrap().wait()
}

#[test]
fn a_plan_is_printed() {
    let text = show_plan(&plan());
    for line in [
        "graph `adding`: 2 nodes, 1 edge, 1 thread\n",
        "numbers  count  source  light\n",
        "sum      sum    sink    light\n",
        "numbers/number  sum/in  a plain value        64  block\n",
        "path: numbers -> sum, deadline 10.0 s\n",
        "numbers: counts in steps of one\n",
    ] {
        assert!(text.contains(line), "{line:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_report_is_printed_judged_and_dumped() {
    let report = run();
    let text = show_report(&report, Detail::Usual);
    for part in
        ["5000 messages from 1 source, 0 lost\n", "sum: sum 12502500\n", "accounting: balanced on 1 edge and 2 nodes\n"]
    {
        assert!(text.contains(part), "{part:?} in:\n{text}");
    }
    let gates = ["sum != 12502500", "lost > 0", "max(e2e) > 10s", "max(numbers -> sum) < 1ns"];
    let gates = gates.map(|gate| gate.parse::<Gate>().unwrap());
    let verdicts = gates.each_ref().map(|gate| gate.judge(&report));
    assert!(verdicts.iter().all(|verdict| !verdict.tripped), "{verdicts:?}");
    let summary = Summary::new(&report, &verdicts);
    assert_eq!((summary.exit_code, summary.paths[0].count, summary.paths[0].late), (0, 5000, Some(0)));
    let run = RunInfo::new(&report, &GraphFile { path: "adding.yaml".into(), hash: None }, ["embedded".into()]);
    let folder = std::env::temp_dir().join(format!("limen-embedding-{}", std::process::id()));
    let written = Dump { report: &report, summary: &summary, run: &run, log: None }.write(&folder).unwrap();
    assert!(written.contains(&folder.join("adding.hlog")) && written.contains(&folder.join("numbers--sum.e2e.hgrm")));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_gate_with_an_unknown_node_fails_before_the_run() {
    let plan = plan();
    assert!("p99(numbers->sum) > 1s".parse::<Gate>().unwrap().check(&plan).is_ok());
    let error = "p99(number.compute) > 1s".parse::<Gate>().unwrap().check(&plan).unwrap_err();
    assert_eq!(error.to_string(), "the graph has no node `number`; the nodes are: numbers, sum");
}

/// What a builder makes is refused as in a graph file.
#[test]
fn a_builder_gives_inputs_constant_values() {
    let problems = |config: serde_json::Value, kind: &str| {
        let node = NodeBuilder::new(kind).config(config).input("image", "noise").constant("rate", 16000);
        let noise = serde_json::json!({ "pattern": "noise", "shape": [2], "dtype": "f32", "count": 1 });
        let graph = GraphBuilder::new("voice")
            .node("noise", NodeBuilder::new("synthetic").config(noise))
            .node("voice", node)
            .node("end", NodeBuilder::new("null").from("voice"));
        let text = graph.to_yaml();
        let spec = graph.build().unwrap();
        assert!(spec == Spec::from_text(&text, "<graph>").unwrap(), "{text}");
        Plan::new(spec, &limen_run::registry()).map(drop).unwrap_err().to_string()
    };
    let mock = serde_json::json!({ "inputs": { "image": "f32[2]" }, "outputs": { "y": "f32[2]" } });
    let with =
        |constants: serde_json::Value| serde_json::json!({ "backend": "mock", "mock": mock, "constants": constants });
    for (config, kind, expected) in [
        (serde_json::json!({}), "pass", "E0163]: kind `pass` does not support a constant value at `voice/rate`"),
        (
            with(serde_json::json!({ "rate": 8000 })),
            "infer",
            "E0163]: duplicate value of `voice/rate`, also set in `config:",
        ),
        (
            with(serde_json::json!(8000)),
            "infer",
            "E0163]: `constants` must be a map of values by input, got the number 8000",
        ),
        (with(serde_json::json!([])), "infer", "E0163]: `constants` must be a map of values by input, got a list"),
        // The value reaches the model.
        (with(serde_json::Value::Null), "infer", "backend `mock` has no constant inputs"),
        (with(serde_json::json!({})), "infer", "backend `mock` has no constant inputs"),
    ] {
        let found = problems(config, kind);
        assert!(found.contains(expected), "{expected}: {found}");
    }
}
