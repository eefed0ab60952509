//! The program in a pipeline, on a full disk, and on the network.

use crate::program::{Folder, Ran};
use limen_tests::{tcp_port, udp_port};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ECHO: &str = "
version: 1
nodes:
  in: { kind: stdin }
  out: { kind: stdout, from: in }
";

/// Runs with a text on stdin.
fn pipe(folder: &Folder, words: &str, text: &str) -> Ran {
    let mut command = folder.command(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn a_graph_works_in_a_shell_pipeline() {
    let folder = Folder::with("echo", ECHO);
    let text: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(pipe(&folder, "-q graph.yaml", &text).out, text);
    assert_eq!(pipe(&folder, "-q graph.yaml", "one\r\n\ntwo").out, "one\n\ntwo\n");
    assert_eq!(pipe(&folder, "-q graph.yaml", "").expect(0, "", "").out, "");
    // The report follows the last message.
    let ran = pipe(&folder, "graph.yaml", "one\ntwo\n");
    assert!(ran.expect(0, "finished in ", "").out.starts_with("one\ntwo\n"), "{}", ran.out);
    // Stdout is for one object alone.
    let ran = pipe(&folder, "graph.yaml --json", "one\ntwo\n");
    assert_eq!((ran.json()["exit_code"].as_i64(), ran.err.contains("one\ntwo\n")), (Some(0), true));
}

#[test]
fn a_line_that_is_too_long_fails_one_call() {
    let graph = ECHO.replace("kind: stdin", "kind: stdin, config: { max_bytes: 8B }, on_error: skip");
    let folder = Folder::with("long", &graph);
    let text = format!("one\n{}\ntwo\n", "x".repeat(300_000));
    assert_eq!(pipe(&folder, "-q graph.yaml", &text).out.lines().take(2).collect::<Vec<_>>(), ["one", "two"]);
    let folder = Folder::with("cut", &ECHO.replace("kind: stdin", "kind: stdin, config: { framing: length }"));
    let ran = pipe(&folder, "graph.yaml", "\0\0\0\x03one\0\0\0\x09half");
    ran.expect(1, "one\n", "standard input: message 2: expected a complete message");
    ran.expect(1, "failed: node `in` failed in `next`", "");
}

#[test]
fn a_silent_stdin_delays_no_shutdown() {
    let folder = Folder::with("silent", ECHO);
    let mut command = folder.command("graph.yaml --duration 100ms");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    // Where the stop takes too long, the code is another.
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(open);
}

/// K6: the reader of stdout is gone.
#[test]
fn a_broken_pipe_ends_the_run_without_a_panic() {
    let raw = ECHO
        .replace("kind: stdin", "kind: stdin, config: { framing: raw }")
        .replace("kind: stdout", "kind: stdout, config: { framing: raw }");
    let folder = Folder::with("pipe", &raw);
    for (policy, code) in [("stop", 1), ("detach", 0)] {
        fs::write(folder.0.join("graph.yaml"), raw.replace("from: in", &format!("from: in, on_error: {policy}")))
            .unwrap();
        let mut command = folder.command("graph.yaml --frames 2000");
        let zero = File::open("/dev/zero").unwrap();
        let mut child = command.stdin(zero).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [1; 100];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, some), (Some(code), [0; 100]), "{policy}: {}", ran.err);
        // It is reported like any other failure, and nothing else is.
        assert!(ran.err.contains("standard output: closed by the reader (broken pipe)"), "{policy}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), if policy == "stop" { 1 } else { 2 }, "{policy}: {}", ran.err);
    }
    // A full disk is an error like any other.
    let mut command = folder.command("graph.yaml --frames 2000");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = command.stdin(File::open("/dev/zero").unwrap()).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// Promise (files): On a full disk, the written part is readable and every other message is
/// counted.
#[test]
fn a_full_disk_loses_only_what_does_not_fit() {
    let graph = "
version: 1
nodes:
  numbers: { kind: synthetic, config: { pattern: counter, shape: [128], count: 1000 } }
  raw: { kind: file, config: { path: out/raw, framing: raw }, from: numbers, on_error: detach }
  array: { kind: npy, config: { path: out/array.npy }, from: numbers, on_error: detach }
  table: { kind: csv, config: { path: out/table.csv }, from: numbers, on_error: detach }
  nothing: { kind: 'null', from: numbers }
";
    let folder = Folder::with("full", graph);
    let ran = folder.run_after("trap '' XFSZ; ulimit -f 64", "graph.yaml --json");
    let json = ran.json();
    assert_eq!((ran.code, &json["degraded"]), (Some(0), &true.into()), "{}", ran.out);
    let node = |name: &str| json["nodes"].as_array().unwrap().iter().find(|n| n["name"] == name).unwrap().clone();
    let metric = |name: &str, metric: &str| node(name)["metrics"][metric].as_u64_or_whole();
    assert_eq!(metric("nothing", "messages"), 1_000);
    let failures = json["failures"].to_string();
    for (name, path, header, size, written) in [
        ("raw", "out/raw", 0, 1_024, "messages"),
        ("array", "out/array.npy", 256, 1_024, "items"),
        ("table", "out/table.csv", 0, 0, "rows"),
    ] {
        let bytes = fs::read(folder.0.join(path)).unwrap();
        assert!(failures.contains(&format!("{path}: File too large")), "{failures}");
        // It ends with a whole message.
        assert!(if size == 0 { bytes.ends_with(b"\n") } else { (bytes.len() as u64 - header).is_multiple_of(size) });
        let whole = match size {
            // Rows differ in length, and the first names the columns.
            0 => bytes.iter().filter(|b| **b == b'\n').count() as u64 - 1,
            size => (bytes.len() as u64 - header) / size,
        };
        assert_eq!(metric(name, written), whole, "{name}");
        let edge = json["edges"].as_array().unwrap().iter().find(|e| e["to"] == format!("{name}/in")).unwrap().clone();
        let lost = edge["lost"]["detached"].as_u64().unwrap_or(0);
        let accepted = metric(name, written) + metric(name, "unwritten");
        assert_eq!(accepted + node(name)["failed"].as_u64().unwrap() + lost, 1_000, "{name}: {edge}");
    }
    let array = fs::read(folder.0.join("out/array.npy")).unwrap();
    let says = format!("'shape': ({}, 128,)", (array.len() - 256) / 1_024);
    assert!(String::from_utf8_lossy(&array[..256]).contains(&says), "{says}");
}

/// Reads a figure without a fraction.
trait Whole {
    fn as_u64_or_whole(&self) -> u64;
}

impl Whole for serde_json::Value {
    fn as_u64_or_whole(&self) -> u64 {
        self.as_f64().unwrap_or_else(|| panic!("not a number: {self}")) as u64
    }
}

/// N5: a listener that other machines can reach is printed at start.
#[test]
fn a_public_listener_is_printed_at_start() {
    let graph = "
version: 1
nodes:
  a: { kind: udp, config: { listen: '0.0.0.0:PORT' } }
  b: { kind: 'null', from: a }
";
    let port = udp_port().to_string();
    let folder = Folder::with("listens", &graph.replace("PORT", &port));
    let notice = format!("`a` accepts messages from other machines on 0.0.0.0:{port}");
    let said = format!("limen-run: {notice}\n");
    folder.run("graph.yaml --duration 50ms --allow-public").expect(0, &notice, &said);
    folder.run("graph.yaml --plan --allow-public").expect(0, "from other machines", "");
    assert_eq!(folder.run("graph.yaml --duration 50ms --allow-public -q").err, said);
    folder.run("graph.yaml --duration 50ms").expect(2, "", "error[E0161]");
    folder.run("check graph.yaml").expect(2, "", "--allow-public");
    let viewed = |listen: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: synthetic, config: {{ pattern: counter, count: 1 }} }}\n  \
             b: {{ kind: foxglove, from: a, config: {{ listen: {listen} }} }}\n"
        )
    };
    let folder = Folder::with("viewed", &viewed(&format!("'0.0.0.0:{port}'")));
    folder.run("check graph.yaml").expect(2, "", "--allow-public");
    folder.run("check graph.yaml --allow-public").expect(0, "", "");
    Folder::with("viewed-here", &viewed(&port)).run("check graph.yaml").expect(0, "", "");
}

/// S1: threads that wait, for anything, leave the cores to others.
#[test]
fn waiting_threads_do_not_spin() {
    let graph = "
version: 1
nodes:
  in: { kind: stdin }
  server: { kind: tcp, config: { listen: PORT1 } }
  client: { kind: tcp, config: { connect: PORT2 } }
  datagrams: { kind: udp, config: { listen: PORT1 } }
  a: { kind: 'null', from: in }
  b: { kind: 'null', from: server }
  c: { kind: 'null', from: client }
  d: { kind: 'null', from: datagrams }
";
    let ports = [tcp_port(), tcp_port()];
    let graph = graph.replace("PORT1", &ports[0].to_string()).replace("PORT2", &ports[1].to_string());
    let folder = Folder::with("waits", &graph);
    let program = folder.command("");
    let script = format!("{} graph.yaml -q --duration 2s; times", program.get_program().to_str().unwrap());
    let mut command = Command::new("sh");
    let mut child = command
        .arg("-c")
        .arg(script)
        .current_dir(&folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    let ran = Ran::from(child.wait_with_output().unwrap());
    drop(open);
    // The shell's own times, then those of its children: `0m0.012s 0m0.004s`.
    let times = ran.out.lines().last().unwrap_or_default().to_string();
    let seconds = |text: &str| -> f64 {
        let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    let busy: f64 = times.split_whitespace().map(seconds).sum();
    // The start takes some of it; one spinning thread would take 2 s.
    assert!(busy < 1.0, "{times}");
}

/// Promise (descriptors): A datagram that waited while the process was frozen misses its deadline.
///
/// A process that is stopped for 250 ms while a sensor sends at 1 kHz misses its deadlines of 50
/// ms, and counts them.
#[test]
fn a_frozen_process_counts_missed_deadlines() {
    let graph = "
version: 1
nodes:
  imu: { kind: udp, config: { listen: PORT } }
  out: { kind: udp, config: { to: BACK }, from: imu }
paths: [{ from: imu, to: out, deadline: 50ms, on_miss: count }]
";
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let port = udp_port();
    let graph = graph.replace("PORT", &port.to_string());
    let graph = graph.replace("BACK", &far.local_addr().unwrap().port().to_string());
    let folder = Folder::with("frozen", &graph);
    let child = folder.command("graph.yaml --json").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let send = || far.send_to(b"x", ("127.0.0.1", port)).unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    let is_answered = || far.recv(&mut [0; 8]).is_ok();
    while !is_answered() {
        send();
        assert!(Instant::now() < end, "the graph does not listen");
    }
    while is_answered() {}
    let kill = |signal: &str| {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    };
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().chars().next()
    };
    kill("-STOP");
    while state() != Some('T') {
        std::thread::yield_now();
    }
    // The sensor's pace, and 50 ms more, so that the last message is late too.
    for _ in 0..250 {
        send();
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    kill("-CONT");
    // What is late is sent, too.
    let mut answers = 0;
    while answers < 150 {
        answers += u32::from(is_answered());
        assert!(Instant::now() < end, "{answers} messages after it continues");
    }
    kill("-TERM");
    let ran = Ran::from(child.wait_with_output().unwrap());
    let json = ran.json();
    let metrics =
        json["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "imu").unwrap()["metrics"].clone();
    let missed = json["paths"][0]["late"].as_u64_or_whole();
    let overrun = metrics["overrun"].as_u64_or_whole();
    assert!(
        missed + overrun + metrics["stopped"].as_u64_or_whole() >= 250 && missed > 100,
        "{missed} missed, {metrics}"
    );
}

/// N2: without a free file descriptor the listener waits for one, and then accepts new peers.
#[test]
fn a_listener_recovers_from_exhausted_file_descriptors() {
    let graph = "
version: 1
nodes:
  in: { kind: tcp, config: { listen: PORT, max_connections: 64 } }
  out: { kind: stdout, from: in }
";
    let port = tcp_port();
    let folder = Folder::with("descriptors", &graph.replace("PORT", &port.to_string()));
    let mut command = folder.command_after("ulimit -n 30", "graph.yaml -q --duration 60s");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let connect = || loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) if Instant::now() >= end => panic!("the graph does not listen: {error}"),
            Err(_) => std::thread::yield_now(),
        }
    };
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut first = connect();
    let many: Vec<TcpStream> = (0..60).map(|_| connect()).collect();
    // Earlier peers are served, and so are those that connect when others have gone.
    first.write_all(b"first\n").unwrap();
    out.read_line(&mut line).unwrap();
    drop(many);
    connect().write_all(b"last\n").unwrap();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "first\nlast\n");
    child.kill().unwrap();
    child.wait().unwrap();
}
