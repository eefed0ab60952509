//! The config of a kernel.

use super::expression::{Expression, Symbols};
use limen::message::DType;
use limen::unit::Span;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Runs a program of the graph on a device, on the messages of its inputs: a compute shader in WGSL
/// on `wgpu`, or a kernel of CUDA on `cuda`: CUDA C (`.cu`), PTX (`.ptx`) or code for one
/// architecture (`.cubin`).
///
/// The ports of a shader are its variables, by name: each input is a `var<storage, read>` (except
/// those of `in_place`), each output a `var<storage, read_write>`, in group 0. Elements of `f32`
/// and `i32` are those of the shader; `u8` inputs are packed, four in a `u32`. A kernel of CUDA
/// gets pointers to the elements of its ports, and numbers, in the order of `arguments`. Messages
/// stay on the device: the plan inserts copies where others need them.
///
/// It is a program: it runs only with `allow_kernels: true` here and `--allow-kernels` on the
/// command line.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelConfig {
    /// The file, relative to the graph's folder.
    pub source: String,
    /// The device, `wgpu` or `cuda`; by default that of the source's file name.
    pub device: Option<String>,
    /// The entry point of a shader, by default the only one; the name of a kernel of CUDA, declared
    /// `extern "C"`.
    pub entry: Option<String>,
    /// The dims of each input, as names or lengths: `{ x: [h, w, 3] }`. A name has the same length
    /// wherever it occurs.
    pub inputs: BTreeMap<String, Vec<Expression>>,
    /// The messages of each output: `{ y: { dtype: f32, shape: [h, w / 2] } }`. Lengths are
    /// computed from the names.
    pub outputs: BTreeMap<String, KernelOutput>,
    /// The number of workgroups, or blocks, along up to three dims: `[ceil_div(h * w, 64)]`.
    pub grid: Vec<Expression>,
    /// Of CUDA: the threads of a block, along up to three dims: `[16, 16]`.
    #[serde(default)]
    pub block: Vec<Expression>,
    /// Of CUDA: bytes of shared memory of a block, beside those that the kernel declares.
    pub shared: Option<Expression>,
    /// Of CUDA: what the kernel gets, in its order: names of ports, and numbers with their types:
    /// `[x, y, { i32: h * w }, { f32: 0.5 }]`.
    #[serde(default)]
    pub arguments: Vec<KernelArgument>,
    /// Of CUDA C: macros, numbers or computed from the names: `{ RADIUS: 3 }`.
    #[serde(default)]
    pub defines: BTreeMap<String, KernelNumber>,
    /// Of WGSL: values of the shader's `override` constants, numbers or computed from the names:
    /// `{ GAIN: 0.5, WIDTH: w }`.
    #[serde(default)]
    pub constants: BTreeMap<String, KernelNumber>,
    /// Outputs that begin as a copy of an input instead of zeros: `{ y: x }`. A shader reads and
    /// writes `y`, and has no variable `x`.
    #[serde(default)]
    pub in_place: BTreeMap<String, String>,
    /// The longest time that a call may take, from the end of the previous call on the device (on
    /// `cuda`, from when the call is enqueued); 120 s by default and at most. If a call takes
    /// longer, the node abandons the call and the device is lost. The limit is for programs that do
    /// not end: a call that ends a little late may pass. The worker checks the limit between turns.
    /// While another node's call waits for the device, the limit is not checked.
    pub time_limit: Option<Span>,
    /// Whether the program may run; the command line must say so, too.
    #[serde(default)]
    pub allow_kernels: bool,
    /// A recorded case: an `.npz` with arrays named as the ports, run while planning.
    pub verify: Option<String>,
    /// How far a number may be from the recorded one; 1e-5 by default.
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
    /// A number that is passed by value.
    Number(ArgumentNumber),
}

/// A number with its type.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentNumber {
    /// A whole number of 32 bits.
    I32(KernelNumber),
    /// One that is not negative.
    U32(KernelNumber),
    /// A whole number of 64 bits.
    I64(KernelNumber),
    /// One that is not negative.
    U64(KernelNumber),
    /// A number of 32 bits.
    F32(KernelNumber),
    /// A number of 64 bits.
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
        let narrow = |why: &str, number: i128| format!("{number} does not fit {why}");
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
#[serde(untagged, expecting = "expected a number, or an expression of whole ones such as `ceil_div(h * w, 64)`")]
pub enum KernelNumber {
    /// A number that is written out.
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
            KernelNumber::Number(number) => Err(format!("{number} is not a whole number")),
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
    /// The type of its elements: `f32` or `i32`; of CUDA, also `u8`.
    pub dtype: DType,
    /// Its dims.
    pub shape: Vec<Expression>,
}
