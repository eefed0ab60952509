//! Commands about models: graphs for a model, inspection, comparison, compilation and choice of a
//! backend.

use crate::program::{COUNTING, Folder, SLOW};
use serde_json::Value;
use std::fs;

/// The shipped models: an image classifier, and one with a state.
#[test]
fn a_graph_for_a_model_runs_as_it_stands() {
    let folder = Folder::with("new-model", COUNTING);
    let graphs = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs");
    for (model, output) in
        [("classify/classifier", "logits"), ("listen/listener", "heard"), ("digits/digits", "logits")]
    {
        let name = model.replace('/', "-");
        folder.run(&format!("new {name} --model {graphs}/{model}.onnx")).expect(0, "/graph.yaml --plan", "");
        folder.run(&format!("{name}/graph.yaml")).expect(0, "accounting: balanced", "");
        let written = fs::read_dir(folder.0.join(&name).join("out")).unwrap().count();
        assert!(written > 0, "{model}: {output}");
    }
    let digits = format!("--model {graphs}/digits/digits.onnx");
    folder.run(&format!("new camera {digits} --input camera")).expect(0, "/graph.yaml --plan", "");
    folder.run("camera/graph.yaml --set nodes.camera.config.count=3").expect(0, "accounting: balanced", "");
    folder.run(&format!("new other {digits} --input wav")).expect(
        2,
        "",
        "expects `image` f32[?,1,8,8]: remove `--input`",
    );
    fs::write(folder.0.join("no.onnx"), "text").unwrap();
    folder.run("new other --model no.onnx").expect(2, "", "expected an ONNX model, found text");
    fs::write(folder.0.join("no.npy"), limen_tests::files::npy_of(&[1], &[0.0])).unwrap();
    folder.run("new other --model no.npy").expect(2, "", "expected an ONNX model, found a .npy file");
    folder.run("new other --input wav").expect(2, "", "--model");
    folder.run(&format!("new other {digits} {digits}")).expect(
        2,
        "",
        "the first of two models must have one image as input",
    );
    assert!(!folder.0.join("other").exists());
}

/// A graph that runs the model of the `digits` graph on noise.
const MODEL: &str = "
version: 1
nodes:
  noise: { kind: synthetic, config: { pattern: noise, shape: [1, 8, 8], dtype: f32, count: 40 } }
  digit: { kind: infer, config: { model: digits.onnx }, from: noise }
  nothing: { kind: 'null', from: digit }
";

/// Tensors with their types, shapes and bytes, totals, and what the file says of itself.
#[test]
fn files_of_weights_are_inspected_from_the_command_line() {
    let folder = Folder::with("weights", MODEL);
    for name in ["blocks.gguf", "views.pt"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../backends/infer/fixtures/");
        fs::copy(format!("{fixtures}{name}"), folder.0.join(name)).unwrap();
    }
    folder
        .run("inspect blocks.gguf")
        .expect(0, "blocks.gguf: gguf, 1630 parameters in 1.22 KiB, SHA-256", "")
        .expect(0, "q4_k    q4_k  [3, 256]      432", "")
        .expect(0, "limen.words           string[3]", "");
    folder.run("inspect views.pt").expect(0, "views.pt: pt, 111 parameters in 444 B, SHA-256", "");
    let inspected = folder.run("inspect blocks.gguf --json").json();
    assert_eq!(inspected["metadata"]["limen.block_count"], "3", "{inspected}");
    assert_eq!(inspected["tensors"][4]["bytes"], 432, "{inspected}");
    fs::write(folder.0.join("m.pt"), "text").unwrap();
    folder.run("inspect m.pt").expect(2, "", "the file is not a readable PyTorch archive: ");
}

#[test]
fn models_are_inspected_and_compared_from_the_command_line() {
    let folder = Folder::with("models", MODEL);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    folder
        .run("inspect digits.onnx")
        .expect(0, "digits.onnx: onnx, opset ", "")
        .expect(0, "rten has all operators: 5 native", "")
        .expect(
            0,
            if cfg!(feature = "wgpu") {
                "wgpu has all operators"
            } else {
                "wgpu is not built in (cargo feature `wgpu`)"
            },
            "",
        )
        .expect(
            0,
            if cfg!(feature = "cuda") {
                "cuda has all operators"
            } else {
                "cuda is not built in (cargo feature `cuda12`)"
            },
            "",
        )
        .expect(0, "Conv", "");
    let inspected = folder.run("inspect digits.onnx --json").json();
    assert_eq!(inspected["sha256"].as_str().map(str::len), Some(64), "{inspected}");
    folder.run("inspect graph.yaml").expect(2, "", "limen-run: graph.yaml: expected an ONNX model, found text");
    folder.run("inspect none.onnx").expect(2, "", "limen-run: none.onnx: the file cannot be read: No such file");
    if cfg!(feature = "ort") {
        let ran = folder.run("inspect digits.onnx --onnxruntime ./none.so");
        for runtime in ["ort", "ort-webgpu", "ort-cuda", "ort-tensorrt"] {
            ran.expect(0, &format!("\n{runtime} is not available: ONNX Runtime is not"), "");
        }
    }
    folder.run("verify-backend graph.yaml --against rten").expect(0, "against `rten`, 32 calls", "");
    if !cfg!(feature = "cuda") {
        folder.run("verify-backend graph.yaml --against cuda").expect(
            2,
            "",
            "build limen-run with `--features cuda12`",
        );
    }
    if cfg!(feature = "tract") {
        // The two round differently, so nothing else has to differ: the whole comparison is
        // printed, and no refusal.
        let ran = folder.run(
            "verify-backend graph.yaml --against tract --set nodes.digit.config.verify={\"against\":\"rten\",\"atol\":0,\"rtol\":0}",
        );
        for part in
            ["against `tract`, 32 calls", "beyond the tolerance: output `logits` differs from", "numbers beyond atol"]
        {
            ran.expect(2, part, "");
        }
        assert_eq!(ran.err, "");
        // With `auto`, the backend that was compared with has been called, and is not said to be
        // untried.
        let ran = folder.run("verify-backend graph.yaml --against tract --set nodes.digit.config.backend=auto");
        ran.expect(0, "against `tract`, 32 calls", "");
        assert!(
            !ran.out.contains("tract supports the operators and types of the model, but was not tried"),
            "{}",
            ran.out
        );
    }
    let report = folder.run("graph.yaml --json --shadow rten:10").json();
    let figure = |name: &str| report["nodes"][1]["metrics"][name].as_f64();
    assert_eq!((figure("shadow_compared"), figure("shadow_over")), (Some(4.0), Some(0.0)), "{}", report["nodes"][1]);
    // The measurements of calls in flight at once are gathered from their threads.
    let report = folder.run("graph.yaml --json --set nodes.digit.config.in_flight=2").json();
    assert!(report["nodes"][1]["metrics"]["first_call_ms"].as_f64() > Some(0.0), "{}", report["nodes"][1]);
    if cfg!(feature = "ort") {
        for (words, option, key) in [
            ("verify-backend graph.yaml --against ort", "--> --against ort", "verify.against"),
            ("graph.yaml --shadow ort:9", "--> --shadow ort:9", "shadow.backend"),
            ("verify-backend graph.yaml --against ort-cuda", "--> --against ort-cuda", "verify.against"),
        ] {
            let ran = folder.run(&format!("{words} --onnxruntime ./none.so"));
            let name = if words.ends_with("ort-cuda") { "ort-cuda" } else { "ort" };
            let why = format!("the backend of `{key}`: `{name}` is not available");
            ran.expect(2, "", &why).expect(2, "", option).expect(2, "", "help: name the library of ONNX Runtime with");
        }
    }
    for words in ["graph.yaml --shadow mock", "verify-backend graph.yaml --against mock"] {
        folder.run(words).expect(2, "", "expected one of `rten`, `tract`, `ort`, `wgpu`, `cuda`").expect(
            2,
            "",
            "found `mock`",
        );
    }
    folder.run("graph.yaml --shadow rten:0").expect(2, "", "expected a number of calls, as in `rten:100`, found `0`");
    Folder::with("no-models", COUNTING).run("graph.yaml --shadow rten").expect(
        2,
        "",
        "expected an `infer` node with a model",
    );
}

#[test]
fn the_report_has_the_status_of_each_backend() {
    let folder = Folder::with("status", MODEL);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let status = |words: &str| folder.run(&format!("graph.yaml --json {words}")).json()["nodes"][1]["backend"].clone();
    let alone = status("");
    assert_eq!(
        (&alone["ready"], &alone["calls"], &alone["failed"], &alone["last_error"]),
        (&true.into(), &40.into(), &0.into(), &Value::Null),
        "{alone}"
    );
    folder.run("graph.yaml -v").expect(0, "digit: rten on cpu, ready, 1 thread, ", "");
    // Four calls at once need the buffers four times, and the weights once.
    let (four, memory) = (status("--set nodes.digit.config.in_flight=4"), alone["memory"].as_u64().unwrap());
    let more = four["memory"].as_u64().unwrap() - memory;
    assert!(more > 0 && more < memory && more.is_multiple_of(4), "{alone} {four}");

    for (on_error, ready, calls) in [("stop", false, 3), ("skip", true, 40)] {
        let graph = SLOW.replace("latency: 800ms", "fail_at: 3").replace("shape: [1] }", "shape: [1], count: 40 }");
        let graph = graph.replace(
            "    from: { from: numbers, capacity: 1 }",
            &format!("    on_error: {on_error}\n    from: numbers"),
        );
        let ran = Folder::with("status-failed", &graph).run("graph.yaml --json");
        let json = ran.json();
        let status = &json["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "slow").unwrap()["backend"];
        assert_eq!(
            (&status["ready"], &status["calls"], &status["failed"]),
            (&ready.into(), &calls.into(), &1.into()),
            "{on_error}: {status}"
        );
        assert!(status["last_error"].as_str().unwrap().contains("call 3 fails"), "{status}");
    }
}

#[cfg(not(feature = "ort"))]
#[test]
fn an_onnxruntime_library_without_the_backend_is_reported() {
    let folder = Folder::with("library", COUNTING);
    for words in ["graph.yaml --onnxruntime lib.so", "compile graph.yaml --cache kept --onnxruntime lib.so"] {
        folder.run(words).expect(0, "", "--onnxruntime lib.so is ignored: this program was built without");
    }
}

#[test]
fn compile_needs_a_cache_and_reports_when_nothing_is_compiled() {
    let folder = Folder::with("compile", MODEL);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    folder.run("compile graph.yaml").expect(2, "", "expected a folder for the results, found none: add `--cache DIR`");
    let ran = folder.run("compile graph.yaml --cache kept");
    ran.expect(0, "digit\n", "").expect(0, "`rten` compiles nothing, so the cache contains no compiled model\n", "");
    assert_eq!(fs::read_dir(folder.0.join("kept")).unwrap().count(), 1, "what its trial found");
}

#[cfg(feature = "tract")]
#[test]
fn compile_says_that_nothing_of_tract_is_kept() {
    let folder = Folder::with("compile-tract", MODEL);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let kept_nothing = "`tract` does not cache what it compiles, so the cache contains no compiled model";
    let ran = folder.run("compile graph.yaml --cache kept --set nodes.digit.config.backend=tract");
    ran.expect(0, "compilations: 1 in ", "").expect(0, kept_nothing, "");
}

#[test]
fn auto_chooses_by_calibration() {
    let folder = Folder::with("calibrate", &MODEL.replace("digits.onnx", "digits.onnx, backend: auto"));
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    folder.run("plan graph.yaml --cache kept").expect(0, "`auto` tries ort, rten, tract in its default order", "");
    folder.run("calibrate graph.yaml --cache kept").expect(0, "`rten`: ", "").expect(0, " per item alone", "");
    folder.run("plan graph.yaml --cache kept").expect(0, "`auto` tries the fastest first: ", "");
    // The measurement was made with one thread and one message per call.
    for other in ["threads=2", "batch.max=2"] {
        let words = format!("plan graph.yaml --cache kept --set nodes.digit.config.{other}");
        folder.run(&words).expect(0, "nothing was measured", "");
    }
}

/// Judged by the counters, in any state of the folder.
#[cfg(feature = "ort")]
#[test]
fn the_second_start_compiles_nothing() {
    let folder = Folder::with("second-start", &MODEL.replace("digits.onnx", "digits.onnx, backend: ort"));
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let counters = |words: &str| {
        let report = folder.run(&format!("graph.yaml --json {words}")).json();
        let figure = |name: &str| report["nodes"][1]["metrics"][name].as_f64().unwrap();
        (figure("compiled") > 0.0, figure("compile_from_disk") > 0.0)
    };
    let kept = || -> Vec<std::path::PathBuf> {
        let files = fs::read_dir(folder.0.join("kept")).unwrap().map(|entry| entry.unwrap().path());
        // The result of the trial is cached beside it.
        files.filter(|path| path.extension().is_some_and(|ending| ending == "limen")).collect()
    };
    assert_eq!(counters(""), (true, false), "nothing is kept where no folder is named");
    folder.run("compile graph.yaml --cache kept").expect(0, "compilations: 1 in ", "");
    let [entry] = &kept()[..] else { panic!("{:?}", kept()) };
    assert_eq!(counters("--cache kept"), (false, true));

    let whole = fs::read(entry).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    for (damaged, why) in [
        (&whole[..whole.len() / 2], "is truncated or changed"),
        (&changed, "is truncated or changed"),
        (b"limen cache 0\n", "is not a cache file of this version"),
    ] {
        fs::write(entry, damaged).unwrap();
        let said = format!("{}: {why}", entry.file_name().unwrap().to_string_lossy());
        let mut planned = folder.run("plan graph.yaml --cache kept");
        // The plan wraps its lines.
        planned.out = planned.out.split_whitespace().collect::<Vec<_>>().join(" ");
        planned.expect(0, &format!("compiled the model again: `kept/{said}"), "");
        assert_eq!(fs::read(entry).unwrap().len(), whole.len(), "what was compiled again is kept again");
        assert_eq!(counters("--cache kept"), (false, true));
    }

    // A folder that cannot be created is reported, and the graph runs.
    fs::write(folder.0.join("file"), "").unwrap();
    folder.run("plan graph.yaml --cache file").expect(0, "the compiled model cannot be written to ", "");
    assert_eq!(counters("--cache file"), (true, false));
}

#[test]
fn requirements_are_checked_before_anything_starts() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/digits.onnx");
    for (require, why) in [
        ("device: npu", "no device `npu`, only cpu"),
        ("dtypes: [f32, f16]", "no elements of type f16 (required)"),
        ("max_rank: 99", "no tensors of 99 dims, at most 6"),
        ("ops: [Conv, com.microsoft.Frobnicate]", "no operator com.microsoft.Frobnicate"),
        ("memory: device", "no inputs or outputs in "),
        ("streams: true", "no asynchronous calls"),
        ("graph_capture: true", "no graph capture"),
    ] {
        let name = format!("require-{}", require.split(':').next().unwrap());
        let graph = MODEL.replace("digits.onnx", &format!("digits.onnx, require: {{ {require} }}"));
        let folder = Folder::with(&name, &graph);
        fs::copy(model, folder.0.join("digits.onnx")).unwrap();
        let ran = folder.run("check graph.yaml");
        ran.expect(2, "", "for `digits.onnx`, `rten` has ").expect(2, "", why).expect(2, "", "help: ");
    }
    for (require, why, help) in [
        ("memory: pinned", "expected `device`, found `pinned`", "write `memory: device`"),
        ("dtypes: [f32, i64]", "no backend reads messages of `i64`", "write `i32` instead of `i64`"),
        ("dtypes: [bf16]", "no backend reads messages of `bf16`", "write `f32` instead"),
        ("max_batch: 65537", "`require.max_batch` must be at most 65536, got 65537", "write a number from 1 to 65536"),
    ] {
        let graph = MODEL.replace("digits.onnx", &format!("digits.onnx, require: {{ {require} }}"));
        let folder = Folder::with("require-never", &graph);
        fs::copy(model, folder.0.join("digits.onnx")).unwrap();
        folder.run("check graph.yaml").expect(2, "", why).expect(2, "", help);
    }
    let all = "{ device: cpu, dtypes: [f32], max_batch: 64, max_rank: 4, ops: [Conv] }";
    let folder = Folder::with("require", &MODEL.replace("digits.onnx", &format!("digits.onnx, require: {all}")));
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    folder.run("check graph.yaml").expect(0, "ok", "");
}
