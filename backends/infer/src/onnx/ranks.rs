//! The ranks of a graph's tensors: those that the file declares, and those that follow from its
//! operators.

use super::node_shapes::{BROADCASTING, SHAPE_PRESERVING};
use super::wire;
use std::collections::HashMap;

/// Operators whose first output has the rank of their first input, besides those that keep its
/// shape.
const RANK_PRESERVING: &str = "\
    AveragePool Concat Conv ConvInteger ConvTranspose GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization LRN \
    LpPool MaxPool MeanVarianceNormalization Pad QLinearConv Resize ReverseSequence Slice Split Tile TopK Upsample";

/// Operators that keep the rank unless `keepdims` is 0.
const REDUCING: &str = "\
    ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum \
    ReduceSumSquare";

/// What is known of the tensors of a graph.
struct Ranks<'a> {
    ranks: HashMap<&'a str, usize>,
    /// The lengths of constants with one dim.
    lengths: HashMap<&'a str, usize>,
}

/// Returns the ranks of the tensors of a graph, whose nodes run in this order.
pub(super) fn ranks<'a>(graph: &'a wire::Graph, order: &[usize]) -> HashMap<&'a str, usize> {
    let mut known = Ranks { ranks: HashMap::new(), lengths: HashMap::new() };
    for value in graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info) {
        let shape = value.kind.as_ref().and_then(|kind| kind.tensor.as_ref()).and_then(|tensor| tensor.shape.as_ref());
        if let Some(shape) = shape {
            known.ranks.insert(&value.name, shape.dims.len());
        }
    }
    graph.initializers.iter().for_each(|tensor| known.constant(&tensor.name, tensor));
    for node in order.iter().filter_map(|at| graph.nodes.get(*at)) {
        let Some(output) = node.outputs.first().filter(|output| !output.is_empty()) else { continue };
        let constant = node.attributes.iter().find_map(|a| a.tensor.as_ref().filter(|_| a.name == "value"));
        match constant.filter(|_| node.op == "Constant") {
            Some(tensor) => known.constant(output, tensor),
            None => {
                if let Some(rank) = known.of_output(node) {
                    known.ranks.entry(output).or_insert(rank);
                }
            }
        }
    }
    // What is declared of the last tensor may be all that is known of those before it.
    for node in order.iter().rev().filter_map(|at| graph.nodes.get(*at)).filter(|node| keeps_rank(node)) {
        if let (Some(input), Some(rank)) = (node.inputs.first(), node.outputs.first().and_then(|o| known.rank(o))) {
            known.ranks.entry(input).or_insert(rank);
        }
    }
    known.ranks
}

fn is_in(list: &str, node: &wire::Node) -> bool {
    matches!(&*node.domain, "" | "ai.onnx") && list.split_whitespace().any(|op| op == node.op)
}

/// Whether its first output has the rank of its first input.
fn keeps_rank(node: &wire::Node) -> bool {
    is_in(SHAPE_PRESERVING, node)
        || is_in(RANK_PRESERVING, node)
        || is_in(REDUCING, node) && find(node, "keepdims").and_then(wire::Attribute::integer) != Some(0)
}

fn find<'n>(node: &'n wire::Node, attribute: &str) -> Option<&'n wire::Attribute> {
    node.attributes.iter().find(|a| a.name == attribute)
}

impl<'a> Ranks<'a> {
    fn constant(&mut self, name: &'a str, tensor: &wire::Tensor) {
        self.ranks.insert(name, tensor.dims.len());
        if let [length] = tensor.dims[..] {
            self.lengths.insert(name, usize::try_from(length).unwrap_or(0));
        }
    }

    fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.get(name).copied()
    }

    /// Returns the rank of the first output of a node.
    fn of_output(&self, node: &wire::Node) -> Option<usize> {
        let of = |at: usize| self.rank(node.inputs.get(at)?);
        // The length of a list that is a constant input, or an attribute in older operator sets.
        let listed = |at: usize, attribute: &str| match node.inputs.get(at) {
            Some(input) => self.lengths.get(input.as_str()).copied(),
            None => find(node, attribute).map(|a| a.ints.len()),
        };
        if keeps_rank(node) {
            return of(0);
        }
        if is_in(BROADCASTING, node) {
            return (0..node.inputs.len()).map(of).try_fold(0, |most, rank| Some(most.max(rank?)));
        }
        if !matches!(&*node.domain, "" | "ai.onnx") {
            return None;
        }
        match node.op.as_str() {
            "Transpose" => find(node, "perm").map(|perm| perm.ints.len()).or_else(|| of(0)),
            "Reshape" => listed(1, "shape"),
            "ConstantOfShape" => listed(0, ""),
            "Expand" => Some(of(0)?.max(listed(1, "")?)),
            "Unsqueeze" => of(0)?.checked_add(listed(1, "axes")?),
            "Squeeze" => of(0)?.checked_sub(listed(1, "axes")?),
            "Gather" => (of(0)? + of(1)?).checked_sub(1),
            "MatMul" | "MatMulInteger" => match (of(0)?, of(1)?) {
                (0, _) | (_, 0) => None,
                (1, second) => Some(second - 1),
                (first, 1) => Some(first - 1),
                (first, second) => Some(first.max(second)),
            },
            "Flatten" | "Gemm" => Some(2),
            "Shape" | "NonMaxSuppression" | "Range" | "Size" => Some(match node.op.as_str() {
                "Size" => 0,
                "NonMaxSuppression" => 2,
                _ => 1,
            }),
            "GRU" | "LSTM" | "RNN" => Some(4),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::order;
    use crate::onnx::test_models::{floats, ints, model_of_opset};
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn ranks_follow_from_operators() {
        let weights = [floats("w", &[2, 2], &[0.0; 4]), floats("v", &[2], &[0.0; 2]), ints("three", &[0, 0, 0])];
        for (opset, nodes, expected) in [
            (11, &["a = Relu x"][..], Some(3)),
            (11, &["b = MatMul x w", "c = Add b v", "a = Softmax c"], Some(3)),
            (11, &["a = MatMul x v"], Some(2)),
            (11, &["b = Transpose u perm=2,0,3,1,4", "c = Squeeze b axes=0", "a = Transpose c"], Some(4)),
            (13, &["b = Unsqueeze x v", "a = Mul b v"], Some(5)),
            (13, &["a = Unsqueeze x u"], None),
            (11, &["a = Reshape u three"], Some(3)),
            (11, &["a = Reshape u x"], None),
            (11, &["a = ReduceMean x axes=0"], Some(3)),
            (11, &["a = ReduceMean x axes=0 keepdims==0"], None),
            (11, &["b = Constant value_int==1", "a = Add u b"], None),
            // Known only from the output of the model.
            (11, &["a = Softmax u", "y = Identity a"], Some(2)),
            (11, &["a = Add u u", "y = Identity a"], Some(2)),
        ] {
            let last = ["y = Unknown a"];
            let ends = nodes.iter().any(|node| node.starts_with("y ="));
            let nodes: Vec<&str> = nodes.iter().chain(if ends { &[][..] } else { &last }).copied().collect();
            let (x, y) = (("x", D::FLOAT, &["n", "2", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
            let file = model_of_opset(opset, &[x], &[y], &weights, &nodes);
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            assert_eq!(ranks(&graph, &order(&graph).unwrap_or_default()).get("a").copied(), expected, "{nodes:?}");
        }
    }
}
