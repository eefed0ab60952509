//! A runtime in a crate of its own has what those of limen have: verification, batches, `shadow`,
//! `fallback` and `auto`.

use example_runtime::{Calls, Example, register};
use limen::backend::{BackendError, BatchRef, Capabilities, SessionMetadata};
use limen::message::Header;
use limen::{Plan, Problems, Registry, Spec, Tensor, Time};
use limen_infer::onnx::{Artifact, Call, Runner, Runtime, Take};
use limen_infer::{BackendOptions, RegisterRuntime};
use std::time::Duration;

/// A runtime on a device that is lost in each call but those of planning.
struct Lost(Example);
struct LostCalls(Calls, usize);

impl Runtime for Lost {
    const NAME: &'static str = "lost";
    const COMPILES: bool = false;
    const DEVICE: &'static str = "npu";
    type Shared = ();
    type Runner = LostCalls;
    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        Example::probe(options)
    }
    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        Example::load(artifact, options).map(Lost)
    }
    fn share(&self, _: &Call) -> Result<(), BackendError> {
        Ok(())
    }
    fn runner(&self, (): &(), call: &Call) -> Result<LostCalls, BackendError> {
        Ok(LostCalls(self.0.runner(&(), call)?, 0))
    }
}

impl Runner for LostCalls {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        self.1 += 1;
        match inputs[0].bytes.iter().any(|byte| *byte != 0) && self.1 > 1 {
            true => Err(BackendError::DeviceLost("unplugged".into())),
            false => self.0.run(batch, inputs, take),
        }
    }
    fn metadata(&self) -> SessionMetadata {
        self.0.metadata()
    }
}

fn registry() -> Registry {
    Registry::new().with(limen_infer::register).with(register).runtime::<Lost>()
}

fn plan(config: &str) -> Result<Plan, Problems> {
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: 'f32[1,8,8]', capacity: 8 }} }}\n  \
         m: {{ kind: infer, config: {{ model: digits.onnx, {config} }}, from: a }}\n  \
         z: {{ kind: outlet, config: {{ hold: 8 }}, from: m }}\n"
    );
    let mut spec = Spec::from_text(&text, "graph.yaml").unwrap();
    spec.folders.graph = concat!(env!("CARGO_MANIFEST_DIR"), "/../../graphs/digits").into();
    Plan::new(spec, &registry().inlet::<Tensor>("inlet").outlet::<Tensor>("outlet"))
}

#[test]
fn a_runtime_of_a_crate_of_its_own_has_what_the_stock_ones_have() {
    for (config, note, metric) in [
        ("backend: example, verify: { case: verify.npz }", "verified with the 8 items of verify.npz", None),
        ("backend: example, batch: { max: 4 }, verify: { against: rten }", "a batch of 4 takes", None),
        ("shadow: { backend: example, every: 1 }", "`example` repeats every call", Some("m.shadow_compared")),
        ("backend: lost, fallback: example", "`example` makes the calls", Some("m.fallback_calls")),
        // rten lists its operators, and lacks this one.
        ("backend: auto, require: { ops: [Frobnicate] }", "`example` runs the model", None),
    ] {
        let plan = plan(config).unwrap_or_else(|problems| panic!("{config}: {problems}"));
        let notes = plan.nodes().iter().flat_map(|node| &node.notes).cloned().collect::<Vec<_>>().join("\n");
        assert!(notes.contains(note), "{config}: {notes}");
        let mut graph = plan.wire().unwrap();
        let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
        let running = graph.start().unwrap();
        for seq in 0..4 {
            let mut image = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
            image.as_mut_slice::<f32>().unwrap().fill(0.5);
            inlet.send(image).unwrap();
            let scores = outlet.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(scores.body.as_slice::<f32>().unwrap().len(), 10, "{config}");
        }
        inlet.close();
        let report = running.wait();
        if let Some(metric) = metric {
            assert!(report.metric(metric).is_some_and(|n| n >= 3.0), "{config}: {metric}");
        }
    }
    let problems = plan("backend: exampel").unwrap_err().to_string();
    for part in ["E0104", "`cuda`, `auto`, `mock`, `example`, `lost`", "did you mean `example`?"] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    let registry = registry();
    let schema = registry.kinds().find(|kind| kind.name == "infer").unwrap().schema().to_value().to_string();
    assert!(schema.contains("\"const\":\"example\""), "{schema}");
}
