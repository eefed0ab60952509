//! The device in a process of its own, which may end without ending this one
//! (`run: { isolation: process }`).
//!
//! Nodes, their edges and their ledger stay here; what their calls do on the device, the process
//! does. A message in the memory of the device is a number here. Bytes of the host pass through
//! memory that both processes share; commands and ends of work through a socket, several at once.
//!
//! If the process ends, the device is lost: everything in its memory, and the calls under way. It
//! is started again as every device is opened again: for the next call, at most three times in 60
//! s.

mod child;
mod link;
mod message;

pub(crate) use self::child::serve_device;
pub(crate) use self::link::ARGUMENT;
use self::link::{LONG, Link, QUICK, RemoteEvent, Writer};
use self::message::{Command, Reply, split, without_constants};
use super::gpu;
use super::kernel::{KernelCode, KernelDevice, KernelInfo};
use super::resident::CudaApi;
use crate::backend::program::{MadeProgram, ProgramDevice, ReadOutput};
use crate::base::LONGEST_CALL;
use crate::device::{Api, DeviceFault, Enqueue, EventState, SharedDevice, SharedDevices, Waiter, buffer_of};
use crate::lowering::Program;
use limen::backend::{BackendError, DeviceCall, Helpers};
use limen::message::PortSpec;
use limen_infer::BackendOptions;
use limen_infer::Compiled;
use limen_infer::onnx::Precision;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Returns the device as the nodes of this process share it.
pub(crate) fn isolated_device(options: &BackendOptions) -> Arc<SharedDevice<IsolatedCuda>> {
    static SHARED: SharedDevices<IsolatedCuda> = SharedDevices::new(120);
    SHARED.get(gpu(options).map(|info| info.index), IsolatedCuda::open)
}

/// The device, in a process of its own.
#[derive(Debug)]
pub(crate) struct IsolatedCuda {
    link: Arc<Link>,
    name: String,
    lacks_tf32: Option<String>,
    waiter: Arc<Waiter<IsolatedEvent>>,
}

/// An object of the process, which it forgets with this.
#[derive(Debug)]
pub(crate) struct Remote {
    link: Arc<Link>,
    id: u64,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // One that is gone has forgotten it already.
        let _ = self.link.send(&Command::Free { id: self.id }, &[]);
    }
}

/// Memory of the host that the device writes.
pub(crate) struct IsolatedStaging {
    remote: Remote,
    bytes: usize,
    /// Its place in the shared memory.
    at: u64,
}

impl Drop for IsolatedStaging {
    fn drop(&mut self) {
        // Before its place is used again, the process has read that it is free.
        let _ = self.remote.link.send(&Command::Free { id: self.remote.id }, &[]);
        self.remote.link.give_back(self.at, self.bytes, Writer::Process);
    }
}

impl Drop for IsolatedStream {
    fn drop(&mut self) {
        for piece in &self.uploads {
            let has_ended = piece.used_by.as_ref().is_none_or(|event| event.known().0 != EventState::Pending);
            // Otherwise the process may still read it.
            if has_ended && !piece.is_taken {
                self.remote.link.give_back(piece.at, piece.bytes, Writer::Program);
            }
        }
    }
}

/// The work of a node.
pub(crate) struct IsolatedStream {
    remote: Remote,
    uploads: Vec<Piece>,
    /// How long the call may take, if not as long as any.
    time_limit: Option<Duration>,
}

/// A piece of the shared memory, through which bytes are uploaded.
struct Piece {
    at: u64,
    bytes: usize,
    /// The work that reads it, once that is recorded.
    used_by: Option<IsolatedEvent>,
    /// Whether it belongs to the next event.
    is_taken: bool,
}

/// Pieces of a stream.
const MAX_PIECES: usize = 16;

/// An event behind the work of a call.
#[derive(Clone, Debug)]
pub(crate) struct IsolatedEvent {
    link: Arc<Link>,
    id: u64,
    event: Arc<RemoteEvent>,
}

impl IsolatedEvent {
    fn known(&self) -> (EventState, Option<Duration>) {
        self.event.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How far the work is, when the process was listened to at most so long.
    fn state(&self, at_most: Option<Duration>) -> EventState {
        let (state, _) = self.known();
        if state != EventState::Pending {
            return state;
        }
        self.link.listen(at_most, || self.known().0 != EventState::Pending);
        self.link.check_limits();
        self.known().0
    }
}

impl IsolatedCuda {
    fn open(gpu: usize) -> Result<IsolatedCuda, BackendError> {
        let link = Arc::new(Link::open()?);
        let opened = link.ask(&Command::Open { gpu, parent: std::process::id() }, &[], LONG)?;
        let (Reply::Opened { name, lacks_tf32 }, _) = opened else { return Err(unexpected()) };
        let waiter = Waiter::new(
            "cuda",
            |event: IsolatedEvent| {
                while event.state(Some(Duration::from_millis(100))) == EventState::Pending {}
            },
        );
        Ok(IsolatedCuda { link, name, lacks_tf32, waiter })
    }

    fn remote(&self, id: u64) -> Remote {
        Remote { link: self.link.clone(), id }
    }

    /// Has the process make an object.
    fn make(&self, command: impl FnOnce(u64) -> Command) -> Result<Remote, DeviceFault> {
        let id = self.link.number();
        let fault = |error: BackendError| match error {
            BackendError::DeviceLost(why) => DeviceFault::Lost(why),
            BackendError::OutOfMemory(why) => DeviceFault::OutOfMemory(why),
            BackendError::Call(why) => DeviceFault::Call(why),
            other => DeviceFault::Call(other.to_string()),
        };
        self.link.ask(&command(id), &[], QUICK).map_err(fault)?;
        Ok(self.remote(id))
    }
}

fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn unexpected() -> BackendError {
    BackendError::Call("the device process sent an unexpected answer".into())
}

impl Drop for IsolatedCuda {
    fn drop(&mut self) {
        self.waiter.close();
    }
}

impl Api for IsolatedCuda {
    const NAME: &'static str = CudaApi::NAME;
    const ROW_ALIGN: usize = CudaApi::ROW_ALIGN;
    const CALLS: usize = CudaApi::CALLS;
    type Buffer = Remote;
    type Staging = IsolatedStaging;
    type Stream = IsolatedStream;
    type Event = IsolatedEvent;

    fn buffer(&self, bytes: usize) -> Result<Remote, DeviceFault> {
        self.make(|id| Command::Buffer { id, bytes })
    }

    fn staging(&self, bytes: usize) -> Result<IsolatedStaging, DeviceFault> {
        let at = self.link.place(bytes, Writer::Process);
        Ok(IsolatedStaging { remote: self.make(|id| Command::Staging { id, bytes, at })?, bytes, at })
    }

    fn stream(&self) -> Result<IsolatedStream, DeviceFault> {
        let remote = self.make(|id| Command::Stream { id })?;
        Ok(IsolatedStream { remote, uploads: Vec::new(), time_limit: None })
    }

    fn abandon(&self, stream: &mut IsolatedStream) {
        stream.time_limit = None;
        stream.uploads.iter_mut().for_each(|piece| piece.is_taken = false);
        let _ = self.link.put(&Command::Abandon { stream: stream.remote.id });
    }

    fn follow(&self, stream: &mut IsolatedStream, event: &IsolatedEvent) -> Result<(), DeviceFault> {
        self.link.put(&Command::Follow { stream: stream.remote.id, event: event.id })
    }

    fn upload(&self, stream: &mut IsolatedStream, from: &[u8], to: &Remote, at: usize) -> Result<(), DeviceFault> {
        let is_free = |piece: &mut Piece| {
            let has_ended = piece.used_by.as_ref().is_none_or(|event| event.known().0 != EventState::Pending);
            !piece.is_taken && has_ended
        };
        let fitting = stream.uploads.iter_mut().position(|piece| piece.bytes >= from.len() && is_free(piece));
        let place = match fitting {
            Some(place) => place,
            None if stream.uploads.len() < MAX_PIECES => {
                let (at, bytes) = (self.link.place(from.len(), Writer::Program), from.len());
                stream.uploads.push(Piece { at, bytes, used_by: None, is_taken: false });
                stream.uploads.len() - 1
            }
            None => {
                // The oldest one that is recorded; a call has fewer inputs than there are pieces.
                let oldest = stream.uploads.iter().position(|piece| !piece.is_taken).unwrap_or(0);
                stream.uploads[oldest..].rotate_left(1);
                let last = stream.uploads.len() - 1;
                let piece = &mut stream.uploads[last];
                while piece.used_by.as_ref().is_some_and(|event| self.wait(event, LONGEST_CALL) == EventState::Pending)
                {
                }
                if piece.bytes < from.len() {
                    self.link.give_back(piece.at, piece.bytes, Writer::Program);
                    (piece.at, piece.bytes) = (self.link.place(from.len(), Writer::Program), from.len());
                }
                last
            }
        };
        let piece = &mut stream.uploads[place];
        (piece.used_by, piece.is_taken) = (None, true);
        self.link.write(from, piece.at)?;
        let (from, bytes) = (piece.at, from.len());
        self.link.put(&Command::Upload { stream: stream.remote.id, from, bytes, buffer: to.id, at })
    }

    fn download(
        &self,
        stream: &mut IsolatedStream,
        from: &Remote,
        at: usize,
        to: &mut IsolatedStaging,
    ) -> Result<(), DeviceFault> {
        let (stream, buffer, staging) = (stream.remote.id, from.id, to.remote.id);
        self.link.put(&Command::Download { stream, buffer, at, staging })
    }

    fn record(&self, stream: &mut IsolatedStream, _: bool) -> Result<IsolatedEvent, DeviceFault> {
        let (id, event) = self.link.event(stream.time_limit.take().unwrap_or(LONGEST_CALL));
        self.link.send(&Command::Record { stream: stream.remote.id, event: id }, &[])?;
        let made = IsolatedEvent { link: self.link.clone(), id, event };
        for piece in stream.uploads.iter_mut().filter(|piece| piece.is_taken) {
            (piece.used_by, piece.is_taken) = (Some(made.clone()), false);
        }
        Ok(made)
    }

    fn state(&self, event: &IsolatedEvent) -> EventState {
        event.state(None)
    }

    fn time(&self, event: &IsolatedEvent) -> Option<Duration> {
        event.known().1
    }

    fn wait(&self, event: &IsolatedEvent, at_most: Duration) -> EventState {
        let begun = Instant::now();
        loop {
            let left = at_most.saturating_sub(begun.elapsed());
            let state = event.state(Some(left));
            if state != EventState::Pending || left.is_zero() {
                return state;
            }
        }
    }

    fn notify(&self, event: &IsolatedEvent, helpers: &Helpers) {
        self.waiter.add(event.clone(), helpers);
    }

    fn notifies(&self) -> bool {
        true
    }

    fn read(&self, from: &mut IsolatedStaging, into: &mut [u8]) -> Result<(), DeviceFault> {
        let bytes = into.len().min(from.bytes);
        self.link.read(&mut into[..bytes], from.at)
    }

    fn is_lost(&self) -> bool {
        // It may have ended while nobody listened.
        self.link.listen(None, || false);
        self.link.lost().is_some()
    }

    fn refuses(spec: &PortSpec) -> Option<String> {
        CudaApi::refuses(spec)
    }
}

/// A program that was made for the device.
pub(crate) struct IsolatedProgram {
    remote: Remote,
    program: Arc<Program>,
    memory: u64,
    compiled: Compiled,
}

impl MadeProgram<IsolatedCuda> for IsolatedProgram {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    fn run(&mut self, inputs: &[&[u8]], read: &mut ReadOutput<'_>) -> Result<(), BackendError> {
        let lengths = inputs.iter().map(|input| input.len()).collect();
        let ran = self.remote.link.ask(&Command::Run { program: self.remote.id, inputs: lengths }, inputs, LONG)?;
        let (Reply::Ran { outputs }, bytes) = ran else { return Err(unexpected()) };
        split(&outputs, &bytes).into_iter().enumerate().try_for_each(|(at, bytes)| read(at, bytes))
    }

    fn encode(&mut self, on: &mut Enqueue<'_, IsolatedCuda>, call: &DeviceCall<'_>) -> Result<(), BackendError> {
        let mut buffers = Vec::with_capacity(call.inputs.len() + call.outputs.len());
        for input in call.inputs {
            let tensor = input.on_device().ok_or(BackendError::InputLost)?;
            buffers.push(Some(buffer_of::<IsolatedCuda>(&tensor)?.0.id));
        }
        for output in call.outputs {
            let buffer = output.as_ref().map(|tensor| buffer_of::<IsolatedCuda>(tensor)).transpose()?;
            buffers.push(buffer.map(|(buffer, _)| buffer.id));
        }
        let (program, stream) = (self.remote.id, on.stream.remote.id);
        Ok(on.api.link.put(&Command::Enqueue { program, stream, buffers })?)
    }
}

impl ProgramDevice for IsolatedCuda {
    type Bound = IsolatedProgram;
    type Isolated = IsolatedCuda;
    const CAPTURES: bool = CudaApi::CAPTURES;

    fn shared(options: &BackendOptions) -> Arc<SharedDevice<IsolatedCuda>> {
        isolated_device(options)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn lacks(&self, precision: Precision) -> Option<String> {
        self.lacks_tf32.clone().filter(|_| precision == Precision::Tf32)
    }

    fn bind(&self, program: Arc<Program>, cache: Option<&Path>) -> Result<IsolatedProgram, BackendError> {
        let id = self.link.number();
        let (text, constants) = without_constants(&program);
        let bytes: Vec<&[u8]> = constants.iter().map(|bits| bytemuck::cast_slice(bits)).collect();
        let lengths = bytes.iter().map(|bytes| bytes.len()).collect();
        let cache = cache.map(path_bytes);
        let bound = self.link.ask(&Command::Bind { id, program: text, constants: lengths, cache }, &bytes, LONG)?;
        let (Reply::Bound { memory, compiled }, _) = bound else { return Err(unexpected()) };
        Ok(IsolatedProgram { remote: self.remote(id), program, memory, compiled })
    }
}

impl KernelDevice for IsolatedCuda {
    type Kernel = Remote;
    const IS_APART: bool = true;

    fn load_kernel(&self, code: &Arc<KernelCode>, cache: Option<&Path>) -> Result<(Remote, KernelInfo), BackendError> {
        let id = self.link.number();
        let (code, cache) = (Box::new((**code).clone()), cache.map(path_bytes));
        let loaded = self.link.ask(&Command::Load { id, code, cache }, &[], LONG)?;
        let (Reply::Loaded(info), _) = loaded else { return Err(unexpected()) };
        Ok((self.remote(id), info))
    }

    fn run_kernel(
        &self,
        kernel: &mut Remote,
        inputs: &[&[u8]],
        longest: Duration,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let lengths = inputs.iter().map(|input| input.len()).collect();
        let longest_ns = longest.as_nanos() as u64;
        let ran =
            self.link.ask(&Command::RunKernel { kernel: kernel.id, inputs: lengths, longest_ns }, inputs, LONG)?;
        let (Reply::Ran { outputs }, bytes) = ran else { return Err(unexpected()) };
        Ok(split(&outputs, &bytes).into_iter().map(<[u8]>::to_vec).collect())
    }

    fn enqueue_kernel(
        &self,
        kernel: &mut Remote,
        stream: &mut IsolatedStream,
        buffers: &[Arc<Remote>],
        time_limit: Option<Duration>,
    ) -> Result<(), BackendError> {
        stream.time_limit = time_limit;
        let buffers = buffers.iter().map(|buffer| buffer.id).collect();
        let limit_ns = time_limit.map(|limit| limit.as_nanos() as u64);
        let (kernel, stream) = (kernel.id, stream.remote.id);
        Ok(self.link.put(&Command::EnqueueKernel { kernel, stream, buffers, limit_ns })?)
    }
}
