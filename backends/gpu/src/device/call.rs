//! Calls on a device, from when they are enqueued until the host has seen how they ended.

use super::api::{Api, DeviceFault, EventState};
use super::memory::PoolMemory;
use super::shared::SharedDevice;
use limen::Tensor;
use limen::backend::{BackendError, EnqueuedCalls, Helpers, Ticket};
use limen::message::DeviceTensor;
use limen::node::Metrics;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A call, shared by its session and the slots that it wrote.
pub(super) struct SharedCall<A: Api>(Mutex<CallState<A>>);

struct CallState<A: Api> {
    /// What it waits for; `None` once its outcome is known.
    work: Option<(Arc<A>, A::Event)>,
    /// The calls that wrote its inputs; none once its outcome is known.
    inputs: Vec<Arc<SharedCall<A>>>,
    outcome: Option<Outcome>,
    /// How long it took on the device, if it was timed.
    time: Option<Duration>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed(DeviceFault),
    /// A call that wrote an input has failed, or has no result either.
    InputLost,
}

impl<A: Api> SharedCall<A> {
    fn new() -> Self {
        SharedCall(Mutex::new(CallState { work: None, inputs: Vec::new(), outcome: None, time: None }))
    }

    fn state(&self) -> MutexGuard<'_, CallState<A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how it ended, if it has. Calls form no cycles, so locking those of its inputs
    /// meanwhile cannot deadlock.
    fn outcome(&self) -> Option<Outcome> {
        let mut state = self.state();
        if state.outcome.is_some() {
            return state.outcome.clone();
        }
        let (api, event) = state.work.as_ref()?;
        let own = match api.state(event) {
            EventState::Pending => {
                // One in front may take too long, and nobody else may be looking at it.
                state.inputs.iter().for_each(|input| _ = input.outcome());
                return None;
            }
            EventState::Done => Outcome::Done,
            EventState::Failed(fault) => Outcome::Failed(fault),
        };
        let mut found = own;
        for input in &state.inputs {
            // On the device it has ended before this one.
            if input.outcome()? != Outcome::Done {
                found = Outcome::InputLost;
            }
        }
        state.time = if found == Outcome::Done { api.time(event) } else { None };
        (state.work, state.outcome) = (None, Some(found.clone()));
        state.inputs.clear();
        Some(found)
    }

    /// Waits until it has ended, at most so long.
    fn wait(&self, at_most: Duration) -> Option<Outcome> {
        if let Some(outcome) = self.outcome() {
            return Some(outcome);
        }
        let work = self.state().work.clone();
        match work {
            Some((api, event)) => _ = api.wait(&event, at_most),
            None => return Some(Outcome::Failed(DeviceFault::Call("the call was never started".into()))),
        }
        self.outcome()
    }

    /// Returns the event behind it, unless it has ended.
    fn event(&self) -> Option<A::Event> {
        self.state().work.as_ref().map(|(_, event)| event.clone())
    }
}

/// The calls of a session.
pub(crate) struct SessionCalls<A: Api> {
    device: Arc<SharedDevice<A>>,
    stream: Option<(u32, Arc<A>, A::Stream)>,
    /// Oldest first.
    under_way: VecDeque<UnderWay<A>>,
    /// Calls that have ended. Slots may still refer to them.
    ended: Vec<Arc<SharedCall<A>>>,
    next: u64,
    helpers: Option<Helpers>,
    /// How often the host waits for the end of a call.
    pub(crate) waits: u64,
    /// How often the device was opened again.
    reopened: u64,
}

impl<A: Api> fmt::Debug for SessionCalls<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

struct UnderWay<A: Api> {
    ticket: Ticket,
    call: Arc<SharedCall<A>>,
    /// Whether its end will wake the worker.
    wakes: bool,
}

/// What a call is enqueued with.
pub(crate) struct Enqueue<'a, A: Api> {
    pub(crate) api: &'a Arc<A>,
    pub(crate) stream: &'a mut A::Stream,
    /// What was made for another generation has to be made again.
    pub(crate) generation: u32,
}

impl<A: Api> SessionCalls<A> {
    pub(crate) fn new(device: Arc<SharedDevice<A>>) -> Self {
        let (under_way, ended) = (VecDeque::new(), Vec::new());
        SessionCalls { device, stream: None, under_way, ended, next: 0, helpers: None, waits: 0, reopened: 0 }
    }

    /// Takes what wakes the worker. Returns whether it is woken, or looks again soon: a call whose
    /// result stays on the device is not waited for.
    pub(crate) fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.helpers = Some(helpers.clone());
        Ok(self.device.api()?.1.notifies())
    }

    /// Enqueues the work of a call. `is_awaited`: the host needs its result.
    ///
    /// # Errors
    /// [`BackendError::InputLost`] if an input is lost; what `work` or the device fails with.
    pub(crate) fn enqueue(
        &mut self,
        inputs: &[Tensor],
        outputs: &[Option<DeviceTensor<'_>>],
        is_awaited: bool,
        work: impl FnOnce(&mut Enqueue<'_, A>) -> Result<(), BackendError>,
    ) -> Result<Ticket, BackendError> {
        let (generation, api) = self.device.api()?;
        let is_current = self.stream.as_ref().is_some_and(|(of, ..)| *of == generation);
        if !is_current {
            self.reopened += u64::from(self.stream.is_some());
            self.stream = Some((generation, api.clone(), api.stream()?));
        }
        let call = self.free_call();
        let (_, api, stream) = self.stream.as_mut().ok_or(BackendError::InputLost)?;
        let mut writers = std::mem::take(&mut call.state().inputs);
        for tensor in inputs {
            let tensor = tensor.on_device().ok_or_else(|| {
                BackendError::Call("expected an input on the device, found an input in host memory".into())
            })?;
            let (_, slot, _) = PoolMemory::<A>::of(&tensor)?;
            let writer = slot.writer.clone().ok_or(BackendError::InputLost)?;
            match writer.outcome() {
                // Its call is counted as done, so this one has to fail.
                Some(Outcome::Done) if slot.generation != generation => {
                    let why = format!("{}: an input was in the memory of the lost device", A::NAME);
                    return Err(BackendError::DeviceLost(why));
                }
                Some(Outcome::Done) => {}
                Some(_) => return Err(BackendError::InputLost),
                // It will be lost, too.
                None if slot.generation != generation => return Err(BackendError::InputLost),
                None => {
                    writer.event().iter().try_for_each(|event| api.follow(stream, event))?;
                    writers.push(writer);
                }
            }
        }
        for tensor in outputs.iter().flatten() {
            let (memory, mut slot, _) = PoolMemory::<A>::of(tensor)?;
            if slot.generation != generation {
                memory.renew(&mut slot, generation, api)?;
            }
            // Nobody reads the slot any more, but what was written last may not have ended, on
            // another stream of a session before this.
            let before = slot.writer.as_ref().and_then(|writer| writer.event());
            before.iter().try_for_each(|event| api.follow(stream, event))?;
        }
        work(&mut Enqueue { api, stream, generation }).inspect_err(|_| api.abandon(stream))?;
        let event = api.record(stream, is_awaited).inspect_err(|_| api.abandon(stream))?;
        if is_awaited {
            self.waits += 1;
        }
        *call.state() = CallState { work: Some((api.clone(), event)), inputs: writers, outcome: None, time: None };
        for tensor in outputs.iter().flatten() {
            PoolMemory::<A>::of(tensor)?.1.writer = Some(call.clone());
        }
        self.next += 1;
        let ticket = Ticket(self.next);
        self.under_way.push_back(UnderWay { ticket, call, wakes: false });
        Ok(ticket)
    }

    /// Reports that the device was opened again, if it was.
    pub(crate) fn figures(&self, metrics: &mut Metrics) {
        if self.reopened > 0 {
            metrics.set("device_reopened", self.reopened as f64);
        }
    }

    /// Returns a call that nothing refers to.
    fn free_call(&mut self) -> Arc<SharedCall<A>> {
        let free = self.ended.iter().position(|call| Arc::strong_count(call) == 1);
        free.map(|at| self.ended.swap_remove(at)).unwrap_or_else(|| Arc::new(SharedCall::new()))
    }

    fn call(&self, ticket: &Ticket) -> Option<&Arc<SharedCall<A>>> {
        self.under_way.iter().find(|of| of.ticket == *ticket).map(|of| &of.call)
    }
}

impl<A: Api> EnqueuedCalls for SessionCalls<A> {
    fn poll(&mut self, ticket: &Ticket) -> bool {
        if let Some((_, api, _)) = &self.stream {
            api.start();
        }
        self.call(ticket).is_none_or(|call| call.outcome().is_some())
    }

    fn wait(&mut self, ticket: &Ticket, at_most: Duration) -> bool {
        self.call(ticket).is_none_or(|call| call.wait(at_most).is_some())
    }

    fn wake_worker(&mut self, ticket: &Ticket) {
        let Some(helpers) = &self.helpers else { return };
        let Some(of) = self.under_way.iter_mut().find(|of| of.ticket == *ticket && !of.wakes) else { return };
        of.wakes = true;
        match of.call.state().work.as_ref() {
            Some((api, event)) => api.notify(event, helpers),
            // It has ended since the worker looked.
            None => helpers.wake(),
        }
    }

    fn device_time(&mut self, ticket: &Ticket) -> Option<Duration> {
        self.call(ticket)?.state().time
    }

    fn finish(&mut self, ticket: Ticket) -> Result<(), BackendError> {
        let at = self.under_way.iter().position(|of| of.ticket == ticket);
        let UnderWay { call, .. } = at
            .and_then(|at| self.under_way.remove(at))
            .ok_or_else(|| BackendError::Call("the call was not enqueued".into()))?;
        let outcome = loop {
            if let Some(outcome) = call.wait(Duration::from_secs(1)) {
                break outcome;
            }
        };
        self.ended.push(call);
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(fault) => Err(fault.into()),
            Outcome::InputLost => Err(BackendError::InputLost),
        }
    }
}
