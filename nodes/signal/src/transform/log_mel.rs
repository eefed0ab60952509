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

/// Computes the logarithm of the power of sound in bands on the mel scale: of one channel of
/// samples `f32[≤n]` or `f32[≤n,1]`, for each frame `mels` numbers, `f32[≤frames,mels]`.
///
/// Frames are those of `stft` with `numbers: power`; the bands are those of `librosa.filters.mel`
/// with its defaults (`htk=False`, `norm='slaney'`). A message has the numbers of the frames that
/// its samples complete, and none is sent if they complete none.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct LogMelConfig {
    /// The rate of the samples, such as `16kHz`.
    pub sample_rate: Rate,
    /// How many bands; 80 by default.
    #[serde(default = "eighty")]
    pub mels: usize,
    /// Samples of a frame; 400 by default.
    #[serde(default = "length")]
    pub length: usize,
    /// The hop size: samples from the beginning of a frame to that of the next; 160 by default.
    #[serde(default = "hop")]
    pub hop: usize,
    /// How the samples of a frame are weighted: `hann` (default), `hamming` or `none`.
    #[serde(default)]
    pub window: WindowFunction,
    /// The lowest frequency of a band; 0 by default.
    pub from: Option<Rate>,
    /// The highest frequency of a band; half the rate of the samples by default.
    pub to: Option<Rate>,
    /// The logarithm of the power: `ln` (default), `log10`, or `decibel`, ten times `log10`.
    #[serde(default)]
    pub log: Log,
    /// The least power: of a lower one, this is taken; 1e-10 by default.
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

/// A logarithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Log {
    /// The natural logarithm.
    #[default]
    Ln,
    /// The logarithm to the base 10.
    Log10,
    /// Ten times the one to the base 10.
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
            let message = format!("`to` must be at most {half} Hz, half the sample rate, got {to} Hz");
            errors.at("to", message).help("leave it out, or write the right `sample_rate`");
        }
        if from >= to {
            errors.at("from", format!("`from` must be below {to} Hz, got {from} Hz")).help("write a lower frequency");
        }
        let has_bands = (1..=MOST).contains(&self.mels);
        if !has_bands {
            errors.at("mels", format!("`mels` must be 1 to {MOST}, got {}", self.mels)).help("write 40, 80 or 128");
        }
        if has_bands && from < to && (2..=1 << 16).contains(&self.length) {
            let empty = self.triangles().iter().filter(|triangle| triangle.is_empty()).count();
            if empty > 0 {
                let message =
                    format!("{empty} of {} bands lie between the numbers of a spectrum and would be empty", self.mels);
                errors.at("mels", message).help("write a lower `mels`, or a longer `length`");
            }
        }
        if self.floor.is_nan() || self.floor <= 0.0 {
            errors
                .at("floor", format!("`floor` must be above 0, got {}", self.floor))
                .help("write a small number such as 1e-10");
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
