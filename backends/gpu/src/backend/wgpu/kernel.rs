//! Kernels of a graph on wgpu.

use super::device::one_line;
use super::pipelines::Pipelines;
use super::resident::WgpuApi;
use crate::device::{Api, SessionCalls, SharedDevice, buffer_of};
use crate::kernel::Interface;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, Ticket,
};
use limen::message::PortSpec;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wgpu::{BindGroup, Buffer, BufferUsages, CommandEncoder, ComputePipeline, PollType};

/// A shader with everything that is known while planning.
#[derive(Clone, Debug)]
pub(crate) struct KernelModel {
    pub(crate) source: Arc<str>,
    pub(crate) interface: Interface,
    /// The values of its constants.
    pub(crate) constants: Vec<(String, f64)>,
    pub(crate) groups: [u32; 3],
    pub(crate) signature: Signature,
    /// Outputs that begin as a copy of an input, by their numbers.
    pub(crate) in_place: Vec<(usize, usize)>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) device: Arc<SharedDevice<WgpuApi>>,
    /// The folder of the cache.
    pub(crate) cache: Option<PathBuf>,
}

/// The backend of kernels.
#[derive(Debug)]
pub(crate) struct WgpuKernel;

impl Backend for WgpuKernel {
    const NAME: &'static str = "wgpu";
    type Model = KernelModel;
    type Prepared = PreparedKernel;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("wgpu 30", Vec::new(), Ops::Unlisted))
    }

    fn prepare(model: KernelModel) -> Result<PreparedKernel, BackendError> {
        let (_, api) = model.device.api()?;
        let limits = &api.device.limits;
        let most = limits.max_compute_workgroups_per_dimension;
        if let Some(groups) = model.groups.iter().find(|groups| **groups > most) {
            let why = format!("`grid` must be at most {most} along each dim on this adapter, got {groups}");
            return Err(BackendError::Unsupported(why));
        }
        // Compiled here to find out whether it can be.
        Compiled::new(0, &api, &model)?;
        Ok(PreparedKernel { model: Arc::new(model) })
    }
}

/// A kernel that compiles.
#[derive(Debug)]
pub(crate) struct PreparedKernel {
    model: Arc<KernelModel>,
}

impl PreparedKernel {
    /// Returns the device that it runs on.
    pub(crate) fn device(&self) -> Arc<SharedDevice<WgpuApi>> {
        self.model.device.clone()
    }
}

impl Prepared for PreparedKernel {
    type Session = KernelSession;

    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn session(&self, _: usize) -> Result<KernelSession, BackendError> {
        let device = self.model.device.clone();
        let (generation, api) = device.api()?;
        let compiled = Compiled::new(generation, &api, &self.model)?;
        let calls = SessionCalls::new(device.clone());
        let spare = vec![None; self.model.signature.outputs.len()];
        let model = self.model.clone();
        Ok(KernelSession { model, device, calls, compiled, bound: Vec::new(), spare })
    }
}

/// A kernel compiled for one generation of the device.
struct Compiled {
    generation: u32,
    pipeline: ComputePipeline,
}

impl Compiled {
    fn new(generation: u32, api: &WgpuApi, model: &KernelModel) -> Result<Self, BackendError> {
        let device = &api.device.device;
        let constants: Vec<(&str, f64)> = model.constants.iter().map(|(name, value)| (&**name, *value)).collect();
        let made = api.device.scoped(|| {
            let of = [&*model.source, &*model.interface.entry, &format!("{:?}", model.constants)];
            let pipelines = Pipelines::of(&api.device, model.cache.as_deref(), &of);
            let source = wgpu::ShaderSource::Wgsl((&*model.source).into());
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
            let made = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some(&model.interface.entry),
                compilation_options: wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() },
                cache: pipelines.cache.as_ref(),
            });
            pipelines.keep();
            made
        });
        let pipeline = made.map_err(|why| BackendError::Unsupported(one_line(&why)))?;
        Ok(Compiled { generation, pipeline })
    }

    /// Binds the buffers of the ports, by binding number.
    fn bind(&self, api: &WgpuApi, model: &KernelModel, buffers: &[Arc<Buffer>]) -> Result<BindGroup, BackendError> {
        let entry = |(binding, at): (u32, usize)| {
            Some(wgpu::BindGroupEntry { binding, resource: buffers.get(at)?.as_entire_binding() })
        };
        let entries: Vec<_> = model.bindings().filter_map(entry).collect();
        let layout = self.pipeline.get_bind_group_layout(0);
        let of = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        api.device.scoped(|| api.device.device.create_bind_group(&of)).map_err(BackendError::Call)
    }
}

impl KernelModel {
    /// The bindings of its ports that are variables, with the number of the port, inputs first.
    fn bindings(&self) -> impl Iterator<Item = (u32, usize)> {
        let ports = self.signature.inputs.iter().chain(&self.signature.outputs);
        ports.enumerate().filter_map(|(at, port)| {
            let variable = self.interface.variables.iter().find(|variable| variable.name == port.name)?;
            Some((variable.binding, at))
        })
    }

    /// Encodes a call with the buffers of its ports. Outputs are zeros before, as a shader need not
    /// write every element, or a copy of an input.
    fn dispatch(&self, compiled: &Compiled, bound: &BindGroup, buffers: &[Arc<Buffer>], encoder: &mut CommandEncoder) {
        let (inputs, outputs) = buffers.split_at(self.signature.inputs.len().min(buffers.len()));
        for (at, output) in outputs.iter().enumerate() {
            match self.in_place.iter().find(|(to, _)| *to == at).and_then(|(_, from)| inputs.get(*from)) {
                Some(input) => encoder.copy_buffer_to_buffer(input, 0, output, 0, output.size().min(input.size())),
                None => encoder.clear_buffer(output, 0, None),
            }
        }
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&compiled.pipeline);
        pass.set_bind_group(0, bound, &[]);
        pass.dispatch_workgroups(self.groups[0], self.groups[1], self.groups[2]);
    }
}

/// As many sets of bindings are kept.
const MAX_BOUND: usize = 1024;

/// A kernel on one thread.
pub(crate) struct KernelSession {
    model: Arc<KernelModel>,
    device: Arc<SharedDevice<WgpuApi>>,
    calls: SessionCalls<WgpuApi>,
    compiled: Compiled,
    /// Bindings, by buffers.
    bound: Vec<(Vec<Arc<Buffer>>, BindGroup)>,
    /// Where outputs go that nothing takes.
    spare: Vec<Option<Arc<Buffer>>>,
}

impl Session for KernelSession {
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
        let (device, queue) = (&api.device.device, &api.device.queue);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let buffer = |len: usize, usage: BufferUsages| {
            let size = (len.max(4) as u64).next_multiple_of(4);
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let mut buffers: Vec<Arc<Buffer>> = Vec::new();
        for input in inputs {
            let made = buffer(input.bytes.len(), usage);
            let mut bytes = input.bytes.to_vec();
            bytes.resize(made.size() as usize, 0);
            queue.write_buffer(&made, 0, &bytes);
            buffers.push(Arc::new(made));
        }
        buffers.extend(outputs.iter().map(|output| Arc::new(buffer(output.bytes.len(), usage))));
        let bound = self.compiled.bind(&api, &self.model, &buffers)?;
        let readbacks: Vec<Buffer> = outputs
            .iter()
            .map(|output| buffer(output.bytes.len(), BufferUsages::MAP_READ | BufferUsages::COPY_DST))
            .collect();
        let submitted = api.device.scoped(|| {
            let mut encoder = device.create_command_encoder(&Default::default());
            self.model.dispatch(&self.compiled, &bound, &buffers, &mut encoder);
            for (from, to) in std::iter::zip(&buffers[inputs.len()..], &readbacks) {
                encoder.copy_buffer_to_buffer(from, 0, to, 0, to.size());
            }
            let submission = queue.submit([encoder.finish()]);
            readbacks.iter().for_each(|readback| readback.slice(..).map_async(wgpu::MapMode::Read, |_| ()));
            submission
        });
        let submission = submitted.map_err(BackendError::Call)?;
        let timeout = Some(self.model.time_limit.unwrap_or(crate::base::LONGEST_CALL));
        let wait = PollType::Wait { submission_index: Some(submission), timeout };
        device.poll(wait).map_err(BackendError::call)?;
        api.device.check()?;
        for (readback, output) in std::iter::zip(&readbacks, outputs) {
            let view = readback.slice(..).get_mapped_range().map_err(BackendError::call)?;
            output.bytes.copy_from_slice(&view[..output.bytes.len()]);
        }
        Ok(())
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let KernelSession { model, calls, compiled, bound, spare, .. } = self;
        calls.enqueue(call.inputs, call.outputs, false, |on| {
            if compiled.generation != on.generation {
                *compiled = Compiled::new(on.generation, on.api, model)?;
                bound.clear();
                spare.fill(None);
            }
            let mut buffers = Vec::with_capacity(call.inputs.len() + call.outputs.len());
            for input in call.inputs {
                let tensor = input.on_device().ok_or(BackendError::InputLost)?;
                buffers.push(buffer_of::<WgpuApi>(&tensor)?.0);
            }
            for (at, (output, spare)) in std::iter::zip(call.outputs, &mut *spare).enumerate() {
                buffers.push(match (output, &spare) {
                    (Some(tensor), _) => buffer_of::<WgpuApi>(tensor)?.0,
                    (None, Some(spare)) => spare.clone(),
                    (None, None) => {
                        let of = &model.signature.outputs[at];
                        let bytes = PortSpec::new(of.dtype, of.shape.iter().cloned()).max_bytes().unwrap_or(0);
                        spare.insert(Arc::new(on.api.buffer(bytes.max(4).next_multiple_of(4))?)).clone()
                    }
                });
            }
            let same = |known: &[Arc<Buffer>]| {
                std::iter::zip(known, &buffers).all(|(known, buffer)| Arc::ptr_eq(known, buffer))
            };
            let at = match bound.iter().position(|(known, _)| same(known)) {
                Some(at) => at,
                None => {
                    let made = compiled.bind(on.api, model, &buffers)?;
                    if bound.len() >= MAX_BOUND {
                        bound.swap_remove(0);
                    }
                    bound.push((buffers, made));
                    bound.len() - 1
                }
            };
            let (buffers, bindings) = &bound[at];
            on.stream.time_limit = model.time_limit;
            model.dispatch(compiled, bindings, buffers, on.stream.encoder(&on.api.device));
            Ok(())
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn metadata(&self) -> SessionMetadata {
        SessionMetadata { device: "wgpu".into(), threads: 1, ..SessionMetadata::default() }
    }
}
