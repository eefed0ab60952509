//! Accepting connections.

use super::address::Address;
use limen::Time;
use limen::node::{Descriptors, Interest, NodeError, Watched};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};

/// Delay until the next accept after accepting failed, as when the process has no file descriptors
/// left, ns.
const RETRY: u64 = 100_000_000;
/// How many connections that were aborted before they were accepted are passed over at a time.
const MAX_ABORTED: usize = 64;

/// A listening socket, which the node's worker waits for.
#[derive(Debug)]
pub struct Listener {
    socket: Watched<TcpListener>,
    /// Do not accept before this time; zero if accepting works.
    next: Time,
}

impl Listener {
    /// Listens on an address.
    pub fn bind(address: Address, descriptors: &Descriptors) -> Result<Self, NodeError> {
        let bind = || {
            let socket = TcpListener::bind(address.0)?;
            socket.set_nonblocking(true)?;
            descriptors.watch(socket, Interest::Read)
        };
        let socket = bind().map_err(|error: io::Error| NodeError::input(format!("listening on {address}"), error))?;
        Ok(Listener { socket, next: Time::ZERO })
    }

    /// Begins to accept again, after a failure, if that is due. Returns whether connections may be
    /// waiting.
    pub fn poll(&mut self, now: Time) -> bool {
        if self.next > now {
            return false;
        }
        if self.next > Time::ZERO {
            self.next = Time::ZERO;
            self.socket.set_interest(Interest::Read);
            return true;
        }
        self.socket.is_ready()
    }

    /// Returns the next connection that is waiting, without blocking; `None` if there is none, or
    /// none can be accepted.
    pub fn accept(&mut self, now: Time) -> Option<TcpStream> {
        for _ in 0..MAX_ABORTED {
            match self.socket.accept() {
                Ok((stream, _)) => return Some(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.pause(now + RETRY);
                    return None;
                }
            }
        }
        None
    }

    /// Accepts nothing until a time.
    fn pause(&mut self, until: Time) {
        self.next = until;
        self.socket.set_interest(Interest::Nothing);
    }

    /// Accepts nothing any more.
    pub fn end(&mut self) {
        self.pause(Time::NEVER);
    }

    /// When to accept again, although the socket is not waited for.
    pub fn next(&self) -> Time {
        if self.next > Time::ZERO { self.next } else { Time::NEVER }
    }
}
