//! The stage that runs a model, for every backend.
//!
//! Messages of all inputs are paired by sequence, gathered into a batch, copied into one dense buffer per input, and
//! given to the backend in one call; its outputs are rows of one slot per output port. A batch is closed when it is
//! full, when its oldest message has waited `within` or must go to be in time, or when the stream has ended: the tail is never lost.
//!
//! Where a session's calls finish later, several are on their way. They are collected in the order in which they began, so
//! order is kept, and a call that failed fails the messages it was made of; those that began after it fail too only if the node is
//! taken out or built again.

mod flight;
mod side;
mod streams;

use crate::base::error::PlanErrors;
use crate::base::unit::Span;
use crate::edge::{Reason, State};
use crate::exec::infer::flight::Flight;
use crate::exec::infer::side::{Side, batches, emit_rows};
use crate::exec::infer::streams::{Anew, Streams};
use crate::exec::stage::{
    Common, Ended, Life, Peak, Stage, Standing, Trouble, Turn, blocked, filter_burst, guarded, note_skew, refuse,
};
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::sync::Arc;
use crate::ledger::Run;
use crate::ledger::{Hist, Term};
use crate::message::origins::Origins;
use crate::message::tensor::{PortSpec, Tensor};
use crate::node::backend::{Backend, BackendError, BackendStatus, Prepared, Session, SessionMetadata, Signature};
use crate::node::emit::Emit;
use crate::node::error::{NodeError, NodeErrorKind};
use crate::node::intake::{Burst, Intake, ZipMany};
use crate::node::metrics::Metrics;
use crate::node::planning::{Given, Planning};
use crate::node::port::PortSet;
use crate::node::ports::{Cost, InPort, OutPort, Ports};
use crate::node::{Many, Set};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

/// How messages are put together into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Batch {
    /// Most messages in one call of the model.
    #[serde(default = "one")]
    pub max: usize,
    /// How long the oldest message may wait for others; without it a batch is whatever is there.
    pub within: Option<Span>,
    /// How many messages leave after a full batch; the others are context for the next. All by default.
    pub stride: Option<usize>,
}

fn one() -> usize {
    1
}

impl Default for Batch {
    fn default() -> Self {
        Batch { max: 1, within: None, stride: None }
    }
}

/// A kind whose nodes run models; it plans which backend runs which model.
pub trait Infer: 'static {
    /// What `config:` holds.
    type Config: DeserializeOwned + JsonSchema;

    /// Loads the model and says how it is to be run.
    ///
    /// # Errors
    /// Everything that is wrong with the config, the model, or what is connected.
    fn plan(config: Self::Config, given: &Given, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors>;
}

/// A planned model node, erased over its backend.
pub struct InferPlan {
    pub(crate) ports: Ports,
    pub(crate) make: Box<dyn MakeInfer>,
    pub(crate) batch: Batch,
}

/// What becomes of a stream's state when a message of it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSkip {
    /// It stays.
    #[default]
    Keep,
    /// It begins anew.
    Reset,
}

/// What becomes of a stream's state where the stream ends and another begins: a file that is read again, a source that was
/// built again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnEnd {
    /// It begins anew.
    #[default]
    Reset,
    /// It stays.
    Keep,
}

impl InferPlan {
    /// Plans a loaded model with the batching it shall get. Its ports are the model's inputs and outputs.
    pub fn new<B: Backend>(prepared: Arc<B::Prepared>, batch: Batch) -> Self {
        let signature = prepared.signature();
        let mut ports = Ports::new().cost(Cost::Infer);
        for input in &signature.inputs {
            let spec = PortSpec::new(input.dtype, input.shape.iter().cloned());
            ports = ports.in_port(InPort { name: input.name.clone(), spec: Some(spec), holds: batch.max });
        }
        for output in &signature.outputs {
            let spec = PortSpec::new(output.dtype, output.shape.iter().cloned());
            ports = ports.out_port(OutPort {
                name: output.name.clone(),
                spec: Some(spec),
                emits: batch.max,
                rows: batch.max,
                forwards: Vec::new(),
            });
        }
        // Where a batch is put together, and where its outputs go that nothing takes.
        let sides = signature.inputs.iter().chain(&signature.outputs);
        let bytes = sides.filter_map(|side| PortSpec::new(side.dtype, side.shape.iter().cloned()).max_bytes());
        let bytes = bytes.fold(0usize, |sum, item| sum.saturating_add(item.saturating_mul(batch.max)));
        let ports = ports.note(format!("backend {}", B::NAME)).memory(bytes);
        InferPlan { ports, make: Box::new(Make::<B> { prepared, anew: Anew::default() }), batch }
    }

    /// What becomes of a stream's state when a message of it is missing: its number is not the one after the last.
    #[must_use]
    pub fn on_skip(mut self, on_skip: OnSkip) -> Self {
        self.make.anew().on_skip = on_skip;
        self
    }

    /// What becomes of a stream's state where another begins: its segment is not that of the last message.
    #[must_use]
    pub fn on_end(mut self, on_end: OnEnd) -> Self {
        self.make.anew().on_end = on_end;
        self
    }

    /// Its session starts so many threads ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)).
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.ports = self.ports.helpers(threads);
        self
    }

    /// No call takes less than this ([`Ports::takes`]).
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.ports = self.ports.takes(time);
        self
    }

    /// What a call took when it was measured ([`Ports::measured`]).
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.ports = self.ports.measured(time);
        self
    }

    /// Adds a line for `--plan`.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.ports = self.ports.note(line);
        self
    }
}

impl std::fmt::Debug for InferPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InferPlan").field("ports", &self.ports).field("batch", &self.batch).finish_non_exhaustive()
    }
}

struct Make<B: Backend> {
    prepared: Arc<B::Prepared>,
    anew: Anew,
}

/// Makes the monomorphic stage of one backend.
pub(crate) trait MakeInfer: Send {
    fn anew(&mut self) -> &mut Anew;
    fn make(
        self: Box<Self>,
        batch: Batch,
        common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError>;
}

impl<B: Backend> MakeInfer for Make<B> {
    fn anew(&mut self) -> &mut Anew {
        &mut self.anew
    }

    fn make(
        self: Box<Self>,
        batch: Batch,
        common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        Ok(Box::new(InferStage::new(*self, batch, common, intake, emit, cx)?))
    }
}

type LaneOf<B> = <SessionOf<B> as Session>::Lane;
type SessionOf<B> = <<B as Backend>::Prepared as Prepared>::Session;

/// A message of a batch that is not full yet.
struct Held {
    set: Set<Tensor>,
    run: Run,
    since: u64,
}

fn session_of<B: Backend>(session: &mut Option<SessionOf<B>>) -> Result<&mut SessionOf<B>, BackendError> {
    session.as_mut().ok_or_else(|| BackendError::Call("the session is gone".into()))
}

/// A session, ready to be called on this thread, and whether it wakes it when a call has finished.
fn begin<B: Backend>(prepared: &B::Prepared, max: usize, cx: &Cx) -> Result<(SessionOf<B>, bool), BackendError> {
    let mut session = prepared.session(max)?;
    let wakes = !cx.shared.is_turned_here() && session.begin(&cx.helpers())?;
    Ok((session, wakes))
}

/// How long a worker sleeps at most while calls are on their way that will wake it, ns.
const LOOK_NS: u64 = 1_000_000;

struct InferStage<B: Backend> {
    common: Common,
    intake: ZipMany<Tensor>,
    burst: Burst<Set<Tensor>>,
    held: VecDeque<Held>,
    /// The origins of those, where they are followed.
    origins: VecDeque<Origins>,
    prepared: Arc<B::Prepared>,
    session: Option<SessionOf<B>>,
    /// Those of the session that was dropped last.
    figures: Metrics,
    /// One for each message of a call, where the model has state; else one.
    lanes: Vec<LaneOf<B>>,
    streams: Option<Streams<LaneOf<B>>>,
    /// Calls on their way, the first begun first, and as many as may be.
    flights: VecDeque<Flight>,
    most: usize,
    /// As many as there were.
    peak: usize,
    /// Whether the session wakes this worker when a call has finished.
    wakes: bool,
    /// A gap was seen while calls were on their way.
    is_to_reset: bool,
    /// Flights that have ended, to be used again.
    spare: Vec<Flight>,
    inputs: Vec<Side>,
    outputs: Vec<Side>,
    emit: Emit<Many<Tensor>>,
    max: usize,
    within: u64,
    stride: usize,
    sizes: Hist,
    /// Messages in all calls, those that stayed for the next call among them.
    called: u64,
    /// How long calls took, by their number of messages.
    calls: Vec<Peak>,
    /// When a batch is to close; 0 while none waits. And how much later than that its call began.
    closes: u64,
    late: Peak,
}

impl<B: Backend> InferStage<B> {
    fn new(
        Make { prepared, anew }: Make<B>,
        batch: Batch,
        mut common: Common,
        intake: ZipMany<Tensor>,
        emit: Emit<Many<Tensor>>,
        cx: &mut Cx,
    ) -> Result<Self, NodeError> {
        common.queue = Some(cx.histogram(common.node, Term::Queue, 2));
        common.hold = Some(cx.histogram(common.node, Term::Hold, 2));
        common.blocked = Some(cx.histogram(common.node, Term::Blocked, 2));
        common.compute = cx.histogram(common.node, Term::Compute, 3);
        common.note_joins(cx);
        let (session, wakes) = begin::<B>(&prepared, batch.max, cx)?;
        // Each call of a stream with state needs what the one before has left; and who turns a graph by hand, by a clock of
        // his own perhaps, is given no threads.
        let one_by_one = prepared.is_stateful() || cx.shared.is_turned_here();
        let most = if one_by_one { 1 } else { session.in_flight().max(1) };
        cx.shared.backend(common.node, |status| {
            let SessionMetadata { device, threads, memory, .. } = session.metadata();
            *status =
                BackendStatus { backend: B::NAME, device, threads, memory, ready: true, ..BackendStatus::default() };
        });
        let signature: &Signature = prepared.signature();
        let sides = |specs: &[crate::node::backend::TensorSpec]| -> Result<Vec<Side>, NodeError> {
            specs.iter().map(|s| Side::new(s, batch.max)).collect()
        };
        let spare = std::iter::repeat_with(|| Flight::new(batch.max, common.traced)).take(most).collect();
        let origins = VecDeque::with_capacity(if common.traced { batch.max } else { 0 });
        let mut burst = intake.burst();
        burst.items.reserve(batch.max);
        burst.runs.reserve(batch.max + 1);
        Ok(InferStage {
            called: 0,
            sizes: cx.histogram(common.node, Term::Batch, 2),
            inputs: sides(&signature.inputs)?,
            outputs: sides(&signature.outputs)?,
            common,
            intake,
            burst,
            held: VecDeque::with_capacity(batch.max),
            origins,
            session: Some(session),
            figures: Metrics::default(),
            lanes: std::iter::repeat_with(Default::default).take(batch.max).collect(),
            streams: prepared.is_stateful().then(|| Streams::new(cx.source_count(), anew)),
            flights: VecDeque::with_capacity(most),
            most,
            peak: 0,
            wakes,
            is_to_reset: false,
            spare,
            emit,
            max: batch.max,
            within: batch.within.map_or(0, Span::as_nanos),
            calls: vec![Peak::default(); batch.max + 1],
            closes: 0,
            late: Peak::default(),
            stride: batch.stride.unwrap_or(batch.max).clamp(1, batch.max),
            prepared,
        })
    }

    /// How many of the messages that are held may go into one call: of a stream with state one.
    fn callable(&self) -> usize {
        if self.streams.is_none() {
            return self.held.len();
        }
        let source = |held: &Held| ZipMany::header(&held.set, self.common.lead).source;
        let is_again = |at: usize| self.held.iter().take(at).any(|held| source(held) == source(&self.held[at]));
        (0..self.held.len()).find(|at| is_again(*at)).unwrap_or(self.held.len())
    }

    /// How long a call with so many messages takes at most, as far as anybody knows.
    fn call_of(&self, n: usize) -> Option<u64> {
        let measured = self.calls.get(n).and_then(Peak::most);
        if self.common.budget == 0 { measured } else { Some(self.common.budget.max(measured.unwrap_or(0))) }
    }

    /// When the messages that are held must go to be in time everywhere, if that is ever.
    fn goes_by(&self, oldest: &Held) -> Option<u64> {
        let filter = self.common.filter.as_ref()?;
        let header = ZipMany::header(&oldest.set, self.common.lead);
        let done = filter.done_by(header, self.origins.front());
        if done == u64::MAX {
            return None;
        }
        let n = self.callable();
        // What a call costs is learned by making one.
        let Some(call) = self.call_of(n) else { return Some(0) };
        // One more message may come before the batch closes, and makes the call longer.
        let more = match self.call_of(n + 1) {
            _ if n == self.max => 0,
            Some(more) => more,
            None => call + call / n.max(1) as u64,
        };
        let late = self.late.most().map_or(0, |late| late + late / 4);
        // Until enough is known of this thread, an eighth of all the time there is.
        let all = done.saturating_sub(header.origin.0);
        let late = if self.late.is_known() { late } else { late.max(all / 8) };
        Some(done.saturating_sub(call.max(more) + late))
    }

    /// Begins a call that finishes later.
    fn submit(&mut self, flight: &mut Flight) -> Result<(), NodeError> {
        let ins = batches(&mut self.inputs, &self.held, flight.n);
        flight.ticket = session_of::<B>(&mut self.session)?.submit(flight.n, &ins)?;
        Ok(())
    }

    /// Runs the model over the first messages held and emits the rows of those that leave.
    fn call(&mut self, flight: &Flight) -> Result<(), NodeError> {
        let InferStage { inputs, outputs, held, emit, session, lanes, streams, max, .. } = self;
        let (n, max) = (flight.n, *max);
        let ins = batches(inputs, held, n);
        let session = session_of::<B>(session)?;
        emit_rows(emit, outputs, flight, |outs| match &mut lanes[..] {
            [lane] if n == 1 && max == 1 => session.infer_one(&ins, outs, lane),
            lanes if streams.is_some() => session.infer_batch(n, &ins, outs, lanes),
            lanes => session.infer_batch(n, &ins, outs, &mut lanes[..1]),
        })
    }

    /// Emits what came of a call that has finished.
    fn collect(&mut self, flight: &Flight) -> Result<(), NodeError> {
        let session = session_of::<B>(&mut self.session)?;
        emit_rows(&mut self.emit, &mut self.outputs, flight, |outs| session.collect(flight.ticket, outs))
    }

    /// Takes what there is into the batch. Says whether there was anything.
    fn gather(&mut self, cx: &mut Cx) -> bool {
        let want = self.max - self.held.len();
        let ready = self.intake.ready(want);
        if ready == 0 {
            return false;
        }
        let now = cx.mark();
        self.intake.fill(ready, &mut self.burst);
        if self.common.filter.is_some() {
            filter_burst(&mut self.intake, &mut self.burst, &mut self.common, cx);
        }
        let ready = self.burst.items.len();
        if self.common.joins {
            self.note_sets(cx);
        } else if self.common.traced {
            self.trace_sets();
        }
        let mut runs = self.burst.runs.drain(..);
        let mut run = Run::default();
        for set in self.burst.items.drain(..) {
            if run.n == 0 {
                run = runs.next().unwrap_or_default();
            }
            run.n = run.n.saturating_sub(1);
            self.held.push_back(Held { set, run: Run { n: 1, ..run }, since: now });
        }
        self.intake.received(ready as u64);
        self.common.counts.taken.add(ready as u64);
        self.common.counts.held.add(ready as u64);
        self.intake.ring();
        true
    }

    /// Notes the origins of what was taken.
    fn trace_sets(&mut self) {
        for (at, set) in self.burst.items.iter().enumerate() {
            let (mut origins, fresh) = (Origins::default(), self.intake.fresh_at(at));
            ZipMany::each_origin(set, fresh, &mut |origin| origins.add(origin));
            self.origins.push_back(origins);
        }
    }

    /// Notes how far apart the messages that were taken together began, and their origins.
    fn note_sets(&mut self, cx: &mut Cx) {
        let mut sets = self.burst.items.iter();
        for run in &self.burst.runs {
            for set in sets.by_ref().take(run.n as usize).filter(|_| run.is_recorded()) {
                note_skew::<ZipMany<Tensor>>(self.common.skew, set, run.weight, cx);
            }
        }
        if self.common.traced {
            self.trace_sets();
        }
    }

    /// Begins a call with the messages that are held, and ends it where calls end at once.
    fn run_batch(&mut self, cx: &mut Cx, ending: bool) {
        let n = self.callable();
        let leave = if n == self.max && !ending { self.stride.min(n) } else { n };
        let started = cx.mark();
        self.emit.now = Time(started);
        // There is one for each call that may be on its way.
        let mut flight = self.spare.pop().unwrap_or_else(|| Flight::new(self.max, self.common.traced));
        (flight.n, flight.started, flight.landed, flight.is_said) = (n, started, 0, false);
        flight.headers.clear();
        flight.runs.clear();
        flight.origins.clear();
        flight.origins.extend(self.origins.iter().take(leave).cloned());
        for held in self.held.iter().take(leave) {
            flight.headers.push(*ZipMany::header(&held.set, self.common.lead));
            flight.runs.push((held.run, held.since));
        }
        // A call that ends at once asks before it begins: one that is refused has changed no state and cost nothing.
        if self.common.refuses
            && self.most == 1
            && let Some(edge) = self.refusing(&flight)
        {
            return self.turn_away(flight, edge, cx);
        }
        // Outside of the guarded call, so that one that panics loses nobody's state. Where there are states, all messages of a
        // call leave with it.
        let lent = guarded("infer", || {
            let lanes = &mut self.lanes;
            self.streams.iter_mut().for_each(|streams| streams.lend(flight.headers.iter(), lanes));
            Ok(())
        });
        let outcome = lent.and_then(|()| self.begin_call(&mut flight));
        let ended = if self.most == 1 { cx.read() } else { 0 };
        let settled = guarded("infer", || {
            let (lanes, is_done) = (&mut self.lanes, outcome.is_ok());
            self.streams.iter_mut().for_each(|streams| streams.settle(flight.headers.iter(), lanes, is_done));
            Ok(())
        });
        let outcome = outcome.and(settled);
        self.held.drain(..leave);
        self.origins.drain(..leave.min(self.origins.len()));
        cx.record(self.sizes, n as u64, 1, 1);
        self.common.counts.batches.add(1);
        self.called += n as u64;
        if self.most == 1 {
            return self.land(flight, outcome, ended, cx);
        }
        cx.stale();
        // One that could not even begin fails in its turn, behind those that began before.
        flight.trouble = outcome.err();
        self.flights.push_back(flight);
        self.peak = self.peak.max(self.flights.len());
    }

    /// The edge that would fail this node for want of room for what a call sends.
    #[cold]
    fn refusing(&mut self, flight: &Flight) -> Option<String> {
        let coming = |bytes: usize| flight.headers.iter().map(move |header| (header.qos, bytes as u64));
        self.emit.ports.iter_mut().zip(&self.outputs).find_map(|(port, side)| port.refusing(coming(side.item_bytes)))
    }

    /// Fails the messages of a call that is not made.
    #[cold]
    fn turn_away(&mut self, flight: Flight, edge: String, cx: &mut Cx) {
        let leave = flight.leaving();
        self.held.drain(..leave as usize);
        self.origins.drain(..(leave as usize).min(self.origins.len()));
        self.common.counts.held.sub(leave);
        self.common.counts.failed.add(leave);
        self.spare.push(flight);
        self.fail(cx, Trouble::error("emit", &NodeErrorKind::EdgeFull { edge }.into()));
    }

    /// Begins a call, and makes it where calls end at once.
    fn begin_call(&mut self, flight: &mut Flight) -> Result<(), Trouble> {
        guarded("infer", || {
            if let Some(fault) = &mut self.common.fault {
                fault.strike()?;
            }
            if self.most > 1 { self.submit(flight) } else { self.call(flight) }
        })
    }

    /// Whether the call that began first has finished.
    fn has_landed(&mut self, cx: &mut Cx) -> bool {
        let (Some(flight), Some(session)) = (self.flights.front_mut(), &mut self.session) else { return false };
        if flight.landed == 0 {
            // A session that panics here does so again when it is asked for the outputs, where it is caught.
            let has_landed =
                flight.trouble.is_some() || guarded("infer", || Ok(session.poll(&flight.ticket))).unwrap_or(true);
            if !has_landed {
                return false;
            }
            flight.landed = cx.read();
        }
        true
    }

    /// Ends the call that began first.
    fn collect_first(&mut self, cx: &mut Cx) {
        let Some(mut flight) = self.flights.pop_front() else { return };
        self.emit.now = Time(cx.mark());
        let outcome = match flight.trouble.take() {
            Some(trouble) => Err(trouble),
            None => guarded("infer", || self.collect(&flight)),
        };
        let landed = flight.landed;
        self.land(flight, outcome, landed, cx);
    }

    /// A call ended at a time: its messages are done or have failed. What has passed since, they waited for room.
    fn land(&mut self, flight: Flight, outcome: Result<(), Trouble>, ended: u64, cx: &mut Cx) {
        let (started, leave) = (flight.started, flight.leaving());
        // A call that ended when it returned has waited for nothing since.
        let end = if self.most == 1 { ended } else { cx.read() };
        let (compute, rest) = (ended - started, end - ended);
        cx.record(self.common.compute, compute, flight.n as u32, 1);
        self.common.check_budget(compute);
        self.common.check_watchdog(compute);
        if let Some(calls) = self.calls.get_mut(flight.n) {
            calls.add(compute);
        }
        if let (Some(filter), Some((first, _))) = (&mut self.common.filter, flight.runs.first()) {
            let waited = first.is_recorded().then(|| started.saturating_sub(first.sent));
            filter.learn(waited, compute, &self.common.counts);
        }
        if let Err(trouble) = &outcome {
            cx.shared.backend(self.common.node, |status| {
                status.failed += 1;
                status.last_error = Some(trouble.text().to_string());
            });
        }
        // A call that ended at once has asked before.
        let outcome = outcome.and_then(|()| {
            let admitted = if self.common.refuses && self.most > 1 { self.emit.ports.admit() } else { Ok(()) };
            admitted.map_err(|full| Trouble::error("emit", &full))
        });
        self.common.counts.held.sub(leave);
        let ok = outcome.is_ok();
        // Rows were staged in the order of the messages; their ledgers differ, so each is a portion of its own.
        for (run, since) in flight.runs.iter().filter(|_| ok) {
            let weight = if run.is_recorded() { run.weight } else { 0 };
            let mut accounted = 0;
            if weight > 0 {
                let waited = cx.record_wait(&self.common, run, *since);
                let hold = started - since;
                if let Some(hist) = self.common.hold {
                    cx.record(hist, hold, 1, weight);
                }
                if let (Some(hist), true) = (self.common.blocked, rest > 0) {
                    cx.record(hist, rest, 1, weight);
                }
                accounted = run.accounted + waited + hold + rest;
            }
            self.emit.ports.portion_of(1, accounted, weight);
        }
        let done = if ok { leave } else { 0 };
        self.common.counts.done.add(done);
        self.common.counts.failed.add(leave - done);
        self.spare.push(flight);
        let outcome = match outcome {
            Ok(()) => self.emit.ports.publish(end, compute).map_err(|e| Trouble::error("emit", &e)),
            Err(trouble) => {
                self.emit.ports.rollback();
                Err(trouble)
            }
        };
        self.emit.ports.ring();
        if let Err(trouble) = outcome {
            self.fail(cx, trouble);
        }
    }

    /// What a turn without work comes to: nothing to do before `wake`, unless a call finishes before.
    fn idle_until(&mut self, wake: u64, cx: &mut Cx) -> Turn {
        let Some(first) = self.flights.front_mut() else { return Turn::Idle(wake) };
        let now = cx.mark();
        if !first.is_said && now.saturating_sub(first.started) > cx.shared.watchdog() {
            first.is_said = true;
            cx.shared.overdue(self.common.node);
        }
        if self.wakes { Turn::Idle(wake.min(cx.mark().saturating_add(LOOK_NS))) } else { Turn::Pending }
    }

    #[cold]
    fn fail(&mut self, cx: &mut Cx, trouble: Trouble) {
        if self.common.report(cx, trouble) {
            return;
        }
        cx.shared.backend(self.common.node, |status| status.ready = false);
        self.drop_session(cx);
        // What was on its way is lost with the session.
        let lost: u64 = self.flights.iter().map(Flight::leaving).sum();
        self.common.counts.failed.add(lost);
        self.common.counts.held.sub(lost);
        self.spare.extend(self.flights.drain(..));
        if self.common.rest(cx) {
            return;
        }
        // What the batch still holds was taken and will never be done.
        let held = self.held.len() as u64;
        self.common.counts.failed.add(held);
        self.common.counts.held.sub(held);
        self.held.clear();
        self.origins.clear();
        let reason = self.common.gone();
        self.emit.ports.each(&mut |port| port.close(true));
        self.intake.discard(reason);
    }

    /// Makes a new session of the model that is loaded, if it is time.
    #[cold]
    fn rise(&mut self, due: u64, cx: &mut Cx) -> Turn {
        if cx.read() < due && !cx.is_stopping() {
            return Turn::Idle(due);
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        let built = guarded("build", || {
            let (mut session, wakes) = begin::<B>(&self.prepared, self.max, cx)?;
            session.resume(&self.figures);
            self.forget();
            Ok((session, wakes))
        });
        match built {
            Ok((session, wakes)) => {
                (self.session, self.wakes) = (Some(session), wakes);
                cx.shared.backend(self.common.node, |status| status.ready = true);
                self.common.rise();
            }
            Err(trouble) => self.fail(cx, trouble),
        }
        cx.stale();
        Turn::Worked
    }

    /// Every stream begins anew.
    fn forget(&mut self) {
        self.lanes.clear();
        self.lanes.resize_with(self.max, Default::default);
        if let Some(streams) = &mut self.streams {
            streams.reset();
        }
    }

    /// Its figures stay.
    fn drop_session(&mut self, cx: &Cx) {
        let session = self.session.take();
        if let Some(session) = &session
            && let Err(trouble) = guarded("figures", || {
                self.figures = Metrics::default();
                session.figures(&mut self.figures);
                Ok(())
            })
        {
            self.common.report(cx, trouble);
        }
        if let Err(trouble) = guarded("drop", || {
            drop(session);
            Ok(())
        }) {
            self.common.report(cx, trouble);
        }
    }
}

impl<B: Backend> Stage for InferStage<B> {
    fn turn(&mut self, cx: &mut Cx) -> Turn {
        match self.common.life {
            Life::Open => {}
            Life::Resting(due) => return self.rise(due, cx),
            Life::Gone(reason) => return self.common.drain(&mut self.intake, reason),
            Life::Ended => return Turn::Done,
        }
        self.common.counts.turns.add(1);
        cx.enter(self.common.node);
        if self.has_landed(cx) {
            if self.emit.ports.room(1, &mut || cx.read()) == 0 {
                return blocked(&mut self.emit.ports, &self.common.counts);
            }
            self.collect_first(cx);
            return Turn::Worked;
        }
        let gathered = self.gather(cx);
        let state = self.intake.state();
        let ending = state != State::Open;
        let Some(oldest) = self.held.front() else {
            let freed = self.intake.ring();
            if ending && self.flights.is_empty() {
                self.emit.ports.each(&mut |port| port.close(state == State::Failed));
                // Partners of inputs that have ended are lost.
                self.common.life = Life::Gone(Reason::Unmatched);
                return Turn::Worked;
            }
            let (wake, reset) = self.common.listen(self.intake.due(), cx);
            self.is_to_reset |= reset;
            if self.flights.is_empty() && std::mem::take(&mut self.is_to_reset) {
                let outcome = guarded("reset", || {
                    self.forget();
                    self.session.iter_mut().for_each(Session::reset);
                    Ok(())
                });
                if let Err(trouble) = outcome {
                    self.fail(cx, trouble);
                    return Turn::Worked;
                }
            }
            return if freed || gathered { Turn::Worked } else { self.idle_until(wake, cx) };
        };
        if self.flights.len() == self.most {
            self.closes = 0;
            return if gathered { Turn::Worked } else { self.idle_until(u64::MAX, cx) };
        }
        let goes_by = self.goes_by(oldest);
        let due = oldest.since.saturating_add(self.within).min(goes_by.unwrap_or(u64::MAX));
        let is_full = self.held.len() == self.max || self.callable() < self.held.len();
        if !is_full && !ending && (due > cx.mark() && due > cx.read()) {
            self.closes = due;
            return if gathered { Turn::Worked } else { self.idle_until(due, cx) };
        }
        if let (Some(_), false) = (goes_by, is_full || ending) {
            // What has come meanwhile may have made it due before the time that was asked for.
            match cx.read().checked_sub(self.closes).filter(|_| self.closes > 0) {
                Some(late) => self.late.add(late),
                None => self.late.rest(),
            }
        }
        self.closes = 0;
        if self.most == 1 && self.emit.ports.room(1, &mut || cx.read()) == 0 {
            return blocked(&mut self.emit.ports, &self.common.counts);
        }
        self.run_batch(cx, ending);
        Turn::Worked
    }

    fn standing(&mut self, cx: &mut Cx) -> Standing {
        let now = cx.mark();
        if let Some(standing) = self.common.standing_without_node(now, cx) {
            return standing;
        }
        if self.has_landed(cx) {
            let mut pressed = false;
            self.emit.ports.each(&mut |port| pressed |= port.is_pressed());
            let first = self.flights.front().and_then(|flight| flight.headers.first());
            return Standing { ready: true, due: self.common.due_of(first, now), pressed };
        }
        if self.held.is_empty() && self.intake.ready(1) == 0 {
            let has_turn = self.intake.has_freed() || self.intake.state() != State::Open;
            return if has_turn { Standing::AT_ONCE } else { Standing::IDLE };
        }
        let since = self.common.ready_since(now);
        let mut pressed = false;
        self.emit.ports.each(&mut |port| pressed |= port.is_pressed());
        let oldest = self.held.front().map(|held| ZipMany::header(&held.set, self.common.lead));
        Standing { ready: true, due: self.common.due_of(oldest, since), pressed }
    }

    fn end(mut self: Box<Self>, cx: &mut Cx) -> Ended {
        self.drop_session(cx);
        let (lanes, streams) = (std::mem::take(&mut self.lanes), self.streams.take());
        if let Err(trouble) = guarded("drop", || {
            drop((lanes, streams));
            Ok(())
        }) {
            self.common.report(cx, trouble);
        }
        let mut metrics = std::mem::take(&mut self.figures);
        let counts = &self.common.counts;
        if counts.batches.get() > 0 {
            metrics.set("batches", counts.batches.get() as f64);
            metrics.set("mean_batch", self.called as f64 / counts.batches.get() as f64);
        }
        if self.most > 1 {
            metrics.set("most_in_flight", self.peak as f64);
        }
        Ended { node: self.common.node, metrics, left: self.intake.left() }
    }

    fn set(&mut self, name: &str, value: f64, cx: &mut Cx) {
        let error = NodeErrorKind::UnknownSetting { name: name.to_string() }.into();
        refuse(name, value, &error, cx);
    }
}
