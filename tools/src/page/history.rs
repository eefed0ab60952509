//! What happened while a graph ran, in a memory that does not grow: quantiles of every interval,
//! queue depths of edges, how busy threads were.

use limen::report::{Counts, Recorded, Term};
use limen::run::{EdgeStats, IntervalReport};
use limen::{Event, Report, files};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// The most numbers of all series together.
const MAX_POINTS: usize = 24_000;
/// The fewest and the most points of a series.
const POINTS: (usize, usize) = (24, 240);
/// The most kinds of events, by kind and place, that are kept apart.
const MAX_EVENTS: usize = 200;
/// How often threads are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// A point of a series that takes in the points after it, once the series is full.
trait MergePoint: Copy {
    fn merge(&mut self, next: Self);
}

/// A series of at most so many points: when it is full, each two become one.
#[derive(Debug, Clone)]
struct Series<P> {
    points: Vec<P>,
    most: usize,
    /// How many values a point stands for, and how many the last one has.
    stride: usize,
    last: usize,
}

impl<P: MergePoint> Series<P> {
    fn new(most: usize) -> Self {
        Series { points: Vec::new(), most, stride: 1, last: 0 }
    }

    fn push(&mut self, point: P) {
        match self.points.last_mut() {
            Some(last) if self.last < self.stride => {
                last.merge(point);
                self.last += 1;
            }
            _ => {
                self.points.push(point);
                self.last = 1;
            }
        }
        if self.points.len() > self.most {
            let merged = self.points.chunks(2).map(|pair| {
                let mut first = pair[0];
                pair[1..].iter().for_each(|next| first.merge(*next));
                first
            });
            // An odd one at the end stands for as many as it has.
            let is_odd = self.points.len() % 2 == 1;
            let last = self.last + if is_odd { 0 } else { self.stride };
            (self.points, self.last, self.stride) = (merged.collect(), last, self.stride * 2);
        }
    }
}

/// Quantiles of an interval: its end in seconds, p50, p99, maximum in ns, and how many messages it
/// stands for. Of several intervals the worst.
#[derive(Debug, Clone, Copy, Serialize)]
struct Latency(f32, Option<u64>, Option<u64>, u64, u64);

impl MergePoint for Latency {
    fn merge(&mut self, next: Self) {
        *self = Latency(next.0, self.1.max(next.1), self.2.max(next.2), self.3.max(next.3), self.4 + next.4);
    }
}

/// The peak depth of an edge: the time in seconds, and the messages.
#[derive(Debug, Clone, Copy, Serialize)]
struct Depth(f32, u64);

impl MergePoint for Depth {
    fn merge(&mut self, next: Self) {
        *self = Depth(next.0, self.1.max(next.1));
    }
}

/// A thread: the time in seconds, the share of a CPU that it had, and the share of the time that it
/// waited for one.
#[derive(Debug, Clone, Copy, Serialize)]
struct Busy(f32, f32, f32);

impl MergePoint for Busy {
    fn merge(&mut self, next: Self) {
        // Of equally long times.
        *self = Busy(next.0, f32::midpoint(self.1, next.1), f32::midpoint(self.2, next.2));
    }
}

/// Events of one kind at one place.
#[derive(Debug, Clone, Serialize)]
struct Happened {
    #[serde(skip)]
    first: SystemTime,
    #[serde(skip)]
    last: SystemTime,
    kind: &'static str,
    #[serde(skip)]
    place: String,
    message: String,
    is_recovery: bool,
    count: u64,
}

#[derive(Debug)]
struct EdgeHistory {
    depth: Series<Depth>,
    sum: f64,
    samples: u64,
    peak_depth: u64,
}

/// The times of a thread by the kernel, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    at: Option<Instant>,
    on_cpu: u64,
    waiting: u64,
}

#[derive(Debug)]
struct ThreadHistory {
    name: String,
    busy: Series<Busy>,
    before: Spent,
    /// What it had and waited for in all, as shares of the time it was watched.
    had: f64,
    waited: f64,
    watched: f64,
}

/// What happened while a graph ran.
#[derive(Debug)]
pub(super) struct History {
    begun: Instant,
    most: usize,
    /// By tag: the series, and the sum of what is in it.
    latencies: BTreeMap<String, (Series<Latency>, Counts)>,
    edges: Vec<EdgeHistory>,
    threads: Vec<ThreadHistory>,
    looked: Option<Instant>,
    events: Vec<Happened>,
    more_events: u64,
}

/// The point of what was recorded up to a time.
fn point(end: f32, recorded: &Recorded) -> Latency {
    let (p50, p99) = (recorded.quantile(0.5), recorded.quantile(0.99));
    Latency(end, p50, p99, recorded.histogram.max(), recorded.histogram.len())
}

/// Which terms have a series.
fn is_followed(term: Term) -> bool {
    matches!(term, Term::EndToEnd | Term::Compute | Term::Queue)
}

impl History {
    /// Begins the history of a graph with so many edges, nodes and paths, and with threads of these
    /// names.
    pub(super) fn new(edges: usize, nodes: usize, paths: usize, threads: impl Iterator<Item = String>) -> Self {
        let series = (edges + 2 * nodes + paths).max(1);
        let most = (MAX_POINTS / 4 / series).clamp(POINTS.0, POINTS.1);
        let edge = || EdgeHistory { depth: Series::new(most), sum: 0.0, samples: 0, peak_depth: 0 };
        let thread = |name| ThreadHistory {
            name,
            busy: Series::new(most),
            before: Spent::default(),
            had: 0.0,
            waited: 0.0,
            watched: 0.0,
        };
        History {
            begun: Instant::now(),
            most,
            latencies: BTreeMap::new(),
            edges: (0..edges).map(|_| edge()).collect(),
            threads: threads.map(thread).collect(),
            looked: None,
            events: Vec::new(),
            more_events: 0,
        }
    }

    /// Adds intervals that have ended.
    pub(super) fn add(&mut self, intervals: &[IntervalReport]) {
        for one in intervals.iter().filter(|one| is_followed(one.histogram.term)) {
            let recorded = &one.histogram.recorded;
            let empty = || (Series::new(self.most), Counts::new(recorded.histogram.digits()));
            let (series, sum) = self.latencies.entry(one.histogram.tag()).or_insert_with(empty);
            series.push(point((one.begin + one.length).as_secs_f32(), recorded));
            sum.add(&recorded.histogram);
        }
    }

    /// Adds what a report has recorded after the last interval.
    pub(super) fn finish(&mut self, report: &Report) {
        let end = report.wall.as_secs_f32();
        for one in report.histograms.iter().filter(|one| is_followed(one.term)) {
            let whole = &one.recorded;
            match self.latencies.get_mut(&one.tag()) {
                Some((series, sum)) => {
                    let histogram = whole.histogram.since(sum);
                    let measured = whole.samples as f64 / whole.histogram.len().max(1) as f64;
                    // Sampling may have changed meanwhile: an estimate.
                    let samples = (histogram.len() as f64 * measured) as u64;
                    if !histogram.is_empty() {
                        series.push(point(end, &Recorded { histogram, samples }));
                    }
                }
                None => {
                    let mut series = Series::new(self.most);
                    series.push(point(end, whole));
                    self.latencies.insert(one.tag(), (series, Counts::new(whole.histogram.digits())));
                }
            }
        }
    }

    /// Adds an event.
    pub(super) fn happened(&mut self, event: &Event) {
        let at = event.wall;
        let (kind, message) = (event.kind.name(), event.kind.to_string());
        let place = event.kind.edge().or(event.kind.node()).unwrap_or(&message);
        let known = self.events.iter().position(|one| one.kind == kind && one.place == place);
        match known {
            Some(known_at) => {
                let known = &mut self.events[known_at];
                (known.last, known.count, known.message) = (at, known.count + 1, message);
            }
            None if self.events.len() < MAX_EVENTS => {
                let is_recovery = event.kind.is_recovery();
                let place = place.to_string();
                self.events.push(Happened { first: at, last: at, kind, place, message, is_recovery, count: 1 });
            }
            None => self.more_events += 1,
        }
    }

    /// Looks at edges and threads.
    pub(super) fn look(&mut self, edges: &[EdgeStats]) {
        let now = Instant::now();
        if self.looked.is_none() {
            // What takes long before, such as the loading of a model, is no part of the run.
            self.begun = now;
        }
        let at = now.duration_since(self.begun).as_secs_f32();
        for (edge, stats) in self.edges.iter_mut().zip(edges) {
            edge.sum += stats.depth as f64;
            edge.samples += 1;
            edge.peak_depth = edge.peak_depth.max(stats.peak_depth);
            edge.depth.push(Depth(at, stats.peak_depth));
        }
        if self.looked.is_none_or(|looked| now.duration_since(looked) >= EVERY) {
            self.looked = Some(now);
            self.look_at_threads(now, at);
        }
    }

    /// Reads the times of this process's threads, where the kernel has them.
    fn look_at_threads(&mut self, now: Instant, at: f32) {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
        for task in tasks.flatten() {
            let read = |name: &str| files::system_text(task.path().join(name)).ok();
            let Some(comm) = read("comm") else { continue };
            let comm = comm.trim_end();
            // The kernel keeps 15 bytes of a name; of two threads that share them, nothing can be
            // said.
            let is_it = |thread: &&mut ThreadHistory| {
                !comm.is_empty() && thread.name.as_bytes().iter().take(15).eq(comm.as_bytes())
            };
            let mut found = self.threads.iter_mut().filter(is_it);
            let (Some(thread), None) = (found.next(), found.next()) else { continue };
            let Some((on_cpu, waiting)) = read("schedstat").and_then(|text| schedstat(&text)) else { continue };
            let before = std::mem::replace(&mut thread.before, Spent { at: Some(now), on_cpu, waiting });
            let Some(since) = before.at else { continue };
            let passed = now.duration_since(since).as_nanos() as f64;
            let share = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed.max(1.0)).min(1.0);
            let (had, waited) = (share(on_cpu, before.on_cpu), share(waiting, before.waiting));
            thread.had += had * passed;
            thread.waited += waited * passed;
            thread.watched += passed;
            thread.busy.push(Busy(at, had as f32, waited as f32));
        }
    }

    /// The history as JSON, of a run that began at `started`. Times are seconds from then on.
    pub(super) fn json(&self, started: SystemTime) -> serde_json::Value {
        let latencies: BTreeMap<&String, &[Latency]> =
            self.latencies.iter().map(|(tag, (series, _))| (tag, &series.points[..])).collect();
        let edges = self.edges.iter().map(|edge| {
            serde_json::json!({
                "mean": (edge.samples > 0).then(|| edge.sum / edge.samples as f64),
                "samples": edge.samples,
                "peak_depth": edge.peak_depth,
                "depth": edge.depth.points,
            })
        });
        let threads = self.threads.iter().map(|thread| {
            let share = |part: f64| (thread.watched > 0.0).then(|| part / thread.watched);
            serde_json::json!({
                "name": thread.name,
                "busy": share(thread.had),
                "waiting": share(thread.waited),
                "points": thread.busy.points,
            })
        });
        let events = self.events.iter().map(|one| {
            let mut json = serde_json::to_value(one).unwrap_or_default();
            let since = |time: SystemTime| time.duration_since(started).map_or(0.0, |time| time.as_secs_f64());
            (json["first"], json["last"]) = (since(one.first).into(), since(one.last).into());
            json
        });
        serde_json::json!({
            "latencies": latencies,
            "edges": edges.collect::<Vec<_>>(),
            "threads": threads.collect::<Vec<_>>(),
            "events": events.collect::<Vec<_>>(),
            "more_events": self.more_events,
        })
    }
}

/// The time on a CPU and the time waiting for one, ns.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_of_any_length_has_few_points_and_loses_no_maximum() {
        for count in [0usize, 1, 7, 8, 9, 100, 1_000, 65_537] {
            let mut series = Series::new(8);
            for n in 0..count {
                series.push(Latency(n as f32, None, Some(n as u64), if n == 3 { 1 << 40 } else { 5 }, 1));
            }
            let points = &series.points;
            assert!(points.len() <= 8 && points.is_empty() == (count == 0), "{count}: {}", points.len());
            assert_eq!(points.iter().map(|point| point.4).sum::<u64>(), count as u64);
            assert_eq!(points.iter().any(|point| point.3 == 1 << 40), count > 3);
            assert!(points.is_sorted_by(|a, b| a.0 < b.0));
            // Points stand for the same time, but for the last.
            let counts: Vec<u64> = points.iter().map(|point| point.4).collect();
            assert!(counts.iter().rev().skip(1).all(|n| *n == counts[0]), "{count}: {counts:?}");
        }
    }

    #[test]
    fn the_kernels_times_are_read() {
        assert_eq!(schedstat("123 456 7\n"), Some((123, 456)));
        assert_eq!(schedstat(""), None);
    }
}
