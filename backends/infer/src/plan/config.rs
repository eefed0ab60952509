//! The config of a node that runs a model.

use super::backend_name::{BackendName, RuntimeName};
use super::constant::ConstantConfig;
use super::provider::OrtDevice;
use super::runtimes::Runtimes;
use crate::backend::MockConfig;
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
/// The node's ports are the inputs and outputs of the model. Port names are in lower case, with `_`
/// for each character that a port name cannot contain: `input.1` becomes `input_1`. If the model
/// has a single input, `from:` needs no port name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct InferConfig {
    /// The model's file, relative to the graph's folder. Required, except with `backend: mock`.
    pub model: Option<String>,
    /// The expected SHA-256 of the model's file, in hexadecimal digits.
    pub sha256: Option<String>,
    /// A file with the output of `limen-run inspect MODEL --json`: the model's ports, weights and
    /// checksum. limen rejects a model that differs from the manifest.
    pub manifest: Option<String>,
    /// The backend that runs the model. Default: `rten`. `auto` selects the first of `ort`, `rten`
    /// and `tract` that can run the model. After `limen-run calibrate` has measured the backends,
    /// `auto` selects the fastest backend, including backends on a GPU.
    #[serde(default = "rten")]
    #[schemars(with = "BackendName")]
    pub backend: String,
    /// The execution provider of `backend: ort`. Default: `cpu`. If the provider is not `cpu`,
    /// `backend: auto` selects `ort`.
    #[serde(default)]
    pub provider: OrtDevice,
    /// `true` lets ONNX Runtime run operators on the CPU that the `provider:` does not support. By
    /// default, limen rejects a model with an unsupported operator.
    #[serde(default)]
    pub cpu_fallback: bool,
    /// Options that limen passes to the execution provider in `provider:`. For `webgpu`:
    /// `preferredLayout` (`NCHW`, `NHWC`), `powerPreference` (`high-performance`, `low-power`),
    /// `enableInt64` (`'0'`, `'1'`), `storageBufferCacheMode` (`disabled`, `lazyRelease`, `simple`,
    /// `bucket`), `validationMode` (`disabled`, `wgpuOnly`, `basic`, `full`). `NHWC` requires
    /// `verify:`, because the plugin miscomputes some convolutions with this layout.
    ///
    /// For `cuda`: `cudnn_conv_algo_search` (`EXHAUSTIVE`, `HEURISTIC`, `DEFAULT`),
    /// `cudnn_conv_use_max_workspace` (`'0'`, `'1'`), `prefer_nhwc` (`'0'`, `'1'`), `use_tf32`
    /// (`'0'`, `'1'`). `use_tf32: '1'` requires `verify:`.
    ///
    /// For `tensorrt`: `trt_fp16_enable`, `trt_bf16_enable`, `trt_build_heuristics_enable` (each
    /// `'0'`, `'1'`), `trt_builder_optimization_level` (`'0'` to `'5'`). `provider: tensorrt`
    /// always requires `verify:`.
    #[serde(default)]
    pub provider_options: BTreeMap<String, String>,
    /// Capabilities that the backend must have, in addition to the capabilities that the model
    /// needs.
    pub require: Option<Require>,
    /// Groups messages into batches: `{ max: 8, within: 2ms }`. By default, each call has one
    /// message. With `stride: 2`, the batch is a sliding window. After each full batch, the two
    /// oldest messages leave the window. The remaining messages are part of the next batch.
    #[serde(default)]
    pub batch: Batch,
    /// The dim of the model's inputs that counts the messages of a call. Default: `first`, or
    /// `none` if the first dim has a fixed length other than 1. With `none`, the first dim is part
    /// of each message, and each call has one message. Use `none` if the first dim counts, for
    /// example, the points of a cloud or the nodes of a graph.
    #[serde(default)]
    pub batch_dim: BatchDim,
    /// Batch sizes in ascending order: `[1, 4]`. limen pads each batch to the smallest listed size
    /// that fits the batch, or to the largest batch. By default, a backend that compiles a model
    /// for each batch size, such as `tract`, pads to powers of two. With `provider: cuda` or
    /// `tensorrt`, `ort` pads to the largest batch, because a call with a new batch size is slow.
    /// All other backends do not pad.
    #[serde(default)]
    pub buckets: Vec<usize>,
    /// When limen prepares the model. Default: `eager`.
    #[serde(default)]
    pub load: Load,
    /// Number of threads inside one call, 1 to 256. Default: 1. More threads speed up only large
    /// models and slow down small models.
    #[serde(default = "one")]
    pub threads: usize,
    /// Maximum number of concurrent calls, 1 to 256. Default: 1. Each call has its own thread,
    /// which may run on any of the run's cores. Outputs keep the order of the inputs. With
    /// `on_error: skip`, a failed call loses only the messages of that call.
    #[serde(default = "one")]
    pub in_flight: usize,
    /// Outputs that are inputs of the next call of the same stream, as in a recurrent model. State
    /// inputs and state outputs are not ports. A stream is the messages of one source. Each stream
    /// has its own state, which starts as zeros. A batch holds at most one message of each stream.
    #[serde(default)]
    pub state: Vec<StateConfig>,
    /// Inputs with the same value in every call, by name. These inputs are not ports. A graph file
    /// writes such an input among the node's `inputs`: `{ rate: { value: 16000 } }`.
    #[serde(default)]
    #[schemars(skip)]
    pub constants: BTreeMap<String, ConstantConfig>,
    /// The greatest lengths of the dims of an output, by port: `{ boxes: [100, 6] }`. `{ boxes: 100
    /// }` sets the length of the only dim that the model does not declare. Use `max` for outputs
    /// with a length that depends on the values of a message. The length of the output then varies
    /// between messages. Default: the limit that limen derives from the model's operators, if
    /// possible. A call with a longer output fails.
    #[serde(default)]
    pub max: BTreeMap<String, MaxConfig>,
    /// The input of a trial run before the graph starts: an `.npz` with arrays for some of the
    /// model's inputs. `first_message` skips the trial run. The default is the first item of the
    /// recorded case. Without a recorded case, the trial run uses zeros, and ones if the model
    /// fails on zeros.
    pub trial: Option<String>,
    /// Number of compiled call shapes to keep, for a backend that compiles for each shape, such as
    /// `tract`. Default: 16.
    #[serde(default = "sixteen")]
    pub plans: usize,
    /// What happens to a stream's state after a missing message. Default: `keep`.
    #[serde(default)]
    pub on_skip: OnSkip,
    /// What happens to the state when a new stream begins, for example at each pass over a file.
    /// Default: `reset`.
    #[serde(default)]
    pub on_end: OnEnd,
    /// `false` copies the messages of a GPU model to and from host memory within each call. By
    /// default, messages stay on the GPU if an adjacent node also keeps messages on the GPU. Only
    /// messages with fixed shapes and elements of type `f32` or `i32` can stay on the GPU. Input
    /// messages may also have elements of type `u8`.
    #[serde(default = "yes")]
    pub resident: bool,
    /// Precision of weights and intermediate results. Default: `f32`. A precision other than `f32`
    /// requires a recorded case in `verify:`.
    #[serde(default)]
    pub precision: Precision,
    /// Idle time after which the node makes a call on zeros, such as `50ms`. Use `keep_warm` if the
    /// device saves power between calls, or if other programs fill the device's caches.
    /// `warm_calls` counts the calls on zeros. A message that arrives during a call on zeros waits
    /// until the call ends.
    pub keep_warm: Option<Span>,
    /// `true` computes `f64` as `f32`, with 7 decimal digits instead of 15. The narrowing applies
    /// to `f64` inputs and outputs. With `rten`, `wgpu` and `cuda`, the narrowing also applies to
    /// `f64` inside the model. A decision tree may choose another branch for a value close to a
    /// threshold. By default, limen rejects models that require this narrowing.
    #[serde(default)]
    pub allow_narrowing: bool,
    /// Check of the inputs and outputs of every call. Default: `none`.
    #[serde(default)]
    pub guard: Guard,
    /// Recorded inputs and outputs. While planning, limen runs the model three times on the
    /// recorded inputs. The graph does not start if an output differs from the recorded output by
    /// more than the tolerance.
    pub verify: Option<VerifyConfig>,
    /// A second backend that repeats some of the calls while the graph runs. The report contains
    /// the difference between the outputs of the two backends.
    pub shadow: Option<ShadowConfig>,
    /// The backend that repeats a call if the device of `wgpu` or `cuda` was lost during the call.
    /// The metric `fallback_calls` counts the repeated calls. With `wgpu`, the next call reopens
    /// the device, at most three times in 60 s. With `fallback`, each call copies messages to and
    /// from host memory. By default, a call fails if the device is lost.
    #[schemars(with = "Option<BackendName>")]
    pub fallback: Option<String>,
    /// The inputs, outputs, latency and failures of `backend: mock`.
    pub mock: Option<MockConfig>,
}

/// Capabilities that a backend must have. `limen-run GRAPH --plan` shows for each candidate backend
/// whether the backend has these capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Require {
    /// The device of the backend: `cpu`, `wgpu`, `cuda` or `gpu`. `gpu` matches any GPU, including
    /// `ort` with a GPU `provider:`. `device` also accepts the name of an ONNX Runtime execution
    /// provider.
    pub device: Option<String>,
    /// Element types that the backend must support.
    #[serde(default)]
    pub dtypes: Vec<DType>,
    /// Number of items that one call must support.
    #[serde(default)]
    pub max_batch: usize,
    /// Number of dims of one item that the backend must support.
    #[serde(default)]
    pub max_rank: usize,
    /// Operators that the backend must support: `Conv`, `com.microsoft.Gelu`. The name of an
    /// operator outside the default ONNX domain requires the domain as a prefix.
    #[serde(default)]
    pub ops: Vec<String>,
    /// Memory that the backend's inputs and outputs must support, in addition to host memory.
    pub memory: Option<RequireMemory>,
    /// Requires asynchronous calls, which return before the computation finishes.
    #[serde(default)]
    pub streams: bool,
    /// Requires graph capture: the backend records a call once and replays the recording.
    #[serde(default)]
    pub graph_capture: bool,
}

/// The memory of a backend's inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequireMemory {
    /// No backend supports this memory, and the error suggests an alternative.
    #[doc(hidden)]
    #[schemars(skip)]
    Pinned,
    /// The memory of the first device.
    Device,
}

impl Require {
    pub(crate) fn requirements(self) -> Requirements {
        let memory = self.memory.filter(|memory| *memory == RequireMemory::Device);
        Requirements {
            device: self.device,
            dtypes: self.dtypes.into_iter().map(|dtype| (dtype, "required".into())).collect(),
            max_batch: self.max_batch,
            max_rank: self.max_rank,
            threads: 0,
            memory: memory.map(|_| Memory::Device(0)).into_iter().collect(),
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
    /// The first dim counts messages, if the dim is symbolic or 1.
    #[default]
    First,
    /// A message has all dims of the model.
    None,
}

/// When a model is prepared for calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// limen prepares the model before the graph starts.
    #[default]
    Eager,
    /// limen prepares the model in the first call. With `lazy`, the first call takes longer.
    Lazy,
}

/// The check of the inputs and outputs of every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// No check.
    #[default]
    None,
    /// A call fails if an input or output contains infinity or NaN.
    Finite,
}

/// An output that is an input of the next call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateConfig {
    /// Name of the model's input.
    pub input: String,
    /// Name of the model's output.
    pub output: String,
    /// Index of the batch dim of the state, from 0. Default: the dim with the same name as the
    /// batch dim of the other inputs, or the only symbolic dim.
    pub batch_dim: Option<usize>,
}

/// The greatest lengths of the dims of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a list of numbers: `{ boxes: 100 }`, `{ boxes: [100, 6] }`")]
pub enum MaxConfig {
    /// Length of the only dim that the model does not declare.
    One(usize),
    /// Length of each dim of an item.
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
    /// Name of the second backend.
    #[schemars(with = "RuntimeName")]
    pub backend: String,
    /// The second backend repeats one call in `every` calls. Default: 100.
    #[serde(default = "hundred")]
    pub every: u64,
    /// Absolute tolerance. Default: 1e-4.
    #[serde(default = "default_atol")]
    pub atol: f64,
    /// Relative tolerance, as a fraction of the second backend's value. limen adds the relative
    /// tolerance to `atol`. Default: 1e-3.
    #[serde(default = "default_rtol")]
    pub rtol: f64,
}

fn hundred() -> u64 {
    100
}

/// A recorded case or another backend to compare the model with, and the tolerance.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct VerifyConfig {
    /// An `.npz` with arrays for the model's inputs and outputs, with any number of items.
    pub case: Option<String>,
    /// A second backend. `ort` is ONNX Runtime on the CPU. While planning, limen runs both backends
    /// on the same inputs and compares the outputs.
    #[schemars(with = "Option<RuntimeName>")]
    pub against: Option<String>,
    /// Absolute tolerance. Default: 1e-4.
    #[serde(default = "default_atol")]
    pub atol: f64,
    /// Relative tolerance, as a fraction of the recorded value. limen adds the relative tolerance
    /// to `atol`. Default: 1e-3.
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
    /// Returns by how much the outputs of two backends may differ.
    pub(crate) fn tolerance(&self) -> Tolerance {
        let verify = self.verify.as_ref();
        let (atol, rtol) = verify.map_or((default_atol(), default_rtol()), |verify| (verify.atol, verify.rtol));
        Tolerance { atol, rtol }
    }

    /// Whether the node has a backend of this name, to run its model or to compare it.
    pub(crate) fn names(&self, backend: &str) -> bool {
        self.serving() == backend || self.compared().any(|(_, other)| other == backend)
    }

    /// Returns the backends beside the one that serves, with their keys.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let against = self.verify.as_ref().and_then(|verify| verify.against.as_deref());
        let shadow = self.shadow.as_ref().map(|shadow| &*shadow.backend);
        let all = [("verify.against", against), ("shadow.backend", shadow), (FALLBACK, self.fallback.as_deref())];
        all.into_iter().filter_map(|(key, name)| Some((key, name?)))
    }

    /// Checks that a registry has the backends that the node names.
    pub(crate) fn check_names(&self, runtimes: &Runtimes) -> Result<(), PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut check = |key, name, names: &[&str]| {
            if !names.contains(&name) {
                errors.not_one_of(key, name, names);
            }
        };
        let (backends, models) = (runtimes.names(), runtimes.of_models());
        check("backend", &*self.backend, &backends);
        for (key, name) in self.compared() {
            check(key, name, if key == FALLBACK { &backends } else { &models });
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

/// The key of the backend that makes the calls of a lost device.
const FALLBACK: &str = "fallback";

fn read_case(field: &str, path: &str, cx: &Planning<'_>, errors: &mut PlanErrors) -> Option<Case> {
    let help = match field {
        "trial" => format!("name an `.npz` below the graph's folder, or write `{FIRST_MESSAGE}`"),
        _ => "name an `.npz` below the graph's folder".into(),
    };
    let unreadable = |error: FileError| {
        let way_out = match &error {
            FileError::NotFetched { help, .. } => help.clone(),
            error => error.similar().map_or(help.clone(), |name| format!("did you mean `{name}`?")),
        };
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
            memory: Some(RequireMemory::Device),
            streams: true,
            graph_capture: true,
        };
        let required = all.requirements();
        let mut can = Capabilities::cpu("1", [DType::F32], Ops::Listed(["Conv".to_string()].into()));
        can.max_batch = Some(8);
        let lacks: Vec<String> = can.lacks(&required).iter().map(ToString::to_string).collect();
        assert_eq!(
            lacks,
            [
                "no device `gpu`, only cpu",
                "no elements of type f64 (required)",
                "no batches of 9, at most 8",
                "no tensors of 10 dims, at most 6",
                "no inputs or outputs in the memory of device 0",
                "no operator Frobnicate",
                "no asynchronous calls",
                "no graph capture",
            ]
        );
        assert_eq!(can.lacks(&Require::default().requirements()), []);
    }
}
