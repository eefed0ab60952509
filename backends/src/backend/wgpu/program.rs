//! Programs whose calls take and give messages in the memory of the device.

use super::device::Device;
use super::loaded::{Loaded, Rebound};
use super::resident::WgpuApi;
use crate::device::{Calls, Enqueue, SharedDevice, buffer_of};
use crate::lowering::Program;
use arrayvec::ArrayVec;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, Ticket,
};
use limen::node::MAX_PORTS;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wgpu::Buffer;

/// The buffers of a call, inputs first; `None` for an output that nothing takes.
type Buffers = ArrayVec<Option<Arc<Buffer>>, { 2 * MAX_PORTS }>;

/// As many sets of bindings are kept: one for each pair of slots that the pools have.
const MAX_REBOUND: usize = 1024;

/// A program that was made for a device.
pub(super) struct BoundProgram {
    pub(super) program: Program,
    pub(super) loaded: Loaded,
    /// The bindings of calls with messages on the device, by their buffers.
    rebound: Vec<(Buffers, Rebound)>,
}

impl BoundProgram {
    /// Makes a program for a device, and its first call, in which drivers generate code.
    ///
    /// # Errors
    /// What the device lacks.
    pub(super) fn new(
        device: &Arc<Device>,
        program: Program,
        cache: Option<&Path>,
    ) -> Result<BoundProgram, BackendError> {
        let loaded = Loaded::new(device, &program, device.width, cache)?;
        let zeros: Vec<Vec<u8>> =
            program.inputs.iter().map(|array| vec![0; program.arrays[*array].words() * 4]).collect();
        let zeros: Vec<&[u8]> = zeros.iter().map(Vec::as_slice).collect();
        loaded.warm_up(&zeros)?;
        Ok(BoundProgram { program, loaded, rebound: Vec::new() })
    }

    /// Encodes a call.
    ///
    /// # Errors
    /// If an input or output is not on the device.
    pub(super) fn encode(&mut self, on: &mut Enqueue<'_, WgpuApi>, call: &DeviceCall<'_>) -> Result<(), BackendError> {
        let mut buffers = Buffers::new();
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

    /// Returns the place of the bindings of a call.
    fn rebound(&mut self, buffers: Buffers) -> usize {
        let same = |known: &Buffers| {
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

/// A program of a stock kind as a backend: planning and stages are those of models.
#[derive(Debug)]
pub(crate) struct WgpuProgram;

impl Backend for WgpuProgram {
    const NAME: &'static str = "wgpu";
    type Model = PreparedProgram;
    type Prepared = PreparedProgram;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("", [], Ops::Unlisted))
    }

    fn prepare(model: PreparedProgram) -> Result<PreparedProgram, BackendError> {
        model.bind()?;
        Ok(model)
    }
}

/// A program and the device that it runs on.
#[derive(Debug)]
pub(crate) struct PreparedProgram {
    pub(crate) program: Program,
    pub(crate) device: Arc<SharedDevice<WgpuApi>>,
    pub(crate) signature: Signature,
    /// The folder of the cache.
    pub(crate) cache: Option<PathBuf>,
}

impl PreparedProgram {
    fn bind(&self) -> Result<(u32, BoundProgram), BackendError> {
        let (generation, api) = self.device.api()?;
        Ok((generation, BoundProgram::new(&api.device, self.program.clone(), self.cache.as_deref())?))
    }
}

impl Prepared for PreparedProgram {
    type Session = ProgramSession;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: usize) -> Result<ProgramSession, BackendError> {
        let calls = Calls::new(self.device.clone());
        Ok(ProgramSession { calls, bound: self.bind()?, cache: self.cache.clone() })
    }
}

/// A program on one thread.
pub(crate) struct ProgramSession {
    calls: Calls<WgpuApi>,
    /// It, and the generation of the device that it was made for.
    bound: (u32, BoundProgram),
    cache: Option<PathBuf>,
}

impl Session for ProgramSession {
    type Lane = ();

    fn infer_batch(
        &mut self,
        _: usize,
        _: &[BatchRef<'_>],
        _: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        Err(BackendError::Unsupported("messages in host memory".into()))
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let ProgramSession { calls, bound, cache } = self;
        calls.enqueue(call.inputs, call.outputs, false, |on| {
            if bound.0 != on.generation {
                *bound = (on.generation, BoundProgram::new(&on.api.device, bound.1.program.clone(), cache.as_deref())?);
            }
            bound.1.encode(on, call)
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn metadata(&self) -> SessionMetadata {
        let memory = self.bound.1.loaded.memory;
        SessionMetadata { device: "wgpu".into(), threads: 1, memory, ..SessionMetadata::default() }
    }
}
