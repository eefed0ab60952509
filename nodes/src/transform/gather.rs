//! Many messages become one tensor again.

use crate::tensor::shape;
use limen::message::{Dim, Header, MAX_RANK, PortSpec};
use limen::node::{
    Building, Connected, Emit, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Reset, Transform,
};
use limen::unit::Span;
use limen::{Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// Puts the parts that `scatter` made of one message together again, in their order: messages of shape `[...]` become one of
/// shape `[≤max, ...]` with the header of the message that was taken apart.
///
/// A message some of whose parts are missing is given up when the stream ends, when `open` others have begun, or, if it is set,
/// `within` after its first part came; it is counted (`incomplete`), and as lost where its parts are let go (`dropped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Most parts of one message: the bound of the dim that was scattered.
    pub max: usize,
    /// Messages whose parts may come at the same time; 4 by default.
    #[serde(default = "four")]
    pub open: usize,
    /// How long parts are waited for.
    pub within: Option<Span>,
    /// What becomes of the parts of a message that is not complete.
    #[serde(default)]
    pub missing: Missing,
}

fn four() -> usize {
    4
}

/// What becomes of the parts of a message that is not complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Those that came are sent together.
    #[default]
    Send,
    /// They are let go.
    Drop,
}

/// The node.
#[derive(Debug)]
pub struct Gather {
    item: usize,
    within: Option<u64>,
    missing: Missing,
    /// Messages whose parts are coming, the one that began first at the front.
    open: Vec<Whole>,
    spare: Vec<Whole>,
    incomplete: u64,
    /// Of those, whose parts were let go.
    dropped: u64,
}

/// A message that is being put together.
#[derive(Debug)]
struct Whole {
    header: Header,
    /// One row for each part.
    bytes: Vec<u8>,
    is_here: Vec<bool>,
    here: usize,
    due: Time,
}

impl Gather {
    /// Begins a message, giving up the oldest where there are too many.
    fn begin(&mut self, header: &Header, out: &mut Emit<Tensor>) -> Result<usize, NodeError> {
        if self.spare.is_empty() {
            self.give_up(out)?;
        }
        let Some(mut whole) = self.spare.pop() else { return Err(NodeError::input("in", "no place is left")) };
        whole.header = *header;
        (whole.header.part, whole.header.parts) = (0, 1);
        whole.is_here.fill(false);
        whole.here = 0;
        whole.due = self.within.map_or(Time::NEVER, |within| out.now() + within);
        self.open.push(whole);
        Ok(self.open.len() - 1)
    }

    fn give_up(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.incomplete += 1;
        self.dropped += u64::from(self.missing == Missing::Drop);
        self.close(0, self.missing == Missing::Send, out)
    }

    fn close(&mut self, at: usize, send: bool, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let whole = self.open.remove(at);
        let result = if send { self.send(&whole, out) } else { Ok(()) };
        self.spare.push(whole);
        result
    }

    fn send(&self, whole: &Whole, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(&whole.header)?;
        tensor.set_len(0, whole.here)?;
        let rows = tensor.bytes_mut().chunks_exact_mut(self.item);
        let here = whole.is_here.iter().enumerate().filter(|(_, is_here)| **is_here);
        for (row, (part, _)) in rows.zip(here) {
            row.copy_from_slice(&whole.bytes[part * self.item..(part + 1) * self.item]);
        }
        out.send(tensor);
        Ok(())
    }

    fn due(&self) -> Time {
        self.open.first().map_or(Time::NEVER, |whole| whole.due)
    }
}

impl Node for Gather {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (name, value, most) in [("max", config.max, 1 << 16), ("open", config.open, 1 << 10)] {
            if !(1..=most).contains(&value) {
                errors.at(name, format!("{value} is not possible")).help(format!("write 1 to {most}"));
            }
        }
        let spec = given.single().cloned();
        let whole = spec.as_ref().and_then(|spec| {
            if spec.fixed_shape().is_none() || spec.shape.len() >= MAX_RANK {
                let message = format!("{spec} cannot be put together");
                errors.input("in", message).help("connect tensors of a fixed shape with room for one more dim");
                return None;
            }
            let shape = std::iter::once(Dim::AtMost(config.max)).chain(spec.shape.iter().cloned());
            Some(PortSpec::new(spec.dtype, shape))
        });
        // A part may complete one message when another was given up for it; at the end all are.
        let emits = config.open + 1;
        let out = OutPort { name: "out".into(), spec: whole, emits, rows: 1, forwards: Vec::new() };
        let spans = config.open.saturating_mul(config.max).min(4096);
        // Every message that may be open has room for all its parts from the beginning.
        let item = spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(0);
        let whole = config.max.saturating_mul(item.saturating_add(1)).saturating_add(size_of::<Whole>());
        let memory = whole.saturating_mul(config.open);
        errors.into_result(shape::takes(spec).out_port(out).selective().gathers().spans(spans).memory(memory))
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let item = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_bytes()).unwrap_or(0);
        let whole = || Whole {
            header: Header::new(0, Time::ZERO),
            bytes: vec![0; item * config.max],
            is_here: vec![false; config.max],
            here: 0,
            due: Time::NEVER,
        };
        Ok(Gather {
            item,
            within: config.within.map(Span::as_nanos),
            missing: config.missing,
            open: Vec::with_capacity(config.open),
            spare: (0..config.open).map(|_| whole()).collect(),
            incomplete: 0,
            dropped: 0,
        })
    }

    fn reset(&mut self, _: Reset) {
        self.incomplete += self.open.len() as u64;
        self.dropped += self.open.len() as u64;
        self.spare.append(&mut self.open);
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("incomplete", self.incomplete as f64);
        if self.dropped > 0 {
            to.lost("dropped", self.dropped);
        }
    }
}

impl Transform for Gather {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = *input.header();
        let (part, parts) = (header.part as usize, header.parts as usize);
        let most = self.spare.first().or(self.open.first()).map_or(0, |whole| whole.is_here.len());
        if parts > most || part >= parts {
            let why = format!("part {part} of {parts}, where `max` is {most}");
            return Err(NodeError::input("in", why));
        }
        let same = |whole: &Whole| (whole.header.source, whole.header.seq) == (header.source, header.seq);
        let at = match self.open.iter().position(same) {
            Some(at) => at,
            None => self.begin(&header, out)?,
        };
        let whole = &mut self.open[at];
        if !std::mem::replace(&mut whole.is_here[part], true) {
            whole.here += 1;
        }
        whole.bytes[part * self.item..(part + 1) * self.item].copy_from_slice(input.body.bytes());
        if whole.here == parts {
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
