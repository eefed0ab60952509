//! The cache on disk: compiled models, results of trials, and measured times of the backends.

mod calibration;
mod entry;

pub(crate) use calibration::{Calibration, Measured};
pub use entry::Compiled;
pub(crate) use entry::{Found, Key, read, write};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use entry::{Kept, read_private, write_private};
#[cfg(feature = "ort")]
pub(crate) use entry::{MAX_BYTES, room};
