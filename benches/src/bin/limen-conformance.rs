//! Runs the test cases of the ONNX project, one operator each, on every runtime that is built in;
//! with `LIMEN_ONNXRUNTIME_PLUGIN`, only on ONNX Runtime's provider for WebGPU.
//!
//! `limen-conformance FOLDER [FROM]`: each folder in FOLDER holds `model.onnx`, `in_0.npy`, … and
//! `out_0.npy`, …, as `benches/backends/conformance.py` writes them. Prints a line for each runtime
//! and case, in order, beginning with the case FROM: the runtime, the case, and `pass`,
//! `pass with constants` or the error.
//!
//! The cases give the parameters of operators (axes, sizes, pads) as inputs, where exported models
//! have constants. A runtime that needs them before the call refuses such a case; it is then tried
//! with these inputs as constants, as `inputs: { axes: { value: [1] } }` in a graph.
//!
//! With `tol_0.npy`, …, as `benches/backends/operators.py` writes them, each element may be off by
//! so much, and a NaN there allows every number. `out_0.fails` instead of `out_0.npy` says that no
//! port carries the result, so the call has to fail. Before the result such a line says which
//! deviation of the runtime, if any, concerns the model. LIMEN_RUNTIME names the runtimes to run,
//! separated by commas.
//!
//! `limen-conformance --claims` prints each runtime with the element types of its ports and the
//! operators that it has; `limen-conformance --deviations RUNTIME` prints what that runtime lists
//! as computed otherwise.

use half::f16;
use limen::Folders;
use limen::backend::{BatchRef, Ops};
use limen::message::DType;
use limen_infer::onnx::{
    Artifact, Call, CallInput, ConstantInput, Deviation, Op, Precision, Provider, Runner, Runtime,
};
use limen_infer::{BackendOptions, WeightConfig, Weights};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The tolerances of the ONNX suite for most operators.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-5;

fn arrays(folder: &Path, what: &str) -> Result<Vec<Weights>, String> {
    let folders = Folders { graph: folder.to_path_buf(), ..Folders::default() };
    let mut arrays = Vec::new();
    while folder.join(format!("{what}_{}.npy", arrays.len())).exists() {
        let config = WeightConfig::of(format!("{what}_{}.npy", arrays.len()));
        arrays.push(config.load(&folders).map_err(|(_, why)| why)?);
    }
    Ok(arrays)
}

/// ONNX Runtime's plugin for WebGPU, if the environment names it.
fn plugin() -> Option<PathBuf> {
    std::env::var_os("LIMEN_ONNXRUNTIME_PLUGIN").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    macro_rules! read {
        ($t:ty) => {
            bytes.chunks_exact(size_of::<$t>()).map(|b| f64::from(bytemuck::pod_read_unaligned::<$t>(b))).collect()
        };
    }
    match dtype {
        DType::F32 => read!(f32),
        DType::I32 => read!(i32),
        DType::I8 => read!(i8),
        DType::U8 => read!(u8),
        DType::I16 => read!(i16),
        DType::U16 => read!(u16),
        DType::U32 => read!(u32),
        DType::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f64()).collect(),
        DType::U64 => bytes.chunks_exact(8).map(|b| bytemuck::pod_read_unaligned::<u64>(b) as f64).collect(),
        _ => Vec::new(),
    }
}

/// A parameter of an operator has at most this many numbers.
const MAX_PARAMETER: usize = 16;

/// The value of an input that may be a parameter: a few numbers, and not the first input.
fn parameter(at: usize, array: &Weights) -> Option<ConstantInput> {
    let values = numbers(array.dtype, &array.bytes);
    let is_one = at > 0 && array.shape.len() <= 1 && (1..=MAX_PARAMETER).contains(&values.len());
    is_one.then(|| ConstantInput { shape: array.shape.clone(), values })
}

fn artifact(folder: &Path) -> Result<Artifact, String> {
    let path = folder.join("model.onnx");
    Artifact::parse(&path, limen::files::read(&path, 1 << 30).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// What the runtime says of the first operator of a case that it computes otherwise than ONNX;
/// empty if it says nothing.
fn listed<R: Runtime>(folder: &Path) -> String {
    let Ok(artifact) = artifact(folder) else { return String::new() };
    let concerns = |known: &&Deviation| artifact.outline.ops.iter().any(|op| known.is_of(op));
    R::deviations().iter().find(concerns).map(said).unwrap_or_default()
}

fn said(deviation: &Deviation) -> String {
    format!("{} {}", deviation.op, deviation.what)
}

fn run<R: Runtime>(folder: &Path, with_constants: bool) -> Result<(), String> {
    let artifact = artifact(folder)?;
    let fails = folder.join("out_0.fails").exists();
    let (inputs, expected, allowed) = (arrays(folder, "in")?, arrays(folder, "out")?, arrays(folder, "tol")?);
    let declared = &artifact.outline.inputs;
    if declared.len() != inputs.len() {
        return Err(format!("the model has {} inputs, the case {}", declared.len(), inputs.len()));
    }
    let call = Call {
        provider: Provider::default(),
        plans: 16,
        inputs: std::iter::zip(declared, inputs.iter().enumerate())
            .map(|(declared, (at, array))| CallInput {
                name: declared.name.clone(),
                elem: declared.elem,
                item: array.shape.clone(),
                varies: vec![false; array.shape.len()],
                batch_dim: None,
                constant: parameter(at, array).filter(|_| with_constants),
            })
            .collect(),
        outputs: artifact.outline.outputs.iter().map(|output| output.name.clone()).collect(),
        threads: 1,
        batches: vec![1],
        precision: Precision::F32,
    };
    let options = BackendOptions { allow_software: true, onnxruntime_plugin: plugin(), ..BackendOptions::default() };
    let runtime = R::load(artifact, &options).map_err(|e| e.to_string())?;
    let shared = runtime.share(&call).map_err(|e| e.to_string())?;
    let mut runner = runtime.runner(&shared, &call).map_err(|e| e.to_string())?;
    let given: Vec<BatchRef<'_>> =
        inputs.iter().map(|i| BatchRef { dtype: i.dtype, shape: &i.shape, bytes: &i.bytes }).collect();
    // Three times: a runtime may keep something from one call to the next.
    for _ in 0..3 {
        let mut found = vec![None; expected.len()];
        let called = runner.run(1, &given, &mut |at, output| {
            if let Some(found) = found.get_mut(at) {
                *found = Some((output.shape.to_vec(), numbers(output.dtype, output.bytes)));
            }
            Ok(())
        });
        match called {
            Err(_) if fails => continue,
            Ok(()) if fails => return Err("DIFFERS: the call gives a result that no port carries".into()),
            called => called.map_err(|e| e.to_string())?,
        }
        compare(found, &expected, &allowed)?;
    }
    Ok(())
}

/// Compares the outputs of a call with the expected ones.
fn compare(
    found: Vec<Option<(Vec<usize>, Vec<f64>)>>,
    expected: &[Weights],
    allowed: &[Weights],
) -> Result<(), String> {
    for (at, (found, expected)) in std::iter::zip(found, expected).enumerate() {
        let (shape, found) = found.ok_or_else(|| format!("output {at} is missing"))?;
        if shape != expected.shape {
            return Err(format!("DIFFERS: output {at} is {shape:?}, not {:?}", expected.shape));
        }
        let allowed = allowed.get(at).map(|allowed| numbers(allowed.dtype, &allowed.bytes));
        let differs = |(place, (found, expected)): &(usize, (f64, f64))| {
            let most = match &allowed {
                None => ATOL + RTOL * expected.abs(),
                Some(allowed) => allowed.get(*place).copied().filter(|most| !most.is_nan()).unwrap_or(f64::INFINITY),
            };
            let distance = (found - expected).abs();
            let equal = found == expected || (found.is_nan() && expected.is_nan()) || most == f64::INFINITY;
            !equal && (distance.is_nan() || distance > most)
        };
        let pairs = std::iter::zip(found, numbers(expected.dtype, &expected.bytes)).enumerate();
        let differing: Vec<_> = pairs.filter(differs).collect();
        // A NaN that is lost is reported only if nothing else differs.
        let first = differing.iter().find(|(_, (_, expected))| !expected.is_nan()).or(differing.first());
        if let Some((place, (found, expected))) = first {
            return Err(format!("DIFFERS: output {at} holds {found} at {place}, not {expected}"));
        }
    }
    Ok(())
}

fn report<R: Runtime>(folder: &Path) {
    let run = |with_constants| catch_unwind(AssertUnwindSafe(|| run::<R>(folder, with_constants)));
    let outcome = run(false);
    let is_refused = matches!(&outcome, Ok(Err(why)) if !why.starts_with("DIFFERS"));
    let again = if is_refused { run(true).unwrap_or_else(|_| Err("PANIC".into())) } else { Err(String::new()) };
    let text = match outcome {
        Ok(Ok(())) => "pass".to_string(),
        Ok(Err(_)) if again.is_ok() => "pass with constants".to_string(),
        // A runtime that takes the constants has to compute what ONNX says.
        Ok(Err(_)) if again.as_ref().is_err_and(|why| why.starts_with("DIFFERS") || why == "PANIC") => {
            format!("{} with constants", again.unwrap_err())
        }
        Ok(Err(why)) => why.replace(['\n', '\t'], " ").chars().take(200).collect(),
        Err(_) => "PANIC".to_string(),
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let known = if folder.join("tol_0.npy").exists() || folder.join("out_0.fails").exists() {
        format!("{}\t", listed::<R>(folder))
    } else {
        String::new()
    };
    let mut out = std::io::stdout().lock();
    // A case may end the process, so each line is flushed.
    let _ = writeln!(out, "{}\t{name}\t{known}{text}", R::NAME).and_then(|()| out.flush());
}

/// Whether a runtime is to run. One is always asked for in the environment: `cuda`, which needs a
/// device.
fn is_asked(name: &str) -> bool {
    match std::env::var("LIMEN_RUNTIME") {
        Ok(asked) => asked.split(',').any(|asked| asked == name),
        Err(_) => name != "cuda",
    }
}

/// Calls a function with each runtime that is built in and is to run.
macro_rules! each_runtime {
    ($called:ident $(, $argument:expr)*) => {
        each_runtime!(@ "rten", limen_infer::RtenRuntime, $called $(, $argument)*);
        #[cfg(feature = "tract")]
        each_runtime!(@ "tract", limen_infer::TractRuntime, $called $(, $argument)*);
        #[cfg(feature = "ort")]
        each_runtime!(@ "ort", limen_infer::OrtRuntime, $called $(, $argument)*);
        #[cfg(feature = "wgpu")]
        each_runtime!(@ "wgpu", limen_gpu::WgpuRuntime, $called $(, $argument)*);
        #[cfg(feature = "cuda")]
        each_runtime!(@ "cuda", limen_gpu::CudaRuntime, $called $(, $argument)*);
    };
    (@ $name:literal, $runtime:ty, $called:ident $(, $argument:expr)*) => {
        if is_asked($name) {
            $called::<$runtime>($($argument),*);
        }
    };
}

/// Prints the element types of a runtime's ports and its operators, after its name.
fn claims<R: Runtime>() {
    let options = BackendOptions { allow_software: true, ..BackendOptions::default() };
    let Ok(found) = R::probe(&options) else { return };
    let dtypes: Vec<String> = found.dtypes.iter().map(ToString::to_string).collect();
    let ops: Vec<String> = match found.ops {
        Ops::Listed(ops) => {
            // A node that leaves out what it may. The scales of a `Resize`, which it may not, are
            // whole.
            let mut least = Op::default();
            least.scales = Some(Vec::new());
            let has = |op: &String| {
                least.id.clone_from(op);
                !R::lacks(&least)
            };
            ops.into_iter().filter(has).collect()
        }
        Ops::Unlisted => Vec::new(),
    };
    println!("{}\t{}\t{}", R::NAME, dtypes.join(" "), ops.join(" "));
}

/// Prints what a runtime lists as computed otherwise than ONNX defines it.
fn deviations<R: Runtime>(of: &str) {
    if R::NAME == of {
        R::deviations().iter().for_each(|deviation| println!("{}", said(deviation)));
    }
}

fn main() {
    let mut words = std::env::args_os().skip(1);
    let folder = PathBuf::from(words.next().expect("limen-conformance FOLDER [FROM]"));
    let from = words.next().unwrap_or_default();
    if folder.as_os_str() == "--claims" {
        each_runtime!(claims);
        return;
    }
    if folder.as_os_str() == "--deviations" {
        each_runtime!(deviations, &from.to_string_lossy());
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a folder of cases")
        .filter_map(|entry| Some(entry.ok()?.path()).filter(|path| path.is_dir()))
        .collect();
    cases.sort();
    for case in cases.iter().filter(|case| case.file_name().is_some_and(|name| name >= &*from)) {
        #[cfg(feature = "ort")]
        if plugin().is_some() {
            report::<limen_infer::OrtWebgpuRuntime>(case);
            continue;
        }
        each_runtime!(report, case);
    }
}
