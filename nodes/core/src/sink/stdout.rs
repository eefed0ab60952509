//! Messages to standard output.

use crate::stream::{self, Framing, standard_output};
use limen::node::{
    Building, Claim, Connected, Cost, LossCounter, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink,
    Statistics,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::ErrorKind;

/// Messages are written when this many bytes are buffered, or when no further message is waiting.
const BUFFER: usize = 8 << 10;

/// Writes the bytes of every message to standard output, for the next program of a pipeline.
///
/// `limen-run` prints its report to standard output after the last message. With `--quiet`,
/// `limen-run` prints only problems. With `--json`, standard output is reserved for the report, and
/// messages go to standard error.
///
/// If the program that reads the pipe exits, as `| head` does, the node fails. By default, a
/// failure of the node ends the run. `on_error` selects another action. If the program that reads
/// the pipe pauses, the node and the blocking edges upstream wait. The node counts messages that
/// are not written before `run.stop` expires (`unwritten`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StdoutConfig {
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
}

/// Runs `kind: stdout`; [`StdoutConfig`] says what it does.
#[derive(Debug)]
pub struct Stdout {
    framing: Framing,
    text: Vec<u8>,
    messages: u64,
    /// Messages that are only in the buffer, and messages that may be lost because a write failed.
    buffered: u64,
    unwritten: LossCounter,
    run: Statistics,
}

impl Stdout {
    fn print(&mut self) -> Result<(), NodeError> {
        if self.text.is_empty() {
            return Ok(());
        }
        let printed = standard_output::print(&self.text, &self.run);
        let length = self.text.len();
        self.text.clear();
        let buffered = std::mem::take(&mut self.buffered);
        match &printed {
            Ok(written) if *written == length => {}
            Ok(_) => self.unwritten.lose(buffered, || "no process read standard output before the run ended".into()),
            Err(error) => self.unwritten.lose(buffered, || error.to_string()),
        }
        match printed {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                let why = "closed by the reader (broken pipe)";
                Err(NodeError::input("standard output", why))
            }
            Err(error) => Err(NodeError::file("standard output", error)),
        }
    }
}

impl Node for Stdout {
    type Config = StdoutConfig;

    fn ports(config: &StdoutConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium).blocking();
        errors.into_result(ports.claim(Claim::Device("standard output".into())))
    }

    fn build(config: StdoutConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (text, unwritten) = (Vec::with_capacity(BUFFER), cx.lost("unwritten"));
        Ok(Stdout { framing: config.framing, text, messages: 0, buffered: 0, unwritten, run: cx.statistics() })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.messages as f64);
        to.lost("unwritten", self.buffered);
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
        // The run was interrupted: write what is buffered. An error can no longer be reported.
        let _ = self.print();
    }
}
