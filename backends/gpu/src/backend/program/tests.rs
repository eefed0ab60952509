//! Programs of test cases on a device, beside tract.

use super::ReadOutput;
use crate::lowering::test_cases::{TestCase, device_bits};
use crate::lowering::{Program, Scalar};
use limen::backend::BackendError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tract_onnx::prelude::{DatumType, Tensor};

/// Calls a program three times.
pub(crate) fn check_run(
    program: &Program,
    case: &TestCase,
    mut run: impl FnMut(&[&[u8]], &mut ReadOutput<'_>) -> Result<(), BackendError>,
    compare: impl Fn(&[Vec<f32>], &[Vec<f32>]),
) {
    let name = &case.name;
    for call in 0..3 {
        let inputs = case.inputs(call);
        let bits: Vec<Vec<u32>> = inputs.iter().map(|input| packed(input, device_bits(input))).collect();
        let bytes: Vec<&[u8]> = bits.iter().map(|bits| bytemuck::cast_slice(bits)).collect();
        let mut found = Vec::new();
        let read = |at: usize, bytes: &[u8]| {
            let (array, _) = program.outputs[at];
            let words = bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned::<u32>).take(program.arrays[array].len);
            let number = |bits: u32| match program.arrays[array].scalar {
                Scalar::F32 => f32::from_bits(bits),
                Scalar::I32 => bits as i32 as f32,
            };
            found.push(words.map(number).collect::<Vec<f32>>());
            Ok(())
        };
        run(&bytes, &mut { read }).unwrap_or_else(|error| panic!("{name}: {error}"));
        compare(&found, &case.expected(&inputs));
    }
}

/// The bits of an input, with four bytes in a word.
fn packed(input: &Tensor, bits: Vec<u32>) -> Vec<u32> {
    if input.datum_type() != DatumType::U8 {
        return bits;
    }
    let word = |four: &[u32]| four.iter().rev().fold(0, |word, byte| word << 8 | byte);
    bits.chunks(4).map(word).collect()
}

/// Checks each case, and reports all that are wrong.
pub(crate) fn check_each(cases: impl IntoIterator<Item = TestCase>, check: impl Fn(&TestCase)) {
    let failure = |case: TestCase| {
        let panic = catch_unwind(AssertUnwindSafe(|| check(&case))).err()?;
        Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| format!("{}: a panic", case.name)))
    };
    let wrong: Vec<String> = cases.into_iter().filter_map(failure).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
