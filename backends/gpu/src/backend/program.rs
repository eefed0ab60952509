//! Programs of devices as backends: models, and stock kinds. What an API has of its own is a
//! [`ProgramDevice`].

mod convert;
mod runner;
mod runtime;
mod session;

#[cfg(feature = "wgpu")]
pub use self::runtime::WgpuRuntime;
pub(crate) use self::runtime::capabilities;
#[cfg(feature = "cuda")]
pub use self::runtime::{CudaRuntime, IsolatedCudaRuntime};
pub(crate) use self::session::{PreparedProgram, ProgramBackend};
use crate::device::{Api, Enqueue, SharedDevice};
use crate::lowering::Program;
use limen::backend::{BackendError, DeviceCall};
use limen_infer::BackendOptions;
use limen_infer::Compiled;
use limen_infer::onnx::Precision;
use std::path::Path;
use std::sync::Arc;

/// An API that runs programs.
pub(crate) trait ProgramDevice: Api {
    /// A program that was made for a device.
    type Bound: MadeProgram<Self>;
    /// The device in a process of its own; the same where there is none.
    type Isolated: ProgramDevice;
    /// Whether [`ProgramDevice::bind`] records a call, which is replayed from then on.
    const CAPTURES: bool;

    /// Returns the device as the nodes of this process share it.
    fn shared(options: &BackendOptions) -> Arc<SharedDevice<Self>>;

    /// Returns the name of the open device.
    fn name(&self) -> &str;

    /// Returns what it lacks for a precision.
    fn lacks(&self, precision: Precision) -> Option<String>;

    /// Makes a program for the device, and its first call. What is compiled is kept in the folder
    /// of a cache.
    ///
    /// # Errors
    /// What the device lacks.
    fn bind(&self, program: Arc<Program>, cache: Option<&Path>) -> Result<Self::Bound, BackendError>;
}

/// A program that was made for a device.
pub(crate) trait MadeProgram<A: Api>: 'static {
    fn program(&self) -> &Arc<Program>;

    /// Bytes on the device.
    fn memory(&self) -> u64;

    /// What was compiled, and what was found in the cache.
    fn compiled(&self) -> &Compiled;

    /// Runs it on the bytes of its inputs; `read` takes those of its outputs.
    ///
    /// # Errors
    /// When the device or a kernel fails, or `read`.
    fn run(&mut self, inputs: &[&[u8]], read: &mut ReadOutput<'_>) -> Result<(), BackendError>;

    /// Whether its calls replay a recording.
    #[cfg(test)]
    fn is_captured(&self) -> bool {
        false
    }

    /// Enqueues a call with tensors on the device.
    ///
    /// # Errors
    /// If an input or output is not on the device, or the device fails.
    fn encode(&mut self, on: &mut Enqueue<'_, A>, call: &DeviceCall<'_>) -> Result<(), BackendError>;
}

/// Takes the bytes of an output.
pub(crate) type ReadOutput<'a> = dyn FnMut(usize, &[u8]) -> Result<(), BackendError> + 'a;

#[cfg(test)]
pub(crate) mod tests;
