//! ONNX models on an NVIDIA GPU, through the execution providers of ONNX Runtime that use CUDA.
//!
//! The providers lie beside the library of ONNX Runtime's package for GPUs, which
//! [`BackendOptions::onnxruntime`] names. A model runs on the GPU whole, unless the node allows
//! that ONNX Runtime takes the CPU for some operators.

use super::{Data, Home, Opened, OrtRunner, OrtRuntime, builder, data, environment, home, unsupported, version};
use crate::base::{BackendOptions, caught, chosen, nvidia_gpus};
use crate::cache::Compiled;
use crate::onnx::{Artifact, Call, Deviation, Provider, Runtime, with_left_out};
use ::ort::environment::Environment;
use ::ort::ep::{ArbitrarilyConfigurableExecutionProvider, CUDA, ExecutionProvider, TensorRT};
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use limen::backend::{BackendError, Capabilities};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A provider that uses CUDA.
pub trait NvidiaProvider: Send + Sync + 'static {
    /// The name of its runtime.
    const NAME: &'static str;
    /// Its name in YAML.
    const DEVICE: &'static str;

    /// Whether the library was built with it.
    #[doc(hidden)]
    fn is_built() -> Result<bool, ::ort::Error>;

    /// Adds it to a session, with options.
    #[doc(hidden)]
    fn register(builder: &mut SessionBuilder, gpu: i32, options: &[(String, String)]) -> Result<(), ::ort::Error>;
}

/// ONNX Runtime's provider of CUDA.
#[derive(Debug)]
pub struct OrtCuda;

/// ONNX Runtime's provider of TensorRT; operators that TensorRT lacks run on CUDA.
#[derive(Debug)]
pub struct OrtTensorrt;

/// TF32 keeps 11 significant bits, which nobody has asked for.
fn cuda(gpu: i32, options: &[(String, String)]) -> CUDA {
    let begun = CUDA::default().with_device_id(gpu).with_tf32(false);
    options.iter().fold(begun, |provider, (name, value)| provider.with_arbitrary_config(name, value))
}

impl NvidiaProvider for OrtCuda {
    const NAME: &'static str = "ort-cuda";
    const DEVICE: &'static str = "cuda";

    fn is_built() -> Result<bool, ::ort::Error> {
        CUDA::is_available()
    }

    fn register(builder: &mut SessionBuilder, gpu: i32, options: &[(String, String)]) -> Result<(), ::ort::Error> {
        cuda(gpu, options).register(builder)
    }
}

impl NvidiaProvider for OrtTensorrt {
    const NAME: &'static str = "ort-tensorrt";
    const DEVICE: &'static str = "tensorrt";

    fn is_built() -> Result<bool, ::ort::Error> {
        TensorRT::is_available()
    }

    fn register(builder: &mut SessionBuilder, gpu: i32, options: &[(String, String)]) -> Result<(), ::ort::Error> {
        let begun = TensorRT::default().with_device_id(gpu);
        let provider =
            options.iter().fold(begun, |provider, (name, value)| provider.with_arbitrary_config(name, value));
        // The first one is preferred.
        provider.register(builder)?;
        cuda(gpu, &[]).register(builder)
    }
}

/// A model for ONNX Runtime on an NVIDIA GPU. Each thread has its own session.
pub struct OrtNvidiaRuntime<P> {
    model: Arc<Vec<u8>>,
    data: Data,
    environment: Environment,
    gpu: i32,
    compiled: Mutex<Compiled>,
    provider: PhantomData<fn() -> P>,
}

impl<P: NvidiaProvider> Debug for OrtNvidiaRuntime<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrtNvidiaRuntime").field("device", &P::DEVICE).field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

/// Where the library with these providers comes from.
const GET: &str = "install ONNX Runtime for GPUs, for example with `pip install onnxruntime-gpu`, and name its file \
                   `onnxruntime/capi/libonnxruntime.so.…` with `--onnxruntime FILE`";

/// Loads ONNX Runtime and the provider, and returns the environment and the number of the GPU.
fn ready<P: NvidiaProvider>(options: &BackendOptions) -> Result<(Environment, i32), BackendError> {
    let environment = environment(options)?;
    let unavailable = |why: String| BackendError::Unavailable(why);
    let is_built = caught(|| P::is_built().map_err(|error| error.to_string())).and_then(|result| result);
    if !is_built.map_err(unavailable)? {
        return Err(unavailable(format!("ONNX Runtime's library was built without {}: {GET}", P::DEVICE)));
    }
    let gpu = gpu(options).map_err(unavailable)?;
    // It finds out whether there is a GPU, and loads its libraries.
    let mut trial = builder(&environment, &Data::new(), 1, GraphOptimizationLevel::Disable)?;
    let registered = caught(|| P::register(&mut trial, gpu, &[]).map_err(|error| error.to_string()));
    registered.and_then(|result| result).map_err(|why| unavailable(no_provider(P::DEVICE, &why)))?;
    Ok((environment, gpu))
}

/// Returns why a provider cannot be used, and what to do.
fn no_provider(device: &str, error: &str) -> String {
    // The text in front of it is about the source of ONNX Runtime.
    let why =
        ["Failed to load library", "CUDA failure"].into_iter().find_map(|begin| Some(&error[error.find(begin)?..]));
    let why = why.unwrap_or(error).trim();
    let way = match why.starts_with("CUDA failure") || why.contains("libcuda.so") {
        true => "install a later NVIDIA driver, or start the container with access to the GPU",
        false => "install the missing NVIDIA libraries, and add their folders to LD_LIBRARY_PATH",
    };
    format!("ONNX Runtime cannot start {device}: {way} ({why})")
}

/// Returns the number of the GPU.
fn gpu(options: &BackendOptions) -> Result<i32, String> {
    let Some(asked) = &options.gpu else { return Ok(0) };
    if let Some(names) = nvidia_gpus() {
        let found = chosen(Some(asked), &names)?;
        let number = found.first().and_then(|number| i32::try_from(*number).ok());
        return number.ok_or_else(|| format!("GPU `{asked}` was not found"));
    }
    let number = asked.parse::<u16>().map(i32::from);
    number.map_err(|_| {
        format!(
            "`--gpu` must be a number without an NVIDIA driver or without the cargo feature `cuda12`, got `{asked}`"
        )
    })
}

impl<P: NvidiaProvider> Runtime for OrtNvidiaRuntime<P> {
    const NAME: &'static str = P::NAME;
    const BACKEND: &'static str = "ort";
    const COMPILES: bool = false;
    const IS_LIBRARY: bool = true;
    const WARMS_UP: bool = true;
    // On an H100, batches of 1 to 8 took up to 121 ms, batches of 8 up to 3.
    const PREFERS_ONE_SIZE: bool = true;
    const DEVICE: &'static str = P::DEVICE;
    // ONNX Runtime opens it when it loads a model.
    const OPENS_FIRST: Option<fn(&BackendOptions)> = Some(|_| ());
    type Shared = Home;
    type Runner = OrtRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        let (_, gpu) = ready::<P>(options)?;
        let mut on_cpu = OrtRuntime::probe(options)?;
        on_cpu.devices = vec![P::DEVICE.into(), "gpu".into()];
        on_cpu.version = format!("ONNX Runtime {}, {}, GPU {gpu}", version(), P::DEVICE);
        Ok(on_cpu)
    }

    fn listed(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        OrtRuntime::probe(options)
    }

    /// Not measured.
    fn is_slow_in_8_bits(_: &str) -> bool {
        false
    }

    fn build(options: &BackendOptions) -> String {
        let Ok((_, gpu)) = ready::<P>(options) else { return String::new() };
        format!("{}; {} {gpu}", OrtRuntime::build(options), P::DEVICE)
    }

    fn device(options: &BackendOptions) -> Option<String> {
        let (_, gpu) = ready::<P>(options).ok()?;
        Some(format!("{}, GPU {gpu}", P::DEVICE))
    }

    fn deviations() -> &'static [Deviation] {
        OrtRuntime::deviations()
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let (environment, gpu) = ready::<P>(options)?;
        let mut compiled = Compiled::default();
        if options.cache.is_some() {
            compiled
                .warnings
                .push("the compiled model is not cached: ONNX Runtime does not check a cached model".into());
        }
        Ok(OrtNvidiaRuntime {
            model: with_left_out(artifact.bytes, &artifact.outline.ops),
            data: data(artifact.data),
            environment,
            gpu,
            compiled: Mutex::new(compiled),
            provider: PhantomData,
        })
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

impl<P: NvidiaProvider> OrtNvidiaRuntime<P> {
    fn open(&self, call: &Call) -> Result<Opened, BackendError> {
        let begun = Instant::now();
        let Provider { cpu_fallback, options } = &call.provider;
        let options: Vec<(String, String)> =
            options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut builder = builder(&self.environment, &self.data, call.threads, GraphOptimizationLevel::All)?;
        P::register(&mut builder, self.gpu, &options).map_err(unsupported)?;
        if !cpu_fallback {
            builder = builder.with_disable_cpu_fallback().map_err(unsupported)?;
        }
        let session = builder.commit_from_memory(&self.model);
        let session = session.map_err(|error| super::why_no_session(P::DEVICE, &error.to_string()))?;
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.compiled += 1;
        compiled.compile_ns += begun.elapsed().as_nanos() as u64;
        let device = format!("{} (GPU {})", P::DEVICE, self.gpu).into();
        Ok(Opened { session: Some(session), device, is_alone: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library of onnxruntime-gpu 1.31.1 says on a machine without a GPU.
    #[test]
    fn why_a_provider_does_not_start_names_a_way_out() {
        for (error, parts) in [
            (
                "/source.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library /p/libonnxruntime_providers_cuda.so with \
                 error: libcublasLt.so.13: cannot open shared object file: No such file or directory\n",
                &[
                    "cannot start cuda: install the missing",
                    "LD_LIBRARY_PATH",
                    "(Failed to load library /p/",
                    "directory)",
                ][..],
            ),
            (
                "/source.cc:129 CudaCall() CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
                &["install a later NVIDIA driver", "(CUDA failure 35: CUDA driver"],
            ),
            (
                "Failed to load library /p/libonnxruntime_providers_cuda.so with error: libcuda.so.1: cannot open shared object file",
                &["install a later NVIDIA driver"],
            ),
            ("something else", &["(something else)"]),
        ] {
            let why = no_provider("cuda", error);
            parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        }
    }

    #[test]
    fn a_gpu_is_named_by_its_number() {
        let options = |gpu: Option<&str>| BackendOptions { gpu: gpu.map(String::from), ..BackendOptions::default() };
        assert_eq!([gpu(&options(None)), gpu(&options(Some("3")))], [Ok(0), Ok(3)]);
        assert!(gpu(&options(Some("none such"))).is_err());
    }
}
