//! The config of a node that runs a model.

use super::backend_name::{AUTO, BackendName};
use super::constant::ConstantConfig;
use super::provider::OrtDevice;
use super::runtimes::Runtimes;
use crate::backend::MockConfig;
use crate::base::refuse_remote;
use crate::onnx::Precision;
use crate::steps::{TRIAL, VERIFY_CASE};
use crate::verify::{Case, CaseError, Tolerance};
use limen::backend::Requirements;
use limen::files::FileError;
use limen::infer::{Batch, OnEnd, OnSkip};
use limen::message::{DType, Memory};
use limen::node::{PlanErrors, Planning};
use limen::unit::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// More threads than this inside one call are refused as a mistake.
pub(super) const MAX_THREADS: usize = 256;

/// Runs a model on the messages of its inputs, one at a time or in batches.
///
/// The ports are the model's inputs and outputs by name, in lower case and with `_` for each
/// character that a port name cannot have (`input.1` is `input_1`). With a single input, `from:`
/// needs no name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct InferConfig {
    /// The model's file, relative to the graph's folder. Every backend but `mock` needs one.
    pub model: Option<String>,
    /// The expected SHA-256 of the model's file, in hexadecimal digits.
    pub sha256: Option<String>,
    /// A file with the output of `limen-run inspect MODEL --json`: the model's ports, weights and
    /// checksum. A model that differs from it is refused.
    pub manifest: Option<String>,
    /// The backend that runs the model: `rten` by default; `auto` takes the first of `ort`, `rten`
    /// and `tract` that can.
    #[serde(default = "rten")]
    #[schemars(with = "BackendName")]
    pub backend: String,
    /// The execution provider of `backend: ort`: `cpu`; `webgpu`, a GPU through ONNX Runtime's
    /// plugin for WebGPU; or `cuda` or `tensorrt`, a GPU of NVIDIA's through the library of ONNX
    /// Runtime's package for GPUs. `auto` with one of these is `ort`.
    #[serde(default)]
    pub provider: OrtDevice,
    /// Lets ONNX Runtime run operators on the CPU that its `provider:` does not run. Without it
    /// such a model is refused.
    #[serde(default)]
    pub cpu_fallback: bool,
    /// Options of the `provider:`. Of `webgpu`: `preferredLayout` (`NCHW`, or `NHWC`, which needs
    /// `verify:` because the plugin computes some convolutions wrong with it), `powerPreference`
    /// (`high-performance`, `low-power`), `enableInt64` (`'0'`, `'1'`), `storageBufferCacheMode`
    /// (`disabled`, `lazyRelease`, `simple`, `bucket`), `validationMode` (`disabled`, `wgpuOnly`,
    /// `basic`, `full`). Of `cuda`: `cudnn_conv_algo_search` (`EXHAUSTIVE`, `HEURISTIC`,
    /// `DEFAULT`), `cudnn_conv_use_max_workspace`, `prefer_nhwc` and, with `verify:`, `use_tf32`
    /// (`'0'`, `'1'`). Of `tensorrt`, which needs `verify:`: `trt_fp16_enable`, `trt_bf16_enable`,
    /// `trt_build_heuristics_enable` and `trt_builder_optimization_level` (`'0'` to `'5'`).
    #[serde(default)]
    pub provider_options: BTreeMap<String, String>,
    /// Capabilities that the backend must have beyond those the model needs.
    pub require: Option<Require>,
    /// How messages are batched: `{ max: 8, within: 2ms }`. One at a time by default. With
    /// `stride: 2` the batch is a window that slides by two messages: after a full batch the two
    /// oldest leave, and the others are part of the next one.
    #[serde(default)]
    pub batch: Batch,
    /// The dim of the model's inputs that counts the messages of a call: `first` by default, unless
    /// that has a fixed length other than 1. `none` makes the first dim part of each message, as
    /// for the points of a cloud or the nodes of a graph. A call then has one message.
    #[serde(default)]
    pub batch_dim: BatchDim,
    /// Batch sizes, ascending, to the next of which a batch is padded: `[1, 4]`; the largest batch
    /// is one of them, too. By default the powers of two for a backend that compiles a model for
    /// its batch, as `tract` does, the largest alone for `ort` with `provider: cuda` or `tensorrt`,
    /// where a call of another size than the last is slow, and no padding for the others.
    #[serde(default)]
    pub buckets: Vec<usize>,
    /// `eager` prepares the model before the graph starts; `lazy` in the first call, which then
    /// takes longer.
    #[serde(default)]
    pub load: Load,
    /// Threads inside one call. More than one pays off only for large models; small ones get
    /// slower.
    #[serde(default = "one")]
    pub threads: usize,
    /// How many calls may be in flight at once, each on its own thread, which may run on any core
    /// of the run. Outputs keep the order of the inputs, and under `on_error: skip` a failed call
    /// fails only its own messages.
    #[serde(default = "one")]
    pub in_flight: usize,
    /// Outputs that are inputs of the next call of the same stream, as in a recurrent model. They
    /// are not ports. A stream is the messages of one source; each stream has its own state, zeros
    /// at first, and a batch holds at most one message of each stream.
    #[serde(default)]
    pub state: Vec<StateConfig>,
    /// Inputs with the same value in every call, by port. They are not ports. A graph file has them
    /// among the node's `inputs`: `{ rate: { value: 16000 } }`.
    #[serde(default)]
    #[schemars(skip)]
    pub constants: BTreeMap<String, ConstantConfig>,
    /// The greatest lengths of the dims of an output, by port: `{ boxes: [100, 6] }`, or
    /// `{ boxes: 100 }` for the one dim that the model does not declare. For outputs with a length
    /// that the values of a message decide; each message then has its own. By default what its
    /// operators give at most, if that is known. A call that gives more fails.
    #[serde(default)]
    pub max: BTreeMap<String, MaxConfig>,
    /// What the model is run on before the graph starts: an `.npz` whose arrays are some of its
    /// inputs, or `first_message`, which skips that run. By default the first item of the recorded
    /// case; without one zeros and, if the model fails on them, ones.
    pub trial: Option<String>,
    /// How many shapes of calls stay compiled, for a backend that compiles for them, as `tract`
    /// does; 16 by default.
    #[serde(default = "sixteen")]
    pub plans: usize,
    /// The state of a stream after a missing message: `keep`, or `reset`.
    #[serde(default)]
    pub on_skip: OnSkip,
    /// The state when a stream ends and another begins, such as when a file is repeated: `reset`,
    /// or `keep`.
    #[serde(default)]
    pub on_end: OnEnd,
    /// `false` copies the messages of a model on a GPU within each call. By default they stay on
    /// the device where those of a neighbour do, which needs fixed shapes and elements of f32, i32
    /// or, as inputs, u8.
    #[serde(default = "yes")]
    pub resident: bool,
    /// `f16` keeps weights and results between operators in 16 bits, on `cuda`, and on `wgpu` where
    /// the adapter has them: half the memory, and 3 decimal digits instead of 7. `bf16`, on `cuda`,
    /// has 2, and the range of 32 bits. `tf32`, on `cuda` with cuBLASLt and a GPU of 8.0 or later,
    /// keeps 32 bits, and computes products and convolutions with 3 digits of their factors. These
    /// need a recorded case. `f32` by default.
    #[serde(default)]
    pub precision: Precision,
    /// Makes a call on zeros after so long without one: `50ms`. A device that saves power
    /// meanwhile, or caches that others fill, would make the next call slower. The metric
    /// `warm_calls` counts them; a message that arrives during one waits for its end.
    pub keep_warm: Option<Span>,
    /// Accepts `f32` for `f64` inputs and outputs of the model, and for the `f64` that `rten`,
    /// `wgpu` and `cuda` compute in between: 7 decimal digits instead of 15. A tree, for example,
    /// may take the other branch at a number close to a threshold. Without this key such a model is
    /// refused.
    #[serde(default)]
    pub allow_narrowing: bool,
    /// `finite` fails a call whose inputs or outputs hold an infinity or NaN.
    #[serde(default)]
    pub guard: Guard,
    /// Recorded inputs and outputs, run three times while planning: a graph whose model computes
    /// other outputs does not start.
    pub verify: Option<VerifyConfig>,
    /// A second backend that repeats some of the calls while the graph runs; the report says how
    /// far its outputs differ.
    pub shadow: Option<ShadowConfig>,
    /// The backend that makes a call again that failed because the device of `wgpu` or `cuda` is
    /// lost; the metric `fallback_calls` counts them. The next call opens the device of `wgpu`
    /// again, at most three times in 60 s. Messages are then copied within the calls. By default
    /// such a call fails.
    #[schemars(with = "Option<BackendName>")]
    pub fallback: Option<String>,
    /// The inputs, outputs, latency and failures of the backend `mock`.
    pub mock: Option<MockConfig>,
}

/// Capabilities that a backend must have. `limen-run GRAPH --plan` says of each backend in question
/// whether it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Require {
    /// The device it computes on: `cpu`; `wgpu` or `cuda`, by the backend of that name; or any
    /// `gpu`, also by `ort` with another `provider:` than `cpu`. The name of such a provider is
    /// one, too.
    pub device: Option<String>,
    /// Element types that it takes.
    #[serde(default)]
    pub dtypes: Vec<DType>,
    /// Items in one call.
    #[serde(default)]
    pub max_batch: usize,
    /// Dims of one item.
    #[serde(default)]
    pub max_rank: usize,
    /// Operators that it has, with their domain unless that is ONNX's default: `Conv`,
    /// `com.microsoft.Gelu`.
    #[serde(default)]
    pub ops: Vec<String>,
    /// Memory that its inputs and outputs can be in, besides ordinary memory.
    pub memory: Option<RequireMemory>,
    /// Asynchronous calls: they finish after they return.
    #[serde(default)]
    pub streams: bool,
    /// Graph capture: calls that are recorded once and replayed.
    #[serde(default)]
    pub graph_capture: bool,
}

/// The memory of a backend's inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequireMemory {
    /// Page-locked memory that a device can read and write.
    Pinned,
    /// The memory of the first device.
    Device,
}

impl Require {
    pub(crate) fn requirements(self) -> Requirements {
        let memory = self.memory.map(|memory| match memory {
            RequireMemory::Pinned => Memory::Pinned,
            RequireMemory::Device => Memory::Device(0),
        });
        Requirements {
            device: self.device,
            dtypes: self.dtypes.into_iter().map(|dtype| (dtype, "required".into())).collect(),
            max_batch: self.max_batch,
            max_rank: self.max_rank,
            threads: 0,
            memory: memory.into_iter().collect(),
            ops: self.ops.into_iter().map(|op| (op, String::new())).collect(),
            streams: self.streams,
            graph_capture: self.graph_capture,
        }
    }
}

/// The dim of a model's inputs that counts the messages of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchDim {
    /// The first one, if it is symbolic or 1.
    #[default]
    First,
    /// No dim: messages have all dims of the model.
    None,
}

/// When a model is prepared for calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Before the graph starts.
    #[default]
    Eager,
    /// In its first call.
    Lazy,
}

/// The check of the inputs and outputs of every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Nothing.
    #[default]
    None,
    /// Infinities and NaN are errors.
    Finite,
}

/// An output that is an input of the next call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateConfig {
    /// The model's input.
    pub input: String,
    /// The model's output.
    pub output: String,
    /// The index of its batch dim, from 0; by default the dim with the same name as the batch dim
    /// of the other inputs, or its only symbolic dim.
    pub batch_dim: Option<usize>,
}

/// The greatest lengths of the dims of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a list of numbers: `{ boxes: 100 }`, `{ boxes: [100, 6] }`")]
pub enum MaxConfig {
    /// Of the one dim that the model does not declare.
    One(usize),
    /// Of each dim of an item.
    All(Vec<usize>),
}

impl MaxConfig {
    pub(crate) fn lengths(&self) -> &[usize] {
        match self {
            MaxConfig::One(length) => std::slice::from_ref(length),
            MaxConfig::All(lengths) => lengths,
        }
    }
}

/// What was recorded of a model: a case with its tolerance, and items for the run before the graph
/// starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedModel {
    pub(crate) case: Option<(Case, Tolerance)>,
    pub(crate) trial: Option<Case>,
}

impl RecordedModel {
    /// Returns the checksum of the arrays of each, by the config field that names it.
    pub(crate) fn sums(&self) -> BTreeMap<String, String> {
        let case = self.case.as_ref().map(|(case, _)| (VERIFY_CASE, case));
        let trial = self.trial.as_ref().map(|trial| (TRIAL, trial));
        case.into_iter().chain(trial).map(|(field, case)| (field.to_string(), case.digest())).collect()
    }

    /// Returns the case on whose first item the model is tried.
    pub(crate) fn sample(&self) -> Option<&Case> {
        self.trial.as_ref().or(self.case.as_ref().map(|(case, _)| case))
    }
}

/// A second backend beside the one that serves. Its outputs are compared and dropped; its time
/// counts as the node's.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ShadowConfig {
    /// The second backend.
    #[schemars(with = "BackendName")]
    pub backend: String,
    /// One call in this many is repeated.
    #[serde(default = "hundred")]
    pub every: u64,
    /// Absolute tolerance.
    #[serde(default = "default_atol")]
    pub atol: f64,
    /// Relative tolerance, as a part of the second backend's number; it adds to the absolute one.
    #[serde(default = "default_rtol")]
    pub rtol: f64,
}

fn hundred() -> u64 {
    100
}

/// A recorded case or another backend to compare the model with, and the tolerance.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct VerifyConfig {
    /// An `.npz` whose arrays are the model's inputs and outputs, of any number of items.
    pub case: Option<String>,
    /// Another backend, which runs the same inputs while planning.
    #[schemars(with = "Option<BackendName>")]
    pub against: Option<String>,
    /// Absolute tolerance.
    #[serde(default = "default_atol")]
    pub atol: f64,
    /// Relative tolerance, as a part of the recorded number; it adds to the absolute one.
    #[serde(default = "default_rtol")]
    pub rtol: f64,
}

fn rten() -> String {
    "rten".into()
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

fn sixteen() -> usize {
    16
}

/// Runtimes sum in different orders. On the models tried, rten and ONNX Runtime agreed to 1.5e-6 of
/// the largest output, so this is far above rounding noise and far below the error of a wrong
/// operator.
fn default_atol() -> f64 {
    1e-4
}

fn default_rtol() -> f64 {
    1e-3
}

impl InferConfig {
    /// Whether the node may use a backend, to run its model or to compare it.
    pub(crate) fn asks(&self, backend: &str) -> bool {
        self.names(backend) || self.names(AUTO)
    }

    /// Whether the node has a backend of this name, to run its model or to compare it.
    pub(crate) fn names(&self, backend: &str) -> bool {
        self.serving() == backend || self.compared().any(|(_, other)| other == backend)
    }

    /// Returns the backends beside the one that serves, with their keys.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let against = self.verify.as_ref().and_then(|verify| verify.against.as_deref());
        let shadow = self.shadow.as_ref().map(|shadow| &*shadow.backend);
        let all = [("verify.against", against), ("shadow.backend", shadow), ("fallback", self.fallback.as_deref())];
        all.into_iter().filter_map(|(key, name)| Some((key, name?)))
    }

    /// Checks that a registry has the backends that the node names.
    pub(crate) fn check_names(&self, runtimes: &Runtimes) -> Result<(), PlanErrors> {
        let (mut errors, names) = (PlanErrors::default(), runtimes.names());
        for (key, name) in std::iter::once(("backend", &*self.backend)).chain(self.compared()) {
            if !names.contains(&name) {
                errors.not_one_of(key, name, &names);
            }
        }
        errors.into_result(())
    }

    /// Returns the options that change how long a call takes, apart from threads and batch.
    pub(crate) fn call_options(&self) -> String {
        let InferConfig { buckets, state, constants, max, guard, .. } = self;
        let mut options =
            json!({ "buckets": buckets, "state": state, "constants": constants, "max": max, "guard": guard });
        if self.precision != Precision::F32 {
            options["precision"] = json!(self.precision);
        }
        if self.batch_dim != BatchDim::First {
            options["batch_dim"] = json!(self.batch_dim);
        }
        if self.provider != OrtDevice::Cpu {
            options["provider"] = json!([self.cpu_fallback, self.provider_options]);
        }
        options.to_string()
    }

    /// Returns the config for the trial process: everything that a trial depends on, so not how
    /// messages wait for a batch.
    pub(crate) fn to_json(&self) -> Value {
        // `check` has reported non-finite tolerances, which JSON cannot represent.
        let near = |atol: f64, rtol: f64| {
            let usual = |value: f64, usual| if value.is_finite() { value } else { usual };
            (usual(atol, default_atol()), usual(rtol, default_rtol()))
        };
        let mut config = json!({
            "model": self.model, "sha256": self.sha256, "manifest": self.manifest, "backend": self.backend,
            "batch": { "max": self.batch.max, "stride": self.batch.stride }, "buckets": self.buckets, "load": self.load, "threads": self.threads,
            "state": self.state, "guard": self.guard, "allow_narrowing": self.allow_narrowing,
            "constants": self.constants, "max": self.max, "trial": self.trial, "plans": self.plans,
            "precision": self.precision, "fallback": self.fallback, "provider": self.provider,
            "cpu_fallback": self.cpu_fallback, "provider_options": self.provider_options, "batch_dim": self.batch_dim,
        });
        if let Some(Require { device, dtypes, max_batch, max_rank, ops, memory, streams, graph_capture }) =
            &self.require
        {
            let dtypes: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
            config["require"] = json!({
                "device": device, "dtypes": dtypes, "max_batch": max_batch, "max_rank": max_rank, "ops": ops,
                "memory": memory, "streams": streams, "graph_capture": graph_capture,
            });
        }
        if let Some(VerifyConfig { case, against, atol, rtol }) = &self.verify {
            let (atol, rtol) = near(*atol, *rtol);
            config["verify"] = json!({ "case": case, "against": against, "atol": atol, "rtol": rtol });
        }
        if let Some(ShadowConfig { backend, every, atol, rtol }) = &self.shadow {
            let (atol, rtol) = near(*atol, *rtol);
            config["shadow"] = json!({ "backend": backend, "every": every, "atol": atol, "rtol": rtol });
        }
        config
    }

    /// Returns the path of the items for the run before the graph starts, if there is one.
    pub(crate) fn trial_file(&self) -> Option<&str> {
        self.trial.as_deref().filter(|trial| *trial != FIRST_MESSAGE)
    }

    /// Returns the path of the recorded case, if there is one.
    pub(crate) fn case_file(&self) -> Option<&str> {
        self.verify.as_ref()?.case.as_deref()
    }

    /// Whether the model is run on its first message, and not before the graph starts.
    pub(crate) fn is_untried(&self) -> bool {
        self.trial.as_deref() == Some(FIRST_MESSAGE)
    }

    /// Reads the recorded case and the items for the run before the graph starts, as far as there
    /// are any.
    pub(crate) fn recorded(&self, cx: &Planning<'_>, errors: &mut PlanErrors) -> RecordedModel {
        let verify = self.verify.as_ref();
        let case = verify.and_then(|verify| {
            let case = read_case("verify.case", verify.case.as_ref()?, cx, errors)?;
            Some((case, Tolerance { atol: verify.atol, rtol: verify.rtol }))
        });
        let trial = self.trial_file().and_then(|file| read_case("trial", file, cx, errors));
        RecordedModel { case, trial }
    }
}

/// The value of `trial:` that skips the run before the graph starts.
const FIRST_MESSAGE: &str = "first_message";

fn read_case(field: &str, path: &str, cx: &Planning<'_>, errors: &mut PlanErrors) -> Option<Case> {
    let help = match field {
        "trial" => format!("name an `.npz` below the graph's folder, or write `{FIRST_MESSAGE}`"),
        _ => "name an `.npz` below the graph's folder".into(),
    };
    if let Err(why) = refuse_remote(path) {
        errors.at(field, why).help(help);
        return None;
    }
    let unreadable = |error: FileError| {
        let way_out = error.similar().map_or(help.clone(), |name| format!("did you mean `{name}`?"));
        let why = match error {
            FileError::System(_, error) => format!("`{path}` {}", CaseError::File(error)),
            error => error.to_string(),
        };
        errors.at(field, why).help(way_out);
    };
    let file = cx.folders.open(path).map_err(unreadable).ok()?;
    let wrong = |e| _ = errors.at(field, format!("`{path}` {e}")).help(&help);
    Case::read_file(file).map_err(wrong).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::backend::{Capabilities, Ops};

    #[test]
    fn every_requirement_of_a_graph_is_compared() {
        let all = Require {
            device: Some("gpu".into()),
            dtypes: vec![DType::F64],
            max_batch: 9,
            max_rank: 10,
            ops: vec!["Frobnicate".into()],
            memory: Some(RequireMemory::Pinned),
            streams: true,
            graph_capture: true,
        };
        let required = all.requirements();
        let mut can = Capabilities::cpu("1", [DType::F32], Ops::Listed(["Conv".to_string()].into()));
        can.max_batch = Some(8);
        let lacks: Vec<String> = can.lacks(&required).iter().map(ToString::to_string).collect();
        let pinned = Memory::Pinned;
        assert_eq!(
            lacks,
            [
                "no device `gpu`, only cpu",
                "no elements of type f64 (required)",
                "no batches of 9, at most 8",
                "no tensors of 10 dims, at most 6",
                &format!("no inputs or outputs in {pinned}"),
                "no operator Frobnicate",
                "no asynchronous calls",
                "no graph capture",
            ]
        );
        assert_eq!(can.lacks(&Require::default().requirements()), []);
    }
}
