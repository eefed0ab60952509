//! Source -> K pass-through kernels -> sink as one lmflow graph, written in YAML.
//! One configuration per process; one JSON line on stdout (`show=1`: the YAML instead).

use peers_common::*;
use lmflow::{Graph, Kernel, KernelCtx, Packet, Timestamp, register_kernel};
use std::any::Any;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

// ---- what travels ---------------------------------------------------------------------

/// A payload as a kernel author would choose it: small ones by value inside the packet
/// (lmflow puts them on the heap and counts references), large ones as a pooled buffer.
trait Msg: Any + Send + Sync + Sized {
    fn make(stamp: u64, seq: u64) -> Option<Self>;
    fn get(&self) -> (u64, u64);
}

struct P64([u64; 8]);

impl Msg for P64 {
    fn make(stamp: u64, seq: u64) -> Option<Self> {
        Some(P64([stamp, seq, 0, 0, 0, 0, 0, 0]))
    }
    fn get(&self) -> (u64, u64) {
        (self.0[0], self.0[1])
    }
}

const BUFFERS: usize = 64;
static POOL: OnceLock<Mutex<Vec<Box<[u64]>>>> = OnceLock::new();

fn fill_pool(words: usize) {
    let v = (0..BUFFERS)
        .map(|_| vec![1u64; words].into_boxed_slice())
        .collect();
    let _ = POOL.set(Mutex::new(v));
}

/// A buffer that goes back to the pool when the last packet that holds it is dropped.
struct Buf(Option<Box<[u64]>>);

impl Drop for Buf {
    fn drop(&mut self) {
        if let (Some(b), Some(p)) = (self.0.take(), POOL.get()) {
            p.lock().unwrap().push(b);
        }
    }
}

impl Msg for Buf {
    fn make(stamp: u64, seq: u64) -> Option<Self> {
        let mut b = POOL.get()?.lock().unwrap().pop()?;
        b[0] = stamp;
        b[1] = seq;
        Some(Buf(Some(b)))
    }
    fn get(&self) -> (u64, u64) {
        let b = self.0.as_ref().expect("buffer");
        (b[0], b[1])
    }
}

// ---- kernels --------------------------------------------------------------------------

/// Options: `secs`, `rate` (0: as fast as it is let), `burst` (messages per call),
/// `pace` (the kernel keeps an absolute timetable with `source_yield`; false: the node's
/// own `rate:` does the pacing).
struct Source<M> {
    end: u64,
    start: u64,
    period: u64,
    secs: f64,
    burst: i64,
    pace: bool,
    paced: bool,
    seq: u64,
    calls: u64,
    m: std::marker::PhantomData<M>,
}

impl<M> Default for Source<M> {
    fn default() -> Self {
        Source {
            end: 0,
            start: 0,
            period: 0,
            secs: 1.0,
            burst: 1,
            pace: false,
            paced: false,
            seq: 0,
            calls: 0,
            m: std::marker::PhantomData,
        }
    }
}

impl<M: Msg> Kernel for Source<M> {
    fn open(&mut self, cc: &mut KernelCtx) -> lmflow::Result<()> {
        self.secs = cc.option_f64("secs", 1.0);
        self.burst = cc.option_i64("burst", 1);
        let rate = cc.option_f64("rate", 0.0);
        self.paced = rate > 0.0;
        self.pace = self.paced && cc.option_bool("pace", true);
        self.period = if self.paced { (1e9 / rate) as u64 } else { 0 };
        Ok(())
    }

    fn process(&mut self, cc: &mut KernelCtx) -> lmflow::Result<()> {
        if self.start == 0 {
            self.start = now_ns();
            self.end = self.start + (self.secs * 1e9) as u64;
        }
        self.calls += 1;
        // The clock is read per call when paced, every 64 messages when not.
        if (self.paced || self.burst > 1 || self.calls.is_multiple_of(64)) && now_ns() >= self.end {
            SENT.store(self.seq, Ordering::Relaxed);
            cc.source_done();
            return Ok(());
        }
        if self.pace {
            let due = self.start + (self.seq + 1) * self.period;
            let now = now_ns();
            if due > now {
                cc.source_yield(Duration::from_nanos(due - now));
                return Ok(());
            }
        }
        let base = cc.input_timestamp().0 * self.burst;
        for i in 0..self.burst {
            let stamp = if self.paced { now_ns() } else { 0 };
            match M::make(stamp, self.seq) {
                Some(m) => cc.emit(0, Packet::new(m).at(Timestamp(base + i)))?,
                None => {
                    // All buffers are on their way: let the others run.
                    if !self.paced {
                        cc.source_yield(Duration::ZERO);
                    }
                    return Ok(());
                }
            }
            self.seq += 1;
        }
        if self.pace {
            let due = self.start + (self.seq + 1) * self.period;
            cc.source_yield(Duration::from_nanos(due.saturating_sub(now_ns())));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Pass;

impl Kernel for Pass {
    fn process(&mut self, cc: &mut KernelCtx) -> lmflow::Result<()> {
        let n = cc.input_count(0);
        if n == 1 && cc.forward(0, 0).is_ok() {
            return Ok(());
        }
        for i in 0..n {
            if let Some(p) = cc.input_at(0, i).cloned() {
                cc.emit(0, p)?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Stat {
    n: u64,
    sum: u64,
    lat: Lat,
}
static STAT: Mutex<Option<Stat>> = Mutex::new(None);
static SENT: AtomicU64 = AtomicU64::new(0);

struct Sink<M> {
    stat: Stat,
    skip: u64,
    paced: bool,
    m: std::marker::PhantomData<M>,
}

impl<M> Default for Sink<M> {
    fn default() -> Self {
        Sink {
            stat: Stat::default(),
            skip: 0,
            paced: false,
            m: std::marker::PhantomData,
        }
    }
}

impl<M: Msg> Kernel for Sink<M> {
    fn open(&mut self, cc: &mut KernelCtx) -> lmflow::Result<()> {
        let rate = cc.option_f64("rate", 0.0);
        self.paced = rate > 0.0;
        self.skip = (rate * cc.option_f64("secs", 1.0) * 0.1) as u64;
        Ok(())
    }
    fn process(&mut self, cc: &mut KernelCtx) -> lmflow::Result<()> {
        for i in 0..cc.input_count(0) {
            let m = cc.input_at(0, i).and_then(|p| p.get::<M>());
            let (stamp, seq) = m.ok_or_else(|| cc.fail("not our payload"))?.get();
            self.stat.sum = self.stat.sum.wrapping_add(seq);
            if self.paced && self.stat.n >= self.skip {
                self.stat.lat.rec(now_ns().saturating_sub(stamp));
            }
            self.stat.n += 1;
        }
        Ok(())
    }
    fn close(&mut self, _: &mut KernelCtx) -> lmflow::Result<()> {
        *STAT.lock().unwrap() = Some(std::mem::take(&mut self.stat));
        Ok(())
    }
}

// ---- the graph ------------------------------------------------------------------------

struct Cfg {
    k: usize,
    layout: String,
    batch: usize,
    queue: usize,
    secs: f64,
    rate: f64,
    stats: String,
    pace: String,
    wait: String,
}

fn yaml(c: &Cfg) -> String {
    let mut y = String::new();
    if c.layout != "default" {
        y += "executors:\n";
    }
    match c.layout.as_str() {
        "default" => {} // the engine's own pool: a thread per core, not pinned
        "one" => y += "  - { name: a, type: ThreadPoolExecutor, num_threads: 1, affinity: [0] }\n",
        "two" => {
            y += "  - { name: a, type: ThreadPoolExecutor, num_threads: 1, affinity: [0] }\n";
            y += "  - { name: b, type: ThreadPoolExecutor, num_threads: 1, affinity: [1] }\n";
        }
        "host" => y += "  - { name: a, type: DelegatingExecutor }\n",
        l => panic!("layout={l}"),
    }
    let _ = writeln!(y, "stats: {}", c.stats);
    // Warn only beyond our own bound.
    let _ = writeln!(y, "max_queue_size: {}", c.queue);
    let total = c.k + 2;
    let at = |i: usize| match c.layout.as_str() {
        "default" => "",
        "two" if i >= total.div_ceil(2) => "executor: b, ",
        _ => "executor: a, ",
    };
    let input = if c.batch > 1 {
        format!(
            "input_policy: {{ type: batch, capacity: {} }}, input_queues: {{ packets: {} }}",
            c.batch, c.queue
        )
    } else {
        format!("input_queues: {{ packets: {} }}", c.queue)
    };
    y += "nodes:\n";
    if c.layout != "host" {
        let own = c.pace == "rate" && c.rate > 0.0;
        let rate = if own {
            format!("rate: {:.1}, ", c.rate)
        } else {
            String::new()
        };
        let _ = writeln!(
            y,
            "  - {{ name: source, kernel: Source, {}output_ports: [e0], {rate}options: {{ secs: {:.6}, rate: {:.1}, burst: {}, pace: {} }} }}",
            at(0),
            c.secs,
            c.rate,
            c.batch,
            !own
        );
    }
    for i in 0..c.k {
        let _ = writeln!(
            y,
            "  - {{ name: pass{i}, kernel: Pass, {}input_ports: [e{i}], output_ports: [e{}], {input} }}",
            at(i + 1),
            i + 1
        );
    }
    let _ = writeln!(
        y,
        "  - {{ name: sink, kernel: Sink, {}input_ports: [e{}], {input}, options: {{ secs: {:.6}, rate: {:.1} }} }}",
        at(c.k + 1),
        c.k,
        c.secs,
        c.rate
    );
    if c.layout == "host" {
        y += "input_ports: [e0]\n";
    }
    y
}

/// The host thread feeds the graph and runs every node itself (`pump_step`).
fn drive_host<M: Msg>(g: &Graph, c: &Cfg) -> lmflow::Result<()> {
    let input = g.input("e0")?;
    let t0 = now_ns();
    let end = t0 + (c.secs * 1e9) as u64;
    let mut seq = 0u64;
    let mut send = |stamp: u64| -> lmflow::Result<()> {
        let m = M::make(stamp, seq).expect("pool");
        input.send(Packet::new(m).at(Timestamp(seq as i64)))?;
        seq += 1;
        Ok(())
    };
    if c.rate == 0.0 {
        let per = c.batch.clamp(1, BUFFERS);
        while now_ns() < end {
            for _ in 0..64usize.div_ceil(per) {
                for _ in 0..per {
                    send(0)?;
                }
                while g.pump_step() {}
            }
        }
    } else {
        let period = (1e9 / c.rate) as u64;
        let mut n = 0;
        loop {
            n += 1;
            let due = t0 + n * period;
            if due > end {
                break;
            }
            sleep_until(due);
            send(now_ns())?;
            while g.pump_step() {}
        }
    }
    SENT.store(seq, Ordering::Relaxed);
    g.close_all_inputs();
    g.wait_done()
}

fn run<M: Msg>(c: &Cfg, row: &mut Row) -> lmflow::Result<()> {
    register_kernel::<Source<M>>("Source")?;
    register_kernel::<Pass>("Pass")?;
    register_kernel::<Sink<M>>("Sink")?;
    let g = Graph::from_yaml(&yaml(c))?;
    if c.layout == "host" {
        pin(0);
    }
    let m = Meter::start();
    g.start()?;
    if c.layout == "host" {
        drive_host::<M>(&g, c)?;
    } else {
        // `wait=own`: nobody sits in wait_done meanwhile, which would be woken by every
        // packet of every edge; `wait=host` is the call the manual shows.
        if c.wait == "own" {
            sleep_until(now_ns() + (c.secs * 1e9) as u64);
        }
        g.wait_done()?;
    }
    let mut st = STAT.lock().unwrap().take().unwrap_or_default();
    m.stop(st.n, row);
    let sent = SENT.load(Ordering::Relaxed);
    row.num("sent", sent as f64);
    assert!(
        st.n != sent || st.sum == sent * sent.saturating_sub(1) / 2,
        "not what was sent"
    );
    if c.rate > 0.0 {
        std::mem::take(&mut st.lat).into_row(row);
    }
    Ok(())
}

fn main() {
    let a = Args::parse();
    let payload = a.usize("payload", 64);
    let c = Cfg {
        k: a.usize("k", 1),
        layout: a.str("layout", "one"),
        batch: a.usize("batch", 1),
        queue: a.usize("queue", if payload >= 1 << 20 { 64 } else { 1024 }),
        secs: a.num("secs", 1.0),
        rate: a.num("rate", 0.0),
        stats: a.str("stats", "basic"),
        pace: a.str("pace", "yield"),
        wait: a.str("wait", "own"),
    };
    if a.usize("show", 0) == 1 {
        return print!("{}", yaml(&c));
    }
    if c.rate > 0.0 {
        tight_timers(); // the engine's threads inherit it
    }
    let mut policy = match c.layout.as_str() {
        "one" => "one executor".to_string(),
        "two" => "two executors".to_string(),
        "default" => "default executor".to_string(),
        _ => "host thread".to_string(),
    };
    if c.stats != "basic" {
        policy += &format!(", stats {}", c.stats);
    }
    if c.pace != "yield" && c.rate > 0.0 {
        policy += ", rate in YAML";
    }
    if c.wait != "own" {
        policy += ", host in wait_done";
    }
    let mut row = Row::new();
    row.str(
        "bench",
        if c.rate > 0.0 {
            "latency"
        } else {
            "throughput"
        },
    )
    .str("engine", "lmflow")
    .num("k", c.k as f64)
    .num("payload", payload as f64)
    .str("mode", "handle")
    .str("policy", &policy)
    .num("batch", c.batch as f64)
    .num("queue", c.queue as f64)
    .num("rate", c.rate);
    let done = if payload == 64 {
        run::<P64>(&c, &mut row)
    } else {
        fill_pool(payload / 8);
        run::<Buf>(&c, &mut row)
    };
    if let Err(e) = done {
        eprintln!("lmflow: {e}");
        std::process::exit(1);
    }
    row.emit();
}
