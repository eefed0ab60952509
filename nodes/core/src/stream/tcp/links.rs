//! The connections of one node: accepted ones, or the one it makes and remakes.

use super::peer::Peer;
use crate::stream::address::Address;
use crate::stream::backoff::Backoff;
use crate::stream::framing::Framing;
use crate::stream::listener::Listener;
use crate::stream::ready::Read;
use arrayvec::ArrayVec;
use limen::node::{Building, ConnectionStatus, Descriptors, Interest, LossCounter, Metrics, NodeError, Watched};
use limen::{Clock, Time};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Most connections of one node.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// One more than that, for a displaced connection that is not removed yet.
const MAX_PEERS: usize = MAX_CONNECTIONS + 1;
/// Timeout of one attempt to connect, ns.
const CONNECT_TIMEOUT: u64 = 5_000_000_000;
/// A connection that lasted this long resets the backoff, ns.
const ESTABLISHED: u64 = 1_000_000_000;
/// If all places are taken, a connection that has been idle this long is displaced by a new one,
/// ns.
const GRACE: u64 = 5_000_000_000;

/// Where connections come from.
#[derive(Debug)]
enum Endpoint {
    Listen { listener: Listener, most: usize },
    Connect { address: Address, attempt: Attempt, backoff: Backoff },
}

/// The state of the connection that a node makes.
#[derive(Debug)]
enum Attempt {
    /// No attempt before this time.
    Backoff(Time),
    /// An attempt, until this time at most.
    InProgress(Watched<TcpStream>, Time),
    Open,
}

/// Counts of connections so far.
#[derive(Debug)]
pub(crate) struct LinkCounts {
    connection: ConnectionStatus,
    pub(crate) connections: u64,
    /// How many messages a refused peer would have exchanged is unknown: each counts as one.
    refused: LossCounter,
    /// Connections closed to make room for another, and connections closed because they were idle.
    displaced: u64,
    idle: u64,
    pub(crate) too_large: LossCounter,
    pub(crate) malformed: LossCounter,
    pub(crate) partial: LossCounter,
}

impl LinkCounts {
    fn new(endpoint: &Endpoint, cx: &Building<'_>) -> Self {
        let listens = matches!(endpoint, Endpoint::Listen { .. });
        LinkCounts {
            connection: cx.connection(),
            connections: 0,
            refused: if listens { cx.lost("refused") } else { LossCounter::default() },
            displaced: 0,
            idle: 0,
            too_large: LossCounter::default(),
            malformed: LossCounter::default(),
            partial: cx.lost("partial"),
        }
    }

    fn connected(&mut self) {
        self.connections += 1;
        self.connection.begun();
    }
}

/// Which peers are ready, and after them whether the listener or the connection attempt is.
type ReadyLinks = ArrayVec<bool, { MAX_PEERS + 1 }>;

/// When a connection counts as idle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    pub(crate) role: PeerRole,
    /// Idle connections are closed after this time, ns; never if it is 0.
    pub(crate) after: u64,
}

/// What the peers of a node do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerRole {
    /// They send: a peer is idle from its last complete message on.
    Sender,
    /// They read: a peer is idle while it does not take pending bytes.
    Reader,
}

/// The result of checking whether a connection is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleCheck {
    Active,
    /// The check itself has read bytes or the end of the stream.
    JustRead,
    Idle,
}

impl Idle {
    /// Since when a connection may have been idle.
    fn since(self, peer: &Peer) -> Option<Time> {
        let may_be = !peer.is_closed && (self.role == PeerRole::Sender || peer.has_pending());
        may_be.then_some(peer.last_progress)
    }

    /// Checks whether a connection has been idle for `after`. It first reads or writes once more,
    /// because the peer may have made progress while this node did not run.
    fn check(self, peer: &mut Peer, after: u64, now: Time) -> IdleCheck {
        let is_late = |peer: &Peer| self.since(peer).is_some_and(|since| now.since(since) >= after);
        if !is_late(peer) {
            return IdleCheck::Active;
        }
        match self.role {
            // A complete message waits for this node: the peer is not idle.
            PeerRole::Sender if peer.deframer.whole_messages() > 0 => IdleCheck::Active,
            PeerRole::Sender => match peer.read() {
                Read::Nothing => IdleCheck::Idle,
                Read::Some(_) => {
                    peer.last_read = now;
                    IdleCheck::JustRead
                }
                Read::End => IdleCheck::JustRead,
            },
            PeerRole::Reader => {
                peer.flush_pending(now);
                if is_late(peer) { IdleCheck::Idle } else { IdleCheck::Active }
            }
        }
    }

    /// Whether a connection may be displaced. A peer that has sent a message keeps its place.
    fn may_displace(self, peer: &Peer) -> bool {
        !peer.is_closed && (self.role == PeerRole::Reader || !peer.has_progressed)
    }
}

/// A node's connections.
#[derive(Debug)]
pub(crate) struct Links {
    endpoint: Endpoint,
    framing: Framing,
    max: usize,
    idle: Idle,
    clock: Clock,
    /// The descriptors that the node's worker waits for.
    descriptors: Descriptors,
    pub(crate) peers: ArrayVec<Peer, MAX_PEERS>,
    pub(crate) counts: LinkCounts,
}

/// Starts to connect. The socket becomes writable when the connection is made or has failed.
fn dial(address: Address) -> nix::Result<TcpStream> {
    let family = if address.0.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address.0)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error),
    }
}

/// The result of an attempt to connect that has ended or takes too long.
fn outcome(stream: &TcpStream) -> io::Result<()> {
    match getsockopt(stream, sockopt::SocketError)? {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let far = stream.peer_addr().map_err(|_| io::Error::other("no answer within 5 s"))?;
    // If no process listens on the port, the kernel may choose it as the local port of this very
    // socket, which then is connected to itself (TCP self-connect).
    if stream.local_addr()? == far { Err(Errno::ECONNREFUSED.into()) } else { Ok(()) }
}

fn cannot_connect(address: Address, error: &io::Error) -> String {
    format!("could not connect to {address}: {error}")
}

impl Links {
    /// Listens for connections on an address.
    pub(crate) fn listen(
        address: Address,
        most: usize,
        framing: Framing,
        max: usize,
        idle: Idle,
        cx: &Building<'_>,
    ) -> Result<Self, NodeError> {
        let listener = Listener::bind(address, &cx.descriptors())?;
        let endpoint = Endpoint::Listen { listener, most: most.min(MAX_CONNECTIONS) };
        Ok(Links::new(endpoint, framing, max, idle, cx))
    }

    /// Connects to an address, and reconnects whenever the connection is lost.
    pub(crate) fn connect(address: Address, framing: Framing, max: usize, idle: Idle, cx: &Building<'_>) -> Self {
        let backoff = Backoff::new(cx.node(), cx.now());
        let endpoint = Endpoint::Connect { address, attempt: Attempt::Backoff(Time::ZERO), backoff };
        Links::new(endpoint, framing, max, idle, cx)
    }

    fn new(endpoint: Endpoint, framing: Framing, max: usize, idle: Idle, cx: &Building<'_>) -> Self {
        let (clock, descriptors, counts) = (cx.clock(), cx.descriptors(), LinkCounts::new(&endpoint, cx));
        Links { endpoint, framing, max, idle, clock, descriptors, peers: ArrayVec::new(), counts }
    }

    /// Whether peers connect to this node.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.endpoint, Endpoint::Listen { .. })
    }

    /// When to call [`Links::poll`] next, even if no descriptor is ready.
    pub(crate) fn next_poll(&self) -> Time {
        let due = match &self.endpoint {
            Endpoint::Connect { attempt: Attempt::Backoff(until) | Attempt::InProgress(_, until), .. } => *until,
            Endpoint::Listen { listener, .. } => listener.next(),
            Endpoint::Connect { .. } => Time::NEVER,
        };
        if self.idle.after == 0 {
            return due;
        }
        let idle = self.peers.iter().filter_map(|peer| self.idle.since(peer));
        idle.map(|since| since + self.idle.after).fold(due, Time::min)
    }

    /// Closes connections that have been idle for too long. Returns whether anything has happened.
    fn close_idle(&mut self, now: Time) -> bool {
        let mut has_happened = false;
        for peer in self.peers.iter_mut().filter(|_| self.idle.after > 0) {
            let found = self.idle.check(peer, self.idle.after, now);
            if found == IdleCheck::Idle {
                peer.close(format!("the connection was idle for {}", limen::unit::show_ns(self.idle.after)));
                self.counts.idle += 1;
            }
            has_happened |= found != IdleCheck::Active;
        }
        has_happened
    }

    /// Handles everything that is ready, without blocking: accepts, connects, reads and closes.
    /// Returns whether anything has happened.
    pub(crate) fn poll(&mut self) -> bool {
        let now = self.clock.now();
        self.start_due(now);
        let mut events: ReadyLinks = self.peers.iter().map(|peer| peer.stream().is_ready()).collect();
        events.push(match &mut self.endpoint {
            Endpoint::Listen { listener, .. } => listener.poll(now),
            Endpoint::Connect { attempt: Attempt::InProgress(stream, _), .. } => stream.is_ready(),
            Endpoint::Connect { .. } => false,
        });
        let has_happened = self.handle(&events, now);
        self.close_idle(now) || has_happened
    }

    /// Reads from the peers that are ready, and accepts or completes connections. Returns whether
    /// anything has happened.
    fn handle(&mut self, events: &ReadyLinks, now: Time) -> bool {
        let mut has_happened = false;
        for (peer, _) in self.peers.iter_mut().zip(events).filter(|(_, is_ready)| **is_ready) {
            let read = if peer.is_closed { Read::Nothing } else { peer.read() };
            has_happened |= read != Read::Nothing;
            if let Read::Some(_) = read {
                peer.last_read = now;
                if let Endpoint::Connect { backoff, .. } = &mut self.endpoint {
                    backoff.reset();
                }
            }
        }
        // The event after those of the peers is that of the listener or of the connection attempt.
        if events.get(self.peers.len()).is_some_and(|is_ready| *is_ready) || self.is_timed_out(now) {
            has_happened |= self.accept_or_complete(now);
        }
        has_happened
    }

    /// Starts an attempt to connect if it is due.
    fn start_due(&mut self, now: Time) {
        let Endpoint::Connect { address, attempt, backoff } = &mut self.endpoint else { return };
        if !matches!(attempt, Attempt::Backoff(until) if *until <= now) {
            return;
        }
        let dialled = dial(*address).map_err(io::Error::from);
        let held = dialled.and_then(|stream| self.descriptors.watch(stream, Interest::Write));
        *attempt = match held {
            Ok(stream) => Attempt::InProgress(stream, now + CONNECT_TIMEOUT),
            Err(error) => {
                self.counts.connection.failed(cannot_connect(*address, &error));
                Attempt::Backoff(backoff.after(now))
            }
        };
    }

    fn is_timed_out(&self, now: Time) -> bool {
        matches!(&self.endpoint, Endpoint::Connect { attempt: Attempt::InProgress(_, until), .. } if *until <= now)
    }

    /// Accepts waiting connections, or completes the attempt to connect. Returns whether anything
    /// has happened.
    fn accept_or_complete(&mut self, now: Time) -> bool {
        let mut has_happened = false;
        match &mut self.endpoint {
            // Bounded: further connections wait for the next poll.
            Endpoint::Listen { listener, most } => {
                for _ in 0..MAX_CONNECTIONS {
                    // A connection that is known to have ended counts as a free place.
                    let open = self.peers.iter().filter(|peer| !peer.is_closed).count();
                    let mut has_room = open < *most && !self.peers.is_full();
                    let Some(stream) = listener.accept(now) else { break };
                    has_happened = true;
                    // A displaced connection keeps its place until its last bytes are counted, so
                    // displace one at a time.
                    if !has_room && !self.peers.is_full() {
                        let idle = self.idle;
                        let slow = self.peers.iter_mut().filter(|peer| idle.may_displace(peer));
                        let slow =
                            slow.filter_map(|peer| (idle.check(peer, GRACE, now) == IdleCheck::Idle).then_some(peer));
                        if let Some(slowest) = slow.min_by_key(|peer| peer.last_progress) {
                            slowest.close("another peer replaced the idle connection");
                            self.counts.displaced += 1;
                            has_room = true;
                        }
                    }
                    if !has_room {
                        // Closed at once, before anything is allocated for it.
                        let why = || format!("all {most} connections of `max_connections` are in use");
                        self.counts.refused.lose(1, why);
                        continue;
                    }
                    self.counts.connected();
                    let held = self.descriptors.watch(stream, Interest::Read);
                    match held.and_then(|stream| Peer::new(stream, self.framing, self.max, now)) {
                        Ok(peer) => self.peers.push(peer),
                        Err(error) => self.counts.connection.ended_because(error.to_string()),
                    }
                }
            }
            Endpoint::Connect { address, attempt, backoff } => {
                let Attempt::InProgress(stream, _) = std::mem::replace(attempt, Attempt::Open) else { return false };
                has_happened = true;
                match outcome(&stream).and_then(|()| Peer::new(stream, self.framing, self.max, now)) {
                    Ok(peer) => {
                        self.counts.connected();
                        self.peers.push(peer);
                    }
                    Err(error) => {
                        self.counts.connection.failed(cannot_connect(*address, &error));
                        *attempt = Attempt::Backoff(backoff.after(now));
                    }
                }
            }
        }
        has_happened
    }

    /// Closes and removes a connection.
    pub(crate) fn close(&mut self, at: usize) {
        let now = self.clock.now();
        let mut peer = self.peers.remove(at);
        self.counts.connection.ended_because(peer.why_closed());
        if let Endpoint::Connect { attempt, backoff, .. } = &mut self.endpoint {
            // A peer that accepts and closes at once is retried with growing delays.
            if now.since(peer.since) >= ESTABLISHED {
                backoff.reset();
            }
            *attempt = Attempt::Backoff(backoff.after(now));
        }
    }

    /// Reports the counts of connections.
    pub(crate) fn metrics(&self, to: &mut Metrics) {
        to.set("connections", self.counts.connections as f64);
        if self.listens() {
            to.set("displaced", self.counts.displaced as f64);
        }
        if self.listens() || self.idle.after > 0 {
            to.set("idle", self.counts.idle as f64);
        }
    }

    /// Whether an attempt to connect is in progress, or the first one is due.
    pub(crate) fn is_connecting(&self) -> bool {
        match &self.endpoint {
            Endpoint::Connect { attempt: Attempt::Backoff(until), .. } => *until == Time::ZERO,
            Endpoint::Connect { attempt: Attempt::InProgress(..), .. } => true,
            _ => false,
        }
    }
}
