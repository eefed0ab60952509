//! Waiting: how a worker with nothing to do passes the time, and the doorbell that ends it.
//!
//! One [`Bell`] per worker, not per ring. Before it sleeps, the worker arms its bell and looks at all its inputs once
//! more; whoever published something (or freed a slot, or asked for a stop) issues one fence and wakes the worker only
//! if its bell is armed. Store–fence–load on both sides: one of the two sees the other, so no wake is lost. A worker that
//! waits for descriptors too sleeps in [`crate::host::descriptors`], and is woken by an eventfd; the rest is the same.
//! `loom_tests` check both.

use crate::base::policy::Wait;
use crate::host::sync::{AtomicU32, Ordering, Padded, fence, thread};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The doorbell of a worker, or of a handle in the program around the graph.
#[derive(Default)]
pub(crate) struct Bell {
    state: Padded<AtomicU32>,
    /// How to wake who does not sleep on the thread's own futex.
    waker: OnceLock<Waker>,
    sleeper: OnceLock<thread::Thread>,
    /// Who sleeps here where it is not always the same thread: handles travel. Locked only to go to sleep and to wake.
    guest: Mutex<Option<thread::Thread>>,
}

/// Wakes a sleeper; called by whoever rings.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").field("is_armed", &self.is_armed()).finish_non_exhaustive()
    }
}

impl Bell {
    /// Whoever sleeps here from now on is woken by this, once and for all. Called by the sleeper; if it had announced its sleep
    /// it has to do so again, because who rang before knew nothing of this.
    pub(crate) fn wake_by(&self, waker: Waker) {
        let _ = self.waker.set(waker);
        self.disarm();
    }

    /// Makes the calling thread the one that sleeps here.
    pub(crate) fn answer_here(&self) {
        // A bell has one sleeper for its whole life; a second call changes nothing.
        let _ = self.sleeper.set(thread::current());
    }

    /// Makes the calling thread the one that sleeps here next. For bells of handles, which nobody ever answers for good.
    pub(crate) fn answer_here_for_now(&self) {
        let here = thread::current();
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.as_ref().is_none_or(|guest| guest.id() != here.id()) {
            *guest = Some(here);
        }
    }

    /// Whether sleep is announced and nobody has rung since.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.load(Ordering::Acquire) == ASLEEP
    }

    /// Announces sleep. The caller then looks for work once more before it sleeps.
    pub(crate) fn arm(&self) {
        // A swap comes after every swap of `wake` before it, whoever slept here then; that a store would too follows from
        // the atomicity of `wake`'s swap, which loom does not model. Whoever sees it also sees how to wake the sleeper.
        self.state.swap(ASLEEP, Ordering::Release);
        // Pairs with the fence of `ring`: either the ringer sees ASLEEP, or this worker's second look sees its message.
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back.
    pub(crate) fn disarm(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until rung or for a time; the bell is armed before and disarmed after.
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

    /// Wakes the worker if it sleeps. What it shall find was published before.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Of several ringers one pays for the wake.
        if self.state.swap(AWAKE, Ordering::AcqRel) != ASLEEP {
            return;
        }
        if let Some(wake) = self.waker.get() {
            return wake();
        }
        if let Some(sleeper) = self.sleeper.get() {
            return sleeper.unpark();
        }
        // A thread that is no longer the guest wakes for nothing, and sees that by the state.
        let guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(guest) = guest {
            guest.unpark();
        }
    }
}

/// Waking a sleeping core costs its sleeper 40–60 µs on the machines measured (docs/performance.md): spinning for less
/// than this is cheaper for the message, and on a shared host for everybody.
const WAKE_NS: u64 = 60_000;
/// What is not expected soon is looked for this long all the same, ns: work often comes in company.
const GRACE_NS: u64 = 1_000;

/// Decides how long to spin before sleeping, from the intervals between arrivals.
#[derive(Debug)]
pub(crate) struct Patience {
    wait: Wait,
    /// Whether this worker may keep its core busy while idle: false when workers outnumber cores.
    may_spin: bool,
    rounds: u32,
    idle_since: u64,
    last_work: u64,
    /// Mean interval between arrivals, ns; starts high, so that nothing spins before it has learned.
    interval: u64,
}

/// What an idle worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Look again at once.
    Spin,
    /// Let others run, then look again.
    Yield,
    /// Sleep.
    Sleep,
}

impl Patience {
    pub(crate) fn new(wait: Wait, may_spin: bool) -> Self {
        Patience { wait, may_spin, rounds: 0, idle_since: 0, last_work: 0, interval: u64::MAX / 2 }
    }

    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin
    }

    /// Work was found: resets the spin and learns the interval since the last time idleness ended.
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
            // A weight of 1/4 follows a change of rate within a few messages and forgives a single late one.
            self.interval =
                if self.interval > u64::MAX / 4 { seen } else { self.interval - self.interval / 4 + seen / 4 };
        }
        self.last_work = now;
    }

    /// Nothing was found. `wake` is when a timer is due, if one is.
    pub(crate) fn idle(&mut self, now: impl FnOnce() -> u64, wake: u64) -> Idle {
        self.rounds = self.rounds.saturating_add(1);
        match self.wait {
            Wait::Spin => return Idle::Spin,
            Wait::Park => return Idle::Sleep,
            Wait::Adaptive => {}
        }
        if !self.may_spin {
            // A yield lets the worker this one waits for run; a few of them bridge a busy neighbour's turn.
            return if self.rounds < 4 { Idle::Yield } else { Idle::Sleep };
        }
        // By the clock, and not by rounds: a round is a pass over all stages, which takes as long as there are many.
        let now = now();
        if self.rounds == 1 {
            self.idle_since = now;
        }
        let soon = self.interval < WAKE_NS || wake.saturating_sub(now) < WAKE_NS;
        let most = if soon { WAKE_NS } else { GRACE_NS };
        if now.saturating_sub(self.idle_since) < most { Idle::Spin } else { Idle::Sleep }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn adaptive_spins_only_for_what_is_expected_sooner_than_a_wake() {
        let mut slow = Patience::new(Wait::Adaptive, true);
        let mut fast = Patience::new(Wait::Adaptive, true);
        for n in 1..20u64 {
            for (patience, interval) in [(&mut slow, 100_000), (&mut fast, 5_000)] {
                patience.idle(|| n * interval, u64::MAX);
                patience.worked(|| n * interval);
            }
        }
        // How long each spins, looking every 100 ns, when nothing comes and a timer is so far away.
        let spun = |patience: &mut Patience, timer: u64| {
            let begin = patience.last_work + patience.interval;
            patience.worked(|| begin);
            (0..).map(|n| n * 100).find(|n| patience.idle(|| begin + n, begin + timer) == Idle::Sleep).unwrap()
        };
        assert_eq!((spun(&mut slow, 1_000_000), spun(&mut slow, 30_000)), (GRACE_NS, 60_000));
        assert_eq!(spun(&mut fast, 1_000_000), WAKE_NS);
    }

    /// \[L9\]
    #[test]
    fn a_worker_that_shares_its_core_never_spins() {
        let mut patience = Patience::new(Wait::Adaptive, false);
        let seen: Vec<_> = (0..5).map(|_| patience.idle(|| 0, u64::MAX)).collect();
        assert!(!seen.contains(&Idle::Spin) && seen.last() == Some(&Idle::Sleep), "{seen:?}");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::host::sync::Arc;

    /// \[M1\] A publisher and a worker that goes to sleep: the worker always finds the message.
    #[test]
    fn loom_no_wake_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            shared.0.answer_here();
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

    /// What `loom_no_wake_is_lost` says, of a worker that sleeps in `epoll_wait`: an eventfd stays written until the wait has
    /// ended by it, and the state decides whether there is another. The worker begins to wait there in mid-run, after it has
    /// announced a sleep on its futex.
    #[test]
    fn loom_no_wake_is_lost_by_an_eventfd() {
        use loom::sync::{Condvar, Mutex};
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU32::new(0)));
            let event = Arc::new((Mutex::new(false), Condvar::new()));
            shared.0.answer_here();
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

    /// A handle that waits now on one thread, now on another, and somebody who rings for both: each finds its message.
    #[test]
    fn loom_a_guest_is_woken_whoever_it_is() {
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
                    shared.0.answer_here_for_now();
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
