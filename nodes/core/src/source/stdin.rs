//! Messages from standard input.

use crate::stream::framing::{Deframer, Unusable};
use crate::stream::ready::{self, Read};
use crate::stream::{self, Framing};
use limen::node::{
    Building, Claim, Connected, Cost, Emit, Interest, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports,
    Source, Watched,
};
use limen::unit::Bytes;
use limen::{Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, Stdin as Input};

/// Reads standard input as lines, records or chunks: `bytes` `u8[≤max_bytes]`.
///
/// The stream ends when the input ends. If a message is longer than `max_bytes`, the call fails.
/// With `on_error: skip`, the node continues with the next message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StdinConfig {
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
    /// Maximum size of a message in bytes, from `1B` to `1GiB`. Default: `64KiB`. With `framing:
    /// fixed`, every message has exactly this size. For example, `max_bytes: 921600B` reads raw
    /// frames of 640×480 pixels with three channels. `reshape` with `shape: [480, 640, 3]` converts
    /// these frames to images.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// Type of the content. The sinks `csv`, `jsonl` and `console` write `text` as text. Default:
    /// `text` if `framing` is `lines` or `lines_crlf`, otherwise `bytes`.
    pub content: Option<limen::message::Content>,
}

/// Runs `kind: stdin`; [`StdinConfig`] says what it does.
#[derive(Debug)]
pub struct Stdin {
    input: Watched<Input>,
    max: usize,
    deframer: Deframer,
    /// When the bytes in the buffer were read.
    last_read: Time,
    number: u64,
    is_closed: bool,
}

impl Stdin {
    /// Sends a message, or returns the error if it is too long.
    fn send(
        &mut self,
        found: Result<std::ops::Range<usize>, Unusable>,
        out: &mut Emit<Tensor>,
    ) -> Result<Next, NodeError> {
        self.number += 1;
        let message =
            found.map_err(|unusable| unusable.error(format!("standard input: message {}", self.number), self.max))?;
        stream::send(self.deframer.bytes(message), self.last_read, out)?;
        Ok(Next::More)
    }
}

impl Node for Stdin {
    type Config = StdinConfig;

    fn ports(config: &StdinConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = stream::spec(config.max_bytes, config.framing, config.content, &mut errors);
        let ports = Ports::new()
            .output("bytes", spec)
            .cost(Cost::Medium)
            .memory(stream::buffer(config.max_bytes, config.framing));
        errors.into_result(ports.claim(Claim::Device("standard input".into())))
    }

    fn build(config: StdinConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let max = config.max_bytes.0 as usize;
        let deframer = Deframer::new(config.framing, max);
        let input = cx.descriptors().watch(io::stdin(), Interest::Read);
        let input = input.map_err(|error| NodeError::file("standard input", error))?;
        Ok(Stdin { input, max, deframer, last_read: cx.now(), number: 0, is_closed: false })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.lost("stopped", self.deframer.whole_messages());
    }
}

impl Source for Stdin {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if let Some(found) = self.deframer.take() {
            return self.send(found, out);
        }
        if self.is_closed {
            if let Some(found) = self.deframer.last() {
                return self.send(found, out);
            }
            if self.deframer.is_partial() {
                self.deframer.clear();
                let what = format!("standard input: message {}", self.number + 1);
                return Err(NodeError::input(what, "expected a complete message, found the end of the input"));
            }
            return Ok(Next::Done);
        }
        let fail = |error: io::Error| NodeError::file("standard input", error);
        // Standard input may be shared with other processes, so it is not made nonblocking; poll
        // before each read instead.
        if !ready::is_readable(&*self.input).map_err(fail)? {
            return Ok(Next::WhenReady(Time::NEVER));
        }
        let read = nix::unistd::read(&*self.input, self.deframer.space()).map_err(io::Error::from);
        match ready::outcome(read) {
            Ok(Read::Some(n)) => self.deframer.filled(n),
            Ok(Read::Nothing) => return Ok(Next::WhenReady(Time::NEVER)),
            Ok(Read::End) => self.is_closed = true,
            Err(error) => {
                self.is_closed = true;
                return Err(fail(error));
            }
        }
        self.last_read = out.clock();
        Ok(Next::More)
    }
}
