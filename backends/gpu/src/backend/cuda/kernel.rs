//! Kernels of a graph on CUDA.

use super::cubin;
use super::program::CallBuffers;
use super::resident::{CudaApi, CudaStream, unsupported};
use crate::base::LONGEST_CALL;
use crate::device::{Api, DeviceFault, SessionCalls, SharedDevice, buffer_of};
use arrayvec::ArrayVec;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, TensorSpec, Ticket,
};
use limen::message::PortSpec;
use limen::node::{MAX_PORTS, Metrics};
use limen_cuda::{
    Argument, Buffer, Context, CopyDirection, Error, Function, Grid, Image, Module, PinnedBuffer, Stream,
};
use limen_infer::Compiled;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a kernel's code comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CudaSource {
    /// CUDA C, and options of the compiler.
    Text(String, Vec<String>),
    Ptx(String),
    /// Code for one architecture.
    Code(Vec<u8>),
}

/// What a kernel gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CudaArgument {
    /// A pointer to the elements of a port, by its number, inputs first.
    Port(usize),
    /// The bytes of a number, `size` of them.
    Number { bytes: [u8; 8], size: usize },
}

/// A kernel, and how it is launched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KernelCode {
    /// The file, for messages of the compiler.
    pub(crate) name: String,
    pub(crate) source: CudaSource,
    pub(crate) entry: String,
    pub(crate) arguments: Vec<CudaArgument>,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    /// Bytes of shared memory of a block, beside those that the kernel declares.
    pub(crate) shared: u32,
    /// How many inputs there are, and the bytes of each output.
    pub(crate) inputs: usize,
    pub(crate) outputs: Vec<usize>,
    /// Outputs that begin as a copy of an input, by their numbers.
    pub(crate) in_place: Vec<(usize, usize)>,
}

/// What a kernel needs of the device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct KernelInfo {
    /// The most threads of a block.
    pub(crate) threads: usize,
    /// Registers of a thread.
    pub(crate) registers: usize,
    /// Bytes of shared memory of a block that the kernel declares, and of local memory of a thread.
    pub(crate) shared: usize,
    pub(crate) local: usize,
}

/// A device that runs kernels.
pub(crate) trait KernelDevice: Api {
    type Kernel: 'static;
    /// Whether another process uses the device.
    const IS_APART: bool;

    /// Loads a kernel and compares it with how it is launched.
    ///
    /// # Errors
    /// What does not fit, or is not possible.
    fn load_kernel(
        &self,
        code: &Arc<KernelCode>,
        cache: Option<&Path>,
    ) -> Result<(Self::Kernel, KernelInfo), BackendError>;

    /// Runs it on bytes of the host, and returns those of its outputs.
    ///
    /// # Errors
    /// If the device fails.
    fn run_kernel(
        &self,
        kernel: &mut Self::Kernel,
        inputs: &[&[u8]],
        longest: Duration,
    ) -> Result<Vec<Vec<u8>>, BackendError>;

    /// Enqueues a call with the memory of its ports.
    ///
    /// # Errors
    /// If the device fails.
    fn enqueue_kernel(
        &self,
        kernel: &mut Self::Kernel,
        stream: &mut Self::Stream,
        buffers: &[Arc<Self::Buffer>],
        time_limit: Option<Duration>,
    ) -> Result<(), BackendError>;
}

/// A kernel with everything that is known while planning.
#[derive(Debug)]
pub(crate) struct CudaKernelModel<A: Api> {
    pub(crate) code: Arc<KernelCode>,
    pub(crate) signature: Signature,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) device: Arc<SharedDevice<A>>,
    /// The folder of the cache.
    pub(crate) cache: Option<PathBuf>,
}

/// The backend of kernels.
#[derive(Debug)]
pub(crate) struct CudaKernel<A>(PhantomData<fn() -> A>);

impl<A: KernelDevice> Backend for CudaKernel<A> {
    const NAME: &'static str = A::NAME;
    type Model = CudaKernelModel<A>;
    type Prepared = PreparedCudaKernel<A>;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("", Vec::new(), Ops::Unlisted))
    }

    fn prepare(model: CudaKernelModel<A>) -> Result<PreparedCudaKernel<A>, BackendError> {
        let (_, api) = model.device.api()?;
        let (_, info) = api.load_kernel(&model.code, model.cache.as_deref())?;
        Ok(PreparedCudaKernel { model: Arc::new(model), info })
    }
}

/// A kernel that is compiled and fits its node.
#[derive(Debug)]
pub(crate) struct PreparedCudaKernel<A: Api> {
    model: Arc<CudaKernelModel<A>>,
    info: KernelInfo,
}

impl<A: Api> PreparedCudaKernel<A> {
    /// Returns what it needs of the device.
    pub(crate) fn info(&self) -> KernelInfo {
        self.info
    }
}

impl<A: KernelDevice> Prepared for PreparedCudaKernel<A> {
    type Session = CudaKernelSession<A>;

    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn session(&self, _: usize) -> Result<CudaKernelSession<A>, BackendError> {
        let device = self.model.device.clone();
        let (generation, api) = device.api()?;
        let (kernel, _) = api.load_kernel(&self.model.code, self.model.cache.as_deref())?;
        let spare = vec![None; self.model.signature.outputs.len()];
        let calls = SessionCalls::new(device.clone());
        Ok(CudaKernelSession { model: self.model.clone(), device, calls, kernel: (generation, kernel), spare })
    }
}

/// The folder of headers, in that of the toolkit.
const HEADERS: &str = "include";

/// Shared memory of a block that needs no leave.
const FREE_SHARED: usize = 48 << 10;

/// The bytes of a port.
pub(crate) fn port_bytes(port: &TensorSpec) -> usize {
    PortSpec::new(port.dtype, port.shape.iter().cloned()).max_bytes().unwrap_or(0)
}

impl KernelCode {
    /// Compiles it, or finds what was compiled of it before, and loads it.
    fn load(&self, context: &Arc<Context>, cache: Option<&Path>) -> Result<Arc<Function>, BackendError> {
        let failed = |error: Error| unsupported(context, error);
        let module = match &self.source {
            CudaSource::Text(text, options) => {
                // What a header says is not in the name of what is kept.
                let is_include = |line: &str| {
                    line.trim_start().strip_prefix('#').is_some_and(|rest| rest.trim_start().starts_with("include"))
                };
                let includes = text.lines().any(is_include);
                let cache = cache.filter(|_| !includes);
                let headers =
                    toolkit().filter(|_| includes).map(|folder| format!("--include-path={}", folder.display()));
                let options: Vec<&str> = options.iter().chain(&headers).map(String::as_str).collect();
                cubin::load(context, &self.name, text, &options, cache, &mut Compiled::default())
            }
            CudaSource::Ptx(text) => Module::compile_ptx(context, text),
            CudaSource::Code(bytes) => Image::cubin(bytes.clone()).and_then(|image| Module::load(context, &image)),
        };
        module.map_err(failed)?.function(&self.entry).map_err(|error| match unsupported(context, error) {
            BackendError::Unsupported(why) if why.contains("NOT_FOUND") => BackendError::Unsupported(format!(
                "kernel `{}` is not found ({why}): declare the kernel `extern \"C\" __global__`",
                self.entry
            )),
            other => other,
        })
    }

    /// Compares it with what its node says.
    fn check(&self, context: &Arc<Context>, function: &Arc<Function>) -> Result<KernelInfo, BackendError> {
        let failed = |error: Error| unsupported(context, error);
        let refused = |why: String| Err(BackendError::Unsupported(why));
        let found = function.info().map_err(failed)?;
        let (threads, registers, shared, local) = (found.threads, found.registers, found.shared, found.local);
        let info = KernelInfo { threads, registers, shared, local };
        let threads = self.threads.iter().map(|number| *number as usize).product::<usize>();
        if threads > info.threads {
            return refused(format!("a block must have at most {} threads, got {threads}", info.threads));
        }
        if self.shared as usize + info.shared > FREE_SHARED {
            let too_much = |error: Error| match failed(error) {
                BackendError::Unsupported(why) => BackendError::Unsupported(format!(
                    "a block cannot have {} B of shared memory in addition to the {} B of the kernel ({why})",
                    self.shared, info.shared
                )),
                other => other,
            };
            function.allow_shared(self.shared as usize).map_err(too_much)?;
        }
        let Some(sizes) = function.parameters().map_err(failed)? else { return Ok(info) };
        if sizes.len() != self.arguments.len() {
            return refused(format!("`arguments` must have {} entries, got {}", sizes.len(), self.arguments.len()));
        }
        for (at, (takes, argument)) in std::iter::zip(sizes, &self.arguments).enumerate() {
            let (what, has) = match argument {
                CudaArgument::Port(_) => ("a pointer", 8),
                CudaArgument::Number { size, .. } => ("a number", *size),
            };
            if takes != has {
                return refused(format!("argument {at} must have {takes} bytes, got {what} of {has} bytes"));
            }
        }
        Ok(info)
    }

    /// Enqueues a call with the memory of its ports. Outputs are zeros before, as a kernel need not
    /// write every element, or a copy of an input.
    fn enqueue(&self, function: &Arc<Function>, buffers: &[Arc<Buffer>], stream: &mut Stream) -> Result<(), Error> {
        let (inputs, outputs) = buffers.split_at(self.inputs.min(buffers.len()));
        for (at, (output, bytes)) in std::iter::zip(outputs, &self.outputs).enumerate() {
            let bytes = output.bytes().min(*bytes);
            match self.in_place.iter().find(|(to, _)| *to == at).and_then(|(_, from)| inputs.get(*from)) {
                Some(input) => stream.copy(input, output, bytes.min(input.bytes()))?,
                None => stream.clear(output, 0, bytes)?,
            }
        }
        let arguments = self.arguments.iter().map(|argument| match argument {
            CudaArgument::Port(at) => Argument::Buffer(&buffers[*at]),
            CudaArgument::Number { bytes, .. } => Argument::Number(*bytes),
        });
        let grid = Grid { blocks: self.blocks, threads: self.threads, shared: self.shared };
        // SAFETY: nobody but its author knows what the kernel does. The node says that it may run
        // (`allow_kernels`), and so does whoever starts the program
        // (`BackendOptions::allow_kernels`): they vouch for it. The number of its arguments and the
        // bytes of each were compared with what the driver knows of it, where that is known.
        #[allow(unsafe_code)]
        unsafe {
            stream.launch(function, grid, arguments)
        }
    }
}

/// Returns the folder of the toolkit's headers.
fn toolkit() -> Option<PathBuf> {
    let named = std::env::var_os("CUDA_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    Some(named.unwrap_or_else(|| "/usr/local/cuda".into()).join(HEADERS)).filter(|folder| folder.is_dir())
}

fn failed(error: Error) -> BackendError {
    DeviceFault::from(error).into()
}

/// A kernel that is loaded in this process.
pub(crate) struct LoadedKernel {
    code: Arc<KernelCode>,
    function: Arc<Function>,
}

impl KernelDevice for CudaApi {
    type Kernel = LoadedKernel;
    const IS_APART: bool = false;

    fn load_kernel(
        &self,
        code: &Arc<KernelCode>,
        cache: Option<&Path>,
    ) -> Result<(LoadedKernel, KernelInfo), BackendError> {
        let function = code.load(&self.context, cache)?;
        let info = code.check(&self.context, &function)?;
        Ok((LoadedKernel { code: code.clone(), function }, info))
    }

    fn run_kernel(
        &self,
        kernel: &mut LoadedKernel,
        inputs: &[&[u8]],
        longest: Duration,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let context = &self.context;
        let mut stream = Stream::new(context).map_err(failed)?;
        let buffer = |bytes: usize| Ok::<_, BackendError>(Arc::new(Buffer::new(context, bytes).map_err(failed)?));
        let mut buffers = Vec::new();
        for input in inputs {
            let made = buffer(input.len())?;
            let mut pinned = PinnedBuffer::new(context, input.len(), CopyDirection::Upload).map_err(failed)?;
            pinned.write(input).map_err(failed)?;
            stream.upload(&mut pinned, input.len(), &made, 0).map_err(failed)?;
            buffers.push(made);
        }
        for bytes in &kernel.code.outputs {
            buffers.push(buffer(*bytes)?);
        }
        kernel.code.enqueue(&kernel.function, &buffers, &mut stream).map_err(failed)?;
        let mut results = Vec::new();
        for (bytes, from) in std::iter::zip(&kernel.code.outputs, &buffers[inputs.len()..]) {
            let mut pinned = PinnedBuffer::new(context, *bytes, CopyDirection::Download).map_err(failed)?;
            stream.download(from, 0, *bytes, &mut pinned).map_err(failed)?;
            results.push(pinned);
        }
        stream.record().and_then(|event| event.wait_for(longest)).map_err(failed)?;
        let read = |(mut pinned, bytes): (PinnedBuffer, &usize)| {
            let mut bytes = vec![0; *bytes];
            pinned.read(&mut bytes).map_err(failed)?;
            Ok(bytes)
        };
        std::iter::zip(results, &kernel.code.outputs).map(read).collect()
    }

    fn enqueue_kernel(
        &self,
        kernel: &mut LoadedKernel,
        stream: &mut CudaStream,
        buffers: &[Arc<Arc<Buffer>>],
        time_limit: Option<Duration>,
    ) -> Result<(), BackendError> {
        let buffers: CallBuffers = buffers.iter().map(|buffer| Some((**buffer).clone())).collect();
        kernel.enqueue(stream, buffers, time_limit).map_err(failed)
    }
}

impl LoadedKernel {
    /// Enqueues a call with the memory of all its ports.
    pub(super) fn enqueue(
        &self,
        stream: &mut CudaStream,
        buffers: CallBuffers,
        time_limit: Option<Duration>,
    ) -> Result<(), Error> {
        stream.time_limit = time_limit;
        let buffers: ArrayVec<Arc<Buffer>, { 2 * MAX_PORTS }> = buffers.into_iter().flatten().collect();
        self.code.enqueue(&self.function, &buffers, stream.work()?)
    }
}

/// A kernel on one thread.
pub(crate) struct CudaKernelSession<A: KernelDevice> {
    model: Arc<CudaKernelModel<A>>,
    device: Arc<SharedDevice<A>>,
    calls: SessionCalls<A>,
    /// It, and the generation of the device that it was loaded for.
    kernel: (u32, A::Kernel),
    /// Where outputs go that nothing takes.
    spare: Vec<Option<Arc<A::Buffer>>>,
}

impl<A: KernelDevice> Session for CudaKernelSession<A> {
    type Lane = ();

    /// For recorded cases; in a graph, messages are on the device.
    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        if batch != 1 {
            return Err(BackendError::Call(format!("a kernel expects one item per call, got {batch}")));
        }
        let (_, api) = self.device.api()?;
        let inputs: ArrayVec<&[u8], MAX_PORTS> = inputs.iter().map(|input| input.bytes).collect();
        let longest = self.model.time_limit.unwrap_or(LONGEST_CALL);
        let results = api.run_kernel(&mut self.kernel.1, &inputs, longest)?;
        for (output, result) in std::iter::zip(outputs, results) {
            output.bytes.copy_from_slice(&result);
        }
        Ok(())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let CudaKernelSession { model, calls, kernel, spare, .. } = self;
        calls.enqueue(call.inputs, call.outputs, false, |on| {
            if kernel.0 != on.generation {
                *kernel = (on.generation, on.api.load_kernel(&model.code, model.cache.as_deref())?.0);
                spare.fill(None);
            }
            let mut buffers: ArrayVec<Arc<A::Buffer>, { 2 * MAX_PORTS }> = ArrayVec::new();
            for input in call.inputs {
                let tensor = input.on_device().ok_or(BackendError::InputLost)?;
                buffers.push(buffer_of::<A>(&tensor)?.0);
            }
            for ((output, spare), bytes) in std::iter::zip(call.outputs, &mut *spare).zip(&model.code.outputs) {
                buffers.push(match (output, &spare) {
                    (Some(tensor), _) => buffer_of::<A>(tensor)?.0,
                    (None, Some(spare)) => spare.clone(),
                    (None, None) => spare.insert(Arc::new(on.api.buffer(*bytes)?)).clone(),
                });
            }
            on.api.enqueue_kernel(&mut kernel.1, on.stream, &buffers, model.time_limit)
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn figures(&self, metrics: &mut Metrics) {
        self.calls.figures(metrics);
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: A::NAME.into(), threads: 1, ..SessionMetadata::default() }
    }
}
