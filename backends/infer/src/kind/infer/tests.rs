//! The kind `infer` is planned, or refused with every reason.

use super::*;
#[cfg(feature = "rten")]
use crate::base::BackendOptions;
use crate::plan::all_connected;
use limen::Folders;
use limen::node::Extensions;
use std::path::Path;
#[cfg(feature = "rten")]
use std::time::Duration;

#[cfg(feature = "rten")]
#[test]
fn a_model_that_differs_from_its_manifest_is_refused_with_every_difference() {
    let state = serde_json::json!([{ "input": "state", "output": "next_state" }]);
    let config = |manifest: &str| serde_json::json!({ "model": "listener.onnx", "state": state, "manifest": manifest });
    plan("listen", config("listener.json")).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/listen");
    let text = std::fs::read_to_string(folder.join("listener.json")).unwrap();
    let other = text.replace("f32[batch,80,1]", "f32[batch,160,1]").replace("\"readout\"", "\"other\"");
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("listener.json"), other).unwrap();
    std::fs::copy(folder.join("listener.onnx"), elsewhere.path().join("listener.onnx")).unwrap();
    let why = plan(&elsewhere.path().to_string_lossy(), config("listener.json")).unwrap_err();
    for part in ["input `sound`: expected `sound` f32[batch,160,1], found", "weight `other`", "weight `readout`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// Plans a config in the folder of a shipped graph; returns the plan or its errors as text.
fn plan(graph: &str, config: serde_json::Value) -> Result<String, String> {
    plan_with(graph, config, &Extensions::default())
}

fn plan_with(graph: &str, config: serde_json::Value, extensions: &Extensions) -> Result<String, String> {
    let config: InferConfig = serde_json::from_value(config).map_err(|e| e.to_string())?;
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs").join(graph);
    let folders = Folders { graph, ..Folders::default() };
    let mut cx = Planning {
        node: "digit",
        folders: &folders,
        trials: &limen::policy::Trials::default(),
        extensions,
        isolation: limen::policy::Isolation::None,
    };
    let given = all_connected(&config, &folders.graph.join(config.model.as_deref().unwrap_or_default()));
    let planned = <InferKind as limen::infer::Infer>::plan(config, &given, &mut cx);
    planned.map(|plan| format!("{plan:?}")).map_err(|errors| format!("{errors:?}"))
}

fn fails(config: serde_json::Value, with: &[&str]) {
    let why = plan("digits", config).unwrap_err();
    for part in with {
        assert!(why.contains(part), "{part}: {why}");
    }
}

macro_rules! json { ($($t:tt)*) => { serde_json::json!($($t)*) }; }

#[cfg(feature = "rten")]
mod devices;
#[cfg(feature = "rten")]
mod refused;

#[cfg(feature = "rten")]
#[test]
fn a_model_is_planned_and_verified() {
    let planned = plan(
        "digits",
        json!({ "model": "digits.onnx", "batch": { "max": 8, "within": "2ms" }, "verify": { "case": "verify.npz" } }),
    )
    .unwrap();
    for part in [
        "\"image\"",
        "\"logits\"",
        "backend rten",
        "verified with the 8 items of verify.npz",
        "154 KiB, ",
        "1 thread\"",
    ] {
        assert!(planned.contains(part), "{part}: {planned}");
    }
}

#[cfg(feature = "rten")]
#[test]
fn all_errors_are_reported_together() {
    fails(
        json!({
            "model": "none.onnx", "threads": 0, "batch": { "max": 4, "stride": 5 }, "mock": { "inputs": {}, "outputs": {} },
            "verify": { "case": "none.npz", "atol": -1.0 },
        }),
        &[
            "Field(\"model\"), message: \"`none.onnx`: cannot load the model: the file cannot be read: No such file",
            "Field(\"threads\"), message: \"`threads` must be 1 to 256, got 0",
            "Field(\"batch.stride\"), message: \"`batch.stride` must be at most 4 (`batch.max`), got 5",
            "Field(\"mock\"), message: \"`mock` requires `backend: mock`, got `backend: ",
            "Field(\"verify.case\"), message: \"`none.npz` is not a readable .npz: No such file",
            "Field(\"verify.atol\"), message: \"`verify.atol` must be finite and at least 0, got -1",
        ],
    );
    fails(
        json!({ "batch": { "max": 0, "stride": 0 } }),
        &["\"model\"), message: \"`model` is missing", "\"batch.max\"", "`batch.stride` must be at least 1"],
    );
    fails(
        json!({ "model": "digits.onnx", "manifest": "train.py" }),
        &["\"manifest\"), message: \"`train.py` is not a manifest"],
    );
    fails(json!({ "model": "train.py" }), &["`train.py`: cannot load the model: expected an ONNX model, found text"]);
    fails(json!({ "model": "data/0000-7.png" }), &["\"model\""]);
    fails(json!({ "model": "digit.onnx" }), &["No such file", "did you mean `digits.onnx`?"]);
    fails(json!({ "model": "other.onnx" }), &["No such file", "name a model of this folder: `digits.onnx`"]);
    fails(json!({ "model": "digits.onnx", "trial": "first" }), &["\"trial\"", "or write `first_message`"]);
    fails(json!({ "model": "../detect/detector.onnx" }), &["\"model\"", "leaves the graph's folder"]);
}

#[cfg(feature = "rten")]
#[test]
fn urls_are_refused() {
    for scheme in ["http", "https", "s3", "gs", "hf"] {
        let file = format!("{scheme}://a.b/c.onnx");
        for (field, config) in [
            ("model", json!({ "model": file })),
            ("manifest", json!({ "model": "digits.onnx", "manifest": file })),
            ("verify.case", json!({ "model": "digits.onnx", "verify": { "case": file } })),
        ] {
            let why = format!("\"{field}\"), message: \"`{file}` was not fetched");
            fails(config, &[&why]);
        }
    }
}

/// Opening a pipe blocks until a writer opens it, and there is none.
#[cfg(feature = "rten")]
#[test]
fn a_pipe_is_refused_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/digits/digits.onnx");
    std::fs::copy(digits, folder.path().join("digits.onnx")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for (config, field) in [
        (json!({ "model": "pipe" }), "model"),
        (json!({ "model": "digits.onnx", "verify": { "case": "pipe" } }), "verify.case"),
        (json!({ "model": "digits.onnx", "manifest": "pipe" }), "manifest"),
    ] {
        let graph = folder.path().to_string_lossy().into_owned();
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(plan(&graph, config)));
        let why = said.recv_timeout(Duration::from_secs(120)).expect(field).unwrap_err();
        assert!(why.contains(&format!("\"{field}\"")) && why.contains("`pipe`"), "{field}: {why}");
        assert!(why.contains("is not a regular file"), "{field}: {why}");
    }
}

#[cfg(feature = "rten")]
#[test]
fn outputs_that_differ_from_the_recorded_ones_fail_the_plan() {
    let verify = json!({ "case": "verify.npz", "atol": 0.0, "rtol": 0.0 });
    fails(
        json!({ "model": "digits.onnx", "verify": verify }),
        &["\"verify.case\"", "`verify.npz`: output `logits` differs from the recorded output: at ["],
    );
}

#[cfg(feature = "rten")]
#[test]
fn a_case_is_run_on_the_reference_too() {
    let config = json!({ "model": "digits.onnx", "verify": { "case": "verify.npz", "against": "rten" } });
    let planned = plan("digits", config.clone()).unwrap();
    for part in ["against `rten`, 32 calls: ", "`rten` reproduces verify.npz too"] {
        assert!(planned.contains(part), "{part}: {planned}");
    }
}

#[test]
fn a_mock_is_planned_without_a_model() {
    let mock = json!({ "inputs": { "x": "f32[2]" }, "outputs": { "y": "i32[3]" }, "latency": "1ms", "max_batch": 2 });
    let planned = plan("digits", json!({ "backend": "mock", "mock": mock })).unwrap();
    assert!(planned.contains("backend mock") && planned.contains("\"y\""), "{planned}");
    fails(
        json!({ "backend": "mock", "mock": mock, "model": "digits.onnx", "batch": { "max": 3 } }),
        &["backend `mock` runs no model", "\"batch.max\"), message: \"`batch.max` must be at most 2 for this model"],
    );
    let mock = json!({ "inputs": { "x": "f32" }, "outputs": { "y": "f32" } });
    let all = json!({ "backend": "mock", "mock": mock, "guard": "finite", "buckets": [1], "load": "lazy",
        "state": [{ "input": "x", "output": "y" }], "batch": { "max": 100_000_000 } });
    fails(all, &["\"guard\"", "\"buckets\"", "\"load\"", "\"state\"", "`batch.max` must be 1 to 65536, got 100000000"]);
    fails(json!({ "backend": "mock" }), &["\"mock\"), message: \"`backend: mock` requires `mock:`"]);
    let wrong = json!({ "inputs": { "x": "f32[?]" }, "outputs": {} });
    fails(json!({ "backend": "mock", "mock": wrong }), &["\"mock.inputs.x\"", "\"mock.outputs\""]);
}

/// Takes the first backend of its order that this program has.
#[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
#[test]
fn auto_takes_the_first_backend_that_fits() {
    let planned = plan("digits", json!({ "model": "digits.onnx", "backend": "auto" })).unwrap();
    let usual = "`auto` tries ort, rten, tract in its default order: nothing was measured";
    assert!(planned.contains(usual), "{planned}");
    let first = ["ort", "rten", "tract"].into_iter().find(|name| planned.contains(&format!("`{name}` runs the model")));
    assert!(planned.contains(&format!("\"backend {}\"", first.unwrap())), "{planned}");
    for name in ["ort", "rten", "tract"] {
        assert!(planned.contains(&format!("`{name}` ")), "{name}: {planned}");
    }
    let config = json!({ "model": "digits.onnx", "backend": "auto", "require": { "device": "npu" } });
    fails(
        config,
        &["\"backend\"), message: \"no backend of this program runs `digits.onnx`: `", "no device `npu`, only cpu"],
    );
}

/// Promise (models): Every element type that `require:` can name is one of a backend, or an error
/// says which type to write instead.
#[cfg(feature = "tract")]
#[test]
fn every_element_type_is_one_of_a_backend_or_replaced() {
    for dtype in ["f32", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"] {
        let config = json!({ "model": "digits.onnx", "backend": "auto", "require": { "dtypes": [dtype] } });
        let instead = match dtype {
            "bf16" | "f64" => Some("f32"),
            "i64" => Some("i32"),
            _ => None,
        };
        match (plan("digits", config), instead) {
            (Ok(_), None) => {}
            (Err(why), Some(instead)) => {
                let help = format!("write `{instead}` instead of `{dtype}`");
                assert!(why.contains("\"require.dtypes\"") && why.contains(&help), "{why}");
            }
            other => panic!("{dtype}: {other:?}"),
        }
    }
}

/// A cache folder holds only the results of graphs that are planned with it, and other graphs do
/// not read them.
#[cfg(feature = "rten")]
#[test]
fn options_hold_only_for_graphs_that_are_planned_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |cache: Option<&str>, calibrate: bool| {
        let cache = cache.map(|name| folder.path().join(name));
        let options = BackendOptions { cache, calibrate, ..BackendOptions::default() };
        let config = json!({ "model": "digits.onnx", "backend": "auto" });
        plan_with("digits", config, &Extensions::default().with(options)).unwrap()
    };
    let kept = |name: &str, ending: &str| {
        let files = std::fs::read_dir(folder.path().join(name)).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|found| found == ending)).count()
    };
    assert!(plan(Some("one"), true).contains("`rten`: "));
    assert_eq!((kept("one", "json"), kept("two", "json")), (1, 0));
    let (usual, measured) = ("nothing was measured", "`auto` tries the fastest first: ");
    let compiled = kept("one", "limen");
    for (cache, expected) in [(Some("two"), usual), (None, usual), (Some("one"), measured)] {
        let planned = plan(cache, false);
        assert!(planned.contains(expected), "{cache:?}: {planned}");
    }
    assert_eq!((kept("one", "json"), kept("two", "json"), kept("one", "limen")), (1, 0, compiled));
    // Only ONNX Runtime caches compiled models on disk.
    let is_ort_there = plan(None, false).contains("`ort` runs the model");
    assert_eq!((compiled, kept("two", "limen")), (usize::from(is_ort_there), usize::from(is_ort_there)));
}

/// What the node has to say for itself is reported as with a named backend, and not as a lack of
/// every backend.
#[cfg(feature = "rten")]
#[test]
fn auto_names_what_the_node_has_to_change() {
    use crate::onnx::test_models::{floats, ints, model};
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let side = |name, dims| (name, DataType::FLOAT, dims);
    let weights = [ints("none", &[]), floats("zero", &[], &[0.0]), floats("one", &[], &[1.0])];
    let count = model(
        &[side("x", &["1", "1"][..])],
        &[side("y", &["k"][..])],
        &weights,
        &["a = Reshape x none", "y = Range zero a one"],
    );
    let places =
        model(&[side("x", &["1", "4"][..])], &[("y", DataType::INT64, &["2", "k"][..])], &[], &["y = NonZero x"]);
    std::fs::write(folder.path().join("count.onnx"), count).unwrap();
    std::fs::write(folder.path().join("places.onnx"), places).unwrap();
    let by_values =
        "output `y` has a length that depends on values (dim 0, `k`; node `y` (Range)): write the greatest length";
    for (config, field, why) in [
        (json!({ "model": "count.onnx" }), "max", by_values),
        (json!({ "model": "count.onnx", "max": { "z": 3 } }), "max", "`max` must name an output (`y`), got `z`"),
        (
            json!({ "model": "places.onnx", "max": { "y": [3, 2, 1] } }),
            "max",
            "`max.y` must have one length per dim of an item (2), got 3",
        ),
        (
            json!({ "model": "places.onnx", "batch": { "max": 2 } }),
            "batch.max",
            "`batch.max` must be at most 1 for this model",
        ),
        (
            json!({ "model": "places.onnx", "batch": { "max": 2 } }),
            "batch.max",
            "write `max: 1`, or export the model with a symbolic first dim",
        ),
    ] {
        for backend in ["auto", "rten"] {
            let mut config = config.clone();
            config["backend"] = backend.into();
            let error = plan(&folder.path().to_string_lossy(), config).unwrap_err();
            assert!(error.contains(&format!("Field(\"{field}\")")) && error.contains(why), "{backend}: {error}");
            assert!(!error.contains("no backend of this program"), "{backend}: {error}");
        }
    }
}

/// It is the node that has to change: the message has the place of its key, and does not ask for
/// another backend.
#[cfg(feature = "rten")]
#[test]
fn what_is_wrong_on_every_backend_is_said_once() {
    use crate::onnx::test_models::{Io, model};
    use crate::verify::test_files::{f32s, write_npz};
    use rten_onnx::onnx::DataType as D;
    let folder = tempfile::tempdir().unwrap();
    let (x, y): (Io<'_>, Io<'_>) = (("x", D::FLOAT, &["n", "2"]), ("y", D::FLOAT, &["n", "2"]));
    let (s, s2, wide): (Io<'_>, Io<'_>, Io<'_>) =
        (("s", D::FLOAT, &["n", "2"]), ("s2", D::FLOAT, &["n", "2"]), ("s2", D::FLOAT, &["n", "4"]));
    let concat = ["y = Relu x", "s2 = Concat s x axis==1"];
    for (name, file) in [
        ("m.onnx", model(&[x], &[y], &[], &["y = Relu x"])),
        ("wide.onnx", model(&[x, s], &[y, wide], &[], &concat)),
        ("only.onnx", model(&[x, s], &[s2], &[], &["s2 = Add x s"])),
        ("two.onnx", model(&[x, s], &[y, s2], &[], &["y = Relu x", "s2 = Add x s"])),
    ] {
        std::fs::write(folder.path().join(name), file).unwrap();
    }
    let (two, three) = (f32s("(1, 2)", &[1.0, 2.0]), f32s("(1, 3)", &[1.0, 2.0, 3.0]));
    for (name, arrays) in [
        ("less.npz", &[("x", two.clone())][..]),
        ("more.npz", &[("x", two.clone()), ("y", two.clone()), ("z", two.clone())]),
        ("in.npz", &[("x", three.clone()), ("y", two.clone())]),
        ("out.npz", &[("x", two.clone()), ("y", three.clone())]),
        ("differs.npz", &[("x", two.clone()), ("y", f32s("(1, 2)", &[5.0, 6.0]))]),
    ] {
        write_npz(&folder.path().join(name), arrays);
    }
    std::fs::write(folder.path().join("text.npz"), "text").unwrap();
    let case = |file: &str| json!({ "model": "m.onnx", "verify": { "case": file } });
    let state = |model: &str| json!({ "model": model, "state": [{ "input": "s", "output": "s2" }] });
    for (config, field, why) in [
        (case("less.npz"), "verify.case", "`less.npz`: expected an array for the output `y`, found `x`"),
        (
            case("more.npz"),
            "verify.case",
            "expected arrays of the inputs and outputs of the model (`x`, `y`), found `z`",
        ),
        (case("in.npz"), "verify.case", "`in.npz`: array `x`: expected [items, 2], found [1, 3]"),
        (case("out.npz"), "verify.case", "`out.npz`: array `y`: expected [items, 2], found [1, 3]"),
        (case("text.npz"), "verify.case", "`text.npz` is not a readable .npz"),
        (case("none.npz"), "verify.case", "`none.npz` is not a readable .npz"),
        (case("test.npz"), "verify.case", "did you mean `text.npz`?"),
        (state("wide.onnx"), "state", "the state `s2` must be f32[2], as its input, got f32[4]"),
        (
            json!({ "model": "two.onnx", "state": [{ "input": "s", "output": "s2" }], "max": { "s2": 2 } }),
            "max",
            "`s2` is a state, whose lengths `max` cannot set: remove `s2` from `max`",
        ),
        (
            json!({ "model": "two.onnx", "state": [{ "input": "s", "output": "s2" }], "max": { "yy": 2 } }),
            "max",
            "`max` must name an output (`y`), got `yy`",
        ),
        (case("differs.npz"), "verify.case", "output `y` differs from the recorded output"),
        (state("only.onnx"), "state", "the only output `s2` is a state"),
        (state("m.onnx"), "state", "a state must name an input of the model (`x`), got `s`"),
    ] {
        for backend in ["auto", "rten"] {
            let mut config = config.clone();
            config["backend"] = backend.into();
            let error = plan(&folder.path().to_string_lossy(), config).unwrap_err();
            assert!(error.contains(&format!("Field(\"{field}\")")), "{backend}: {error}");
            assert_eq!(error.matches(why).count(), 1, "{backend}: {why}: {error}");
            for never in
                ["use another backend", "a `backend` other than", "no backend of this program", "not supported"]
            {
                assert!(!error.contains(never), "{backend}: {error}");
            }
        }
    }
}

/// The constants may be why a call before the graph starts fails.
#[cfg(feature = "rten")]
#[test]
fn a_failed_trial_names_the_constants() {
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType as D;
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("x", D::FLOAT, &["1", "4"][..]), ("rows", D::INT64, &["2"]), ("by", D::FLOAT, &[])];
    let file = model(&inputs, &[("y", D::FLOAT, &["a", "b"])], &[], &["z = Mul x by", "y = Reshape z rows"]);
    std::fs::write(folder.path().join("m.onnx"), file).unwrap();
    let one = model(&inputs[..2], &[("y", D::FLOAT, &["a", "b"])], &[], &["y = Reshape x rows"]);
    std::fs::write(folder.path().join("one.onnx"), one).unwrap();
    // Which of several is wrong, is not known.
    for (config, field, with) in [
        (
            json!({ "model": "m.onnx", "constants": { "rows": [3, 5], "by": 0.5 } }),
            "model",
            "`by` = 0.5, `rows` = [3, 5]",
        ),
        (json!({ "model": "one.onnx", "constants": { "rows": [3, 5] } }), "constants.rows", "`rows` = [3, 5]"),
    ] {
        let why = plan(&folder.path().to_string_lossy(), config).unwrap_err();
        let (place, run) = (format!("Field(\"{field}\")"), format!("a trial run on zeros with {with} failed: "));
        for part in [&*place, &*run, "write another value, write `trial: FILE.npz`"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}

#[cfg(feature = "rten")]
#[test]
fn the_plan_says_where_a_bound_comes_from() {
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    for (width, max, line) in [
        (
            "4",
            None,
            "output `y` is i32[2,≤4], 32 B per message: the largest that node `y` (NonZero) can produce for inputs of this size",
        ),
        ("4", Some(3), "output `y` is i32[2,≤3], 24 B per message: set by `max:`"),
        ("200000", None, "a smaller `max: { y: [2, 200000] }` uses less memory"),
    ] {
        let x = ("x", DataType::FLOAT, &["1", width][..]);
        let file = model(&[x], &[("y", DataType::INT64, &["2", "k"][..])], &[], &["y = NonZero x"]);
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        let mut config = json!({ "model": "m.onnx" });
        max.iter().for_each(|max| config["max"] = json!({ "y": max }));
        let planned = plan(&folder.path().to_string_lossy(), config).unwrap();
        assert!(planned.contains(line), "{line}: {planned}");
    }
}

/// Only ONNX Runtime has the operator Det: the plan uses it, and says why the other backends
/// cannot.
#[cfg(all(feature = "rten", feature = "tract", feature = "ort"))]
#[test]
fn the_plan_says_why_other_backends_cannot_run_the_model() {
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let x = ("x", DataType::FLOAT, &["n", "2", "2"][..]);
    let file = model(&[x], &[("y", DataType::FLOAT, &["n"][..])], &[], &["y = Det x"]);
    std::fs::write(folder.path().join("m.onnx"), file).unwrap();
    for backend in ["auto", "ort"] {
        let config = json!({ "model": "m.onnx", "backend": backend });
        let planned = plan(&folder.path().to_string_lossy(), config).unwrap();
        let others = ["`rten` has no operator Det (node `y`", "`tract` has no operator Det (node `y`"];
        for part in ["\"backend ort\"", "`ort` runs the model"].into_iter().chain(others) {
            assert!(planned.contains(part), "{backend}, {part}: {planned}");
        }
    }
}

#[cfg(feature = "rten")]
#[test]
fn what_would_lose_digits_needs_permission() {
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType as D;
    for (takes, gives, nodes, expected) in [
        (D::DOUBLE, D::FLOAT, &["y = Cast x to==1"][..], "`m.onnx` expects `f64` at `x`"),
        (D::FLOAT, D::DOUBLE, &["y = Cast x to==11"], "expected `f32` at output `y` of `m.onnx`, found `f64`"),
        (
            D::FLOAT,
            D::FLOAT,
            &["a = Cast x to==11", "b = Mul a a", "y = Cast b to==1"],
            "Mul computes `float64` with 7 digits instead of 15 (node `b`)",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = model(&[("x", takes, &["n", "2"])], &[("y", gives, &["n", "2"])], &[], nodes);
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        let plan = |config| plan(&folder.path().to_string_lossy(), config);
        let why = plan(json!({ "model": "m.onnx" })).unwrap_err();
        assert!(why.contains(expected) && why.contains("allow_narrowing: true"), "{why}");
        plan(json!({ "model": "m.onnx", "allow_narrowing": true })).unwrap();
    }
}

#[cfg(feature = "rten")]
#[test]
fn items_that_change_each_other_need_a_case_to_be_batched() {
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let file = model(
        &[("x", DataType::FLOAT, &["n", "2"])],
        &[("y", DataType::UINT8, &["n", "2"])],
        &[],
        &["y = DynamicQuantizeLinear x"],
    );
    std::fs::write(folder.path().join("m.onnx"), file).unwrap();
    let plan = |batch: usize| {
        let verify = serde_json::json!({ "against": "tract" });
        plan(
            &folder.path().to_string_lossy(),
            json!({ "model": "m.onnx", "batch": { "max": batch }, "verify": verify }),
        )
    };
    let why = plan(2).unwrap_err();
    assert!(why.contains("scales by the range of a whole batch") && why.contains("verify: { case"), "{why}");
    assert!(!plan(1).is_err_and(|why| why.contains("whole batch")));
}

/// One number of a cloud of points. Nodes with the same file may read its first dim in both ways.
#[cfg(feature = "rten")]
#[test]
fn a_first_dim_may_be_part_of_a_message() {
    use crate::onnx::test_models::{ints, model};
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (("x", DataType::FLOAT, &["points", "3"][..]), ("y", DataType::FLOAT, &["m", "3"][..]));
    let file = model(&[x], &[y], &[ints("zero", &[0])], &["y = ReduceMax x zero"]);
    std::fs::write(folder.path().join("m.onnx"), file).unwrap();
    let folders = Folders { graph: folder.path().into(), ..Folders::default() };
    let trials = limen::policy::Trials::default();
    let plan = |config: serde_json::Value, given: &str| {
        let config: InferConfig = serde_json::from_value(config).unwrap();
        let extensions = Extensions::default();
        let isolation = limen::policy::Isolation::None;
        let mut cx = Planning { node: "m", folders: &folders, trials: &trials, extensions: &extensions, isolation };
        let given = Connected::of([("x".to_string(), Some(given.parse().unwrap()))]);
        <InferKind as limen::infer::Infer>::plan(config, &given, &mut cx)
            .map(|plan| plan.outputs().map(|(_, spec)| spec.unwrap().to_string()).collect::<String>())
            .map_err(|errors| format!("{errors:?}"))
    };
    let (none, first) = (json!({ "model": "m.onnx", "batch_dim": "none" }), json!({ "model": "m.onnx" }));
    let mut kept = Vec::new();
    for (config, given, output) in
        [(&none, "f32[100,3]", "f32[1,3]"), (&first, "f32[3]", "f32[3]"), (&none, "f32[<=100,3]", "f32[1,3]")]
    {
        kept.push(plan(config.clone(), given));
        assert_eq!(kept.last().unwrap().as_deref(), Ok(output), "{given}");
    }
    let batched = json!({ "model": "m.onnx", "batch_dim": "none", "batch": { "max": 2 } });
    for (config, given, why) in [
        (first, "f32[100,3]", "write `batch_dim: none` if `points` is part of a message"),
        (none, "f32[3]", "f32[points,3]"),
        (batched, "f32[100,3]", "`batch.max` must be 1 with `batch_dim: none`"),
    ] {
        let found = plan(config, given).unwrap_err();
        assert!(found.contains(why), "{why}: {found}");
    }
}

/// Attention over the items of a call. A recorded case permits batches only if it is reproduced one
/// item at a time and in batches.
#[cfg(feature = "rten")]
#[test]
fn a_first_dim_that_is_no_batch_is_refused_with_batches() {
    use crate::onnx::test_models::model;
    use crate::verify::test_files::{f32s, write_npz};
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let io = |name| (name, DataType::FLOAT, &["n", "2"][..]);
    let nodes = ["a = Transpose x perm=1,0", "b = MatMul x a", "c = Softmax b axis==1", "y = MatMul c x"];
    std::fs::write(folder.path().join("attend.onnx"), model(&[io("x")], &[io("y")], &[], &nodes)).unwrap();
    std::fs::write(folder.path().join("relu.onnx"), model(&[io("x")], &[io("y")], &[], &["y = Relu x"])).unwrap();
    let x = [1.0, 0.0, 0.0, 2.0];
    // Of both items together, softmax of [1, 0] and of [0, 4].
    let (near, far) = (1.0 / (1.0 + f32::exp(-1.0)), 1.0 / (1.0 + f32::exp(-4.0)));
    let together = [near, 2.0 * (1.0 - near), 1.0 - far, 2.0 * far];
    let alike = [1.0, 0.0, 1.0, 0.0];
    for (name, shape, x, y) in [
        ("alone.npz", "(2, 2)", &x[..], &x[..]),
        ("together.npz", "(2, 2)", &x, &together),
        ("alike.npz", "(2, 2)", &alike, &alike),
        ("one.npz", "(1, 2)", &x[..2], &x[..2]),
    ] {
        write_npz(&folder.path().join(name), &[("x", f32s(shape, x)), ("y", f32s(shape, y))]);
    }
    let plan = |model: &str, batch: serde_json::Value, verify: Option<serde_json::Value>| {
        plan(
            &folder.path().to_string_lossy(),
            json!({ "model": format!("{model}.onnx"), "backend": "rten", "batch": batch, "verify": verify }),
        )
    };
    let case = |name: &str| Some(json!({ "case": format!("{name}.npz") }));
    let four = json!({ "max": 4 });
    let depends = "an item's numbers depend on the call's other items: a call of 4 items changes output `y` by";
    for (verify, why) in [
        (None, depends),
        (Some(json!({ "against": "rten" })), depends),
        (case("one"), depends),
        (case("alike"), depends),
        (case("alone"), "`alone.npz`: only in calls of several items: output `y` differs from the recorded output"),
        (case("together"), "`together.npz`: only one item at a time: output `y` differs from the recorded output"),
    ] {
        let found = plan("attend", four.clone(), verify).unwrap_err();
        assert!(
            found.contains("\"batch.max\"") && found.contains(why) && found.contains("write `max: 1`"),
            "{why}: {found}"
        );
    }
    for (name, batch, verify) in [
        ("attend", json!({ "max": 1 }), case("alone")),
        // Messages stay as context for the next call.
        ("attend", json!({ "max": 4, "stride": 1 }), None),
        ("relu", four.clone(), None),
        ("relu", four.clone(), case("alone")),
    ] {
        plan(name, batch, verify).unwrap();
    }
    let tolerant = json!({ "case": "alone.npz", "atol": 3.0 });
    let planned = plan("attend", four, Some(tolerant)).unwrap();
    assert!(planned.contains(depends), "{planned}");
}

/// rten converts to f32 and back around each operator.
#[cfg(feature = "rten")]
#[test]
fn a_quantized_model_that_may_be_slower_is_named() {
    use crate::onnx::test_models::{floats, model};
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let io = |name| (name, DataType::FLOAT, &["n", "2"][..]);
    let zero = rten_onnx::onnx::TensorProto {
        data_type: Some(DataType::UINT8),
        int32_data: vec![0],
        float_data: Vec::new(),
        ..floats("zero", &[], &[0.0])
    };
    let scale = [floats("scale", &[], &[0.1]), zero];
    let both = ["a = QuantizeLinear x scale zero", "y = DequantizeLinear a scale zero"];
    std::fs::write(folder.path().join("m.onnx"), model(&[io("x")], &[io("y")], &scale, &both)).unwrap();
    std::fs::write(folder.path().join("f.onnx"), model(&[io("x")], &[io("y")], &[], &["y = Relu x"])).unwrap();
    let plan = |model: &str, threads: usize| {
        plan(&folder.path().to_string_lossy(), json!({ "model": model, "backend": "rten", "threads": threads }))
            .unwrap()
    };
    let slower = "the model has QuantizeLinear and is often slower on `rten` than its f32 form";
    assert!(plan("m.onnx", 1).contains(slower));
    let planned = plan("f.onnx", 2);
    assert!(!planned.contains("slower") && planned.contains("2 unpinned threads per call"), "{planned}");
}

/// rten gives 1 as the sign of 0: it is not chosen, unless a case or another backend shows that the
/// numbers are right.
#[cfg(feature = "rten")]
#[test]
fn a_model_that_a_backend_computes_otherwise_needs_a_case() {
    use crate::onnx::test_models::model;
    use crate::verify::test_files::{f32s, write_npz};
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let io = |name| (name, DataType::FLOAT, &["n", "2"][..]);
    std::fs::write(folder.path().join("m.onnx"), model(&[io("x")], &[io("y")], &[], &["y = Sign x"])).unwrap();
    let arrays = [("x", f32s("(1, 2)", &[1.0, -2.0])), ("y", f32s("(1, 2)", &[1.0, -1.0]))];
    write_npz(&folder.path().join("case.npz"), &arrays);
    let plan = |config| plan(&folder.path().to_string_lossy(), config);
    let config = |verify: serde_json::Value| json!({ "model": "m.onnx", "backend": "rten", "verify": verify });
    let expected = "`rten` computes differently from ONNX: Sign returns 1 for 0 (node `y`)";
    for config in [json!({ "model": "m.onnx", "backend": "rten" }), config(json!({ "against": "rten" }))] {
        let why = plan(config).unwrap_err();
        assert!(why.contains(expected) && why.contains("verify: { case: FILE.npz }"), "{why}");
    }
    let planned = plan(config(json!({ "case": "case.npz" }))).unwrap();
    assert!(planned.contains("1 operator: 0 native, Sign returns 1 for 0"), "{planned}");
}

/// Operators inside branches and loops are checked too, and named with the nodes they are in.
#[cfg(feature = "rten")]
#[test]
fn a_missing_operator_in_a_subgraph_is_named() {
    use crate::onnx::test_models::model;
    use crate::onnx::test_subgraphs::branches;
    use rten_onnx::onnx::DataType;
    let folder = tempfile::tempdir().unwrap();
    let io = |name| (name, DataType::FLOAT, &["n"][..]);
    let inner = model(&[], &[io("z")], &[], &["z = Frobnicate x"]);
    let file = branches(model(&[io("x")], &[io("y")], &[], &["y = Relu x"]), &inner);
    std::fs::write(folder.path().join("m.onnx"), file).unwrap();
    let why = plan(&folder.path().to_string_lossy(), json!({ "model": "m.onnx" })).unwrap_err();
    let others = if cfg!(feature = "ort") { "write `backend: ort`" } else { "(`ort` is not built in" };
    for part in ["for `m.onnx`, `rten` has no operator Frobnicate (node `both/z` of the model)", others] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn unknown_backends_and_backends_not_built_in_are_different_errors() {
    let why = plan("digits", json!({ "backend": "torch" })).unwrap_err();
    let expected = "expected one of `rten`, `tract`, `ort`, `wgpu`, `cuda`, `auto`, `mock`, found `torch`";
    assert!(why.contains("Value(\"backend\")") && why.contains(expected), "{why}");
    for (name, is_built) in [
        ("rten", cfg!(feature = "rten")),
        ("tract", cfg!(feature = "tract")),
        ("ort", cfg!(feature = "ort")),
        ("wgpu", false),
        ("cuda", false),
    ] {
        if !is_built {
            let because = format!("was built without the backend `{name}`");
            let feature = if name == "cuda" { "cuda12" } else { name };
            let help = format!("--features {feature}");
            fails(json!({ "model": "digits.onnx", "backend": name }), &["\"backend\")", &because, &help]);
        }
    }
}

#[test]
fn the_schema_describes_the_kind() {
    let schema = schemars::schema_for!(InferConfig);
    let about = schema.get("description").and_then(|d| d.as_str()).unwrap();
    assert!(about.starts_with("Runs a model on the messages of its inputs"), "{about}");
}
