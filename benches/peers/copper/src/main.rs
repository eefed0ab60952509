//! Source -> K pass-through tasks -> sink as one copper task graph, driven iteration by iteration
//! on one thread as its own loop does. One configuration per process, one line of JSON.

use peers_common::*;
use cu29::bincode::{Decode, Encode};
use cu29::pool::{CuHandle, CuHostMemoryPool, CuPool};
use cu29::prelude::*;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;

#[derive(Default, Debug, Clone, Copy, Encode, Decode, Serialize, Deserialize, Reflect)]
pub struct P64(pub [u64; 8]);
pub type Buf = CuHandle<Vec<u8>>;

pub struct State {
    seq: u64,
    lat: Lat,
    n: u64,
    paced: bool,
    skip: u64,
    sum: u64,
}
thread_local! {
    pub static STATE: RefCell<State> =
        RefCell::new(State { seq: 0, lat: Lat::default(), n: 0, paced: false, skip: 0, sum: 0 });
}

fn stamp() -> (u64, u64) {
    STATE.with_borrow_mut(|s| {
        s.seq += 1;
        (if s.paced { now_ns() } else { 0 }, s.seq)
    })
}
fn take(t: u64, seq: u64) {
    STATE.with_borrow_mut(|s| {
        s.sum = s.sum.wrapping_add(seq);
        if s.paced && s.n >= s.skip {
            s.lat.rec(now_ns() - t);
        }
        s.n += 1;
    })
}

macro_rules! tasks {
    ($src:ident, $pass:ident, $snk:ident, $ty:ty, $make:expr, $hop:expr, $get:expr) => {
        #[derive(Reflect)]
        #[reflect(from_reflect = false)]
        pub struct $src {
            #[reflect(ignore)]
            pool: Option<Arc<CuHostMemoryPool<Vec<u8>>>>,
        }
        impl Freezable for $src {}
        impl CuSrcTask for $src {
            type Resources<'r> = ();
            type Output<'m> = output_msg!($ty);
            fn new(_: Option<&ComponentConfig>, _: ()) -> CuResult<Self> {
                Ok(Self { pool: None })
            }
            fn process(&mut self, _: &CuContext, out: &mut Self::Output<'_>) -> CuResult<()> {
                let (t, seq) = stamp();
                let make: fn(&mut Option<Arc<CuHostMemoryPool<Vec<u8>>>>, u64, u64) -> $ty = $make;
                out.set_payload(make(&mut self.pool, t, seq));
                Ok(())
            }
        }
        #[derive(Reflect)]
        pub struct $pass;
        impl Freezable for $pass {}
        impl CuTask for $pass {
            type Resources<'r> = ();
            type Input<'m> = input_msg!($ty);
            type Output<'m> = output_msg!($ty);
            fn new(_: Option<&ComponentConfig>, _: ()) -> CuResult<Self> {
                Ok(Self)
            }
            fn process(
                &mut self,
                _: &CuContext,
                input: &Self::Input<'_>,
                out: &mut Self::Output<'_>,
            ) -> CuResult<()> {
                let hop: fn(&$ty) -> $ty = $hop;
                out.set_payload(hop(input.payload().unwrap()));
                Ok(())
            }
        }
        #[derive(Reflect)]
        pub struct $snk;
        impl Freezable for $snk {}
        impl CuSinkTask for $snk {
            type Resources<'r> = ();
            type Input<'m> = input_msg!($ty);
            fn new(_: Option<&ComponentConfig>, _: ()) -> CuResult<Self> {
                Ok(Self)
            }
            fn process(&mut self, _: &CuContext, input: &Self::Input<'_>) -> CuResult<()> {
                let get: fn(&$ty) -> (u64, u64) = $get;
                let (t, seq) = get(input.payload().unwrap());
                take(t, seq);
                Ok(())
            }
        }
    };
}

tasks!(
    SrcP64,
    PassP64,
    SinkP64,
    P64,
    |_, t, s| {
        let mut p = P64::default();
        p.0[0] = t;
        p.0[1] = s;
        p
    },
    |p| *p,
    |p| (p.0[0], p.0[1])
);
tasks!(
    SrcBuf,
    PassBuf,
    SinkBuf,
    Buf,
    |pool, t, s| {
        let pool = pool.get_or_insert_with(|| {
            CuHostMemoryPool::new("bench", 64, || vec![1u8; 1 << 20]).unwrap()
        });
        let h = pool.acquire().expect("pool");
        h.with_inner_mut(|b| {
            b[0..8].copy_from_slice(&t.to_le_bytes());
            b[8..16].copy_from_slice(&s.to_le_bytes());
        });
        h
    },
    |p| p.clone(),
    |p| {
        p.with_inner(|b| {
            (
                u64::from_le_bytes(b[0..8].try_into().unwrap()),
                u64::from_le_bytes(b[8..16].try_into().unwrap()),
            )
        })
    }
);

pub struct Run {
    pub secs: f64,
    pub rate: f64,
    pub log: Option<String>,
}

/// Drives one iteration of the graph per message.
fn drive(r: &Run, mut iterate: impl FnMut()) {
    let t0 = now_ns();
    let end = t0 + (r.secs * 1e9) as u64;
    if r.rate == 0.0 {
        while now_ns() < end {
            for _ in 0..64 {
                iterate();
            }
        }
        return;
    }
    tight_timers();
    let period = (1e9 / r.rate) as u64;
    let mut n = 0;
    loop {
        n += 1;
        let due = t0 + n * period;
        if due > end {
            return;
        }
        sleep_until(due);
        iterate();
    }
}

macro_rules! app {
    ($name:ident, $ron:literal) => {
        mod $name {
            use cu29::prelude::*;
            #[copper_runtime(config = $ron)]
            struct App {}
            pub fn run(r: &crate::Run) {
                if let Some(path) = &r.log {
                    let app = App::builder()
                        .with_log_path(std::path::Path::new(path), Some(1 << 30))
                        .unwrap()
                        .build()
                        .unwrap();
                    let mut app = app.start().unwrap();
                    crate::drive(r, || {
                        app.run_one_iteration().unwrap();
                    });
                } else {
                    let app = App::builder().build().unwrap();
                    let mut app = app.start().unwrap();
                    crate::drive(r, || {
                        app.run_one_iteration().unwrap();
                    });
                }
            }
        }
    };
}

macro_rules! apps {
    ($($name:ident $ron:literal)*) => {
        $(app!($name, $ron);)*

        pub fn run(name: &str, run: &Run) {
            match name {
                $(stringify!($name) => $name::run(run),)*
                _ => panic!("there is no graph {name}"),
            }
        }
    };
}

apps! {
    k1_p64_nolog "config/k1_p64_nolog.ron"
    k1_p64_log "config/k1_p64_log.ron"
    k1_h1m_nolog "config/k1_h1m_nolog.ron"
    k2_p64_nolog "config/k2_p64_nolog.ron"
    k2_p64_log "config/k2_p64_log.ron"
    k2_h1m_nolog "config/k2_h1m_nolog.ron"
    k4_p64_nolog "config/k4_p64_nolog.ron"
    k4_p64_log "config/k4_p64_log.ron"
    k4_h1m_nolog "config/k4_h1m_nolog.ron"
    k8_p64_nolog "config/k8_p64_nolog.ron"
    k8_p64_log "config/k8_p64_log.ron"
    k8_h1m_nolog "config/k8_h1m_nolog.ron"
}


fn main() {
    let a = Args::parse();
    let k = a.usize("k", 1);
    let payload = a.str("payload", "64");
    let log = a.str("log", "");
    let r = Run {
        secs: a.num("secs", 1.0),
        rate: a.num("rate", 0.0),
        log: (!log.is_empty()).then(|| log.clone()),
    };
    pin(a.usize("core", 0));
    STATE.with_borrow_mut(|s| {
        s.paced = r.rate > 0.0;
        s.skip = (r.rate * r.secs * 0.1) as u64;
    });
    let p = match payload.as_str() {
        "64" => "p64",
        "1048576" => "h1m",
        p => panic!("payload={p}"),
    };
    let name = format!("k{k}_{p}_{}", if log.is_empty() { "nolog" } else { "log" });
    let m = Meter::start();
    run(&name, &r);
    let mut row = Row::new();
    row.str(
        "bench",
        if r.rate > 0.0 {
            "latency"
        } else {
            "throughput"
        },
    )
    .str(
        "engine",
        if log.is_empty() {
            "copper"
        } else {
            "copper+log"
        },
    )
    .num("k", k as f64)
    .num("payload", payload.parse().unwrap())
    .str("mode", if p == "h1m" { "handle" } else { "copy" })
    .num("rate", r.rate);
    STATE.with_borrow_mut(|s| {
        m.stop(s.n, &mut row);
        if s.paced {
            std::mem::take(&mut s.lat).into_row(&mut row);
        }
    });
    row.emit();
}
