//! The adapters of this machine, and which of them is taken.

use super::device::ready;
use limen::backend::BackendError;
use limen::unit::show_bytes;
use limen_infer::BackendOptions;
use limen_infer::internal::chosen;
use std::sync::OnceLock;
use wgpu::{Adapter, AdapterInfo, DeviceType};

/// A GPU, or a driver that computes on the CPU, that the backend `wgpu` may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuAdapter {
    /// The name that the driver reports, for `--gpu`.
    pub name: String,
    /// Whether it computes on the CPU; it is then taken only with
    /// [`allow_software`](limen_infer::BackendOptions::allow_software).
    pub is_software: bool,
    /// Its kind, driver, API and limits.
    pub about: String,
}

/// Returns the adapters of this machine, in the order of their numbers. Looking for them loads
/// their drivers.
pub fn gpu_adapters() -> Vec<GpuAdapter> {
    let adapter = |adapter: &Adapter| {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let tensor = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
        GpuAdapter {
            is_software: info.device_type == DeviceType::Cpu,
            about: format!("{}; tensors up to {}", about(&info), show_bytes(tensor)),
            name: info.name,
        }
    };
    found().iter().map(adapter).collect()
}

/// The kind of an adapter, its driver, and its API.
pub(super) fn about(info: &AdapterInfo) -> String {
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => "discrete GPU",
        DeviceType::IntegratedGpu => "integrated GPU",
        DeviceType::VirtualGpu => "virtual GPU",
        DeviceType::Cpu => "computes on the CPU",
        DeviceType::Other => "unknown kind of GPU",
    };
    format!("{kind}, driver {} {}, {}", info.driver, info.driver_info, info.backend)
}

fn found() -> &'static [Adapter] {
    static FOUND: OnceLock<Vec<Adapter>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
        // Layers for debugging are for those who write shaders.
        wanted.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(wanted);
        ready(instance.enumerate_adapters(wgpu::Backends::all())).unwrap_or_default()
    })
}

/// Returns an adapter of this machine by its number.
pub(super) fn adapter(number: usize) -> &'static Adapter {
    &found()[number]
}

/// Returns the number of the adapter that is taken: of those that the options allow, the fastest
/// kind.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn adapter_number(options: &BackendOptions) -> Result<usize, BackendError> {
    let all = found();
    let names: Vec<String> = all.iter().map(|adapter| adapter.get_info().name).collect();
    let found = match all.is_empty() {
        true => Vec::new(),
        false => chosen(options.gpu.as_deref(), &names).map_err(BackendError::Unavailable)?,
    };
    let is_software = |number: &usize| all[*number].get_info().device_type == DeviceType::Cpu;
    let rank = |number: &usize| match all[*number].get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    };
    let best = found.iter().copied().filter(|number| options.allow_software || !is_software(number)).min_by_key(rank);
    best.ok_or_else(|| match found.first() {
        Some(software) => BackendError::Unavailable(format!(
            "expected a GPU{}, found `{}`, which computes on the CPU: install the Vulkan driver of a GPU, or write `--allow-software` for tests",
            if options.gpu.is_some() { " for `--gpu`" } else { "" },
            names[*software]
        )),
        None => BackendError::Unavailable(
            "no adapter was found: install the Vulkan driver of the GPU (in a Debian container with an NVIDIA GPU also \
             `libvulkan1`, `libegl1` and `libglx0`; for tests on the CPU, `mesa-vulkan-drivers`)"
                .into(),
        ),
    })
}
