//! Boxes: rows of `x0, y0, x1, y1, score, class` in a tensor `f32[≤n,6]`, and the choice of those
//! with the highest scores.

use crate::tensor::shape;
use limen::Tensor;
use limen::message::{DType, Dim, PortSpec};
use limen::node::NodeError;
use std::cmp::Ordering;

/// Numbers in a row.
pub const ROW: usize = 6;

/// One row: left, top, right, bottom in pixels, score, class.
pub type BoxRow = [f32; ROW];

/// Returns the spec of at most `rows` boxes.
pub fn spec(rows: usize) -> PortSpec {
    PortSpec::new(DType::F32, [Dim::AtMost(rows), Dim::Fixed(ROW)])
}

/// Returns the spec of a port that takes as many boxes as the connected output can give.
pub fn any_spec(given: Option<&PortSpec>) -> PortSpec {
    shape::any_rows(given, ROW)
}

/// Returns the rows of a tensor.
pub fn rows(tensor: &Tensor) -> Result<&[BoxRow], NodeError> {
    Ok(tensor.as_slice::<f32>()?.as_chunks().0)
}

/// Orders by score, the highest first; equal scores by row, the lower first; NaN last.
#[inline]
pub fn by_score(a: (f32, usize), b: (f32, usize)) -> Ordering {
    let scores = match (a.0.is_nan(), b.0.is_nan()) {
        (false, false) => b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal),
        (a, b) => a.cmp(&b),
    };
    scores.then(a.1.cmp(&b.1))
}

/// The candidates with the highest scores above a threshold: score and index, reusing a buffer of
/// twice as many as are kept.
#[derive(Debug)]
pub struct Best {
    threshold: f32,
    most: usize,
    kept: Vec<(f32, usize)>,
}

impl Best {
    /// Keeps at most `most` of `candidates` candidates with a score above the threshold.
    pub fn new(threshold: f32, most: usize, candidates: usize) -> Self {
        Best { threshold, most, kept: Vec::with_capacity(Best::room(most, candidates)) }
    }

    /// Returns the bytes of the buffer for at most `most` of `candidates` candidates.
    pub fn bytes(most: usize, candidates: usize) -> usize {
        Best::room(most, candidates).saturating_mul(size_of::<(f32, usize)>())
    }

    fn room(most: usize, candidates: usize) -> usize {
        most.saturating_mul(2).min(candidates)
    }

    /// Forgets all candidates.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// Adds a candidate if its score is above the threshold; NaN is not.
    #[inline]
    pub fn offer(&mut self, score: f32, at: usize) {
        if score > self.threshold {
            self.kept.push((score, at));
            if self.kept.len() >= self.most.saturating_mul(2) {
                self.shorten();
            }
        }
    }

    /// Returns the candidates, the highest score first; of equal scores the lower index.
    pub fn sorted(&mut self) -> &[(f32, usize)] {
        self.shorten();
        self.kept.sort_unstable_by(|a, b| by_score(*a, *b));
        &self.kept
    }

    fn shorten(&mut self) {
        if self.kept.len() > self.most {
            self.kept.select_nth_unstable_by(self.most, |a, b| by_score(*a, *b));
            self.kept.truncate(self.most);
        }
    }
}

/// Returns the intersection over union; 0 if the boxes do not overlap or if a corner is NaN.
#[inline]
pub fn iou(a: &BoxRow, b: &BoxRow) -> f32 {
    if a[..4].iter().chain(&b[..4]).any(|corner| corner.is_nan()) {
        return 0.0;
    }
    let side = |low: f32, high: f32| (high - low).max(0.0);
    let shared = side(a[0].max(b[0]), a[2].min(b[2])) * side(a[1].max(b[1]), a[3].min(b[3]));
    let area = |r: &BoxRow| side(r[0], r[2]) * side(r[1], r[3]);
    let union = area(a) + area(b) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_intersection_over_union() {
        let row = |x0: f32, y0: f32, x1: f32, y1: f32| [x0, y0, x1, y1, 1.0, 0.0];
        let unit = row(0.0, 0.0, 10.0, 10.0);
        for (other, expected) in [
            (unit, 1.0),
            (row(0.0, 0.0, 10.0, 5.0), 0.5),
            (row(5.0, 0.0, 15.0, 10.0), 1.0 / 3.0),
            (row(10.0, 0.0, 20.0, 10.0), 0.0),
            (row(20.0, 20.0, 30.0, 30.0), 0.0),
            // A box whose corners are swapped has no area.
            (row(10.0, 10.0, 0.0, 0.0), 0.0),
        ] {
            assert!((iou(&unit, &other) - expected).abs() < 1e-6, "{other:?}");
            assert_eq!(iou(&unit, &other), iou(&other, &unit));
        }
        let empty = row(3.0, 3.0, 3.0, 3.0);
        assert_eq!(iou(&empty, &empty), 0.0);
    }

    #[test]
    fn the_highest_scores_above_the_threshold_are_kept_highest_first() {
        let scores = [0.5, 0.6, f32::NAN, 0.9, 0.6, 0.51];
        for (most, expected) in [(10, &[3, 1, 4, 5][..]), (4, &[3, 1, 4, 5]), (2, &[3, 1]), (1, &[3]), (0, &[])] {
            let mut best = Best::new(0.5, most, scores.len());
            for _ in 0..2 {
                best.clear();
                scores.iter().zip(0..).for_each(|(score, at)| best.offer(*score, at));
                assert!(best.kept.len() <= 2 * most);
                let places: Vec<usize> = best.sorted().iter().map(|(_, at)| *at).collect();
                assert_eq!(places, expected, "at most {most}");
            }
        }
    }

    #[test]
    fn higher_scores_come_first_and_nan_comes_last() {
        let mut rows = [(0.5, 0), (f32::NAN, 1), (0.9, 2), (0.5, 3), (f32::NEG_INFINITY, 4)];
        rows.sort_by(|a, b| by_score(*a, *b));
        assert_eq!(rows.map(|(_, at)| at), [2, 0, 3, 4, 1]);
    }
}
