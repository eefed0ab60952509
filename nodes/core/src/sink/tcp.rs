//! Messages to TCP connections.

use crate::stream::outgoing::Sent;
use crate::stream::tcp::TcpConfig;
use crate::stream::tcp::links::{Links, PeerRole};
use crate::stream::{self, Address, Framing};
use limen::node::{
    Building, Connected, Cost, LossCounter, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Progress, Sink,
};
use limen::unit::Span;
use limen::{Clock, Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// How long a message waits for the peer that the node connected to, ns.
const SEND_WAIT: u64 = 100_000_000;
/// How long to wait for the first connection, ns.
const CONNECT_WAIT: u64 = 500_000_000;
/// How long to wait for the last bytes when the stream ends, ns.
const DRAIN_WAIT: u64 = 500_000_000;

/// Sends the bytes of every message over TCP.
///
/// With `listen`, the node sends each message to all connected peers. With `connect`, the node
/// opens one connection and reconnects when the connection ends.
///
/// `unsent` counts messages that arrive without a connection. `full` counts messages for a peer
/// that has not yet accepted the previous message. With `listen`, a slow peer never slows the
/// graph. With `connect`, the node waits up to 100 ms for a slow peer. After this wait, the node
/// does not wait for the peer again until the peer reads. The kernel disconnects a peer that has
/// accepted nothing for 8 s. A message counts as sent when the kernel accepts the message. The node
/// does not wait for confirmation of delivery.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TcpSinkConfig {
    /// Address to listen on. With a port alone, such as `9000`, the node accepts connections only
    /// from this machine. With `0.0.0.0:9000`, the node listens on all interfaces. With
    /// `192.168.1.5:9000`, the node listens on the interface with this address.
    pub listen: Option<Address>,
    /// Address to connect to, instead of `listen`. A port number without an address is a port of
    /// this machine.
    pub connect: Option<Address>,
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
    /// With `listen`, maximum number of simultaneous connections, 1 to 64. The node closes further
    /// connections immediately and counts them (`refused`). Default: 16.
    pub max_connections: Option<usize>,
    /// Maximum time for a peer to accept all pending bytes, such as `10s`. When `idle` expires, the
    /// node closes the connection and counts it (`idle`). By default, a connection ends only if the
    /// peer accepts nothing for 8 s. At the connection limit, a new connection replaces a
    /// connection that has been idle for 5 s. The node counts replaced connections (`displaced`).
    /// Connections are also replaced without `idle`.
    pub idle: Option<Span>,
}

impl TcpSinkConfig {
    fn tcp(&self) -> TcpConfig {
        let TcpSinkConfig { listen, connect, max_connections, idle, .. } = *self;
        TcpConfig { listen, connect, max_connections, idle }
    }
}

/// Runs `kind: tcp`; [`TcpSinkConfig`] says what it does.
#[derive(Debug)]
pub struct TcpSink {
    links: Links,
    framing: Framing,
    clock: Clock,
    /// Until when to wait for the first connection; zero once it was made or has failed.
    connect_deadline: Time,
    /// The framed message.
    frame: Vec<u8>,
    sent: u64,
    unsent: LossCounter,
    full: LossCounter,
}

impl TcpSink {
    fn disconnect(&mut self, at: usize) {
        let why = || "the connection ended in the middle of a message".into();
        self.links.counts.partial.lose(u64::from(self.links.peers[at].has_pending()), why);
        self.links.close(at);
    }
}

impl Node for TcpSink {
    type Config = TcpSinkConfig;

    fn ports(config: &TcpSinkConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let tcp = config.tcp();
        tcp.check(&mut errors);
        // A framed message, and the pending bytes of each peer.
        let largest = given.single().and_then(|spec| spec.max_bytes()).unwrap_or(0);
        let ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium);
        let ports = ports.memory(largest.saturating_mul(tcp.connection_limit().saturating_add(1)));
        errors.into_result(tcp.claim(ports))
    }

    fn build(config: TcpSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        // Everything that peers send is discarded.
        let links = config.tcp().open(Framing::Raw, 4 << 10, PeerRole::Reader, cx)?;
        let connect_deadline = cx.now() + CONNECT_WAIT;
        Ok(TcpSink {
            links,
            framing: config.framing,
            clock: cx.clock(),
            connect_deadline,
            frame: Vec::new(),
            sent: 0,
            unsent: cx.lost("unsent"),
            full: cx.lost("full"),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        self.links.metrics(to);
        let behind = self.links.peers.iter().filter(|peer| peer.has_pending()).count();
        to.lost("partial", behind as u64);
    }
}

impl Sink for TcpSink {
    type In = Tensor;
    const WAITS: bool = true;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        self.frame.clear();
        self.framing.write(input.body.bytes(), &mut self.frame)?;
        // The kernel takes bytes even for a peer that has just closed the connection, so check
        // before they count as sent.
        for at in (0..self.links.peers.len()).rev() {
            if !self.links.peers[at].discard_input() {
                self.disconnect(at);
            }
        }
        if self.links.peers.is_empty() {
            self.unsent.lose(1, || "no peer is connected".into());
            return Ok(());
        }
        // Wait only for a peer that the graph itself connects to: any other peer could slow the
        // graph at will.
        let now = self.clock.now();
        let until = if self.links.listens() { Time::ZERO } else { now + SEND_WAIT };
        for at in (0..self.links.peers.len()).rev() {
            match self.links.peers[at].send(&self.frame, now, until) {
                Sent::Done => self.sent += 1,
                Sent::Full => self.full.lose(1, || "the peer has not accepted an earlier message".into()),
                Sent::Closed => {
                    self.unsent.lose(1, || "the peer has closed the connection".into());
                    self.disconnect(at);
                }
            }
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        self.links.poll();
        let now = self.clock.now();
        let mut waits = None;
        for at in (0..self.links.peers.len()).rev() {
            let peer = &mut self.links.peers[at];
            let until = peer.flush_pending(now);
            if (peer.is_closed || peer.stream().is_ready()) && !peer.discard_input() {
                self.disconnect(at);
            } else {
                waits = waits.max(until);
            }
        }
        let again = self.links.next_poll();
        if self.links.is_connecting() && now < self.connect_deadline {
            return Ok(Progress::WhenReady(self.connect_deadline.min(again)));
        }
        self.connect_deadline = Time::ZERO;
        Ok(waits.map_or(Progress::Takes(again), |until| Progress::WhenReady(until.min(again))))
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        let until = self.clock.now() + DRAIN_WAIT;
        self.links.peers.iter_mut().for_each(|peer| peer.set_deadline(until));
        Ok(())
    }
}
