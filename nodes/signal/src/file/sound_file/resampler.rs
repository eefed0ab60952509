//! Another number of frames per second.
//!
//! Blocks of the sound are filtered by FFT (overlap-add): the spectrum of a block and the silence
//! after it is multiplied by that of a low-pass filter, then cut off or extended by zeros to the
//! number of frames at the other rate. The blocks before and after resampling have the ratio of the
//! two rates, in whole numbers of frames, so positions are exact however long the sound is. The
//! filter delays the sound by half a block: that much is left out at the start. Outside the sound
//! there is silence.

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// Least frames of a block at the lower of the two rates. The filter is as long as a block.
const MIN_BLOCK: u64 = 512;
/// Most frames of a block at the higher of the two rates: it decides how much memory there is.
const MAX_BLOCK: u64 = 1 << 17;
/// The greatest size of a sample: sums of a block stay finite. What is greater, infinite or NaN
/// becomes silence.
const LOUDEST: f32 = 1e20;
/// Why the calls of the FFT do not fail.
const FITS: &str = "the buffers have the lengths of the plan, and the first and the last number of a spectrum are real";

/// The ratio of two rates: the frames of a block before and after resampling, both even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    from: usize,
    to: usize,
}

impl Ratio {
    /// Returns the ratio of two rates in frames per second, or why frames cannot be computed for
    /// it.
    pub(crate) fn new(from: u32, to: u32) -> Result<Self, String> {
        let (mut divisor, mut rest) = (from, to);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let [a, b] = [from, to].map(|rate| u64::from(rate / divisor.max(1)));
        // Half a block is a whole number of frames.
        let times = MIN_BLOCK.div_ceil(a.min(b).max(1)).next_multiple_of(2);
        let longest = a.max(b) * times;
        if a.min(b) == 0 || longest > MAX_BLOCK {
            return Err(format!(
                "cannot resample from {from} to {to} frames per second: a block for the ratio {a}:{b} must have at \
                 most {MAX_BLOCK} frames, got {longest}"
            ));
        }
        Ok(Ratio { from: (a * times) as usize, to: (b * times) as usize })
    }

    /// Returns how many frames there are after resampling: `frames` times the ratio, rounded.
    pub(crate) fn frames(self, frames: u64) -> u64 {
        let (from, to) = (self.from as u128, self.to as u128);
        u64::try_from((u128::from(frames) * to * 2 + from) / (from * 2)).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes a resampler allocates at most. FFTs, spectra and the filter need up
    /// to 89 bytes for each frame of the two blocks, as measured for 10,000 ratios; the sound needs
    /// 4 for each sample of the first block and 8 for each of the second.
    pub(crate) fn bytes(self, channels: usize) -> usize {
        (self.from + self.to).saturating_mul(channels.saturating_mul(8).saturating_add(96))
    }
}

/// Resamples interleaved frames.
pub(crate) struct Resampler {
    channels: usize,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// The spectrum of the filter.
    filter: Vec<Complex<f32>>,
    /// A block and silence of the same length, before and after resampling.
    padded: [Vec<f32>; 2],
    spectrum: [Vec<Complex<f32>>; 2],
    scratch: Vec<Complex<f32>>,
    /// Interleaved frames of a block, before and after resampling.
    input: Vec<f32>,
    output: Vec<f32>,
    /// What the filter adds to the next block of each channel.
    tails: Vec<Vec<f32>>,
    /// Samples of `output` that were taken.
    taken: usize,
    /// Samples to leave out of the next block.
    delay: usize,
}

impl fmt::Debug for Resampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.padded.each_ref().map(|padded| padded.len() / 2);
        f.debug_struct("Resampler").field("blocks", &blocks).field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Resampler {
    /// Creates a resampler for frames of so many channels.
    pub(crate) fn new(Ratio { from, to }: Ratio, channels: usize) -> Self {
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(2 * from), planner.plan_fft_inverse(2 * to));
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        let mut resampler = Resampler {
            channels,
            filter: forward.make_output_vec(),
            padded: [forward.make_input_vec(), inverse.make_output_vec()],
            spectrum: [forward.make_output_vec(), inverse.make_input_vec()],
            scratch: vec![Complex::default(); scratch],
            forward,
            inverse,
            input: vec![0.0; from * channels],
            output: vec![0.0; to * channels],
            tails: vec![vec![0.0; to]; channels],
            taken: 0,
            delay: 0,
        };
        let [padded, _] = &mut resampler.padded;
        padded[..from].copy_from_slice(&low_pass(from, to));
        resampler.forward.process_with_scratch(padded, &mut resampler.filter, &mut resampler.scratch).expect(FITS);
        resampler.restart();
        resampler
    }

    /// Begins with another sound.
    pub(crate) fn restart(&mut self) {
        self.tails.iter_mut().for_each(|tail| tail.fill(0.0));
        self.taken = self.output.len();
        self.delay = self.output.len() / 2;
    }

    /// Fills `into` with the next frames. `read` fills a slice with the next frames of the input
    /// and returns how many there were; after the last it returns less than was asked for.
    pub(crate) fn fill(&mut self, mut into: &mut [f32], mut read: impl FnMut(&mut [f32]) -> usize) {
        while !into.is_empty() {
            if self.taken == self.output.len() {
                self.load(&mut read);
            }
            let ready = &self.output[self.taken..];
            let (now, later) = into.split_at_mut(into.len().min(ready.len()));
            now.copy_from_slice(&ready[..now.len()]);
            self.taken += now.len();
            into = later;
        }
    }

    /// Resamples a block, with silence after the end of the sound.
    fn load(&mut self, read: &mut impl FnMut(&mut [f32]) -> usize) {
        let frames = read(&mut self.input);
        self.input[frames * self.channels..].fill(0.0);
        for channel in 0..self.channels {
            self.resample(channel);
        }
        self.taken = std::mem::take(&mut self.delay);
    }

    /// Resamples a block of one channel.
    fn resample(&mut self, channel: usize) {
        let Resampler { padded: [before, after], spectrum: [whole, cut], scratch, filter, .. } = self;
        let half = before.len() / 2;
        let (block, silence) = before.split_at_mut(half);
        for (sample, found) in block.iter_mut().zip(self.input[channel..].iter().step_by(self.channels)) {
            // False for NaN too, with which all of the block would be NaN.
            let is_usable = found.abs() <= LOUDEST;
            *sample = if is_usable { *found } else { 0.0 };
        }
        silence.fill(0.0);
        self.forward.process_with_scratch(before, whole, scratch).expect(FITS);
        // The last number of the shorter spectrum belongs to half the lower rate, which the filter
        // removes.
        let shared = whole.len().min(cut.len()) - 1;
        cut[shared..].fill(Complex::default());
        for (to, (number, weight)) in cut[..shared].iter_mut().zip(whole.iter().zip(filter)) {
            *to = number * *weight;
        }
        cut[0].im = 0.0;
        self.inverse.process_with_scratch(cut, after, scratch).expect(FITS);
        let tail = &mut self.tails[channel];
        let (block, rest) = after.split_at(tail.len());
        let sums = block.iter().zip(tail.iter()).map(|(sample, tail)| sample + tail);
        self.output[channel..].iter_mut().step_by(self.channels).zip(sums).for_each(|(to, sum)| *to = sum);
        tail.copy_from_slice(rest);
    }
}

/// Returns a filter of `from` samples that keeps the frequencies below half the lower rate, divided
/// by the frames of both of its FFTs: the sinc function, weighted by the square of the
/// Blackman-Harris window (Harris, "On the use of windows for harmonic analysis with the discrete
/// Fourier transform", 1978).
fn low_pass(from: usize, to: usize) -> Vec<f32> {
    // In periods of the filter's length. A frequency fades out over 8 periods on each side, half
    // the width of the squared window's peak.
    let cutoff = (from.min(to) / 2) as f64 - 8.0;
    let taps: Vec<f64> = (0..from)
        .map(|at| {
            let turn = 2.0 * PI * at as f64 / from as f64;
            let window = 0.35875 - 0.48829 * turn.cos() + 0.14128 * (2.0 * turn).cos() - 0.01168 * (3.0 * turn).cos();
            let angle = (at as f64 - from as f64 / 2.0) * 2.0 * PI * cutoff / from as f64;
            let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
            window * window * sinc
        })
        .collect();
    let scale = taps.iter().sum::<f64>() * 2.0 * from as f64;
    taps.iter().map(|tap| (tap / scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resamples in pieces, two channels of which the second has half the level.
    fn resample(from: u32, to: u32, sound: &[f32], pieces: usize) -> Vec<f32> {
        let ratio = Ratio::new(from, to).unwrap();
        let frames: Vec<f32> = sound.iter().flat_map(|sample| [*sample, sample / 2.0]).collect();
        let mut rest = &frames[..];
        let mut resampler = Resampler::new(ratio, 2);
        let mut found = vec![0.0; ratio.frames(sound.len() as u64) as usize * 2];
        for piece in found.chunks_mut(pieces * 2) {
            resampler.fill(piece, |into| {
                let n = into.len().min(rest.len());
                into[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                n / 2
            });
        }
        assert!(found.as_chunks().0.iter().all(|[a, b]: &[f32; 2]| (a / 2.0 - b).abs() < 1e-6));
        found.into_iter().step_by(2).collect()
    }

    /// A quarter of a second whose frequency rises from 100 Hz by 8 Hz every millisecond.
    fn chirp(rate: u32) -> Vec<f32> {
        let at = |n: u32| f64::from(n) / f64::from(rate);
        (0..rate / 4).map(|n| (2.0 * PI * at(n) * (100.0 + 4000.0 * at(n))).sin() as f32).collect()
    }

    /// The expected frames are those of soxr 1.1.0: `soxr.resample(x, from, to, quality='VHQ')`.
    /// Near the ends, where they depend on the filter, only the number of frames is compared.
    #[test]
    fn a_chirp_is_that_of_another_implementation() {
        for (from, to, frames, expected) in [
            (
                44_100,
                16_000,
                4_000,
                [(500, 0.195_090_3), (501, 0.327_722_9), (1_001, -0.522_414_9), (3_500, 0.980_785_3)],
            ),
            (
                8_000,
                16_000,
                4_000,
                [(500, 0.195_090_3), (501, 0.327_722_9), (1_500, -0.195_090_3), (3_500, 0.980_785_3)],
            ),
            (
                48_000,
                44_100,
                11_025,
                [(500, -0.801_476_4), (501, -0.817_434_8), (1_000, 0.892_910_1), (10_525, -0.959_704_7)],
            ),
        ] {
            let found = resample(from, to, &chirp(from), 4_096);
            assert_eq!(found.len(), frames);
            for (at, expected) in expected {
                let found = found[at];
                assert!((found - expected).abs() < 5e-6, "{from} to {to}: frame {at} is {found}, not {expected}");
            }
            // The size of the pieces changes nothing.
            assert_eq!(resample(from, to, &chirp(from), 7), found);
        }
    }

    /// A tone above half the new rate would be heard as another one; soxr leaves less than 1e-7 of
    /// it. Half a block is compared with the silence around the sound.
    #[test]
    fn what_the_new_rate_cannot_represent_is_removed() {
        let tone: Vec<f32> =
            (0..11_025).map(|n| (2.0 * PI * 10_000.0 * f64::from(n) / 44_100.0).sin() as f32).collect();
        let found = resample(44_100, 16_000, &tone, 512);
        let loudest = found[320..3_680].iter().fold(0.0, |loudest: f32, sample| loudest.max(sample.abs()));
        assert!(loudest < 5e-6, "{loudest}");
        let constant = resample(48_000, 16_000, &[0.5; 6_000], 512);
        assert!(constant[256..1_744].iter().all(|sample| (sample - 0.5).abs() < 5e-6));
    }

    #[test]
    fn samples_that_have_no_sum_are_silence() {
        for (from, to) in [(8_000, 16_000), (16_000, 8_000), (44_100, 44_101)] {
            for sample in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                assert!(resample(from, to, &[sample; 3_000], 512).iter().all(|sample| *sample == 0.0), "{sample}");
            }
            let found = resample(from, to, &[1e20, -1e20, 1.0].repeat(1_000), 512);
            assert!(found.iter().all(|sample| sample.is_finite()), "{from} to {to}");
        }
    }

    #[test]
    fn the_number_of_frames_is_rounded() {
        for (from, to, frames, expected) in [
            (44_100, 16_000, 44_100, Some(16_000)),
            (44_100, 16_000, 1, Some(0)),
            (44_100, 16_000, 2, Some(1)),
            (16_000, 48_000, 5, Some(15)),
            (48_000, 16_000, 5, Some(2)),
            (48_000, 32_000, 1, Some(1)),
            (48_000, 200, 6_000, Some(25)),
            (48_000, 100, 6_000, None),
            (65_536, 65_535, u64::from(u32::MAX), Some(4_294_901_759)),
            (65_537, 65_536, 9, None),
            (u32::MAX, 16_000, 9, None),
            (0, 16_000, 9, None),
            (16_000, 0, 9, None),
        ] {
            assert_eq!(
                Ratio::new(from, to).ok().map(|ratio| ratio.frames(frames)),
                expected,
                "{frames} of {from} to {to}"
            );
        }
    }
}
