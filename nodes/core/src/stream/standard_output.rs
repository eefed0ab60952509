//! Standard output of a run, whose reader may stop reading (`| less`, Ctrl-S).

use limen::node::Statistics;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;

/// How long to wait for the reader before looking whether the run still waits, ms.
const LOOK_MS: u8 = 50;
/// A pipe with room takes so many bytes without blocking (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Writes text, whole lines at once if they are short, and returns the number of bytes written:
/// fewer than all if the run was aborted while the reader did not read.
pub(crate) fn print(text: &[u8], run: &Statistics) -> io::Result<usize> {
    let out = io::stdout();
    let mut written = 0;
    while written < text.len() {
        // Not locked while waiting: whoever prints the report would wait for this lock.
        if !is_writable(&out)? {
            if run.is_aborted() {
                break;
            }
            continue;
        }
        let rest = &text[written..];
        let most = rest.len().min(PIECE);
        let end = rest[..most].iter().rposition(|byte| *byte == b'\n').map_or(most, |at| at + 1);
        let mut out = out.lock();
        out.write_all(&rest[..end])?;
        out.flush()?;
        written += end;
    }
    Ok(written)
}

/// Waits until a write would not block; false if that takes too long.
fn is_writable(fd: impl AsFd) -> io::Result<bool> {
    match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(LOOK_MS)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
