//! Compares the outputs of two backends for the same inputs.

use super::buffers::ModelBuffers;
use super::lane::OnnxLane;
use super::reference::AnySession;
use crate::base::Access;
use crate::verify::Tolerance;
use limen::backend::{BackendError, BatchRef, Signature, TensorSpec};
use limen::message::Dim;
use std::time::{Duration, Instant};

/// The difference between two outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// The largest absolute difference; infinite if one of the numbers is NaN.
    pub(crate) worst: f64,
    /// The largest absolute value of the reference.
    pub(crate) largest: f64,
    /// How many numbers differ by more than the tolerance.
    pub(crate) over: usize,
    /// The first shapes that differed, that of the reference first; their numbers are not compared.
    pub(crate) shapes: Option<(Vec<usize>, Vec<usize>)>,
}

impl Difference {
    /// Compares two batches. If lengths vary, a batch has as many bytes as its shape takes.
    pub(crate) fn between(expected: BatchRef<'_>, got: BatchRef<'_>, tolerance: Tolerance) -> Self {
        let access = Access::for_dtype(expected.dtype);
        let mut found = Difference::default();
        if expected.bytes.len() != got.bytes.len() || expected.shape != got.shape {
            let shapes = Some((expected.shape.to_vec(), got.shape.to_vec()));
            return Difference { worst: f64::INFINITY, over: 1, shapes, ..found };
        }
        for (expected, got) in std::iter::zip(access.values(expected.bytes), access.values(got.bytes)) {
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
            shapes: self.shapes.or(other.shapes),
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

/// The result of comparing two backends.
#[derive(Debug)]
pub(crate) enum Compared {
    Calls(Comparison),
    /// No call of a model whose lengths vary succeeded on the serving backend; the error of the
    /// last one.
    Not(BackendError),
}

/// Calls that are timed, after `WARM_UP` calls that are not. All are compared.
pub(super) const CALLS: usize = 32;
pub(super) const WARM_UP: usize = 4;

/// Returns numbers from 0 to 1, the same ones for the same seed: xorshift64*, by Marsaglia and
/// Vigna.
pub(super) fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_add(seed << 20);
    move || {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// Runs both on the same inputs, from a fixed seed: numbers from −1 to 1, or integers from 0 to 3.
/// If the lengths of inputs vary, every other call has half of the greatest.
pub(crate) fn compare(
    signature: &Signature,
    mut sessions: [AnySession; 2],
    tolerance: Tolerance,
) -> Result<Compared, BackendError> {
    let mut next = random(0);
    let mut inputs = ModelBuffers::new(&signature.inputs, 1);
    let mut outputs = [ModelBuffers::new(&signature.outputs, 1), ModelBuffers::new(&signature.outputs, 1)];
    let mut lanes = [[OnnxLane::default()], [OnnxLane::default()]];
    let mut found = vec![Difference::default(); signature.outputs.len()];
    let mut times = [Vec::new(), Vec::new()];
    let varies = |spec: &TensorSpec| spec.shape.iter().any(|dim| matches!(dim, Dim::AtMost(_)));
    let is_varying = signature.inputs.iter().chain(&signature.outputs).any(varies);
    // Whether calls with shorter messages succeed, and why the last one did not.
    let (mut takes_shorter, mut failed) = (true, None);
    for call in 0..CALLS + WARM_UP {
        let is_shorter = takes_shorter && call % 2 == 1;
        for input in &mut inputs.0 {
            input.resize(|most| if is_shorter { most.div_ceil(2) } else { most });
            let access = Access::for_dtype(input.spec.dtype);
            let is_float = !access.holds_only_whole();
            let bytes = input.item_bytes_now();
            let count = bytes / input.spec.dtype.size();
            let values = (0..count).map(|_| if is_float { next() * 2.0 - 1.0 } else { (next() * 4.0).floor() });
            access.write(values, &mut bytemuck::cast_slice_mut(&mut input.words)[..bytes]);
        }
        let given: Vec<BatchRef<'_>> = inputs.batches(1).collect();
        let [serving, reference] = &mut sessions;
        let ([ours, theirs], [lane, other_lane]) = (&mut outputs, &mut lanes);
        let begun = Instant::now();
        match ours.run(serving, 1, &given, lane) {
            Ok(()) => {}
            // Random numbers may give more than `max:` allows, and a model may not take shorter
            // messages.
            Err(error) if is_varying => {
                takes_shorter &= !is_shorter;
                failed = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        let took = begun.elapsed();
        let begun = Instant::now();
        theirs.run(reference, 1, &given, other_lane)?;
        if call >= WARM_UP {
            times[0].push(took);
            times[1].push(begun.elapsed());
        }
        // Each continues from its own state, so that differences of states show in the outputs.
        for (found, (got, expected)) in found.iter_mut().zip(ours.batches(1).zip(theirs.batches(1))) {
            *found = std::mem::take(found).with(Difference::between(expected, got, tolerance));
        }
    }
    let calls = times[0].len();
    if let Some(error) = failed.filter(|_| calls == 0) {
        return Ok(Compared::Not(error));
    }
    let [serving, reference] = times.map(|mut times| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    });
    let names = signature.outputs.iter().map(|spec| spec.name.clone());
    let differences = names.zip(found).collect();
    Ok(Compared::Calls(Comparison { differences, times: (serving, reference), calls }))
}
