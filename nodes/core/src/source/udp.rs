//! Messages from UDP datagrams.

use crate::stream::datagram::{Datagram, Overrun, control, drain, receive, stamp_and_count};
use crate::stream::{self, Address, Framing};
use limen::node::{
    Building, Claim, Connected, Cost, Emit, Interest, LossCounter, Metrics, Next, Node, NodeError, PlanErrors,
    Planning, Ports, Source, Watched,
};
use limen::unit::Bytes;
use limen::{Clock, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Receives UDP datagrams, one message each: `bytes` `u8[≤max_bytes]`.
///
/// The report lists lost datagrams as `too_large` (longer than `max_bytes`), `overrun` (full kernel
/// buffer) or `stopped` (unread when the graph stopped). The origin of a message is the time at
/// which the kernel received the datagram. The node does not authenticate or decrypt datagrams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct UdpSourceConfig {
    /// Address to listen on. With a port alone, such as `9000`, the node receives datagrams only
    /// from this machine. With `0.0.0.0:9000`, the node listens on all interfaces. With
    /// `192.168.1.5:9000`, the node listens on the interface with this address. With
    /// `239.1.2.3:9000` or `[ff02::1234]:9000`, the node joins a multicast group.
    pub listen: Address,
    /// Interface on which to join the multicast group in `listen`. For IPv4, write the address of
    /// the interface, such as `192.168.1.5`. For IPv6, write the name of the interface, such as
    /// `eth0`. Default: all interfaces.
    pub interface: Option<String>,
    /// Maximum size of a message in bytes, from `1B` to `1GiB`. Default: `64KiB`.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// Type of the content. The sinks `csv`, `jsonl` and `console` write `text` as text. Default:
    /// `bytes`.
    #[serde(default = "bytes")]
    pub content: limen::message::Content,
}

fn bytes() -> limen::message::Content {
    limen::message::Content::Bytes
}

/// Runs `kind: udp`; [`UdpSourceConfig`] says what it does.
#[derive(Debug)]
pub struct UdpSource {
    socket: Watched<UdpSocket>,
    clock: Clock,
    /// When the socket was opened: the earliest possible origin.
    opened: Time,
    buffer: Box<[u8]>,
    control: Vec<u8>,
    received: u64,
    too_large: LossCounter,
    overrun: Overrun,
}

/// Returns how many datagrams the kernel has dropped so far, from its table of sockets, because
/// there is no next datagram to report it.
fn dropped(socket: &UdpSocket) -> Option<u32> {
    let inode = nix::sys::stat::fstat(socket).ok()?.st_ino.to_string();
    let table = if socket.local_addr().ok()?.is_ipv4() { "udp" } else { "udp6" };
    let table = limen::files::system_text(format!("/proc/thread-self/net/{table}")).ok()?;
    table.lines().find_map(|line| dropped_of(line, &inode))
}

/// Returns the drops in a line of the kernel's table of sockets, if the line is that of the socket
/// with this inode.
fn dropped_of(line: &str, inode: &str) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(9);
    let is_this = fields.next() == Some(inode);
    let drops = fields.nth(2).filter(|_| is_this)?;
    // Some kernels print the count as a signed number.
    drops.parse().ok().or_else(|| drops.parse().ok().map(i32::cast_unsigned))
}

/// Joins a multicast group, on an interface or on all of them.
fn join(socket: &UdpSocket, group: IpAddr, interface: Option<&str>) -> io::Result<()> {
    match (group, interface) {
        (IpAddr::V4(group), Some(interface)) => {
            let address = interface.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            socket.join_multicast_v4(&group, &address)
        }
        (IpAddr::V6(group), Some(interface)) => {
            socket.join_multicast_v6(&group, nix::net::if_::if_nametoindex(interface)?)
        }
        (group, None) => join_everywhere(socket, group),
    }
}

/// Joins a multicast group on each interface that carries it.
fn join_everywhere(socket: &UdpSocket, group: IpAddr) -> io::Result<()> {
    let mut joined = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in nix::ifaddrs::getifaddrs()? {
        let storage = address.address;
        let v4 = storage.as_ref().and_then(|storage| storage.as_sockaddr_in()).map(|address| address.ip());
        let is_v6 = storage.as_ref().is_some_and(|storage| storage.as_sockaddr_in6().is_some());
        let this = match (group, v4) {
            (IpAddr::V4(group), Some(interface)) => socket.join_multicast_v4(&group, &interface),
            (IpAddr::V6(group), None) if is_v6 => nix::net::if_::if_nametoindex(&*address.interface_name)
                .map_err(io::Error::from)
                .and_then(|index| socket.join_multicast_v6(&group, index)),
            _ => continue,
        };
        // An interface with several addresses is joined once.
        let is_joined = this.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        joined = if is_joined { Ok(()) } else { joined.or(this) };
    }
    joined
}

impl Node for UdpSource {
    type Config = UdpSourceConfig;

    fn ports(config: &UdpSourceConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = stream::spec(config.max_bytes, Framing::Raw, Some(config.content), &mut errors);
        let mut ports = Ports::new().output("bytes", spec).cost(Cost::Medium).live().endless();
        ports = ports.memory(config.max_bytes.0 as usize);
        ports = ports.claim(Claim::Device(format!("udp {}", config.listen)));
        let group = config.listen.0.ip();
        match &config.interface {
            Some(_) if !group.is_multicast() => {
                let message = format!("expected a multicast group in `listen`, found {group}");
                errors.at("interface", message).help("remove `interface`");
            }
            Some(interface) if group.is_ipv4() && interface.parse::<Ipv4Addr>().is_err() => {
                let message = format!("expected the IPv4 address of an interface, found `{interface}`");
                errors.at("interface", message).help("write an address that `ip addr` shows, such as `192.168.1.5`");
            }
            _ => {}
        }
        if config.listen.is_elsewhere() {
            ports = ports.public(format!("accepts messages from other machines on {}", config.listen));
        }
        errors.into_result(ports)
    }

    fn build(config: UdpSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("listening on udp {}", config.listen), error);
        let opened = cx.now();
        let socket = UdpSocket::bind(config.listen.0).map_err(refused)?;
        let group = config.listen.0.ip();
        if group.is_multicast() {
            join(&socket, group, config.interface.as_deref()).map_err(|error| {
                let help = "write the interface of the group's network in `interface`";
                NodeError::input(format!("joining the multicast group {group}"), format!("{error}: {help}"))
            })?;
        }
        socket.set_nonblocking(true).map_err(refused)?;
        stamp_and_count(&socket).map_err(refused)?;
        Ok(UdpSource {
            socket: cx.descriptors().watch(socket, Interest::Read).map_err(refused)?,
            clock: cx.clock(),
            opened,
            buffer: vec![0; config.max_bytes.0 as usize].into_boxed_slice(),
            control: control(),
            received: 0,
            too_large: cx.lost("too_large"),
            overrun: Overrun::new(cx.lost("overrun")),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        // Called when the socket is about to be closed, which discards the datagrams in the kernel.
        let mut overrun = self.overrun.clone();
        let stopped = drain(&*self.socket, &mut overrun);
        if let Some(so_far) = dropped(&self.socket) {
            overrun.record(so_far);
        }
        to.set("received", self.received as f64);
        to.lost("stopped", stopped);
    }
}

impl Source for UdpSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let received = receive(&*self.socket, &mut self.buffer, &mut self.control, &mut self.overrun);
        match received.map_err(|error| NodeError::file("udp socket", io::Error::from(error)))? {
            Some(Datagram { is_truncated: true, .. }) => {
                let bound = self.buffer.len();
                self.too_large.lose(1, || format!("a message must be at most {bound} bytes (`max_bytes`), got more"));
            }
            Some(Datagram { bytes, stamp, .. }) => {
                self.received += 1;
                let origin = stamp.map_or_else(|| out.clock(), |stamp| self.clock.of_wall(stamp, self.opened));
                stream::send(&self.buffer[..bytes], origin, out)?;
            }
            None => return Ok(Next::WhenReady(Time::NEVER)),
        }
        Ok(Next::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface carries multicast to sockets that joined on it.
    #[test]
    fn a_group_is_joined_on_the_interface_that_is_named() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let socket = UdpSocket::bind((group, 0)).unwrap();
        join(&socket, group.into(), Some("127.0.0.1")).unwrap();
        // A second membership of the same socket shows that there was a first.
        let again = join(&socket, group.into(), Some("127.0.0.1")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        assert!(join(&socket, group.into(), Some("192.0.2.1")).is_err());
        let socket = UdpSocket::bind((group, 0)).unwrap();
        join(&socket, group.into(), None).unwrap();
        assert_eq!(join(&socket, group.into(), Some("127.0.0.1")).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        if let Ok(socket) = UdpSocket::bind("[::]:0") {
            let group: IpAddr = "ff02::1234".parse().unwrap();
            join(&socket, group, Some("lo")).unwrap();
            assert_eq!(join(&socket, group, Some("lo")).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            assert!(join(&socket, group, Some("no-such-interface")).is_err());
        }
    }

    #[test]
    fn drops_are_read_from_the_kernels_table_of_sockets() {
        let line = |inode: &str, drops: &str| {
            format!(
                "  105: 0100007F:2328 00000000:0000 07 00000000:00034B00 00:00000000 00000000  1000        0 {inode} 2 \
                 0000000000000000 {drops}"
            )
        };
        for (line, expected) in [
            (line("77", "0"), Some(0)),
            (line("77", "430         "), Some(430)),
            (line("77", "4294967295"), Some(u32::MAX)),
            (line("77", "-2"), Some(u32::MAX - 1)),
            (line("78", "430"), None),
            (line("77", ""), None),
            ("   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops".into(), None),
        ] {
            assert_eq!(dropped_of(&line, "77"), expected, "{line}");
        }
        // The tables of both address families can be read.
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            assert_eq!(dropped(&socket), Some(0), "{address}");
        }
    }
}
