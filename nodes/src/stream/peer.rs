//! One connection: what comes of it, and what it takes.

use super::framing::{Deframer, Framing};
use super::held::Held;
use super::outgoing::{Outgoing, Patience, Sent};
use super::ready::{self, Read};
use limen::{Interest, Time};
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
    stream: Held<TcpStream>,
    pub(crate) deframer: Deframer,
    /// When it was made, and when something came last.
    pub(crate) since: Time,
    pub(crate) heard: Time,
    /// Nothing more will come.
    pub(crate) is_closed: bool,
    out: Outgoing,
}

impl Peer {
    pub(crate) fn new(stream: Held<TcpStream>, framing: Framing, max: usize, now: Time) -> io::Result<Self> {
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
        Ok(Peer { stream, deframer, since: now, heard: now, is_closed: false, out: Outgoing::default() })
    }

    pub(crate) fn stream(&self) -> &Held<TcpStream> {
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

    /// Whether the other end is still there; what it says, though nobody asked, is thrown away.
    pub(crate) fn is_there(&mut self) -> bool {
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

    /// Sends bytes that belong together, unless the last ones have not gone yet.
    pub(crate) fn send(&mut self, bytes: &[u8], patience: Patience<'_>) -> Sent {
        self.out.send(&*self.stream, bytes, patience)
    }

    /// Sends what is still to go, as long as there is patience, unless it was waited for in vain already.
    pub(crate) fn wait(&mut self, patience: Patience<'_>) {
        self.out.wait(&*self.stream, patience);
    }

    /// Sends what is still to go, as long as there is patience.
    pub(crate) fn catch_up(&mut self, patience: Patience<'_>) {
        self.out.catch_up(&*self.stream, patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Clock;
    use std::net::TcpListener;

    /// Its kernel answers, and it neither reads nor hangs up: that is what a process that froze does.
    #[test]
    fn a_peer_that_takes_nothing_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let frozen = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let mut peer = Peer::new(Held::Plain(near), Framing::Raw, 16, Time::ZERO).unwrap();
        let clock = Clock::default();
        let begin = clock.now();
        while peer.send(&[0; 1 << 16], Patience { clock: &clock, until: Time::ZERO }) != Sent::Full {}
        assert!(peer.is_there());
        let mut waits = 0;
        while peer.is_there() {
            ready::readable(&**peer.stream(), 1_000).unwrap();
            waits += 1;
            assert!(waits < 30, "it is still there");
        }
        let ms = clock.now().since(begin) / 1_000_000;
        assert!(ms >= u64::from(UNCONFIRMED_MS), "{ms} ms");
        assert_eq!(peer.send(b"x", Patience { clock: &clock, until: Time::ZERO }), Sent::Closed);
        drop(frozen);
    }
}
