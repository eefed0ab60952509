//! Sound devices of Linux, through ALSA's library: frames are read and written without blocking,
//! with the device's times and with descriptors to wait for, and without a thread.
//!
//! The interface: <https://www.alsa-project.org/alsa-doc/alsa-lib/pcm.html>. Frames are interleaved
//! `f32` from −1 to 1, whatever the device's own format is. Without the feature `link` libasound is
//! not linked, and opening a device fails.
//!
//! ```no_run
//! use limen_alsa::{PcmChannels, PcmDirection, Pcm, Wanted};
//! let mut pcm = Pcm::open("hw:0,0", PcmDirection::Capture)?;
//! let wanted = Wanted { channels: PcmChannels::Exactly(1), rate: Some(48_000), format: None, period: 480, buffer: 4_800, wake: 480 };
//! let setup = pcm.set_up(&wanted)?;
//! pcm.start()?;
//! let mut frames = vec![0.0; 480 * setup.channels];
//! let read = pcm.read(&mut frames)?;
//! # std::io::Result::Ok(())
//! ```

#[cfg(not(feature = "link"))]
mod absent;
#[cfg(feature = "link")]
mod library;
#[cfg(any(feature = "link", test))]
mod sample;

#[cfg(not(feature = "link"))]
pub use absent::{Pcm, cards};
#[cfg(feature = "link")]
pub use library::{Pcm, cards};

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Whether libasound is linked (the feature `link`).
pub const IS_LINKED: bool = cfg!(feature = "link");

/// Where the sound goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcmDirection {
    /// From the device: a microphone.
    Capture,
    /// To the device: a loudspeaker.
    Playback,
}

/// The format of a device's samples, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcmFormat {
    /// Floats of 32 bits.
    F32,
    /// Integers of 32 bits.
    S32,
    /// Integers of 24 bits, in four bytes.
    S24,
    /// Integers of 16 bits.
    S16,
}

impl PcmFormat {
    /// All formats, those of more precision first.
    pub const ALL: [PcmFormat; 4] = [PcmFormat::F32, PcmFormat::S32, PcmFormat::S24, PcmFormat::S16];

    /// Bytes of a sample.
    pub fn bytes(self) -> usize {
        if self == PcmFormat::S16 { 2 } else { 4 }
    }
}

impl fmt::Display for PcmFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PcmFormat::F32 => "f32",
            PcmFormat::S32 => "s32",
            PcmFormat::S24 => "s24",
            PcmFormat::S16 => "s16",
        })
    }
}

/// How many channels a device is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcmChannels {
    /// So many; refused if the device lacks them.
    Exactly(u32),
    /// So many, or the nearest number that the device has.
    Near(u32),
}

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How many channels, and whether others are accepted.
    pub channels: PcmChannels,
    /// Frames per second; `None` for 48000 or the nearest rate that the device has.
    pub rate: Option<u32>,
    /// The format of the device's samples; `None` for the first of [`PcmFormat::ALL`] that it has.
    pub format: Option<PcmFormat>,
    /// Frames between two interrupts of the device; the nearest number is taken.
    pub period: usize,
    /// Frames of the device's buffer; the nearest number is taken.
    pub buffer: usize,
    /// With how many frames that can be read or written the descriptors become ready, at most half
    /// of the buffer.
    pub wake: usize,
}

/// How a device was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The channels of a frame.
    pub channels: usize,
    /// Frames per second.
    pub rate: u32,
    /// The format of the device's samples.
    pub format: PcmFormat,
    /// Frames of the device's buffer.
    pub buffer: usize,
    /// With how many frames the descriptors become ready.
    pub wake: usize,
}

/// What a device has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcmCapabilities {
    /// The least and the most channels.
    pub channels: (u32, u32),
    /// The least and the greatest rate, frames per second.
    pub rates: (u32, u32),
    /// Those of its formats that are in [`PcmFormat::ALL`].
    pub formats: Vec<PcmFormat>,
}

impl fmt::Display for PcmCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(least, most): (u32, u32)| match least == most {
            true => least.to_string(),
            false => format!("{least} to {most}"),
        };
        let formats: Vec<String> = self.formats.iter().map(PcmFormat::to_string).collect();
        let formats = if formats.is_empty() { "no supported format".into() } else { formats.join(" ") };
        let plural = if self.channels == (1, 1) { "" } else { "s" };
        write!(f, "{} channel{plural}, {} Hz, {formats}", range(self.channels), range(self.rates))
    }
}

/// A part of [`Wanted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedPart {
    /// [`Wanted::channels`].
    Channels,
    /// [`Wanted::rate`].
    Rate,
    /// [`Wanted::format`].
    Format,
}

/// What a device does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcmState {
    /// Ready to start.
    Prepared,
    /// Sound moves.
    Running,
    /// It plays what is left, and then stops.
    Draining,
    /// It has stopped: its buffer ran over or empty, or the machine was suspended.
    Stopped,
    /// It is gone, or in no state of use.
    Gone,
}

/// Where a device is.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// What it does.
    pub state: PcmState,
    /// The time of this position, by `CLOCK_MONOTONIC`; `None` if the device has none.
    pub time: Option<Duration>,
    /// Frames that can be read or written.
    pub available: usize,
    /// Frames between the program and the microphone or loudspeaker, those in the buffer included.
    pub delay: usize,
}

/// A descriptor of a device.
#[derive(Debug)]
pub struct Descriptor {
    /// A copy of it, which stays open when the device is closed, and keeps the device in use.
    pub fd: OwnedFd,
    /// Whether to wait until it can be read.
    pub read: bool,
    /// Whether to wait until it can be written.
    pub write: bool,
}

/// A sound device of a card.
#[derive(Debug)]
pub struct FoundDevice {
    /// Its name, such as `hw:CARD=PCH,DEV=0`.
    pub name: String,
    /// What the driver calls it.
    pub about: String,
    /// What it captures and plays; or why it cannot be opened. `None` if it does not at all.
    pub capture: Option<io::Result<PcmCapabilities>>,
    /// As `capture`.
    pub playback: Option<io::Result<PcmCapabilities>>,
}
