//! A custom backend, and a kind of node that runs its models.
//!
//! A backend is three types, `Backend → Prepared → Session`. The engine forms batches, copies each
//! into one dense buffer per input, and calls the session. The backend is fixed when the graph is
//! planned, and the node makes no indirect call. The "model" of this backend is a mean.

use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Ops, Prepared, Session, Signature, TensorSpec,
};
use limen::infer::{Batch, Infer, InferPlan};
use limen::message::{DType, Dim};
use limen::node::{Connected, PlanErrors, Planning};
use limen::{Plan, Spec, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

struct Mean;

impl Backend for Mean {
    const NAME: &'static str = "mean";
    /// The source of a model; here, the number of values it takes.
    type Model = usize;
    type Prepared = PreparedMean;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu(env!("CARGO_PKG_VERSION"), [DType::F32], Ops::Unlisted))
    }

    fn prepare(numbers: usize) -> Result<PreparedMean, BackendError> {
        if numbers == 0 {
            return Err(BackendError::Model("there is no mean of 0 values".into()));
        }
        let side =
            |name: &str, length| TensorSpec { name: name.into(), dtype: DType::F32, shape: vec![Dim::Fixed(length)] };
        let signature = Signature { inputs: vec![side("x", numbers)], outputs: vec![side("mean", 1)], max_batch: None };
        Ok(PreparedMean(signature))
    }
}

/// A checked and loaded model, shared by all nodes that run it.
struct PreparedMean(Signature);

impl Prepared for PreparedMean {
    type Session = MeanSession;
    fn signature(&self) -> &Signature {
        &self.0
    }
    fn session(&self, _: usize) -> Result<MeanSession, BackendError> {
        Ok(MeanSession)
    }
}

/// Runs the model on one thread. A session owns the buffers it needs: a call allocates nothing.
struct MeanSession;

impl Session for MeanSession {
    type Lane = ();

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        let ([input], [output]) = (inputs, outputs) else { return Err(BackendError::call("one input, one output")) };
        let item = input.bytes.len() / batch.max(1);
        for (item, mean) in input.bytes.chunks_exact(item).zip(output.bytes.chunks_exact_mut(4)) {
            let numbers = item.chunks_exact(4).map(|n| f32::from_ne_bytes([n[0], n[1], n[2], n[3]]));
            let sum: f32 = numbers.sum();
            mean.copy_from_slice(&(sum / (item.len() / 4) as f32).to_ne_bytes());
        }
        Ok(())
    }
}

/// Computes the mean of each message, in batches.
#[derive(Deserialize, JsonSchema)]
struct Config {
    /// Values of a message.
    numbers: usize,
    /// How batches are formed: `{ max: 8, within: 2ms }`.
    #[serde(default)]
    batch: Batch,
}

/// The kind of node: plans which backend runs which model.
struct Means;

impl Infer for Means {
    type Config = Config;
    fn plan(config: Config, _: &Connected, _: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        match Mean::prepare(config.numbers) {
            Ok(prepared) => Ok(InferPlan::new::<Mean>(Arc::new(prepared), config.batch)),
            Err(error) => {
                let mut errors = PlanErrors::default();
                errors.at("numbers", error.to_string()).help("write the number of values of a message");
                Err(errors)
            }
        }
    }
}

const GRAPH: &str = "
version: 1
graph: means
nodes:
  x: { kind: inlet, config: { spec: \"f32[4]\" } }
  mean: { kind: means, config: { numbers: 4, batch: { max: 8, within: 1ms } }, from: x }
  means: { kind: outlet, from: mean }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = limen_run::registry().infer::<Means>("means");
    let mut graph = Plan::new(Spec::from_text(GRAPH, "means.yaml")?, &registry)?.wire()?;
    let mut x = graph.inlet::<Tensor>("x")?;
    let mut means = graph.outlet::<Tensor>("means")?;
    let running = graph.start()?;
    for n in 0..100 {
        let mut tensor = x.loan(&x.header())?;
        tensor.as_mut_slice::<f32>()?.copy_from_slice(&[n as f32, n as f32, 0.0, 2.0]);
        x.send(tensor)?;
        let mean = means.recv_timeout(Duration::from_secs(10))?;
        assert_eq!(mean.body.as_slice::<f32>()?, [(n as f32 + 1.0) / 2.0]);
    }
    x.close();
    let report = running.wait();
    print!("{}", limen_run::show_report(&report, limen_run::Detail::Usual));
    assert!(report.bugs.is_empty());
    Ok(())
}
