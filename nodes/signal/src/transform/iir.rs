//! Filters with an infinite impulse response.

use crate::signal::Along;
use crate::signal::band::{self, Band, Section};
use crate::signal::samples::{Samples, takes_f32, with_notice};
use limen::message::PortSpec;
use limen::node::{Building, Connected, Emit, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform};
use limen::unit::Rate;
use limen::{Tensor, TensorMut};
use limen_nodes_core::tensor::{cost, shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// Applies an IIR filter to the samples of each channel, in place. The filter is a Butterworth
/// low-pass (`lowpass`), a high-pass (`highpass`), both in series, or a list of `sections`.
///
/// The filter matches SciPy's `butter(..., output='sos')` and `sosfilt`. A high-pass followed by a
/// low-pass differs from `butter(..., 'bandpass')`. For a narrow band, write the `sections` of a
/// band-pass design.
///
/// A message `f32[n]` or `f32[n, ...]` contains `n` samples of every channel, such as sound. With
/// `along: messages`, and for scalars, each message contains one sample of every channel, such as a
/// sensor reading. The node keeps the filter state between messages. The node resets the filter
/// state at a new segment, and at a gap with `on_gap: reset`. The output for an infinite or NaN
/// sample is NaN. The filter state treats an infinite or NaN sample as 0. `not_finite` counts
/// messages with infinite or NaN samples.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct IirConfig {
    /// Cutoff frequency of the low-pass filter (-3 dB), such as `20Hz`. `lowpass` must be below
    /// half of `sample_rate`.
    pub lowpass: Option<Rate>,
    /// Cutoff frequency of the high-pass filter (-3 dB). `highpass` must be below `lowpass`, if the
    /// config contains both keys.
    pub highpass: Option<Rate>,
    /// Order of the low-pass and of the high-pass filter, 1 to 12. Default: 2.
    pub order: Option<usize>,
    /// Sample rate of a channel, such as `16kHz`. Required with `lowpass` or `highpass`.
    pub sample_rate: Option<Rate>,
    /// Second-order sections in series, each `[b0, b1, b2, a0, a1, a2]`. The list must contain 1 to
    /// 64 stable sections. `sections` cannot be combined with `lowpass`, `highpass` or `order`.
    pub sections: Option<Vec<Section>>,
    /// Axis along which samples follow each other in time: `first_dim` of a message, or `messages`.
    /// Default: `messages` for scalars, otherwise `first_dim`.
    pub along: Option<Along>,
    /// Assumed input before the first sample and after a gap. Default: `zero`.
    #[serde(default)]
    pub start: Start,
}

/// Assumed input before the first sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Silence.
    #[default]
    Zero,
    /// A constant signal equal to the first sample, which avoids a transient.
    First,
}

const MOST_SECTIONS: usize = 64;
const MOST_ORDER: usize = 12;

impl IirConfig {
    /// Returns the sections, and reports what is wrong.
    fn planned(&self, errors: &mut PlanErrors) -> Vec<Section> {
        let has_limits = self.lowpass.is_some() || self.highpass.is_some();
        let Some(sections) = &self.sections else {
            if !has_limits {
                let help = "write `lowpass: 20Hz, sample_rate: 200Hz`, or `sections: [[b0, b1, b2, a0, a1, a2]]`";
                errors.node("`lowpass`, `highpass` and `sections` are missing").help(help);
                return Vec::new();
            }
            let order = self.order.unwrap_or(2);
            if !(1..=MOST_ORDER).contains(&order) {
                errors.at("order", format!("`order` must be 1 to {MOST_ORDER}, got {order}")).help("write `order: 2`");
                return Vec::new();
            }
            let band = Band::new(self.highpass, self.lowpass, self.sample_rate, errors);
            return band.map(|band| band::butterworth(band, order)).unwrap_or_default();
        };
        if has_limits || self.order.is_some() {
            let message = "`sections` excludes `lowpass`, `highpass` and `order`";
            errors.at("sections", message).help("remove `sections`, or remove `lowpass`, `highpass` and `order`");
        }
        if sections.is_empty() || sections.len() > MOST_SECTIONS {
            let message = format!("`sections` must have 1 to {MOST_SECTIONS} entries, got {}", sections.len());
            let help = format!("write 1 to {MOST_SECTIONS} sections, and put further sections into another `iir` node");
            errors.at("sections", message).help(help);
        }
        for (at, _) in sections.iter().enumerate().filter(|(_, section)| !band::is_stable(section)) {
            let message = match sections[at][3] {
                0.0 => "a0 must not be 0",
                _ => "the filter must be stable: every pole must be inside the unit circle",
            };
            errors.at(format!("sections[{at}]"), message).help("write `[b0, b1, b2, a0, a1, a2]` of a stable filter");
        }
        let scaled = |[b0, b1, b2, a0, a1, a2]: &Section| [b0 / a0, b1 / a0, b2 / a0, 1.0, a1 / a0, a2 / a0];
        let scaled: Vec<Section> = sections.iter().map(scaled).collect();
        // Of an unstable one, that was reported.
        let is_beyond = |(section, scaled): (&Section, &Section)| {
            band::is_stable(section) && scaled.iter().any(|number| !number.is_finite())
        };
        if let Some(at) = sections.iter().zip(&scaled).position(is_beyond) {
            let message = format!("the coefficients divided by a0 must be finite, got {} as a0", sections[at][3]);
            errors.at(format!("sections[{at}]"), message).help("write 1 as a0");
        }
        scaled
    }
}

/// Runs `kind: iir`; [`IirConfig`] says what it does.
#[derive(Debug)]
pub struct Iir {
    sections: Vec<Section>,
    samples: Samples,
    start: Start,
    /// Two numbers for each section of each channel.
    state: Vec<[f64; 2]>,
    is_fresh: bool,
    /// The part of the stream that the last message was of.
    segment: u16,
    not_finite: u64,
}

impl Iir {
    fn new(config: &IirConfig, samples: Samples) -> Iir {
        let sections = config.planned(&mut PlanErrors::default());
        let state = vec![[0.0; 2]; sections.len() * samples.channels];
        Iir { sections, samples, start: config.start, state, is_fresh: true, segment: 0, not_finite: 0 }
    }

    fn forget(&mut self) {
        self.state.fill([0.0; 2]);
        self.is_fresh = true;
    }

    /// Lets the sections of each channel remember that all samples were as the first ones.
    fn settle(&mut self, first: &[f32]) {
        let count = self.sections.len().max(1);
        for (first, states) in first.iter().zip(self.state.chunks_exact_mut(count)) {
            let mut x = if first.is_finite() { f64::from(*first) } else { 0.0 };
            for ([b0, b1, b2, _, a1, a2], state) in self.sections.iter().zip(states) {
                let y = x * (b0 + b1 + b2) / (1.0 + a1 + a2);
                let second = b2 * x - a2 * y;
                *state = [b1 * x - a1 * y + second, second];
                x = y;
            }
        }
    }

    /// Filters samples that lie as in a message.
    fn filter(&mut self, values: &mut [f32]) {
        let channels = self.samples.channels;
        if values.len() >= channels && std::mem::take(&mut self.is_fresh) && self.start == Start::First {
            self.settle(&values[..channels]);
        }
        let (count, mut is_finite) = (self.sections.len().max(1), true);
        for sample in values.chunks_exact_mut(channels) {
            for (value, states) in sample.iter_mut().zip(self.state.chunks_exact_mut(count)) {
                let is_number = value.is_finite();
                is_finite &= is_number;
                let mut x = if is_number { f64::from(*value) } else { 0.0 };
                // The transposed direct form II.
                for ([b0, b1, b2, _, a1, a2], state) in self.sections.iter().zip(states) {
                    let y = b0 * x + state[0];
                    *state = [b1 * x - a1 * y + state[1], b2 * x - a2 * y];
                    x = y;
                }
                *value = if is_number { x as f32 } else { f32::NAN };
            }
        }
        self.not_finite += u64::from(!is_finite);
        // What dies away ends before numbers that processors are slow with.
        let numbers = self.state.iter_mut().flatten();
        numbers.filter(|number| number.abs() < 1e-100).for_each(|number| *number = 0.0);
    }
}

impl Node for Iir {
    type Config = IirConfig;

    fn ports(config: &IirConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = takes_f32(given, &mut errors);
        let samples = Samples::of(given.single(), config.along, &mut errors);
        let sections = config.planned(&mut errors);
        let elements = spec.as_ref().and_then(PortSpec::max_elements).unwrap_or(0);
        let ports = shape::takes(spec.clone()).output_forwarding("out", spec, "in");
        let ports = with_notice(ports, given.single(), config.along);
        let memory = samples.channels.saturating_mul(sections.len()).saturating_mul(16);
        errors.into_result(ports.cost(cost::of(elements.saturating_mul(4 * sections.len()))).memory(memory))
    }

    fn build(config: IirConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Iir::new(&config, Samples::of_input(cx.inputs(), config.along)))
    }

    fn reset(&mut self, _: Reset) {
        self.forget();
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("not_finite", self.not_finite as f64);
    }
}

impl Transform for Iir {
    type In = TensorMut;
    type Out = Tensor;

    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if std::mem::replace(&mut self.segment, input.header().segment) != input.header().segment {
            self.forget();
        }
        self.filter(input.as_mut_slice()?);
        out.send(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str, channels: usize) -> Iir {
        let config: IirConfig = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut errors = PlanErrors::default();
        config.planned(&mut errors);
        assert_eq!(errors.messages().collect::<Vec<_>>(), [""; 0], "{text}");
        Iir::new(&config, Samples { along: Along::FirstDim, channels, most: 64 })
    }

    #[test]
    fn a_step_comes_out_as_scipy_computes_it() {
        // scipy.signal.sosfilt(butter(2, 20, fs=200, output='sos'), ones) and butter(3, 20,
        // 'highpass', ...).
        let low = [0.067_455, 0.279_466, 0.561_4, 0.796_126, 0.948_031, 1.024_76];
        let high = [0.527_624, -0.126_608, -0.319_334, -0.265_566, -0.124_875, 0.005_558];
        for (keys, expected) in [(r#""lowpass": "20Hz""#, low), (r#""highpass": "20Hz", "order": 3"#, high)] {
            // In one message, and divided between several; another channel changes nothing.
            for size in [6, 2, 1] {
                let mut node = node(&format!("{{{keys}, \"sample_rate\": \"200Hz\"}}"), 2);
                let mut found = Vec::new();
                for _ in 0..6 / size {
                    let mut values: Vec<f32> = (0..size).flat_map(|_| [1.0, 0.0]).collect();
                    node.filter(&mut values);
                    assert!(values.iter().skip(1).step_by(2).all(|value| *value == 0.0));
                    found.extend(values.iter().step_by(2).copied());
                }
                assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{keys}: {found:?}");
            }
        }
    }

    #[test]
    fn a_first_sample_is_no_jump_and_a_gap_forgets() {
        let mut low = node(r#"{"lowpass": "1Hz", "sample_rate": "100Hz", "order": 4, "start": "first"}"#, 1);
        for value in [7.0f32, -3.0] {
            for _ in 0..3 {
                let mut values = [value; 4];
                low.filter(&mut values);
                assert!(values.iter().all(|found| (found - value).abs() < 1e-4), "{values:?}");
            }
            low.reset(Reset::Gap);
        }
    }

    #[test]
    fn a_sample_that_is_no_number_is_forgotten() {
        let mut low = node(r#"{"sections": [[2, 0, 0, 2, -1, 0]]}"#, 1);
        let mut values = [1.0, f32::NAN, f32::INFINITY, 1.0];
        low.filter(&mut values);
        assert!(values[1].is_nan() && values[2].is_nan() && low.not_finite == 1);
        assert_eq!([values[0], values[3]], [1.0, 1.125]);
    }

    #[test]
    fn configs_that_cannot_be_are_refused() {
        for (text, expected) in [
            ("{}", "are missing"),
            (r#"{"lowpass": "20Hz"}"#, "`sample_rate` is missing"),
            (
                r#"{"lowpass": "100Hz", "sample_rate": "200Hz"}"#,
                "must be below 100 Hz (half the sample rate), got 100 Hz",
            ),
            (
                r#"{"lowpass": "10Hz", "highpass": "20Hz", "sample_rate": "200Hz"}"#,
                "`highpass` must be below `lowpass`",
            ),
            (r#"{"lowpass": "10Hz", "sample_rate": "200Hz", "order": 0}"#, "`order` must be 1 to 12, got 0"),
            (r#"{"sections": []}"#, "`sections` must have 1 to"),
            (r#"{"sections": [[1, 0, 0, 1, -2, 1]]}"#, "the filter must be stable"),
            (r#"{"sections": [[1, 0, 0, 1, 0, 0]], "order": 2}"#, "`sections` excludes"),
        ] {
            let config: IirConfig = serde_json::from_str(text).unwrap();
            let mut errors = PlanErrors::default();
            config.planned(&mut errors);
            let found = format!("{:?}", errors.into_result(()));
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
