//! Filters that pass a band of frequencies.

use limen::node::PlanErrors;
use limen::unit::Rate;
use std::f64::consts::PI;

/// The lowest limit as a fraction of half the sample rate: below it, coefficients differ by so
/// little that a filter is another one.
const LOWEST: f64 = 1e-5;

/// A band in fractions of half the sample rate: from 0, or to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Band {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Band {
    /// Returns the band between two limits, and reports those that cannot be.
    pub(crate) fn new(
        above: Option<Rate>,
        below: Option<Rate>,
        sample_rate: Option<Rate>,
        errors: &mut PlanErrors,
    ) -> Option<Band> {
        let Some(sample_rate) = sample_rate else {
            let message = "`sample_rate` is missing for `lowpass` and `highpass`";
            errors.at("sample_rate", message).help("write the rate of the samples, such as `sample_rate: 16kHz`");
            return None;
        };
        let half = sample_rate.0 / 2.0;
        let mut limit = |key: &str, rate: Option<Rate>| {
            let hz = rate?.0;
            if hz < half * LOWEST {
                let message =
                    format!("`{key}` must be at least {} Hz for an accurate filter, got {hz} Hz", half * LOWEST);
                let help = "put a `decimate` node upstream of this node, and write the lower rate as `sample_rate`";
                errors.at(key, message).help(help);
                return None;
            }
            if hz >= half {
                let message = format!("`{key}` must be below {half} Hz (half the sample rate), got {hz} Hz");
                errors.at(key, message).help("write a lower frequency, or correct `sample_rate`");
                return None;
            }
            Some(hz / half)
        };
        let (from, to) = (limit("highpass", above), limit("lowpass", below));
        if above.is_some() != from.is_some() || below.is_some() != to.is_some() {
            return None;
        }
        let band = Band { from: from.unwrap_or(0.0), to: to.unwrap_or(1.0) };
        if band.from >= band.to {
            let [above, below] = [above, below].map(|rate| rate.map_or(0.0, |rate| rate.0));
            let message = format!("`highpass` must be below `lowpass` ({below} Hz), got {above} Hz");
            errors.at("highpass", message).help("exchange the values of `highpass` and `lowpass`");
            return None;
        }
        Some(band)
    }
}

/// A section of second order: b0, b1, b2 over a0, a1, a2.
pub(crate) type Section = [f64; 6];

/// Whether what a section remembers dies away: both poles lie within the unit circle.
pub(crate) fn is_stable(section: &Section) -> bool {
    let [_, _, _, a0, a1, a2] = *section;
    let (a1, a2) = (a1 / a0, a2 / a0);
    section.iter().all(|number| number.is_finite()) && a0 != 0.0 && a2.abs() < 1.0 && a1.abs() < 1.0 + a2
}

/// Butterworth filters of an order (Butterworth, 1930), by the bilinear transform: one that passes
/// what is above the band's lower limit, then one that passes what is below its upper limit.
pub(crate) fn butterworth(band: Band, order: usize) -> Vec<Section> {
    let mut sections = Vec::new();
    for (limit, is_high) in [(band.from, true), (band.to, false)] {
        if limit == 0.0 || limit == 1.0 {
            continue;
        }
        // The frequency before the transform, which bends them.
        let w = (PI * limit / 2.0).tan();
        for pair in 0..order / 2 {
            // Twice the damping of a pair of poles.
            let d = 2.0 * (PI * (2 * pair + 1) as f64 / (2 * order) as f64).sin();
            let a0 = 1.0 + d * w + w * w;
            let [a1, a2] = [2.0 * (w * w - 1.0) / a0, (1.0 - d * w + w * w) / a0];
            let b = if is_high { 1.0 / a0 } else { w * w / a0 };
            let middle = if is_high { -2.0 * b } else { 2.0 * b };
            sections.push([b, middle, b, 1.0, a1, a2]);
        }
        if order % 2 == 1 {
            let a0 = 1.0 + w;
            let b = if is_high { 1.0 / a0 } else { w / a0 };
            sections.push([b, if is_high { -b } else { b }, 0.0, 1.0, (w - 1.0) / a0, 0.0]);
        }
    }
    sections
}

/// So many taps of a filter with a straight phase: the ideal band's, under a Hamming window, scaled
/// to pass the middle of the band unchanged (for a band from 0 or to 1: that end).
pub(crate) fn windowed(band: Band, count: usize) -> Vec<f64> {
    let middle = (count as f64 - 1.0) / 2.0;
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
    let tap = |at: usize| {
        let m = at as f64 - middle;
        let ideal = band.to * sinc(band.to * m) - band.from * sinc(band.from * m);
        let window = if count == 1 { 1.0 } else { 0.54 - 0.46 * (2.0 * PI * at as f64 / (count as f64 - 1.0)).cos() };
        ideal * window
    };
    let taps: Vec<f64> = (0..count).map(tap).collect();
    let unchanged = match band {
        Band { from: 0.0, .. } => 0.0,
        Band { to: 1.0, .. } => 1.0,
        Band { from, to } => (from + to) / 2.0,
    };
    let gain: f64 = taps.iter().zip(0..).map(|(tap, at)| tap * (PI * (f64::from(at) - middle) * unchanged).cos()).sum();
    taps.iter().map(|tap| tap / gain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of a frequency, a fraction of half the sample rate, passes sections.
    fn response(sections: &[Section], frequency: f64) -> f64 {
        let (cos, sin) = ((PI * frequency).cos(), (PI * frequency).sin());
        let (cos2, sin2) = ((2.0 * PI * frequency).cos(), (2.0 * PI * frequency).sin());
        let size = |[a, b, c]: [f64; 3]| (a + b * cos + c * cos2).hypot(b * sin + c * sin2);
        sections.iter().map(|[b0, b1, b2, a0, a1, a2]| size([*b0, *b1, *b2]) / size([*a0, *a1, *a2])).product()
    }

    #[test]
    fn a_butterworth_filter_halves_the_power_at_its_limit() {
        let half = 0.5f64.sqrt();
        for order in 1..=12 {
            for limit in [LOWEST, 0.01, 0.3, 0.9] {
                let low = butterworth(Band { from: 0.0, to: limit }, order);
                let high = butterworth(Band { from: limit, to: 1.0 }, order);
                assert!(low.iter().chain(&high).all(is_stable));
                assert_eq!(low.len(), order.div_ceil(2));
                for (sections, passes, stops) in [(&low, 0.0, 1.0), (&high, 1.0, 0.0)] {
                    assert!((response(sections, limit) - half).abs() < 1e-5, "{order} {limit}");
                    assert!((response(sections, passes) - 1.0).abs() < 1e-5, "{order} {limit}");
                    assert!(response(sections, stops) < 1e-9, "{order} {limit}");
                }
            }
        }
    }

    #[test]
    fn poles_on_and_outside_of_the_circle_are_not_stable() {
        for (a, expected) in [
            ([1.0, 0.0, 0.0], true),
            ([1.0, -1.9, 0.95], true),
            ([2.0, -3.8, 1.9], true),
            ([1.0, -2.0, 1.0], false),
            ([1.0, -1.0, 0.0], false),
            ([1.0, 0.0, 1.1], false),
            ([0.0, 0.0, 0.0], false),
            ([1.0, f64::NAN, 0.0], false),
        ] {
            assert_eq!(is_stable(&[1.0, 0.0, 0.0, a[0], a[1], a[2]]), expected, "{a:?}");
        }
    }
}
