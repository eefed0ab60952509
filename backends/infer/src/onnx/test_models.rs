//! Models for tests: the shipped ones, and small ones that are built here. The crate `limen-gpu`
//! has this file, too.

use rten_onnx::onnx;
use std::path::{Path, PathBuf};

pub(crate) fn graphs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs").join(path)
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

/// The file of a small model. Nodes are written `y = Op a _ b perm=1,0 axis==1 alpha=~0.5
/// mode=:cubic activations=@Tanh,Relu`: an input that is left out is `_`, and attributes are lists
/// of integers, an integer, a float, a word or a list of words.
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
