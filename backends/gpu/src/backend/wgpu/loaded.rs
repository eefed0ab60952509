//! A program on a device: its buffers, pipelines and bindings are made once, and a call writes
//! inputs, submits, and reads back.

use super::device::Device;
use super::pipelines::Pipelines;
use super::wgsl::Wgsl;
use crate::backend::program::ReadOutput;
use crate::base::LONGEST_CALL;
use crate::lowering::{Program, Shader, Source, Width, shader};
use limen::backend::BackendError;
use limen_infer::Compiled;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use wgpu::{BindGroup, BindGroupLayout, Buffer, BufferUsages, CommandEncoder, ComputePipeline, PipelineCache};

/// A program that is ready for calls.
pub(super) struct Loaded {
    device: Arc<Device>,
    inputs: Vec<Buffer>,
    dispatches: Vec<Dispatch>,
    /// The buffer of each array.
    arrays: Vec<Buffer>,
    /// The outputs, and where each begins in `readback`.
    outputs: Vec<(Buffer, u64)>,
    readback: Buffer,
    mapping: Arc<Mapping>,
    /// Where kernels that may fail write their number, and their names.
    faults: Option<(Buffer, Arc<[String]>)>,
    /// Bytes on the device.
    pub(super) memory: u64,
    /// What the driver compiled, and what was kept of an earlier start.
    pub(super) compiled: Compiled,
}

/// A kernel that is ready to run.
struct Dispatch {
    pipeline: ComputePipeline,
    layout: BindGroupLayout,
    /// The arrays of its bindings, and whether the buffer of faults is bound behind them.
    arrays: Vec<usize>,
    exact: bool,
    bindings: BindGroup,
    groups: [u32; 3],
}

/// The bindings of a call whose inputs and outputs are in other buffers: by dispatch.
pub(super) type Rebound = Vec<(usize, BindGroup)>;

/// Whether the readback buffer of a call is mapped. The callback of a call runs on whichever thread
/// polls the device, so another thread's poll may take it, and run it after the poll of the call
/// itself has returned.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    result: Mutex<Option<bool>>,
    is_known: Condvar,
}

impl Mapping {
    pub(super) fn begin(&self) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn end(&self, is_mapped: bool) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(is_mapped);
        self.is_known.notify_all();
    }

    /// Waits until the callback has run, and returns whether the buffer is mapped; `None` after
    /// `longest`.
    pub(super) fn wait(&self, longest: Duration) -> Option<bool> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_known.wait_timeout_while(result, longest, |result| result.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What failed, if it is not known which kernel did.
pub(super) const UNKNOWN_FAULT: &str = "a result of an operator does not fit 32 bits";

/// The bytes of an array; no buffer is empty.
fn bytes(len: usize) -> u64 {
    (len as u64 * 4).max(4)
}

impl Loaded {
    /// Prepares a program for calls on a device. Its pipelines are kept in the folder of a cache.
    ///
    /// # Errors
    /// What the device lacks.
    pub(super) fn new(
        device: &Arc<Device>,
        program: &Program,
        width: Width,
        cache: Option<&Path>,
    ) -> Result<Loaded, BackendError> {
        let unsupported = |why: String| BackendError::Unsupported(format!("{}: {why}", device.info.name));
        check_sizes(device, program).map_err(unsupported)?;
        let shaders = shaders(device, program, width).map_err(unsupported)?;
        let texts: Vec<&str> = shaders.iter().map(|shader| &*shader.text).collect();
        let made = device.scoped(|| {
            let pipelines = Pipelines::of(device, cache, &texts);
            let mut made = make(device, program, &shaders, pipelines.cache.as_ref());
            made.compiled = pipelines.keep();
            made
        });
        let made = made.map_err(unsupported)?;
        device.check()?;
        Ok(made)
    }

    /// Runs the program on the bytes of its inputs; `read` takes those of its outputs.
    ///
    /// # Errors
    /// When the device or a kernel fails, or `read`.
    pub(super) fn run(&self, inputs: &[&[u8]], read: &mut ReadOutput<'_>) -> Result<(), BackendError> {
        self.call(inputs, &mut |view| {
            if let Some((_, names)) = &self.faults {
                let number: u32 = bytemuck::pod_read_unaligned(&view[view.len() - 4..]);
                if let Some(name) = (number as usize).checked_sub(1).map(|at| names.get(at)) {
                    return Err(BackendError::Call(name.cloned().unwrap_or_else(|| UNKNOWN_FAULT.into())));
                }
            }
            let mut parts = self.outputs.iter().enumerate();
            parts.try_for_each(|(at, (output, begin))| {
                let begin = *begin as usize;
                read(at, &view[begin..begin + output.size() as usize])
            })
        })
    }

    /// Makes the first call, in which drivers generate code. A model need not take these inputs, so
    /// the outputs do not matter.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn warm_up(&self, inputs: &[&[u8]]) -> Result<(), BackendError> {
        self.call(inputs, &mut |_| Ok(()))
    }

    /// Runs the program and passes the bytes of the readback buffer on.
    fn call(
        &self,
        inputs: &[&[u8]],
        read: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.device.check()?;
        // In a scope of this thread: errors that arrive at the device's handler may be taken by a
        // call of another thread.
        let submitted = self.device.scoped(|| self.submit(inputs));
        let submission = submitted.map_err(|why| BackendError::Call(format!("{}: {why}", self.device.info.name)))?;
        self.mapping.begin();
        let mapping = self.mapping.clone();
        let all = self.readback.slice(..);
        all.map_async(wgpu::MapMode::Read, move |result| mapping.end(result.is_ok()));
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(LONGEST_CALL) };
        let is_mapped = match self.device.device.poll(wait) {
            Ok(_) => self.mapping.wait(LONGEST_CALL).ok_or("the outputs were not mapped".to_string()),
            Err(error) => Err(error.to_string()),
        };
        // A callback that comes later would be taken for that of the next call: no call follows.
        let is_mapped = is_mapped.unwrap_or_else(|why| {
            self.device.lose(format!("a call did not finish: {why}"));
            false
        });
        let checked = self.device.check();
        if !is_mapped {
            checked?;
            return Err(BackendError::Call("the outputs could not be read".into()));
        }
        let given = checked.and_then(|()| read(&all.get_mapped_range().map_err(BackendError::call)?));
        self.readback.unmap();
        given
    }

    /// Writes the inputs and submits the program.
    fn submit(&self, inputs: &[&[u8]]) -> wgpu::SubmissionIndex {
        let Device { device, queue, .. } = &*self.device;
        for (buffer, bytes) in std::iter::zip(&self.inputs, inputs) {
            queue.write_buffer(buffer, 0, bytes);
        }
        let mut encoder = device.create_command_encoder(&Default::default());
        self.encode(&mut encoder, &Vec::new());
        for (output, at) in &self.outputs {
            encoder.copy_buffer_to_buffer(output, 0, &self.readback, *at, output.size());
        }
        if let Some((fault, _)) = &self.faults {
            encoder.copy_buffer_to_buffer(fault, 0, &self.readback, self.readback.size() - fault.size(), fault.size());
        }
        queue.submit([encoder.finish()])
    }

    /// Encodes the program, with other bindings for some dispatches.
    pub(super) fn encode(&self, encoder: &mut CommandEncoder, rebound: &Rebound) {
        if let Some((fault, _)) = &self.faults {
            encoder.clear_buffer(fault, 0, None);
        }
        let mut others = rebound.iter().peekable();
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for (at, Dispatch { pipeline, bindings, groups, .. }) in self.dispatches.iter().enumerate() {
            let other = others.next_if(|(dispatch, _)| *dispatch == at);
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, other.map_or(bindings, |(_, other)| other), &[]);
            pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
        }
    }

    /// Binds other buffers to some arrays.
    pub(super) fn rebind(&self, buffers: &[(usize, &Buffer)]) -> Rebound {
        let buffer = |array: usize| {
            let other = buffers.iter().find(|(other, _)| *other == array);
            other.map_or(&self.arrays[array], |(_, buffer)| *buffer)
        };
        let is_other =
            |dispatch: &Dispatch| dispatch.arrays.iter().any(|at| buffers.iter().any(|(other, _)| other == at));
        let rebound = self.dispatches.iter().enumerate().filter(|(_, dispatch)| is_other(dispatch));
        let bind = |(at, dispatch): (usize, &Dispatch)| {
            let fault = self.faults.as_ref().map(|(fault, _)| fault).filter(|_| dispatch.exact);
            let bound = dispatch.arrays.iter().map(|array| buffer(*array)).chain(fault);
            (at, bind(&self.device.device, &dispatch.layout, bound))
        };
        rebound.map(bind).collect()
    }

    /// Where kernels that may fail write their number, and their names.
    pub(super) fn faults(&self) -> Option<&(Buffer, Arc<[String]>)> {
        self.faults.as_ref()
    }
}

/// Binds buffers in their order.
fn bind<'a>(api: &wgpu::Device, layout: &BindGroupLayout, buffers: impl Iterator<Item = &'a Buffer>) -> BindGroup {
    let entries: Vec<_> = buffers
        .enumerate()
        .map(|(at, buffer)| wgpu::BindGroupEntry { binding: at as u32, resource: buffer.as_entire_binding() })
        .collect();
    api.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
}

/// Compares the arrays with what the adapter can hold.
fn check_sizes(device: &Device, program: &Program) -> Result<(), String> {
    let limits = &device.limits;
    let most = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size).min(i32::MAX as u64);
    let largest = program.arrays.iter().map(|array| bytes(array.words())).max().unwrap_or(0);
    if largest > most {
        return Err(format!("a tensor must have at most {most} bytes on this adapter, got {largest}"));
    }
    Ok(())
}

fn shaders(device: &Device, program: &Program, width: Width) -> Result<Vec<Shader>, String> {
    let limits = &device.limits;
    let kernels = program.kernels.iter().filter(|kernel| kernel.len() > 0);
    let written = kernels.enumerate().map(|(at, kernel)| {
        let refused = |why: String| format!("operator {}: {why}", kernel.name);
        let shader = shader(&Wgsl, program, kernel, at + 1, width).map_err(refused)?;
        let most = limits.max_storage_buffers_per_shader_stage as usize;
        let bound = shader.arrays.len() + usize::from(shader.exact);
        if shader.turns > device.most_turns {
            let (turns, most) = (shader.turns, device.most_turns);
            return Err(refused(format!(
                "a loop must have at most {most} iterations with this driver, got {turns}: install Mesa 25 or later"
            )));
        }
        if bound > most {
            return Err(refused(format!("a kernel must have at most {most} buffers on this adapter, got {bound}")));
        }
        Ok(shader)
    });
    written.collect()
}

fn make(device: &Arc<Device>, program: &Program, shaders: &[Shader], cache: Option<&PipelineCache>) -> Loaded {
    let Device { device: api, queue, .. } = &**device;
    let buffer = |len: usize, usage: BufferUsages| {
        api.create_buffer(&wgpu::BufferDescriptor { label: None, size: bytes(len), usage, mapped_at_creation: false })
    };
    let mut memory = 0;
    let plan = program.memory();
    let shared: Vec<Buffer> = plan.buffers.iter().map(|len| buffer(*len, BufferUsages::STORAGE)).collect();
    memory += shared.iter().map(Buffer::size).sum::<u64>();
    let arrays: Vec<Buffer> = std::iter::zip(&program.arrays, &plan.of)
        .map(|(array, of)| {
            if let Some(of) = of {
                return shared[*of].clone();
            }
            let own = buffer(array.words(), BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC);
            match &array.source {
                Source::Constant(bits) if array.is_half => {
                    let mut halves: Vec<half::f16> =
                        bits.iter().map(|bits| half::f16::from_f32(f32::from_bits(*bits))).collect();
                    halves.resize(array.words() * 2, half::f16::ZERO);
                    queue.write_buffer(&own, 0, bytemuck::cast_slice(&halves));
                }
                Source::Constant(bits) => queue.write_buffer(&own, 0, bytemuck::cast_slice(bits)),
                _ => {}
            }
            memory += own.size();
            own
        })
        .collect();
    let fault = buffer(1, BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC);
    let mut pipelines: HashMap<&str, ComputePipeline> = HashMap::new();
    let mut layouts: HashMap<(usize, bool), (wgpu::BindGroupLayout, wgpu::PipelineLayout)> = HashMap::new();
    let mut dispatches = Vec::new();
    for shader in shaders {
        let form = (shader.arrays.len(), shader.exact);
        let (bindings, layout) = &*layouts.entry(form).or_insert_with(|| layout(api, form));
        let pipeline = pipelines.entry(&shader.text).or_insert_with(|| {
            let source = wgpu::ShaderSource::Wgsl(shader.text.as_str().into());
            let module = api.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
            api.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache,
            })
        });
        let bound = shader.arrays.iter().map(|array| &arrays[*array]).chain(shader.exact.then_some(&fault));
        let made = bind(api, bindings, bound);
        dispatches.push(Dispatch {
            pipeline: pipeline.clone(),
            layout: bindings.clone(),
            arrays: shader.arrays.clone(),
            exact: shader.exact,
            bindings: made,
            groups: shader.groups,
        });
    }
    let mut outputs = Vec::new();
    let mut end = 0;
    for (array, _) in &program.outputs {
        outputs.push((arrays[*array].clone(), end));
        end += arrays[*array].size();
    }
    let kernels = program.kernels.iter().filter(|kernel| kernel.len() > 0);
    let faults = shaders.iter().any(|shader| shader.exact).then(|| {
        end += fault.size();
        (fault, kernels.map(|kernel| kernel.fault()).collect())
    });
    let readback = buffer((end / 4) as usize, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    memory += readback.size();
    let inputs = program.inputs.iter().map(|array| arrays[*array].clone()).collect();
    Loaded {
        device: device.clone(),
        inputs,
        dispatches,
        arrays,
        outputs,
        readback,
        mapping: Arc::default(),
        faults,
        memory,
        compiled: Compiled::default(),
    }
}

/// The layout of `count` buffers, of which the last one is written, and of the buffer of faults
/// behind them.
fn layout(api: &wgpu::Device, (count, exact): (usize, bool)) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let entry = |at: usize| wgpu::BindGroupLayoutEntry {
        binding: at as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: at + 1 < count },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = (0..count + usize::from(exact)).map(entry).collect();
    let bindings = api.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let layout = api.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bindings)],
        immediate_size: 0,
    });
    (bindings, layout)
}
