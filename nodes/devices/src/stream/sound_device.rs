//! The sound device behind the source and the sink `audio`.

use limen::Folders;
use limen::node::{Descriptors, Interest, PlanErrors, Watched};
use limen::unit::{Span, show_ns};
use limen_alsa::{Pcm, PcmCapabilities, PcmChannels, PcmDirection, PcmFormat, Setup, Wanted, WantedPart};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io;
use std::os::fd::OwnedFd;

/// The default of `pcm`.
pub(crate) fn default_name() -> String {
    "default".into()
}

/// The most channels.
pub(crate) const MAX_CHANNELS: usize = 256;
/// The longest name of a device.
const MAX_NAME: usize = 256;
/// The rate for which a buffer is sized if none is asked for.
const USUAL_RATE: u32 = 48_000;
/// The least and the greatest buffer, ns.
const BUFFERS: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000;

/// Names of ALSA's that take arguments and open devices of cards alone. Others open files and start
/// programs (`file`, `tee`).
const WITH_ARGUMENTS: [&str; 21] = [
    "hw",
    "plughw",
    "default",
    "sysdefault",
    "dmix",
    "dsnoop",
    "dshare",
    "front",
    "rear",
    "center_lfe",
    "side",
    "surround21",
    "surround40",
    "surround41",
    "surround50",
    "surround51",
    "surround71",
    "iec958",
    "spdif",
    "hdmi",
    "usbstream",
];

/// Sample format of a sound device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SampleFormat {
    /// 32-bit floats.
    F32,
    /// 32-bit integers.
    S32,
    /// 24-bit integers in four bytes.
    S24,
    /// 16-bit integers.
    S16,
}

impl From<SampleFormat> for PcmFormat {
    fn from(format: SampleFormat) -> PcmFormat {
        match format {
            SampleFormat::F32 => PcmFormat::F32,
            SampleFormat::S32 => PcmFormat::S32,
            SampleFormat::S24 => PcmFormat::S24,
            SampleFormat::S16 => PcmFormat::S16,
        }
    }
}

/// A sound device of this machine.
#[derive(Debug)]
pub struct FoundSoundDevice {
    /// Its name, such as `hw:CARD=PCH,DEV=0`.
    pub name: String,
    /// What the driver calls it, and what it captures and plays; or why it cannot be opened.
    pub about: Result<String, io::Error>,
}

/// Returns the sound devices of this machine's cards: none without the feature `audio`.
pub fn sound_devices() -> Vec<FoundSoundDevice> {
    let found = limen_alsa::cards().into_iter().map(|device| {
        let about = || {
            let ways = [("captures", device.capture), ("plays", device.playback)];
            let mut about = device.about;
            for (way, has) in ways {
                if let Some(has) = has {
                    about = format!("{about}; {way} {}", has?);
                }
            }
            Ok(about)
        };
        FoundSoundDevice { about: about(), name: device.name }
    });
    found.collect()
}

/// Returns why a name is not that of a device, and what to write, if it is not.
fn refuse(name: &str) -> Option<(String, &'static str)> {
    let is_plain =
        |text: &str, more: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(char::from(b)));
    let help = "write `default`, a name that `limen-run doctor` lists, or a name from `~/.asoundrc`";
    let (word, arguments) = name.split_once(':').unwrap_or((name, ""));
    if word.is_empty() || name.len() > MAX_NAME || !is_plain(word, "_-.") {
        return Some((format!("`{}` is not the name of a sound device", name.escape_debug()), help));
    }
    if name.contains(':') && !WITH_ARGUMENTS.contains(&word) {
        let help = "define a device without arguments in `~/.asoundrc`, and write its name in `pcm`";
        return Some((
            format!("`{word}` must have no arguments: an argument could open a file or start a program"),
            help,
        ));
    }
    if !is_plain(arguments, "_-.=,") {
        return Some((format!("`{}` is not the name of a sound device", name.escape_debug()), help));
    }
    None
}

/// What a node asks of its device.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) direction: PcmDirection,
    pub(crate) channels: PcmChannels,
    pub(crate) rate: Option<u32>,
    pub(crate) format: Option<SampleFormat>,
    pub(crate) buffer: Span,
    /// Frames that are read or written at once.
    pub(crate) block: usize,
}

impl Ask {
    fn wanted(&self) -> Wanted {
        let rate = self.rate.unwrap_or(USUAL_RATE);
        let buffer = (u128::from(self.buffer.as_nanos()) * u128::from(rate) / 1_000_000_000).clamp(2, 1 << 24) as usize;
        // A device that is late by a period must still find room.
        let period = if self.block <= buffer / 2 { self.block } else { buffer / 4 };
        Wanted {
            channels: self.channels,
            rate: self.rate,
            format: self.format.map(PcmFormat::from),
            period: period.max(1),
            buffer,
            wake: self.block.min(buffer / 2),
        }
    }

    /// Checks what can be checked without the device. Returns whether it may be opened.
    pub(crate) fn check(&self, device: &str, folders: &Folders, errors: &mut PlanErrors) -> bool {
        if !BUFFERS.contains(&self.buffer.as_nanos()) {
            errors
                .at("buffer", format!("`buffer` must be 1ms to 10s, got {}", show_ns(self.buffer.as_nanos())))
                .help("write a time such as `200ms`");
        }
        if let Some((message, help)) = refuse(device) {
            errors.at("pcm", message).help(help);
            return false;
        }
        if folders.input("/dev/snd").is_err() {
            let help = "run with `--allow-path /dev`";
            errors.at("pcm", format!("the sound device `{device}` is outside the graph's folder")).help(help);
            return false;
        }
        if !limen_alsa::IS_LINKED {
            let help =
                "build limen-run with `--features audio`, or your program with the feature `audio` of limen-devices";
            errors.at("pcm", "this program was built without sound devices").help(help);
            return false;
        }
        true
    }

    /// Opens and sets up a device as a graph is planned, and closes it. Every problem goes to
    /// `errors`.
    pub(crate) fn plan(&self, device: &str, folders: &Folders, errors: &mut PlanErrors) -> Option<Setup> {
        if !self.check(device, folders, errors) {
            return None;
        }
        match self.look(device) {
            Ok(Ok(setup)) => Some(setup),
            Ok(Err((refused, has))) => {
                for (part, message) in refused {
                    let field = match part {
                        // A sink has no such key: its input says it.
                        WantedPart::Channels if self.direction == PcmDirection::Playback => "pcm",
                        WantedPart::Channels => "channels",
                        WantedPart::Rate => "sample_rate",
                        WantedPart::Format if self.format.is_some() => "format",
                        WantedPart::Format => "pcm",
                    };
                    let mut help = format!("write a value that `{device}` supports: {has}");
                    if let Some(arguments) = device.strip_prefix("hw:") {
                        help = format!("{help}; or write `pcm: plughw:{arguments}`, which converts");
                    }
                    errors.at(field, message).help(help);
                }
                None
            }
            Err(error) => {
                let help = match error.kind() {
                    io::ErrorKind::ResourceBusy => "close the program that uses the device, or write another device",
                    io::ErrorKind::PermissionDenied => {
                        "add the user to the group `audio`: `sudo usermod -aG audio $USER`"
                    }
                    _ => "write a device that `limen-run doctor` lists",
                };
                errors.at("pcm", format!("`{device}`: {error}")).help(help);
                None
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "of one caller")]
    fn look(&self, device: &str) -> io::Result<Result<Setup, (Vec<(WantedPart, String)>, PcmCapabilities)>> {
        let mut pcm = Pcm::open(device, self.direction)?;
        let wanted = self.wanted();
        let refused = pcm.refusals(&wanted)?;
        if !refused.is_empty() {
            return Ok(Err((refused, pcm.capabilities()?)));
        }
        pcm.set_up(&wanted).map(Ok)
    }

    /// Opens a device for a node.
    pub(crate) fn open(&self, device: &str, descriptors: &Descriptors) -> io::Result<SoundDevice> {
        let mut pcm = Pcm::open(device, self.direction)?;
        let setup = pcm.set_up(&self.wanted())?;
        let mut watched = Vec::new();
        for found in pcm.descriptors()? {
            let interest = match (found.read, found.write) {
                (true, true) => Interest::Both,
                (true, false) => Interest::Read,
                (false, true) => Interest::Write,
                (false, false) => continue,
            };
            let now = if self.direction == PcmDirection::Capture { interest } else { Interest::Nothing };
            watched.push((descriptors.watch(found.fd, now)?, interest));
        }
        // The kernel cannot wait for files and for /dev/null, which count as ready: time decides
        // then.
        if watched.iter().any(|(descriptor, _)| descriptor.is_ready()) {
            watched.clear();
        }
        Ok(SoundDevice { watched, pcm, setup })
    }
}

/// An open device.
#[derive(Debug)]
pub(crate) struct SoundDevice {
    /// Its descriptors, and what to wait for; none if the kernel cannot wait for them.
    watched: Vec<(Watched<OwnedFd>, Interest)>,
    pub(crate) pcm: Pcm,
    pub(crate) setup: Setup,
}

impl SoundDevice {
    /// Whether the worker can wait for it; if not, for a time.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Makes the worker wait for the device, or not.
    pub(crate) fn wait(&self, is_waiting: bool) {
        for (descriptor, interest) in &self.watched {
            descriptor.set_interest(if is_waiting { *interest } else { Interest::Nothing });
        }
    }

    /// Returns the time of so many frames, ns.
    pub(crate) fn time_of(&self, frames: usize) -> u64 {
        time_of(frames, self.setup.rate)
    }
}

/// Returns the time of so many frames at a rate, ns.
pub(crate) fn time_of(frames: usize, rate: u32) -> u64 {
    u64::try_from(frames as u128 * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_open_devices_and_neither_files_nor_programs() {
        for name in
            ["default", "hw:0", "hw:0,0", "hw:CARD=Loopback,DEV=1", "plughw:CARD=PCH", "my-mic_2.1", "null", "pipewire"]
        {
            assert_eq!(refuse(name), None, "{name}");
        }
        for name in [
            "",
            ":",
            "hw:'{type file}'",
            "file:FILE=|reboot,FORMAT=raw",
            "file:/etc/passwd",
            "file:x",
            "tee:hw,x,raw",
            "plug:file",
            "{ type hw }",
            "hw:0:1",
            "a b",
            "../a",
            "nul\0l",
        ] {
            assert!(refuse(name).is_some(), "{name}");
        }
        assert!(refuse(&"a".repeat(1_000)).is_some());
    }
}
