//! The kind `infer`: a graph's choice of model, backend, batching and recorded case.
//!
//! Everything that can be wrong with a model node is found while the graph is planned, and said at once.

use crate::backend::Mock;
use crate::plan::{Choice, Config, infer_plan};
use crate::steps::Steps;
use crate::trial;
use limen::backend::Backend;
use limen::infer::InferPlan;
use limen::node::{Connected, PlanErrors, Planning};

/// The kind `infer`.
#[derive(Debug)]
pub struct Infer;

impl limen::infer::Infer for Infer {
    type Config = Config;

    fn plan(config: Config, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let case = config.case(cx, &mut errors);
        let planned = match (config.backend, &config.model) {
            (Choice::Mock, _) => match config.mock.clone().map(Mock::prepare) {
                Some(Ok(prepared)) => {
                    let least = prepared.least();
                    infer_plan::<Mock>(&config, prepared, None, case.as_ref(), &Steps::default())
                        .map(|plan| plan.takes(least))
                }
                // Said above, field by field.
                _ => return Err(errors),
            },
            (_, None) => return Err(errors),
            (_, Some(model)) => trial::planned(&config, model, given, cx, case),
        };
        match planned {
            Ok(plan) => errors.into_result(plan),
            Err(others) => {
                errors.append(others);
                Err(errors)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Folders;
    use std::path::Path;
    #[cfg(feature = "rten")]
    use std::time::Duration;

    /// A manifest of this very model is nothing to say; one that was written for another names every difference.
    #[cfg(feature = "rten")]
    #[test]
    fn a_model_is_what_its_manifest_says() {
        let state = serde_json::json!([{ "input": "state", "output": "next_state" }]);
        let config =
            |manifest: &str| serde_json::json!({ "model": "listener.onnx", "state": state, "manifest": manifest });
        plan("listen", config("listener.json")).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/listen");
        let text = std::fs::read_to_string(folder.join("listener.json")).unwrap();
        let other = text.replace("f32[batch,80,1]", "f32[batch,160,1]").replace("\"readout\"", "\"other\"");
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("listener.json"), other).unwrap();
        std::fs::copy(folder.join("listener.onnx"), elsewhere.path().join("listener.onnx")).unwrap();
        let why = plan(&elsewhere.path().to_string_lossy(), config("listener.json")).unwrap_err();
        for part in ["input `sound` is `sound` f32[batch,80,1]; the manifest has", "weight `other`", "weight `readout`"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    /// Plans a config in the folder of a shipped graph; answers the plan or its errors as text.
    fn plan(graph: &str, config: serde_json::Value) -> Result<String, String> {
        let config = serde_json::from_value(config).map_err(|e| e.to_string())?;
        let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs").join(graph);
        let folders = Folders { graph, ..Folders::default() };
        let mut cx = Planning { node: "digit", folders: &folders, trials: &limen::policy::Trials::default() };
        let planned = <Infer as limen::infer::Infer>::plan(config, &Connected::default(), &mut cx);
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
    fn everything_wrong_is_said_at_once() {
        fails(
            json!({
                "model": "none.onnx", "threads": 0, "batch": { "max": 4, "stride": 5 }, "mock": { "inputs": {}, "outputs": {} },
                "verify": { "case": "none.npz", "atol": -1.0 },
            }),
            &[
                "Field(\"model\"), message: \"`none.onnx`: not a readable model: the file cannot be read: No such file",
                "Field(\"threads\"), message: \"0 threads",
                "Field(\"batch.stride\"), message: \"5 is more than the 4 messages",
                "Field(\"mock\"), message: \"is for the backend `mock` only",
                "Field(\"verify.case\"), message: \"`none.npz` is not a readable .npz: No such file",
                "Field(\"verify.atol\"), message: \"-1 is not a tolerance",
            ],
        );
        fails(
            json!({ "batch": { "max": 0, "stride": 0 } }),
            &["\"model\"), message: \"is missing", "\"batch.max\"", "none ever would"],
        );
        fails(
            json!({ "model": "digits.onnx", "manifest": "train.py" }),
            &["\"manifest\"), message: \"`train.py` is no"],
        );
        fails(json!({ "model": "train.py" }), &["`train.py`: not a readable model: this is text, not an ONNX model"]);
        fails(json!({ "model": "data/0000-7.png" }), &["\"model\""]);
        fails(json!({ "model": "../detect/detector.onnx" }), &["\"model\"", "leaves the graph's folder"]);
    }

    #[cfg(feature = "rten")]
    #[test]
    fn nothing_is_fetched() {
        for scheme in ["http", "https", "s3", "gs", "hf"] {
            let file = format!("{scheme}://a.b/c.onnx");
            for (field, config) in [
                ("model", json!({ "model": file })),
                ("manifest", json!({ "model": "digits.onnx", "manifest": file })),
                ("verify.case", json!({ "model": "digits.onnx", "verify": { "case": file } })),
            ] {
                let why = format!("\"{field}\"), message: \"`{file}`: nothing is fetched over `{scheme}://`");
                fails(config, &[&why]);
            }
        }
    }

    /// To open a pipe is to wait for whoever writes to it, and nobody does.
    #[cfg(feature = "rten")]
    #[test]
    fn a_pipe_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
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
            let why = said.recv_timeout(Duration::from_secs(20)).expect(field).unwrap_err();
            assert!(why.contains(&format!("\"{field}\"")) && why.contains("`pipe`"), "{field}: {why}");
            assert!(why.contains("is not a regular file"), "{field}: {why}");
        }
    }

    #[cfg(feature = "rten")]
    #[test]
    fn other_numbers_than_recorded_stop_the_plan() {
        let verify = json!({ "case": "verify.npz", "atol": 0.0, "rtol": 0.0 });
        fails(
            json!({ "model": "digits.onnx", "verify": verify }),
            &["\"verify.case\"", "`verify.npz`: output `logits` differs from what was recorded: at ["],
        );
    }

    /// A golden set on two backends, both times with the numbers of the file.
    #[cfg(feature = "rten")]
    #[test]
    fn a_case_is_run_on_the_reference_too() {
        let config = json!({ "model": "digits.onnx", "verify": { "case": "verify.npz", "against": "rten" } });
        let planned = plan("digits", config.clone()).unwrap();
        for part in ["against `rten`, 32 calls: a call takes", "`rten` gives what verify.npz says too"] {
            assert!(planned.contains(part), "{part}: {planned}");
        }
    }

    #[test]
    fn a_mock_is_planned_without_a_model() {
        let mock =
            json!({ "inputs": { "x": "f32[2]" }, "outputs": { "y": "i32[3]" }, "latency": "1ms", "max_batch": 2 });
        let planned = plan("digits", json!({ "backend": "mock", "mock": mock })).unwrap();
        assert!(planned.contains("backend mock") && planned.contains("\"y\""), "{planned}");
        fails(
            json!({ "backend": "mock", "mock": mock, "model": "digits.onnx", "batch": { "max": 3 } }),
            &["backend `mock` runs no model", "\"batch.max\"), message: \"the model takes at most 2 in a call"],
        );
        let mock = json!({ "inputs": { "x": "f32" }, "outputs": { "y": "f32" } });
        let all = json!({ "backend": "mock", "mock": mock, "guard": "finite", "buckets": [1], "load": "lazy",
            "state": [{ "input": "x", "output": "y" }], "batch": { "max": 100_000_000 } });
        fails(
            all,
            &["\"guard\"", "\"buckets\"", "\"load\"", "\"state\"", "100000000 messages in one call; at most 65536"],
        );
        fails(json!({ "backend": "mock" }), &["\"mock\"), message: \"backend `mock` needs to be told"]);
        let wrong = json!({ "inputs": { "x": "f32[?]" }, "outputs": {} });
        fails(json!({ "backend": "mock", "mock": wrong }), &["\"mock.inputs.x\"", "\"mock.outputs\""]);
    }

    /// Whichever are there: it takes the first of its order.
    #[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
    #[test]
    fn auto_takes_the_first_that_can() {
        let planned = plan("digits", json!({ "model": "digits.onnx", "backend": "auto" })).unwrap();
        let usual = "`auto` goes by its usual order, ort, rten, tract: nothing was measured";
        assert!(planned.contains(usual), "{planned}");
        let first = ["ort", "rten", "tract"].into_iter().find(|name| planned.contains(&format!("`{name}` fits")));
        assert!(planned.contains(&format!("\"backend {}\"", first.unwrap())), "{planned}");
        for name in ["ort", "rten", "tract"] {
            assert!(planned.contains(&format!("`{name}` ")), "{name}: {planned}");
        }
        let config = json!({ "model": "digits.onnx", "backend": "auto", "require": { "device": "npu" } });
        fails(config, &["\"backend\"), message: \"nothing here runs `digits.onnx`: `", "no device `npu`, only cpu"]);
    }

    /// Determinants are ONNX Runtime's alone: the plan is good, and says why it is not one of the others.
    #[cfg(all(feature = "rten", feature = "tract", feature = "ort"))]
    #[test]
    fn what_only_one_backend_can_run_is_planned_with_the_others_reasons() {
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
            for part in ["\"backend ort\"", "`ort` fits"].into_iter().chain(others) {
                assert!(planned.contains(part), "{backend}, {part}: {planned}");
            }
        }
    }

    /// An operator is looked for inside of branches and loops as well, and named with the nodes it is in.
    #[cfg(feature = "rten")]
    #[test]
    fn an_operator_inside_of_a_subgraph_is_missed() {
        use crate::onnx::test_models::{branches, model};
        use rten_onnx::onnx::DataType;
        let folder = tempfile::tempdir().unwrap();
        let io = |name| (name, DataType::FLOAT, &["n"][..]);
        let inner = model(&[], &[io("z")], &[], &["z = Frobnicate x"]);
        let file = branches(model(&[io("x")], &[io("y")], &[], &["y = Relu x"]), &inner);
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        let why = plan(&folder.path().to_string_lossy(), json!({ "model": "m.onnx" })).unwrap_err();
        let others = if cfg!(feature = "ort") { "write `backend: ort`" } else { "of the others `ort` is not built in" };
        for part in ["for `m.onnx`, `rten` has no operator Frobnicate (node `both/z` of the model)", others] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn backends_that_do_not_exist_are_told_from_those_that_are_not_built_in() {
        let why = plan("digits", json!({ "backend": "torch" })).unwrap_err();
        assert_eq!(why, "unknown variant `torch`, expected one of `rten`, `tract`, `ort`, `auto`, `mock`");
        for (name, is_built) in
            [("rten", cfg!(feature = "rten")), ("tract", cfg!(feature = "tract")), ("ort", cfg!(feature = "ort"))]
        {
            if !is_built {
                let because = format!("was built without the backend `{name}`");
                let help = format!("--features {name}");
                fails(json!({ "model": "digits.onnx", "backend": name }), &["\"backend\")", &because, &help]);
            }
        }
    }

    #[test]
    fn the_schema_says_what_the_kind_is() {
        let schema = schemars::schema_for!(Config);
        let about = schema.get("description").and_then(|d| d.as_str()).unwrap();
        assert!(about.starts_with("Runs a model on the messages of its inputs"), "{about}");
    }
}
