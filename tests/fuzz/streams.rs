//! Byte streams from untrusted peers: messages that are truncated, too long, empty or not text, in
//! pieces of any size, over real sockets, terminals and pipes. Whole messages come out as they were
//! sent, and each of the others is counted.

use limen::{Drain, Plan, Report, Running, Spec, Tensor};
use limen_tests::fuzz::{attack, damage, pick};
use limen_tests::{tcp_port, udp_port};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait of a case.
const PATIENCE: Duration = limen_tests::PATIENCE;

/// The framings by name.
const FRAMINGS: &[&str] = &["lines", "lines_crlf", "raw", "fixed", "length", "length_le", "cobs", "slip"];

/// The expected result for a stream, from an independent implementation of the framings.
#[derive(Debug, Default)]
struct Expected {
    messages: Vec<Vec<u8>>,
    too_large: u64,
    /// Those that are not framed as they should be. One that is too long as well counts as either.
    malformed: u64,
    /// Whether the last message is truncated.
    is_cut: bool,
}

/// What happens after a length that is too large.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The connection is closed.
    End,
    /// The message is skipped.
    Skip,
}

fn expected(framing: &str, max: usize, bytes: &[u8], then: Then) -> Expected {
    let mut found = Expected::default();
    match framing {
        "lines" | "lines_crlf" => {
            let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let rest = lines.pop().unwrap_or_default();
            for line in lines {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                if line.len() > max {
                    found.too_large += 1;
                } else {
                    found.messages.push(line.to_vec());
                }
            }
            found.is_cut = !rest.is_empty();
        }
        "cobs" | "slip" => {
            let end = if framing == "cobs" { 0 } else { 0xc0 };
            let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == end).collect();
            found.is_cut = parts.pop().is_some_and(|rest| !rest.is_empty());
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                match if end == 0 { of_cobs(part) } else { of_slip(part) } {
                    None => found.malformed += 1,
                    Some(message) if message.len() > max => found.too_large += 1,
                    Some(message) => found.messages.push(message),
                }
            }
        }
        "raw" => found.messages.extend((!bytes.is_empty()).then(|| bytes.to_vec())),
        "fixed" => {
            found.messages.extend(bytes.chunks_exact(max).map(<[u8]>::to_vec));
            found.is_cut = !bytes.len().is_multiple_of(max);
        }
        _ => {
            let mut rest = bytes;
            while let Some((prefix, behind)) = rest.split_first_chunk::<4>() {
                let length =
                    if framing == "length" { u32::from_be_bytes(*prefix) } else { u32::from_le_bytes(*prefix) };
                let length = length as usize;
                if length > max {
                    found.too_large += 1;
                    if then == Then::End {
                        return found;
                    }
                    found.is_cut = behind.len() < length;
                    rest = behind.get(length..).unwrap_or_default();
                    if found.is_cut {
                        return found;
                    }
                } else if let Some(after) = behind.get(length..) {
                    found.messages.push(behind[..length].to_vec());
                    rest = after;
                } else {
                    break;
                }
            }
            found.is_cut = !rest.is_empty();
        }
    }
    found
}

/// Undoes Consistent Overhead Byte Stuffing, as the paper describes it; `None` if a code leads
/// beyond the end.
fn of_cobs(part: &[u8]) -> Option<Vec<u8>> {
    let (mut message, mut rest) = (Vec::new(), part);
    while let Some((code, behind)) = rest.split_first() {
        let (run, after) = behind.split_at_checked(usize::from(*code) - 1)?;
        message.extend(run);
        message.extend((*code < 255 && !after.is_empty()).then_some(0));
        rest = after;
    }
    Some(message)
}

/// Stuffs a message: each code counts the bytes up to the next zero.
fn in_cobs(message: &[u8]) -> Vec<u8> {
    let (mut stuffed, mut code) = (vec![1u8], 0);
    for byte in message {
        if *byte != 0 {
            stuffed.push(*byte);
            stuffed[code] += 1;
        }
        if *byte == 0 || stuffed[code] == 255 {
            code = stuffed.len();
            stuffed.push(1);
        }
    }
    stuffed.push(0);
    stuffed
}

/// Undoes the escapes of SLIP, by RFC 1055; `None` if there is one of nothing.
fn of_slip(part: &[u8]) -> Option<Vec<u8>> {
    let (mut message, mut bytes) = (Vec::new(), part.iter());
    while let Some(byte) = bytes.next() {
        message.push(match (byte, (*byte == 0xdb).then(|| bytes.next())) {
            (byte, None) => *byte,
            (_, Some(Some(0xdc))) => 0xc0,
            (_, Some(Some(0xdd))) => 0xdb,
            (_, Some(_)) => return None,
        });
    }
    Some(message)
}

/// A random stream, often damaged.
fn written(rng: &mut fastrand::Rng, framing: &str, max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..if max > 1_000 { 8 } else { 40 }) {
        let is_long = rng.u8(..if framing.starts_with("lines") { 6 } else { 30 }) == 0;
        let size = if is_long {
            max + *pick(rng, &[1, 2, 3, max, 9_000])
        } else {
            let any = rng.usize(..=max);
            *pick(rng, &[0, 1, max - 1, max, any])
        };
        let letters: &[u8] =
            pick::<&[u8]>(rng, &[b"text ", b"\xff\xfe\xc3\x28\0", b"\xc0\xdb\xdc\xdd\0", b"\r\r\n\"", &[7]]);
        let body: Vec<u8> = (0..size).map(|_| *pick(rng, letters)).collect();
        match framing {
            "length" => bytes.extend((size as u32).to_be_bytes()),
            "length_le" => bytes.extend((size as u32).to_le_bytes()),
            _ => {}
        }
        match framing {
            "cobs" => bytes.extend(in_cobs(&body)),
            "slip" => {
                for byte in body {
                    match byte {
                        0xc0 => bytes.extend([0xdb, 0xdc]),
                        0xdb => bytes.extend([0xdb, 0xdd]),
                        byte => bytes.push(byte),
                    }
                }
                bytes.push(0xc0);
            }
            "lines" | "lines_crlf" => {
                bytes.extend(body);
                bytes.extend(*pick(rng, &[&b"\n"[..], b"\r\n"]));
            }
            _ => bytes.extend(body),
        }
    }
    if rng.bool() {
        damage(rng, &mut bytes);
    }
    bytes
}

/// Splits bytes into random pieces.
fn pieces<'a>(rng: &mut fastrand::Rng, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let most = (*pick(rng, &[1, 3, 17, 4_096, 100_000])).max(bytes.len() / 300);
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rng.usize(1..=most.min(rest.len())));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

fn plan(folder: &Path, nodes: &str) -> Result<Plan, String> {
    let text = format!("version: 1\nnodes:\n{nodes}");
    let mut spec = Spec::from_text(&text, "graph.yaml").map_err(|problems| problems.to_string())?;
    spec.folders.graph = folder.to_path_buf();
    spec.folders.allowed = vec!["/dev/pts".into()];
    Plan::new(spec, &limen_tests::registry()).map_err(|problems| format!("{problems}\n{text}"))
}

fn start(folder: &Path, nodes: &str) -> Result<Running, String> {
    plan(folder, nodes)?.wire().and_then(limen::Wired::start).map_err(|error| error.to_string())
}

/// Starts a graph that listens on a free port. Another process may take the port in between, so
/// this retries.
fn listening(folder: &Path, port: impl Fn() -> u16, nodes: impl Fn(u16) -> String) -> Result<(Running, u16), String> {
    let mut found = Err(String::new());
    for _ in 0..5 {
        let port = port();
        found = start(folder, &nodes(port)).map(|running| (running, port));
        if !matches!(&found, Err(why) if why.contains("in use")) {
            break;
        }
    }
    found
}

/// Waits until a graph ends by itself.
fn end(mut running: Running) -> Result<Report, String> {
    let has_ended = running.wait_for(PATIENCE);
    let stats = if has_ended { String::new() } else { format!("{:?}", running.stats()) };
    let report = if has_ended { running.wait() } else { running.stop(Drain::within(Duration::from_secs(1))) };
    match (has_ended, &report.bugs[..]) {
        (true, []) => Ok(report),
        (false, _) => Err(format!("no end: {stats}")),
        (true, bugs) => Err(bugs.join("; ")),
    }
}

/// A figure of the node `a`.
fn figure(report: &Report, name: &str) -> u64 {
    report.metric(&format!("a.{name}")).unwrap_or(0.0) as u64
}

/// The messages that the sink has written.
fn came_out(folder: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(folder.join("out.bin")).unwrap();
    let found = expected("length_le", usize::MAX, &bytes, Then::Skip);
    assert!(!found.is_cut, "the sink's file is truncated");
    found.messages
}

const SINK: &str = "  b: { kind: file, config: { path: out.bin, framing: length_le }, from: a }\n";

/// Compares the output with the expected messages.
fn same(framing: &str, max: usize, came: &[Vec<u8>], expected: &Expected) -> Result<(), String> {
    if framing == "raw" {
        if came.concat() == expected.messages.concat() && came.iter().all(|piece| (1..=max).contains(&piece.len())) {
            return Ok(());
        }
    } else if came == expected.messages {
        return Ok(());
    }
    let sizes = |messages: &[Vec<u8>]| messages.iter().map(Vec::len).collect::<Vec<_>>();
    Err(format!("came {:?}, expected {:?}", sizes(came), sizes(&expected.messages)))
}

fn is_equal(what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found}, expected {expected}")) }
}

const MAXIMA: &[usize] = &[1, 2, 7, 64, 1_000, 5_000, 20_000];

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Closed,
    /// Shut down for writing; the other side must close.
    Half,
    Reset,
}

/// A loopback address that is unique to this process. On `127.0.0.1` another process that keeps
/// retrying a port could be taken for the node.
fn own_address() -> Ipv4Addr {
    let [low, high, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, 1 + high % 250, low, 1)
}

fn accepted(listener: &TcpListener) -> Result<TcpStream, String> {
    let end = Instant::now() + PATIENCE;
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => std::thread::yield_now(),
            Err(error) => return Err(format!("no peer connects: {error}")),
        }
    }
}

fn tcp(folder: &Path, rng: &mut fastrand::Rng) -> Result<(), String> {
    let (framing, max) = (*pick(rng, FRAMINGS), *pick(rng, MAXIMA));
    let nodes = |way: &str, port: String| {
        format!(
            "  a: {{ kind: tcp, config: {{ {way}: {port}, framing: {framing}, max_bytes: {max}B, on_close: end }} }}\n{SINK}"
        )
    };
    let connects = rng.u8(..3) == 0;
    let (running, mut peers) = if connects {
        let listener = TcpListener::bind((own_address(), 0)).unwrap();
        let running = start(folder, &nodes("connect", format!("'{}'", listener.local_addr().unwrap())))?;
        (running, vec![accepted(&listener)?])
    } else {
        let (running, port) = listening(folder, tcp_port, |port| nodes("listen", port.to_string()))?;
        let count = *pick(rng, &[1, 1, 2, 3]);
        let peers = (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
        (running, peers.collect::<Result<Vec<_>, _>>()?)
    };
    let all: Vec<Vec<u8>> = peers.iter().map(|_| written(rng, framing, max)).collect();
    let mut left: Vec<Vec<&[u8]>> = all.iter().map(|bytes| pieces(rng, bytes)).collect();
    left.iter_mut().for_each(|pieces| pieces.reverse());
    for peer in &peers {
        peer.set_nodelay(true).unwrap();
        peer.set_write_timeout(Some(PATIENCE)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    // In a random order. Writes of a peer that was disconnected for a wrong length fail.
    while left.iter().any(|pieces| !pieces.is_empty()) {
        let at = rng.usize(..peers.len());
        if let Some(piece) = left[at].pop()
            && peers[at].write_all(piece).is_err()
        {
            left[at].clear();
        }
    }
    // A connecting node would see a reset as a failed attempt, and try again.
    let endings = [Ending::Closed, Ending::Half, Ending::Reset];
    let ending = *pick(rng, &endings[..if connects { 2 } else { 3 }]);
    for mut peer in peers.drain(..) {
        match ending {
            Ending::Closed => {}
            Ending::Half => {
                let _ = peer.shutdown(Shutdown::Write);
                match peer.read(&mut [0]) {
                    Ok(0) => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                    other => return Err(format!("the other side is not closed: {other:?}")),
                }
            }
            Ending::Reset => {
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&peer, sockopt::Linger, &linger).unwrap();
            }
        }
    }
    let report = end(running)?;
    let came = came_out(folder);
    is_equal("received", figure(&report, "received"), came.len() as u64)?;
    is_equal("connections", figure(&report, "connections"), all.len() as u64)?;
    is_equal("disconnects", figure(&report, "disconnects"), all.len() as u64)?;
    let whole: Vec<Expected> = all.iter().map(|bytes| expected(framing, max, bytes, Then::End)).collect();
    let (large, cut) = (figure(&report, "too_large") + figure(&report, "malformed"), figure(&report, "partial"));
    let sum = Expected {
        messages: whole.iter().flat_map(|one| one.messages.clone()).collect(),
        too_large: whole.iter().map(|one| one.too_large + one.malformed).sum(),
        ..Expected::default()
    };
    if ending == Ending::Reset {
        // An unknown number of bytes in flight is lost.
        if large > sum.too_large || framing != "raw" && came.len() > sum.messages.len() {
            return Err(format!("{} messages and {large} too large, of {sum:?}", came.len()));
        }
        return Ok(());
    }
    is_equal("too large or malformed", large, sum.too_large)?;
    is_equal("partial", cut, whole.iter().filter(|one| one.is_cut).count() as u64)?;
    match &whole[..] {
        [one] => same(framing, max, &came, one),
        _ if framing == "raw" => is_equal("bytes", came.concat().len() as u64, sum.messages.concat().len() as u64),
        _ => {
            let sorted = |mut messages: Vec<Vec<u8>>| {
                messages.sort();
                messages
            };
            same(framing, max, &sorted(came), &Expected { messages: sorted(sum.messages), ..Expected::default() })
        }
    }
}

fn udp(folder: &Path, rng: &mut fastrand::Rng) -> Result<(), String> {
    let max = *pick(rng, MAXIMA);
    let nodes = |port| format!("  a: {{ kind: udp, config: {{ listen: {port}, max_bytes: {max}B }} }}\n{SINK}");
    let (running, port) = listening(folder, udp_port, nodes)?;
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sent = Vec::new();
    for _ in 0..rng.usize(..60) {
        let any = rng.usize(..=max);
        let size = *pick(rng, &[0, 1, max - 1, max, max + 1, 2 * max, any]);
        let datagram: Vec<u8> = (0..size.min(60_000)).map(|_| rng.u8(..)).collect();
        far.send_to(&datagram, ("127.0.0.1", port)).map_err(|error| error.to_string())?;
        sent.push(datagram);
    }
    (0..rng.usize(..2_000)).for_each(|_| std::thread::yield_now());
    let report = running.stop(Drain::within(PATIENCE));
    if !report.bugs.is_empty() {
        return Err(report.bugs.join("; "));
    }
    let came = came_out(folder);
    let lost: u64 = report.edges.iter().map(limen::report::EdgeReport::lost_total).sum();
    is_equal("received", figure(&report, "received"), came.len() as u64 + lost)?;
    let counted = ["received", "too_large", "overrun", "stopped"].map(|name| figure(&report, name));
    is_equal(&format!("received, too large, overrun, stopped {counted:?}"), counted.iter().sum(), sent.len() as u64)?;
    // A subsequence of the datagrams sent.
    let mut rest = sent.iter();
    match came.iter().all(|message| rest.any(|one| one == message)) {
        true => Ok(()),
        false => Err(format!("{} of {} came, and not as they were sent", came.len(), sent.len())),
    }
}

fn stdin(folder: &Path, rng: &mut fastrand::Rng) -> Result<(), String> {
    let (framing, max) = (*pick(rng, FRAMINGS), *pick(rng, MAXIMA));
    let bytes = written(rng, framing, max);
    let pieces = pieces(rng, &bytes);
    let (input, mut far) = std::io::pipe().unwrap();
    nix::unistd::dup2_stdin(&input).unwrap();
    drop(input);
    let nodes =
        format!("  a: {{ kind: stdin, config: {{ framing: {framing}, max_bytes: {max}B }}, on_error: skip }}\n{SINK}");
    let running = start(folder, &nodes)?;
    let report = std::thread::scope(|scope| {
        scope.spawn(move || pieces.into_iter().try_for_each(|piece| far.write_all(piece)));
        let report = end(running);
        // Closes the reading end, so that the writer ends too.
        nix::unistd::dup2_stdin(File::open("/dev/null").unwrap()).unwrap();
        report
    })?;
    let mut found = expected(framing, max, &bytes, Then::Skip);
    if framing.starts_with("lines") && found.is_cut {
        // The last line may lack a line end.
        let rest = bytes.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        if rest.len() > max {
            found.too_large += 1;
        } else {
            found.messages.push(rest.to_vec());
        }
        found.is_cut = false;
    }
    is_equal("failed calls", report.failed_calls, found.too_large + found.malformed + u64::from(found.is_cut))?;
    same(framing, max, &came_out(folder), &found)
}

/// Whether there is something to read.
fn is_readable(file: &File) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

fn serial(folder: &Path, rng: &mut fastrand::Rng) -> Result<(), String> {
    let (framing, max) = (*pick(rng, FRAMINGS), *pick(rng, MAXIMA));
    let bytes = written(rng, framing, max);
    let pieces = pieces(rng, &bytes);
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    let mut settings = nix::sys::termios::tcgetattr(&slave).unwrap();
    nix::sys::termios::cfmakeraw(&mut settings);
    nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &settings).unwrap();
    let device = nix::unistd::ttyname(slave.as_fd()).unwrap();
    let (mut far, near) = (File::from(master), File::from(slave));
    let nodes = format!(
        "  a: {{ kind: serial, config: {{ path: {}, baud: 4000000, framing: {framing}, max_bytes: {max}B, on_close: end }} }}\n  \
         b: {{ kind: outlet, from: a }}\n",
        device.display()
    );
    let mut wired = plan(folder, &nodes)?.wire().map_err(|error| error.to_string())?;
    let mut outlet = wired.outlet::<Tensor>("b").map_err(|error| error.to_string())?;
    let running = wired.start().map_err(|error| error.to_string())?;
    let found = expected(framing, max, &bytes, Then::End);
    // After a length that is too large the node resynchronizes, at an unspecified byte.
    let is_astray = framing.starts_with("length") && found.too_large > 0;
    let mut came: Vec<Vec<u8>> = Vec::new();
    let has_come = std::thread::scope(|scope| {
        let writer = scope.spawn(move || pieces.into_iter().try_for_each(|piece| far.write_all(piece)).map(|()| far));
        let end = Instant::now() + PATIENCE;
        loop {
            let is_all = if framing == "raw" {
                came.iter().map(Vec::len).sum::<usize>() >= bytes.len()
            } else {
                came.len() >= found.messages.len()
            };
            // All that is expected, whatever else comes: what the kernel still has on its way
            // between the two ends is readable at neither.
            if writer.is_finished() && !is_readable(&near) && is_all {
                // Hangs up.
                drop(writer.join());
                return true;
            }
            if let Ok(message) = outlet.recv_timeout(Duration::from_millis(2)) {
                came.push(message.body.bytes().to_vec());
            }
            if Instant::now() > end {
                return false;
            }
        }
    });
    drop(near);
    if has_come {
        // The rest of the stream.
        while let Ok(message) = outlet.recv_timeout(PATIENCE) {
            came.push(message.body.bytes().to_vec());
        }
    }
    let report = end(running)?;
    if !has_come {
        return Err(format!("{} of {} messages came", came.len(), found.messages.len()));
    }
    is_equal("received", figure(&report, "received"), came.len() as u64)?;
    is_equal("disconnects", figure(&report, "disconnects"), 1)?;
    if is_astray {
        let is_bounded = came.iter().all(|message| message.len() <= max) && came.starts_with(&found.messages);
        return if is_bounded {
            Ok(())
        } else {
            Err("the messages before the wrong length differ from those sent".into())
        };
    }
    // When a device hangs up, its last bytes may be lost: a truncated message, or the end of a line
    // that is too long, which is then partial.
    let (partial, too_large) =
        (figure(&report, "partial"), figure(&report, "too_large") + figure(&report, "malformed"));
    let wrong = found.too_large + found.malformed;
    if too_large > wrong || partial + too_large > u64::from(found.is_cut) + wrong {
        return Err(format!("more is counted than was sent: {:?}", report.node("a").map(|node| &node.metrics)));
    }
    same(framing, max, &came, &found)
}

type Stream = fn(&Path, &mut fastrand::Rng) -> Result<(), String>;

fn streams(name: &str, cases: u64, stream: Stream) {
    let folder = tempfile::tempdir().unwrap();
    attack(name, cases, |seed| stream(folder.path(), &mut fastrand::Rng::with_seed(seed)).map(|()| true));
}

/// Promise (connections): TCP input delivers whole messages as they were sent and counts all
/// others, however they arrive.
///
/// Attack (TCP): messages that are truncated, too long, empty or not text, in pieces of any size;
/// peers that close or reset; expected: whole messages arrive as sent, all others are counted
#[test]
fn connections_deliver_whole_messages_and_count_the_rest() {
    streams("tcp", 150, tcp);
}

/// Promise (connections): UDP input delivers whole datagrams and counts all others.
///
/// Attack (UDP): datagrams that are empty, too long or not text; expected: whole datagrams arrive
/// as sent, all others are counted
#[test]
fn datagrams_arrive_whole_or_are_counted() {
    streams("udp", 150, udp);
}

/// Promise (connections): Standard input delivers whole messages and fails a call for all others.
///
/// Attack (standard input): the same messages as for TCP; expected: whole messages arrive as sent,
/// all others fail a call
#[test]
fn stdin_delivers_whole_messages_and_fails_for_the_rest() {
    streams("stdin", 150, stdin);
}

/// Promise (connections): Serial input delivers whole messages and counts all others.
///
/// Attack (serial): the same messages as for TCP; expected: whole messages arrive as sent, all
/// others are counted
#[test]
fn a_serial_device_delivers_whole_messages_and_counts_the_rest() {
    streams("serial", 100, serial);
}
