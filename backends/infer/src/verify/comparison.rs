//! How far the numbers of an output are from the recorded ones.

/// How far a number may be from the recorded one: `atol + rtol × |recorded|`, as in NumPy's
/// `allclose`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The absolute part.
    pub atol: f64,
    /// The relative part.
    pub rtol: f64,
}

impl Tolerance {
    fn allows(self, expected: f64) -> f64 {
        self.atol + self.rtol * expected.abs()
    }

    /// Returns 0 for a number within the tolerance, else its distance as a multiple of the allowed
    /// one.
    pub(crate) fn excess(self, expected: f64, got: f64) -> f64 {
        // Equality covers equal infinities, whose distance is NaN.
        if expected == got || (expected.is_nan() && got.is_nan()) {
            return 0.0;
        }
        let distance = (expected - got).abs();
        if distance <= self.allows(expected) && distance.is_finite() {
            return 0.0;
        }
        if distance.is_finite() { distance / self.allows(expected) } else { f64::INFINITY }
    }
}

/// The number of an output that is furthest from its recorded value.
#[derive(Default)]
pub(super) struct Worst {
    at: usize,
    expected: f64,
    got: f64,
    excess: f64,
    wrong: usize,
    seen: usize,
    /// The largest absolute difference.
    pub(super) distance: f64,
}

impl Worst {
    pub(super) fn see(&mut self, at: usize, expected: f64, got: f64, tolerance: Tolerance) {
        let excess = tolerance.excess(expected, got);
        self.seen += 1;
        self.wrong += usize::from(excess > 0.0);
        if expected != got {
            self.distance = self.distance.max((expected - got).abs());
        }
        if excess > self.excess {
            *self = Worst { at, expected, got, excess, ..*self };
        }
    }

    pub(super) fn difference(&self, shape: &[usize], tolerance: Tolerance) -> Option<String> {
        if self.wrong == 0 {
            return None;
        }
        let mut index = vec![0; shape.len()];
        let mut rest = self.at;
        for (i, dim) in index.iter_mut().zip(shape).rev() {
            (*i, rest) = (rest % dim.max(&1), rest / dim.max(&1));
        }
        let Worst { expected, got, wrong, seen, .. } = self;
        let (apart, allowed) = (show((expected - got).abs()), show(tolerance.allows(*expected)));
        let Tolerance { atol, rtol } = tolerance;
        Some(format!(
            "at {index:?} expected {}, found {}: the difference {apart} exceeds {allowed} (atol {atol}, rtol {rtol}); \
             {wrong} of {seen} numbers differ, this number most",
            show(*expected),
            show(*got)
        ))
    }
}

/// Formats a number with the digits of an f32; as f64 it would show rounding noise.
fn show(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value}") } else { format!("{}", value as f32) }
}
