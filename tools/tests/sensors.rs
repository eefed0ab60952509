//! The page about failing sensors quotes what the program prints: the sensors of its graph fail one
//! after the other, and every quoted line comes.

use crate::program::Folder;
use limen_tests::{tcp_port, udp_port};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a line may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn page() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sensors.md");
    std::fs::read_to_string(docs).unwrap()
}

/// A line without what differs between runs: when it was printed, numbers, units of time, plurals.
pub(crate) fn masked(line: &str) -> String {
    let stamp = |word: &&str| word.len() == 24 && word.ends_with('Z');
    let line = line.split_once(' ').filter(|(first, _)| stamp(first)).map_or(line, |(_, rest)| rest);
    let mut masked = String::new();
    for word in line.split(' ') {
        let begins = word.trim_start_matches(['(', '"']).starts_with(|c: char| c.is_ascii_digit());
        let is_unit = ["ns", "µs", "ms", "s"].contains(&word.trim_end_matches([';', ':', ')']));
        match word {
            "messages" => masked.push_str("message"),
            "calls" => masked.push_str("call"),
            _ if begins => masked.push('#'),
            _ if is_unit => masked.push('s'),
            word => masked.extend(word.chars().map(|c| if c.is_ascii_digit() { '#' } else { c })),
        }
        masked.push(' ');
    }
    masked.trim_end().to_string()
}

/// The lines that the page quotes in a section.
pub(crate) fn quoted(section: &str) -> BTreeSet<String> {
    let page = page();
    let section = page.split("\n## ").find(|part| part.starts_with(section)).unwrap_or_else(|| panic!("{section}"));
    let block = section.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    block.lines().map(masked).collect()
}

/// Two ports that are free.
fn ports() -> (u16, u16) {
    let udp = udp_port();
    let tcp = tcp_port();
    (udp, tcp)
}

/// The sensors: a camera with ten pictures a second, and an IMU with fifty packets.
struct Sensors {
    /// What is wrong: [`GOOD`], [`CUT_PICTURES`] or [`CUT_PACKETS`].
    fault: Arc<AtomicU8>,
    listener: Arc<Mutex<Option<TcpListener>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

const GOOD: u8 = 0;
const CUT_PICTURES: u8 = 1;
const CUT_PACKETS: u8 = 2;

impl Sensors {
    fn start(imu: u16) -> Self {
        let (fault, is_over) = (Arc::new(AtomicU8::new(GOOD)), Arc::new(AtomicBool::new(false)));
        let listener: Arc<Mutex<Option<TcpListener>>> = Arc::default();
        let packets = {
            let (fault, is_over) = (fault.clone(), is_over.clone());
            move || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                for n in 0_u64.. {
                    let packet = format!("{{\"stamp\": {n}, \"gyro\": [0.1, 0.2, 0.3]}}");
                    let cut = if fault.load(Ordering::Relaxed) == CUT_PACKETS { 9 } else { packet.len() };
                    // A port without a listener refuses.
                    let _ = socket.send_to(&packet.as_bytes()[..cut], ("127.0.0.1", imu));
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        let pictures = {
            let (fault, is_over, listener) = (fault.clone(), is_over.clone(), listener.clone());
            let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds/12x9.jpg");
            let picture = std::fs::read(picture).unwrap();
            move || {
                let mut open = None;
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                    let listener = listener.lock().unwrap();
                    let Some(listener) = &*listener else {
                        open = None;
                        continue;
                    };
                    if open.is_none() {
                        open = listener.accept().ok().map(|(stream, _)| stream);
                    }
                    let cut =
                        if fault.load(Ordering::Relaxed) == CUT_PICTURES { picture.len() / 2 } else { picture.len() };
                    let message = [&(cut as u32).to_be_bytes()[..], &picture[..cut]].concat();
                    if let Some(stream) = &mut open {
                        let _ = stream.write_all(&message);
                    }
                }
            }
        };
        let threads = vec![std::thread::spawn(packets), std::thread::spawn(pictures)];
        Sensors { fault, listener, is_over, threads }
    }

    fn open_camera(&self, port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        *self.listener.lock().unwrap() = Some(listener);
    }

    fn close_camera(&self) {
        *self.listener.lock().unwrap() = None;
    }
}

impl Drop for Sensors {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A run of the page's graph, and the lines that it prints.
struct Run {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Run {
    fn start(folder: &Folder, words: &str) -> Self {
        let mut command = folder.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let err = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || err.lines().map_while(Result::ok).for_each(|line| _ = to.send(line)));
        Run { child, lines, seen: Vec::new() }
    }

    /// Waits until every line that the page quotes in a section was printed.
    fn expect(&mut self, section: &str) {
        let mut missing = quoted(section);
        let end = Instant::now() + PATIENCE;
        while !missing.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("{section}: {missing:#?} did not come, but\n{}", self.seen.join("\n"));
            };
            missing.remove(&masked(&line));
            self.seen.push(line);
        }
    }

    /// Stops it and returns its report.
    fn stop(self) -> String {
        use nix::sys::signal::{Signal, kill};
        kill(nix::unistd::Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        // The pipe is read to its end.
        let lines = std::thread::spawn(move || self.lines.iter().count());
        let output = self.child.wait_with_output().unwrap();
        lines.join().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The page's graph with other ports.
fn folder(imu: u16, camera: u16) -> Folder {
    let page = page();
    let graph = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    Folder::with("sensors", &graph.replace("9001", &imu.to_string()).replace("9002", &camera.to_string()))
}

#[test]
fn every_line_of_the_page_is_printed_when_sensors_fail() {
    let (imu, camera) = ports();
    let folder = folder(imu, camera);
    let sensors = Sensors::start(imu);
    let mut run = Run::start(&folder, "graph.yaml");
    run.expect("Missing sensor");
    sensors.open_camera(camera);
    run.expect("New or returning sensor");
    sensors.fault.store(CUT_PICTURES, Ordering::Relaxed);
    run.expect("Damaged pictures");
    sensors.fault.store(CUT_PACKETS, Ordering::Relaxed);
    run.expect("Malformed packets");
    sensors.close_camera();
    run.expect("Closed connection");
    let report = run.stop();
    // Lines of notes may be wrapped.
    let words = |text: &str| masked(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    for line in quoted("The end of the run") {
        assert!(words(&report).contains(&line), "{line} is not in\n{report}");
    }
}

#[test]
fn every_line_of_the_page_is_printed_when_a_node_is_slow() {
    let (imu, camera) = ports();
    let folder = folder(imu, camera);
    let sensors = Sensors::start(imu);
    sensors.open_camera(camera);
    let mut run = Run::start(&folder, "graph.yaml --set nodes.small.fault.delay=300ms");
    run.expect("Slow node");
    run.stop();
}
