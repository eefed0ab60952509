//! A graph on the caller's thread: no threads are started, and nothing happens except in a
//! [`turn`](Driven::turn).
//!
//! For programs with their own loop (a control loop, a game loop, another runtime) and for other
//! clocks than the machine's. Stages, edges, pools and counters are the same as with threads; only
//! the caller turns them.

use crate::exec::device_idler::DeviceIdler;
use crate::exec::scheduler::Scheduler;
use crate::exec::stage::{DeviceWait, Turn};
use crate::exec::worker::{Cx, WorkerOutcome};
use crate::host::clock::{Clock, Time};
use crate::host::descriptors::{Kernel, Poller};
use crate::host::sync::Arc;
use crate::host::wait::Bell;
use crate::node::{EdgeStats, NodeStats, PathStats};
use crate::report::Report;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::events::Events;
use crate::run::running::{Drain, IntervalReport, Running, Stopper};
use crate::run::wire::Wired;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// Turns between two calls of what a program does meanwhile.
const MEANWHILE: u32 = 4096;
/// A simulated clock waits so long for a call on a device before it looks again.
const AWAIT_DEVICE: Duration = Duration::from_millis(100);
/// A simulated clock goes so far while a ring settles, ns.
const SETTLE_NS: u64 = 1_000;
/// Turns in a row in which the nodes of a loop may pass messages round it while a simulated clock
/// stands still, and how far the clock goes in each later turn, ns: a message that never leaves the
/// loop would hold up every time that somebody waits for.
const LOOP_TURNS: u32 = 1_000;
const LOOP_NS: u64 = 10_000;

/// A graph turned by its caller; nothing happens except in a [`turn`](Driven::turn).
///
/// It belongs to the thread that made it. Other threads may use its handles and its [`Stopper`].
///
/// A program with an event loop can wait for the graph on the descriptor of [`AsFd`]: after
/// [`Turned::Idle`] it becomes readable when there is work again, because a node's descriptor is
/// ready, a handle was used on another thread, a stop was requested or (with [`Clock::Monotonic`])
/// the time has come.
///
/// ```
/// # use limen::{Message, Plan, Registry, Spec};
/// # use limen::message::Plain;
/// use limen::{Clock, Turned};
/// # #[derive(Clone, Debug)] struct Number(u64);
/// # impl Plain for Number {}
/// let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// let spec = Spec::from_text("version: 1\nnodes: { a: { kind: numbers }, b: { kind: results, from: a } }", "g.yaml").unwrap();
/// let mut graph = Plan::new(spec, &registry).unwrap().wire().unwrap();
/// let mut numbers = graph.inlet::<Number>("a").unwrap();
/// let mut results = graph.outlet::<Number>("b").unwrap();
/// let mut graph = graph.drive(Clock::Monotonic).unwrap();
/// let message = Message::new(numbers.header(), Number(7));
/// numbers.try_send(message).unwrap();
/// while graph.turn() == Turned::Worked {}
/// assert_eq!(results.try_recv().unwrap().body.0, 7);
/// numbers.close();
/// let report = graph.run();
/// assert!(report.bugs.is_empty());
/// ```
pub struct Driven {
    running: Running,
    workers: Vec<(Scheduler, Cx)>,
    bells: Vec<Arc<Bell>>,
    poller: Rc<Poller>,
    kernel: Rc<Kernel>,
    clock: Clock,
    begun: Time,
    /// The last turn found no work, so the bells are armed to wake a waiting caller.
    is_armed: bool,
    /// Whether the caller waits for the descriptor.
    has_waiter: Cell<bool>,
    device: DeviceIdler,
    has_ended: bool,
}

impl AsFd for Driven {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.has_waiter.set(true);
        self.kernel.as_fd()
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Something moved.
    Worked,
    /// There is no work before this time of the graph's clock, unless a handle is used.
    Idle(Time),
    /// Every node has ended.
    Ended,
}

impl std::fmt::Debug for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driven").field("now", &self.clock.now()).finish_non_exhaustive()
    }
}

impl Wired {
    /// Builds every node on the calling thread, to be turned there by [`Driven::turn`] on a clock
    /// of the caller's choice. Threads are neither started nor pinned, and nodes that would block a
    /// helper thread block the caller.
    ///
    /// # Errors
    /// [`RunError::Build`] names the first node that could not be built; [`RunError::Refused`] if
    /// an inlet or outlet was not taken, or the process has no descriptors left.
    pub fn drive(self, clock: Clock) -> Result<Driven, RunError> {
        let (mut running, mut workers, poller) = self.build_here(&clock)?;
        let kernel = match poller.kernel() {
            Ok(kernel) => kernel,
            Err(error) => {
                running.finished = true;
                return Err(RunError::Refused(format!("`epoll` is not available: {error}")));
            }
        };
        let bells: Vec<_> = (0..workers.len()).map(|worker| running.shared.bell(worker)).collect();
        bells.iter().for_each(|bell| bell.set_sleeper());
        let warmup = u64::try_from(running.plan.warmup.as_nanos()).unwrap_or(u64::MAX);
        workers.iter_mut().for_each(|(_, cx)| cx.warm_up(warmup));
        let begun = clock.now();
        // With that clock, the descriptor becomes readable by itself before long.
        let is_monotonic = matches!(clock, Clock::Monotonic);
        Ok(Driven {
            running,
            workers,
            bells,
            poller,
            kernel,
            clock,
            begun,
            is_armed: false,
            has_waiter: Cell::new(!is_monotonic),
            device: DeviceIdler::default(),
            has_ended: false,
        })
    }

    /// Builds every node on the calling thread; all of them share the poller.
    #[allow(clippy::type_complexity, reason = "taken apart at once, in two places")]
    pub(crate) fn build_here(self, clock: &Clock) -> Result<(Running, Vec<(Scheduler, Cx)>, Rc<Poller>), RunError> {
        self.check_taken()?;
        // No worker sends results: the caller collects them.
        let (_, no_results) = std::sync::mpsc::sync_channel(1);
        let (mut running, plans) = self.split(no_results, false);
        running.begin_by(clock.clone(), true);
        let sources = Arc::new(running.plan.sources.clone());
        let poller = Poller::new((0..plans.len()).map(|worker| running.shared.bell(worker)).collect());
        let mut workers = Vec::new();
        for plan in plans {
            let (telemetry, frames, shared) = (running.plan.telemetry, running.plan.frames, running.shared.clone());
            let mut cx = Cx::new(plan.index, clock.clone(), shared, telemetry, frames, sources.clone(), poller.clone());
            match plan.build(&mut cx) {
                Ok(scheduler) => workers.push((scheduler, cx)),
                Err(error) => {
                    running.finished = true;
                    return Err(RunError::build(&running.plan, error));
                }
            }
        }
        Ok((running, workers, poller))
    }
}

impl Driven {
    /// Gives every node at most one turn, in the order of the graph: a bounded amount of work, at
    /// most 64 messages or about 20 µs of calls for each. Nodes that wait for a descriptor are
    /// polled without waiting.
    pub fn turn(&mut self) -> Turned {
        let turned = self.turn_once();
        // A ring that settles, or a device, has work before long.
        let is_idle = matches!(turned, Turned::Idle(until) if until > Time::ZERO);
        if turned != Turned::Ended && self.running.watcher.end_loops(is_idle) {
            self.is_armed = false;
            return Turned::Worked;
        }
        if let (Turned::Idle(_), true) = (turned, self.has_waiter.get()) {
            self.await_device(DeviceWait::Ring);
        }
        turned
    }

    /// Waits for a call on a device that a node needs; see `Stage::await_device`.
    fn await_device(&mut self, wait: DeviceWait) -> Option<bool> {
        let on_devices = self.workers.iter_mut().filter(|(_, cx)| cx.has_device);
        wait.over(on_devices.filter_map(|(scheduler, _)| scheduler.await_device(wait)))
    }

    fn turn_once(&mut self) -> Turned {
        let mut turned = Turned::Idle(Time::ZERO);
        // With the bells still armed from the last turn, the pass below suffices.
        if !self.is_armed {
            if self.poller.has_descriptors() {
                self.poller.look();
            }
            turned = self.pass();
        }
        if let Turned::Idle(_) = turned {
            self.bells.iter().for_each(|bell| bell.arm());
            // Clears the wake-up, so that the next wait does not return at once.
            self.poller.look();
            turned = self.pass();
        }
        self.is_armed = false;
        match turned {
            Turned::Idle(until) => {
                self.is_armed = true;
                let due = if matches!(self.clock, Clock::Monotonic) { until } else { Time::NEVER };
                // Rung after arming, and the look has cleared that wake-up: make the descriptor
                // readable at once.
                let due = if self.bells.iter().all(|bell| bell.is_armed()) { due } else { Time::ZERO };
                // If the timer cannot be set, the caller has to turn the graph by itself.
                let _ = self.kernel.set_timer(due.0);
            }
            Turned::Worked | Turned::Ended => {
                self.bells.iter().for_each(|bell| bell.disarm());
                self.device.worked(|| Clock::Monotonic.now().0);
            }
        }
        turned
    }

    fn pass(&mut self) -> Turned {
        let (mut worked, mut all_ended, mut wake) = (false, true, u64::MAX);
        for (scheduler, cx) in &mut self.workers {
            // The worker's cached time is out of date.
            cx.invalidate_clock();
            match scheduler.pass(cx) {
                Turn::Worked => worked = true,
                Turn::Idle(until) => wake = wake.min(until),
                Turn::Pending => wake = 0,
                Turn::Blocked => {}
                Turn::Done => continue,
            }
            all_ended = false;
            scheduler.apply_commands(cx);
            cx.flush();
        }
        self.has_ended = all_ended;
        match (all_ended, worked) {
            (true, _) => Turned::Ended,
            (_, true) => Turned::Worked,
            _ => Turned::Idle(Time(wake)),
        }
    }

    /// Sleeps until a handle is used on another thread, a node's descriptor is ready, a stop is
    /// requested, or `at_most` has passed. Returns at once if there is work. Meant to be called
    /// after [`Turned::Idle`].
    pub fn wait(&mut self, at_most: Duration) -> Turned {
        let turned = self.turn_once();
        if let Turned::Idle(until) = turned {
            let until = if matches!(self.clock, Clock::Monotonic) { until } else { Time::NEVER };
            let end = Clock::Monotonic.now() + u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
            let wake = until.min(end).0;
            while self.bells.iter().all(|bell| bell.is_armed()) {
                // What became ready is known to its node now, and would not end a sleep any more.
                if self.poller.ask(Clock::Monotonic.now().0, 0) {
                    let _ = self.kernel.set_timer(0);
                    return turned;
                }
                let mut idler = std::mem::take(&mut self.device);
                let waits = idler.wait(Clock::Monotonic.now().0, wake, &mut |wait| self.await_device(wait));
                self.device = idler;
                match waits {
                    Some(false) if Clock::Monotonic.now().0 < wake => {}
                    Some(_) => return turned,
                    None => break,
                }
            }
            self.poller.sleep(wake);
            // The sleep cleared the wake-up: make the descriptor readable at once for the next wait
            // on it.
            let _ = self.kernel.set_timer(0);
        }
        turned
    }

    /// Turns the graph until every node has ended.
    ///
    /// A simulated clock is advanced when nodes wait for a time; when they wait only for the
    /// program, the run ends.
    pub fn run(mut self) -> Report {
        self.turn_until(Time::NEVER, &mut || {}, || false);
        self.finish()
    }

    /// Runs the graph until `end`, or until its nodes wait only for the program, and stops its
    /// sources.
    ///
    /// Messages in flight then have the graph's `run.stop` to arrive, as after a stop from
    /// elsewhere. `meanwhile` is called now and then, and at the end.
    ///
    /// ```
    /// # use limen::{Message, Plan, Registry, Spec};
    /// # use limen::message::Plain;
    /// use limen::{Clock, SimulatedClock, Time};
    /// # #[derive(Clone, Debug)] struct Number(u64);
    /// # impl Plain for Number {}
    /// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
    /// # let text = "version: 1\nnodes: { a: { kind: numbers }, b: { kind: results, from: a } }";
    /// # let mut graph = Plan::new(Spec::from_text(text, "g.yaml").unwrap(), &registry).unwrap().wire().unwrap();
    /// # let (numbers, results) = (graph.inlet::<Number>("a").unwrap(), graph.outlet::<Number>("b").unwrap());
    /// let clock = Clock::Simulated(SimulatedClock::new(Time(1)));
    /// let graph = graph.drive(clock).unwrap();
    /// let events = graph.events();
    /// let report = graph.run_until(Time(1_000_000_000), || events.clone().for_each(|event| println!("{event}")));
    /// assert!(report.bugs.is_empty());
    /// ```
    pub fn run_until(mut self, end: Time, mut meanwhile: impl FnMut()) -> Report {
        let shared = self.running.shared.clone();
        self.turn_until(end, &mut meanwhile, || shared.is_stopping());
        if !self.has_ended {
            shared.stop();
            let drain = u64::try_from(self.running.stop_within.as_nanos()).unwrap_or(u64::MAX);
            self.turn_until(self.clock.now() + drain, &mut meanwhile, || false);
        }
        let report = self.finish();
        meanwhile();
        report
    }

    /// Returns whether a node waits for a file descriptor, such as that of a socket or a device.
    pub fn has_descriptors(&self) -> bool {
        self.poller.has_descriptors()
    }

    /// Stops the sources, and turns the graph until all messages in flight have arrived or the time
    /// limit has passed.
    pub fn stop(mut self, drain: Drain) -> Report {
        self.running.stopper().stop();
        let end = self.clock.now() + u64::try_from(drain.time().as_nanos()).unwrap_or(u64::MAX);
        self.turn_until(end, &mut || {}, || false);
        self.finish()
    }

    /// Turns the graph until `end`, until every node has ended, or until `is_over`.
    fn turn_until(&mut self, end: Time, meanwhile: &mut dyn FnMut(), is_over: impl Fn() -> bool) {
        let (mut turns, mut at_once) = (0u32, 0u32);
        let has_loop = matches!(self.clock, Clock::Simulated(_)) && self.running.watcher.has_loops();
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(MEANWHILE) {
                meanwhile();
            }
            let turned = self.turn();
            at_once = if has_loop && turned == Turned::Worked { at_once + 1 } else { 0 };
            match turned {
                Turned::Worked => {
                    if let (LOOP_TURNS.., Clock::Simulated(clock)) = (at_once, &self.clock) {
                        at_once = LOOP_TURNS;
                        clock.advance(LOOP_NS);
                    }
                }
                Turned::Ended => return,
                Turned::Idle(until) => match self.clock.clone() {
                    Clock::Monotonic => _ = self.wait(Duration::from_nanos(end.since(self.clock.now()))),
                    // What a device computes takes no time.
                    Clock::Simulated(_) if self.await_device(DeviceWait::Block(AWAIT_DEVICE)).is_some() => {}
                    // Nothing else advances it meanwhile; if no node waits for a time, the run is
                    // over. A ring that settles waits for none.
                    Clock::Simulated(clock) if until < Time::NEVER => clock
                        .advance_to(until.min(end).max(clock.now() + if until == Time::ZERO { SETTLE_NS } else { 1 })),
                    Clock::Simulated(_) => return,
                },
            }
            if self.clock.now() >= end || is_over() {
                return;
            }
        }
    }

    /// Ends every node at once, and reports. Messages in flight count as *left*. Unless all nodes
    /// had ended, the run counts as one that did not end in time.
    pub fn finish(self) -> Report {
        let Driven { mut running, workers, clock, begun, has_ended, .. } = self;
        if !has_ended {
            running.shared.abort();
        }
        for (worker, (scheduler, cx)) in workers.into_iter().enumerate() {
            running.outcomes[worker] = Some(WorkerOutcome::of(worker, scheduler, cx, None));
        }
        let mut report = running.into_report(!has_ended);
        report.wall = Duration::from_nanos(clock.now().since(begun));
        report
    }

    /// Returns the clock that nodes and handles read.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns a handle that can stop this run from elsewhere; the next turns end its sources.
    pub fn stopper(&self) -> Stopper {
        self.running.stopper()
    }

    /// Returns the events of this run, for any thread to read. A turn that takes too long is
    /// reported only when it ends, because no other thread watches it.
    pub fn events(&self) -> Events {
        self.running.events()
    }

    /// Returns the next event in the queue, if there is one. It never waits: events arise only in
    /// turns.
    pub fn next_event(&self) -> Option<Event> {
        self.running.events().next()
    }

    /// Returns the current counters of every node, and its statistics of the last window; see
    /// [`Running::stats`]. It never waits: the next turns pass on a window that has ended.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.running.stats()
    }

    /// Returns everything recorded since the last call, in intervals of a second or longer; see
    /// [`Running::intervals`].
    pub fn intervals(&self) -> Vec<IntervalReport> {
        self.running.intervals()
    }

    /// Returns the ages at the sinks in the last window, without waiting; see
    /// [`Running::path_stats`].
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.running.path_stats()
    }

    /// Returns the queue depth of every edge, in the order of the graph.
    pub fn edge_stats(&self) -> Vec<EdgeStats> {
        self.running.edge_stats()
    }

    /// Changes a setting of a node in the next turn; see [`Running::set`].
    ///
    /// # Errors
    /// [`RunError::NoSuch`] if there is no such node or setting; [`RunError::Refused`] if the value
    /// is out of range, or too many settings are queued.
    pub fn set(&self, node: &str, name: &str, value: f64) -> Result<(), RunError> {
        self.running.set(node, name, value)
    }
}
