//! The plugin: a library with the execution provider WebGPU, which ONNX Runtime loads.

use super::{environment, lock_library, no_library};
use crate::base::{BackendOptions, caught};
use ::ort::device::Device;
use ::ort::environment::Environment;
use ::ort::memory::DeviceType;
use limen::backend::BackendError;
use limen::files::real_path;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the execution provider, which its options begin with.
pub(super) const PROVIDER: &str = "WebGpuExecutionProvider";

/// The name under which the plugin is registered.
const REGISTERED: &str = "webgpu";

/// Where the plugin comes from.
const GET: &str = "install the plugin, for example with `pip install onnxruntime-ep-webgpu`, and name its file \
                   `onnxruntime_ep_webgpu/libonnxruntime_providers_webgpu.so` with `--onnxruntime-plugin FILE`";

/// The plugin of this process. ONNX Runtime refuses a second one with the same provider.
static PLUGIN: Mutex<Plugin> = Mutex::new(Plugin { registered: None, failed: BTreeMap::new() });

/// The state of the plugin in this process.
pub(super) struct Plugin {
    /// The registered file. Never unregistered.
    registered: Option<PathBuf>,
    /// Files that could not be registered, and why.
    failed: BTreeMap<PathBuf, String>,
}

/// Takes the lock under which everything of the plugin happens: to register it, to list its
/// devices, and to create, call and release its sessions, with the outputs of a call. All sessions
/// of the plugin use one device of the driver, and those of several threads at once end the
/// process. Sessions on the CPU do not need it.
pub(super) fn alone() -> MutexGuard<'static, Plugin> {
    PLUGIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the plugin that a trial has to register: that of the options, else the one that this
/// process has registered; `None` if neither.
pub(crate) fn plugin_for(options: &BackendOptions) -> Option<PathBuf> {
    options.onnxruntime_plugin.clone().or_else(|| alone().registered.clone())
}

/// What the plugin computes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginDevices {
    /// The maker of the device, if it is known.
    pub(super) vendor: String,
    /// Whether it is a driver that computes on the CPU.
    pub(super) is_software: bool,
    /// The plugin's file.
    pub(super) file: PathBuf,
}

impl PluginDevices {
    /// What the metadata of a session say of the device.
    pub(super) fn device(&self) -> Arc<str> {
        match (self.is_software, &*self.vendor) {
            (true, _) => "webgpu (computes on the CPU)".into(),
            (false, "") => "webgpu".into(),
            (false, vendor) => format!("webgpu ({vendor})").into(),
        }
    }
}

/// Loads ONNX Runtime and the plugin on first use, and returns the environment and the device that
/// models run on.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn ready(options: &BackendOptions) -> Result<(Environment, PluginDevices), BackendError> {
    let environment = environment(options)?;
    let mut plugin = alone();
    let file =
        plugin.register(&environment, options.onnxruntime_plugin.as_deref()).map_err(BackendError::Unavailable)?;
    let found = found(&environment, file, options.allow_software).map_err(BackendError::Unavailable)?;
    Ok((environment, found))
}

/// Returns the device that a session computes on: a GPU if there is one. The caller holds the lock.
pub(super) fn device(environment: &Environment) -> Option<Device<'_>> {
    let devices = environment.devices().filter(|device| device.ep().is_ok_and(|name| name == PROVIDER));
    devices.min_by_key(is_software)
}

fn is_software(device: &Device<'_>) -> bool {
    device.hardware_device().ty() == DeviceType::CPU
}

fn found(environment: &Environment, file: PathBuf, allow_software: bool) -> Result<PluginDevices, String> {
    let Some(device) = device(environment) else {
        return Err(
            "the plugin of ONNX Runtime lists no device for webgpu: install the Vulkan driver of the GPU, or, for \
                    tests on the CPU, set ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1"
                .into(),
        );
    };
    let is_software = is_software(&device);
    if is_software && !allow_software {
        return Err(
            "the only device for webgpu computes on the CPU: install the Vulkan driver of the GPU, or, for tests, \
                    write `--allow-software`"
                .into(),
        );
    }
    let vendor = device.hardware_device().vendor().unwrap_or_default().to_string();
    Ok(PluginDevices { vendor, is_software, file })
}

impl Plugin {
    /// Registers the plugin, unless that was done, and returns its file.
    fn register(&mut self, environment: &Environment, asked: Option<&Path>) -> Result<PathBuf, String> {
        // ONNX Runtime would look for a relative path beside its own library.
        let asked = asked.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()));
        if let Some(why) = asked.as_deref().and_then(no_library) {
            return Err(format!("the plugin of ONNX Runtime for WebGPU is not loaded: {why}: {GET}"));
        }
        if let Some(registered) = &self.registered {
            return match asked {
                Some(asked) if real_path(&asked) != real_path(registered) => Err(format!(
                    "the plugin `{0}` is not loaded, because this process has loaded `{1}` and can load only one plugin: name \
                     `{1}` for this graph, or run this graph in another process",
                    asked.display(),
                    registered.display()
                )),
                _ => Ok(registered.clone()),
            };
        }
        let Some(file) = asked else {
            return Err(format!("`provider: webgpu` requires the plugin of ONNX Runtime for WebGPU: {GET}"));
        };
        if let Some(why) = self.failed.get(&file) {
            return Err(why.clone());
        }
        let load =
            || environment.register_ep_library(REGISTERED, &file).map_err(|error| refused(&file, &error.to_string()));
        match caught(load).and_then(|result| result) {
            Ok(()) => {
                self.registered = Some(file.clone());
                Ok(file)
            }
            Err(why) => {
                self.failed.insert(file, why.clone());
                Err(why)
            }
        }
    }
}

/// Returns why ONNX Runtime refuses a plugin, and what to do.
fn refused(file: &Path, error: &str) -> String {
    let shown = file.display();
    if error.contains("below the minimum required version") {
        let loaded = lock_library().loaded.as_ref().map(|(library, _)| library.display().to_string());
        return format!(
            "the plugin `{shown}` requires a later ONNX Runtime than `{}` ({error}): install a later version \
             (`pip install -U onnxruntime`) and name its library with `--onnxruntime FILE`",
            loaded.unwrap_or_default()
        );
    }
    format!("`{shown}` is not a plugin of ONNX Runtime ({error}): {GET}")
}

/// Returns why no session was created, and what to do; the error as it is if nothing is known of
/// it.
pub(super) fn why_no_session(error: &str) -> BackendError {
    // The text in front of it is about the source of ONNX Runtime.
    if let Some(at) = error.find("Failed to get a WebGPU adapter") {
        return BackendError::Unavailable(format!(
            "the plugin found no WebGPU adapter that it supports ({}): install a newer driver, such as Mesa 25.0, or \
             write `provider: cpu`",
            error[at..].trim()
        ));
    }
    super::why_no_session("webgpu", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_the_plugin_cannot_be_used_names_a_way_out() {
        for (error, parts) in [
            (
                "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been explicitly \
                 disabled by the user.",
                &["`cpu_fallback: true`", "`backend: wgpu`", "`provider: cpu`"][..],
            ),
            (
                "EP_FAIL : /source.cc:136 Initialize() Failed to get a WebGPU adapter: No supported adapters.\n",
                &["(Failed to get a WebGPU adapter: No supported adapters.): install", "or write `provider: cpu`"],
            ),
            ("something else", &["something else"]),
        ] {
            let why = why_no_session(error).to_string();
            parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        }
        let old = "ORT runtime version \"1.24.3\" is below the minimum required version \"1.24.4\".";
        let why = refused(Path::new("/p.so"), old);
        for part in ["`/p.so` requires a later ONNX Runtime than `", old, "`--onnxruntime FILE`"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let why = refused(Path::new("/p.so"), "undefined symbol: CreateEpFactories");
        assert!(why.starts_with("`/p.so` is not a plugin of ONNX Runtime (") && why.contains("pip install"), "{why}");
    }

    #[test]
    fn a_plugin_that_is_missing_or_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("text.so"), "text").unwrap();
        let at = |name: &str| BackendOptions {
            onnxruntime_plugin: Some(folder.path().join(name)),
            ..BackendOptions::default()
        };
        for (options, part) in
            [(at("none.so"), "none.so` does not exist"), (at("text.so"), "text.so` is not a library")]
        {
            let why = ready(&options).unwrap_err().to_string();
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}
