//! Work of a device in order, and events behind it.

use crate::context::Context;
use crate::error::{Error, NamedResult};
use crate::graph::GraphExec;
use crate::memory::{Buffer, PinnedBuffer, PinnedMemory};
use crate::module::Function;
use crate::routine::Routine;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What work uses, and therefore keeps.
#[derive(Clone, Debug)]
pub(crate) enum Used {
    Buffer(#[expect(dead_code, reason = "kept")] Arc<Buffer>),
    Pinned(#[expect(dead_code, reason = "kept")] Arc<PinnedMemory>),
    Function(#[expect(dead_code, reason = "kept")] Arc<Function>),
    Graph(#[expect(dead_code, reason = "kept")] Arc<GraphExec>),
    /// For the memory of its bias.
    Routine(#[expect(dead_code, reason = "kept")] Routine),
}

/// Work between two events of a stream.
struct StreamWork {
    context: Arc<Context>,
    /// The event behind it; unset while it is not recorded.
    end: OnceLock<RawEvent>,
    /// The event before it, if it is timed.
    begin: OnceLock<RawEvent>,
    /// How it ended, once that is known.
    outcome: OnceLock<Result<(), Error>>,
    used: Mutex<Vec<Used>>,
}

#[derive(Clone, Copy)]
struct RawEvent(sys::CUevent);

// SAFETY: the driver's handles may be used by any thread that has bound the context, and by several
// at the same time.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl StreamWork {
    fn new(context: &Arc<Context>) -> StreamWork {
        let (end, begin, outcome, used) = (OnceLock::new(), OnceLock::new(), OnceLock::new(), Mutex::default());
        StreamWork { context: context.clone(), end, begin, outcome, used }
    }

    fn keep(&self, used: Used) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(used);
    }

    /// Notes how it has ended; a device that has failed ends no work any more, and uses nothing.
    fn end(&self, outcome: Result<(), Error>) -> Result<(), Error> {
        let outcome = self.outcome.get_or_init(|| outcome).clone();
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clear();
        outcome
    }

    fn query(&self) -> Result<bool, Error> {
        if let Some(outcome) = self.outcome.get() {
            return outcome.clone().map(|()| true);
        }
        let Some(RawEvent(end)) = self.end.get() else { return Ok(false) };
        if let Err(error) = self.context.bind() {
            return self.end(Err(error)).map(|()| true);
        }
        // SAFETY: the event was recorded, and is used again only after this work.
        match unsafe { sys::cuEventQuery(*end) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.end(self.context.noted(result.result().named("cuEventQuery"))).map(|()| true),
        }
    }

    fn wait(&self) -> Result<(), Error> {
        if self.query()? {
            return Ok(());
        }
        let Some(RawEvent(end)) = self.end.get() else {
            return Err(Error::Refused("expected an event after the work, found none".into()));
        };
        // SAFETY: as above.
        let waited = unsafe { result::event::synchronize(*end) };
        self.end(self.context.noted(waited.named("cuEventSynchronize")))
    }

    /// Waits for its end, so that nothing is used any more, and gives its events back.
    fn close(&mut self) {
        // Work without an event ends with its stream, which waits.
        if self.outcome.get().is_none() && self.end.get().is_some() {
            let _ = self.wait();
        }
        let (end, begin) = (self.end.take(), self.begin.take());
        for (event, is_timed) in [(end, begin.is_some()), (begin, true)] {
            if let Some(RawEvent(event)) = event {
                self.context.give_back(event, is_timed);
            }
        }
        self.outcome.take();
    }
}

impl Drop for StreamWork {
    fn drop(&mut self) {
        self.close();
    }
}

/// An event behind work of a stream. What the work uses lives until it has ended: dropping the last
/// handle of it waits for that.
#[derive(Clone)]
pub struct StreamEvent(Arc<StreamWork>);

impl fmt::Debug for StreamEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("outcome", &self.0.outcome.get()).finish_non_exhaustive()
    }
}

impl StreamEvent {
    /// Whether the work before it has ended. Does not block.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn query(&self) -> Result<bool, Error> {
        self.0.query()
    }

    /// Waits until the work has ended; the thread sleeps.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.0.wait()
    }

    /// Waits until the work has ended, and gives up after so long: then what it uses stays as it is
    /// until the process ends.
    ///
    /// # Errors
    /// If the device has failed, or the work does not end.
    pub fn wait_for(&self, longest: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.query()? {
            let waited = begun.elapsed();
            if waited > longest {
                self.0.context.give_up(format!("work did not finish within {longest:?}"));
                return self.query().map(drop);
            }
            // Short work is waited for without sleeping.
            match waited < SHORT {
                true => std::thread::yield_now(),
                false => std::thread::sleep(SHORT / 10),
            }
        }
        Ok(())
    }

    /// Returns how long the device took for the work, if that was asked for and it has ended.
    pub fn time(&self) -> Option<Duration> {
        let (RawEvent(begin), RawEvent(end)) = (self.0.begin.get()?, self.0.end.get()?);
        self.0.outcome.get()?.as_ref().ok()?;
        self.0.context.bind().ok()?;
        // SAFETY: both were recorded on one stream, with times, and have ended.
        let ms = unsafe { result::event::elapsed(*begin, *end) }.ok()?;
        Some(Duration::from_secs_f64((f64::from(ms) / 1e3).max(0.0)))
    }
}

/// Work that ends so soon is waited for without sleeping.
const SHORT: Duration = Duration::from_micros(200);

/// Work of a device that is done in order. It is used by one thread at a time.
pub struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
    /// What was enqueued since the last event.
    work: Arc<StreamWork>,
    /// Work before it, which is used again once nothing refers to it.
    before: VecDeque<Arc<StreamWork>>,
    /// The arguments of a kernel, and where they lie.
    words: Vec<u64>,
    pointers: Vec<Pointer>,
    /// Whether a graph is being captured: then nothing runs.
    capturing: Option<Vec<Used>>,
}

// SAFETY: as for events; what is enqueued needs `&mut self`.
unsafe impl Send for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.context.info().index).finish_non_exhaustive()
    }
}

impl Stream {
    /// Creates a stream that waits for no other.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(context: &Arc<Context>) -> Result<Stream, Error> {
        context.bind()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let raw = context.noted(created.named("cuStreamCreate"))?;
        let (work, before) = (Arc::new(StreamWork::new(context)), VecDeque::new());
        let (context, words, pointers) = (context.clone(), Vec::new(), Vec::new());
        Ok(Stream { context, raw, work, before, words, pointers, capturing: None })
    }

    /// Returns its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn keep(&mut self, used: Used) {
        match &mut self.capturing {
            Some(captured) => captured.push(used),
            None => self.work.keep(used),
        }
    }

    /// Begins to capture a graph: what is enqueued from now on is recorded, not run.
    pub(crate) fn begin_capture(&mut self) -> Result<(), Error> {
        self.context.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this one's.
        let begun = unsafe { result::stream::begin_capture(self.raw, mode) };
        self.context.noted(begun.named("cuStreamBeginCapture"))?;
        self.capturing = Some(Vec::new());
        Ok(())
    }

    /// Ends it and returns what it uses.
    pub(crate) fn end_capture(&mut self) -> Result<(sys::CUgraph, Vec<Used>), Error> {
        let used = self.capturing.take().unwrap_or_default();
        self.context.bind()?;
        // SAFETY: a capture was begun on it.
        let ended = unsafe { result::stream::end_capture(self.raw) };
        Ok((self.context.noted(ended.named("cuStreamEndCapture"))?, used))
    }

    /// Has the device time what is enqueued until the next event ([`StreamEvent::time`]); called
    /// before anything is enqueued.
    ///
    /// # Errors
    /// If the device fails.
    pub fn time(&mut self) -> Result<(), Error> {
        self.context.bind()?;
        if self.work.begin.get().is_some() || self.capturing.is_some() {
            return Ok(());
        }
        let begin = self.context.event(true)?;
        // SAFETY: both are of this context.
        let recorded = unsafe { result::event::record(begin, self.raw) };
        let _ = self.work.begin.set(RawEvent(begin));
        self.context.noted(recorded.named("cuEventRecord"))
    }

    /// Lets later work of this stream follow an event, on the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn follow(&mut self, event: &StreamEvent) -> Result<(), Error> {
        self.context.bind()?;
        // What has ended needs no wait.
        if event.query()? {
            return Ok(());
        }
        let Some(RawEvent(end)) = event.0.end.get() else {
            return Err(Error::Refused("expected an event after the work to wait for, found none".into()));
        };
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event was recorded; the driver keeps what it needs of it.
        let follows = unsafe { result::stream::wait_event(self.raw, *end, flags) };
        self.context.noted(follows.named("cuStreamWaitEvent"))
    }

    /// Copies bytes from the beginning of host memory.
    ///
    /// # Errors
    /// If they lie outside of either memory, work uses the host memory, or the device fails.
    pub fn upload(&mut self, from: &mut PinnedBuffer, bytes: usize, to: &Arc<Buffer>, at: usize) -> Result<(), Error> {
        self.check_copy(from, bytes, to, at)?;
        // SAFETY: both ranges were checked, and live until the work has ended. The host does not
        // write its side before (`PinnedBuffer`).
        let copied = unsafe {
            sys::cuMemcpyHtoDAsync_v2(address(to, at), from.memory.address.cast::<c_void>(), bytes, self.raw).result()
        };
        self.used(from, to);
        self.context.noted(copied.named("cuMemcpyHtoDAsync"))
    }

    /// Copies bytes to the beginning of host memory.
    ///
    /// # Errors
    /// As for [`Stream::upload`].
    pub fn download(
        &mut self,
        from: &Arc<Buffer>,
        at: usize,
        bytes: usize,
        to: &mut PinnedBuffer,
    ) -> Result<(), Error> {
        self.check_copy(to, bytes, from, at)?;
        // SAFETY: as above; the host does not read its side before.
        let copied = unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.memory.address.cast::<c_void>(), address(from, at), bytes, self.raw).result()
        };
        self.used(to, from);
        self.context.noted(copied.named("cuMemcpyDtoHAsync"))
    }

    fn used(&mut self, host: &mut PinnedBuffer, device: &Arc<Buffer>) {
        self.keep(Used::Pinned(host.memory.clone()));
        self.keep(Used::Buffer(device.clone()));
        host.used_by = Some(StreamEvent(self.work.clone()));
    }

    fn check_copy(&self, host: &PinnedBuffer, bytes: usize, device: &Buffer, at: usize) -> Result<(), Error> {
        self.context.bind()?;
        if self.capturing.is_some() {
            return Err(Error::Refused("copies of host memory cannot be captured".into()));
        }
        if !host.is_free() {
            return Err(Error::Refused("the host memory is in use by unfinished work".into()));
        }
        if bytes > host.bytes() {
            return Err(Error::Refused(format!(
                "a copy must have at most the {} bytes of host memory, got {bytes}",
                host.bytes()
            )));
        }
        self.check(device, at, bytes)
    }

    fn check(&self, buffer: &Buffer, at: usize, bytes: usize) -> Result<(), Error> {
        if !Arc::ptr_eq(buffer.context(), &self.context) {
            return Err(Error::Refused(
                "expected memory on the device of the stream, found memory of another device".into(),
            ));
        }
        match at.checked_add(bytes).is_some_and(|end| end <= buffer.bytes()) {
            true => Ok(()),
            false => Err(Error::Refused(format!(
                "a copy must end within {} bytes, got {bytes} bytes at {at}",
                buffer.bytes()
            ))),
        }
    }

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// If they lie outside of the memory, or the device fails.
    pub fn clear(&mut self, buffer: &Arc<Buffer>, at: usize, bytes: usize) -> Result<(), Error> {
        self.context.bind()?;
        self.check(buffer, at, bytes)?;
        // SAFETY: the range was checked, and lives until the work has ended.
        let cleared = unsafe { result::memset_d8_async(address(buffer, at), 0, bytes, self.raw) };
        self.keep(Used::Buffer(buffer.clone()));
        self.context.noted(cleared.named("cuMemsetD8Async"))
    }

    /// Copies bytes from the beginning of memory of the device to that of other memory.
    ///
    /// # Errors
    /// If they lie outside of either memory, or the device fails.
    pub fn copy(&mut self, from: &Arc<Buffer>, to: &Arc<Buffer>, bytes: usize) -> Result<(), Error> {
        self.context.bind()?;
        self.check(from, 0, bytes)?;
        self.check(to, 0, bytes)?;
        // SAFETY: both ranges were checked, and live until the work has ended.
        let copied = unsafe { result::memcpy_dtod_async(address(to, 0), address(from, 0), bytes, self.raw) };
        self.keep(Used::Buffer(from.clone()));
        self.keep(Used::Buffer(to.clone()));
        self.context.noted(copied.named("cuMemcpyDtoDAsync"))
    }

    /// Runs a kernel.
    ///
    /// # Errors
    /// If memory is of another device, or the device refuses the launch.
    ///
    /// # Safety
    /// The kernel takes these arguments, and accesses nothing but what they point to, up to the end
    /// of that memory, and does not write what other work under way uses.
    pub unsafe fn launch<'a>(
        &mut self,
        function: &Arc<Function>,
        grid: Grid,
        arguments: impl IntoIterator<Item = Argument<'a>>,
    ) -> Result<(), Error> {
        self.context.bind()?;
        self.words.clear();
        for argument in arguments {
            let word = match argument {
                Argument::Buffer(buffer) => {
                    self.check(buffer, 0, 0)?;
                    self.keep(Used::Buffer(buffer.clone()));
                    address(buffer, 0)
                }
                Argument::Number(bytes) => u64::from_ne_bytes(bytes),
            };
            self.words.push(word);
        }
        self.pointers.clear();
        self.pointers.extend(self.words.iter_mut().map(|word| Pointer(std::ptr::from_mut(word).cast())));
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        let (arguments, options) = (self.pointers.as_mut_ptr().cast::<*mut c_void>(), std::ptr::null_mut());
        let (function_raw, shared) = (function.raw(), grid.shared);
        // SAFETY: the function is loaded, and kept until the work has ended. The driver reads as
        // many arguments as the kernel has, which the caller vouches for, before this returns.
        let launched = unsafe {
            sys::cuLaunchKernel(function_raw, gx, gy, gz, bx, by, bz, shared, self.raw, arguments, options).result()
        };
        self.keep(Used::Function(function.clone()));
        self.context.noted(launched.named("cuLaunchKernel"))
    }

    /// Computes what a library has a routine for: from its two factors, its result. `workspace` has
    /// the bytes that it needs beside them.
    ///
    /// # Errors
    /// If memory is too small or of another device, or the library fails.
    pub fn compute(
        &mut self,
        routine: &Routine,
        arrays: [&Arc<Buffer>; 3],
        workspace: &Arc<Buffer>,
    ) -> Result<(), Error> {
        self.context.bind()?;
        for buffer in arrays.into_iter().chain([workspace]) {
            self.check(buffer, 0, 0)?;
            self.keep(Used::Buffer(buffer.clone()));
        }
        self.keep(Used::Routine(routine.clone()));
        let enqueued = routine.enqueue(self.raw, arrays.map(|buffer| &**buffer), workspace);
        if enqueued.is_err() && self.capturing.is_none() {
            // The library does not say whether the device still works; the driver does.
            // SAFETY: the stream is this one's.
            self.context.noted(unsafe { result::stream::synchronize(self.raw) }.named("cuStreamSynchronize"))?;
        }
        enqueued
    }

    /// Runs what was captured.
    pub(crate) fn run(&mut self, graph: &Arc<GraphExec>) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the graph is kept until the work has ended.
        let launched = unsafe { result::graph::launch(graph.raw(), self.raw) };
        self.keep(Used::Graph(graph.clone()));
        self.context.noted(launched.named("cuGraphLaunch"))
    }

    /// Gives an event behind what was enqueued.
    ///
    /// # Errors
    /// If the device fails; what was enqueued is then behind the next event.
    pub fn record(&mut self) -> Result<StreamEvent, Error> {
        self.context.bind()?;
        let is_timed = self.work.begin.get().is_some();
        let end = self.context.event(is_timed)?;
        // SAFETY: both are of this context.
        let recorded = unsafe { result::event::record(end, self.raw) };
        if let Err(error) = self.context.noted(recorded.named("cuEventRecord")) {
            self.context.give_back(end, is_timed);
            return Err(error);
        }
        let _ = self.work.end.set(RawEvent(end));
        let next = self.next_work();
        let work = std::mem::replace(&mut self.work, next);
        self.before.push_back(work.clone());
        Ok(StreamEvent(work))
    }

    /// Returns work that nothing refers to.
    fn next_work(&mut self) -> Arc<StreamWork> {
        for _ in 0..self.before.len() {
            let Some(mut work) = self.before.pop_front() else { break };
            // One that has not ended is still used, by the device.
            let is_over = work.query().unwrap_or(true);
            if let Some(free) = Arc::get_mut(&mut work).filter(|_| is_over) {
                free.close();
                return work;
            }
            self.before.push_back(work);
        }
        Arc::new(StreamWork::new(&self.context))
    }
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along each dim.
    pub blocks: [u32; 3],
    /// Threads of a block along each dim.
    pub threads: [u32; 3],
    /// Bytes of shared memory of a block, beside those that the kernel declares.
    pub shared: u32,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A pointer to the beginning of memory of the device.
    Buffer(&'a Arc<Buffer>),
    /// The bytes of a number, in the order of the machine, from its first one on.
    Number([u8; 8]),
}

/// A pointer that is used only while a kernel is launched.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pointer(*mut c_void);

fn address(buffer: &Buffer, at: usize) -> sys::CUdeviceptr {
    buffer.address() + at as u64
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Err(error) = self.context.bind() {
            let _ = self.work.end(Err(error));
            return;
        }
        // SAFETY: the stream is this one's, and ends here. What was enqueued without an event uses
        // memory that must outlive it.
        let ended = unsafe { result::stream::synchronize(self.raw) };
        let ended = self.context.noted(ended.named("cuStreamSynchronize"));
        let _ = self.work.end(ended);
        // SAFETY: as above.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}
