//! Nodes that wait for a file descriptor: they do not block their worker, and the age of their
//! messages includes the time in the kernel.

use super::{Graph, checked, figures, stop};
use limen::report::Outcome;
use limen::{Clock, Drain, Driven, SimulatedClock, Tensor, Time, Turned};
use limen_tests::{tcp_port, udp_port};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

fn sender() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// The timeout of every wait.
const PATIENCE: Duration = limen_tests::PATIENCE;

#[track_caller]
fn drive(graph: &Graph, nodes: &str) -> Driven {
    let plan = graph.plan(nodes).unwrap_or_else(|problems| panic!("{problems}\n{nodes}"));
    plan.wire().unwrap().drive(Clock::Monotonic).unwrap_or_else(|error| panic!("{error}\n{nodes}"))
}

/// Drives a graph until a node has done a number of calls.
#[track_caller]
fn turn_until(driven: &mut Driven, node: &str, done: u64) {
    let end = Instant::now() + PATIENCE;
    while driven.stats().iter().find(|stats| stats.node == node).unwrap().done < done {
        assert!(driven.turn() != Turned::Ended && Instant::now() < end, "{:?}", driven.stats());
    }
}

fn is_readable(driven: &Driven, ms: u16) -> bool {
    poll(&mut [PollFd::new(driven.as_fd(), PollFlags::POLLIN)], ms).unwrap() > 0
}

/// How often the calling thread has waited in the kernel.
fn waits() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).unwrap().voluntary_context_switches()
}

/// Promise (descriptors): A source that waits for a descriptor does not delay the other nodes of
/// its core.
///
/// A source that waits for a descriptor runs on the worker of its core without blocking there:
/// sources that block would do so in each of 200 turns.
#[test]
fn a_silent_source_does_not_delay_its_neighbours() {
    let graph = Graph::new();
    let (udp, tcp, away) = (udp_port(), tcp_port(), tcp_port());
    let nodes = format!(
        "  a: {{ kind: udp, config: {{ listen: {udp} }}, core: 0 }}\n  \
         b: {{ kind: tcp, config: {{ listen: {tcp} }}, core: 0 }}\n  \
         c: {{ kind: tcp, config: {{ connect: {away} }}, core: 0 }}\n  \
         t: {{ kind: timer, config: {{ rate: 100kHz }}, core: 0 }}\n  \
         w: {{ kind: null, from: a, core: 0 }}\n  x: {{ kind: null, from: b, core: 0 }}\n  y: {{ kind: null, from: c, core: 0 }}\n  \
         z: {{ kind: null, from: t, core: 0 }}\n"
    );
    let plan = graph.plan(&nodes).unwrap();
    assert_eq!(plan.workers().len(), 1, "{:?}", plan.workers());
    assert!(plan.workers()[0].cpu().is_some());
    let mut driven = drive(&graph, &nodes);
    let before = waits();
    for _ in 0..200 {
        driven.turn();
    }
    assert!(waits() - before < 100, "{} of 200 turns waited", waits() - before);
    turn_until(&mut driven, "z", 100);
    // They still receive.
    sender().send_to(b"x", ("127.0.0.1", udp)).unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
    peer.write_all(b"one\n").unwrap();
    let far = TcpListener::bind(("127.0.0.1", away)).unwrap();
    turn_until(&mut driven, "w", 1);
    turn_until(&mut driven, "x", 1);
    far.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut met = loop {
        driven.turn();
        match far.accept() {
            Ok((met, _)) => break met,
            Err(_) => assert!(Instant::now() < end, "no connection"),
        }
    };
    met.write_all(b"two\n").unwrap();
    turn_until(&mut driven, "y", 1);
    checked(driven.stop(Drain::within(PATIENCE)));
}

/// Promise (descriptors): A worker that waits for descriptors also wakes for a message, for room,
/// for a timer and for a stop.
///
/// The same on threads: a worker that sleeps until a datagram arrives keeps its timers.
#[test]
fn a_worker_that_waits_for_descriptors_is_woken_by_everything() {
    let graph = Graph::new();
    let (udp, out) = (udp_port(), sender());
    out.set_read_timeout(Some(PATIENCE)).unwrap();
    for wait in ["park", "adaptive", "spin"] {
        let nodes = format!(
            "  a: {{ kind: udp, config: {{ listen: {udp} }}, core: 0 }}\n  \
             b: {{ kind: udp, config: {{ to: {} }}, from: a, core: 0 }}\n  \
             t: {{ kind: timer, config: {{ rate: 1kHz, count: 50 }}, core: 0 }}\n  z: {{ kind: null, from: t, core: 0 }}\n\
             cores: {{ 0: {{ wait: {wait} }} }}\n",
            out.local_addr().unwrap().port()
        );
        let running = graph.start(&nodes);
        let end = Instant::now() + PATIENCE;
        while running.stats().iter().find(|stats| stats.node == "z").unwrap().done < 50 {
            assert!(Instant::now() < end, "{wait}: {:?}", running.stats());
            std::thread::yield_now();
        }
        // The timer has ended: only the datagram and the stop wake the worker now.
        for n in 0..20u8 {
            out.send_to(&[n], ("127.0.0.1", udp)).unwrap();
            let mut back = [0; 8];
            assert_eq!((out.recv(&mut back).unwrap(), back[0]), (1, n), "{wait}");
        }
        let report = stop(running);
        figures(&report, &[("a.received", 20.0), ("a.stopped", 0.0)]);
        assert_eq!(report.outcome, Outcome::Stopped, "{wait}");
    }
}

/// Promise (descriptors): A worker that never sleeps also polls descriptors.
#[test]
fn a_busy_worker_polls_descriptors() {
    let graph = Graph::new();
    let port = udp_port();
    let running = graph.start(&format!(
        "  a: {{ kind: udp, config: {{ listen: {port} }}, core: 0 }}\n  y: {{ kind: null, from: a, core: 0 }}\n  \
         n: {{ kind: synthetic, config: {{ pattern: counter }}, core: 0 }}\n  z: {{ kind: null, from: n, core: 0 }}\n"
    ));
    let far = sender();
    let end = Instant::now() + PATIENCE;
    for n in 1..=10 {
        far.send_to(b"x", ("127.0.0.1", port)).unwrap();
        while running.stats().iter().find(|stats| stats.node == "y").unwrap().done < n {
            assert!(Instant::now() < end, "{:?}", running.stats());
            std::thread::yield_now();
        }
    }
    stop(running);
}

/// Promise (descriptors): A source may change its set of descriptors during the run.
#[test]
fn watched_descriptors_may_change_during_a_run() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), udp_port());
    let far = UdpSocket::bind(("127.0.0.1", way_out)).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in} }}, core: 0 }}\n  \
         b: {{ kind: udp, config: {{ to: {way_out} }}, from: a, core: 0 }}\n"
    ));
    let hears = |text: &[u8]| {
        let mut buffer = [0; 16];
        let n = far.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], text);
    };
    for _ in 0..20 {
        let mut peers: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(("127.0.0.1", way_in)).unwrap()).collect();
        for peer in &mut peers {
            peer.write_all(b"one\n").unwrap();
            hears(b"one");
        }
        let mut last = peers.pop().unwrap();
        drop(peers);
        last.write_all(b"two\n").unwrap();
        hears(b"two");
    }
    let report = stop(running);
    figures(&report, &[("a.received", 180.0), ("a.connections", 160.0), ("a.refused", 0.0)]);
}

/// Promise (descriptors): A driven graph has a descriptor that the program's event loop can wait
/// for.
#[test]
fn a_driven_graph_has_a_descriptor_to_wait_on() {
    let graph = Graph::new();
    let port = udp_port();
    let nodes = |more: &str| {
        format!("  a: {{ kind: udp, config: {{ listen: {port} }} }}\n  z: {{ kind: null, from: a }}\n{more}")
    };
    let mut driven = drive(&graph, &nodes(""));
    let until_idle = |driven: &mut Driven| loop {
        if let Turned::Idle(until) = driven.turn() {
            return until;
        }
    };
    for n in 1..=3 {
        assert_eq!(until_idle(&mut driven), Time::NEVER);
        assert!(!is_readable(&driven, 0), "{n}");
        sender().send_to(b"x", ("127.0.0.1", port)).unwrap();
        assert!(is_readable(&driven, 20_000));
        turn_until(&mut driven, "z", n);
    }
    // `wait` waits for the same.
    until_idle(&mut driven);
    sender().send_to(b"x", ("127.0.0.1", port)).unwrap();
    while driven.wait(PATIENCE) != Turned::Worked {}
    // A stop from another thread wakes it too.
    until_idle(&mut driven);
    let stopper = driven.stopper();
    std::thread::scope(|scope| {
        scope.spawn(|| stopper.stop());
        assert!(is_readable(&driven, 20_000));
    });
    while driven.turn() != Turned::Ended {}
    checked(driven.finish());
    // And the time of a timer, which is not a descriptor of a node.
    let mut driven =
        drive(&graph, &nodes("  t: { kind: timer, config: { rate: 100Hz } }\n  y: { kind: null, from: t }\n"));
    turn_until(&mut driven, "y", 1);
    let until = until_idle(&mut driven);
    assert!(until < Time::NEVER && is_readable(&driven, 20_000) && driven.clock().now() >= until);
    turn_until(&mut driven, "y", 2);
    checked(driven.stop(Drain::within(PATIENCE)));
}

/// Promise (descriptors): A source without room for its data is not woken until there is room.
#[test]
fn a_source_without_room_is_not_woken() {
    let graph = Graph::new();
    let port = udp_port();
    let nodes = format!(
        "  a: {{ kind: udp, config: {{ listen: {port} }} }}\n  z: {{ kind: outlet, config: {{ hold: 1 }}, from: {{ from: a, capacity: 1 }} }}\n"
    );
    let mut wired = graph.plan(&nodes).unwrap().wire().unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let mut driven = wired.drive(Clock::Monotonic).unwrap();
    let far = sender();
    for n in 0..20u8 {
        far.send_to(&[n], ("127.0.0.1", port)).unwrap();
    }
    let is_quiet = |driven: &mut Driven| {
        while driven.turn() == Turned::Worked {}
        !is_readable(driven, 0)
    };
    let end = Instant::now() + PATIENCE;
    while !is_quiet(&mut driven) {
        assert!(Instant::now() < end, "it never rests");
    }
    let taken = driven.stats()[0].done;
    assert!(taken < 20);
    for n in 20..40u8 {
        far.send_to(&[n], ("127.0.0.1", port)).unwrap();
        assert!(is_quiet(&mut driven), "{n}");
    }
    assert_eq!(driven.stats()[0].done, taken);
    for n in 0..40u8 {
        let message = loop {
            match outlet.try_recv() {
                Ok(message) => break message,
                Err(_) => assert!(driven.turn() != Turned::Ended && Instant::now() < end, "{n}"),
            }
        };
        assert_eq!(message.body.bytes(), [n]);
    }
    checked(driven.stop(Drain::within(PATIENCE)));
}

/// Promise (descriptors): A sink that waits to write does not delay the other nodes of its core;
/// messages that time out are counted.
///
/// A sink that waits for room to write does not block in its turn: its neighbours have their turns,
/// although the simulated clock, and with it the sink's timeout, stands still. A peer that reads
/// again receives everything; messages that time out are counted.
#[test]
fn a_sink_waiting_to_write_does_not_delay_its_neighbours() {
    let graph = Graph::new();
    // More than both socket buffers hold.
    let bytes: Vec<u8> = (0..32u32 << 20).map(|n| (n >> 8) as u8).collect();
    graph.write("in.bin", &bytes);
    for is_read in [true, false] {
        let far = TcpListener::bind("127.0.0.1:0").unwrap();
        let nodes = format!(
            "  a: {{ kind: file, config: {{ path: in.bin, framing: raw }} }}\n  \
             b: {{ kind: tcp, config: {{ connect: {}, framing: raw }}, from: a, core: 0 }}\n  \
             t: {{ kind: numbers, config: {{ count: 1000 }}, core: 0 }}\n  z: {{ kind: null, from: t, core: 0 }}\n",
            far.local_addr().unwrap().port()
        );
        let plan = graph.plan(&nodes).unwrap();
        assert_eq!(plan.workers().len(), 1, "{:?}", plan.workers());
        let clock = SimulatedClock::new(Time(1));
        let mut driven = plan.wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
        let done = |driven: &Driven| {
            let stats = driven.stats();
            ["b", "z"].map(|node| stats.iter().find(|stats| stats.node == node).unwrap().done)
        };
        let end = Instant::now() + PATIENCE;
        while driven.turn() == Turned::Worked || done(&driven)[0] == 0 {
            assert!(Instant::now() < end, "{:?}", driven.stats());
        }
        let [taken, beside] = done(&driven);
        assert!(taken > 0 && beside == 1_000, "{:?}", driven.stats());
        driven.turn();
        assert_eq!(done(&driven), [taken, beside]);
        let (mut peer, _) = far.accept().unwrap();
        let read = move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).map(|_| all)
        };
        let (reader, _idle) = if is_read { (Some(std::thread::spawn(read)), None) } else { (None, Some(read)) };
        loop {
            match driven.turn() {
                Turned::Ended => break,
                Turned::Worked => {}
                Turned::Idle(_) if is_read => assert!(is_readable(&driven, 20_000), "{:?}", driven.stats()),
                Turned::Idle(until) => clock.advance_to(until),
            }
        }
        let report = checked(driven.finish());
        let figure = |name: &str| report.metric(name).unwrap();
        let messages = report.node("a").unwrap().done as f64;
        if let Some(reader) = reader {
            assert!(reader.join().unwrap().unwrap() == bytes);
            figures(&report, &[("b.sent", messages), ("b.full", 0.0), ("b.partial", 0.0)]);
        } else {
            assert!(figure("b.full") > 0.0, "{:?}", report.nodes);
            assert_eq!((figure("b.sent") + figure("b.full"), figure("b.partial")), (messages, 1.0));
        }
    }
}

/// Promise (descriptors): A sink disconnects a peer that never reads.
///
/// The peer neither reads nor disconnects, like a frozen process, while its kernel still answers.
/// After 8 s the kernel reports the timeout; the node's own timeout never comes, because the
/// simulated clock stands still.
#[test]
fn a_peer_that_never_reads_is_disconnected() {
    let graph = Graph::new();
    graph.write("in.bin", vec![7; 32 << 20]);
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let nodes = format!(
        "  a: {{ kind: file, config: {{ path: in.bin, framing: raw }} }}\n  \
         b: {{ kind: tcp, config: {{ connect: {}, framing: raw }}, from: a }}\n",
        far.local_addr().unwrap().port()
    );
    let clock = Clock::Simulated(SimulatedClock::new(Time(1)));
    let mut driven = graph.plan(&nodes).unwrap().wire().unwrap().drive(clock).unwrap();
    let began = Instant::now();
    loop {
        match driven.turn() {
            Turned::Ended => break,
            Turned::Worked => {}
            Turned::Idle(_) => assert!(is_readable(&driven, 20_000), "{:?}", driven.stats()),
        }
    }
    let report = checked(driven.finish());
    assert!(began.elapsed() >= Duration::from_secs(7), "{:?}", began.elapsed());
    figures(&report, &[("b.connections", 1.0), ("b.disconnects", 1.0), ("b.partial", 1.0), ("b.full", 0.0)]);
    let (sent, unsent) = (report.metric("b.sent").unwrap(), report.metric("b.unsent").unwrap());
    assert!(sent > 0.0 && sent + unsent == report.node("a").unwrap().done as f64, "{:?}", report.nodes);
}

/// Promise (descriptors): The simulation polls descriptors, and blocks only if nothing else is
/// ready.
#[test]
fn the_simulation_waits_for_descriptors() {
    let graph = Graph::new();
    let port = tcp_port();
    let nodes = format!(
        "  a: {{ kind: tcp, config: {{ listen: {port}, on_close: end }} }}\n  z: {{ kind: file, config: {{ path: out.txt }}, from: a }}\n  \
         t: {{ kind: timer, config: {{ rate: 1kHz, count: 100 }} }}\n  y: {{ kind: null, from: t }}\n"
    );
    let simulation = graph.plan(&nodes).unwrap().wire().unwrap().simulate(3).unwrap();
    let peer = std::thread::spawn(move || {
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.write_all(b"one\ntwo\n").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        // Until the peer has closed too.
        let _ = peer.read(&mut [0]);
    });
    let report = checked(simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("{stuck}")));
    peer.join().unwrap();
    assert_eq!((graph.read("out.txt").as_slice(), report.node("y").unwrap().done), (&b"one\ntwo\n"[..], 100));
}

/// Fills the kernel's queue, and waits before the graph reads it.
fn frozen(graph: &Graph, nodes: &str, port: u16, datagrams: usize, age: u64) -> Driven {
    let mut driven = drive(graph, nodes);
    while driven.turn() == Turned::Worked {}
    let far = sender();
    for _ in 0..datagrams {
        far.send_to(b"x", ("127.0.0.1", port)).unwrap();
    }
    let clock = driven.clock().clone();
    let begin = clock.now();
    while clock.now().since(begin) < age {
        std::thread::yield_now();
    }
    driven
}

/// Promise (descriptors): The age of a datagram begins when the kernel received it.
///
/// A graph that was frozen for 60 ms misses a deadline of 50 ms with every earlier datagram.
#[test]
fn age_begins_at_the_kernels_receive_time() {
    let graph = Graph::new();
    let nodes = |port: u16, deadline: &str| {
        format!(
            "  a: {{ kind: udp, config: {{ listen: {port} }} }}\n  z: {{ kind: null, from: a }}\n\
             paths: [{{ from: a, to: z, deadline: {deadline}, on_miss: count }}]\n"
        )
    };
    // The kernel begins to add timestamps shortly after the first socket has asked for them, and
    // continues while there is one.
    let _asks = drive(&graph, &nodes(udp_port(), "1ms"));
    let end = Instant::now() + PATIENCE;
    loop {
        let port = udp_port();
        let mut driven = frozen(&graph, &nodes(port, "1ms"), port, 1, 2_000_000);
        turn_until(&mut driven, "z", 1);
        if driven.finish().deadlines[0].missed == 1 {
            break;
        }
        assert!(Instant::now() < end, "the kernel adds no timestamps");
    }
    let port = udp_port();
    let mut driven = frozen(&graph, &nodes(port, "50ms"), port, 20, 60_000_000);
    turn_until(&mut driven, "z", 20);
    let report = checked(driven.stop(Drain::within(PATIENCE)));
    assert_eq!(report.deadlines[0].missed, 20);
    let (_, _, latency) = report.paths().next().unwrap();
    assert!(latency.quantile(0.5) >= Some(59_000_000), "{:?}", latency.quantile(0.5));
}

/// Promise (descriptors): Datagrams that the kernel dropped, or that were unread at the stop, are
/// counted.
#[test]
fn datagrams_in_the_kernel_at_the_stop_are_counted() {
    let graph = Graph::new();
    let port = udp_port();
    let nodes = format!("  a: {{ kind: udp, config: {{ listen: {port} }} }}\n  z: {{ kind: null, from: a }}\n");
    let sent = 5_000;
    let driven = frozen(&graph, &nodes, port, sent, 0);
    driven.stopper().stop();
    let report = checked(driven.run());
    let metric = |name: &str| report.metric(name).unwrap();
    assert_eq!(metric("a.received"), 0.0);
    assert!(metric("a.stopped") > 0.0 && metric("a.overrun") > 0.0, "{:?}", report.nodes);
    assert_eq!(metric("a.stopped") + metric("a.overrun"), sent as f64);
}
