//! The text of kernels. `.ci/lanes/cuda/run` compiles it with NVIDIA's compiler.

use super::cuda_c::{CudaC, ENTRY};
use crate::lowering::test_cases::matmul;
use crate::lowering::test_programs::{folds, programs};
use crate::lowering::{Half, Program, Shader, Width, lower, shader};
use std::collections::BTreeSet;

fn shaders(half: Half, program: &Program, busy: usize) -> Vec<Shader> {
    let kernels = program.kernels.iter().filter(|kernel| kernel.len() > 0).enumerate();
    let width = Width { most: 65_535, busy };
    let write = |(at, kernel)| shader(&CudaC { half }, program, kernel, at + 1, width).unwrap();
    kernels.map(write).collect()
}

/// The only kernel of a program.
fn only(program: &Program) -> Shader {
    let mut shaders = shaders(Half::F16, program, 128);
    assert_eq!(shaders.len(), 1);
    shaders.remove(0)
}

fn program(name: &str) -> Program {
    folds().into_iter().find(|(of, _)| of == name).unwrap().1
}

/// The text from the function that the device calls on.
fn entry(shader: &Shader) -> &str {
    &shader.text[shader.text.find("extern \"C\"").unwrap()..]
}

#[test]
fn a_thread_computes_an_element() {
    let shader = only(&lower(&matmul(2, 3, 4).model).unwrap());
    assert_eq!((shader.block, shader.groups, shader.exact), ([64, 1, 1], [1, 1, 1], false));
    let expected = "extern \"C\" __global__ void __launch_bounds__(64) limen_kernel(const float *__restrict__ a0, \
        const float *__restrict__ a1, float *__restrict__ a2) {
const uint3 id = {blockIdx.x * 64u + threadIdx.x, blockIdx.y * 1u + threadIdx.y, blockIdx.z * 1u + threadIdx.z};
const auto n = limen_i32(id.x + id.y * 64u);
if (n >= 8) { return; }
const auto c1 = (n) % 4;
const auto c0 = n / 4;
auto folded = 0.0f;
for (auto c2 = 0; c2 < 3; c2++) {
const auto t0 = a0[c0 * 3 + c2];
const auto t1 = a1[c1 + c2 * 4];
const auto t2 = t0 * t1;
folded = folded + t2;
}
a2[c0 * 4 + c1 + 0] = folded;
}
";
    assert_eq!(entry(&shader), expected);
}

#[test]
fn the_threads_of_a_block_fold_an_element() {
    let shader = only(&program("Sum of 700 I32, exact: true"));
    assert_eq!((shader.block, shader.groups, shader.exact), ([64, 1, 1], [3, 1, 1], true));
    assert!(shader.text.contains("void limen_fail(unsigned *fault) { atomicMax(fault, 1u); }\n"), "{}", shader.text);
    let text = entry(&shader);
    for part in [
        "limen_kernel(const int *__restrict__ a0, int *__restrict__ a1, unsigned *fault) {\n__shared__ int parts[64];\n",
        "folded = limen_exact_add(fault, folded, t0);",
        "parts[thread] = limen_exact_add(fault, parts[thread], parts[thread + half]);",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("return"), "a thread that ends early misses a barrier: {text}");
    let shader = only(&program("Sum of 700 I32, exact: false"));
    assert!(shader.text.contains("folded = limen_add(folded, t0);"), "{}", shader.text);
}

#[test]
fn the_threads_of_a_block_compute_a_tile() {
    let mut program = lower(&matmul(64, 33, 65).model).unwrap();
    let shader = only(&program);
    assert_eq!((shader.block, shader.groups), ([16, 16, 1], [5, 4, 1]));
    let shader = shaders(Half::F16, &program, 4).remove(0);
    assert_eq!((shader.block, shader.groups), ([16, 16, 1], [2, 2, 1]));
    let text = entry(&shader);
    assert!(text.contains("__shared__ float left[512];\n__shared__ float right[1024];\n"), "{text}");
    assert!(!text.contains("return"), "a thread that ends early misses a barrier: {text}");
    program.arrays.iter_mut().for_each(|array| array.is_half = true);
    for (half, name) in [(Half::F16, "f16"), (Half::Bf16, "bf16")] {
        let text = shaders(half, &program, 4).remove(0).text;
        for part in [
            "limen_kernel(const unsigned short *__restrict__ a0, ".to_string(),
            format!("= limen_{name}_to_f32(a0["),
            format!("= limen_f32_to_{name}(folded);"),
        ] {
            assert!(text.contains(&part), "{part} in {text}");
        }
    }
}

#[test]
fn an_array_that_is_too_large_for_an_index_is_refused() {
    let mut program = program("Max of 20 F32, exact: false");
    program.arrays[0].len = 1 << 29;
    let width = Width { most: 65_535, busy: 128 };
    let error = shader(&CudaC { half: Half::F16 }, &program, &program.kernels[0], 1, width).unwrap_err();
    assert_eq!(error, "an array must have at most 2147483647 bytes, got 2147483648");
}

/// Every kernel of the programs of tests, each text once. `LIMEN_DUMP_CUDA` names a folder that
/// they are written to.
#[test]
fn all_kernels_are_written() {
    let mut texts = BTreeSet::new();
    for (name, program) in programs() {
        let halves = program.arrays.iter().any(|array| array.is_half).then_some(Half::Bf16);
        for half in [Half::F16].into_iter().chain(halves) {
            for busy in [4, 128] {
                for shader in shaders(half, &program, busy) {
                    let text = &shader.text;
                    assert_eq!(text.matches(ENTRY).count(), 1, "{name}: {text}");
                    assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name}: {text}");
                    let words: BTreeSet<&str> =
                        text.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
                    for wgsl in ["fn", "let", "var", "i32", "select", "bitcast", "workgroupBarrier"] {
                        assert!(!words.contains(wgsl), "{name}: {wgsl} in {text}");
                    }
                    texts.insert(shader.text);
                }
            }
        }
    }
    assert!(texts.len() > 400, "{} texts", texts.len());
    if let Some(folder) = std::env::var_os("LIMEN_DUMP_CUDA") {
        for (at, text) in texts.iter().enumerate() {
            std::fs::write(std::path::Path::new(&folder).join(format!("{at:04}.cu")), text).unwrap();
        }
    }
}
