//! What is kept on disk from one start to the next: compiled models, what trials found, and how long backends take.

mod calibration;
mod entry;

pub use calibration::calibrate;
pub(crate) use calibration::{Calibration, Measured, is_asked};
pub use entry::{Compiled, cache_in};
pub(crate) use entry::{Found, Key, folder, read, write};
#[cfg(feature = "ort")]
pub(crate) use entry::{MAX_BYTES, room};
