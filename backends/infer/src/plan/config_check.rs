//! The errors of a config that show without reading a file.

use super::backend_name::MOCK;
use super::config::{BatchDim, Guard, InferConfig, Load, MAX_THREADS, RequireMemory};
use super::registered::CPU;
use super::runtimes::Runtimes;
use crate::onnx::Precision;
use limen::infer::{OnEnd, OnSkip};
use limen::message::DType;
use limen::node::PlanErrors;

/// The most shapes of calls that stay compiled.
const MAX_PLANS: usize = 4096;

/// The most elements of an output whose size the config gives.
const MAX_OUTPUT: usize = 1 << 28;

/// The largest batch. Larger ones gain nothing.
const MAX_BATCH: usize = 1 << 16;

impl InferConfig {
    /// Reports every error that shows without reading a file.
    pub(crate) fn check(&self, runtimes: &Runtimes, errors: &mut PlanErrors) {
        self.check_batch(errors);
        self.check_device(runtimes, errors);
        let serving = runtimes.get(&self.backend);
        if self.state.is_empty() && self.on_skip == OnSkip::Reset {
            errors.at("on_skip", "`on_skip: reset` requires `state:`").help("remove `on_skip`");
        }
        if self.state.is_empty() && self.on_end == OnEnd::Keep {
            errors.at("on_end", "`on_end: keep` requires `state:`").help("remove `on_end`");
        }
        if !self.buckets.is_sorted_by(|a, b| a < b) || self.buckets.first() == Some(&0) {
            let message = format!("`buckets` must be ascending numbers of at least 1, got {:?}", self.buckets);
            errors.at("buckets", message).help("write `buckets: [1, 2, 4]`");
        } else if let Some(bucket) = self.buckets.iter().find(|bucket| **bucket > self.batch.max) {
            let max = self.batch.max;
            errors
                .at("buckets", format!("`buckets` must be at most {max} (`batch.max`), got {bucket}"))
                .help(format!("write at most {max}, or raise `batch.max`"));
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            errors
                .at("threads", format!("`threads` must be 1 to {MAX_THREADS}, got {}", self.threads))
                .help(format!("write a number from 1 to {MAX_THREADS}"));
        }
        if let Some(fallback) = &self.fallback {
            if serving.is_none_or(|serving| serving.computes_on == CPU) {
                let backend = &*self.backend;
                let message =
                    format!("`fallback` requires `backend: wgpu` or `backend: cuda`, got `backend: {backend}`");
                errors.at("fallback", message).help("remove `fallback`, or write `backend: wgpu` or `backend: cuda`");
            } else if runtimes.get(fallback).is_none_or(|fallback| fallback.computes_on != CPU) {
                let message = format!("`fallback` must be a backend on the CPU, got `{fallback}`");
                errors.at("fallback", message).help("write `fallback: rten`, `fallback: tract` or `fallback: ort`");
            }
        }
        if self.precision != Precision::F32 {
            let takes = serving.is_some_and(|serving| serving.takes(self.precision));
            let backend = &*self.backend;
            if self.precision == Precision::Tf32 && !takes {
                let message = format!("`precision: tf32` requires `backend: cuda`, got `backend: {backend}`");
                errors.at("precision", message).help("remove `precision`, or write `backend: cuda`");
            } else if !takes {
                let precision = self.precision.name();
                let message = format!(
                    "`precision: {precision}` requires `backend: wgpu` or `backend: cuda`, got `backend: {backend}`"
                );
                errors.at("precision", message).help("remove `precision`, or write `backend: wgpu` or `backend: cuda`");
            }
            if self.verify.as_ref().is_none_or(|verify| verify.case.is_none()) {
                let precision = self.precision.name();
                let message = format!("`precision: {precision}` requires `verify` with a recorded `case`, got none");
                errors
                    .at("precision", message)
                    .help("write `verify: { case: case.npz, atol: 0.01 }`, or remove `precision`");
            }
        }
        self.check_require(errors);
        if self.plans == 0 || self.plans > MAX_PLANS {
            errors
                .at("plans", format!("`plans` must be 1 to {MAX_PLANS}, got {}", self.plans))
                .help(format!("write a number from 1 to {MAX_PLANS}"));
        }
        for (port, max) in &self.max {
            let lengths = max.lengths();
            let elements = lengths.iter().try_fold(1, |n: usize, length| n.checked_mul(*length));
            if elements.is_none_or(|n| n == 0 || n > MAX_OUTPUT) {
                let field = format!("max.{port}");
                errors
                    .at(field, format!("`max.{port}` must have 1 to {MAX_OUTPUT} elements, got {lengths:?}"))
                    .help("write the greatest length of each dim of one item");
            }
        }
        if self.in_flight == 0 || self.in_flight > MAX_THREADS {
            let message = format!("`in_flight` must be 1 to {MAX_THREADS}, got {}", self.in_flight);
            errors.at("in_flight", message).help(format!("write a number from 1 to {MAX_THREADS}"));
        }
        if self.in_flight > 1 && !self.state.is_empty() {
            let message = "`in_flight` excludes `state:`: each call of a stream needs the state of the previous call";
            errors.at("in_flight", message).help("remove `in_flight:` or `state:`");
        }
        if self.in_flight > 1 && self.shadow.is_some() {
            errors
                .at("in_flight", "`in_flight` excludes `shadow:`, which compares calls one at a time")
                .help("remove `in_flight:` or `shadow:`");
        }
        if self.in_flight > 1 && self.fallback.is_some() {
            errors
                .at("in_flight", "`in_flight` excludes `fallback:`, which makes calls one at a time")
                .help("remove `in_flight:` or `fallback:`");
        }
        if let Some(verify) = &self.verify {
            check_tolerance("verify", verify.atol, verify.rtol, errors);
            if verify.case.is_none() && verify.against.is_none() {
                errors
                    .at("verify", "`verify` must have `case` or `against`, got neither")
                    .help("write `verify: { case: case.npz }` or `verify: { against: ort }`");
            }
        }
        if let Some(shadow) = &self.shadow {
            check_tolerance("shadow", shadow.atol, shadow.rtol, errors);
            if shadow.every == 0 {
                errors
                    .at("shadow.every", "`shadow.every` must be at least 1, got 0")
                    .help("write `every: 1` to repeat every call");
            }
        }
        match (&*self.backend, &self.mock, &self.model) {
            (MOCK, None, _) => {
                let help = "write `mock: { inputs: { image: f32[1,8,8] }, outputs: { logits: f32[10] } }`";
                errors.at("mock", "`backend: mock` requires `mock:` with inputs and outputs").help(help);
            }
            (MOCK, Some(mock), _) => mock.check(errors),
            (_, Some(_), _) => {
                let message = format!("`mock` requires `backend: mock`, got `backend: {}`", self.backend);
                errors.at("mock", message).help("write `backend: mock`, or remove `mock:`");
            }
            (_, None, None) => {
                errors
                    .at("model", "`model` is missing")
                    .help("write the model's path, relative to the graph's folder: `model: model.onnx`");
            }
            _ => {}
        }
        if &*self.backend == MOCK {
            self.check_mock(errors);
        }
    }

    fn check_batch(&self, errors: &mut PlanErrors) {
        if self.keep_warm.is_some_and(|after| after.0.is_zero()) {
            errors.at("keep_warm", "`keep_warm` must be more than 0 s, got 0 s").help("write a time such as `50ms`");
        }
        if self.keep_warm.is_some() && (self.in_flight > 1 || self.load == Load::Lazy) {
            errors
                .at("keep_warm", "`keep_warm` requires `load: eager` and one call at a time")
                .help("remove `keep_warm`, or remove `in_flight` and `load`");
        }
        if self.batch.max == 0 {
            errors.at("batch.max", "`batch.max` must be at least 1, got 0").help("write 1 or more");
        }
        if self.batch.max > MAX_BATCH {
            let message = format!("`batch.max` must be 1 to {MAX_BATCH}, got {}", self.batch.max);
            errors.at("batch.max", message).help(format!("write a number from 1 to {MAX_BATCH}"));
        }
        if self.batch.max == 1 && self.batch.within.is_some() {
            errors
                .at("batch.within", "`batch.within` requires a `batch.max` of at least 2, got 1")
                .help("write `max`, such as `batch: { max: 8, within: 2ms }`");
        }
        if self.batch_dim == BatchDim::None && self.batch.max > 1 {
            errors
                .at("batch.max", format!("`batch.max` must be 1 with `batch_dim: none`, got {}", self.batch.max))
                .help("remove `batch:` or `batch_dim:`");
        }
        match self.batch.stride {
            Some(0) => {
                _ = errors.at("batch.stride", "`batch.stride` must be at least 1, got 0").help("write 1 or more")
            }
            Some(stride) if stride > self.batch.max => {
                let max = self.batch.max;
                errors
                    .at("batch.stride", format!("`batch.stride` must be at most {max} (`batch.max`), got {stride}"))
                    .help(format!("write at most {max}, or raise `batch.max`"));
            }
            _ => {}
        }
        let stride = self.batch.stride.filter(|stride| *stride != self.batch.max);
        if let Some(stride) = stride.filter(|_| !self.state.is_empty()) {
            let max = self.batch.max;
            let message = format!("`batch.stride` must be {max} (`batch.max`) with `state:`, got {stride}");
            errors.at("batch.stride", message).help("remove `stride:` or `state:`");
        }
    }

    /// Reports requirements that no backend can meet.
    fn check_require(&self, errors: &mut PlanErrors) {
        let Some(require) = &self.require else { return };
        if require.max_batch > MAX_BATCH {
            let message = format!("`require.max_batch` must be at most {MAX_BATCH}, got {}", require.max_batch);
            errors.at("require.max_batch", message).help(format!("write a number from 1 to {MAX_BATCH}"));
        }
        if require.memory == Some(RequireMemory::Pinned) {
            errors
                .at("require.memory", "expected `device`, found `pinned`")
                .help("write `memory: device`, or remove `memory`: `cuda` copies messages through page-locked memory");
        }
        for dtype in &require.dtypes {
            let instead = match dtype {
                DType::F64 | DType::BF16 => "f32",
                DType::I64 => "i32",
                _ => continue,
            };
            errors
                .at("require.dtypes", format!("no backend reads messages of `{dtype}`"))
                .help(format!("write `{instead}` instead of `{dtype}`"));
        }
    }

    /// Reports fields that a mock cannot use.
    fn check_mock(&self, errors: &mut PlanErrors) {
        if self.model.is_some() {
            errors.at("model", "backend `mock` runs no model").help("remove `model:`, or choose another backend");
        }
        if self.shadow.is_some() {
            errors.at("shadow", "backend `mock` computes no outputs to compare").help("remove `shadow:`");
        }
        if self.verify.as_ref().is_some_and(|verify| verify.against.is_some()) {
            errors
                .at("verify.against", "backend `mock` computes no outputs to compare")
                .help("remove `verify.against`");
        }
        if self.sha256.is_some() {
            errors
                .at("sha256", "backend `mock` reads no model file")
                .help("remove `sha256:`, or choose another backend");
        }
        if self.manifest.is_some() {
            errors.at("manifest", "backend `mock` has no model to compare with").help("remove `manifest:`");
        }
        if !self.state.is_empty() {
            errors.at("state", "backend `mock` has no state").help("remove `state:`");
        }
        if let Some(port) = self.constants.keys().next() {
            errors
                .at(format!("constants.{port}"), "backend `mock` has no constant inputs")
                .help(format!("remove `{port}` from `inputs` and from `mock.inputs`"));
        }
        for (field, is_given) in [("max", !self.max.is_empty()), ("trial", self.trial.is_some())] {
            if is_given {
                let message = "backend `mock` reads its shapes from `mock.outputs`";
                errors.at(field, message).help(format!("remove `{field}:`"));
            }
        }
        if self.guard == Guard::Finite {
            errors.at("guard", "backend `mock` has no numbers to check").help("remove `guard:`");
        }
        if !self.buckets.is_empty() {
            errors.at("buckets", "backend `mock` compiles nothing").help("remove `buckets:`");
        }
        if self.load == Load::Lazy {
            errors.at("load", "backend `mock` loads nothing").help("remove `load:`");
        }
        if self.batch_dim == BatchDim::None {
            errors.at("batch_dim", "backend `mock` has no dims of a model").help("remove `batch_dim:`");
        }
        if self.require.is_some() {
            errors.at("require", "backend `mock` meets every requirement").help("remove `require:`");
        }
    }
}

fn check_tolerance(field: &str, atol: f64, rtol: f64, errors: &mut PlanErrors) {
    for (name, value) in [("atol", atol), ("rtol", rtol)] {
        if !(value >= 0.0 && value.is_finite()) {
            errors
                .at(format!("{field}.{name}"), format!("`{field}.{name}` must be finite and at least 0, got {value}"))
                .help("write a number such as `1e-4`");
        }
    }
}
