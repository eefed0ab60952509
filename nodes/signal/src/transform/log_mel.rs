//! What of sound models for speech hear.

use crate::signal::mel::{self, Triangle};
use crate::signal::samples::Samples;
use crate::signal::spectrum::{Frames, Spectrum, planned, send};
use crate::signal::{Along, WindowFunction};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::unit::Rate;
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Computes a log-mel spectrogram: the logarithm of the sound power in bands on the mel scale.
/// Converts one channel of samples, `f32[≤n]` or `f32[≤n,1]`, to `mels` values per frame,
/// `f32[≤frames,mels]`.
///
/// The node computes frames like `stft` with `numbers: power`. The bands match
/// `librosa.filters.mel` with default arguments (`htk=False`, `norm='slaney'`). An output message
/// contains the values of all frames that end within the input message. If no frame ends within the
/// input message, the node sends no message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct LogMelConfig {
    /// Sample rate, such as `16kHz`.
    pub sample_rate: Rate,
    /// Number of mel bands. Default: 80.
    #[serde(default = "eighty")]
    pub mels: usize,
    /// Frame length in samples. Default: 400.
    #[serde(default = "length")]
    pub length: usize,
    /// Hop size: samples from the start of a frame to the start of the next frame. Default: 160.
    #[serde(default = "hop")]
    pub hop: usize,
    /// Window function of a frame: `hann`, `hamming` or `none`. Default: `hann`.
    #[serde(default)]
    pub window: WindowFunction,
    /// Lowest frequency of the bands. Default: 0.
    pub from: Option<Rate>,
    /// Highest frequency of the bands. Default: half of `sample_rate`.
    pub to: Option<Rate>,
    /// Logarithm of the power: `ln`, `log10`, or `decibel`, which is ten times `log10`. Default:
    /// `ln`.
    #[serde(default)]
    pub log: Log,
    /// Minimum power before the logarithm. The node raises lower values to this minimum. Default:
    /// 1e-10.
    #[serde(default = "floor")]
    pub floor: f32,
}

fn eighty() -> usize {
    80
}

fn length() -> usize {
    400
}

fn hop() -> usize {
    160
}

fn floor() -> f32 {
    1e-10
}

/// Logarithm of the power.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Log {
    /// Natural logarithm.
    #[default]
    Ln,
    /// Logarithm to base 10.
    Log10,
    /// Ten times the logarithm to base 10.
    Decibel,
}

/// The most bands.
const MOST: usize = 1 << 12;

impl LogMelConfig {
    fn frames(&self) -> Frames {
        Frames { length: self.length, hop: self.hop, window: self.window }
    }

    /// The bands; there is at least one bin.
    fn triangles(&self) -> Vec<Triangle> {
        let rate = self.sample_rate.0;
        let (from, to) = (self.from.map_or(0.0, |from| from.0), self.to.map_or(rate / 2.0, |to| to.0));
        mel::triangles(self.mels, self.frames().bins(), rate, from, to)
    }

    fn check(&self, errors: &mut PlanErrors) {
        let half = self.sample_rate.0 / 2.0;
        let (from, to) = (self.from.map_or(0.0, |from| from.0), self.to.map_or(half, |to| to.0));
        if to > half {
            let message = format!("`to` must be at most {half} Hz (half the sample rate), got {to} Hz");
            errors.at("to", message).help("remove `to`, or correct `sample_rate`");
        }
        if from >= to {
            errors.at("from", format!("`from` must be below {to} Hz, got {from} Hz")).help("write a lower frequency");
        }
        let has_bands = (1..=MOST).contains(&self.mels);
        if !has_bands {
            errors.at("mels", format!("`mels` must be 1 to {MOST}, got {}", self.mels)).help("write `mels: 80`");
        }
        if has_bands && from < to && (2..=1 << 16).contains(&self.length) {
            let empty = self.triangles().iter().filter(|triangle| triangle.is_empty()).count();
            if empty > 0 {
                let message =
                    format!("each of the {} bands must contain a spectrum bin, got {empty} empty bands", self.mels);
                errors.at("mels", message).help("write a lower `mels`, or a longer `length`");
            }
        }
        if self.floor.is_nan() || self.floor <= 0.0 {
            errors.at("floor", format!("`floor` must be above 0, got {}", self.floor)).help("write `floor: 1e-10`");
        }
    }
}

/// Runs `kind: log_mel`; [`LogMelConfig`] says what it does.
#[derive(Debug)]
pub struct LogMel {
    spectrum: Spectrum,
    triangles: Vec<Triangle>,
    power: Vec<f32>,
    log: Log,
    floor: f32,
    results: Vec<f32>,
}

impl Node for LogMel {
    type Config = LogMelConfig;

    fn ports(config: &LogMelConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let ports = planned(given, &config.frames(), &[config.mels], &mut errors);
        errors.into_result(ports)
    }

    fn build(config: LogMelConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (frames, samples) = (config.frames(), Samples::of_input(cx.inputs(), Some(Along::FirstDim)));
        Ok(LogMel {
            spectrum: Spectrum::new(frames, samples.most),
            triangles: config.triangles(),
            power: Vec::with_capacity(frames.bins()),
            log: config.log,
            floor: config.floor,
            results: Vec::with_capacity(config.mels * frames.most(samples.most)),
        })
    }

    fn reset(&mut self, _: Reset) {
        self.spectrum.clear();
    }
}

impl Transform for LogMel {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let LogMel { spectrum, triangles, power, log, floor, results } = self;
        results.clear();
        spectrum.begin(input.header().segment);
        spectrum.add(input.body.as_slice()?, |bins| {
            power.clear();
            power.extend(bins.iter().map(|bin| bin.norm_sqr()));
            results.extend(triangles.iter().map(|triangle| {
                // NaN stays NaN, unlike in `f32::max`.
                let sum = triangle.of(power);
                let sum = if sum < *floor { *floor } else { sum };
                match log {
                    Log::Ln => sum.ln(),
                    Log::Log10 => sum.log10(),
                    Log::Decibel => 10.0 * sum.log10(),
                }
            }));
        });
        send(results, triangles.len(), &input, out)
    }
}
