//! Other fields in the file of a model, for example other nodes for runtimes that lack an operator. The rest of the file stays as it
//! is.

use super::wire;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The field numbers of `onnx.proto`.
pub(super) const GRAPH: u32 = 7;
const NODE: u32 = 1;

/// Returns a file with other nodes for some of those of its graph, which `graph` has parsed; `None` if none is replaced.
pub(super) fn replace_nodes(
    file: &[u8],
    graph: &wire::Graph,
    with: impl Fn(&wire::Node) -> Option<Vec<wire::Node>>,
) -> Option<Vec<u8>> {
    // A file may hold its graph in several parts, whose nodes are those of one list.
    let (mut nodes, mut replaced) = (graph.nodes.iter(), false);
    let edited = replace(file, GRAPH, |graph| {
        let graph = replace(graph, NODE, |_| {
            let instead = with(nodes.next()?)?;
            replaced = true;
            Some(instead.iter().map(Message::encode_to_vec).collect())
        })?;
        Some(vec![graph])
    })?;
    replaced.then_some(edited)
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
