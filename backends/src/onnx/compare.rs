//! Compares the outputs of two backends for the same inputs.

use super::buffers::Buffers;
use super::lane::OnnxLane;
use super::reference::AnySession;
use crate::base::Access;
use crate::verify::Tolerance;
use limen::backend::{BackendError, BatchRef, Signature};
use std::time::{Duration, Instant};

/// The difference between two outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// The largest absolute difference; infinite if one of the numbers is NaN.
    pub(crate) worst: f64,
    /// The largest absolute value of the reference.
    pub(crate) largest: f64,
    /// How many numbers differ by more than the tolerance.
    pub(crate) over: usize,
}

impl Difference {
    pub(crate) fn between(expected: &[u8], got: &[u8], dtype: limen::message::DType, tolerance: Tolerance) -> Self {
        let access = Access::for_dtype(dtype);
        let mut found = Difference::default();
        for (expected, got) in std::iter::zip(access.values(expected), access.values(got)) {
            let distance =
                if expected == got || (expected.is_nan() && got.is_nan()) { 0.0 } else { (expected - got).abs() };
            found.largest = found.largest.max(expected.abs());
            found.over += usize::from(tolerance.excess(expected, got) > 0.0);
            found.worst = if distance.is_nan() { f64::INFINITY } else { found.worst.max(distance) };
        }
        found
    }

    fn with(self, other: Difference) -> Self {
        Difference {
            worst: self.worst.max(other.worst),
            largest: self.largest.max(other.largest),
            over: self.over + other.over,
        }
    }
}

/// The outputs of two backends for the same inputs, compared.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// By output.
    pub(crate) differences: Vec<(String, Difference)>,
    /// The median time of a call on the serving backend and on the reference.
    pub(crate) times: (Duration, Duration),
    pub(crate) calls: usize,
}

/// Calls that are timed, after `WARM_UP` calls that are not. All are compared.
pub(super) const CALLS: usize = 32;
pub(super) const WARM_UP: usize = 4;

/// Runs both on the same inputs, from a fixed seed: numbers from −1 to 1, or integers from 0 to 3.
pub(crate) fn compare(
    signature: &Signature,
    mut sessions: [AnySession; 2],
    tolerance: Tolerance,
) -> Result<Comparison, BackendError> {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        // xorshift64*, by Marsaglia and Vigna.
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / (1u64 << 24) as f64
    };
    let mut inputs = Buffers::new(&signature.inputs, 1);
    let mut outputs = [Buffers::new(&signature.outputs, 1), Buffers::new(&signature.outputs, 1)];
    let mut lanes = [[OnnxLane::default()], [OnnxLane::default()]];
    let mut found = vec![Difference::default(); signature.outputs.len()];
    let mut times = [Vec::new(), Vec::new()];
    for call in 0..CALLS + WARM_UP {
        for input in &mut inputs.0 {
            let access = Access::for_dtype(input.spec.dtype);
            let is_float = !access.holds_only_whole();
            let count = input.item_bytes / input.spec.dtype.size();
            let values = (0..count).map(|_| if is_float { next() * 2.0 - 1.0 } else { (next() * 4.0).floor() });
            access.write(values, &mut bytemuck::cast_slice_mut(&mut input.words)[..input.item_bytes]);
        }
        let given: Vec<BatchRef<'_>> = inputs.0.iter().map(|input| input.batch(1)).collect();
        for ((session, outputs), (lanes, times)) in
            sessions.iter_mut().zip(&mut outputs).zip(lanes.iter_mut().zip(&mut times))
        {
            let begun = Instant::now();
            outputs.run(session, 1, &given, lanes)?;
            if call >= WARM_UP {
                times.push(begun.elapsed());
            }
        }
        // Each continues from its own state, so that differences of states show in the outputs.
        let [got, expected] = &outputs;
        for ((found, spec), (got, expected)) in
            found.iter_mut().zip(&signature.outputs).zip(got.parts(1).zip(expected.parts(1)))
        {
            *found = found.with(Difference::between(expected, got, spec.dtype, tolerance));
        }
    }
    let [serving, reference] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let names = signature.outputs.iter().map(|spec| spec.name.clone());
    Ok(Comparison { differences: names.zip(found).collect(), times: (serving, reference), calls: CALLS })
}
