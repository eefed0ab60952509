//! UDP and TCP on the loopback interface.

use super::{Graph, end, figures, stop};
use limen::report::Outcome;
use limen::{Clock, Driven, Options, Plan, SimulatedClock, Spec, Tensor, Time};
use limen_tests::{tcp_port, udp_port};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The timeout of every wait.
const PATIENCE: Option<Duration> = Some(limen_tests::PATIENCE);

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(PATIENCE).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    let end = Instant::now() + PATIENCE.unwrap();
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(PATIENCE).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => std::thread::yield_now(),
            Err(error) => panic!("no peer connected: {error}"),
        }
    }
}

/// Whether the peer has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn sized(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

#[test]
fn datagrams_are_received_and_sent() {
    let graph = Graph::new();
    let (port, far) = (udp_port(), UdpSocket::bind("127.0.0.1:0").unwrap());
    far.set_read_timeout(PATIENCE).unwrap();
    let to = far.local_addr().unwrap().port();
    let running = graph.start(&format!(
        "  a: {{ kind: udp, config: {{ listen: {port}, max_bytes: 100B }} }}\n  \
         b: {{ kind: udp, config: {{ to: {to} }}, from: a }}\n"
    ));
    let mut buffer = [0; 200];
    for (size, comes_back) in [(3, true), (100, true), (101, false), (60_000, false), (0, true), (1, true)] {
        far.send_to(&vec![7; size], ("127.0.0.1", port)).unwrap();
        if comes_back {
            assert_eq!(far.recv(&mut buffer).unwrap(), size);
        }
    }
    let report = stop(running);
    figures(
        &report,
        &[("a.received", 4.0), ("a.too_large", 2.0), ("a.overrun", 0.0), ("b.sent", 4.0), ("b.unsent", 0.0)],
    );
    assert_eq!(report.exit_code(), 0);
}

/// Datagrams that the kernel drops are counted.
#[test]
fn datagrams_dropped_by_the_kernel_are_counted() {
    let graph = Graph::new();
    let (port, gate, far) = (udp_port(), tcp_port(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = far.local_addr().unwrap().port();
    // Each datagram waits for a line of the gate, so the source soon has no room and stops reading.
    let running = graph.start(&format!(
        "  a: {{ kind: udp, config: {{ listen: {port}, max_bytes: 60000B }} }}\n  \
         g: {{ kind: tcp, config: {{ listen: {gate}, max_bytes: 60000B }} }}\n  \
         m: {{ kind: merge, join: {{ policy: in_turn }}, inputs: {{ x: {{ from: a, capacity: 1 }}, y: {{ from: g, capacity: 1 }} }} }}\n  \
         b: {{ kind: udp, config: {{ to: {to} }}, from: m }}\n"
    ));
    // More than any receive buffer holds.
    let mut sent = 400;
    for _ in 0..sent {
        far.send_to(&[0; 60_000], ("127.0.0.1", port)).unwrap();
    }
    connect(gate).write_all(&[b'\n'; 2_000]).unwrap();
    // The kernel reports the number of drops with the next datagram it delivers.
    far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let end = Instant::now() + PATIENCE.unwrap();
    let mut buffer = vec![0; 60_000];
    loop {
        far.send_to(b"x", ("127.0.0.1", port)).unwrap();
        sent += 1;
        let mut sizes = std::iter::from_fn(|| far.recv(&mut buffer).ok());
        if sizes.any(|size| size == 1) {
            break;
        }
        assert!(Instant::now() < end);
    }
    let report = stop(running);
    let (received, overrun) = (report.metric("a.received").unwrap(), report.metric("a.overrun").unwrap());
    assert!(overrun > 0.0, "the kernel had room for everything");
    assert!((401.0..=f64::from(sent)).contains(&(received + overrun)), "{received} + {overrun} of {sent}");
}

/// Promise (connections): Other machines reach a port only if both the graph and the command line
/// allow it.
#[test]
fn a_port_is_local_unless_the_graph_says_otherwise() {
    let graph = Graph::new();
    let (tcp, udp) = (tcp_port(), udp_port());
    let nodes = |host: &str| {
        format!(
            "  a: {{ kind: tcp, config: {{ listen: {host}{tcp} }} }}\n  b: {{ kind: udp, config: {{ listen: {host}{udp} }} }}\n  \
             y: {{ kind: null, from: a }}\n  z: {{ kind: null, from: b }}\n"
        )
    };
    let running = graph.start(&nodes(""));
    assert!(TcpListener::bind(("127.0.0.1", tcp)).is_err() && UdpSocket::bind(("127.0.0.1", udp)).is_err());
    // Listening on all addresses conflicts with this address.
    assert!(TcpListener::bind(("127.0.0.2", tcp)).is_ok() && UdpSocket::bind(("127.0.0.2", udp)).is_ok());
    stop(running);
    let refused = graph.refused(&nodes("0.0.0.0:"));
    for (node, place) in [("a", "3:3"), ("b", "4:3")] {
        let expected = format!("graph.yaml:{place}: error[E0161]: `{node}` accepts ");
        assert!(refused.contains(&expected) && refused.contains("--allow-public"), "{expected}: {refused}");
    }
    let notes = |host: &str| -> Vec<String> {
        let text = format!("version: 1\nnodes:\n{}", nodes(host));
        let options = Options { allow_public: true, ..Options::default() };
        let plan = Plan::with_options(Spec::from_text(&text, "g.yaml").unwrap(), &limen_tests::registry(), &options);
        let plan = plan.unwrap();
        plan.notes().iter().filter(|note| note.contains("other machines")).cloned().collect()
    };
    assert_eq!(notes(""), [""; 0]);
    let mut said = notes("0.0.0.0:");
    said.sort();
    assert!(
        said.len() == 2 && said[0].starts_with("`a` accepts connections from other machines on 0.0.0.0:"),
        "{said:?}"
    );
}

#[test]
fn impossible_socket_settings_are_refused() {
    let graph = Graph::new();
    let sink = "  z: { kind: null, from: a }\n";
    for (source, expected) in [
        ("kind: udp, config: { listen: 'robot.local:9000' }", "a numeric address"),
        ("kind: udp, config: { listen: 0 }", "a port of this machine"),
        ("kind: udp, config: { listen: 70000 }", "a port of this machine"),
        ("kind: tcp", "expected `listen` or `connect`, found neither"),
        ("kind: tcp, config: { listen: 9000, connect: 9000 }", "found both"),
        ("kind: tcp, config: { listen: 9000, max_connections: 0 }", "1 to 64"),
        ("kind: tcp, config: { listen: 9000, max_connections: 65 }", "1 to 64"),
        ("kind: tcp, config: { connect: 9000, max_connections: 2 }", "requires `listen`"),
        ("kind: tcp, config: { listen: 9000, max_bytes: 2GiB }", "1B to 1GiB"),
    ] {
        let text = graph.refused(&format!("  a: {{ {source} }}\n{sink}"));
        assert!(text.contains(expected), "{source}\n{text}");
    }
    let both = |a: &str, b: &str| {
        format!(
            "  a: {{ {a} }}\n  b: {{ {b} }}\n  y: {{ kind: null, from: a }}\n{}",
            sink.replace("from: a", "from: b")
        )
    };
    for kind in ["tcp", "udp"] {
        let node = format!("kind: {kind}, config: {{ listen: 9000 }}");
        let other = format!("kind: {kind}, config: {{ listen: 'localhost:9000' }}");
        assert!(graph.refused(&both(&node, &other)).contains(&format!("both use {kind} 127.0.0.1:9000")));
    }
    // A port in use is reported before anything runs.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let nodes = format!("  a: {{ kind: tcp, config: {{ listen: {port} }} }}\n{sink}");
    let error = graph.plan(&nodes).unwrap().wire().unwrap().start().err().unwrap().to_string();
    assert!(error.contains(&format!("listening on 127.0.0.1:{port}")), "{error}");
}

/// Promise (connections): An error of one peer closes only the connection of that peer.
#[test]
fn a_hostile_peer_is_disconnected_and_counted_without_affecting_others() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, framing: length, max_bytes: 1KiB }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out}, framing: length }}, from: a }}\n"
    ));
    let (mut good, mut back) = (connect(way_in), connect(way_out));
    let mut passes = |message: &[u8]| {
        good.write_all(&sized(message)).unwrap();
        let mut answer = vec![0; message.len() + 4];
        back.read_exact(&mut answer).unwrap();
        assert_eq!(answer, sized(message));
    };
    passes(b"before");
    // Half a message, and then silence until the test ends.
    let mut silent = connect(way_in);
    silent.write_all(b"\0\0\x01\0half").unwrap();
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\0\0\x04\x01", b"random bytes of no meaning"] {
        let mut bad = connect(way_in);
        bad.write_all(bytes).unwrap();
        assert!(is_closed(&mut bad), "{bytes:?}");
        passes(b"after a length beyond all bounds");
    }
    for half in [&b"\0\0"[..], b"\0\0\0\x05hal"] {
        let mut cut = connect(way_in);
        cut.write_all(half).unwrap();
        cut.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_closed(&mut cut));
    }
    // Short and slow messages are fine.
    passes(b"");
    for byte in sized(b"slow") {
        good.write_all(&[byte]).unwrap();
    }
    let mut answer = [0; 8];
    back.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], sized(b"slow"));
    let report = stop(running);
    assert_eq!(report.exit_code(), 0);
    figures(&report, &[("a.too_large", 3.0), ("a.partial", 2.0), ("a.connections", 7.0), ("a.disconnects", 5.0)]);
    figures(&report, &[("a.received", 6.0), ("a.stopped", 0.0), ("b.sent", 6.0)]);
}

#[test]
fn lines_that_are_too_long_are_skipped() {
    let graph = Graph::new();
    let port = tcp_port();
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {port}, max_bytes: 8B, on_close: end }} }}\n  \
         b: {{ kind: file, config: {{ path: out.txt }}, from: a }}\n"
    ));
    let mut peer = connect(port);
    let long = "x".repeat(1 << 20);
    peer.write_all(format!("one\n{long}\ntwo\r\n{long}\n\nthree\nhalf").as_bytes()).unwrap();
    drop(peer);
    let report = end(running);
    assert_eq!(graph.read("out.txt"), b"one\ntwo\n\nthree\n");
    figures(&report, &[("a.received", 4.0), ("a.too_large", 2.0), ("a.partial", 1.0)]);
}

/// Promise (connections): A peer beyond `max_connections` is refused at once.
#[test]
fn connections_beyond_the_limit_are_refused() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, max_connections: 2 }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out} }}, from: a }}\n"
    ));
    let mut back = BufReader::new(connect(way_out));
    let mut line = |peer: &mut TcpStream| {
        peer.write_all(b"here\n").unwrap();
        let mut text = String::new();
        back.read_line(&mut text).unwrap();
        assert_eq!(text, "here\n");
    };
    let (mut first, mut second) = (connect(way_in), connect(way_in));
    line(&mut first);
    line(&mut second);
    for _ in 0..10_000 {
        assert!(is_closed(&mut connect(way_in)));
    }
    line(&mut first);
    // Refused peers that stay connected take no resources from others.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    // A thousand, if the limit of open files allows.
    let many = most.saturating_sub(300).min(1_000);
    let mut held: Vec<TcpStream> = (0..many).map(|_| connect(way_in)).collect();
    line(&mut first);
    assert!(held.iter_mut().all(is_closed));
    drop(held);
    drop(second);
    // Once a disconnect is noticed, there is room for another peer: its line comes back, while one
    // that is refused is closed.
    let end = Instant::now() + PATIENCE.unwrap();
    let _third = loop {
        let mut third = connect(way_in);
        // Fails if it is refused already.
        let _ = third.write_all(b"here\n");
        let mut ways = [third.as_fd(), back.get_ref().as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        assert!(poll(&mut ways, 60_000_u16).unwrap() > 0 && Instant::now() < end, "never room for another peer");
        if ways[1].any() == Some(true) {
            break third;
        }
    };
    back.read_line(&mut String::new()).unwrap();
    let report = stop(running);
    assert!(report.metric("a.refused") >= Some(10_000.0 + many as f64), "{:?}", report.nodes);
    figures(&report, &[("a.connections", 3.0), ("a.received", 5.0)]);
}

/// Drives a graph until a condition holds.
#[track_caller]
fn turn_until(driven: &mut Driven, mut shows: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE.unwrap();
    while !shows() {
        driven.turn();
        assert!(Instant::now() < end, "{:?}", driven.stats());
    }
}

/// Whether a connection is closed, without reading from it.
fn is_over(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    !matches!((&*stream).read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

const S: u64 = 1_000_000_000;

/// Promise (connections): Peers that never send a whole message do not keep new peers out; a peer
/// that has sent one stays until it is idle.
///
/// Attack (slow peers): peers that never send a whole message; expected: new peers are accepted
#[test]
fn slow_peers_do_not_block_new_ones() {
    let graph = Graph::new();
    let port = tcp_port();
    let nodes = format!(
        "  a: {{ kind: tcp, config: {{ listen: {port}, max_connections: 2, idle: 60s }} }}\n  z: {{ kind: null, from: a }}\n"
    );
    let clock = SimulatedClock::new(Time(S));
    let mut driven = graph.plan(&nodes).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let stats = |driven: &Driven| driven.stats().iter().find(|stats| stats.node == "z").unwrap().done;
    let line = |driven: &mut Driven, mut peer: &TcpStream| {
        let before = stats(driven);
        peer.write_all(b"here\n").unwrap();
        let end = Instant::now() + PATIENCE.unwrap();
        while stats(driven) == before {
            driven.turn();
            assert!(Instant::now() < end, "{:?}", driven.stats());
        }
    };
    let slow = [connect(port), connect(port)];
    slow.iter().for_each(|mut peer| peer.write_all(b"x").unwrap());
    // Not displaced yet: they have just connected.
    let early = connect(port);
    turn_until(&mut driven, || is_over(&early));
    clock.advance(5 * S);
    let first = connect(port);
    line(&mut driven, &first);
    turn_until(&mut driven, || is_over(&slow[0]));
    assert!(!is_over(&slow[1]));
    let second = connect(port);
    line(&mut driven, &second);
    turn_until(&mut driven, || is_over(&slow[1]));
    // Both have sent a message.
    clock.advance(10 * S);
    let late = connect(port);
    turn_until(&mut driven, || is_over(&late));
    line(&mut driven, &first);
    // The second peer has been idle for a minute, the first for less.
    clock.advance(51 * S);
    turn_until(&mut driven, || is_over(&second));
    assert!(!is_over(&first));
    driven.stopper().stop();
    let report = super::checked(driven.run());
    figures(&report, &[("a.connections", 4.0), ("a.refused", 2.0), ("a.displaced", 2.0), ("a.idle", 1.0)]);
    figures(&report, &[("a.received", 3.0), ("a.partial", 2.0), ("a.disconnects", 3.0)]);
}

/// Promise (connections): A new subscriber displaces one that reads nothing.
///
/// Attack (slow subscribers): subscribers that read nothing; expected: new subscribers are accepted
#[test]
fn slow_subscribers_do_not_block_new_ones() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let nodes = format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, framing: length, max_bytes: 256KiB }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out}, framing: length, max_connections: 1 }}, from: a }}\n"
    );
    let clock = SimulatedClock::new(Time(S));
    let mut driven = graph.plan(&nodes).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let feed = connect(way_in);
    let message = sized(&vec![7; 256 << 10]);
    let feed_one = |driven: &mut Driven, n: u64| {
        let end = Instant::now() + PATIENCE.unwrap();
        feed.set_nonblocking(true).unwrap();
        let mut rest = &message[..];
        while !rest.is_empty() || driven.stats()[1].done < n {
            rest = &rest[(&feed).write(rest).unwrap_or(0)..];
            driven.turn();
            assert!(Instant::now() < end, "{:?}", driven.stats());
        }
    };
    let _deaf = connect(way_out);
    let early = connect(way_out);
    turn_until(&mut driven, || is_over(&early));
    (1..=64).for_each(|n| feed_one(&mut driven, n));
    clock.advance(5 * S);
    let reader = connect(way_out);
    // The first may not be in the listener's queue yet.
    reader.set_nonblocking(true).unwrap();
    let (mut n, mut start) = (64, [0; 4]);
    while (&reader).read(&mut start).is_err() {
        n += 1;
        feed_one(&mut driven, n);
    }
    assert_eq!(start, message[..4]);
    driven.stopper().stop();
    let report = super::checked(driven.run());
    figures(&report, &[("b.connections", 2.0), ("b.refused", 1.0), ("b.displaced", 1.0)]);
    assert!(report.metric("b.full") > Some(0.0), "{:?}", report.nodes);
}

/// A subscriber is idle only if it does not take a pending message, not if there is no message.
#[test]
fn an_idle_stream_does_not_disconnect_a_subscriber() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let nodes = format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, framing: length, max_bytes: 32MiB }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out}, framing: length, idle: 10s }}, from: a }}\n"
    );
    let clock = SimulatedClock::new(Time(S));
    let mut driven = graph.plan(&nodes).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    let (mut feed, reader) = (connect(way_in), connect(way_out));
    reader.set_nonblocking(true).unwrap();
    // Before the node has accepted it, it receives nothing.
    turn_until(&mut driven, || {
        feed.write_all(&sized(b"x")).unwrap();
        reader.peek(&mut [0]).is_ok()
    });
    clock.advance(60 * S);
    // More than both socket buffers hold, so that it is behind until it reads.
    let message = sized(&vec![7; 24 << 20]);
    let (mut rest, mut read, mut part) = (&message[..], 0, vec![0; 1 << 16]);
    feed.set_nonblocking(true).unwrap();
    let mut turns = 0;
    turn_until(&mut driven, || {
        rest = &rest[feed.write(rest).unwrap_or(0)..];
        turns += 1;
        if rest.is_empty() && turns % 2 == 0 {
            let n = (&reader).read(&mut part).unwrap_or(0);
            read += part[..n].iter().filter(|byte| **byte == 7).count();
        }
        read == 24 << 20
    });
    driven.stopper().stop();
    let report = super::checked(driven.run());
    figures(&report, &[("b.idle", 0.0), ("b.disconnects", 0.0)]);
}

/// Promise (connections): Each of ten thousand short-lived peers is counted once.
///
/// Attack (short-lived peers): ten thousand connections that close at once; expected: each is
/// counted once
#[test]
fn short_lived_peers_are_counted_once() {
    let graph = Graph::new();
    let port = tcp_port();
    let at_a_time = 16;
    let nodes = format!(
        "  a: {{ kind: tcp, config: {{ listen: {port}, max_connections: {at_a_time} }} }}\n  z: {{ kind: outlet, from: {{ from: a, when_full: latest }} }}\n"
    );
    let mut wired = graph.plan(&nodes).unwrap().wire().unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let running = wired.start().unwrap();
    let (many, resets) = (10_000, 1_000);
    for n in 0..many {
        let mut peer = connect(port);
        // Writing to a refused connection may fail.
        let _ = peer.write_all(if n < resets { b"half" } else { b"whole\n" });
        if n < resets {
            let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(&peer, nix::sys::socket::sockopt::Linger, &at_once).unwrap();
        }
    }
    // When a message of the last one has been received, all have been accepted or refused. One that
    // is refused is closed.
    let connected = || {
        let mut last = connect(port);
        let _ = last.write_all(b"last\n");
        last.set_nonblocking(true).unwrap();
        last
    };
    let end = Instant::now() + PATIENCE.unwrap();
    let mut last = connected();
    while !outlet.recv_timeout(Duration::from_millis(1)).is_ok_and(|message| message.body.bytes() == b"last") {
        assert!(Instant::now() < end, "never room for another peer");
        if is_closed(&mut last) {
            last = connected();
        }
    }
    let report = stop(running);
    let figure = |name: &str| report.metric(name).unwrap();
    assert!(figure("a.connections") + figure("a.refused") >= f64::from(many + 1), "{:?}", report.nodes);
    // The stop may come before the node reads the ends of the last connections.
    let open = figure("a.connections") - figure("a.disconnects");
    assert!((0.0..=f64::from(at_a_time)).contains(&open), "{:?}", report.nodes);
    assert!(figure("a.received") + figure("a.partial") <= figure("a.connections"), "{:?}", report.nodes);
    assert!(figure("a.received") > 0.0, "{:?}", report.nodes);
}

/// Promise (connections): Each datagram of a flood is counted as received, dropped by the kernel,
/// or unread at the stop.
///
/// Attack (flood): 200,000 datagrams at once; expected: each is counted once
#[test]
fn every_datagram_of_a_flood_is_counted() {
    let graph = Graph::new();
    let (port, far) = (udp_port(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let running = graph.start(&format!(
        "  a: {{ kind: udp, config: {{ listen: {port}, max_bytes: 64B }} }}\n  z: {{ kind: null, from: a }}\n"
    ));
    let sent = 200_000;
    for _ in 0..sent {
        far.send_to(&[7; 64], ("127.0.0.1", port)).unwrap();
    }
    let report = stop(running);
    let figure = |name: &str| report.metric(name).unwrap();
    let all = figure("a.received") + figure("a.overrun") + figure("a.stopped");
    assert_eq!((all, figure("a.too_large")), (f64::from(sent), 0.0), "{:?}", report.nodes);
}

/// Promise (connections): A lost connection is reestablished, and messages lost with it are
/// counted.
#[test]
fn a_lost_connection_is_reestablished() {
    let graph = Graph::new();
    let (far, way_out) = (TcpListener::bind("127.0.0.1:0").unwrap(), tcp_port());
    let port = far.local_addr().unwrap().port();
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ connect: {port} }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out} }}, from: a }}\n"
    ));
    let mut back = BufReader::new(connect(way_out));
    for (round, ending) in ["", "half"].iter().enumerate() {
        let mut peer = accept(&far);
        peer.write_all(format!("round {round}\n{ending}").as_bytes()).unwrap();
        let mut text = String::new();
        back.read_line(&mut text).unwrap();
        assert_eq!(text, format!("round {round}\n"));
    }
    // No listener for a while, then a new one.
    drop(far);
    let far = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut peer = accept(&far);
    peer.write_all(b"again\n").unwrap();
    let mut text = String::new();
    back.read_line(&mut text).unwrap();
    assert_eq!(text, "again\n");
    // Silence does not end the graph, and does not delay a stop.
    let report = stop(running);
    assert_eq!(report.outcome, Outcome::Stopped);
    figures(&report, &[("a.received", 3.0), ("a.connections", 3.0), ("a.disconnects", 2.0), ("a.partial", 1.0)]);
    assert_eq!(report.exit_code(), 0);
}

/// A stream does not continue in the next connection.
#[test]
fn a_new_connection_begins_a_new_segment() {
    let graph = Graph::new();
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = far.local_addr().unwrap().port();
    let nodes = format!("  a: {{ kind: tcp, config: {{ connect: {port} }} }}\n  z: {{ kind: outlet, from: a }}\n");
    let mut wired = graph.plan(&nodes).unwrap().wire().unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let running = wired.start().unwrap();
    let mut segments = Vec::new();
    for _ in 0..2 {
        let mut peer = accept(&far);
        peer.write_all(b"one\ntwo\n").unwrap();
        for _ in 0..2 {
            segments.push(outlet.recv_timeout(PATIENCE.unwrap()).unwrap().header().segment);
        }
    }
    assert!(segments[0] == segments[1] && segments[2] == segments[3] && segments[1] != segments[2], "{segments:?}");
    stop(running);
}

#[test]
fn an_absent_peer_does_not_stop_the_graph() {
    let graph = Graph::new();
    graph.write("in.txt", "line\n".repeat(100));
    let report = graph.run(&format!(
        "  a: {{ kind: file, config: {{ path: in.txt }} }}\n  b: {{ kind: tcp, config: {{ connect: {} }}, from: a }}\n",
        tcp_port()
    ));
    assert_eq!(report.exit_code(), 0);
    figures(&report, &[("b.sent", 0.0), ("b.unsent", 100.0), ("b.connections", 0.0)]);
}

#[test]
fn a_reading_peer_receives_everything() {
    let graph = Graph::new();
    let text: String = (0..20_000).map(|n| format!("line {n} {}\n", "x".repeat(n % 500))).collect();
    graph.write("in.txt", &text);
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = far.local_addr().unwrap().port();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        accept(&far).read_to_end(&mut all).map(|_| all)
    });
    let report = graph.run(&format!(
        "  a: {{ kind: file, config: {{ path: in.txt }} }}\n  b: {{ kind: tcp, config: {{ connect: {port} }}, from: a }}\n"
    ));
    figures(&report, &[("b.sent", 20_000.0), ("b.full", 0.0), ("b.unsent", 0.0), ("b.partial", 0.0)]);
    assert!(reader.join().unwrap().unwrap() == text.as_bytes());
}

/// Promise (connections): A subscriber that never reads loses messages, which are counted; the
/// others lose none.
#[test]
fn a_subscriber_that_never_reads_does_not_slow_others() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, framing: length, max_bytes: 256KiB }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out}, framing: length }}, from: a }}\n"
    ));
    let mut feed = connect(way_in);
    let deaf = connect(way_out);
    let mut reader = connect(way_out);
    // More than both socket buffers hold.
    let message = vec![7; 256 << 10];
    let mut back = vec![0; message.len() + 4];
    for _ in 0..100 {
        feed.write_all(&sized(&message)).unwrap();
        reader.read_exact(&mut back).unwrap();
        assert!(back == sized(&message));
    }
    // They stay connected until the last message has been offered to all.
    let report = stop(running);
    drop((deaf, reader, feed));
    let (sent, full) = (report.metric("b.sent").unwrap(), report.metric("b.full").unwrap());
    assert!(full > 0.0, "the kernel buffered everything");
    assert_eq!((sent + full, report.metric("b.unsent")), (200.0, Some(0.0)));
}

/// Promise (connections): A branch that cannot send does not affect the other branches.
#[test]
fn a_disconnected_peer_loses_only_its_own_messages() {
    let graph = Graph::new();
    let (way_in, way_out) = (tcp_port(), tcp_port());
    let running = graph.start(&format!(
        "  a: {{ kind: tcp, config: {{ listen: {way_in}, on_close: end }} }}\n  \
         b: {{ kind: tcp, config: {{ listen: {way_out} }}, from: a }}\n  \
         c: {{ kind: file, config: {{ path: out.txt }}, from: a }}\n"
    ));
    let mut feed = connect(way_in);
    let mut reader = BufReader::new(connect(way_out));
    feed.write_all(b"one\n").unwrap();
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    drop(reader);
    feed.write_all(b"two\nthree\n").unwrap();
    drop(feed);
    let report = end(running);
    assert_eq!((text.as_str(), report.exit_code()), ("one\n", 0));
    assert_eq!(graph.read("out.txt"), b"one\ntwo\nthree\n");
    figures(&report, &[("b.sent", 1.0), ("b.unsent", 2.0), ("b.disconnects", 1.0)]);
}
