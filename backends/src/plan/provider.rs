//! The device of ONNX Runtime, and the options of its execution provider there.

use super::config::{Choice, Config};
use crate::onnx::Provider;
use limen::node::PlanErrors;
use limen::text::nearest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The device that ONNX Runtime computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrtDevice {
    /// The CPU.
    #[default]
    Cpu,
    /// A GPU, through ONNX Runtime's plugin for WebGPU, which the command line names (`--onnxruntime-plugin FILE`).
    Webgpu,
}

/// The options of the provider that a graph may set, and their values. The plugin has others: some are addresses in memory, some let
/// kernels read out of bounds, and some need calls of another form.
const OPTIONS: [(&str, &[&str]); 5] = [
    ("enableInt64", &["0", "1"]),
    ("powerPreference", &["high-performance", "low-power"]),
    ("preferredLayout", &["NCHW", "NHWC"]),
    ("storageBufferCacheMode", &["disabled", "lazyRelease", "simple", "bucket"]),
    ("validationMode", &["disabled", "wgpuOnly", "basic", "full"]),
];

impl Config {
    /// Returns the backend that runs the model, where `auto` leaves no choice.
    pub(crate) fn serving(&self) -> Choice {
        match (self.backend, self.device) {
            (Choice::Auto, OrtDevice::Webgpu) => Choice::Ort,
            (backend, _) => backend,
        }
    }

    pub(super) fn provider(&self) -> Provider {
        Provider { cpu_fallback: self.cpu_fallback, options: self.provider_options.clone() }
    }

    /// Whether the device and its options are possible; if not, nothing is tried.
    pub(crate) fn has_fitting_device(&self) -> bool {
        let mut errors = PlanErrors::default();
        self.check_device(&mut errors);
        errors.messages().next().is_none()
    }

    /// Reports what does not fit the device.
    pub(super) fn check_device(&self, errors: &mut PlanErrors) {
        if self.device == OrtDevice::Cpu {
            for (field, is_given) in
                [("cpu_fallback", self.cpu_fallback), ("provider_options", !self.provider_options.is_empty())]
            {
                if is_given {
                    let help = "write `device: webgpu` with `backend: ort`, or leave it out";
                    errors.at(field, "is for `device: webgpu` only").help(help);
                }
            }
            return;
        }
        let (why, help) = match self.backend {
            Choice::Ort | Choice::Auto => return self.check_options(errors),
            Choice::Wgpu => {
                ("`backend: wgpu` computes on the GPU by itself", "leave `device:` out, or write `backend: ort`")
            }
            Choice::Cuda => {
                ("`backend: cuda` computes on the GPU by itself", "leave `device:` out, or write `backend: ort`")
            }
            Choice::Rten => (
                "`backend: rten` computes on the CPU",
                "write `backend: ort`, or `backend: wgpu` without `device:`; or leave `device:` out",
            ),
            Choice::Tract => (
                "`backend: tract` computes on the CPU",
                "write `backend: ort`, or `backend: wgpu` without `device:`; or leave `device:` out",
            ),
            Choice::Mock => ("`backend: mock` computes nothing", "leave `device:` out, or write `backend: ort`"),
        };
        errors.at("device", format!("{why}; only `backend: ort` has `device: webgpu`")).help(help);
    }

    fn check_options(&self, errors: &mut PlanErrors) {
        for (name, value) in &self.provider_options {
            let field = format!("provider_options.{name}");
            let Some((_, values)) = OPTIONS.iter().find(|(known, _)| known == name) else {
                let known: Vec<String> = OPTIONS.iter().map(|(known, _)| format!("`{known}`")).collect();
                let known = format!("the options are {}", known.join(", "));
                let near = nearest(name, OPTIONS.iter().map(|(known, _)| *known));
                let help = near.map_or(known.clone(), |near| format!("did you mean `{near}`? {known}"));
                errors.at(field, "is no option of the provider that a graph may set").help(help);
                continue;
            };
            if !values.contains(&value.as_str()) {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                errors
                    .at(field, format!("`{value}` is no value of this option"))
                    .help(format!("write {}", values.join(" or ")));
            } else if value == "NHWC" && self.verify.is_none() {
                let why = "`NHWC`: the plugin computes some convolutions wrong with channels last";
                errors.at(field, why).help(
                    "show that the model's numbers are right: `verify: { against: rten }`, or a recorded case; or leave it out",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(config: serde_json::Value) -> String {
        let mut errors = PlanErrors::default();
        serde_json::from_value::<Config>(config).unwrap().check(&mut errors);
        errors.into_result(()).map_or_else(|errors| format!("{errors:?}"), |()| String::new())
    }

    #[test]
    fn a_device_that_a_backend_does_not_have_is_refused_with_what_fits() {
        for (backend, parts) in [
            ("wgpu", &["`backend: wgpu` computes on the GPU by itself", "leave `device:` out"][..]),
            ("rten", &["`backend: rten` computes on the CPU", "write `backend: ort`, or `backend: wgpu` without"]),
            ("tract", &["`backend: tract` computes on the CPU", "write `backend: ort`"]),
            ("mock", &["`backend: mock` computes nothing"]),
            ("ort", &[]),
            ("auto", &[]),
        ] {
            let mut config = json!({ "model": "m.onnx", "backend": backend, "device": "webgpu" });
            if backend == "mock" {
                config = json!({ "backend": "mock", "device": "webgpu", "mock": { "inputs": {}, "outputs": {} } });
            }
            let why = problems(config);
            assert_eq!(why.contains("Field(\"device\")"), !parts.is_empty(), "{backend}: {why}");
            parts.iter().for_each(|part| assert!(why.contains(part), "{backend}, {part}: {why}"));
        }
        let wrong = serde_json::from_value::<Config>(json!({ "model": "m.onnx", "device": "cuda" })).unwrap_err();
        assert_eq!(wrong.to_string(), "unknown variant `cuda`, expected `cpu` or `webgpu`");
    }

    #[test]
    fn options_of_the_provider_are_known_ones_with_known_values() {
        let of = |options: serde_json::Value| {
            problems(json!({ "model": "m.onnx", "backend": "ort", "device": "webgpu", "provider_options": options }))
        };
        for (options, parts) in [
            (
                json!({ "preferedLayout": "NCHW" }),
                &["Field(\"provider_options.preferedLayout\")", "did you mean `preferredLayout`?", "`validationMode`"]
                    [..],
            ),
            (
                json!({ "webgpuDevice": "4096" }),
                &["is no option of the provider that a graph may set", "the options are"],
            ),
            (json!({ "powerPreference": "low" }), &["`low` is no value", "write `high-performance` or `low-power`"]),
            (json!({ "preferredLayout": "NHWC" }), &["some convolutions wrong", "`verify: { against: rten }`"]),
            (json!({ "preferredLayout": "NCHW", "powerPreference": "low-power", "enableInt64": "1" }), &[]),
        ] {
            let why = of(options);
            assert_eq!(why.is_empty(), parts.is_empty(), "{why}");
            parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        }
        let verified = json!({
            "model": "m.onnx", "backend": "ort", "device": "webgpu", "verify": { "against": "ort" },
            "provider_options": { "preferredLayout": "NHWC" },
        });
        assert_eq!(problems(verified), "");
        let on_cpu = json!({
            "model": "m.onnx", "backend": "ort", "cpu_fallback": true, "provider_options": { "powerPreference": "low-power" },
        });
        let why = problems(on_cpu);
        for field in ["Field(\"cpu_fallback\")", "Field(\"provider_options\")", "is for `device: webgpu` only"] {
            assert!(why.contains(field), "{field}: {why}");
        }
    }
}
