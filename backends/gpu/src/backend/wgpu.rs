//! ONNX models on a GPU, through wgpu: Vulkan drivers of every vendor.
//!
//! tract reads and simplifies the model, which is then lowered to a program of kernels for each
//! batch size before the graph starts. A call writes its inputs, submits the program once and reads
//! the outputs back.

mod adapter;
mod device;
mod kernel;
mod loaded;
mod pipelines;
mod program;
mod resident;
mod wgsl;

pub use self::adapter::{GpuAdapter, gpu_adapters};
pub(crate) use self::kernel::{KernelModel, WgpuKernel};
pub(crate) use self::resident::{WgpuApi, shared_device};
use super::program::capabilities;
use crate::backend::WgpuRuntime;
use limen::backend::{BackendError, Capabilities};
use limen_infer::BackendOptions;
use limen_infer::onnx::Onnx;

/// The backend `wgpu`.
pub type Wgpu = Onnx<WgpuRuntime>;

/// Returns what models can be run.
pub(super) fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
    let info = adapter::adapter(adapter::adapter_number(options)?).get_info();
    let mut found = capabilities(options)?;
    let is_gpu = info.device_type != wgpu::DeviceType::Cpu;
    found.devices = is_gpu.then(|| "gpu".into()).into_iter().chain(["wgpu".into(), info.name.clone()]).collect();
    found.version = format!("wgpu 30, {}, {} {}", info.name, info.driver, info.driver_info);
    Ok(found)
}

/// Returns the adapter and its driver.
pub(super) fn about_device(options: &BackendOptions) -> Option<String> {
    let info = adapter::adapter(adapter::adapter_number(options).ok()?).get_info();
    Some(format!("`{}`: {}", info.name, adapter::about(&info)))
}

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod tests;
