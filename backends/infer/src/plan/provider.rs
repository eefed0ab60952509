//! The execution provider of ONNX Runtime, and its options.

use super::backend_name::{AUTO, MOCK, ORT};
use super::config::InferConfig;
use super::registered::CPU;
use super::runtimes::Runtimes;
use crate::onnx::Provider;
use limen::node::PlanErrors;
use limen::text::nearest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The execution provider of ONNX Runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum OrtDevice {
    /// ONNX Runtime on the CPU.
    #[default]
    Cpu,
    /// A GPU, through ONNX Runtime's WebGPU plugin. `--onnxruntime-plugin FILE` sets the path of
    /// the plugin's library.
    Webgpu,
    /// An NVIDIA GPU, through CUDA. Requires the library of ONNX Runtime's GPU package
    /// (`--onnxruntime FILE`).
    Cuda,
    /// An NVIDIA GPU, through TensorRT. Operators that TensorRT does not support run on CUDA.
    /// Requires the library of ONNX Runtime's GPU package (`--onnxruntime FILE`).
    Tensorrt,
}

impl OrtDevice {
    /// Its name in YAML.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    /// The options of its provider that a graph may set, and their values. The providers have
    /// others: some are addresses in memory or names of files, some let kernels read out of bounds,
    /// and some need calls of another form.
    fn options(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            OrtDevice::Cpu => &[],
            OrtDevice::Webgpu => &WEBGPU,
            OrtDevice::Cuda => &CUDA,
            OrtDevice::Tensorrt => &TENSORRT,
        }
    }

    /// Returns why a model's numbers have to be verified: what it computes with otherwise than
    /// asked for.
    pub(super) fn rounds(self, options: &BTreeMap<String, String>) -> Option<(&'static str, &'static str)> {
        let is_set = |(name, value): (&str, &str)| options.get(name).is_some_and(|set| set == value);
        match self {
            OrtDevice::Webgpu if is_set(("preferredLayout", "NHWC")) => {
                Some(("provider_options.preferredLayout", "the plugin miscomputes some convolutions with `NHWC`"))
            }
            OrtDevice::Cuda if is_set(("use_tf32", "1")) => {
                Some(("provider_options.use_tf32", "TF32 keeps 3 decimal digits of each factor"))
            }
            OrtDevice::Tensorrt => Some(("provider", "TensorRT may compute with TF32, which keeps 3 decimal digits")),
            _ => None,
        }
    }
}

const NO_YES: &[&str] = &["0", "1"];

const CUDA: [(&str, &[&str]); 4] = [
    ("cudnn_conv_algo_search", &["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]),
    ("cudnn_conv_use_max_workspace", NO_YES),
    ("prefer_nhwc", NO_YES),
    ("use_tf32", NO_YES),
];

const TENSORRT: [(&str, &[&str]); 4] = [
    ("trt_bf16_enable", NO_YES),
    ("trt_build_heuristics_enable", NO_YES),
    ("trt_builder_optimization_level", &["0", "1", "2", "3", "4", "5"]),
    ("trt_fp16_enable", NO_YES),
];

const WEBGPU: [(&str, &[&str]); 5] = [
    ("enableInt64", &["0", "1"]),
    ("powerPreference", &["high-performance", "low-power"]),
    ("preferredLayout", &["NCHW", "NHWC"]),
    ("storageBufferCacheMode", &["disabled", "lazyRelease", "simple", "bucket"]),
    ("validationMode", &["disabled", "wgpuOnly", "basic", "full"]),
];

impl InferConfig {
    /// Returns the backend that runs the model, where `auto` leaves no choice.
    pub(crate) fn serving(&self) -> &str {
        match (&*self.backend, self.provider) {
            (AUTO, OrtDevice::Webgpu | OrtDevice::Cuda | OrtDevice::Tensorrt) => ORT,
            (backend, _) => backend,
        }
    }

    pub(super) fn provider(&self) -> Provider {
        Provider { cpu_fallback: self.cpu_fallback, options: self.provider_options.clone() }
    }

    /// Whether the device and its options are possible; if not, nothing is tried.
    pub(crate) fn has_fitting_device(&self, runtimes: &Runtimes) -> bool {
        let mut errors = PlanErrors::default();
        self.check_device(runtimes, &mut errors);
        errors.messages().next().is_none()
    }

    /// Reports what does not fit the device.
    pub(super) fn check_device(&self, runtimes: &Runtimes, errors: &mut PlanErrors) {
        if self.provider == OrtDevice::Cpu {
            for (field, is_given) in
                [("cpu_fallback", self.cpu_fallback), ("provider_options", !self.provider_options.is_empty())]
            {
                if is_given {
                    let help = format!(
                        "write `provider: webgpu`, `cuda` or `tensorrt` with `backend: ort`, or remove `{field}`"
                    );
                    errors.at(field, format!("`{field}` requires a `provider` other than `cpu`")).help(help);
                }
            }
            return;
        }
        let backend = &*self.backend;
        if matches!(backend, ORT | AUTO) {
            return self.check_options(errors);
        }
        let is_on_cpu = runtimes.get(backend).is_some_and(|known| known.computes_on == CPU);
        let help = match self.provider {
            OrtDevice::Cuda if !matches!(backend, "cuda" | MOCK) => {
                "write `backend: cuda` without `provider:`, or `backend: ort`"
            }
            _ if is_on_cpu => "write `backend: ort`, write `backend: wgpu` without `provider:`, or remove `provider:`",
            _ => "remove `provider:`, or write `backend: ort`",
        };
        let name = self.provider.name();
        errors
            .at("provider", format!("`provider: {name}` requires `backend: ort`, got `backend: {backend}`"))
            .help(help);
    }

    fn check_options(&self, errors: &mut PlanErrors) {
        for (name, value) in &self.provider_options {
            let field = format!("provider_options.{name}");
            let all = self.provider.options();
            let Some((_, values)) = all.iter().find(|(known, _)| known == name) else {
                let known: Vec<String> = all.iter().map(|(known, _)| format!("`{known}`")).collect();
                let known = known.join(", ");
                let near = nearest(name, all.iter().map(|(known, _)| *known));
                let help = near.map_or(format!("write one of {known}"), |near| {
                    format!("did you mean `{near}`? All options: {known}")
                });
                errors
                    .at(field, format!("expected an option for `provider: {}`, found `{name}`", self.provider.name()))
                    .help(help);
                continue;
            };
            if !values.contains(&value.as_str()) {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                errors
                    .at(field, format!("`{name}` must be {}, got `{value}`", values.join(" or ")))
                    .help(format!("write {}", values.join(" or ")));
            }
        }
        if let (Some((field, why)), None) = (self.provider.rounds(&self.provider_options), &self.verify) {
            errors.at(field, format!("{why}, so `verify` is required")).help(format!(
                "write `verify: {{ against: rten }}` or `verify: {{ case: FILE.npz }}`, or remove `{field}`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(config: serde_json::Value) -> String {
        let mut errors = PlanErrors::default();
        serde_json::from_value::<InferConfig>(config).unwrap().check(&Runtimes::default(), &mut errors);
        errors.into_result(()).map_or_else(|errors| format!("{errors:?}"), |()| String::new())
    }

    #[test]
    fn a_device_that_a_backend_does_not_have_is_refused_with_what_fits() {
        for (backend, parts) in [
            ("wgpu", &["requires `backend: ort`, got `backend: wgpu`", "remove `provider:`"][..]),
            ("rten", &["got `backend: rten`", "write `backend: ort`, write `backend: wgpu` without"]),
            ("tract", &["got `backend: tract`", "write `backend: ort`"]),
            ("mock", &["got `backend: mock`"]),
            ("ort", &[]),
            ("auto", &[]),
        ] {
            let mut config = json!({ "model": "m.onnx", "backend": backend, "provider": "webgpu" });
            if backend == "mock" {
                config = json!({ "backend": "mock", "provider": "webgpu", "mock": { "inputs": {}, "outputs": {} } });
            }
            let why = problems(config);
            assert_eq!(why.contains("Field(\"provider\")"), !parts.is_empty(), "{backend}: {why}");
            parts.iter().for_each(|part| assert!(why.contains(part), "{backend}, {part}: {why}"));
        }
        let wrong = serde_json::from_value::<InferConfig>(json!({ "model": "m.onnx", "provider": "tpu" })).unwrap_err();
        let expected = "unknown variant `tpu`, expected one of `cpu`, `webgpu`, `cuda`, `tensorrt`";
        assert_eq!(wrong.to_string(), expected);
    }

    #[test]
    fn options_of_the_provider_are_known_ones_with_known_values() {
        let on = |device: &str, options: serde_json::Value| {
            problems(json!({ "model": "m.onnx", "backend": "ort", "provider": device, "provider_options": options }))
        };
        let of = |options: serde_json::Value| on("webgpu", options);
        for (options, parts) in [
            (
                json!({ "preferedLayout": "NCHW" }),
                &["Field(\"provider_options.preferedLayout\")", "did you mean `preferredLayout`?", "`validationMode`"]
                    [..],
            ),
            (
                json!({ "webgpuDevice": "4096" }),
                &["expected an option for `provider: webgpu`, found `webgpuDevice`", "write one of"],
            ),
            (
                json!({ "powerPreference": "low" }),
                &[
                    "`powerPreference` must be `high-performance` or `low-power`, got `low`",
                    "write `high-performance` or `low-power`",
                ],
            ),
            (json!({ "preferredLayout": "NHWC" }), &["miscomputes some convolutions", "`verify: { against: rten }`"]),
            (json!({ "preferredLayout": "NCHW", "powerPreference": "low-power", "enableInt64": "1" }), &[]),
        ] {
            let why = of(options);
            assert_eq!(why.is_empty(), parts.is_empty(), "{why}");
            parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        }
        for (device, options, parts) in [
            ("cuda", json!({ "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0" }), &[][..]),
            ("cuda", json!({ "use_tf32": "1" }), &["TF32 keeps 3 decimal digits", "`verify: { against: rten }`"]),
            (
                "cuda",
                json!({ "user_compute_stream": "4096" }),
                &["expected an option for `provider: ", "`prefer_nhwc`"],
            ),
            ("tensorrt", json!({}), &["Field(\"provider\")", "TensorRT may compute with TF32"]),
            ("tensorrt", json!({ "trt_engine_cache_path": "/" }), &["expected an option for `provider: tensorrt`"]),
        ] {
            let why = on(device, options);
            assert_eq!(why.is_empty(), parts.is_empty(), "{why}");
            parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        }
        let verified = json!({
            "model": "m.onnx", "backend": "ort", "provider": "webgpu", "verify": { "against": "ort" },
            "provider_options": { "preferredLayout": "NHWC" },
        });
        assert_eq!(problems(verified), "");
        let on_cpu = json!({
            "model": "m.onnx", "backend": "ort", "cpu_fallback": true, "provider_options": { "powerPreference": "low-power" },
        });
        let why = problems(on_cpu);
        for field in [
            "Field(\"cpu_fallback\")",
            "Field(\"provider_options\")",
            "`cpu_fallback` requires a `provider` other than `cpu`",
        ] {
            assert!(why.contains(field), "{field}: {why}");
        }
    }
}
