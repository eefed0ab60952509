//! Waiting for calls on a device.

use crate::exec::stage::DeviceWait;
use std::time::Duration;

/// How a worker without other work waits for a call on a device. If calls are short it blocks on
/// the device, which takes less than two wake-ups, of the thread that waits for the device and its
/// own; then it sleeps until its bell rings.
#[derive(Debug, Default)]
pub(crate) struct DeviceIdler {
    /// When it began to wait; 0 while it does not.
    since: u64,
    /// Whether the end of the call will ring.
    is_asked: bool,
    /// Whether the last call was longer than it would block.
    was_long: bool,
}

/// How long a worker blocks on a device, ns: of longer calls, two wake-ups are a small part.
const DEVICE_NS: u64 = 500_000;
/// The longest that it blocks without looking at its bell, ns: about the time that waking a
/// sleeping worker takes.
const DEVICE_SLICE_NS: u64 = 50_000;

impl DeviceIdler {
    /// Blocks until a call has ended or a message may have come, as
    /// [`Stage::await_device`](crate::exec::stage::Stage::await_device); `None` if the worker is to
    /// sleep.
    pub(crate) fn wait(&mut self, now: u64, wake: u64, await_device: &mut AwaitDevice<'_>) -> Option<bool> {
        if self.since == 0 {
            self.since = now;
        }
        if !self.was_long && now.saturating_sub(self.since) < DEVICE_NS {
            let at_most = DEVICE_SLICE_NS.min(wake.saturating_sub(now));
            let waited = await_device(DeviceWait::Block(Duration::from_nanos(at_most)));
            if waited.is_none() {
                // For a message, not for a call.
                self.since = 0;
            }
            return waited;
        }
        match std::mem::replace(&mut self.is_asked, true) {
            true => None,
            false => await_device(DeviceWait::Ring),
        }
    }

    /// Ends the wait: there is work.
    #[inline]
    pub(crate) fn worked(&mut self, now: impl FnOnce() -> u64) {
        if self.since != 0 {
            self.was_long = now().saturating_sub(self.since) >= DEVICE_NS;
            (self.since, self.is_asked) = (0, false);
        }
    }
}

/// Waits for a call on a device, as
/// [`Stage::await_device`](crate::exec::stage::Stage::await_device).
pub(crate) type AwaitDevice<'a> = dyn FnMut(DeviceWait) -> Option<bool> + 'a;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A worker that waited for a message, slept, and then makes calls: it blocks on each if calls
    /// are short, else each rings once.
    #[test]
    fn a_worker_blocks_on_short_calls_and_is_woken_by_long_ones() {
        let mut idler = DeviceIdler::default();
        let mut asked = Vec::new();
        let mut wait = |idler: &mut DeviceIdler, now: u64, is_awaited: bool| {
            let found = idler.wait(now, u64::MAX, &mut |wait| {
                asked.push(wait);
                is_awaited.then_some(false)
            });
            (found, std::mem::take(&mut asked))
        };
        let block = DeviceWait::Block(Duration::from_nanos(DEVICE_SLICE_NS));
        // Nothing is awaited, for long.
        assert_eq!(wait(&mut idler, 1, false), (None, vec![block]));
        assert_eq!(wait(&mut idler, 20_000_000, false), (None, vec![block]));
        let mut now = 30_000_000;
        for took in [100_000, 100_000, 5_000_000, 5_000_000, 100_000, 100_000] {
            let was_long = idler.was_long;
            idler.worked(|| now);
            let (found, asked) = wait(&mut idler, now, true);
            assert_eq!((found, asked), (Some(false), vec![if was_long { DeviceWait::Ring } else { block }]), "{now}");
            if took > DEVICE_NS {
                let (found, asked) = wait(&mut idler, now + DEVICE_NS, true);
                let expected = if was_long { (None, vec![]) } else { (Some(false), vec![DeviceWait::Ring]) };
                assert_eq!((found, asked), expected, "asked once, then it sleeps");
            }
            now += took;
            idler.worked(|| now);
            assert_eq!(idler.was_long, took > DEVICE_NS);
        }
    }
}
