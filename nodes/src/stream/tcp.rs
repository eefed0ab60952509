//! TCP as the source and the sink of that name have it: who listens, who connects, and how many at a time.

pub(crate) mod links;
mod peer;

use super::address::Address;
use super::backoff::Backoff;
use super::framing::Framing;
use limen::node::{Building, Claim, NodeError, PlanErrors, Ports};
use limen::unit::Span;
use links::{Idle, Links, Who};

/// Connections at a time, where the graph file does not say.
const USUAL: usize = 16;

/// The keys that the configs of both ends share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpConfig {
    pub(crate) listen: Option<Address>,
    pub(crate) connect: Option<Address>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) idle: Option<Span>,
}

impl TcpConfig {
    /// Checks while planning: exactly one of `listen` and `connect`, and bounds that can be kept.
    pub(crate) fn check(self, errors: &mut PlanErrors) {
        if self.idle.is_some_and(|idle| idle.as_nanos() == 0) {
            errors
                .at("idle", "a connection that is let go at once")
                .help("write a time, such as `30s`, or leave it out");
        }
        match (self.listen, self.connect) {
            (None, None) => {
                errors
                    .node("neither `listen` nor `connect` says where the other end is")
                    .help("write `listen: 9000` to wait for connections, or `connect: 192.168.1.5:9000` to make one");
            }
            (Some(_), Some(_)) => {
                errors.at("connect", "a node listens or connects, not both").help("leave one out; two nodes do both");
            }
            _ => {}
        }
        match self.max_connections {
            Some(_) if self.listen.is_none() => {
                errors.at("max_connections", "a node that connects has one connection").help("leave it out");
            }
            Some(n) if n == 0 || n > links::MOST => {
                let message = format!("{n} connections, where 1 to {} are possible", links::MOST);
                errors.at("max_connections", message).help(format!("write a number from 1 to {}", links::MOST));
            }
            _ => {}
        }
    }

    /// How many connections there can be at a time.
    pub(crate) fn most(self) -> usize {
        if self.listen.is_some() { self.max_connections.unwrap_or(USUAL) } else { 1 }
    }

    /// Claims the port a node listens on, or says whom it connects to.
    pub(crate) fn claim(self, ports: Ports) -> Ports {
        let Some(address) = self.listen else {
            return self.connect.into_iter().fold(ports, |ports, address| ports.note(format!("connects to {address}")));
        };
        let ports = ports.claim(Claim::Device(format!("tcp {address}")));
        if !address.is_elsewhere() {
            return ports;
        }
        ports.public(format!("listens on {address}: other machines can connect to it"))
    }

    /// Listens, or begins to connect, with messages of at most `max` bytes from whoever is at the other end.
    pub(crate) fn open(self, framing: Framing, max: usize, who: Who, cx: &Building<'_>) -> Result<Links, NodeError> {
        let idle = Idle { who, after: self.idle.map_or(0, Span::as_nanos) };
        match (self.listen, self.connect) {
            (Some(address), _) => Links::listen(address, self.most(), framing, max, idle, cx.clock(), cx.descriptors()),
            (None, Some(address)) => {
                let backoff = Backoff::new(cx.node(), cx.now());
                Ok(Links::connect(address, backoff, framing, max, idle, cx.clock(), cx.descriptors()))
            }
            (None, None) => Err(NodeError::input("tcp", "neither `listen` nor `connect`")),
        }
    }
}
