//! Models as programs of a device.

use super::ProgramDevice;
use super::convert::widen;
use super::runner::ProgramRunner;
use crate::device::SharedDevice;
use limen::backend::{BackendError, Capabilities};
use limen_infer::BackendOptions;
use limen_infer::Compiled;
use limen_infer::TractRuntime;
use limen_infer::internal::{NARROWS_CONSTANTS, NARROWS_FLOATS, computes_doubles};
use limen_infer::onnx::{Artifact, Call, Deviation, Elem, Op, OpenMemory, Precision, Runner, Runtime};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A model that tract has read, and the device that runs it.
pub(crate) struct ProgramRuntime<A: ProgramDevice>(Arc<ProgramModel<A>>);

pub(super) struct ProgramModel<A: ProgramDevice> {
    pub(super) tract: TractRuntime,
    pub(super) device: Arc<SharedDevice<A>>,
    /// The folder of the cache.
    pub(super) cache: Option<PathBuf>,
    pub(super) compiled: Mutex<Compiled>,
}

impl<A: ProgramDevice> fmt::Debug for ProgramRuntime<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgramRuntime").field(&self.0.device).finish()
    }
}

/// Operators of tract that no program has: where their inputs are not constant, planning refuses
/// them.
const NOT_LOWERED: &str = "\
    Compress ConvInteger CumSum DFT DynamicQuantizeLinear GatherND GridSample LRN MatMulInteger Multinomial NonMaxSuppression \
    NonZero QLinearConv QLinearMatMul RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range STFT Scatter \
    ScatterElements ScatterND TopK";

/// Whether no program has an operator: loading has to fold it into a constant.
pub(crate) fn only_folds(operator: &str) -> bool {
    NOT_LOWERED.split_whitespace().any(|name| name == operator)
}

/// Whether no program has what tract makes of a node.
pub(crate) fn lacks(node: &Op) -> bool {
    let is_whole = |scales: &Vec<f32>| scales.iter().all(|scale| scale.fract() == 0.0);
    only_folds(&node.id)
        // The nearest element, where a half is not that above or below it in every operator of
        // tract's, unless each is repeated.
        || node.id == "Resize"
            && node.word("mode").unwrap_or("nearest") == "nearest"
            && matches!(node.word("nearest_mode"), None | Some("round_prefer_floor" | "ceil"))
            && !node.scales.as_ref().is_some_and(is_whole)
}

/// What tract can read and programs have.
pub(crate) fn capabilities(options: &BackendOptions) -> Result<Capabilities, BackendError> {
    let mut found = TractRuntime::probe(options)?;
    let widened = Elem::readable(|elem, input| widen(input, elem, &mut Vec::new()).is_ok());
    found.dtypes.retain(|dtype| widened.contains(dtype));
    Ok(found)
}

impl<A: ProgramDevice> ProgramRuntime<A> {
    pub(crate) fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        let device = A::shared(options);
        device.api()?;
        let tract = TractRuntime::load(artifact, options)?;
        let (cache, compiled) = (options.cache.clone(), Mutex::default());
        Ok(ProgramRuntime(Arc::new(ProgramModel { tract, device, cache, compiled })))
    }

    pub(crate) fn runner(&self, call: &Call) -> Result<Box<dyn Runner>, BackendError> {
        Ok(Box::new(ProgramRunner::new(&self.0, call)?))
    }

    pub(crate) fn compiled(&self) -> Compiled {
        self.0.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Those of tract, which reads the model, and of kernels, which have 32 bits.
static DEVIATIONS: LazyLock<Vec<Deviation>> = LazyLock::new(|| {
    let doubles = Deviation { op: Deviation::ANY, concerns: computes_doubles, what: NARROWS_FLOATS };
    TractRuntime::deviations().iter().copied().chain([NARROWS_CONSTANTS, doubles]).collect()
});

/// Makes a backend's runtime of one for an API: how it is found is its own.
macro_rules! program_runtime {
    ($(#[$about:meta])* $name:ident, $api:ty, $label:literal, $precisions:expr, $opens_first:expr, $probe:path, $about_device:path) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name(ProgramRuntime<$api>);

        impl Runtime for $name {
            const NAME: &'static str = $label;
            const COMPILES: bool = true;
            const DEVICE: &'static str = "gpu";
            const MEMORY: Option<(&'static str, OpenMemory)> =
                Some(($label, |options| <$api as ProgramDevice>::shared(options)));
            const CAPTURES: bool = <$api as ProgramDevice>::CAPTURES;
            const PRECISIONS: &'static [Precision] = {
                use Precision::*;
                &$precisions
            };
            const OPENS_FIRST: Option<fn(&BackendOptions)> = $opens_first;
            type Shared = ();
            type Runner = Box<dyn Runner>;

            fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
                $probe(options)
            }

            fn listed(options: &BackendOptions) -> Result<Capabilities, BackendError> {
                TractRuntime::probe(options)
            }

            fn rewrites(operator: &str) -> bool {
                TractRuntime::rewrites(operator)
            }

            fn only_folds(operator: &str) -> bool {
                only_folds(operator)
            }

            fn lacks(node: &Op) -> bool {
                lacks(node)
            }

            fn device(options: &BackendOptions) -> Option<String> {
                $about_device(options)
            }

            fn deviations() -> &'static [Deviation] {
                &DEVIATIONS
            }

            fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
                ProgramRuntime::load(artifact, options).map($name)
            }

            fn share(&self, _: &Call) -> Result<(), BackendError> {
                Ok(())
            }

            fn runner(&self, (): &(), call: &Call) -> Result<Box<dyn Runner>, BackendError> {
                self.0.runner(call)
            }

            fn compiled(&self) -> Option<Compiled> {
                Some(self.0.compiled())
            }
        }
    };
}

#[cfg(feature = "wgpu")]
program_runtime!(
    /// Models on a GPU through wgpu.
    WgpuRuntime, crate::backend::wgpu::WgpuApi, "wgpu", [F32, F16, Bf16], None, crate::backend::wgpu::probe, crate::backend::wgpu::about_device
);
#[cfg(feature = "cuda")]
program_runtime!(
    /// Models on an NVIDIA GPU through CUDA.
    CudaRuntime, crate::backend::cuda::CudaApi, "cuda", [F32, F16, Bf16, Tf32],
    Some(|options| _ = crate::backend::shared_cuda_device(options).api()), crate::backend::cuda::probe, crate::backend::cuda::about_device
);
#[cfg(feature = "cuda")]
program_runtime!(
    /// Models on an NVIDIA GPU, in a process of its own. Its results are those of [`CudaRuntime`],
    /// and so is its name.
    IsolatedCudaRuntime, crate::backend::cuda::IsolatedCuda, "cuda", [F32, F16, Bf16, Tf32],
    Some(|options| _ = crate::backend::shared_cuda_device(options).api()), crate::backend::cuda::probe,
    crate::backend::cuda::about_isolated_device
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::program::MadeProgram;
    use crate::lowering::lower;
    use crate::lowering::test_cases::matmul;
    use crate::test_models::{ints, model};
    use limen::backend::{Backend, BatchMut, BatchRef, Prepared, Session};
    use limen::message::{DType, Memory};
    use limen_infer::internal::capabilities;
    use limen_infer::onnx::Onnx;
    use limen_infer::{Dispatch, OnnxModel};
    use rten_onnx::onnx::DataType as D;

    /// Without looking for drivers: what it lacks is known of every device.
    #[test]
    fn operators_without_a_device_program_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let k = [ints("k", &[2])];
        let (x, y) = ([("x", D::FLOAT, &["4"][..])], [("y", D::FLOAT, &["2"][..])]);
        std::fs::write(&path, model(&x, &y, &k, &["r = Relu x", "y = TopK r k"])).unwrap();
        let registry = limen::Registry::new().with(limen_infer::register).with(crate::register);
        let dispatch = limen_infer::inspect(&path).unwrap().dispatch(registry.extensions());
        for (backend, is_built) in [("wgpu", cfg!(feature = "wgpu")), ("cuda", cfg!(feature = "cuda"))] {
            let unsupported = |backend: &str| match dispatch.iter().find(|(name, _)| *name == backend) {
                Some((_, Dispatch::Known { unsupported, .. })) => unsupported.join(" "),
                other => panic!("{other:?}"),
            };
            if is_built {
                assert_eq!((unsupported("tract"), unsupported(backend)), (String::new(), "TopK".into()));
            }
        }
    }

    /// Checks what a device says that it can do by what it does; nothing where there is no device.
    fn check_capabilities<A: ProgramDevice, R: Runtime>() {
        let options = BackendOptions { allow_software: true, ..BackendOptions::default() };
        let Ok((_, api)) = A::shared(&options).api() else { return };
        let found = capabilities::<R>(&options).unwrap();
        let bound = api.bind(Arc::new(lower(&matmul(2, 3, 4).model).unwrap()), None).unwrap();
        assert_eq!(bound.is_captured(), found.graph_capture, "{found:?}");
        let types = [
            (D::FLOAT, DType::F32),
            (D::FLOAT16, DType::F16),
            (D::INT8, DType::I8),
            (D::UINT8, DType::U8),
            (D::INT16, DType::I16),
            (D::UINT16, DType::U16),
            (D::INT32, DType::I32),
            (D::UINT32, DType::U32),
            (D::UINT64, DType::U64),
        ];
        for (elem, dtype) in types {
            let file = model(&[("x", elem, &["n", "4"])], &[("y", elem, &["n", "4"])], &[], &["y = Identity x"]);
            let bytes = Some(file);
            let prepared = Onnx::<R>::prepare(OnnxModel {
                path: "m.onnx".into(),
                bytes,
                options: options.clone(),
                ..OnnxModel::default()
            });
            let called = prepared.and_then(|prepared| {
                let mut session = prepared.session(1)?;
                let (x, mut y, size) = ([1u64; 4], [0u64; 4], 4 * dtype.size());
                let input = BatchRef { dtype, shape: &[4], bytes: &bytemuck::cast_slice(&x)[..size] };
                let output = BatchMut { dtype, shape: &mut [4], bytes: &mut bytemuck::cast_slice_mut(&mut y)[..size] };
                session.infer_one(&[input], &mut [output], &mut Default::default())?;
                // Its calls with messages on the device are asynchronous.
                let is_on_device = session.enqueued().is_some();
                assert_eq!((is_on_device, is_on_device), (found.streams, found.memory.contains(&Memory::Device(0))));
                assert_eq!(session.metadata().threads, found.max_threads.unwrap_or(1));
                Ok(())
            });
            assert_eq!(called.is_ok(), found.dtypes.contains(&dtype), "{dtype}: {called:?}, {found:?}");
        }
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_device_of_wgpu_does_what_its_capabilities_say() {
        check_capabilities::<crate::backend::WgpuApi, WgpuRuntime>();
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_device_of_cuda_does_what_its_capabilities_say() {
        check_capabilities::<crate::backend::CudaApi, CudaRuntime>();
        // A process of its own makes the same calls.
        let options = BackendOptions::default();
        if let Ok(found) = capabilities::<CudaRuntime>(&options) {
            assert_eq!(capabilities::<IsolatedCudaRuntime>(&options).unwrap(), found);
        }
    }
}
