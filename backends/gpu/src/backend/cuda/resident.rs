//! The API of CUDA for tensors that stay on the device: a stream for each node, and events between
//! them.

use super::gpu;
use crate::base::LONGEST_CALL;
use crate::device::{Api, DeviceFault, EventState, SharedDevice, SharedDevices, Waiter};
use limen::backend::{BackendError, Helpers};
use limen::message::{DType, PortSpec};
use limen_cuda::{Buffer, Class, Context, CopyDirection, Error, PinnedBuffer, Stream, StreamEvent};
use limen_infer::BackendOptions;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first architecture that computes products in TF32.
pub(super) const FIRST_TF32: u32 = 80;

/// One in so many calls of a stream is timed by the device.
const TIMED: u32 = 16;

/// Returns the device as the nodes of this process share it.
pub(crate) fn shared_device(options: &BackendOptions) -> Arc<SharedDevice<CudaApi>> {
    static SHARED: SharedDevices<CudaApi> = SharedDevices::new(100);
    let open = |number| CudaApi::open(number).map_err(|error| BackendError::Unavailable(error.to_string()));
    SHARED.get(gpu(options).map(|info| info.index), open)
}

/// Devices that cannot be used any more in this process, by their numbers, and why.
static DEAD: Mutex<Vec<(usize, String)>> = Mutex::new(Vec::new());

/// The device, until an error ends it.
pub(crate) struct CudaApi {
    pub(super) context: Arc<Context>,
    waiter: Arc<Waiter<StreamEvent>>,
}

impl fmt::Debug for CudaApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaApi").field(&self.context.info().name).finish()
    }
}

impl From<Error> for DeviceFault {
    fn from(error: Error) -> Self {
        match error.class() {
            Class::Sticky => DeviceFault::Lost(format!("cuda: {error}; {FINAL}")),
            Class::Retry => DeviceFault::OutOfMemory(format!("cuda: {error}")),
            Class::Reject => DeviceFault::Call(format!("cuda: {error}")),
        }
    }
}

/// NVIDIA's documentation says of such errors that the process must be terminated and relaunched.
pub(super) const FINAL: &str =
    "this process cannot use the device any more; to recover, write `run: { isolation: process }`";

impl CudaApi {
    pub(super) fn open(number: usize) -> Result<CudaApi, Error> {
        let dead = DEAD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, why)) = dead.iter().find(|(dead, _)| *dead == number) {
            return Err(Error::Refused(format!("this process cannot use the device after an earlier error: {why}")));
        }
        drop(dead);
        let context = Context::open(number)?;
        // An error is found where the event is looked at.
        let waiter = Waiter::new("cuda", |event: StreamEvent| _ = event.wait());
        Ok(CudaApi { context, waiter })
    }
}

impl Drop for CudaApi {
    fn drop(&mut self) {
        self.waiter.close();
    }
}

/// The work of a node.
pub(crate) struct CudaStream {
    pub(super) stream: Stream,
    /// Memory through which bytes of the host pass, so that they may change while the device still
    /// copies them.
    uploads: Vec<PinnedBuffer>,
    /// How long the call may take, if not as long as any.
    pub(super) time_limit: Option<Duration>,
    /// Where kernels report integers that do not fit.
    report: Option<FaultReport>,
    /// Words for that, which are used again.
    words: Vec<Arc<Mutex<PinnedBuffer>>>,
    uploaded: Duration,
    /// Whether something was enqueued since the last event.
    is_begun: bool,
    /// Calls since the last one that was timed.
    untimed: u32,
}

impl CudaStream {
    /// Returns where to enqueue work.
    pub(super) fn work(&mut self) -> Result<&mut Stream, Error> {
        if !self.is_begun {
            self.is_begun = true;
            self.untimed += 1;
            if self.untimed >= TIMED {
                self.untimed = 0;
                self.stream.time()?;
            }
        }
        Ok(&mut self.stream)
    }

    /// Has the call fail if a word of memory is not zero: the number of a kernel, counted from 1.
    pub(super) fn report(&mut self, from: &Arc<Buffer>, names: &Arc<[String]>) -> Result<(), Error> {
        let word = match self.words.iter().find(|word| Arc::strong_count(word) == 1) {
            Some(word) => word.clone(),
            None => {
                let made = PinnedBuffer::new(self.stream.context(), 4, CopyDirection::Download)?;
                self.words.push(Arc::new(Mutex::new(made)));
                self.words[self.words.len() - 1].clone()
            }
        };
        let mut pinned = word.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a call that failed, the device may still write it.
        pinned.wait()?;
        self.work()?.download(from, 0, 4, &mut pinned)?;
        drop(pinned);
        self.report = Some(FaultReport { word, names: names.clone() });
        Ok(())
    }
}

/// Where kernels have reported a fault, and their names.
#[derive(Clone)]
struct FaultReport {
    word: Arc<Mutex<PinnedBuffer>>,
    names: Arc<[String]>,
}

/// What failed, if it is not known which kernel did.
pub(super) const UNKNOWN_FAULT: &str = "a result of an operator does not fit 32 bits";

impl FaultReport {
    fn fault(&self) -> Option<DeviceFault> {
        let mut word = [0; 4];
        if let Err(error) = self.word.lock().unwrap_or_else(PoisonError::into_inner).read(&mut word) {
            return Some(error.into());
        }
        let at = (u32::from_ne_bytes(word) as usize).checked_sub(1)?;
        Some(DeviceFault::Call(self.names.get(at).cloned().unwrap_or_else(|| UNKNOWN_FAULT.into())))
    }
}

/// An event behind the work of a call.
#[derive(Clone)]
pub(crate) struct CudaEvent {
    event: StreamEvent,
    report: Option<FaultReport>,
    begun: Instant,
    time_limit: Duration,
    uploaded: Duration,
}

impl Api for CudaApi {
    const NAME: &'static str = "cuda";
    const ROW_ALIGN: usize = 256;
    const CALLS: usize = 4;
    type Buffer = Arc<Buffer>;
    type Staging = PinnedBuffer;
    type Stream = CudaStream;
    type Event = CudaEvent;

    fn buffer(&self, bytes: usize) -> Result<Arc<Buffer>, DeviceFault> {
        Ok(Arc::new(Buffer::new(&self.context, bytes)?))
    }

    fn staging(&self, bytes: usize) -> Result<PinnedBuffer, DeviceFault> {
        Ok(PinnedBuffer::new(&self.context, bytes, CopyDirection::Download)?)
    }

    fn stream(&self) -> Result<CudaStream, DeviceFault> {
        Ok(CudaStream {
            stream: Stream::new(&self.context)?,
            uploads: Vec::new(),
            time_limit: None,
            report: None,
            words: Vec::new(),
            uploaded: Duration::ZERO,
            is_begun: false,
            untimed: 0,
        })
    }

    fn abandon(&self, stream: &mut CudaStream) {
        // What was enqueued runs, and is before the next event.
        (stream.report, stream.time_limit, stream.uploaded) = (None, None, Duration::ZERO);
    }

    fn follow(&self, stream: &mut CudaStream, event: &CudaEvent) -> Result<(), DeviceFault> {
        Ok(stream.stream.follow(&event.event)?)
    }

    fn upload(&self, stream: &mut CudaStream, from: &[u8], to: &Arc<Buffer>, at: usize) -> Result<(), DeviceFault> {
        let begun = Instant::now();
        let fits = |pinned: &PinnedBuffer| pinned.is_free() && pinned.bytes() >= from.len();
        let place = match stream.uploads.iter().position(fits) {
            Some(place) => place,
            // As many as calls may be under way, for each size; then the oldest one is waited for.
            None if stream.uploads.len() < MAX_UPLOADS => {
                stream.uploads.push(PinnedBuffer::new(&self.context, from.len(), CopyDirection::Upload)?);
                stream.uploads.len() - 1
            }
            None => {
                stream.uploads.rotate_left(1);
                let last = stream.uploads.len() - 1;
                stream.uploads[last].wait()?;
                if stream.uploads[last].bytes() < from.len() {
                    stream.uploads[last] = PinnedBuffer::new(&self.context, from.len(), CopyDirection::Upload)?;
                }
                last
            }
        };
        let mut pinned = stream.uploads.swap_remove(place);
        pinned.write(from)?;
        let copied = stream.work()?.upload(&mut pinned, from.len(), to, at);
        stream.uploads.push(pinned);
        stream.uploaded += begun.elapsed();
        Ok(copied?)
    }

    fn download(
        &self,
        stream: &mut CudaStream,
        from: &Arc<Buffer>,
        at: usize,
        to: &mut PinnedBuffer,
    ) -> Result<(), DeviceFault> {
        let bytes = to.bytes();
        Ok(stream.work()?.download(from, at, bytes, to)?)
    }

    fn record(&self, stream: &mut CudaStream, _: bool) -> Result<CudaEvent, DeviceFault> {
        let event = stream.stream.record()?;
        stream.is_begun = false;
        Ok(CudaEvent {
            event,
            report: stream.report.take(),
            begun: Instant::now(),
            time_limit: stream.time_limit.take().unwrap_or(LONGEST_CALL),
            uploaded: std::mem::take(&mut stream.uploaded),
        })
    }

    fn state(&self, event: &CudaEvent) -> EventState {
        match event.event.query() {
            Ok(true) => event.report.as_ref().and_then(FaultReport::fault).map_or(EventState::Done, EventState::Failed),
            Ok(false) if event.begun.elapsed() > event.time_limit => {
                self.context.give_up(format!("a call did not finish within {:?}", event.time_limit));
                self.context.fault().map_or(EventState::Pending, |error| EventState::Failed(error.into()))
            }
            Ok(false) => EventState::Pending,
            Err(error) => EventState::Failed(error.into()),
        }
    }

    fn time(&self, event: &CudaEvent) -> Option<Duration> {
        // Of an upload, the time that the host takes, in every call: the device times some only.
        if !event.uploaded.is_zero() {
            return Some(event.uploaded);
        }
        event.event.time()
    }

    fn wait(&self, event: &CudaEvent, at_most: Duration) -> EventState {
        // CUDA has no wait with a limit.
        let begun = Instant::now();
        loop {
            let state = self.state(event);
            if state != EventState::Pending || begun.elapsed() >= at_most {
                return state;
            }
            std::thread::yield_now();
        }
    }

    fn notify(&self, event: &CudaEvent, helpers: &Helpers) {
        self.waiter.add(event.event.clone(), helpers);
    }

    fn notifies(&self) -> bool {
        true
    }

    fn read(&self, from: &mut PinnedBuffer, into: &mut [u8]) -> Result<(), DeviceFault> {
        Ok(from.read(into)?)
    }

    fn is_lost(&self) -> bool {
        let fault = self.context.fault();
        if let Some(error) = &fault {
            // Before another one is opened in its place.
            let mut dead = DEAD.lock().unwrap_or_else(PoisonError::into_inner);
            let number = self.context.info().index;
            if dead.iter().all(|(dead, _)| *dead != number) {
                dead.push((number, error.to_string()));
            }
        }
        fault.is_some()
    }

    fn refuses(spec: &PortSpec) -> Option<String> {
        let fits = matches!(spec.dtype, DType::F32 | DType::I32 | DType::U8);
        (!fits).then(|| format!("elements on a device must be f32, i32 or u8, got {}", spec.dtype))
    }
}

/// Pieces of host memory of a stream.
const MAX_UPLOADS: usize = 16;

/// What a device lacks while a program is prepared for it; if it is lost, the error says so.
pub(super) fn unsupported(context: &Context, error: Error) -> BackendError {
    match DeviceFault::from(error) {
        DeviceFault::Call(why) => BackendError::Unsupported(format!("{}: {why}", context.info().name)),
        lost => lost.into(),
    }
}
