//! Why slow messages were slow: what the report says whatever else the machine does. Tables in
//! `exec/outlier.rs` and `run/tails.rs` judge the causes.
//!
//! A test binary of its own, and one test at a time: one of them joins a control group.

#![allow(clippy::disallowed_methods, reason = "files of the system")]

use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source, Transform,
};
use limen::report::{TailCause, TailCauseReport, TailReport};
use limen::{Message, Plan, Report, Spec, Tensor, Time};
use nix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::OpenOptions;
use std::hint::spin_loop;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Held by the running test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers at a fixed rate.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct BeatConfig {
    count: u64,
    period_us: u64,
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
        self.due = self.due + self.config.period_us * 1000;
        Ok(Next::More)
    }
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Plant {
    /// It computes for long.
    Compute,
    /// It writes to a disk that is full.
    FullDisk,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct PlantedConfig {
    plant: Plant,
    every: u64,
}

/// Passes messages on; some of its calls are slow.
#[derive(Debug)]
struct Planted {
    config: PlantedConfig,
    calls: u64,
}

impl Node for Planted {
    type Config = PlantedConfig;
    fn ports(_: &PlantedConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let number = || PortSpec::fixed(DType::U64, []);
        Ok(Ports::new().input("in", number()).output("out", number()).cost(Cost::Heavy))
    }
    fn build(config: PlantedConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Planted { config, calls: 0 })
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
        self.calls += 1;
        if self.calls.is_multiple_of(self.config.every) {
            match self.config.plant {
                Plant::Compute => compute_for(Duration::from_millis(10)),
                Plant::FullDisk => {
                    // Linux's disk that is always full.
                    let mut disk = OpenOptions::new().write(true).open("/dev/full").map_err(NodeError::other)?;
                    disk.write_all(&[0]).map_err(NodeError::other)?;
                }
            }
        }
        out.send(message);
        Ok(())
    }
}

/// Runs a graph; `begin` is called once it is planned.
fn run<T>(graph: &str, begin: impl FnOnce() -> T) -> Report {
    let registry = limen_tests::registry().source::<Beat>("beat").transform::<Planted>("planted");
    let plan = Plan::new(Spec::from_text(graph, "test.yaml").unwrap(), &registry).unwrap();
    let _begun = begin();
    limen_tests::finished(plan.wire().unwrap().start().unwrap())
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

#[test]
fn the_slowest_messages_are_counted_by_cause() {
    let _alone = alone();
    let report = run(&graph("count: 1500, period_us: 1000", "plant: compute, every: 125"), || ());
    let tail = tail(&report);
    // Ten of 1500, but for those that share a bucket of the histogram.
    assert!((1..=10).contains(&tail.beyond) && (1..=tail.beyond).contains(&tail.judged), "{tail:?}");
    assert_eq!(tail.causes.iter().map(|cause| cause.messages).sum::<u64>(), tail.judged, "{tail:?}");
    for cause in &tail.causes {
        assert!(cause.longest > tail.limit && cause.messages > 0, "{cause:?}");
        assert_eq!(cause.node.is_none(), cause.cause == TailCause::Unexplained, "{cause:?}");
        assert!(cause.behind.is_none() || cause.cause == TailCause::Queued, "{cause:?}");
    }
    assert!(tail.causes.is_sorted_by(|one, next| one.excess >= next.excess), "{tail:?}");
}

#[test]
fn a_node_that_failed_names_the_full_disk_after_its_restart() {
    let _alone = alone();
    let text = graph("count: 1500, period_us: 1000", "plant: full_disk, every: 600")
        .replace("  b: {", "  b: { on_error: { restart: { max: 9, backoff: 40ms } },");
    let report = run(&text, || ());
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
    /// Three of every hundred milliseconds, fewer than a busy machine leaves to a process. `None`
    /// if this process may make no such group.
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
                true => write("cpu.max", "3000 100000"),
                false => write("cpu.cfs_period_us", "100000").and_then(|()| write("cpu.cfs_quota_us", "3000")),
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
    let mut quota = None;
    // Each slow call takes four periods of the quota, and ends before the next.
    let report = run(&graph("count: 120, period_us: 20000", "plant: compute, every: 25"), || {
        quota = Quota::new();
    });
    if quota.is_none() {
        println!("skipped: this user may make no control group with a CPU quota");
        return;
    }
    let by_quota = |cause: &TailCauseReport| cause.cause == TailCause::Quota && cause.node.as_deref() == Some("b");
    let tail = tail(&report);
    assert!(tail.causes.iter().any(by_quota), "{tail:?}");
    assert!(report.notes.iter().any(|note| note.contains("quota")), "{:?}", report.notes);
}

#[test]
fn a_run_of_few_messages_explains_none() {
    let _alone = alone();
    let report = run(&graph("count: 19, period_us: 100", "plant: compute, every: 3"), || ());
    assert!(report.tails.is_empty(), "{:?}", report.tails);
}
