//! What streams of bytes have in common, whatever they come from: where one message ends and the next begins, how a
//! worker waits for a node's descriptors, how a lost connection is made again.
//!
//! Nothing in here holds more bytes than were asked for in the graph file: a length that somebody else names is held
//! against `max_bytes` before anything is done with it.

pub(crate) mod address;
pub(crate) mod backoff;
pub(crate) mod framing;
pub(crate) mod outgoing;
pub(crate) mod ready;
pub(crate) mod serial_port;
pub(crate) mod tcp;

pub use address::Address;
pub use framing::Framing;

use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Connected, Emit, NodeError, PlanErrors, Ports};
use limen::unit::Bytes;
use limen::{Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// What becomes of a stream whose other end is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnClose {
    /// It is made again, after 0.1 s at first and 5 s at most; whoever listens waits for the next.
    #[default]
    Reconnect,
    /// The stream ends.
    End,
}

/// No message of a byte stream is larger: its length is kept in 32 bits, and so many bytes are no message.
const MOST_BYTES: u64 = 1 << 30;

/// Bytes of what a message of a stream is put together in, with room for its frame.
pub(crate) fn buffer(max: Bytes) -> usize {
    (max.0 as usize).saturating_add(framing::LEAST_BUFFER)
}

/// Bytes of a message where the graph file does not say.
pub(crate) fn max_bytes() -> Bytes {
    Bytes(64 << 10)
}

/// The spec of messages of at most so many bytes.
pub(crate) fn spec(max: Bytes, content: Content, errors: &mut PlanErrors) -> PortSpec {
    if max.0 == 0 || max.0 > MOST_BYTES {
        errors.at("max_bytes", format!("messages of at most {} bytes", max.0)).help("write a size from 1B to 1GiB");
    }
    PortSpec::new(DType::U8, [Dim::AtMost(max.0.clamp(1, MOST_BYTES) as usize)]).with_content(content)
}

/// Ports of a sink that writes the bytes of whatever comes.
pub(crate) fn takes_bytes(given: &Connected, framing: Framing, errors: &mut PlanErrors) -> Ports {
    let Some(spec) = given.single() else { return Ports::new().input_any("in") };
    if framing == Framing::Lines && spec.dtype != DType::U8 {
        let message = format!("{spec} is no text, and `framing: lines` ends a message where a line ends");
        errors.input("in", message).help("write `framing: length`, or make text of it before");
    }
    let largest = spec.max_bytes().unwrap_or(0);
    if framing.has_length() && u32::try_from(largest).is_err() {
        let message = format!("{spec} has up to {largest} bytes, which a length of 4 bytes cannot say");
        errors.input("in", message).help("make it smaller before, or write `framing: raw`");
    }
    Ports::new().input("in", spec.clone())
}

/// Sends bytes as a message that began at a time.
pub(crate) fn send(bytes: &[u8], origin: Time, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    if out.is_connected() {
        let header = out.header(origin);
        let mut message = out.loan(&header)?;
        message.set_len(0, bytes.len())?;
        message.bytes_mut().copy_from_slice(bytes);
        out.send(message);
    }
    Ok(())
}
