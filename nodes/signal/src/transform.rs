//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its
//! output is `out`.

pub mod fir;
pub mod iir;
pub mod log_mel;
pub mod stft;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .transform::<fir::Fir>("fir")
        .transform::<iir::Iir>("iir")
        .transform::<log_mel::LogMel>("log_mel")
        .transform::<stft::Stft>("stft")
}
