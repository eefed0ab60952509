//! Statistics of the last window: recent figures of nodes and paths, and the queue depth of edges.

use limen::message::Message;
use limen::node::{Building, Connected, Node, NodeError, PlanErrors, Planning, Ports, RunStats, Sink, Statistics};
use limen::run::{IntervalReport, StatisticsWindow};
use limen::{Clock, Plan, SimulatedClock, Spec, Tensor, Time, Turned};
use limen_tests::{drive_on, plan, registry};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A number every millisecond, from another core.
const GRAPH: &str = "version: 1\nnodes:\n  a: { kind: numbers, core: 0, config: { period_ns: 1000000 } }\n  \
                     b: { kind: step, core: 1, from: { from: a, capacity: 16 }, fault: { delay: 200us } }\n  \
                     z: { kind: collect, core: 1, from: b }\nrun: { telemetry: full }\n";

/// Promise (measurements): The intervals of a histogram log add up to the report, except for the
/// last interval.
#[test]
fn intervals_add_up_to_the_report() {
    for (warmup, first) in [("", Duration::ZERO), (", warmup: 1500ms", Duration::from_millis(1000))] {
        let begin = Time(1_000_000_000);
        let clock = SimulatedClock::new(begin);
        let graph = GRAPH.replace("telemetry: full", &format!("telemetry: full{warmup}"));
        let mut driven = plan(&graph).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
        let mut all: Vec<IntervalReport> = driven.intervals();
        for second in 1..=6u64 {
            drive_on(&mut driven, &clock, begin + second * 1_100_000_000);
            all.extend(driven.intervals());
            drive_on(&mut driven, &clock, clock.now() + 10_000_000);
            all.extend(driven.intervals());
        }
        let report = driven.finish();
        for whole in &report.histograms {
            let tag = whole.tag();
            let of_tag: Vec<&IntervalReport> = all.iter().filter(|one| one.histogram.tag() == tag).collect();
            let (mut sum, mut next) = (0, first);
            for one in &of_tag {
                assert!(one.begin >= next, "{tag}: {one:?} before {next:?}");
                next = one.begin + one.length;
                sum += one.histogram.recorded.histogram.len();
            }
            // At most the messages since the last interval are missing.
            let rest =
                whole.recorded.histogram.len().checked_sub(sum).unwrap_or_else(|| panic!("{tag}: {sum} is too many"));
            assert!(rest <= 1_200, "{tag}: {rest} of {}", whole.recorded.histogram.len());
            if tag == "b.compute" {
                assert!(of_tag.len() >= 4, "{tag}: {} intervals", of_tag.len());
            }
        }
    }
}

/// Promise (measurements): A measurement window counts exactly the events within it, and each
/// message belongs to one window.
#[test]
fn a_window_counts_only_its_own_messages() {
    let begin = Time(1_000_000_000);
    let clock = SimulatedClock::new(begin);
    let mut driven = plan(GRAPH).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    // There is no window yet.
    assert!(driven.stats().iter().all(|node| node.compute.is_none()) && driven.path_stats().is_empty());
    let (mut counted, mut looked) = (0, Duration::ZERO);
    for second in 1..=5u64 {
        drive_on(&mut driven, &clock, begin + second * 1_100_000_000);
        // Requested, handed over in the next turns, and collected.
        driven.stats();
        drive_on(&mut driven, &clock, clock.now() + 10_000_000);
        let stats = driven.stats();
        let StatisticsWindow { within, count, p50, p99, max, .. } = stats[1].compute.unwrap();
        if second > 1 {
            assert!((1_050..1_150).contains(&within.as_millis()), "{second}: {within:?}");
            assert!((1_050..1_150).contains(&count), "{second}: {count}");
            for of in [p50, p99, max] {
                assert!((195_000..=210_000).contains(&of.unwrap()), "{second}: {stats:?}");
            }
            let path = &driven.path_stats()[0];
            assert_eq!((path.from.as_str(), path.to.as_str()), ("a", "z"));
            assert!((200_000..400_000).contains(&path.latency.p50.unwrap()), "{path:?}");
            assert!(path.latency.count.abs_diff(count) <= 1, "{path:?}");
        }
        counted += count;
        looked += within;
    }
    // Every message is in exactly one window.
    let stats = driven.stats();
    assert!((0..=12).contains(&(stats[1].done - counted)), "{} {counted}", stats[1].done);
    assert!(looked <= Duration::from_nanos(clock.now().since(begin)), "{looked:?}");
    // Without a new request the last window stays.
    assert_eq!(stats[1].compute.unwrap().count, driven.stats()[1].compute.unwrap().count);
}

/// Promise (measurements): An edge reports its current queue depth and its peak depth.
#[test]
fn an_edge_reports_its_current_and_peak_depth() {
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let graph = GRAPH.replace("delay: 200us", "delay: 5ms");
    let mut driven = plan(&graph).unwrap().wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    drive_on(&mut driven, &clock, Time(1_200_000_000));
    let edges = driven.edge_stats();
    let names = (edges[0].from.as_str(), edges[0].to.as_str(), edges[0].capacity);
    assert_eq!(names, ("a/out", "b/in", 16));
    // Five messages arrive for each that leaves, until the edge is full; a number is eight bytes.
    assert!((8..=16).contains(&edges[0].depth), "{edges:?}");
    assert_eq!(edges[0].bytes, Some(8 * edges[0].depth));
    // Every call of `stats` samples the depth.
    assert_eq!(driven.events().count(), 0);
    driven.stopper().stop();
    while driven.turn() != Turned::Ended {}
    // The peak depth is kept until it is read.
    let edges = driven.edge_stats();
    assert_eq!((edges[0].depth, edges[0].peak_depth > 0), (0, true), "{edges:?}");
    assert_eq!(driven.edge_stats()[0].peak_depth, 0);
}

/// Promise (measurements): Sleeping, busy and ended workers all hand over their histograms.
#[test]
fn workers_hand_over_histograms_in_every_state() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, core: 0 }\n  b: { kind: step, core: 0, from: a }\n  \
                 c: { kind: collect, core: 0, from: b }\n  d: { kind: numbers, core: 1, config: { count: 50 } }\n  \
                 e: { kind: collect, core: 1, from: d }\n  s: { kind: numbers, core: 1, config: { period_ns: 300000000 } }\n  \
                 t: { kind: collect, core: 1, from: s }\nrun: { telemetry: full }\n";
    let running = plan(graph).unwrap().wire().unwrap().start().unwrap();
    let begin = Instant::now();
    let is_there = |node: &str| {
        let stats = running.stats();
        let node = stats.iter().find(|stats| stats.node == node).unwrap();
        node.compute.is_some_and(|window| window.count > 0)
    };
    for node in ["b", "e", "t"] {
        while !is_there(node) {
            assert!(begin.elapsed() < limen_tests::PATIENCE, "{node}: {:?}", running.stats());
            std::thread::yield_now();
        }
    }
    let report = running.stop(limen::Drain::within(limen_tests::PATIENCE));
    assert_eq!((report.bugs.len(), report.exit_code()), (0, 0));
    // Histograms that were copied still count in the report.
    let recorded = report.histogram("e", limen::report::Term::Compute).unwrap().histogram.len();
    assert_eq!(recorded, report.node("e").unwrap().done);
}

/// Reads the statistics of the run at every message, and keeps the last.
struct Reader {
    statistics: Statistics,
    read: Option<RunStats>,
}

/// What the last reader has read.
static READ: Mutex<Option<RunStats>> = Mutex::new(None);

impl Node for Reader {
    type Config = Empty;
    fn ports(_: &Empty, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(given.single().map_or(Ports::new().input_any("in"), |spec| Ports::new().input("in", spec.clone())))
    }
    fn build(_: Empty, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Reader { statistics: cx.statistics(), read: None })
    }
}

impl Sink for Reader {
    type In = Tensor;
    fn take(&mut self, _: Message<Tensor>) -> Result<(), NodeError> {
        self.read = self.statistics.read().or(self.read.take());
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        *READ.lock().unwrap() = self.read.take();
    }
}

/// No keys.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Empty {}

#[test]
fn a_node_reads_the_statistics_of_its_own_run() {
    let graph = GRAPH.replace("kind: collect, core: 1", "kind: reader, core: 1");
    let spec = Spec::from_text(&graph, "test.yaml").unwrap();
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let plan = Plan::new(spec, &registry().sink::<Reader>("reader")).unwrap();
    let mut driven = plan.wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
    drive_on(&mut driven, &clock, Time(4_500_000_000));
    let report = driven.finish();
    let read = READ.lock().unwrap().take().expect("the run has begun");
    let done: Vec<u64> = read.nodes.iter().map(|node| node.done).collect();
    assert!(done.iter().all(|done| (3_000..=3_600).contains(done)), "{done:?}");
    let compute = read.nodes[1].compute.expect("a window has ended");
    assert!(compute.p50.is_some_and(|p50| (195_000..=210_000).contains(&p50)), "{compute:?}");
    assert_eq!((read.paths.len(), read.paths[0].from.as_str(), read.paths[0].to.as_str()), (1, "a", "z"));
    assert!(read.paths[0].latency.count > 900, "{read:?}");
    assert_eq!((read.edges.len(), read.edges[0].capacity), (2, 16));
    assert_eq!(report.bugs, Vec::<String>::new());
}
