//! One connection: nonblocking reads and writes.

use crate::stream::framing::{Deframer, Framing};
use crate::stream::outgoing::{Outgoing, Sent};
use crate::stream::ready::{self, Read};
use limen::Time;
use limen::node::{Interest, Watched};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, Read as _};
use std::net::TcpStream;

/// Keepalive: idle time before the first probe, s.
const KEEPALIVE_IDLE_S: u32 = 5;
/// Keepalive: unanswered probes, one a second, before the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;
/// The connection is closed when sent bytes stay unacknowledged for this long, ms.
const USER_TIMEOUT_MS: u32 = 8_000;

/// A connection whose reads and writes never block.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: Watched<TcpStream>,
    pub(crate) deframer: Deframer,
    /// When it was made, and when bytes were last read.
    pub(crate) since: Time,
    pub(crate) last_read: Time,
    /// When its last complete message arrived, or when it last had taken everything sent to it; at
    /// first when it was made.
    pub(crate) last_progress: Time,
    pub(crate) has_progressed: bool,
    /// The peer has closed the connection, or it failed.
    pub(crate) is_closed: bool,
    /// Why, if it was not the peer.
    why_closed: Option<String>,
    out: Outgoing,
}

/// Sets the options of a new connection: it does not block, does not delay, and ends when its peer
/// is gone.
pub fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    // Writes are whole messages: Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    // A machine that lost power sends nothing: without keepalive its connection would seem open for
    // hours.
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &1)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &USER_TIMEOUT_MS)?)
}

impl Peer {
    pub(crate) fn new(stream: Watched<TcpStream>, framing: Framing, max: usize, now: Time) -> io::Result<Self> {
        set_up(&stream)?;
        stream.set_interest(Interest::Read);
        let deframer = Deframer::new(framing, max);
        Ok(Peer {
            stream,
            deframer,
            since: now,
            last_read: now,
            last_progress: now,
            has_progressed: false,
            is_closed: false,
            why_closed: None,
            out: Outgoing::default(),
        })
    }

    pub(crate) fn stream(&self) -> &Watched<TcpStream> {
        &self.stream
    }

    /// Closes the connection for a reason.
    pub(crate) fn close(&mut self, why: impl Into<String>) {
        (self.is_closed, self.why_closed) = (true, Some(why.into()));
    }

    /// Why the connection is closed.
    pub(crate) fn why_closed(&mut self) -> String {
        let why = self.why_closed.take().or_else(|| self.out.failed());
        why.unwrap_or_else(|| "the peer has closed the connection".into())
    }

    /// Reads available bytes. An error closes the connection.
    pub(crate) fn read(&mut self) -> Read {
        let space = self.deframer.space();
        if space.is_empty() {
            return Read::Nothing;
        }
        let read = (&*self.stream).read(space);
        let outcome = ready::outcome(read).unwrap_or_else(|error| {
            self.why_closed = Some(error.to_string());
            Read::End
        });
        match outcome {
            Read::Some(n) => self.deframer.filled(n),
            Read::Nothing => {}
            Read::End => self.is_closed = true,
        }
        outcome
    }

    /// Reads and discards input. Returns whether the connection is still open.
    pub(crate) fn discard_input(&mut self) -> bool {
        // Bounded: the rest of the input is discarded with the next message.
        for _ in 0..16 {
            self.deframer.clear();
            if self.is_closed || self.read() != Read::Some(self.deframer.capacity()) {
                break;
            }
        }
        !self.is_closed
    }

    /// Whether part of a message is still to be written.
    pub(crate) fn has_pending(&self) -> bool {
        self.out.has_pending()
    }

    /// Sends a message whole, or not at all if an earlier one is still pending. Bytes that the
    /// kernel has no room for become pending, with `until` as their deadline.
    pub(crate) fn send(&mut self, bytes: &[u8], now: Time, until: Time) -> Sent {
        let sent = self.out.send(&*self.stream, bytes, until);
        // Everything sent before was taken.
        if sent == Sent::Done {
            self.last_progress = now;
        }
        self.update_interest();
        sent
    }

    /// Writes pending bytes as far as there is room. Returns until when to wait for the rest.
    pub(crate) fn flush_pending(&mut self, now: Time) -> Option<Time> {
        if self.out.has_pending() {
            if self.out.flush_pending(&*self.stream) {
                self.last_progress = now;
            }
            self.update_interest();
        }
        self.out.pending_deadline(now)
    }

    /// Sets a new deadline for the pending bytes.
    pub(crate) fn set_deadline(&mut self, until: Time) {
        self.out.set_deadline(until);
    }

    /// Makes the worker wait for room if bytes are pending.
    fn update_interest(&mut self) {
        self.is_closed |= self.out.is_closed;
        self.stream.set_interest(if self.out.has_pending() { Interest::Both } else { Interest::Read });
    }
}
