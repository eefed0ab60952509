use super::*;
use crate::base::sha256;
use crate::onnx::test_models::{external, model};
use crate::steps::TrialProgress;
use limen::Folders;
use limen::node::Extensions;
use limen::policy::Trials;
use rten_onnx::onnx::DataType as D;
use std::cell::RefCell;
use std::path::PathBuf;

thread_local! {
    /// The folder whose files are removed when a runtime is about to load a model, and how
    /// often that happened.
    static FOLDER: RefCell<(PathBuf, usize)> = RefCell::default();
}

/// A connection to the input `x`.
fn connected() -> Connected {
    Connected::of([("x".to_string(), None)])
}

fn remove_files(progress: TrialProgress<'_>) {
    if matches!(progress, TrialProgress::Doing { what: "loaded the model", .. }) {
        FOLDER.with_borrow_mut(|(folder, times)| {
            *times += 1;
            for name in ["m.onnx", "m.onnx.data"] {
                let _ = std::fs::remove_file(folder.join(name));
            }
        });
    }
}

/// Promise (models): A process reads a model's files once: every runtime runs the bytes that
/// were checked.
#[test]
fn a_models_files_are_read_once() {
    let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
    let beside = model(&[x], &[y], &[external("w", &[2], "m.onnx.data", 0, 8)], &["y = Add x w"]);
    let alone = model(&[x], &[y], &[], &["y = Relu x"]);
    for (file, config, loads) in [
        (&alone, serde_json::json!({ "model": "m.onnx", "sha256": sha256(&alone) }), 1),
        (&beside, serde_json::json!({ "model": "m.onnx" }), 1),
        (&beside, serde_json::json!({ "model": "m.onnx", "backend": "auto" }), 1),
        (&beside, serde_json::json!({ "model": "m.onnx", "verify": { "against": "rten" } }), 2),
        (
            &beside,
            serde_json::json!({ "model": "m.onnx", "verify": { "against": "rten" }, "shadow": { "backend": "rten" } }),
            3,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        std::fs::write(folder.path().join("m.onnx.data"), [0; 8]).unwrap();
        FOLDER.set((folder.path().into(), 0));
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let cx = Planning {
            node: "m",
            folders: &folders,
            trials: &Trials::default(),
            extensions: &Extensions::default(),
            isolation: limen::policy::Isolation::None,
        };
        let steps = TrialSteps::recording(Vec::new(), remove_files);
        let text = config.to_string();
        let config: InferConfig = serde_json::from_value(config).unwrap();
        let planned = choose(&config, "m.onnx", &connected(), &cx, RecordedModel::default(), &steps, None);
        assert!(planned.is_ok(), "{text}: {planned:?}");
        assert!(!folder.path().join("m.onnx").exists(), "{text}");
        assert!(FOLDER.take().1 >= loads, "{text}");
    }
}

/// The files of the weights of a model in memory are in memory too: none on disk is read,
/// beside the program or the graph.
#[test]
fn a_model_in_memory_has_its_weights_there() {
    let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
    let file = model(&[x], &[y], &[external("w", &[2], "m.onnx.data", 0, 8)], &["y = Add x w"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.onnx.data"), [0; 8]).unwrap();
    let unreadable = "the weight file `m.onnx.data` cannot be read: this program does not contain the file";
    for (name, beside, backend, expected) in [
        ("m.onnx", Some("m.onnx.data"), "rten", Ok(())),
        ("voice/m.onnx", Some("voice/m.onnx.data"), "rten", Ok(())),
        ("m.onnx", None, "rten", Err(unreadable)),
        ("voice/m.onnx", Some("m.onnx.data"), "rten", Err(unreadable)),
        #[cfg(feature = "tract")]
        (
            "m.onnx",
            Some("m.onnx.data"),
            "tract",
            Err("tract expects weight files on disk, found `m.onnx.data` in memory"),
        ),
    ] {
        let mut folders = Folders { graph: folder.path().into(), ..Folders::default() };
        folders.memory.add(name, file.clone());
        beside.into_iter().for_each(|name| folders.memory.add(name, vec![0; 8]));
        let (trials, extensions) = (Trials::default(), Extensions::default());
        let cx = Planning {
            node: "m",
            folders: &folders,
            trials: &trials,
            extensions: &extensions,
            isolation: limen::policy::Isolation::None,
        };
        let path = format!("mem:{name}");
        let config = serde_json::json!({ "model": path, "backend": backend });
        let config: InferConfig = serde_json::from_value(config).unwrap();
        let planned = choose(&config, &path, &connected(), &cx, RecordedModel::default(), &TrialSteps::default(), None);
        match (planned, expected) {
            (Ok(_), Ok(())) => {}
            (Err(found), Err(expected)) => assert!(format!("{found:?}").contains(expected), "{path}: {found:?}"),
            (planned, expected) => panic!("{path}, {beside:?}: {planned:?}, {expected:?}"),
        }
    }
}

/// Promise (models): A model whose file is replaced after planning runs the bytes that were
/// read.
#[test]
fn a_file_that_was_read_is_not_read_again() {
    let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, model(&[x], &[y], &[], &["y = Relu x"])).unwrap();
    let folders = Folders { graph: folder.path().into(), ..Folders::default() };
    let cx = Planning {
        node: "m",
        folders: &folders,
        trials: &Trials::default(),
        extensions: &Extensions::default(),
        isolation: limen::policy::Isolation::None,
    };
    let config: InferConfig = serde_json::from_value(serde_json::json!({ "model": "m.onnx" })).unwrap();
    let file = read_model("m.onnx", &cx).unwrap();
    std::fs::write(&path, "none").unwrap();
    let plan =
        |file| choose(&config, "m.onnx", &connected(), &cx, RecordedModel::default(), &TrialSteps::default(), file);
    assert!(plan(Some(file)).is_ok());
    assert!(format!("{:?}", plan(None).unwrap_err()).contains("expected an ONNX model, found text"));
}
