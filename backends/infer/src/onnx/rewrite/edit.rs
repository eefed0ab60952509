//! Other fields in the file of a model, for example other nodes for runtimes that lack an operator.
//! The rest of the file stays as it is.

use super::node::graphs_of;
use super::wire;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The field numbers of `onnx.proto`.
pub(super) const GRAPH: u32 = 7;
const NODE: u32 = 1;
pub(super) const ATTRIBUTE: u32 = 5;
const ATTRIBUTE_GRAPH: u32 = 6;
const ATTRIBUTE_GRAPHS: u32 = 11;

/// Returns a file with other nodes for some of those of its graph and its subgraphs, which `graph`
/// has parsed; `None` if none is replaced.
pub(super) fn replace_nodes(
    file: &[u8],
    graph: &wire::Graph,
    with: impl Fn(&wire::Node) -> Option<Vec<wire::Node>>,
) -> Option<Vec<u8>> {
    // A file may hold its graph in several parts, whose nodes are those of one list.
    let mut nodes = graph.nodes.iter();
    replace(file, GRAPH, |graph| Some(vec![replace_in(graph, &mut nodes, &with)?]))
}

/// Like [`replace_nodes`], in a part of a graph. `nodes` are those of the part and of what follows.
fn replace_in(
    graph: &[u8],
    nodes: &mut std::slice::Iter<'_, wire::Node>,
    with: &impl Fn(&wire::Node) -> Option<Vec<wire::Node>>,
) -> Option<Vec<u8>> {
    replace(graph, NODE, |raw| {
        let node = nodes.next()?;
        if let Some(instead) = with(node) {
            return Some(instead.iter().map(Message::encode_to_vec).collect());
        }
        graphs_of(node).next()?;
        let mut attributes = node.attributes.iter();
        let node = replace(raw, ATTRIBUTE, |raw| {
            let attribute = attributes.next()?;
            let mut nodes = attribute.graph.as_ref().map(|graph| graph.nodes.iter()).unwrap_or_default();
            let mut graphs = attribute.graphs.iter();
            let one = |raw: &[u8]| replace_in(raw, &mut nodes, with);
            replace_graphs(raw, one, |raw| replace_in(raw, &mut graphs.next()?.nodes.iter(), with))
        })?;
        Some(vec![node])
    })
}

/// Returns an attribute with another graph and other graphs; `None` if none is replaced.
pub(super) fn replace_graphs(
    attribute: &[u8],
    mut one: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    mut each: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<Vec<u8>>> {
    let with_one = replace(attribute, ATTRIBUTE_GRAPH, |graph| Some(vec![one(graph)?]));
    let all = replace(with_one.as_deref().unwrap_or(attribute), ATTRIBUTE_GRAPHS, |graph| Some(vec![each(graph)?]));
    Some(vec![all.or(with_one)?])
}

/// A node with one output. rten drops a name that is also that of a tensor.
pub(super) fn made(op: &str, inputs: &[&str], output: &str, attributes: Vec<wire::Attribute>) -> wire::Node {
    wire::Node {
        inputs: inputs.iter().map(|input| input.to_string()).collect(),
        outputs: vec![output.to_string()],
        name: format!("{output} ({op})"),
        op: op.to_string(),
        attributes,
        domain: String::new(),
    }
}

/// A node whose output is a constant.
pub(super) fn constant(output: &str, tensor: wire::Tensor) -> wire::Node {
    let value = wire::Attribute { name: "value".into(), tensor: Some(tensor), kind: 4, ..wire::Attribute::default() };
    made("Constant", &[], output, vec![value])
}

/// An attribute that is an integer.
pub(super) fn int(name: &str, int: i64) -> wire::Attribute {
    wire::Attribute { name: name.into(), int: Some(int), kind: 2, ..wire::Attribute::default() }
}

/// An attribute that is a float.
pub(super) fn float(name: &str, float: f32) -> wire::Attribute {
    wire::Attribute { name: name.into(), float: Some(float), kind: 1, ..wire::Attribute::default() }
}

/// An attribute that is a list of integers.
pub(super) fn ints(name: &str, ints: &[i64]) -> wire::Attribute {
    wire::Attribute { name: name.into(), ints: ints.to_vec(), kind: 7, ..wire::Attribute::default() }
}

/// A number of 32 bits without dims.
pub(super) fn number(number: f32) -> wire::Tensor {
    wire::Tensor { elem: 1, floats: vec![number], ..wire::Tensor::default() }
}

/// A list of integers of 64 bits.
pub(super) fn list(longs: &[i64]) -> wire::Tensor {
    wire::Tensor { dims: vec![longs.len() as i64], elem: 7, longs: longs.to_vec(), ..wire::Tensor::default() }
}

/// Returns a message with other fields for some of those with a number; `None` if none is replaced,
/// or the message is malformed.
pub(super) fn replace(
    message: &[u8],
    number: u32,
    mut with: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Option<Vec<u8>> {
    // What is before `copied` is in `whole`, once a field is replaced.
    let (mut rest, mut whole, mut copied) = (message, None, 0);
    while !rest.is_empty() {
        let begin = message.len() - rest.len();
        let (tag, kind) = decode_key(&mut rest).ok()?;
        if kind != WireType::LengthDelimited {
            skip_field(kind, tag, &mut rest, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
        let (content, behind) = rest.split_at_checked(length)?;
        rest = behind;
        let Some(fields) = (tag == number).then(|| with(content)).flatten() else { continue };
        let whole = whole.get_or_insert_with(|| Vec::with_capacity(message.len()));
        whole.extend_from_slice(&message[copied..begin]);
        for content in fields {
            encode_key(tag, kind, whole);
            encode_varint(content.len() as u64, whole);
            whole.extend(content);
        }
        copied = message.len() - rest.len();
    }
    let mut whole = whole?;
    whole.extend_from_slice(&message[copied..]);
    Some(whole)
}
