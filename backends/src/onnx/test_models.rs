//! Models for tests: the shipped ones, and small ones that are built here.

use crate::verify::Case;
use rten_onnx::onnx;
use std::path::{Path, PathBuf};

pub(crate) fn graphs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs").join(path)
}

pub(crate) fn case_of(model: &str) -> Case {
    Case::read(&graphs(model).with_file_name("verify.npz")).unwrap()
}

pub(crate) type Io<'a> = (&'a str, onnx::DataType, &'a [&'a str]);

fn io((name, dtype, dims): &Io<'_>) -> onnx::ValueInfoProto {
    let dim = |text: &&str| match text.parse() {
        Ok(length) => onnx::Dimension { dim_value: Some(length), ..Default::default() },
        Err(_) => onnx::Dimension { dim_param: Some(text.to_string()), ..Default::default() },
    };
    let shape = onnx::TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = onnx::TypeProtoTensor { elem_type: Some(*dtype), shape: Some(shape) };
    let kind = onnx::TypeProto { tensor_type: Some(tensor), ..Default::default() };
    onnx::ValueInfoProto { name: Some(name.to_string()), r#type: Some(kind) }
}

pub(crate) fn floats(name: &str, dims: &[i64], data: &[f32]) -> onnx::TensorProto {
    onnx::TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(onnx::DataType::FLOAT),
        float_data: data.to_vec(),
        ..Default::default()
    }
}

/// A weight in a file beside its model.
pub(crate) fn external(name: &str, dims: &[i64], file: &str, offset: usize, length: usize) -> onnx::TensorProto {
    let entry =
        |key: &str, value: &str| onnx::StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    let (offset, length) = (offset.to_string(), length.to_string());
    onnx::TensorProto {
        data_location: Some(onnx::DataLocation::EXTERNAL),
        external_data: vec![entry("location", file), entry("offset", &offset), entry("length", &length)],
        ..floats(name, dims, &[])
    }
}

pub(crate) fn ints(name: &str, data: &[i64]) -> onnx::TensorProto {
    onnx::TensorProto {
        name: Some(name.into()),
        dims: vec![data.len() as i64],
        data_type: Some(onnx::DataType::INT64),
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

/// The file of a small model. Nodes are written `y = Op a _ b perm=1,0 axis==1 alpha=~0.5 mode=:cubic activations=@Tanh,Relu`: an
/// input that is left out is `_`, and attributes are lists of integers, an integer, a float, a word or a list of words.
pub(crate) fn model(inputs: &[Io<'_>], outputs: &[Io<'_>], weights: &[onnx::TensorProto], nodes: &[&str]) -> Vec<u8> {
    model_of_opset(18, inputs, outputs, weights, nodes)
}

/// Like [`model`], of another version of the operator set.
pub(crate) fn model_of_opset(
    opset: i64,
    inputs: &[Io<'_>],
    outputs: &[Io<'_>],
    weights: &[onnx::TensorProto],
    nodes: &[&str],
) -> Vec<u8> {
    let input = |word: &&str| if *word == "_" { String::new() } else { word.to_string() };
    let node = |text: &&str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let attribute = |(name, value): (&str, &str)| {
            let (kind, rest) = value.split_at(1);
            let mut attribute = onnx::AttributeProto { name: Some(name.to_string()), ..Default::default() };
            attribute.r#type = Some(match kind {
                "=" => {
                    attribute.i = Some(rest.parse().unwrap());
                    onnx::AttributeType::INT
                }
                "~" => {
                    attribute.f = Some(rest.parse().unwrap());
                    onnx::AttributeType::FLOAT
                }
                ":" => {
                    attribute.s = Some(rest.to_string());
                    onnx::AttributeType::STRING
                }
                "@" => {
                    attribute.strings = rest.split(',').map(ToString::to_string).collect();
                    onnx::AttributeType::STRINGS
                }
                _ => {
                    attribute.ints = value.split(',').map(|int| int.parse().unwrap()).collect();
                    onnx::AttributeType::INTS
                }
            });
            attribute
        };
        onnx::NodeProto {
            name: Some(words[0].to_string()),
            output: vec![words[0].to_string()],
            op_type: Some(words[2].to_string()),
            input: words[3..].iter().filter(|word| !word.contains('=')).map(input).collect(),
            attribute: words[3..].iter().filter_map(|word| word.split_once('=')).map(attribute).collect(),
            ..Default::default()
        }
    };
    let graph = onnx::GraphProto {
        node: nodes.iter().map(node).collect(),
        initializer: weights.to_vec(),
        input: inputs.iter().map(io).collect(),
        output: outputs.iter().map(io).collect(),
        ..Default::default()
    };
    let opset = onnx::OperatorSetIdProto { version: Some(opset), ..Default::default() };
    let model =
        onnx::ModelProto { ir_version: Some(8), graph: Some(graph), opset_import: vec![opset], ..Default::default() };
    model.write_buf().unwrap()
}

/// A protobuf field, to be appended to a file.
pub(crate) fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    [&bytes, content].concat()
}

/// Adds an `If` to a model; both its branches are the graph of another model.
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
pub(crate) fn branches(outer: Vec<u8>, inner: &[u8]) -> Vec<u8> {
    let parse = |bytes: &[u8]| onnx::ModelProto::parse_buf(bytes).unwrap();
    let (mut model, inner) = (parse(&outer), parse(inner).graph);
    let branch = |name: &str| onnx::AttributeProto {
        name: Some(name.into()),
        g: inner.clone(),
        r#type: Some(onnx::AttributeType::GRAPH),
        ..Default::default()
    };
    let node = onnx::NodeProto {
        name: Some("both".into()),
        output: vec!["both".into()],
        op_type: Some("If".into()),
        input: vec!["condition".into()],
        attribute: vec![branch("then_branch"), branch("else_branch")],
        ..Default::default()
    };
    let graph = model.graph.as_mut().unwrap();
    graph.node.push(node);
    graph.initializer.push(onnx::TensorProto {
        name: Some("condition".into()),
        data_type: Some(onnx::DataType::BOOL),
        raw_data: Some(vec![1].into()),
        ..Default::default()
    });
    model.write_buf().unwrap()
}

/// Adds a `Loop` to a model, whose body is the graph of another one; it runs until the body's first output is false.
#[cfg(feature = "rten")]
pub(crate) fn looped(outer: Vec<u8>, inputs: &[&str], outputs: &[&str], body: &[u8]) -> Vec<u8> {
    let parse = |bytes: &[u8]| onnx::ModelProto::parse_buf(bytes).unwrap();
    let (mut model, body) = (parse(&outer), parse(body).graph);
    let body = onnx::AttributeProto {
        name: Some("body".into()),
        g: body,
        r#type: Some(onnx::AttributeType::GRAPH),
        ..Default::default()
    };
    model.graph.as_mut().unwrap().node.push(onnx::NodeProto {
        name: Some("loop".into()),
        output: outputs.iter().map(|output| output.to_string()).collect(),
        op_type: Some("Loop".into()),
        input: inputs.iter().map(|input| input.to_string()).collect(),
        attribute: vec![body],
        ..Default::default()
    });
    model.write_buf().unwrap()
}

/// Adds `output = If condition` to a model, with the graphs of two other models as its branches.
#[cfg(all(feature = "tract", feature = "ort"))]
pub(crate) fn with_if(outer: &[u8], condition: &str, output: &str, holds: &[u8], fails: &[u8]) -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Inner {
        #[prost(bytes = "vec", repeated, tag = "7")]
        graph: Vec<Vec<u8>>,
    }
    let branch = |name: &str, model: &[u8]| {
        // ONNX Runtime wants it to have a name. 5 is the type of a graph.
        let graph = [<Inner as prost::Message>::decode(model).unwrap().graph.concat(), field(2, b"branch")].concat();
        let kind = [160, 1, 5];
        field(5, &[&field(1, name.as_bytes())[..], &kind, &field(6, &graph)].concat())
    };
    let names = [(1, condition), (2, output), (3, output), (4, "If")].map(|(tag, name)| field(tag, name.as_bytes()));
    let node = [names.concat(), branch("then_branch", holds), branch("else_branch", fails)].concat();
    // A decoder merges a second graph into the first.
    [outer, &field(7, &field(1, &node))].concat()
}
