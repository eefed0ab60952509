//! Nonblocking writes of whole messages to a peer that may not be reading.

use limen::Time;
use std::io::{self, ErrorKind, Write};

/// The result of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has taken it, or part of it; the rest is pending.
    Done,
    /// It was not sent: an earlier message is still pending.
    Full,
    /// It was not sent: the stream is closed.
    Closed,
}

/// The rest of at most one message that the kernel had no room for.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pending: Vec<u8>,
    /// How many of these bytes were written.
    sent: usize,
    /// Until when to wait for the rest.
    until: Time,
    pub(crate) is_closed: bool,
    /// The error that closed it.
    error: Option<io::Error>,
}

impl Outgoing {
    /// The error that closed the stream.
    pub(crate) fn failed(&self) -> Option<String> {
        self.error.as_ref().map(io::Error::to_string)
    }

    /// Whether part of a message is still to be written.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Until when to wait for the pending bytes; `None` if there are none, or if the deadline has
    /// passed: there is no further wait until they are written.
    pub(crate) fn pending_deadline(&self, now: Time) -> Option<Time> {
        (self.has_pending() && !self.is_closed && now < self.until).then_some(self.until)
    }

    /// Sets a new deadline for the pending bytes.
    pub(crate) fn set_deadline(&mut self, until: Time) {
        self.until = until;
    }

    /// Sends a message whole, or not at all if an earlier one is still pending. Bytes that the
    /// kernel has no room for become pending, with `until` as their deadline.
    pub(crate) fn send(&mut self, to: impl Write, bytes: &[u8], until: Time) -> Sent {
        let mut to = to;
        if !self.flush_pending(&mut to) {
            return if self.is_closed { Sent::Closed } else { Sent::Full };
        }
        let n = self.write(&mut to, bytes);
        if self.is_closed {
            return Sent::Closed;
        }
        self.pending.extend_from_slice(&bytes[n..]);
        self.until = until;
        Sent::Done
    }

    /// Writes pending bytes as far as there is room. Returns whether nothing is pending and the
    /// stream is open.
    pub(crate) fn flush_pending(&mut self, to: impl Write) -> bool {
        if self.has_pending() && !self.is_closed {
            let pending = std::mem::take(&mut self.pending);
            self.sent += self.write(to, &pending[self.sent..]);
            self.pending = pending;
            if self.sent == self.pending.len() {
                self.pending.clear();
                self.sent = 0;
            }
        }
        !self.has_pending() && !self.is_closed
    }

    /// Writes as much as there is room for.
    fn write(&mut self, mut to: impl Write, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match to.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    (self.is_closed, self.error) = (true, Some(error));
                    break;
                }
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_are_sent_whole_or_not_at_all_and_at_most_one_is_pending() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut out = Outgoing::default();
        let message = |n: u8| vec![n; 100_000];
        let (mut sent, mut full) = (Vec::new(), 0);
        for n in 0..50 {
            match out.send(&near, &message(n), Time(u64::from(n))) {
                Sent::Done => sent.push(n),
                Sent::Full => full += 1,
                Sent::Closed => panic!("the other end is open"),
            }
        }
        assert!(full > 0 && sent.len() + full == 50 && out.has_pending());
        assert!(out.pending.len() <= 100_000);
        // The deadline is that of the last message that was sent; messages that were not sent do
        // not extend it.
        let last = Time(u64::from(*sent.last().unwrap()));
        assert_eq!((out.pending_deadline(Time(0)), out.pending_deadline(last)), (Some(last), None));
        // A peer that reads again gets the rest and the messages after it.
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).map(|_| all)
        });
        near.set_nonblocking(false).unwrap();
        assert!(out.flush_pending(&near) && out.pending_deadline(Time(0)).is_none());
        assert_eq!(out.send(&near, &message(99), Time::NEVER), Sent::Done);
        assert!(out.flush_pending(&near));
        drop(near);
        let all = reader.join().unwrap().unwrap();
        let got: Vec<u8> = all.chunks(100_000).map(|chunk| chunk[0]).collect();
        assert!(all.chunks(100_000).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
        assert_eq!(got, [&sent[..], &[99]].concat());
    }

    #[test]
    fn sending_to_a_closed_stream_says_so() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(Outgoing::default().send(&near, b"x", Time::ZERO), Sent::Closed);
    }
}
