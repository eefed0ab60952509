//! Waiting in the kernel, never for long: whoever stops the graph does not wait for a peer that takes nothing. Sinks do it;
//! sources are waited for by their workers.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::AsFd;

/// The longest wait, ms. A thread in one learns within 100 ms that the graph is to stop.
pub(crate) const WAIT_MS: u16 = 50;

/// Whether there is something to read, or nothing will ever be again.
pub(crate) fn readable(fd: impl AsFd, ms: u16) -> io::Result<bool> {
    one(&fd, PollFlags::POLLIN, ms)
}

/// Whether there is room to write, or nothing can ever be written again.
pub(crate) fn writable(fd: impl AsFd, ms: u16) -> io::Result<bool> {
    one(&fd, PollFlags::POLLOUT, ms)
}

fn one(fd: &impl AsFd, flags: PollFlags, ms: u16) -> io::Result<bool> {
    any(&mut [PollFd::new(fd.as_fd(), flags)], ms)
}

/// Waits until any of them is ready. A signal ends the wait, as its time does.
pub(crate) fn any(fds: &mut [PollFd<'_>], ms: u16) -> io::Result<bool> {
    match poll(fds, ms) {
        Ok(n) => Ok(n > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What one read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes have come, at least one.
    Some(usize),
    /// There is nothing at the moment.
    Nothing,
    /// Nothing will come any more.
    End,
}

/// Makes of a read's result what it means.
pub(crate) fn outcome(read: io::Result<usize>) -> io::Result<Read> {
    match read {
        Ok(0) => Ok(Read::End),
        Ok(n) => Ok(Read::Some(n)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(Read::Nothing)
        }
        Err(error) => Err(error),
    }
}
