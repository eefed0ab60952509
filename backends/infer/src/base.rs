//! Helpers: elements as numbers, checksums, port names, panics as errors, GPUs by their names.

mod checksum;
mod element;
mod gpus;
mod options;
mod panic;
mod port_name;
mod started;

pub use checksum::sha256;
pub use checksum::sha256_of;
pub(crate) use checksum::{check_sum, read_and_sum};
pub(crate) use element::Access;
pub use element::elements;
#[cfg(any(feature = "tract", feature = "ort"))]
pub(crate) use element::narrow;
pub use gpus::{chosen, nvidia_gpus, set_nvidia_gpus};
pub use options::{BEYOND_TOLERANCE, BackendOptions};
pub(crate) use panic::caught;
pub(crate) use port_name::port_name;
pub(crate) use started::note_serving;
pub use started::{is_serving, this_program};
