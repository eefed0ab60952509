//! A second backend beside the one that serves: asked the same once while planning, or every so often while the graph runs.

use crate::element::Access;
use crate::onnx::OnnxLane;
use crate::verify::Tolerance;
use limen::Metrics;
use limen::backend::{BackendError, BatchMut, BatchRef, Session, Signature, TensorSpec};
use limen::unit::show_bytes;
use std::fmt;
use std::time::{Duration, Instant};

/// A session of any runtime.
pub(crate) type AnySession = Box<dyn Session<Lane = OnnxLane>>;

/// A model that is loaded into another backend.
pub(crate) struct Reference {
    pub(crate) name: &'static str,
    pub(crate) signature: Signature,
    pub(crate) is_stateful: bool,
    pub(crate) session: Box<dyn Fn(usize) -> Result<AnySession, BackendError> + Send + Sync>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Reference {
    /// Whether it can be asked what a model is asked in calls of so many items: outputs are compared number by number.
    ///
    /// # Errors
    /// The output that is another, or the calls it does not take.
    pub(crate) fn fits(&self, signature: &Signature, max_batch: usize) -> Result<(), String> {
        let show = |spec: Option<&TensorSpec>| match spec {
            Some(spec) => format!("`{}` {}", spec.name, limen::PortSpec::new(spec.dtype, spec.shape.clone())),
            None => "none".to_string(),
        };
        let (ours, theirs) = (&signature.outputs, &self.signature.outputs);
        if let Some(at) = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at)) {
            let (ours, theirs) = (show(ours.get(at)), show(theirs.get(at)));
            return Err(format!("output {at} is {theirs} by `{}`, and {ours} here", self.name));
        }
        match self.signature.max_batch {
            Some(most) if most < max_batch => {
                Err(format!("`{}` takes at most {most} in a call, and calls have up to {max_batch} here", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// How long an item takes alone, and in a batch of so many, ns; each measured for about so long.
pub(crate) fn measure(
    signature: &Signature,
    mut session: AnySession,
    max_batch: usize,
    time: Duration,
) -> Result<[u64; 2], BackendError> {
    let alone = measure_batch(signature, &mut session, 1, time)?;
    let together = if max_batch > 1 { measure_batch(signature, &mut session, max_batch, time)? } else { alone };
    Ok([alone, together])
}

/// What a node asks of a reference while it runs.
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
            outputs: Buffers::new(&self.reference.signature.outputs, max_batch),
            every: self.every,
            tolerance: self.tolerance,
            calls: 0,
            lanes: Vec::new(),
            seen: Seen::default(),
        })
    }
}

/// A reference at work on one thread.
pub(crate) struct Shadow {
    session: AnySession,
    outputs: Buffers,
    every: u64,
    tolerance: Tolerance,
    calls: u64,
    /// The states as they were before the call that is repeated.
    lanes: Vec<OnnxLane>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    compared: u64,
    over: u64,
    failed: u64,
    worst: f64,
}

impl Shadow {
    /// Whether the call that comes is one that is repeated; keeps the states it begins with.
    pub(crate) fn is_due(&mut self, lanes: &[OnnxLane]) -> bool {
        self.calls += 1;
        let due = (self.calls - 1).is_multiple_of(self.every);
        if due {
            self.lanes.clear();
            self.lanes.extend_from_slice(lanes);
        }
        due
    }

    /// Asks the reference the same and compares. Its failure is counted, and is no failure of the node.
    pub(crate) fn compare(&mut self, batch: usize, inputs: &[BatchRef<'_>], given: &[BatchMut<'_>]) {
        let Shadow { session, outputs, lanes, seen, tolerance, .. } = self;
        if crate::caught(|| outputs.run(session, batch, inputs, lanes)).is_ok_and(|result| result.is_ok()) {
            let mut over = false;
            for (given, expected) in given.iter().zip(outputs.parts(batch)) {
                let difference = Difference::between(expected, given.bytes, given.dtype, *tolerance);
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

    /// Goes on from what a session before this one has seen.
    pub(crate) fn resume(&mut self, figures: &Metrics) {
        let figure = |name: &str| figures.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, value)| value);
        let seen = &mut self.seen;
        seen.compared += figure("shadow_compared") as u64;
        seen.over += figure("shadow_over") as u64;
        seen.failed += figure("shadow_failed") as u64;
        seen.worst = seen.worst.max(figure("shadow_worst"));
    }
}

/// Room for the outputs of a model.
pub(crate) struct Buffers(Vec<Buffer>);

struct Buffer {
    spec: TensorSpec,
    shape: Vec<usize>,
    item_bytes: usize,
    words: Vec<u64>,
}

impl Buffer {
    fn batch(&self, batch: usize) -> BatchRef<'_> {
        let bytes = &bytemuck::cast_slice(&self.words)[..self.item_bytes * batch];
        BatchRef { dtype: self.spec.dtype, shape: &self.shape, bytes }
    }
}

impl Buffers {
    pub(crate) fn new(specs: &[TensorSpec], max_batch: usize) -> Self {
        let buffer = |spec: &TensorSpec| {
            let shape: Vec<usize> = spec.shape.iter().map(|dim| dim.max().unwrap_or(0)).collect();
            let item_bytes = shape.iter().product::<usize>() * spec.dtype.size();
            Buffer { spec: spec.clone(), shape, item_bytes, words: vec![0; (item_bytes * max_batch).div_ceil(8)] }
        };
        Buffers(specs.iter().map(buffer).collect())
    }

    pub(crate) fn run(
        &mut self,
        session: &mut AnySession,
        batch: usize,
        inputs: &[BatchRef<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let outputs = self.0.iter_mut().map(|buffer| BatchMut {
            dtype: buffer.spec.dtype,
            shape: &buffer.shape,
            bytes: &mut bytemuck::cast_slice_mut(&mut buffer.words)[..buffer.item_bytes * batch],
        });
        let mut outputs: Vec<BatchMut<'_>> = outputs.collect();
        session.infer_batch(batch, inputs, &mut outputs, lanes)
    }

    /// The bytes of a batch of each output.
    pub(crate) fn parts(&self, batch: usize) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(move |buffer| buffer.batch(batch).bytes)
    }
}

/// How far two outputs are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// The largest distance of two numbers.
    pub(crate) worst: f64,
    /// The largest number of the reference.
    pub(crate) largest: f64,
    /// Numbers that are further apart than is allowed.
    pub(crate) over: usize,
}

impl Difference {
    pub(crate) fn between(expected: &[u8], got: &[u8], dtype: limen::DType, tolerance: Tolerance) -> Self {
        let access = Access::to(dtype);
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

/// What two backends make of the same inputs.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// By output.
    pub(crate) differences: Vec<(String, Difference)>,
    /// The median time of a call of the one that serves, and of the reference.
    pub(crate) times: (Duration, Duration),
    pub(crate) calls: usize,
}

/// The most bytes of inputs and outputs for which a batch is measured.
const MAX_TRIED: usize = 256 << 20;

/// How long an item takes in calls of so many, ns: the median of as many calls as fit in the time, at least three.
fn measure_batch(
    signature: &Signature,
    session: &mut AnySession,
    batch: usize,
    time: Duration,
) -> Result<u64, BackendError> {
    let bytes = |specs: &[TensorSpec]| Buffers::new(specs, 1).0.iter().map(|b| b.item_bytes).sum::<usize>();
    let bytes = (bytes(&signature.inputs) + bytes(&signature.outputs)).saturating_mul(batch);
    if bytes > MAX_TRIED {
        let why = format!("{batch} items are too much to be tried out: {}", show_bytes(bytes as u64));
        return Err(BackendError::Call(why));
    }
    let mut inputs = Buffers::new(&signature.inputs, batch);
    inputs.0.iter_mut().for_each(|input| {
        let access = Access::to(input.spec.dtype);
        let values = (0..).map(|at| f64::from(at % 5) / 4.0);
        access.write(values, bytemuck::cast_slice_mut(&mut input.words));
    });
    let mut outputs = Buffers::new(&signature.outputs, batch);
    let mut lanes = vec![OnnxLane::default(); batch];
    let given: Vec<BatchRef<'_>> = inputs.0.iter().map(|input| input.batch(batch)).collect();
    let mut times = Vec::new();
    let now = Instant::now;
    // The first call finds cold caches.
    outputs.run(session, batch, &given, &mut lanes)?;
    let begun = now();
    while times.len() < 3 || (begun.elapsed() < time && times.len() < 1000) {
        let begun = now();
        outputs.run(session, batch, &given, &mut lanes)?;
        times.push(begun.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2] / batch as u64)
}

/// Calls that are compared, and of those the ones that warm up and are not timed.
const CALLS: usize = 32;
const WARM_UP: usize = 4;

/// Asks both the same, with inputs that are the same every time: numbers from −1 to 1, or small whole ones.
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
            let access = Access::to(input.spec.dtype);
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
        // Each goes on from its own state; what they make of it is compared.
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

#[cfg(test)]
mod tests {
    use super::*;
    use limen::{DType, Dim};

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };

    /// Gives what it takes, but for the first number of each call, which it makes another.
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

    /// A reference that is off.
    fn reference(off: Change) -> Reference {
        let signature = Signature { inputs: vec![spec("x", 2)], outputs: vec![spec("y", 2)], max_batch: Some(4) };
        let session = move |_| Ok(Box::new(Off(off)) as AnySession);
        Reference { name: "other", signature, is_stateful: false, session: Box::new(session) }
    }

    type Change = fn(f32) -> f32;

    /// A number, what the reference makes of it, and whether that is too far from it.
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
    fn a_shadow_sees_every_drift() {
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
                let given = BatchMut { dtype: DType::F32, shape: &[2], bytes };
                if shadow.is_due(&[]) {
                    shadow.compare(items, &[input(items)], &[given]);
                }
            };
            // The first and the third of these are repeated.
            (1..=4).for_each(|call_no| call(1 + call_no % 2));
            let mut before = Metrics::default();
            shadow.figures(&mut before);
            // Its node is built again: what was seen stays.
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
        let given = BatchMut { dtype: DType::F32, shape: &[2], bytes: bytemuck::cast_slice_mut(&mut y) };
        shadow.compare(3, &[input], &[given]);
        assert_eq!((shadow.seen.compared, shadow.seen.failed), (0, 1));
    }

    #[test]
    fn two_backends_are_held_against_each_other() {
        let signature = reference(|x| x).signature;
        for (off, over) in
            [(|x| x, 0), (|x| x + 0.01, CALLS + WARM_UP), (|_| f32::NAN, CALLS + WARM_UP)] as [(Change, usize); 3]
        {
            let sessions = [Box::new(Off(|x| x)) as AnySession, Box::new(Off(off))];
            let found = compare(&signature, sessions, TOLERANCE).unwrap();
            let (output, difference) = &found.differences[0];
            assert_eq!((output.as_str(), difference.over, found.calls), ("y", over, CALLS), "{difference:?}");
            assert_eq!(difference.worst > 0.0, over > 0, "{difference:?}");
        }
    }

    #[test]
    fn a_reference_of_another_shape_is_no_reference() {
        let other = reference(|x| x);
        assert_eq!(other.fits(&other.signature, 4), Ok(()));
        let with = |outputs: Vec<TensorSpec>| Signature { outputs, ..other.signature.clone() };
        for (signature, max_batch, why) in [
            (with(vec![spec("y", 3)]), 1, "output 0 is `y` f32[2] by `other`, and `y` f32[3] here"),
            (with(vec![spec("z", 2)]), 1, "output 0 is `y` f32[2] by `other`, and `z` f32[2] here"),
            (with(vec![spec("y", 2), spec("z", 2)]), 1, "output 1 is none by `other`, and `z` f32[2] here"),
            (with(vec![]), 1, "output 0 is `y` f32[2] by `other`, and none here"),
            (other.signature.clone(), 5, "`other` takes at most 4 in a call, and calls have up to 5 here"),
        ] {
            assert_eq!(other.fits(&signature, max_batch), Err(why.to_string()));
        }
    }
}
