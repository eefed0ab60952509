//! What devices send: CAN frames, sound, and the times of a device's clock.

pub(crate) mod bus_errors;
pub(crate) mod can_frame;
pub(crate) mod device_clock;
pub(crate) mod sound_device;

pub use device_clock::StampClock;
pub use sound_device::{FoundSoundDevice, SampleFormat, sound_devices};
