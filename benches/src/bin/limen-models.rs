//! Measures the calls of a model on a backend, as a node makes them: `limen-models MODEL BACKEND BATCH THREADS SECONDS` prints one
//! JSON object. `benches/backends/models_run.py` compares these with onnxruntime in Python.

use limen::backend::{Backend, BatchMut, BatchRef, Prepared, Session, TensorSpec};
use limen_backends::onnx::{ModelState, Onnx, OnnxLane, OnnxModel, Runtime};
use std::time::{Duration, Instant};

fn shape(spec: &TensorSpec) -> Vec<usize> {
    spec.shape.iter().map(|dim| dim.max().unwrap_or(1)).collect()
}

fn run<R: Runtime>(path: &str, batch: usize, threads: usize, seconds: f64) {
    // The only stateful model here.
    let has_state = path.contains("stream_gru");
    let state = ModelState { input: "state".into(), output: "next_state".into(), batch_dim: None };
    let states = if has_state { vec![state] } else { Vec::new() };
    let model = OnnxModel { path: path.into(), threads, states, one_item: batch == 1, ..OnnxModel::default() };
    let load = |untried: bool| {
        let begun = Instant::now();
        let prepared = Onnx::<R>::prepare(OnnxModel { untried, ..model.clone() });
        let prepared = prepared.unwrap_or_else(|error| panic!("{path}: {error}"));
        let items = if untried { 1 } else { batch };
        let session = prepared.session(items).unwrap_or_else(|error| panic!("{path}: {error}"));
        (begun.elapsed(), prepared, session)
    };
    let (untried, ..) = load(true);
    let (tried, prepared, mut session) = load(false);
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
        "{{\"calls\":{},\"p50_ns\":{},\"p99_ns\":{},\"load_ms\":{:.1},\"untried_ms\":{:.1},\"peak_kib\":{}}}",
        times.len(),
        at(0.5),
        at(0.99),
        tried.as_secs_f64() * 1e3,
        untried.as_secs_f64() * 1e3,
        limen_benches::peak_kib()
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, backend, batch, threads, seconds] = &words[..] else {
        panic!("limen-models MODEL BACKEND BATCH THREADS SECONDS");
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (batch, threads, seconds) = (number(batch), number(threads), seconds.parse().expect("seconds"));
    match backend.as_str() {
        // On a dedicated thread without hand-over, like the engine's workers.
        "rten" => {
            limen_backends::on_rten_thread(|| run::<limen_backends::RtenRuntime>(path, batch, threads, seconds));
        }
        #[cfg(feature = "tract")]
        "tract" => run::<limen_backends::TractRuntime>(path, batch, threads, seconds),
        #[cfg(feature = "ort")]
        "ort" => run::<limen_backends::OrtRuntime>(path, batch, threads, seconds),
        other => panic!("the backend `{other}` is not built in"),
    }
}
