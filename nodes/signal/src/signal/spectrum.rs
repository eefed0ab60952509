//! Spectra of frames of samples.

use super::samples::{Along, Samples, takes_f32};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Connected, Emit, NodeError, PlanErrors, Ports};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::{cost, shape};
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use schemars::JsonSchema;
use serde::Deserialize;
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// Window function of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowFunction {
    /// Hann window (periodic).
    #[default]
    Hann,
    /// Hamming window (periodic).
    Hamming,
    /// No window: every weight is 1.
    None,
}

/// How frames are cut from samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frames {
    /// Samples of a frame.
    pub(crate) length: usize,
    /// Samples from the beginning of a frame to that of the next.
    pub(crate) hop: usize,
    pub(crate) window: WindowFunction,
}

/// The most samples of a frame.
const MOST: usize = 1 << 16;

impl Frames {
    /// Reports lengths that cannot be.
    pub(crate) fn check(&self, errors: &mut PlanErrors) {
        if !(2..=MOST).contains(&self.length) {
            let message = format!("`length` must be 2 to {MOST}, got {}", self.length);
            errors.at("length", message).help("write `length: 400`");
        }
        if !(1..=MOST).contains(&self.hop) {
            let message = format!("`hop` must be 1 to {MOST}, got {}", self.hop);
            errors.at("hop", message).help("write `hop: 160`");
        }
    }

    /// The numbers of a spectrum.
    pub(crate) fn bins(&self) -> usize {
        self.length / 2 + 1
    }

    /// The most frames that end within so many samples.
    pub(crate) fn most(&self, samples: usize) -> usize {
        samples.div_ceil(self.hop.max(1)).max(1)
    }
}

/// Cuts frames and computes their spectra.
pub(crate) struct Spectrum {
    frames: Frames,
    weights: Vec<f32>,
    fft: Arc<dyn RealToComplex<f32>>,
    /// Samples that are no part of all their frames yet.
    kept: Vec<f32>,
    segment: u16,
    /// Samples to leave out before the next frame begins.
    skip: usize,
    frame: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl fmt::Debug for Spectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectrum").field("frames", &self.frames).field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Spectrum {
    /// Of frames in messages of at most so many samples.
    pub(crate) fn new(frames: Frames, most: usize) -> Spectrum {
        let fft = RealFftPlanner::<f32>::new().plan_fft_forward(frames.length);
        let weight = |at: usize| {
            let turn = (2.0 * PI * at as f64 / frames.length as f64).cos();
            match frames.window {
                WindowFunction::Hann => 0.5 - 0.5 * turn,
                WindowFunction::Hamming => 0.54 - 0.46 * turn,
                WindowFunction::None => 1.0,
            }
        };
        let weights = (0..frames.length).map(|at| weight(at) as f32).collect();
        let kept = Vec::with_capacity(frames.length + most);
        let (frame, spectrum, scratch) = (fft.make_input_vec(), fft.make_output_vec(), fft.make_scratch_vec());
        Spectrum { frames, weights, fft, kept, segment: 0, skip: 0, frame, spectrum, scratch }
    }

    /// Forgets all samples.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.skip = 0;
    }

    /// Forgets all samples if a message is of another part of the stream than the last one.
    pub(crate) fn begin(&mut self, segment: u16) {
        if std::mem::replace(&mut self.segment, segment) != segment {
            self.clear();
        }
    }

    /// Adds samples, and calls `each` with the spectrum of each frame that they complete.
    pub(crate) fn add(&mut self, samples: &[f32], mut each: impl FnMut(&[Complex<f32>])) {
        let Spectrum { frames, weights, fft, kept, skip, frame, spectrum, scratch, .. } = self;
        let left_out = samples.len().min(*skip);
        *skip -= left_out;
        kept.extend_from_slice(&samples[left_out..]);
        let mut at = 0;
        while kept.len() - at >= frames.length {
            let pairs = kept[at..].iter().zip(weights.iter());
            frame.iter_mut().zip(pairs).for_each(|(to, (sample, weight))| *to = sample * weight);
            // The lengths are those that the plan was made for.
            if fft.process_with_scratch(frame, spectrum, scratch).is_ok() {
                each(spectrum);
            }
            at += frames.hop;
            if at > kept.len() {
                *skip = at - kept.len();
                at = kept.len();
            }
        }
        kept.drain(..at);
    }
}

/// Returns the spec of the results of frames with so many numbers, and reports messages of several
/// channels.
pub(crate) fn planned(given: &Connected, frames: &Frames, item: &[usize], errors: &mut PlanErrors) -> Ports {
    let spec = takes_f32(given, errors);
    if let Some(spec) = given.single().filter(|spec| spec.shape.is_empty()) {
        let message = format!("expected several samples, found one sample, {spec}");
        errors.input("in", message).help("put a `window` node upstream of this node");
        return shape::gives(shape::takes(Some(spec.clone())), None);
    }
    let samples = Samples::of(given.single(), Some(Along::FirstDim), errors);
    if samples.channels != 1 {
        let message = format!("expected one channel, found {}", samples.channels);
        errors
            .input("in", message)
            .help("write `channels: mono` at the `wav` node, or put a `slice` node upstream of this node");
    }
    frames.check(errors);
    let most = frames.most(samples.most);
    let out = spec.as_ref().map(|_| {
        let dims = [Dim::AtMost(most)].into_iter().chain(item.iter().map(|length| Dim::Fixed(*length)));
        PortSpec::new(DType::F32, dims)
    });
    let work = most.saturating_mul(frames.length).saturating_mul(8);
    let memory = frames.length.saturating_mul(5).saturating_add(samples.most).saturating_mul(4);
    shape::gives(shape::takes(spec), out).selective().cost(cost::of(work)).memory(memory)
}

/// Sends the numbers of frames, if there are any.
pub(crate) fn send(
    results: &[f32],
    item: usize,
    input: &Message<Tensor>,
    out: &mut Emit<Tensor>,
) -> Result<(), NodeError> {
    if results.is_empty() {
        return Ok(());
    }
    let mut tensor = out.loan(input.header())?;
    tensor.set_len(0, results.len() / item)?;
    tensor.as_mut_slice()?.copy_from_slice(results);
    out.send(tensor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spectra of all frames, each number by its definition.
    fn expected(samples: &[f32], frames: Frames) -> Vec<Complex<f64>> {
        let weight = |at: usize| match frames.window {
            WindowFunction::None => 1.0,
            WindowFunction::Hann => (PI * at as f64 / frames.length as f64).sin().powi(2),
            WindowFunction::Hamming => 0.08 + 0.92 * (PI * at as f64 / frames.length as f64).sin().powi(2),
        };
        let mut found = Vec::new();
        for begin in (0..samples.len()).step_by(frames.hop).filter(|begin| begin + frames.length <= samples.len()) {
            for bin in 0..frames.bins() {
                let part = |at: usize| {
                    let angle = -2.0 * PI * (at * bin) as f64 / frames.length as f64;
                    Complex::from_polar(f64::from(samples[begin + at]) * weight(at), angle)
                };
                found.push((0..frames.length).map(part).sum());
            }
        }
        found
    }

    #[test]
    fn frames_go_on_from_message_to_message() {
        let mut random = fastrand::Rng::with_seed(4);
        let samples: Vec<f32> = (0..300).map(|_| random.f32() - 0.5).collect();
        for (length, hop, window) in [
            (16, 4, WindowFunction::Hann),
            (15, 7, WindowFunction::Hamming),
            (16, 16, WindowFunction::None),
            (8, 29, WindowFunction::Hann),
            (2, 1, WindowFunction::None),
            (299, 1, WindowFunction::Hann),
        ] {
            let frames = Frames { length, hop, window };
            let expected = expected(&samples, frames);
            for size in [1, 3, 28, 29, 30, 64, 300] {
                let mut spectrum = Spectrum::new(frames, size);
                // What was there before a gap is forgotten.
                spectrum.add(&samples[..size.min(40)], |_| {});
                spectrum.clear();
                let (mut found, capacity) = (Vec::new(), spectrum.kept.capacity());
                for part in samples.chunks(size) {
                    let before = found.len();
                    spectrum.add(part, |bins| found.extend_from_slice(bins));
                    assert!((found.len() - before) / frames.bins() <= frames.most(size));
                }
                assert_eq!(found.len(), expected.len(), "{frames:?} in messages of {size}");
                assert_eq!(spectrum.kept.capacity(), capacity);
                let near = |(a, b): (&Complex<f32>, &Complex<f64>)| {
                    (f64::from(a.re) - b.re).hypot(f64::from(a.im) - b.im) < 1e-5 * length as f64
                };
                assert!(found.iter().zip(&expected).all(near), "{frames:?} in messages of {size}");
            }
        }
    }
}
