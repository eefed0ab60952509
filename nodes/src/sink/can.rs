//! Frames to a CAN bus.

use crate::stream::can_frame::{self, check_interface};
use crate::stream::{self, Framing};
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Progress, Sink};
use limen::{Clock, Message, Tensor, Time};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use schemars::JsonSchema;
use serde::Deserialize;
use socketcan::{CanFdSocket, CanSocket, Socket, SocketOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Sends each message as a frame to a CAN bus, in the form in which the source `can` gives frames: identifier, length, flags, two bytes
/// without a meaning, data.
///
/// The length is that of the data; data of CAN FD is filled up with zeros to one of its lengths. A frame waits up to 100 ms for room in the
/// interface's queue; one that has waited in vain, or that a bus without power or an interface that is down does not take, is counted
/// (`unsent`). A message that is no frame fails the call. Whether a frame arrives is not known.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The interface, such as `can0`.
    pub interface: String,
    /// Send frames of CAN FD, with up to 64 bytes of data.
    #[serde(default)]
    pub fd: bool,
}

/// How long a frame waits for room, and how long to the next attempt, ns.
const WAIT: u64 = 100_000_000;
const AGAIN: u64 = 1_000_000;

/// The node.
#[derive(Debug)]
pub struct Can {
    socket: OwnedFd,
    fd: bool,
    clock: Clock,
    /// A frame for which there was no room, and until when it waits.
    pending: Option<([u8; can_frame::FD], usize, Time)>,
    sent: u64,
    unsent: u64,
}

/// Sets up a socket that receives nothing.
fn set_up<S: Socket + SocketOptions + AsFd>(socket: &S) -> io::Result<OwnedFd> {
    socket.set_filter_drop_all()?;
    socket.set_nonblocking(true)?;
    socket.as_fd().try_clone_to_owned()
}

impl Can {
    /// Sends a frame; returns whether it is done with.
    fn send(&mut self, frame: &[u8]) -> bool {
        loop {
            match send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => self.sent += 1,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return false,
                Err(_) => self.unsent += 1,
            }
            return true;
        }
    }
}

impl Node for Can {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        check_interface(&config.interface, &mut errors);
        let ports = stream::takes_bytes(given, Framing::Raw, &mut errors).cost(Cost::Medium);
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("the interface `{}`", config.interface), error);
        let socket = if config.fd {
            CanFdSocket::open(&config.interface).and_then(|socket| set_up(&socket))
        } else {
            CanSocket::open(&config.interface).and_then(|socket| set_up(&socket))
        };
        let socket = socket.map_err(refused)?;
        Ok(Can { socket, fd: config.fd, clock: cx.clock(), pending: None, sent: 0, unsent: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        to.lost("unsent", self.unsent + u64::from(self.pending.is_some()));
    }
}

impl Sink for Can {
    type In = Tensor;
    const WAITS: bool = true;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let (frame, size) =
            can_frame::frame(input.body.bytes(), self.fd).map_err(|why| NodeError::input("a message", why))?;
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
            self.unsent += 1;
            self.pending = None;
        } else {
            return Ok(Progress::WhenReady(now + AGAIN));
        }
        Ok(Progress::Takes(Time::NEVER))
    }
}
