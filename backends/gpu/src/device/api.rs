//! The calls of an API for devices that everything else here is built on.

use limen::backend::{BackendError, Helpers};
use limen::message::PortSpec;
use std::fmt;
use std::time::Duration;

/// What went wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceFault {
    /// The device is lost, with everything in its memory.
    Lost(String),
    /// One call failed.
    Call(String),
    /// There is no memory left; with less at once there may be.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "other devices do not say"))]
    OutOfMemory(String),
}

impl From<DeviceFault> for BackendError {
    fn from(fault: DeviceFault) -> Self {
        match fault {
            DeviceFault::Lost(why) => BackendError::DeviceLost(why),
            DeviceFault::Call(why) => BackendError::Call(why),
            DeviceFault::OutOfMemory(why) => BackendError::OutOfMemory(why),
        }
    }
}

/// How far the work before an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventState {
    Pending,
    Done,
    Failed(DeviceFault),
}

/// An open device. Work on one stream is done in order, work on different streams in any order that
/// follows the events.
pub(crate) trait Api: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name of the device in YAML.
    const NAME: &'static str;
    /// Rows of a slot begin at multiples of this many bytes.
    const ROW_ALIGN: usize;
    /// How many calls of a node may be under way.
    const CALLS: usize;
    /// The memory of a slot.
    type Buffer: fmt::Debug + Send + Sync + 'static;
    /// Memory of the host that the device writes.
    type Staging: 'static;
    type Stream: 'static;
    type Event: Clone + Send + 'static;

    fn buffer(&self, bytes: usize) -> Result<Self::Buffer, DeviceFault>;
    fn staging(&self, bytes: usize) -> Result<Self::Staging, DeviceFault>;
    fn stream(&self) -> Result<Self::Stream, DeviceFault>;

    /// Forgets the work of a stream that has not been started.
    fn abandon(&self, stream: &mut Self::Stream) {
        let _ = stream;
    }

    /// Lets later work of a stream follow an event, on the device.
    fn follow(&self, stream: &mut Self::Stream, event: &Self::Event) -> Result<(), DeviceFault>;

    /// Copies bytes, which may change when this returns.
    fn upload(&self, stream: &mut Self::Stream, from: &[u8], to: &Self::Buffer, at: usize) -> Result<(), DeviceFault>;

    /// Copies to host memory, as many bytes as the staging memory has.
    fn download(
        &self,
        stream: &mut Self::Stream,
        from: &Self::Buffer,
        at: usize,
        to: &mut Self::Staging,
    ) -> Result<(), DeviceFault>;

    /// Gives an event behind the work of a stream. The work is started at once if the host waits
    /// for its end, else at the latest by [`Api::start`]: work that is started together costs less.
    fn record(&self, stream: &mut Self::Stream, is_awaited: bool) -> Result<Self::Event, DeviceFault>;

    /// Starts what was recorded.
    fn start(&self) {}

    /// Returns how far the work is. Never blocks, and starts nothing.
    fn state(&self, event: &Self::Event) -> EventState;

    /// Returns how long ended work took, or how long the host took to pass bytes to the device;
    /// once. Not all work is timed.
    fn time(&self, event: &Self::Event) -> Option<Duration> {
        let _ = event;
        None
    }

    /// Waits until the work has ended, at most so long; a device whose work does not end is lost.
    fn wait(&self, event: &Self::Event, at_most: Duration) -> EventState;

    /// Wakes a worker when the work has ended, if workers can be woken.
    fn notify(&self, event: &Self::Event, helpers: &Helpers) {
        let _ = (event, helpers);
    }

    /// Whether workers can be woken.
    fn notifies(&self) -> bool {
        false
    }

    /// Passes on what was copied to host memory, once its work has ended.
    fn read(&self, from: &mut Self::Staging, into: &mut [u8]) -> Result<(), DeviceFault>;

    fn is_lost(&self) -> bool;

    /// The most bytes of a slot.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }

    /// Returns why such messages cannot be in the device's memory.
    fn refuses(spec: &PortSpec) -> Option<String> {
        let _ = spec;
        None
    }
}
