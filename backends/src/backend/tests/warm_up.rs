//! The calls that a session makes before the run, on a runtime whose first calls choose algorithms.

use super::*;
use crate::backend::RtenRuntime;
use crate::onnx::{Call, Runner, Take};
use limen::backend::{Capabilities, SessionMetadata};
use std::cell::RefCell;

thread_local! {
    /// The batch sizes of the calls on this thread.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// rten, which notes its calls. It fails calls of five items for lack of memory.
struct Noting(RtenRuntime);

impl Runtime for Noting {
    const NAME: &'static str = "noting";
    const COMPILES: bool = false;
    const WARMS_UP: bool = true;
    type Shared = <RtenRuntime as Runtime>::Shared;
    type Runner = NotingRunner;

    fn probe(options: &BackendOptions) -> Result<Capabilities, BackendError> {
        RtenRuntime::probe(options)
    }

    fn load(artifact: Artifact, options: &BackendOptions) -> Result<Self, BackendError> {
        RtenRuntime::load(artifact, options).map(Noting)
    }

    fn share(&self, call: &Call) -> Result<Self::Shared, BackendError> {
        self.0.share(call)
    }

    fn runner(&self, shared: &Self::Shared, call: &Call) -> Result<NotingRunner, BackendError> {
        self.0.runner(shared, call).map(NotingRunner)
    }
}

struct NotingRunner(<RtenRuntime as Runtime>::Runner);

impl Runner for NotingRunner {
    fn run(&mut self, batch: usize, inputs: &[BatchRef<'_>], take: &mut Take<'_>) -> Result<(), BackendError> {
        CALLS.with_borrow_mut(|calls| calls.push(batch));
        match batch {
            5 => Err(BackendError::OutOfMemory("five".into())),
            _ => self.0.run(batch, inputs, take),
        }
    }

    fn metadata(&self) -> SessionMetadata {
        self.0.metadata()
    }
}

#[test]
fn a_session_makes_calls_of_every_size_before_the_run() {
    let beyond_32: Vec<usize> = [40, 32, 16, 8, 4, 2, 1].into();
    for (max, buckets, lazy, expected) in [
        (1, vec![], false, vec![1]),
        (6, vec![], false, vec![6, 5, 4, 3, 2, 1]),
        (6, vec![2, 4], false, vec![6, 4, 2]),
        (40, vec![], false, beyond_32),
        (6, vec![], true, vec![]),
    ] {
        let path = graphs("digits/digits.onnx");
        let model = OnnxModel { path, buckets: buckets.clone(), lazy, ..OnnxModel::default() };
        let prepared = Onnx::<Noting>::prepare(model).unwrap();
        CALLS.take();
        let mut session = prepared.session(max).unwrap();
        assert_eq!(CALLS.take(), expected, "at most {max}, {buckets:?}");
        // The first call of a message is still the first: it is timed, and no call on zeros is its own.
        assert_eq!(session.first_call(), None);
        let (x, mut y, mut shape) = (vec![0.5f32; 64], vec![0.0f32; 10], vec![10]);
        let input = BatchRef { dtype: DType::F32, shape: &[1, 8, 8], bytes: bytemuck::cast_slice(&x) };
        let output = BatchMut { dtype: DType::F32, shape: &mut shape, bytes: bytemuck::cast_slice_mut(&mut y) };
        session.infer_one(&[input], &mut [output], &mut OnnxLane::default()).unwrap();
        assert!(session.first_call().is_some() && y.iter().any(|y| *y != 0.0));
    }
}
