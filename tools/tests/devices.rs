//! `backend: wgpu` from a user's point of view, on any adapter. Without an adapter, these tests do
//! nothing.

use crate::program::{Folder, Ran, says, set_times};
use crate::trials::{I64, model_with, node, weight};
use std::fs;
use std::path::Path;

/// A folder with a graph that runs the digits, with these keys.
fn with(test: &str, keys: &str) -> Option<Folder> {
    let graph = format!(
        "
version: 1
nodes:
  noise: {{ kind: synthetic, config: {{ pattern: noise, shape: [1, 8, 8], dtype: f32, count: 10 }} }}
  digit: {{ kind: infer, config: {{ model: digits.onnx, {keys} }}, from: noise }}
  nothing: {{ kind: 'null', from: digit }}
"
    );
    let folder = Folder::with(test, &graph);
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let is_there = !run(&folder, "doctor").out.contains("GPU: none found");
    is_there.then_some(folder)
}

/// Runs the program with any adapter.
fn run(folder: &Folder, words: &str) -> Ran {
    Ran::from(folder.command(words).env("LIMEN_ALLOW_SOFTWARE", "1").output().unwrap())
}

/// Runs the program without adapters that compute on the CPU.
fn run_on_gpus(folder: &Folder, words: &str) -> Ran {
    Ran::from(folder.command(words).env_remove("LIMEN_ALLOW_SOFTWARE").output().unwrap())
}

/// Whether every adapter computes on the CPU.
fn is_software(folder: &Folder) -> bool {
    let found = run(folder, "doctor --json").json();
    let adapters = found["findings"].as_array().unwrap().iter().filter(|finding| finding["what"] == "GPU");
    adapters.into_iter().all(|finding| finding["found"].as_str().unwrap().contains("computes on the CPU"))
}

/// Promise (models): `limen-run calibrate` measures a GPU with its copies, `backend: auto` selects
/// the GPU if it was the fastest, and a driver that computes on the CPU needs permission.
#[test]
fn auto_and_calibrate_see_a_device() {
    let Some(folder) = with("wgpu-auto", "backend: auto") else { return };
    let unmeasured = "`wgpu` was not measured on this machine: run `limen-run calibrate GRAPH --cache DIR`";
    says(&run(&folder, "plan graph.yaml --cache kept"), 0, &[unmeasured, "nothing was measured"]);
    let is_software = is_software(&folder);
    let refused = "`wgpu` is not available: expected a GPU, found ";
    if is_software {
        says(&run_on_gpus(&folder, "calibrate graph.yaml --cache kept"), 0, &[refused, "`rten`: "]);
    }
    let parts = ["`wgpu`: ", "with the copies to the device and back", "`rten`: "];
    says(&run(&folder, "calibrate graph.yaml --cache kept"), 0, &parts);
    set_times(&folder.0.join("kept"), "wgpu", 1);
    for _ in 0..2 {
        let parts = [
            "backend wgpu",
            "the fastest first: `wgpu` 1 ns, ",
            "`wgpu` runs the model",
            "`auto`: each call copies its messages to the device and back",
        ];
        says(&run(&folder, "plan graph.yaml --cache kept"), 0, &parts);
    }
    let report = run(&folder, "graph.yaml --cache kept --json --fail-on lost>0").json();
    assert_eq!(
        (&report["nodes"][1]["backend"]["name"], &report["nodes"][1]["backend"]["calls"]),
        (&"wgpu".into(), &10.into())
    );
    if is_software {
        let ran = run_on_gpus(&folder, "plan graph.yaml --cache kept");
        says(&ran, 0, &[refused, "`wgpu` was measured to be faster, but is not available: expected a GPU"]);
        assert!(!ran.out.contains("backend wgpu"), "{}", ran.out);
    }
    set_times(&folder.0.join("kept"), "wgpu", u64::MAX / 2);
    says(&run(&folder, "plan graph.yaml --cache kept"), 0, &["`rten` ", "`wgpu` supports the operators"]);
}

/// A device meets what is required of it, also beside a backend that does not.
#[test]
fn a_device_meets_what_is_required_of_it() {
    let all = "device: wgpu, memory: device, streams: true, max_rank: 6, max_batch: 65536, ops: [Conv, Relu]";
    let types = "dtypes: [f32, f16, u8, i8, u16, i16, i32]";
    let Some(folder) = with("wgpu-require", &format!("backend: wgpu, require: {{ {all}, {types} }}")) else { return };
    says(&run(&folder, "check graph.yaml"), 0, &["ok"]);
    says(&run(&folder, "verify-backend graph.yaml --against rten"), 0, &["against `rten`, 32 calls"]);
    for (require, why) in [
        ("device: cpu", "no device `cpu`"),
        ("ops: [TopK]", "no operator TopK"),
        ("dtypes: [u64]", "no elements of type u64"),
        ("graph_capture: true", "no graph capture"),
    ] {
        let folder = with("wgpu-lacks", &format!("backend: wgpu, require: {{ {require} }}")).unwrap();
        says(&run(&folder, "check graph.yaml"), 2, &["for `digits.onnx`, `wgpu` has ", why]);
    }
}

/// A model of one item has no larger calls, whichever backend runs it.
#[test]
fn a_device_that_takes_a_batch_does_not_make_a_model_take_it() {
    let keys = "backend: wgpu, require: { max_batch: 2 }";
    let Some(folder) = with("wgpu-batch", keys) else { return };
    let parts = [
        node("Reshape", &["x", "shape"], &["y"], &[]),
        weight("shape", I64, &[4], &[1, 1, 8, 8].map(u64::to_le_bytes).concat()),
    ];
    fs::write(folder.0.join("digits.onnx"), model_with(&[1, 1, 8, 8], &[1, 1, 8, 8], &parts)).unwrap();
    says(&run(&folder, "check graph.yaml"), 2, &["`require.max_batch` must be at most 1 for this model, got 2"]);
}
