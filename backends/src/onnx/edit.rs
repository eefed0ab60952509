//! Other fields in the file of a model, for example other nodes for runtimes that lack an operator. The rest of the file stays as it
//! is.

use super::node::graphs_of;
use super::wire;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The field numbers of `onnx.proto`.
pub(super) const GRAPH: u32 = 7;
const NODE: u32 = 1;
const ATTRIBUTE: u32 = 5;
const ATTRIBUTE_GRAPH: u32 = 6;
const ATTRIBUTE_GRAPHS: u32 = 11;

/// Returns a file with other nodes for some of those of its graph and its subgraphs, which `graph` has parsed; `None` if none is
/// replaced.
pub(super) fn replace_nodes(
    file: &[u8],
    graph: &wire::Graph,
    with: impl Fn(&wire::Node) -> Option<Vec<wire::Node>>,
) -> Option<Vec<u8>> {
    // A file may hold its graph in several parts, whose nodes are those of one list.
    let (mut nodes, mut replaced) = (graph.nodes.iter(), false);
    let edited = replace(file, GRAPH, |graph| Some(vec![replace_in(graph, &mut nodes, &with, &mut replaced)?]))?;
    replaced.then_some(edited)
}

/// Like [`replace_nodes`], in a part of a graph. `nodes` are those of the part and of what follows.
fn replace_in(
    graph: &[u8],
    nodes: &mut std::slice::Iter<'_, wire::Node>,
    with: &impl Fn(&wire::Node) -> Option<Vec<wire::Node>>,
    replaced: &mut bool,
) -> Option<Vec<u8>> {
    replace(graph, NODE, |raw| {
        let node = nodes.next()?;
        if let Some(instead) = with(node) {
            *replaced = true;
            return Some(instead.iter().map(Message::encode_to_vec).collect());
        }
        graphs_of(node).next()?;
        let mut attributes = node.attributes.iter();
        let node = replace(raw, ATTRIBUTE, |raw| {
            let attribute = attributes.next()?;
            let mut nodes = attribute.graph.as_ref().map(|graph| graph.nodes.iter()).unwrap_or_default();
            let one = replace(raw, ATTRIBUTE_GRAPH, |raw| Some(vec![replace_in(raw, &mut nodes, with, replaced)?]))?;
            let mut graphs = attribute.graphs.iter();
            let all = replace(&one, ATTRIBUTE_GRAPHS, |raw| {
                Some(vec![replace_in(raw, &mut graphs.next()?.nodes.iter(), with, replaced)?])
            })?;
            Some(vec![all])
        })?;
        Some(vec![node])
    })
}

/// A node with one output, named as that is.
pub(super) fn made(op: &str, inputs: &[&str], output: &str, attributes: Vec<wire::Attribute>) -> wire::Node {
    wire::Node {
        inputs: inputs.iter().map(|input| input.to_string()).collect(),
        outputs: vec![output.to_string()],
        name: output.to_string(),
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

/// Returns a message with other fields for some of those with a number; `None` if it is malformed.
pub(super) fn replace(
    message: &[u8],
    number: u32,
    mut with: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Option<Vec<u8>> {
    let (mut rest, mut whole) = (message, Vec::with_capacity(message.len()));
    while !rest.is_empty() {
        let field = rest;
        let (tag, kind) = decode_key(&mut rest).ok()?;
        let mut other = None;
        if kind == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (content, behind) = rest.split_at_checked(length)?;
            rest = behind;
            if tag == number {
                other = with(content);
            }
        } else {
            skip_field(kind, tag, &mut rest, DecodeContext::default()).ok()?;
        }
        match other {
            Some(fields) => {
                for content in fields {
                    encode_key(tag, kind, &mut whole);
                    encode_varint(content.len() as u64, &mut whole);
                    whole.extend(content);
                }
            }
            None => whole.extend(&field[..field.len() - rest.len()]),
        }
    }
    Some(whole)
}
