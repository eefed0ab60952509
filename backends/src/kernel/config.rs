//! The config of a kernel.

use super::expression::{Expression, Symbols};
use limen::message::DType;
use limen::unit::Span;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Runs a compute shader of the graph, a file in WGSL, on the messages of its inputs.
///
/// The ports are variables of the shader, by name: each input is a `var<storage, read>` (but for those of `in_place`), each output a
/// `var<storage, read_write>`, in group 0. Elements of `f32` and `i32` are those of the shader; `u8` inputs are packed, four in a `u32`. Messages stay on the device: the plan
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
    /// Values of the shader's `override` constants, numbers or computed from the names: `{ GAIN: 0.5, WIDTH: w }`.
    #[serde(default)]
    pub constants: BTreeMap<String, KernelNumber>,
    /// Outputs that begin as a copy of an input instead of zeros: `{ y: x }`. The shader reads and writes `y`, and has no variable `x`.
    #[serde(default)]
    pub in_place: BTreeMap<String, String>,
    /// A call that has not ended so long after the one before it on the device is given up, and the device is lost; 120 s by default and at
    /// most. It is for shaders that do not end: one that ends a little late may pass.
    pub time_limit: Option<Span>,
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

/// A number, or an expression over the names of dims.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or an expression of whole ones such as `ceil_div(h * w, 64)`")]
pub enum KernelNumber {
    /// A number.
    Number(f64),
    /// A whole number, computed.
    Computed(Expression),
}

impl KernelNumber {
    /// Computes it.
    ///
    /// # Errors
    /// As those of the expression.
    pub(crate) fn value(&self, symbols: &Symbols) -> Result<f64, String> {
        match self {
            KernelNumber::Number(number) => Ok(*number),
            KernelNumber::Computed(expression) => Ok(expression.value(symbols)? as f64),
        }
    }
}

/// An output of a kernel.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelOutput {
    /// The type of its elements: `f32` or `i32`.
    pub dtype: DType,
    /// Its dims.
    pub shape: Vec<Expression>,
}
