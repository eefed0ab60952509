//! Another number of frames per second.
//!
//! The crate `rubato` filters blocks of the sound by FFT. The blocks before and after resampling have the ratio of the two rates, in
//! whole numbers of frames, so positions are exact however long the sound is. The filter delays the sound by half a block: that much
//! is left out at the start. Outside the sound there is silence.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _, WindowFunction};

/// Least frames of a block at the lower of the two rates. The filter is as long as a block.
const MIN_BLOCK: u64 = 512;
/// Most frames of a block at the higher of the two rates: it decides how much memory there is.
const MAX_BLOCK: u64 = 1 << 17;
/// The greatest size of a sample: sums of a block stay finite. What is greater, infinite or NaN becomes silence.
const LOUDEST: f32 = 1e20;
/// Why the calls of the crate do not fail.
const FITS: &str = "no block is empty, and the buffers have a block of every channel";

/// The ratio of two rates: the frames of a block before and after resampling, both even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    from: usize,
    to: usize,
}

impl Ratio {
    /// Returns the ratio of two rates in frames per second, or why frames cannot be computed for it.
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
                "{from} frames per second cannot become {to}: their ratio {a}:{b} needs blocks of {longest} frames, expected at \
                 most {MAX_BLOCK}"
            ));
        }
        Ok(Ratio { from: (a * times) as usize, to: (b * times) as usize })
    }

    /// Returns how many frames there are after resampling: `frames` times the ratio, rounded.
    pub(crate) fn frames(self, frames: u64) -> u64 {
        let (from, to) = (self.from as u128, self.to as u128);
        u64::try_from((u128::from(frames) * to * 2 + from) / (from * 2)).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes a resampler allocates at most. The crate needs up to 72 bytes for each frame of the two blocks, as
    /// measured for 5000 ratios, 8 for each sample of the first and 12 of the second; the buffers here need 4.
    pub(crate) fn bytes(self, channels: usize) -> usize {
        (self.from + self.to).saturating_mul(channels.saturating_mul(16).saturating_add(72))
    }
}

/// Resamples interleaved frames.
#[derive(Debug)]
pub(crate) struct Resampler {
    fft: Fft<f32>,
    channels: usize,
    /// A block before and after resampling.
    input: Vec<f32>,
    output: Vec<f32>,
    /// Samples of `output` that were taken.
    taken: usize,
    /// Samples to leave out of the next block.
    delay: usize,
}

impl Resampler {
    /// Creates a resampler for frames of so many channels.
    pub(crate) fn new(Ratio { from, to }: Ratio, channels: usize) -> Self {
        let window = WindowFunction::BlackmanHarris2;
        let fft = Fft::new_custom(from, to, from, 1, channels, window, FixedSync::Both).expect(FITS);
        let [input, output] = [from, to].map(|frames| vec![0.0; frames * channels]);
        let mut resampler = Resampler { fft, channels, input, output, taken: 0, delay: 0 };
        resampler.restart();
        resampler
    }

    /// Begins with another sound.
    pub(crate) fn restart(&mut self) {
        self.fft.reset();
        self.taken = self.output.len();
        self.delay = self.fft.output_delay() * self.channels;
    }

    /// Fills `into` with the next frames. `read` fills a slice with the next frames of the input and returns how many there were;
    /// after the last it returns less than was asked for.
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
        for sample in &mut self.input {
            // False for NaN too. The crate panics if a sum of the samples is not finite.
            let is_usable = sample.abs() <= LOUDEST;
            *sample = if is_usable { *sample } else { 0.0 };
        }
        let [from, to] = [self.fft.fft_size_in(), self.fft.fft_size_out()];
        let input = InterleavedSlice::new(&self.input[..], self.channels, from).expect(FITS);
        let mut output = InterleavedSlice::new_mut(&mut self.output[..], self.channels, to).expect(FITS);
        self.fft.process_into_buffer(&input, &mut output, None).expect(FITS);
        self.taken = std::mem::take(&mut self.delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

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

    /// The expected frames are those of soxr 1.1.0: `soxr.resample(x, from, to, quality='VHQ')`. Near the ends, where they depend on
    /// the filter, only the number of frames is compared.
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

    /// A tone above half the new rate would be heard as another one; soxr leaves less than 1e-7 of it. Half a block is compared with
    /// the silence around the sound.
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
