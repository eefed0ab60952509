//! Calls with tensors on a device.
//!
//! Outputs on the device are sent on when a call has been enqueued, before it has ended on the
//! device: the next node's calls follow it there. The call is counted when it has ended.

use super::{InferStage, session_of};
use crate::exec::infer::flight::Flight;
use crate::exec::infer::session::AnySession;
use crate::exec::infer::side::{batches, emit_device_rows};
use crate::exec::stage::{CallFailure, DeviceWait, guarded};
use crate::exec::worker::Cx;
use crate::message::device::DeviceTensor;
use crate::node::backend::{BackendError, DeviceCall, EnqueuedCalls};
use crate::port::error::NodeError;
use crate::port::output::PortSet;
use arrayvec::ArrayVec;
use std::time::Duration;

fn calls_of(session: &mut Option<Box<dyn AnySession>>) -> Result<&mut dyn EnqueuedCalls, BackendError> {
    let calls = session_of(session)?.enqueued();
    calls.ok_or_else(|| BackendError::Unsupported("calls with tensors on a device".into()))
}

impl InferStage {
    /// Whether the outputs are sent on when a call begins.
    pub(super) fn sends_at_once(&self) -> bool {
        self.make.residence.is_some_and(|residence| residence.outputs)
    }

    /// Starts a call with tensors on a device. Outputs there are emitted.
    pub(super) fn enqueue(&mut self, flight: &mut Flight) -> Result<(), NodeError> {
        let sends_at_once = self.sends_at_once();
        let InferStage { inputs, held, emit, session, make, .. } = self;
        let is_on_device = make.residence.is_some_and(|residence| residence.inputs);
        flight.kept.clear();
        for input in (0..inputs.len()).filter(|_| is_on_device) {
            flight.kept.extend(held.iter().take(flight.n).map(|held| held.set[input].body.share()));
        }
        let host_inputs = if is_on_device { ArrayVec::new() } else { batches(inputs, held, flight.n) };
        let session = session_of(session)?;
        let (mut is_input_lost, mut ticket) = (false, flight.ticket);
        let mut start = |outputs: &[Option<DeviceTensor<'_>>]| -> Result<(), NodeError> {
            let call = DeviceCall { batch: flight.n, host_inputs: &host_inputs, inputs: &flight.kept, outputs };
            ticket = session.enqueue(&call).inspect_err(|error| is_input_lost = *error == BackendError::InputLost)?;
            Ok(())
        };
        let started = if sends_at_once { emit_device_rows(emit, flight, start) } else { start(&[]) };
        (flight.is_input_lost, flight.ticket) = (is_input_lost, ticket);
        started
    }

    /// Publishes what an enqueued call emitted, or ends one that could not start.
    pub(super) fn send_enqueued(&mut self, flight: Flight, mut outcome: Result<(), CallFailure>, cx: &mut Cx) {
        let (is_input_lost, leave, started) = (flight.is_input_lost, flight.leaving(), flight.started);
        let end = cx.read();
        cx.record(self.common.compute, end - started, flight.n as u32, 1);
        // When a call on the device ended is not known to the microsecond: nothing waits for it.
        self.common.check_budget(end - started);
        self.note_failed(&mut outcome, is_input_lost, cx);
        let outcome = match outcome {
            Ok(()) => {
                self.account(&flight, 0, cx);
                self.flights.push_back(flight);
                self.peak = self.peak.max(self.flights.len());
                self.emit.ports.publish(end, end - started).map_err(|error| CallFailure::error("emit", &error))
            }
            Err(failure) => {
                self.common.counts.held.sub(leave);
                self.count_ended(false, is_input_lost, leave);
                self.put_back(flight);
                self.emit.ports.rollback();
                Err(failure)
            }
        };
        self.emit.ports.ring();
        if let Err(failure) = outcome {
            self.fail_call(cx, failure, is_input_lost);
        }
    }

    /// Whether the oldest call has finished on the device.
    pub(super) fn has_finished_on_device(session: &mut dyn AnySession, flight: &Flight) -> bool {
        session.enqueued().is_none_or(|calls| calls.poll(&flight.ticket))
    }

    /// Records what a finished call took on the device.
    pub(super) fn record_device_time(&mut self, flight: &Flight, cx: &mut Cx) {
        let (Some(hist), Some(session)) = (self.device_time, &mut self.session) else { return };
        let Some(calls) = session.enqueued() else { return };
        // A session that panics here panics again when the call is finished, where it is caught.
        let time = guarded("infer", || Ok(calls.device_time(&flight.ticket))).unwrap_or(None);
        if let Some(time) = time {
            cx.record(hist, time.as_nanos() as u64, flight.n as u32, 1);
        }
    }

    /// Waits for the oldest call, if something here can only go on when it has ended.
    pub(super) fn await_first(&mut self, wait: DeviceWait) -> Option<bool> {
        let is_full = self.flights.len() == self.max_in_flight && !self.held.is_empty();
        if self.make.residence.is_none() || (self.sends_at_once() && !is_full) {
            return None;
        }
        let flight = self.flights.front().filter(|flight| flight.finished_at == 0 && flight.failure.is_none())?;
        let calls = self.session.as_mut()?.enqueued()?;
        // A session that panics here panics again when the call is finished, where it is caught.
        let awaited = guarded("infer", || match wait {
            DeviceWait::Block(at_most) => Ok(calls.wait(&flight.ticket, at_most)),
            DeviceWait::Ring => {
                calls.wake_worker(&flight.ticket);
                Ok(false)
            }
        });
        Some(awaited.unwrap_or(true))
    }

    /// Ends the oldest enqueued call, which has finished on the device.
    pub(super) fn finish_first(&mut self, cx: &mut Cx) {
        let Some(flight) = self.flights.pop_front() else { return };
        self.record_device_time(&flight, cx);
        let InferStage { session, .. } = self;
        let mut is_input_lost = false;
        let mut outcome = guarded("infer", || {
            Ok(calls_of(session)?
                .finish(flight.ticket)
                .inspect_err(|error| is_input_lost = *error == BackendError::InputLost)?)
        });
        let leave = flight.leaving();
        self.warmth.last = flight.finished_at;
        self.note_failed(&mut outcome, is_input_lost, cx);
        self.common.counts.held.sub(leave);
        self.count_ended(outcome.is_ok(), is_input_lost, leave);
        self.put_back(flight);
        if let Err(failure) = outcome {
            self.fail_call(cx, failure, is_input_lost);
        }
    }

    /// Waits for the calls of a node that has failed, because they read tensors of others, and
    /// counts them. Those whose outputs are in host memory are lost with the session.
    #[cold]
    pub(super) fn finish_enqueued_calls(&mut self) {
        if self.make.residence.is_none() {
            return;
        }
        let sends_at_once = self.sends_at_once();
        while let Some(flight) = self.flights.pop_front() {
            let InferStage { session, .. } = self;
            let mut is_input_lost = flight.is_input_lost;
            let outcome = guarded("infer", || {
                let calls = calls_of(session)?;
                while flight.failure.is_none() && !calls.wait(&flight.ticket, Duration::from_secs(1)) {}
                if !sends_at_once {
                    return Err(NodeError::other("the session of the model has ended"));
                }
                Ok(calls
                    .finish(flight.ticket)
                    .inspect_err(|error| is_input_lost = *error == BackendError::InputLost)?)
            });
            let leave = flight.leaving();
            self.common.counts.held.sub(leave);
            self.count_ended(outcome.is_ok(), is_input_lost, leave);
            self.put_back(flight);
        }
    }
}
