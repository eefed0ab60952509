//! Messages from TCP connections.

use crate::stream::tcp::TcpConfig;
use crate::stream::tcp::links::{Links, PeerRole};
use crate::stream::{self, Address, Framing, OnClose};
use limen::Tensor;
use limen::node::{
    Building, Connected, Cost, Emit, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Source,
};
use limen::unit::{Bytes, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// Receives messages over TCP: `bytes` `u8[≤max_bytes]`.
///
/// With `listen`, the node accepts connections. With `connect`, the node opens one connection and
/// reconnects when the connection ends.
///
/// The report lists lost messages as `too_large` (longer than `max_bytes`), `malformed` (invalid
/// framing) or `partial` (cut short by a disconnect). With a length prefix, a message longer than
/// `max_bytes` also closes the connection. The origin of a message is the time at which the node
/// read the message's last bytes, because the kernel does not timestamp TCP input. The node does
/// not authenticate or encrypt connections.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TcpSourceConfig {
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
    /// Maximum size of a message in bytes, from `1B` to `1GiB`. Default: `64KiB`.
    #[serde(default = "stream::max_bytes")]
    pub max_bytes: Bytes,
    /// Type of the content. The sinks `csv`, `jsonl` and `console` write `text` as text. Default:
    /// `text` if `framing` is `lines` or `lines_crlf`, otherwise `bytes`.
    pub content: Option<limen::message::Content>,
    /// With `listen`, maximum number of simultaneous connections, 1 to 64. The node closes further
    /// connections immediately and counts them (`refused`). Default: 16.
    pub max_connections: Option<usize>,
    /// Maximum time without a complete message, such as `30s`. When `idle` expires, the node closes
    /// the connection and counts it (`idle`). Default: unlimited. At the connection limit, a new
    /// connection replaces a connection that sent no message in its first 5 s. The node counts
    /// replaced connections (`displaced`). Connections are also replaced without `idle`.
    pub idle: Option<Span>,
    /// Action after the last open connection ends. Default: `reconnect`.
    #[serde(default)]
    pub on_close: OnClose,
}

impl TcpSourceConfig {
    fn tcp(&self) -> TcpConfig {
        let TcpSourceConfig { listen, connect, max_connections, idle, .. } = *self;
        TcpConfig { listen, connect, max_connections, idle }
    }
}

/// Runs `kind: tcp`; [`TcpSourceConfig`] says what it does.
#[derive(Debug)]
pub struct TcpSource {
    links: Links,
    framing: Framing,
    on_close: OnClose,
    /// The index of the connection to take the next message from.
    at: usize,
    received: u64,
    /// The count of connections when the last message was sent.
    connections: u64,
}

impl TcpSource {
    /// Sends the next complete message of any connection, round-robin. Returns whether there was
    /// one. Connections that have ended are removed after their last message.
    fn send_next(&mut self, out: &mut Emit<Tensor>) -> Result<bool, NodeError> {
        let mut left = self.links.peers.len();
        while left > 0 {
            left -= 1;
            self.at = if self.at < self.links.peers.len() { self.at } else { 0 };
            let Some(peer) = self.links.peers.get_mut(self.at) else { break };
            match peer.deframer.take() {
                Some(Ok(message)) => {
                    self.at += 1;
                    self.received += 1;
                    (peer.last_progress, peer.has_progressed) = (peer.last_read, true);
                    // All connections are one stream; a new connection begins a segment of it.
                    if std::mem::replace(&mut self.connections, self.links.counts.connections)
                        != self.links.counts.connections
                    {
                        out.begin_segment();
                    }
                    stream::send(peer.deframer.bytes(message), peer.last_read, out)?;
                    return Ok(true);
                }
                Some(Err(unusable)) => {
                    let counts = &mut self.links.counts;
                    unusable.lose(peer.deframer.max(), &mut counts.too_large, &mut counts.malformed);
                    if self.framing.has_length() {
                        peer.close("the peer sent an unreadable message, so the start of the next message is unknown");
                        self.links.close(self.at);
                    } else {
                        left += 1;
                    }
                }
                None if peer.is_closed => {
                    let why = || "the connection ended in the middle of a message".into();
                    self.links.counts.partial.lose(u64::from(peer.deframer.is_partial()), why);
                    self.links.close(self.at);
                }
                None => self.at += 1,
            }
        }
        Ok(false)
    }
}

impl Node for TcpSource {
    type Config = TcpSourceConfig;

    fn ports(config: &TcpSourceConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let tcp = config.tcp();
        tcp.check(&mut errors);
        let spec = stream::spec(config.max_bytes, config.framing, config.content, &mut errors);
        let mut ports = Ports::new().output("bytes", spec).cost(Cost::Medium);
        ports = ports.memory(tcp.connection_limit().saturating_mul(stream::buffer(config.max_bytes, config.framing)));
        if config.on_close != OnClose::End {
            ports = ports.endless();
        }
        errors.into_result(tcp.claim(ports))
    }

    fn build(config: TcpSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let TcpSourceConfig { framing, on_close, .. } = config;
        let mut links = config.tcp().open(framing, config.max_bytes.0 as usize, PeerRole::Sender, cx)?;
        links.counts.too_large = cx.lost("too_large");
        links.counts.malformed = cx.lost("malformed");
        Ok(TcpSource { links, framing, on_close, at: 0, received: 0, connections: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("received", self.received as f64);
        self.links.metrics(to);
        let stopped: u64 = self.links.peers.iter().map(|peer| peer.deframer.whole_messages()).sum();
        to.lost("stopped", stopped);
    }
}

impl Source for TcpSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.send_next(out)? {
            return Ok(Next::More);
        }
        let is_over = self.links.counts.connections > 0 && self.links.peers.is_empty();
        if is_over && self.on_close == OnClose::End {
            return Ok(Next::Done);
        }
        if !self.links.poll() {
            return Ok(Next::WhenReady(self.links.next_poll()));
        }
        // If a complete message has just arrived, send it in this call.
        self.send_next(out)?;
        Ok(Next::More)
    }
}
