//! Sound from a device.

use crate::stream::device_clock::{DeviceClock, Offset, Stamp, StampClock};
use crate::stream::sound_device::{Ask, MAX_CHANNELS, SampleFormat, SoundDevice, default_name, time_of};
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Connected, Cost, Descriptors, Emit, LossCounter, Metrics, Next, Node, NodeError, PlanErrors, Planning,
    Ports, Source,
};
use limen::unit::{Rate, Span, show_ns};
use limen::{Clock, Tensor, Time};
use limen_alsa::{PcmChannels as DeviceChannels, PcmDirection, PcmState};
use limen_nodes_core::pace;
use limen_nodes_core::stream::OnClose;
use limen_nodes_core::stream::removable::Removable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Receives sound from an ALSA device, such as a microphone, and produces `frames` frames per
/// message. The output `sound` is `f32[frames,channels]`, with values from −1 to 1 as in the source
/// `wav`. With `context`, each message starts with the `context` preceding frames.
///
/// Sound devices require a build with the feature `audio`. The device is outside the graph's
/// folder, so the command line must contain `--allow-path /dev`. The device must be connected when
/// limen plans the graph. With `on_close: reconnect`, the node reopens the device when the device
/// reappears.
///
/// By default, the origin of a message is the time at which the device recorded the first new
/// frame. If the graph is too slow, the device buffer overflows. The node counts the missing
/// messages (`overrun`) and begins a new segment. `stopped` counts complete messages that were
/// still in the buffer when the graph stopped. `undelivered` counts messages that were incomplete
/// when the device disappeared. `stalls` counts how often `timeout` expired.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct AudioSourceConfig {
    /// ALSA PCM name of the device, such as `hw:CARD=PCH,DEV=0`. Default: `default`.
    #[serde(default = "default_name")]
    pub pcm: String,
    /// Frames per message, 1 to 1048576.
    pub frames: usize,
    /// Sample rate that the device supports, such as `16kHz`. Default: the supported rate nearest
    /// to 48 kHz.
    pub sample_rate: Option<Rate>,
    /// Channels of a message: `mono`, `all`, or a number that the device supports. `mono` is the
    /// mean of all channels. Default: `all`, which opens the device with the supported number of
    /// channels nearest to 2.
    pub channels: Option<AudioChannels>,
    /// Number of preceding frames that each message repeats at its start. Some speech models
    /// require preceding frames as context. The context is silence at the start of each segment.
    /// Default: 0.
    #[serde(default)]
    pub context: usize,
    /// Sample format of the device. Default: the first supported format in the order `f32`, `s32`,
    /// `s24`, `s16`.
    pub format: Option<SampleFormat>,
    /// Length of the device buffer, `1ms` to `10s`. The device may set a slightly different length.
    /// A longer buffer tolerates longer delays in the graph. Default: `500ms`.
    #[serde(default = "buffer")]
    pub buffer: Span,
    /// Maximum time without sound data, at least `100ms`. If the timeout expires, the node closes
    /// the device and applies `on_close`. Default: `2s`.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// Clock that determines the origin of messages. `device` converts the driver's timestamps to
    /// run time. `run` uses the time when the node reads the message. Default: `device`.
    #[serde(default)]
    pub clock: StampClock,
    /// What to do when the device disappears. Default: `reconnect`.
    #[serde(default)]
    pub on_close: OnClose,
}

fn buffer() -> Span {
    Span(Duration::from_millis(500))
}

fn timeout() -> Span {
    Span(Duration::from_secs(2))
}

/// Channels of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AudioChannels {
    /// The number of channels.
    Number(usize),
    /// `mono` or `all`.
    Word(ChannelsWord),
}

/// Channels of a message, as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelsWord {
    /// 2 channels, or the nearest number that the device supports.
    All,
    /// One channel: the mean of all channels.
    Mono,
}

/// Most frames of a message, and most frames of context.
const MAX_FRAMES: usize = 1 << 20;
/// The longest time from a microphone to the buffer that is believed, ns.
const MAX_DELAY: u64 = 1_000_000_000;

impl AudioSourceConfig {
    fn is_mono(&self) -> bool {
        self.channels == Some(AudioChannels::Word(ChannelsWord::Mono))
    }

    fn ask(&self, rate: Option<u32>) -> Ask {
        let channels = match self.channels {
            Some(AudioChannels::Number(channels)) => DeviceChannels::Exactly(channels.min(MAX_CHANNELS) as u32),
            Some(AudioChannels::Word(ChannelsWord::Mono)) => DeviceChannels::Near(1),
            Some(AudioChannels::Word(ChannelsWord::All)) | None => DeviceChannels::Near(2),
        };
        Ask {
            direction: PcmDirection::Capture,
            channels,
            rate,
            format: self.format,
            buffer: self.buffer,
            block: self.frames.clamp(1, MAX_FRAMES),
        }
    }
}

#[derive(Debug, Default)]
struct AudioCounts {
    blocks: u64,
    overruns: u64,
    overrun: LossCounter,
    undelivered: LossCounter,
    stalls: u64,
}

/// Runs `kind: audio`; [`AudioSourceConfig`] says what it does.
#[derive(Debug)]
pub struct AudioSource {
    config: AudioSourceConfig,
    ask: Ask,
    /// The channels of the device, which the graph was planned with.
    channels: usize,
    descriptors: Descriptors,
    clock: Clock,
    device: Removable<SoundDevice>,
    /// When frames came last, or the stream began.
    since: Time,
    /// Frames of the message to come, and how many there are.
    block: Vec<f32>,
    filled: usize,
    /// When the first of these frames was heard.
    origin: Time,
    /// When the frame after those that were read will be heard.
    expected: Time,
    /// From when on frames are missing, after the buffer ran over.
    gap: Option<Time>,
    /// The last frames of the message before.
    context: Vec<f32>,
    counts: AudioCounts,
    stamps: DeviceClock,
    /// Frames that were read since the device was opened or ran over, and their times by the
    /// device's rate against those by its stamps.
    heard: u64,
    rate: Offset,
}

/// Opens a device that has as many channels as were planned.
fn start(ask: &Ask, device: &str, channels: usize, descriptors: &Descriptors) -> io::Result<SoundDevice> {
    let device = ask.open(device, descriptors)?;
    if device.setup.channels != channels {
        return Err(io::Error::other(format!("expected {channels} channels, found {}", device.setup.channels)));
    }
    device.pcm.start()?;
    Ok(device)
}

impl AudioSource {
    fn close(&mut self, now: Time) {
        self.device.close(now);
        let undelivered = || "the device disappeared in the middle of a message".into();
        self.counts.undelivered.lose(u64::from(self.filled > 0), undelivered);
        self.counts
            .overrun
            .lose(u64::from(self.gap.is_some()), || "the device disappeared after its buffer overflowed".into());
        (self.filled, self.gap, self.expected) = (0, None, Time::ZERO);
    }

    /// The buffer ran over, or the machine slept: goes on with what comes from now on.
    fn restart(&mut self, now: Time) -> io::Result<()> {
        let Some(device) = self.device.get() else { return Ok(()) };
        let lost = device.time_of(self.filled);
        let from = if self.expected == Time::ZERO { self.since } else { self.expected };
        if self.gap.is_none() {
            // One that stops again and again without a frame is closed in the end.
            (self.gap, self.since) = (Some(Time(from.0.saturating_sub(lost))), now);
        }
        self.filled = 0;
        self.heard = 0;
        self.rate.restart();
        self.counts.overruns += 1;
        device.pcm.prepare()?;
        device.pcm.start()
    }

    /// Counts the messages that are missing before a frame.
    fn end_gap(&mut self, first: Time) {
        let Some(gap) = self.gap.take() else { return };
        let rate = self.device.get().map_or(1, |device| device.setup.rate);
        let block = time_of(self.config.frames, rate).max(1);
        let missing = first.since(gap);
        let why = || format!("the device's buffer overflowed: {} ms are missing", missing / 1_000_000);
        self.counts.overrun.lose(missing.div_ceil(block).max(1), why);
    }

    fn send(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.filled = 0;
        self.counts.blocks += 1;
        if !out.is_connected() {
            return Ok(());
        }
        let is_mono = self.config.is_mono();
        let header = out.header(self.origin);
        let mut sound = out.loan(&header)?;
        let samples = sound.as_mut_slice()?;
        let (before, fresh) = samples.split_at_mut(self.context.len());
        before.copy_from_slice(&self.context);
        if is_mono {
            for (to, frame) in fresh.iter_mut().zip(self.block.chunks_exact(self.channels)) {
                *to = frame.iter().sum::<f32>() / self.channels as f32;
            }
        } else {
            fresh.copy_from_slice(&self.block);
        }
        let kept = samples.len() - self.context.len();
        self.context.copy_from_slice(&samples[kept..]);
        out.send(sound);
        Ok(())
    }
}

impl Node for AudioSource {
    type Config = AudioSourceConfig;

    fn ports(config: &AudioSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.frames == 0 || config.frames > MAX_FRAMES {
            let message = format!("`frames` must be 1 to {MAX_FRAMES}, got {}", config.frames);
            errors.at("frames", message).help("write a number such as 512");
        }
        if config.context > MAX_FRAMES {
            let message = format!("`context` must be at most {MAX_FRAMES}, got {}", config.context);
            errors.at("context", message).help("write a number such as 64");
        }
        if config.timeout.as_nanos() < 100_000_000 {
            errors
                .at("timeout", format!("`timeout` must be at least 100ms, got {}", show_ns(config.timeout.as_nanos())))
                .help("write 100ms or more");
        }
        let mut asks = true;
        if let Some(AudioChannels::Number(channels)) = config.channels
            && !(1..=MAX_CHANNELS).contains(&channels)
        {
            errors
                .at("channels", format!("`channels` must be 1 to {MAX_CHANNELS}, got {channels}"))
                .help("write a number such as 1, or `mono`");
            asks = false;
        }
        let rate = config.sample_rate.map(pace::frames_per_second).transpose().unwrap_or_else(|message| {
            errors.at("sample_rate", message).help("write a rate such as `16kHz`");
            asks = false;
            None
        });
        let mut ports = config.on_close.declare(Ports::new().cost(Cost::Medium));
        let ask = config.ask(rate);
        // A device is not asked for what none can have.
        if !asks {
            ask.check(&config.pcm, cx.folders, &mut errors);
        } else if let Some(setup) = ask.plan(&config.pcm, cx.folders, &mut errors) {
            let channels = if config.is_mono() { 1 } else { setup.channels };
            let (frames, context) = (config.frames.clamp(1, MAX_FRAMES), config.context.min(MAX_FRAMES));
            // The frames of a message, and those of its context.
            let samples = frames.saturating_mul(setup.channels).saturating_add(context.saturating_mul(channels));
            ports = ports
                .output("sound", PortSpec::fixed(DType::F32, [frames + context, channels]))
                .rate(Rate(f64::from(setup.rate) / frames as f64))
                .memory(samples.saturating_mul(size_of::<f32>()))
                .note(format!(
                    "{}: {} Hz, {}, channels: {}, a buffer of {} frames",
                    config.pcm, setup.rate, setup.format, setup.channels, setup.buffer
                ));
        }
        errors.into_result(ports)
    }

    fn build(config: AudioSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let wrong = |message| NodeError::input(&*config.pcm, message);
        let rate = config.sample_rate.map(pace::frames_per_second).transpose().map_err(wrong)?;
        let failed = |error: io::Error| NodeError::input(format!("the sound device `{}`", config.pcm), error);
        let descriptors = cx.descriptors();
        let mut ask = config.ask(rate);
        let device = ask.open(&config.pcm, &descriptors).map_err(failed)?;
        let setup = device.setup;
        let channels = if config.is_mono() { 1 } else { setup.channels };
        let spec = PortSpec::fixed(DType::F32, [config.frames + config.context, channels]);
        let planned = cx.outputs().first().and_then(|(_, planned)| planned.as_ref());
        if let Some(planned) = planned.filter(|planned| planned.shape != spec.shape) {
            let why = format!("expected {planned} as planned, found {spec}: restart the graph");
            return Err(NodeError::input(&*config.pcm, why));
        }
        device.pcm.start().map_err(failed)?;
        // One that comes back has to have the same.
        (ask.rate, ask.channels) = (Some(setup.rate), DeviceChannels::Exactly(setup.channels as u32));
        Ok(AudioSource {
            ask,
            channels: setup.channels,
            descriptors,
            clock: cx.clock(),
            device: Removable::new(device, cx),
            since: cx.now(),
            block: vec![0.0; config.frames * setup.channels],
            filled: 0,
            origin: Time::ZERO,
            expected: Time::ZERO,
            gap: None,
            context: vec![0.0; config.context * channels],
            counts: AudioCounts {
                overrun: cx.lost("overrun"),
                undelivered: cx.lost("undelivered"),
                ..AudioCounts::default()
            },
            stamps: DeviceClock::new(config.clock),
            heard: 0,
            rate: Offset::default(),
            config,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let AudioCounts { blocks, overruns, stalls, .. } = self.counts;
        // Called when the device is about to be closed, which discards the frames in its buffer.
        let position = self.device.get().and_then(|device| device.pcm.position().ok());
        let waiting =
            position.filter(|position| position.state == PcmState::Running).map_or(0, |position| position.available);
        to.set("blocks", blocks as f64);
        to.set("overruns", overruns as f64);
        to.lost("overrun", u64::from(self.gap.is_some()));
        to.lost("stopped", ((self.filled + waiting) / self.config.frames.max(1)) as u64);
        to.set("stalls", stalls as f64);
        self.stamps.metrics(to);
        if let Some(drift) = self.rate.drift() {
            to.set("rate_ppm", drift);
            to.note(format!("sample rate: {drift:+.1} ppm off the run's clock"));
        }
    }
}

impl Source for AudioSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let now = out.clock();
        let Some(device) = self.device.get_mut() else {
            let open = || start(&self.ask, &self.config.pcm, self.channels, &self.descriptors);
            if let Some(next) = self.device.come_back(self.config.on_close, now, open) {
                return Ok(next);
            }
            self.since = now;
            self.heard = 0;
            self.rate.restart();
            self.stamps.restart();
            self.context.fill(0.0);
            out.begin_segment();
            return Ok(Next::More);
        };
        // Before the position is read: what comes after makes the descriptors ready again.
        device.pcm.acknowledge();
        let position = match device.pcm.position() {
            Ok(position) if position.state != PcmState::Gone => position,
            Ok(_) => {
                self.device.count_disconnect("the device disappeared");
                self.close(now);
                return Ok(Next::More);
            }
            Err(error) => {
                self.device.count_disconnect(error.to_string());
                self.close(now);
                return Ok(Next::More);
            }
        };
        let until = self.since + self.config.timeout.as_nanos() + device.time_of(device.setup.wake);
        // After an overrun it is the graph that was late, not the device.
        let is_overrun = position.state == PcmState::Stopped && self.gap.is_none();
        if position.state != PcmState::Running && (is_overrun || now < until) {
            let soon = now + device.time_of(device.setup.wake).clamp(100_000, 10_000_000);
            let is_started = match position.state {
                PcmState::Stopped => {
                    self.context.fill(0.0);
                    out.begin_segment();
                    self.restart(now)
                }
                // It was started, and will run.
                _ => Ok(()),
            };
            if let Err(error) = is_started {
                self.device.count_disconnect(error.to_string());
                self.close(now);
                return Ok(Next::More);
            }
            return Ok(Next::At(soon));
        }
        let missing = self.config.frames - self.filled;
        let wanted = missing.min(device.setup.wake);
        if position.available < wanted || position.state != PcmState::Running {
            if now >= until {
                self.counts.stalls += 1;
                self.device
                    .count_disconnect(format!("no sound arrived for {}", show_ns(self.config.timeout.as_nanos())));
                self.close(now);
                return Ok(Next::More);
            }
            if device.is_waited_for() {
                return Ok(Next::WhenReady(until));
            }
            let ready = now + device.time_of(wanted - position.available).max(1_000);
            return Ok(Next::At(ready.min(until)));
        }
        // When the first frame was heard that has not been read yet.
        let seen = self.clock.now();
        let stamp = position.time.map(|time| Stamp::Claimed(Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))));
        let stamp = self.stamps.origin(stamp, seen);
        let buffered = device.time_of(position.available);
        let heard = device.time_of(position.delay).clamp(buffered, buffered.saturating_add(MAX_DELAY));
        let first = Time(stamp.0.saturating_sub(heard));
        let into = &mut self.block[self.filled * self.channels..][..missing.min(position.available) * self.channels];
        let read = match device.pcm.read(into) {
            Ok(read) => read,
            // Its state says it in the next call, if it is not gone.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::WouldBlock) => {
                let soon = now + device.time_of(device.setup.wake).clamp(100_000, 10_000_000);
                return Ok(if device.is_waited_for() { Next::WhenReady(soon) } else { Next::At(soon) });
            }
            Err(error) => {
                self.device.count_disconnect(error.to_string());
                self.close(now);
                return Ok(Next::More);
            }
        };
        let after = first + device.time_of(read);
        let nominal = u128::from(self.heard) * 1_000_000_000 / u128::from(device.setup.rate.max(1));
        self.rate.observe(Duration::from_nanos(u64::try_from(nominal).unwrap_or(u64::MAX)), first);
        self.heard += read as u64;
        self.end_gap(first);
        if self.filled == 0 {
            // The device's times are as fine as its steps; those of messages never go back.
            self.origin = first.max(self.origin);
        }
        (self.since, self.expected) = (now, after);
        self.filled += read;
        self.device.works();
        if self.filled == self.config.frames {
            self.send(out)?;
        }
        Ok(Next::More)
    }
}
