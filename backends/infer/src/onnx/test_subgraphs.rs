//! Models for tests with graphs inside operators, and the recorded cases of the shipped ones.

#[cfg(all(feature = "tract", feature = "ort"))]
use super::test_models::field;
use super::test_models::graphs;
use crate::verify::Case;
use rten_onnx::onnx;

pub(crate) fn case_of(model: &str) -> Case {
    Case::read(&graphs(model).with_file_name("verify.npz")).unwrap()
}

/// Adds an `If` to a model; both its branches are the graph of another model.
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

/// Adds a `Loop` to a model, whose body is the graph of another one; it runs until the body's first
/// output is false.
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
