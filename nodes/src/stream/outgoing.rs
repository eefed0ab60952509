//! Bytes on their way to somebody who may not be reading.

use limen::Time;
use std::io::{ErrorKind, Write};

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has it, or the rest of it follows.
    Done,
    /// What was sent before has not been taken.
    Full,
    /// Nothing can be sent any more.
    Closed,
}

/// The part of a message that there was no room for, and never more than that.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pending: Vec<u8>,
    /// So many bytes of it are on their way.
    sent: usize,
    /// Until when it is waited for.
    until: Time,
    pub(crate) is_closed: bool,
}

impl Outgoing {
    /// Whether a part of a message is still to go.
    pub(crate) fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Until when what is still to go is waited for; `None` where there is nothing, or where it was waited for in vain: before it
    /// is gone nobody waits again.
    pub(crate) fn waits_until(&self, now: Time) -> Option<Time> {
        (self.is_behind() && !self.is_closed && now < self.until).then_some(self.until)
    }

    /// Waits longer for what is still to go.
    pub(crate) fn wait_until(&mut self, until: Time) {
        self.until = until;
    }

    /// Sends bytes that belong together, unless the last ones have not gone yet. What there is no room for is waited for until
    /// a time.
    pub(crate) fn send(&mut self, to: impl Write, bytes: &[u8], until: Time) -> Sent {
        let mut to = to;
        if !self.catch_up(&mut to) {
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

    /// Sends what is still to go, as far as there is room. True when it is gone.
    pub(crate) fn catch_up(&mut self, to: impl Write) -> bool {
        if self.is_behind() && !self.is_closed {
            let pending = std::mem::take(&mut self.pending);
            self.sent += self.write(to, &pending[self.sent..]);
            self.pending = pending;
            if self.sent == self.pending.len() {
                self.pending.clear();
                self.sent = 0;
            }
        }
        !self.is_behind() && !self.is_closed
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
                Err(_) => {
                    self.is_closed = true;
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
    fn a_message_goes_whole_or_not_at_all_and_one_at_most_is_kept() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut out = Outgoing::default();
        let message = |n: u8| vec![n; 100_000];
        let (mut sent, mut full) = (Vec::new(), 0);
        for n in 0..50 {
            match out.send(&near, &message(n), Time(u64::from(n))) {
                Sent::Done => sent.push(n),
                Sent::Full => full += 1,
                Sent::Closed => panic!("nobody closed it"),
            }
        }
        assert!(full > 0 && sent.len() + full == 50 && out.is_behind());
        assert!(out.pending.len() <= 100_000);
        // Waited for as long as the message said that was taken last, and not again for those that were not.
        let last = Time(u64::from(*sent.last().unwrap()));
        assert_eq!((out.waits_until(Time(0)), out.waits_until(last)), (Some(last), None));
        // Who reads again gets the rest, and what follows.
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).map(|_| all)
        });
        near.set_nonblocking(false).unwrap();
        assert!(out.catch_up(&near) && out.waits_until(Time(0)).is_none());
        assert_eq!(out.send(&near, &message(99), Time::NEVER), Sent::Done);
        assert!(out.catch_up(&near));
        drop(near);
        let all = reader.join().unwrap().unwrap();
        let got: Vec<u8> = all.chunks(100_000).map(|chunk| chunk[0]).collect();
        assert!(all.chunks(100_000).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
        assert_eq!(got, [&sent[..], &[99]].concat());
    }

    #[test]
    fn who_is_gone_is_said_to_be() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(Outgoing::default().send(&near, b"x", Time::ZERO), Sent::Closed);
    }
}
