//! The kinds `linear` and `mlp`: layers that need weights and no model file.

use super::layer::{DenseLayer, Layer, LayerConfig};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Folders, Message, Tensor};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// Applies several layers in sequence.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct MlpConfig {
    /// The layers, in order.
    pub layers: Vec<LayerConfig>,
}

/// A config with layers.
pub(crate) trait LayerList {
    /// Returns each layer with the prefix of its fields in errors.
    fn layers(&self) -> Vec<(String, &LayerConfig)>;
}

impl LayerList for LayerConfig {
    fn layers(&self) -> Vec<(String, &LayerConfig)> {
        vec![(String::new(), self)]
    }
}

impl LayerList for MlpConfig {
    fn layers(&self) -> Vec<(String, &LayerConfig)> {
        self.layers.iter().enumerate().map(|(at, layer)| (format!("layers[{at}]."), layer)).collect()
    }
}

/// Loads all layers and checks that the input length of each is the output length of the one
/// before.
fn load(config: &impl LayerList, folders: &Folders) -> Result<Vec<Layer>, PlanErrors> {
    let mut errors = PlanErrors::default();
    let configs = config.layers();
    if configs.is_empty() {
        errors
            .at("layers", "`layers` must have at least 1 layer, got 0")
            .help("write `layers: [{ weight: { file: FILE } }]`");
    }
    let mut layers: Vec<Layer> = Vec::new();
    let mut is_whole = true;
    for (prefix, config) in &configs {
        match Layer::load(config, prefix, folders, &mut errors) {
            Some(layer) => {
                if let Some(before) = layers.last().filter(|before| is_whole && before.outputs() != layer.inputs) {
                    let (gives, takes) = (before.outputs(), layer.inputs);
                    let message = format!(
                        "`{prefix}weight` must have {gives} numbers per row, as the previous layer produces, got {takes}"
                    );
                    errors.at(format!("{prefix}weight"), message);
                }
                is_whole = true;
                layers.push(layer);
            }
            None => is_whole = false,
        }
    }
    errors.into_result(layers)
}

/// The number of weights, those of biases included.
fn count(layers: &[Layer]) -> usize {
    layers.iter().map(|layer| layer.inputs * layer.outputs() + layer.outputs()).sum()
}

/// What the plan says of layers: how many weights they have, and what was widened.
fn notes(layers: &[Layer]) -> Vec<String> {
    let ends = layers.first().zip(layers.last());
    let sizes = ends.map(|(first, last)| format!("{} weights, {} to {}", count(layers), first.inputs, last.outputs()));
    sizes.into_iter().chain(layers.iter().flat_map(|layer| layer.notes.iter().cloned())).collect()
}

/// The config of a node of layers, and the weights loaded while the graph was planned: these are
/// the weights that run.
#[derive(Debug)]
pub struct PlannedLayers<C> {
    config: C,
    layers: Mutex<Option<Vec<Layer>>>,
}

impl<C> PlannedLayers<C> {
    /// Returns the layers that planning loaded, for a device; none before [`Node::ports`].
    #[doc(hidden)]
    pub fn dense(&self) -> Vec<DenseLayer> {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.iter().flatten().map(Layer::dense).collect()
    }

    /// Returns what the plan says of these layers: how many weights they have, and what was
    /// widened.
    #[doc(hidden)]
    pub fn notes(&self) -> Vec<String> {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.as_deref().map(notes).unwrap_or_default()
    }
}

impl<C> From<C> for PlannedLayers<C> {
    fn from(config: C) -> Self {
        PlannedLayers { config, layers: Mutex::default() }
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for PlannedLayers<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        C::deserialize(deserializer).map(PlannedLayers::from)
    }
}

impl<C: JsonSchema> JsonSchema for PlannedLayers<C> {
    fn inline_schema() -> bool {
        C::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        C::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        C::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        C::json_schema(generator)
    }
}

/// A node of layers.
#[derive(Debug)]
pub struct LayersNode<C> {
    layers: Vec<Layer>,
    /// Buffers between one layer and the next.
    between: [Vec<f32>; 2],
    config: std::marker::PhantomData<C>,
}

impl<C> LayersNode<C> {
    fn run(&mut self, input: &[f32], output: &mut [f32]) {
        let [from, to] = &mut self.between;
        let Some((last, first)) = self.layers.split_last() else { return };
        let takes = self.layers.first().map_or(1, |layer| layer.inputs).max(1);
        let rows = input.chunks_exact(takes).zip(output.chunks_exact_mut(last.outputs().max(1)));
        for (input, output) in rows {
            from.clear();
            from.extend_from_slice(input);
            for layer in first {
                to.resize(layer.outputs(), 0.0);
                layer.run(from, to);
                std::mem::swap(from, to);
            }
            last.run(from, output);
        }
    }
}

impl<C> Node for LayersNode<C>
where
    C: LayerList + serde::de::DeserializeOwned + JsonSchema + Send + 'static,
{
    type Config = PlannedLayers<C>;

    fn ports(config: &PlannedLayers<C>, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut kept = config.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let layers = &*kept.insert(load(&config.config, cx.folders)?);
        let mut errors = PlanErrors::default();
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return Err(errors) };
        let spec = given.single().map(|spec| spec.clone().with_dtype(DType::F32));
        let fits = |dim: &Dim| *dim == Dim::Fixed(first.inputs);
        if let Some(spec) = spec.as_ref().filter(|spec| !spec.shape.last().is_some_and(fits)) {
            let takes = first.inputs;
            let message = format!("expected f32[..., {takes}] (rows of {takes} numbers, as the weights), found {spec}");
            let error = errors.input("in", message);
            if layers.len() == 1 && spec.shape.last() == Some(&Dim::Fixed(first.outputs())) {
                error.help("write `transform: [{ transpose: [1, 0] }]` in `weight`, whose rows must be the outputs");
            }
        }
        let out = spec.as_ref().map(|spec| {
            let rows = spec.shape.split_last().map_or(&[][..], |(_, rows)| rows).iter().cloned();
            PortSpec::new(DType::F32, rows.chain([Dim::Fixed(last.outputs())]))
        });
        let ports = match spec {
            Some(mut spec) => {
                spec.layout = None;
                Ports::new().input("in", spec)
            }
            None => Ports::new().input_any("in"),
        };
        let mut ports = ports
            .out_port(OutPort { name: "out".into(), spec: out, emits: 1, rows: 1, forwards: Vec::new() })
            .cost(if count(layers) > 10_000 { Cost::Infer } else { Cost::Medium });
        for note in notes(layers) {
            ports = ports.note(note);
        }
        errors.into_result(ports)
    }

    fn build(config: PlannedLayers<C>, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let PlannedLayers { config, layers } = config;
        let layers = match layers.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(layers) => layers,
            // A node that is rebuilt reads its weights again.
            None => load(&config, cx.folders()).map_err(|errors| {
                let all: Vec<&str> = errors.messages().collect();
                NodeError::input("weights", all.join("; "))
            })?,
        };
        let ends = [
            (cx.inputs(), layers.first().map(|layer| layer.inputs)),
            (cx.outputs(), layers.last().map(Layer::outputs)),
        ];
        for (ports, length) in ends {
            let planned = ports.first().and_then(|(_, spec)| spec.as_ref()?.shape.last());
            if let (Some(Dim::Fixed(planned)), Some(length)) = (planned, length)
                && *planned != length
            {
                let why = format!("changed since planning: expected {planned} numbers per row, found {length}");
                return Err(NodeError::input("weights", why));
            }
        }
        let widest = layers.iter().map(|layer| layer.inputs.max(layer.outputs())).max().unwrap_or(0);
        let between = [Vec::with_capacity(widest), Vec::with_capacity(widest)];
        Ok(LayersNode { layers, between, config: std::marker::PhantomData })
    }
}

impl<C> Transform for LayersNode<C>
where
    C: LayerList + serde::de::DeserializeOwned + JsonSchema + Send + 'static,
{
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut given = out.loan(input.header())?;
        let shape = input.body.shape();
        for (dim, length) in shape.iter().enumerate().take(shape.len().saturating_sub(1)) {
            given.set_len(dim, *length)?;
        }
        self.run(input.body.as_slice()?, given.as_mut_slice()?);
        out.send(given);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::layer::{Activation, Matrix};
    use safetensors::Dtype;

    fn layer(matrix: Matrix, inputs: usize, bias: Vec<f32>, activation: Activation) -> Layer {
        Layer { inputs, matrix, bias, activation, notes: Vec::new() }
    }

    fn run(layers: Vec<Layer>, input: &[f32], outputs: usize) -> Vec<f32> {
        let mut node =
            LayersNode::<LayerConfig> { layers, between: [vec![], vec![]], config: std::marker::PhantomData };
        let mut output = vec![9.0; outputs];
        node.run(input, &mut output);
        output
    }

    #[test]
    fn layers_multiply_add_and_activate() {
        let matrix = || Matrix::F32(vec![1.0, 2.0, -3.0, 0.0, 1.0, 1.0]);
        let none = layer(matrix(), 3, vec![0.5, -10.0], Activation::None);
        assert_eq!(run(vec![none], &[1.0, 1.0, 1.0, 0.0, 2.0, 1.0], 4), [0.5, -8.0, 1.5, -7.0]);
        let relu = layer(matrix(), 3, vec![0.5, -10.0], Activation::Relu);
        let last = layer(Matrix::F32(vec![2.0, 1.0]), 2, vec![1.0], Activation::None);
        assert_eq!(run(vec![relu, last], &[1.0, 1.0, 1.0, 0.0, 2.0, 1.0], 2), [2.0, 4.0]);
        for (activation, expected) in [(Activation::Sigmoid, 0.622_459_3), (Activation::Tanh, 0.462_117_16)] {
            let activated = layer(matrix(), 3, vec![0.5, 0.0], activation);
            assert!((run(vec![activated], &[1.0, 1.0, 1.0], 2)[0] - expected).abs() < 1e-6, "{activation:?}");
        }
    }

    /// Words in which all eight integers are 9, with zero points of 8: every weight is its scale.
    #[test]
    fn layers_of_4_bits_say_in_the_plan_what_was_widened() {
        let folder = tempfile::tempdir().unwrap();
        let words = |word: u32, count| [word.to_le_bytes()].repeat(count).concat();
        let parts = [
            ("l.qweight", Dtype::I32, vec![2, 8], words(0x9999_9999, 16)),
            ("l.qzeros", Dtype::I32, vec![2, 1], words(0x7777_7777, 2)),
            ("l.scales", Dtype::F32, vec![2, 8], words(0.5_f32.to_bits(), 16)),
            ("l.bias", Dtype::F8_E5M2, vec![8], vec![0x3c; 8]),
        ];
        let views = parts.iter().map(|(name, dtype, shape, bytes)| {
            (*name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        std::fs::write(folder.path().join("l.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
        let layer = serde_json::json!({
            "weight": { "file": "l.safetensors", "tensor": "l", "encoding": "gptq" },
            "bias": { "file": "l.safetensors", "tensor": "l.bias" },
        });
        let config: MlpConfig = serde_json::from_value(serde_json::json!({ "layers": [layer] })).unwrap();
        let folders = Folders { graph: folder.path().to_path_buf(), ..Folders::default() };
        let layers = load(&config, &folders).unwrap();
        let notes = [
            "layers[0].weight: widened to f32 from gptq, groups: 2, zero points: 8 to 8",
            "layers[0].bias: widened to f32 from f8_e5m2",
        ];
        assert_eq!(layers[0].notes, notes);
        assert_eq!(run(layers, &[1.0; 16], 8), [9.0; 8]);
    }

    /// Rows of 37 elements cover full lanes of 16 and a remainder.
    #[test]
    fn quantized_rows_compute_with_their_dequantized_values() {
        let input: Vec<f32> = (0..37).map(|i| (i % 7) as f32 - 3.0).collect();
        let q: Vec<i8> = (0..37).map(|i| (i * 5 % 11) as i8 - 5).collect();
        let expected: f32 = std::iter::zip(&input, &q).map(|(x, q)| x * 0.25 * f32::from(*q)).sum();
        let symmetric = layer(Matrix::I8(q.clone(), vec![(0.25, 0)]), 37, vec![0.0], Activation::None);
        assert!((run(vec![symmetric], &input, 1)[0] - expected).abs() < 1e-4);
        let u: Vec<u8> = q.iter().map(|q| (i16::from(*q) + 100) as u8).collect();
        let asymmetric = layer(Matrix::U8(u, vec![(0.25, 100)]), 37, vec![1.0], Activation::None);
        assert!((run(vec![asymmetric], &input, 1)[0] - expected - 1.0).abs() < 1e-3);
    }
}
