//! A device for tests: a program on the host that is asynchronous on purpose.
//!
//! Work is done only when the state of an event is asked for, a few steps at a time, in an order
//! drawn from a seed that keeps nothing but the order of each stream and the events. A missing
//! event gives wrong numbers. Calls fail and devices are lost as configured.

use super::api::{Api, DeviceFault, EventState};
use super::call::SessionCalls;
use super::memory::buffer_of;
use super::shared::SharedDevice;
use crate::base::{CopyDevice, Devices};
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, Signature, TensorSpec, Ticket,
};
use limen::infer::{Batch, DeviceSide, DeviceUse, Infer, InferPlan};
use limen::message::DType;
use limen::node::{Connected, Cost, Extensions, PlanErrors, Planning};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The faults of a mock device. Steps of work are counted from 1, over all generations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MockFaults {
    /// The order of the work.
    pub seed: u64,
    /// The steps at which the device is lost.
    pub lose_at: Vec<u64>,
    /// The steps that fail, if they compute.
    pub fail_at: Vec<u64>,
    /// The device cannot be opened.
    pub is_missing: bool,
    /// Calls do not wait for the calls that wrote their inputs: a test that passes all the same
    /// finds nothing.
    pub ignores_events: bool,
}

/// A device that computes on the host, for tests.
#[derive(Clone, Debug)]
pub struct MockDevice {
    shared: Arc<SharedDevice<MockApi>>,
    steps: Arc<AtomicU64>,
}

impl MockDevice {
    /// Creates a device with these faults.
    pub fn new(faults: MockFaults) -> Self {
        let steps = Arc::new(AtomicU64::new(0));
        let of = steps.clone();
        let open = move || match faults.is_missing {
            true => Err("the mock is configured to be missing".into()),
            false => Ok(MockApi::new(faults.clone(), of.clone())),
        };
        MockDevice { shared: Arc::new(SharedDevice::new(200, open)), steps }
    }

    /// Returns the steps of work done so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Adds the device and its kind of node, `mock_step`, to a registry that has the kinds of this
    /// crate.
    pub fn register(self, registry: limen::Registry) -> limen::Registry {
        let devices = Devices(vec![self.shared.clone() as Arc<dyn CopyDevice>]);
        registry.infer::<MockStepKind>("mock_step").with_extension(devices).with_extension(self)
    }
}

/// The state of one generation.
#[derive(Debug)]
pub(crate) struct MockApi {
    faults: MockFaults,
    /// Of all generations.
    steps: Arc<AtomicU64>,
    state: Mutex<MockState>,
}

#[derive(Debug)]
struct MockState {
    random: u64,
    streams: Vec<VecDeque<Work>>,
    /// By stream: the fault since the last event.
    failed: Vec<Option<DeviceFault>>,
    is_lost: bool,
}

type MockBytes = Arc<Mutex<Vec<u8>>>;
type MockEvent = Arc<Mutex<EventState>>;

#[derive(Debug)]
enum Work {
    Follow(MockEvent),
    Write {
        bytes: Vec<u8>,
        to: MockBytes,
        at: usize,
    },
    Read {
        from: MockBytes,
        at: usize,
        to: MockBytes,
    },
    /// Adds a number to each of so many others.
    Add {
        from: (MockBytes, usize),
        to: (MockBytes, usize),
        len: usize,
        number: u64,
    },
    Record(MockEvent),
}

/// Adds a number to each `u64` of `from`.
fn add(from: &[u8], to: &mut [u8], number: u64) {
    for (value, place) in std::iter::zip(from.as_chunks::<8>().0, to.as_chunks_mut::<8>().0) {
        *place = u64::from_le_bytes(*value).wrapping_add(number).to_le_bytes();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MockState {
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) as usize) % below.max(1)
    }
}

impl MockApi {
    fn new(faults: MockFaults, steps: Arc<AtomicU64>) -> Self {
        let random = faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let state = MockState { random, streams: Vec::new(), failed: Vec::new(), is_lost: false };
        MockApi { faults, steps, state: Mutex::new(state) }
    }

    /// Does one step of work, of a stream drawn from those that can go on. False if there is none.
    fn step(&self, state: &mut MockState) -> bool {
        let is_ready = |work: Option<&Work>| match work {
            None => false,
            Some(Work::Follow(event)) => self.faults.ignores_events || *lock(event) != EventState::Pending,
            Some(_) => true,
        };
        let ready: Vec<usize> = (0..state.streams.len()).filter(|at| is_ready(state.streams[*at].front())).collect();
        if ready.is_empty() {
            return false;
        }
        let at = ready[state.random(ready.len())];
        let Some(work) = state.streams[at].pop_front() else { return false };
        let number = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if self.faults.lose_at.contains(&number) {
            state.streams[at].push_front(work);
            self.lose(state, number);
            return true;
        }
        match work {
            Work::Follow(_) => {}
            Work::Write { bytes, to, at } => lock(&to)[at..at + bytes.len()].copy_from_slice(&bytes),
            Work::Read { from, at, to } => {
                let mut to = lock(&to);
                let len = to.len();
                to.copy_from_slice(&lock(&from)[at..at + len]);
            }
            Work::Add { .. } if self.faults.fail_at.contains(&number) => {
                state.failed[at] = Some(DeviceFault::Call(format!("mock: step {number} fails as configured")));
            }
            Work::Add { from, to, len, number } => {
                let given = lock(&from.0)[from.1..from.1 + len * 8].to_vec();
                add(&given, &mut lock(&to.0)[to.1..to.1 + len * 8], number);
            }
            Work::Record(event) => {
                let failed = state.failed[at].take();
                *lock(&event) = failed.map_or(EventState::Done, EventState::Failed);
            }
        }
        true
    }

    /// Loses the device with all its work.
    fn lose(&self, state: &mut MockState, number: u64) {
        let fault = DeviceFault::Lost(format!("mock: lost at step {number} as configured"));
        state.is_lost = true;
        for work in state.streams.iter_mut().flat_map(|stream| stream.drain(..)) {
            if let Work::Record(event) = work {
                *lock(&event) = EventState::Failed(fault.clone());
            }
        }
    }

    fn add(&self, stream: usize, work: Work) {
        let mut state = lock(&self.state);
        match work {
            Work::Record(event) if state.is_lost => {
                *lock(&event) = EventState::Failed(DeviceFault::Lost("mock: the device is lost".into()));
            }
            work if !state.is_lost => state.streams[stream].push_back(work),
            _ => {}
        }
    }
}

impl Api for MockApi {
    const NAME: &'static str = "mock";
    const ROW_ALIGN: usize = 16;
    const CALLS: usize = 3;
    type Buffer = MockBytes;
    type Staging = MockBytes;
    type Stream = usize;
    type Event = MockEvent;

    fn buffer(&self, bytes: usize) -> Result<MockBytes, DeviceFault> {
        // What nothing wrote is no number that a test expects.
        Ok(Arc::new(Mutex::new(vec![0xff; bytes])))
    }

    fn staging(&self, bytes: usize) -> Result<MockBytes, DeviceFault> {
        self.buffer(bytes)
    }

    fn stream(&self) -> Result<usize, DeviceFault> {
        let mut state = lock(&self.state);
        state.streams.push(VecDeque::new());
        state.failed.push(None);
        Ok(state.streams.len() - 1)
    }

    fn follow(&self, stream: &mut usize, event: &MockEvent) -> Result<(), DeviceFault> {
        self.add(*stream, Work::Follow(event.clone()));
        Ok(())
    }

    fn upload(&self, stream: &mut usize, from: &[u8], to: &MockBytes, at: usize) -> Result<(), DeviceFault> {
        self.add(*stream, Work::Write { bytes: from.to_vec(), to: to.clone(), at });
        Ok(())
    }

    fn download(&self, stream: &mut usize, from: &MockBytes, at: usize, to: &mut MockBytes) -> Result<(), DeviceFault> {
        self.add(*stream, Work::Read { from: from.clone(), at, to: to.clone() });
        Ok(())
    }

    fn record(&self, stream: &mut usize, _: bool) -> Result<MockEvent, DeviceFault> {
        let event = Arc::new(Mutex::new(EventState::Pending));
        self.add(*stream, Work::Record(event.clone()));
        Ok(event)
    }

    fn state(&self, event: &MockEvent) -> EventState {
        let mut state = lock(&self.state);
        for _ in 0..state.random(4) {
            if !self.step(&mut state) {
                break;
            }
        }
        lock(event).clone()
    }

    fn wait(&self, event: &MockEvent, _: Duration) -> EventState {
        let mut state = lock(&self.state);
        while *lock(event) == EventState::Pending {
            if !self.step(&mut state) {
                self.lose(&mut state, 0);
            }
        }
        lock(event).clone()
    }

    fn read(&self, from: &mut MockBytes, into: &mut [u8]) -> Result<(), DeviceFault> {
        into.copy_from_slice(&lock(from)[..into.len()]);
        Ok(())
    }

    fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }
}

/// The config of `mock_step`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MockStepConfig {
    /// The number that is added to each element.
    pub add: u64,
    /// Whether it is on the device only if a neighbour is.
    #[serde(default)]
    pub optional: bool,
}

/// Adds a number to each element of `u64` messages, on a [`MockDevice`].
#[derive(Debug)]
pub struct MockStepKind;

impl Infer for MockStepKind {
    type Config = MockStepConfig;

    fn plan(config: MockStepConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = given.single().filter(|spec| spec.dtype == DType::U64 && spec.max_elements().is_some());
        let (Some(spec), Some(device)) = (spec, cx.extensions.get::<MockDevice>()) else {
            let found = given.single().map_or_else(|| "none".to_string(), ToString::to_string);
            errors
                .input("in", format!("expected u64 of a fixed shape, found {found}"))
                .help("connect u64 messages of a fixed shape");
            return Err(errors);
        };
        let port = |name: &str| TensorSpec { name: name.into(), dtype: spec.dtype, shape: spec.shape.clone() };
        let signature = Signature { inputs: vec![port("in")], outputs: vec![port("out")], max_batch: None };
        let (shared, len) = (device.shared.clone(), spec.max_elements().unwrap_or(0));
        let prepared = PreparedStep { shared: shared.clone(), signature, len, add: config.add };
        let plan = InferPlan::new::<MockStep>(Arc::new(prepared), Batch::default()).cost(Cost::Light);
        Ok(match given.is_on_device() {
            true => plan.on_device(shared, DeviceSide::Both, MockApi::CALLS),
            false => plan,
        })
    }

    fn device(config: &MockStepConfig, _: &Extensions) -> Option<DeviceUse> {
        Some(DeviceUse { device: MockApi::NAME.into(), side: DeviceSide::Both, is_optional: config.optional })
    }
}

/// A step as a backend.
struct MockStep;

struct PreparedStep {
    shared: Arc<SharedDevice<MockApi>>,
    signature: Signature,
    len: usize,
    add: u64,
}

impl Backend for MockStep {
    const NAME: &'static str = MockApi::NAME;
    type Model = ();
    type Prepared = PreparedStep;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("", [DType::U64], Ops::Unlisted))
    }

    fn prepare((): ()) -> Result<PreparedStep, BackendError> {
        Err(BackendError::Unsupported("expected a model, found a step".into()))
    }
}

impl Prepared for PreparedStep {
    type Session = MockStepSession;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: usize) -> Result<MockStepSession, BackendError> {
        Ok(MockStepSession { calls: SessionCalls::new(self.shared.clone()), len: self.len, add: self.add })
    }
}

struct MockStepSession {
    calls: SessionCalls<MockApi>,
    len: usize,
    add: u64,
}

impl Session for MockStepSession {
    type Lane = ();

    fn infer_batch(
        &mut self,
        _: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        for (input, output) in std::iter::zip(inputs, outputs) {
            add(input.bytes, output.bytes, self.add);
        }
        Ok(())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let (len, number) = (self.len, self.add);
        self.calls.enqueue(call.inputs, call.outputs, false, |on| {
            for (input, output) in std::iter::zip(call.inputs, call.outputs) {
                let (Some(input), Some(output)) = (input.on_device(), output) else { continue };
                let (from, to) = (buffer_of::<MockApi>(&input)?, buffer_of::<MockApi>(output)?);
                let from = ((*from.0).clone(), from.1);
                let to = ((*to.0).clone(), to.1);
                on.api.add(*on.stream, Work::Add { from, to, len, number });
            }
            Ok(())
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }
}
