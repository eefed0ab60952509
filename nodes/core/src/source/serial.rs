//! Messages from a serial device.

use crate::stream::framing::Deframer;
use crate::stream::ready::{self, Read};
use crate::stream::serial_port::{self, SerialPort};
use crate::stream::{self, Framing, OnClose};
use limen::node::{
    Building, Claim, Connected, Cost, Emit, Interest, LossCounter, Metrics, Next, Node, NodeError, PlanErrors,
    Planning, Ports, Source,
};
use limen::unit::Bytes;
use limen::{Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::Read as _;

/// Receives messages from a serial device: `bytes` `u8[≤max_bytes]`.
///
/// The line uses 8 data bits, no parity, one stop bit and no flow control. The device is outside
/// the graph's folder, so the command line must include `--allow-path /dev`. If the device is
/// missing, the graph does not start. If the device is unplugged later, the node reopens the device
/// when the device reappears (`on_close`).
///
/// The report lists lost messages as `too_large` (longer than `max_bytes`), `malformed` (invalid
/// framing) or `partial` (cut short by a disconnect). The origin of a message is the time at which
/// the node read the message's last bytes, because the kernel does not timestamp serial input.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SerialSourceConfig {
    /// Path of the device file, such as `/dev/ttyUSB0`.
    pub path: String,
    /// Speed in bits per second, such as `115200`.
    pub baud: u32,
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
    /// Maximum size of a message in bytes, from `1B` to `1GiB`. Default: `64KiB`.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// Type of the content. The sinks `csv`, `jsonl` and `console` write `text` as text. Default:
    /// `text` if `framing` is `lines` or `lines_crlf`, otherwise `bytes`.
    pub content: Option<limen::message::Content>,
    /// Action if the device disappears. Default: `reconnect`.
    #[serde(default)]
    pub on_close: OnClose,
}

/// Runs `kind: serial`; [`SerialSourceConfig`] says what it does.
#[derive(Debug)]
pub struct SerialSource {
    port: SerialPort,
    framing: Framing,
    deframer: Deframer,
    on_close: OnClose,
    last_read: Time,
    received: u64,
    too_large: LossCounter,
    malformed: LossCounter,
    partial: LossCounter,
}

impl SerialSource {
    /// Closes the device because it is gone.
    fn close(&mut self, now: Time, why: impl Into<String>) {
        self.port.close(now, why);
        let why = || "the device disappeared in the middle of a message".into();
        self.partial.lose(u64::from(self.deframer.is_partial()), why);
        self.deframer.clear();
    }
}

impl Node for SerialSource {
    type Config = SerialSourceConfig;

    fn ports(config: &SerialSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = stream::spec(config.max_bytes, config.framing, config.content, &mut errors);
        let mut ports = Ports::new()
            .output("bytes", spec)
            .cost(Cost::Medium)
            .memory(stream::buffer(config.max_bytes, config.framing));
        ports = config.on_close.declare(ports);
        if let Some(path) = serial_port::check(&config.path, config.baud, cx.folders, &mut errors) {
            ports = ports.claim(Claim::Device(format!("{} for reading", path.display())));
        }
        errors.into_result(ports)
    }

    fn build(config: SerialSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(SerialSource {
            port: SerialPort::open(&config.path, config.baud, Interest::Read, cx)?,
            framing: config.framing,
            deframer: Deframer::new(config.framing, config.max_bytes.0 as usize),
            on_close: config.on_close,
            last_read: Time::ZERO,
            received: 0,
            too_large: cx.lost("too_large"),
            malformed: cx.lost("malformed"),
            partial: cx.lost("partial"),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("received", self.received as f64);
        to.lost("stopped", self.deframer.whole_messages());
    }
}

impl Source for SerialSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        match self.deframer.take() {
            Some(Ok(message)) => {
                self.received += 1;
                stream::send(self.deframer.bytes(message), self.last_read, out)?;
                return Ok(Next::More);
            }
            Some(Err(unusable)) => {
                unusable.lose(self.deframer.max(), &mut self.too_large, &mut self.malformed);
                // A length corrupted by noise would skip many messages. Discard the buffer instead:
                // the next bytes may begin a message.
                if self.framing.has_length() {
                    self.deframer.clear();
                }
                return Ok(Next::More);
            }
            None => {}
        }
        let now = out.clock();
        let Some(port) = self.port.file() else {
            if let Some(next) = self.port.come_back(self.on_close, now) {
                return Ok(next);
            }
            out.begin_segment();
            return Ok(Next::More);
        };
        match ready::outcome((&**port).read(self.deframer.space())) {
            Ok(Read::Some(n)) => {
                self.last_read = now;
                self.deframer.filled(n);
                self.port.works();
            }
            Ok(Read::Nothing) => return Ok(Next::WhenReady(Time::NEVER)),
            // An unplugged device gives either an end or an error.
            Ok(Read::End) => self.close(now, "the device disappeared"),
            Err(error) => self.close(now, error.to_string()),
        }
        Ok(Next::More)
    }
}
