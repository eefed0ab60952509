//! The config of a kernel.

use super::expression::{Expression, Symbols};
use limen::message::DType;
use limen::unit::Span;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Runs a user-supplied GPU program on the messages of its inputs. On `wgpu`, the program is a WGSL
/// compute shader. On `cuda`, the program is a CUDA kernel: CUDA C (`.cu`), PTX (`.ptx`) or code
/// for one architecture (`.cubin`).
///
/// Each port of a shader is a variable of the same name in group 0. An input is a `var<storage,
/// read>`, except inputs of `in_place`. An output is a `var<storage, read_write>`. The shader reads
/// `f32` and `i32` elements directly. `u8` inputs are packed, four elements in a `u32`. A CUDA
/// kernel receives its arguments in the order of `arguments`. An argument is a pointer to the
/// elements of a port, or a number.
///
/// Messages stay on the device. limen inserts copy nodes where adjacent nodes need the messages in
/// host memory.
///
/// A kernel runs only with `allow_kernels: true` in its config and `--allow-kernels` on the command
/// line.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelConfig {
    /// The source file, relative to the graph's folder.
    pub source: String,
    /// The device, `wgpu` or `cuda`. By default, the source file's extension selects the device.
    pub device: Option<String>,
    /// The entry point of a shader (default: the only entry point), or the name of a CUDA kernel. A
    /// CUDA kernel must be declared `extern "C"`.
    pub entry: Option<String>,
    /// The dims of each input, as names or lengths: `{ x: [h, w, 3] }`. All dims with the same name
    /// must have the same length.
    pub inputs: BTreeMap<String, Vec<Expression>>,
    /// Element type and dims of each output: `{ y: { dtype: f32, shape: [h, w / 2] } }`. The
    /// lengths are expressions over the dim names in `inputs`.
    pub outputs: BTreeMap<String, KernelOutput>,
    /// The number of workgroups (WGSL) or blocks (CUDA), along up to three dims: `[ceil_div(h * w,
    /// 64)]`.
    pub grid: Vec<Expression>,
    /// CUDA only: the number of threads per block, along up to three dims: `[16, 16]`.
    #[serde(default)]
    pub block: Vec<Expression>,
    /// CUDA only: bytes of dynamic shared memory per block, in addition to the shared memory that
    /// the kernel declares.
    pub shared: Option<Expression>,
    /// CUDA only: the kernel's arguments, in order. An argument is the name of a port, or a number
    /// with its type: `[x, y, { i32: h * w }, { f32: 0.5 }]`.
    #[serde(default)]
    pub arguments: Vec<KernelArgument>,
    /// CUDA C only: macros. A value is a number or an expression over the dim names in `inputs`: `{
    /// RADIUS: 3 }`.
    #[serde(default)]
    pub defines: BTreeMap<String, KernelNumber>,
    /// WGSL only: values of the shader's `override` constants. A value is a number or an expression
    /// over the dim names in `inputs`: `{ GAIN: 0.5, WIDTH: w }`.
    #[serde(default)]
    pub constants: BTreeMap<String, KernelNumber>,
    /// Outputs that start as a copy of an input instead of zeros: `{ y: x }`. The shader reads and
    /// writes `y`, and has no variable `x`.
    #[serde(default)]
    pub in_place: BTreeMap<String, String>,
    /// The longest time that a call may take, at most 120 s. Default: 120 s. On `wgpu`, the time of
    /// a call starts when the previous call on the device ends. On `cuda`, the time of a call
    /// starts when the call is enqueued. If a call takes longer, the node abandons the call and the
    /// device is lost. `time_limit` stops programs that do not end. The worker checks the limit
    /// between turns, so a call that is slightly late may pass. The worker does not check the limit
    /// while a call of another node waits for the device.
    pub time_limit: Option<Span>,
    /// Allows the program to run. The option `--allow-kernels` is also required.
    #[serde(default)]
    pub allow_kernels: bool,
    /// A recorded case: an `.npz` with one array per port, named like the port. limen checks the
    /// kernel's outputs against the recorded case while planning.
    pub verify: Option<String>,
    /// Absolute tolerance for the outputs of `verify`. Default: 1e-5.
    #[serde(default = "close")]
    pub atol: f64,
}

/// The languages of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Wgsl,
    CudaC,
    Ptx,
    Cubin,
}

impl Language {
    /// The device that runs it.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Language::Wgsl => "wgpu",
            Language::CudaC | Language::Ptx | Language::Cubin => "cuda",
        }
    }
}

impl KernelConfig {
    /// Returns the language of the source, by the end of its name.
    pub(crate) fn language(&self) -> Option<Language> {
        let (_, end) = self.source.rsplit_once('.')?;
        Some(match end {
            "wgsl" => Language::Wgsl,
            "cu" => Language::CudaC,
            "ptx" => Language::Ptx,
            "cubin" => Language::Cubin,
            _ => return None,
        })
    }

    /// Returns the device: `wgpu` if neither the config nor the source says.
    pub(crate) fn device(&self) -> &str {
        let of_language = self.language().map_or("wgpu", Language::device);
        self.device.as_deref().unwrap_or(of_language)
    }
}

/// An argument of a kernel of CUDA: the name of a port, or a number with its type.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the name of a port, or a number with its type such as `{ i32: h * w }`")]
pub enum KernelArgument {
    /// A pointer to the elements of a port.
    Port(String),
    /// A number, passed by value.
    Number(ArgumentNumber),
}

/// A number with its type.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentNumber {
    /// A signed 32-bit integer.
    I32(KernelNumber),
    /// An unsigned 32-bit integer.
    U32(KernelNumber),
    /// A signed 64-bit integer.
    I64(KernelNumber),
    /// An unsigned 64-bit integer.
    U64(KernelNumber),
    /// A 32-bit floating-point number.
    F32(KernelNumber),
    /// A 64-bit floating-point number.
    F64(KernelNumber),
}

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only CUDA has arguments"))]
impl ArgumentNumber {
    /// Its bytes, those of the type first.
    ///
    /// # Errors
    /// If it does not fit its type; those of the expression.
    pub(crate) fn bytes(&self, symbols: &Symbols) -> Result<[u8; 8], String> {
        let mut bytes = [0; 8];
        let whole = |number: &KernelNumber| number.whole(symbols);
        let narrow = |dtype: &str, number: i128| format!("the number must fit in {dtype}, got {number}");
        match self {
            ArgumentNumber::I32(number) => {
                let number = whole(number)?;
                let fits = i32::try_from(number).map_err(|_| narrow("i32", number))?;
                bytes[..4].copy_from_slice(&fits.to_ne_bytes());
            }
            ArgumentNumber::U32(number) => {
                let number = whole(number)?;
                let fits = u32::try_from(number).map_err(|_| narrow("u32", number))?;
                bytes[..4].copy_from_slice(&fits.to_ne_bytes());
            }
            ArgumentNumber::I64(number) => {
                let number = whole(number)?;
                bytes = i64::try_from(number).map_err(|_| narrow("i64", number))?.to_ne_bytes();
            }
            ArgumentNumber::U64(number) => {
                let number = whole(number)?;
                bytes = u64::try_from(number).map_err(|_| narrow("u64", number))?.to_ne_bytes();
            }
            ArgumentNumber::F32(number) => {
                bytes[..4].copy_from_slice(&(number.value(symbols)? as f32).to_ne_bytes());
            }
            ArgumentNumber::F64(number) => bytes = number.value(symbols)?.to_ne_bytes(),
        }
        Ok(bytes)
    }

    /// The bytes of its type.
    pub(crate) fn size(&self) -> usize {
        match self {
            ArgumentNumber::I32(_) | ArgumentNumber::U32(_) | ArgumentNumber::F32(_) => 4,
            ArgumentNumber::I64(_) | ArgumentNumber::U64(_) | ArgumentNumber::F64(_) => 8,
        }
    }
}

fn close() -> f64 {
    1e-5
}

/// A number, or an expression over the names of dims.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or an expression such as `ceil_div(h * w, 64)`")]
pub enum KernelNumber {
    /// A literal number.
    Number(f64),
    /// An integer expression.
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

    /// Computes it as a whole number.
    ///
    /// # Errors
    /// If it is none; those of the expression.
    fn whole(&self, symbols: &Symbols) -> Result<i128, String> {
        match self {
            // Beyond that, not every whole number is one of 64 bits.
            KernelNumber::Number(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(63) => {
                Ok(*number as i128)
            }
            KernelNumber::Number(number) => Err(format!("expected a whole number, found {number}")),
            KernelNumber::Computed(expression) => Ok(i128::from(expression.value(symbols)?)),
        }
    }

    /// Its text in CUDA C.
    ///
    /// # Errors
    /// As those of the expression.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only CUDA C has macros"))]
    pub(crate) fn text(&self, symbols: &Symbols) -> Result<String, String> {
        Ok(match self {
            KernelNumber::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("({number:.0})"),
            KernelNumber::Number(number) => format!("({number:?})"),
            KernelNumber::Computed(expression) => format!("({})", expression.value(symbols)?),
        })
    }
}

/// An output of a kernel.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelOutput {
    /// Element type: `f32` or `i32`; on `cuda`, also `u8`.
    pub dtype: DType,
    /// The dims, as lengths or expressions.
    pub shape: Vec<Expression>,
}
