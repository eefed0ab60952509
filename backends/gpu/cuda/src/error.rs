//! What can go wrong, and what to do about it.

use crate::library::MissingLibrary;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// With less at once it may succeed: the device has no memory left.
    Retry,
    /// This call cannot be done; others can.
    Reject,
    /// Every later call of this process on the device fails too. NVIDIA says of these errors that
    /// the process has to end.
    Sticky,
}

/// An error of CUDA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A library or a function of it.
    #[error("{0}")]
    Missing(MissingLibrary),
    /// A call of the driver failed.
    #[error("{call}: {name} ({code}): {text}")]
    Driver {
        /// What was called.
        call: &'static str,
        /// The number of the error.
        code: u32,
        /// The name of the error, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// What the driver says of it.
        text: String,
    },
    /// The device was given up ([`Context::give_up`](crate::Context::give_up)).
    #[error("{0}")]
    Lost(String),
    /// A program that does not compile, with what the compiler says.
    #[error("{0}")]
    Compile(String),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn driver(call: &'static str, error: DriverError) -> Error {
        let text = |of: Result<&std::ffi::CStr, DriverError>| {
            of.map(|text| text.to_string_lossy().into_owned()).unwrap_or_else(|_| "unknown".into())
        };
        Error::Driver { call, code: error.0 as u32, name: text(error.error_name()), text: text(error.error_string()) }
    }

    /// Returns what to do about it.
    pub fn class(&self) -> Class {
        let code = match self {
            Error::Driver { code, .. } => *code,
            Error::Lost(_) => return Class::Sticky,
            _ => return Class::Reject,
        };
        match code {
            code if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32 => Class::Retry,
            code if STICKY.iter().any(|sticky| *sticky as u32 == code) => Class::Sticky,
            _ => Class::Reject,
        }
    }
}

/// Errors of which NVIDIA's documentation says that the context, or the process, cannot be used any
/// more.
const STICKY: &[CUresult] = &[
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// The result of a call of the driver, with its name.
pub(crate) trait NamedResult<T> {
    fn named(self, call: &'static str) -> Result<T, Error>;
}

impl<T> NamedResult<T> for Result<T, DriverError> {
    fn named(self, call: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::driver(call, error))
    }
}
