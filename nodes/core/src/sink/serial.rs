//! Messages to a serial device.

use crate::stream::outgoing::{Outgoing, Sent};
use crate::stream::serial_port::{self, SerialPort};
use crate::stream::{self, Framing};
use limen::node::{
    Building, Claim, Connected, Cost, Interest, LossCounter, Metrics, Node, NodeError, PlanErrors, Planning, Ports,
    Progress, Sink,
};
use limen::{Clock, Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// How long to wait for the device to take a message, in addition to its time on the wire, ns.
const SEND_WAIT: u64 = 100_000_000;

/// Sends the bytes of every message to a serial device.
///
/// The line uses 8 data bits, no parity, one stop bit and no flow control. The device is outside
/// the graph's folder, so the command line must include `--allow-path /dev`. The node reads the
/// next message after the device has accepted the current message. The node counts messages that
/// the device does not accept within 100 ms (`full`), and messages for a missing device (`unsent`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SerialSinkConfig {
    /// Path of the device file, such as `/dev/ttyUSB0`.
    pub path: String,
    /// Speed in bits per second, such as `115200`.
    pub baud: u32,
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
}

/// Runs `kind: serial`; [`SerialSinkConfig`] says what it does.
#[derive(Debug)]
pub struct SerialSink {
    port: SerialPort,
    out: Outgoing,
    framing: Framing,
    baud: u64,
    frame: Vec<u8>,
    clock: Clock,
    sent: u64,
    unsent: LossCounter,
    full: LossCounter,
    partial: LossCounter,
}

impl SerialSink {
    /// Until when to wait for the device to take the message.
    fn until(&self) -> Time {
        // Eight data bits are ten bits on the wire.
        let wire = self.frame.len() as u64 * 10_000_000_000 / self.baud.max(1);
        self.clock.now() + wire + SEND_WAIT
    }

    /// Makes the worker wait for room if bytes are pending.
    fn update_interest(&self) {
        if let Some(port) = self.port.file() {
            port.set_interest(if self.out.has_pending() { Interest::Write } else { Interest::Nothing });
        }
    }

    fn close(&mut self) {
        let why = || "the device disappeared in the middle of a message".into();
        self.partial.lose(u64::from(self.out.has_pending()), why);
        let closed = std::mem::take(&mut self.out);
        self.port.close(self.clock.now(), closed.failed().unwrap_or_else(|| "the device disappeared".into()));
    }
}

impl Node for SerialSink {
    type Config = SerialSinkConfig;

    fn ports(config: &SerialSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let largest = given.single().and_then(|spec| spec.max_bytes()).unwrap_or(0);
        let mut ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium);
        // A framed message, and its pending bytes.
        ports = ports.memory(largest.saturating_mul(2));
        if let Some(path) = serial_port::check(&config.path, config.baud, cx.folders, &mut errors) {
            ports = ports.claim(Claim::Device(format!("{} for writing", path.display())));
        }
        errors.into_result(ports)
    }

    fn build(config: SerialSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(SerialSink {
            port: SerialPort::open(&config.path, config.baud, Interest::Nothing, cx)?,
            out: Outgoing::default(),
            framing: config.framing,
            baud: config.baud.into(),
            frame: Vec::new(),
            clock: cx.clock(),
            sent: 0,
            unsent: cx.lost("unsent"),
            full: cx.lost("full"),
            partial: cx.lost("partial"),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        to.lost("partial", u64::from(self.out.has_pending()));
    }
}

impl Sink for SerialSink {
    type In = Tensor;
    const WAITS: bool = true;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        self.frame.clear();
        self.framing.write(input.body.bytes(), &mut self.frame)?;
        let until = self.until();
        let Some(port) = self.port.file() else {
            self.unsent.lose(1, || "the device has disappeared".into());
            return Ok(());
        };
        match self.out.send(&**port, &self.frame, until) {
            Sent::Done => {
                self.sent += 1;
                self.port.works();
            }
            Sent::Full => self.full.lose(1, || "the device has not accepted an earlier message".into()),
            Sent::Closed => {
                self.unsent.lose(1, || "the device has disappeared".into());
                self.close();
            }
        }
        self.update_interest();
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        let now = self.clock.now();
        self.port.reopen(now);
        let Some(port) = self.port.file() else { return Ok(Progress::Takes(self.port.due())) };
        self.out.flush_pending(&**port);
        if self.out.is_closed {
            self.close();
            return Ok(Progress::Takes(self.port.due()));
        }
        self.update_interest();
        Ok(self.out.pending_deadline(now).map_or(Progress::Takes(Time::NEVER), Progress::WhenReady))
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        let until = self.until();
        self.out.set_deadline(until);
        Ok(())
    }
}
