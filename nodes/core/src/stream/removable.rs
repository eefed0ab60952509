//! A device that goes away and comes back.

use super::OnClose;
use super::backoff::Backoff;
use limen::Time;
use limen::node::{Building, ConnectionStatus, Next};
use std::io;

/// A device that is open, or gone until it can be opened again.
#[derive(Debug)]
pub struct Removable<D> {
    device: Option<D>,
    backoff: Backoff,
    /// When to open it again.
    due: Time,
    connection: ConnectionStatus,
}

impl<D> Removable<D> {
    /// Holds the open device of a node.
    pub fn new(device: D, cx: &Building<'_>) -> Self {
        Self::seeded(device, cx.node(), cx.now(), cx.connection())
    }

    fn seeded(device: D, node: &str, now: Time, connection: ConnectionStatus) -> Self {
        connection.begun();
        let backoff = Backoff::new(node, now);
        Removable { device: Some(device), backoff, due: Time::ZERO, connection }
    }

    /// The open device; `None` while it is gone.
    pub fn get(&self) -> Option<&D> {
        self.device.as_ref()
    }

    /// The open device; `None` while it is gone.
    pub fn get_mut(&mut self) -> Option<&mut D> {
        self.device.as_mut()
    }

    /// Records that the device works, so that it is retried soon the next time it is gone.
    pub fn works(&mut self) {
        self.backoff.reset();
    }

    /// Counts a disconnect, with its reason. The device stays open until it is closed: what is left
    /// in it may be read.
    pub fn count_disconnect(&mut self, why: impl Into<String>) {
        self.connection.ended_because(why);
    }

    /// Records that a device that stayed open works again.
    pub fn count_reconnect(&mut self) {
        self.connection.begun();
    }

    /// Closes the device, which is opened again later.
    pub fn close(&mut self, now: Time) {
        self.device = None;
        self.due = self.backoff.after(now);
    }

    /// Closes the device at the end of its node.
    pub fn end(&mut self) {
        self.device = None;
    }

    /// Opens a device that is gone, if a retry is due. Returns whether it was opened.
    pub fn reopen(&mut self, now: Time, open: impl FnOnce() -> io::Result<D>) -> bool {
        if self.device.is_some() || self.due > now {
            return false;
        }
        match open() {
            Ok(device) => {
                self.device = Some(device);
                self.connection.begun();
            }
            Err(error) => {
                self.connection.failed(format!("could not be opened again: {error}"));
                self.due = self.backoff.after(now);
            }
        }
        self.device.is_some()
    }

    /// Opens the device of a source that is gone. Returns what the source does meanwhile; `None` if
    /// the device was opened.
    pub fn come_back(&mut self, on_close: OnClose, now: Time, open: impl FnOnce() -> io::Result<D>) -> Option<Next> {
        if on_close == OnClose::End {
            return Some(Next::Done);
        }
        if self.reopen(now, open) { None } else { Some(Next::At(self.due)) }
    }

    /// When the next attempt to open it is due.
    pub fn due(&self) -> Time {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_gone_is_opened_when_that_is_due() {
        let mut device = Removable::seeded(1, "a", Time(7), ConnectionStatus::default());
        let fails = || Err(io::Error::other("unplugged"));
        assert!(!device.reopen(Time(0), || unreachable!("it is open")));
        device.close(Time(0));
        let first = device.due();
        let early = device.come_back(OnClose::Reconnect, Time(first.0 - 1), || unreachable!("it is not due"));
        assert!(matches!(early, Some(Next::At(due)) if due == first), "{early:?}");
        let failed = device.come_back(OnClose::Reconnect, first, fails);
        assert!(matches!(failed, Some(Next::At(due)) if due > first), "{failed:?}");
        assert!(device.come_back(OnClose::Reconnect, device.due(), || Ok(2)).is_none());
        assert_eq!(device.get(), Some(&2));
    }

    #[test]
    fn a_device_that_is_gone_ends_a_source_on_request() {
        let mut device = Removable::seeded((), "a", Time(7), ConnectionStatus::default());
        device.close(Time(0));
        let next = device.come_back(OnClose::End, Time::NEVER, || unreachable!("it has ended"));
        assert!(matches!(next, Some(Next::Done)), "{next:?}");
    }
}
