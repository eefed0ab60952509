//! What every harness shares: clock, pinning, histogram, accounting of CPU and memory, `key=value`
//! arguments, and the result as one line of JSON. A call of the scheduler or the clock that is
//! refused ends the run: its figures would mean nothing.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// CLOCK_MONOTONIC in nanoseconds. Comparable between processes.
#[inline(always)]
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

pub fn cores() -> usize {
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) as usize }
}

pub fn pin(core: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0, "pinning to CPU {core} was refused");
    }
}

/// Ask for 1 ns timer slack on the calling thread (default is 50 us).
pub fn tight_timers() {
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize) }, 0, "timer slack was refused");
}

/// Sleep until an absolute CLOCK_MONOTONIC time.
pub fn sleep_until(ns: u64) {
    let ts = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    let sleep = || unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &ts, std::ptr::null_mut()) };
    loop {
        match sleep() {
            0 => return,
            libc::EINTR => {}
            code => panic!("sleeping was refused: {code}"),
        }
    }
}

/// Process CPU seconds (user + system) so far, all threads.
pub fn cpu_s() -> f64 {
    unsafe {
        let mut r: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut r);
        let t = |v: libc::timeval| v.tv_sec as f64 + v.tv_usec as f64 * 1e-6;
        t(r.ru_utime) + t(r.ru_stime)
    }
}

/// Peak resident set, KiB. (ru_maxrss would include the parent's, from before exec.)
pub fn peak_kib() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    s.lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|v| v.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

pub struct Lat(pub Histogram<u64>);

impl Default for Lat {
    fn default() -> Self {
        Lat(Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap())
    }
}

impl Lat {
    #[inline]
    pub fn rec(&mut self, ns: u64) {
        let _ = self.0.record(ns.max(1));
    }
    pub fn into_row(&self, row: &mut Row) {
        let h = &self.0;
        row.num("lat_n", h.len() as f64);
        row.num("min_ns", h.min() as f64);
        row.num("p50_ns", h.value_at_quantile(0.5) as f64);
        row.num("p99_ns", h.value_at_quantile(0.99) as f64);
        row.num("p999_ns", h.value_at_quantile(0.999) as f64);
        row.num("max_ns", h.max() as f64);
    }
}

/// `key=value` command line.
pub struct Args(BTreeMap<String, String>);

impl Args {
    pub fn parse() -> Self {
        Args(
            std::env::args()
                .skip(1)
                .map(|a| match a.split_once('=') {
                    Some((k, v)) => (k.to_string(), v.to_string()),
                    None => (a, "1".into()),
                })
                .collect(),
        )
    }
    pub fn str(&self, k: &str, d: &str) -> String {
        self.0.get(k).cloned().unwrap_or_else(|| d.into())
    }
    pub fn num(&self, k: &str, d: f64) -> f64 {
        self.0
            .get(k)
            .map(|v| {
                v.parse()
                    .unwrap_or_else(|_| panic!("{k}={v}: not a number"))
            })
            .unwrap_or(d)
    }
    pub fn usize(&self, k: &str, d: usize) -> usize {
        self.num(k, d as f64) as usize
    }
}

/// One JSON object on one line.
#[derive(Default)]
pub struct Row(String);

impl Row {
    pub fn new() -> Self {
        Row::default()
    }
    pub fn str(&mut self, k: &str, v: &str) -> &mut Self {
        let _ = write!(
            self.0,
            "{}\"{k}\":\"{v}\"",
            if self.0.is_empty() { "" } else { "," }
        );
        self
    }
    pub fn num(&mut self, k: &str, v: f64) -> &mut Self {
        let v = if v.is_finite() { v } else { -1.0 };
        let _ = write!(
            self.0,
            "{}\"{k}\":{:.4}",
            if self.0.is_empty() { "" } else { "," },
            v
        );
        self
    }
    pub fn text(&self) -> String {
        format!("{{{}}}", self.0)
    }
    pub fn emit(&self) {
        println!("{{{}}}", self.0);
    }
}

/// Measures wall and CPU between `start` and `stop`.
pub struct Meter {
    wall: u64,
    cpu: f64,
}

impl Meter {
    pub fn start() -> Self {
        Meter {
            wall: now_ns(),
            cpu: cpu_s(),
        }
    }
    /// Adds n, wall_s, msgs_per_s, cpu_s, cpu_pct and peak_kib.
    pub fn stop(&self, n: u64, row: &mut Row) {
        let wall = (now_ns() - self.wall) as f64 * 1e-9;
        let cpu = cpu_s() - self.cpu;
        row.num("n", n as f64)
            .num("wall_s", wall)
            .num("msgs_per_s", n as f64 / wall)
            .num("cpu_s", cpu)
            .num("cpu_pct", 100.0 * cpu / wall)
            .num("cpu_ns_per_msg", cpu * 1e9 / n.max(1) as f64)
            .num("peak_kib", peak_kib() as f64);
    }
}
