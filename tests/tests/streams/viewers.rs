//! The live server for Foxglove on the loopback interface: no viewer, well-behaved or hostile,
//! changes the run.

use super::{Graph, end, figures, stop};
use limen_tests::tcp_port;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The timeout of every wait.
const PATIENCE: Duration = limen_tests::PATIENCE;

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n";

/// A frame of a client, masked with zeros, which leave its content as it is.
fn frame(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match content.len() {
        n @ ..126 => frame.push(0x80 | n as u8),
        n => {
            frame.push(0x80 | 127);
            frame.extend((n as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(content);
    frame
}

/// Connects, and reads the response; `None` if the connection is refused.
fn open(port: u16, more: &str) -> Option<TcpStream> {
    let mut stream = connect(port);
    stream.write_all(format!("{REQUEST}{more}\r\n").as_bytes()).unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => response.push(byte[0]),
            _ => return None,
        }
    }
    let is_open = response.starts_with(b"HTTP/1.1 101 ");
    // The key and its answer are those of RFC 6455, section 1.3.
    assert!(!is_open || String::from_utf8_lossy(&response).contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    is_open.then_some(stream)
}

/// Returns the next message: whether it is binary, and its content.
fn next(stream: &mut TcpStream) -> Option<(bool, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let size = match head[1] {
        126 => {
            let mut size = [0; 2];
            stream.read_exact(&mut size).ok()?;
            u64::from(u16::from_be_bytes(size))
        }
        127 => {
            let mut size = [0; 8];
            stream.read_exact(&mut size).ok()?;
            u64::from_be_bytes(size)
        }
        size => size.into(),
    };
    let mut content = vec![0; size as usize];
    stream.read_exact(&mut content).ok()?;
    (head[0] & 15 < 8).then_some((head[0] & 15 == 2, content))
}

fn subscribe(stream: &mut TcpStream, channel: u64, id: u32) {
    let text = format!(r#"{{"op":"subscribe","subscriptions":[{{"id":{id},"channelId":{channel}}}]}}"#);
    stream.write_all(&frame(1, text.as_bytes())).unwrap();
}

/// Reads until a message of a subscription has come; returns its content.
fn message(stream: &mut TcpStream, id: u32) -> Vec<u8> {
    loop {
        let (is_binary, content) = next(stream).expect("a message");
        if is_binary && content[1..5] == id.to_le_bytes() {
            return content[13..].to_vec();
        }
    }
}

fn graph(port: u16) -> String {
    format!(
        "  a: {{ kind: timer, config: {{ rate: 1kHz }} }}\n  \
           v: {{ kind: foxglove, config: {{ listen: {port} }}, inputs: {{ ticks: a }} }}\n"
    )
}

#[test]
fn a_viewer_gets_what_it_subscribed_to_and_no_more() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&graph(port));
    let mut viewer = open(port, "").expect("opens");
    subscribe(&mut viewer, 1, 7);
    let first = message(&mut viewer, 7);
    assert!(!first.is_empty());
    // Another subscription of the same channel replaces the first, and none after `unsubscribe`.
    subscribe(&mut viewer, 1, 8);
    message(&mut viewer, 8);
    viewer.write_all(&frame(1, br#"{"op":"unsubscribe","subscriptionIds":[8]}"#)).unwrap();
    viewer.write_all(&frame(1, br#"{"op":"getParameters"}"#)).unwrap();
    let is_status =
        |content: &[u8]| content.starts_with(br#"{"level":"#) || content.windows(8).any(|w| w == br#""status""#);
    while !next(&mut viewer).is_some_and(|(is_binary, content)| !is_binary && is_status(&content)) {}
    // Channels that nobody has announced.
    subscribe(&mut viewer, 0, 1);
    subscribe(&mut viewer, u64::MAX, 2);
    // A ping is answered, after everything that was sent before it.
    viewer.write_all(&frame(9, b"now")).unwrap();
    let mut answered = false;
    while !answered {
        let mut head = [0; 2];
        viewer.read_exact(&mut head).unwrap();
        assert_ne!(head[0] & 15, 2, "no topic is subscribed");
        let size = match head[1] {
            126 => {
                let mut size = [0; 2];
                viewer.read_exact(&mut size).unwrap();
                u16::from_be_bytes(size).into()
            }
            size => usize::from(size),
        };
        let mut content = vec![0; size];
        viewer.read_exact(&mut content).unwrap();
        answered = head[0] & 15 == 10;
    }
    let report = stop(running);
    figures(&report, &[("v.connections", 1.0), ("v.full", 0.0), ("v.refused", 0.0)]);
    assert_eq!(report.exit_code(), 0);
}

/// Promise (connections): Only permitted web pages can connect to `foxglove`.
#[test]
fn no_page_but_those_allowed_reads_the_robots_data() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let origins = graph(port).replace("listen:", "origins: ['https://viewer.example'], listen:");
    let running = graph_file.start(&origins);
    let mut viewers = Vec::new();
    for (more, is_taken) in [
        ("Origin: https://evil.example\r\n", false),
        ("Origin: null\r\n", false),
        ("Origin: https://app.foxglove.dev\r\n", true),
        ("Origin: https://viewer.example\r\n", true),
        ("Origin: http://localhost:8080\r\n", true),
        ("", true),
    ] {
        let mut viewer = open(port, more);
        assert_eq!(viewer.is_some(), is_taken, "{more}");
        if let Some(viewer) = &mut viewer {
            // One that has asked for something keeps its place.
            subscribe(viewer, 1, 1);
            message(viewer, 1);
        }
        viewers.extend(viewer);
    }
    // There is no place for a fifth.
    assert!(open(port, "").is_none());
    let report = stop(running);
    figures(&report, &[("v.connections", 4.0), ("v.refused", 3.0)]);
}

/// Bytes after which the server may close the connection, and must go on; whether they come before
/// the connection is open.
fn attacks(random: &mut fastrand::Rng) -> Vec<(bool, Vec<u8>)> {
    let request = [REQUEST.as_bytes(), b"\r\n"].concat();
    let before = [
        Vec::new(),
        b"\0".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"POST / HTTP/1.1\r\n\r\n".to_vec(),
        vec![b'a'; 300_000],
        [REQUEST.as_bytes(), &b"X: y\r\n".repeat(10_000)].concat(),
        REQUEST.replace("dGhl", "!!!!").into_bytes(),
        // It does not wait for the answer.
        [&request[..], &frame(1, b"{}")].concat(),
    ];
    let after = [
        // Not masked; larger than any memory; larger than allowed; of an unknown kind; not text;
        // not JSON; nested.
        b"\x81\x01a".to_vec(),
        b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(),
        frame(1, &vec![b' '; 300_000]),
        frame(5, b"x"),
        frame(1, b"\xff\xfe"),
        frame(1, b"{"),
        frame(1, "[".repeat(100_000).as_bytes()),
        frame(2, &[0; 1000]),
        frame(8, b"\x03"),
        frame(9, b"ping").repeat(2_000),
        frame(1, br#"{"op":"subscribe","subscriptions":[{"id":-1,"channelId":1}]}"#),
        frame(1, br#"{"op":"subscribe","subscriptions":[{"id":1,"channelId":1e99}]}"#),
        // A message in pieces that never ends.
        [b"\x01\x80\0\0\0\0".to_vec(), b"\0\x80\0\0\0\0".repeat(10_000)].concat(),
    ];
    let good = [frame(1, br#"{"op":"subscribe","subscriptions":[{"id":1,"channelId":1}]}"#), frame(9, b"x")].concat();
    let mut all: Vec<(bool, Vec<u8>)> = before.map(|bytes| (true, bytes)).into_iter().collect();
    all.extend(after.map(|bytes| (false, bytes)));
    for round in 0..200 {
        let mut damaged = if round % 2 == 0 { request.clone() } else { good.clone() };
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..damaged.len());
            damaged[at] = random.u8(..);
        }
        damaged.truncate(random.usize(0..=damaged.len()));
        all.push((round % 2 == 0, damaged));
    }
    all
}

/// Promise (connections): An error of one viewer closes only the connection of that viewer.
#[test]
fn hostile_viewers_end_alone() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&graph(port).replace("listen:", "max_connections: 16, listen:"));
    let mut viewer = open(port, "").expect("opens");
    subscribe(&mut viewer, 1, 1);
    let mut idle = Vec::new();
    for (at, (is_before, attack)) in attacks(&mut fastrand::Rng::with_seed(25)).into_iter().enumerate() {
        let mut stream = if is_before { connect(port) } else { open(port, "").expect("opens") };
        // The server may have closed it already.
        let _ = stream.write_all(&attack);
        // Every third stays, half open.
        if at % 3 == 0 && idle.len() < 8 {
            idle.push(stream);
        } else {
            let _ = stream.shutdown(Shutdown::Write);
            let begin = Instant::now();
            let mut bytes = [0; 4096];
            // Read until the server has closed it too.
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                    Err(error) => panic!("attack {at}: {error}"),
                }
                assert!(begin.elapsed() < PATIENCE, "attack {at}: still open");
            }
        }
        message(&mut viewer, 1);
    }
    drop(idle);
    let before = running.stats()[1].done;
    let begin = Instant::now();
    while running.stats()[1].done < before + 100 {
        assert!(begin.elapsed() < PATIENCE, "the graph stands still");
        message(&mut viewer, 1);
    }
    let report = stop(running);
    assert_eq!((report.exit_code(), report.bugs.len()), (0, 0), "{:?}", report.bugs);
    let [connections, disconnects] = ["v.connections", "v.disconnects"].map(|name| report.metric(name).unwrap());
    // The one that behaves is still there.
    assert!(connections > 100.0 && connections - disconnects <= 1.0, "{connections} {disconnects}");
}

/// Promise (connections): A viewer that never reads misses messages and delays nobody.
#[test]
fn a_slow_viewer_misses_messages_and_slows_nobody() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&format!(
        "  a: {{ kind: synthetic, config: {{ pattern: noise, shape: [100000], dtype: u8, count: 400, rate: 1kHz }} }}\n  \
           v: {{ kind: foxglove, config: {{ listen: {port}, backlog: 1MiB }}, inputs: {{ noise: a }} }}\n"
    ));
    let mut slow = open(port, "").expect("opens");
    subscribe(&mut slow, 1, 1);
    let report = end(running);
    let of = |name: &str| report.metric(name).unwrap();
    assert_eq!((of("v.connections"), report.exit_code()), (1.0, 0));
    // 40 MB do not fit into the buffers of two sockets and the backlog.
    assert!(of("v.full") > 100.0 && of("v.full") + of("v.sent") <= 400.0, "{} {}", of("v.full"), of("v.sent"));
    assert_eq!(of("lost"), 0.0);
}

/// A connection that has yet to say what it wants takes no time: the node is not turned for it.
#[test]
fn a_silent_connection_wakes_nobody() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&graph(port).replace("1kHz", "20Hz"));
    let mut silent = connect(port);
    silent.write_all(&REQUEST.as_bytes()[..20]).unwrap();
    let mut viewer = open(port, "").expect("opens");
    subscribe(&mut viewer, 1, 1);
    (0..20).for_each(|_| _ = message(&mut viewer, 1));
    let report = stop(running);
    let turns = report.nodes.iter().find(|node| node.name == "v").unwrap().turns;
    assert!(turns < 300, "{turns} turns for 20 messages");
    drop(silent);
}

/// Promise (connections): A viewer that sends without end does not delay the others.
///
/// A message in pieces without content, sent without end, does not keep the others waiting.
#[test]
fn a_viewer_that_sends_without_end_has_only_its_share() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&graph(port));
    let mut flood = open(port, "").expect("opens");
    let flooding = std::thread::spawn(move || {
        let _ = flood.write_all(b"\x01\x80\0\0\0\0");
        let pieces = b"\0\x80\0\0\0\0".repeat(10_000);
        // Until the graph has ended.
        while flood.write_all(&pieces).is_ok() {}
    });
    let mut viewer = open(port, "").expect("opens");
    subscribe(&mut viewer, 1, 1);
    (0..200).for_each(|_| _ = message(&mut viewer, 1));
    let report = stop(running);
    flooding.join().unwrap();
    assert_eq!((report.exit_code(), report.bugs.len()), (0, 0), "{:?}", report.bugs);
}

/// Clients that send nothing, a part of a request, or a whole one and nothing after it, take no
/// places from those that ask.
#[test]
fn silent_viewers_keep_nobody_out() {
    let port = tcp_port();
    let graph_file = Graph::new();
    let running = graph_file.start(&graph(port));
    let mut viewer = open(port, "").expect("opens");
    subscribe(&mut viewer, 1, 1);
    message(&mut viewer, 1);
    let mut silent = Vec::new();
    let whole = format!("{REQUEST}\r\n");
    for sent in ["", &REQUEST[..20], &whole] {
        silent.extend((0..64).map(|_| {
            let mut stream = connect(port);
            stream.write_all(sent.as_bytes()).unwrap();
            stream
        }));
        let mut late = open(port, "").unwrap_or_else(|| panic!("kept out by {sent:?}"));
        subscribe(&mut late, 1, 1);
        message(&mut late, 1);
        // The one that was there has kept its place.
        message(&mut viewer, 1);
    }
    let report = stop(running);
    assert_eq!((report.exit_code(), report.bugs.len()), (0, 0), "{:?}", report.bugs);
    drop(silent);
}
