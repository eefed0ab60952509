//! A stateful model: its output is the sum of all inputs of its stream.

use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Ops, Prepared, Session, Signature, TensorSpec, WorkerHost,
};
use limen::infer::{Batch, Infer, InferPlan, OnEnd, OnSkip};
use limen::message::DType;
use limen::node::{Connected, Metrics, PlanErrors, Planning};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::Cell;
use std::sync::Arc;

/// Sums the numbers of each stream.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct TallyConfig {
    /// How batches are formed.
    #[serde(default)]
    pub batch: Batch,
    /// What happens to the state of a stream when a message is missing.
    #[serde(default)]
    pub on_skip: OnSkip,
    /// What happens to the state of a stream when another begins.
    #[serde(default)]
    pub on_end: OnEnd,
    /// How many inputs it has; it sums the first.
    #[serde(default = "one")]
    pub inputs: usize,
    /// The call that panics, counted from 1.
    pub panic_at: Option<u64>,
    /// The call that fails.
    pub fail_at: Option<u64>,
    /// Whether its worker runs on a thread of the model's own; its calls panic on any other.
    #[serde(default)]
    pub is_hosted: bool,
    /// Other methods that panic.
    #[serde(default)]
    pub panic_in: Vec<PanicPlace>,
}

fn one() -> usize {
    1
}

/// Methods that may panic, besides calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PanicPlace {
    Plan,
    Reset,
    Resume,
    Figures,
    Drop,
}

impl TallyConfig {
    fn panic_if_asked(&self, place: PanicPlace) {
        assert!(!self.panic_in.contains(&place), "it panics in {place:?}");
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        self.config.panic_if_asked(PanicPlace::Drop);
    }
}

pub(crate) struct Tally;

impl Infer for Tally {
    type Config = TallyConfig;
    fn plan(config: TallyConfig, _: &Connected, _: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        config.panic_if_asked(PanicPlace::Plan);
        let port = |name: &str| TensorSpec { name: name.into(), dtype: DType::U64, shape: Vec::new() };
        let inputs = ["in", "with"].into_iter().take(config.inputs).map(port).collect();
        let signature = Signature { inputs, outputs: vec![port("sum")], max_batch: None };
        let TallyConfig { batch, on_skip, on_end, .. } = config;
        let plan = InferPlan::new::<Sums>(Arc::new(Ready { signature, config }), batch);
        Ok(plan.on_skip(on_skip).on_end(on_end))
    }
}

struct Sums;

impl Backend for Sums {
    const NAME: &'static str = "tally";
    type Model = Ready;
    type Prepared = Ready;
    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("1", [DType::U64], Ops::Unlisted))
    }
    fn prepare(ready: Ready) -> Result<Ready, BackendError> {
        Ok(ready)
    }
}

struct Ready {
    signature: Signature,
    config: TallyConfig,
}

impl Prepared for Ready {
    type Session = Adding;
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn is_stateful(&self) -> bool {
        true
    }
    fn session(&self, _: usize) -> Result<Adding, BackendError> {
        Ok(Adding { config: self.config.clone(), calls: 0, done: 0 })
    }
    fn worker_host(&self) -> Option<WorkerHost> {
        self.config.is_hosted.then_some(|body| {
            let run = || {
                IS_HOST.set(true);
                body();
            };
            std::thread::scope(|scope| scope.spawn(run).join().expect("it catches panics"));
        })
    }
}

struct Adding {
    config: TallyConfig,
    calls: u64,
    /// Successful calls of all sessions of the node.
    done: u64,
}

thread_local! {
    /// Whether this thread was started for a worker.
    static IS_HOST: Cell<bool> = const { Cell::new(false) };
}

impl Session for Adding {
    type Lane = u64;
    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [u64],
    ) -> Result<(), BackendError> {
        self.calls += 1;
        assert_eq!(IS_HOST.get(), self.config.is_hosted);
        assert!(self.config.panic_at != Some(self.calls), "call {} panics as configured", self.calls);
        if self.config.fail_at == Some(self.calls) {
            return Err(BackendError::Call(format!("call {} fails as configured", self.calls)));
        }
        assert_eq!((lanes.len(), inputs[0].bytes.len()), (batch, 8 * batch));
        let items = inputs[0].bytes.chunks_exact(8).zip(outputs[0].bytes.chunks_exact_mut(8));
        for ((item, sum), lane) in items.zip(lanes) {
            *lane += item.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            sum.copy_from_slice(&lane.to_le_bytes());
        }
        self.done += 1;
        Ok(())
    }
    fn reset(&mut self) {
        self.config.panic_if_asked(PanicPlace::Reset);
    }
    fn figures(&self, metrics: &mut Metrics) {
        self.config.panic_if_asked(PanicPlace::Figures);
        metrics.set("tallied", self.done as f64);
    }
    fn resume(&mut self, figures: &Metrics) {
        self.config.panic_if_asked(PanicPlace::Resume);
        self.done = figures.iter().find(|(name, _)| *name == "tallied").map_or(0, |(_, value)| value as u64);
    }
}
