//! Messages as UDP datagrams.

use crate::stream::{self, Address, Framing};
use limen::node::{
    Building, Connected, Cost, LossCounter, Metrics, Node, NodeError, NodeErrorKind, PlanErrors, Planning, Ports, Sink,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Bytes of the largest UDP payload.
const LARGEST: usize = 65_507;

/// Sends the bytes of every message as a datagram.
///
/// The node does not detect whether a datagram arrives. If the network is down or the send queue is
/// full, the node counts the message (`unsent`) and continues. If a message is larger than 65507
/// bytes, the call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct UdpSinkConfig {
    /// Address to send to. A port number without an address is a port of this machine.
    /// `192.168.1.5:9000` is a port of another machine. The address may be a broadcast or multicast
    /// address.
    pub to: Address,
}

/// Runs `kind: udp`; [`UdpSinkConfig`] says what it does.
#[derive(Debug)]
pub struct UdpSink {
    socket: UdpSocket,
    to: SocketAddr,
    sent: u64,
    unsent: LossCounter,
}

/// Returns whether the error is temporary, so that sending may work later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::ConnectionRefused
            | ErrorKind::OutOfMemory
    ) || error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32)
}

impl Node for UdpSink {
    type Config = UdpSinkConfig;

    fn ports(config: &UdpSinkConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = stream::takes_bytes(given, Framing::Raw, &mut errors).cost(Cost::Medium);
        let fixed = given.single().filter(|spec| spec.fixed_shape().is_some());
        if let Some(spec) = fixed.filter(|spec| spec.max_bytes().is_none_or(|bytes| bytes > LARGEST)) {
            let message = format!("a datagram must have at most {LARGEST} bytes, got {spec}");
            errors.input("in", message).help("use `kind: tcp`, or add a `slice` node upstream");
        }
        errors.into_result(ports.note(format!("sends to {}", config.to)))
    }

    fn build(config: UdpSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        // For a loopback destination, bind to loopback too, so that other machines cannot reach the
        // socket.
        let from: IpAddr = match (config.to.0.ip(), config.to.is_elsewhere()) {
            (IpAddr::V4(_), false) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V4(_), true) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(ip), false) if ip == Ipv6Addr::LOCALHOST => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V6(_), _) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let refused = |error: io::Error| NodeError::input(format!("sending to udp {}", config.to), error);
        let socket = UdpSocket::bind((from, 0)).map_err(refused)?;
        if config.to.0.is_ipv4() {
            // Which addresses are broadcast addresses depends on the networks of the machine.
            socket.set_broadcast(true).map_err(refused)?;
        }
        socket.set_nonblocking(true).map_err(refused)?;
        Ok(UdpSink { socket, to: config.to.0, sent: 0, unsent: cx.lost("unsent") })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
    }
}

impl Sink for UdpSink {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let bytes = input.body.bytes();
        if bytes.len() > LARGEST {
            let what = format!("a datagram to {}", self.to);
            return Err(NodeErrorKind::Input {
                what,
                why: format!("a datagram must have at most {LARGEST} bytes, got {}: use `kind: tcp`", bytes.len()),
            }
            .into());
        }
        loop {
            match self.socket.send_to(bytes, self.to) {
                Ok(_) => self.sent += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_temporary(&error) => self.unsent.lose(1, || error.to_string()),
                Err(error) => return Err(NodeError::input(format!("sending to udp {}", self.to), error)),
            }
            return Ok(());
        }
    }
}
