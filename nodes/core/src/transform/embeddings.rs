//! One vector from the vectors of all tokens.

use crate::tensor::{cost, shape};
use limen::Tensor;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Combines the token vectors of a model, `f32[tokens,d]`, into one vector `f32[d]`.
///
/// If the input is a single vector `f32[d]`, the node normalizes the vector without combining.
///
/// The optional input `mask` has the shape `[tokens]` and any integer type. The node ignores each
/// token with a mask element of 0. If the mask excludes all tokens, the result is 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct EmbeddingsConfig {
    /// How the node combines the tokens. Default: `mean`.
    #[serde(default)]
    pub pool: Pooling,
    /// Whether the node scales the result to length 1 (L2 norm). The node does not change a result
    /// of length 0. Default: `true`.
    #[serde(default = "yes")]
    pub normalize: bool,
}

fn yes() -> bool {
    true
}

/// How the vectors of tokens are combined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// Mean of each element.
    #[default]
    Mean,
    /// Vector of the first token. Many models add a first token that represents the whole input.
    Cls,
    /// Maximum of each element. The node ignores NaN.
    Max,
}

/// Runs `kind: embeddings`; [`EmbeddingsConfig`] says what it does.
#[derive(Debug)]
pub struct Embeddings {
    pool: Pooling,
    normalize: bool,
    /// The sums of all tokens, for a mean.
    sums: Vec<f64>,
}

/// Combines vectors into `into`.
fn combine<'a>(pool: Pooling, mut tokens: impl Iterator<Item = &'a [f32]>, sums: &mut Vec<f64>, into: &mut [f32]) {
    let Some(first) = tokens.next() else { return into.fill(0.0) };
    into.copy_from_slice(first);
    match pool {
        Pooling::Cls => {}
        Pooling::Max => {
            tokens.for_each(|token| into.iter_mut().zip(token).for_each(|(to, value)| *to = to.max(*value)));
        }
        Pooling::Mean => {
            sums.clear();
            sums.extend(first.iter().map(|value| f64::from(*value)));
            let mut n = 1.0;
            for token in tokens {
                sums.iter_mut().zip(token).for_each(|(sum, value)| *sum += f64::from(*value));
                n += 1.0;
            }
            into.iter_mut().zip(sums).for_each(|(to, sum)| *to = (*sum / n) as f32);
        }
    }
}

/// Divides a vector by its length, unless that is 0.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

impl Embeddings {
    fn embed(&mut self, input: &Tensor, mask: Option<&Tensor>, into: &mut [f32]) -> Result<(), NodeError> {
        let tokens = input.as_slice::<f32>()?.chunks_exact(into.len().max(1));
        match mask {
            None => combine(self.pool, tokens, &mut self.sums, into),
            Some(mask) => {
                let (marks, n) = (mask.bytes().chunks_exact(mask.dtype().size()), tokens.len());
                if marks.len() != n {
                    let why = format!("expected {n} elements, one per token, found {}", marks.len());
                    return Err(NodeError::input("mask", why));
                }
                let counted = tokens.zip(marks).filter(|(_, mark)| mark.iter().any(|byte| *byte != 0));
                combine(self.pool, counted.map(|(token, _)| token), &mut self.sums, into);
            }
        }
        if self.normalize {
            normalize(into);
        }
        Ok(())
    }
}

fn is_integer(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

impl Node for Embeddings {
    type Config = EmbeddingsConfig;

    fn ports(config: &EmbeddingsConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut ports = Ports::new().cost(Cost::Medium);
        let (mut tokens, mut vector) = (None, None);
        ports = match given.input("in") {
            Some(spec) => {
                match &spec.shape[..] {
                    [d @ Dim::Fixed(_)] => vector = Some(d.clone()),
                    [n, d @ Dim::Fixed(_)] => (tokens, vector) = (Some(n.clone()), Some(d.clone())),
                    _ => {
                        let message = format!("expected vectors of a fixed length, found {spec}");
                        errors.input("in", message).help("connect f32[tokens,d] or f32[d]");
                    }
                }
                ports
                    .cost(cost::of_spec(Some(spec)).max(Cost::Medium))
                    .input("in", PortSpec::new(DType::F32, spec.shape.iter().cloned()))
            }
            None => ports.input_any("in"),
        };
        if given.inputs().any(|(name, _)| name == "mask") {
            ports = match (given.input("mask"), &vector, tokens) {
                (Some(_), Some(_), None) => {
                    errors
                        .input("mask", "expected several tokens for `mask`, found a single vector")
                        .help("remove the input `mask`");
                    ports.input_any("mask")
                }
                (Some(mask), _, tokens) => {
                    if !is_integer(mask.dtype) {
                        let message = format!("expected integers for `mask`, found {mask}");
                        errors.input("mask", message).help("add a `cast` node with `dtype: i64` upstream");
                    }
                    let tokens = tokens.unwrap_or_else(|| Dim::Symbol("tokens".into()));
                    ports.input("mask", PortSpec::new(mask.dtype, [tokens]))
                }
                (None, ..) => ports.input_any("mask"),
            };
        }
        let length = vector.as_ref().filter(|_| config.pool == Pooling::Mean).and_then(Dim::max).unwrap_or(0);
        let ports = ports.memory(length.saturating_mul(size_of::<f64>()));
        errors.into_result(shape::gives(ports, vector.map(|d| PortSpec::new(DType::F32, [d]))))
    }

    fn build(config: EmbeddingsConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let length = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.max_elements());
        let sums = Vec::with_capacity(if config.pool == Pooling::Mean { length.unwrap_or(0) } else { 0 });
        Ok(Embeddings { pool: config.pool, normalize: config.normalize, sums })
    }
}

impl Transform for Embeddings {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let mut vector = out.loan(header)?;
        self.embed(&input[0].body, input.get(1).map(|mask| &mask.body), vector.as_mut_slice()?)?;
        out.send(vector);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected vectors are those of NumPy: `v.mean(0)`, `v.max(0)`, `v[0]` of the counted
    /// tokens, divided by `linalg.norm`.
    #[test]
    fn the_vectors_of_counted_tokens_are_combined() {
        let values: Vec<f32> = (0..15).map(|i| ((i * i * 37 + i * 11 + 5) % 1000) as f32 / 1000.0 - 0.5).collect();
        let (all, some, none) = ([true; 5], [false, true, true, false, true], [false; 5]);
        for (pool, counted, is_normalized, expected) in [
            (Pooling::Mean, all, false, [-0.231, 0.061, 0.027]),
            (Pooling::Mean, all, true, [-0.9607419, 0.25370237, 0.11229453]),
            (Pooling::Mean, some, false, [-0.087, 0.14566664, 0.119]),
            (Pooling::Mean, some, true, [-0.4198014, 0.70288575, 0.5742111]),
            (Pooling::Cls, all, false, [-0.495, -0.447, -0.325]),
            (Pooling::Cls, all, true, [-0.6671795, -0.60248333, -0.43804714]),
            (Pooling::Cls, some, false, [-0.129, 0.141, 0.485]),
            (Pooling::Max, all, false, [-0.035, 0.395, 0.485]),
            (Pooling::Max, some, false, [-0.035, 0.395, 0.485]),
            (Pooling::Mean, none, true, [0.0; 3]),
            (Pooling::Max, none, true, [0.0; 3]),
        ] {
            let tokens = values.chunks_exact(3).zip(counted).filter(|(_, counts)| *counts).map(|(token, _)| token);
            let mut vector = [9.0; 3];
            combine(pool, tokens, &mut Vec::new(), &mut vector);
            if is_normalized {
                normalize(&mut vector);
            }
            assert!(vector.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pool:?} {counted:?}: {vector:?}");
        }
    }

    #[test]
    fn the_mean_of_the_greatest_numbers_is_finite() {
        for (tokens, expected) in
            [(&[[3e38], [3e38]][..], 3e38), (&[[f32::MAX]; 3], f32::MAX), (&[[3e38], [-3e38]], 0.0)]
        {
            let (mut sums, mut mean) = (Vec::new(), [9.0]);
            combine(Pooling::Mean, tokens.iter().map(|token| &token[..]), &mut sums, &mut mean);
            assert_eq!(mean, [expected], "{tokens:?}");
        }
    }

    #[test]
    fn extreme_vectors_are_normalized_too() {
        for (mut vector, expected) in
            [([3e38, 3e38], [0.5f32.sqrt(); 2]), ([0.0; 2], [0.0; 2]), ([0.0, -1e-40], [0.0, -1.0])]
        {
            normalize(&mut vector);
            assert!(vector.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{vector:?}");
        }
    }
}
