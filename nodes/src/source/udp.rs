//! Datagrams from the network.

use crate::stream::{self, Address};
use limen::unit::Bytes;
use limen::{
    Building, Claim, Cost, Emit, Given, Interest, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Source,
    Tensor, Time, Watched,
};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Receives datagrams, each a message: `bytes` `u8[≤max_bytes]`.
///
/// Datagrams that are longer are counted (`too_large`) and not sent, those that the kernel had no room for too
/// (`overrun`). Nothing is authenticated or encrypted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Where to listen: a port alone is one of this machine that no other reaches; `0.0.0.0:9000` listens to everybody,
    /// `192.168.1.5:9000` to the network of that interface.
    pub listen: Address,
    /// Bytes of the longest message, such as `4KiB`; `64KiB` by default.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
}

/// The node.
#[derive(Debug)]
pub struct Udp {
    socket: Watched<UdpSocket>,
    buffer: Box<[u8]>,
    control: Vec<u8>,
    received: u64,
    too_large: u64,
    overrun: Overrun,
}

/// What the kernel dropped: it says how many so far, in 32 bits, with each datagram that it did not drop.
#[derive(Debug, Default)]
struct Overrun {
    last: u32,
    total: u64,
}

impl Overrun {
    fn note(&mut self, so_far: u32) {
        self.total += u64::from(so_far.wrapping_sub(self.last));
        self.last = so_far;
    }
}

/// What a look at the socket found.
enum Found {
    Message(usize),
    TooLarge,
    Nothing,
}

impl Udp {
    fn receive(&mut self) -> Result<Found, NodeError> {
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received =
            match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut into, Some(&mut self.control), flags) {
                Ok(received) => received,
                // Refused is what a datagram sent from here earlier met, and not of concern to what comes.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(Found::Nothing),
                Err(error) => return Err(NodeError::file("udp socket", io::Error::from(error))),
            };
        for control in received.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::RxqOvfl(so_far) = control {
                self.overrun.note(so_far);
            }
        }
        let is_cut = received.flags.contains(MsgFlags::MSG_TRUNC);
        Ok(if is_cut { Found::TooLarge } else { Found::Message(received.bytes) })
    }
}

impl Node for Udp {
    type Config = Config;

    fn ports(config: &Config, _: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = stream::spec(config.max_bytes, &mut errors);
        let mut ports = Ports::new().output("bytes", spec).cost(Cost::Medium).live().endless();
        ports = ports.claim(Claim::Device(format!("udp {}", config.listen)));
        if config.listen.is_elsewhere() {
            ports = ports.notice(format!("listens on {}: other machines can send to it", config.listen));
        }
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("listening on udp {}", config.listen), error);
        let socket = UdpSocket::bind(config.listen.0).map_err(refused)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1).map_err(|error| refused(error.into()))?;
        Ok(Udp {
            socket: cx.descriptors().watch(socket, Interest::Read).map_err(refused)?,
            buffer: vec![0; config.max_bytes.0 as usize].into_boxed_slice(),
            control: nix::cmsg_space!(u32),
            received: 0,
            too_large: 0,
            overrun: Overrun::default(),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("received", self.received as f64);
        to.set("too_large", self.too_large as f64);
        to.set("overrun", self.overrun.total as f64);
    }
}

impl Source for Udp {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        match self.receive()? {
            Found::Message(n) => {
                self.received += 1;
                let now = out.clock();
                stream::send(&self.buffer[..n], now, out)?;
                Ok(Next::More)
            }
            Found::TooLarge => {
                self.too_large += 1;
                Ok(Next::More)
            }
            Found::Nothing => Ok(Next::WhenReady(Time::NEVER)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_of_drops_may_wrap() {
        let mut overrun = Overrun::default();
        for so_far in [0, 3, 3, u32::MAX, 2] {
            overrun.note(so_far);
        }
        assert_eq!(overrun.total, u64::from(u32::MAX) + 3);
    }
}
