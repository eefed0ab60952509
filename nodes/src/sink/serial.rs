//! Messages to a serial device.

use crate::stream::backoff::Backoff;
use crate::stream::outgoing::{Outgoing, Patience, Sent};
use crate::stream::tty::{self, Tty};
use crate::stream::{self, Framing};
use limen::{
    Building, Claim, Clock, Cost, Given, Message, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink, Tensor,
    Time,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::File;

/// How much longer than it takes on the wire a message may take, ns.
const PATIENCE: u64 = 100_000_000;

/// Sends the bytes of every message to a serial device.
///
/// The device takes 8 bits without parity and one stop bit; there is no flow control. It lies outside the graph's folder, so
/// that the command line has to allow it: `--allow-path /dev`. A call lasts as long as its message is on the wire. What a
/// device does not take is counted (`full`), and what was to go to one that is gone (`unsent`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The device, such as `/dev/ttyUSB0`.
    pub device: String,
    /// Bits a second, such as `115200`.
    pub baud: u32,
    /// How a message ends; `lines` by default.
    #[serde(default)]
    pub framing: Framing,
}

/// The node.
#[derive(Debug)]
pub struct Serial {
    tty: Tty,
    port: Option<File>,
    out: Outgoing,
    framing: Framing,
    baud: u64,
    frame: Vec<u8>,
    backoff: Backoff,
    due: Time,
    clock: Clock,
    sent: u64,
    unsent: u64,
    full: u64,
    partial: u64,
}

impl Serial {
    /// Until when a message may be waited for.
    fn until(&self) -> Time {
        // Ten bits on the wire for eight.
        let wire = self.frame.len() as u64 * 10_000_000_000 / self.baud.max(1);
        self.clock.now() + wire + PATIENCE
    }

    fn close(&mut self) {
        self.partial += u64::from(self.out.is_behind());
        self.out = Outgoing::default();
        self.port = None;
        self.due = self.backoff.after(self.clock.now());
    }
}

impl Node for Serial {
    type Config = Config;

    fn ports(config: &Config, given: &Given, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium).blocking();
        if let Some(path) = tty::check(&config.device, config.baud, cx.folders, &mut errors) {
            ports = ports.claim(Claim::Device(format!("{} for writing", path.display())));
        }
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let tty = Tty::new(&config.device, config.baud, cx.folders())?;
        let port = tty.open().map_err(|error| tty.error(error))?;
        Ok(Serial {
            tty,
            port: Some(port),
            out: Outgoing::default(),
            framing: config.framing,
            baud: config.baud.into(),
            frame: Vec::new(),
            backoff: Backoff::new(cx.node(), cx.now()),
            due: Time::ZERO,
            clock: cx.clock(),
            sent: 0,
            unsent: 0,
            full: 0,
            partial: 0,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        to.lost("unsent", self.unsent);
        to.lost("full", self.full);
        to.lost("partial", self.partial + u64::from(self.out.is_behind()));
    }
}

impl Sink for Serial {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        self.frame.clear();
        self.framing.write(input.body.bytes(), &mut self.frame)?;
        if self.port.is_none() && self.due <= self.clock.now() {
            match self.tty.open() {
                Ok(port) => self.port = Some(port),
                Err(_) => self.due = self.backoff.after(self.clock.now()),
            }
        }
        let until = self.until();
        let Some(port) = &self.port else {
            self.unsent += 1;
            return Ok(());
        };
        match self.out.send(port, &self.frame, Patience { clock: &self.clock, until }) {
            Sent::Done => {
                self.sent += 1;
                self.backoff.reset();
            }
            Sent::Full => self.full += 1,
            Sent::Closed => {
                self.unsent += 1;
                self.close();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        let until = self.until();
        if let Some(port) = &self.port {
            self.out.wait(port, Patience { clock: &self.clock, until });
        }
        Ok(())
    }
}
