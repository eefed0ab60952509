//! The runtimes of this program.

use super::candidate::{Built, Candidate};
use super::config::{Choice, Config};
use super::dispatch::Dispatch;
use super::load::reference_onnx;
use super::onnx_plan::plan_onnx;
use super::provider::OrtDevice;
use crate::base::BackendOptions;
use crate::inspect::Inspection;
use crate::onnx::{Op, Runtime};

#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
fn built<R: Runtime>(choice: Choice, options: &BackendOptions) -> Candidate<'_> {
    let (plan, reference) = (plan_onnx::<R>, reference_onnx::<R>);
    let built = Built {
        probe: R::probe,
        build: R::build,
        is_library: R::IS_LIBRARY,
        plan,
        reference,
        rewrites: R::rewrites,
        refuses: R::refuses,
        lacks: R::lacks,
        deviations: R::deviations,
    };
    Candidate { choice, device: OrtDevice::Cpu, name: R::NAME, options, built: Some(built) }
}

/// Returns a runtime that is not built in.
#[cfg(not(all(feature = "rten", feature = "tract", feature = "ort", feature = "wgpu", feature = "cuda")))]
fn missing<'a>(choice: Choice, name: &'static str, options: &'a BackendOptions) -> Candidate<'a> {
    Candidate { choice, device: OrtDevice::Cpu, name, options, built: None }
}

/// Returns the runtimes of `auto`, in the order in which it tries them: the fastest first, as measured on nine models.
pub(crate) fn all_runtimes(options: &BackendOptions) -> [Candidate<'_>; 3] {
    #[cfg(feature = "ort")]
    let ort = built::<crate::backend::OrtRuntime>(Choice::Ort, options);
    #[cfg(not(feature = "ort"))]
    let ort = missing(Choice::Ort, "ort", options);
    #[cfg(feature = "rten")]
    let rten = built::<crate::backend::RtenRuntime>(Choice::Rten, options);
    #[cfg(not(feature = "rten"))]
    let rten = missing(Choice::Rten, "rten", options);
    #[cfg(feature = "tract")]
    let tract = built::<crate::backend::TractRuntime>(Choice::Tract, options);
    #[cfg(not(feature = "tract"))]
    let tract = missing(Choice::Tract, "tract", options);
    [ort, rten, tract]
}

/// Returns the runtimes that a node may use: those of `auto`, and those on a GPU if the node names them, as looking for drivers takes
/// time.
pub(crate) fn runtimes<'a>(config: &Config, options: &'a BackendOptions) -> Vec<Candidate<'a>> {
    let mut runtimes = all_runtimes(options).to_vec();
    if config.names(Choice::Wgpu) {
        #[cfg(feature = "wgpu")]
        runtimes.push(built::<crate::backend::WgpuRuntime>(Choice::Wgpu, options));
        #[cfg(not(feature = "wgpu"))]
        runtimes.push(missing(Choice::Wgpu, "wgpu", options));
    }
    if config.names(Choice::Cuda) {
        #[cfg(feature = "cuda")]
        runtimes.push(match options.isolation {
            limen::policy::Isolation::Process => built::<crate::backend::IsolatedCudaRuntime>(Choice::Cuda, options),
            _ => built::<crate::backend::CudaRuntime>(Choice::Cuda, options),
        });
        #[cfg(not(feature = "cuda"))]
        runtimes.push(missing(Choice::Cuda, "cuda", options));
    }
    if config.device != OrtDevice::Cpu && config.serving() == Choice::Ort {
        let device = config.device;
        #[cfg(feature = "ort")]
        {
            use crate::backend::{OrtCuda, OrtNvidiaRuntime, OrtTensorrt, OrtWebgpuRuntime};
            let candidate = match device {
                OrtDevice::Cpu | OrtDevice::Webgpu => built::<OrtWebgpuRuntime>(Choice::Ort, options),
                OrtDevice::Cuda => built::<OrtNvidiaRuntime<OrtCuda>>(Choice::Ort, options),
                OrtDevice::Tensorrt => built::<OrtNvidiaRuntime<OrtTensorrt>>(Choice::Ort, options),
            };
            runtimes.push(Candidate { device, ..candidate });
        }
        #[cfg(not(feature = "ort"))]
        runtimes.push(Candidate { device, ..missing(Choice::Ort, "ort", options) });
    }
    runtimes
}

/// Returns a runtime on a GPU for a look at its operators: its drivers are not looked for.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn unprobed<R: Runtime>(choice: Choice, options: &BackendOptions) -> Candidate<'_> {
    let candidate = built::<R>(choice, options);
    let probe = crate::backend::TractRuntime::probe;
    Candidate { built: candidate.built.map(|built| Built { probe, ..built }), ..candidate }
}

/// Returns the runtimes on a GPU, for a look at their operators.
fn device_runtimes(options: &BackendOptions) -> [Candidate<'_>; 2] {
    #[cfg(feature = "wgpu")]
    let wgpu = unprobed::<crate::backend::WgpuRuntime>(Choice::Wgpu, options);
    #[cfg(not(feature = "wgpu"))]
    let wgpu = missing(Choice::Wgpu, "wgpu", options);
    #[cfg(feature = "cuda")]
    let cuda = unprobed::<crate::backend::CudaRuntime>(Choice::Cuda, options);
    #[cfg(not(feature = "cuda"))]
    let cuda = missing(Choice::Cuda, "cuda", options);
    [wgpu, cuda]
}

impl Inspection {
    /// Returns the nodes that a backend computes otherwise than ONNX.
    pub(crate) fn deviating(&self, options: &BackendOptions) -> Vec<Op> {
        let candidates = all_runtimes(options);
        let found = candidates.iter().flat_map(|candidate| candidate.deviations(&self.details.ops));
        found.map(|(op, _)| op.clone()).collect()
    }

    /// Returns how each backend handles the model's operators. The model is not loaded, so a backend that has an operator may still
    /// refuse its attributes or types.
    pub fn dispatch(&self, options: &BackendOptions) -> Vec<(&'static str, Dispatch)> {
        let operators = self.operators.keys().map(String::as_str);
        let candidates = all_runtimes(options).into_iter().chain(device_runtimes(options));
        candidates.map(|candidate| (candidate.name, candidate.dispatch(operators.clone(), &self.details.ops))).collect()
    }
}
