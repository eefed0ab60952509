//! The process of a device, from inside: it does what it is asked for in order, and says when work
//! has ended.

use super::message::{Command, Failure, Reply, append, read, split, with_constants};
use crate::backend::cuda::kernel::{KernelDevice, LoadedKernel};
use crate::backend::cuda::program::{CallBuffers, CudaProgram};
use crate::backend::cuda::resident::{CudaApi, CudaEvent, CudaStream, FIRST_TF32};
use crate::backend::program::{MadeProgram, ProgramDevice};
use crate::device::{Api, DeviceFault, EventState};
use limen::backend::BackendError;
use limen_cuda::{Buffer, PinnedBuffer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after the last command or end the process looks for more without sleeping, while work
/// is under way.
const BUSY: Duration = Duration::from_micros(200);

/// How long the process may take to end by itself, once its program has.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The main function of the process.
pub(crate) fn serve_device() -> ! {
    std::process::exit(match serve() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("the device process of limen failed: {error}");
            2
        }
    })
}

fn serve() -> std::io::Result<()> {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let memory = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    // Output of native code must not reach the shared memory.
    nix::unistd::dup2_stdout(std::io::stderr())?;
    // The program that ends decides when this process does: with the socket.
    let mut ignored = SigSet::empty();
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().for_each(|signal| ignored.add(signal));
    ignored.thread_block()?;
    // A worker may have started it, from its own core.
    limen::leave_placement();
    end_with(socket.try_clone()?)?;
    let mut reader = Buffered { socket: socket.try_clone()?, bytes: VecDeque::new() };
    let Some((Command::Open { gpu, parent }, _)) = read(&mut reader)? else { return Ok(()) };
    if nix::unistd::getppid().as_raw() as u32 != parent {
        return Ok(());
    }
    let mut device = match CudaApi::open(gpu) {
        Ok(api) => ChildDevice::new(api, socket, memory),
        Err(error) => return reply(&socket, &Reply::Failed(Failure::Unavailable(error.to_string())), &[]),
    };
    let (name, lacks_tf32) = (device.api.context.info().name.clone(), device.lacks_tf32());
    device.reply(&Reply::Opened { name, lacks_tf32 }, &[])?;
    device.serve(&mut reader)
}

/// Ends this process when its program has ended, even if the driver does not return from a call.
fn end_with(program: UnixStream) -> std::io::Result<()> {
    let watch = move || {
        let mut ends = [PollFd::new(program.as_fd(), PollFlags::POLLHUP)];
        while !matches!(poll(&mut ends, PollTimeout::NONE), Ok(ready) if ready > 0) {}
        std::thread::sleep(LONGEST_END);
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGKILL);
    };
    std::thread::Builder::new().name("limen-program".into()).spawn(watch).map(drop)
}

/// Reads commands from the socket as many at a time as there are.
struct Buffered {
    socket: UnixStream,
    bytes: VecDeque<u8>,
}

impl Read for Buffered {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() && into.len() < 4096 {
            let mut more = [0; 64 << 10];
            let n = self.socket.read(&mut more)?;
            self.bytes.extend(&more[..n]);
        }
        match self.bytes.is_empty() {
            true => self.socket.read(into),
            false => self.bytes.read(into),
        }
    }
}

fn reply(socket: &UnixStream, message: &Reply, bytes: &[&[u8]]) -> std::io::Result<()> {
    let mut out = Vec::new();
    append(&mut out, message, bytes.iter().map(|bytes| bytes.len()).sum())?;
    let mut socket = socket;
    socket.write_all(&out)?;
    bytes.iter().try_for_each(|bytes| socket.write_all(bytes))
}

struct ChildDevice {
    api: CudaApi,
    socket: UnixStream,
    memory: File,
    objects: HashMap<u64, Object>,
    /// Work whose end was not said yet, in the order in which it was recorded.
    under_way: VecDeque<ChildWork>,
    /// What was read of the shared memory last.
    part: Vec<u8>,
}

enum Object {
    Buffer(Arc<Buffer>),
    Stream(Box<ChildStream>),
    /// With its place in the shared memory.
    Staging(PinnedBuffer, u64),
    Program(Box<CudaProgram>),
    Kernel(LoadedKernel),
}

struct ChildStream {
    stream: CudaStream,
    /// What a command failed with since the last event.
    failure: Option<Failure>,
    /// Where copies to the host go since then.
    downloads: Vec<u64>,
}

struct ChildWork {
    event: u64,
    on_device: CudaEvent,
    failure: Option<Failure>,
    downloads: Vec<u64>,
}

fn folder(bytes: &Option<Vec<u8>>) -> Option<PathBuf> {
    bytes.as_ref().map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)))
}

fn missing(what: &str) -> BackendError {
    BackendError::Call(format!("the device process does not know this {what}"))
}

impl ChildDevice {
    fn new(api: CudaApi, socket: UnixStream, memory: File) -> ChildDevice {
        ChildDevice { api, socket, memory, objects: HashMap::new(), under_way: VecDeque::new(), part: Vec::new() }
    }

    fn lacks_tf32(&self) -> Option<String> {
        let arch = self.api.context.info().arch;
        match self.api.context.check_products() {
            _ if arch < FIRST_TF32 => Some(format!("the GPU must be sm_{FIRST_TF32} or later, got sm_{arch}")),
            Ok(()) => None,
            Err(why) => Some(why.to_string()),
        }
    }

    fn reply(&self, message: &Reply, bytes: &[&[u8]]) -> std::io::Result<()> {
        reply(&self.socket, message, bytes)
    }

    fn serve(&mut self, reader: &mut Buffered) -> std::io::Result<()> {
        let mut last = Instant::now();
        loop {
            let timeout = match (self.under_way.is_empty(), last.elapsed() < BUSY) {
                _ if !reader.bytes.is_empty() => PollTimeout::ZERO,
                (true, _) => PollTimeout::NONE,
                (false, true) => PollTimeout::ZERO,
                (false, false) => PollTimeout::try_from(1).unwrap_or(PollTimeout::ZERO),
            };
            let has_more = match reader.bytes.is_empty() {
                true => match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                    Ok(ready) => ready > 0,
                    Err(nix::errno::Errno::EINTR) => false,
                    Err(error) => return Err(error.into()),
                },
                false => true,
            };
            if has_more {
                let Some((command, bytes)) = read(reader)? else { return Ok(()) };
                self.perform(command, bytes)?;
                last = Instant::now();
            }
            if self.tell_ends()? {
                last = Instant::now();
            }
            if self.api.is_lost() && self.under_way.is_empty() {
                // NVIDIA's documentation says that the process has to end.
                return Ok(());
            }
        }
    }

    /// Says which work has ended; returns whether any has.
    fn tell_ends(&mut self) -> std::io::Result<bool> {
        let mut has_ended = false;
        let mut at = 0;
        while let Some(work) = self.under_way.get(at) {
            let state = self.api.state(&work.on_device);
            if state == EventState::Pending {
                at += 1;
                continue;
            }
            let Some(work) = self.under_way.remove(at) else { break };
            has_ended = true;
            let time_ns = self.api.time(&work.on_device).map(|time| time.as_nanos() as u64);
            let failure = match state {
                EventState::Failed(fault) => Some(fault.into()),
                EventState::Pending | EventState::Done => work.failure,
            };
            let failure = failure.or_else(|| self.copied(&work.downloads).err());
            self.reply(&Reply::Ended { event: work.event, failure, time_ns }, &[])?;
        }
        Ok(has_ended)
    }

    /// Passes what was copied to the host on to the shared memory.
    fn copied(&mut self, stagings: &[u64]) -> Result<(), Failure> {
        for staging in stagings {
            let Some(Object::Staging(pinned, at)) = self.objects.get_mut(staging) else { continue };
            let written = pinned.with_bytes(|bytes| self.memory.write_all_at(bytes, *at));
            match written {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(Failure::Call(format!("shared memory cannot be written: {error}"))),
                Err(error) => return Err(DeviceFault::from(error).into()),
            }
        }
        Ok(())
    }

    /// Does what a command asks for, and answers it if that is waited for.
    fn perform(&mut self, command: Command, bytes: Vec<u8>) -> std::io::Result<()> {
        match command {
            Command::Free { id } => {
                self.objects.remove(&id);
                Ok(())
            }
            Command::Follow { stream, .. }
            | Command::Upload { stream, .. }
            | Command::Download { stream, .. }
            | Command::Abandon { stream }
            | Command::Enqueue { stream, .. }
            | Command::EnqueueKernel { stream, .. } => {
                let done = self.enqueue(stream, command);
                if let (Err(error), Some(Object::Stream(stream))) = (done, self.objects.get_mut(&stream)) {
                    stream.failure.get_or_insert(error.into());
                }
                Ok(())
            }
            Command::Record { stream, event } => self.record(stream, event),
            awaited => match self.answer(awaited, &bytes) {
                Ok((message, outputs)) => {
                    let outputs: Vec<&[u8]> = outputs.iter().map(Vec::as_slice).collect();
                    self.reply(&message, &outputs)
                }
                Err(error) => self.reply(&Reply::Failed(error.into()), &[]),
            },
        }
    }

    fn record(&mut self, stream: u64, event: u64) -> std::io::Result<()> {
        let Some(Object::Stream(of)) = self.objects.get_mut(&stream) else {
            let failure = Some(missing("stream").into());
            return self.reply(&Reply::Ended { event, failure, time_ns: None }, &[]);
        };
        let (failure, downloads) = (of.failure.take(), std::mem::take(&mut of.downloads));
        match self.api.record(&mut of.stream, true) {
            Ok(on_device) => self.under_way.push_back(ChildWork { event, on_device, failure, downloads }),
            Err(fault) => {
                let failure = Some(failure.unwrap_or_else(|| fault.into()));
                return self.reply(&Reply::Ended { event, failure, time_ns: None }, &[]);
            }
        }
        Ok(())
    }

    fn buffer(&self, id: u64) -> Result<Arc<Buffer>, BackendError> {
        match self.objects.get(&id) {
            Some(Object::Buffer(buffer)) => Ok(buffer.clone()),
            _ => Err(missing("memory")),
        }
    }

    /// Enqueues work on a stream, which is taken out meanwhile.
    fn enqueue(&mut self, id: u64, command: Command) -> Result<(), BackendError> {
        let Some(Object::Stream(mut of)) = self.objects.remove(&id) else { return Err(missing("stream")) };
        let done = self.enqueue_on(&mut of, command);
        self.objects.insert(id, Object::Stream(of));
        done
    }

    fn enqueue_on(&mut self, of: &mut ChildStream, command: Command) -> Result<(), BackendError> {
        match command {
            Command::Follow { event, .. } => {
                // What has ended needs no wait.
                let before = self.under_way.iter().find(|work| work.event == event);
                before.map_or(Ok(()), |work| self.api.follow(&mut of.stream, &work.on_device))?;
            }
            Command::Upload { from, bytes, buffer, at, .. } => {
                let buffer = self.buffer(buffer)?;
                let ChildDevice { memory, part, api, .. } = self;
                part.resize(part.len().max(bytes), 0);
                memory.read_exact_at(&mut part[..bytes], from).map_err(BackendError::call)?;
                api.upload(&mut of.stream, &part[..bytes], &buffer, at)?;
            }
            Command::Download { buffer, at, staging, .. } => {
                let buffer = self.buffer(buffer)?;
                let Some(Object::Staging(pinned, _)) = self.objects.get_mut(&staging) else {
                    return Err(missing("host memory"));
                };
                self.api.download(&mut of.stream, &buffer, at, pinned)?;
                of.downloads.push(staging);
            }
            Command::Abandon { .. } => {
                self.api.abandon(&mut of.stream);
                (of.failure, of.downloads) = (None, Vec::new());
            }
            Command::Enqueue { program, buffers, .. } => {
                let found: CallBuffers =
                    buffers.into_iter().map(|id| id.map(|id| self.buffer(id)).transpose()).collect::<Result<_, _>>()?;
                let Some(Object::Program(program)) = self.objects.get_mut(&program) else {
                    return Err(missing("program"));
                };
                program.enqueue(&mut of.stream, &found).map_err(DeviceFault::from)?;
            }
            Command::EnqueueKernel { kernel, buffers, limit_ns, .. } => {
                let found: CallBuffers =
                    buffers.into_iter().map(|id| self.buffer(id).map(Some)).collect::<Result<_, _>>()?;
                let Some(Object::Kernel(kernel)) = self.objects.get(&kernel) else { return Err(missing("kernel")) };
                kernel.enqueue(&mut of.stream, found, limit_ns.map(Duration::from_nanos)).map_err(DeviceFault::from)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Does what is waited for.
    fn answer(&mut self, command: Command, bytes: &[u8]) -> Result<(Reply, Vec<Vec<u8>>), BackendError> {
        let done = Ok((Reply::Done, Vec::new()));
        match command {
            Command::Buffer { id, bytes } => {
                let made = self.api.buffer(bytes)?;
                self.objects.insert(id, Object::Buffer(made));
                done
            }
            Command::Stream { id } => {
                let stream = self.api.stream()?;
                let of = ChildStream { stream, failure: None, downloads: Vec::new() };
                self.objects.insert(id, Object::Stream(Box::new(of)));
                done
            }
            Command::Staging { id, bytes, at } => {
                let made = self.api.staging(bytes)?;
                self.objects.insert(id, Object::Staging(made, at));
                done
            }
            Command::Bind { id, mut program, constants, cache } => {
                with_constants(&mut program, &constants, bytes);
                let cache = folder(&cache);
                let bound = self.api.bind(Arc::new(*program), cache.as_deref())?;
                let answer = Reply::Bound { memory: bound.memory(), compiled: bound.compiled().clone() };
                self.objects.insert(id, Object::Program(Box::new(bound)));
                Ok((answer, Vec::new()))
            }
            Command::Run { program, inputs } => {
                let Some(Object::Program(program)) = self.objects.get_mut(&program) else {
                    return Err(missing("program"));
                };
                let mut outputs = Vec::new();
                program.run(&split(&inputs, bytes), &mut |_, bytes| {
                    outputs.push(bytes.to_vec());
                    Ok(())
                })?;
                Ok((Reply::Ran { outputs: outputs.iter().map(Vec::len).collect() }, outputs))
            }
            Command::Load { id, code, cache } => {
                let (kernel, info) = self.api.load_kernel(&Arc::new(*code), folder(&cache).as_deref())?;
                self.objects.insert(id, Object::Kernel(kernel));
                Ok((Reply::Loaded(info), Vec::new()))
            }
            Command::RunKernel { kernel, inputs, longest_ns } => {
                let Some(Object::Kernel(kernel)) = self.objects.get_mut(&kernel) else {
                    return Err(missing("kernel"));
                };
                let longest = Duration::from_nanos(longest_ns);
                let outputs = self.api.run_kernel(kernel, &split(&inputs, bytes), longest)?;
                Ok((Reply::Ran { outputs: outputs.iter().map(Vec::len).collect() }, outputs))
            }
            other => Err(BackendError::Call(format!("expected a command with an answer, found {other:?}"))),
        }
    }
}
