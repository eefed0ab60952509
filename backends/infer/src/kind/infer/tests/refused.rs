//! Nodes that a runtime refuses before it loads the model.

use super::*;
use crate::onnx::test_models::{Io, floats, model};
use rten_onnx::onnx::DataType as D;

/// What a call would fail at, with every item. The help names what runs the model.
#[test]
fn a_gru_that_rten_lacks_is_refused_before_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y): ([Io<'_>; 1], [Io<'_>; 1]) =
        ([("x", D::FLOAT, &["2", "1", "1"])], [("y", D::FLOAT, &["2", "1", "1", "1"])]);
    let weights = ["w", "r"].map(|name| floats(name, &[1, 3, 1], &[1.0; 3]));
    let plan = |backend: &str, attributes: &str| {
        let bytes = model(&x, &y, &weights, &[&format!("y = GRU x w r {attributes}")]);
        std::fs::write(folder.path().join("m.onnx"), bytes).unwrap();
        plan(
            &folder.path().to_string_lossy(),
            json!({ "model": "m.onnx", "backend": backend, "trial": "first_message" }),
        )
    };
    for attributes in ["", "linear_before_reset==0"] {
        let why = plan("rten", attributes).unwrap_err();
        let refused = "for `m.onnx`, `rten` does not support GRU with the default `linear_before_reset: 0` (node `y`)";
        // ONNX Runtime runs it too, where its library is found.
        let help = match (cfg!(feature = "tract"), cfg!(feature = "ort")) {
            (true, _) => "`backend: tract`",
            (false, true) => "",
            (false, false) => "is not built in",
        };
        assert!(why.contains(refused) && why.contains(help) && !why.contains("trial"), "{why}");
    }
    // tract runs forward, whatever the direction: the help does not name it.
    let why = plan("rten", "direction=:reverse").unwrap_err();
    assert!(!why.contains("`backend: tract`"), "{why}");
    assert!(plan("rten", "linear_before_reset==1").is_ok());
    let found = plan("auto", "");
    assert!(cfg!(feature = "ort") || found.is_ok() == cfg!(feature = "tract"), "{found:?}");
}

#[test]
fn a_failing_trial_is_mended_by_another_item_or_backend() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y): ([Io<'_>; 1], [Io<'_>; 1]) = ([("x", D::FLOAT, &["n", "3"])], [("y", D::FLOAT, &["n", "2"])]);
    let bytes = model(&x, &y, &[floats("w", &[2], &[1.0; 2])], &["y = Add x w"]);
    std::fs::write(folder.path().join("m.onnx"), bytes).unwrap();
    let why = plan(&folder.path().to_string_lossy(), json!({ "model": "m.onnx" })).unwrap_err();
    assert!(why.contains("`trial: FILE.npz`") && why.contains("or use another backend"), "{why}");
}

/// rten fails at each item. The help names only what mends it.
#[test]
fn a_type_that_rten_lacks_is_mended_by_another_backend() {
    let folder = tempfile::tempdir().unwrap();
    for node in ["y = Add x x", "y = Relu x"] {
        let (x, y): ([Io<'_>; 1], [Io<'_>; 1]) = ([("x", D::UINT8, &["n", "3"])], [("y", D::UINT8, &["n", "3"])]);
        std::fs::write(folder.path().join("m.onnx"), model(&x, &y, &[], &[node])).unwrap();
        let config = json!({ "model": "m.onnx", "backend": "rten" });
        let why = plan(&folder.path().to_string_lossy(), config).unwrap_err();
        assert!(why.contains("type") && !why.contains("trial: F") && !why.contains("another value"), "{why}");
        assert!(why.contains("a `backend` other than `rten`"), "{why}");
    }
}
