//! Reading without waiting.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;

/// Whether there is something to read, or nothing will ever be again; asked without waiting.
pub(crate) fn is_readable(fd: impl AsFd) -> io::Result<bool> {
    match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) {
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
