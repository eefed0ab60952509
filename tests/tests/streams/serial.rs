//! Serial devices, over a pseudo-terminal.

use super::{Graph, end, figures, stop};
use limen::Tensor;
use nix::pty::{OpenptyResult, openpty};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time: the number of a closed pseudo-terminal is reused, while a node may still try
/// to reopen the old one.
fn alone() -> MutexGuard<'static, ()> {
    static LINES: Mutex<()> = Mutex::new(());
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a pseudo-terminal, open so that neither hangs up, and the path of the near one.
fn line(graph: &mut Graph) -> (File, File, String) {
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    // A terminal echoes its input by default, also before a graph opens it.
    let mut settings = nix::sys::termios::tcgetattr(&slave).unwrap();
    nix::sys::termios::cfmakeraw(&mut settings);
    nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &settings).unwrap();
    let path = nix::unistd::ttyname(slave.as_fd()).unwrap().to_str().unwrap().to_string();
    graph.allowed.push("/dev/pts".into());
    (File::from(master), File::from(slave), path)
}

#[test]
fn lines_are_received_and_sent() {
    let _alone = alone();
    let mut graph = Graph::new();
    let (mut far, near, device) = line(&mut graph);
    let running = graph.start(&format!(
        "  a: {{ kind: serial, config: {{ path: {device}, baud: 115200, max_bytes: 16B }} }}\n  \
         b: {{ kind: serial, config: {{ path: {device}, baud: 115200 }}, from: a }}\n"
    ));
    let mut back = BufReader::new(far.try_clone().unwrap());
    let mut answer = String::new();
    for (sent, expected) in [("one\n", "one\n"), ("two\r\n", "two\n"), ("a line that is too long\nthree\n", "three\n")]
    {
        far.write_all(sent.as_bytes()).unwrap();
        answer.clear();
        back.read_line(&mut answer).unwrap();
        assert_eq!(answer, expected);
    }
    far.write_all(b"half").unwrap();
    let report = stop(running);
    assert_eq!(report.exit_code(), 0);
    figures(&report, &[("a.received", 3.0), ("a.too_large", 1.0), ("b.sent", 3.0), ("b.unsent", 0.0), ("b.full", 0.0)]);
    drop(near);
}

#[test]
fn bytes_are_neither_echoed_nor_changed() {
    let _alone = alone();
    let mut graph = Graph::new();
    let (mut far, near, device) = line(&mut graph);
    let running = graph.start(&format!(
        "  a: {{ kind: serial, config: {{ path: {device}, baud: 4000000, framing: length_le }} }}\n  \
         b: {{ kind: serial, config: {{ path: {device}, baud: 4000000, framing: raw }}, from: a }}\n"
    ));
    let bytes: Vec<u8> = (0..=255).collect();
    far.write_all(&[&256u32.to_le_bytes()[..], &bytes].concat()).unwrap();
    let mut back = vec![0; 256];
    far.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
    stop(running);
    drop(near);
}

/// Promise (connections): An unplugged serial device ends the stream or is reopened, and is
/// counted.
#[test]
fn an_unplugged_device_is_counted() {
    let _alone = alone();
    let mut graph = Graph::new();
    let (mut far, near, device) = line(&mut graph);
    let running = graph.start(&format!(
        "  a: {{ kind: serial, config: {{ path: {device}, baud: 9600, on_close: end }} }}\n  \
         b: {{ kind: serial, config: {{ path: {device}, baud: 9600 }}, from: a }}\n"
    ));
    far.write_all(b"one\ntw").unwrap();
    // The reply proves that the node has read the line, and with it the bytes written together.
    let mut back = [0; 4];
    far.read_exact(&mut back).unwrap();
    drop((far, near));
    let report = end(running);
    assert_eq!((report.exit_code(), &back), (0, b"one\n"));
    figures(&report, &[("a.received", 1.0), ("a.partial", 1.0), ("a.disconnects", 1.0), ("b.sent", 1.0)]);
}

/// Promise (connections): A serial device that returns under its old path is read again.
///
/// The path stays the same, as in `/dev/serial/by-id`, but refers to another device.
#[test]
fn a_device_that_returns_is_read_again() {
    let _alone = alone();
    let mut graph = Graph::new();
    let link = graph.path().join("device");
    let plug = |graph: &mut Graph| {
        let (far, near, device) = line(graph);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(device, &link).unwrap();
        (far, near)
    };
    let (mut far, near) = plug(&mut graph);
    let nodes = "  a: { kind: serial, config: { path: device, baud: 9600 } }\n  z: { kind: outlet, from: a }\n";
    let mut wired = graph.plan(nodes).unwrap().wire().unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let running = wired.start().unwrap();
    // Bytes sent before the device is reopened are lost, so the message is repeated until it is
    // received.
    let mut hears = |far: &mut File, text: &str| {
        let end = Instant::now() + limen_tests::PATIENCE;
        loop {
            far.write_all(format!("{text}\n").as_bytes()).unwrap();
            if let Ok(heard) = outlet.recv_timeout(Duration::from_millis(100))
                && heard.body.bytes() == text.as_bytes()
            {
                return heard.header().segment;
            }
            assert!(Instant::now() < end, "{text} is never received");
        }
    };
    let before = hears(&mut far, "one");
    drop((far, near));
    let (mut far, near) = plug(&mut graph);
    assert_ne!(hears(&mut far, "two"), before, "what it says now does not go on from what it said then");
    let report = stop(running);
    figures(&report, &[("a.disconnects", 1.0), ("a.partial", 0.0)]);
    drop((far, near));
}

#[test]
fn a_lost_device_is_reopened_until_the_graph_stops() {
    let _alone = alone();
    let mut graph = Graph::new();
    let (far, near, device) = line(&mut graph);
    let running = graph.start(&format!(
        "  a: {{ kind: serial, config: {{ path: {device}, baud: 9600 }} }}\n  b: {{ kind: null, from: a }}\n"
    ));
    drop((far, near));
    let report = stop(running);
    assert_eq!(report.exit_code(), 0);
    // It does not wait for the device, only for the end of the nodes.
    assert!(report.wall < limen_tests::PATIENCE / 2, "{:?}", report.wall);
}

#[test]
fn wrong_devices_are_refused() {
    let _alone = alone();
    let mut graph = Graph::new();
    graph.write("plain", "x");
    let (_far, _near, device) = line(&mut graph);
    let sink = "  z: { kind: null, from: a }\n";
    for (config, expected) in [
        ("path: /dev/ttyS0, baud: 9600", "--allow-path /dev"),
        ("path: plain, baud: 9600", "not a serial device"),
        ("path: plain, baud: 9601", "a supported speed, got 9601"),
    ] {
        let text = graph.refused(&format!("  a: {{ kind: serial, config: {{ {config} }} }}\n{sink}"));
        assert!(text.contains(expected) && text.contains("help: "), "{config}\n{text}");
    }
    let twice = format!(
        "  a: {{ kind: serial, config: {{ path: {device}, baud: 9600 }} }}\n  \
         b: {{ kind: serial, config: {{ path: {device}, baud: 9600 }} }}\n  \
         y: {{ kind: null, from: a }}\n{}",
        sink.replace("from: a", "from: b")
    );
    assert!(graph.refused(&twice).contains("both use "));
    // A device that is not a terminal, and one that does not exist, are detected when it is opened.
    graph.allowed.push("/dev".into());
    for (device, expected) in [("/dev/null", "/dev/null: "), ("/dev/no-such-device", "No such file")] {
        let nodes = format!("  a: {{ kind: serial, config: {{ path: {device}, baud: 9600 }} }}\n{sink}");
        let error = graph.plan(&nodes).unwrap().wire().unwrap().start().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
