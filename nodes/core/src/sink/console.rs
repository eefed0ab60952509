//! Messages as lines on the terminal.

use crate::stream::standard_output;
use crate::tensor::text::{NonFinite, Values};
use limen::message::PortSpec;
use limen::node::{
    Building, Connected, Cost, Lead, Many, MessageSet, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink,
    Statistics,
};
use limen::text::is_terminal_control;
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{ErrorKind, Write};

/// Larger tensors are shown as type and shape.
const MAX_ELEMENTS: usize = 16;
/// Lines are written when this many bytes are buffered, or when no further message is waiting.
const BUFFER: usize = 8 << 10;

/// Prints messages to standard output, one line each: `12 label=7 score=0.98`.
///
/// A line contains the sequence number (`seq`) and the value of each input. For a tensor of more
/// than 16 elements, the line shows the type and shape. Inputs may have any names. With several
/// inputs, `seq` is the sequence number of the trigger or anchor message.
///
/// If the program that reads standard output pauses (`| less`), the node and the blocking edges
/// upstream wait. The node counts lines that are not printed before `run.stop` expires
/// (`unwritten`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ConsoleConfig {
    /// With `every: 10`, the node prints every tenth message, starting with the first. Default: 1.
    #[serde(default = "one")]
    pub every: u64,
}

fn one() -> u64 {
    1
}

/// Runs `kind: console`; [`ConsoleConfig`] says what it does.
#[derive(Debug)]
pub struct Console {
    /// The name of each input, and whether it is text.
    inputs: Vec<(String, bool)>,
    lead: Lead,
    every: u64,
    taken: u64,
    text: Vec<u8>,
    run: Statistics,
    unwritten: u64,
    /// Standard output is closed, as in `limen-run graph.yaml | head`; the graph goes on.
    is_closed: bool,
}

impl Console {
    fn print(&mut self) -> Result<(), NodeError> {
        if self.is_closed || self.text.is_empty() {
            self.text.clear();
            return Ok(());
        }
        let printed = standard_output::print(&self.text, &self.run);
        if let Ok(written) = printed {
            self.unwritten += lines(&self.text[written..]);
        }
        self.text.clear();
        match printed {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_closed = true,
            Err(error) => return Err(NodeError::file("standard output", error)),
            Ok(_) => {}
        }
        Ok(())
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Appends ` name=value`.
fn push_value(name: &str, message: &Message<Tensor>, is_text: bool, to: &mut Vec<u8>) -> Result<(), NodeError> {
    let shape = message.body.shape();
    let values = Values::of(&message.body)?;
    to.push(b' ');
    to.extend_from_slice(name.as_bytes());
    to.push(b'=');
    match values {
        Values::U8(text) if is_text => push_text(text, to),
        _ if shape.is_empty() => values.list(0..1, NonFinite::Plain, to),
        _ if values.len() <= MAX_ELEMENTS => {
            to.push(b'[');
            values.list(0..values.len(), NonFinite::Plain, to);
            to.push(b']');
        }
        _ => {
            // Writing to a vector cannot fail.
            let _ = write!(to, "{}[", message.body.dtype());
            for (i, length) in shape.iter().enumerate() {
                let _ = write!(to, "{}{length}", if i > 0 { "," } else { "" });
            }
            to.push(b']');
        }
    }
    Ok(())
}

/// Appends text with terminal control characters escaped.
fn push_text(text: &[u8], to: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(text).chars() {
        let _ = if is_terminal_control(c) { write!(to, "{}", c.escape_default()) } else { write!(to, "{c}") };
    }
}

impl Node for Console {
    type Config = ConsoleConfig;

    fn ports(config: &ConsoleConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.every == 0 {
            errors
                .at("every", "`every` must be at least 1, got 0")
                .help("write 1 or more, or `kind: null` to print nothing");
        }
        let mut ports = Ports::new().cost(Cost::Medium).blocking();
        for (name, spec) in given.inputs() {
            ports = match spec {
                Some(spec) => ports.input(name, spec.clone()),
                None => ports.input_any(name),
            };
        }
        errors.into_result(ports)
    }

    fn build(config: ConsoleConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let input =
            |(name, spec): &(String, Option<PortSpec>)| (name.clone(), spec.as_ref().is_some_and(PortSpec::is_text));
        let inputs = cx.inputs().iter().map(input).collect();
        Ok(Console {
            inputs,
            lead: cx.lead(),
            every: config.every.max(1),
            taken: 0,
            text: Vec::with_capacity(BUFFER),
            run: cx.statistics(),
            unwritten: 0,
            is_closed: false,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let unwritten = self.unwritten + if self.is_closed { 0 } else { lines(&self.text) };
        if unwritten > 0 {
            to.lost("unwritten", unwritten);
        }
    }
}

impl Sink for Console {
    type In = Many<Tensor>;

    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        let is_due = self.taken.is_multiple_of(self.every);
        self.taken += 1;
        if !is_due || self.is_closed {
            return Ok(());
        }
        let _ = write!(self.text, "{}", self.lead.header_of::<Self::In>(&input).seq);
        for (message, (name, is_text)) in input.iter().zip(&self.inputs) {
            push_value(name, message, *is_text, &mut self.text)?;
        }
        self.text.push(b'\n');
        if self.text.len() >= BUFFER { self.print() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.print()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // The run was interrupted: print what is buffered. An error can no longer be reported.
        let _ = self.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::TensorMut;
    use limen::message::{DType, Dim};

    fn tensor(spec: PortSpec) -> TensorMut {
        TensorMut::alone(&spec).unwrap()
    }

    #[test]
    fn values_are_short_and_control_characters_are_escaped() {
        let mut scalar = tensor(PortSpec::fixed(DType::F32, []));
        scalar.as_mut_slice::<f32>().unwrap()[0] = 0.98;
        let mut name = tensor(PortSpec::new(DType::U8, [Dim::AtMost(20)]));
        name.set_len(0, 10).unwrap();
        name.bytes_mut().copy_from_slice("ü\u{1b}[31m\n .".as_bytes());
        let mut most = tensor(PortSpec::fixed(DType::U64, []));
        most.as_mut_slice::<u64>().unwrap()[0] = u64::MAX;
        let mut stamps = tensor(PortSpec::fixed(DType::I64, [2]));
        stamps.as_mut_slice::<i64>().unwrap().copy_from_slice(&[9_007_199_254_740_993, 1_403_636_579_758_555_393]);
        let mut longitude = tensor(PortSpec::fixed(DType::F64, []));
        longitude.as_mut_slice::<f64>().unwrap()[0] = -122.419_415_500_000_01;
        for (value, is_text, expected) in [
            (most, false, " x=18446744073709551615"),
            (stamps, false, " x=[9007199254740993,1403636579758555393]"),
            (longitude, false, " x=-122.41941550000001"),
            (scalar, false, " x=0.98"),
            (tensor(PortSpec::fixed(DType::I32, [2, 2])), false, " x=[0,0,0,0]"),
            (tensor(PortSpec::image(4, 5, 3)), false, " x=u8[4,5,3]"),
            (name, true, " x=ü\\u{1b}[31m\\n ."),
        ] {
            let mut line = Vec::new();
            push_value("x", &value.freeze().into(), is_text, &mut line).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}
