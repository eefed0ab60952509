//! Programs whose calls take and give messages in the memory of the device.

use super::device::Device;
use super::loaded::{Loaded, Rebound};
use super::resident::{WgpuApi, shared_device};
use crate::backend::program::{MadeProgram, ProgramDevice, ReadOutput};
use crate::device::{Enqueue, SharedDevice, buffer_of};
use crate::lowering::Program;
use arrayvec::ArrayVec;
use limen::backend::{BackendError, DeviceCall};
use limen::node::MAX_PORTS;
use limen_infer::BackendOptions;
use limen_infer::Compiled;
use limen_infer::onnx::Precision;
use std::path::Path;
use std::sync::Arc;
use wgpu::Buffer;

/// The buffers of a call, inputs first; `None` for an output that nothing takes.
type CallBuffers = ArrayVec<Option<Arc<Buffer>>, { 2 * MAX_PORTS }>;

/// As many sets of bindings are kept: one for each pair of slots that the pools have.
const MAX_REBOUND: usize = 1024;

/// A program that was made for a device.
pub(crate) struct BoundProgram {
    program: Arc<Program>,
    loaded: Loaded,
    /// The bindings of calls with messages on the device, by their buffers.
    rebound: Vec<(CallBuffers, Rebound)>,
}

impl BoundProgram {
    /// Makes a program for a device, and its first call, in which drivers generate code.
    ///
    /// # Errors
    /// What the device lacks.
    fn new(device: &Arc<Device>, program: Arc<Program>, cache: Option<&Path>) -> Result<BoundProgram, BackendError> {
        let loaded = Loaded::new(device, &program, device.width, cache)?;
        let zeros: Vec<Vec<u8>> =
            program.inputs.iter().map(|array| vec![0; program.arrays[*array].words() * 4]).collect();
        let zeros: Vec<&[u8]> = zeros.iter().map(Vec::as_slice).collect();
        loaded.warm_up(&zeros)?;
        Ok(BoundProgram { program, loaded, rebound: Vec::new() })
    }

    /// Returns the place of the bindings of a call.
    fn rebound(&mut self, buffers: CallBuffers) -> usize {
        let same = |known: &CallBuffers| {
            std::iter::zip(known, &buffers).all(|(known, buffer)| match (known, buffer) {
                (Some(known), Some(buffer)) => Arc::ptr_eq(known, buffer),
                (known, buffer) => known.is_none() && buffer.is_none(),
            })
        };
        if let Some(at) = self.rebound.iter().position(|(known, _)| same(known)) {
            return at;
        }
        let arrays = self.program.inputs.iter().copied();
        let arrays = arrays.chain(self.program.outputs.iter().map(|(array, _)| *array));
        let replaced =
            std::iter::zip(arrays, &buffers).filter_map(|(array, buffer)| Some((array, &**buffer.as_ref()?)));
        let made = self.loaded.rebind(&replaced.collect::<Vec<_>>());
        if self.rebound.len() >= MAX_REBOUND {
            self.rebound.swap_remove(0);
        }
        self.rebound.push((buffers, made));
        self.rebound.len() - 1
    }
}

impl MadeProgram<WgpuApi> for BoundProgram {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn memory(&self) -> u64 {
        self.loaded.memory
    }

    fn compiled(&self) -> &Compiled {
        &self.loaded.compiled
    }

    fn run(&mut self, inputs: &[&[u8]], read: &mut ReadOutput<'_>) -> Result<(), BackendError> {
        self.loaded.run(inputs, read)
    }

    fn encode(&mut self, on: &mut Enqueue<'_, WgpuApi>, call: &DeviceCall<'_>) -> Result<(), BackendError> {
        let mut buffers = CallBuffers::new();
        for input in call.inputs {
            let tensor = input.on_device().ok_or(BackendError::InputLost)?;
            buffers.push(Some(buffer_of::<WgpuApi>(&tensor)?.0));
        }
        for output in call.outputs {
            let buffer = output.as_ref().map(|tensor| buffer_of::<WgpuApi>(tensor)).transpose()?;
            buffers.push(buffer.map(|(buffer, _)| buffer));
        }
        let at = self.rebound(buffers);
        self.loaded.encode(on.stream.encoder(&on.api.device), &self.rebound[at].1);
        if let Some((buffer, names)) = self.loaded.faults() {
            on.stream.report(&on.api.device, buffer, names);
        }
        Ok(())
    }
}

impl ProgramDevice for WgpuApi {
    type Isolated = WgpuApi;
    type Bound = BoundProgram;
    const CAPTURES: bool = false;

    fn shared(options: &BackendOptions) -> Arc<SharedDevice<WgpuApi>> {
        shared_device(options)
    }

    fn name(&self) -> &str {
        &self.device.info.name
    }

    fn lacks(&self, precision: Precision) -> Option<String> {
        match precision {
            Precision::F32 => None,
            Precision::F16 if self.device.has_halves => None,
            Precision::F16 | Precision::Bf16 => Some("write `precision: f32`".into()),
            Precision::Tf32 => Some("write `precision: f32`, or `backend: cuda`".into()),
        }
    }

    fn bind(&self, program: Arc<Program>, cache: Option<&Path>) -> Result<BoundProgram, BackendError> {
        BoundProgram::new(&self.device, program, cache)
    }
}
