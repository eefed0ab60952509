//! The cache on disk: compiled models, results of trials, and measured times of the backends.

mod calibration;
#[cfg_attr(not(feature = "ort"), allow(dead_code))]
mod entry;

pub(crate) use calibration::{Calibration, Measured, MeasuredTime, Measurement};
pub use entry::{CacheKey, Compiled, Kept, read_private, write_private};
#[allow(unused_imports, reason = "each runtime uses some")]
pub(crate) use entry::{CacheLookup, MAX_BYTES, read, room, write};
