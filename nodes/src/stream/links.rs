//! The connections of one node: those that others make to it, or the one it makes, again and again.

use super::address::Address;
use super::backoff::Backoff;
use super::framing::Framing;
use super::peer::Peer;
use super::ready::{self, Read, WAIT_MS};
use arrayvec::ArrayVec;
use limen::{Clock, Metrics, NodeError, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

/// One node has at most so many connections.
pub(crate) const MOST: usize = 64;
/// How long one attempt to connect may take, ns.
const ATTEMPT: u64 = 5_000_000_000;
/// A connection that lasted so long has worked, ns.
const WORKED: u64 = 1_000_000_000;
/// When the process has no descriptors left, the next look is so much later, ns.
const EXHAUSTED: u64 = 100_000_000;

/// Where connections come from.
#[derive(Debug)]
enum Way {
    Listen {
        listener: TcpListener,
        most: usize,
        /// Not before this time.
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
    Try(TcpStream, Time),
    Open,
}

/// What became of connections so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) disconnects: u64,
    pub(crate) refused: u64,
    pub(crate) too_large: u64,
    pub(crate) partial: u64,
}

/// A node's connections.
#[derive(Debug)]
pub(crate) struct Links {
    way: Way,
    framing: Framing,
    max: usize,
    clock: Clock,
    pub(crate) peers: ArrayVec<Peer, MOST>,
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
        clock: Clock,
    ) -> Result<Self, NodeError> {
        let refused = |error: io::Error| NodeError::input(format!("listening on {address}"), error);
        let listener = TcpListener::bind(address.0).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let way = Way::Listen { listener, most: most.min(MOST), next: Time::ZERO };
        Ok(Links { way, framing, max, clock, peers: ArrayVec::new(), counts: Counts::default() })
    }

    /// Connects to an address, and again whenever that is lost.
    pub(crate) fn connect(address: Address, backoff: Backoff, framing: Framing, max: usize, clock: Clock) -> Self {
        let way = Way::Connect { address, attempt: Attempt::Rest(Time::ZERO), backoff };
        Links { way, framing, max, clock, peers: ArrayVec::new(), counts: Counts::default() }
    }

    /// Whether it is others who connect.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.way, Way::Listen { .. })
    }

    /// Until when there is nothing to wait for: no connection, and no attempt to make one.
    pub(crate) fn rests_until(&self) -> Option<Time> {
        let now = self.clock.now();
        match &self.way {
            Way::Connect { attempt: Attempt::Rest(until), .. } if *until > now => Some(*until),
            Way::Listen { next, .. } if self.peers.is_empty() && *next > now => Some(*next),
            _ => None,
        }
    }

    /// Waits at most so long until something happens, and lets it happen: connections come and go, bytes are read.
    pub(crate) fn wait(&mut self, ms: u16) -> Result<(), NodeError> {
        self.begin(self.clock.now());
        let events = self.poll(ms).map_err(NodeError::other)?;
        // What has come came during the wait, not before it.
        let now = self.clock.now();
        for (peer, _) in self.peers.iter_mut().zip(&events).filter(|(_, is_ready)| **is_ready) {
            if let Read::Some(_) = peer.read() {
                peer.heard = now;
                if let Way::Connect { backoff, .. } = &mut self.way {
                    backoff.reset();
                }
            }
        }
        // What is neither of a peer is of the one who waits for peers.
        if events.get(self.peers.len()).is_some_and(|is_ready| *is_ready) || self.is_late(now) {
            self.meet(now);
        }
        Ok(())
    }

    /// Which peers have something to say, and behind them whether somebody new has.
    fn poll(&self, ms: u16) -> io::Result<ArrayVec<bool, { MOST + 1 }>> {
        let mut fds: ArrayVec<PollFd<'_>, { MOST + 1 }> = ArrayVec::new();
        fds.extend(self.peers.iter().map(|peer| PollFd::new(peer.stream().as_fd(), PollFlags::POLLIN)));
        match &self.way {
            Way::Listen { listener, next, .. } if *next <= self.clock.now() => {
                fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
            }
            Way::Connect { attempt: Attempt::Try(stream, _), .. } => {
                fds.push(PollFd::new(stream.as_fd(), PollFlags::POLLOUT));
            }
            _ => {}
        }
        ready::any(&mut fds, ms)?;
        Ok(fds.iter().map(|fd| fd.any().unwrap_or(true)).collect())
    }

    /// Begins an attempt to connect, if it is time.
    fn begin(&mut self, now: Time) {
        let Way::Connect { address, attempt, backoff } = &mut self.way else { return };
        if matches!(attempt, Attempt::Rest(until) if *until <= now) {
            *attempt = match dial(*address) {
                Ok(stream) => Attempt::Try(stream, now + ATTEMPT),
                Err(_) => Attempt::Rest(backoff.after(now)),
            };
        }
    }

    fn is_late(&self, now: Time) -> bool {
        matches!(&self.way, Way::Connect { attempt: Attempt::Try(_, until), .. } if *until <= now)
    }

    /// Takes whoever has come.
    fn meet(&mut self, now: Time) {
        match &mut self.way {
            // Bounded: whoever comes faster than they are met waits for the next look.
            Way::Listen { listener, most, next } => {
                for _ in 0..MOST {
                    match listener.accept() {
                        // Before anything is made for it: it is told at once, and costs nothing.
                        Ok(_) if self.peers.len() >= *most => self.counts.refused += 1,
                        Ok((stream, _)) => {
                            self.counts.connections += 1;
                            match Peer::new(stream, self.framing, self.max, now) {
                                Ok(peer) => self.peers.push(peer),
                                Err(_) => self.counts.disconnects += 1,
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                            ) => {}
                        Err(_) => {
                            *next = now + EXHAUSTED;
                            return;
                        }
                    }
                }
            }
            Way::Connect { attempt, backoff, .. } => {
                let Attempt::Try(stream, _) = std::mem::replace(attempt, Attempt::Open) else { return };
                // A port that nobody has may be given to the very socket that asks for it, which then talks to itself.
                let is_open = getsockopt(&stream, sockopt::SocketError).is_ok_and(|error| error == 0)
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
    }

    /// Lets a connection go.
    pub(crate) fn close(&mut self, at: usize) {
        let now = self.clock.now();
        let peer = self.peers.remove(at);
        self.counts.disconnects += 1;
        if let Way::Connect { attempt, backoff, .. } = &mut self.way {
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
            to.set("refused", self.counts.refused as f64);
        }
    }

    /// Waits until the connection it makes itself is there or has failed, at most for a time; for a sink that begins.
    pub(crate) fn greet(&mut self, within: u64) -> Result<(), NodeError> {
        let end = self.clock.now() + within;
        loop {
            let now = self.clock.now();
            let is_trying = matches!(&self.way, Way::Connect { attempt: Attempt::Try(..), .. });
            let is_due = matches!(&self.way, Way::Connect { attempt: Attempt::Rest(until), .. } if *until <= now);
            if now >= end || !(is_trying || is_due) {
                return Ok(());
            }
            self.wait(WAIT_MS)?;
        }
    }
}
