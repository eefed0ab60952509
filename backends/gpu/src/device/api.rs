//! The calls of an API for devices that everything else here is built on.

use limen::backend::{BackendError, Helpers};
use limen::message::PortSpec;
use std::fmt;
use std::time::Duration;

/// What went wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device is lost, with everything in its memory.
    Lost(String),
    /// One call failed.
    Call(String),
    /// There is no memory left; with less at once there may be.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "other devices do not say"))]
    OutOfMemory(String),
}

impl From<Fault> for BackendError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost(why) => BackendError::DeviceLost(why),
            Fault::Call(why) => BackendError::Call(why),
            Fault::OutOfMemory(why) => BackendError::OutOfMemory(why),
        }
    }
}

/// How far the work before an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventState {
    Pending,
    Done,
    Failed(Fault),
}

/// An open device. Work on one stream is done in order, work on different streams in any order that follows the events.
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

    fn buffer(&self, bytes: usize) -> Result<Self::Buffer, Fault>;
    fn staging(&self, bytes: usize) -> Result<Self::Staging, Fault>;
    fn stream(&self) -> Result<Self::Stream, Fault>;

    /// Forgets the work of a stream that has not been started.
    fn abandon(&self, stream: &mut Self::Stream) {
        let _ = stream;
    }

    /// Lets later work of a stream follow an event, on the device.
    fn follow(&self, stream: &mut Self::Stream, event: &Self::Event) -> Result<(), Fault>;

    /// Copies bytes, which may change when this returns.
    fn upload(&self, stream: &mut Self::Stream, from: &[u8], to: &Self::Buffer, at: usize) -> Result<(), Fault>;

    /// Copies to host memory, as many bytes as the staging memory has.
    fn download(
        &self,
        stream: &mut Self::Stream,
        from: &Self::Buffer,
        at: usize,
        to: &mut Self::Staging,
    ) -> Result<(), Fault>;

    /// Gives an event behind the work of a stream. The work is started at once if the host waits for its end, else at the latest by
    /// [`Api::start`]: work that is started together costs less.
    fn record(&self, stream: &mut Self::Stream, is_awaited: bool) -> Result<Self::Event, Fault>;

    /// Starts what was recorded.
    fn start(&self) {}

    /// Returns how far the work is. Never blocks, and starts nothing.
    fn state(&self, event: &Self::Event) -> EventState;

    /// Returns how long ended work took, or how long the host took to pass bytes to the device; once. Not all work is timed.
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
    fn read(&self, from: &mut Self::Staging, into: &mut [u8]) -> Result<(), Fault>;

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
