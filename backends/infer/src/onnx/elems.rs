//! The element types of a graph's tensors: those that follow from its operators, and those that the
//! file declares.

use super::node::{graphs_of, order};
use super::node_shapes::find;
use super::wire;
use std::collections::BTreeMap;

pub(super) const FLOAT: i32 = 1;
const UINT8: i32 = 2;
pub(super) const INT32: i32 = 6;
pub(super) const INT64: i32 = 7;
pub(super) const BOOL: i32 = 9;

/// Operators whose output is a bool.
const LOGICAL: &str = "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor";

/// Operators whose output is an `int64`.
const COUNTING: &str = "ArgMax ArgMin NonMaxSuppression NonZero Shape Size";

/// Operators whose output has a type that their first input does not tell.
const OTHERWISE: &str = "\
    Bernoulli BlackmanWindow HammingWindow HannWindow ImageDecoder MelWeightMatrix Multinomial QLinearConv QLinearMatMul \
    RandomNormal RandomUniform Scan StringSplit TfIdfVectorizer";

/// The element types of the tensors of a graph, as ONNX numbers them, and those of the graphs
/// around it.
pub(super) struct Elems<'a> {
    known: BTreeMap<&'a str, i32>,
    outer: Option<&'a Elems<'a>>,
}

impl<'a> Elems<'a> {
    /// Returns the types of the tensors of a graph, whose nodes run in this order.
    pub(super) fn of(graph: &'a wire::Graph, order: &[usize], outer: Option<&'a Elems<'a>>) -> Self {
        let mut elems = Elems { known: BTreeMap::new(), outer };
        for value in graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info) {
            if let Some(tensor) = value.kind.as_ref().and_then(|kind| kind.tensor.as_ref()) {
                elems.known.insert(&value.name, tensor.elem);
            }
        }
        elems.known.extend(graph.initializers.iter().map(|tensor| (tensor.name.as_str(), tensor.elem)));
        for node in order.iter().filter_map(|at| graph.nodes.get(*at)) {
            for (at, output) in node.outputs.iter().enumerate().filter(|(_, output)| !output.is_empty()) {
                if let Some(elem) = elems.of_output(node, at) {
                    elems.known.insert(output, elem);
                }
            }
        }
        elems
    }

    /// Returns the type of a tensor, if it is known.
    pub(super) fn get(&self, name: &str) -> Option<i32> {
        self.known.get(name).copied().or_else(|| self.outer?.get(name))
    }

    fn of_output(&self, node: &wire::Node, output: usize) -> Option<i32> {
        let of = |at: usize| self.get(node.inputs.get(at).filter(|input| !input.is_empty())?);
        let int =
            |name: &str| find(node, name).and_then(wire::Attribute::integer).and_then(|int| i32::try_from(int).ok());
        let is_in = |list: &str| list.split_whitespace().any(|op| op == node.op);
        if !matches!(&*node.domain, "" | "ai.onnx") || is_in(OTHERWISE) {
            return None;
        }
        match (node.op.as_str(), output) {
            (_, 0) if is_in(LOGICAL) => Some(BOOL),
            (_, 0) if is_in(COUNTING) => Some(INT64),
            ("MatMulInteger" | "ConvInteger", _) => Some(INT32),
            ("Cast" | "BitCast", _) => int("to"),
            ("Constant", _) => node.attributes.iter().find_map(|a| match &*a.name {
                "value" => Some(a.tensor.as_ref()?.elem),
                "value_int" | "value_ints" => Some(INT64),
                "value_float" | "value_floats" => Some(FLOAT),
                _ => None,
            }),
            ("ConstantOfShape", _) => {
                Some(find(node, "value").and_then(|a| a.tensor.as_ref()).map_or(FLOAT, |value| value.elem))
            }
            ("CastLike" | "DequantizeLinear", _) => of(1),
            ("Where", _) => of(1).or_else(|| of(2)),
            ("OneHot", _) => of(2),
            ("QuantizeLinear", _) => of(2).or_else(|| int("output_dtype").filter(|to| *to != 0)).or(Some(UINT8)),
            ("DynamicQuantizeLinear", at) => Some(if at == 1 { FLOAT } else { UINT8 }),
            ("EyeLike" | "RandomNormalLike" | "RandomUniformLike", _) => int("dtype").or_else(|| of(0)),
            ("TopK" | "MaxPool" | "Unique", 1..) => Some(INT64),
            ("Dropout", 1) => Some(BOOL),
            ("If" | "Loop", at) => {
                // The first output of a body says whether the loop goes on.
                let body = graphs_of(node).next()?;
                let output = body.outputs.get(at + usize::from(node.op == "Loop"))?;
                Elems::of(body, &order(body).ok()?, Some(self)).get(&output.name)
            }
            _ => (0..node.inputs.len()).find_map(of),
        }
    }
}

/// Returns the types of the tensors of a graph and its subgraphs; 0 for a name that has several.
#[cfg_attr(not(feature = "rten"), allow(dead_code))]
pub(super) fn elems_everywhere(graph: &wire::Graph) -> BTreeMap<String, i32> {
    fn collect(graph: &wire::Graph, outer: Option<&Elems<'_>>, all: &mut BTreeMap<String, i32>) {
        let elems = Elems::of(graph, &order(graph).unwrap_or_default(), outer);
        for (name, elem) in &elems.known {
            let elem = if all.get(*name).is_some_and(|other| other != elem) { 0 } else { *elem };
            all.insert(name.to_string(), elem);
        }
        graph.nodes.iter().flat_map(graphs_of).for_each(|inner| collect(inner, Some(&elems), all));
    }
    let mut all = BTreeMap::new();
    collect(graph, None, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{ints, model};
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn types_follow_from_operators() {
        let (x, l) = (("x", D::FLOAT, &["n", "2"][..]), ("l", D::INT64, &["n"][..]));
        for (nodes, expected) in [
            (&["a = Relu x"][..], Some(FLOAT)),
            (&["a = Cast x to==7"], Some(INT64)),
            (&["a = Greater x x"], Some(BOOL)),
            (&["b = Shape x", "a = Gather b w"], Some(INT64)),
            (&["b = Cast x to==11", "c = Mul b b", "a = Transpose c"], Some(11)),
            (&["b = IsNaN x", "a = Where b l l"], Some(INT64)),
            (&["b = Constant value_int==7", "a = CastLike x b"], Some(INT64)),
            (&["a = MatMulInteger x x"], Some(INT32)),
            (&["a = Add w l"], Some(INT64)),
            (&["a = Multinomial x"], None),
        ] {
            let file = model(&[x, l], &[("y", D::FLOAT, &["n"])], &[ints("w", &[1])], nodes);
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            let order = order(&graph).unwrap_or_default();
            assert_eq!(Elems::of(&graph, &order, None).get("a"), expected, "{nodes:?}");
        }
    }
}
