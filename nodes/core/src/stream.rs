//! Shared code for byte streams: framing, waiting for file descriptors, and reconnecting.
//!
//! Nothing here buffers more bytes than the graph file allows: a length announced by a peer is
//! checked against `max_bytes` before it is used.

pub(crate) mod address;
pub(crate) mod backoff;
pub mod datagram;
pub mod framing;
pub mod listener;
pub(crate) mod outgoing;
pub mod ready;
pub mod removable;
pub(crate) mod serial_port;
pub(crate) mod standard_output;
pub mod tcp;

pub use address::Address;
pub use framing::Framing;

use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{Connected, Emit, NodeError, PlanErrors, Ports};
use limen::unit::Bytes;
use limen::{Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// Action when the other end of a stream disappears.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnClose {
    /// Reconnect, with a retry delay that grows from 0.1 s to 5 s. A `tcp` source with `listen`
    /// waits for the next connection instead.
    #[default]
    Reconnect,
    /// End the stream.
    End,
}

impl OnClose {
    /// Declares a live source, which ends by itself only if it is to.
    pub fn declare(self, ports: Ports) -> Ports {
        if self == OnClose::End { ports.live() } else { ports.live().endless() }
    }
}

/// Upper bound of `max_bytes`, which fits a length of 32 bits.
const LARGEST_MESSAGE: u64 = 1 << 30;

/// The size in bytes of the buffer in which messages of a stream are assembled, with room for the
/// framing.
pub fn buffer(max: Bytes, framing: Framing) -> usize {
    framing.buffer(max.0 as usize).saturating_add(framing::MIN_BUFFER)
}

/// The default of `max_bytes`.
pub(crate) fn max_bytes() -> Bytes {
    Bytes(64 << 10)
}

/// Returns the spec of messages of at most `max` bytes, or exactly so many with [`Framing::Fixed`].
pub(crate) fn spec(max: Bytes, framing: Framing, content: Option<Content>, errors: &mut PlanErrors) -> PortSpec {
    if max.0 == 0 || max.0 > LARGEST_MESSAGE {
        errors
            .at("max_bytes", format!("`max_bytes` must be 1B to 1GiB, got {}B", max.0))
            .help("write a size from 1B to 1GiB");
    }
    let most = max.0.clamp(1, LARGEST_MESSAGE) as usize;
    let dim = if framing == Framing::Fixed { Dim::Fixed(most) } else { Dim::AtMost(most) };
    PortSpec::new(DType::U8, [dim]).with_content(content.unwrap_or(framing.content()))
}

/// Returns the ports of a sink that writes the bytes of any tensor.
pub fn takes_bytes(given: &Connected, framing: Framing, errors: &mut PlanErrors) -> Ports {
    let Some(spec) = given.single() else { return Ports::new().input_any("in") };
    if framing.is_lines() && spec.dtype != DType::U8 {
        let message = format!("expected text for lines, found {spec}");
        errors.input("in", message).help("write `framing: length`, or add an `encode` node upstream");
    }
    if framing == Framing::Fixed && spec.fixed_shape().is_none() {
        let message = format!("`framing: fixed` expects messages of one length, found {spec}");
        errors.input("in", message).help("write `framing: length`, or add a `pad` node with `to` upstream");
    }
    let largest = spec.max_bytes().unwrap_or(0);
    if framing.has_length() && u32::try_from(largest).is_err() {
        let message =
            format!("a message after a length prefix must have at most {} bytes, got {largest} for {spec}", u32::MAX);
        errors.input("in", message).help("write `framing: raw`, or add a `slice` node upstream");
    }
    Ports::new().input("in", spec.clone())
}

/// Sends bytes as a message with the given origin.
pub fn send(bytes: &[u8], origin: Time, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    if out.is_connected() {
        let header = out.header(origin);
        let mut message = out.loan(&header)?;
        message.set_len(0, bytes.len())?;
        message.bytes_mut().copy_from_slice(bytes);
        out.send(message);
    }
    Ok(())
}
