//! Messages from connections.

use crate::stream::backoff::Backoff;
use crate::stream::links::{self, Idle, Links, Who};
use crate::stream::{self, Address, Framing, OnClose};
use limen::unit::{Bytes, Span};
use limen::{
    Building, Claim, Cost, Emit, Given, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Source, Tensor,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Receives messages over TCP: `bytes` `u8[≤max_bytes]`. It waits for connections (`listen`), or makes one and makes it again
/// when it is lost (`connect`).
///
/// A message that is longer than allowed is counted (`too_large`) before room is made for it; with a length before each
/// message its connection is closed, because its peer and this node no longer agree. A connection that ends within a
/// message is counted (`partial`). A message began when its last bytes were read: a stream has no stamps of the kernel's. Nothing
/// is authenticated or encrypted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Where to wait for connections: a port alone is one of this machine that no other reaches; `0.0.0.0:9000` is for
    /// everybody, `192.168.1.5:9000` for the network of that interface.
    pub listen: Option<Address>,
    /// Where to connect to, instead: a port alone is one of this machine.
    pub connect: Option<Address>,
    /// Where one message ends and the next begins; `lines` by default.
    #[serde(default)]
    pub framing: Framing,
    /// Bytes of the longest message, such as `4KiB`; `64KiB` by default.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// What a message holds: `text`, which tables and JSON write as text, or `bytes`; text by default with `framing: lines`.
    pub content: Option<limen::Content>,
    /// Connections at a time, 64 at most; whoever comes then is turned away and counted (`refused`). 16 by default.
    pub max_connections: Option<usize>,
    /// Lets a connection go from which no whole message has come for so long, such as `30s` (`idle`); never by default. Where all
    /// connections are taken, one that has sent none within its first 5 s makes room for another all the same (`displaced`).
    pub idle: Option<Span>,
    /// What follows when the connection, or the last of several, has ended; `reconnect` by default.
    #[serde(default)]
    pub on_close: OnClose,
}

/// Which of the two ways a node's config names.
pub(crate) fn check(
    listen: Option<Address>,
    connect: Option<Address>,
    max_connections: Option<usize>,
    idle: Option<Span>,
    errors: &mut PlanErrors,
) {
    if idle.is_some_and(|idle| idle.as_nanos() == 0) {
        errors.at("idle", "a connection that is let go at once").help("write a time, such as `30s`, or leave it out");
    }
    match (listen, connect) {
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
    match max_connections {
        Some(_) if listen.is_none() => {
            errors.at("max_connections", "a node that connects has one connection").help("leave it out");
        }
        Some(n) if n == 0 || n > links::MOST => {
            let message = format!("{n} connections, where 1 to {} are possible", links::MOST);
            errors.at("max_connections", message).help(format!("write a number from 1 to {}", links::MOST));
        }
        _ => {}
    }
}

/// Claims the port a node listens on, and says whom it connects to.
pub(crate) fn claim(ports: Ports, listen: Option<Address>, connect: Option<Address>) -> Ports {
    let Some(address) = listen else {
        return connect.into_iter().fold(ports, |ports, address| ports.note(format!("connects to {address}")));
    };
    let ports = ports.claim(Claim::Device(format!("tcp {address}")));
    if !address.is_elsewhere() {
        return ports;
    }
    ports.public(format!("listens on {address}: other machines can connect to it"))
}

/// What counts as idle, and how long that may last.
pub(crate) fn idle_after(who: Who, idle: Option<Span>) -> Idle {
    Idle { who, after: idle.map_or(0, Span::as_nanos) }
}

/// The connections that a config asks for.
pub(crate) fn open(
    listen: Option<Address>,
    connect: Option<Address>,
    most: Option<usize>,
    framing: Framing,
    max: usize,
    idle: Idle,
    cx: &Building<'_>,
) -> Result<Links, NodeError> {
    match (listen, connect) {
        (Some(address), _) => {
            Links::listen(address, most.unwrap_or(16), framing, max, idle, cx.clock(), cx.descriptors())
        }
        (None, Some(address)) => {
            let backoff = Backoff::new(cx.node(), cx.now());
            Ok(Links::connect(address, backoff, framing, max, idle, cx.clock(), cx.descriptors()))
        }
        (None, None) => Err(NodeError::input("tcp", "neither `listen` nor `connect`")),
    }
}

/// The node.
#[derive(Debug)]
pub struct Tcp {
    links: Links,
    framing: Framing,
    on_close: OnClose,
    /// Whose turn it is.
    at: usize,
    received: u64,
    /// Connections there had been when the last message was sent.
    connections: u64,
}

impl Tcp {
    /// Sends the next whole message of any connection, each in its turn; true if there was one. Connections that have ended
    /// are let go when their last message has gone.
    fn give(&mut self, out: &mut Emit<Tensor>) -> Result<bool, NodeError> {
        let mut left = self.links.peers.len();
        while left > 0 {
            left -= 1;
            self.at = if self.at < self.links.peers.len() { self.at } else { 0 };
            let Some(peer) = self.links.peers.get_mut(self.at) else { break };
            match peer.deframer.take() {
                Some(Ok(message)) => {
                    self.at += 1;
                    self.received += 1;
                    (peer.worked, peer.has_worked) = (peer.heard, true);
                    // All connections are one stream, which does not go on from one to the next.
                    if std::mem::replace(&mut self.connections, self.links.counts.connections)
                        != self.links.counts.connections
                    {
                        out.begin_segment();
                    }
                    stream::send(peer.deframer.bytes(message), peer.heard, out)?;
                    return Ok(true);
                }
                Some(Err(_)) if self.framing.has_length() => {
                    self.links.counts.too_large += 1;
                    self.links.close(self.at);
                }
                Some(Err(_)) => {
                    self.links.counts.too_large += 1;
                    left += 1;
                }
                None if peer.is_closed => {
                    self.links.counts.partial += u64::from(peer.deframer.is_partial());
                    self.links.close(self.at);
                }
                None => self.at += 1,
            }
        }
        Ok(false)
    }
}

impl Node for Tcp {
    type Config = Config;

    fn ports(config: &Config, _: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        check(config.listen, config.connect, config.max_connections, config.idle, &mut errors);
        let spec = stream::spec(config.max_bytes, config.content.unwrap_or(config.framing.content()), &mut errors);
        let mut ports = Ports::new().output("bytes", spec).cost(Cost::Medium);
        let connections = if config.listen.is_some() { config.max_connections.unwrap_or(16) } else { 1 };
        ports = ports.memory(connections.saturating_mul(stream::buffer(config.max_bytes)));
        if config.on_close != OnClose::End {
            ports = ports.endless();
        }
        errors.into_result(claim(ports, config.listen, config.connect))
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let Config { listen, connect, framing, max_bytes, max_connections, idle, on_close, .. } = config;
        let links =
            open(listen, connect, max_connections, framing, max_bytes.0 as usize, idle_after(Who::Sender, idle), cx)?;
        Ok(Tcp { links, framing, on_close, at: 0, received: 0, connections: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("received", self.received as f64);
        to.lost("too_large", self.links.counts.too_large);
        self.links.metrics(to);
        let stopped: u64 = self.links.peers.iter().map(|peer| peer.deframer.whole()).sum();
        to.lost("stopped", stopped);
    }
}

impl Source for Tcp {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.give(out)? {
            return Ok(Next::More);
        }
        let is_over = self.links.counts.disconnects > 0 && self.links.peers.is_empty();
        if is_over && self.on_close == OnClose::End {
            return Ok(Next::Done);
        }
        if !self.links.look() {
            return Ok(Next::WhenReady(self.links.look_again_at()));
        }
        // Sends at once what has come, if it is whole.
        self.give(out)?;
        Ok(Next::More)
    }
}
