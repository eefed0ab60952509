//! Graphs whose models, weights, cases and data are in the program's memory.

use crate::program::Folder;
use limen::policy::Trials;
use limen::{Options, Plan, Problems, Spec, Tensor};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Eight images through a model and a layer; the layer fails once and is restarted, for which it
/// reads its weights again.
const GRAPH: &str = "
version: 1
nodes:
  images: { kind: npy, config: { path: AT/images.npy } }
  digit: { kind: infer, config: { model: AT/digits.onnx, verify: { case: AT/verify.npz } }, from: images }
  head:
    kind: linear
    config: { weight: { file: AT/head, dtype: f32, shape: [2, 10] } }
    from: digit
    fault: { error_at: 3 }
    on_error: { restart: { max: 1, backoff: 1ms } }
  out: { kind: outlet, config: { hold: 8 }, from: head }
";

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits").join(name)).unwrap()
}

fn bytes(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}

/// The files of the graph.
fn files() -> [(&'static str, Vec<u8>); 4] {
    let images = bytes((0..8 * 64).map(|n| (n * 37 % 17) as f32 / 16.0));
    let images = [limen_npy::header("<f4", [8, 1, 8, 8]), images].concat();
    let head = bytes((0..20).map(|n| (n * 7 % 11) as f32 - 5.0));
    [("images.npy", images), ("digits.onnx", file("digits.onnx")), ("verify.npz", file("verify.npz")), ("head", head)]
}

fn plan(spec: Spec) -> Result<Plan, Problems> {
    let trials = Trials { program: Some(env!("CARGO_BIN_EXE_limen-run").into()), ..Trials::default() };
    Plan::with_options(spec, &limen_run::registry(), &Options { trials, ..Options::default() })
}

/// Runs a plan; returns what the outlet received, as bits.
fn outputs(plan: Plan) -> Vec<Vec<u32>> {
    let mut graph = plan.wire().unwrap();
    let mut out = graph.outlet::<Tensor>("out").unwrap();
    let running = graph.start().unwrap();
    let mut received = Vec::new();
    while let Ok(message) = out.recv_timeout(Duration::from_secs(120)) {
        received.push(message.body.as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect());
    }
    let report = running.wait();
    assert_eq!((report.exit_code(), report.node("head").unwrap().restarts), (0, 1), "{:?}", report.failures);
    received
}

fn graph_at(at: &str) -> String {
    GRAPH.replace("AT/", at)
}

fn in_memory(text: &str) -> Spec {
    let spec = Spec::from_text(text, "graph.yaml").unwrap();
    files().into_iter().fold(spec, |spec, (name, bytes)| spec.with_file(name, bytes))
}

/// With a trial in another process, which gets the model by a file in memory.
#[test]
fn a_graph_in_memory_gives_the_same_as_from_files() {
    let folder = Folder::with("memory", &graph_at(""));
    files().into_iter().for_each(|(name, bytes)| fs::write(folder.0.join(name), bytes).unwrap());
    let on_disk = plan(Spec::from_file(folder.0.join("graph.yaml")).unwrap()).unwrap();
    assert_eq!(on_disk.memory().files, 0);
    let planned = plan(in_memory(&graph_at("mem:"))).unwrap();
    let notes = planned.nodes().iter().find(|node| node.name == "digit").unwrap().notes.join("\n");
    assert!(notes.contains("verified with the 8 items of mem:verify.npz"), "{notes}");
    assert!(!notes.contains("tried in this process"), "{notes}");
    // The plan holds what a node that is built or restarted reads, and no longer what only the
    // model needed.
    let [images, _, _, head] = files();
    assert_eq!(planned.memory().files, images.1.len() + head.1.len());
    let (expected, found) = (outputs(on_disk), outputs(planned));
    assert_eq!((expected.len(), &expected), (7, &found));
}

/// A file in memory is checked as a file on disk is, and errors name it and its place.
#[test]
fn what_is_wrong_with_a_file_in_memory_is_named() {
    let digest =
        |sum: &str| graph_at("mem:").replace("mem:digits.onnx", &format!("mem:digits.onnx, sha256: \"{sum}\""));
    for (text, with, parts) in [
        (
            graph_at("mem:").replace("digits.onnx", "digit.onnx"),
            None,
            [
                "graph.yaml:5:42",
                "`mem:digit.onnx`: cannot load the model: the file cannot be read: this program does not contain the file: write one of `mem:digits.onnx`",
            ],
        ),
        (
            graph_at("mem:"),
            Some(("digits.onnx", &b"text"[..])),
            ["graph.yaml:5:42", "expected an ONNX model, found text"],
        ),
        (digest(&"0".repeat(64)), None, ["graph.yaml:5:", "`mem:digits.onnx` must have the SHA-256 "]),
        (
            graph_at("mem:"),
            Some(("head", &b"1234"[..])),
            ["graph.yaml:8:", "`mem:head` must have 80 bytes for f32[2, 10], got 4"],
        ),
        (
            graph_at("mem:").replace("mem:head", "mem:../head"),
            None,
            ["graph.yaml:8:", "`mem:../head` cannot be read: this program does not contain the file"],
        ),
        (
            graph_at("mem:"),
            Some(("verify.npz", &b""[..])),
            ["graph.yaml:5:", "`mem:verify.npz` is not a readable .npz"],
        ),
        (graph_at("mem:"), Some(("images.npy", &b""[..])), ["graph.yaml:4:", "`mem:images.npy`"]),
    ] {
        let spec = in_memory(&text);
        let spec = match with {
            Some((name, bytes)) => spec.with_file(name, bytes),
            None => spec,
        };
        let why = plan(spec).map(drop).unwrap_err().to_string();
        assert!(parts.iter().all(|part| why.contains(part)), "{parts:?}: {why}");
    }
}

/// A program replaces a model between two plans.
#[test]
fn a_file_in_memory_that_is_replaced_is_tried_again() {
    let text = graph_at("mem:").replace(", verify: { case: mem:verify.npz }", "");
    let model = file("digits.onnx");
    let first = outputs(plan(in_memory(&text)).unwrap());
    // A model of the same length with another weight of its last layer, whichever byte of it has
    // the highest bits.
    let mut other = model.clone();
    let at = model.len() - 400;
    other[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x10);
    let second = outputs(plan(in_memory(&text).with_file("digits.onnx", other)).unwrap());
    assert_eq!((first.len(), second.len()), (7, 7));
    assert_ne!(first, second);
    assert_eq!(outputs(plan(in_memory(&text)).unwrap()), first);
}

/// Nothing that the program did not add can be reached, and a graph without such files says so.
#[test]
fn a_graph_file_names_no_memory_of_a_program_that_gives_it_none() {
    let folder = Folder::with("memory-none", &graph_at("mem:"));
    files().into_iter().for_each(|(name, bytes)| fs::write(folder.0.join(format!("mem:{name}")), bytes).unwrap());
    let refused = folder.run("check graph.yaml");
    for part in ["`mem:digits.onnx`", "`mem:head`", "`mem:images.npy`"] {
        refused.expect(2, "", part).expect(2, "", "this program does not contain the file");
    }
    fs::write(folder.0.join("graph.yaml"), graph_at("./mem:")).unwrap();
    folder.run("check graph.yaml").expect(0, "ok", "");
}
