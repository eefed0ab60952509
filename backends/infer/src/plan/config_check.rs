//! The errors of a config that show without reading a file.

use super::backend_name::MOCK;
use super::config::{BatchDim, Config, Guard, Load, MAX_THREADS};
use super::registered::CPU;
use super::runtimes::Runtimes;
use crate::onnx::Precision;
use limen::infer::{OnEnd, OnSkip};
use limen::node::PlanErrors;

/// The most shapes of calls that stay compiled.
const MAX_PLANS: usize = 4096;

/// The most elements of an output whose size the config gives.
const MAX_OUTPUT: usize = 1 << 28;

/// The largest batch. Larger ones gain nothing.
const MAX_BATCH: usize = 1 << 16;

impl Config {
    /// Reports every error that shows without reading a file.
    pub(crate) fn check(&self, runtimes: &Runtimes, errors: &mut PlanErrors) {
        self.check_batch(errors);
        self.check_device(runtimes, errors);
        let serving = runtimes.get(&self.backend);
        if self.state.is_empty() && self.on_skip == OnSkip::Reset {
            errors.at("on_skip", "is for models with `state:`").help("leave it out");
        }
        if self.state.is_empty() && self.on_end == OnEnd::Keep {
            errors.at("on_end", "is for models with `state:`").help("leave it out");
        }
        if !self.buckets.is_sorted_by(|a, b| a < b) || self.buckets.first() == Some(&0) {
            errors.at("buckets", "must be ascending numbers from 1 up").help("write, for example, `[1, 2, 4]`");
        } else if let Some(bucket) = self.buckets.iter().find(|bucket| **bucket > self.batch.max) {
            let max = self.batch.max;
            errors
                .at("buckets", format!("{bucket} is more than the {max} messages of a batch"))
                .help(format!("write at most {max}, or raise batch.max"));
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            errors.at("threads", format!("{} threads inside a call; 1 to {MAX_THREADS} are possible", self.threads));
        }
        if let Some(fallback) = &self.fallback {
            if serving.is_none_or(|serving| serving.computes_on == CPU) {
                let message = "is for the backends `wgpu` and `cuda`, whose device may be lost";
                errors.at("fallback", message).help("leave it out, or write `backend: wgpu` or `backend: cuda`");
            } else if runtimes.get(fallback).is_none_or(|fallback| fallback.computes_on != CPU) {
                let message = "a fallback computes on the CPU, and not on the device that is lost";
                errors.at("fallback", message).help("write `rten`, `tract` or `ort`");
            }
        }
        if self.precision != Precision::F32 {
            let takes = serving.is_some_and(|serving| serving.takes(self.precision));
            if self.precision == Precision::Tf32 && !takes {
                let message = "products in TF32 are for the backend `cuda`";
                errors.at("precision", message).help("leave it out, or write `backend: cuda`");
            } else if !takes {
                let precision = self.precision.name();
                let message = format!(
                    "`{precision}` is for the backends `wgpu` and `cuda`; the others compute as the model says"
                );
                errors.at("precision", message).help("leave it out, or write `backend: wgpu` or `backend: cuda`");
            }
            if self.verify.as_ref().is_none_or(|verify| verify.case.is_none()) {
                errors
                    .at(
                        "precision",
                        "with 2 or 3 decimal digits a model may give other answers; it is not taken unseen",
                    )
                    .help("write `verify: { case: case.npz, atol: 0.01 }`, or leave it out");
            }
        }
        if self.plans == 0 || self.plans > MAX_PLANS {
            errors.at("plans", format!("{} shapes; 1 to {MAX_PLANS} are possible", self.plans));
        }
        for (port, max) in &self.max {
            let lengths = max.lengths();
            let elements = lengths.iter().try_fold(1, |n: usize, length| n.checked_mul(*length));
            if elements.is_none_or(|n| n == 0 || n > MAX_OUTPUT) {
                let field = format!("max.{port}");
                errors
                    .at(
                        field,
                        format!("{lengths:?} is not the size of an output, which has 1 to {MAX_OUTPUT} elements"),
                    )
                    .help("write the greatest length of each dim of one item");
            }
        }
        if self.in_flight == 0 || self.in_flight > MAX_THREADS {
            let message = format!("{} calls at once; 1 to {MAX_THREADS} are possible", self.in_flight);
            errors.at("in_flight", message);
        }
        if self.in_flight > 1 && !self.state.is_empty() {
            let message = "with `state:`, each call of a stream needs the state from the call before it";
            errors.at("in_flight", message).help("leave `in_flight:` out, or `state:`");
        }
        if self.in_flight > 1 && self.shadow.is_some() {
            errors
                .at("in_flight", "`shadow:` compares calls one at a time")
                .help("leave `in_flight:` out, or `shadow:`");
        }
        if self.in_flight > 1 && self.fallback.is_some() {
            errors
                .at("in_flight", "`fallback:` makes calls one at a time")
                .help("leave `in_flight:` out, or `fallback:`");
        }
        if let Some(verify) = &self.verify {
            check_tolerance("verify", verify.atol, verify.rtol, errors);
            if verify.case.is_none() && verify.against.is_none() {
                errors
                    .at("verify", "has neither a recorded case nor another backend")
                    .help("write `case:` or `against:`");
            }
        }
        if let Some(shadow) = &self.shadow {
            check_tolerance("shadow", shadow.atol, shadow.rtol, errors);
            if shadow.every == 0 {
                errors.at("shadow.every", "0 is not an interval").help("write 1 to repeat every call");
            }
        }
        match (&*self.backend, &self.mock, &self.model) {
            (MOCK, None, _) => {
                let help = "write `mock: { inputs: { image: f32[1,8,8] }, outputs: { logits: f32[10] } }`";
                errors.at("mock", "backend `mock` needs its inputs and outputs").help(help);
            }
            (MOCK, Some(mock), _) => mock.check(errors),
            (_, Some(_), _) => {
                errors.at("mock", "is for the backend `mock` only").help("write `backend: mock`, or leave `mock:` out");
            }
            (_, None, None) => {
                errors.at("model", "is missing").help("write the path of the model, relative to the graph's folder");
            }
            _ => {}
        }
        if &*self.backend == MOCK {
            self.check_mock(errors);
        }
    }

    fn check_batch(&self, errors: &mut PlanErrors) {
        if self.keep_warm.is_some_and(|after| after.0.is_zero()) {
            errors.at("keep_warm", "after 0 s it would do nothing else").help("write a time such as `50ms`");
        }
        if self.keep_warm.is_some() && (self.in_flight > 1 || self.load == Load::Lazy) {
            errors
                .at("keep_warm", "needs `load: eager` and one call at a time")
                .help("leave it out, or `in_flight` and `load`");
        }
        if self.batch.max == 0 {
            errors.at("batch.max", "a batch has at least one message");
        }
        if self.batch.max > MAX_BATCH {
            let message = format!("{} messages in one call; at most {MAX_BATCH} are possible", self.batch.max);
            errors.at("batch.max", message).help(format!("write a number from 1 to {MAX_BATCH}"));
        }
        if self.batch.max == 1 && self.batch.within.is_some() {
            errors
                .at("batch.within", "a batch of one message does not wait for others")
                .help("write `max:` too, the most messages in one call");
        }
        if self.batch_dim == BatchDim::None && self.batch.max > 1 {
            errors
                .at("batch.max", "with `batch_dim: none` a call has one message")
                .help("leave `batch:` out, or `batch_dim:`");
        }
        match self.batch.stride {
            Some(0) => _ = errors.at("batch.stride", "with 0, no message would ever leave the batch"),
            Some(stride) if stride > self.batch.max => {
                let max = self.batch.max;
                errors
                    .at("batch.stride", format!("{stride} is more than the {max} messages of a batch"))
                    .help(format!("write at most {max}, or raise batch.max"));
            }
            _ => {}
        }
        if !self.state.is_empty() && self.batch.stride.is_some_and(|stride| stride != self.batch.max) {
            let message = "messages that stay for the next batch would update their stream's state twice";
            errors.at("batch.stride", message).help("leave `stride:` out, or `state:`");
        }
    }

    /// Reports fields that a mock cannot use.
    fn check_mock(&self, errors: &mut PlanErrors) {
        if self.model.is_some() {
            errors.at("model", "backend `mock` runs no model").help("leave `model:` out, or choose another backend");
        }
        if self.shadow.is_some() {
            errors.at("shadow", "backend `mock` has no outputs worth comparing").help("leave `shadow:` out");
        }
        if self.verify.as_ref().is_some_and(|verify| verify.against.is_some()) {
            errors.at("verify.against", "backend `mock` has no outputs worth comparing").help("leave it out");
        }
        if self.sha256.is_some() {
            errors.at("sha256", "is for the file of a model").help("leave `sha256:` out, or choose another backend");
        }
        if self.manifest.is_some() {
            errors.at("manifest", "backend `mock` has no model to compare with").help("leave `manifest:` out");
        }
        if !self.state.is_empty() {
            errors.at("state", "backend `mock` has no state").help("leave `state:` out");
        }
        if let Some(port) = self.constants.keys().next() {
            errors
                .at(format!("constants.{port}"), "backend `mock` has no constant inputs")
                .help("leave the input out of `inputs` and of `mock.inputs`");
        }
        for (field, is_given) in [("max", !self.max.is_empty()), ("trial", self.trial.is_some())] {
            if is_given {
                errors.at(field, "backend `mock` has the shapes of `mock.outputs`").help("leave it out");
            }
        }
        if self.guard == Guard::Finite {
            errors.at("guard", "backend `mock` has no numbers to check").help("leave `guard:` out");
        }
        if !self.buckets.is_empty() {
            errors.at("buckets", "backend `mock` compiles nothing").help("leave `buckets:` out");
        }
        if self.load == Load::Lazy {
            errors.at("load", "backend `mock` loads nothing").help("leave `load:` out");
        }
        if self.batch_dim == BatchDim::None {
            errors.at("batch_dim", "backend `mock` has no dims of a model").help("leave `batch_dim:` out");
        }
        if self.require.is_some() {
            errors.at("require", "backend `mock` meets every requirement").help("leave `require:` out");
        }
    }
}

fn check_tolerance(field: &str, atol: f64, rtol: f64, errors: &mut PlanErrors) {
    for (name, value) in [("atol", atol), ("rtol", rtol)] {
        if !(value >= 0.0 && value.is_finite()) {
            errors.at(
                format!("{field}.{name}"),
                format!("{value} is not a tolerance, which is a finite number from 0 up"),
            );
        }
    }
}
