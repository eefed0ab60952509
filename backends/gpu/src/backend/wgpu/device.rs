//! The open device, and the errors that arrive outside of calls.

use crate::lowering::Width;
use limen::backend::BackendError;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use wgpu::{Adapter, AdapterInfo, DeviceType, Features, Limits};

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) limits: Limits,
    pub(super) info: AdapterInfo,
    pub(super) width: Width,
    /// Whether shaders have fractions of 16 bits.
    pub(super) has_halves: bool,
    /// Whether the driver gives away what it compiled.
    pub(super) keeps_pipelines: bool,
    /// The driver ends the loops of a thread after so many turns, without an error.
    pub(super) most_turns: usize,
    /// The tick of its clock, ns, if it has one.
    pub(super) tick: Option<f32>,
    faults: Arc<Faults>,
}

/// What went wrong outside of the calls of the API.
#[derive(Debug, Default)]
struct Faults {
    is_lost: AtomicBool,
    first: Mutex<Option<String>>,
}

impl Faults {
    fn note(&self, what: String) {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }
}

impl Device {
    /// Opens the device of an adapter.
    pub(super) fn open(adapter: &Adapter) -> Result<Arc<Device>, BackendError> {
        let limits = adapter.limits();
        let clock = Features::TIMESTAMP_QUERY | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        let has = |features: Features| adapter.features().contains(features);
        let (has_halves, has_clock) = (has(Features::SHADER_F16), has(clock));
        let keeps_pipelines = has(Features::PIPELINE_CACHE);
        let optional =
            [(Features::SHADER_F16, has_halves), (clock, has_clock), (Features::PIPELINE_CACHE, keeps_pipelines)];
        let wanted = optional.into_iter().filter(|(_, has)| *has);
        let required_features = wanted.fold(Features::empty(), |all, (features, _)| all | features);
        let wanted =
            wgpu::DeviceDescriptor { required_limits: limits.clone(), required_features, ..Default::default() };
        let info = adapter.get_info();
        let refused = |why: String| BackendError::Unavailable(format!("`{}` cannot be opened: {why}", info.name));
        let opened =
            ready(adapter.request_device(&wanted)).ok_or_else(|| refused("the driver does not answer".into()))?;
        let (device, queue) = opened.map_err(|error| refused(one_line(&error.to_string())))?;
        let tick = has_clock.then(|| queue.get_timestamp_period());
        let faults = Arc::new(Faults::default());
        let noted = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| noted.note(error.to_string())));
        let noted = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            noted.is_lost.store(true, Ordering::Release);
            noted.note(format!("{reason:?}: {message}"));
        });
        // A GPU is idle where few workgroups run; a processor runs few at once, and large tiles of
        // them faster.
        let busy = if info.device_type == DeviceType::Cpu { 4 } else { 128 };
        let width = Width { most: limits.max_compute_workgroups_per_dimension as usize, busy };
        Ok(Arc::new(Device {
            device,
            queue,
            limits,
            most_turns: most_turns(&info),
            info,
            width,
            has_halves,
            keeps_pipelines,
            tick,
            faults,
        }))
    }

    /// Returns an error if the device was lost, or if something failed since the last check.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        let mut first = self.faults.first.lock().unwrap_or_else(PoisonError::into_inner);
        // A lost device stays lost, also if another thread took the reason before it was known to
        // be lost.
        if self.is_lost() {
            drop(first);
            return Err(BackendError::DeviceLost(self.why_lost()));
        }
        match first.take() {
            Some(fault) => Err(BackendError::Call(format!("{}: {}", self.info.name, one_line(&fault)))),
            None => Ok(()),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.faults.is_lost.load(Ordering::Acquire)
    }

    /// Returns why it was lost.
    pub(super) fn why_lost(&self) -> String {
        let first = self.faults.first.lock().unwrap_or_else(PoisonError::into_inner);
        let why = first.as_deref().map_or_else(|| "the reason is unknown".into(), one_line);
        format!("{}: {why}", self.info.name)
    }

    /// Gives the device up: later calls fail, and the next model opens another one.
    pub(super) fn lose(&self, why: String) {
        self.faults.note(why);
        self.faults.is_lost.store(true, Ordering::Release);
    }

    /// Runs something whose errors are returned, not left to the device's handler.
    pub(super) fn scoped<T>(&self, run: impl FnOnce() -> T) -> Result<T, String> {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let scopes = [Validation, OutOfMemory, Internal].map(|filter| self.device.push_error_scope(filter));
        let result = run();
        let errors = scopes.into_iter().rev().filter_map(|scope| ready(scope.pop()).flatten());
        match errors.map(|error| one_line(&error.to_string())).reduce(|first, next| format!("{first}; {next}")) {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }
}

/// How many turns of loops a thread can make. That llvmpipe ends them was seen in Mesa 22.3, and
/// not in 25.0.
fn most_turns(info: &AdapterInfo) -> usize {
    let version = info.driver_info.strip_prefix("Mesa ").and_then(|rest| rest.split('.').next()?.parse().ok());
    let is_old = version.is_none_or(|version: u32| version < 25);
    if info.driver == "llvmpipe" && is_old { 65_000 } else { usize::MAX }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The result of a future that is ready at once, as those of native devices are.
pub(super) fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
