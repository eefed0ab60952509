//! The mel scale, which spaces frequencies as they are heard.

/// A triangle over the bins of a spectrum.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Triangle {
    first: usize,
    weights: Vec<f32>,
}

/// Hz in mels, after Slaney's Auditory Toolbox (1998): a straight line up to 1 kHz, a logarithm
/// above.
fn mels(hz: f64) -> f64 {
    const STEP: f64 = 200.0 / 3.0;
    if hz < 1000.0 { hz / STEP } else { 1000.0 / STEP + (hz / 1000.0).ln() / (6.4f64.ln() / 27.0) }
}

fn hertz(mels: f64) -> f64 {
    const STEP: f64 = 200.0 / 3.0;
    const BREAK: f64 = 1000.0 / STEP;
    if mels < BREAK { mels * STEP } else { 1000.0 * ((mels - BREAK) * (6.4f64.ln() / 27.0)).exp() }
}

/// Returns so many triangles from one frequency to another, evenly spaced in mels, each with the
/// same area over Hz. A spectrum has `bins` bins from 0 to half the sample rate.
pub(crate) fn triangles(count: usize, bins: usize, sample_rate: f64, from: f64, to: f64) -> Vec<Triangle> {
    let (low, high) = (mels(from), mels(to));
    let corner = |at: usize| hertz(low + (high - low) * at as f64 / (count + 1) as f64);
    let step = sample_rate / 2.0 / (bins - 1) as f64;
    let triangle = |at: usize| {
        let (left, middle, right) = (corner(at), corner(at + 1), corner(at + 2));
        let weight = |bin: usize| {
            let hz = bin as f64 * step;
            let height = ((hz - left) / (middle - left)).min((right - hz) / (right - middle)).max(0.0);
            (height * 2.0 / (right - left)) as f32
        };
        let first = ((left / step).ceil() as usize).min(bins - 1);
        let end = ((right / step).floor() as usize + 1).clamp(first, bins);
        Triangle { first, weights: (first..end).map(weight).collect() }
    };
    (0..count).map(triangle).collect()
}

impl Triangle {
    /// The sum of a spectrum under it.
    pub(crate) fn of(&self, spectrum: &[f32]) -> f32 {
        self.weights.iter().zip(&spectrum[self.first..]).map(|(weight, power)| weight * power).sum()
    }

    /// Whether no bin lies within it.
    pub(crate) fn is_empty(&self) -> bool {
        self.weights.iter().all(|weight| *weight == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mels_and_hertz_are_the_inverse_of_each_other() {
        for hz in [0.0, 20.0, 440.0, 999.9, 1000.0, 1000.1, 8000.0, 20_000.0] {
            assert!((hertz(mels(hz)) - hz).abs() < 1e-9 * (1.0 + hz), "{hz}");
        }
        assert!((mels(1000.0) - 15.0).abs() < 1e-12);
    }

    #[test]
    fn triangles_are_those_of_librosa() {
        // librosa.filters.mel(sr=16000, n_fft=16, n_mels=3).
        let expected = [
            [0.0, 0.000_872_69, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.000_180_07, 0.000_577_36, 0.000_232_82, 0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.000_049_62, 0.000_209_12, 0.000_293_14, 0.000_219_86, 0.000_146_57, 0.000_073_29, 0.0],
        ];
        for (triangle, expected) in triangles(3, 9, 16_000.0, 0.0, 8_000.0).iter().zip(expected) {
            for (bin, expected) in expected.into_iter().enumerate() {
                let mut only = [0.0; 9];
                only[bin] = 1.0;
                assert!((triangle.of(&only) - expected).abs() < 1e-8, "bin {bin} of {triangle:?}");
            }
        }
    }
}
