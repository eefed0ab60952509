//! Sound to a device.

use crate::stream::sound_device::{Ask, MAX_CHANNELS, SampleFormat, SoundDevice, default_name};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Descriptors, LossCounter, Metrics, Node, NodeError, PlanErrors, Planning, Ports,
    Progress, Sink,
};
use limen::unit::{Rate, Span, show_ns};
use limen::{Clock, Message, Tensor, Time};
use limen_alsa::{PcmChannels, PcmDirection, PcmState};
use limen_nodes_core::pace;
use limen_nodes_core::stream::removable::Removable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Plays sound on an ALSA device, such as a loudspeaker: `f32[frames,channels]` or
/// `i16[frames,channels]`. A message with a single channel may omit the channel dim, as in the sink
/// `wav`.
///
/// Sound devices require a build with the feature `audio`. The device is outside the graph's
/// folder, so the command line must contain `--allow-path /dev`.
///
/// Playback starts when the device buffer is full, or when the time `buffer` has passed since the
/// first message. While the buffer is full, a message waits for space and delays later messages.
/// `underruns` counts how often the buffer became empty before the next message arrived.
///
/// `unsent` counts messages that the device did not accept completely, because the device
/// disappeared or played nothing for 2 s. The node reopens the device when the device reappears. At
/// the end of the run, the node waits until the device has played the buffer. This wait ends at
/// most 1 s after the expected end of playback. `drained` is 1 if the device has played the whole
/// buffer. `unplayed` counts messages that the device had not played at the end of this wait, or
/// when the device disappeared.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct AudioSinkConfig {
    /// ALSA PCM name of the device, such as `hw:CARD=PCH,DEV=0`. Default: `default`.
    #[serde(default = "default_name")]
    pub pcm: String,
    /// Sample rate that the device supports, such as `16kHz`.
    pub sample_rate: Rate,
    /// Sample format of the device. Default: the first supported format in the order `f32`, `s32`,
    /// `s24`, `s16`.
    pub format: Option<SampleFormat>,
    /// Length of the device buffer, `1ms` to `10s`. The device may set a slightly different length.
    /// A longer buffer tolerates later messages but adds latency. Default: `200ms`.
    #[serde(default = "buffer")]
    pub buffer: Span,
}

fn buffer() -> Span {
    Span(Duration::from_millis(200))
}

/// How long a device may take nothing, ns.
const STALLED: u64 = 2_000_000_000;
/// How long it may play longer than expected at the end, ns.
const DRAIN_WAIT: u64 = 1_000_000_000;
/// The least and the longest time to the next look at a device that the worker cannot wait for, ns.
const AGAIN: (u64, u64) = (1_000_000, 20_000_000);
/// How often a call begins to write again after an underrun.
const TRIES: usize = 3;

/// Runs `kind: audio`; [`AudioSinkConfig`] says what it does.
#[derive(Debug)]
pub struct AudioSink {
    config: AudioSinkConfig,
    ask: Ask,
    descriptors: Descriptors,
    clock: Clock,
    device: Removable<SoundDevice>,
    channels: usize,
    /// The samples of the message that is being written, and how many were.
    pending: Vec<f32>,
    written: usize,
    /// When the device last took a frame.
    moved: Time,
    /// When a device that has frames and is not started is started.
    begins: Time,
    /// Frames that the device had to play after the last write, and when that was.
    queued: (usize, Time),
    /// Frames of the last message.
    last: usize,
    is_ending: bool,
    /// Until when to wait for the end of playback.
    drains: Option<Time>,
    is_drained: bool,
    sent: u64,
    frames: u64,
    underruns: u64,
    unsent: LossCounter,
    unplayed: LossCounter,
}

/// Returns the number of channels of a spec, or the message and the help of an error.
fn channels(spec: &PortSpec) -> Result<usize, (String, &'static str)> {
    let wrong = |help| Err((format!("expected f32[frames,channels] or i16[frames,channels], found {spec}"), help));
    if !matches!(spec.dtype, DType::F32 | DType::I16) {
        return wrong("add a `cast` node upstream of this node");
    }
    match spec.shape[..] {
        [_] => Ok(1),
        [_, Dim::Fixed(channels @ 1..=MAX_CHANNELS)] => Ok(channels),
        _ => wrong("connect a tensor f32[frames,channels] with 1 to 256 channels"),
    }
}

impl AudioSinkConfig {
    fn ask(&self, rate: u32, spec: &PortSpec, channels: usize) -> Ask {
        let buffer = self.buffer.as_nanos().saturating_mul(u64::from(rate)) / 1_000_000_000;
        let quarter = usize::try_from(buffer / 4).unwrap_or(usize::MAX).max(1);
        let message = match spec.shape.first() {
            Some(Dim::Fixed(frames)) => (*frames).max(1),
            _ => quarter,
        };
        Ask {
            direction: PcmDirection::Playback,
            channels: PcmChannels::Exactly(channels as u32),
            rate: Some(rate),
            format: self.format,
            buffer: self.buffer,
            block: message.min(quarter),
        }
    }
}

impl AudioSink {
    /// Returns how many messages the device has yet to play, by its clock.
    fn unheard(&self) -> u64 {
        let Some(device) = self.device.get() else { return 0 };
        let (frames, then) = self.queued;
        let played = u128::from(self.clock.now().since(then)) * u128::from(device.setup.rate) / 1_000_000_000;
        let left = frames.saturating_sub(usize::try_from(played).unwrap_or(usize::MAX));
        left.div_ceil(self.last.max(1)) as u64
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.written = 0;
    }

    /// The device is gone.
    fn close(&mut self, why: impl Into<String>) {
        self.device.count_disconnect(why);
        let unheard = self.unheard();
        self.unplayed.lose(unheard, || "the device disappeared before it played the messages".into());
        self.unsent
            .lose(u64::from(!self.pending.is_empty()), || "the device disappeared in the middle of a message".into());
        self.clear();
        self.device.close(self.clock.now());
    }

    /// Opens the device again if that is due.
    fn reopen(&mut self, now: Time) {
        if self.device.reopen(now, || self.ask.open(&self.config.pcm, &self.descriptors)) {
            (self.queued, self.begins) = ((0, now), Time::NEVER);
        }
    }

    /// Writes what there is room for.
    fn push(&mut self) {
        for _ in 0..TRIES {
            let Some(device) = self.device.get_mut() else { return };
            if self.written == self.pending.len() {
                break;
            }
            let now = self.clock.now();
            match device.pcm.write(&self.pending[self.written..]) {
                Ok(frames) => {
                    self.written += frames * self.channels;
                    self.frames += frames as u64;
                    self.moved = now;
                    self.begins = self.begins.min(now + self.config.buffer.as_nanos());
                    self.queued = (device.pcm.position().map_or(0, |position| position.delay), now);
                    self.device.works();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let state = device.pcm.position().map_or(PcmState::Gone, |position| position.state);
                    let is_stopped = error.kind() == io::ErrorKind::BrokenPipe || state == PcmState::Stopped;
                    if !is_stopped || device.pcm.prepare().is_err() {
                        self.close(error.to_string());
                        return;
                    }
                    self.underruns += 1;
                    (self.queued, self.begins) = ((0, now), Time::NEVER);
                }
            }
        }
        if self.written == self.pending.len() && !self.pending.is_empty() {
            self.sent += 1;
            self.clear();
        }
    }

    /// Waits for the device to play what it has. Returns until when to wait; `None` if that is
    /// over.
    fn drain(&mut self, now: Time) -> Option<Time> {
        let device = self.device.get_mut()?;
        let position = device.pcm.position().ok();
        let left = device.time_of(position.map_or(0, |position| position.delay).min(device.setup.buffer * 2));
        let until = *self.drains.get_or_insert(now + left + DRAIN_WAIT);
        // It has played all long ago, or nothing was ever written.
        let has_stopped = position.is_some_and(|position| position.state == PcmState::Stopped);
        match device.pcm.drain() {
            _ if has_stopped => self.is_drained = true,
            Ok(true) => self.is_drained = true,
            Ok(false) if now < until => return Some(until.min(now + left.clamp(AGAIN.0, AGAIN.1))),
            Ok(false) | Err(_) => {
                let left = position.map_or(0, |position| position.delay);
                let why = || "the device did not play the last messages in time".into();
                self.unplayed.lose(left.div_ceil(self.last.max(1)) as u64, why);
            }
        }
        self.device.end();
        None
    }
}

impl Node for AudioSink {
    type Config = AudioSinkConfig;

    fn ports(config: &AudioSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let rate = pace::frames_per_second(config.sample_rate);
        if let Err(message) = &rate {
            errors.at("sample_rate", message).help("write a rate such as `16kHz`");
        }
        let rate = rate.ok();
        let mut ports = Ports::new().cost(Cost::Medium);
        ports = match given.single() {
            Some(spec) => {
                let channels = channels(spec).unwrap_or_else(|(message, help)| {
                    errors.input("in", message).help(help);
                    0
                });
                let ask = config.ask(rate.unwrap_or(0), spec, channels);
                // A device is not asked for what none can have.
                if channels == 0 || rate.is_none() {
                    ask.check(&config.pcm, cx.folders, &mut errors);
                } else if let Some(setup) = ask.plan(&config.pcm, cx.folders, &mut errors) {
                    ports = ports.note(format!(
                        "{}: {} Hz, {}, channels: {}, a buffer of {} frames",
                        config.pcm, setup.rate, setup.format, setup.channels, setup.buffer
                    ));
                }
                // The samples of a message as floats.
                let bytes = spec.max_bytes().unwrap_or(0);
                let bytes = if spec.dtype == DType::I16 { bytes.saturating_mul(2) } else { bytes };
                ports.input("in", spec.clone()).memory(bytes)
            }
            None => ports.input_any("in"),
        };
        errors.into_result(ports)
    }

    fn build(config: AudioSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let given = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let given = given.ok_or_else(|| NodeError::input("in", "the shape is unknown during planning"))?;
        let channels = channels(given).map_err(|(message, _)| NodeError::input("in", message))?;
        let wrong = |message| NodeError::input(&*config.pcm, message);
        let rate = pace::frames_per_second(config.sample_rate).map_err(wrong)?;
        let failed = |error: io::Error| NodeError::input(format!("the sound device `{}`", config.pcm), error);
        let ask = config.ask(rate, given, channels);
        let samples = given.max_bytes().unwrap_or(0) / given.dtype.size();
        let descriptors = cx.descriptors();
        let device = ask.open(&config.pcm, &descriptors).map_err(failed)?;
        Ok(AudioSink {
            ask,
            descriptors,
            clock: cx.clock(),
            device: Removable::new(device, cx),
            channels,
            pending: Vec::with_capacity(samples),
            written: 0,
            moved: cx.now(),
            begins: Time::NEVER,
            queued: (0, cx.now()),
            last: 0,
            is_ending: false,
            drains: None,
            is_drained: false,
            sent: 0,
            frames: 0,
            underruns: 0,
            unsent: cx.lost("unsent"),
            unplayed: cx.lost("unplayed"),
            config,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("sent", self.sent as f64);
        to.set("frames", self.frames as f64);
        to.set("underruns", self.underruns as f64);
        to.set("drained", f64::from(u8::from(self.is_drained)));
        to.lost("unsent", u64::from(!self.pending.is_empty()));
        // Called when the device is about to be closed, which discards the frames in its buffer.
        to.lost("unplayed", self.unheard());
    }
}

impl Sink for AudioSink {
    type In = Tensor;
    const WAITS: bool = true;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let now = self.clock.now();
        self.reopen(now);
        // The engine gives the next one when this has been taken.
        self.unsent
            .lose(u64::from(!self.pending.is_empty()), || "the device has not accepted an earlier message".into());
        self.clear();
        if self.device.get().is_none() {
            self.unsent.lose(1, || "the device has disappeared".into());
            return Ok(());
        }
        if let Ok(samples) = input.body.as_slice::<f32>() {
            self.pending.extend_from_slice(samples);
        } else {
            let samples = input.body.as_slice::<i16>().unwrap_or_default();
            self.pending.extend(samples.iter().map(|sample| f32::from(*sample) / 32_768.0));
        }
        if self.pending.is_empty() {
            self.sent += 1;
            return Ok(());
        }
        self.last = self.pending.len() / self.channels;
        self.moved = now;
        self.push();
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        let now = self.clock.now();
        if self.is_ending && self.device.get().is_none() {
            return Ok(Progress::Takes(Time::NEVER));
        }
        self.reopen(now);
        let Some(device) = self.device.get_mut() else { return Ok(Progress::Takes(self.device.due())) };
        device.pcm.acknowledge();
        self.push();
        if !self.pending.is_empty() && now.since(self.moved) > STALLED {
            self.close(format!("no sound was played for {}", show_ns(STALLED)));
        }
        let Some(device) = self.device.get_mut() else { return Ok(Progress::Takes(self.device.due())) };
        let state = device.pcm.position().map_or(PcmState::Gone, |position| position.state);
        let is_full = !self.pending.is_empty();
        if state == PcmState::Gone {
            self.close("the device disappeared");
            return Ok(Progress::Takes(self.device.due()));
        }
        if state == PcmState::Prepared
            && (is_full || now >= self.begins)
            && let Err(error) = device.pcm.start()
        {
            self.close(error.to_string());
            return Ok(Progress::Takes(self.device.due()));
        }
        device.wait(is_full);
        if is_full {
            let until = self.moved + STALLED + 1;
            let soon = now + device.time_of(device.setup.wake).clamp(AGAIN.0, AGAIN.1);
            return Ok(Progress::WhenReady(if device.is_waited_for() { until } else { soon }));
        }
        if self.is_ending {
            return Ok(self.drain(now).map_or(Progress::Takes(Time::NEVER), Progress::WhenReady));
        }
        Ok(Progress::Takes(if state == PcmState::Prepared && now < self.begins { self.begins } else { Time::NEVER }))
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.is_ending = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_with_frames_and_channels_is_sound() {
        for (spec, expected) in [
            (PortSpec::new(DType::F32, [Dim::AtMost(512), Dim::Fixed(2)]), Ok(2)),
            (PortSpec::new(DType::I16, [Dim::AtMost(512)]), Ok(1)),
            (PortSpec::fixed(DType::U8, [512]), Err("add a `cast` node upstream of this node")),
            (PortSpec::fixed(DType::F32, [512, 0]), Err("with 1 to 256 channels")),
            (PortSpec::fixed(DType::F32, []), Err("with 1 to 256 channels")),
        ] {
            match (channels(&spec), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{spec}"),
                (Err((message, help)), Err(expected)) => assert!(help.contains(expected), "{spec}: {message}"),
                (found, _) => panic!("{spec}: {found:?}"),
            }
        }
    }
}
