//! A graph on the caller's own thread: no threads are started, and nothing happens except in a [`turn`](Driven::turn).
//!
//! For programs that have a loop of their own (a control loop, a game loop, another runtime) and for clocks that are not the
//! machine's. The stages, edges, pools and books are those that run on threads; what differs is who turns them.

use crate::exec::scheduler::Scheduler;
use crate::exec::stage::Turn;
use crate::exec::worker::{Cx, Outcome};
use crate::host::clock::{Clock, Time};
use crate::host::descriptors::{Kernel, Poller};
use crate::host::sync::Arc;
use crate::host::wait::Bell;
use crate::report::Report;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::events::Events;
use crate::run::running::{Drain, EdgeStats, IntervalReport, NodeStats, PathStats, Running, Stopper};
use crate::run::wire::Wired;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// A graph that its caller turns; nothing happens except in a [`turn`](Driven::turn).
///
/// It belongs to the thread that made it. Other threads may have its handles and its [`Stopper`].
///
/// A program with an event loop of its own waits for this graph as for anything else: after [`Turned::Idle`] the descriptor of
/// [`AsFd`] becomes readable when there is something to do again, whether a descriptor that a node waits for is ready, a
/// handle was used elsewhere, a stop was asked for, or (by [`Clock::Monotonic`]) the time has come.
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
    /// The last turn found nothing to do, and who rings is to wake who waits.
    is_armed: bool,
    has_ended: bool,
}

impl AsFd for Driven {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Something moved.
    Worked,
    /// Nothing to do before this time of the graph's clock, unless something is sent or taken from outside.
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
    /// Builds every node on the calling thread, to be turned there by [`Driven::turn`], by a clock of the caller's choice.
    /// Threads are neither started nor pinned, and nodes that would block a helper thread block the caller.
    ///
    /// # Errors
    /// [`RunError::Build`] names the first node that could not be built; [`RunError::Refused`] where an inlet or an outlet
    /// was not taken, or the process has no descriptors left.
    pub fn drive(self, clock: Clock) -> Result<Driven, RunError> {
        let (mut running, mut workers, poller) = self.build_here(&clock)?;
        let kernel = match poller.kernel() {
            Ok(kernel) => kernel,
            Err(error) => {
                running.finished = true;
                return Err(RunError::Refused(format!("something to wait on (`epoll`): {error}")));
            }
        };
        let bells: Vec<_> = (0..workers.len()).map(|worker| running.shared.bell(worker)).collect();
        bells.iter().for_each(|bell| bell.answer_here());
        let warmup = u64::try_from(running.plan.warmup.as_nanos()).unwrap_or(u64::MAX);
        workers.iter_mut().for_each(|(_, cx)| cx.warm_up(warmup));
        let begun = clock.now();
        Ok(Driven { running, workers, bells, poller, kernel, clock, begun, is_armed: false, has_ended: false })
    }

    /// Every node on the calling thread, and what all of them wait for in the kernel.
    #[allow(clippy::type_complexity, reason = "taken apart at once, in two places")]
    pub(crate) fn build_here(self, clock: &Clock) -> Result<(Running, Vec<(Scheduler, Cx)>, Rc<Poller>), RunError> {
        self.check_taken()?;
        // Nobody sends: whoever turns the stages hands over what they leave.
        let (_, nobody) = std::sync::mpsc::sync_channel(1);
        let (mut running, plans) = self.split(nobody, false);
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
    /// One turn of every node at most, in the order of the graph: a bounded piece of work, at most 64 messages or about
    /// 20 µs of calls for each. Nodes that wait for a descriptor are asked without waiting.
    pub fn turn(&mut self) -> Turned {
        let mut turned = Turned::Idle(Time::ZERO);
        // Whoever rings after a look for which the bells were armed is noticed by who waits.
        if !self.is_armed {
            if self.poller.has_descriptors() {
                self.poller.look();
            }
            turned = self.pass();
        }
        if let Turned::Idle(_) = turned {
            self.bells.iter().for_each(|bell| bell.arm());
            // What woke whoever waits is taken note of, so that the next wait is not over at once.
            self.poller.look();
            turned = self.pass();
        }
        self.is_armed = false;
        match turned {
            Turned::Idle(until) => {
                self.is_armed = true;
                let due = if matches!(self.clock, Clock::Monotonic) { until } else { Time::NEVER };
                // Rung after the bells were armed, and the look has taken note of that: the descriptor is to be ready at once.
                let due = if self.bells.iter().all(|bell| bell.is_armed()) { due } else { Time::ZERO };
                // A time that cannot be waited for is looked at again by who turns the graph.
                let _ = self.kernel.set_timer(due.0);
            }
            Turned::Worked | Turned::Ended => self.bells.iter().for_each(|bell| bell.disarm()),
        }
        turned
    }

    fn pass(&mut self) -> Turned {
        let (mut worked, mut all_ended, mut wake) = (false, true, u64::MAX);
        for (scheduler, cx) in &mut self.workers {
            // Time has passed that nobody here has measured.
            cx.stale();
            match scheduler.pass(cx) {
                Turn::Worked => worked = true,
                Turn::Idle(until) => wake = wake.min(until),
                Turn::Pending => wake = 0,
                Turn::Blocked => {}
                Turn::Done => continue,
            }
            all_ended = false;
            scheduler.obey(cx);
            cx.tidy();
        }
        self.has_ended = all_ended;
        match (all_ended, worked) {
            (true, _) => Turned::Ended,
            (_, true) => Turned::Worked,
            _ => Turned::Idle(Time(wake)),
        }
    }

    /// Sleeps until something is sent or taken from another thread, a descriptor that a node waits for is ready, a stop is asked
    /// for, or a time has passed. Returns at
    /// once where there is something to do; made for what follows [`Turned::Idle`].
    pub fn wait(&mut self, at_most: Duration) -> Turned {
        let turned = self.turn();
        if let Turned::Idle(until) = turned {
            let until = if matches!(self.clock, Clock::Monotonic) { until } else { Time::NEVER };
            let end = Clock::Monotonic.now() + u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
            self.poller.sleep(until.min(end).0);
            // What ended the sleep has been taken note of: for who waits for the descriptor next it is ready at once.
            let _ = self.kernel.set_timer(0);
        }
        turned
    }

    /// Turns the graph until every node has ended, by a clock that goes on by itself.
    ///
    /// A clock of the caller's own is moved on where nodes wait for a time, and where they wait for nothing but the program
    /// the run ends.
    pub fn run(mut self) -> Report {
        self.turn_until(Time::NEVER);
        self.finish()
    }

    /// Asks the sources to end, and turns the graph until everything on its way has arrived, or the time is over.
    pub fn stop(mut self, drain: Drain) -> Report {
        self.running.stopper().stop();
        let end = self.clock.now() + u64::try_from(drain.time().as_nanos()).unwrap_or(u64::MAX);
        self.turn_until(end);
        self.finish()
    }

    fn turn_until(&mut self, end: Time) {
        loop {
            match self.turn() {
                Turned::Worked => {}
                Turned::Ended => return,
                Turned::Idle(until) => match &self.clock {
                    Clock::Monotonic => _ = self.wait(Duration::from_nanos(end.since(self.clock.now()))),
                    // Nobody else moves it while this runs; where nothing waits for a time, more would change nothing.
                    Clock::Simulated(clock) if until < Time::NEVER => {
                        clock.advance_to(until.min(end).max(clock.now() + 1))
                    }
                    Clock::Simulated(_) => return,
                },
            }
            if self.clock.now() >= end {
                return;
            }
        }
    }

    /// Ends every node where it stands, and reports. What is still on its way is *left*, and the run counts as one that
    /// did not end in time.
    pub fn finish(self) -> Report {
        let Driven { mut running, workers, clock, begun, has_ended, .. } = self;
        if !has_ended {
            running.shared.abort();
        }
        for (worker, (scheduler, cx)) in workers.into_iter().enumerate() {
            running.outcomes[worker] = Some(Outcome::of(worker, scheduler, cx, None));
        }
        let mut report = running.gathered(!has_ended);
        report.wall = Duration::from_nanos(clock.now().since(begun));
        report
    }

    /// The clock that nodes and handles read.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A handle that can stop this run from elsewhere: the next turns end its sources.
    pub fn stopper(&self) -> Stopper {
        self.running.stopper()
    }

    /// The events of this run, for whichever thread is to read them. A turn that takes too long is noticed when it has ended: the
    /// thread that would notice it earlier is the one that is in it.
    pub fn events(&self) -> Events {
        self.running.events()
    }

    /// The next event that waits to be read, if there is one; never waits, because nothing happens meanwhile.
    pub fn next_event(&self) -> Option<Event> {
        self.running.events().next()
    }

    /// As [`Running::stats`], without waiting: a window that has ended is handed over by the next turns.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.running.stats()
    }

    /// What was recorded since the last call; as [`Running::intervals`].
    pub fn intervals(&self) -> Vec<IntervalReport> {
        self.running.intervals()
    }

    /// As [`Running::path_stats`], without waiting.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.running.path_stats()
    }

    /// As [`Running::edge_stats`].
    pub fn edge_stats(&self) -> Vec<EdgeStats> {
        self.running.edge_stats()
    }

    /// As [`Running::set`]; applied by the next turn.
    ///
    /// # Errors
    /// As [`Running::set`].
    pub fn set(&self, node: &str, name: &str, value: f64) -> Result<(), RunError> {
        self.running.set(node, name, value)
    }
}
