//! The inverse of `scatter`: several messages as one tensor.

use crate::tensor::shape;
use limen::message::{Content, Dim, Header, MAX_RANK, PortSpec};
use limen::node::{
    Building, Connected, Emit, LossCounter, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Reset,
    Transform,
};
use limen::unit::Span;
use limen::{Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// Reassembles the parts of a message that `scatter` or `crop_boxes` split, in the order of the
/// parts.
///
/// Parts of shape `[...]` become one tensor of shape `[≤max, ...]`. Parts that are text become one
/// text, with one line per part. The output has the header of the original message.
///
/// For a message with zero parts, the node produces an output only if the upstream `scatter` or
/// `crop_boxes` sets `empty: send`. The output for zero parts is a tensor without rows, or an empty
/// text.
///
/// The node stops waiting for missing parts when the stream ends or when `within` expires. If a new
/// message begins while `open` messages are incomplete, the node stops waiting for the oldest
/// message.
///
/// The node counts each incomplete message (`incomplete`). With `missing: drop`, the node also
/// counts incomplete messages as lost (`dropped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct GatherConfig {
    /// Maximum number of parts of a message, 1 to 65536. Write the bound of the split tensor's
    /// first dim, or `max` of `crop_boxes`. A message with more parts fails the call.
    pub max: usize,
    /// Maximum number of incomplete messages at the same time, 1 to 1024. Default: 4.
    #[serde(default = "four")]
    pub open: usize,
    /// How long the node waits for missing parts after the first part arrived. Default: no limit.
    pub within: Option<Span>,
    /// What the node does with an incomplete message. Default: `send`.
    #[serde(default)]
    pub missing: MissingParts,
}

fn four() -> usize {
    4
}

/// What to do with a message that has missing parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingParts {
    /// Send the parts that arrived.
    #[default]
    Send,
    /// Send nothing.
    Drop,
}

/// Runs `kind: gather`; [`GatherConfig`] says what it does.
#[derive(Debug)]
pub struct Gather {
    /// Bytes of the longest part, with the line end of a text.
    item: usize,
    is_text: bool,
    within: Option<u64>,
    missing: MissingParts,
    /// Messages being assembled, the oldest first.
    open: Vec<Assembly>,
    spare: Vec<Assembly>,
    incomplete: u64,
    /// Incomplete messages whose parts were dropped.
    dropped: LossCounter,
}

/// A message being assembled.
#[derive(Debug)]
struct Assembly {
    header: Header,
    /// Room for the longest part, for each part.
    bytes: Vec<u8>,
    /// The bytes of each part that arrived.
    lengths: Vec<Option<usize>>,
    parts_here: usize,
    due: Time,
}

impl Assembly {
    /// Stores a part, with a line end if it is text, in its room of `item` bytes.
    fn put(&mut self, part: usize, bytes: &[u8], item: usize, is_text: bool) {
        let room = &mut self.bytes[part * item..][..item];
        room[..bytes.len()].copy_from_slice(bytes);
        if is_text {
            room[bytes.len()] = b'\n';
        }
        let before = self.lengths[part].replace(bytes.len() + usize::from(is_text));
        self.parts_here += usize::from(before.is_none());
    }

    /// Returns the parts that arrived.
    fn parts(&self, item: usize) -> impl Iterator<Item = &[u8]> {
        let lengths = self.lengths.iter().enumerate();
        lengths.filter_map(move |(part, length)| Some(&self.bytes[part * item..][..(*length)?]))
    }
}

impl Gather {
    /// Begins to assemble a message, closing the oldest if too many are open.
    fn begin(&mut self, header: &Header, out: &mut Emit<Tensor>) -> Result<usize, NodeError> {
        if self.spare.is_empty() {
            self.give_up(out)?;
        }
        let Some(mut whole) = self.spare.pop() else {
            return Err(NodeError::input("in", "no room is left for another message: write a larger `open`"));
        };
        whole.header = *header;
        (whole.header.part, whole.header.parts) = (0, 1);
        whole.lengths.fill(None);
        whole.parts_here = 0;
        whole.due = self.within.map_or(Time::NEVER, |within| out.now() + within);
        self.open.push(whole);
        Ok(self.open.len() - 1)
    }

    fn give_up(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.incomplete += 1;
        if self.missing == MissingParts::Drop {
            let here = self.open.first().map_or(0, |whole| whole.parts_here);
            self.dropped.lose(1, || format!("the message is incomplete (parts that arrived: {here})"));
        }
        self.close(0, self.missing == MissingParts::Send, out)
    }

    fn close(&mut self, at: usize, send: bool, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let whole = self.open.remove(at);
        let result = if send { self.send(&whole, out) } else { Ok(()) };
        self.spare.push(whole);
        result
    }

    fn send(&self, whole: &Assembly, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(&whole.header)?;
        let bytes: usize = whole.lengths.iter().flatten().sum();
        tensor.set_len(0, if self.is_text { bytes.saturating_sub(1) } else { whole.parts_here })?;
        let mut rest = tensor.bytes_mut();
        for part in whole.parts(self.item) {
            // There is no room for the line end of the last part.
            let length = part.len().min(rest.len());
            let (to, behind) = rest.split_at_mut(length);
            to.copy_from_slice(&part[..length]);
            rest = behind;
        }
        out.send(tensor);
        Ok(())
    }

    fn due(&self) -> Time {
        self.open.first().map_or(Time::NEVER, |whole| whole.due)
    }
}

/// Returns the bytes of the longest part, with the line end of a text; `None` if they have no
/// bound.
fn item(spec: &PortSpec) -> Option<usize> {
    spec.max_bytes()?.checked_add(usize::from(spec.is_text()))
}

impl Node for Gather {
    type Config = GatherConfig;

    fn ports(config: &GatherConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (name, value, most) in [("max", config.max, 1 << 16), ("open", config.open, 1 << 10)] {
            if !(1..=most).contains(&value) {
                errors
                    .at(name, format!("`{name}` must be 1 to {most}, got {value}"))
                    .help(format!("write 1 to {most}"));
            }
        }
        let spec = given.single().cloned();
        let item = spec.as_ref().and_then(item).unwrap_or(0);
        let whole = spec.as_ref().and_then(|spec| {
            if spec.is_text() && item > 0 {
                let most = Dim::AtMost(config.max.saturating_mul(item));
                return Some(PortSpec::new(spec.dtype, [most]).with_content(Content::Text));
            }
            if spec.fixed_shape().is_none() || spec.shape.len() >= MAX_RANK {
                let most = MAX_RANK - 1;
                let message = format!("expected text or a fixed shape of at most {most} dims, found {spec}");
                let more = shape::how_to_fix(spec);
                errors
                    .input("in", message)
                    .help(format!("connect text, or tensors of a fixed shape with at most {most} dims{more}"));
                return None;
            }
            let shape = std::iter::once(Dim::AtMost(config.max)).chain(spec.shape.iter().cloned());
            Some(PortSpec::new(spec.dtype, shape).with_orientation_of(spec))
        });
        // A part may close an older message and complete its own; at the end of the stream all open
        // messages are sent.
        let emits = config.open.saturating_add(1);
        let out = OutPort { name: "out".into(), spec: whole, emits, rows: 1, forwards: Vec::new() };
        let spans = config.open.saturating_mul(config.max).min(4096);
        // Room for all parts of every open message is allocated at the start.
        let part = item.saturating_add(size_of::<Option<usize>>());
        let whole = config.max.saturating_mul(part).saturating_add(size_of::<Assembly>());
        let memory = whole.saturating_mul(config.open);
        let mut ports = shape::takes(spec).out_port(out).selective().gathers(config.max);
        if config.within.is_some() {
            ports = ports.by_clock("within");
        }
        errors.into_result(ports.spans(spans).memory(memory))
    }

    fn build(config: GatherConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let item = spec.and_then(item).unwrap_or(0);
        let whole = || Assembly {
            header: Header::new(0, Time::ZERO),
            bytes: vec![0; item * config.max],
            lengths: vec![None; config.max],
            parts_here: 0,
            due: Time::NEVER,
        };
        Ok(Gather {
            item,
            is_text: spec.is_some_and(PortSpec::is_text),
            within: config.within.map(Span::as_nanos),
            missing: config.missing,
            open: Vec::with_capacity(config.open),
            spare: (0..config.open).map(|_| whole()).collect(),
            incomplete: 0,
            dropped: cx.lost("dropped"),
        })
    }

    fn reset(&mut self, _: Reset) {
        self.incomplete += self.open.len() as u64;
        let open = self.open.len() as u64;
        self.dropped.lose(open, || "upstream messages were lost before all parts of the message arrived".into());
        self.spare.append(&mut self.open);
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("incomplete", self.incomplete as f64);
    }
}

impl Transform for Gather {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = *input.header();
        let (part, parts) = (header.part as usize, header.parts as usize);
        let most = self.spare.first().or(self.open.first()).map_or(0, |whole| whole.lengths.len());
        // A message without parts comes as part 0 of 0, whose body has no meaning.
        if parts > most || part >= parts.max(1) {
            let why = format!("`max` must be at least the {parts} parts of a message, got {most} (part {part})");
            return Err(NodeError::input("in", why));
        }
        let same = |whole: &Assembly| (whole.header.source, whole.header.seq) == (header.source, header.seq);
        let length = input.body.bytes().len() + usize::from(self.is_text);
        if length > self.item {
            let why = format!(
                "expected at most {} bytes as planned, found {:?}",
                self.item.saturating_sub(usize::from(self.is_text)),
                input.body
            );
            return Err(NodeError::input("in", why));
        }
        let at = match self.open.iter().position(same) {
            Some(at) => at,
            None => self.begin(&header, out)?,
        };
        let whole = &mut self.open[at];
        if parts > 0 {
            whole.put(part, input.body.bytes(), self.item, self.is_text);
        }
        if whole.parts_here == parts {
            self.close(at, true, out)?;
        }
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }

    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let now = out.clock();
        while self.due() <= now {
            self.give_up(out)?;
        }
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }

    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        while !self.open.is_empty() {
            self.give_up(out)?;
        }
        Ok(())
    }
}
