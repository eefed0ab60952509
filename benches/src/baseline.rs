//! Lower bounds, measured in the same run: a dynamic call per node, and bare rtrb rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A message of 64 bytes without an engine.
pub type Bare = [u64; 8];

trait Pass {
    fn pass(&mut self, message: Bare) -> Bare;
}

struct Same(u64);

impl Pass for Same {
    #[inline(never)]
    fn pass(&mut self, message: Bare) -> Bare {
        self.0 += 1;
        message
    }
}

/// Measures the messages per second through `k` pass-through nodes, each a dynamic call, on one
/// thread.
pub fn calls(k: usize, seconds: f64) -> f64 {
    let mut nodes: Vec<Box<dyn Pass>> = (0..k + 2).map(|_| Box::new(Same(0)) as Box<dyn Pass>).collect();
    let begin = Instant::now();
    let mut n = 0u64;
    while begin.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..4096 {
            let mut message: Bare = [n, 0, 0, 0, 0, 0, 0, 0];
            for node in std::hint::black_box(&mut nodes) {
                message = node.pass(message);
            }
            std::hint::black_box(message);
            n += 1;
        }
    }
    n as f64 / begin.elapsed().as_secs_f64()
}

/// Measures the messages per second over one bare rtrb ring between two pinned threads, in chunks
/// of 64.
///
/// # Panics
/// When a thread cannot be pinned: the figure would mean nothing.
pub fn ring<T: Copy + Send + Default + 'static>(seconds: f64) -> f64 {
    let (mut tx, mut rx) = rtrb::RingBuffer::<T>::new(1024);
    let stop = Arc::new(AtomicBool::new(false));
    let producer = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            pin(0);
            while !stop.load(Ordering::Relaxed) {
                match tx.write_chunk_uninit(64) {
                    Ok(chunk) => {
                        chunk.fill_from_iter((0..64).map(|_| T::default()));
                    }
                    Err(_) => std::hint::spin_loop(),
                }
            }
        })
    };
    pin(1);
    let begin = Instant::now();
    let mut n = 0u64;
    while begin.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..256 {
            let slots = rx.slots().min(64);
            if let Ok(chunk) = rx.read_chunk(slots) {
                n += chunk.into_iter().map(std::hint::black_box).count() as u64;
            }
        }
    }
    let rate = n as f64 / begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    // The producer polls the flag, so it ends at once.
    producer.join().expect("the producer does not panic");
    unpin();
    rate
}

/// Measures one-way times in ns of single messages between two spinning threads: half of the round
/// trip.
///
/// # Panics
/// When a thread cannot be pinned.
pub fn ring_latency(samples: usize) -> Vec<u64> {
    let (mut there, mut arrived) = rtrb::RingBuffer::<Bare>::new(1024);
    let (mut back, mut returned) = rtrb::RingBuffer::<Bare>::new(1024);
    let echo = std::thread::spawn(move || {
        pin(0);
        for _ in 0..samples {
            let message = loop {
                match arrived.pop() {
                    Ok(message) => break message,
                    Err(_) => std::hint::spin_loop(),
                }
            };
            let _ = back.push(message);
        }
    });
    pin(1);
    let mut times = Vec::with_capacity(samples);
    for n in 0..samples {
        let begin = Instant::now();
        let _ = there.push([n as u64; 8]);
        while returned.pop().is_err() {
            std::hint::spin_loop();
        }
        times.push(begin.elapsed().as_nanos() as u64 / 2);
    }
    echo.join().expect("the echo does not panic");
    unpin();
    times
}

fn pin(cpu: usize) {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("affinity can be read");
    let mut set = nix::sched::CpuSet::new();
    assert!(allowed.is_set(cpu).unwrap_or(false), "CPU {cpu} may not be used");
    set.set(cpu).expect("a small number");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).expect("a refused pin is fatal in a benchmark");
}

/// Lets the calling thread run on every core again.
fn unpin() {
    let mut set = nix::sched::CpuSet::new();
    for cpu in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(2) {
        set.set(cpu).expect("a small number");
    }
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).expect("the mask this process began with");
}
