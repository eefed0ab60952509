//! Programs against tract, which runs the models that they are lowered from.

use super::program::Source;
use super::test_cases::{TestCase, bytes, compare, conv, device_bits, matmul, operators, small_graphs, wide_integers};
use super::{Program, Scalar, interpret, lower};
use crate::test_models::{ints, model_of_opset};
use rten_onnx::onnx::DataType as D;

fn check(case: &TestCase) -> Program {
    let name = &case.name;
    let program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
    for call in 0..3 {
        let inputs = case.inputs(call);
        let bits: Vec<Vec<u32>> = inputs.iter().map(device_bits).collect();
        let bits: Vec<&[u32]> = bits.iter().map(Vec::as_slice).collect();
        let found = interpret(&program, &bits).unwrap_or_else(|error| panic!("{name}: {error}"));
        compare(name, &numbers(&program, found), &case.expected(&inputs));
    }
    let is_written = |array: usize| program.kernels.iter().any(|kernel| kernel.write.array == array);
    let is_left = |at: usize| matches!(program.arrays[at].source, Source::Computed) && !is_written(at);
    let left = (0..program.arrays.len()).filter(|at| is_left(*at) && program.arrays[*at].len > 0).count();
    assert_eq!(left, 0, "{name}: arrays that no kernel writes have elements");
    program
}

fn numbers(program: &Program, outputs: Vec<Vec<u32>>) -> Vec<Vec<f32>> {
    let number = |scalar: Scalar, bits: u32| match scalar {
        Scalar::F32 => f32::from_bits(bits),
        Scalar::I32 => bits as i32 as f32,
    };
    let outputs = std::iter::zip(outputs, &program.outputs);
    let numbers = |(bits, (array, _)): (Vec<u32>, &(usize, Vec<usize>))| {
        bits.into_iter().map(|bits| number(program.arrays[*array].scalar, bits)).collect()
    };
    outputs.map(numbers).collect()
}

#[test]
fn operators_are_lowered() {
    let cases = operators().into_iter().chain(bytes());
    let wrong: Vec<String> = cases.filter_map(|case| failure(|| _ = check(&case))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The message of a panic: a table's other cases are still tried.
fn failure(run: impl FnOnce()) -> Option<String> {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| "a panic".into()))
}

#[test]
fn results_that_do_not_fit_an_integer_of_the_device_fail() {
    for (case, fits, fails) in wide_integers() {
        let program = lower(&case.model).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let run = |bits: u32| interpret(&program, &[&[bits; 4]]);
        assert!(run(fits).is_ok(), "{}: {:?}", case.name, run(fits));
        let error = run(fails).unwrap_err();
        assert!(error.contains(" of node `") && error.contains("32 bits"), "{}: {error}", case.name);
    }
}

#[test]
fn a_constant_that_does_not_fit_an_integer_of_the_device_is_refused() {
    let large = [ints("large", &[1 << 31])];
    let bytes =
        model_of_opset(18, &[("x", D::INT64, &["2"])], &[("y", D::INT64, &["2"])], &large, &["y = Add x large"]);
    let error = lower(&TestCase::of("large", bytes, 1).model).unwrap_err();
    assert!(error.contains("constant `large") && error.contains("got 2147483648"), "{error}");
}

#[test]
fn the_models_of_graphs_are_lowered() {
    small_graphs().iter().for_each(|case| _ = check(case));
}

#[test]
fn ends_of_a_convolution_are_fused_with_it() {
    let program = check(&conv(1, 4, 5, 6));
    assert_eq!(program.kernels.len(), 1, "{:?}", program.kernels.iter().map(|k| &k.name).collect::<Vec<_>>());
    assert_eq!(check(&matmul(3, 4, 5)).kernels.len(), 1);
}

#[test]
#[ignore = "takes a folder of models in LIMEN_MODELS, and minutes"]
fn models_of_a_folder_are_lowered() {
    let folder = std::env::var_os("LIMEN_MODELS").expect("LIMEN_MODELS");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "onnx")) {
        let program = check(&TestCase::file(file, 1));
        println!("{}: {} kernels", file.display(), program.kernels.len());
    }
}
