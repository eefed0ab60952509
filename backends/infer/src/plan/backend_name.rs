//! The names of backends.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use std::borrow::Cow;

/// The fastest runtime that was measured and can run a model, or the first one on the CPU.
pub(crate) const AUTO: &str = "auto";
/// No model.
pub(crate) const MOCK: &str = "mock";
/// The backend with a runtime for each `provider:`.
pub(crate) const ORT: &str = "ort";

/// A backend of this crate, whether it is built in or not: its name, the cargo feature with which
/// it is built in, where it computes (as [`Runtime::DEVICE`](crate::onnx::Runtime::DEVICE)), and a
/// description.
pub(crate) struct Stock(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

#[rustfmt::skip]
pub(crate) const STOCK: [Stock; 5] = [
    Stock("rten", "rten", "cpu", "ONNX models on the CPU, in pure Rust."),
    Stock("tract", "tract", "cpu", "ONNX models on the CPU, in pure Rust, compiled for each batch size. Requires the cargo feature `tract`."),
    Stock(ORT, "ort", "cpu", "ONNX models on the CPU, or on a GPU with `provider:`, through ONNX Runtime's library. Requires the cargo feature `ort`."),
    Stock("wgpu", "wgpu", "gpu", "ONNX models on a GPU, through Vulkan. Requires the cargo feature `wgpu`."),
    // The feature says which version of NVIDIA's libraries it is for.
    Stock("cuda", "cuda12", "gpu", "ONNX models on an NVIDIA GPU. Requires the cargo feature `cuda12` or `cuda13`."),
];

/// The schema of the name of a backend: those of this crate. A registry adds its own.
pub(crate) struct BackendName;

impl JsonSchema for BackendName {
    fn schema_name() -> Cow<'static, str> {
        "BackendName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let others = [
            (
                AUTO,
                "The first of `ort`, `rten` and `tract` that is available and can run the model. After `limen-run calibrate`: the fastest backend, also on a GPU.",
            ),
            (MOCK, "Runs no model. Produces outputs of the configured shape after a configured time."),
        ];
        names("The backend that runs a model.", &others)
    }
}

/// The providers of ONNX Runtime, as runtimes to compare with.
const PROVIDERS: [(&str, &str); 3] = [
    ("ort-webgpu", "`ort` with `provider: webgpu`."),
    ("ort-cuda", "`ort` with `provider: cuda`."),
    ("ort-tensorrt", "`ort` with `provider: tensorrt`."),
];

/// The schema of the name of a runtime that a model is compared with. A registry adds its own.
pub(crate) struct RuntimeName;

impl JsonSchema for RuntimeName {
    fn schema_name() -> Cow<'static, str> {
        "RuntimeName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        names("The runtime that a model is compared with.", &PROVIDERS)
    }
}

/// Returns the schema of one of the backends of this crate, or of other names.
fn names(about: &str, others: &[(&str, &str)]) -> Schema {
    let all = STOCK.iter().map(|Stock(name, _, _, about)| (*name, *about)).chain(others.iter().copied());
    let all = all.map(|(name, about)| json!({ "const": name, "description": about, "type": "string" }));
    json_schema!({ "description": about, "oneOf": all.collect::<Vec<_>>() })
}
