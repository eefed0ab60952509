//! Programs on a device of NVIDIA's: their buffers and kernels are made once, a call is captured
//! once for the memory that it uses, and run as a graph.

use super::cubin;
use super::cuda_c::{CudaC, ENTRY};
use super::process::IsolatedCuda;
use super::resident::{CudaApi, CudaStream, FIRST_TF32, shared_device, unsupported};
use super::routine::{RoutineCall, bound, with_routines};
use crate::backend::program::{MadeProgram, ProgramDevice, ReadOutput};
use crate::base::LONGEST_CALL;
use crate::device::{DeviceFault, Enqueue, SharedDevice, buffer_of};
use crate::lowering::{Array, Half, Program, Shader, Source, Width, shader};
use arrayvec::ArrayVec;
use limen::backend::{BackendError, DeviceCall};
use limen::node::MAX_PORTS;
use limen_cuda::{Argument, Buffer, Context, CopyDirection, Error, Function, Graph, Grid, PinnedBuffer, Stream};
use limen_infer::BackendOptions;
use limen_infer::Compiled;
use limen_infer::onnx::Precision;
use std::path::Path;
use std::sync::Arc;

/// What a device runs at once: blocks along a dim, and as many as occupy it.
const WIDTH: Width = Width { most: 65_535, busy: 128 };

/// The memory of a call's inputs and outputs; `None` for an output that nothing takes.
pub(super) type CallBuffers = ArrayVec<Option<Arc<Buffer>>, { 2 * MAX_PORTS }>;

/// As many graphs are kept: one for each pair of slots that the pools have.
const MAX_GRAPHS: usize = 256;

/// A program that was made for a device.
pub(crate) struct CudaProgram {
    program: Arc<Program>,
    launches: Launches,
    compiled: Compiled,
    memory: u64,
    /// For calls with messages of the host.
    stream: Stream,
    uploads: Vec<PinnedBuffer>,
    downloads: Vec<PinnedBuffer>,
    fault: Option<PinnedBuffer>,
    /// A call with its own memory.
    own: Option<Graph>,
    /// Calls with messages on the device, by their memory.
    graphs: Vec<(CallBuffers, Graph)>,
    /// Whether calls are captured; otherwise their kernels are launched one by one.
    captures: bool,
}

/// The kernels of a program and their memory.
struct Launches {
    steps: Vec<LaunchStep>,
    /// Memory that routines use beside their arrays.
    workspace: Option<Arc<Buffer>>,
    /// The memory of each array.
    arrays: Vec<Arc<Buffer>>,
    /// Where kernels that may fail write their number, and their names.
    faults: Option<(Arc<Buffer>, Arc<[String]>)>,
}

enum LaunchStep {
    Kernel(Launch),
    Routine(RoutineCall),
}

/// A kernel that is ready to run.
struct Launch {
    function: Arc<Function>,
    arrays: Vec<usize>,
    exact: bool,
    grid: [u32; 3],
    block: [u32; 3],
}

/// The bytes of an array.
fn bytes(array: &Array) -> usize {
    match array.source {
        Source::Bytes => array.len,
        _ if array.is_half => array.len * 2,
        _ => array.len * 4,
    }
}

/// Arrays that a kernel may have as arguments.
const MAX_ARRAYS: usize = 16;

impl Launches {
    /// Enqueues all kernels; `buffer` gives the memory of an array.
    fn enqueue(&self, stream: &mut Stream, buffer: &dyn Fn(usize) -> Arc<Buffer>) -> Result<(), Error> {
        if let Some((fault, _)) = &self.faults {
            stream.clear(fault, 0, 4)?;
        }
        for step in &self.steps {
            let launch = match step {
                LaunchStep::Kernel(launch) => launch,
                LaunchStep::Routine(call) => {
                    let [a, b, result] = call.arrays.map(buffer);
                    let workspace = self.workspace.as_ref().unwrap_or(&result);
                    stream.compute(&call.routine, [&a, &b, &result], workspace)?;
                    continue;
                }
            };
            let buffers: ArrayVec<Arc<Buffer>, MAX_ARRAYS> = launch.arrays.iter().map(|array| buffer(*array)).collect();
            let fault = self.faults.as_ref().filter(|_| launch.exact).map(|(fault, _)| fault);
            let grid = Grid { blocks: launch.grid, threads: launch.block, shared: 0 };
            // SAFETY: the kernel was written by `lowering` for these arguments in this order. It
            // accesses only elements of its arrays: their indices are sums that lie inside by
            // construction, or are compared with the length. Each buffer has room for its array:
            // own ones are made for it, those of messages are slots for its bytes. No two calls
            // that share memory are under way at the same time without an event between them
            // (`Calls`).
            #[allow(unsafe_code)]
            unsafe {
                stream.launch(&launch.function, grid, buffers.iter().chain(fault).map(Argument::Buffer))?;
            }
        }
        Ok(())
    }
}

impl CudaProgram {
    /// Makes a program for a device, and its first call.
    ///
    /// # Errors
    /// What the device lacks.
    pub(super) fn new(
        context: &Arc<Context>,
        program: Arc<Program>,
        cache: Option<&Path>,
        captures: bool,
    ) -> Result<CudaProgram, BackendError> {
        match CudaProgram::make(context, program.clone(), cache, captures, true) {
            // What a library does not run after all, kernels of limen's own do.
            Err(BackendError::Unsupported(why)) => {
                let mut made = CudaProgram::make(context, program, cache, captures, false)?;
                made.compiled.warnings.push(format!("compiled without NVIDIA's libraries, which failed: {why}"));
                Ok(made)
            }
            made => made,
        }
    }

    fn make(
        context: &Arc<Context>,
        program: Arc<Program>,
        cache: Option<&Path>,
        captures: bool,
        uses_libraries: bool,
    ) -> Result<CudaProgram, BackendError> {
        let unsupported = |error: Error| unsupported(context, error);
        let mut compiled = Compiled::default();
        let (program, routines) = match uses_libraries {
            true => with_routines(context, &program),
            false => (program.clone(), program.kernels.iter().map(|_| None).collect()),
        };
        let mut stream = Stream::new(context).map_err(unsupported)?;
        let (arrays, mut memory) = arrays(context, &program, &mut stream).map_err(unsupported)?;
        let routines = bound(context, &program, routines, &arrays);
        let shaders = shaders(&program, &routines).map_err(|why| BackendError::Unsupported(format!("cuda: {why}")))?;
        let functions = functions(context, &shaders, cache, &mut compiled).map_err(unsupported)?;
        let workspace = routines.iter().flatten().map(|call| call.routine.workspace()).max();
        let workspace = workspace.filter(|bytes| *bytes > 0).map(|bytes| Buffer::new(context, bytes)).transpose();
        let workspace = workspace.map_err(unsupported)?.map(Arc::new);
        memory += workspace.as_ref().map_or(0, |workspace| workspace.bytes() as u64);
        let mut faults = None;
        if shaders.iter().any(|shader| shader.exact) {
            let kernels = program.kernels.iter().filter(|kernel| kernel.len() > 0);
            let buffer = Arc::new(Buffer::new(context, 4).map_err(unsupported)?);
            faults = Some((buffer, kernels.map(|kernel| kernel.fault()).collect()));
        }
        let launch = |(shader, function): (Shader, Arc<Function>)| Launch {
            function,
            arrays: shader.arrays,
            exact: shader.exact,
            grid: shader.groups,
            block: shader.block,
        };
        let mut launches = std::iter::zip(shaders, functions).map(launch);
        let steps = std::iter::zip(&program.kernels, routines).filter(|(kernel, _)| kernel.len() > 0);
        let steps = steps.filter_map(|(_, call)| match call {
            Some(call) => Some(LaunchStep::Routine(call)),
            None => launches.next().map(LaunchStep::Kernel),
        });
        let steps = steps.collect();
        let pinned = |array: &usize, direction: CopyDirection| {
            PinnedBuffer::new(context, bytes(&program.arrays[*array]), direction).map_err(unsupported)
        };
        let uploads =
            program.inputs.iter().map(|array| pinned(array, CopyDirection::Upload)).collect::<Result<_, _>>()?;
        let outputs = program.outputs.iter().map(|(array, _)| pinned(array, CopyDirection::Download));
        let downloads = outputs.collect::<Result<Vec<_>, _>>()?;
        memory += downloads.iter().map(|pinned| pinned.bytes() as u64).sum::<u64>();
        let fault = faults.as_ref().map(|_| PinnedBuffer::new(context, 4, CopyDirection::Download)).transpose();
        let mut made = CudaProgram {
            program,
            launches: Launches { steps, workspace, arrays, faults },
            compiled,
            memory,
            stream,
            uploads,
            downloads,
            fault: fault.map_err(unsupported)?,
            own: None,
            graphs: Vec::new(),
            captures,
        };
        made.first_call().map_err(unsupported)?;
        Ok(made)
    }

    /// How many products and how many convolutions libraries compute.
    #[cfg(test)]
    pub(super) fn routines(&self) -> [usize; 2] {
        let mut counts = [0; 2];
        for step in &self.launches.steps {
            match step {
                LaunchStep::Routine(RoutineCall { routine: limen_cuda::Routine::Product(_), .. }) => counts[0] += 1,
                LaunchStep::Routine(RoutineCall { routine: limen_cuda::Routine::Convolution(_), .. }) => counts[1] += 1,
                LaunchStep::Kernel(_) => {}
            }
        }
        counts
    }

    /// Enqueues so many calls, without copies, and returns how long they took until the last one
    /// had ended.
    #[cfg(test)]
    pub(super) fn timed(&mut self, calls: usize) -> std::time::Duration {
        let CudaProgram { launches, stream, own, .. } = self;
        stream.record().unwrap().wait().unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..calls {
            match own {
                Some(graph) => graph.run(stream).unwrap(),
                None => launches.enqueue(stream, &|array| launches.arrays[array].clone()).unwrap(),
            }
        }
        stream.record().unwrap().wait().unwrap();
        begun.elapsed()
    }

    /// Makes a call, in which the driver loads what it has put off, and captures it. A model need
    /// not take zeros, so the outputs do not matter.
    fn first_call(&mut self) -> Result<(), Error> {
        let CudaProgram { program, launches, stream, own, captures, .. } = self;
        for array in &program.inputs {
            let buffer = &launches.arrays[*array];
            stream.clear(buffer, 0, buffer.bytes())?;
        }
        let arrays = |array: usize| launches.arrays[array].clone();
        launches.enqueue(stream, &arrays)?;
        stream.record()?.wait()?;
        if *captures {
            *own = Some(Graph::capture(stream, |stream| launches.enqueue(stream, &arrays))?);
        }
        Ok(())
    }

    /// Enqueues a call with messages of the host, and returns when it has ended.
    fn call(&mut self, inputs: &[&[u8]]) -> Result<(), Error> {
        let CudaProgram { program, launches, stream, uploads, downloads, fault, own, .. } = self;
        for ((given, pinned), array) in std::iter::zip(inputs, uploads.iter_mut()).zip(&program.inputs) {
            let bytes = given.len().min(bytes(&program.arrays[*array]));
            pinned.wait()?;
            pinned.write(&given[..bytes])?;
            stream.upload(pinned, bytes, &launches.arrays[*array], 0)?;
        }
        match own {
            Some(graph) => graph.run(stream)?,
            None => launches.enqueue(stream, &|array| launches.arrays[array].clone())?,
        }
        for (pinned, (array, _)) in std::iter::zip(downloads.iter_mut(), &program.outputs) {
            pinned.wait()?;
            let bytes = pinned.bytes();
            stream.download(&launches.arrays[*array], 0, bytes, pinned)?;
        }
        if let (Some((from, _)), Some(to)) = (&launches.faults, fault) {
            to.wait()?;
            stream.download(from, 0, 4, to)?;
        }
        stream.record()?.wait_for(LONGEST_CALL)
    }
}

impl MadeProgram<CudaApi> for CudaProgram {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    #[cfg(test)]
    fn is_captured(&self) -> bool {
        self.own.is_some()
    }

    fn run(&mut self, inputs: &[&[u8]], read: &mut ReadOutput<'_>) -> Result<(), BackendError> {
        let failed = |error: Error| BackendError::from(DeviceFault::from(error));
        self.call(inputs).map_err(failed)?;
        if let (Some((_, names)), Some(pinned)) = (&self.launches.faults, &mut self.fault) {
            let mut word = [0; 4];
            pinned.read(&mut word).map_err(failed)?;
            if let Some(at) = (u32::from_ne_bytes(word) as usize).checked_sub(1) {
                let why = names.get(at).cloned().unwrap_or_else(|| super::resident::UNKNOWN_FAULT.into());
                return Err(BackendError::Call(why));
            }
        }
        for (at, pinned) in self.downloads.iter_mut().enumerate() {
            pinned.with_bytes(|bytes| read(at, bytes)).map_err(failed)??;
        }
        Ok(())
    }

    fn encode(&mut self, on: &mut Enqueue<'_, CudaApi>, call: &DeviceCall<'_>) -> Result<(), BackendError> {
        let mut buffers = CallBuffers::new();
        for input in call.inputs {
            let tensor = input.on_device().ok_or(BackendError::InputLost)?;
            buffers.push(Some((*buffer_of::<CudaApi>(&tensor)?.0).clone()));
        }
        for output in call.outputs {
            let buffer = output.as_ref().map(|tensor| buffer_of::<CudaApi>(tensor)).transpose()?;
            buffers.push(buffer.map(|(buffer, _)| (*buffer).clone()));
        }
        self.enqueue(on.stream, &buffers).map_err(|error| DeviceFault::from(error).into())
    }
}

impl CudaProgram {
    /// Enqueues a call whose inputs and outputs are in this memory.
    pub(super) fn enqueue(&mut self, stream: &mut CudaStream, buffers: &CallBuffers) -> Result<(), Error> {
        let at = self.graph(buffers, &mut stream.stream)?;
        let work = stream.work()?;
        match at {
            Some(at) => self.graphs[at].1.run(work)?,
            None => self.launches.enqueue(work, &self.rebound(buffers))?,
        }
        match &self.launches.faults {
            Some((buffer, names)) => stream.report(buffer, names),
            None => Ok(()),
        }
    }

    /// The memory of arrays, where inputs and outputs are in other memory.
    fn rebound<'a>(&'a self, buffers: &'a CallBuffers) -> impl Fn(usize) -> Arc<Buffer> + 'a {
        move |array: usize| {
            let own = self.program.inputs.iter().copied();
            let own = own.chain(self.program.outputs.iter().map(|(array, _)| *array));
            let other = std::iter::zip(own, buffers).find(|(own, _)| *own == array);
            other.and_then(|(_, buffer)| buffer.clone()).unwrap_or_else(|| self.launches.arrays[array].clone())
        }
    }

    /// Returns the place of the graph of a call, captured on the stream that runs it.
    fn graph(&mut self, buffers: &CallBuffers, stream: &mut Stream) -> Result<Option<usize>, Error> {
        if !self.captures {
            return Ok(None);
        }
        let same = |known: &CallBuffers| {
            std::iter::zip(known, buffers).all(|(known, buffer)| match (known, buffer) {
                (Some(known), Some(buffer)) => Arc::ptr_eq(known, buffer),
                (known, buffer) => known.is_none() && buffer.is_none(),
            })
        };
        if let Some(at) = self.graphs.iter().position(|(known, _)| same(known)) {
            return Ok(Some(at));
        }
        let graph = Graph::capture(stream, |stream| self.launches.enqueue(stream, &self.rebound(buffers)))?;
        if self.graphs.len() >= MAX_GRAPHS {
            self.graphs.swap_remove(0);
        }
        self.graphs.push((buffers.clone(), graph));
        Ok(Some(self.graphs.len() - 1))
    }
}

/// Writes the kernels that no routine replaces.
fn shaders(program: &Program, routines: &[Option<RoutineCall>]) -> Result<Vec<Shader>, String> {
    let kernels = std::iter::zip(&program.kernels, routines).filter(|(kernel, _)| kernel.len() > 0);
    let kernels = kernels.enumerate().filter(|(_, (_, routine))| routine.is_none());
    let written = kernels.map(|(at, (kernel, _))| {
        let refused = |why: String| format!("operator {}: {why}", kernel.name);
        let shader = shader(&CudaC { half: program.half }, program, kernel, at + 1, WIDTH).map_err(refused)?;
        match shader.arrays.len() <= MAX_ARRAYS {
            true => Ok(shader),
            false => {
                Err(refused(format!("a kernel must have at most {MAX_ARRAYS} arrays, got {}", shader.arrays.len())))
            }
        }
    });
    written.collect()
}

/// Compiles all kernels of a program at once: those with barriers, and those without.
fn functions(
    context: &Arc<Context>,
    shaders: &[Shader],
    cache: Option<&Path>,
    compiled: &mut Compiled,
) -> Result<Vec<Arc<Function>>, Error> {
    let mut texts: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    for shader in shaders {
        let place = texts.iter().position(|text| *text == shader.text).unwrap_or_else(|| {
            texts.push(&shader.text);
            texts.len() - 1
        });
        places.push(place);
    }
    let has_barrier = |text: &str| text.contains("__syncthreads");
    let mut functions: Vec<Option<Arc<Function>>> = vec![None; texts.len()];
    for with_barrier in [false, true] {
        let chosen: Vec<usize> = (0..texts.len()).filter(|at| has_barrier(texts[*at]) == with_barrier).collect();
        if chosen.is_empty() {
            continue;
        }
        let mut source = String::new();
        for at in &chosen {
            // In a space of its own, as each has its helpers.
            let text = texts[*at].replacen(ENTRY, &format!("{ENTRY}_{at}"), 1);
            source += &format!("namespace kernel_{at} {{\n{text}}}\nusing kernel_{at}::{ENTRY}_{at};\n");
        }
        let module = cubin::load(context, "kernels.cu", &source, &[], cache, compiled)?;
        for at in chosen {
            functions[at] = Some(module.function(&format!("{ENTRY}_{at}"))?);
        }
    }
    Ok(places.into_iter().filter_map(|place| functions[place].clone()).collect())
}

/// Allocates the memory of all arrays, with what is constant, and returns its bytes.
fn arrays(context: &Arc<Context>, program: &Program, stream: &mut Stream) -> Result<(Vec<Arc<Buffer>>, u64), Error> {
    let plan = program.memory();
    let allocate = |bytes: usize| Ok::<_, Error>(Arc::new(Buffer::new(context, bytes)?));
    let shared = plan.buffers.iter().map(|words| allocate(words * 4)).collect::<Result<Vec<_>, _>>()?;
    let mut memory = shared.iter().map(|buffer| buffer.bytes() as u64).sum::<u64>();
    let mut all = Vec::new();
    for (array, of) in std::iter::zip(&program.arrays, &plan.of) {
        if let Some(of) = of {
            all.push(shared[*of].clone());
            continue;
        }
        let own = allocate(bytes(array))?;
        memory += own.bytes() as u64;
        if let Source::Constant(bits) = &array.source {
            let halves: Vec<u16>;
            let content: &[u8] = if array.is_half {
                let numbers = bits.iter().map(|bits| f32::from_bits(*bits));
                halves = match program.half {
                    Half::F16 => numbers.map(|number| half::f16::from_f32(number).to_bits()).collect(),
                    Half::Bf16 => numbers.map(|number| half::bf16::from_f32(number).to_bits()).collect(),
                };
                bytemuck::cast_slice(&halves)
            } else {
                bytemuck::cast_slice(bits)
            };
            if !content.is_empty() {
                let mut pinned = PinnedBuffer::new(context, content.len(), CopyDirection::Upload)?;
                pinned.write(content)?;
                stream.upload(&mut pinned, content.len(), &own, 0)?;
                stream.record()?.wait()?;
            }
        }
        all.push(own);
    }
    Ok((all, memory))
}

impl ProgramDevice for CudaApi {
    type Bound = CudaProgram;
    type Isolated = IsolatedCuda;
    const CAPTURES: bool = true;

    fn shared(options: &BackendOptions) -> Arc<SharedDevice<CudaApi>> {
        shared_device(options)
    }

    fn name(&self) -> &str {
        &self.context.info().name
    }

    fn lacks(&self, precision: Precision) -> Option<String> {
        if precision != Precision::Tf32 {
            return None;
        }
        let arch = self.context.info().arch;
        match self.context.check_products() {
            _ if arch < FIRST_TF32 => Some(format!("the GPU must be sm_{FIRST_TF32} or later, got sm_{arch}")),
            Ok(()) => None,
            Err(why) => Some(why.to_string()),
        }
    }

    fn bind(&self, program: Arc<Program>, cache: Option<&Path>) -> Result<CudaProgram, BackendError> {
        CudaProgram::new(&self.context, program, cache, Self::CAPTURES)
    }
}
