//! Another number of frames per second, by a windowed sinc in polyphase form.
//!
//! An output frame is a sum of the input frames around it, weighted by a low-pass filter. The ratio of the two rates is a fraction
//! of whole numbers, so there are as many sets of weights as output frames between two that coincide with an input frame: they are
//! computed once, and positions are exact however long the sound is. Nothing is delayed: the first output frame is at the first
//! input frame. Outside the sound there is silence.
//!
//! Zero crossings, roll-off and window are resampy's `kaiser_best`.

use std::f64::consts::PI;

/// Zero crossings of the sinc on each side.
const ZEROS: f64 = 64.0;
/// The end of the pass band, relative to half the lower of the two rates.
const ROLL_OFF: f64 = 0.947_593_716_739_959_6;
/// The shape of the Kaiser window.
const BETA: f64 = 14.769_656_459_379_492;
/// The greatest number of a ratio: it decides how many weights there are, 35 MiB at most.
const MAX_RATIO: u32 = 1 << 16;
/// Frames read at once.
const BLOCK: usize = 1024;

/// The ratio of two rates, in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    to: u32,
    from: u32,
}

impl Ratio {
    /// Returns the ratio of two rates in frames per second, or why frames cannot be computed for it.
    pub(crate) fn new(from: u32, to: u32) -> Result<Self, String> {
        let (mut divisor, mut rest) = (from, to);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let ratio = Ratio { to: to / divisor.max(1), from: from / divisor.max(1) };
        if ratio.from == 0 || ratio.to == 0 || ratio.from.max(ratio.to) > MAX_RATIO {
            return Err(format!(
                "{from} frames per second cannot become {to}: no number of their ratio {}:{} may be above {MAX_RATIO}",
                ratio.from, ratio.to
            ));
        }
        Ok(ratio)
    }

    /// Returns how many frames there are after resampling: `frames` times the ratio, rounded.
    pub(crate) fn frames(self, frames: u64) -> u64 {
        let (to, from) = (u128::from(self.to), u128::from(self.from));
        u64::try_from((u128::from(frames) * to * 2 + from) / (from * 2)).unwrap_or(u64::MAX)
    }

    /// Returns the pass band relative to half the input's rate.
    fn pass_band(self) -> f64 {
        ROLL_OFF * (f64::from(self.to) / f64::from(self.from)).min(1.0)
    }

    /// Returns how many input frames on each side have a weight.
    fn reach(self) -> usize {
        (ZEROS / self.pass_band()).ceil() as usize
    }

    /// Returns the bytes that a resampler allocates.
    pub(crate) fn bytes(self, channels: usize) -> usize {
        let taps = 2 * self.reach();
        let held = (taps + BLOCK).saturating_mul(channels);
        (self.to as usize).saturating_mul(taps).saturating_add(held).saturating_mul(size_of::<f32>())
    }
}

/// Resamples interleaved frames.
#[derive(Debug)]
pub(crate) struct Resampler {
    ratio: Ratio,
    channels: usize,
    /// Input frames with a weight, for each output frame.
    taps: usize,
    /// The weights for the output frames between two input frames, those of one after the other.
    weights: Vec<f32>,
    /// The input from frame `start` on. Frame 0 is silence, one less than `taps / 2` before the sound.
    held: Vec<f32>,
    start: u64,
    /// The number of the next output frame.
    next: u64,
}

impl Resampler {
    /// Creates a resampler for frames of so many channels.
    pub(crate) fn new(ratio: Ratio, channels: usize) -> Self {
        let (band, reach) = (ratio.pass_band(), ratio.reach());
        let (taps, scale) = (2 * reach, band / bessel(BETA));
        let mut weights = Vec::with_capacity(ratio.to as usize * taps);
        for phase in 0..ratio.to {
            let offset = f64::from(phase) / f64::from(ratio.to) + (reach - 1) as f64;
            weights.extend((0..taps).map(|tap| (weight((tap as f64 - offset) * band) * scale) as f32));
        }
        let held = Vec::with_capacity((taps + BLOCK) * channels);
        let mut resampler = Resampler { ratio, channels, taps, weights, held, start: 0, next: 0 };
        resampler.restart();
        resampler
    }

    /// Begins with another sound.
    pub(crate) fn restart(&mut self) {
        (self.start, self.next) = (0, 0);
        self.held.clear();
        self.held.resize((self.taps / 2 - 1) * self.channels, 0.0);
    }

    /// Fills `into` with the next frames. `read` fills a slice with the next frames of the input and returns how many there were;
    /// after the last it returns less than was asked for.
    pub(crate) fn fill(&mut self, into: &mut [f32], mut read: impl FnMut(&mut [f32]) -> usize) {
        let (to, from) = (u64::from(self.ratio.to), u64::from(self.ratio.from));
        for frame in into.chunks_exact_mut(self.channels.max(1)) {
            let (at, phase) = (self.next * from / to, (self.next * from % to) as usize);
            self.next += 1;
            let mut begin = (at - self.start) as usize * self.channels;
            while self.held.len() < begin + self.taps * self.channels {
                self.held.drain(..begin);
                (self.start, begin) = (at, 0);
                self.load(&mut read);
            }
            let weights = &self.weights[phase * self.taps..][..self.taps];
            let frames = self.held[begin..].chunks_exact(self.channels);
            frame.fill(0.0);
            for (samples, weight) in frames.zip(weights) {
                frame.iter_mut().zip(samples).for_each(|(to, sample)| *to += sample * weight);
            }
        }
    }

    /// Reads a block, with silence after the end of the sound.
    fn load(&mut self, read: &mut impl FnMut(&mut [f32]) -> usize) {
        let held = self.held.len();
        self.held.resize(held + BLOCK * self.channels, 0.0);
        let frames = read(&mut self.held[held..]);
        self.held[held + frames * self.channels..].fill(0.0);
    }
}

/// Returns the sinc within its window, not normalized, at a distance in zero crossings of the sinc.
fn weight(distance: f64) -> f64 {
    let inside = 1.0 - (distance / ZEROS).powi(2);
    if inside < 0.0 {
        return 0.0;
    }
    let angle = PI * distance;
    let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
    sinc * bessel(BETA * inside.sqrt())
}

/// Returns the modified Bessel function of the first kind and order 0, by its power series.
fn bessel(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term, mut n) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        term *= quarter / (n * n);
        sum += term;
        n += 1.0;
    }
    sum
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
        let capacity = resampler.held.capacity();
        let mut found = vec![0.0; ratio.frames(sound.len() as u64) as usize * 2];
        for piece in found.chunks_mut(pieces * 2) {
            resampler.fill(piece, |into| {
                let n = into.len().min(rest.len());
                into[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                n / 2
            });
        }
        assert_eq!(resampler.held.capacity(), capacity, "it grew");
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
                assert!((found - expected).abs() < 2e-5, "{from} to {to}: frame {at} is {found}, not {expected}");
            }
            // The size of the pieces changes nothing.
            assert_eq!(resample(from, to, &chirp(from), 7), found);
        }
    }

    /// A tone above half the new rate would be heard as another one; soxr leaves less than 1e-7 of it.
    #[test]
    fn what_the_new_rate_cannot_represent_is_removed() {
        let tone: Vec<f32> =
            (0..11_025).map(|n| (2.0 * PI * 10_000.0 * f64::from(n) / 44_100.0).sin() as f32).collect();
        let found = resample(44_100, 16_000, &tone, 512);
        let loudest = found[200..3_800].iter().fold(0.0, |loudest: f32, sample| loudest.max(sample.abs()));
        assert!(loudest < 1e-5, "{loudest}");
        let constant = resample(48_000, 16_000, &[0.5; 6_000], 512);
        assert!(constant[100..1_900].iter().all(|sample| (sample - 0.5).abs() < 1e-5));
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
