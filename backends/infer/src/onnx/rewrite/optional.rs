//! Attributes and inputs that ONNX lets a model leave out, written out for runtimes that expect
//! them; and the names of nodes, which errors of runtimes show.

use super::contents::Op;
use super::edit::{ATTRIBUTE, GRAPH, constant, float, int, ints, replace, replace_graphs, replace_nodes};
use super::known_dims::KnownDims;
use super::wire;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::borrow::Cow;
use std::sync::Arc;

/// The operators of which a part is written out.
const OPTIONAL: [&str; 7] = [
    "LSTM",
    "GRU",
    "RNN",
    "QuantizeLinear",
    "Slice",
    "com.microsoft.SkipLayerNormalization",
    "com.microsoft.SkipSimplifiedLayerNormalization",
];

/// The `data_type` of `u8`.
const U8: i32 = 2;
/// The most elements of a scale.
const MAX_SCALES: i64 = 1 << 16;
/// The `epsilon` of these operators of ONNX Runtime.
const EPSILON: f32 = 1e-12;

/// Returns the file of a model, with what it leaves out written out as runtimes expect it. `ops`
/// are those of the model.
pub(crate) fn with_left_out(file: Arc<Vec<u8>>, ops: &[Op]) -> Arc<Vec<u8>> {
    let file = with_plain_nodes(&file).map_or(file, Arc::new);
    if !ops.iter().any(|op| OPTIONAL.contains(&&*op.id)) {
        return file;
    }
    with_optional_parts(&file).map_or(file, Arc::new)
}

/// Returns the file of a model in which each recurrent node has its `hidden_size`, each
/// `QuantizeLinear` a zero point or a type, each `Slice` with `starts` its `axes`, and the
/// normalizations of ONNX Runtime an `epsilon`; `None` if none lacks its part.
fn with_optional_parts(file: &[u8]) -> Option<Vec<u8>> {
    let graph = wire::Model::decode(file).ok()?.graph?;
    let dims = KnownDims::of(&graph);
    replace_nodes(file, &graph, |node| {
        let attribute = |name: &str| node.attributes.iter().find(|attribute| attribute.name == name);
        let with = |attribute: wire::Attribute| {
            let mut node = node.clone();
            node.attributes.push(attribute);
            Some(vec![node])
        };
        match (&*node.domain, &*node.op) {
            ("" | "ai.onnx", "LSTM" | "GRU" | "RNN") if attribute("hidden_size").is_none() => {
                let recurrence = dims.get(node.inputs.get(2)?)?;
                with(int("hidden_size", recurrence.get(2).copied()??))
            }
            ("" | "ai.onnx", "Slice") if attribute("axes").is_none() => {
                let starts = attribute("starts")?.ints.len() as i64;
                with(ints("axes", &(0..starts).collect::<Vec<_>>()))
            }
            ("" | "ai.onnx", "QuantizeLinear")
                if node.inputs.get(2).is_none_or(String::is_empty)
                    && attribute("output_dtype").is_none_or(|dtype| dtype.int.unwrap_or(0) == 0) =>
            {
                let scale: Option<Vec<i64>> = dims.get(node.inputs.get(1)?)?.into_iter().collect();
                let scale = scale?;
                let elements = scale.iter().try_fold(1i64, |n, dim| n.checked_mul(*dim))?;
                let elements = usize::try_from(elements).ok().filter(|_| elements <= MAX_SCALES)?;
                let raw = Some(vec![0; elements].into());
                let zero = wire::Tensor { dims: scale, elem: U8, raw, ..wire::Tensor::default() };
                let name = format!("{}/zero_point", node.outputs.first()?);
                let mut node = node.clone();
                node.inputs.truncate(2);
                node.inputs.push(name.clone());
                Some(vec![constant(&name, zero), node])
            }
            ("com.microsoft", "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization")
                if attribute("epsilon").is_none() =>
            {
                with(float("epsilon", EPSILON))
            }
            _ => None,
        }
    })
}

/// The field numbers of `onnx.proto`.
const NODE: u32 = 1;
const INPUT: u32 = 1;
const OUTPUT: u32 = 2;
const NAME: u32 = 3;

/// The names of a node, its inputs, its outputs and its operator.
#[derive(Clone, PartialEq, prost::Message)]
struct Names {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    outputs: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    op: String,
}

/// The operators with subgraphs.
const NESTING: [&str; 3] = ["If", "Loop", "Scan"];
/// The operators that compute something else, or nothing, with fewer outputs.
const COUNTING: [&str; 6] = ["If", "Loop", "Scan", "Split", "TopK", "Unique"];

/// Returns the file of a model in which each node without a name of its own has that of its first
/// output with its operator, and no node has inputs or outputs left out at its end; `None` if that
/// is so. rten drops the name of a node that is also that of a tensor; tract counts what is left
/// out, and ONNX Runtime may read it. An operator that needs all its outputs has names for them.
fn with_plain_nodes(file: &[u8]) -> Option<Vec<u8>> {
    replace(file, GRAPH, |graph| Some(vec![plain(graph)?]))
}

/// The same for a graph.
fn plain(graph: &[u8]) -> Option<Vec<u8>> {
    replace(graph, NODE, |raw| {
        let Names { inputs, outputs, name, op } = Names::decode(raw).ok()?;
        let mut node = Cow::Borrowed(raw);
        if NESTING.contains(&&*op) {
            let inner = replace(raw, ATTRIBUTE, |attribute| replace_graphs(attribute, plain, plain));
            node = inner.map_or(node, Cow::Owned);
        }
        let first = outputs.iter().find(|output| !output.is_empty()).cloned();
        let unnamed = first.as_ref().filter(|_| name.is_empty() || outputs.contains(&name));
        if let Some(output) = unnamed {
            let name = format!("{output} ({op})");
            let node = node.to_mut();
            encode_key(NAME, WireType::LengthDelimited, node);
            encode_varint(name.len() as u64, node);
            node.extend(name.as_bytes());
        }
        let given = |names: &[String]| names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        let (inputs, outputs) = (given(&inputs), given(&outputs));
        let mut at = 0;
        let shorter = replace(&node, INPUT, |_| {
            at += 1;
            (at > inputs).then(Vec::new)
        });
        node = shorter.map_or(node, Cow::Owned);
        let mut at = 0;
        let other = replace(&node, OUTPUT, |output| {
            at += 1;
            match COUNTING.contains(&&*op) {
                true if output.is_empty() => Some(vec![format!("{} ({op}) {at}", first.as_ref()?).into_bytes()]),
                false if at > outputs && outputs > 0 => Some(Vec::new()),
                _ => None,
            }
        });
        match other.map_or(node, Cow::Owned) {
            Cow::Owned(node) => Some(vec![node]),
            Cow::Borrowed(_) => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{floats, model};
    use crate::onnx::test_subgraphs::branches;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn only_what_is_left_out_is_added() {
        let (x, y) = (("x", D::FLOAT, &["n", "1", "4"][..]), ("y", D::FLOAT, &["n", "1"][..]));
        let weights = [
            floats("w", &[1, 12, 4], &[0.0; 48]),
            floats("r", &[1, 12, 3], &[0.0; 36]),
            floats("scale", &[], &[0.5]),
            floats("scales", &[4], &[0.5; 4]),
        ];
        for (node, expected) in [
            ("y = LSTM x w r", Some("LSTM x w r hidden_size=3 []")),
            ("y = LSTM x w r hidden_size==3", None),
            ("y = LSTM x w x", Some("LSTM x w x hidden_size=4 []")),
            ("y = LSTM x w other", None),
            ("y = QuantizeLinear x scale", Some("Constant, QuantizeLinear x scale y/zero_point")),
            ("y = QuantizeLinear x scales _", Some("Constant, QuantizeLinear x scales y/zero_point")),
            ("y = QuantizeLinear x scale scale", None),
            ("y = QuantizeLinear x scale output_dtype==3", None),
            ("y = Slice x starts=1,2 ends=3,4", Some("Slice x starts=0 [1, 2] ends=0 [3, 4] axes=0 [0, 1]")),
            ("y = Slice x starts=1 ends=3 axes=1", None),
            ("y = Slice x scale scale", None),
            ("y = Relu x", None),
        ] {
            let file = model(&[x], &[y], &weights, &[node]);
            let found = with_optional_parts(&file).map(|file| {
                let nodes = wire::Model::decode(&*file).unwrap().graph.unwrap().nodes;
                let one = |node: &wire::Node| {
                    let attribute = |a: &wire::Attribute| format!("{}={} {:?}", a.name, a.int.unwrap_or(0), a.ints);
                    let attributes = node.attributes.iter().filter(|a| a.tensor.is_none()).map(attribute);
                    let words = std::iter::once(node.op.clone()).chain(node.inputs.clone()).chain(attributes);
                    words.collect::<Vec<_>>().join(" ")
                };
                nodes.iter().map(one).collect::<Vec<_>>().join(", ")
            });
            assert_eq!(found.as_deref(), expected, "{node}");
            (0..file.len()).for_each(|length| _ = with_optional_parts(&file[..length]));
        }
    }

    #[test]
    fn nodes_have_names_and_no_inputs_left_out_at_the_end() {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        // Each node has the name of its output.
        let mut given =
            wire::Model::decode(&*model(&[x], &[y], &[], &["a = Neg x", "b = Abs a", "y = Relu b"])).unwrap();
        let nodes = &mut given.graph.as_mut().unwrap().nodes;
        nodes[1].name.clear();
        nodes[2].name = "last".into();
        let named = with_plain_nodes(&given.encode_to_vec()).unwrap();
        let nodes = wire::Model::decode(&*named).unwrap().graph.unwrap().nodes;
        assert_eq!(nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["a (Neg)", "b (Abs)", "last"]);
        assert_eq!(with_plain_nodes(&named), None);
        let inner = model(&[], &[y], &[], &["a = Conv x x _", "y = Relu a"]);
        let branches = branches(model(&[x], &[y], &[], &["y = Neg x"]), &inner);
        let file = with_plain_nodes(&branches).unwrap();
        let nodes = wire::Model::decode(&*file).unwrap().graph.unwrap().nodes;
        for branch in &nodes[1].attributes {
            let [conv, relu] = &branch.graph.as_ref().unwrap().nodes[..] else { panic!("{branch:?}") };
            assert_eq!((&*conv.name, &conv.inputs[..]), ("a (Conv)", &["x".to_string(), "x".to_string()][..]));
            assert_eq!(relu.name, "y (Relu)");
        }
        assert_eq!((nodes.len(), with_plain_nodes(&file)), (2, None));
        (0..branches.len()).for_each(|length| _ = with_plain_nodes(&branches[..length]));
        for (node, expected) in
            [("y = Clip x _ a _", &["x", "", "a"][..]), ("y = Clip x _ _", &["x"]), ("y = Constant _", &[])]
        {
            let file = model(&[x], &[y], &[], &["a = Neg x", node]);
            let nodes = wire::Model::decode(&*with_plain_nodes(&file).unwrap()).unwrap().graph.unwrap().nodes;
            assert_eq!(nodes[1].inputs, expected, "{node}");
            assert_eq!(nodes[1].outputs, ["y"], "{node}");
        }
    }

    #[test]
    fn outputs_left_out_are_not_there_or_have_names() {
        let x = ("x", D::FLOAT, &["n", "2"][..]);
        for (node, given, expected) in [
            ("y = MaxPool x", &["y", ""][..], &["y"][..]),
            ("y = LSTM x", &["", "y", ""], &["", "y"]),
            ("y = TopK x x", &["", "y"], &["y (TopK) 1", "y"]),
            ("y = Split x", &["y", "", "z"], &["y", "y (Split) 2", "z"]),
            ("y = Constant", &["", ""], &["", ""]),
        ] {
            let mut left_out = wire::Model::decode(&*model(&[x], &[], &[], &[node])).unwrap();
            let graph = left_out.graph.as_mut().unwrap();
            graph.nodes[0].outputs = given.iter().map(|output| output.to_string()).collect();
            graph.nodes[0].name = "node".into();
            let file = left_out.encode_to_vec();
            let plain = with_plain_nodes(&file).unwrap_or(file);
            let nodes = wire::Model::decode(&*plain).unwrap().graph.unwrap().nodes;
            assert_eq!(nodes[0].outputs, expected, "{node}");
            assert_eq!(with_plain_nodes(&plain), None, "{node}");
        }
    }
}
