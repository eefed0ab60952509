//! ONNX models and stock kinds on an NVIDIA GPU, through CUDA.
//!
//! tract reads and simplifies a model, which is then lowered to a program of kernels for each batch
//! size before the graph starts. NVIDIA's compiler makes them for the device, and a call runs them
//! as one graph.

mod cubin;
mod cuda_c;
mod kernel;
mod process;
mod program;
mod resident;
mod routine;

pub(crate) use self::kernel::{
    CudaArgument, CudaKernel, CudaKernelModel, CudaSource, KernelCode, KernelDevice, port_bytes,
};
use self::process::{ARGUMENT, serve_device};
pub(crate) use self::process::{IsolatedCuda, isolated_device};
pub(crate) use self::resident::{CudaApi, shared_device};
use super::program::{CudaRuntime, IsolatedCudaRuntime, capabilities};
use limen::backend::{BackendError, Capabilities};
use limen::unit::show_bytes;
use limen_cuda::{Info, Library, devices, version};
use limen_infer::BackendOptions;
use limen_infer::RegisterRuntime;
use limen_infer::internal::{chosen, set_nvidia_gpus};
use limen_infer::onnx::Onnx;

/// Adds the runtime, which also uses its device in a process of its own.
pub(super) fn register(registry: limen::Registry) -> limen::Registry {
    set_nvidia_gpus(|| cuda_devices().ok().map(|devices| devices.into_iter().map(|device| device.name).collect()));
    registry.runtime::<CudaRuntime>().isolated::<IsolatedCudaRuntime>(ARGUMENT, serve_device)
}

/// The backend `cuda`.
pub type Cuda = Onnx<CudaRuntime>;

/// An NVIDIA GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// The name that the driver reports, for `--gpu`.
    pub name: String,
    /// Its compute capability, memory and driver.
    pub about: String,
}

/// Returns the GPUs of NVIDIA's that this machine has, in the order of their numbers. Looking for
/// them loads their driver.
///
/// # Errors
/// What is missing, and where it comes from.
pub fn cuda_devices() -> Result<Vec<CudaDevice>, String> {
    let found = devices().map_err(|error| error.to_string())?;
    version().map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|info| CudaDevice { about: about(&info), name: info.name }).collect())
}

/// Returns the libraries that models run without, but not as fast: what is missing, and where it
/// comes from.
pub fn missing_cuda_libraries() -> Vec<String> {
    [Library::CublasLt, Library::Cudnn]
        .into_iter()
        .filter_map(|library| library.load().err())
        .map(|error| error.to_string())
        .collect()
}

fn about(info: &Info) -> String {
    let (arch, driver) = (info.arch, info.driver);
    format!(
        "compute capability {}.{}, {}, driver for CUDA {}.{}",
        arch / 10,
        arch % 10,
        show_bytes(info.memory as u64),
        driver / 1000,
        driver % 1000 / 10
    )
}

/// The device that is taken.
fn gpu(options: &BackendOptions) -> Result<Info, BackendError> {
    let unavailable = |why: String| BackendError::Unavailable(why);
    let mut found = devices().map_err(|error| unavailable(error.to_string()))?;
    Library::Nvrtc.load().map_err(|error| unavailable(error.to_string()))?;
    if found.is_empty() {
        return Err(unavailable("NVIDIA's driver finds no GPU".into()));
    }
    let names: Vec<String> = found.iter().map(|info| info.name.clone()).collect();
    let number = chosen(options.gpu.as_deref(), &names).map_err(unavailable)?[0];
    Ok(found.swap_remove(number))
}

/// Returns what models can be run.
pub(super) fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
    let info = gpu(options)?;
    let (major, minor) = version().map_err(|error| BackendError::Unavailable(error.to_string()))?;
    let mut found = capabilities(options)?;
    found.devices = vec!["gpu".into(), "cuda".into(), info.name.clone()];
    let library = |library: Library, name: &str| match library.load() {
        Ok(()) => name.to_string(),
        Err(_) => format!("without {name}"),
    };
    let libraries = [library(Library::CublasLt, "cuBLASLt"), library(Library::Cudnn, "cuDNN")].join(", ");
    found.version =
        format!("CUDA {}, NVRTC {major}.{minor}, {libraries}, {}, sm_{}", info.driver, info.name, info.arch);
    Ok(found)
}

/// Returns the device and its driver.
pub(super) fn about_device(options: &BackendOptions) -> Option<String> {
    let info = gpu(options).ok()?;
    Some(format!("`{}`: {}", info.name, about(&info)))
}

/// Returns the device and its driver, in a process of its own.
pub(super) fn about_isolated_device(options: &BackendOptions) -> Option<String> {
    about_device(options).map(|about| format!("{about}, in a separate process"))
}

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;
