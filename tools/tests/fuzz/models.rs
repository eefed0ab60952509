//! Models of valid operators with absurd attributes, and damaged shipped models, on every runtime
//! of this build, in the trial process: each is accepted, or refused with the node's name, and
//! neither the program nor the machine is harmed.

use super::program;
use limen_infer::onnx::{Artifact, Elem, Length};
use limen_tests::fuzz::models::{made_up, plausible};
use limen_tests::fuzz::{attack_in_children, damage, files, pick, root};
use std::fs;
use std::path::Path;

/// The runtimes of this build that are available.
fn runtimes() -> Vec<&'static str> {
    let mut runtimes = vec!["rten"];
    if cfg!(feature = "tract") {
        runtimes.push("tract");
    }
    if cfg!(feature = "ort") && std::env::var_os("ORT_DYLIB_PATH").is_some() {
        runtimes.push("ort");
    }
    runtimes
}

/// The bytes of a model, the shape of an item of its input, and its first output.
type Model = (Vec<u8>, String, String);

/// Shipped models with one f32 input.
fn shipped() -> Vec<Model> {
    let mut found = Vec::new();
    for path in files(&root().join("graphs"), &["onnx"]) {
        let bytes = fs::read(&path).unwrap();
        let outline = Artifact::parse(&path, bytes.clone()).unwrap().outline;
        let lengths = |shape: &[Length]| {
            let lengths = shape.iter().map(|length| if let Length::Fixed(n) = length { *n } else { 1 }).skip(1);
            lengths.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
        };
        if let ([input], true) = (&outline.inputs[..], bytes.len() < 1 << 20)
            && input.elem == Elem::F32
        {
            found.push((bytes, lengths(&input.shape), outline.outputs[0].port.clone()));
        }
    }
    assert!(!found.is_empty());
    found
}

fn graph(runtime: &str, shape: &str, output: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: synthetic, config: {{ pattern: noise, shape: [{shape}], dtype: f32, count: 4 }} }}\n  \
         m: {{ kind: infer, config: {{ model: model.onnx, backend: {runtime} }}, from: a }}\n  z: {{ kind: 'null', from: m/{output} }}\n"
    )
}

/// Whether a runtime accepts a model; an error describes forbidden behaviour.
fn tried(folder: &Path, runtime: &str, (bytes, shape, output): &Model) -> Result<bool, String> {
    fs::write(folder.join("graph.yaml"), graph(runtime, shape, output)).map_err(|error| error.to_string())?;
    fs::write(folder.join("model.onnx"), bytes).map_err(|error| error.to_string())?;
    let ran = program(folder, "check graph.yaml --model-limits memory=512MiB,cpu=2s,wall=8s").output();
    let ran = ran.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let is_named = said.contains("`m`") || said.contains("`m/") || said.contains("`z`");
    let is_noise = ["panicked at", "stack backtrace", "RUST_BACKTRACE"].iter().any(|noise| said.contains(noise));
    match ran.status.code() {
        Some(0) if !is_noise => Ok(true),
        Some(2) if is_named && !is_noise => Ok(false),
        _ => Err(format!("{runtime}: {}: {said}", ran.status)),
    }
}

/// Promise (models): Checking a model never kills the program, whatever the operators, the numbers
/// and the runtime.
///
/// Attack (runtimes): valid operators with invalid numbers, and damaged shipped models, on every
/// built-in runtime; expected: accepted, or refused with the name of the node
#[test]
fn no_model_crashes_the_program() {
    let (folder, shipped, runtimes) = (tempfile::tempdir().unwrap(), shipped(), runtimes());
    attack_in_children(&format!("models on {}", runtimes.join(", ")), 40, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut model = match rng.u8(..8) {
            0 | 1 => pick(&mut rng, &shipped).clone(),
            2 => (made_up(&mut rng), "2".into(), "y".into()),
            _ => (plausible(&mut rng), "2".into(), "y".into()),
        };
        if rng.u8(..3) == 0 {
            damage(&mut rng, &mut model.0);
        }
        let mut is_taken = false;
        for runtime in &runtimes {
            is_taken |= tried(folder.path(), runtime, &model)?;
        }
        Ok(is_taken)
    });
}
