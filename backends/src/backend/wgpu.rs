//! ONNX models on a GPU, through wgpu: Vulkan drivers of every vendor.
//!
//! tract reads and simplifies the model, which is then lowered to a program of kernels for each batch size before the graph starts.
//! A call writes its inputs, submits the program once and reads the outputs back.

mod adapter;
mod device;
mod kernel;
mod loaded;
mod pipelines;
mod program;
mod resident;
mod wgsl;

pub use self::adapter::{GpuAdapter, gpu_adapters};
use self::device::Device;
pub(crate) use self::kernel::{KernelModel, PreparedKernel, WgpuKernel};
use self::loaded::Loaded;
use self::program::BoundProgram;
pub(crate) use self::program::{PreparedProgram, WgpuProgram};
pub(crate) use self::resident::{LONGEST_CALL, WgpuApi, shared_device};
use super::tract::{Given, TractRuntime};
use crate::base::{BackendOptions, elements};
use crate::cache::Compiled;
use crate::device::{Calls, SharedDevice};
use crate::lowering::{Scalar, lower};
use crate::onnx::{Artifact, Call, Deviation, DeviceCalls, Elem, Onnx, Precision, Runner, Runtime, Take};
use limen::backend::{
    BackendError, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, SessionMetadata, Ticket,
};
use limen::message::{DType, Element};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tract_onnx::prelude::DatumType;

/// The backend `wgpu`.
pub type Wgpu = Onnx<WgpuRuntime>;

/// A model that tract has read, and the device that runs it.
pub struct WgpuRuntime(Arc<Model>);

struct Model {
    tract: TractRuntime,
    device: Arc<SharedDevice<WgpuApi>>,
    /// The folder of the cache.
    cache: Option<PathBuf>,
    compiled: Mutex<Compiled>,
}

impl std::fmt::Debug for WgpuRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WgpuRuntime").field(&self.0.device).finish()
    }
}

/// Operators of tract that no device program has: where their inputs are not constant, planning refuses them.
const NOT_LOWERED: &str = "\
    Compress ConvInteger DFT DynamicQuantizeLinear GatherND GridSample LRN MatMulInteger Multinomial NonMaxSuppression \
    NonZero QLinearConv QLinearMatMul RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range STFT Scatter \
    ScatterElements ScatterND TopK";

impl Runtime for WgpuRuntime {
    const NAME: &'static str = "wgpu";
    const COMPILES: bool = true;
    const DEVICE: &'static str = "gpu";
    type Shared = ();
    type Runner = WgpuRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        use DType::*;
        let info = adapter::adapter(options.allow_software)?.get_info();
        let mut found = TractRuntime::probe(options)?;
        let is_gpu = info.device_type != wgpu::DeviceType::Cpu;
        found.devices = is_gpu.then(|| "gpu".into()).into_iter().chain([info.name.clone()]).collect();
        found.dtypes = [F32, F16, I8, U8, I16, U16, I32].into();
        found.version = format!("wgpu 30, {}, {} {}", info.name, info.driver, info.driver_info);
        Ok(found)
    }

    fn rewrites(operator: &str) -> bool {
        TractRuntime::rewrites(operator)
    }

    fn lacks(operator: &str) -> bool {
        NOT_LOWERED.split_whitespace().any(|name| name == operator)
    }

    fn device(options: &BackendOptions) -> Option<String> {
        let info = adapter::adapter(options.allow_software).ok()?.get_info();
        Some(format!("`{}`: {}", info.name, adapter::about(&info)))
    }

    fn deviations() -> &'static [Deviation] {
        TractRuntime::deviations()
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let device = shared_device(options.allow_software);
        device.api()?;
        let tract = TractRuntime::load(artifact, options)?;
        let (cache, compiled) = (options.cache.clone(), Mutex::default());
        Ok(WgpuRuntime(Arc::new(Model { tract, device, cache, compiled })))
    }

    fn compiled(&self) -> Option<Compiled> {
        Some(self.0.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn share(&self, _: &Call) -> Result<(), BackendError> {
        Ok(())
    }

    fn runner(&self, (): &(), call: &Call) -> Result<WgpuRunner, BackendError> {
        let n = call.inputs.len();
        if n > MAX_INPUTS {
            return Err(BackendError::Unsupported(format!(
                "the model has {n} inputs and states; at most {MAX_INPUTS}"
            )));
        }
        let (generation, api) = self.0.device.api()?;
        if call.precision == Precision::F16 && !api.device.has_halves {
            let name = &api.device.info.name;
            return Err(BackendError::Unsupported(format!(
                "`{name}` has no fractions of 16 bits for `precision: f16`"
            )));
        }
        let varies = call.inputs.iter().any(|input| input.varies.contains(&true));
        let elems = call.inputs.iter().map(|input| input.elem).collect();
        let mut runner = WgpuRunner {
            device: None,
            calls: Calls::new(self.0.device.clone()),
            model: self.0.clone(),
            given: call.inputs.iter().map(|input| Given::of(input, 1)).collect(),
            plans: Vec::new(),
            kept: call.plans.max(call.batches.len()).max(1),
            varies,
            precision: call.precision,
            elems,
            wide: vec![Vec::new(); call.inputs.len()],
            narrow: Vec::new(),
        };
        runner.reside(generation, &api.device);
        for batch in &call.batches {
            runner.prepare(call.inputs.iter().map(|input| input.shape(*batch)).collect())?;
        }
        Ok(runner)
    }
}

/// A program for calls of one shape.
struct Prepared {
    /// The shapes of its inputs.
    shapes: Vec<Vec<usize>>,
    bound: BoundProgram,
    /// The types of the model's outputs.
    outputs: Vec<DatumType>,
}

/// A model on one thread, with programs for some shapes.
pub struct WgpuRunner {
    model: Arc<Model>,
    /// The device that `plans` were made for, and its generation.
    device: Option<(u32, Arc<Device>)>,
    calls: Calls<WgpuApi>,
    /// Its inputs, with the values of constant ones.
    given: Vec<Given>,
    /// The most recently used last.
    plans: Vec<Prepared>,
    /// How many are kept.
    kept: usize,
    /// Whether shapes may differ from call to call.
    varies: bool,
    precision: Precision,
    elems: Vec<Elem>,
    /// The inputs as the device has them, where that differs.
    wide: Vec<Vec<u32>>,
    /// An output as its port has it, where that differs.
    narrow: Vec<u8>,
}

impl std::fmt::Debug for WgpuRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shapes: Vec<_> = self.plans.iter().map(|plan| &plan.shapes).collect();
        f.debug_struct("WgpuRunner").field("shapes", &shapes).finish_non_exhaustive()
    }
}

impl WgpuRunner {
    /// Forgets what was made for another device than this.
    fn reside(&mut self, generation: u32, device: &Arc<Device>) {
        if self.device.as_ref().is_none_or(|(of, _)| *of != generation) {
            self.plans.clear();
            self.device = Some((generation, device.clone()));
        }
    }

    /// Lowers the model for calls of a shape and makes the first call, in which drivers generate code.
    fn prepare(&mut self, shapes: Vec<Vec<usize>>) -> Result<(), BackendError> {
        let given = std::iter::zip(&self.given, &shapes);
        let given: Vec<Given> = given.map(|(given, shape)| given.with_shape(shape)).collect();
        let model = self.model.tract.typed(&given)?;
        let mut program = lower(&model).map_err(BackendError::Unsupported)?;
        if self.precision == Precision::F16 {
            program.halve();
        }
        let outlets = model.output_outlets().map_err(BackendError::call)?.iter();
        let outputs = outlets.map(|outlet| Ok(model.outlet_fact(*outlet).map_err(BackendError::call)?.datum_type));
        let outputs = outputs.collect::<Result<_, BackendError>>()?;
        let (_, device) = self.device.as_ref().ok_or_else(|| BackendError::Call("no device is open".into()))?;
        let bound = BoundProgram::new(device, program, self.model.cache.as_deref())?;
        self.model.compiled.lock().unwrap_or_else(PoisonError::into_inner).add(&bound.loaded.compiled);
        while self.plans.len() >= self.kept {
            self.plans.remove(0);
        }
        self.plans.push(Prepared { shapes, bound, outputs });
        Ok(())
    }

    /// Returns the place of the program for these inputs.
    fn plan(&mut self, inputs: &[BatchRef<'_>]) -> Result<usize, BackendError> {
        let fits = |plan: &Prepared| plan.shapes.iter().map(Vec::as_slice).eq(inputs.iter().map(|input| input.shape));
        if let Some(at) = self.plans.iter().position(fits) {
            let plan = self.plans.remove(at);
            self.plans.push(plan);
            return Ok(self.plans.len() - 1);
        }
        if !self.varies {
            let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
            return Err(BackendError::Call(format!("nothing was compiled for inputs of {shapes:?}")));
        }
        self.prepare(inputs.iter().map(|input| input.shape.to_vec()).collect())?;
        Ok(self.plans.len() - 1)
    }
}

impl Runner for WgpuRunner {
    fn run(&mut self, _: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        // One that was lost is opened again.
        let (generation, api) = self.model.device.api()?;
        let is_new = self.device.as_ref().is_none_or(|(of, _)| *of != generation);
        self.reside(generation, &api.device);
        if is_new && self.plans.is_empty() {
            self.prepare(inputs.iter().map(|input| input.shape.to_vec()).collect())?;
        }
        let at = self.plan(inputs)?;
        let WgpuRunner { plans, elems, wide, narrow, .. } = self;
        let Prepared { bound: BoundProgram { program, loaded, .. }, outputs, .. } = &plans[at];
        for ((input, elem), wide) in std::iter::zip(inputs, elems.iter()).zip(wide.iter_mut()) {
            widen(input, *elem, wide)?;
        }
        let given = std::iter::zip(inputs, wide.iter());
        let given: arrayvec::ArrayVec<&[u8], MAX_INPUTS> =
            given.map(|(input, wide)| if wide.is_empty() { input.bytes } else { bytemuck::cast_slice(wide) }).collect();
        for (array, given) in std::iter::zip(&program.inputs, &given) {
            if program.arrays[*array].words() * 4 != given.len() {
                return Err(BackendError::Call(format!("an input has {} bytes", given.len())));
            }
        }
        loaded.run(&given, &mut |at, bytes| {
            let (array, shape) = &program.outputs[at];
            // A buffer is never empty, an output may be.
            let bytes = &bytes[..program.arrays[*array].len * 4];
            let scalar = program.arrays[*array].scalar;
            give(at, outputs[at], scalar, shape, bytes, narrow, take)
        })
    }

    fn on_device(&mut self) -> Option<&mut dyn DeviceCalls> {
        Some(self)
    }

    fn metadata(&self) -> SessionMetadata {
        let sum = |of: fn(&Loaded) -> u64| self.plans.iter().map(|plan| of(&plan.bound.loaded)).sum();
        SessionMetadata {
            device: self.device.as_ref().map(|(_, device)| device.info.name.clone()).unwrap_or_default(),
            threads: 1,
            memory: sum(|loaded| loaded.memory),
            ..SessionMetadata::default()
        }
    }
}

impl WgpuRunner {
    /// Returns the shapes of a call with one item.
    fn item_shapes(&self) -> Vec<Vec<usize>> {
        self.given.iter().map(|given| given.shape().to_vec()).collect()
    }

    /// Returns the place of the program for one item, on this device.
    fn item_plan(&mut self, generation: u32, device: &Arc<Device>) -> Result<usize, BackendError> {
        self.reside(generation, device);
        let shapes = self.item_shapes();
        if let Some(at) = self.plans.iter().position(|plan| plan.shapes == shapes) {
            return Ok(at);
        }
        self.prepare(shapes)?;
        Ok(self.plans.len() - 1)
    }
}

impl DeviceCalls for WgpuRunner {
    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        // Apart while the rest is borrowed.
        let none = Calls::new(self.model.device.clone());
        let mut calls = std::mem::replace(&mut self.calls, none);
        let enqueued = calls.enqueue(call.inputs, call.outputs, false, |on| {
            let at = self.item_plan(on.generation, &on.api.device)?;
            self.plans[at].bound.encode(on, call)
        });
        self.calls = calls;
        enqueued
    }

    fn enqueued(&mut self) -> &mut dyn EnqueuedCalls {
        &mut self.calls
    }
}

/// Inputs and states of a call; the list of them is kept on the stack.
const MAX_INPUTS: usize = 64;

/// Converts an input to the elements of the device; `wide` stays empty if it has them already.
fn widen(input: &BatchRef<'_>, elem: Elem, wide: &mut Vec<u32>) -> Result<(), BackendError> {
    fn all<T: Element>(bytes: &[u8], wide: &mut Vec<u32>, bits: impl Fn(T) -> u32) -> Result<(), BackendError> {
        wide.extend(elements::<T>(bytes)?.iter().map(|value| bits(*value)));
        Ok(())
    }
    wide.clear();
    let bytes = input.bytes;
    match elem {
        Elem::F32 | Elem::F64 | Elem::I32 | Elem::I64 => Ok(()),
        Elem::F16 => all(bytes, wide, |v: half::f16| v.to_f32().to_bits()),
        // As they are, in whole words.
        Elem::U8 if bytes.len().is_multiple_of(4) => Ok(()),
        Elem::U8 => {
            wide.resize(bytes.len().div_ceil(4), 0);
            bytemuck::cast_slice_mut(wide)[..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        Elem::I8 => all(bytes, wide, |v: i8| i32::from(v) as u32),
        Elem::U16 => all(bytes, wide, |v: u16| u32::from(v)),
        Elem::I16 => all(bytes, wide, |v: i16| i32::from(v) as u32),
        Elem::Bool => all(bytes, wide, |v: i32| u32::from(v != 0)),
        Elem::U32 | Elem::U64 | Elem::BF16 => {
            Err(BackendError::Unsupported(format!("elements of type {}", elem.dtype().name())))
        }
    }
}

/// Passes an output on, as its port carries it.
fn give(
    at: usize,
    dtype: DatumType,
    scalar: Scalar,
    shape: &[usize],
    bytes: &[u8],
    narrow: &mut Vec<u8>,
    take: &mut Take<'_>,
) -> Result<(), BackendError> {
    fn all<T: bytemuck::NoUninit>(bytes: &[u8], narrow: &mut Vec<u8>, to: impl Fn(u32) -> T) {
        narrow.clear();
        for word in bytes.chunks_exact(4) {
            narrow.extend_from_slice(bytemuck::bytes_of(&to(bytemuck::pod_read_unaligned(word))));
        }
    }
    let own = match dtype {
        DatumType::F16 => {
            all(bytes, narrow, |bits| half::f16::from_f32(f32::from_bits(bits)));
            DType::F16
        }
        DatumType::U8 => {
            all(bytes, narrow, |bits| bits as u8);
            DType::U8
        }
        DatumType::I8 => {
            all(bytes, narrow, |bits| bits as i8);
            DType::I8
        }
        DatumType::U16 => {
            all(bytes, narrow, |bits| bits as u16);
            DType::U16
        }
        DatumType::I16 => {
            all(bytes, narrow, |bits| bits as i16);
            DType::I16
        }
        _ => {
            let dtype = if scalar == Scalar::F32 { DType::F32 } else { DType::I32 };
            return take(at, BatchRef { dtype, shape, bytes });
        }
    };
    take(at, BatchRef { dtype: own, shape, bytes: narrow })
}

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod tests;
