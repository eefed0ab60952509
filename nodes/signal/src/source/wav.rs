//! Sound from WAV files.

use crate::file::sound_file::{Sound, SoundFormat};
use limen::Tensor;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen_nodes_core::pace::{self, Pace};
use schemars::JsonSchema;
use serde::Deserialize;

/// Reads sound from a WAV file and produces `frames` frames per message. The output `sound` is
/// `f32[≤frames,channels]`, with values from −1 to 1. With `tail: pad`, the output is
/// `f32[frames,channels]`.
///
/// A frame is one sample of every channel. With `context`, each message starts with the `context`
/// preceding frames. The node reads PCM samples of up to 32 bits, and floats of 32 or 64 bits. A
/// sample may be stored in a larger container. The file format is RIFF, RF64 or BW64. If the file
/// is truncated, the node sends all complete frames, then one call fails. If the header has no
/// length, as in piped output, the node reads samples up to the end of the file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct WavSourceConfig {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Frames per message. The last message of a pass may have fewer frames.
    pub frames: usize,
    /// Sample rate of the messages, such as `16kHz`. The node resamples a file with another rate.
    /// `frames` then counts resampled frames. Resampling replaces samples that are NaN, infinite or
    /// beyond ±1e20 with silence. Default: the rate of the file.
    pub sample_rate: Option<Rate>,
    /// Channels of a message. Default: `all`.
    #[serde(default)]
    pub channels: WavChannels,
    /// Number of preceding frames that each message repeats at its start. Some speech models
    /// require preceding frames as context. The context is silence at the start of each pass.
    /// Default: 0.
    #[serde(default)]
    pub context: usize,
    /// What to do if the last frames do not fill a message. Default: `send`.
    #[serde(default)]
    pub tail: WavTail,
    /// Whether to send messages at playback speed. With `true`, the node sends each message at the
    /// playback time of the message's first frame. Default: `false`, which sends messages as fast
    /// as the graph accepts messages.
    #[serde(default)]
    pub real_time: bool,
    /// Number of passes over the file. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

/// Channels of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WavChannels {
    /// All channels of the file.
    #[default]
    All,
    /// One channel: the mean of all channels.
    Mono,
}

/// What to do if the last frames do not fill a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WavTail {
    /// Send the frames as a shorter message.
    #[default]
    Send,
    /// Pad the frames with silence, so that all messages have the same shape.
    Pad,
}

fn one() -> u32 {
    1
}

/// Most frames of a message, and most frames of context.
const MAX_FRAMES: usize = 1 << 20;

/// Runs `kind: wav`; [`WavSourceConfig`] says what it does.
#[derive(Debug)]
pub struct WavSource {
    sound: Sound,
    pace: Pace,
    frames: usize,
    tail: WavTail,
    /// The last frames of the message before.
    context: Vec<f32>,
    unseen: Vec<f32>,
}

impl Node for WavSource {
    type Config = WavSourceConfig;

    fn ports(config: &WavSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write `repeat: 1`");
        }
        if config.frames == 0 || config.frames > MAX_FRAMES {
            let message = format!("`frames` must be 1 to {MAX_FRAMES}, got {}", config.frames);
            errors.at("frames", message).help("write `frames: 512`");
        }
        if config.context > MAX_FRAMES {
            let message = format!("`context` must be at most {MAX_FRAMES}, got {}", config.context);
            errors.at("context", message).help("write `context: 64`");
        }
        let mut ports = Ports::new().cost(Cost::Medium);
        let rate = config.sample_rate.map(pace::frames_per_second).transpose().unwrap_or_else(|message| {
            errors.at("sample_rate", message).help("write a rate such as `16kHz`");
            None
        });
        match SoundFormat::open(&config.path, config.channels == WavChannels::Mono, rate, cx.folders) {
            Ok(format) => {
                let frames = config.frames.clamp(1, MAX_FRAMES) + config.context.min(MAX_FRAMES);
                let frames = if config.tail == WavTail::Pad { Dim::Fixed(frames) } else { Dim::AtMost(frames) };
                let context = config.context.saturating_mul(format.channels()).saturating_mul(size_of::<f32>());
                ports = ports
                    .output("sound", PortSpec::new(DType::F32, [frames, Dim::Fixed(format.channels())]))
                    .memory(context);
                ports = ports.note(format.note()).memory(format.bytes());
                if let Some(message) = format.why_empty() {
                    errors.at("path", message).help("write the path of a WAV file with at least one frame");
                }
                if format.is_resampled() {
                    ports = ports.cost(Cost::Heavy);
                }
                if config.real_time {
                    ports = ports.rate(Rate(f64::from(format.rate()) / config.frames.max(1) as f64));
                }
            }
            Err((field, (message, help))) => {
                errors.at(field, message).help(help);
            }
        }
        errors.into_result(if config.real_time { ports.live() } else { ports.unpaced("real_time: true") })
    }

    fn build(config: WavSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let wrong = |message| NodeError::input(&*config.path, message);
        let rate = config.sample_rate.map(pace::frames_per_second).transpose().map_err(wrong)?;
        let format = SoundFormat::open(&config.path, config.channels == WavChannels::Mono, rate, cx.folders())
            .map_err(|(_, (message, _))| wrong(message))?;
        let channels = format.channels();
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.shape.last().cloned());
        if let Some(planned) = planned.filter(|planned| *planned != Dim::Fixed(channels)) {
            let why = format!("expected {planned} channels as planned, found {channels}: restart the graph");
            return Err(NodeError::input(&*config.path, why));
        }
        let rate = config.real_time.then(|| Rate(f64::from(format.rate())));
        Ok(WavSource {
            sound: Sound::new(format, config.repeat),
            pace: Pace::new(rate),
            frames: config.frames,
            tail: config.tail,
            context: vec![0.0; config.context * channels],
            unseen: Vec::new(),
        })
    }
}

impl Source for WavSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.sound.is_done() {
            return Ok(Next::Done);
        }
        let frames = self.sound.next_frames(self.frames);
        let sent = if self.tail == WavTail::Pad { self.frames } else { frames };
        let origin = match self.pace.begin_long(sent as u64, out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if self.sound.is_truncated() {
            return Err(self.sound.end_truncated());
        }
        let channels = self.sound.channels();
        let read = if out.is_connected() {
            let header = out.header(origin);
            let mut sound = out.loan(&header)?;
            let context = self.context.len() / channels;
            sound.set_len(0, context + sent)?;
            let samples = sound.as_mut_slice()?;
            let (before, fresh) = samples.split_at_mut(self.context.len());
            before.copy_from_slice(&self.context);
            let read = self.sound.read(&mut fresh[..frames * channels]);
            if read > 0 {
                self.context.copy_from_slice(&samples[read * channels..][..context * channels]);
                match self.tail {
                    WavTail::Send => sound.set_len(0, context + read)?,
                    WavTail::Pad => samples[(context + read) * channels..].fill(0.0),
                }
                out.send(sound);
            }
            read
        } else {
            self.unseen.resize(frames * channels, 0.0);
            self.sound.read(&mut self.unseen)
        };
        self.sound.advance(read, frames)?;
        if self.sound.is_at_start() {
            self.context.fill(0.0);
            out.begin_segment();
        }
        if read == 0 {
            return Err(self.sound.end_truncated());
        }
        Ok(if self.sound.is_done() { Next::Done } else { self.pace.then(out.now()) })
    }
}
