//! Calls of a model: building them from held messages, and finishing them.

use super::{InferStage, session_of};
use crate::exec::infer::flight::Flight;
use crate::exec::infer::session::AnySession;
use crate::exec::infer::side::{batches, emit_rows};
use crate::exec::stage::{CallFailure, guarded};
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::node::backend::BackendError;
use crate::port::error::{NodeError, NodeErrorKind};
use crate::port::intake::{Intake, ZipMany};
use crate::port::output::PortSet;

impl InferStage {
    /// Starts an asynchronous call.
    pub(super) fn submit(&mut self, flight: &mut Flight) -> Result<(), NodeError> {
        let ins = batches(&mut self.inputs, &self.held, flight.n);
        flight.ticket = session_of(&mut self.session)?.submit(flight.n, &ins)?;
        Ok(())
    }

    /// Runs the model over the first held messages and emits the rows of those that leave.
    pub(super) fn call(&mut self, flight: &Flight) -> Result<(), NodeError> {
        let InferStage { inputs, outputs, held, emit, session, .. } = self;
        let ins = batches(inputs, held, flight.n);
        let session = session_of(session)?;
        emit_rows(emit, outputs, flight, |outs| session.infer(flight.n, &ins, outs))
    }

    /// Emits the results of a finished call.
    pub(super) fn collect(&mut self, flight: &mut Flight) -> Result<(), NodeError> {
        let session = session_of(&mut self.session)?;
        let mut is_input_lost = false;
        let collected = emit_rows(&mut self.emit, &mut self.outputs, flight, |outs| {
            session.collect(flight.ticket, outs).inspect_err(|error| is_input_lost = *error == BackendError::InputLost)
        });
        flight.is_input_lost = is_input_lost;
        collected
    }

    /// Starts a call with the held messages, and finishes it if calls are synchronous.
    pub(super) fn run_batch(&mut self, cx: &mut Cx, ending: bool) {
        let n = self.callable();
        let leave = if n == self.max && !ending { self.stride.min(n) } else { n };
        let started = cx.mark();
        self.emit.now = Time(started);
        // There is one for each call that may be in flight.
        let mut flight = self.spare.pop().unwrap_or_else(|| Flight::new(self.max, self.common.traced, 0));
        (flight.n, flight.started, flight.finished_at, flight.is_reported) = (n, started, 0, false);
        flight.is_input_lost = false;
        flight.headers.clear();
        flight.runs.clear();
        flight.origins.clear();
        flight.origins.extend(self.origins.iter().take(leave).cloned());
        for held in self.held.iter().take(leave) {
            flight.headers.push(*ZipMany::header(&held.set, self.common.lead));
            flight.runs.push((held.run, held.since));
        }
        // A synchronous call checks for room before it begins: a refused call has changed no state
        // and cost nothing.
        if self.common.refuses
            && (!self.is_async || self.sends_at_once())
            && let Some(edge) = self.refusing(&flight)
        {
            return self.refuse_call(flight, edge, cx);
        }
        // Outside the guarded call, so that a panic loses no stream's state. With state, all
        // messages of a call leave with it.
        let lent = self.with_states(|session| session.lend(&flight.headers));
        let outcome = lent.and_then(|()| self.begin_call(&mut flight));
        let ended = if self.is_async { 0 } else { cx.read() };
        let is_done = outcome.is_ok();
        let settled = self.with_states(|session| session.settle(&flight.headers, is_done));
        let outcome = outcome.and(settled);
        self.held.drain(..leave);
        self.origins.drain(..leave.min(self.origins.len()));
        cx.record(self.sizes, n as u64, 1, 1);
        self.common.counts.batches.add(1);
        self.called += n as u64;
        if !self.is_async {
            return self.finish_call(flight, outcome, ended, cx);
        }
        if self.sends_at_once() {
            return self.send_enqueued(flight, outcome, cx);
        }
        cx.invalidate_clock();
        // A call that could not start fails in order, after those that began before it.
        flight.failure = outcome.err();
        self.flights.push_back(flight);
        self.peak = self.peak.max(self.flights.len());
    }

    /// Moves the states of streams, if the model has any.
    fn with_states(&mut self, change: impl FnOnce(&mut dyn AnySession)) -> Result<(), CallFailure> {
        match &mut self.session {
            Some(session) if self.is_stateful => guarded("infer", || {
                change(&mut **session);
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    /// The edge that would fail this node because it has no room for the results of a call.
    #[cold]
    pub(super) fn refusing(&mut self, flight: &Flight) -> Option<String> {
        let coming = |bytes: usize| flight.headers.iter().map(move |header| (header.qos, bytes as u64));
        self.emit.ports.iter_mut().zip(&self.outputs).find_map(|(port, side)| port.refusing(coming(side.item_bytes)))
    }

    /// Fails the messages of a refused call.
    #[cold]
    pub(super) fn refuse_call(&mut self, flight: Flight, edge: String, cx: &mut Cx) {
        let leave = flight.leaving();
        self.held.drain(..leave as usize);
        self.origins.drain(..(leave as usize).min(self.origins.len()));
        self.common.counts.held.sub(leave);
        self.common.counts.failed.add(leave);
        self.put_back(flight);
        self.fail(cx, CallFailure::error("emit", &NodeErrorKind::EdgeFull { edge }.into()));
    }

    /// Starts a call; a synchronous one also runs to its end.
    pub(super) fn begin_call(&mut self, flight: &mut Flight) -> Result<(), CallFailure> {
        guarded("infer", || {
            if let Some(fault) = &mut self.common.fault {
                fault.apply()?;
            }
            match self.make.residence {
                Some(_) => self.enqueue(flight),
                None if self.is_async => self.submit(flight),
                None => self.call(flight),
            }
        })
    }

    /// Whether the oldest call has finished.
    pub(super) fn has_finished(&mut self, cx: &mut Cx) -> bool {
        let (Some(flight), Some(session)) = (self.flights.front_mut(), &mut self.session) else { return false };
        if flight.finished_at == 0 {
            // A session that panics here panics again when its outputs are collected, where it is
            // caught.
            let is_on_device = self.make.residence.is_some();
            let has_finished = flight.failure.is_some()
                || guarded("infer", || match is_on_device {
                    true => Ok(Self::has_finished_on_device(&mut **session, flight)),
                    false => Ok(session.poll(&flight.ticket)),
                })
                .unwrap_or(true);
            if !has_finished {
                return false;
            }
            flight.finished_at = cx.read();
        }
        true
    }

    /// Finishes the oldest call.
    pub(super) fn collect_first(&mut self, cx: &mut Cx) {
        let Some(mut flight) = self.flights.pop_front() else { return };
        self.record_device_time(&flight, cx);
        self.emit.now = Time(cx.mark());
        let outcome = match flight.failure.take() {
            Some(failure) => Err(failure),
            None => guarded("infer", || self.collect(&mut flight)),
        };
        let finished_at = flight.finished_at;
        self.finish_call(flight, outcome, finished_at, cx);
    }

    /// Finishes a call that ended at `ended`: its messages are done or have failed. Any time since
    /// then was spent waiting for room.
    pub(super) fn finish_call(
        &mut self,
        flight: Flight,
        mut outcome: Result<(), CallFailure>,
        ended: u64,
        cx: &mut Cx,
    ) {
        let (started, leave) = (flight.started, flight.leaving());
        // A synchronous call has not waited since it ended.
        let end = if self.is_async { cx.read() } else { ended };
        let (compute, rest) = (ended - started, end - ended);
        self.warmth.last = end;
        cx.record_until(ended, self.common.compute, compute, flight.n as u32, 1);
        self.common.check_budget(compute);
        self.common.check_watchdog(compute);
        if let Some(calls) = self.calls.get_mut(flight.n) {
            calls.add(compute);
        }
        if let (Some(filter), Some((first, _))) = (&mut self.common.filter, flight.runs.first()) {
            let waited = first.is_recorded().then(|| started.saturating_sub(first.sent));
            filter.learn(waited, compute, &self.common.counts);
        }
        self.note_failed(&mut outcome, flight.is_input_lost, cx);
        // A synchronous call has checked for room before.
        let outcome = outcome.and_then(|()| {
            let admitted = if self.common.refuses && self.is_async { self.emit.ports.admit() } else { Ok(()) };
            admitted.map_err(|full| CallFailure::error("emit", &full))
        });
        self.common.counts.held.sub(leave);
        if outcome.is_ok() {
            self.account(&flight, rest, cx);
        }
        let is_input_lost = flight.is_input_lost;
        self.count_ended(outcome.is_ok(), is_input_lost, leave);
        self.put_back(flight);
        let outcome = match outcome {
            Ok(()) => self.emit.ports.publish(end, compute).map_err(|e| CallFailure::error("emit", &e)),
            Err(failure) => {
                self.emit.ports.rollback();
                Err(failure)
            }
        };
        self.emit.ports.ring();
        if let Err(failure) = outcome {
            self.fail_call(cx, failure, is_input_lost);
        }
    }

    /// Gives the messages that leave with a call their ledgers, each a segment of its own because
    /// they differ: rows were staged in message order. `rest` is the time they waited for room, ns.
    #[inline]
    pub(super) fn account(&mut self, flight: &Flight, rest: u64, cx: &mut Cx) {
        for (run, since) in &flight.runs {
            let weight = if run.is_recorded() { run.weight } else { 0 };
            let mut accounted = 0;
            if weight > 0 {
                // Where nothing makes a message wait for its call, it is in the queue until then.
                let taken = if self.batch_wait.is_some() { *since } else { flight.started };
                let waited = cx.record_wait(&self.common, run, taken);
                let blocked = match self.common.blocked_since() {
                    0 => 0,
                    from => flight.started - from.clamp(taken, flight.started),
                };
                let wait = flight.started - taken - blocked;
                if let Some(hist) = self.batch_wait {
                    cx.record_until(flight.started, hist, wait, 1, weight);
                }
                if let (Some(hist), true) = (self.common.blocked, rest + blocked > 0) {
                    cx.record(hist, rest + blocked, 1, weight);
                }
                accounted = run.accounted + waited + wait + blocked + rest;
            }
            self.emit.ports.segment_of(1, accounted, weight);
        }
    }

    /// Notes a failed call in the status of the backend.
    pub(super) fn note_failed(&self, outcome: &mut Result<(), CallFailure>, is_input_lost: bool, cx: &Cx) {
        if let Err(failure) = outcome {
            failure.set_number(self.common.ended_calls());
        }
        if let (Err(failure), false) = (outcome, is_input_lost) {
            cx.shared.backend(self.common.node, |status| {
                status.failed += 1;
                status.last_error = Some(failure.text().to_string());
            });
        }
    }

    /// Counts the messages of a call that has ended.
    #[inline]
    pub(super) fn count_ended(&mut self, is_done: bool, is_input_lost: bool, messages: u64) {
        let counts = &self.common.counts;
        match (is_done, is_input_lost) {
            (true, _) => counts.done.add(messages),
            (false, true) => counts.lost.add(messages),
            (false, false) => counts.failed.add(messages),
        }
    }

    /// Keeps a finished flight for reuse. The tensors that it kept may be written again.
    #[inline]
    pub(super) fn put_back(&mut self, mut flight: Flight) {
        flight.kept.clear();
        self.spare.push(flight);
    }

    /// Applies the node's policy to a failed call, unless the call that wrote an input has failed,
    /// which is reported already.
    #[cold]
    pub(super) fn fail_call(&mut self, cx: &mut Cx, failure: CallFailure, is_input_lost: bool) {
        if !is_input_lost {
            self.fail(cx, failure);
        }
    }
}
