//! `backend: ort` with `provider: webgpu`, from a user's point of view. Those that need the plugin
//! and a driver do nothing without `LIMEN_ONNXRUNTIME_PLUGIN`.

use crate::program::{Folder, Ran, says};
use crate::trials::{FLOAT, model_with, node, weight};
use limen_tests::protobuf::{field, number};
use std::fs;
use std::path::Path;

/// The options with the plugin, if the environment names it.
fn with_plugin() -> Option<String> {
    let plugin = std::env::var("LIMEN_ONNXRUNTIME_PLUGIN").ok().filter(|path| !path.is_empty())?;
    Some(format!("--allow-software --onnxruntime-plugin {plugin}"))
}

/// The smallest convolution that the plugin 0.4.0 computes wrong with channels last.
fn six_channels() -> Vec<u8> {
    let ones = 1f32.to_le_bytes().repeat(4 * 6 * 2);
    // The defaults, which rten wants to be written.
    let list = |name: &str, value: u64, length: usize| {
        field(5, [field(1, name), number(8, value).repeat(length), number(20, 7)].concat())
    };
    let defaults = [list("strides", 1, 2), list("dilations", 1, 2), list("pads", 0, 4)].concat();
    model_with(
        &[1, 6, 1, 3],
        &[1, 4, 1, 2],
        &[node("Conv", &["x", "w"], &["y"], &defaults), weight("w", FLOAT, &[4, 6, 1, 2], &ones)],
    )
}

/// A folder with `m.onnx` and a graph that runs it on messages of this shape, with these keys.
fn with(test: &str, shape: &str, model: &[u8], keys: &str) -> Folder {
    let graph = format!(
        "
version: 1
nodes:
  a: {{ kind: synthetic, config: {{ pattern: noise, shape: {shape}, dtype: f32, count: 20 }} }}
  m: {{ kind: infer, config: {{ model: m.onnx, backend: ort, provider: webgpu{keys} }}, from: a }}
  b: {{ kind: 'null', from: m }}
"
    );
    let folder = Folder::with(test, &graph);
    fs::write(folder.0.join("m.onnx"), model).unwrap();
    folder
}

#[test]
fn digits_have_the_labels_of_the_cpu() {
    let Some(plugin) = with_plugin() else { return };
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/graph.yaml");
    let folder = Folder::with("webgpu-digits", "");
    let labels = |backend: &str, keys: &str| {
        let set =
            format!("--set nodes.digit.config.backend={backend} --set nodes.camera.config.repeat=1 --set run.stop=60s");
        let graph = graph.display();
        let ran =
            folder.run(&format!("{graph} --out {backend} {set} {keys} --fail-on lost>0 --fail-on accuracy<0.97 -q"));
        says(&ran, 0, &[]);
        let rows = fs::read_to_string(folder.0.join(backend).join("out/labels.csv")).unwrap();
        let labels = rows.lines().map(|row| row.split(',').take(2).collect::<Vec<_>>().join(",")).collect::<Vec<_>>();
        assert!(labels.len() > 100, "{rows}");
        labels
    };
    let here = labels("ort", &format!("{plugin} --set nodes.digit.config.provider=webgpu"));
    assert_eq!(here, labels("rten", ""));
    let against = format!("verify-backend {} --against ort --set nodes.digit.config.backend=ort", graph.display());
    let ran = folder.run(&format!("{against} --set nodes.digit.config.provider=webgpu {plugin}"));
    says(
        &ran,
        0,
        &["against `ort`, 32 calls", "runs on webgpu", "`ort-webgpu` runs the model", "`ort` runs the model"],
    );
    let set = "--set nodes.digit.config.backend=ort --set nodes.digit.config.provider=webgpu --set nodes.camera.config.repeat=1";
    let shadow = format!("{} {plugin} {set} --shadow ort:2 --json --out shadow", graph.display());
    let ran = folder.run(&format!("{shadow} --fail-on shadow_over>0 --fail-on shadow_compared<10"));
    says(&ran, 0, &["\"name\": \"ort\"", "\"device\": \"webgpu"]);
}

#[test]
fn a_layout_that_computes_wrong_numbers_is_found() {
    let Some(plugin) = with_plugin() else { return };
    let right = with("webgpu-first", "[6, 1, 3]", &six_channels(), "");
    says(&right.run(&format!("verify-backend graph.yaml --against ort {plugin}")), 0, &["against `ort`, 32 calls"]);
    says(&right.run(&format!("verify-backend graph.yaml --against rten {plugin}")), 0, &["against `rten`, 32 calls"]);
    let last = ", provider_options: { preferredLayout: NHWC }";
    let unverified = with("webgpu-unverified", "[6, 1, 3]", &six_channels(), last);
    let ran = unverified.run(&format!("check graph.yaml {plugin}"));
    says(&ran, 2, &["miscomputes some convolutions", "`verify: { against: rten }`"]);
    for against in ["ort", "rten"] {
        let keys = format!("{last}, verify: {{ against: {against} }}");
        let wrong = with("webgpu-last", "[6, 1, 3]", &six_channels(), &keys);
        let differs = format!("from `{against}` by");
        says(&wrong.run(&format!("check graph.yaml {plugin}")), 2, &[&differs, "numbers beyond atol"]);
        let ran = wrong.run(&format!("verify-backend graph.yaml --against {against} {plugin}"));
        says(&ran, 2, &["beyond the tolerance: ", &differs]);
    }
}

/// The plugin does not bear calls from two threads.
#[test]
fn models_on_two_workers_take_turns() {
    let Some(plugin) = with_plugin() else { return };
    let folder = with("webgpu-two", "[6, 1, 3]", &six_channels(), "");
    let graph = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [6, 1, 3], dtype: f32, count: 200 } }
  m: { kind: infer, config: { model: m.onnx, backend: ort, provider: webgpu }, from: { from: a, when_full: block }, core: 0 }
  n:
    kind: infer
    config: { model: m.onnx, backend: ort, provider: webgpu, in_flight: 2, verify: { against: ort } }
    from: { from: a, when_full: block }
    core: 1
  b: { kind: 'null', from: m }
  c: { kind: 'null', from: n }
";
    fs::write(folder.0.join("graph.yaml"), graph).unwrap();
    let ran = folder.run(&format!("graph.yaml {plugin} --json --fail-on lost>0 --fail-on failed>0"));
    says(&ran, 0, &[]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    for name in ["m", "n"] {
        let node = nodes.iter().find(|node| node["name"] == name).unwrap();
        assert_eq!(node["backend"]["calls"], 200, "{node}");
    }
}

#[test]
fn operators_without_a_kernel_on_webgpu_need_permission() {
    let Some(plugin) = with_plugin() else { return };
    let det = model_with(&[2, 2, 2], &[2], &[node("Det", &["x"], &["y"], &[])]);
    let folder = with("webgpu-det", "[2, 2, 2]", &det, "");
    let ways = [
        "`provider: webgpu` does not support some operators of the model",
        "`cpu_fallback: true`",
        "`backend: wgpu`",
        "`provider: cpu`",
    ];
    says(&folder.run(&format!("check graph.yaml {plugin}")), 2, &ways);
    let folder = with("webgpu-fallback", "[2, 2, 2]", &det, ", cpu_fallback: true, require: { device: webgpu }");
    says(&folder.run(&format!("graph.yaml {plugin} --fail-on failed>0")), 0, &[]);
    let folder = with("webgpu-required", "[2, 2, 2]", &det, ", cpu_fallback: true, require: { device: cpu }");
    says(&folder.run(&format!("check graph.yaml {plugin}")), 2, &["no device `cpu`, only webgpu", "`provider: cpu`"]);
}

#[test]
fn what_is_missing_for_webgpu_is_named() {
    let folder = with("webgpu-missing", "[6, 1, 3]", &six_channels(), "");
    fs::write(folder.0.join("text.so"), "text").unwrap();
    let library = std::env::var("ORT_DYLIB_PATH").expect("as .ci/backends sets it");
    for (words, parts) in [
        (
            "",
            &[
                "`provider: webgpu` requires the plugin",
                "`pip install onnxruntime-ep-webgpu`",
                "`--onnxruntime-plugin FILE`",
            ][..],
        ),
        ("--onnxruntime-plugin none.so", &["none.so` does not exist", "`--onnxruntime-plugin FILE`"]),
        ("--onnxruntime-plugin text.so", &["text.so` is not a library"]),
        (&format!("--onnxruntime-plugin {library}"), &["is not a plugin of ONNX Runtime"]),
    ] {
        says(&folder.run(&format!("check graph.yaml {words}")), 2, parts);
    }
    let Some(plugin) = with_plugin() else { return };
    // On a machine with a GPU neither is missing.
    const SOFTWARE: &str = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER";
    if std::env::var_os(SOFTWARE).is_some() {
        let hardware = plugin.replace("--allow-software ", "");
        says(&folder.run(&format!("check graph.yaml {hardware}")), 2, &["computes on the CPU", "`--allow-software`"]);
        let hidden = folder.command(&format!("check graph.yaml {plugin}")).env_remove(SOFTWARE).output().unwrap();
        says(&Ran::from(hidden), 2, &["lists no device for webgpu", SOFTWARE]);
    }
}
