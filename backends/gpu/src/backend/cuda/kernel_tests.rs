//! Kernels of a graph, on the device of this machine, or on the driver stub; without one they are
//! skipped.

use super::resident::shared_device;
use crate::backend::chain::{models, plan, run};
use limen::{Tensor, Wired};
use limen_infer::BackendOptions;
use std::path::Path;
use std::sync::Arc;

fn has_device() -> bool {
    let found = shared_device(&BackendOptions::default()).api();
    if let Err(error) = &found {
        println!("skipped: {error}");
    }
    found.is_ok()
}

fn wired(folder: &Path, nodes: &str) -> Wired {
    plan(folder, nodes, true).unwrap_or_else(|problems| panic!("{problems}")).wire().unwrap()
}

/// Adds a number to every second element, and writes its place; through shared memory, so that a
/// barrier counts.
const KERNEL: &str = include_str!("every_second.cu");

fn kernel(keys: &str, more: &str) -> String {
    format!(
        "  k:
    kind: kernel
    config:
      source: k.cu
      entry: every_second
      inputs: {{ x: [n] }}
      outputs: {{ y: {{ dtype: f32, shape: ['ceil_div(n, 2)'] }}, places: {{ dtype: i32, shape: ['ceil_div(n, 2)'] }} }}
      grid: ['ceil_div(n, 4)']
      block: [2]
      shared: 2 * 4
      arguments: [x, y, places, {{ i32: 'ceil_div(n, 2)' }}, {{ f32: 7 }}]
      defines: {{ STEP: 2 }}
      {keys}
{more}"
    )
}

const ALLOWED: &str = "allow_kernels: true";
const BETWEEN: &str = "    inputs: { x: a }\n  c: { kind: to_host, config: { device: cuda }, from: k/y }\n";

/// What `every_second` gives for a message, whose numbers were multiplied before.
fn expected(seq: u64, by: f32) -> Vec<f32> {
    [0, 2, 4].map(|at| (seq * 10 + at) as f32 * by + 7.0).to_vec()
}

#[test]
fn a_kernel_of_the_graph_stays_on_the_device() {
    if !has_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    std::fs::write(folder.path().join("k.cu"), KERNEL).unwrap();
    // Between a model on the device and the host; one of its outputs is taken, the other is not.
    let nodes = "  m: { kind: infer, config: { model: double.onnx, backend: cuda }, from: a }\n".to_string()
        + &kernel(ALLOWED, "    inputs: { x: m }\n")
        + "  w: { kind: outlet, config: { hold: 64 }, from: k/places }\n  c: { kind: to_host, config: { device: cuda }, from: k/y }\n";
    let mut with_places = wired(folder.path(), &nodes);
    let mut places = with_places.outlet::<Tensor>("w").unwrap();
    let (found, report) = run(with_places, 12, |_| ());
    assert_eq!(found, (0..12).map(|seq| (seq, expected(seq, 2.0))).collect::<Vec<_>>());
    assert_eq!(places.try_recv().unwrap().body.as_slice::<i32>().unwrap(), [0, 2, 4]);
    assert_eq!(report.failed_calls, 0, "{:?}", report.failures);
    let (found, _) = run(wired(folder.path(), &kernel(ALLOWED, BETWEEN)), 5, |_| ());
    assert_eq!(found, (0..5).map(|seq| (seq, expected(seq, 1.0))).collect::<Vec<_>>());
    // What a kernel does not write is zero, and not what an earlier message left.
    let odd = KERNEL.replace("if (at < length)", "if (at < length && int(x[0] / 10.0f) % 2 == 1)");
    std::fs::write(folder.path().join("k.cu"), odd).unwrap();
    let (found, _) = run(wired(folder.path(), &kernel(ALLOWED, BETWEEN)), 12, |_| ());
    for (seq, values) in &found {
        assert!(values.iter().all(|value| (*value == 0.0) == (seq % 2 == 0)), "{seq}: {values:?}");
    }
}

/// Bytes on both sides, in place.
#[test]
fn a_kernel_works_in_place() {
    if !has_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let halve =
        "extern \"C\" __global__ void halve(unsigned char *bytes, float *y, double gain, unsigned long long n) {
    const unsigned at = threadIdx.x;
    if (at < n) { bytes[at] = 1; }
    if (at < n && at != 1) { y[at] *= gain; }
}";
    std::fs::write(folder.path().join("k.cu"), halve).unwrap();
    let config = "source: k.cu, device: cuda, entry: halve, inputs: { x: [n] }, outputs: { y: { dtype: f32, shape: [n] }, b: { dtype: u8, shape: [n] } }, \
                  grid: [1], block: [8], arguments: [b, y, { f64: 0.5 }, { u64: n }]";
    let node = |keys: &str| {
        format!(
            "  k:\n    kind: kernel\n    config: {{ {config}, {keys}, {ALLOWED} }}\n    from: a\n  c: {{ kind: to_host, config: {{ device: \
             cuda }}, from: k/y }}\n"
        )
    };
    let (found, _) = run(wired(folder.path(), &node("in_place: { y: x }")), 6, |_| ());
    assert_eq!(found.len(), 6);
    for (seq, values) in found {
        let x = |at: u64| (seq * 10 + at) as f32;
        assert_eq!(values, [x(0) * 0.5, x(1), x(2) * 0.5, x(3) * 0.5, x(4) * 0.5]);
    }
    for (keys, expected) in [
        ("in_place: { z: x }", "found `z: x`"),
        ("in_place: {}", "`arguments` must name `x`"),
        ("in_place: { y: x }, time_limit: 0s", "above 0 s and at most 120 s"),
    ] {
        let problems = plan(folder.path(), &node(keys), true).unwrap_err().to_string();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
}

#[test]
fn a_kernel_that_does_not_fit_is_refused_with_every_reason() {
    if !has_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let refused = |source: &str, nodes: &str, is_allowed: bool, expected: &[&str]| {
        std::fs::write(here.join("k.cu"), source).unwrap();
        let problems =
            plan(here, nodes, is_allowed).err().unwrap_or_else(|| panic!("{expected:?} is planned")).to_string();
        expected.iter().for_each(|part| assert!(problems.contains(part), "{part}: {problems}"));
    };
    let good = kernel(ALLOWED, BETWEEN);
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    refused(KERNEL, &kernel("", BETWEEN), false, &["write `allow_kernels: true`", "start with `--allow-kernels`"]);
    refused(&KERNEL.replace("+ plus;", "+ plu;"), &good, true, &["`k.cu`: ", "plu"]);
    refused(
        KERNEL,
        &changed("entry: every_second", "entry: every"),
        true,
        &["kernel `every` is not found", "extern \"C\""],
    );
    refused(
        KERNEL,
        &changed("      entry: every_second\n", ""),
        true,
        &["`entry` is missing", "write the kernel's name as `entry: NAME`"],
    );
    refused(KERNEL, &changed(", { f32: 7 }]", "]"), true, &["`arguments` must have 5 entries, got 4"]);
    refused(
        KERNEL,
        &changed("{ f32: 7 }", "{ f64: 7 }"),
        true,
        &["argument 4 must have 4 bytes, got a number of 8 bytes"],
    );
    refused(KERNEL, &changed("{ f32: 7 }", "{ i32: 7.5 }"), true, &["expected a whole number, found 7.5"]);
    refused(KERNEL, &changed("{ f32: 7 }", "{ u32: 'n - 9' }"), true, &["must fit in u32, got -4"]);
    refused(
        KERNEL,
        &changed("[x, y, places,", "[x, z, places,"),
        true,
        &["expected a port (`x`, `places`, `y`), found `z`", "`arguments` must name `y`"],
    );
    refused(KERNEL, &changed("block: [2]", "block: [2048]"), true, &["`block` must be at most 1024 along x, got 2048"]);
    refused(
        KERNEL,
        &changed("block: [2]", "block: [64, 32]"),
        true,
        &["a block must have at most 1024 threads, got 2048"],
    );
    refused(KERNEL, &changed("block: [2]", "block: []"), true, &["`block` is missing"]);
    refused(KERNEL, &changed("shared: 2 * 4", "shared: 4 * n - 20"), true, &["must be at least 1"]);
    refused(KERNEL, &changed("STEP: 2", "'2STEP': 2"), true, &["is not a valid macro name"]);
    refused(KERNEL, &changed("defines:", "constants:"), true, &["`constants` requires a kernel of WGSL"]);
    refused(KERNEL, &changed("dtype: i32", "dtype: f64"), true, &["dtype` must be f32, i32 or u8, got f64"]);
    refused(
        KERNEL,
        &changed("source: k.cu", "source: k.cu\n      device: wgpu"),
        true,
        &["for `device: wgpu`, got `k.cu`"],
    );
    refused(
        KERNEL,
        &changed("source: k.cu", "source: k.cu\n      device: tpu"),
        true,
        &["`device` must be `wgpu` or `cuda`, got `tpu`"],
    );
    std::fs::write(here.join("k.cubin"), "text").unwrap();
    std::fs::write(here.join("k.ptx"), "text").unwrap();
    let other = |end: &str| changed("source: k.cu", &format!("source: k.{end}"));
    refused(KERNEL, &other("cubin"), true, &["requires a kernel of CUDA C"]);
    let other = |end: &str| other(end).replace("      defines: { STEP: 2 }\n", "");
    refused(KERNEL, &other("cubin"), true, &["`k.cubin`: ", "not a cubin"]);
    refused(KERNEL, &other("ptx"), true, &["`k.ptx`: ", "cuModuleLoadDataEx"]);
    std::fs::remove_file(here.join("k.cu")).unwrap();
    let problems = plan(here, &good, true).unwrap_err().to_string();
    assert!(problems.contains("`k.cu`: No such file"), "{problems}");
}

/// What a compiler makes of a kernel runs as well as the kernel: code for the device, and PTX.
/// `LIMEN_CUDA_CODE` names a folder with what NVIDIA's compiler made of it.
#[test]
fn compiled_kernels_run_too() {
    if !has_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, api): (_, Arc<_>) = shared_device(&BackendOptions::default()).api().unwrap();
    let arch = api.context.info().arch;
    let code = limen_cuda::compile("k.cu", KERNEL, arch, &["-DSTEP=2"]).unwrap();
    let mut files = vec![("k.cubin", code.bytes().to_vec())];
    // The stub's PTX is the text of its code.
    if let Some(text) = code.bytes().get(64..).filter(|text| text.starts_with(b"// cuda stub")) {
        files.push(("k.ptx", text.to_vec()));
    }
    // What NVIDIA's own compiler made of it.
    if let Some(of_nvidia) = std::env::var_os("LIMEN_CUDA_CODE") {
        let read = |file: &str| std::fs::read(Path::new(&of_nvidia).join(file)).unwrap();
        files.extend(["k.cubin", "k.ptx"].map(|file| (file, read(file))));
    }
    for (file, bytes) in files {
        std::fs::write(folder.path().join(file), bytes).unwrap();
        let nodes = kernel(ALLOWED, BETWEEN)
            .replace("source: k.cu\n", &format!("source: {file}\n"))
            .replace("      defines: { STEP: 2 }\n", "");
        let (found, report) = run(wired(folder.path(), &nodes), 5, |_| ());
        assert_eq!(found, (0..5).map(|seq| (seq, expected(seq, 1.0))).collect::<Vec<_>>(), "{file}");
        assert_eq!(report.failed_calls, 0, "{:?}", report.failures);
    }
}
