//! Tests on the device of this machine, or on the driver stub; without one they are skipped.

use super::program::CudaProgram;
use super::resident::{CudaApi, shared_device};
use crate::backend::program::MadeProgram;
use crate::backend::program::tests::{check_each, check_run};
use crate::lowering::test_cases::{
    TestCase, bytes, compare, conv, convolutions, matmul, operators, products, small_graphs, wide_integers,
};
use crate::lowering::{Half, Program, Routine, lower};
use crate::test_models::graphs;
use limen_cuda::Library;
use limen_infer::BackendOptions;
use std::sync::Arc;

/// The device, if there is one.
fn device() -> Option<Arc<CudaApi>> {
    match shared_device(&BackendOptions::default()).api() {
        Ok((_, api)) => Some(api),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn bind(api: &CudaApi, program: &Program, captures: bool) -> CudaProgram {
    CudaProgram::new(&api.context, Arc::new(program.clone()), None, captures).unwrap()
}

/// Compares calls of a model with tract: those of a graph, and those of single launches.
fn check(api: &CudaApi, case: &TestCase) {
    let name = &case.name;
    let program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
    for captures in [true, false] {
        let mut bound = bind(api, &program, captures);
        let compare = |found: &[Vec<f32>], expected: &[Vec<f32>]| compare(name, found, expected);
        check_run(&program, case, |inputs, read| bound.run(inputs, read), compare);
    }
}

fn check_all(cases: impl IntoIterator<Item = TestCase>) {
    let Some(api) = device() else { return };
    check_each(cases, |case| check(&api, case));
}

#[test]
fn operators_give_the_numbers_of_tract() {
    check_all(operators().into_iter().chain(bytes()));
}

#[test]
fn a_call_whose_integers_do_not_fit_fails_and_the_next_one_does_not() {
    let Some(api) = device() else { return };
    for (case, fits, fails) in wide_integers() {
        let program = lower(&case.model).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let mut bound = bind(&api, &program, true);
        let mut run = |bits: u32| bound.run(&[bytemuck::cast_slice(&[bits; 4])], &mut |_, _| Ok(()));
        for _ in 0..2 {
            run(fits).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let error = run(fails).unwrap_err().to_string();
            assert!(error.contains(" of node `") && error.contains("32 bits"), "{}: {error}", case.name);
        }
    }
}

#[test]
fn threads_that_share_a_device_get_their_own_numbers() {
    let Some(api) = device() else { return };
    std::thread::scope(|scope| {
        for threads in 0..4 {
            let api = &api;
            scope.spawn(move || (0..5).for_each(|_| check(api, &matmul(2, 3 + threads, 5))));
        }
    });
}

#[test]
fn the_models_of_graphs_give_the_numbers_of_tract() {
    check_all(small_graphs());
}

/// With 16 bits between operators, the numbers of a model keep two or three digits, and its weights
/// take half the memory.
#[test]
fn half_precision_keeps_two_digits() {
    let Some(api) = device() else { return };
    for (half, most) in [(Half::F16, 0.02), (Half::Bf16, 0.1)] {
        for path in ["digits/digits.onnx", "listen/listener.onnx"] {
            let case = TestCase::of(path, std::fs::read(graphs(path)).unwrap(), 1);
            let whole = lower(&case.model).unwrap();
            let mut halved = whole.clone();
            halved.halve(half);
            let [whole, mut bound] = [&whole, &halved].map(|program| bind(&api, program, true));
            assert!(bound.memory() < whole.memory() * 3 / 4, "{path}: {} of {} bytes", bound.memory(), whole.memory());
            check_run(
                &halved,
                &case,
                |inputs, read| bound.run(inputs, read),
                |found, expected| {
                    for (found, expected) in std::iter::zip(found, expected) {
                        let scale = expected.iter().fold(0.0f32, |scale, value| scale.max(value.abs()));
                        for (found, expected) in std::iter::zip(found, expected) {
                            let is_near = (found - expected).abs() <= most * scale;
                            assert!(is_near, "{path} in {half:?}: {found} is not {expected} of {scale}");
                        }
                    }
                },
            );
        }
    }
}

/// Where tiles end.
#[test]
fn lengths_around_those_of_tiles_are_right() {
    let lengths = [1, 3, 5, 15, 16, 17, 63, 64, 65, 128, 129];
    let channels = lengths.into_iter().flat_map(|n| [conv(1, n, 17, 5), conv(2, 5, n, 9), conv(1, 3, 9, n)]);
    let products = lengths.into_iter().flat_map(|n| [matmul(n, 33, 20), matmul(18, n, 65), matmul(1, n * 9, n)]);
    check_all(channels.chain(products));
}

/// A model's numbers, in each precision, and how many products and convolutions libraries compute.
fn check_routines(api: &CudaApi, case: &TestCase, [whole, halves]: [[usize; 2]; 2]) {
    check(api, case);
    let name = &case.name;
    let program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
    let has = [Library::CublasLt, Library::Cudnn].map(|library| usize::from(library.load().is_ok()));
    let found = |counts: [usize; 2]| [counts[0] * has[0], counts[1] * has[1]];
    assert_eq!(bind(api, &program, true).routines(), found(whole), "{name}");
    // In 16 bits, too, from weights that are.
    for half in [Half::F16, Half::Bf16] {
        let mut halved = program.clone();
        halved.halve(half);
        let mut bound = bind(api, &halved, true);
        assert_eq!(bound.routines(), found(halves), "{name} in {half:?}");
        let near = |found: &[Vec<f32>], expected: &[Vec<f32>]| {
            let scale = expected[0].iter().fold(0.0f32, |scale, value| scale.max(value.abs()));
            let most = if half == Half::F16 { 0.01 } else { 0.05 } * scale;
            let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= most;
            assert!(std::iter::zip(&found[0], &expected[0]).all(is_near), "{name} in {half:?}");
        };
        check_run(&halved, case, |inputs, read| bound.run(inputs, read), near);
    }
}

/// Where cuBLASLt is found, it computes the products, and kernels go on with their elements.
#[test]
fn products_are_those_of_the_library() {
    let Some(api) = device() else { return };
    for (case, [found, _, halves]) in products() {
        // One of them is a convolution.
        let windows = lower(&case.model).unwrap();
        let is_window = |kernel| matches!(Routine::of(&windows, kernel), Some(Routine::Convolution(_)));
        let windows = windows.kernels.iter().filter(|kernel| is_window(kernel)).count();
        check_routines(&api, &case, [[found, windows], [halves, 0]]);
    }
}

/// Where cuDNN is found, it computes the convolutions.
#[test]
fn convolutions_are_those_of_the_library() {
    let Some(api) = device() else { return };
    for (case, count) in convolutions() {
        // An input of a model has 32 bits, its weights 16; between operators, there are 16 bits on
        // both sides.
        check_routines(&api, &case, [[0, count], [0, count.saturating_sub(1)]]);
    }
}

/// Prints how long a call takes as a graph, and as single launches: the median of rounds in turn,
/// ns. `LIMEN_ROUNDS` says how many, and how many calls each has.
#[test]
#[ignore = "a measurement, for benches/gpu"]
fn a_graph_against_single_launches() {
    let Some(api) = device() else { return };
    for path in ["digits/digits.onnx", "listen/listener.onnx"] {
        let case = TestCase::of(path, std::fs::read(graphs(path)).unwrap(), 1);
        let program = lower(&case.model).unwrap();
        let mut both = [true, false].map(|captures| bind(&api, &program, captures));
        let rounds = std::env::var("LIMEN_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap());
        let (calls, warm_up) = (rounds, rounds / 5);
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..warm_up + rounds {
            for (bound, times) in std::iter::zip(&mut both, &mut times) {
                let time = bound.timed(calls);
                if round >= warm_up {
                    times.push(time.as_nanos() as u64 / calls as u64);
                }
            }
        }
        times.iter_mut().for_each(|times| times.sort_unstable());
        let [graph, eager] = times.map(|times| times[times.len() / 2]);
        println!("{{\"model\": \"{path}\", \"graph_ns\": {graph}, \"eager_ns\": {eager}}}");
    }
}
