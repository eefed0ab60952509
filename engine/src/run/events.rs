//! Reading events, and watching a run for what workers cannot notice.
//!
//! A worker only puts a small value into a queue of fixed size; values that do not fit are counted.
//! Names, text and wall-clock time are added by the reader. What no worker can notice (a worker
//! that hangs, losses that add up, a clock that was set) is noticed by a watchdog thread that looks
//! a few times a second, and by the program's calls that wait or query.

use crate::base::unit::show_ns;
use crate::edge::{self, Reason};
use crate::exec::mailbox::Subject;
use crate::exec::shared::{RunShared, lock, try_lock};
use crate::exec::stage::StageCounts;
use crate::exec::worker_event::WorkerEvent;
use crate::host::clock::{Clock, WallWatch};
use crate::host::sync::{Arc, DynArc};
use crate::ledger::Term;
use crate::node::statistics::Observe;
use crate::node::{EdgeStats, NodeStats, PathStats, RunStats, StatisticsWindow};
use crate::run::event::{Event, EventKind};
use crate::run::inside::{self, SeenNode};
use crate::run::loops::{Loops, SeenLoop};
use crate::run::misses::{Misses, WatchedPaths};
use crate::run::starving::{Pace, SeenJoin, Silence, WatchedJoin};
use crate::run::tails::Tails;
use crate::run::windows::Windows;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Time between checks of losses and missed deadlines, ns of the run's clock.
const LOSSES_EVERY: u64 = 1_000_000_000;
/// A path with a deadline is silent when nothing has arrived for so long, ns.
const SILENCE: u64 = 3_000_000_000;
/// The longest time between two checks of the watchdog thread.
const WATCH: Duration = Duration::from_secs(1);
/// The longest time between two checks while a thread waits for an event.
const LOOK: Duration = Duration::from_millis(50);
/// Unintended losses. Superseded messages and those dropped by a gate or a rate are discarded, and
/// losses at a failed node are covered by the event of its failure.
const UNINTENDED: [Reason; 6] =
    [Reason::FullNewest, Reason::FullOldest, Reason::Expired, Reason::TooLarge, Reason::InvalidTime, Reason::Unmatched];

/// Everything that can be observed of a run from outside, and the last observations.
pub(crate) struct Watcher {
    pub(crate) shared: Arc<RunShared>,
    pub(super) watched: Watched,
    pub(super) watchdog: Duration,
    /// Whether worker threads turn the graph, which may hang.
    pub(crate) has_workers: bool,
    /// The fraction of an edge's messages that may be lost without an event.
    drops_above: f64,
    seen: Mutex<LastCheck>,
    pub(crate) tails: Mutex<Tails>,
    pub(crate) windows: Mutex<Windows>,
}

/// The counters of a run's nodes, edges and paths.
pub(crate) struct Watched {
    pub(crate) counts: Vec<Arc<StageCounts>>,
    pub(crate) edges: Vec<WatchedEdge>,
    pub(crate) paths: WatchedPaths,
    pub(crate) joins: Vec<WatchedJoin>,
    pub(crate) loops: Loops,
}

/// An edge and its counters.
pub(crate) struct WatchedEdge {
    pub(crate) counters: Arc<edge::EdgeShared>,
    /// Its ends, `node/port`.
    pub(crate) from: String,
    pub(crate) to: String,
    /// Messages it holds.
    pub(crate) capacity: usize,
    /// The most bytes of a message, if they are known.
    pub(crate) max_bytes: Option<usize>,
    /// Whether messages without a partner are discarded, not lost.
    pub(crate) discards_unmatched: bool,
}

impl WatchedEdge {
    /// Its queue depth now; `peak` is the peak depth so far, `starves` for how long a join has
    /// waited for it, in ns.
    fn stats(&self, peak: u64, starves: Option<u64>) -> EdgeStats {
        let depth = self.counters.depth();
        EdgeStats {
            from: self.from.clone(),
            to: self.to.clone(),
            depth,
            bytes: self.max_bytes.map(|bytes| depth.saturating_mul(bytes as u64)),
            peak_depth: peak.max(depth),
            capacity: self.capacity,
            sent: self.counters.producer.moved.get(),
            lost: UNINTENDED
                .into_iter()
                .filter(|reason| !self.is_meant(*reason))
                .map(|reason| self.counters.lost(reason))
                .sum(),
            starves: starves.map(Duration::from_nanos),
        }
    }

    /// Whether it loses messages for this reason because the graph asks for it.
    fn is_meant(&self, reason: Reason) -> bool {
        reason == Reason::Unmatched && self.discards_unmatched
    }
}

impl Observe for Watcher {
    fn observe(&self) -> Option<RunStats> {
        let windows = self.windows_without_waiting()?;
        // What was seen stays for the program.
        let seen = try_lock(&self.seen)?;
        let starves = seen.starves();
        let edges = self.watched.edges.iter().zip(&seen.peaks).zip(starves);
        let edges = edges.map(|((edge, peak), starves)| edge.stats(*peak, starves)).collect();
        drop(seen);
        Some(RunStats { nodes: self.node_stats(&windows), paths: self.path_stats(&windows), edges })
    }
    fn is_aborted(&self) -> bool {
        self.shared.is_aborted()
    }
}

/// The observations of the last check.
struct LastCheck {
    workers: Vec<Worker>,
    wall: WallWatch,
    /// When losses were last checked, ns of the run's clock; 0 before the first time.
    losses_at: u64,
    losses: Vec<Losses>,
    nodes: Vec<SeenNode>,
    steps: Vec<SeenSteps>,
    /// By path with a deadline.
    paths: Vec<SeenPath>,
    joins: Vec<SeenJoin>,
    loops: Vec<SeenLoop>,
    /// The most messages seen in each edge since the last query.
    peaks: Vec<u64>,
}

impl LastCheck {
    /// By edge: for how long a join has starved for it, ns.
    fn starves(&self) -> Vec<Option<u64>> {
        let mut edges = vec![None; self.losses.len()];
        self.joins.iter().filter_map(|join| join.starves).for_each(|(edge, time)| edges[edge] = Some(time));
        edges
    }
}

/// The turn in which a worker was seen, since when, and whether it was reported as hanging.
#[derive(Clone, Debug)]
struct Worker {
    turn: Option<(usize, u64)>,
    since: Instant,
    is_reported: bool,
}

/// The counters of an edge.
#[derive(Clone, Debug, Default)]
struct Losses {
    sent: u64,
    lost: [u64; UNINTENDED.len()],
}

/// How often a node's clock had been set back when it was last told, and when that was, ns of the
/// run's clock.
#[derive(Clone, Copy, Debug, Default)]
struct SeenSteps {
    count: u64,
    told_at: Option<u64>,
}

/// What had arrived through a path when it was last checked.
#[derive(Clone, Debug, Default)]
struct SeenPath {
    misses: Misses,
    arrived: Pace,
    /// For how long nothing has arrived, if that is unusual.
    silent: Option<u64>,
    /// How often that was so.
    silences: u64,
}

impl SeenPath {
    /// Adds a check. Returns the length of a silence that has become unusual, or has ended.
    fn look(&mut self, now: u64, misses: Misses, is_over: bool) -> Option<Silence> {
        self.misses = misses;
        let before = self.arrived;
        if self.arrived.look(now, misses.judged) && self.silent.take().is_some() {
            return Some(Silence::Ended(before.since(now)));
        }
        if is_over {
            self.arrived.excuse(now);
        }
        // Messages that come once a minute are not missed after three seconds.
        let silent = self.arrived.pause(now, SILENCE);
        let was = std::mem::replace(&mut self.silent, silent);
        let begun = silent.filter(|_| was.is_none());
        self.silences += u64::from(begun.is_some());
        begun.map(Silence::Begun)
    }
}

impl Watcher {
    pub(crate) fn new(
        shared: Arc<RunShared>,
        watched: Watched,
        watchdog: Duration,
        drops_above: f64,
        has_workers: bool,
        tails: Tails,
    ) -> Self {
        let worker = Worker { turn: None, since: Instant::now(), is_reported: false };
        let seen = LastCheck {
            workers: vec![worker; shared.at.len()],
            wall: WallWatch::default(),
            losses_at: 0,
            losses: vec![Losses::default(); watched.edges.len()],
            nodes: watched.counts.iter().map(|counts| SeenNode::new(counts)).collect(),
            steps: vec![SeenSteps::default(); watched.counts.len()],
            paths: vec![SeenPath::default(); watched.paths.len()],
            joins: watched.joins.iter().map(SeenJoin::new).collect(),
            loops: vec![SeenLoop::default(); watched.loops.len()],
            peaks: vec![0; watched.edges.len()],
        };
        let (windows, seen) = (Windows::new(shared.at.len()), Mutex::new(seen));
        let tails = Mutex::new(tails);
        Watcher { shared, watched, watchdog, drops_above, has_workers, seen, tails, windows }
    }

    /// Checks the run until it has ended. Runs on a thread of its own, which is unparked at the end
    /// of the run.
    pub(crate) fn keep_watch(&self) {
        let every = (self.watchdog / 4).clamp(Duration::from_millis(1), WATCH);
        while !self.shared.events.is_over() {
            self.look();
            std::thread::park_timeout(every);
        }
    }

    /// Checks for what no worker can notice by itself. Any number of threads may call it.
    pub(crate) fn look(&self) {
        let events = &self.shared.events;
        if events.is_over() {
            return;
        }
        // Another thread is checking right now.
        let Some(mut seen) = try_lock(&self.seen) else { return };
        let step = seen.wall.look(crate::host::clock::wall(), crate::host::clock::since_boot());
        if step != 0 {
            let by = i64::try_from(step).unwrap_or(if step > 0 { i64::MAX } else { i64::MIN });
            let (shown, direction) = (show_ns(by.unsigned_abs()), if step > 0 { "forward" } else { "back" });
            self.shared.note(format!(
                "the wall clock was set {direction} by {shown} during the run, which does not affect measured times"
            ));
            self.shared.record_event(|| WorkerEvent::ClockSet { by });
            if let Some(clock) = self.shared.clock() {
                lock(&self.tails).clock_was_set(clock.now().0);
            }
        }
        if self.has_workers {
            self.look_at_workers(&mut seen.workers);
        }
        for (edge, peak) in self.watched.edges.iter().map(|edge| &edge.counters).zip(&mut seen.peaks) {
            *peak = edge.depth().max(*peak);
        }
        self.watched.loops.end(&mut seen.loops, &self.shared, self.has_workers, false);
        self.look_at_losses(&mut seen);
        self.look_at_steps(&mut seen.steps);
        if let (Some(mut tails), Some(clock)) = (try_lock(&self.tails), self.shared.clock()) {
            self.take_outliers(&mut tails, clock, false);
            tails.explain_settled(clock.now().0);
        }
    }

    /// Whether messages of the graph may come back to a node.
    pub(crate) fn has_loops(&self) -> bool {
        self.watched.loops.len() > 0
    }

    /// Ends loops in which nothing moves, or after a stop those whose messages went round often
    /// enough; `at_once` without waiting longer, because no node has work or the time is over.
    /// Returns whether there was one.
    pub(crate) fn end_loops(&self, at_once: bool) -> bool {
        if !self.has_loops() {
            return false;
        }
        // Another thread is checking right now.
        let Some(mut seen) = try_lock(&self.seen) else { return false };
        self.watched.loops.end(&mut seen.loops, &self.shared, self.has_workers, at_once)
    }

    fn take_outliers(&self, tails: &mut Tails, clock: &Clock, at_once: bool) {
        tails.take(&self.shared.outliers);
        // On a simulated clock nothing takes long.
        if matches!(clock, Clock::Monotonic) {
            tails.look_at_throttling(clock.now().0, at_once, |by| {
                self.shared.record_event(|| WorkerEvent::CpuThrottled { by })
            });
        }
    }

    /// Explains the last slow messages of a run that has ended. Returns notes on what throttled its
    /// CPUs.
    pub(crate) fn conclude(&self) -> Vec<String> {
        let mut tails = lock(&self.tails);
        let Some(clock) = self.shared.clock() else { return Vec::new() };
        self.take_outliers(&mut tails, clock, true);
        tails.explain_all();
        if matches!(clock, Clock::Monotonic) { tails.throttling.notes() } else { Vec::new() }
    }

    /// Returns how often nothing arrived through a path for an unusual time, and whether this is so
    /// now, by the path's index in the plan.
    pub(crate) fn silences(&self) -> HashMap<usize, (u64, bool)> {
        let seen = lock(&self.seen);
        let paths = self.watched.paths.iter().zip(&seen.paths);
        paths.map(|((path, _), seen)| (path.at, (seen.silences, seen.silent.is_some()))).collect()
    }

    /// Returns the counters of every node, with its windows.
    pub(crate) fn node_stats(&self, windows: &BTreeMap<(Subject, Term), StatisticsWindow>) -> Vec<NodeStats> {
        let nodes = self.shared.names().iter().zip(&self.watched.counts).enumerate();
        nodes
            .map(|(at, (name, counts))| {
                let connection = counts.live.connection_counts();
                NodeStats {
                    node: name.clone(),
                    taken: counts.taken.get(),
                    done: counts.done.get(),
                    failed: counts.failed.get(),
                    lost: inside::losses(counts).into_iter().map(|(reason, n)| (reason.into(), n)).collect(),
                    discarded: counts.live.discards().into_iter().map(|(reason, n)| (reason.into(), n)).collect(),
                    incidents: inside::incidents(counts).into_iter().map(|(what, n)| (what.into(), n)).collect(),
                    connected: connection.map(|counts| counts.open > 0),
                    disconnects: connection.map_or(0, |counts| counts.ended),
                    stale: counts.live.stale_periods().map(|(_, is_stale)| is_stale),
                    backend: self.shared.backend_status(at, counts.batches.get()),
                    queue: windows.get(&(Subject::Node(at), Term::Queue)).copied(),
                    compute: windows.get(&(Subject::Node(at), Term::Compute)).copied(),
                }
            })
            .collect()
    }

    /// Returns the ages at the sinks, and the deadlines missed there.
    pub(crate) fn path_stats(&self, windows: &BTreeMap<(Subject, Term), StatisticsWindow>) -> Vec<PathStats> {
        let name = |at: usize| self.shared.names()[at].clone();
        let paths = windows.iter().filter_map(|((subject, term), latency)| match subject {
            Subject::Path(from, to) if *term == Term::EndToEnd => {
                Some(PathStats::new(name(*from), name(*to), Some(*latency)))
            }
            _ => None,
        });
        let mut paths: Vec<PathStats> = paths.collect();
        let known = paths.iter().enumerate().map(|(at, one)| ((one.from.clone(), one.to.clone()), at));
        let known: HashMap<(String, String), usize> = known.collect();
        // Another thread that checks just now has the time of a silence.
        let seen = try_lock(&self.seen);
        for (i, (path, misses)) in self.watched.paths.iter().enumerate() {
            let at = known.get(&(path.from.clone(), path.to.clone())).copied().unwrap_or_else(|| {
                paths.push(PathStats::new(path.from.clone(), path.to.clone(), None));
                paths.len() - 1
            });
            let stats = &mut paths[at];
            (stats.deadline, stats.judged, stats.missed) = (Some(path.deadline), misses.judged, misses.missed);
            stats.silent = seen.as_ref().and_then(|seen| seen.paths[i].silent).map(Duration::from_nanos);
        }
        paths
    }

    /// Returns the queue depth of every edge, and its peak since the last call.
    pub(crate) fn edge_stats(&self) -> Vec<EdgeStats> {
        let mut seen = lock(&self.seen);
        let starves = seen.starves();
        let edges = self.watched.edges.iter().zip(&mut seen.peaks).zip(starves);
        edges.map(|((edge, peak), starves)| edge.stats(std::mem::take(peak), starves)).collect()
    }

    fn look_at_workers(&self, workers: &mut [Worker]) {
        let now = Instant::now();
        for (seen, at) in workers.iter_mut().zip(&self.shared.at) {
            let turn = at.node().map(|node| (node, self.watched.counts[node].turns.get()));
            if seen.turn != turn || turn.is_none() {
                if let (true, Some((node, _))) = (seen.is_reported, seen.turn) {
                    let took = u64::try_from((now - seen.since).as_nanos()).unwrap_or(u64::MAX);
                    // Unless its worker has measured the time and reported it.
                    if self.shared.take_reported(node) {
                        self.shared.record_event(|| WorkerEvent::Returned { node, took });
                    }
                }
                *seen = Worker { turn, since: now, is_reported: false };
                continue;
            }
            let Some((node, _)) = turn.filter(|_| !seen.is_reported && now - seen.since > self.watchdog) else {
                continue;
            };
            seen.is_reported = true;
            self.shared.hangs(node);
        }
    }

    /// Tells at once that a clock was set back, then once a second.
    fn look_at_steps(&self, steps: &mut [SeenSteps]) {
        let Some(now) = self.shared.clock().map(|clock| clock.now().0) else { return };
        for ((node, counts), seen) in self.watched.counts.iter().enumerate().zip(steps) {
            let (count, by) = counts.live.steps().unwrap_or_default();
            if count > seen.count && seen.told_at.is_none_or(|at| now - at >= LOSSES_EVERY) {
                self.shared.record_event(|| WorkerEvent::SteppedBack { node, count: count - seen.count, by });
                *seen = SeenSteps { count, told_at: Some(now) };
            }
        }
    }

    fn look_at_losses(&self, seen: &mut LastCheck) {
        let Some(now) = self.shared.clock().map(|clock| clock.now().0) else { return };
        if seen.losses_at == 0 {
            seen.losses_at = now;
        }
        let within = now.saturating_sub(seen.losses_at);
        if within < LOSSES_EVERY {
            return;
        }
        seen.losses_at = now;
        // Workers are asked only if there is something to explain.
        let mut longest = None;
        for ((edge, watched), before) in self.watched.edges.iter().enumerate().zip(&mut seen.losses) {
            let shared = &watched.counters;
            let now = Losses { sent: shared.producer.moved.get(), lost: UNINTENDED.map(|reason| shared.lost(reason)) };
            let of = now.sent - before.sent;
            for (i, reason) in UNINTENDED.into_iter().enumerate() {
                let count = now.lost[i] - before.lost[i];
                if count > 0 && !watched.is_meant(reason) && count as f64 > self.drops_above * of as f64 {
                    let slowest = match reason {
                        Reason::Unmatched => {
                            self.slowest_before(longest.get_or_insert_with(|| self.longest_now()), edge)
                        }
                        _ => "".into(),
                    };
                    self.shared.record_event(|| WorkerEvent::Lost { edge, reason, count, of, within, slowest });
                }
            }
            *before = now;
        }
        for ((node, counts), before) in self.watched.counts.iter().enumerate().zip(&mut seen.nodes) {
            before.look(node, counts, &self.shared, self.drops_above, within);
        }
        for (join, seen) in self.watched.joins.iter().zip(&mut seen.joins) {
            let taken = self.watched.counts[join.node].taken.get();
            let node = join.node;
            match seen.look(now, taken, join, &self.watched.edges) {
                Some((edge, Silence::Begun(time))) => {
                    self.shared.record_event(|| WorkerEvent::Starves { node, edge, time })
                }
                Some((_, Silence::Ended(after))) => {
                    self.shared.record_event(|| WorkerEvent::StarvingEnded { node, after })
                }
                None => {}
            }
        }
        for ((path, (watched, misses)), seen) in self.watched.paths.iter().enumerate().zip(&mut seen.paths) {
            let before = seen.misses;
            let (count, of) = (misses.missed - before.missed, misses.judged - before.judged);
            if count > 0 {
                let slowest = self.slowest_of_path(longest.get_or_insert_with(|| self.longest_now()), path);
                self.shared.record_event(|| WorkerEvent::Missed { path, count, of: of.max(count), within, slowest });
            }
            let is_closed = watched.source_edges.iter().all(|edge| self.watched.edges[*edge].counters.is_closed());
            // A stop closes the sources, too, but does not end a silence that was there before.
            let is_over = is_closed && !(self.shared.is_stopping() && seen.silent.is_some());
            match seen.look(now, misses, is_over) {
                Some(Silence::Begun(time)) => self.shared.record_event(|| WorkerEvent::Silent { path, time }),
                Some(Silence::Ended(after)) => self.shared.record_event(|| WorkerEvent::SilenceEnded { path, after }),
                None => {}
            }
        }
    }

    fn next(&self) -> Option<Event> {
        let events = &self.shared.events;
        let clock = self.shared.clock().cloned().unwrap_or_default();
        let (time, kind) = match events.pop() {
            Some((time, event)) => (time, self.with_names(event)),
            None => match events.take_lost() {
                0 => return None,
                count => (clock.now(), EventKind::EventsLost { count }),
            },
        };
        let ago = match clock {
            Clock::Monotonic => Duration::from_nanos(clock.now().since(time)),
            Clock::Simulated(_) => Duration::ZERO,
        };
        let wall = crate::host::clock::wall();
        Some(Event { time, wall: wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH), kind })
    }
}

/// The events of a run, oldest first. As an iterator it returns queued events and then `None`;
/// later calls continue with newer events.
///
/// Clones read from the same queue: each event is returned once. A handle may move to another
/// thread and outlive the run, so that a program can read the last events afterwards. While nothing
/// reads, the queue keeps the first 1024 events and only counts later ones
/// ([`EventKind::EventsLost`]).
///
/// ```
/// # use limen::message::Plain;
/// # use limen::{Plan, Registry, Spec};
/// # #[derive(Clone, Debug)]
/// # struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let spec = Spec::from_text(text, "g.yaml").unwrap();
/// # let mut graph = Plan::new(spec, &registry).unwrap().wire().unwrap();
/// # drop((graph.inlet::<Number>("a").unwrap(), graph.outlet::<Number>("z").unwrap()));
/// use std::time::Duration;
/// let running = graph.start().unwrap();
/// let events = running.events();
/// let reader = std::thread::spawn(move || {
///     loop {
///         match events.next_within(Duration::from_secs(1)) {
///             Some(event) => eprintln!("{event}"),
///             None if events.is_over() => break,
///             None => {}
///         }
///     }
/// });
/// running.wait();
/// reader.join().unwrap();
/// ```
#[derive(Clone)]
pub struct Events(pub(crate) DynArc<Watcher>);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Waits up to `time` for the next event. Returns `None` if none arrives, at once if the run is
    /// over.
    ///
    /// Waiting here watches the graph as [`Running::wait_for`](crate::Running::wait_for) does: a
    /// thread that waits for events learns of a hanging node while it hangs.
    pub fn next_within(&self, time: Duration) -> Option<Event> {
        let events = &self.0.shared.events;
        let end = Instant::now().checked_add(time);
        loop {
            events.bell.set_guest();
            events.bell.arm();
            self.0.look();
            if let Some(event) = self.0.next() {
                events.bell.disarm();
                return Some(event);
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.is_over() {
                events.bell.disarm();
                // Events precede the end of the run, so the last may have arrived meanwhile.
                return self.0.next();
            }
            let look = LOOK.min(self.0.watchdog / 2).max(Duration::from_millis(1));
            events.bell.sleep(Some(left.min(look)));
        }
    }

    /// Returns whether the run is over. Queued events may still be read.
    pub fn is_over(&self) -> bool {
        self.0.shared.events.is_over()
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.look();
        self.0.next()
    }
}

/// Starts the watchdog thread of a run.
///
/// # Errors
/// The system's error.
pub(crate) fn spawn_watch(
    watcher: DynArc<Watcher>,
    allowed: Vec<usize>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    crate::host::thread::spawn_helper("watch", allowed, move || watcher.keep_watch())
}
