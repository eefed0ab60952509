//! Spectra of sound.

use crate::signal::samples::Samples;
use crate::signal::spectrum::{Frames, Spectrum, planned, send};
use crate::signal::{Along, WindowFunction};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Computes the short-time Fourier transform of one channel of samples `f32[≤n]` or `f32[≤n,1]`:
/// for each frame a spectrum, `f32[≤frames,bins]` with `length / 2 + 1` bins (rounded down), or
/// `f32[≤frames,bins,2]` with real and imaginary parts.
///
/// Frames begin every `hop` samples and go on from message to message; nothing is padded, as in
/// `librosa.stft(..., center=False)`. A message has the spectra of the frames that its samples
/// complete, and none is sent if they complete none. Samples are forgotten where the stream begins
/// anew and at a gap (`on_gap: reset`); those of an incomplete last frame have no spectrum.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StftConfig {
    /// Samples of a frame.
    pub length: usize,
    /// The hop size: samples from the beginning of a frame to that of the next.
    pub hop: usize,
    /// How the samples of a frame are weighted: `hann` (default), `hamming` or `none`.
    #[serde(default)]
    pub window: WindowFunction,
    /// The numbers of a spectrum: `magnitude` (default), `power` or `complex`.
    #[serde(default)]
    pub numbers: Numbers,
}

/// The numbers of a spectrum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// The absolute value of each bin, not scaled.
    #[default]
    Magnitude,
    /// The square of that.
    Power,
    /// The real and the imaginary part of each.
    Complex,
}

impl StftConfig {
    fn frames(&self) -> Frames {
        Frames { length: self.length, hop: self.hop, window: self.window }
    }
}

/// Runs `kind: stft`; [`StftConfig`] says what it does.
#[derive(Debug)]
pub struct Stft {
    spectrum: Spectrum,
    numbers: Numbers,
    results: Vec<f32>,
    item: usize,
}

impl Node for Stft {
    type Config = StftConfig;

    fn ports(config: &StftConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let frames = config.frames();
        let item = if config.numbers == Numbers::Complex { vec![frames.bins(), 2] } else { vec![frames.bins()] };
        let ports = planned(given, &frames, &item, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: StftConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (frames, samples) = (config.frames(), Samples::of_input(cx.inputs(), Some(Along::FirstDim)));
        let item = frames.bins() * if config.numbers == Numbers::Complex { 2 } else { 1 };
        let results = Vec::with_capacity(item * frames.most(samples.most));
        Ok(Stft { spectrum: Spectrum::new(frames, samples.most), numbers: config.numbers, results, item })
    }

    fn reset(&mut self, _: Reset) {
        self.spectrum.clear();
    }
}

impl Transform for Stft {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let Stft { spectrum, numbers, results, item } = self;
        results.clear();
        spectrum.begin(input.header().segment);
        spectrum.add(input.body.as_slice()?, |bins| match numbers {
            Numbers::Magnitude => results.extend(bins.iter().map(|bin| bin.norm())),
            Numbers::Power => results.extend(bins.iter().map(|bin| bin.norm_sqr())),
            Numbers::Complex => results.extend(bins.iter().flat_map(|bin| [bin.re, bin.im])),
        });
        send(results, *item, &input, out)
    }
}
