//! Frames to a CAN bus.

use crate::stream::bus_errors::{self, BusErrors};
use crate::stream::can_frame::{self, check_interface};
use limen::node::{
    Building, Connected, Cost, LossCounter, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Progress, Sink,
};
use limen::{Clock, Message, Tensor, Time};
use limen_nodes_core::stream::removable::Removable;
use limen_nodes_core::stream::{self, Framing};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use schemars::JsonSchema;
use serde::Deserialize;
use socketcan::{CanFdSocket, CanSocket, Socket, SocketOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Sends each message as a frame to a CAN bus. Messages have the format of the source `can`:
/// identifier, length, flags, two reserved bytes, data.
///
/// The length field must equal the length of the data. CAN FD data is zero-padded to the next valid
/// CAN FD length. If a message is not a valid frame, the call fails.
///
/// A frame waits up to 100 ms for space in the interface's queue. `unsent` counts frames that found
/// no space within 100 ms, and frames that the interface rejected. Frames are unsent, for example,
/// if the interface is down or the bus has no power. In the bus-off state (`bus_off`), the kernel
/// accepts frames but drops them. `unsent` also counts frames that the kernel drops in the bus-off
/// state. The node reopens the interface when the interface reappears. The node cannot detect
/// whether another node on the bus receives a frame.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CanSinkConfig {
    /// Name of the interface, such as `can0`.
    pub interface: String,
    /// Whether to send CAN FD frames, with up to 64 bytes of data. Default: `false`.
    #[serde(default)]
    pub fd: bool,
}

/// How long a frame waits for room, and how long to the next attempt, ns.
const WAIT: u64 = 100_000_000;
const AGAIN: u64 = 1_000_000;
/// The most reports of the controller that are read before a frame is sent.
const REPORTS: usize = 64;

/// Runs `kind: can`; [`CanSinkConfig`] says what it does.
#[derive(Debug)]
pub struct CanSink {
    socket: Removable<OwnedFd>,
    config: CanSinkConfig,
    clock: Clock,
    /// A frame for which there was no room, and until when it waits.
    pending: Option<([u8; can_frame::FD], usize, Time)>,
    errors: BusErrors,
    sent: u64,
    unsent: LossCounter,
}

/// Sets up a socket that receives nothing but what says whether frames can be sent.
fn set_up<S: Socket + SocketOptions + AsFd>(socket: &S) -> io::Result<OwnedFd> {
    socket.set_filter_drop_all()?;
    socket.set_error_filter(bus_errors::OF_STATE)?;
    socket.set_nonblocking(true)?;
    socket.as_fd().try_clone_to_owned()
}

impl CanSinkConfig {
    fn open(&self) -> io::Result<OwnedFd> {
        if self.fd { set_up(&CanFdSocket::open(&self.interface)?) } else { set_up(&CanSocket::open(&self.interface)?) }
    }
}

impl CanSink {
    /// Reads what the controller has reported. The kernel takes frames for one that is off the bus,
    /// and drops them.
    fn read_errors(&mut self) {
        let Some(socket) = self.socket.get() else { return };
        let mut frame = [0; can_frame::FD];
        for _ in 0..REPORTS {
            match recv(socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                Ok(bytes) => _ = self.errors.record(&frame[..bytes.min(can_frame::FD)]),
                // The interface is down: it begins anew when it is up.
                Err(Errno::ENETDOWN) => self.errors.is_back(),
                Err(Errno::EINTR) => {}
                // Sending says it if the interface has disappeared.
                Err(_) => return,
            }
        }
    }

    /// Sends a frame; returns whether it is done with.
    fn send(&mut self, frame: &[u8]) -> bool {
        self.socket.reopen(self.clock.now(), || self.config.open());
        self.read_errors();
        loop {
            let Some(socket) = self.socket.get() else {
                self.unsent.lose(1, || "the interface has disappeared".into());
                return true;
            };
            match send(socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {
                    self.socket.works();
                    if self.errors.is_off() {
                        self.unsent.lose(1, || "the controller is off the bus after too many errors".into());
                    } else {
                        self.sent += 1;
                    }
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return false,
                Err(error) => {
                    self.unsent.lose(1, || io::Error::from(error).to_string());
                    if matches!(error, Errno::ENODEV | Errno::ENXIO) {
                        self.socket.count_disconnect(io::Error::from(error).to_string());
                        self.socket.close(self.clock.now());
                        self.errors.is_back();
                    }
                }
            }
            return true;
        }
    }
}

impl Node for CanSink {
    type Config = CanSinkConfig;

    fn ports(config: &CanSinkConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        check_interface(&config.interface, &mut errors);
        let ports = stream::takes_bytes(given, Framing::Raw, &mut errors).cost(Cost::Medium);
        errors.into_result(ports)
    }

    fn build(config: CanSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("the interface `{}`", config.interface), error);
        let socket = Removable::new(config.open().map_err(refused)?, cx);
        Ok(CanSink {
            socket,
            config,
            clock: cx.clock(),
            pending: None,
            errors: BusErrors::default(),
            sent: 0,
            unsent: cx.lost("unsent"),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        self.errors.report_off(&self.config.interface, to);
        to.lost("unsent", u64::from(self.pending.is_some()));
    }
}

impl Sink for CanSink {
    type In = Tensor;
    const WAITS: bool = true;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let (frame, size) =
            can_frame::frame(input.body.bytes(), self.config.fd).map_err(|why| NodeError::input("a message", why))?;
        if !self.send(&frame[..size]) {
            self.pending = Some((frame, size, self.clock.now() + WAIT));
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        let Some((frame, size, until)) = self.pending else { return Ok(Progress::Takes(Time::NEVER)) };
        let now = self.clock.now();
        if self.send(&frame[..size]) {
            self.pending = None;
        } else if now >= until {
            self.unsent.lose(1, || "the transmit queue of the interface was full".into());
            self.pending = None;
        } else {
            return Ok(Progress::WhenReady(now + AGAIN));
        }
        Ok(Progress::Takes(Time::NEVER))
    }
}
