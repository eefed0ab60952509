//! Links between threads: rtrb with four waiting policies, and the usual channels.

use crate::Cfg;
use crate::payload::Payload;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence, fence};

#[derive(Clone, Copy, PartialEq)]
pub enum Policy {
    /// Busy loop with the pause hint.
    Spin,
    /// Short spin, then `sched_yield` on every turn.
    Yield,
    /// Short spin, then futex; the peer pays one SeqCst fence per operation.
    Park,
    /// Short spin, then futex; the sleeper pays `membarrier`, the peer a plain load.
    ParkMb,
}

impl Policy {
    pub fn parse(s: &str) -> Self {
        match s {
            "spin" => Policy::Spin,
            "yield" => Policy::Yield,
            "park" => Policy::Park,
            "parkmb" | "native" => Policy::ParkMb,
            _ => panic!("policy={s}"),
        }
    }
}

const SPINS: u32 = 64;

pub struct Backoff {
    p: Policy,
    n: u32,
}

impl Backoff {
    pub fn new(p: Policy, _c: &Cfg) -> Self {
        Backoff { p, n: 0 }
    }
    #[inline]
    pub fn reset(&mut self) {
        self.n = 0;
    }
    /// Waits a little; true when the caller should now go to sleep.
    #[inline]
    pub fn idle(&mut self) -> bool {
        if self.p == Policy::Spin || self.n < SPINS {
            self.n = self.n.saturating_add(1);
            std::hint::spin_loop();
            return false;
        }
        match self.p {
            Policy::Yield => {
                std::thread::yield_now();
                false
            }
            _ => true,
        }
    }
}

const MB_REGISTER: i32 = 16; // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
const MB_FENCE: i32 = 8; // MEMBARRIER_CMD_PRIVATE_EXPEDITED

pub fn membarrier_register() {
    let r = unsafe { libc::syscall(libc::SYS_membarrier, MB_REGISTER, 0, 0) };
    assert_eq!(r, 0, "membarrier is not available");
}

pub fn membarrier() {
    unsafe { libc::syscall(libc::SYS_membarrier, MB_FENCE, 0, 0) };
}

pub fn futex_wait(a: &AtomicU32, v: u32) {
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            a.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            v,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

pub fn futex_wake(a: &AtomicU32) {
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            a.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// One sleeper's flag, alone on its cache line pair.
#[repr(align(128))]
#[derive(Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// Announce sleep; then the caller must look at the queue once more.
    #[inline]
    pub fn arm(&self, p: Policy) {
        self.0.store(1, Ordering::SeqCst);
        if p == Policy::ParkMb {
            membarrier()
        } else {
            fence(Ordering::SeqCst)
        }
    }
    pub fn disarm(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
    pub fn sleep(&self) {
        while self.0.load(Ordering::Relaxed) == 1 {
            futex_wait(&self.0, 1);
        }
    }
    /// After a queue operation: is the peer asleep?
    #[inline(always)]
    pub fn asleep(&self, p: Policy) -> bool {
        match p {
            Policy::Spin | Policy::Yield => return false,
            Policy::Park => fence(Ordering::SeqCst),
            Policy::ParkMb => compiler_fence(Ordering::SeqCst),
        }
        self.0.load(Ordering::Relaxed) != 0
    }
    #[cold]
    pub fn ring(&self) {
        if self.0.swap(0, Ordering::SeqCst) != 0 {
            futex_wake(&self.0);
        }
    }
}

#[derive(Default)]
pub struct Bells {
    pub data: Bell,
    pub space: Bell,
    pub closed: AtomicBool,
}

pub trait Link<P: Payload> {
    type Tx: Tx<P> + Send;
    type Rx: Rx<P> + Send;
    fn pair(c: &Cfg) -> (Self::Tx, Self::Rx);
    fn forward_batch(_: &mut Self::Rx, _: &mut Self::Tx, _: &mut dyn FnMut(P) -> P, _: usize) {
        panic!("only `engine=rtrb` has batches")
    }
}
pub trait Tx<P> {
    fn send(&mut self, p: P);
    fn close(self)
    where
        Self: Sized,
    {
        drop(self)
    }
}
pub trait Rx<P> {
    fn recv(&mut self) -> Option<P>;
    fn drain(&mut self, _: &mut dyn FnMut(P), _: usize) -> bool {
        panic!("only `engine=rtrb` has batches")
    }
}

// ---- rtrb ----

pub struct RtrbLink;
pub struct RTx<P> {
    pub q: rtrb::Producer<P>,
    bells: Arc<Bells>,
    p: Policy,
    b: Backoff,
    /// A producer that found the ring full goes on only when this much is free.
    gap: usize,
}
pub struct RRx<P> {
    pub q: rtrb::Consumer<P>,
    bells: Arc<Bells>,
    p: Policy,
    b: Backoff,
    half: usize,
}

impl<P: Payload> Link<P> for RtrbLink {
    type Tx = RTx<P>;
    type Rx = RRx<P>;
    fn pair(c: &Cfg) -> (RTx<P>, RRx<P>) {
        let (t, r) = rtrb::RingBuffer::new(c.queue);
        let bells = Arc::new(Bells::default());
        (
            RTx {
                q: t,
                bells: bells.clone(),
                p: c.policy,
                b: Backoff::new(c.policy, c),
                gap: c.gap.clamp(1, c.queue),
            },
            RRx {
                q: r,
                bells,
                p: c.policy,
                b: Backoff::new(c.policy, c),
                half: c.queue / 2,
            },
        )
    }
    fn forward_batch(rx: &mut RRx<P>, tx: &mut RTx<P>, f: &mut dyn FnMut(P) -> P, max: usize) {
        loop {
            let n = rx.wait_some();
            if n == 0 {
                return;
            }
            let n = n.min(max).min(tx.wait_space());
            let src = rx.q.read_chunk(n).unwrap();
            let dst = tx.q.write_chunk_uninit(n).unwrap();
            dst.fill_from_iter(src.into_iter().map(&mut *f));
            tx.sent();
            rx.took();
        }
    }
}

impl<P: Payload> RTx<P> {
    #[inline(always)]
    pub fn sent(&mut self) {
        if self.bells.data.asleep(self.p) {
            self.bells.data.ring();
        }
    }
    /// Waits until there is room; returns how many fit.
    #[inline(always)]
    pub fn wait_space(&mut self) -> usize {
        match self.q.slots() {
            0 => self.wait_space_for(self.gap),
            n => n,
        }
    }
    pub fn wait_space_for(&mut self, want: usize) -> usize {
        self.b.reset();
        loop {
            let n = self.q.slots();
            if n >= want {
                return n;
            }
            if self.b.idle() {
                self.bells.space.arm(self.p);
                if self.q.slots() < want {
                    self.bells.space.sleep();
                } else {
                    self.bells.space.disarm();
                }
                self.b.reset();
            }
        }
    }
}

impl<P: Payload> RRx<P> {
    #[inline(always)]
    pub fn took(&mut self) {
        // Wake a blocked producer only once half the ring is free.
        if self.bells.space.asleep(self.p) && self.q.slots() <= self.half {
            self.bells.space.ring();
        }
    }
    /// Waits until there is something; 0 when the producer is gone.
    #[inline(always)]
    pub fn wait_some(&mut self) -> usize {
        self.b.reset();
        loop {
            let n = self.q.slots();
            if n > 0 {
                return n;
            }
            if self.bells.closed.load(Ordering::Acquire) {
                return self.q.slots();
            }
            if self.b.idle() {
                self.bells.data.arm(self.p);
                if self.q.slots() == 0 && !self.bells.closed.load(Ordering::SeqCst) {
                    self.bells.data.sleep();
                } else {
                    self.bells.data.disarm();
                }
                self.b.reset();
            }
        }
    }
}

impl<P: Payload> Tx<P> for RTx<P> {
    #[inline(always)]
    fn send(&mut self, mut m: P) {
        loop {
            match self.q.push(m) {
                Ok(()) => return self.sent(),
                Err(rtrb::PushError::Full(back)) => {
                    m = back;
                    self.wait_space_for(self.gap);
                }
            }
        }
    }
    fn close(self) {
        self.bells.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.bells.data.ring();
    }
}
impl<P: Payload> Rx<P> for RRx<P> {
    #[inline(always)]
    fn recv(&mut self) -> Option<P> {
        loop {
            if let Ok(m) = self.q.pop() {
                self.took();
                return Some(m);
            }
            if self.wait_some() == 0 {
                return None;
            }
        }
    }
    fn drain(&mut self, eat: &mut dyn FnMut(P), max: usize) -> bool {
        let n = self.wait_some();
        if n == 0 {
            return false;
        }
        for m in self.q.read_chunk(n.min(max)).unwrap() {
            eat(m);
        }
        self.took();
        true
    }
}

// ---- blocking channels, their own waiting ----

macro_rules! channel {
    ($link:ident, $tx:ty, $rx:ty, $mk:expr) => {
        pub struct $link;
        impl<P: Payload> Link<P> for $link {
            type Tx = $tx;
            type Rx = $rx;
            fn pair(c: &Cfg) -> ($tx, $rx) {
                $mk(c.queue)
            }
        }
        impl<P: Payload> Tx<P> for $tx {
            #[inline(always)]
            fn send(&mut self, m: P) {
                let _ = <$tx>::send(&*self, m);
            }
        }
        impl<P: Payload> Rx<P> for $rx {
            #[inline(always)]
            fn recv(&mut self) -> Option<P> {
                <$rx>::recv(&*self).ok()
            }
        }
    };
}
channel!(
    CrossLink,
    crossbeam_channel::Sender<P>,
    crossbeam_channel::Receiver<P>,
    crossbeam_channel::bounded
);
channel!(
    StdLink,
    std::sync::mpsc::SyncSender<P>,
    std::sync::mpsc::Receiver<P>,
    std::sync::mpsc::sync_channel
);
