//! The shared libraries, and whether they have the functions that are called.

use crate::error::Error;
use std::fmt;
use std::sync::OnceLock;

/// A shared library of NVIDIA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver, `libcuda.so.1`.
    Driver,
    /// The compiler, `libnvrtc.so`.
    Nvrtc,
    /// Matrix products, `libcublasLt.so`.
    CublasLt,
    /// Convolutions, `libcudnn.so`.
    Cudnn,
}

/// What is missing of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingLibrary {
    /// It is not found, or cannot be loaded.
    Library(Library),
    /// It lacks a function: another version is needed.
    Symbol(Library, &'static str),
}

/// The functions of the driver that are called here.
const DRIVER: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    #[cfg(not(feature = "cuda13"))]
    "cuEventElapsedTime",
    #[cfg(feature = "cuda13")]
    "cuEventElapsedTime_v2",
    "cuEventDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuModuleUnload",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuGetErrorName",
    "cuGetErrorString",
];

/// Those of the compiler.
const NVRTC: &[&str] = &[
    "nvrtcVersion",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
];

/// Those of cuBLASLt.
const CUBLAS_LT: &[&str] = &[
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
];

/// Those of cuDNN.
const CUDNN: &[&str] = &[
    "cudnnGetVersion",
    "cudnnCreate",
    "cudnnDestroy",
    "cudnnSetStream",
    "cudnnCreateTensorDescriptor",
    "cudnnSetTensorNdDescriptor",
    "cudnnDestroyTensorDescriptor",
    "cudnnCreateFilterDescriptor",
    "cudnnSetFilterNdDescriptor",
    "cudnnDestroyFilterDescriptor",
    "cudnnCreateConvolutionDescriptor",
    "cudnnSetConvolutionNdDescriptor",
    "cudnnSetConvolutionGroupCount",
    "cudnnSetConvolutionMathType",
    "cudnnDestroyConvolutionDescriptor",
    "cudnnGetConvolutionForwardAlgorithm_v7",
    "cudnnGetConvolutionForwardWorkspaceSize",
    "cudnnConvolutionForward",
    "cudnnGetConvolutionBackwardDataAlgorithm_v7",
    "cudnnGetConvolutionBackwardDataWorkspaceSize",
    "cudnnConvolutionBackwardData",
];

impl Library {
    /// Loads the library, once, and looks up all functions that are called here.
    ///
    /// # Errors
    /// What is missing; the bindings would panic there.
    pub fn load(self) -> Result<(), Error> {
        static FOUND: [OnceLock<Result<(), MissingLibrary>>; 4] = [const { OnceLock::new() }; 4];
        let found = FOUND[self as usize].get_or_init(|| self.find());
        found.clone().map_err(Error::Missing)
    }

    /// Whether the driver has a function that not every version has.
    pub(crate) fn driver_has(symbol: &str) -> bool {
        // SAFETY: the driver is loaded, so this does not panic. The function is looked up, not
        // called.
        let found = || unsafe { cudarc::driver::sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() };
        Library::Driver.load().is_ok() && found()
    }

    fn find(self) -> Result<(), MissingLibrary> {
        let symbols = match self {
            Library::Driver => DRIVER,
            Library::Nvrtc => NVRTC,
            Library::CublasLt => CUBLAS_LT,
            Library::Cudnn => CUDNN,
        };
        // SAFETY: loading runs the initializers of NVIDIA's libraries, which is what a program with
        // this crate asks for.
        let is_present = unsafe {
            match self {
                Library::Driver => cudarc::driver::sys::is_culib_present(),
                Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Library::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
                Library::Cudnn => cudarc::cudnn::sys::is_culib_present(),
            }
        };
        if !is_present {
            return Err(MissingLibrary::Library(self));
        }
        // SAFETY: it was found above, so this does not panic. The functions are looked up, not
        // called, so their types do not matter.
        let lacks = |name: &&&str| unsafe {
            let library = match self {
                Library::Driver => cudarc::driver::sys::culib(),
                Library::Nvrtc => cudarc::nvrtc::sys::culib(),
                Library::CublasLt => cudarc::cublaslt::sys::culib(),
                Library::Cudnn => cudarc::cudnn::sys::culib(),
            };
            library.get::<unsafe extern "C" fn()>(name.as_bytes()).is_err()
        };
        match symbols.iter().find(lacks) {
            Some(symbol) => Err(MissingLibrary::Symbol(self, symbol)),
            None => Ok(()),
        }
    }

    /// Returns what it is.
    pub fn about(self) -> &'static str {
        match self {
            Library::Driver => "NVIDIA's driver (`libcuda.so.1`)",
            Library::Nvrtc => "NVIDIA's compiler NVRTC (`libnvrtc.so`)",
            Library::CublasLt => "NVIDIA's library cuBLASLt (`libcublasLt.so`)",
            Library::Cudnn => "NVIDIA's library cuDNN (`libcudnn.so`)",
        }
    }

    /// Returns where it comes from.
    pub fn origin(self) -> &'static str {
        match self {
            Library::Driver => "install NVIDIA's driver, or start the container with access to the GPU",
            Library::Nvrtc => match cfg!(feature = "cuda13") {
                true => {
                    "install the CUDA toolkit 13 or run `pip install nvidia-cuda-nvrtc`, and add the folder of NVRTC to LD_LIBRARY_PATH"
                }
                false => {
                    "install the CUDA toolkit 12 or run `pip install nvidia-cuda-nvrtc-cu12`, and add the folder of NVRTC to LD_LIBRARY_PATH"
                }
            },
            Library::CublasLt => match cfg!(feature = "cuda13") {
                true => {
                    "install the CUDA toolkit or run `pip install nvidia-cublas`, and add the folder of cuBLASLt to LD_LIBRARY_PATH"
                }
                false => {
                    "install the CUDA toolkit or run `pip install nvidia-cublas-cu12`, and add the folder of cuBLASLt to LD_LIBRARY_PATH"
                }
            },
            Library::Cudnn => match cfg!(feature = "cuda13") {
                true => "run `pip install nvidia-cudnn-cu13`, and add the folder of cuDNN to LD_LIBRARY_PATH",
                false => "run `pip install nvidia-cudnn-cu12`, and add the folder of cuDNN to LD_LIBRARY_PATH",
            },
        }
    }
}

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingLibrary::Library(library) => write!(f, "{} is not found: {}", library.about(), library.origin()),
            MissingLibrary::Symbol(library, symbol) => {
                write!(f, "{} is too old: install a version with the function `{symbol}`", library.about())
            }
        }
    }
}
