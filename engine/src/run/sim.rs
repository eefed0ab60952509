//! A graph on one thread, in an order drawn from a seed, on a clock that advances only with the
//! simulation.
//!
//! Stages, edges and pools are the same as with threads. Any stage may be next, so every order that
//! threads could produce at the boundaries of turns can be drawn, and the same seed draws the same
//! order again: a failure found once can be reproduced.
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
use crate::exec::worker::{Cx, WorkerOutcome};
use crate::host::clock::{Clock, SimulatedClock, Time};
use crate::host::descriptors::Poller;
use crate::report::Report;
use crate::run::error::RunError;
use crate::run::running::Running;
use crate::run::wire::Wired;
use std::rc::Rc;
use std::time::Duration;

/// Simulated time does not start at zero, which means "not recorded" in a stamp.
const BEGIN: Time = Time(1_000_000_000);
/// The longest turn in simulated time, ns.
const TURN_NS: u64 = 2_000;
/// How long a run waits for data on a descriptor, ns of the machine's clock.
const SILENCE_NS: u64 = 10_000_000_000;
/// Delay before a stage that asks for another turn gets it, ns.
const AGAIN_NS: u64 = 1_000;

/// A graph turned step by step. See the [module](self).
pub struct Simulation {
    running: Running,
    workers: Vec<(Scheduler, Cx)>,
    stages: Vec<SimStage>,
    poller: Rc<Poller>,
    clock: SimulatedClock,
    rng: fastrand::Rng,
    /// Whether the stages were woken for the stop.
    is_stop_seen: bool,
}

/// A stage, and the result of its last turn.
#[derive(Debug)]
struct SimStage {
    worker: usize,
    at: usize,
    state: StageState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageState {
    /// Has to be turned: something moved since its last turn.
    Ready,
    /// Nothing to do before this time, unless something moves.
    Quiet(u64),
    Done,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A stage was turned.
    Turned,
    /// No stage had work: the clock advanced to the next time at which one has.
    Waited,
    /// Every node has ended.
    Ended,
    /// No stage will ever have work, and not all have ended. If the program has handles, or a
    /// source waits for a descriptor, it is up to the other end.
    Stuck,
}

/// A simulation that did not end.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stuck {
    /// The state of everything.
    pub report: Report,
    /// The nodes that have not ended.
    pub waiting: Vec<String>,
    /// Whether they wait for each other; otherwise the steps were used up.
    pub is_deadlock: bool,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what =
            if self.is_deadlock { "deadlock between nodes" } else { "nodes still running after the allowed steps" };
        write!(f, "{what}: {}", self.waiting.join(", "))
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
    /// Builds every node on the calling thread, to be turned by [`Simulation::step`] or
    /// [`Simulation::run`]. Nodes are not pinned, and nodes that would block a helper thread block
    /// the caller.
    ///
    /// # Errors
    /// [`RunError::Build`] names the first node that could not be built; [`RunError::Refused`] if
    /// an inlet or outlet was not taken.
    pub fn simulate(self, seed: u64) -> Result<Simulation, RunError> {
        let clock = SimulatedClock::new(BEGIN);
        let (running, workers, poller) = self.build_here(&Clock::Simulated(clock.clone()))?;
        let states_of = |(worker, (scheduler, _)): (usize, &(Scheduler, Cx))| {
            (0..scheduler.len()).map(move |at| SimStage { worker, at, state: StageState::Ready })
        };
        let stages = workers.iter().enumerate().flat_map(states_of).collect();
        Ok(Simulation {
            running,
            workers,
            stages,
            poller,
            clock,
            rng: fastrand::Rng::with_seed(seed),
            is_stop_seen: false,
        })
    }
}

impl Simulation {
    /// Returns the clock that stages and nodes read.
    pub fn clock(&self) -> &SimulatedClock {
        &self.clock
    }

    /// Asks the sources to end.
    pub fn stop(&self) {
        self.running.stopper().stop();
    }

    /// Turns one stage, drawn from those that may have work; if there is none, advances the clock
    /// to the time at which one will have.
    pub fn step(&mut self) -> Step {
        self.look_outside();
        if self.takes_stop() {
            self.wake(u64::MAX);
        }
        if self.poller.look() {
            // Which stage waits for the descriptor does not matter: a stage without work goes quiet
            // again.
            self.wake(u64::MAX);
        }
        let ready = self.stages.iter().filter(|stage| stage.state == StageState::Ready).count();
        let soon = self.clock.now().0 + AGAIN_NS;
        let comes_soon = |stage: &SimStage| matches!(stage.state, StageState::Quiet(at) if at <= soon);
        let is_idle = || ready == 0 && !self.stages.iter().any(comes_soon);
        if self.running.watcher.has_loops() && self.end_loops(is_idle()) {
            self.wake(u64::MAX);
            return Step::Turned;
        }
        if ready == 0 {
            return self.wait();
        }
        let drawn = self.rng.usize(..ready);
        let stage = self.stages.iter_mut().filter(|stage| stage.state == StageState::Ready).nth(drawn);
        let Some(stage) = stage else { return Step::Ended };
        let (scheduler, cx) = &mut self.workers[stage.worker];
        // The worker's cached time is out of date.
        cx.invalidate_clock();
        let turn = scheduler.turn(stage.at, cx);
        scheduler.apply_commands(cx);
        self.clock.advance(1 + self.rng.u64(..TURN_NS));
        let soon = self.clock.now().0 + AGAIN_NS;
        stage.state = match turn {
            Turn::Worked => StageState::Ready,
            Turn::Idle(until) => StageState::Quiet(until.max(soon)),
            Turn::Pending => StageState::Quiet(soon),
            Turn::Blocked => StageState::Quiet(u64::MAX),
            Turn::Done => StageState::Done,
        };
        if matches!(turn, Turn::Worked | Turn::Done) {
            // Something moved, so stages that had no work may have some now.
            self.wake(u64::MAX);
        }
        Step::Turned
    }

    /// Turns the stages of every worker in one pass, as its schedule says; if none has work,
    /// advances the clock to the time at which one will have.
    pub fn pass(&mut self) -> Step {
        self.poller.look();
        let (mut turned, mut all_ended, mut wake) = (false, true, u64::MAX);
        for (scheduler, cx) in &mut self.workers {
            // The worker's cached time is out of date.
            cx.invalidate_clock();
            let turn = scheduler.pass(cx);
            scheduler.apply_commands(cx);
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
        // Stages turned before a node requested the stop have not seen it.
        let is_stopped = self.takes_stop() | (!all_ended && self.end_loops(!turned && wake > 0));
        match wake {
            _ if all_ended => Step::Ended,
            _ if turned || is_stopped => Step::Turned,
            u64::MAX => Step::Stuck,
            at => {
                self.clock.advance_to(Time(at.max(self.clock.now().0 + AGAIN_NS)));
                Step::Waited
            }
        }
    }

    /// Returns how many turns a node has had.
    pub fn turns(&self, node: &str) -> Option<u64> {
        let at = self.running.plan.nodes().iter().position(|n| n.name == node)?;
        Some(self.running.counts[at].turns.get())
    }

    /// Returns true once after a stop was requested: a stop rings the workers' bells, but here no
    /// worker sleeps on them.
    fn takes_stop(&mut self) -> bool {
        let is_stopping = self.running.shared.is_stopping();
        is_stopping && !std::mem::replace(&mut self.is_stop_seen, is_stopping)
    }

    /// Ends the loops that are to end. Returns whether there was one.
    fn end_loops(&mut self, is_idle: bool) -> bool {
        let has_ended = self.running.watcher.end_loops(is_idle);
        if has_ended {
            self.workers.iter_mut().for_each(|(scheduler, cx)| scheduler.apply_commands(cx));
        }
        has_ended
    }

    fn wake(&mut self, until: u64) {
        for stage in &mut self.stages {
            if matches!(stage.state, StageState::Quiet(at) if at <= until) {
                stage.state = StageState::Ready;
            }
        }
    }

    /// Wakes the stages that waited for the program and whose bells were rung.
    fn look_outside(&mut self) {
        let Simulation { running, workers, stages, .. } = self;
        for (node, _) in &running.endpoints {
            let is_endpoint = |stage: &&mut SimStage| workers[stage.worker].0.node(stage.at) == *node;
            let Some(stage) = stages.iter_mut().find(is_endpoint) else { continue };
            // No worker sleeps here: a bell that was armed and no longer is has been rung.
            let is_rung = !running.shared.bell(stage.worker).is_armed();
            if is_rung && matches!(stage.state, StageState::Quiet(_)) {
                stage.state = StageState::Ready;
            }
        }
        for (node, _) in &running.endpoints {
            running.shared.bell(running.plan.nodes()[*node].worker).arm();
        }
    }

    fn wait(&mut self) -> Step {
        let times = self.stages.iter().filter_map(|stage| match stage.state {
            StageState::Quiet(at) => Some(at),
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
    /// [`Stuck`], if the nodes wait for each other or 10 s for a descriptor, or have not ended
    /// after `steps` steps and as many again after the sources were stopped.
    pub fn run(self, steps: u64) -> Result<Report, Box<Stuck>> {
        self.run_by(steps, Simulation::step)
    }

    /// Runs the graph by [`Simulation::pass`], in the order in which workers turn their stages; see
    /// [`Simulation::run`].
    ///
    /// # Errors
    /// [`Stuck`] if the nodes wait for each other, or have not ended after `passes` passes.
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

    /// Blocks until a descriptor that a node waits for is ready; returns false if there is none, or
    /// if it stays silent for too long.
    fn waits_outside(&mut self) -> bool {
        // After a stop no node waits for descriptors.
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
        let nodes = self.stages.iter().filter(|stage| stage.state != StageState::Done);
        let names =
            nodes.map(|stage| self.running.plan.nodes()[self.workers[stage.worker].0.node(stage.at)].name.clone());
        let waiting = names.collect();
        Box::new(Stuck { report: self.finish(), waiting, is_deadlock })
    }

    /// Ends every node at once, and reports.
    pub fn finish(self) -> Report {
        let Simulation { mut running, workers, clock, .. } = self;
        for (worker, (scheduler, cx)) in workers.into_iter().enumerate() {
            running.outcomes[worker] = Some(WorkerOutcome::of(worker, scheduler, cx, None));
        }
        let mut report = running.wait();
        report.wall = Duration::from_nanos(clock.now().since(BEGIN));
        report
    }
}
