//! ONNX models on a GPU, through ONNX Runtime's execution provider WebGPU.
//!
//! The provider is a library of its own, the plugin, which [`BackendOptions::onnxruntime_plugin`]
//! names; it needs ONNX Runtime 1.24.4 or later. A model runs on it whole, unless the node allows
//! that ONNX Runtime takes the CPU for some operators.
//!
//! # Threads
//! Calls of all models on webgpu are made one after the other, whichever worker makes them: the
//! plugin does not bear several threads.
//!
//! # Layout
//! Of its own accord the plugin 0.4.0 computes with channels last (NHWC), and then gives wrong
//! numbers for convolutions of one group whose input channels are a multiple of 3 and not of 4, and
//! more than 3, and whose output channels are a multiple of 4. With channels first (NCHW) it does
//! not, so that is the default here.

use super::plugin::{self, PROVIDER, PluginDevices};
use super::{Data, Home, Opened, OrtRunner, OrtRuntime, builder, data, home, unsupported, version};
use crate::base::BackendOptions;
use crate::cache::Compiled;
use crate::onnx::{Artifact, Call, Deviation, Provider, Runtime, with_left_out};
use ::ort::environment::Environment;
use ::ort::session::builder::GraphOptimizationLevel;
use limen::backend::{BackendError, Capabilities};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, UNIX_EPOCH};

/// The layout of convolutions, if a node does not choose one, and the option that chooses it.
const LAYOUT: (&str, &str) = ("preferredLayout", "NCHW");

/// A model for ONNX Runtime on webgpu. Each thread has its own session.
pub struct OrtWebgpuRuntime {
    model: Arc<Vec<u8>>,
    data: Data,
    environment: Environment,
    found: PluginDevices,
    compiled: Mutex<Compiled>,
}

impl Debug for OrtWebgpuRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OrtWebgpuRuntime")
    }
}

impl Runtime for OrtWebgpuRuntime {
    const NAME: &'static str = "ort-webgpu";
    const BACKEND: &'static str = "ort";
    const COMPILES: bool = false;
    const IS_LIBRARY: bool = true;
    const WARMS_UP: bool = true;
    const DEVICE: &'static str = "webgpu";
    type Shared = Home;
    type Runner = OrtRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        let (_, found) = plugin::ready(options)?;
        let mut on_cpu = OrtRuntime::probe(options)?;
        on_cpu.devices =
            std::iter::once("webgpu").chain((!found.is_software).then_some("gpu")).map(Into::into).collect();
        on_cpu.version = format!("ONNX Runtime {}, {}", version(), found.device());
        Ok(on_cpu)
    }

    fn listed(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        OrtRuntime::probe(options)
    }

    /// Not measured.
    fn is_slow_in_8_bits(_: &str) -> bool {
        false
    }

    /// The library's text about itself, and the file of the plugin with its size and time, which
    /// says nothing of its version.
    fn build(options: &BackendOptions) -> String {
        let Ok((_, found)) = plugin::ready(options) else { return String::new() };
        let about = found.file.metadata().ok();
        let time = about.as_ref().and_then(|about| about.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        let (size, time) = (about.map_or(0, |about| about.len()), time.unwrap_or_default().as_nanos());
        format!("{}; {} {size} {time}; {}", OrtRuntime::build(options), found.file.display(), found.device())
    }

    fn device(options: &BackendOptions) -> Option<String> {
        let (_, found) = plugin::ready(options).ok()?;
        Some(format!("{}, through the plugin {}", found.device(), found.file.display()))
    }

    fn deviations() -> &'static [Deviation] {
        OrtRuntime::deviations()
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let (environment, found) = plugin::ready(options)?;
        let mut compiled = Compiled::default();
        if options.cache.is_some() {
            // ONNX Runtime would write operators of the provider's own, for one layout and one
            // version of the plugin.
            compiled.warnings.push("the compiled model is not cached: no other plugin could load it".into());
        }
        let compiled = Mutex::new(compiled);
        let model = with_left_out(artifact.bytes, &artifact.outline.ops);
        Ok(OrtWebgpuRuntime { model, data: data(artifact.data), environment, found, compiled })
    }

    fn share(&self, call: &Call) -> Result<Home, BackendError> {
        Ok(home(self.open(call)?))
    }

    fn runner(&self, home: &Home, call: &Call) -> Result<OrtRunner, BackendError> {
        OrtRunner::new(home, call, || self.open(call))
    }

    fn compiled(&self) -> Option<Compiled> {
        Some(self.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl OrtWebgpuRuntime {
    fn open(&self, call: &Call) -> Result<Opened, BackendError> {
        let begun = Instant::now();
        // First, so that what is made of the session is released before it, also after an error.
        let _alone = plugin::alone();
        let device = plugin::device(&self.environment);
        let device = device.ok_or_else(|| BackendError::Unavailable("the device for webgpu was removed".into()))?;
        let mut builder = builder(&self.environment, &self.data, call.threads, GraphOptimizationLevel::All)?
            .with_devices([device], Some(&options(&call.provider)))
            .map_err(unsupported)?;
        if !call.provider.cpu_fallback {
            builder = builder.with_disable_cpu_fallback().map_err(unsupported)?;
        }
        let session = builder.commit_from_memory(&self.model);
        let session = session.map_err(|error| plugin::why_no_session(&error.to_string()))?;
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.compiled += 1;
        compiled.compile_ns += begun.elapsed().as_nanos() as u64;
        Ok(Opened { session: Some(session), device: self.found.device(), is_alone: true })
    }
}

/// The options of a node, as ONNX Runtime takes them: it drops those without the provider's name in
/// front.
fn options(provider: &Provider) -> Vec<(String, String)> {
    let (name, usual) = LAYOUT;
    let is_chosen = provider.options.contains_key(name);
    let usual = (!is_chosen).then(|| (name.to_string(), usual.to_string()));
    let chosen = provider.options.iter().map(|(name, value)| (name.clone(), value.clone()));
    usual.into_iter().chain(chosen).map(|(name, value)| (format!("{PROVIDER}.{name}"), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn options_have_the_providers_name_and_channels_come_first() {
        let of = |given: &[(&str, &str)]| {
            let given =
                given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<BTreeMap<_, _>>();
            let all = options(&Provider { options: given, ..Provider::default() });
            all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let (layout, power) = ("WebGpuExecutionProvider.preferredLayout", "WebGpuExecutionProvider.powerPreference");
        assert_eq!(of(&[]), format!("{layout}=NCHW"));
        assert_eq!(of(&[("preferredLayout", "NHWC")]), format!("{layout}=NHWC"));
        assert_eq!(of(&[("powerPreference", "low-power")]), format!("{layout}=NCHW {power}=low-power"));
    }
}
