//! Windows of several messages.

use crate::tensor::shape;
use limen::message::{Dim, Header, MAX_RANK};
use limen::node::{
    Building, Connected, DiscardCounter, Emit, LossCounter, Node, NodeError, PlanErrors, Planning, Ports, Reset,
    Transform,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Stacks `length` messages into one: tensors of shape `[...]` become one tensor of shape
/// `[≤length, ...]`.
///
/// Tensors must have a fixed shape. Each window begins `hop` messages after the start of the
/// previous window. A window has the header of its first message.
///
/// When the stream ends, the node sends the remaining messages as a shorter window. With `tail:
/// drop`, the node discards the remaining messages, and the first dim is fixed.
///
/// `stopped` counts the messages that `tail: drop` discards. If `hop` is greater than `length`,
/// `stopped` also counts the messages between two windows. If a gap resets the node, the messages
/// of the incomplete window are lost (`dropped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct WindowConfig {
    /// Number of messages per window, 1 to 1048576.
    pub length: usize,
    /// Number of messages from the start of one window to the start of the next window, 1 to
    /// 1048576. Default: `length`.
    pub hop: Option<usize>,
    /// What the node does with the messages of an incomplete last window. Default: `send`.
    #[serde(default)]
    pub tail: WindowTail,
}

/// What to do with the last messages when they do not fill a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowTail {
    /// Send the messages as a shorter window.
    #[default]
    Send,
    /// Discard the messages.
    Drop,
}

/// Runs `kind: window`; [`WindowConfig`] says what it does.
#[derive(Debug)]
pub struct WindowNode {
    length: usize,
    hop: usize,
    tail: WindowTail,
    item: usize,
    /// The bytes of the messages of the next window, one after the other.
    bytes: Vec<u8>,
    headers: std::collections::VecDeque<Header>,
    /// Messages to drop before the next window begins.
    skip: usize,
    /// Messages that were not part of any window yet.
    fresh: usize,
    stopped: DiscardCounter,
    dropped: LossCounter,
}

impl WindowNode {
    fn send(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let n = self.headers.len();
        let Some(first) = self.headers.front() else { return Ok(()) };
        let mut window = out.loan(first)?;
        if self.tail == WindowTail::Send {
            window.set_len(0, n)?;
        }
        window.bytes_mut().copy_from_slice(&self.bytes);
        out.send(window);
        let gone = self.hop.min(n);
        self.headers.drain(..gone);
        self.bytes.drain(..gone * self.item);
        (self.skip, self.fresh) = (self.hop - gone, 0);
        Ok(())
    }
}

impl Node for WindowNode {
    type Config = WindowConfig;

    fn ports(config: &WindowConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (name, value) in [("length", Some(config.length)), ("hop", config.hop)] {
            if value.is_some_and(|value| !(1..=1 << 20).contains(&value)) {
                errors
                    .at(name, format!("`{name}` must be 1 to 1048576, got {}", value.unwrap_or(0)))
                    .help("write 1 to 1048576");
            }
        }
        let spec = given.single().cloned();
        let out = spec.as_ref().and_then(|spec| {
            if spec.fixed_shape().is_none() || spec.shape.len() >= MAX_RANK {
                let most = MAX_RANK - 1;
                let message = format!("expected a fixed shape of at most {most} dims, found {spec}");
                let more = shape::how_to_fix(spec);
                errors
                    .input("in", message)
                    .help(format!("connect tensors of a fixed shape with at most {most} dims{more}"));
                return None;
            }
            let first =
                if config.tail == WindowTail::Send { Dim::AtMost(config.length) } else { Dim::Fixed(config.length) };
            let shape = std::iter::once(first).chain(spec.shape.iter().cloned());
            Some(limen::message::PortSpec::new(spec.dtype, shape).with_orientation_of(spec))
        });
        errors.into_result(shape::gives(shape::takes(spec), out).selective().spans(config.length))
    }

    fn build(config: WindowConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let item = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_bytes()).unwrap_or(0);
        Ok(WindowNode {
            length: config.length,
            hop: config.hop.unwrap_or(config.length),
            tail: config.tail,
            item,
            bytes: Vec::with_capacity(item * config.length),
            headers: std::collections::VecDeque::with_capacity(config.length),
            skip: 0,
            fresh: 0,
            stopped: cx.discarded("stopped"),
            dropped: cx.lost("dropped"),
        })
    }

    fn reset(&mut self, _: Reset) {
        self.bytes.clear();
        self.headers.clear();
        let (fresh, length) = (self.fresh as u64, self.length);
        let why = || format!("upstream messages were lost when the window held {fresh} of {length} messages");
        self.dropped.lose(fresh, why);
        (self.skip, self.fresh) = (0, 0);
    }
}

impl Transform for WindowNode {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.skip > 0 {
            self.skip -= 1;
            self.stopped += 1;
            return Ok(());
        }
        self.bytes.extend_from_slice(input.body.bytes());
        self.headers.push_back(*input.header());
        self.fresh += 1;
        if self.headers.len() == self.length { self.send(out) } else { Ok(()) }
    }

    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        // If all remaining messages were part of the last window, there is nothing to send.
        if self.tail == WindowTail::Send && self.fresh > 0 {
            return self.send(out);
        }
        self.stopped += std::mem::take(&mut self.fresh) as u64;
        Ok(())
    }
}
