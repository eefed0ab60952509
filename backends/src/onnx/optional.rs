//! Attributes and inputs that ONNX lets a model leave out, written out for runtimes that expect them; and the names of nodes, which
//! errors of runtimes show.

use super::edit::{GRAPH, constant, int, ints, replace, replace_nodes};
use super::known_dims::KnownDims;
use super::wire;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

/// The operators of which a part is written out.
pub(crate) const OPTIONAL: [&str; 7] = [
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

/// Returns the file of a model in which each recurrent node has its `hidden_size`, each `QuantizeLinear` a zero point or a type, each
/// `Slice` with `starts` its `axes`, and the normalizations of ONNX Runtime an `epsilon`; `None` if none lacks its part.
pub(crate) fn with_optional_parts(file: &[u8]) -> Option<Vec<u8>> {
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
                let float = Some(EPSILON);
                with(wire::Attribute { name: "epsilon".into(), float, kind: 1, ..wire::Attribute::default() })
            }
            _ => None,
        }
    })
}

/// The field numbers of `onnx.proto`.
const NODE: u32 = 1;
const INPUT: u32 = 1;
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

/// Returns the file of a model in which each node of its graph without a name of its own has that of its first output with its operator,
/// and none has inputs left out at its end; `None` if that is so. rten drops the name of a node that is also that of a tensor.
pub(crate) fn with_plain_nodes(file: &[u8]) -> Option<Vec<u8>> {
    let mut is_changed = false;
    let edited = replace(file, GRAPH, |graph| {
        let graph = replace(graph, NODE, |raw| {
            let Names { inputs, outputs, name, op } = Names::decode(raw).ok()?;
            // An optional output that is left out has no name.
            let output = outputs.iter().find(|output| !output.is_empty());
            let output = output.filter(|_| name.is_empty() || outputs.contains(&name));
            let given = inputs.iter().rposition(|input| !input.is_empty()).map_or(0, |last| last + 1);
            if output.is_none() && given == inputs.len() {
                return None;
            }
            is_changed = true;
            let mut at = 0;
            let mut node = replace(raw, INPUT, |_| {
                at += 1;
                (at > given).then(Vec::new)
            })?;
            if let Some(output) = output {
                let name = format!("{output} ({op})");
                encode_key(NAME, WireType::LengthDelimited, &mut node);
                encode_varint(name.len() as u64, &mut node);
                node.extend(name.as_bytes());
            }
            Some(vec![node])
        })?;
        Some(vec![graph])
    })?;
    is_changed.then_some(edited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{floats, model};
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
        for (node, expected) in
            [("y = Clip x _ a _", &["x", "", "a"][..]), ("y = Clip x _ _", &["x"]), ("y = Constant _", &[])]
        {
            let file = model(&[x], &[y], &[], &["a = Neg x", node]);
            let nodes = wire::Model::decode(&*with_plain_nodes(&file).unwrap()).unwrap().graph.unwrap().nodes;
            assert_eq!(nodes[1].inputs, expected, "{node}");
            assert_eq!(nodes[1].outputs, ["y"], "{node}");
        }
    }
}
