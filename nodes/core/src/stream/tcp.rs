//! The TCP connections behind the `tcp` source and the `tcp` sink: listening, connecting, and their
//! limits.

pub(crate) mod links;
mod peer;

use super::address::Address;
use super::framing::Framing;
use limen::node::{Building, Claim, NodeError, PlanErrors, Ports};
use limen::unit::Span;
use links::{Idle, Links, PeerRole};
pub use peer::set_up;

/// The default of `max_connections`.
const DEFAULT_CONNECTIONS: usize = 16;

/// The keys that the configs of both ends share.
#[derive(Debug, Clone, Copy)]
pub struct TcpConfig {
    /// The address to wait for connections at.
    pub listen: Option<Address>,
    /// The address to connect to.
    pub connect: Option<Address>,
    /// The limit of connections at a time; only with `listen`.
    pub max_connections: Option<usize>,
    /// After how long without a byte a connection is closed.
    pub idle: Option<Span>,
}

impl TcpConfig {
    /// Checks while planning that exactly one of `listen` and `connect` is set, and that the limits
    /// are possible.
    pub fn check(self, errors: &mut PlanErrors) {
        if self.idle.is_some_and(|idle| idle.as_nanos() == 0) {
            errors.at("idle", "`idle` must be above 0, got 0").help("write a time, such as `30s`, or remove `idle`");
        }
        match (self.listen, self.connect) {
            (None, None) => {
                errors
                    .node("expected `listen` or `connect`, found neither")
                    .help("write `listen: 9000` to accept connections, or `connect: 192.168.1.5:9000` to connect");
            }
            (Some(_), Some(_)) => {
                let message = "expected `listen` or `connect`, found both";
                errors.at("connect", message).help("remove `listen` or `connect`, or use two nodes");
            }
            _ => {}
        }
        match self.max_connections {
            Some(_) if self.listen.is_none() => {
                errors.at("max_connections", "`max_connections` requires `listen`").help("remove `max_connections`");
            }
            Some(n) if n == 0 || n > links::MAX_CONNECTIONS => {
                let message = format!("`max_connections` must be 1 to {}, got {n}", links::MAX_CONNECTIONS);
                errors
                    .at("max_connections", message)
                    .help(format!("write a number from 1 to {}", links::MAX_CONNECTIONS));
            }
            _ => {}
        }
    }

    /// The limit of connections at a time.
    pub(crate) fn connection_limit(self) -> usize {
        if self.listen.is_some() { self.max_connections.unwrap_or(DEFAULT_CONNECTIONS) } else { 1 }
    }

    /// Claims the port that the node listens on, or notes the address that it connects to.
    pub fn claim(self, ports: Ports) -> Ports {
        let Some(address) = self.listen else {
            return self.connect.into_iter().fold(ports, |ports, address| ports.note(format!("connects to {address}")));
        };
        let ports = ports.claim(Claim::Device(format!("tcp {address}")));
        if !address.is_elsewhere() {
            return ports;
        }
        ports.public(format!("accepts connections from other machines on {address}"))
    }

    /// Starts to listen or to connect. `max` is the largest message in bytes that peers may send.
    pub(crate) fn open(
        self,
        framing: Framing,
        max: usize,
        role: PeerRole,
        cx: &Building<'_>,
    ) -> Result<Links, NodeError> {
        let idle = Idle { role, after: self.idle.map_or(0, Span::as_nanos) };
        match (self.listen, self.connect) {
            (Some(address), _) => Links::listen(address, self.connection_limit(), framing, max, idle, cx),
            (None, Some(address)) => Ok(Links::connect(address, framing, max, idle, cx)),
            (None, None) => Err(NodeError::input("tcp", "expected `listen` or `connect`, found neither")),
        }
    }
}
