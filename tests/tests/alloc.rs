//! After start the engine allocates nothing: every allocation of the process is counted while messages move.
//!
//! A test binary of its own, because it replaces the allocator.

use limen_tests::plan;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Counting;

static ARMED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ARMED.load(Ordering::Relaxed) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if ARMED.load(Ordering::Relaxed) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a graph, counts allocations while its last node does another 20,000 messages.
fn check(name: &str, graph: &str, last: usize) {
    let running = plan(graph).unwrap_or_else(|e| panic!("{e}")).wire().unwrap().start().unwrap();
    let begin = Instant::now();
    let reach = |n: u64| {
        while running.stats()[last].done < n {
            assert!(begin.elapsed() < Duration::from_secs(30), "{name}: {:?}", running.stats());
            std::thread::yield_now();
        }
    };
    reach(20_000);
    let before = running.stats()[last].done;
    COUNT.store(0, Ordering::Relaxed);
    ARMED.store(true, Ordering::Relaxed);
    // `stats` allocates, so nothing is asked while it counts.
    std::thread::sleep(Duration::from_millis(200));
    ARMED.store(false, Ordering::Relaxed);
    let count = COUNT.load(Ordering::Relaxed);
    reach(before + 1);
    let report = running.stop(limen::Drain::within(Duration::from_secs(5)));
    assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
    assert_eq!(count, 0, "{name}: allocations while messages moved");
}

#[test]
fn nothing_is_allocated_while_messages_move() {
    ARMED.store(true, Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(1)));
    ARMED.store(false, Ordering::Relaxed);
    assert_eq!(COUNT.load(Ordering::Relaxed), 1, "the counter counts");
    check(
        "one core",
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: step, from: a }\n  c: { kind: add, config: { n: 1 }, from: b }\n  \
         d: { kind: collect, inputs: { x: c, y: a } }\n",
        3,
    );
    check(
        "two cores and every policy",
        "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  b: { kind: step, core: 1, from: a }\n  \
         c: { kind: collect, core: 0, from: { from: b, when_full: drop_oldest } }\n  \
         d: { kind: collect, core: 1, from: { from: b, when_full: latest } }\n  \
         e: { kind: collect, core: 0, from: { from: b, when_full: drop_newest } }\n",
        1,
    );
    check(
        "splits and joins",
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: split, config: { times: 3 }, from: a }\n  \
         c: { kind: step, config: { heavy: true }, from: b }\n  d: { kind: pair, inputs: { a: b, b: c } }\n  \
         e: { kind: collect, from: d }\n",
        3,
    );
}
