//! Spectra of sound.

use crate::signal::samples::Samples;
use crate::signal::spectrum::{Frames, Spectrum, planned, send};
use crate::signal::{Along, WindowFunction};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Computes the short-time Fourier transform of one channel of samples, `f32[≤n]` or `f32[≤n,1]`.
/// The output is one spectrum per frame, `f32[≤frames,bins]` with `length / 2 + 1` bins (rounded
/// down). With `numbers: complex`, the output is `f32[≤frames,bins,2]` with real and imaginary
/// parts.
///
/// A frame starts every `hop` samples and may span several messages. The node does not pad frames,
/// as in `librosa.stft(..., center=False)`. An output message contains the spectra of all frames
/// that end within the input message. If no frame ends within the input message, the node sends no
/// message. The node drops buffered samples at a new segment, and at a gap with `on_gap: reset`. A
/// last frame that is incomplete produces no spectrum.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StftConfig {
    /// Frame length in samples.
    pub length: usize,
    /// Hop size: samples from the start of a frame to the start of the next frame.
    pub hop: usize,
    /// Window function of a frame: `hann`, `hamming` or `none`. Default: `hann`.
    #[serde(default)]
    pub window: WindowFunction,
    /// Values of a spectrum: `magnitude`, `power` or `complex`. Default: `magnitude`.
    #[serde(default)]
    pub numbers: Numbers,
}

/// Values of a spectrum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Absolute value of each bin, without scaling.
    #[default]
    Magnitude,
    /// Squared absolute value of each bin.
    Power,
    /// Real and imaginary part of each bin.
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
