//! Filters with a finite impulse response.

use crate::signal::Along;
use crate::signal::band::{self, Band};
use crate::signal::samples::{Samples, takes_f32, with_notice};
use limen::message::PortSpec;
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::unit::Rate;
use limen::{Tensor, TensorMut};
use limen_nodes_core::tensor::{cost, shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// Applies an FIR filter to the samples of each channel, in place. Each output sample is a weighted
/// sum of the most recent input samples.
///
/// Write the weights as `taps`, or design a low-pass (`lowpass`), a high-pass (`highpass`) or a
/// band-pass filter (both keys). The designs match SciPy's `firwin`, which uses the window method
/// with a Hamming window. At a cutoff frequency, a designed filter halves the amplitude (-6 dB).
/// Designed filters delay their input by `(count - 1) / 2` samples.
///
/// A message `f32[n]` or `f32[n, ...]` contains `n` samples of every channel, such as sound. With
/// `along: messages`, and for scalars, each message contains one sample of every channel, such as a
/// sensor reading. The node keeps the most recent samples between messages. At a new segment, and
/// at a gap with `on_gap: reset`, the node replaces these samples with silence. The node treats the
/// input before the first sample as silence.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FirConfig {
    /// Weights, 1 to 65536 numbers, starting with the weight of the newest sample. `taps` cannot be
    /// combined with `lowpass`, `highpass` or `count`.
    pub taps: Option<Vec<f32>>,
    /// Cutoff frequency of a low-pass filter, such as `4kHz`. `lowpass` must be below half of
    /// `sample_rate`.
    pub lowpass: Option<Rate>,
    /// Cutoff frequency of a high-pass filter. `highpass` must be below `lowpass`, if the config
    /// contains both keys.
    pub highpass: Option<Rate>,
    /// Number of designed taps, from 1 to 65536. With `highpass`, `count` must be odd. Default: 63.
    pub count: Option<usize>,
    /// Sample rate of a channel, such as `16kHz`. Required with `lowpass` or `highpass`.
    pub sample_rate: Option<Rate>,
    /// Axis along which samples follow each other in time: `first_dim` of a message, or `messages`.
    /// Default: `messages` for scalars, otherwise `first_dim`.
    pub along: Option<Along>,
}

/// The most taps.
const MOST: usize = 1 << 16;

impl FirConfig {
    /// Returns the taps, and reports what is wrong.
    fn planned(&self, errors: &mut PlanErrors) -> Vec<f32> {
        let has_limits = self.lowpass.is_some() || self.highpass.is_some();
        let Some(taps) = &self.taps else {
            if !has_limits {
                let help = "write `lowpass: 4kHz, sample_rate: 16kHz`, or `taps: [0.5, 0.5]`";
                errors.node("`lowpass`, `highpass` and `taps` are missing").help(help);
                return Vec::new();
            }
            let count = self.count.unwrap_or(63);
            if !(1..=MOST).contains(&count) {
                errors.at("count", format!("`count` must be 1 to {MOST}, got {count}")).help("write `count: 63`");
                return Vec::new();
            }
            if self.highpass.is_some() && count.is_multiple_of(2) {
                let message =
                    format!("`count` must be odd, got {count}: an even filter passes nothing at half the sample rate");
                errors.at("count", message).help(format!("write `count: {}`", count + 1));
            }
            let band = Band::new(self.highpass, self.lowpass, self.sample_rate, errors);
            let taps = band.map(|band| band::windowed(band, count)).unwrap_or_default();
            return taps.into_iter().map(|tap| tap as f32).collect();
        };
        if has_limits || self.count.is_some() {
            let message = "`taps` excludes `lowpass`, `highpass` and `count`";
            errors.at("taps", message).help("remove `taps`, or remove `lowpass`, `highpass` and `count`");
        }
        if taps.is_empty() || taps.len() > MOST {
            errors
                .at("taps", format!("`taps` must have 1 to {MOST} entries, got {}", taps.len()))
                .help(format!("write 1 to {MOST} taps, such as `[0.5, 0.5]`"));
        }
        for (at, tap) in taps.iter().enumerate().filter(|(_, tap)| !tap.is_finite()) {
            errors.at(format!("taps[{at}]"), format!("a tap must be finite, got {tap}")).help("write a finite number");
        }
        taps.clone()
    }
}

/// Runs `kind: fir`; [`FirConfig`] says what it does.
#[derive(Debug)]
pub struct Fir {
    /// The weight of the oldest sample first.
    taps: Vec<f32>,
    samples: Samples,
    /// The last samples of each channel, the oldest first.
    past: Vec<f32>,
    /// Those of one channel and its new ones.
    line: Vec<f32>,
    /// The part of the stream that the last message was of.
    segment: u16,
}

impl Fir {
    fn new(config: &FirConfig, samples: Samples) -> Fir {
        let mut taps = config.planned(&mut PlanErrors::default());
        taps.reverse();
        let kept = taps.len().saturating_sub(1);
        let line = Vec::with_capacity(kept + samples.most);
        Fir { past: vec![0.0; kept * samples.channels], taps, samples, line, segment: 0 }
    }

    /// Filters samples that lie as in a message.
    fn filter(&mut self, values: &mut [f32]) {
        let Fir { taps, samples, past, line, .. } = self;
        let kept = taps.len().saturating_sub(1);
        for channel in 0..samples.channels {
            let past = &mut past[channel * kept..][..kept];
            line.clear();
            line.extend_from_slice(past);
            line.extend(values.iter().skip(channel).step_by(samples.channels));
            let results = line.windows(taps.len().max(1));
            for (value, samples) in values.iter_mut().skip(channel).step_by(samples.channels).zip(results) {
                *value = product(taps, samples);
            }
            past.copy_from_slice(&line[line.len() - kept..]);
        }
    }
}

/// The sum of products, in eight sums side by side, which the compiler computes at a time.
fn product(a: &[f32], b: &[f32]) -> f32 {
    let (eights, more) = a.as_chunks::<8>();
    let (others, rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in eights.iter().zip(others) {
        for at in 0..8 {
            sums[at] += a[at] * b[at];
        }
    }
    sums.iter().sum::<f32>() + more.iter().zip(rest).map(|(a, b)| a * b).sum::<f32>()
}

impl Node for Fir {
    type Config = FirConfig;

    fn ports(config: &FirConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = takes_f32(given, &mut errors);
        let samples = Samples::of(given.single(), config.along, &mut errors);
        let taps = config.planned(&mut errors).len();
        let elements = spec.as_ref().and_then(PortSpec::max_elements).unwrap_or(0);
        let ports = shape::takes(spec.clone()).output_forwarding("out", spec, "in");
        let ports = with_notice(ports, given.single(), config.along);
        let kept = samples.channels.saturating_mul(taps).saturating_add(samples.most).saturating_mul(4);
        errors.into_result(ports.cost(cost::of(elements.saturating_mul(taps / 4 + 1))).memory(kept))
    }

    fn build(config: FirConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Fir::new(&config, Samples::of_input(cx.inputs(), config.along)))
    }

    fn reset(&mut self, _: Reset) {
        self.past.fill(0.0);
    }
}

impl Transform for Fir {
    type In = TensorMut;
    type Out = Tensor;

    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if std::mem::replace(&mut self.segment, input.header().segment) != input.header().segment {
            self.past.fill(0.0);
        }
        self.filter(input.as_mut_slice()?);
        out.send(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str, channels: usize) -> Fir {
        let config: FirConfig = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut errors = PlanErrors::default();
        config.planned(&mut errors);
        assert_eq!(errors.messages().collect::<Vec<_>>(), [""; 0], "{text}");
        Fir::new(&config, Samples { along: Along::FirstDim, channels, most: 64 })
    }

    #[test]
    fn an_impulse_comes_out_as_the_taps() {
        for count in [1, 2, 7, 8, 9, 30] {
            let taps: Vec<f32> = (0..count).map(|at| at as f32 - 3.5).collect();
            for size in [40, 8, 5, 1] {
                let mut node = node(&format!("{{\"taps\": {taps:?}}}"), 2);
                let impulse: Vec<f32> = (0..40).flat_map(|at| [0.0, if at == 3 { 1.0 } else { 0.0 }]).collect();
                let mut found = Vec::new();
                for part in impulse.chunks(2 * size) {
                    let mut part = part.to_vec();
                    node.filter(&mut part);
                    assert!(part.iter().step_by(2).all(|value| *value == 0.0));
                    found.extend(part.iter().skip(1).step_by(2).copied());
                }
                let expected: Vec<f32> = [&[0.0; 3][..], &taps, &[0.0; 40]].concat();
                assert_eq!(found, expected[..40], "{count} taps, {size} samples");
            }
        }
    }

    #[test]
    fn taps_of_limits_are_those_of_scipy() {
        // scipy.signal.firwin(5, cutoff, fs=100) of 10 Hz, of 30 Hz as a highpass, of both as a
        // band.
        for (keys, expected) in [
            (r#""lowpass": "10Hz""#, [0.028_406, 0.237_008, 0.469_171, 0.237_008, 0.028_406]),
            (r#""highpass": "30Hz""#, [0.010_087, -0.220_341, 0.539_144, -0.220_341, 0.010_087]),
            (r#""lowpass": "30Hz", "highpass": "10Hz""#, [-0.041_662, 0.132_772, 0.850_533, 0.132_772, -0.041_662]),
        ] {
            let node = node(&format!("{{{keys}, \"sample_rate\": \"100Hz\", \"count\": 5}}"), 1);
            assert!(node.taps.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{keys}: {:?}", node.taps);
        }
    }

    #[test]
    fn configs_that_cannot_be_are_refused() {
        for (text, expected) in [
            ("{}", "are missing"),
            (r#"{"highpass": "20Hz", "sample_rate": "200Hz", "count": 4}"#, "`count` must be odd, got 4"),
            (r#"{"lowpass": "20Hz", "sample_rate": "200Hz", "count": 0}"#, "`count` must be 1 to 65536, got 0"),
            (r#"{"taps": []}"#, "`taps` must have 1 to 65536 entries, got 0"),
            (r#"{"taps": [1], "lowpass": "1Hz", "sample_rate": "9Hz"}"#, "`taps` excludes"),
        ] {
            let config: FirConfig = serde_json::from_str(text).unwrap();
            let mut errors = PlanErrors::default();
            config.planned(&mut errors);
            let found = format!("{:?}", errors.into_result(()));
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
