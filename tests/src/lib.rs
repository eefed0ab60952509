//! For tests of whole graphs: kinds of nodes, ways to run a graph given as text, and files that
//! graphs read.

#![forbid(unsafe_code)]

pub mod cost;
pub mod files;
pub mod fuzz;
mod nodes;
pub mod protobuf;
pub mod random;
pub mod recorded;
mod tally;

use limen::report::Reason;
use limen::{Clock, Driven, Event, Plan, Problems, Registry, Report, Running, SimulatedClock, Spec, Time, Turned};
use nodes::{Add, Collect, Fault, FaultSink, Hasty, Numbers, Pair, Sized, Split, Step, Trail};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Adds the stock nodes of all crates.
pub fn stock_nodes(registry: Registry) -> Registry {
    registry
        .with(limen_nodes_core::register)
        .with(limen_codec::register)
        .with(limen_devices::register)
        .with(limen_recording::register)
        .with(limen_signal::register)
        .with(limen_vision::register)
}

/// Returns a registry with the stock kinds and every kind for tests.
pub fn registry() -> Registry {
    Registry::new()
        .with(stock_nodes)
        .source::<Numbers>("numbers")
        .transform::<Step>("step")
        .transform::<Fault>("fault")
        .sink::<FaultSink>("fault_sink")
        .transform::<Split>("split")
        .transform::<Pair>("pair")
        .transform::<Add>("add")
        .transform::<Sized>("sized")
        .transform::<Hasty>("hasty")
        .sink::<Collect>("collect")
        .sink::<Trail>("trail")
        .infer::<tally::Tally>("tally")
        .with(limen_infer::register)
        .with(limen_gpu::register)
}

/// Plans a graph given as text.
///
/// # Errors
/// Every problem of the graph.
pub fn plan(text: &str) -> Result<Plan, Problems> {
    Plan::new(Spec::from_text(text, "test.yaml")?, &registry())
}

/// Drives a graph with a simulated clock until a time or its end. Returns its events and the graph.
///
/// # Panics
/// When the graph cannot be started.
pub fn drive(plan: Plan, until: Duration) -> (Vec<Event>, Driven) {
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let end = clock.now() + u64::try_from(until.as_nanos()).expect("a time within the clock");
    let driven = plan.wire().and_then(|wired| wired.drive(Clock::Simulated(clock.clone())));
    let mut driven = driven.unwrap_or_else(|error| panic!("{error}"));
    (drive_on(&mut driven, &clock, end), driven)
}

/// Drives a graph on until a time of its clock or its end. Returns the events since.
pub fn drive_on(driven: &mut Driven, clock: &SimulatedClock, end: Time) -> Vec<Event> {
    let mut events = Vec::new();
    while clock.now() < end {
        match driven.turn() {
            Turned::Worked => clock.advance(1_000),
            Turned::Idle(time) => clock.advance_to(time.min(end).max(clock.now() + 1_000)),
            Turned::Ended => break,
        }
        events.extend(driven.events());
    }
    events
}

/// How long a test waits for what must happen. Beside other load a machine is many times slower.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a TCP port that is free at the moment.
pub fn tcp_port() -> u16 {
    port(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
}

/// Returns a UDP port that is free at the moment.
pub fn udp_port() -> u16 {
    port(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok())
}

/// Returns a port that no test of this process has had. The kernel gives ports from 32768 on to
/// sockets that ask for any, and soon gives a closed one's again.
fn port(is_free: impl Fn(u16) -> bool) -> u16 {
    const PORTS: std::ops::Range<u32> = 10_000..32_768;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other processes of tests begin elsewhere.
    let first = std::process::id() * 64;
    let ports = || PORTS.start + first.wrapping_add(NEXT.fetch_add(1, Relaxed)) % PORTS.len() as u32;
    std::iter::repeat_with(|| ports() as u16).find(|port| is_free(*port)).expect("repeats forever")
}

/// Returns a metric of a report, which may lack it.
pub fn figure(report: &Report, name: &str) -> f64 {
    report.metric(name).unwrap_or(f64::NAN)
}

/// Returns how many messages all edges lost for a reason.
pub fn lost(report: &Report, reason: Reason) -> u64 {
    let all = report.edges.iter().flat_map(|edge| &edge.lost);
    all.filter(|(found, _)| *found == reason).map(|(_, n)| n).sum()
}

/// Returns a command that starts a program in a folder, without input and without `LIMEN_*`
/// variables.
pub fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LIMEN_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a graph, given as text, until it ends by itself.
///
/// # Panics
/// When it cannot be planned or started, or has not ended after [`PATIENCE`].
pub fn run(text: &str) -> Report {
    let plan = plan(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    finished(plan.wire().expect("wires").start().expect("starts"))
}

/// Waits for the end of a run, and returns its report.
///
/// # Panics
/// When the run has not ended after [`PATIENCE`].
#[track_caller]
pub fn finished(mut running: Running) -> Report {
    assert!(running.wait_for(PATIENCE), "no end after {PATIENCE:?}: {:?}", running.stats());
    running.wait()
}

/// Simulates a graph, given as text, until it ends by itself; `seed` decides the order of turns.
///
/// # Panics
/// When it cannot be planned or does not end.
pub fn turn(text: &str, seed: u64) -> Report {
    let plan = plan(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let simulation = plan.wire().expect("wires").simulate(seed).expect("builds");
    simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("{stuck}\n{text}"))
}
