//! The outer form of an ONNX file, checked before rten reads it.
//!
//! An ONNX file is a tree of length-prefixed messages. rten 0.27 believes the lengths: one damaged byte can make it
//! allocate until the process is aborted, or go round in circles for ever, and neither can be caught as a panic can. So
//! every field of every message that it will enter is checked here to lie inside its parent. What the fields mean is
//! left to rten. As a gift, a file that is cut short is told from one that is something else.

/// Subgraphs nest messages three deep each; models nest them a few times, and a stack has room for this many.
const MAX_DEPTH: usize = 48;

/// The messages of ONNX that rten reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Value,
    Type,
    TensorType,
    SequenceType,
    Shape,
    /// One without messages inside.
    Plain,
}

impl Message {
    /// The message in one of its fields, by the field numbers of `onnx.proto`.
    fn field(self, number: u64) -> Option<Message> {
        Some(match (self, number) {
            (Message::Model, 7) | (Message::Attribute, 6) => Message::Graph,
            (Message::Graph, 1) => Message::Node,
            (Message::Node, 5) => Message::Attribute,
            (Message::Graph | Message::Attribute, 5) => Message::Tensor,
            (Message::Graph, 11..=13) => Message::Value,
            (Message::Value, 2) | (Message::SequenceType, 1) => Message::Type,
            (Message::Type, 1) => Message::TensorType,
            (Message::Type, 4) => Message::SequenceType,
            (Message::TensorType, 2) => Message::Shape,
            (Message::Model, 8 | 14) | (Message::Tensor, 13) | (Message::Shape, 1) => Message::Plain,
            _ => return None,
        })
    }
}

/// Checks that the file is a tree of messages as long as they say they are, with a graph in it.
///
/// # Errors
/// A sentence that continues "this is …".
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut walk = Walk { bytes, at: 0, has_version: false, has_graph: false };
    match walk.message(Message::Model, bytes.len(), 0) {
        Ok(()) if walk.has_version && walk.has_graph => Ok(()),
        // Before the graph has begun there is no sign that this was ever a model.
        Err(why) if walk.has_version && walk.has_graph => {
            Err(format!("an ONNX model that is cut short or damaged: {why}"))
        }
        _ => Err(format!("not an ONNX model: nothing in its {} bytes reads as one", bytes.len())),
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    has_version: bool,
    has_graph: bool,
}

impl Walk<'_> {
    fn message(&mut self, message: Message, end: usize, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("messages nest more than {MAX_DEPTH} deep at byte {}", self.at));
        }
        while self.at < end {
            let start = self.at;
            let tag = self.varint(end)?;
            let length = match tag & 7 {
                0 => {
                    self.varint(end)?;
                    0
                }
                1 => 8,
                2 => self.varint(end)?,
                // Groups are deprecated and empty.
                3 | 4 => 0,
                5 => 4,
                _ => return Err(format!("byte {start} does not begin a field")),
            };
            if message == Message::Model {
                self.has_version |= tag >> 3 == 1;
                self.has_graph |= tag >> 3 == 7;
            }
            let left = (end - self.at) as u64;
            if length > left {
                return Err(format!("at byte {start} {length} bytes should follow, and {left} do"));
            }
            let after = self.at + length as usize;
            if tag & 7 == 2
                && let Some(inner) = message.field(tag >> 3)
            {
                self.message(inner, after, depth + 1)?;
            }
            self.at = after;
        }
        Ok(())
    }

    /// A number of up to 64 bits, seven to a byte.
    fn varint(&mut self, end: usize) -> Result<u64, String> {
        let mut value = 0;
        for (i, byte) in self.bytes[self.at..end].iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(format!("the number at byte {} has no end", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ir_version 8, and a graph of one node of one attribute with a subgraph, nested so many times.
    fn nested(times: usize) -> Vec<u8> {
        let wrap = |tag: u8, inner: &[u8]| {
            let mut out = vec![tag << 3 | 2];
            let mut length = inner.len();
            while length >= 0x80 {
                out.push(length as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            out.extend_from_slice(inner);
            out
        };
        let mut graph = Vec::new();
        for _ in 0..times {
            graph = wrap(1, &wrap(5, &wrap(6, &graph)));
        }
        [vec![8, 8], wrap(7, &graph)].concat()
    }

    #[test]
    fn every_field_must_fit_in_its_parent() {
        let good = nested(2);
        assert_eq!(check(&good), Ok(()));
        for cut in 4..good.len() {
            let why = check(&good[..cut]).unwrap_err();
            assert!(why.contains("cut short"), "{cut}: {why}");
        }
        // A length inside that is longer than what is around it, and one that would overflow.
        for lie in [&[0x7f][..], &[0xff; 9]] {
            let inner = [&[0x0a][..], lie, &[1]].concat();
            let bytes = [&[8, 8, 0x3a, inner.len() as u8][..], &inner].concat();
            let why = check(&bytes).unwrap_err();
            assert!(why.contains("bytes should follow"), "{why}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert_eq!(check(&nested(10)), Ok(()));
        let why = check(&nested(1000)).unwrap_err();
        assert!(why.contains("nest more than 48 deep"), "{why}");
    }

    #[test]
    fn other_files_are_not_models() {
        for bytes in [&b"\x01\x02\x03"[..], &[0xff; 40], &[8, 8], b"some text, long enough to look at"] {
            let why = check(bytes).unwrap_err();
            assert!(why.starts_with("not an ONNX model"), "{why}");
        }
    }
}
