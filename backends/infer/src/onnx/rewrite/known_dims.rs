//! The declared dims of the tensors of a graph, as far as its file says them without being run.

use super::wire;
use std::collections::HashMap;

/// Nodes whose output has the shape of their first input: quantized weights are made so.
const SAME_SHAPE: [&str; 4] = ["Identity", "Cast", "QuantizeLinear", "DequantizeLinear"];
/// The most of them in a row.
const MAX_CHAIN: usize = 8;

/// The dims of the tensors of a graph.
pub(super) struct KnownDims<'a> {
    weights: HashMap<&'a str, &'a wire::Tensor>,
    makers: HashMap<&'a str, &'a wire::Node>,
    values: HashMap<&'a str, &'a wire::ValueInfo>,
}

impl<'a> KnownDims<'a> {
    pub(super) fn of(graph: &'a wire::Graph) -> Self {
        let outputs = graph.nodes.iter().flat_map(|node| node.outputs.iter().map(move |output| (&**output, node)));
        let values = graph.inputs.iter().chain(&graph.value_info);
        KnownDims {
            weights: graph.initializers.iter().map(|tensor| (&*tensor.name, tensor)).collect(),
            makers: outputs.collect(),
            values: values.map(|value| (&*value.name, value)).collect(),
        }
    }

    /// Returns the dims of a tensor, with those that are open; `None` if even their number is not
    /// known.
    pub(super) fn get(&self, name: &str) -> Option<Vec<Option<i64>>> {
        let fixed = |tensor: &wire::Tensor| tensor.dims.iter().copied().map(Some).collect();
        let mut name = name;
        for _ in 0..MAX_CHAIN {
            if let Some(tensor) = self.weights.get(name) {
                return Some(fixed(tensor));
            }
            match self.makers.get(name) {
                Some(node) if node.op == "Constant" => {
                    let value = node.attributes.iter().find(|attribute| attribute.name == "value")?;
                    return value.tensor.as_ref().map(fixed);
                }
                Some(node) if SAME_SHAPE.contains(&&*node.op) => name = node.inputs.first()?,
                _ => break,
            }
        }
        let kind = self.values.get(name)?.kind.as_ref()?;
        let shape = kind.tensor.as_ref()?.shape.as_ref()?;
        Some(shape.dims.iter().map(|dim| dim.length).collect())
    }
}
