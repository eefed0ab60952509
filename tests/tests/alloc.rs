//! The engine allocates nothing after the start, and leaks nothing after the end: every allocation
//! of the process is counted.
//!
//! A separate test binary, because it replaces the allocator. One test runs at a time, because all
//! of them count.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use limen::{Clock, Drain, Driven, Inlet, Outlet, Plan, Report, SimulatedClock, Spec, Tap, Tensor, Time};
use limen_tests::{plan, registry, tcp_port};
use nix::pty::{OpenptyResult, openpty};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct Counting;

static ARMED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Bytes allocated and not freed.
static LIVE: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Whether this is the thread of the running test.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Held by the running test.
struct Alone(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = Alone(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    COUNTS.set(true);
    alone
}

impl Drop for Alone {
    fn drop(&mut self) {
        COUNTS.set(false);
    }
}

/// Whether allocations of this thread belong to the engine or to the running test. Those of the
/// harness, which reports one test while the next one runs, do not count, and neither do those of
/// the watch, which explains late messages on a busy machine.
fn is_counted() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: a name has at most 16 bytes with its terminator.
    unsafe { nix::libc::prctl(nix::libc::PR_GET_NAME, name.as_mut_ptr()) };
    COUNTS.get() || name.starts_with(b"limen-") && !name.starts_with(b"limen-watch")
}

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ARMED.load(Ordering::Relaxed) && is_counted() {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if ARMED.load(Ordering::Relaxed) && is_counted() {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of an action, in all threads.
fn allocations(action: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::Relaxed);
    ARMED.store(true, Ordering::Relaxed);
    action();
    ARMED.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

/// Runs a graph, and counts allocations while its last node takes another 20,000 messages.
fn check(name: &str, graph: &str, last: usize) {
    let running = plan(graph).unwrap_or_else(|e| panic!("{e}")).wire().unwrap().start().unwrap();
    let begin = Instant::now();
    let reach = |n: u64| {
        while running.stats()[last].done < n {
            assert!(begin.elapsed() < limen_tests::PATIENCE, "{name}: {:?}", running.stats());
            std::thread::yield_now();
        }
    };
    reach(20_000);
    let before = running.stats()[last].done;
    // `stats` allocates, so it is not called while counting.
    let count = allocations(|| std::thread::sleep(Duration::from_millis(200)));
    reach(before + 1);
    let report = running.stop(limen::Drain::within(limen_tests::PATIENCE));
    assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
    assert_eq!(count, 0, "{name}: allocations while messages moved");
}

/// Promise (memory): After the start, a run allocates no memory to move messages.
#[test]
fn nothing_is_allocated_while_messages_move() {
    let _alone = alone();
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
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
        "a source that waits for a descriptor",
        "version: 1\nnodes:\n  a: { kind: numbers, config: { descriptor: true } }\n  b: { kind: collect, from: a }\n",
        1,
    );
    check(
        "splits and joins",
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: split, config: { times: 3 }, from: a }\n  \
         c: { kind: step, config: { heavy: true }, from: b }\n  d: { kind: pair, inputs: { a: b, b: c } }\n  \
         e: { kind: collect, from: d }\n",
        3,
    );
    check(
        "a loop",
        "version: 1\nnodes:\n  a: { kind: numbers }\n  m: { kind: merge, inputs: { a: a, b: { from: s, when_full: drop_newest } } }\n  \
         s: { kind: step, from: m }\n  z: { kind: collect, from: s }\n",
        3,
    );
    let two = "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: numbers }\n";
    let paths = "paths: [{ from: a, to: z, deadline: 1s }, { from: b, to: z, deadline: 1s }]\n";
    for (name, nodes, last) in [
        (
            "two sources joined",
            "  j: { kind: pair, inputs: { a: a, b: b } }\n  s: { kind: add, config: { n: 1 }, core: 1, from: j }\n  \
             z: { kind: collect, from: s }\n",
            4,
        ),
        (
            "two sources, one sampled, in windows and through a model",
            "  j: { kind: pair, config: { any: true }, inputs: { a: a, b: b }, join: { policy: sample, trigger: a } }\n  \
             w: { kind: window, config: { length: 4 }, from: j }\n  s: { kind: scatter, from: w }\n  \
             m: { kind: tally, config: { batch: { max: 8 } }, from: s }\n  z: { kind: collect, from: m }\n",
            6,
        ),
    ] {
        check(name, &format!("{two}{nodes}{paths}"), last);
    }
    let fields = "[{ name: x, type: u32 }, { name: y, type: u32 }]";
    check(
        "numbers from bytes, through a formula, into bytes",
        &format!(
            "version: 1\nnodes:\n  a: {{ kind: synthetic, config: {{ pattern: noise, shape: [2], dtype: u32 }} }}\n  \
             p: {{ kind: encode, inputs: {{ v: a }}, config: {{ format: struct, fields: [{{ name: v, type: u32, repeat: 2 }}] }} }}\n  \
             d: {{ kind: decode, from: p, config: {{ format: struct, fields: {fields} }} }}\n  \
             m: {{ kind: map, inputs: {{ x: d/x, y: d/y }}, config: {{ outputs: {{ x: 'min(x, y)', y: {{ formula: 'x - y', dtype: f64 }} }} }} }}\n  \
             e: {{ kind: encode, inputs: {{ x: m/x, y: m/y }}, config: {{ format: json, fields: [{{ name: x, type: f64 }}, {{ name: y, type: f64 }}] }} }}\n  \
             z: {{ kind: 'null', from: e }}\n"
        ),
        5,
    );
    for (name, batch) in [("a model, called with one", ""), ("a model, called with eight", "batch: { max: 8 }, ")] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  \
             m: {{ kind: infer, config: {{ backend: mock, {batch}mock: {{ inputs: {{ x: u64 }}, outputs: {{ y: u64 }} }} }}, from: a }}\n  \
             z: {{ kind: collect, from: m }}\n"
        );
        check(name, &graph, 2);
    }
}

/// Sends a number through an inlet, if there is room.
fn send(inlet: &mut Inlet<Tensor>) {
    if let Ok(tensor) = inlet.loan(&inlet.header()) {
        let _ = inlet.try_send(tensor);
    }
}

/// Promise (memory): Inlets, outlets and taps allocate no memory, unless they wait.
#[test]
fn nothing_is_allocated_while_a_program_uses_handles() {
    let _alone = alone();
    let graph = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: u64 } }\n  b: { kind: step, from: a }\n  \
                 z: { kind: outlet, from: b }\n";
    let mut graph = plan(graph).unwrap_or_else(|e| panic!("{e}")).wire().unwrap();
    let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
    let mut tap = graph.tap::<Tensor>("b").unwrap();
    let running = graph.start().unwrap();
    let move_some = |inlet: &mut Inlet<Tensor>, outlet: &mut Outlet<Tensor>, tap: &mut Tap<Tensor>, most: u64| {
        let mut moved = 0;
        let begin = Instant::now();
        while moved < most && begin.elapsed() < limen_tests::PATIENCE {
            send(inlet);
            moved += u64::from(outlet.recv_timeout(Duration::from_millis(1)).is_ok());
            let _ = tap.try_recv();
        }
        assert_eq!(moved, most);
    };
    move_some(&mut inlet, &mut outlet, &mut tap, 10_000);
    let count = allocations(|| move_some(&mut inlet, &mut outlet, &mut tap, 10_000));
    drop((inlet, outlet));
    let report = running.wait();
    assert_eq!((report.bugs, count), (Vec::new(), 0));
}

/// The number of workers that still run.
fn workers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("limen-")).count()
}

/// Open files, resident pages and allocated bytes, after every worker has ended.
fn held() -> (usize, i64, i64) {
    // Threads of a dropped run end by themselves.
    let begin = Instant::now();
    while workers() > 0 {
        assert!(begin.elapsed() < limen_tests::PATIENCE, "{} workers do not end", workers());
        std::thread::yield_now();
    }
    let files = std::fs::read_dir(Path::new("/proc/self/fd")).unwrap().count();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (files, pages, LIVE.load(Ordering::Relaxed))
}

/// Repeats a cycle until memory has settled, and up to `times` cycles: they leave no open file and
/// no memory behind.
fn leave_nothing_behind(settled: u64, times: u64, mut cycle: impl FnMut(u64)) {
    (0..settled).for_each(&mut cycle);
    let before = held();
    (settled..times).for_each(&mut cycle);
    let after = held();
    assert_eq!(after.0, before.0, "open files");
    // One byte per cycle would be more than a hundred; the harness allocates too.
    assert!((after.2 - before.2).abs() < 1_000, "{} bytes allocated became {}", before.2, after.2);
}

/// Stops a graph, in which nothing may have failed.
fn stopped(driven: Driven) -> Report {
    driven.stopper().stop();
    let report = driven.run();
    assert_eq!((report.bugs.len(), report.exit_code()), (0, 0), "{:?}", report.failures);
    report
}

/// Promise (memory): A thousand runs in one process leak no memory, threads or descriptors.
///
/// A graph leaks nothing, whether it ended by itself, was stopped, dropped, driven, never started,
/// or could not be built.
#[test]
fn a_thousand_runs_leave_nothing_behind() {
    let _alone = alone();
    let graph = "version: 1\nnodes:\n  a: { kind: inlet, core: 0, config: { spec: \"u64[16]\" } }\n  \
                 n: { kind: numbers, core: 1, config: { count: 20 } }\n  b: { kind: step, from: n }\n  \
                 c: { kind: collect, from: b }\n  z: { kind: outlet, core: 1, from: { from: a, when_full: drop_oldest } }\n";
    let broken = graph.replace("kind: step", "kind: fault, config: { place: build }");
    let cycle = |n: u64| {
        let mut graph = plan(if n % 8 == 7 { &broken } else { graph }).unwrap().wire().unwrap();
        let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
        let mut tap = graph.tap::<Tensor>("b").unwrap();
        send(&mut inlet);
        let report = match n % 8 {
            0 => {
                let running = graph.start().unwrap();
                drop(inlet);
                Some(running.wait())
            }
            1 => Some(graph.start().unwrap().stop(Drain::within(limen_tests::PATIENCE))),
            2 => {
                drop(graph.start().unwrap());
                None
            }
            3 => {
                drop(inlet);
                Some(graph.drive(limen::Clock::Monotonic).unwrap().run())
            }
            4 => {
                drop(graph.drive(limen::Clock::Monotonic).unwrap());
                None
            }
            5 => {
                drop(graph);
                None
            }
            6 => {
                let running = graph.start().unwrap();
                send(&mut inlet);
                let _ = (outlet.recv_timeout(limen_tests::PATIENCE), tap.try_recv());
                drop(outlet);
                drop(inlet);
                Some(running.wait())
            }
            _ => {
                assert!(graph.start().is_err());
                None
            }
        };
        assert!(report.is_none_or(|report| report.bugs.is_empty()));
    };
    (0..96).for_each(cycle);
    let before = held();
    (0..1_000).for_each(cycle);
    let after = held();
    assert_eq!(after.0, before.0, "open files");
    // A leak of one byte per run would be a thousand.
    assert!(after.2 - before.2 < 1_000, "{} bytes allocated became {}", before.2, after.2);
    // The system allocator keeps some freed pages, but not more and more.
    assert!((after.1 - before.1) * 4096 < 8 << 20, "{} pages in memory became {}", before.1, after.1);
}

/// Promise (connections): Two hundred reconnects of a peer leak nothing, and every loss is counted.
#[test]
fn two_hundred_reconnects_leave_nothing_behind() {
    let _alone = alone();
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    far.set_nonblocking(true).unwrap();
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: tcp, config: {{ connect: {} }} }}\n  z: {{ kind: \"null\", from: a }}\n",
        far.local_addr().unwrap().port()
    );
    // The backoff uses this clock.
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let mut driven = plan(&text).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let cycle = |n: u64| {
        let mut peer = None;
        let begin = Instant::now();
        while driven.stats()[1].done <= n {
            driven.turn();
            clock.advance(1_000_000);
            if peer.is_none() {
                peer = far.accept().ok();
                peer.iter_mut().for_each(|(peer, _)| peer.write_all(b"whole\nhalf").unwrap());
            }
            // Events wait for their reader.
            while driven.next_event().is_some() {}
            assert!(begin.elapsed() < limen_tests::PATIENCE, "no reconnect: {:?}", driven.stats());
        }
    };
    leave_nothing_behind(20, 200, cycle);
    // After one more reconnect the end of the last connection has been noticed.
    let begin = Instant::now();
    while far.accept().is_err() {
        driven.turn();
        clock.advance(1_000_000);
        assert!(begin.elapsed() < limen_tests::PATIENCE, "no reconnect: {:?}", driven.stats());
    }
    let report = stopped(driven);
    for (name, value) in [("received", 200.0), ("disconnects", 200.0), ("partial", 200.0)] {
        assert_eq!(report.metric(&format!("a.{name}")), Some(value), "{name} of {:?}", report.nodes);
    }
}

/// Promise (connections): Two hundred returns of a serial device leak nothing.
///
/// A serial device is unplugged two hundred times in the middle of a line, and comes back: the
/// reopened devices leak nothing.
#[test]
fn two_hundred_returns_of_a_serial_device_leave_nothing_behind() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // As a rule of udev does: the name stays, whatever the number of the terminal.
    let link = folder.path().join("port");
    let plug = || {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(nix::unistd::ttyname(slave.as_fd()).unwrap(), &link).unwrap();
        (std::fs::File::from(master), slave)
    };
    let mut ends = Some(plug());
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: serial, config: {{ path: {}, baud: 9600 }} }}\n  z: {{ kind: \"null\", from: a }}\n",
        link.display()
    );
    let mut spec = Spec::from_text(&text, "test.yaml").unwrap();
    spec.folders.allowed = vec![folder.path().into(), "/dev/pts".into()];
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let plan = Plan::new(spec, &registry()).unwrap();
    let mut driven = plan.wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let mut events = driven.events();
    let cycle = |_: u64| {
        // Unread events are kept, up to a limit.
        events.by_ref().for_each(drop);
        let (begin, before) = (Instant::now(), driven.stats()[1].done);
        let (mut master, slave) = ends.take().unwrap_or_else(plug);
        for turn in 0.. {
            driven.turn();
            clock.advance(1_000_000);
            // What comes before the node has opened it is lost, so it is repeated.
            if turn % 64 == 0 {
                master.write_all(b"\nwhole\nhalf").unwrap();
            }
            if driven.stats()[1].done >= before + 2 {
                break;
            }
            assert!(begin.elapsed() < limen_tests::PATIENCE, "no return: {:?}", driven.stats());
        }
        drop((master, slave));
    };
    leave_nothing_behind(20, 200, cycle);
    let report = stopped(driven);
    // Lines that were read before the device went may end a cycle before it is opened again.
    assert!(report.metric("a.disconnects").is_some_and(|times| times >= 150.0), "{:?}", report.nodes);
}

/// Promise (connections): Two hundred viewers that leave in the middle of a message leak nothing.
#[test]
fn two_hundred_viewers_leave_nothing_behind() {
    let _alone = alone();
    let port = tcp_port();
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: timer, config: {{ rate: 1kHz }} }}\n  \
         v: {{ kind: foxglove, inputs: {{ ticks: a }}, config: {{ listen: {port} }} }}\n"
    );
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n";
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let mut driven = plan(&text).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let cycle = |_: u64| {
        let mut viewer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        viewer.set_nonblocking(true).unwrap();
        viewer.write_all(request.as_bytes()).unwrap();
        let (begin, mut seen) = (Instant::now(), Vec::new());
        // Until the topic is announced.
        while !seen.windows(9).any(|word| word == b"\"channels") {
            driven.turn();
            clock.advance(1_000_000);
            let mut bytes = [0; 4096];
            match viewer.read(&mut bytes) {
                Ok(0) => panic!("the connection was closed"),
                Ok(read) => seen.extend_from_slice(&bytes[..read]),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            assert!(begin.elapsed() < limen_tests::PATIENCE, "no answer: {:?}", driven.stats());
        }
        // The beginning of a message, with a mask of zeros.
        viewer.write_all(b"\x81\xc0\0\0\0\0{\"op\":").unwrap();
        drop(viewer);
        // Until its end is noticed: the next one finds a place.
        for _ in 0..20 {
            driven.turn();
            clock.advance(1_000_000);
        }
    };
    // The first windows of the statistics take memory.
    leave_nothing_behind(80, 200, cycle);
    let report = stopped(driven);
    assert_eq!(report.metric("v.connections"), Some(200.0), "{:?}", report.nodes);
    assert_eq!(report.metric("v.disconnects"), Some(200.0), "{:?}", report.nodes);
}

/// Promise (memory): A plan counts all memory that a graph allocates before its first message.
#[test]
fn a_plan_counts_what_is_allocated() {
    let _alone = alone();
    let chain = |edge: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ period_ns: 3600000000000 }} }}\n  \
             b: {{ kind: step, core: 1, from: {{ from: a, {edge} }} }}\n  c: {{ kind: collect, core: 0, from: {{ from: b, {edge} }} }}\n  \
             d: {{ kind: collect, core: 1, from: {{ from: b, {edge} }} }}\n  e: {{ kind: collect, core: 0, inputs: {{ x: {{ from: a, {edge} }}, \
             y: {{ from: b, {edge} }} }}, join: {{ patience: 9 }} }}\nrun: {{ max_memory: 4GiB }}\n"
        )
    };
    let gather = "version: 1\nnodes:\n  a: { kind: numbers, config: { period_ns: 3600000000000 } }\n  w: { kind: window, config: { length: 4 }, from: a }\n  \
                  s: { kind: scatter, from: w }\n  g: { kind: gather, config: { max: 4000, open: 1000 }, from: s }\n  \
                  z: { kind: trail, from: g }\nrun: { max_memory: 4GiB }\n";
    for (name, text) in [
        ("rings", chain("capacity: 100000")),
        ("within a core", chain("capacity: 100000").replace("core: 1", "core: 0")),
        ("what evicts", chain("capacity: 100000, when_full: drop_oldest")),
        ("what looks", chain("capacity: 100000, soft_capacity: 99999")),
        ("what looks within a core", chain("capacity: 100000, soft_capacity: 99999").replace("core: 1", "core: 0")),
        ("what a node takes", gather.into()),
    ] {
        let plan = plan(&text).unwrap_or_else(|problems| panic!("{name}: {problems}"));
        let planned = plan.memory().total() as i64;
        let before = LIVE.load(Ordering::Relaxed);
        let running = plan.wire().unwrap().start().unwrap();
        let taken = LIVE.load(Ordering::Relaxed) - before;
        assert_eq!(running.stop(Drain::within(limen_tests::PATIENCE)).exit_code(), 0, "{name}");
        // The plan does not count what does not grow with capacities and sizes.
        assert!(taken <= planned + (1 << 20), "{name}: {planned} bytes were planned, {taken} are allocated");
        assert!(taken >= planned / 2, "{name}: {planned} bytes were planned, {taken} are allocated");
    }
}
