//! One connection: what comes of it, and what it takes.

use crate::stream::framing::{Deframer, Framing};
use crate::stream::outgoing::{Outgoing, Sent};
use crate::stream::ready::{self, Read};
use limen::Time;
use limen::node::{Interest, Watched};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, Read as _};
use std::net::TcpStream;

/// A peer that has not answered for so long is asked whether it is still there, s.
const SILENT_S: u32 = 5;
/// How often it is asked, once a second, before it counts as gone.
const PROBES: u32 = 3;
/// What was sent and not confirmed for so long counts as lost with its connection, ms.
const UNCONFIRMED_MS: u32 = 8_000;

/// A connection that never makes anybody wait: reads and writes do what can be done at once.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: Watched<TcpStream>,
    pub(crate) deframer: Deframer,
    /// When it was made, and when something came last.
    pub(crate) since: Time,
    pub(crate) heard: Time,
    /// When its last whole message came, or when it had last taken all that it was sent; at first when it was made.
    pub(crate) worked: Time,
    pub(crate) has_worked: bool,
    /// Nothing more will come.
    pub(crate) is_closed: bool,
    out: Outgoing,
}

impl Peer {
    pub(crate) fn new(stream: Watched<TcpStream>, framing: Framing, max: usize, now: Time) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Messages are whole; to wait for more of them only makes them late.
        stream.set_nodelay(true)?;
        // A machine that lost its power says nothing: without these its connection would seem open for hours.
        setsockopt(&*stream, sockopt::KeepAlive, &true)?;
        setsockopt(&*stream, sockopt::TcpKeepIdle, &SILENT_S)?;
        setsockopt(&*stream, sockopt::TcpKeepInterval, &1)?;
        setsockopt(&*stream, sockopt::TcpKeepCount, &PROBES)?;
        setsockopt(&*stream, sockopt::TcpUserTimeout, &UNCONFIRMED_MS)?;
        stream.set_interest(Interest::Read);
        let deframer = Deframer::new(framing, max);
        Ok(Peer {
            stream,
            deframer,
            since: now,
            heard: now,
            worked: now,
            has_worked: false,
            is_closed: false,
            out: Outgoing::default(),
        })
    }

    pub(crate) fn stream(&self) -> &Watched<TcpStream> {
        &self.stream
    }

    /// Reads what is there; whatever goes wrong closes the connection, and only this one.
    pub(crate) fn read(&mut self) -> Read {
        let space = self.deframer.space();
        if space.is_empty() {
            return Read::Nothing;
        }
        let read = (&*self.stream).read(space);
        let outcome = ready::outcome(read).unwrap_or(Read::End);
        match outcome {
            Read::Some(n) => self.deframer.filled(n),
            Read::Nothing => {}
            Read::End => self.is_closed = true,
        }
        outcome
    }

    /// Throws away what it says, though nobody asked. Whether it is still there.
    pub(crate) fn hear(&mut self) -> bool {
        // Bounded: a peer that talks without end is heard again with the next message.
        for _ in 0..16 {
            self.deframer.clear();
            if self.is_closed || self.read() != Read::Some(self.deframer.capacity()) {
                break;
            }
        }
        !self.is_closed
    }

    /// Whether a part of a message is still to go.
    pub(crate) fn is_behind(&self) -> bool {
        self.out.is_behind()
    }

    /// Sends bytes that belong together, unless the last ones have not gone yet. What there is no room for is waited for until
    /// a time.
    pub(crate) fn send(&mut self, bytes: &[u8], now: Time, until: Time) -> Sent {
        let sent = self.out.send(&*self.stream, bytes, until);
        // It has taken all that came before.
        if sent == Sent::Done {
            self.worked = now;
        }
        self.listen();
        sent
    }

    /// Sends what is still to go, as far as there is room. Until when the rest is waited for.
    pub(crate) fn catch_up(&mut self, now: Time) -> Option<Time> {
        if self.out.is_behind() {
            if self.out.catch_up(&*self.stream) {
                self.worked = now;
            }
            self.listen();
        }
        self.out.waits_until(now)
    }

    /// Waits longer for what is still to go.
    pub(crate) fn wait_until(&mut self, until: Time) {
        self.out.wait_until(until);
    }

    /// Has the worker wait for room, where there is something to write.
    fn listen(&mut self) {
        self.is_closed |= self.out.is_closed;
        self.stream.set_interest(if self.out.is_behind() { Interest::Both } else { Interest::Read });
    }
}
