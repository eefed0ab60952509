//! Frames from a CAN bus.

use crate::stream::bus_errors::BusErrors;
use crate::stream::can_frame::{self, CLASSIC, EXTENDED, FD, LONGEST, STANDARD, check_interface};
use crate::stream::device_clock::{DeviceClock, Stamp, StampClock};
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Descriptors, Emit, Interest, LossCounter, Metrics, Next, Node, NodeError, PlanErrors,
    Planning, Ports, Source, Watched,
};
use limen::unit::Bytes;
use limen::{Clock, Tensor, Time};
use limen_nodes_core::format::excerpt::excerpt;
use limen_nodes_core::stream::datagram::{Datagram, Overrun, control, drain, receive, stamp_and_count};
use limen_nodes_core::stream::removable::Removable;
use limen_nodes_core::stream::{self, OnClose};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use schemars::JsonSchema;
use serde::Deserialize;
use socketcan::{CanFdSocket, CanFilter, CanSocket, Socket, SocketOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Receives frames from a CAN bus: `frame` `u8[≤16]`, or `u8[≤72]` with `fd`.
///
/// A message contains one frame in the kernel's layout (`can_frame` or `canfd_frame`). Bytes 0 to 3
/// are the identifier, with bit 31 set for 29-bit identifiers and bit 30 for remote requests. Byte
/// 4 is the length, byte 5 contains the CAN FD flags, and bytes 6 and 7 are reserved. Data starts
/// at byte 8. `decode` with `format: struct` can read a frame. The origin of a message is the time
/// at which the kernel received the frame.
///
/// `overrun` counts frames that the kernel dropped because its buffer was full. `stopped` counts
/// frames that were in the buffer when the graph stopped. `undelivered` counts frames that were in
/// the buffer when the interface disappeared. `bus_errors` counts all error frames from the CAN
/// controller. Three kinds of error frame also have separate counters. `controller_overrun` counts
/// error frames that report a full receive buffer in the controller. `error_passive` counts error
/// frames that report the error-passive state. `bus_off` counts error frames that report the
/// bus-off state. While the controller is off the bus or the interface is down, the node waits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CanSourceConfig {
    /// Name of the interface, such as `can0`.
    pub interface: String,
    /// Identifiers to receive, such as `[0x123, 0x18FEF100]`. The node treats identifiers above
    /// 0x7FF as 29-bit identifiers. By default, the node receives all frames.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Whether to also receive CAN FD frames, with up to 64 bytes of data. Default: `false`.
    #[serde(default)]
    pub fd: bool,
    /// Size of the kernel's receive buffer, such as `4MiB`. The system may limit the size
    /// (`net.core.rmem_max`). Default: `1MiB`.
    #[serde(default = "receive_buffer")]
    pub receive_buffer: Bytes,
    /// Clock that determines the origin of messages. `device` converts the driver's timestamps to
    /// run time. `run` uses the time when the node reads the message. Default: `device`.
    #[serde(default)]
    pub clock: StampClock,
    /// What to do when the interface disappears. Default: `reconnect`.
    #[serde(default)]
    pub on_close: OnClose,
}

fn receive_buffer() -> Bytes {
    Bytes(1 << 20)
}

/// Runs `kind: can`; [`CanSourceConfig`] says what it does.
#[derive(Debug)]
pub struct CanSource {
    config: CanSourceConfig,
    descriptors: Descriptors,
    socket: Removable<Watched<OwnedFd>>,
    clock: Clock,
    opened: Time,
    control: Vec<u8>,
    received: u64,
    malformed: LossCounter,
    /// The first of them.
    overrun: Overrun,
    /// Frames that were in the socket when the interface went away.
    undelivered: LossCounter,
    errors: BusErrors,
    /// Whether the interface was down when the socket was last looked at.
    is_down: bool,
    stamps: DeviceClock,
}

/// Sets up a socket that receives some identifiers, or all, and errors.
fn set_up<S: Socket + SocketOptions + AsFd>(socket: &S, filters: &[CanFilter]) -> io::Result<OwnedFd> {
    if !filters.is_empty() {
        socket.set_filters(filters)?;
    }
    socket.set_error_filter_accept_all()?;
    socket.set_nonblocking(true)?;
    stamp_and_count(socket)?;
    socket.as_fd().try_clone_to_owned()
}

impl CanSourceConfig {
    fn open(&self) -> io::Result<OwnedFd> {
        let filter = |id: &u32| {
            let (id, mask) = if *id > STANDARD { (id | EXTENDED, LONGEST) } else { (*id, STANDARD) };
            // The flag for 29 bits has to agree.
            CanFilter::new(id, mask | EXTENDED)
        };
        let filters: Vec<CanFilter> = self.ids.iter().map(filter).collect();
        let fd = if self.fd {
            set_up(&CanFdSocket::open(&self.interface)?, &filters)?
        } else {
            set_up(&CanSocket::open(&self.interface)?, &filters)?
        };
        // The kernel takes what it allows.
        let _ = setsockopt(&fd, sockopt::RcvBuf, &(self.receive_buffer.0 as usize));
        Ok(fd)
    }
}

impl CanSource {
    fn close(&mut self, now: Time) {
        self.socket.close(now);
        self.overrun.renew();
        self.errors.is_back();
        self.is_down = false;
    }
}

impl Node for CanSource {
    type Config = CanSourceConfig;

    fn ports(config: &CanSourceConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        check_interface(&config.interface, &mut errors);
        can_frame::check_ids(&config.ids, &mut errors);
        let bytes = if config.fd { FD } else { CLASSIC };
        let spec = PortSpec::new(DType::U8, [Dim::AtMost(bytes)]).with_content(Content::Bytes);
        errors.into_result(config.on_close.declare(Ports::new().output("frame", spec).cost(Cost::Medium)))
    }

    fn build(config: CanSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("the interface `{}`", config.interface), error);
        let opened = cx.now();
        let descriptors = cx.descriptors();
        let socket = config.open().and_then(|fd| descriptors.watch(fd, Interest::Read)).map_err(refused)?;
        Ok(CanSource {
            stamps: DeviceClock::new(config.clock),
            config,
            descriptors,
            socket: Removable::new(socket, cx),
            clock: cx.clock(),
            opened,
            control: control(),
            received: 0,
            malformed: cx.lost("malformed"),
            overrun: Overrun::new(cx.lost("overrun")),
            undelivered: cx.lost("undelivered"),
            errors: BusErrors::new(cx.lost("controller_overrun")),
            is_down: false,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let mut overrun = self.overrun.clone();
        // Called when the socket is about to be closed, which discards the frames in the kernel.
        let stopped = self.socket.get().map_or(0, |socket| drain(&**socket, &mut overrun));
        to.set("received", self.received as f64);
        to.lost("stopped", stopped);
        self.errors.report(&self.config.interface, to);
        self.stamps.metrics(to);
    }
}

impl Source for CanSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let Some(socket) = self.socket.get() else {
            let open = || self.config.open().and_then(|fd| self.descriptors.watch(fd, Interest::Read));
            if let Some(next) = self.socket.come_back(self.config.on_close, out.clock(), open) {
                return Ok(next);
            }
            out.begin_segment();
            return Ok(Next::More);
        };
        let mut frame = [0; FD];
        match receive(&**socket, &mut frame, &mut self.control, &mut self.overrun) {
            Ok(Some(Datagram { bytes, stamp, .. })) => {
                self.socket.works();
                if std::mem::take(&mut self.is_down) {
                    self.socket.count_reconnect();
                }
                let frame = &frame[..bytes.min(FD)];
                if self.errors.record(frame) {
                    return Ok(Next::More);
                }
                let Some(message) = can_frame::message(frame) else {
                    self.malformed
                        .lose(1, || format!("expected a CAN frame, found other bytes{}", excerpt(frame, bytes, false)));
                    return Ok(Next::More);
                };
                self.received += 1;
                let stamp = stamp.map(|stamp| Stamp::Run(self.clock.of_wall(stamp, self.opened)));
                let origin = self.stamps.origin(stamp, out.clock());
                stream::send(message, origin, out)?;
                Ok(Next::More)
            }
            Ok(None) => Ok(Next::WhenReady(Time::NEVER)),
            // The kernel says once that the interface is down. The socket stays, with the frames in
            // it.
            Err(Errno::ENETDOWN) => {
                self.socket.count_disconnect("the interface is down");
                self.is_down = true;
                self.errors.is_back();
                Ok(Next::More)
            }
            // The interface is gone. One that goes away goes down first.
            Err(error) => {
                let undelivered = drain(&**socket, &mut self.overrun);
                self.undelivered.lose(undelivered, || "the interface disappeared before the frames were read".into());
                if !self.is_down {
                    self.socket.count_disconnect(error.desc());
                }
                self.close(out.clock());
                Ok(Next::More)
            }
        }
    }
}
