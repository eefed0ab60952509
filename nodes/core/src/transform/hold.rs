//! A safe command when messages are too old or missing.

use super::pad::{FillValue, element, fill};
use crate::tensor::shape;
use limen::message::{Content, Header, PortSpec};
use limen::node::{
    Building, Connected, DiscardCounter, Emit, InPort, Metrics, Node, NodeError, PlanErrors, Planning, Ports,
    StaleStatus, Transform,
};
use limen::unit::Span;
use limen::{Clock, Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Forwards recent messages, and sends a safe command when no recent message arrives.
///
/// The age of a message counts from its origin. The node forwards each message with an age of at
/// most `after`. The node discards older messages and counts them (`stale`).
///
/// The node becomes stale when the last forwarded message is older than `after`. Before the first
/// message, the age counts from the start of the run. A stale node sends the safe command once.
/// With `every`, a stale node repeats the safe command at that interval until a recent message
/// arrives.
///
/// When the input stream ends, the node sends the safe command as the last message. The input
/// stream also ends when an upstream node fails or is detached, or when the run is stopped.
///
/// The origin of a safe command is the current time. The latencies and deadlines of paths do not
/// include safe commands. A downstream node that joins by sequence cannot join a safe command.
/// `safe_commands` counts safe commands. `stale_periods` counts how often the node became stale.
/// `stale_ms` is the total time for which the node was stale. `safe_delay_ms` is the longest delay
/// between the scheduled time of a safe command and its sending.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct HoldConfig {
    /// Maximum age of messages, and the safe command that a stale node sends.
    pub on_stale: OnStale,
    /// What the node sends when the input stream ends: `safe` (default) is the safe command.
    #[serde(default)]
    pub at_end: AtEnd,
}

/// When messages are too old, and what a `hold` sends then.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnStale {
    /// Maximum age of a message, counted from the message's origin.
    pub after: Span,
    /// The safe command: `zeros`, a number for all elements, a list with a number for each element,
    /// or `last`. With `last`, the node repeats the last forwarded message. Before the first
    /// message, a node with `last` sends nothing.
    #[schemars(with = "WrittenCommand")]
    pub send: SafeCommand,
    /// Interval at which a stale node repeats the safe command. By default, the node sends the safe
    /// command once.
    pub every: Option<Span>,
}

/// What a `hold` sends when its stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AtEnd {
    /// The safe command.
    #[default]
    Safe,
    /// The node sends no further message.
    Nothing,
}

/// The message that a `hold` sends when its messages are too old.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected `zeros`, `last`, a number, or a list of numbers")]
pub enum SafeCommand {
    /// Of the input itself, or zeros.
    Word(SafeWord),
    /// A number for all elements.
    Number(FillValue),
    /// A number for each element, in the order of the tensor's memory.
    List(Vec<FillValue>),
}

/// A safe command with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SafeWord {
    /// Zero for all elements.
    Zeros,
    /// The last message that the node forwarded.
    Last,
}

/// [`SafeCommand`] for the schema: numbers are written as such.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum WrittenCommand {
    Word(SafeWord),
    Number(f64),
    List(Vec<f64>),
}

impl SafeCommand {
    /// Returns the bytes of a constant command for an input, those of one element if all are equal,
    /// and reports what does not fit. `None` for `last`.
    fn bytes(&self, spec: &PortSpec, errors: &mut PlanErrors) -> Option<Vec<u8>> {
        const FIELD: &str = "on_stale.send";
        let zero = [FillValue::default()];
        let (values, is_list) = match self {
            SafeCommand::Word(SafeWord::Last) => return None,
            SafeCommand::Word(SafeWord::Zeros) => (&zero[..], false),
            SafeCommand::Number(number) => (std::slice::from_ref(number), false),
            SafeCommand::List(list) => (&list[..], true),
        };
        let count = spec.max_elements().filter(|_| spec.fixed_shape().is_some() && spec.content != Content::Text);
        let Some(count) = count else {
            let text = if spec.content == Content::Text { "the text " } else { "" };
            let message = format!("expected a fixed number of elements for a constant command, found {text}{spec}");
            errors.at(FIELD, message).help("write `send: last`");
            return None;
        };
        if is_list && values.len() != count {
            let message = format!("expected {count} numbers for {spec}, found {}", values.len());
            errors.at(FIELD, message).help(format!("write {count} numbers, or one number for all elements"));
            return None;
        }
        let mut bytes = Vec::new();
        for value in values {
            let Some(element) = element(spec.dtype, *value) else {
                let message = format!("`send` must have values of {}, got {value}", spec.dtype);
                errors.at(FIELD, message).help("write values that the element type can hold, such as 0");
                return None;
            };
            bytes.extend_from_slice(&element);
        }
        Some(bytes)
    }
}

/// Runs `kind: hold`; [`HoldConfig`] says what it does.
#[derive(Debug)]
pub struct Hold {
    config: OnStale,
    at_end: AtEnd,
    /// The bytes of the safe command, or of each of its elements, if it is a constant.
    constant: Option<Vec<u8>>,
    /// The last message forwarded, if it is repeated.
    last: Option<Message<Tensor>>,
    /// Of the last message forwarded.
    header: Header,
    /// When the next safe command is due, unless a young message comes; `None` before the run
    /// begins.
    due: Option<Time>,
    /// Since when the node is stale.
    stale_since: Option<Time>,
    stale_ns: u64,
    safe_commands: u64,
    /// The longest time from when a safe command was due until it was sent, ns.
    safe_delay: u64,
    stale: DiscardCounter,
    status: StaleStatus,
    clock: Clock,
}

impl Hold {
    fn after(&self) -> u64 {
        self.config.after.as_nanos()
    }

    fn stale_ns(&self) -> u64 {
        self.stale_ns + self.stale_since.map_or(0, |since| self.clock.now().since(since))
    }

    /// Ends a stale period, if the node is in one.
    fn end_period(&mut self, now: Time) -> Option<u64> {
        let lasted = now.since(self.stale_since.take()?);
        self.stale_ns += lasted;
        Some(lasted)
    }

    fn send_safe(&mut self, out: &mut Emit<Tensor>, now: Time) -> Result<(), NodeError> {
        let mut header = self.header;
        (header.origin, header.source, header.deadline) = (now, Header::NO_SOURCE, Time::NEVER);
        match (&self.constant, &self.last) {
            (Some(bytes), _) => {
                let mut command = out.loan(&header)?;
                fill(command.bytes_mut(), bytes);
                out.send(command);
            }
            (None, Some(last)) => send_copy(last, &header, out)?,
            (None, None) => return Ok(()),
        }
        self.safe_commands += 1;
        Ok(())
    }
}

/// Sends the content of a message with another header.
fn send_copy(message: &Message<Tensor>, header: &Header, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    let mut copy = out.loan(header)?;
    shape::set_shape(&mut copy, &message.body.shape())?;
    copy.bytes_mut().copy_from_slice(message.body.bytes());
    out.send(copy);
    Ok(())
}

impl Node for Hold {
    type Config = HoldConfig;

    fn ports(config: &HoldConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let OnStale { after, send, every } = &config.on_stale;
        for (key, time) in [("after", Some(after)), ("every", every.as_ref())] {
            if time.is_some_and(|time| time.as_nanos() == 0) {
                let message = format!("`{key}` must be above 0 s, got 0 s");
                errors.at(format!("on_stale.{key}"), message).help(format!("write `{key}: 100ms`"));
            }
        }
        let spec = given.single().cloned();
        match &spec {
            Some(spec) => _ = send.bytes(spec, &mut errors),
            None => {
                errors.input("in", "the type of the input is not known").help("connect a node that is not downstream");
            }
        }
        let ports = match send {
            // The last message is kept, and a node downstream may write into what it receives.
            SafeCommand::Word(SafeWord::Last) => {
                let input = InPort { name: "in".into(), spec: spec.clone(), holds: 1 };
                shape::gives(Ports::new().in_port(input), spec)
            }
            _ => shape::takes(spec.clone()).output_forwarding("out", spec, "in").creates(),
        };
        errors.into_result(ports.wakes().selective().by_clock("on_stale.after"))
    }

    fn build(config: HoldConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        // Errors of the config were reported while planning.
        let constant = spec.and_then(|spec| config.on_stale.send.bytes(spec, &mut PlanErrors::default()));
        Ok(Hold {
            at_end: config.at_end,
            config: config.on_stale,
            constant,
            last: None,
            header: Header::new(0, Time::ZERO),
            due: None,
            stale_since: None,
            stale_ns: 0,
            safe_commands: 0,
            safe_delay: 0,
            stale: cx.discarded("stale"),
            status: cx.staleness(),
            clock: cx.clock(),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("safe_commands", self.safe_commands as f64);
        to.set("safe_delay_ms", self.safe_delay as f64 / 1e6);
        to.set("stale_ms", self.stale_ns() as f64 / 1e6);
    }
}

impl Transform for Hold {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        // The time of the turn may be older than the message.
        let (now, origin) = (out.clock(), input.header().origin);
        if now.since(origin) > self.after() {
            self.stale += 1;
            return Ok(());
        }
        if let Some(lasted) = self.end_period(now) {
            self.status.ended(Duration::from_nanos(lasted));
        }
        self.header = *input.header();
        if self.constant.is_some() {
            out.send(input);
        } else {
            send_copy(&input, input.header(), out)?;
            self.last = Some(input);
        }
        // The origin of another clock may be in the future: such a message is not young for longer.
        let due = origin.min(now) + self.after();
        self.due = Some(due);
        out.wake_at(due);
        Ok(())
    }

    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let now = out.clock();
        let due = *self.due.get_or_insert(now + self.after());
        if now < due {
            out.wake_at(due);
            return Ok(());
        }
        self.safe_delay = self.safe_delay.max(now.since(due));
        if self.stale_since.is_none() {
            self.stale_since = Some(now);
            self.status.begun(self.config.after.0);
        }
        let again = self.config.every.map_or(Time::NEVER, |every| now + every.as_nanos());
        self.due = Some(again);
        out.wake_at(again);
        self.send_safe(out, now)
    }

    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let now = out.clock();
        self.end_period(now);
        if self.at_end == AtEnd::Safe { self.send_safe(out, now) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safe_command_has_the_type_and_the_shape_of_the_input() {
        for (send, spec, expected) in [
            (r#""zeros""#, "f32[2]", Ok(Some(vec![0; 4]))),
            (r#""last""#, "f32[<=3]", Ok(None)),
            ("7", "u8[2,2]", Ok(Some(vec![7]))),
            ("[1, -2]", "i8[2]", Ok(Some(vec![1, 0xFE]))),
            ("[1, 2, 3, 4]", "u8[2,2]", Ok(Some(vec![1, 2, 3, 4]))),
            ("[3]", "u8[]", Ok(Some(vec![3]))),
            ("[1, 2]", "f32[3]", Err("expected 3 numbers for f32[3], found 2")),
            ("[]", "u8[2]", Err("expected 2 numbers for u8[2], found 0")),
            ("0.5", "u8[1]", Err("`send` must have values of u8, got 0.5")),
            ("[1, 256]", "u8[2]", Err("`send` must have values of u8, got 256")),
            ("0", "u8[4294967296,4294967296]", Err("expected a fixed number of elements")),
            ("0", "f32[<=3]", Err("expected a fixed number of elements for a constant command, found f32[≤3]")),
            (r#""zeros""#, "text[8]", Err("found the text ")),
        ] {
            let spec: PortSpec = match spec {
                "text[8]" => "u8[8]".parse::<PortSpec>().unwrap().with_content(Content::Text),
                _ => spec.parse().unwrap(),
            };
            let send: SafeCommand = serde_json::from_str(send).unwrap();
            let mut errors = PlanErrors::default();
            let bytes = send.bytes(&spec, &mut errors);
            match (errors.into_result(()), expected) {
                (Ok(()), Ok(expected)) => assert_eq!(bytes, expected, "{send:?} {spec}"),
                (Err(errors), Err(expected)) => {
                    assert!(format!("{errors:?}").contains(expected), "{send:?} {spec}: {errors:?}");
                }
                (found, expected) => panic!("{send:?} {spec}: {found:?} instead of {expected:?}"),
            }
        }
        assert!(serde_json::from_str::<SafeCommand>(r#""stop""#).is_err());
    }
}
