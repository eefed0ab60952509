//! Helpers: elements as numbers, checksums, port names, panics as errors.

mod checksum;
mod element;
mod options;
mod panic;
mod port_name;
#[cfg(feature = "tract")]
mod quantize;
mod remote;
mod started;
#[cfg(feature = "tract")]
mod wide_sum;

pub(crate) use checksum::{check_sum, read_and_sum, sha256};
pub(crate) use element::Access;
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
pub(crate) use element::elements;
#[cfg(any(feature = "tract", feature = "ort"))]
pub(crate) use element::narrow;
pub use options::{BEYOND_TOLERANCE, BackendOptions};
pub(crate) use panic::caught;
pub(crate) use port_name::port_name;
#[cfg(feature = "tract")]
pub(crate) use quantize::{Quantize, Quotient};
pub(crate) use remote::refuse_remote;
pub(crate) use started::{is_serving, note_serving, this_program};
#[cfg(feature = "tract")]
pub(crate) use wide_sum::WideSum;
