//! A graph on one thread, in an order drawn from a seed, by a clock that moves only when nothing else does.
//!
//! The stages are those that run on threads, with their edges and pools; what differs is who turns them. Any stage may be
//! next, so the orders that threads could produce at the boundaries of turns are among those a seed can draw, and the same
//! seed draws the same again. That makes a failure found once a failure that can be looked at.
//!
//! ```
//! # use limen::Message;
//! # use limen::message::Plain;
//! # use limen::node::{Building, Connected, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source};
//! # #[derive(Clone, Debug)] struct Number(u64);
//! # impl Plain for Number {}
//! # struct Count(u64);
//! # impl Node for Count {
//! #     type Config = ();
//! #     fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> { Ok(Ports::new().output_plain("out")) }
//! #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(Count(0)) }
//! # }
//! # impl Source for Count {
//! #     type Out = Number;
//! #     fn next(&mut self, out: &mut Emit<Number>) -> Result<Next, NodeError> {
//! #         if self.0 == 100 { return Ok(Next::Done); }
//! #         let header = out.header(out.now());
//! #         out.send(Message::new(header, Number(self.0)));
//! #         self.0 += 1;
//! #         Ok(Next::More)
//! #     }
//! # }
//! # struct End;
//! # impl Node for End {
//! #     type Config = ();
//! #     fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> { Ok(Ports::new().input_any("in")) }
//! #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(End) }
//! # }
//! # impl Sink for End {
//! #     type In = Number;
//! #     fn take(&mut self, _: Message<Number>) -> Result<(), NodeError> { Ok(()) }
//! # }
//! use limen::{Plan, Registry, Spec};
//! let registry = Registry::new().source::<Count>("count").sink::<End>("end");
//! let spec = Spec::from_text("version: 1\nnodes: { a: { kind: count }, b: { kind: end, from: a } }", "g.yaml").unwrap();
//! let report = Plan::new(spec, &registry).unwrap().wire().unwrap().simulate(7).unwrap().run(10_000).unwrap();
//! assert_eq!(report.node("b").unwrap().done, 100);
//! assert!(report.bugs.is_empty());
//! ```

use crate::exec::scheduler::Scheduler;
use crate::exec::stage::Turn;
use crate::exec::worker::{Cx, Outcome};
use crate::host::clock::{Clock, SimulatedClock, Time};
use crate::host::descriptors::Poller;
use crate::report::Report;
use crate::run::error::RunError;
use crate::run::running::Running;
use crate::run::wire::Wired;
use std::rc::Rc;
use std::time::Duration;

/// Where simulated time begins: not at zero, which means "not recorded" to a stamp.
const BEGIN: Time = Time(1_000_000_000);
/// A turn takes up to so long in simulated time, ns.
const TURN_NS: u64 = 2_000;
/// A run waits so long for who writes to a descriptor, ns of the machine's clock.
const SILENCE_NS: u64 = 10_000_000_000;
/// A stage that asks to be looked at again at once is, after so long, ns.
const AGAIN_NS: u64 = 1_000;

/// A graph that is turned by hand. See the [module](self).
pub struct Simulation {
    running: Running,
    workers: Vec<(Scheduler, Cx)>,
    stages: Vec<Seat>,
    poller: Rc<Poller>,
    clock: SimulatedClock,
    rng: fastrand::Rng,
    /// The stages have been told that the run stops.
    is_stop_told: bool,
}

/// A stage, and what it last said.
#[derive(Debug)]
struct Seat {
    worker: usize,
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not asked since something moved.
    Ready,
    /// Nothing to do before this time, unless something moves.
    Quiet(u64),
    Done,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A stage was turned.
    Turned,
    /// No stage had anything to do: time went on to the next that has.
    Waited,
    /// Every node has ended.
    Ended,
    /// No stage will ever have anything to do, and not all have ended. Where the program around the graph has handles, or a
    /// source waits for a descriptor, it is the turn of whoever is at the other end.
    Stuck,
}

/// A simulation that did not end.
#[derive(Debug)]
pub struct Stuck {
    /// Where everything is.
    pub report: Report,
    /// The nodes that have not ended.
    pub waiting: Vec<String>,
    /// Whether they wait for each other; otherwise the turns allowed were used up.
    pub is_deadlock: bool,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = if self.is_deadlock { "wait for each other" } else { "have not ended within the turns allowed" };
        write!(f, "{} {why}", self.waiting.join(", "))
    }
}

impl std::error::Error for Stuck {}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("now", &self.clock.now())
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

impl Wired {
    /// Builds every node on the calling thread, to be turned by [`Simulation::step`] or [`Simulation::run`]. Nodes are not
    /// pinned, and nodes that would block a helper thread block the caller.
    ///
    /// # Errors
    /// [`RunError::Build`] names the first node that could not be built; [`RunError::Refused`] where an inlet or an outlet
    /// was not taken.
    pub fn simulate(self, seed: u64) -> Result<Simulation, RunError> {
        let clock = SimulatedClock::new(BEGIN);
        let (running, workers, poller) = self.build_here(&Clock::Simulated(clock.clone()))?;
        let seats = |(worker, (scheduler, _)): (usize, &(Scheduler, Cx))| {
            (0..scheduler.len()).map(move |at| Seat { worker, at, state: State::Ready })
        };
        let stages = workers.iter().enumerate().flat_map(seats).collect();
        Ok(Simulation {
            running,
            workers,
            stages,
            poller,
            clock,
            rng: fastrand::Rng::with_seed(seed),
            is_stop_told: false,
        })
    }
}

impl Simulation {
    /// The clock that stages and nodes read.
    pub fn clock(&self) -> &SimulatedClock {
        &self.clock
    }

    /// Asks the sources to end.
    pub fn stop(&self) {
        self.running.stopper().stop();
    }

    /// Turns one stage, drawn from those that may have something to do; or, where none has, moves the clock to the time at
    /// which one will.
    pub fn step(&mut self) -> Step {
        self.look_outside();
        if self.hears_of_stop() {
            self.wake(u64::MAX);
        }
        if self.poller.look() {
            // Whose descriptor is ready is not asked: whoever has nothing to do says so again.
            self.wake(u64::MAX);
        }
        let ready = self.stages.iter().filter(|seat| seat.state == State::Ready).count();
        if ready == 0 {
            return self.wait();
        }
        let drawn = self.rng.usize(..ready);
        let seat = self.stages.iter_mut().filter(|seat| seat.state == State::Ready).nth(drawn);
        let Some(seat) = seat else { return Step::Ended };
        let (scheduler, cx) = &mut self.workers[seat.worker];
        let turn = scheduler.turn(seat.at, cx);
        scheduler.obey(cx);
        self.clock.advance(1 + self.rng.u64(..TURN_NS));
        let soon = self.clock.now().0 + AGAIN_NS;
        seat.state = match turn {
            Turn::Worked => State::Ready,
            Turn::Idle(until) => State::Quiet(until.max(soon)),
            Turn::Pending => State::Quiet(soon),
            Turn::Blocked => State::Quiet(u64::MAX),
            Turn::Done => State::Done,
        };
        if matches!(turn, Turn::Worked | Turn::Done) {
            // Something moved: whoever had nothing to do may have now.
            self.wake(u64::MAX);
        }
        Step::Turned
    }

    /// Turns the stages of every worker as its schedule says: one pass of each; or, where none has anything to do, moves the
    /// clock to the time at which one will.
    pub fn pass(&mut self) -> Step {
        self.poller.look();
        let (mut turned, mut all_ended, mut wake) = (false, true, u64::MAX);
        for (scheduler, cx) in &mut self.workers {
            // Time has passed that no stage of this worker has measured.
            cx.stale();
            let turn = scheduler.pass(cx);
            scheduler.obey(cx);
            self.clock.advance(1 + self.rng.u64(..TURN_NS));
            match turn {
                Turn::Worked => turned = true,
                Turn::Idle(until) => wake = wake.min(until),
                Turn::Pending => wake = 0,
                Turn::Blocked => {}
                Turn::Done => continue,
            }
            all_ended = false;
        }
        // Who was turned before a node asked for the stop has not seen it.
        let is_told = self.hears_of_stop();
        match wake {
            _ if all_ended => Step::Ended,
            _ if turned || is_told => Step::Turned,
            u64::MAX => Step::Stuck,
            at => {
                self.clock.advance_to(Time(at.max(self.clock.now().0 + AGAIN_NS)));
                Step::Waited
            }
        }
    }

    /// How many turns a node has had.
    pub fn turns(&self, node: &str) -> Option<u64> {
        let at = self.running.plan.nodes().iter().position(|n| n.name == node)?;
        Some(self.running.counts[at].turns.get())
    }

    /// True once, after a stop was asked for: it rings every worker's bell, and nobody sleeps here who would hear it.
    fn hears_of_stop(&mut self) -> bool {
        let is_stopping = self.running.shared.is_stopping();
        is_stopping && !std::mem::replace(&mut self.is_stop_told, is_stopping)
    }

    fn wake(&mut self, until: u64) {
        for seat in &mut self.stages {
            if matches!(seat.state, State::Quiet(at) if at <= until) {
                seat.state = State::Ready;
            }
        }
    }

    /// Whoever waited for the program around the graph, and need not any more, may be next.
    fn look_outside(&mut self) {
        let Simulation { running, workers, stages, .. } = self;
        for (node, _) in &running.endpoints {
            let is_seat = |seat: &&mut Seat| workers[seat.worker].0.node(seat.at) == *node;
            let Some(seat) = stages.iter_mut().find(is_seat) else { continue };
            // Nobody sleeps here: a bell that was armed and is not any more has been rung.
            let is_rung = !running.shared.bell(seat.worker).is_armed();
            if is_rung && matches!(seat.state, State::Quiet(_)) {
                seat.state = State::Ready;
            }
        }
        for (node, _) in &running.endpoints {
            running.shared.bell(running.plan.nodes()[*node].worker).arm();
        }
    }

    fn wait(&mut self) -> Step {
        let times = self.stages.iter().filter_map(|seat| match seat.state {
            State::Quiet(at) => Some(at),
            _ => None,
        });
        match times.min() {
            None => Step::Ended,
            Some(u64::MAX) => Step::Stuck,
            Some(at) => {
                self.clock.advance_to(Time(at));
                self.wake(at);
                Step::Waited
            }
        }
    }

    /// Steps until every node has ended.
    ///
    /// # Errors
    /// [`Stuck`], where the nodes wait for each other or for a descriptor to which nobody writes for 10 s, or have not ended after so many steps and as many again in which
    /// the sources were asked to end.
    pub fn run(self, steps: u64) -> Result<Report, Box<Stuck>> {
        self.run_by(steps, Simulation::step)
    }

    /// As [`Simulation::run`], by [`Simulation::pass`]: in the order in which the workers would turn their stages.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn run_as_scheduled(self, passes: u64) -> Result<Report, Box<Stuck>> {
        self.run_by(passes, Simulation::pass)
    }

    fn run_by(mut self, steps: u64, mut step: impl FnMut(&mut Simulation) -> Step) -> Result<Report, Box<Stuck>> {
        for n in 0..steps.saturating_mul(2) {
            if n == steps {
                self.stop();
            }
            match step(&mut self) {
                Step::Turned | Step::Waited => {}
                Step::Ended => return Ok(self.finish()),
                Step::Stuck if self.waits_outside() => {}
                Step::Stuck => return Err(self.stuck(true)),
            }
        }
        Err(self.stuck(false))
    }

    /// Waits in earnest, for who writes to a descriptor that a node waits for; false where there is none, or where nobody
    /// has written for long.
    fn waits_outside(&mut self) -> bool {
        // When a stop was asked for nobody waits for descriptors any more.
        if !self.poller.has_descriptors() || self.running.shared.is_stopping() {
            return false;
        }
        let bells: Vec<_> = (0..self.workers.len()).map(|worker| self.running.shared.bell(worker)).collect();
        bells.iter().for_each(|bell| bell.arm());
        let before = self.poller.wakes();
        self.poller.sleep((Clock::Monotonic.now() + SILENCE_NS).0);
        self.wake(u64::MAX);
        self.poller.wakes() > before || self.running.shared.is_stopping()
    }

    fn stuck(self, is_deadlock: bool) -> Box<Stuck> {
        let nodes = self.stages.iter().filter(|seat| seat.state != State::Done);
        let names = nodes.map(|seat| self.running.plan.nodes()[self.workers[seat.worker].0.node(seat.at)].name.clone());
        let waiting = names.collect();
        Box::new(Stuck { report: self.finish(), waiting, is_deadlock })
    }

    /// Ends every node where it stands, and reports.
    pub fn finish(self) -> Report {
        let Simulation { mut running, workers, clock, .. } = self;
        for (worker, (scheduler, cx)) in workers.into_iter().enumerate() {
            running.outcomes[worker] = Some(Outcome::of(worker, scheduler, cx, None));
        }
        let mut report = running.wait();
        report.wall = Duration::from_nanos(clock.now().since(BEGIN));
        report
    }
}
