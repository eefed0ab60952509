//! Kernels of a graph on CUDA.

use super::cubin;
use super::resident::{CudaApi, unsupported};
use crate::cache::Compiled;
use crate::device::{Calls, Fault, LONGEST_CALL, SharedDevice, buffer_of};
use arrayvec::ArrayVec;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, TensorSpec, Ticket,
};
use limen::message::PortSpec;
use limen::node::MAX_PORTS;
use limen_cuda::Stream;
use limen_cuda::{Argument, Buffer, Context, Direction, Error, Function, FunctionInfo, Grid, Image, Module, Pinned};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a kernel's code comes from.
#[derive(Clone, Debug)]
pub(crate) enum CudaSource {
    /// CUDA C, and options of the compiler.
    Text(String, Vec<String>),
    Ptx(String),
    /// Code for one architecture.
    Code(Vec<u8>),
}

/// What a kernel gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CudaArgument {
    /// A pointer to the elements of a port, by its number, inputs first.
    Port(usize),
    /// The bytes of a number, `size` of them.
    Number { bytes: [u8; 8], size: usize },
}

/// A kernel with everything that is known while planning.
#[derive(Clone, Debug)]
pub(crate) struct CudaKernelModel {
    /// The file, for messages of the compiler.
    pub(crate) name: String,
    pub(crate) source: CudaSource,
    pub(crate) entry: String,
    pub(crate) arguments: Vec<CudaArgument>,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    /// Bytes of shared memory of a block, beside those that the kernel declares.
    pub(crate) shared: u32,
    pub(crate) signature: Signature,
    /// Outputs that begin as a copy of an input, by their numbers.
    pub(crate) in_place: Vec<(usize, usize)>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) device: Arc<SharedDevice<CudaApi>>,
    /// The folder of the cache.
    pub(crate) cache: Option<PathBuf>,
}

/// The backend of kernels.
#[derive(Debug)]
pub(crate) struct CudaKernel;

impl Backend for CudaKernel {
    const NAME: &'static str = "cuda";
    type Model = CudaKernelModel;
    type Prepared = PreparedCudaKernel;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("", Vec::new(), Ops::Unlisted))
    }

    fn prepare(model: CudaKernelModel) -> Result<PreparedCudaKernel, BackendError> {
        let (_, api) = model.device.api()?;
        let function = model.load(&api.context)?;
        let info = model.check(&api.context, &function)?;
        Ok(PreparedCudaKernel { model: Arc::new(model), info })
    }
}

/// A kernel that is compiled and fits its node.
#[derive(Debug)]
pub(crate) struct PreparedCudaKernel {
    model: Arc<CudaKernelModel>,
    info: FunctionInfo,
}

impl PreparedCudaKernel {
    /// Returns the device that it runs on.
    pub(crate) fn device(&self) -> Arc<SharedDevice<CudaApi>> {
        self.model.device.clone()
    }

    /// Returns what it needs of the device.
    pub(crate) fn info(&self) -> FunctionInfo {
        self.info
    }
}

impl Prepared for PreparedCudaKernel {
    type Session = CudaKernelSession;

    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn session(&self, _: usize) -> Result<CudaKernelSession, BackendError> {
        let device = self.model.device.clone();
        let (generation, api) = device.api()?;
        let function = self.model.load(&api.context)?;
        let spare = vec![None; self.model.signature.outputs.len()];
        let calls = Calls::new(device.clone());
        Ok(CudaKernelSession { model: self.model.clone(), device, calls, function: (generation, function), spare })
    }
}

/// Ends every header of CUDA's that a source includes: those beside the toolkit.
const HEADERS: &str = "include";

/// Shared memory of a block that needs no leave.
const FREE_SHARED: usize = 48 << 10;

/// The bytes of a port.
fn bytes(port: &TensorSpec) -> usize {
    PortSpec::new(port.dtype, port.shape.iter().cloned()).max_bytes().unwrap_or(0)
}

impl CudaKernelModel {
    /// Compiles it, or finds what was compiled of it before, and loads it.
    fn load(&self, context: &Arc<Context>) -> Result<Arc<Function>, BackendError> {
        let failed = |error: Error| unsupported(context, error);
        let module = match &self.source {
            CudaSource::Text(text, options) => {
                // What a header says is not in the name of what is kept.
                let includes = text.contains("#include");
                let cache = self.cache.as_deref().filter(|_| !includes);
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
                "it has no kernel `{}`: one that is declared `extern \"C\" __global__` has that name ({why})",
                self.entry
            )),
            other => other,
        })
    }

    /// Compares it with what its node says.
    fn check(&self, context: &Arc<Context>, function: &Arc<Function>) -> Result<FunctionInfo, BackendError> {
        let failed = |error: Error| unsupported(context, error);
        let refused = |why: String| Err(BackendError::Unsupported(why));
        let info = function.info().map_err(failed)?;
        let threads = self.threads.iter().map(|number| *number as usize).product::<usize>();
        if threads > info.threads {
            return refused(format!("{threads} threads in a block; this kernel runs at most {}", info.threads));
        }
        if self.shared as usize + info.shared > FREE_SHARED {
            function.allow_shared(self.shared as usize).map_err(failed)?;
        }
        let Some(sizes) = function.parameters().map_err(failed)? else { return Ok(info) };
        if sizes.len() != self.arguments.len() {
            return refused(format!("it takes {} arguments; `arguments` has {}", sizes.len(), self.arguments.len()));
        }
        for (at, (takes, argument)) in std::iter::zip(sizes, &self.arguments).enumerate() {
            let (what, has) = match argument {
                CudaArgument::Port(_) => ("a pointer", 8),
                CudaArgument::Number { size, .. } => ("a number", *size),
            };
            if takes != has {
                return refused(format!("argument {at} is {what} of {has} bytes, and the kernel takes {takes} there"));
            }
        }
        Ok(info)
    }

    /// Enqueues a call with the memory of its ports. Outputs are zeros before, as a kernel need not write every element, or a copy of an
    /// input.
    fn enqueue(&self, function: &Arc<Function>, buffers: &[Arc<Buffer>], stream: &mut Stream) -> Result<(), Error> {
        let (inputs, outputs) = buffers.split_at(self.signature.inputs.len().min(buffers.len()));
        for (at, (output, port)) in std::iter::zip(outputs, &self.signature.outputs).enumerate() {
            let bytes = bytes(port).min(output.bytes());
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
        // SAFETY: nobody but its author knows what the kernel does. The node says that it may run (`allow_kernels`), and so does whoever
        // starts the program (`BackendOptions::allow_kernels`): they vouch for it. The number of its arguments and the bytes of each were
        // compared with what the driver knows of it, where that is known.
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

/// A kernel on one thread.
pub(crate) struct CudaKernelSession {
    model: Arc<CudaKernelModel>,
    device: Arc<SharedDevice<CudaApi>>,
    calls: Calls<CudaApi>,
    /// It, and the generation of the device that it was loaded for.
    function: (u32, Arc<Function>),
    /// Where outputs go that nothing takes.
    spare: Vec<Option<Arc<Buffer>>>,
}

fn failed(error: Error) -> BackendError {
    Fault::from(error).into()
}

impl Session for CudaKernelSession {
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
            return Err(BackendError::Call(format!("a kernel takes one item in a call, not {batch}")));
        }
        let (_, api) = self.device.api()?;
        let context = &api.context;
        let mut stream = Stream::new(context).map_err(failed)?;
        let buffer = |bytes: usize| Ok::<_, BackendError>(Arc::new(Buffer::new(context, bytes).map_err(failed)?));
        let mut buffers = Vec::new();
        for input in inputs {
            let made = buffer(input.bytes.len())?;
            let mut pinned = Pinned::new(context, input.bytes.len(), Direction::Upload).map_err(failed)?;
            pinned.write(input.bytes).map_err(failed)?;
            stream.upload(&mut pinned, input.bytes.len(), &made, 0).map_err(failed)?;
            buffers.push(made);
        }
        for output in outputs.iter() {
            buffers.push(buffer(output.bytes.len())?);
        }
        self.model.enqueue(&self.function.1, &buffers, &mut stream).map_err(failed)?;
        let mut results = Vec::new();
        for (output, from) in std::iter::zip(outputs.iter(), &buffers[inputs.len()..]) {
            let mut pinned = Pinned::new(context, output.bytes.len(), Direction::Download).map_err(failed)?;
            stream.download(from, 0, output.bytes.len(), &mut pinned).map_err(failed)?;
            results.push(pinned);
        }
        let longest = self.model.time_limit.unwrap_or(LONGEST_CALL);
        stream.record().and_then(|event| event.wait_for(longest)).map_err(failed)?;
        for (output, pinned) in std::iter::zip(outputs, &mut results) {
            pinned.read(output.bytes).map_err(failed)?;
        }
        Ok(())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let CudaKernelSession { model, calls, function, spare, .. } = self;
        calls.enqueue(call.inputs, call.outputs, false, |on| {
            if function.0 != on.generation {
                *function = (on.generation, model.load(&on.api.context)?);
                spare.fill(None);
            }
            let mut buffers: ArrayVec<Arc<Buffer>, { 2 * MAX_PORTS }> = ArrayVec::new();
            for input in call.inputs {
                let tensor = input.on_device().ok_or(BackendError::InputLost)?;
                buffers.push((*buffer_of::<CudaApi>(&tensor)?.0).clone());
            }
            for ((output, spare), port) in std::iter::zip(call.outputs, &mut *spare).zip(&model.signature.outputs) {
                buffers.push(match (output, &spare) {
                    (Some(tensor), _) => (*buffer_of::<CudaApi>(tensor)?.0).clone(),
                    (None, Some(spare)) => spare.clone(),
                    (None, None) => {
                        let made = Buffer::new(&on.api.context, bytes(port)).map_err(failed)?;
                        spare.insert(Arc::new(made)).clone()
                    }
                });
            }
            on.stream.time_limit = model.time_limit;
            model.enqueue(&function.1, &buffers, on.stream.work().map_err(failed)?).map_err(failed)
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "cuda".into(), threads: 1, ..SessionMetadata::default() }
    }
}
