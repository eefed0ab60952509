//! Datagrams with the kernel's stamps and its count of those that it dropped.

use limen::node::LossCounter;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Datagrams dropped by the kernel, which reports a wrapping 32-bit count of them with each
/// datagram it delivers.
#[derive(Debug, Default, Clone)]
pub struct Overrun {
    last: u32,
    lost: LossCounter,
}

impl Overrun {
    /// Creates the count of a new socket, which adds to `lost`.
    pub fn new(lost: LossCounter) -> Self {
        Overrun { last: 0, lost }
    }

    pub(crate) fn record(&mut self, so_far: u32) {
        let more = so_far.wrapping_sub(std::mem::replace(&mut self.last, so_far));
        self.lost.lose(more.into(), || "the socket's buffer in the kernel was full".into());
    }

    /// The socket is a new one, which counts from 0.
    pub fn renew(&mut self) {
        self.last = 0;
    }
}

/// A datagram that was read.
#[derive(Debug)]
pub struct Datagram {
    /// How many bytes of it were read.
    pub bytes: usize,
    pub(crate) is_truncated: bool,
    /// When the kernel received it, on the wall clock.
    pub stamp: Option<Duration>,
}

/// Returns a buffer for the control messages of a datagram: drop count and timestamp.
pub fn control() -> Vec<u8> {
    nix::cmsg_space!(u32, TimeSpec)
}

/// Reads the next datagram, if there is one, without blocking.
pub fn receive(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    control: &mut [u8],
    overrun: &mut Overrun,
) -> nix::Result<Option<Datagram>> {
    let mut into = [IoSliceMut::new(buffer)];
    let received = loop {
        match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut into, Some(control), MsgFlags::MSG_DONTWAIT) {
            Ok(received) => break received,
            Err(Errno::EINTR) => {}
            // ECONNREFUSED reports an ICMP error for a datagram sent earlier; it does not concern
            // receiving.
            Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return Ok(None),
            Err(error) => return Err(error),
        }
    };
    let mut stamp = None;
    for control in received.cmsgs().into_iter().flatten() {
        match control {
            ControlMessageOwned::RxqOvfl(so_far) => overrun.record(so_far),
            ControlMessageOwned::ScmTimestampns(at) => stamp = Some(Duration::from(at)),
            _ => {}
        }
    }
    let is_truncated = received.flags.contains(MsgFlags::MSG_TRUNC);
    Ok(Some(Datagram { bytes: received.bytes, is_truncated, stamp }))
}

/// Least memory of a datagram in the kernel's queue, bytes.
const LEAST_QUEUED: usize = 256;

/// Reads and counts the datagrams in the kernel's queue, when the node is about to close the
/// socket. Bounded, so that a peer that keeps sending cannot keep it busy.
pub fn drain(socket: &(impl AsRawFd + AsFd), overrun: &mut Overrun) -> u64 {
    let most = getsockopt(socket, sockopt::RcvBuf).unwrap_or(0) / LEAST_QUEUED;
    let (mut byte, mut control) = ([0], control());
    let waits = |_: &usize| matches!(receive(socket, &mut byte, &mut control, overrun), Ok(Some(_)));
    (0..most).take_while(waits).count() as u64
}

/// Asks the kernel for both with each datagram of a socket.
pub fn stamp_and_count(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_of_drops_wraps() {
        let mut overrun = Overrun::default();
        for so_far in [0, 3, 3, u32::MAX, 2] {
            overrun.record(so_far);
        }
        assert_eq!(overrun.lost.get(), u64::from(u32::MAX) + 3);
    }
}
