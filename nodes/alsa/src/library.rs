//! The devices of libasound.

use crate::sample::{decode, encode};
use crate::{
    Descriptor, FoundDevice, PcmCapabilities, PcmChannels, PcmDirection, PcmFormat, PcmState, Position, Setup, Wanted,
    WantedPart,
};
use alsa::card;
use alsa::ctl::{Ctl, DeviceIter};
use alsa::pcm::{Access, Format as AlsaFormat, Frames, HwParams, PCM, State as AlsaState, TstampType};
use alsa::poll::{self, Descriptors as _, Flags, pollfd};
use alsa::{Output, ValueOr};
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Frames that are converted at once.
const CHUNK: usize = 1024;
/// The most cards, and the most devices of a card, that are listed.
const MAX_LISTED: usize = 32;
/// The most descriptors of a device.
const MAX_DESCRIPTORS: usize = 64;
/// The rate that is preferred where none is asked for.
const USUAL_RATE: u32 = 48_000;
const EIO: i32 = 5;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

/// An open device.
pub struct Pcm {
    pcm: PCM,
    direction: PcmDirection,
    setup: Option<Setup>,
    /// Whether the device's times are of `CLOCK_MONOTONIC`.
    is_monotonic: bool,
    /// A chunk in the device's format.
    bytes: Vec<u8>,
    polled: Vec<pollfd>,
}

impl fmt::Debug for Pcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcm").field("direction", &self.direction).field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// The system's error; the library has its numbers with either sign.
fn failed(error: alsa::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno().checked_abs().filter(|number| *number > 0).unwrap_or(EIO))
}

fn of_alsa(format: PcmFormat) -> AlsaFormat {
    match format {
        PcmFormat::F32 => AlsaFormat::FloatLE,
        PcmFormat::S32 => AlsaFormat::S32LE,
        PcmFormat::S24 => AlsaFormat::S24LE,
        PcmFormat::S16 => AlsaFormat::S16LE,
    }
}

fn capabilities(params: &HwParams<'_>) -> alsa::Result<PcmCapabilities> {
    Ok(PcmCapabilities {
        channels: (params.get_channels_min()?, params.get_channels_max()?),
        rates: (params.get_rate_min()?, params.get_rate_max()?),
        formats: PcmFormat::ALL.into_iter().filter(|format| params.test_format(of_alsa(*format)).is_ok()).collect(),
    })
}

fn frames(count: Frames) -> usize {
    usize::try_from(count).unwrap_or(0)
}

impl Pcm {
    /// Opens a device by its name in ALSA's configuration, without waiting for one that is in use.
    /// What the library has to say goes into the error instead of to stderr, and so does what it
    /// says on this thread from then on.
    ///
    /// A name can make the library open files and start programs (`file:FILE=|command`), so it must
    /// not be of an unknown author.
    ///
    /// # Errors
    /// The system's error, with the library's words: there is no such device, or it is in use.
    pub fn open(name: &str, direction: PcmDirection) -> io::Result<Pcm> {
        let said = Output::local_error_handler().ok();
        let open = || {
            let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let direction = match direction {
                PcmDirection::Capture => alsa::Direction::Capture,
                PcmDirection::Playback => alsa::Direction::Playback,
            };
            PCM::open(&name, direction, true).map_err(failed)
        };
        let opened = open().map_err(|error| {
            // A line for each level of the configuration, from the inmost to the outmost.
            let said = said.map(|said| said.borrow().to_string()).unwrap_or_default();
            match said.lines().next().and_then(|line| line.split_once(": ")) {
                Some((_, why)) => io::Error::new(error.kind(), format!("{error}: {}", why.trim())),
                None => error,
            }
        });
        // An empty buffer for what follows.
        let _ = Output::local_error_handler();
        Ok(Pcm { pcm: opened?, direction, setup: None, is_monotonic: false, bytes: Vec::new(), polled: Vec::new() })
    }

    /// Returns what the device has.
    ///
    /// # Errors
    /// The system's error.
    pub fn capabilities(&self) -> io::Result<PcmCapabilities> {
        HwParams::any(&self.pcm).and_then(|params| capabilities(&params)).map_err(failed)
    }

    /// Returns what the device lacks of what is asked, each with a message.
    ///
    /// # Errors
    /// The system's error.
    pub fn refusals(&self, wanted: &Wanted) -> io::Result<Vec<(WantedPart, String)>> {
        let params = HwParams::any(&self.pcm).map_err(failed)?;
        let mut refused = Vec::new();
        if params.test_access(Access::RWInterleaved).is_err() {
            refused.push((WantedPart::Format, "the device must support interleaved frames".into()));
        }
        match wanted.format {
            Some(format) if params.test_format(of_alsa(format)).is_err() => {
                refused.push((WantedPart::Format, format!("the device does not support {format}")));
            }
            None if PcmFormat::ALL.into_iter().all(|format| params.test_format(of_alsa(format)).is_err()) => {
                refused.push((WantedPart::Format, "the device supports no sample format that limen reads".into()));
            }
            _ => {}
        }
        if let PcmChannels::Exactly(channels) = wanted.channels
            && params.test_channels(channels).is_err()
        {
            refused.push((WantedPart::Channels, format!("the device does not support {channels} channels")));
        }
        if let Some(rate) = wanted.rate
            && params.test_rate(rate).is_err()
        {
            refused.push((WantedPart::Rate, format!("the device does not support {rate} Hz")));
        }
        Ok(refused)
    }

    /// Sets the device up, and prepares it. Capture begins with [`Pcm::start`], playback when the
    /// buffer is full or with it.
    ///
    /// # Errors
    /// The system's error: the device lacks something.
    pub fn set_up(&mut self, wanted: &Wanted) -> io::Result<Setup> {
        let (setup, is_monotonic) = self.try_set_up(wanted).map_err(failed)?;
        self.pcm.prepare().map_err(failed)?;
        self.bytes = vec![0; CHUNK * setup.channels * setup.format.bytes()];
        (self.setup, self.is_monotonic) = (Some(setup), is_monotonic);
        Ok(setup)
    }

    fn try_set_up(&self, wanted: &Wanted) -> alsa::Result<(Setup, bool)> {
        let params = HwParams::any(&self.pcm)?;
        params.set_access(Access::RWInterleaved)?;
        let mut formats =
            PcmFormat::ALL.into_iter().filter(|format| wanted.format.is_none_or(|wanted| wanted == *format));
        let format = formats.find(|format| params.set_format(of_alsa(*format)).is_ok());
        let format = format.ok_or_else(|| alsa::Error::unsupported("set_format"))?;
        let channels = match wanted.channels {
            PcmChannels::Exactly(channels) => params.set_channels(channels).map(|()| channels)?,
            PcmChannels::Near(channels) => params.set_channels_near(channels)?,
        };
        let rate = match wanted.rate {
            Some(rate) => params.set_rate(rate, ValueOr::Nearest).map(|()| rate)?,
            None => params.set_rate_near(USUAL_RATE, ValueOr::Nearest)?,
        };
        let ask = |count: usize| Frames::try_from(count.max(1)).unwrap_or(Frames::MAX);
        // Some devices have only certain numbers, and those that cannot be set have theirs.
        let _ = params.set_buffer_size_near(ask(wanted.buffer));
        let _ = params.set_period_size_near(ask(wanted.period), ValueOr::Nearest);
        self.pcm.hw_params(&params)?;
        let params = self.pcm.hw_params_current()?;
        let buffer = frames(params.get_buffer_size()?).max(2);
        let period = frames(params.get_period_size()?).clamp(1, buffer);
        let wake = wanted.wake.clamp(1, buffer / 2);
        drop(params);

        let params = self.pcm.sw_params_current()?;
        params.set_avail_min(ask(wake))?;
        let start = if self.direction == PcmDirection::Capture { 1 } else { buffer / period * period };
        params.set_start_threshold(ask(start))?;
        // Plugins may not know times, or not choose their clock.
        let _ = params.set_tstamp_mode(true);
        let _ = params.set_tstamp_type(TstampType::Monotonic);
        self.pcm.sw_params(&params)?;
        let is_monotonic =
            self.pcm.sw_params_current()?.get_tstamp_type().is_ok_and(|kind| kind == TstampType::Monotonic);
        let channels = channels.try_into().map_err(|_| alsa::Error::unsupported("set_channels"))?;
        Ok((Setup { channels, rate, format, buffer, wake }, is_monotonic))
    }

    /// Returns copies of the device's descriptors. When one is ready, [`Pcm::acknowledge`] says so
    /// to the device. A device may have none.
    ///
    /// # Errors
    /// The system's error.
    pub fn descriptors(&mut self) -> io::Result<Vec<Descriptor>> {
        let count = self.pcm.count().min(MAX_DESCRIPTORS);
        self.polled = vec![pollfd { fd: -1, events: 0, revents: 0 }; count];
        let filled = self.pcm.fill(&mut self.polled).map_err(failed)?;
        self.polled.truncate(filled);
        let copied = self.polled.iter().filter(|polled| polled.fd >= 0).map(|polled| {
            // SAFETY: the device has just named it as one of its own, so it is open, and only the
            // device closes it, which cannot happen during this call. It is borrowed for this call
            // alone.
            let fd = unsafe { BorrowedFd::borrow_raw(polled.fd) }.try_clone_to_owned()?;
            let events = Flags::from_bits_truncate(polled.events);
            Ok(Descriptor { fd, read: events.contains(Flags::IN), write: events.contains(Flags::OUT) })
        });
        copied.collect()
    }

    /// Lets the device see which of its descriptors are ready. Some devices share a timer or a
    /// queue of a server, which stays ready until they have.
    pub fn acknowledge(&mut self) {
        // Refreshed, as a device may replace its descriptors.
        if self.polled.is_empty() || self.pcm.fill(&mut self.polled).is_err() {
            return;
        }
        if poll::poll(&mut self.polled, 0).is_ok_and(|ready| ready > 0) {
            let _ = self.pcm.revents(&self.polled);
        }
    }

    fn state(&self) -> PcmState {
        let is = |state: AlsaState| self.pcm.state_raw() == state as i32;
        match () {
            () if is(AlsaState::Running) || is(AlsaState::Paused) => PcmState::Running,
            () if is(AlsaState::Prepared) => PcmState::Prepared,
            () if is(AlsaState::Draining) => PcmState::Draining,
            () if is(AlsaState::XRun) || is(AlsaState::Suspended) || is(AlsaState::Setup) => PcmState::Stopped,
            () => PcmState::Gone,
        }
    }

    /// Returns where the device is.
    ///
    /// # Errors
    /// The system's error: the device is gone.
    pub fn position(&self) -> io::Result<Position> {
        let status = self.pcm.status().map_err(failed)?;
        let stamp = status.get_htstamp();
        let seconds = u64::try_from(stamp.tv_sec).ok();
        let nanos = u32::try_from(stamp.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000);
        let time = seconds.zip(nanos).map(|(seconds, nanos)| Duration::new(seconds, nanos));
        let buffer = self.setup.map_or(0, |setup| setup.buffer);
        Ok(Position {
            state: self.state(),
            time: time.filter(|time| self.is_monotonic && !time.is_zero()),
            available: frames(status.get_avail()).min(buffer),
            delay: frames(status.get_delay()),
        })
    }

    /// Starts a prepared device.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(&self) -> io::Result<()> {
        self.pcm.start().map_err(failed)
    }

    /// Prepares a device that has stopped. What was in its buffer is lost.
    ///
    /// # Errors
    /// The system's error.
    pub fn prepare(&self) -> io::Result<()> {
        self.pcm.prepare().map_err(failed)
    }

    /// Lets the device play what it has, and then stop. Returns whether it has; otherwise, to be
    /// called again.
    ///
    /// # Errors
    /// The system's error.
    pub fn drain(&self) -> io::Result<bool> {
        match self.pcm.drain().map_err(failed) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(EAGAIN | EINTR)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads frames and returns how many: fewer than requested if there are no more yet.
    ///
    /// # Errors
    /// The system's error, if it comes before the first frame; `WouldBlock` if there is none yet,
    /// `BrokenPipe` after an overrun.
    pub fn read(&mut self, into: &mut [f32]) -> io::Result<usize> {
        let Some(Setup { channels, format, buffer, .. }) = self.setup else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut read = 0;
        // Some plugins do not take more than their buffer holds.
        for into in into.chunks_mut(CHUNK.min(buffer) * channels) {
            let frames = into.len() / channels;
            let bytes = &mut self.bytes[..frames * channels * format.bytes()];
            match transfer(|| self.pcm.io_bytes().readi(bytes)) {
                Ok(count) => {
                    let samples = count.min(frames) * channels;
                    decode(format, &bytes[..samples * format.bytes()], &mut into[..samples]);
                    read += count.min(frames);
                    if count < frames {
                        break;
                    }
                }
                // The next call gives it again.
                Err(_) if read > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Writes frames and returns how many: fewer than given if there is no more room yet.
    ///
    /// # Errors
    /// The system's error, if it comes before the first frame; `WouldBlock` if there is no room,
    /// `BrokenPipe` after an underrun.
    pub fn write(&mut self, samples: &[f32]) -> io::Result<usize> {
        let Some(Setup { channels, format, buffer, .. }) = self.setup else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut written = 0;
        for samples in samples.chunks(CHUNK.min(buffer) * channels) {
            let frames = samples.len() / channels;
            let bytes = &mut self.bytes[..frames * channels * format.bytes()];
            encode(format, samples, bytes);
            match transfer(|| self.pcm.io_bytes().writei(bytes)) {
                Ok(count) => {
                    written += count.min(frames);
                    if count < frames {
                        break;
                    }
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

/// Makes a call that reads or writes, again after a signal.
fn transfer(mut call: impl FnMut() -> alsa::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => return Ok(count),
            Err(error) if error.errno().abs() == EINTR => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Returns the sound devices of this machine's cards. A sound server's devices are not among them.
pub fn cards() -> Vec<FoundDevice> {
    let _ = Output::local_error_handler();
    let mut found = Vec::new();
    for card in card::Iter::new().take(MAX_LISTED).map_while(Result::ok) {
        let Ok(ctl) = Ctl::from_card(&card, true) else { continue };
        let id = ctl.card_info().ok().and_then(|info| info.get_id().ok().map(str::to_string));
        let id = id.unwrap_or_else(|| card.get_index().to_string());
        for number in DeviceIter::new(&ctl).take(MAX_LISTED).filter_map(|number| u32::try_from(number).ok()) {
            let name = format!("hw:CARD={id},DEV={number}");
            let mut about = card.get_name().unwrap_or_default();
            let mut look = |way: alsa::Direction, direction| {
                let info = ctl.pcm_info(number, 0, way).ok()?;
                if let Ok(device) = info.get_name()
                    && !about.contains(device)
                {
                    about = format!("{about}, {device}");
                }
                Some(Pcm::open(&name, direction).and_then(|pcm| pcm.capabilities()))
            };
            let capture = look(alsa::Direction::Capture, PcmDirection::Capture);
            let playback = look(alsa::Direction::Playback, PcmDirection::Playback);
            found.push(FoundDevice { name, about, capture, playback });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(channels: u32) -> Wanted {
        Wanted {
            channels: PcmChannels::Exactly(channels),
            rate: Some(16_000),
            format: None,
            period: 160,
            buffer: 1_600,
            wake: 160,
        }
    }

    #[test]
    fn what_is_written_is_in_the_file_of_the_file_plugin() {
        let path = std::env::temp_dir().join(format!("limen-alsa-{}.raw", std::process::id()));
        let name = format!("file:FILE={},FORMAT=raw", path.display());
        let samples: Vec<f32> = (0..6_000).map(|n| (n as f32 - 3_000.0) / 32_768.0).collect();
        for format in PcmFormat::ALL {
            let mut pcm = Pcm::open(&name, PcmDirection::Playback).unwrap();
            let setup = pcm.set_up(&Wanted { format: Some(format), ..wanted(2) }).unwrap();
            assert_eq!((setup.channels, setup.rate, setup.format), (2, 16_000, format));
            let mut written = 0;
            while written < samples.len() {
                written += pcm.write(&samples[written..]).unwrap() * 2;
            }
            assert!(pcm.drain().unwrap());
            drop(pcm);
            #[expect(clippy::disallowed_methods, reason = "the test's own file")]
            let bytes = std::fs::read(&path).unwrap();
            let mut back = vec![9.0; samples.len()];
            assert_eq!(bytes.len(), samples.len() * format.bytes(), "{format}");
            decode(format, &bytes, &mut back);
            assert!(back == samples, "{format}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_null_plugin_gives_silence_with_a_time() {
        let mut pcm = Pcm::open("null", PcmDirection::Capture).unwrap();
        let setup = pcm.set_up(&wanted(2)).unwrap();
        pcm.start().unwrap();
        assert!(pcm.descriptors().unwrap().iter().all(|descriptor| descriptor.read || descriptor.write));
        pcm.acknowledge();
        let position = pcm.position().unwrap();
        assert_eq!(position.state, PcmState::Running);
        assert!(position.available <= setup.buffer);
        let mut frames = [9.0; 200];
        assert_eq!(pcm.read(&mut frames).unwrap(), 100);
        assert_eq!(frames, [0.0; 200]);
    }

    #[test]
    fn a_device_that_is_not_there_says_so_in_the_error() {
        for name in ["hw:Nowhere", "no_such_name", "hw:0,0,0,0", "nul\0l", "", "plug:{"] {
            let Err(error) = Pcm::open(name, PcmDirection::Playback) else { panic!("opened `{name}`") };
            assert!(!error.to_string().is_empty(), "{name}");
        }
        assert!(Pcm::open("no_such_name", PcmDirection::Capture).unwrap_err().to_string().contains("no_such_name"));
    }

    #[test]
    fn all_that_a_device_lacks_is_said() {
        let path = "/dev/null";
        let pcm = Pcm::open(&format!("file:FILE={path},FORMAT=raw"), PcmDirection::Playback).unwrap();
        let has = pcm.capabilities().unwrap();
        assert_eq!(has.formats, PcmFormat::ALL);
        let wrong = Wanted { channels: PcmChannels::Exactly(0), rate: Some(0), ..wanted(0) };
        let parts: Vec<WantedPart> = pcm.refusals(&wrong).unwrap().into_iter().map(|(part, _)| part).collect();
        assert_eq!(parts, [WantedPart::Channels, WantedPart::Rate]);
        assert!(pcm.refusals(&wanted(2)).unwrap().is_empty());
    }
}
