//! One layer: its config, its weights, and its arithmetic.

use crate::array::Weights;
use crate::base::Access;
use crate::weights::WeightConfig;
use limen::Folders;
use limen::files::remote_scheme;
use limen::message::DType;
use limen::node::PlanErrors;
use schemars::JsonSchema;
use serde::Deserialize;

/// Multiplies the last dim of `f32[..., k]` by a matrix of shape `[n, k]`, adds a bias and applies
/// an activation.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct LayerConfig {
    /// The matrix, `[n, k]`, of any element type. limen widens 4-bit and FP8 weights to `f32`.
    /// Weights that `quantize` converts to 8 bits also use 8 bits in memory.
    pub weight: WeightConfig,
    /// The bias, `[n]`. By default, the layer has no bias.
    pub bias: Option<WeightConfig>,
    /// The activation, applied to each sum `x`. Default: `none`.
    #[serde(default)]
    pub activation: Activation,
}

/// The activation of a layer, applied to each sum `x`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`, unchanged.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// A layer with its weights.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) inputs: usize,
    pub(super) matrix: Matrix,
    pub(super) bias: Vec<f32>,
    pub(super) activation: Activation,
    /// For `--plan`: what was widened.
    pub(super) notes: Vec<String>,
}

/// The rows of a layer's matrix, concatenated.
#[derive(Debug)]
pub(super) enum Matrix {
    F32(Vec<f32>),
    /// Each row has a scale and a zero point.
    I8(Vec<i8>, Vec<(f32, i32)>),
    U8(Vec<u8>, Vec<(f32, i32)>),
}

/// A layer for a device: its matrix and its bias as `f32`.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseLayer {
    /// The numbers of an input row.
    pub inputs: usize,
    /// The rows of the matrix, one for each output.
    pub matrix: Vec<f32>,
    /// A number for each output.
    pub bias: Vec<f32>,
    /// What is applied to each sum.
    pub activation: Activation,
}

fn floats(weights: &Weights) -> Vec<f32> {
    Access::for_dtype(weights.dtype).values(&weights.bytes).map(|value| value as f32).collect()
}

impl Layer {
    pub(super) fn load(
        config: &LayerConfig,
        prefix: &str,
        folders: &Folders,
        errors: &mut PlanErrors,
    ) -> Option<Layer> {
        let mut load = |field: &str, config: &WeightConfig| match config.load(folders) {
            Ok(weights) => Some(weights),
            Err((inner, why)) => {
                let unfetched = remote_scheme(&config.file).and_then(|_| folders.open(&config.file).err());
                let place = format!("{prefix}{field}.{inner}");
                match unfetched {
                    Some(error) => _ = errors.at(place, error.to_string()).help(error.help()),
                    None => _ = errors.at(place, why),
                }
                None
            }
        };
        let weight = load("weight", &config.weight);
        let bias = config.bias.as_ref().map(|bias| load("bias", bias));
        let weight = weight?;
        let widened = [("weight", Some(&weight)), ("bias", bias.as_ref().and_then(|bias| bias.as_ref()))];
        let widened = widened.into_iter().filter_map(|(field, weights)| Some((field, weights?.widened.as_ref()?)));
        let notes = widened.map(|(field, from)| format!("{prefix}{field}: widened to f32 from {from}")).collect();
        let &[rows, inputs] = &weight.shape[..] else {
            let message =
                format!("`{prefix}weight` must be a matrix of two dims, got {}{:?}", weight.dtype, weight.shape);
            errors.at(format!("{prefix}weight"), message).help("write `transform: [{ reshape: [n, k] }]`");
            return None;
        };
        if rows == 0 || inputs == 0 {
            let message =
                format!("`{prefix}weight` must have at least 1 row and 1 column, got the shape {:?}", weight.shape);
            errors.at(format!("{prefix}weight"), message).help("name a tensor with elements");
            return None;
        }
        let bias = match bias {
            None => vec![0.0; rows],
            Some(bias) => {
                let bias = bias?;
                if bias.shape != [rows] || bias.quantized.is_some() {
                    let found = format!("{}{:?}", bias.dtype, bias.shape);
                    let message = format!(
                        "`{prefix}bias` must have the shape [{rows}] (a number for each row of `weight`), got {found}"
                    );
                    let error = errors.at(format!("{prefix}bias"), message);
                    if bias.shape == [inputs] {
                        error.help(
                            "write `transform: [{ transpose: [1, 0] }]` in `weight`, whose rows must be the outputs",
                        );
                    }
                    return None;
                }
                floats(&bias)
            }
        };
        let matrix = match &weight.quantized {
            None => Matrix::F32(floats(&weight)),
            Some(quantized) => {
                let rows = std::iter::zip(quantized.scales.iter().copied(), quantized.zeros.iter().copied()).collect();
                match weight.dtype {
                    DType::I8 => Matrix::I8(bytemuck::cast_slice(&weight.bytes).to_vec(), rows),
                    _ => Matrix::U8(weight.bytes.clone(), rows),
                }
            }
        };
        Some(Layer { inputs, matrix, bias, activation: config.activation, notes })
    }

    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// The layer with a matrix of `f32`: 8-bit integers are widened.
    pub(super) fn dense(&self) -> DenseLayer {
        fn widened<T: Copy + Into<f32>>(matrix: &[T], rows: &[(f32, i32)], inputs: usize) -> Vec<f32> {
            let rows = matrix.chunks_exact(inputs).zip(rows);
            rows.flat_map(|(row, (scale, zero))| row.iter().map(move |w| scale * ((*w).into() - *zero as f32)))
                .collect()
        }
        let matrix = match &self.matrix {
            Matrix::F32(matrix) => matrix.clone(),
            Matrix::I8(matrix, rows) => widened(matrix, rows, self.inputs),
            Matrix::U8(matrix, rows) => widened(matrix, rows, self.inputs),
        };
        DenseLayer { inputs: self.inputs, matrix, bias: self.bias.clone(), activation: self.activation }
    }

    /// Computes one row of outputs from one row of inputs.
    pub(super) fn run(&self, input: &[f32], output: &mut [f32]) {
        match &self.matrix {
            Matrix::F32(rows) => {
                for ((row, bias), out) in rows.chunks_exact(self.inputs).zip(&self.bias).zip(&mut *output) {
                    *out = dot(row, input, |w| *w) + bias;
                }
            }
            Matrix::I8(rows, scales) => self.quantized(rows, scales, input, output, |w| f32::from(*w)),
            Matrix::U8(rows, scales) => self.quantized(rows, scales, input, output, |w| f32::from(*w)),
        }
        match self.activation {
            Activation::None => {}
            Activation::Relu => output.iter_mut().for_each(|v| *v = v.max(0.0)),
            Activation::Sigmoid => output.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
            Activation::Tanh => output.iter_mut().for_each(|v| *v = v.tanh()),
        }
    }

    fn quantized<T>(
        &self,
        rows: &[T],
        scales: &[(f32, i32)],
        input: &[f32],
        output: &mut [f32],
        number: impl Fn(&T) -> f32 + Copy,
    ) {
        // Σ (w - zero) x = Σ w x - zero Σ x: the zero point is subtracted once per row.
        let sum: f32 = if scales.iter().any(|(_, zero)| *zero != 0) { input.iter().sum() } else { 0.0 };
        let rows = rows.chunks_exact(self.inputs).zip(scales);
        for (((row, (scale, zero)), bias), out) in rows.zip(&self.bias).zip(output) {
            *out = scale * (dot(row, input, number) - *zero as f32 * sum) + bias;
        }
    }
}

/// Sums in sixteen lanes, so that the compiler can vectorize; the order of additions is always the
/// same.
fn dot<T>(row: &[T], input: &[f32], number: impl Fn(&T) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (rows, inputs) = (row.chunks_exact(LANES), input.chunks_exact(LANES));
    let rest: f32 = std::iter::zip(rows.remainder(), inputs.remainder()).map(|(w, x)| number(w) * x).sum();
    for (row, input) in rows.zip(inputs) {
        for lane in 0..LANES {
            sums[lane] += number(&row[lane]) * input[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
