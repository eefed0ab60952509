//! The cache on disk: compiled models, results of trials, and measured times of the backends.

mod calibration;
mod entry;

pub use calibration::calibrate;
pub(crate) use calibration::{Calibration, Measured, is_asked};
pub use entry::{Compiled, cache_in};
pub(crate) use entry::{Found, Key, folder, read, write};
#[cfg(feature = "ort")]
pub(crate) use entry::{MAX_BYTES, room};
