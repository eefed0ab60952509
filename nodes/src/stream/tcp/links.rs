//! The connections of one node: those that others make to it, or the one it makes, again and again.

use super::peer::Peer;
use crate::stream::address::Address;
use crate::stream::backoff::Backoff;
use crate::stream::framing::Framing;
use crate::stream::ready::Read;
use arrayvec::ArrayVec;
use limen::node::{Descriptors, Interest, Metrics, NodeError, Watched};
use limen::{Clock, Time};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// One node has at most so many connections.
pub(crate) const MOST: usize = 64;
/// One more than that, for one that has made room and is not gone yet.
const PLACES: usize = MOST + 1;
/// How long one attempt to connect may take, ns.
const ATTEMPT: u64 = 5_000_000_000;
/// A connection that lasted so long has worked, ns.
const WORKED: u64 = 1_000_000_000;
/// A connection that has come to nothing for so long makes room for a new one where there is none left, ns.
const GRACE: u64 = 5_000_000_000;
/// When the process has no descriptors left, the next look is so much later, ns.
const EXHAUSTED: u64 = 100_000_000;

/// Where connections come from.
#[derive(Debug)]
enum HandleKind {
    Listen {
        listener: Watched<TcpListener>,
        most: usize,
        /// Not before this time; zero where nothing is in the way.
        next: Time,
    },
    Connect {
        address: Address,
        attempt: Attempt,
        backoff: Backoff,
    },
}

/// How far the connection that a node makes itself has come.
#[derive(Debug)]
enum Attempt {
    /// Nothing before this time.
    Rest(Time),
    /// Under way, until this time at most.
    Try(Watched<TcpStream>, Time),
    Open,
}

/// What became of connections so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) disconnects: u64,
    pub(crate) refused: u64,
    /// Those that made room for another, and those that were let go because they were idle.
    pub(crate) displaced: u64,
    pub(crate) idle: u64,
    pub(crate) too_large: u64,
    pub(crate) partial: u64,
}

/// Which peers are ready, and behind them whoever waits for peers.
type Events = ArrayVec<bool, { PLACES + 1 }>;

/// Which connections come to nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    pub(crate) who: Who,
    /// Let go after so long, ns; never, where it is 0.
    pub(crate) after: u64,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Somebody who sends: idle from the last whole message on.
    Sender,
    /// Somebody who reads: idle while it does not take what it is sent.
    Reader,
}

/// What is found of a connection that has come to nothing for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Fine,
    /// Something has come of it just now.
    Heard,
    Idle,
}

impl Idle {
    /// Since when a connection may have come to nothing.
    fn since(self, peer: &Peer) -> Option<Time> {
        let may_be = !peer.is_closed && (self.who == Who::Sender || peer.is_behind());
        may_be.then_some(peer.worked)
    }

    /// What has become of a connection. It has one more chance: it may have done its part while this node had no room.
    fn look(self, peer: &mut Peer, after: u64, now: Time) -> Found {
        let is_late = |peer: &Peer| self.since(peer).is_some_and(|since| now.since(since) >= after);
        if !is_late(peer) {
            return Found::Fine;
        }
        match self.who {
            // What is whole waits for this node, and not the node for it.
            Who::Sender if peer.deframer.whole() > 0 => Found::Fine,
            Who::Sender => match peer.read() {
                Read::Nothing => Found::Idle,
                Read::Some(_) => {
                    peer.heard = now;
                    Found::Heard
                }
                Read::End => Found::Heard,
            },
            Who::Reader => {
                peer.catch_up(now);
                if is_late(peer) { Found::Idle } else { Found::Fine }
            }
        }
    }

    /// Whether it may be displaced: whoever has sent a message keeps its place, and so does whoever takes what it is sent.
    fn may_displace(self, peer: &Peer) -> bool {
        !peer.is_closed && (self.who == Who::Reader || !peer.has_worked)
    }
}

/// A node's connections.
#[derive(Debug)]
pub(crate) struct Links {
    way: HandleKind,
    framing: Framing,
    max: usize,
    /// What counts as idle, and for how long it may be, ns.
    idle: Idle,
    clock: Clock,
    /// Where its worker waits.
    descriptors: Descriptors,
    pub(crate) peers: ArrayVec<Peer, PLACES>,
    pub(crate) counts: Counts,
}

/// Begins to connect. The socket is ready to be written to when that is decided.
fn dial(address: Address) -> nix::Result<TcpStream> {
    let family = if address.0.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address.0)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error),
    }
}

impl Links {
    /// Waits for connections to an address.
    pub(crate) fn listen(
        address: Address,
        most: usize,
        framing: Framing,
        max: usize,
        idle: Idle,
        clock: Clock,
        descriptors: Descriptors,
    ) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("listening on {address}"), error);
        let listener = TcpListener::bind(address.0).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let listener = descriptors.watch(listener, Interest::Read).map_err(refused)?;
        let way = HandleKind::Listen { listener, most: most.min(MOST), next: Time::ZERO };
        Ok(Links { way, framing, max, idle, clock, descriptors, peers: ArrayVec::new(), counts: Counts::default() })
    }

    /// Connects to an address, and again whenever that is lost.
    pub(crate) fn connect(
        address: Address,
        backoff: Backoff,
        framing: Framing,
        max: usize,
        idle: Idle,
        clock: Clock,
        descriptors: Descriptors,
    ) -> Self {
        let way = HandleKind::Connect { address, attempt: Attempt::Rest(Time::ZERO), backoff };
        Links { way, framing, max, idle, clock, descriptors, peers: ArrayVec::new(), counts: Counts::default() }
    }

    /// Whether it is others who connect.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.way, HandleKind::Listen { .. })
    }

    /// When to look again although no descriptor is ready.
    pub(crate) fn look_again_at(&self) -> Time {
        let way = match &self.way {
            HandleKind::Connect { attempt: Attempt::Rest(until) | Attempt::Try(_, until), .. } => *until,
            HandleKind::Listen { next, .. } if *next > Time::ZERO => *next,
            _ => Time::NEVER,
        };
        if self.idle.after == 0 {
            return way;
        }
        let idle = self.peers.iter().filter_map(|peer| self.idle.since(peer));
        idle.map(|since| since + self.idle.after).fold(way, Time::min)
    }

    /// Ends connections that have been idle for too long. Whether anything has happened.
    fn end_idle(&mut self, now: Time) -> bool {
        let mut has_happened = false;
        for peer in self.peers.iter_mut().filter(|_| self.idle.after > 0) {
            let found = self.idle.look(peer, self.idle.after, now);
            if found == Found::Idle {
                peer.is_closed = true;
                self.counts.idle += 1;
            }
            has_happened |= found != Found::Fine;
        }
        has_happened
    }

    /// Lets happen what the worker has found ready, without waiting: connections come and go, bytes are read. Whether anything
    /// has happened.
    pub(crate) fn look(&mut self) -> bool {
        let now = self.clock.now();
        self.begin(now);
        let mut events: Events = self.peers.iter().map(|peer| peer.stream().is_ready()).collect();
        events.push(match &self.way {
            HandleKind::Listen { listener, next, .. } => *next <= now && listener.is_ready(),
            HandleKind::Connect { attempt: Attempt::Try(stream, _), .. } => stream.is_ready(),
            HandleKind::Connect { .. } => false,
        });
        let has_happened = self.serve(&events, now);
        self.end_idle(now) || has_happened
    }

    /// Reads of the peers that are ready, and meets whoever has come. Whether anything has happened.
    fn serve(&mut self, events: &Events, now: Time) -> bool {
        let mut has_happened = false;
        for (peer, _) in self.peers.iter_mut().zip(events).filter(|(_, is_ready)| **is_ready) {
            let read = if peer.is_closed { Read::Nothing } else { peer.read() };
            has_happened |= read != Read::Nothing;
            if let Read::Some(_) = read {
                peer.heard = now;
                if let HandleKind::Connect { backoff, .. } = &mut self.way {
                    backoff.reset();
                }
            }
        }
        // What is neither of a peer is of the one who waits for peers.
        if events.get(self.peers.len()).is_some_and(|is_ready| *is_ready) || self.is_late(now) {
            has_happened |= self.meet(now);
        }
        has_happened
    }

    /// Begins an attempt to connect, or accepts again, if it is time.
    fn begin(&mut self, now: Time) {
        match &mut self.way {
            HandleKind::Listen { listener, next, .. } if *next > Time::ZERO && *next <= now => {
                *next = Time::ZERO;
                listener.set_interest(Interest::Read);
            }
            HandleKind::Connect { address, attempt, backoff } => {
                if !matches!(attempt, Attempt::Rest(until) if *until <= now) {
                    return;
                }
                let dialled = dial(*address).map_err(io::Error::from);
                let held = dialled.and_then(|stream| self.descriptors.watch(stream, Interest::Write));
                *attempt = match held {
                    Ok(stream) => Attempt::Try(stream, now + ATTEMPT),
                    Err(_) => Attempt::Rest(backoff.after(now)),
                };
            }
            HandleKind::Listen { .. } => {}
        }
    }

    fn is_late(&self, now: Time) -> bool {
        matches!(&self.way, HandleKind::Connect { attempt: Attempt::Try(_, until), .. } if *until <= now)
    }

    /// Takes whoever has come. Whether anybody has.
    fn meet(&mut self, now: Time) -> bool {
        let mut has_met = false;
        match &mut self.way {
            // Bounded: whoever comes faster than they are met waits for the next look.
            HandleKind::Listen { listener, most, next } => {
                for _ in 0..MOST {
                    // One whose end was just noticed makes room for whoever came with it.
                    let open = self.peers.iter().filter(|peer| !peer.is_closed).count();
                    let mut has_room = open < *most && !self.peers.is_full();
                    let accepted = listener.accept();
                    // A connection that made room takes up a place until its last bytes are counted: one at a time.
                    if !has_room && accepted.is_ok() && !self.peers.is_full() {
                        let idle = self.idle;
                        let slow = self.peers.iter_mut().filter(|peer| idle.may_displace(peer));
                        let slow = slow.filter_map(|peer| {
                            let found = idle.look(peer, GRACE, now);
                            has_met |= found == Found::Heard;
                            (found == Found::Idle).then_some(peer)
                        });
                        if let Some(slowest) = slow.min_by_key(|peer| peer.worked) {
                            slowest.is_closed = true;
                            self.counts.displaced += 1;
                            has_room = true;
                        }
                    }
                    has_met |= accepted.is_ok();
                    match accepted {
                        // Before anything is made for it: it is told at once, and costs nothing.
                        Ok(_) if !has_room => self.counts.refused += 1,
                        Ok((stream, _)) => {
                            self.counts.connections += 1;
                            let held = self.descriptors.watch(stream, Interest::Read);
                            match held.and_then(|stream| Peer::new(stream, self.framing, self.max, now)) {
                                Ok(peer) => self.peers.push(peer),
                                Err(_) => self.counts.disconnects += 1,
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                            ) => {}
                        Err(_) => {
                            *next = now + EXHAUSTED;
                            listener.set_interest(Interest::Nothing);
                            break;
                        }
                    }
                }
            }
            HandleKind::Connect { attempt, backoff, .. } => {
                let Attempt::Try(stream, _) = std::mem::replace(attempt, Attempt::Open) else { return false };
                has_met = true;
                // A port that nobody has may be given to the very socket that asks for it, which then talks to itself.
                let is_open = getsockopt(&*stream, sockopt::SocketError).is_ok_and(|error| error == 0)
                    && stream.peer_addr().is_ok_and(|far| stream.local_addr().is_ok_and(|near| near != far));
                match Peer::new(stream, self.framing, self.max, now) {
                    Ok(peer) if is_open => {
                        self.counts.connections += 1;
                        self.peers.push(peer);
                    }
                    _ => *attempt = Attempt::Rest(backoff.after(now)),
                }
            }
        }
        has_met
    }

    /// Lets a connection go.
    pub(crate) fn close(&mut self, at: usize) {
        let now = self.clock.now();
        let peer = self.peers.remove(at);
        self.counts.disconnects += 1;
        if let HandleKind::Connect { attempt, backoff, .. } = &mut self.way {
            // Whoever accepts and hangs up at once is asked less and less often.
            if now.since(peer.since) >= WORKED {
                backoff.reset();
            }
            *attempt = Attempt::Rest(backoff.after(now));
        }
    }

    /// What became of connections.
    pub(crate) fn metrics(&self, to: &mut Metrics) {
        to.set("connections", self.counts.connections as f64);
        to.set("disconnects", self.counts.disconnects as f64);
        to.lost("partial", self.counts.partial);
        if self.listens() {
            // Of who was turned away nobody knows how much it had to send, or to hear: it counts as one.
            to.lost("refused", self.counts.refused);
            to.set("displaced", self.counts.displaced as f64);
        }
        if self.listens() || self.idle.after > 0 {
            to.set("idle", self.counts.idle as f64);
        }
    }

    /// Whether the connection that it makes itself is being made.
    pub(crate) fn is_connecting(&self) -> bool {
        match &self.way {
            HandleKind::Connect { attempt: Attempt::Rest(until), .. } => *until == Time::ZERO,
            HandleKind::Connect { attempt: Attempt::Try(..), .. } => true,
            _ => false,
        }
    }
}
