//! The devices, and the runtimes that run models on them.

#[cfg(test)]
mod chain;
#[cfg(feature = "cuda")]
mod cuda;
mod program;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use self::cuda::{Cuda, CudaDevice, cuda_devices, missing_cuda_libraries};
#[cfg(feature = "cuda")]
pub(crate) use self::cuda::{
    CudaApi, CudaArgument, CudaKernel, CudaKernelModel, CudaSource, IsolatedCuda, KernelCode, KernelDevice,
    isolated_device, port_bytes, shared_device as shared_cuda_device,
};
#[cfg(feature = "wgpu")]
pub use self::program::WgpuRuntime;
#[cfg(feature = "cuda")]
pub use self::program::{CudaRuntime, IsolatedCudaRuntime};
pub(crate) use self::program::{PreparedProgram, ProgramBackend, ProgramDevice};
#[cfg(feature = "wgpu")]
pub use self::wgpu::{GpuAdapter, Wgpu, gpu_adapters};
#[cfg(feature = "wgpu")]
pub(crate) use self::wgpu::{KernelModel, WgpuApi, WgpuKernel, shared_device};
use limen_infer::RegisterRuntime;

/// Adds the runtimes.
pub(crate) fn register(registry: limen::Registry) -> limen::Registry {
    #[cfg(feature = "wgpu")]
    let registry = registry.runtime::<WgpuRuntime>();
    #[cfg(feature = "cuda")]
    let registry = cuda::register(registry);
    registry
}
