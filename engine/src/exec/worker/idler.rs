//! What a worker does when nothing moves: it folds its log, and spins or sleeps as its [`Wait`]
//! says.

use super::Cx;
use crate::base::policy::Wait;
use crate::exec::device_idler::{AwaitDevice, DeviceIdler};
use crate::exec::outlier::ASK_EVERY;
use crate::exec::stage::Turn;
use crate::host::sync::Arc;
use crate::host::wait::{Bell, Idle, Patience};
use crate::ledger::span::Activity;
use std::time::Duration;

/// A worker's idle policy: learns how messages arrive, and decides whether to spin or sleep.
pub(crate) struct Idler {
    patience: Patience,
    bell: Arc<Bell>,
    armed: bool,
    /// Passes since the last housekeeping, and the number from one to the next.
    passes: u32,
    housekeep_every: u32,
    /// The end of the first pass since the last housekeeping or idling in which something moved; 0
    /// before it.
    busy_since: u64,
    /// Rounds of housekeeping since the log was folded.
    folds: u32,
    device: DeviceIdler,
    /// The timer for which the last sleep ended ahead of time: the worker does not sleep again
    /// before.
    awaited: u64,
    /// Whether caches may have got cold since what a message needs was last fetched.
    is_cold: bool,
}

/// After this time without messages, caches are cold, ns.
const COLD_NS: u64 = 50_000;
/// Passes between two checks whether the log is worth folding.
const FOLD_EVERY: u32 = 64;
/// A busy worker polls its descriptors at most this often, ns: the system call costs as much as a
/// few messages.
const ASK_BUSY_NS: u64 = 50_000;
/// A spinning worker polls its descriptors at most this often, ns.
const ASK_IDLE_NS: u64 = 5_000;

impl Idler {
    pub(crate) fn new(wait: Wait, is_helper: bool, bell: Arc<Bell>) -> Self {
        let patience = Patience::new(wait, is_helper);
        Idler {
            patience,
            bell,
            armed: false,
            passes: 0,
            busy_since: 0,
            housekeep_every: FOLD_EVERY,
            folds: 0,
            device: DeviceIdler::default(),
            awaited: 0,
            is_cold: false,
        }
    }

    /// Waits as appropriate after a turn, or after a pass over all stages. False when the worker
    /// should end.
    #[inline]
    pub(crate) fn after(&mut self, cx: &mut Cx, turn: Turn, await_device: &mut AwaitDevice<'_>) -> bool {
        if turn == Turn::Worked {
            if self.armed {
                self.bell.disarm();
                self.armed = false;
            }
            self.device.worked(|| cx.watch.now());
            self.patience.worked(|| cx.watch.now());
            self.passes += 1;
            if self.busy_since == 0 {
                self.busy_since = cx.latest();
            }
            // A log that is folded when it is full is folded while messages wait. After a
            // millisecond of calls, what happened to the thread says less and less of each of them.
            let is_due = cx.latest().saturating_sub(self.busy_since) > ASK_EVERY || cx.meter.is_filling();
            if self.passes >= self.housekeep_every || is_due {
                self.housekeep(cx, is_due);
            }
            return true;
        }
        self.idle(cx, turn, await_device)
    }

    /// Housekeeping of a busy worker: its descriptors, and its log, at once if that is due.
    #[inline(never)]
    fn housekeep(&mut self, cx: &mut Cx, is_due: bool) {
        self.passes = 0;
        self.housekeep_every = FOLD_EVERY;
        if cx.poller.is_used() {
            self.housekeep_every = 1;
            cx.ask(ASK_BUSY_NS);
            self.folds += 1;
            if self.folds < FOLD_EVERY && !is_due {
                return;
            }
            self.folds = 0;
        }
        self.busy_since = 0;
        cx.flush();
    }

    #[inline(never)]
    fn idle(&mut self, cx: &mut Cx, turn: Turn, await_device: &mut AwaitDevice<'_>) -> bool {
        cx.leave();
        self.busy_since = 0;
        cx.flush();
        if cx.is_aborted() {
            return false;
        }
        if cx.is_handing_over() {
            // Messages are processed between two pieces of the copy.
            return true;
        }
        let wake = match turn {
            Turn::Idle(wake) => wake,
            Turn::Pending => 0,
            _ => u64::MAX,
        };
        let waits_for_descriptors = cx.poller.is_used();
        let now = cx.watch.now();
        let is_near = self.patience.is_near(wake, now);
        // Not only a sleep makes caches cold: spinning needs little of what a message does.
        self.is_cold |= wake.saturating_sub(now) >= COLD_NS;
        if is_near || wake <= self.awaited {
            if is_near && std::mem::take(&mut self.is_cold) {
                cx.footprint.fetch();
            }
            if waits_for_descriptors {
                cx.ask(if is_near { ASK_BUSY_NS } else { ASK_IDLE_NS });
            }
            // A timer is due, or will be soon, or a ring is settling: check again immediately, but
            // let other threads on this core run.
            std::hint::spin_loop();
            if self.patience.is_helper() {
                std::thread::yield_now();
            }
            return true;
        }
        let watch = &mut cx.watch;
        let idle = self.patience.idle(|| watch.now(), wake);
        if waits_for_descriptors && idle != Idle::Sleep && cx.ask(ASK_IDLE_NS) {
            return true;
        }
        match idle {
            Idle::Spin => std::hint::spin_loop(),
            Idle::Sleep if !self.armed => {
                self.bell.arm();
                self.armed = true;
            }
            // If the bell was rung meanwhile, the next pass sees why.
            Idle::Sleep if cx.has_device && self.device.wait(cx.watch.now(), wake, await_device).is_some() => {
                if waits_for_descriptors {
                    cx.ask(ASK_IDLE_NS);
                }
            }
            Idle::Sleep => self.sleep(cx, wake),
        }
        true
    }

    /// Sleeps until the bell is rung, a descriptor is ready, or shortly before `wake`.
    fn sleep(&mut self, cx: &mut Cx, wake: u64) {
        cx.judge.sleeps();
        let now = cx.watch.now();
        let ahead = self.patience.ahead(wake.saturating_sub(now));
        let timer = if wake == u64::MAX { wake } else { wake.saturating_sub(ahead) };
        if cx.poller.is_used() {
            cx.poller.sleep(timer);
        } else {
            let at_most = (timer != u64::MAX).then(|| Duration::from_nanos(timer.saturating_sub(now)));
            self.bell.sleep(at_most);
        }
        self.armed = false;
        let woken = cx.watch.now();
        if now < timer && timer <= woken {
            self.patience.overslept(woken - timer);
            self.awaited = wake;
        }
        if woken.saturating_sub(now) >= COLD_NS {
            cx.footprint.fetch();
        }
        if cx.writes_spans() {
            cx.write_span(Activity::Sleep, now);
        }
    }
}
