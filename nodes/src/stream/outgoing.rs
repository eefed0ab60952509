//! Bytes on their way to somebody who may not be reading.

use super::ready;
use limen::{Clock, Time};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

/// How long to wait for who has no room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) until: Time,
}

impl Patience<'_> {
    /// The next wait in the kernel, ms; none when there is no more patience.
    fn wait_ms(self) -> Option<u16> {
        let ms = self.until.since(self.clock.now()).div_ceil(1_000_000).min(ready::WAIT_MS.into());
        (ms > 0).then_some(ms as u16)
    }
}

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
    /// Patience has ended once: nobody waits again before this has caught up.
    is_slow: bool,
    pub(crate) is_closed: bool,
}

impl Outgoing {
    /// Whether a part of a message is still to go.
    pub(crate) fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends bytes that belong together, unless the last ones have not gone yet.
    pub(crate) fn send(&mut self, to: impl Write + AsFd + Copy, bytes: &[u8], patience: Patience<'_>) -> Sent {
        if !self.wait(to, patience) {
            return if self.is_closed { Sent::Closed } else { Sent::Full };
        }
        let n = self.write(to, bytes);
        if self.is_closed {
            return Sent::Closed;
        }
        self.pending.extend_from_slice(&bytes[n..]);
        self.wait(to, patience);
        if self.is_closed { Sent::Closed } else { Sent::Done }
    }

    /// Sends what is still to go. Nobody is waited for a second time who has not caught up since the first. True when it is
    /// gone.
    pub(crate) fn wait(&mut self, to: impl Write + AsFd + Copy, patience: Patience<'_>) -> bool {
        if self.is_slow {
            return self.catch_up(to, Patience { until: Time::ZERO, ..patience });
        }
        let has_patience = patience.until > Time::ZERO;
        let is_gone = self.catch_up(to, patience);
        self.is_slow = !is_gone && has_patience;
        is_gone
    }

    /// Sends what is still to go, as long as there is patience. True when it is gone.
    pub(crate) fn catch_up(&mut self, to: impl Write + AsFd + Copy, patience: Patience<'_>) -> bool {
        while self.is_behind() && !self.is_closed {
            let pending = std::mem::take(&mut self.pending);
            self.sent += self.write(to, &pending[self.sent..]);
            self.pending = pending;
            if self.sent == self.pending.len() {
                self.pending.clear();
                (self.sent, self.is_slow) = (0, false);
                break;
            }
            match patience.wait_ms() {
                Some(ms) if ready::writable(to, ms).is_ok() => {}
                _ => break,
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
        let clock = Clock::default();
        let none = Patience { clock: &clock, until: Time::ZERO };
        let mut out = Outgoing::default();
        let message = |n: u8| vec![n; 100_000];
        let (mut sent, mut full) = (Vec::new(), 0);
        for n in 0..50 {
            match out.send(&near, &message(n), none) {
                Sent::Done => sent.push(n),
                Sent::Full => full += 1,
                Sent::Closed => panic!("nobody closed it"),
            }
        }
        assert!(full > 0 && sent.len() + full == 50 && out.is_behind());
        assert!(out.pending.len() <= 100_000);
        // Nobody waits twice for who does not read.
        let until = clock.now() + 20_000_000;
        assert!(!out.wait(&near, Patience { clock: &clock, until }) && out.is_slow && clock.now() >= until);
        let never = Patience { clock: &clock, until: Time::NEVER };
        assert_eq!((out.send(&near, &message(50), never), out.wait(&near, never)), (Sent::Full, false));
        // Who reads again gets the rest, and what follows.
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).map(|_| all)
        });
        let some = Patience { clock: &clock, until: clock.now() + 20_000_000_000 };
        assert!(out.catch_up(&near, some) && !out.is_slow);
        assert_eq!(out.send(&near, &message(99), some), Sent::Done);
        assert!(out.catch_up(&near, some));
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
        let clock = Clock::default();
        let mut out = Outgoing::default();
        assert_eq!(out.send(&near, b"x", Patience { clock: &clock, until: Time::ZERO }), Sent::Closed);
    }
}
