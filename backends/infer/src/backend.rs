//! The backends, one for each value of `backend:`, and calls in flight.

#[cfg(test)]
mod answers;
mod in_flight;
mod mock;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "rten")]
mod rten;
#[cfg(all(test, any(feature = "rten", feature = "tract", feature = "ort")))]
mod tests;
#[cfg(feature = "tract")]
pub(crate) mod tract;

#[cfg(feature = "ort")]
pub use self::ort::{
    NvidiaProvider, Ort, OrtCuda, OrtNvidiaRuntime, OrtRunner, OrtRuntime, OrtTensorrt, OrtWebgpuRuntime,
};
#[cfg(feature = "ort")]
pub(crate) use self::ort::{library_for as onnxruntime, plugin_for as onnxruntime_plugin};
#[cfg(feature = "rten")]
pub use self::rten::{Rten, RtenRunner, RtenRuntime, on_rten_thread};
#[cfg(feature = "tract")]
pub use self::tract::{Tract, TractRunner, TractRuntime};
pub(crate) use in_flight::{InFlight, InFlightPrepared};
pub use mock::{Mock, MockConfig, MockPrepared, MockSession};
