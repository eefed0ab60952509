//! Waiting: what a worker without work does, and the doorbell that wakes it.
//!
//! There is one [`Bell`] per worker, not per ring. Before it sleeps, the worker arms its bell and
//! checks all its inputs once more; a thread that publishes a message (or frees a slot, or requests
//! a stop) issues one fence and wakes the worker only if its bell is armed. With store, fence, load
//! on both sides, one of the two sees the other, so no wake-up is lost. A worker that also waits
//! for descriptors sleeps in [`crate::host::descriptors`] and is woken by an eventfd; the rest is
//! the same. `loom_tests` check both.

use crate::base::policy::Wait;
use crate::host::sync::{AtomicU32, Ordering, Padded, fence, thread};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The doorbell of a worker, or of a handle.
#[derive(Default)]
pub(crate) struct Bell {
    state: Padded<AtomicU32>,
    /// Wakes a sleeper that does not sleep on its thread's own futex.
    waker: OnceLock<Waker>,
    sleeper: OnceLock<thread::Thread>,
    /// The thread that sleeps next on the bell of a handle, which may change threads. Locked only
    /// to go to sleep and to wake.
    guest: Mutex<Option<thread::Thread>>,
}

/// Wakes a sleeper; called by the ringing thread.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").field("is_armed", &self.is_armed()).finish_non_exhaustive()
    }
}

impl Bell {
    /// Sets how the sleeper is woken from now on. Called once, by the sleeper; it has to arm the
    /// bell again, because earlier rings did not use this.
    pub(crate) fn wake_by(&self, waker: Waker) {
        let _ = self.waker.set(waker);
        self.disarm();
    }

    /// Makes the calling thread the sleeper of this bell.
    pub(crate) fn set_sleeper(&self) {
        // A bell has one sleeper for its whole life; a second call has no effect.
        let _ = self.sleeper.set(thread::current());
    }

    /// Makes the calling thread the next sleeper. For bells of handles, which have no fixed
    /// sleeper.
    pub(crate) fn set_guest(&self) {
        let here = thread::current();
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.as_ref().is_none_or(|guest| guest.id() != here.id()) {
            *guest = Some(here);
        }
    }

    /// Returns whether the bell is armed and has not been rung since.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.load(Ordering::Acquire) == ASLEEP
    }

    /// Arms the bell. The caller then has to check for work once more before it sleeps.
    pub(crate) fn arm(&self) {
        // A swap follows every earlier swap of `wake`, whichever thread slept here. A store would
        // too, by the atomicity of `wake`'s swap, which loom does not model. A thread that sees the
        // swap also sees how to wake the sleeper.
        self.state.swap(ASLEEP, Ordering::Release);
        // Pairs with the fence of `ring`: either the ringing thread sees ASLEEP, or this worker's
        // second check sees its message.
        fence(Ordering::SeqCst);
    }

    /// Disarms the bell.
    pub(crate) fn disarm(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until rung or for a time. The caller has armed the bell; it is disarmed on return.
    #[cfg(not(loom))]
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let end = at_most.map(|d| std::time::Instant::now() + d);
        // A stale unpark token makes `park` return early, so the state decides.
        while self.state.load(Ordering::Acquire) == ASLEEP {
            match end {
                None => thread::park(),
                Some(end) => {
                    let now = std::time::Instant::now();
                    if now >= end {
                        break;
                    }
                    std::thread::park_timeout(end - now);
                }
            }
        }
        self.disarm();
    }

    #[cfg(loom)]
    pub(crate) fn sleep(&self, _: Option<Duration>) {
        while self.state.load(Ordering::Acquire) == ASLEEP {
            thread::park();
        }
        self.disarm();
    }

    /// Wakes the worker if it sleeps. The caller has published its message before.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Of several ringing threads, one pays for the wake-up.
        if self.state.swap(AWAKE, Ordering::AcqRel) != ASLEEP {
            return;
        }
        if let Some(wake) = self.waker.get() {
            return wake();
        }
        if let Some(sleeper) = self.sleeper.get() {
            return sleeper.unpark();
        }
        // A thread that is no longer the guest wakes up spuriously, and sees that by the state.
        let guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(guest) = guest {
            guest.unpark();
        }
    }
}

/// Waking a sleeping core takes 40–60 µs on the machines measured: spinning for less than this is
/// cheaper for the message and, on a shared host, overall.
const WAKE_NS: u64 = 60_000;
/// How long to spin even if no message is expected soon, ns: messages often come in groups.
const GRACE_NS: u64 = 1_000;

/// A timer is near that is due within this time, ns: a worker does not sleep any more, unless it is
/// a helper thread.
const NEAR_NS: u64 = 5_000;

/// Decides how long to spin before sleeping, from the intervals between arrivals, and how early to
/// wake up for a timer.
#[derive(Debug)]
pub(crate) struct Patience {
    wait: Wait,
    /// How long before a timer this worker does not sleep any more, ns; 0 for a helper thread,
    /// whose core may have a worker with messages.
    near: u64,
    oversleep: Oversleep,
    rounds: u32,
    idle_since: u64,
    last_work: u64,
    /// Mean interval between arrivals, ns; initially high, so that nothing spins before it is
    /// known.
    interval: u64,
}

/// What an idle worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Check again at once.
    Spin,
    /// Sleep until the bell rings or the timeout passes.
    Sleep,
}

impl Patience {
    pub(crate) fn new(wait: Wait, is_helper: bool) -> Self {
        let near = if is_helper { 0 } else { NEAR_NS };
        let (oversleep, interval) = (Oversleep::default(), u64::MAX / 2);
        Patience { wait, near, oversleep, rounds: 0, idle_since: 0, last_work: 0, interval }
    }

    /// Whether this is a helper thread.
    pub(crate) fn is_helper(&self) -> bool {
        self.near == 0
    }

    /// Whether a timer that is due at `wake` is so near at `now` that this worker does not sleep
    /// any more.
    pub(crate) fn is_near(&self, wake: u64, now: u64) -> bool {
        wake.saturating_sub(self.near) <= now
    }

    /// How long before a timer that is `left` away a sleep ends, ns.
    pub(crate) fn ahead(&self, left: u64) -> u64 {
        self.near + if self.wait == Wait::Adaptive { self.oversleep.ahead(left) } else { 0 }
    }

    /// Notes by how much a sleep ended too late, ns.
    pub(crate) fn overslept(&mut self, late: u64) {
        self.oversleep.learn(late);
    }

    /// Called after work was found: resets the spinning, and updates the mean interval with the
    /// time since idling last ended.
    #[inline]
    pub(crate) fn worked(&mut self, now: impl FnOnce() -> u64) {
        if self.rounds > 0 {
            self.learn(now());
            self.rounds = 0;
        }
    }

    #[cold]
    fn learn(&mut self, now: u64) {
        if self.last_work != 0 {
            let seen = now.saturating_sub(self.last_work);
            // A weight of 1/4 follows a change of rate within a few messages and tolerates a single
            // late one.
            self.interval =
                if self.interval > u64::MAX / 4 { seen } else { self.interval - self.interval / 4 + seen / 4 };
        }
        self.last_work = now;
    }

    /// Called when no work was found. `wake` is when the next timer is due; `u64::MAX` if there is
    /// none.
    pub(crate) fn idle(&mut self, now: impl FnOnce() -> u64, wake: u64) -> Idle {
        self.rounds = self.rounds.saturating_add(1);
        match self.wait {
            Wait::Spin => return Idle::Spin,
            Wait::Park => return Idle::Sleep,
            Wait::Adaptive => {}
        }
        // Measured by the clock, not in rounds: a round is a pass over all stages, which takes
        // longer the more there are.
        let now = now();
        if self.rounds == 1 {
            self.idle_since = now;
        }
        let soon = self.interval < WAKE_NS || wake.saturating_sub(now) < WAKE_NS;
        let most = if soon { WAKE_NS } else { GRACE_NS };
        if now.saturating_sub(self.idle_since) < most { Idle::Spin } else { Idle::Sleep }
    }
}

/// A sleep that ends so late was prolonged by a pause of the host, not by what it takes to wake up,
/// ns.
const PAUSE_NS: u64 = 1_000_000;

/// Learns how late the kernel ends this thread's sleeps, and says how much earlier to set its
/// timers.
#[derive(Debug, Default)]
struct Oversleep {
    /// About the 90th percentile of those seen, ns.
    usual: u64,
}

impl Oversleep {
    /// Notes by how much a sleep ended too late, ns.
    // One sleep in ten steps up by nine times a step down, so the estimate stays at the 90th
    // percentile, and a single one that the host prolonged moves it by a step (Ma, Muthukrishnan
    // and Sandler, "Frugal Streaming for Estimating Quantiles", 2013).
    fn learn(&mut self, late: u64) {
        // It cannot be made up for by waking earlier, and under a CPU quota spinning would cause
        // more of it.
        if late > PAUSE_NS {
            return;
        }
        let step = (self.usual / 64).max(100);
        self.usual = if late > self.usual { self.usual + 9 * step } else { self.usual.saturating_sub(step) };
    }

    /// How much earlier to set a timer that is `left` away, ns, so that the thread is awake by
    /// then: a tenth of that time at most, which the thread may then spin.
    fn ahead(&self, left: u64) -> u64 {
        self.usual.min(left / 10)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn adaptive_spins_only_if_a_message_is_expected_before_a_wake_up() {
        let mut slow = Patience::new(Wait::Adaptive, false);
        let mut fast = Patience::new(Wait::Adaptive, false);
        for n in 1..20u64 {
            for (patience, interval) in [(&mut slow, 100_000), (&mut fast, 5_000)] {
                patience.idle(|| n * interval, u64::MAX);
                patience.worked(|| n * interval);
            }
        }
        // How long each spins, checking every 100 ns, without arrivals and with a timer that far
        // away.
        let spun = |patience: &mut Patience, timer: u64| {
            let begin = patience.last_work + patience.interval;
            patience.worked(|| begin);
            (0..).map(|n| n * 100).find(|n| patience.idle(|| begin + n, begin + timer) == Idle::Sleep).unwrap()
        };
        assert_eq!((spun(&mut slow, 1_000_000), spun(&mut slow, 30_000)), (GRACE_NS, 60_000));
        assert_eq!(spun(&mut fast, 1_000_000), WAKE_NS);
    }

    /// Promise (scheduling): An `adaptive` worker sets timers earlier by the 90th percentile of its
    /// lateness, by at most a tenth of the time left.
    #[test]
    fn timers_are_set_earlier_by_the_90th_percentile_of_lateness() {
        let mut oversleep = Oversleep::default();
        assert_eq!(oversleep.ahead(1_000_000), 0);
        // Each of 1 to 100 µs equally often, in an order without trend, and now and then a pause of
        // the host.
        let late = |n: u64| if n.is_multiple_of(200) { 5_000_000 } else { (n * 37 % 100 + 1) * 1_000 };
        (0..2_000).for_each(|n| oversleep.learn(late(n)));
        let seen: Vec<u64> =
            (2_000..4_000).map(|n| (oversleep.learn(late(n)), oversleep.ahead(10_000_000)).1).collect();
        let mean = seen.iter().sum::<u64>() / seen.len() as u64;
        assert!((80_000..=100_000).contains(&mean) && seen.iter().all(|ahead| *ahead < 140_000), "{mean} {seen:?}");
        assert_eq!(oversleep.ahead(300_000), 30_000);
        // A host that becomes quick is followed.
        (0..500).for_each(|_| oversleep.learn(2_000));
        assert!((1_000..=3_000).contains(&oversleep.ahead(1_000_000)), "{oversleep:?}");
    }

    /// Promise (scheduling): A helper thread sleeps until its timer is due.
    #[test]
    fn a_helper_does_not_wake_up_before_a_timer() {
        for (wait, is_helper, ahead) in [
            (Wait::Adaptive, false, NEAR_NS + 100_000),
            (Wait::Spin, false, NEAR_NS),
            (Wait::Park, false, NEAR_NS),
            (Wait::Park, true, 0),
        ] {
            let mut patience = Patience::new(wait, is_helper);
            (0..1_000).for_each(|_| patience.overslept(500_000));
            let case = format!("{wait:?} {is_helper}");
            assert_eq!(patience.ahead(1_000_000), ahead, "{case}");
            assert_eq!(patience.is_near(10_000, 10_000 - NEAR_NS), !is_helper, "{case}");
            assert!(patience.is_near(10_000, 10_000), "{case}");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::host::sync::Arc;

    /// Promise (scheduling): A worker that goes to sleep misses no message that is sent at the same
    /// moment.
    #[test]
    fn loom_no_wake_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            shared.0.set_sleeper();
            let publisher = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            while shared.1.load(Ordering::Acquire) == 0 {
                shared.0.arm();
                if shared.1.load(Ordering::Acquire) == 1 {
                    shared.0.disarm();
                    break;
                }
                shared.0.sleep(None);
            }
            publisher.join().unwrap();
        });
    }

    /// Promise (descriptors): A worker that waits for descriptors loses no wake-up.
    ///
    /// Like `loom_no_wake_is_lost`, for a worker that sleeps in `epoll_wait`: an eventfd stays
    /// written until a wait consumes it, and the state decides whether to wait again. The worker
    /// switches to the eventfd after it has announced a sleep on its futex.
    #[test]
    fn loom_no_wake_is_lost_by_an_eventfd() {
        use loom::sync::{Condvar, Mutex};
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            let event = Arc::new((Mutex::new(false), Condvar::new()));
            shared.0.set_sleeper();
            let publisher = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            shared.0.arm();
            let written = event.clone();
            shared.0.wake_by(Box::new(move || {
                *written.0.lock().unwrap() = true;
                written.1.notify_one();
            }));
            while shared.1.load(Ordering::Acquire) == 0 {
                shared.0.arm();
                if shared.1.load(Ordering::Acquire) == 1 {
                    shared.0.disarm();
                    break;
                }
                while shared.0.is_armed() {
                    let mut is_written = event.0.lock().unwrap();
                    while !*is_written {
                        is_written = event.1.wait(is_written).unwrap();
                    }
                    *is_written = false;
                }
                shared.0.disarm();
            }
            publisher.join().unwrap();
        });
    }

    /// Promise (handles): A handle that waits on one thread and then on another misses no message.
    #[test]
    fn loom_a_changing_guest_is_woken() {
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            let publisher = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for n in 1..=2 {
                        shared.1.store(n, Ordering::Release);
                        shared.0.ring();
                    }
                })
            };
            let wait_for = |shared: &(Bell, AtomicU32), n| {
                while shared.1.load(Ordering::Acquire) < n {
                    shared.0.set_guest();
                    shared.0.arm();
                    if shared.1.load(Ordering::Acquire) >= n {
                        shared.0.disarm();
                        break;
                    }
                    shared.0.sleep(None);
                }
            };
            let first = {
                let shared = shared.clone();
                thread::spawn(move || wait_for(&shared, 1))
            };
            first.join().unwrap();
            wait_for(&shared, 2);
            publisher.join().unwrap();
        });
    }
}
