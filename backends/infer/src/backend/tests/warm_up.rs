//! The calls that a session makes before the run, on a runtime whose first calls choose algorithms.

use super::*;
use crate::backend::RtenRuntime;
use crate::onnx::{Call, Deviation, Runner, Take};
use limen::backend::{Capabilities, SessionMetadata};
use std::cell::{Cell, RefCell};

thread_local! {
    /// The batch sizes of the calls on this thread.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The size whose calls fail, and with what.
    static FAILURE: Cell<Option<(usize, Failure)>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
enum Failure {
    Call,
    Memory,
    Lost,
    Panic,
}

/// rten, which notes its calls and makes some before the run; with `ONE_SIZE`, as if calls of
/// another size were slow. All tests of runtimes use it, too.
pub(super) struct Warmed<const ONE_SIZE: bool = false>(RtenRuntime);

impl<const ONE_SIZE: bool> Runtime for Warmed<ONE_SIZE> {
    const NAME: &'static str = RtenRuntime::NAME;
    const COMPILES: bool = RtenRuntime::COMPILES;
    const WARMS_UP: bool = true;
    const PREFERS_ONE_SIZE: bool = ONE_SIZE;
    type Shared = <RtenRuntime as Runtime>::Shared;
    type Runner = WarmedRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        RtenRuntime::probe(options)
    }

    fn rewrites(operator: &str) -> bool {
        RtenRuntime::rewrites(operator)
    }

    fn deviations() -> &'static [Deviation] {
        RtenRuntime::deviations()
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        RtenRuntime::load(artifact, options).map(Warmed)
    }

    fn share(&self, call: &Call) -> Result<Self::Shared, BackendError> {
        self.0.share(call)
    }

    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<WarmedRunner, BackendError> {
        self.0.runner(shared, call).map(WarmedRunner)
    }
}

pub(super) struct WarmedRunner(<RtenRuntime as Runtime>::Runner);

impl Runner for WarmedRunner {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        CALLS.with_borrow_mut(|calls| calls.push(batch));
        match FAILURE.get().filter(|(size, _)| *size == batch) {
            None => self.0.run(batch, inputs, take),
            Some((_, Failure::Call)) => Err(BackendError::Call("this was asked for".into())),
            Some((_, Failure::Memory)) => Err(BackendError::OutOfMemory("this was asked for".into())),
            Some((_, Failure::Lost)) => Err(BackendError::DeviceLost("this was asked for".into())),
            Some((_, Failure::Panic)) => panic!("this was asked for"),
        }
    }

    fn metadata(&self) -> SessionMetadata {
        self.0.metadata()
    }
}

fn prepared(change: impl FnOnce(&mut OnnxModel)) -> OnnxPrepared<Warmed> {
    prepared_for::<false>(change)
}

fn prepared_for<const ONE_SIZE: bool>(change: impl FnOnce(&mut OnnxModel)) -> OnnxPrepared<Warmed<ONE_SIZE>> {
    let mut model = OnnxModel { path: graphs("digits/digits.onnx"), ..OnnxModel::default() };
    change(&mut model);
    let prepared = Onnx::<Warmed<ONE_SIZE>>::prepare(model).unwrap();
    CALLS.take();
    prepared
}

#[test]
fn a_session_makes_a_call_of_each_size_before_the_run() {
    // Without `buckets` a message alone is a call of its size; with them it is filled up to one.
    for (max, buckets, expected, alone) in [
        (1, vec![], vec![1], 1),
        (6, vec![], vec![6, 1, 5, 4, 3, 2], 1),
        (6, vec![2, 4], vec![6, 2, 4], 2),
        (6, vec![6], vec![6], 6),
        (40, vec![], vec![40, 1, 32, 16, 8, 4, 2], 1),
    ] {
        let session = prepared(|model| model.buckets = buckets.clone()).session(max).unwrap();
        check_calls(session, &expected, alone);
    }
}

#[test]
fn a_runtime_that_prefers_one_size_is_called_with_full_batches_unless_buckets_say_otherwise() {
    for (max, buckets, expected, alone) in
        [(1, vec![], vec![1], 1), (6, vec![], vec![6], 6), (6, vec![2], vec![6, 2], 2)]
    {
        let session = prepared_for::<true>(|model| model.buckets = buckets.clone()).session(max).unwrap();
        check_calls(session, &expected, alone);
    }
}

/// Checks the calls that a session has made, and the size of that for a message alone.
fn check_calls<const ONE_SIZE: bool>(mut session: OnnxSession<Warmed<ONE_SIZE>>, expected: &[usize], alone: usize) {
    assert_eq!(CALLS.take(), expected);
    // These are not the first call, whose time is reported.
    assert_eq!(session.first_call(), None);
    let (x, mut y, mut shape) = (vec![0.5f32; 64], vec![0.0f32; 10], vec![10]);
    let input = BatchRef { dtype: DType::F32, shape: &[1, 8, 8], bytes: bytemuck::cast_slice(&x) };
    let output = BatchMut { dtype: DType::F32, shape: &mut shape, bytes: bytemuck::cast_slice_mut(&mut y) };
    session.infer_one(&[input], &mut [output], &mut OnnxLane::default()).unwrap();
    assert_eq!(CALLS.take(), [alone]);
    assert!(session.first_call().is_some() && y.iter().any(|y| *y != 0.0));
}

#[test]
fn a_model_that_is_not_to_be_run_is_not() {
    for (what, prepared) in [("lazy", prepared(|model| model.lazy = true)), ("untried", untried())] {
        CALLS.take();
        drop(prepared.session(1).unwrap());
        assert!(CALLS.take().is_empty(), "{what}");
    }
    // Those that measure make their own calls.
    drop(prepared(|_| ()).cold_session(6).unwrap());
    assert!(CALLS.take().is_empty());
}

fn untried() -> OnnxPrepared<Warmed> {
    let twice = model(&[("x", D::FLOAT, &["n", "4"])], &[("y", D::FLOAT, &["n", "4"])], &[], &["y = Add x x"]);
    let model = OnnxModel { path: "m.onnx".into(), bytes: Some(twice), untried: true, ..OnnxModel::default() };
    Onnx::<Warmed>::prepare(model).unwrap()
}

#[test]
fn a_call_that_fails_is_the_last_and_only_a_lost_device_is_an_error() {
    let prepared = prepared(|_| ());
    for (failure, is_error) in
        [(Failure::Call, false), (Failure::Memory, false), (Failure::Panic, false), (Failure::Lost, true)]
    {
        FAILURE.set(Some((5, failure)));
        assert_eq!(prepared.session(6).is_err(), is_error);
        assert_eq!(CALLS.take(), [6, 1, 5]);
    }
}
