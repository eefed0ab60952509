//! Source -> K pass-through stages -> sink over bare queues, a thread for each node, and over none
//! at all: plain dynamic calls on one thread, which is the baseline. One configuration per process,
//! one line of JSON.

mod calls;
mod link;
mod payload;

use peers_common::*;
use link::*;
use payload::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone)]
pub struct Cfg {
    pub engine: String,
    pub k: usize,
    pub queue: usize,
    pub words: usize,
    pub batch: usize,
    pub gap: usize,
    pub policy: Policy,
    pub map: String,
    pub secs: f64,
    /// 0 = saturated throughput, else paced latency at this rate.
    pub rate: f64,
    pub pace_spin: bool,
}

impl Cfg {
    pub fn place(&self, node: usize) {
        let nodes = self.k + 2;
        match self.map.as_str() {
            "free" => {}
            "rr" => pin(node % cores()),
            "blk" => pin(node * cores() / nodes),
            m => panic!("map={m}"),
        }
    }
}

/// Calls `send(seq, stamp)` until the time is up; paced when `rate` > 0.
/// Returns (messages, worst lateness of the schedule in ns).
pub fn drive(c: &Cfg, mut send: impl FnMut(u64, u64)) -> (u64, u64) {
    let t0 = now_ns();
    let end = t0 + (c.secs * 1e9) as u64;
    let mut n = 0u64;
    if c.rate == 0.0 {
        while now_ns() < end {
            for _ in 0..256 {
                send(n, 0);
                n += 1;
            }
        }
        return (n, 0);
    }
    tight_timers();
    let period = (1e9 / c.rate) as u64;
    let mut late = 0;
    loop {
        let due = t0 + (n + 1) * period;
        if due > end {
            return (n, late);
        }
        if c.pace_spin {
            while now_ns() < due {
                std::hint::spin_loop();
            }
        } else {
            sleep_until(due);
        }
        let t = now_ns();
        late = late.max(t - due);
        send(n, t);
        n += 1;
    }
}

/// Sink side: counts, and records latency after the warm-up when paced.
pub struct SinkStat {
    pub n: u64,
    pub lat: Lat,
    skip: u64,
    paced: bool,
    pub sum: u64,
}

impl SinkStat {
    pub fn new(c: &Cfg) -> Self {
        SinkStat {
            n: 0,
            lat: Lat::default(),
            skip: (c.rate * c.secs * 0.1) as u64,
            paced: c.rate > 0.0,
            sum: 0,
        }
    }
    #[inline(always)]
    pub fn take(&mut self, stamp: u64, seq: u64) {
        self.sum = self.sum.wrapping_add(seq);
        if self.paced && self.n >= self.skip {
            self.lat.rec(now_ns().saturating_sub(stamp));
        }
        self.n += 1;
    }
}

pub static LATE: AtomicU64 = AtomicU64::new(0);

/// One thread per node over any link.
fn threads<P: Payload, L: Link<P>>(c: &Cfg) -> SinkStat {
    let (recycle_tx, mut recycle_rx) = rtrb::RingBuffer::<P>::new(c.queue.max(4));
    let mut pool: Vec<P> = if P::POOLED {
        (0..c.queue.max(4) - 2).map(|_| P::alloc(c.words)).collect()
    } else {
        vec![]
    };
    let mut recycle_tx = recycle_tx;
    let mut rxs = Vec::new();
    let mut txs = Vec::new();
    for _ in 0..=c.k {
        let (t, r) = L::pair(c);
        txs.push(t);
        rxs.push(r);
    }
    let (mut txs, mut rxs) = (txs.into_iter(), rxs.into_iter());
    std::thread::scope(|s| {
        let mut tx0 = txs.next().unwrap();
        s.spawn(move || {
            c.place(0);
            let mut b = Backoff::new(Policy::Yield, c);
            let (_, late) = drive(c, |seq, stamp| {
                let mut m = if P::POOLED {
                    loop {
                        if let Some(p) = pool.pop() {
                            break p;
                        }
                        if let Ok(p) = recycle_rx.pop() {
                            break p;
                        }
                        b.idle();
                    }
                } else {
                    P::alloc(c.words)
                };
                m.put(stamp, seq);
                tx0.send(m);
            });
            LATE.fetch_max(late, Ordering::Relaxed);
            tx0.close();
        });
        for i in 0..c.k {
            let (mut rx, mut tx) = (rxs.next().unwrap(), txs.next().unwrap());
            s.spawn(move || {
                c.place(i + 1);
                if c.batch > 1 {
                    L::forward_batch(&mut rx, &mut tx, &mut |m| m, c.batch);
                } else {
                    while let Some(m) = rx.recv() {
                        tx.send(m);
                    }
                }
                tx.close();
            });
        }
        let mut rx = rxs.next().unwrap();
        s.spawn(move || {
            c.place(c.k + 1);
            let mut stat = SinkStat::new(c);
            let mut eat = |m: P| {
                let (stamp, seq) = m.get();
                stat.take(stamp, seq);
                if P::POOLED {
                    let _ = recycle_tx.push(m);
                }
            };
            if c.batch > 1 {
                while rx.drain(&mut eat, c.batch) {}
            } else {
                while let Some(m) = rx.recv() {
                    eat(m);
                }
            }
            stat
        })
        .join()
        .unwrap()
    })
}

fn dispatch<P: Payload>(c: &Cfg) -> SinkStat {
    match c.engine.as_str() {
        "rtrb" => threads::<P, RtrbLink>(c),
        "crossbeam" => threads::<P, CrossLink>(c),
        "std" => threads::<P, StdLink>(c),
        "calls" => calls::run::<P>(c),
        e => panic!("engine={e}"),
    }
}

fn main() {
    let a = Args::parse();
    let payload = a.usize("payload", 64);
    let mode = a.str("mode", "inline");
    let rate = a.num("rate", 0.0);
    let policy = a.str("policy", "parkmb");
    let c = Cfg {
        engine: a.str("engine", "rtrb"),
        k: a.usize("k", 1),
        queue: a.usize("queue", if payload >= 1 << 20 { 64 } else { 1024 }),
        words: payload / 8,
        batch: a.usize("batch", 1),
        gap: a.usize("gap", 1),
        policy: Policy::parse(&policy),
        map: a.str("map", "blk"),
        secs: a.num("secs", 1.0),
        rate,
        pace_spin: a.str("pace", "sleep") == "spin",
    };
    if matches!(c.policy, Policy::ParkMb) {
        link::membarrier_register();
    }
    let mut row = Row::new();
    row.str("bench", if rate > 0.0 { "latency" } else { "throughput" })
        .str("engine", &c.engine)
        .num("k", c.k as f64)
        .num("payload", payload as f64)
        .str("mode", &mode)
        .str("policy", &policy)
        .str("map", &c.map)
        .num("batch", c.batch as f64)
        .num("gap", c.gap as f64)
        .num("queue", c.queue as f64)
        .num("rate", rate);
    let m = Meter::start();
    let st = match (mode.as_str(), payload) {
        ("inline", 64) => dispatch::<Inline<8>>(&c),
        ("handle", _) => dispatch::<Handle>(&c),
        (m, p) => panic!("mode={m} payload={p}"),
    };
    std::hint::black_box(st.sum);
    m.stop(st.n, &mut row);
    if rate > 0.0 {
        row.num("late_max_ns", LATE.load(Ordering::Relaxed) as f64);
        st.lat.into_row(&mut row);
    }
    row.emit();
}
