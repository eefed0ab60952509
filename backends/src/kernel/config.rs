//! The config of a kernel.

use super::expression::Expression;
use limen::message::DType;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Runs a compute shader of the graph, a file in WGSL, on the messages of its inputs.
///
/// The ports are variables of the shader, by name: each input is a `var<storage, read>`, each output a `var<storage, read_write>`, in group
/// 0. Elements of `f32` and `i32` are those of the shader; `u8` inputs are packed, four in a `u32`. Messages stay on the device: the plan
/// inserts copies where others need them.
///
/// A shader is a program: it runs only with `allow_kernels: true` here and `--allow-kernels` on the command line.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelConfig {
    /// The file, relative to the graph's folder.
    pub source: String,
    /// The device; `wgpu` by default, which is the only one.
    #[serde(default = "wgpu")]
    pub device: String,
    /// The entry point; by default the only one.
    pub entry: Option<String>,
    /// The dims of each input, as names or lengths: `{ x: [h, w, 3] }`. A name has the same length wherever it occurs.
    pub inputs: BTreeMap<String, Vec<Expression>>,
    /// The messages of each output: `{ y: { dtype: f32, shape: [h, w / 2] } }`. Lengths are computed from the names.
    pub outputs: BTreeMap<String, KernelOutput>,
    /// The number of workgroups along up to three dims: `[ceil_div(h * w, 64)]`.
    pub grid: Vec<Expression>,
    /// Values of the shader's `override` constants, computed from the names: `{ WIDTH: w }`.
    #[serde(default)]
    pub constants: BTreeMap<String, Expression>,
    /// Whether the shader may run; the command line must say so, too.
    #[serde(default)]
    pub allow_kernels: bool,
    /// A recorded case: an `.npz` with arrays named as the ports, run while planning.
    pub verify: Option<String>,
    /// How far a number may be from the recorded one; 1e-5 by default.
    #[serde(default = "close")]
    pub atol: f64,
}

fn wgpu() -> String {
    "wgpu".into()
}

fn close() -> f64 {
    1e-5
}

/// An output of a kernel.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelOutput {
    /// The type of its elements: `f32` or `i32`.
    pub dtype: DType,
    /// Its dims.
    pub shape: Vec<Expression>,
}
