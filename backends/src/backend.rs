//! The backends, one for each value of `backend:`, and calls in flight.

#[cfg(test)]
mod answers;
#[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
mod chain;
#[cfg(feature = "cuda")]
mod cuda;
mod in_flight;
mod mock;
#[cfg(feature = "ort")]
mod ort;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod program;
#[cfg(feature = "rten")]
mod rten;
#[cfg(all(test, any(feature = "rten", feature = "tract", feature = "ort")))]
mod tests;
#[cfg(feature = "tract")]
mod tract;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub(crate) use self::cuda::{
    ARGUMENT as DEVICE_ARGUMENT, CudaApi, CudaArgument, CudaKernel, CudaKernelModel, CudaSource, IsolatedCuda,
    KernelCode, KernelDevice, isolated_device, port_bytes, serve_device, shared_device as shared_cuda_device,
};
#[cfg(feature = "cuda")]
pub use self::cuda::{Cuda, CudaDevice, cuda_devices, missing_cuda_libraries};
#[cfg(feature = "ort")]
pub use self::ort::{
    NvidiaProvider, Ort, OrtCuda, OrtNvidiaRuntime, OrtRunner, OrtRuntime, OrtTensorrt, OrtWebgpuRuntime,
};
#[cfg(feature = "ort")]
pub(crate) use self::ort::{library_for as onnxruntime, plugin_for as onnxruntime_plugin};
#[cfg(feature = "wgpu")]
pub use self::program::WgpuRuntime;
#[cfg(feature = "cuda")]
pub use self::program::{CudaRuntime, IsolatedCudaRuntime};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use self::program::{PreparedProgram, ProgramBackend, ProgramDevice};
#[cfg(feature = "rten")]
pub use self::rten::{Rten, RtenRunner, RtenRuntime, on_rten_thread};
#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
pub(crate) use self::tract::Given;
#[cfg(feature = "tract")]
pub use self::tract::{Tract, TractRunner, TractRuntime};
#[cfg(feature = "wgpu")]
pub use self::wgpu::{GpuAdapter, Wgpu, gpu_adapters};
#[cfg(feature = "wgpu")]
pub(crate) use self::wgpu::{KernelModel, WgpuApi, WgpuKernel, shared_device};
pub(crate) use in_flight::{InFlight, InFlightPrepared};
pub use mock::{Mock, MockConfig, MockPrepared, MockSession};
