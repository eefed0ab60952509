//! A second backend beside the one that serves, which repeats some of the calls while the graph
//! runs.

use super::buffers::ModelBuffers;
use super::compare::Difference;
use super::lane::OnnxLane;
use super::reference::{AnySession, Reference};
use crate::base::caught;
use crate::verify::Tolerance;
use limen::backend::{BackendError, BatchMut, BatchRef};
use limen::node::Metrics;

/// The config of a shadow.
#[derive(Debug)]
pub(crate) struct ShadowPlan {
    pub(crate) reference: Reference,
    pub(crate) every: u64,
    pub(crate) tolerance: Tolerance,
}

impl ShadowPlan {
    pub(crate) fn begin(&self, max_batch: usize) -> Result<Shadow, BackendError> {
        Ok(Shadow {
            session: (self.reference.session)(max_batch)?,
            outputs: ModelBuffers::new(&self.reference.signature.outputs, max_batch),
            every: self.every,
            tolerance: self.tolerance,
            calls: 0,
            lanes: Vec::new(),
            seen: ShadowCounts::default(),
        })
    }
}

/// A session of the reference, on one thread.
pub(crate) struct Shadow {
    session: AnySession,
    outputs: ModelBuffers,
    every: u64,
    tolerance: Tolerance,
    calls: u64,
    /// The states before the repeated call.
    lanes: Vec<OnnxLane>,
    seen: ShadowCounts,
}

#[derive(Default)]
struct ShadowCounts {
    compared: u64,
    over: u64,
    failed: u64,
    worst: f64,
}

impl Shadow {
    /// Whether the next call is to be repeated; if so, keeps the states before it.
    pub(crate) fn is_due(&mut self, lanes: &[OnnxLane]) -> bool {
        self.calls += 1;
        let due = (self.calls - 1).is_multiple_of(self.every);
        if due {
            self.lanes.clear();
            self.lanes.extend_from_slice(lanes);
        }
        due
    }

    /// Repeats the call on the reference and compares. A failure of the reference is counted and
    /// does not fail the call.
    pub(crate) fn compare(&mut self, batch: usize, inputs: &[BatchRef<'_>], given: &[BatchMut<'_>]) {
        let Shadow { session, outputs, lanes, seen, tolerance, .. } = self;
        if caught(|| outputs.run(session, batch, inputs, lanes)).is_ok_and(|result| result.is_ok()) {
            let mut over = false;
            for (given, buffer) in given.iter().zip(&outputs.0) {
                let difference = Difference::between(buffer.batch(batch), buffer.as_given(given), *tolerance);
                over |= difference.over > 0;
                seen.worst = seen.worst.max(difference.worst);
            }
            seen.compared += 1;
            seen.over += u64::from(over);
        } else {
            seen.failed += 1;
        }
    }

    pub(crate) fn figures(&self, metrics: &mut Metrics) {
        metrics.set("shadow_compared", self.seen.compared as f64);
        metrics.set("shadow_over", self.seen.over as f64);
        metrics.set("shadow_failed", self.seen.failed as f64);
        metrics.set("shadow_worst", self.seen.worst);
    }

    /// Continues the counts of an earlier session.
    pub(crate) fn resume(&mut self, figures: &Metrics) {
        let figure = |name: &str| figures.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, value)| value);
        let seen = &mut self.seen;
        seen.compared += figure("shadow_compared") as u64;
        seen.over += figure("shadow_over") as u64;
        seen.failed += figure("shadow_failed") as u64;
        seen.worst = seen.worst.max(figure("shadow_worst"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::{CALLS, Compared, WARM_UP, compare};
    use super::*;
    use limen::backend::{Session, Signature, TensorSpec};
    use limen::message::{DType, Dim};

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };

    /// Returns its input, with the first number of each call changed.
    struct Off(Change);

    impl Session for Off {
        type Lane = OnnxLane;
        fn infer_batch(
            &mut self,
            batch: usize,
            inputs: &[BatchRef<'_>],
            outputs: &mut [BatchMut<'_>],
            _: &mut [OnnxLane],
        ) -> Result<(), BackendError> {
            if batch > 2 {
                return Err(BackendError::Call("more than it takes".into()));
            }
            outputs[0].bytes.copy_from_slice(inputs[0].bytes);
            let first: &mut f32 = &mut bytemuck::cast_slice_mut(outputs[0].bytes)[0];
            *first = self.0(*first);
            Ok(())
        }
    }

    fn spec(name: &str, length: usize) -> TensorSpec {
        TensorSpec { name: name.into(), dtype: DType::F32, shape: vec![Dim::Fixed(length)] }
    }

    /// A reference whose first output number is changed.
    fn reference(off: Change) -> Reference {
        let signature = Signature { inputs: vec![spec("x", 2)], outputs: vec![spec("y", 2)], max_batch: Some(4) };
        let session = move |_| Ok(Box::new(Off(off)) as AnySession);
        Reference { name: "other", signature, is_stateful: false, session: Box::new(session) }
    }

    type Change = fn(f32) -> f32;

    /// A number, the change by the reference, and whether the result is beyond the tolerance.
    const DRIFTS: [(f32, Change, bool); 11] = [
        (1.0, |x| x, false),
        (1.0, |x| x + 1e-4, false),
        (1.0, |x| x + 2e-3, true),
        (1.0, |_| f32::NAN, true),
        (1.0, |_| f32::INFINITY, true),
        (1.0, |_| f32::NEG_INFINITY, true),
        (f32::INFINITY, |_| 1.0, true),
        (f32::INFINITY, |x| x, false),
        (f32::INFINITY, |x| -x, true),
        (f32::NAN, |x| x, false),
        (f32::NAN, |_| 0.0, true),
    ];

    #[test]
    fn a_shadow_counts_every_drift() {
        for (number, off, is_over) in DRIFTS {
            let plan = ShadowPlan { reference: reference(off), every: 2, tolerance: TOLERANCE };
            let mut shadow = plan.begin(3).unwrap();
            let (x, mut y) = ([number; 4], [number; 4]);
            let input = |items: usize| BatchRef {
                dtype: DType::F32,
                shape: &[2],
                bytes: bytemuck::cast_slice(&x[..2 * items]),
            };
            let mut call = |items: usize| {
                let bytes = bytemuck::cast_slice_mut(&mut y[..2 * items]);
                let given = BatchMut { dtype: DType::F32, shape: &mut [2], bytes };
                if shadow.is_due(&[]) {
                    shadow.compare(items, &[input(items)], &[given]);
                }
            };
            // The first and the third of these are repeated.
            (1..=4).for_each(|call_no| call(1 + call_no % 2));
            let mut before = Metrics::default();
            shadow.figures(&mut before);
            // The node is rebuilt: the counts go on.
            let mut again = plan.begin(3).unwrap();
            again.resume(&before);
            let mut metrics = Metrics::default();
            again.figures(&mut metrics);
            let figure = |name: &str| metrics.iter().find(|(n, _)| *n == name).map(|(_, value)| value);
            let over = if is_over { 2.0 } else { 0.0 };
            assert_eq!(
                (figure("shadow_compared"), figure("shadow_over"), figure("shadow_failed")),
                (Some(2.0), Some(over), Some(0.0)),
                "{number} {}",
                off(number)
            );
            assert_eq!(figure("shadow_worst") > Some(1e-3), is_over, "{number} {}", off(number));
        }
    }

    #[test]
    fn a_reference_that_fails_is_counted() {
        let plan = ShadowPlan { reference: reference(|x| x), every: 1, tolerance: TOLERANCE };
        let mut shadow = plan.begin(3).unwrap();
        let (x, mut y) = ([1f32; 6], [1f32; 6]);
        assert!(shadow.is_due(&[]));
        let input = BatchRef { dtype: DType::F32, shape: &[2], bytes: bytemuck::cast_slice(&x) };
        let given = BatchMut { dtype: DType::F32, shape: &mut [2], bytes: bytemuck::cast_slice_mut(&mut y) };
        shadow.compare(3, &[input], &[given]);
        assert_eq!((shadow.seen.compared, shadow.seen.failed), (0, 1));
    }

    /// Returns its input, with fewer numbers.
    struct Shorter(usize);

    impl Session for Shorter {
        type Lane = OnnxLane;
        fn infer_batch(
            &mut self,
            _: usize,
            inputs: &[BatchRef<'_>],
            outputs: &mut [BatchMut<'_>],
            _: &mut [OnnxLane],
        ) -> Result<(), BackendError> {
            let length = inputs[0].shape[0].saturating_sub(self.0);
            outputs[0].shape[0] = length;
            outputs[0].bytes[..4 * length].copy_from_slice(&inputs[0].bytes[..4 * length]);
            Ok(())
        }
    }

    fn varying(less: usize) -> Reference {
        let spec = |name: &str| TensorSpec { name: name.into(), dtype: DType::F32, shape: vec![Dim::AtMost(4)] };
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: Some(1) };
        let session = move |_| Ok(Box::new(Shorter(less)) as AnySession);
        Reference { name: "other", signature, is_stateful: false, session: Box::new(session) }
    }

    #[test]
    fn another_length_is_a_difference() {
        for (less, over) in [(0, 0), (1, 3)] {
            let mut shadow = ShadowPlan { reference: varying(less), every: 1, tolerance: TOLERANCE }.begin(1).unwrap();
            for x in [&[1.0f32, 2.0][..], &[3.0], &[1.0, 2.0, 3.0, 4.0]] {
                let (mut y, mut shape) = ([9f32; 4], [x.len()]);
                y[..x.len()].copy_from_slice(x);
                let bytes = bytemuck::cast_slice_mut(&mut y);
                assert!(shadow.is_due(&[]));
                let input = BatchRef { dtype: DType::F32, shape: &[x.len()], bytes: bytemuck::cast_slice(x) };
                shadow.compare(1, &[input], &[BatchMut { dtype: DType::F32, shape: &mut shape, bytes }]);
            }
            assert_eq!((shadow.seen.compared, shadow.seen.over, shadow.seen.failed), (3, over, 0), "{less}");
        }
        let signature = varying(0).signature;
        for (less, shapes) in [(0, None), (1, Some((vec![3], vec![4])))] {
            let sessions = [Box::new(Shorter(0)) as AnySession, Box::new(Shorter(less))];
            let Compared::Calls(found) = compare(&signature, sessions, TOLERANCE).unwrap() else { panic!("{less}") };
            assert_eq!((found.calls, &found.differences[0].1.shapes), (CALLS, &shapes));
        }
    }

    #[test]
    fn two_backends_are_compared() {
        let signature = reference(|x| x).signature;
        for (off, over) in
            [(|x| x, 0), (|x| x + 0.01, CALLS + WARM_UP), (|_| f32::NAN, CALLS + WARM_UP)] as [(Change, usize); 3]
        {
            let sessions = [Box::new(Off(|x| x)) as AnySession, Box::new(Off(off))];
            let Compared::Calls(found) = compare(&signature, sessions, TOLERANCE).unwrap() else {
                panic!("not compared")
            };
            let (output, difference) = &found.differences[0];
            assert_eq!((output.as_str(), difference.over, found.calls), ("y", over, CALLS), "{difference:?}");
            assert_eq!(difference.worst > 0.0, over > 0, "{difference:?}");
        }
    }

    #[test]
    fn a_reference_with_another_signature_is_refused() {
        let other = reference(|x| x);
        assert_eq!(other.fits(&other.signature, 4), Ok(()));
        let with = |outputs: Vec<TensorSpec>| Signature { outputs, ..other.signature.clone() };
        for (signature, max_batch, why) in [
            (with(vec![spec("y", 3)]), 1, "output 0 must be `y` f32[3], got `y` f32[2] on `other`"),
            (with(vec![spec("z", 2)]), 1, "output 0 must be `z` f32[2], got `y` f32[2] on `other`"),
            (with(vec![spec("y", 2), spec("z", 2)]), 1, "output 1 must be `z` f32[2], got absent on `other`"),
            (with(vec![]), 1, "output 0 must be absent, got `y` f32[2] on `other`"),
            (other.signature.clone(), 5, "the batch size must be at most 4 on `other`, got 5"),
        ] {
            assert_eq!(other.fits(&signature, max_batch), Err(why.to_string()));
        }
    }
}
