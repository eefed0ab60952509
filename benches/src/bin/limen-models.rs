//! Measures the calls of a model on a backend, as a node makes them: `limen-models MODEL BACKEND
//! BATCH THREADS SECONDS INPUT...` prints one JSON object. `INPUT=OUTPUT` is a state, `INPUT:3,64`
//! the shape of an item, and `INPUT=16000` a constant. `benches/backends/models_run.py` compares
//! these with onnxruntime in Python.

use limen::backend::{Backend, BackendError, BatchMut, BatchRef, Prepared, Session, TensorSpec};
use limen::message::Dim;
use limen_infer::onnx::{ConstantInput, ModelState, Onnx, OnnxLane, OnnxModel, Runtime};
use std::time::{Duration, Instant};

fn shape(spec: &TensorSpec) -> Vec<usize> {
    spec.shape.iter().map(|dim| dim.max().unwrap_or(1)).collect()
}

/// Adds what a word says of an input.
fn describe(model: &mut OnnxModel, word: &str) {
    if let Some((input, shape)) = word.split_once(':') {
        let dim = |length: &str| Dim::Fixed(length.parse().expect("a length"));
        model.shapes.insert(input.into(), shape.split(',').map(dim).collect());
        return;
    }
    let (input, what) = word.split_once('=').expect("INPUT=OUTPUT, INPUT=NUMBER or INPUT:LENGTHS");
    match what.parse() {
        Ok(number) => {
            model.constants.insert(input.into(), ConstantInput { shape: Vec::new(), values: vec![number] });
        }
        Err(_) => model.states.push(ModelState { input: input.into(), output: what.into(), batch_dim: None }),
    }
}

fn run<R: Runtime>(path: &str, batch: usize, threads: usize, seconds: f64, inputs: &[String]) {
    let mut model = OnnxModel { path: path.into(), threads, one_item: batch == 1, ..OnnxModel::default() };
    inputs.iter().for_each(|word| describe(&mut model, word));
    let load = |untried: bool| {
        let begun = Instant::now();
        let prepared = Onnx::<R>::prepare(OnnxModel { untried, ..model.clone() })?;
        let session = prepared.session(if untried { 1 } else { batch })?;
        Ok::<_, BackendError>((begun.elapsed(), prepared, session))
    };
    // A model that does not declare the shapes of its outputs must be tried.
    let untried = load(true).map_or("null".to_string(), |(took, ..)| format!("{:.1}", took.as_secs_f64() * 1e3));
    let (tried, prepared, mut session) = load(false).unwrap_or_else(|error| panic!("{path}: {error}"));
    let signature = prepared.signature();
    let room = |spec: &TensorSpec| vec![0f32; batch * shape(spec).iter().product::<usize>()];
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = signature
        .inputs
        .iter()
        .map(|spec| (shape(spec), room(spec).iter().enumerate().map(|(i, _)| (i * 37 % 101) as f32 / 101.0).collect()))
        .collect();
    let mut outputs: Vec<(Vec<usize>, Vec<f32>)> = signature.outputs.iter().map(|s| (shape(s), room(s))).collect();
    let mut lanes = vec![OnnxLane::default(); batch];
    let mut call = || {
        let given: Vec<BatchRef<'_>> = std::iter::zip(&signature.inputs, &inputs)
            .map(|(spec, (shape, values))| BatchRef { dtype: spec.dtype, shape, bytes: bytemuck::cast_slice(values) })
            .collect();
        let mut taken: Vec<BatchMut<'_>> = std::iter::zip(&signature.outputs, &mut outputs)
            .map(|(spec, (shape, values))| BatchMut {
                dtype: spec.dtype,
                shape,
                bytes: bytemuck::cast_slice_mut(values),
            })
            .collect();
        let begun = Instant::now();
        session.infer_batch(batch, &given, &mut taken, &mut lanes).unwrap_or_else(|error| panic!("{path}: {error}"));
        begun.elapsed()
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(seconds / 5.0) {
        call();
    }
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(seconds) || times.len() < 20 {
        times.push(call().as_nanos() as u64);
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)];
    println!(
        "{{\"calls\":{},\"p50_ns\":{},\"p99_ns\":{},\"load_ms\":{:.1},\"untried_ms\":{untried},\"peak_kib\":{}}}",
        times.len(),
        at(0.5),
        at(0.99),
        tried.as_secs_f64() * 1e3,
        limen_benches::peak_kib()
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, backend, batch, threads, seconds, inputs @ ..] = &words[..] else {
        panic!("limen-models MODEL BACKEND BATCH THREADS SECONDS INPUT...");
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (batch, threads, seconds) = (number(batch), number(threads), seconds.parse().expect("seconds"));
    match backend.as_str() {
        // On a dedicated thread without hand-over, like the engine's workers.
        "rten" => {
            limen_infer::on_rten_thread(|| run::<limen_infer::RtenRuntime>(path, batch, threads, seconds, inputs));
        }
        #[cfg(feature = "tract")]
        "tract" => run::<limen_infer::TractRuntime>(path, batch, threads, seconds, inputs),
        #[cfg(feature = "ort")]
        "ort" => run::<limen_infer::OrtRuntime>(path, batch, threads, seconds, inputs),
        #[cfg(feature = "wgpu")]
        "wgpu" => run::<limen_gpu::WgpuRuntime>(path, batch, threads, seconds, inputs),
        other => panic!("the backend `{other}` is not built in"),
    }
}
