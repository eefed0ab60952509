//! Random graphs that do not start, because what reads one of their outputs cannot be built: the
//! error names it, and nothing hangs. K2.

use limen::node::{Building, Connected, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Clock, Message, Plan, RunError, SimulatedClock, Spec, Tensor, Time};
use limen_tests::fuzz::attack;
use limen_tests::random;

/// A sink that cannot be built, by an error or a panic.
struct Unbuildable;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {
    panics: bool,
}

impl Node for Unbuildable {
    type Config = Config;
    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input_any(name)))
    }
    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        assert!(!config.panics, "on purpose");
        Err(NodeError::other("on purpose"))
    }
}

impl Sink for Unbuildable {
    type In = Tensor;
    fn take(&mut self, _: Message<Tensor>) -> Result<(), NodeError> {
        Ok(())
    }
}

/// Promise (files): Whichever node cannot be built, the error names it and every file stays as it
/// was.
#[test]
fn graphs_that_fail_to_start_at_each_node_name_it() {
    let registry = limen_tests::registry().sink::<Unbuildable>("unbuildable");
    let plan = |yaml: &str| Spec::from_text(yaml, "drawn.yaml").and_then(|spec| Plan::new(spec, &registry));
    attack("starts", 20, |seed| {
        let drawn = random::draw(seed, true);
        let whole = plan(&drawn.yaml).map_err(|problems| format!("{problems}\n{}", drawn.yaml))?;
        let outputs = whole.nodes().iter().filter(|node| !node.outputs.is_empty()).map(|node| node.name.clone());
        let mut has_failed = false;
        for (at, from) in outputs.enumerate() {
            let panics = (seed + at as u64).is_multiple_of(2);
            let bad = format!("nodes:\n  bad: {{ kind: unbuildable, config: {{ panics: {panics} }}, from: {from} }}\n");
            let yaml = drawn.yaml.replacen("nodes:\n", &bad, 1);
            // One more consumer may make a graph that is refused.
            let (Ok(threads), Ok(here)) = (plan(&yaml), plan(&yaml)) else { continue };
            let started = threads.wire().and_then(limen::Wired::start).map(drop);
            let clock = Clock::Simulated(SimulatedClock::new(Time(1)));
            let driven = here.wire().and_then(|wired| wired.drive(clock)).map(drop);
            for result in [started, driven] {
                match result {
                    Err(RunError::Build { node, .. }) if node == "bad" => has_failed = true,
                    other => return Err(format!("{other:?}\n{yaml}")),
                }
            }
        }
        Ok(has_failed)
    });
}
