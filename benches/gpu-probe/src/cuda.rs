//! The first CUDA device, its memory, streams and events, and the probe's kernels.
//!
//! A thin layer on purpose: costs and errors must be those of the driver's calls themselves.
//! Dropping a handle ignores errors, as it must once a context is broken.

use crate::check::{self, caught, panic_text};
use crate::report::Attempt;
use cudarc::cublas;
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUevent_flags, CUfunction, CUresult, CUstream};
use cudarc::driver::{CudaContext, CudaModule, DriverError, result};
use cudarc::nvrtc;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

const SOURCE: &str = include_str!("../kernels/probe.cu");
/// The same kernels, compiled ahead for machines without NVRTC: for an old architecture and by an old compiler, because drivers
/// accept PTX that is older than themselves.
const CARRIED: &str = include_str!("../kernels/probe.ptx");

/// The name of a result code of the driver.
pub fn code(result: Result<(), DriverError>) -> String {
    match result {
        Ok(()) => "success".into(),
        Err(error) => format!("{:?}", error.0),
    }
}

/// An error of the driver as text, with the call that returned it.
pub fn failed(call: &'static str) -> impl Fn(DriverError) -> String {
    move |error| format!("{call}: {:?}", error.0)
}

/// A pointer to a kernel's argument, as a launch needs it.
pub fn argument<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Memory of the device.
pub struct Memory {
    pub at: CUdeviceptr,
    pub bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Result<Self, String> {
        // SAFETY: a context is current; the memory is freed once, on drop.
        Ok(Self { at: unsafe { result::malloc_sync(bytes) }.map_err(failed("allocation"))?, bytes })
    }

    /// Allocates memory with these values.
    pub fn of<T: Copy>(values: &[T]) -> Result<Self, String> {
        let memory = Self::new(size_of_val(values))?;
        memory.write(values)?;
        Ok(memory)
    }

    /// Allocates memory filled with poison.
    pub fn poisoned(floats: usize) -> Result<Self, String> {
        let memory = Self::new(floats * 4)?;
        memory.poison()?;
        Ok(memory)
    }

    pub fn poison(&self) -> Result<(), String> {
        // SAFETY: within the memory.
        unsafe { sys::cuMemsetD32_v2(self.at, check::POISON.to_bits(), self.bytes / 4) }
            .result()
            .map_err(failed("memset"))?;
        settle()
    }

    pub fn write<T: Copy>(&self, values: &[T]) -> Result<(), String> {
        assert!(size_of_val(values) <= self.bytes);
        // SAFETY: the memory is as large as what is copied, which is plain data.
        unsafe { result::memcpy_htod_sync(self.at, values) }.map_err(failed("copy to the device"))?;
        settle()
    }

    pub fn read<T: Copy>(&self, like: T) -> Result<Vec<T>, String> {
        let mut values = vec![like; self.bytes / size_of::<T>()];
        // SAFETY: as for `write`; any bits are a value of the plain types used here.
        unsafe { result::memcpy_dtoh_sync(&mut values, self.at) }.map_err(failed("copy to the host"))?;
        Ok(values)
    }

    /// Reads the values; poison where nothing was written.
    pub fn floats(&self) -> Result<Vec<f32>, String> {
        self.read(check::POISON)
    }
}

/// Waits for the default stream. The probe's streams do not wait for it, and even a synchronous copy may return while the device
/// still writes.
fn settle() -> Result<(), String> {
    // SAFETY: the default stream is always there.
    unsafe { result::stream::synchronize(result::stream::null()) }.map_err(failed("default stream"))
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` and not freed before.
        let _ = unsafe { result::free_sync(self.at) };
    }
}

/// Host memory that the device accesses directly.
pub struct Pinned {
    at: *mut f32,
    len: usize,
}

impl Pinned {
    /// Allocates pinned memory filled with poison; if write-combined, it is fast for the device to read, but slow for the host.
    pub fn new(len: usize, write_combined: bool) -> Result<Self, String> {
        let flags = if write_combined { sys::CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
        // SAFETY: a context is current; freed once, on drop.
        let at: *mut f32 = unsafe { result::malloc_host(len * 4, flags) }.map_err(failed("pinned allocation"))?.cast();
        let mut pinned = Self { at, len };
        pinned.fill();
        Ok(pinned)
    }

    fn fill(&mut self) {
        for i in 0..self.len {
            // SAFETY: within the allocation; not yet initialised, so no slice is made of it.
            unsafe { self.at.add(i).write(check::POISON) };
        }
    }
}

impl std::ops::Deref for Pinned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: initialised by `new`; the callers synchronise before they read.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl std::ops::DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` and not freed before.
        let _ = unsafe { result::free_host(self.at.cast()) };
    }
}

/// A stream that does not wait for the default one.
pub struct Stream(pub CUstream);

impl Stream {
    pub fn new() -> Result<Self, String> {
        result::stream::create(result::stream::StreamKind::NonBlocking).map(Self).map_err(failed("stream"))
    }

    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        unsafe { result::stream::synchronize(self.0) }
    }

    pub fn query(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        unsafe { sys::cuStreamQuery(self.0) }.result()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `new` and not destroyed before.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

pub struct Event(pub CUevent);

impl Event {
    pub fn new(flags: CUevent_flags) -> Result<Self, String> {
        result::event::create(flags).map(Self).map_err(failed("event"))
    }

    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both live, in one context.
        unsafe { result::event::record(self.0, stream.0) }
    }

    pub fn query(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives.
        unsafe { result::event::query(self.0) }
    }

    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives.
        unsafe { result::event::synchronize(self.0) }
    }

    /// Device time in microseconds from this event to a later one.
    pub fn micros_to(&self, later: &Event) -> Result<f64, DriverError> {
        // SAFETY: both events live and were recorded with timing.
        unsafe { result::event::elapsed(self.0, later.0) }.map(|ms| f64::from(ms) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new` and not destroyed before.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// Two events between which device time is measured.
pub struct Timer {
    start: Event,
    stop: Event,
}

impl Timer {
    pub fn new() -> Result<Self, String> {
        Ok(Self {
            start: Event::new(CUevent_flags::CU_EVENT_DEFAULT)?,
            stop: Event::new(CUevent_flags::CU_EVENT_DEFAULT)?,
        })
    }

    /// Device time in microseconds of the work that `work` enqueues.
    pub fn time(&self, stream: &Stream, work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
        self.start.record(stream).map_err(failed("event record"))?;
        work()?;
        self.stop.record(stream).map_err(failed("event record"))?;
        self.stop.synchronize().map_err(failed("event synchronise"))?;
        self.start.micros_to(&self.stop).map_err(failed("event elapsed"))
    }
}

/// The first device, its context, and the probe's kernels in it.
pub struct Gpu {
    pub nothing: CUfunction,
    pub stray_store: CUfunction,
    pub affine: CUfunction,
    pub step: CUfunction,
    pub steps: CUfunction,
    pub busy: CUfunction,
    pub copy16: CUfunction,
    /// How the kernels were compiled.
    pub kernels_from: String,
    pub context: Arc<CudaContext>,
    // Dropped last, except for its context: functions belong to the module.
    _module: Arc<CudaModule>,
}

/// The context to open.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// The primary context, which libraries share.
    Primary,
    /// A separate one.
    Own,
}

/// Checks for a driver without a panic.
pub fn driver_present() -> Result<(), String> {
    // SAFETY: loads the library, whose initialisers are the driver's.
    if unsafe { sys::is_culib_present() } {
        Ok(())
    } else {
        Err("no CUDA driver: libcuda.so and libcuda.so.1 are not found".into())
    }
}

impl Gpu {
    pub fn open() -> Result<Self, String> {
        Self::open_as(Kind::Primary)
    }

    pub fn open_as(kind: Kind) -> Result<Self, String> {
        driver_present()?;
        caught(|| {
            let context = match kind {
                Kind::Primary => CudaContext::new(0),
                Kind::Own => CudaContext::new_non_primary(0, 0),
            };
            let context = context.map_err(failed("context"))?;
            Self::in_context(context)
        })
    }

    /// Compiles the kernels and loads them.
    pub fn in_context(context: Arc<CudaContext>) -> Result<Self, String> {
        let (major, minor) = context.compute_capability().map_err(failed("compute capability"))?;
        let mut tried = Vec::new();
        let mut loaded = None;
        for way in [HandleKind::Ptx, HandleKind::Cubin, HandleKind::Carried] {
            let image = way.image(&format!("{major}{minor}"));
            match image.and_then(|(image, from)| Ok((context.load_module(image).map_err(failed("module load"))?, from)))
            {
                Ok(found) => {
                    loaded = Some(found);
                    break;
                }
                Err(why) => tried.push(why),
            }
        }
        let (module, from) = loaded.ok_or_else(|| format!("no kernels: {}", tried.join("; ")))?;
        tried.dedup();
        let kernels_from = if tried.is_empty() { from } else { format!("{from}, because: {}", tried.join("; ")) };
        let function = |name: &str| -> Result<CUfunction, String> {
            Ok(module.load_function(name).map_err(failed("function"))?.cu_function())
        };
        Ok(Self {
            nothing: function("nothing")?,
            stray_store: function("stray_store")?,
            affine: function("affine")?,
            step: function("step")?,
            steps: function("steps")?,
            busy: function("busy")?,
            copy16: function("copy16")?,
            kernels_from,
            context,
            _module: module,
        })
    }

    /// Launches a kernel in a stream.
    pub fn launch(
        &self,
        kernel: CUfunction,
        blocks: u32,
        stream: &Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: each caller passes what its kernel takes, and keeps the memory alive until the stream is synchronised.
        unsafe { result::launch_kernel(kernel, (blocks, 1, 1), (THREADS, 1, 1), 0, stream.0, arguments) }
    }

    /// Launches one thread that stores to an unmapped address.
    pub fn launch_stray_store(&self, stream: &Stream) -> Result<(), DriverError> {
        let address = 0x10u64;
        // SAFETY: the store is outside all mapped memory, so it faults, as intended.
        unsafe { result::launch_kernel(self.stray_store, (1, 1, 1), (1, 1, 1), 0, stream.0, &mut [argument(&address)]) }
    }

    /// Keeps one thread busy for a time.
    pub fn launch_busy(&self, stream: &Stream, micros: u64, done: &Memory) -> Result<(), DriverError> {
        let nanoseconds = micros * 1000;
        // SAFETY: `done` holds the one value that is stored.
        unsafe {
            result::launch_kernel(
                self.busy,
                (1, 1, 1),
                (1, 1, 1),
                0,
                stream.0,
                &mut [argument(&nanoseconds), argument(&done.at)],
            )
        }
    }

    pub fn launch_affine(
        &self,
        stream: &Stream,
        y: &Memory,
        x: &Memory,
        a: f32,
        b: f32,
        n: u32,
    ) -> Result<(), DriverError> {
        let mut arguments = [argument(&y.at), argument(&x.at), argument(&a), argument(&b), argument(&n)];
        self.launch(self.affine, blocks(n), stream, &mut arguments)
    }

    /// Runs a kernel on fresh memory with random inputs, and compares every value with the CPU's.
    pub fn computes(&self) -> Attempt {
        let n = 100_003;
        let (a, b) = (fastrand::f32() + 0.5, fastrand::f32());
        let inputs = check::random(n);
        let stream = Stream::new()?;
        let (x, y) = (Memory::of(&inputs)?, Memory::poisoned(n)?);
        self.launch_affine(&stream, &y, &x, a, b, n as u32).map_err(failed("launch"))?;
        stream.synchronize().map_err(failed("stream synchronise"))?;
        let want: Vec<f32> = inputs.iter().map(|&x| a.mul_add(x, b)).collect();
        Ok(check::compare(&y.floats()?, &want, 0.0, 0.0))
    }

    /// The same, but a wrong result is an error.
    pub fn works(&self) -> Result<f64, String> {
        self.computes()?
    }
}

/// Threads per block of the probe's kernels.
pub const THREADS: u32 = 256;

/// The number of blocks for a number of values, one per thread; kernels loop over the rest.
pub fn blocks(n: u32) -> u32 {
    n.div_ceil(THREADS).min(1 << 16)
}

/// Ways to load kernels into a context, in the order in which they are tried.
enum HandleKind {
    Ptx,
    /// Machine code for this device: a driver that is older than NVRTC refuses its PTX.
    Cubin,
    Carried,
}

impl HandleKind {
    fn image(&self, capability: &str) -> Result<(nvrtc::Ptx, String), String> {
        match self {
            Self::Ptx => {
                // Compiled once per process: a rebuilt context reuses the kernels, as in a backend.
                static COMPILED: OnceLock<Result<Compiled, String>> = OnceLock::new();
                let compiled = COMPILED.get_or_init(|| compile(SOURCE, &format!("compute_{capability}"))).as_ref()?;
                let from = format!("NVRTC {}, PTX for compute_{capability}", compiled.version);
                Ok((nvrtc::Ptx::from_src(compiled.ptx.as_str()), from))
            }
            Self::Cubin => {
                let compiled = compile(SOURCE, &format!("sm_{capability}"))?;
                Ok((
                    nvrtc::Ptx::from_binary(compiled.cubin),
                    format!("NVRTC {}, machine code for sm_{capability}", compiled.version),
                ))
            }
            Self::Carried => Ok((nvrtc::Ptx::from_src(CARRIED), "PTX carried in the binary".into())),
        }
    }
}

/// The output of NVRTC.
pub struct Compiled {
    pub ptx: String,
    /// Empty unless compiled for a real architecture.
    pub cubin: Vec<u8>,
    pub version: String,
}

/// Compiles for `compute_NN` or `sm_NN`. Needs no GPU and no driver.
pub fn compile(source: &str, architecture: &str) -> Result<Compiled, String> {
    // SAFETY: loads the library.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("no NVRTC under the names that cudarc looks for".into());
    }
    caught(|| {
        let source = CString::new(source).map_err(|e| e.to_string())?;
        let program = nvrtc::result::create_program(&source, Some(c"probe.cu")).map_err(|e| format!("NVRTC: {e:?}"))?;
        let compiled = (|| {
            // SAFETY: the program was created above and is destroyed below.
            unsafe {
                let option = format!("--gpu-architecture={architecture}");
                nvrtc::result::compile_program(program, &[option]).map_err(|error| {
                    let log = nvrtc::result::get_program_log(program).unwrap_or_default();
                    let log: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
                    format!("NVRTC for {architecture}: {error:?} {}", String::from_utf8_lossy(&log).trim())
                })?;
                let ptx = nvrtc::result::get_ptx(program).map_err(|e| format!("NVRTC's PTX: {e:?}"))?;
                let ptx: Vec<u8> = ptx.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
                let mut size = 0usize;
                nvrtc::sys::nvrtcGetCUBINSize(program, &mut size)
                    .result()
                    .map_err(|e| format!("NVRTC's machine code: {e:?}"))?;
                let mut cubin = vec![0u8; size];
                if size > 0 {
                    nvrtc::sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast())
                        .result()
                        .map_err(|e| format!("NVRTC's machine code: {e:?}"))?;
                }
                let (mut major, mut minor) = (0, 0);
                nvrtc::sys::nvrtcVersion(&mut major, &mut minor)
                    .result()
                    .map_err(|e| format!("NVRTC's version: {e:?}"))?;
                Ok(Compiled {
                    ptx: String::from_utf8_lossy(&ptx).into_owned(),
                    cubin,
                    version: format!("{major}.{minor}"),
                })
            }
        })();
        // SAFETY: created above.
        let _ = unsafe { nvrtc::result::destroy_program(program) };
        compiled
    })
}

/// `gpu-probe compile`: writes PTX, and machine code for real architectures, into a folder.
pub fn compile_all(folder: &Path, architectures: &[&str]) -> Result<(), String> {
    let architectures = if architectures.is_empty() { &["compute_75", "sm_80", "sm_90"] } else { architectures };
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for architecture in architectures {
        let compiled = compile(SOURCE, architecture)?;
        let mut files = vec![(format!("probe.{architecture}.ptx"), compiled.ptx.into_bytes())];
        if !compiled.cubin.is_empty() {
            files.push((format!("probe.{architecture}.cubin"), compiled.cubin));
        }
        for (name, bytes) in files {
            let path = folder.join(name);
            std::fs::write(&path, &bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("{}: {} bytes, NVRTC {}", path.display(), bytes.len(), compiled.version);
        }
    }
    Ok(())
}

/// A handle of cuBLAS on a stream. cudarc's own panics when destroying it fails, as it may once a context is broken.
pub struct Blas(pub cublas::sys::cublasHandle_t);

impl Blas {
    pub fn new(stream: &Stream) -> Result<Self, String> {
        // SAFETY: loads the library.
        if !unsafe { cublas::sys::is_culib_present() } {
            return Err("no cuBLAS under the names that cudarc looks for".into());
        }
        caught(|| {
            let handle = cublas::result::create_handle().map_err(|e| format!("cuBLAS handle: {:?}", e.0))?;
            // SAFETY: both were created in the current context.
            unsafe { cublas::result::set_stream(handle, stream.0.cast()) }
                .map_err(|e| format!("cuBLAS stream: {:?}", e.0))?;
            Ok(Self(handle))
        })
    }

    /// The library's version, as `major * 10000 + minor * 100 + patch`.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the handle lives.
        let _ = unsafe { cublas::sys::cublasGetVersion_v2(self.0, &mut version) };
        version
    }

    /// c = a b for square matrices in row order. cuBLAS uses column order, where that is c' = b' a'.
    pub fn multiply(&self, half: bool, n: usize, a: &Memory, b: &Memory, c: &Memory) -> Result<(), String> {
        use cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType_t};
        let (one, zero, n, none) = (1f32, 0f32, n as i32, cublasOperation_t::CUBLAS_OP_N);
        let done = if half {
            let kind = cudaDataType_t::CUDA_R_16F;
            let (sums, algorithm) = (cublasComputeType_t::CUBLAS_COMPUTE_32F, cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT);
            let (left, right) = (b.at as *const c_void, a.at as *const c_void);
            let (alpha, beta) = (argument(&one), argument(&zero));
            // SAFETY: the memory holds n times n values of the given type; the caller synchronises before it is freed.
            unsafe {
                let out = c.at as *mut c_void;
                cublas::result::gemm_ex(
                    self.0, none, none, n, n, n, alpha, left, kind, n, right, kind, n, beta, out, kind, n, sums,
                    algorithm,
                )
            }
        } else {
            let (left, right) = (b.at as *const f32, a.at as *const f32);
            // SAFETY: as above.
            unsafe {
                cublas::result::sgemm(self.0, none, none, n, n, n, &one, left, n, right, n, &zero, c.at as *mut f32, n)
            }
        };
        done.map_err(|e| format!("cuBLAS: {:?}", e.0))
    }

    /// Multiplies two random matrices and compares with the CPU.
    pub fn computes(&self, stream: &Stream) -> Attempt {
        let n = 96;
        let (left, right) = (check::random(n * n), check::random(n * n));
        let (a, b, c) = (Memory::of(&left)?, Memory::of(&right)?, Memory::poisoned(n * n)?);
        self.multiply(false, n, &a, &b, &c)?;
        stream.synchronize().map_err(failed("stream synchronise"))?;
        Ok(check::product(&c.floats()?, &left, &right, n, n * n, 1e-5, 0.0))
    }

    /// Destroys the handle, and returns errors.
    pub fn destroy(self) -> String {
        // SAFETY: created by `new`; `self` is not dropped, so it happens once.
        let handle = std::mem::ManuallyDrop::new(self).0;
        let destroyed = std::panic::catch_unwind(|| unsafe { cublas::result::destroy_handle(handle) });
        match destroyed {
            Ok(Ok(())) => "success".into(),
            Ok(Err(error)) => format!("{:?}", error.0),
            Err(panic) => panic_text(panic),
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: created by `new` and not destroyed before.
        let _ = unsafe { cublas::result::destroy_handle(self.0) };
    }
}

/// Asks the driver which version of CUDA it supports, as `major * 1000 + minor * 10`.
pub fn driver_version() -> Result<i32, String> {
    driver_present()?;
    caught(|| {
        let mut version = 0;
        // SAFETY: stores one number.
        match unsafe { sys::cuDriverGetVersion(&mut version) } {
            CUresult::CUDA_SUCCESS => Ok(version),
            error => Err(format!("{error:?}")),
        }
    })
}

/// Text that a library returned.
///
/// # Safety
/// `text` is null or ends with a zero and lives as long as the library.
pub unsafe fn text(text: *const std::ffi::c_char) -> String {
    // SAFETY: promised by the caller.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}
