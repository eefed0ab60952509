//! Why slow messages were slow: each cause is planted, and the report names it.
//!
//! A test binary of its own, and one test at a time: other load would preempt what is to be seen.

#![allow(clippy::disallowed_methods, reason = "files of the system")]

use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source, Transform,
};
use limen::report::{TailCause, TailCauseReport, TailReport};
use limen::{Message, Options, Plan, Report, Spec, Tensor, Time};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::OpenOptions;
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Held by the running test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers at a fixed rate, with a pause now and then.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct BeatConfig {
    count: u64,
    period_us: u64,
    #[serde(default)]
    pause_every: Option<u64>,
    #[serde(default)]
    pause_ms: u64,
}

#[derive(Debug)]
struct Beat {
    config: BeatConfig,
    next: u64,
    due: Time,
}

impl Node for Beat {
    type Config = BeatConfig;
    fn ports(_: &BeatConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::U64, [])))
    }
    fn build(config: BeatConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Beat { config, next: 0, due: cx.now() })
    }
}

impl Source for Beat {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.next == self.config.count {
            return Ok(Next::Done);
        }
        if self.due > out.now() {
            return Ok(Next::At(self.due));
        }
        let header = out.header(self.due);
        let mut tensor = out.loan(&header)?;
        tensor.as_mut_slice::<u64>()?[0] = self.next;
        out.send(tensor);
        self.next += 1;
        let pauses = self.config.pause_every.is_some_and(|every| self.next.is_multiple_of(every));
        let pause = if pauses { self.config.pause_ms * 1_000_000 } else { 0 };
        self.due = self.due + (self.config.period_us * 1000 + pause);
        Ok(Next::More)
    }
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Plant {
    /// Every call computes for about as long.
    Nothing,
    /// It computes for long.
    Compute,
    /// It touches memory for the first time.
    Touch,
    /// It waits in the kernel until another thread answers.
    Block,
    /// It computes for long after a pause.
    Pause,
    /// It writes to a disk that is full.
    FullDisk,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct PlantedConfig {
    plant: Plant,
    every: u64,
    /// Steps of a computation that every call makes.
    #[serde(default)]
    steps: u64,
}

/// Passes messages on; some of its calls are slow.
#[derive(Debug)]
struct Planted {
    config: PlantedConfig,
    calls: u64,
    last: Option<Instant>,
    peer: UnixStream,
}

impl Node for Planted {
    type Config = PlantedConfig;
    fn ports(_: &PlantedConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let number = || PortSpec::fixed(DType::U64, []);
        Ok(Ports::new().input("in", number()).output("out", number()).cost(Cost::Heavy))
    }
    fn build(config: PlantedConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let (peer, mut far) = UnixStream::pair().map_err(NodeError::other)?;
        std::thread::spawn(move || {
            while far.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                let _ = far.write_all(&[0]);
            }
        });
        Ok(Planted { config, calls: 0, last: None, peer })
    }
}

/// Keeps the CPU busy until this thread has used it for so long.
fn compute_for(time: Duration) {
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).expect("Linux has this clock");
    let begun = used();
    while used() - begun < time {
        spin_loop();
    }
}

impl Transform for Planted {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, message: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        black_box((0..self.config.steps).fold(self.calls, |sum, step| black_box(sum.rotate_left(5) ^ step)));
        self.calls += 1;
        let is_due = self.calls.is_multiple_of(self.config.every);
        match self.config.plant {
            Plant::Compute if is_due => compute_for(Duration::from_millis(20)),
            Plant::Touch if is_due => {
                // Beyond the sizes that an allocator keeps for later.
                let mut pages = vec![0_u8; 34 << 20];
                pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
                black_box(&pages);
            }
            Plant::Block if is_due => {
                self.peer.write_all(&[0]).map_err(NodeError::other)?;
                self.peer.read_exact(&mut [0]).map_err(NodeError::other)?;
            }
            Plant::Pause if self.last.is_some_and(|last| last.elapsed() > Duration::from_millis(60)) => {
                compute_for(Duration::from_millis(20));
            }
            Plant::FullDisk if is_due => {
                // Linux's disk that is always full.
                let mut disk = OpenOptions::new().write(true).open("/dev/full").map_err(NodeError::other)?;
                disk.write_all(&[0]).map_err(NodeError::other)?;
            }
            _ => {}
        }
        self.last = Some(Instant::now());
        out.send(message);
        Ok(())
    }
}

fn run(graph: &str, cpus: Option<Vec<usize>>) -> Report {
    let registry = limen_tests::registry().source::<Beat>("beat").transform::<Planted>("planted");
    let options = Options { cpus, ..Options::default() };
    let plan = Plan::with_options(Spec::from_text(graph, "test.yaml").unwrap(), &registry, &options).unwrap();
    let mut running = plan.wire().unwrap().start().unwrap();
    assert!(running.wait_for(Duration::from_secs(60)), "{:?}", running.stats());
    running.wait()
}

/// The only path of a graph of one source and one sink.
fn tail(report: &Report) -> &TailReport {
    assert_eq!(report.tails.len(), 1, "{:?}", report.tails);
    &report.tails[0]
}

fn graph(beat: &str, planted: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: beat, config: {{ {beat} }} }}\n  \
         b: {{ kind: planted, config: {{ {planted} }}, from: {{ from: a, capacity: 1000 }} }}\n  \
         c: {{ kind: collect, from: {{ from: b, capacity: 1000 }} }}\n"
    )
}

/// Runs a graph until its tail is as expected, and returns that run's report: other load on the machine preempts calls, too, and may
/// outweigh what is planted.
///
/// # Panics
/// If it never is in four runs.
fn run_until(graph: &str, cpus: Option<&[usize]>, is_expected: impl Fn(&TailReport) -> bool) -> Report {
    let runs = (0..4).map(|_| run(graph, cpus.map(<[usize]>::to_vec)));
    let mut tails = Vec::new();
    for report in runs {
        if is_expected(tail(&report)) {
            return report;
        }
        tails.push(tail(&report).clone());
    }
    panic!("{graph}\n{tails:#?}");
}

#[test]
fn slow_calls_are_named_with_their_causes() {
    let _alone = alone();
    let steady = "count: 1500, period_us: 1000";
    for (beat, plant, expected) in [
        (steady, "compute", TailCause::Compute),
        (steady, "touch", TailCause::PageFault),
        (steady, "block", TailCause::Blocked),
        ("count: 1500, period_us: 500, pause_every: 125, pause_ms: 80", "pause", TailCause::Cold),
    ] {
        run_until(&graph(beat, &format!("plant: {plant}, every: 125")), None, |tail| {
            tail.causes.iter().any(|cause| {
                let is_planted = cause.cause == expected && cause.node.as_deref() == Some("b");
                is_planted && cause.messages >= 3 && cause.longest >= tail.limit && !cause.excess.is_zero()
            })
        });
    }
}

#[test]
fn a_cold_model_is_told_from_a_slow_one() {
    let _alone = alone();
    let graph = "version: 1\nnodes:\n  \
        a: { kind: beat, config: { count: 1500, period_us: 500, pause_every: 125, pause_ms: 80 } }\n  \
        b: { kind: tally, config: { cold_after_ms: 60 }, from: { from: a, capacity: 1000 } }\n  \
        c: { kind: collect, from: { from: b, capacity: 1000 } }\n";
    run_until(graph, None, |tail| {
        tail.causes
            .iter()
            .any(|cause| cause.cause == TailCause::Cold && cause.node.as_deref() == Some("b") && cause.messages >= 3)
    });
}

#[test]
fn a_slow_consumer_is_named_by_those_that_wait_for_it() {
    let _alone = alone();
    // All calls are as long, and longer than the period: nothing is unusual but the wait.
    // The source is late if it shares the worker.
    run_until(&graph("count: 1500, period_us: 100", "plant: nothing, every: 1, steps: 20000"), None, |tail| {
        let first = tail.causes.first();
        first.is_some_and(|cause| cause.cause == TailCause::Queued && cause.behind.as_deref() == Some("b"))
    });
}

/// Threads that take a CPU away now and then, until dropped.
struct Rivals(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Rivals {
    fn on(cpu: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let rival = |_| {
            let over = is_over.clone();
            std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu).expect("a CPU of this machine");
                sched_setaffinity(Pid::from_raw(0), &only).expect("it is allowed");
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(400));
                    compute_for(Duration::from_millis(15));
                }
            })
        };
        let threads = (0..3).map(rival).collect();
        Rivals(is_over, threads)
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| _ = thread.join());
    }
}

#[test]
fn a_preempted_call_is_told_from_a_long_one() {
    let _alone = alone();
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("Linux says it");
    let cpu = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap_or(false)).expect("there is one");
    let _rivals = Rivals::on(cpu);
    // A call computes for a few milliseconds of each ten.
    run_until(
        &graph("count: 200, period_us: 10000", "plant: nothing, every: 1, steps: 200000"),
        Some(&[cpu]),
        |tail| {
            tail.causes.iter().any(|cause| cause.cause == TailCause::Preempted && cause.node.as_deref() == Some("b"))
        },
    );
}

#[test]
fn messages_that_wait_while_a_node_restarts_name_it_and_events_name_the_full_disk() {
    let _alone = alone();
    let planted = "plant: full_disk, every: 600";
    let text = graph("count: 1500, period_us: 1000", planted)
        .replace("  b: {", "  b: { on_error: { restart: { max: 9, backoff: 40ms } },");
    let report = run_until(&text, None, |tail| {
        tail.causes.iter().any(|cause| {
            cause.cause == TailCause::Restarted && cause.node.as_deref() == Some("b") && cause.messages >= 3
        })
    });
    let failures: Vec<_> = report.failures.iter().map(|failure| (&*failure.node, &*failure.text)).collect();
    assert!(
        failures.iter().all(|(node, text)| *node == "b" && text.contains("No space left on device")),
        "{failures:?}"
    );
    assert_eq!(failures.len(), 2);
}

/// A control group with a CPU quota, which this process joined; it leaves when this is dropped.
struct Quota {
    group: PathBuf,
    parent: PathBuf,
}

impl Quota {
    /// Twelve of every hundred milliseconds. `None` if this process may make no such group.
    fn new() -> Option<Self> {
        let name = format!("limen-tails-{}", std::process::id());
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let below = |root: &str, path: &str| PathBuf::from(format!("{root}{path}"));
        let parents = own.lines().filter_map(|line| match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [_, "cpu" | "cpu,cpuacct" | "cpuacct,cpu", path] => Some(below("/sys/fs/cgroup/cpu", path)),
            ["0", "", path] => Some(below("/sys/fs/cgroup", path)),
            _ => None,
        });
        let make = |parent: PathBuf| {
            let quota = Quota { group: parent.join(&name), parent };
            std::fs::create_dir(&quota.group).ok()?;
            let write = |file: &str, text: &str| {
                OpenOptions::new().write(true).open(quota.group.join(file))?.write_all(text.as_bytes())
            };
            let limited = match quota.group.join("cpu.max").exists() {
                true => write("cpu.max", "12000 100000"),
                false => write("cpu.cfs_period_us", "100000").and_then(|()| write("cpu.cfs_quota_us", "12000")),
            };
            limited.and_then(|()| write("cgroup.procs", &std::process::id().to_string())).ok()?;
            Some(quota)
        };
        parents.filter_map(make).next()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = std::fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.group);
    }
}

#[test]
fn a_used_up_cpu_quota_is_named() {
    let _alone = alone();
    let Some(_quota) = Quota::new() else {
        println!("skipped: this user may make no control group with a CPU quota");
        return;
    };
    let report = run_until(&graph("count: 1500, period_us: 2000", "plant: compute, every: 250"), None, |tail| {
        let by_quota = |cause: &&TailCauseReport| cause.cause == TailCause::Quota && cause.node.as_deref() == Some("b");
        tail.causes.iter().filter(by_quota).map(|cause| cause.messages).sum::<u64>() >= 3
    });
    assert!(report.notes.iter().any(|note| note.contains("quota")), "{:?}", report.notes);
}

#[test]
fn a_run_of_few_messages_explains_none() {
    let _alone = alone();
    let report = run(&graph("count: 19, period_us: 100", "plant: compute, every: 3"), None);
    assert!(report.tails.is_empty(), "{:?}", report.tails);
}
