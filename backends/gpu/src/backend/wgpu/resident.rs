//! The API of wgpu for tensors that stay on the device. It has one queue, in whose order all work
//! is done, so a call that is submitted later follows by itself.

use super::adapter::{adapter, adapter_number};
use super::device::{Device, one_line};
use super::loaded::{Mapping, UNKNOWN_FAULT};
use crate::base::LONGEST_CALL;
use crate::device::{Api, DeviceFault, EventState, SharedDevice, SharedDevices, Waiter};
use limen::backend::{BackendError, Helpers};
use limen::message::{DType, PortSpec};
use limen_infer::BackendOptions;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wgpu::{Buffer, BufferUsages, CommandBuffer, CommandEncoder, PollError, PollType, SubmissionIndex};

/// Returns the device as the nodes of this process share it.
pub(crate) fn shared_device(options: &BackendOptions) -> Arc<SharedDevice<WgpuApi>> {
    static SHARED: SharedDevices<WgpuApi> = SharedDevices::new(0);
    SHARED.get(adapter_number(options), WgpuApi::open)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One generation of the device.
pub(crate) struct WgpuApi {
    pub(super) device: Arc<Device>,
    waiter: Arc<Waiter<SubmissionIndex>>,
    pending: Mutex<Pending>,
    /// The last call that was submitted.
    last: Mutex<Option<Arc<EventCell>>>,
}

/// Work that is to be submitted together, in the order of its calls.
#[derive(Default)]
struct Pending {
    work: Vec<CommandBuffer>,
    cells: Vec<Arc<EventCell>>,
    mapped: Vec<Arc<Readback>>,
}

impl fmt::Debug for WgpuApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WgpuApi").field(&self.device.info.name).finish()
    }
}

impl WgpuApi {
    fn open(number: usize) -> Result<Self, BackendError> {
        let device = Device::open(adapter(number))?;
        // Callbacks run only while something polls.
        let polled = device.clone();
        let waiter = Waiter::new("wgpu", move |submission| {
            let wait = PollType::Wait { submission_index: Some(submission), timeout: Some(LONGEST_CALL) };
            if let Err(error) = polled.device.poll(wait) {
                polled.lose(format!("a call did not finish: {error}"));
            }
        });
        Ok(WgpuApi { device, waiter, pending: Mutex::default(), last: Mutex::default() })
    }

    /// Submits what is pending. Others wait meanwhile: the order of submissions is that of calls.
    fn submit(&self) {
        let mut pending = lock(&self.pending);
        let Pending { work, cells, mapped } = &mut *pending;
        if cells.is_empty() {
            return;
        }
        let queue = &self.device.queue;
        let submitted = self.device.scoped(|| {
            let submission = queue.submit(work.drain(..));
            mapped.drain(..).for_each(|readback| readback.map());
            submission
        });
        let cells = std::mem::take(cells);
        lock(&self.last).clone_from(&cells.last().cloned());
        match submitted {
            Ok(submission) => {
                let begun = Instant::now();
                cells.iter().for_each(|cell| _ = cell.submission.set((submission.clone(), begun)));
                queue.on_submitted_work_done(move || cells.iter().for_each(|cell| cell.end()));
            }
            Err(why) => {
                let fault = self.fault(why);
                cells.iter().for_each(|cell| _ = lock(&cell.state).get_or_insert(EventState::Failed(fault.clone())));
            }
        }
    }

    fn lost(&self) -> Option<DeviceFault> {
        self.device.is_lost().then(|| DeviceFault::Lost(self.device.why_lost()))
    }

    fn fault(&self, why: String) -> DeviceFault {
        self.lost().unwrap_or(DeviceFault::Call(format!("{}: {why}", self.device.info.name)))
    }
}

impl Drop for WgpuApi {
    fn drop(&mut self) {
        self.waiter.close();
    }
}

/// Work that has not been submitted.
#[derive(Default)]
pub(crate) struct WgpuStream {
    encoder: Option<CommandEncoder>,
    /// What the host will read.
    mapped: Vec<Arc<Readback>>,
    /// Where kernels report integers that do not fit.
    report: Option<FaultReport>,
    /// How long the call may take, if not as long as any.
    pub(super) time_limit: Option<Duration>,
    /// How long the host took to pass bytes to the device.
    uploaded: Duration,
    /// What times the call.
    timer: Option<Arc<Timer>>,
    timers: Vec<Arc<Timer>>,
    /// Calls since the last one that was timed.
    untimed: u32,
}

/// One in so many calls of a stream is timed by the device: a time costs a few µs on the host.
const TIMED: u32 = 16;

/// The times of the device at the begin and the end of a call.
pub(crate) struct Timer {
    set: wgpu::QuerySet,
    resolved: Buffer,
    readback: Arc<Readback>,
    /// Whether it can be used again.
    is_read: AtomicBool,
}

impl Timer {
    const BYTES: u64 = 16;

    fn new(device: &Device) -> Timer {
        let of = wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: 2 };
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let resolved = wgpu::BufferDescriptor { label: None, size: Timer::BYTES, usage, mapped_at_creation: false };
        Timer {
            set: device.device.create_query_set(&of),
            resolved: device.device.create_buffer(&resolved),
            readback: Arc::new(Readback::new(device, Timer::BYTES)),
            is_read: AtomicBool::new(true),
        }
    }

    /// Returns what is between both times, in ns.
    fn read(&self, tick: f32) -> Option<Duration> {
        let mut times = [0; 2];
        self.readback.read(bytemuck::cast_slice_mut(&mut times)).ok()?;
        self.is_read.store(true, Ordering::Release);
        let [begin, end]: [u64; 2] = times;
        Some(Duration::from_nanos((end.saturating_sub(begin) as f64 * f64::from(tick)) as u64))
    }
}

impl WgpuStream {
    /// Returns where to encode work.
    pub(super) fn encoder(&mut self, device: &Device) -> &mut CommandEncoder {
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => self.begin(device),
        };
        self.encoder.insert(encoder)
    }

    /// Begins a call.
    fn begin(&mut self, device: &Device) -> CommandEncoder {
        let mut encoder = device.device.create_command_encoder(&Default::default());
        self.untimed += 1;
        if device.tick.is_some() && self.untimed >= TIMED {
            self.untimed = 0;
            let timer = self.free_timer(device);
            timer.is_read.store(false, Ordering::Release);
            encoder.write_timestamp(&timer.set, 0);
            self.timer = Some(timer);
        }
        encoder
    }

    /// Returns a timer that no call uses. What was never read is mapped still, and dropped.
    fn free_timer(&mut self, device: &Device) -> Arc<Timer> {
        let is_free = |timer: &Arc<Timer>| Arc::strong_count(timer) == 1;
        self.timers.retain(|timer| !is_free(timer) || timer.is_read.load(Ordering::Acquire));
        let free = self.timers.iter().find(|timer| is_free(timer)).cloned();
        free.unwrap_or_else(|| {
            let timer = Arc::new(Timer::new(device));
            self.timers.push(timer.clone());
            timer
        })
    }

    /// Has the call fail if the word at the beginning of a buffer is not zero: the number of a
    /// kernel, counted from 1.
    pub(super) fn report(&mut self, device: &Device, from: &Buffer, names: &Arc<[String]>) {
        let readback = Arc::new(Readback::new(device, from.size()));
        self.encoder(device).copy_buffer_to_buffer(from, 0, &readback.buffer, 0, from.size());
        self.mapped.push(readback.clone());
        self.report = Some(FaultReport { readback, names: names.clone() });
    }
}

#[derive(Clone)]
struct FaultReport {
    readback: Arc<Readback>,
    names: Arc<[String]>,
}

impl FaultReport {
    fn fault(&self) -> Option<DeviceFault> {
        let mut word = [0; 4];
        if let Err(why) = self.readback.read(&mut word) {
            return Some(DeviceFault::Call(why));
        }
        let at = (u32::from_ne_bytes(word) as usize).checked_sub(1)?;
        Some(DeviceFault::Call(self.names.get(at).cloned().unwrap_or_else(|| UNKNOWN_FAULT.into())))
    }
}

/// Memory of the host that the device writes.
pub(crate) struct Readback {
    buffer: Buffer,
    mapping: Arc<Mapping>,
}

impl Readback {
    fn new(device: &Device, bytes: u64) -> Self {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let of = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        Readback { buffer: device.device.create_buffer(&of), mapping: Arc::default() }
    }

    fn map(&self) {
        self.mapping.begin();
        let mapping = self.mapping.clone();
        self.buffer.slice(..).map_async(wgpu::MapMode::Read, move |result| mapping.end(result.is_ok()));
    }

    /// Reads the beginning of what was copied, and gives the memory back to the device.
    fn read(&self, into: &mut [u8]) -> Result<(), String> {
        if self.mapping.wait(LONGEST_CALL) != Some(true) {
            return Err("the outputs could not be read".into());
        }
        let copied = self.buffer.slice(..).get_mapped_range().map(|view| into.copy_from_slice(&view[..into.len()]));
        self.buffer.unmap();
        copied.map_err(|error| one_line(&error.to_string()))
    }
}

/// An event behind submitted work.
#[derive(Clone)]
pub(crate) struct WgpuEvent {
    cell: Arc<EventCell>,
    report: Option<FaultReport>,
    time_limit: Duration,
    /// The call that the device does before it, if the time limit is its own.
    after: Option<Arc<EventCell>>,
    uploaded: Duration,
    timer: Option<Arc<Timer>>,
}

#[derive(Debug, Default)]
struct EventCell {
    state: Mutex<Option<EventState>>,
    /// Set when its work has been submitted, with the time.
    submission: OnceLock<(SubmissionIndex, Instant)>,
    /// When the host saw that it had ended.
    ended: Mutex<Option<Instant>>,
    has_ended: Condvar,
}

impl EventCell {
    fn end(&self) {
        *lock(&self.ended) = Some(Instant::now());
        self.has_ended.notify_all();
    }

    fn ended(&self) -> Option<Instant> {
        *lock(&self.ended)
    }

    /// Waits until the callback of the work has run, on whichever thread polls.
    fn wait(&self, at_most: Duration) {
        let ended = lock(&self.ended);
        let _ = self.has_ended.wait_timeout_while(ended, at_most, |ended| ended.is_none());
    }
}

impl Api for WgpuApi {
    const NAME: &'static str = "wgpu";
    const ROW_ALIGN: usize = 256;
    const CALLS: usize = 4;
    type Buffer = Buffer;
    type Staging = Arc<Readback>;
    type Stream = WgpuStream;
    type Event = WgpuEvent;

    fn buffer(&self, bytes: usize) -> Result<Buffer, DeviceFault> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let of = wgpu::BufferDescriptor { label: None, size: bytes as u64, usage, mapped_at_creation: false };
        self.device.scoped(|| self.device.device.create_buffer(&of)).map_err(|why| self.fault(why))
    }

    fn staging(&self, bytes: usize) -> Result<Arc<Readback>, DeviceFault> {
        let made = self.device.scoped(|| Arc::new(Readback::new(&self.device, bytes as u64)));
        made.map_err(|why| self.fault(why))
    }

    fn stream(&self) -> Result<WgpuStream, DeviceFault> {
        Ok(WgpuStream::default())
    }

    fn abandon(&self, stream: &mut WgpuStream) {
        *stream = WgpuStream::default();
    }

    fn follow(&self, _: &mut WgpuStream, _: &WgpuEvent) -> Result<(), DeviceFault> {
        // Submitted work follows what was submitted before it.
        Ok(())
    }

    fn upload(&self, stream: &mut WgpuStream, from: &[u8], to: &Buffer, at: usize) -> Result<(), DeviceFault> {
        let begun = Instant::now();
        let (whole, rest) = from.split_at(from.len() - from.len() % 4);
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let write = || {
            self.device.queue.write_buffer(to, at as u64, whole);
            if !rest.is_empty() {
                self.device.queue.write_buffer(to, (at + whole.len()) as u64, &last);
            }
        };
        let written = self.device.scoped(write).map_err(|why| self.fault(why));
        stream.uploaded += begun.elapsed();
        written
    }

    fn download(
        &self,
        stream: &mut WgpuStream,
        from: &Buffer,
        at: usize,
        to: &mut Arc<Readback>,
    ) -> Result<(), DeviceFault> {
        let size = to.buffer.size();
        stream.encoder(&self.device).copy_buffer_to_buffer(from, at as u64, &to.buffer, 0, size);
        stream.mapped.push(to.clone());
        Ok(())
    }

    fn record(&self, stream: &mut WgpuStream, is_awaited: bool) -> Result<WgpuEvent, DeviceFault> {
        let WgpuStream { encoder, mapped, report, time_limit, uploaded, timer, .. } = stream;
        let timer = timer.take();
        if let (Some(encoder), Some(timer)) = (encoder.as_mut(), &timer) {
            encoder.write_timestamp(&timer.set, 1);
            encoder.resolve_query_set(&timer.set, 0..2, &timer.resolved, 0);
            encoder.copy_buffer_to_buffer(&timer.resolved, 0, &timer.readback.buffer, 0, Timer::BYTES);
            mapped.push(timer.readback.clone());
        }
        let work = match encoder.take() {
            Some(encoder) => Some(self.device.scoped(|| encoder.finish()).map_err(|why| self.fault(why))?),
            None => None,
        };
        let own_limit = time_limit.take();
        // Apart from what is before it, which may take long.
        let after = own_limit.and_then(|_| {
            self.submit();
            lock(&self.last).clone()
        });
        let time_limit = own_limit.unwrap_or(LONGEST_CALL);
        let uploaded = std::mem::take(uploaded);
        let event = WgpuEvent { cell: Arc::default(), report: report.take(), time_limit, after, uploaded, timer };
        let mut pending = lock(&self.pending);
        pending.work.extend(work);
        pending.mapped.append(mapped);
        pending.cells.push(event.cell.clone());
        drop(pending);
        if is_awaited {
            self.submit();
        }
        Ok(event)
    }

    fn start(&self) {
        self.submit();
    }

    fn state(&self, event: &WgpuEvent) -> EventState {
        let mut known = lock(&event.cell.state);
        if let Some(state) = &*known {
            return state.clone();
        }
        if let Some(fault) = self.lost() {
            return known.insert(EventState::Failed(fault)).clone();
        }
        let Some((_, begun)) = event.cell.submission.get() else { return EventState::Pending };
        if event.cell.ended().is_none() {
            let _ = self.device.device.poll(PollType::Poll);
        }
        if event.cell.ended().is_none() {
            let is_over = |begun: Instant| begun.elapsed() > event.time_limit;
            let is_over = match &event.after {
                None => is_over(*begun),
                // It begins when that one has ended.
                Some(after) => after.ended().is_some_and(|ended| is_over(ended.max(*begun))),
            };
            if !is_over {
                return EventState::Pending;
            }
            self.device.lose(format!("a call did not finish within {:?}", event.time_limit));
        }
        let fault = self.lost().or_else(|| event.report.as_ref().and_then(FaultReport::fault));
        known.insert(fault.map_or(EventState::Done, EventState::Failed)).clone()
    }

    fn time(&self, event: &WgpuEvent) -> Option<Duration> {
        match (&event.timer, self.device.tick) {
            (Some(timer), Some(tick)) => timer.read(tick),
            _ => (!event.uploaded.is_zero()).then_some(event.uploaded),
        }
    }

    fn wait(&self, event: &WgpuEvent, at_most: Duration) -> EventState {
        self.submit();
        if let Some((submission, _)) = event.cell.submission.get() {
            let wait = PollType::Wait { submission_index: Some(submission.clone()), timeout: Some(at_most) };
            match self.device.device.poll(wait) {
                Ok(_) => event.cell.wait(at_most),
                Err(PollError::Timeout) => {}
                Err(error) => self.device.lose(format!("the wait for a call failed: {error}")),
            }
        }
        self.state(event)
    }

    fn notify(&self, event: &WgpuEvent, helpers: &Helpers) {
        self.submit();
        match event.cell.submission.get() {
            Some((submission, _)) => self.waiter.add(submission.clone(), helpers),
            // It could not be submitted.
            None => helpers.wake(),
        }
    }

    fn notifies(&self) -> bool {
        true
    }

    fn read(&self, from: &mut Arc<Readback>, into: &mut [u8]) -> Result<(), DeviceFault> {
        from.read(into).map_err(|why| self.fault(why))
    }

    fn is_lost(&self) -> bool {
        self.device.is_lost()
    }

    fn most_bytes(&self) -> usize {
        let limits = &self.device.limits;
        usize::try_from(limits.max_buffer_size.min(limits.max_storage_buffer_binding_size)).unwrap_or(usize::MAX)
    }

    fn refuses(spec: &PortSpec) -> Option<String> {
        let fits = matches!(spec.dtype, DType::F32 | DType::I32 | DType::U8);
        (!fits).then(|| format!("elements on a device must be f32, i32 or u8, got {}", spec.dtype))
    }
}
