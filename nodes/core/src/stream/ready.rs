//! Nonblocking reads.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;

/// Returns without blocking whether a read would not block: there are bytes, or the stream has
/// ended.
pub fn is_readable(fd: impl AsFd) -> io::Result<bool> {
    match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) {
        Ok(n) => Ok(n > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were read, at least one.
    Some(usize),
    /// There are no bytes at the moment.
    Nothing,
    /// The stream has ended.
    End,
}

/// Interprets the result of a nonblocking `read`.
pub fn outcome(read: io::Result<usize>) -> io::Result<Read> {
    match read {
        Ok(0) => Ok(Read::End),
        Ok(n) => Ok(Read::Some(n)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(Read::Nothing)
        }
        Err(error) => Err(error),
    }
}
