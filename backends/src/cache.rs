//! The cache on disk: compiled models, results of trials, and measured times of the backends.

mod calibration;
#[cfg_attr(not(all(feature = "cuda", feature = "ort", feature = "wgpu")), allow(dead_code))]
mod entry;

pub(crate) use calibration::{Calibration, Measured};
pub use entry::Compiled;
#[allow(unused_imports, reason = "each runtime uses some")]
pub(crate) use entry::{Found, Kept, Key, MAX_BYTES, read, read_private, room, write, write_private};
