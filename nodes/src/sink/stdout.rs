//! The standard output.

use crate::stream::{self, Framing};
use limen::node::{Building, Claim, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, ErrorKind, Write};

/// Messages are written together when there are so many bytes of them, or when nothing more comes at the moment.
const BUFFER: usize = 8 << 10;

/// Writes the bytes of every message to the standard output, for the next program.
///
/// `limen-run` prints its report there too, behind the last message: `limen-run --quiet` leaves out what is not wrong. With
/// `--json`, which keeps the standard output for itself, messages go to the standard error. When nobody reads any more, as
/// behind `| head`, the node fails, which ends the run unless `on_error` says otherwise.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// How a message ends; `lines` by default.
    #[serde(default)]
    pub framing: Framing,
}

/// The node.
#[derive(Debug)]
pub struct Stdout {
    framing: Framing,
    text: Vec<u8>,
    messages: u64,
    /// How many of them are only in the buffer, and how many may not have been written when writing failed.
    buffered: u64,
    unwritten: u64,
}

impl Stdout {
    fn print(&mut self) -> Result<(), NodeError> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(&self.text).and_then(|()| out.flush());
        drop(out);
        self.text.clear();
        let buffered = std::mem::take(&mut self.buffered);
        if written.is_err() {
            self.unwritten += buffered;
        }
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                let why = "nobody reads it any more (broken pipe)";
                Err(NodeError::input("standard output", why))
            }
            Err(error) => Err(NodeError::file("standard output", error)),
        }
    }
}

impl Node for Stdout {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium).blocking();
        errors.into_result(ports.claim(Claim::Device("standard output".into())))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Stdout { framing: config.framing, text: Vec::with_capacity(BUFFER), messages: 0, buffered: 0, unwritten: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.messages as f64);
        if self.unwritten + self.buffered > 0 {
            to.lost("unwritten", self.unwritten + self.buffered);
        }
    }
}

impl Sink for Stdout {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        if self.text.len() >= BUFFER {
            self.print()?;
        }
        self.framing.write(input.body.bytes(), &mut self.text)?;
        self.messages += 1;
        self.buffered += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.print()
    }
}

impl Drop for Stdout {
    fn drop(&mut self) {
        // The run was cut short; what was to be written still is, and there is nobody left to tell of an error.
        let _ = self.print();
    }
}
