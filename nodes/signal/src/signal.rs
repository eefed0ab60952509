//! Samples of sound and sensors: where they are in messages, filters and spectra.

pub(crate) mod band;
pub(crate) mod mel;
pub(crate) mod samples;
pub(crate) mod spectrum;

pub use samples::Along;
pub use spectrum::WindowFunction;
